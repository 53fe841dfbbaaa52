//! The open file: short snapshots to read, one batch at a time to write. Owns transactions; must not know
//! rules.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use parking_lot::RwLock;
use redb::{Durability, ReadOnlyTable, ReadableDatabase, ReadableTable, Table as RedbTable};

use super::disk::Disk;
use super::envelope::{self, Kind, Table};
use super::fault::Fault;
use super::stored::{Identity, State, StoredClass, StoredEntry, StoredRow};
use super::tables::{self, CLASS, INDEX, JOURNAL, JournalKey, META, RESOURCE};
use crate::core::name::ScopeDigest;
use crate::core::policy::Windows;
use crate::core::record::{ClassId, Entry, Position, Record};
use crate::core::row::{Row, RowKey};

/// How a commit reaches the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum CommitMode {
    /// Two syncs: data, then the switch to it. A damaged last commit is an error, never a silent step back.
    /// The default.
    #[default]
    TwoPhase,
    /// One sync: faster. A single damaged bit in the last commit makes the open after a kill step back to the
    /// commit before it in silence, and an acknowledged command with it. Only for disks whose loss is borne
    /// elsewhere.
    OnePhase,
}

/// The open file.
#[derive(Debug)]
pub(crate) struct Db {
    pub(super) database: redb::Database,
    pub(super) disk: Arc<dyn Disk>,
    pub(super) identity: Identity,
    pub(super) classes: RwLock<BTreeMap<ClassId, Windows>>,
    pub(super) mode: CommitMode,
    /// Above this size a commit also saves what makes the open after a kill short.
    pub(super) check_at_open_max: u64,
}

/// Whether a batch has anything to commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Commit {
    Yes,
    No,
}

/// Why a batch was not committed.
#[derive(Debug)]
pub(crate) enum Failed {
    /// Before the commit began: nothing of it is or will be in the file.
    Before(Fault),
    /// In the commit: all of it is in the file, or nothing.
    Uncertain(Fault),
}

impl From<Fault> for Failed {
    fn from(fault: Fault) -> Self {
        Self::Before(fault)
    }
}

impl Db {
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    pub fn classes(&self) -> usize {
        self.classes.read().len()
    }

    pub(super) fn class_ids(&self) -> Vec<ClassId> {
        self.classes.read().keys().copied().collect()
    }

    /// The class of these windows, or the number that a new one would get.
    pub fn class_of(&self, windows: Windows) -> Result<ClassId, ClassId> {
        let classes = self.classes.read();
        match classes.iter().find(|(_, known)| **known == windows) {
            Some((class, _)) => Ok(*class),
            None => Err(ClassId(classes.keys().next_back().map_or(FIRST_CLASS, |last| last.0 + 1))),
        }
    }

    /// A consistent view of what is committed now. To be dropped soon: while it lives, no page is given back.
    pub fn snapshot(&self) -> Result<Snapshot<'_>, Fault> {
        let read = self.database.begin_read()?;
        Ok(Snapshot {
            db: self,
            journal: read.open_table(JOURNAL)?,
            index: read.open_table(INDEX)?,
            resource: read.open_table(RESOURCE)?,
            read,
        })
    }

    /// The newest entry of a scope as it is committed now. Opens the journal only where the index has the
    /// scope: most callers who ask are the first of theirs.
    pub fn record(&self, scope: ScopeDigest) -> Result<Option<Record>, Fault> {
        let read = self.database.begin_read()?;
        let Some(position) = position_in(&read.open_table(INDEX)?, scope)? else { return Ok(None) };
        self.newest_at(&read.open_table(JOURNAL)?, position, scope).map(Some)
    }

    /// One row as it is committed now, without opening what a snapshot opens.
    pub fn row(&self, key: &RowKey) -> Result<Option<Row>, Fault> {
        let resource = self.database.begin_read()?.open_table(RESOURCE)?;
        let stored = resource.get(key.as_bytes())?;
        stored.map(|stored| read_row(key.as_bytes(), stored.value())).transpose()
    }

    /// Runs `work` on one write transaction and commits it durably, if it says so. When `work` fails nothing
    /// is committed.
    pub fn batch<R>(
        &self,
        work: impl FnOnce(&mut Batch<'_>) -> Result<(Commit, R), Fault>,
    ) -> Result<R, Failed> {
        let mut write = self.database.begin_write().map_err(Fault::from)?;
        // The only two calls on durability in the program: never less than synced.
        write.set_durability(Durability::Immediate).map_err(|fault| Fault::Io(fault.to_string()))?;
        write.set_two_phase_commit(self.mode == CommitMode::TwoPhase);
        write.set_quick_repair(self.is_large());
        let (commit, done, classes) = {
            let mut batch = Batch {
                db: self,
                write: &write,
                journal: write.open_table(JOURNAL).map_err(Fault::from)?,
                index: write.open_table(INDEX).map_err(Fault::from)?,
                resource: write.open_table(RESOURCE).map_err(Fault::from)?,
                classes: Vec::new(),
            };
            let (commit, done) = work(&mut batch)?;
            (commit, done, batch.classes)
        };
        if commit == Commit::No {
            return Ok(done);
        }
        // Readers look a class up after its first entry is committed, so they must know it before.
        self.classes.write().extend(classes);
        write.commit().map_err(|fault| Failed::Uncertain(fault.into()))?;
        Ok(done)
    }

    fn is_large(&self) -> bool {
        self.disk.file_bytes().is_ok_and(|bytes| bytes > self.check_at_open_max)
    }

    pub fn file_bytes(&self) -> u64 {
        self.disk.file_bytes().unwrap_or_default()
    }

    /// Closes the file, so that the next open finds it clean.
    pub fn close(self) -> Result<(), Fault> {
        Ok(self.database.close()?)
    }

    fn record_at<T>(&self, journal: &T, position: Position) -> Result<Option<Record>, Fault>
    where
        T: ReadableTable<&'static JournalKey, &'static [u8]>,
    {
        match journal.get(&tables::position_key(position))? {
            Some(stored) => self.record_of(position, stored.value()).map(Some),
            None => Ok(None),
        }
    }

    fn record_of(&self, position: Position, framed: &[u8]) -> Result<Record, Fault> {
        let entry = read_entry(&tables::position_key(position), framed)?;
        let windows = self.classes.read().get(&position.class).copied();
        let windows = windows.ok_or_else(|| Fault::damaged(&place(position), "its class is unknown"))?;
        Ok(Record { position, windows, entry })
    }

    fn newest<I, J>(&self, index: &I, journal: &J, scope: ScopeDigest) -> Result<Option<Record>, Fault>
    where
        I: ReadableTable<&'static [u8; 16], &'static JournalKey>,
        J: ReadableTable<&'static JournalKey, &'static [u8]>,
    {
        match position_in(index, scope)? {
            Some(position) => self.newest_at(journal, position, scope).map(Some),
            None => Ok(None),
        }
    }

    /// The entry that the index names for a scope. An index row that leads anywhere else is damage, never
    /// "absent".
    fn newest_at<J>(&self, journal: &J, position: Position, scope: ScopeDigest) -> Result<Record, Fault>
    where
        J: ReadableTable<&'static JournalKey, &'static [u8]>,
    {
        let record = self.record_at(journal, position)?;
        let record = record
            .ok_or_else(|| Fault::damaged(&place(position), "the index names it, the journal lacks it"))?;
        if ScopeDigest::of(&record.entry.scope, self.identity.scope_mode) != scope {
            return Err(Fault::damaged(&place(position), "the index leads another scope to it"));
        }
        Ok(record)
    }
}

/// Where the newest entry of a scope stands.
fn position_in<I>(index: &I, scope: ScopeDigest) -> Result<Option<Position>, Fault>
where
    I: ReadableTable<&'static [u8; 16], &'static JournalKey>,
{
    Ok(index.get(&scope.0)?.map(|row| tables::position_of(row.value())))
}

/// Class 0 is the store's own.
const FIRST_CLASS: u16 = 1;

pub(super) fn place(position: Position) -> String {
    format!("journal entry {} of class {}", position.seq, position.class.0)
}

pub(super) fn read_entry(key: &JournalKey, framed: &[u8]) -> Result<Entry, Fault> {
    envelope::open::<StoredEntry>(Table::Journal, key, Kind::Entry, framed)
        .and_then(Entry::try_from)
        .map_err(|fault| fault.at(&place(tables::position_of(key))))
}

pub(super) fn read_row(key: &[u8], framed: &[u8]) -> Result<Row, Fault> {
    envelope::open::<StoredRow>(Table::Resource, key, Kind::Row, framed).map(Row::from).map_err(|fault| {
        let place = RowKey::parse(key).map(|key| format!("row {}", key.reference()));
        fault.at(place.as_deref().unwrap_or("a row of table resource"))
    })
}

/// What both a snapshot and a batch can read.
pub(crate) trait Rows {
    /// The newest entry of a scope.
    fn record(&self, scope: ScopeDigest) -> Result<Option<Record>, Fault>;
    /// The entry at a position.
    fn entry(&self, position: Position) -> Result<Option<Record>, Fault>;
    /// One row.
    fn row(&self, key: &RowKey) -> Result<Option<Row>, Fault>;
}

/// A consistent view of what was committed when it was made.
pub(crate) struct Snapshot<'d> {
    pub(super) db: &'d Db,
    pub(super) journal: ReadOnlyTable<&'static JournalKey, &'static [u8]>,
    pub(super) index: ReadOnlyTable<&'static [u8; 16], &'static JournalKey>,
    pub(super) resource: ReadOnlyTable<&'static [u8], &'static [u8]>,
    pub(super) read: redb::ReadTransaction,
}

impl Rows for Snapshot<'_> {
    fn record(&self, scope: ScopeDigest) -> Result<Option<Record>, Fault> {
        self.db.newest(&self.index, &self.journal, scope)
    }

    fn entry(&self, position: Position) -> Result<Option<Record>, Fault> {
        self.db.record_at(&self.journal, position)
    }

    fn row(&self, key: &RowKey) -> Result<Option<Row>, Fault> {
        let stored = self.resource.get(key.as_bytes())?;
        stored.map(|stored| read_row(key.as_bytes(), stored.value())).transpose()
    }
}

impl Snapshot<'_> {
    /// Up to `limit` rows whose keys begin with `prefix`, after `after`, in key order.
    pub fn rows_after(
        &self,
        prefix: &[u8],
        after: Option<&[u8]>,
        limit: usize,
    ) -> Result<Vec<(RowKey, Row)>, Fault> {
        let start = match after {
            Some(after) if after >= prefix => Bound::Excluded(after),
            _ => Bound::Included(prefix),
        };
        let mut page = Vec::new();
        let mut last = after.map(<[u8]>::to_vec);
        for item in self.resource.range::<&[u8]>((start, Bound::Unbounded))? {
            let (key, stored) = item?;
            let key = key.value();
            if !key.starts_with(prefix) || page.len() == limit {
                break;
            }
            ascending("resource", last.as_deref(), key)?;
            last = Some(key.to_vec());
            let row = read_row(key, stored.value())?;
            let key =
                RowKey::parse(key).ok_or_else(|| Fault::damaged("table resource", "a key names no row"))?;
            page.push((key, row));
        }
        Ok(page)
    }

    /// What the newest commit said of itself.
    pub fn state(&self) -> Result<State, Fault> {
        read_meta(&self.read.open_table(META)?, tables::STATE, Kind::State)
    }
}

/// Keys come in order. Those of a damaged tree may not, and who goes on from the last one would go round for
/// ever.
pub(super) fn ascending(table: &str, last: Option<&[u8]>, key: &[u8]) -> Result<(), Fault> {
    if last.is_none_or(|last| key > last) {
        return Ok(());
    }
    Err(Fault::damaged(&format!("table {table}"), "its keys are out of order"))
}

pub(super) fn read_meta<T, V>(meta: &T, name: &'static str, kind: Kind) -> Result<V, Fault>
where
    T: ReadableTable<&'static str, &'static [u8]>,
    V: serde::de::DeserializeOwned,
{
    let place = format!("row `{name}` of table meta");
    let stored = meta.get(name)?.ok_or_else(|| Fault::damaged(&place, "it is missing"))?;
    envelope::open(Table::Meta, name.as_bytes(), kind, stored.value()).map_err(|fault| fault.at(&place))
}

/// One write transaction with its tables open.
pub(crate) struct Batch<'t> {
    db: &'t Db,
    write: &'t redb::WriteTransaction,
    journal: RedbTable<'t, &'static JournalKey, &'static [u8]>,
    index: RedbTable<'t, &'static [u8; 16], &'static JournalKey>,
    resource: RedbTable<'t, &'static [u8], &'static [u8]>,
    classes: Vec<(ClassId, Windows)>,
}

impl Rows for Batch<'_> {
    fn record(&self, scope: ScopeDigest) -> Result<Option<Record>, Fault> {
        self.db.newest(&self.index, &self.journal, scope)
    }

    fn entry(&self, position: Position) -> Result<Option<Record>, Fault> {
        self.db.record_at(&self.journal, position)
    }

    fn row(&self, key: &RowKey) -> Result<Option<Row>, Fault> {
        let stored = self.resource.get(key.as_bytes())?;
        stored.map(|stored| read_row(key.as_bytes(), stored.value())).transpose()
    }
}

impl Batch<'_> {
    /// Appends an entry; returns its bytes as they stand in the file.
    pub fn put_entry(&mut self, position: Position, entry: &Entry) -> Result<Vec<u8>, Fault> {
        let key = tables::position_key(position);
        let framed = envelope::seal(Table::Journal, &key, Kind::Entry, &StoredEntry::from(entry))
            .map_err(Fault::Refused)?;
        self.journal.insert(&key, framed.as_slice())?;
        Ok(framed)
    }

    /// Makes `position` the newest entry of a scope; true if it is the scope's first.
    pub fn put_index(&mut self, scope: ScopeDigest, position: Position) -> Result<bool, Fault> {
        Ok(self.index.insert(&scope.0, &tables::position_key(position))?.is_none())
    }

    /// Writes a row, or removes it; returns by how much the number of rows grew.
    pub fn put_row(&mut self, key: &RowKey, row: Option<&Row>) -> Result<i64, Fault> {
        let Some(row) = row else {
            return Ok(-i64::from(self.resource.remove(key.as_bytes())?.is_some()));
        };
        let framed = envelope::seal(Table::Resource, key.as_bytes(), Kind::Row, &StoredRow::from(row))
            .map_err(Fault::Refused)?;
        Ok(i64::from(self.resource.insert(key.as_bytes(), framed.as_slice())?.is_none()))
    }

    /// Numbers a class.
    pub fn add_class(&mut self, class: ClassId, windows: Windows) -> Result<(), Fault> {
        let key = class.0.to_be_bytes();
        let framed = envelope::seal(Table::Class, &key, Kind::Class, &StoredClass { windows })
            .map_err(Fault::Refused)?;
        self.write.open_table(CLASS)?.insert(&key, framed.as_slice())?;
        self.classes.push((class, windows));
        Ok(())
    }

    pub fn put_state(&mut self, state: &State) -> Result<(), Fault> {
        put_meta(&mut self.write.open_table(META)?, tables::STATE, Kind::State, state)
    }
}

pub(super) fn put_meta<V: serde::Serialize>(
    meta: &mut RedbTable<'_, &'static str, &'static [u8]>,
    name: &'static str,
    kind: Kind,
    value: &V,
) -> Result<(), Fault> {
    let framed = envelope::seal(Table::Meta, name.as_bytes(), kind, value).map_err(Fault::Refused)?;
    meta.insert(name, framed.as_slice())?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A damaged tree was seen whose keys came round again, and with them every walk that goes on from its
    /// last key.
    #[test]
    fn keys_that_come_round_again_are_damage() {
        assert!(ascending("journal", None, b"a").is_ok());
        assert!(ascending("journal", Some(b"a"), b"b").is_ok());
        assert!(ascending("journal", Some(b"b"), b"b").is_err());
        assert!(ascending("journal", Some(b"b"), b"a").is_err());
    }
}
