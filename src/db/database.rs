//! The open file and how it is read: what waits in memory first, then a short snapshot. Must not know rules,
//! or how a commit is made (`commit`).

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::RwLock;
use redb::{ReadOnlyTable, ReadableDatabase, ReadableTable};

use super::block::{Block, place, read_entry};
use super::commit::CommitMode;
use super::disk::Disk;
use super::envelope::{self, Kind, Table};
use super::fault::Fault;
use super::filter::Filter;
use super::index;
use super::late::Late;
use super::stored::{Identity, State, StoredRow};
use super::tables::{self, INDEX, IndexKey, JOURNAL, JournalKey, META, RESOURCE};
use crate::core::authority::Units;
use crate::core::name::{ScopeDigest, Tenant};
use crate::core::policy::Windows;
use crate::core::record::{ClassId, Position, Record};
use crate::core::row::{Row, RowKey};
use crate::core::text::Text;

/// The open file.
#[derive(Debug)]
pub(crate) struct Db {
    pub(super) database: redb::Database,
    pub(super) disk: Arc<dyn Disk>,
    pub(super) identity: Identity,
    pub(super) classes: RwLock<BTreeMap<ClassId, Windows>>,
    pub(super) mode: CommitMode,
    pub(super) late: RwLock<Late>,
    pub(super) filter: Filter,
    /// Whether a command is open, or one may be in a moment.
    pub(super) may_have_open: AtomicBool,
    /// Whether a row speaks of a tenant, or one may in a moment.
    pub(super) has_units: AtomicBool,
    /// Above this size a commit also saves what makes the open after a kill short.
    pub(super) check_at_open_max: u64,
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

    /// The newest entry of a scope as it is committed now. Opens the journal only for a scope that is there:
    /// most callers who ask are the first of theirs.
    pub fn record(&self, scope: ScopeDigest) -> Result<Option<Record>, Fault> {
        if self.filter.lacks_scope(scope) {
            return Ok(None);
        }
        let late = self.late.read().scope(scope);
        let read = self.database.begin_read()?;
        let position = match late {
            Some(position) => position,
            None => match index::find(&read.open_table(INDEX)?, scope)? {
                Some(position) => position,
                None => return Ok(None),
            },
        };
        self.newest_at(&read.open_table(JOURNAL)?, position, scope).map(Some)
    }

    /// The row of the command that is open in a scope, as it is committed now. To be asked before the record:
    /// what ends between the two is then seen as ended.
    pub fn open_row(&self, scope: ScopeDigest) -> Result<Option<Row>, Fault> {
        // Most scopes are not open, and most stores have none that is.
        if !self.may_have_open.load(Ordering::Acquire) {
            return Ok(None);
        }
        let key = RowKey::open(scope);
        let row = self.row(&key)?;
        let is_of_scope = |row: &Row| {
            row.open().is_some_and(|open| ScopeDigest::of(&open.scope, self.identity.scope_mode) == scope)
        };
        if row.as_ref().is_none_or(is_of_scope) {
            return Ok(row);
        }
        Err(Fault::damaged(&format!("row {}", key.reference()), "it holds no open command of its scope"))
    }

    /// What is known of tenants without a look at their rows.
    pub fn units(&self) -> Units {
        let owns_rest = !self.identity.owns_nothing;
        // Most stores have never handed one over.
        if owns_rest && !self.has_units.load(Ordering::Acquire) {
            return Units::AllOurs;
        }
        Units::Listed { owns_rest }
    }

    /// Who decides about a tenant, if this store does not.
    pub fn elsewhere(&self, tenant: &Tenant) -> Result<Option<Text>, Fault> {
        match self.units() {
            Units::AllOurs => Ok(None),
            units @ Units::Listed { .. } => {
                Ok(units.elsewhere(tenant, self.row(&RowKey::unit(tenant))?.as_ref()))
            }
        }
    }

    /// The entry at a position.
    pub fn entry(&self, position: Position) -> Result<Option<Record>, Fault> {
        self.record_at(&self.database.begin_read()?.open_table(JOURNAL)?, position)
    }

    /// One row as it is committed now.
    pub fn row(&self, key: &RowKey) -> Result<Option<Row>, Fault> {
        if self.filter.lacks_row(key) {
            return Ok(None);
        }
        if let Some(framed) = self.late.read().row(key).cloned() {
            return framed.map(|framed| read_row(key.as_bytes(), &framed)).transpose();
        }
        let resource = self.database.begin_read()?.open_table(RESOURCE)?;
        let stored = resource.get(key.as_bytes())?;
        stored.map(|stored| read_row(key.as_bytes(), stored.value())).transpose()
    }

    /// Up to `limit` rows whose keys begin with `prefix`, after `after`, in key order. Fewer than `limit` say
    /// nothing of what comes behind the last of them; none says that there is nothing.
    pub fn rows_after(
        &self,
        prefix: &[u8],
        after: Option<&RowKey>,
        limit: usize,
    ) -> Result<Vec<(RowKey, Row)>, Fault> {
        let mut after = after.cloned();
        loop {
            let (page, last) = self.rows_page(prefix, after.as_ref(), limit)?;
            // A page of removed rows only is not the end.
            if !page.is_empty() || last.is_none() {
                return Ok(page);
            }
            after = last;
        }
    }

    /// One page, and the last key it looked at, if there may be more behind it.
    fn rows_page(&self, prefix: &[u8], after: Option<&RowKey>, limit: usize) -> Result<RowsPage, Fault> {
        let first = RowKey::before(prefix);
        let start = match after {
            Some(after) if after.as_bytes() >= prefix => Bound::Excluded(after),
            _ => Bound::Included(&first),
        };
        // What waits first, the table after: see `late`.
        let late = self.late.read().rows_from(prefix, start, limit);
        // Where one of the two was cut short, nothing is known behind its last key.
        let late_end = late.last().map(|(key, _)| key).filter(|_| late.len() == limit);
        let (stored, is_cut) = self.snapshot()?.rows_from(prefix, start, late_end, limit)?;
        let end = [late_end, stored.last().map(|(key, _)| key)];
        let cut = [true, is_cut];
        let known = end.into_iter().zip(cut).filter_map(|(key, cut)| key.filter(|_| cut)).min().cloned();
        let mut rows: BTreeMap<RowKey, Option<Row>> =
            stored.into_iter().map(|(key, row)| (key, Some(row))).collect();
        for (key, framed) in late {
            let row = framed.map(|framed| read_row(key.as_bytes(), &framed)).transpose()?;
            rows.insert(key, row);
        }
        let within = rows.into_iter().filter(|(key, _)| known.as_ref().is_none_or(|known| key <= known));
        Ok((within.filter_map(|(key, row)| Some((key, row?))).collect(), known))
    }

    /// About the memory that what is not merged takes, in bytes.
    pub fn late_bytes(&self) -> usize {
        self.late.read().bytes()
    }

    pub(super) fn is_large(&self) -> bool {
        self.disk.file_bytes().is_ok_and(|bytes| bytes > self.check_at_open_max)
    }

    pub fn file_bytes(&self) -> u64 {
        self.disk.file_bytes().unwrap_or_default()
    }

    /// Closes the file, so that the next open finds it clean.
    pub fn close(self) -> Result<(), Fault> {
        Ok(self.database.close()?)
    }

    pub(super) fn record_at<J>(&self, journal: &J, position: Position) -> Result<Option<Record>, Fault>
    where
        J: ReadableTable<&'static JournalKey, &'static [u8]>,
    {
        let first = tables::position_key(Position { seq: 0, ..position });
        let Some(item) = journal.range::<&JournalKey>(&first..=&tables::position_key(position))?.next_back()
        else {
            return Ok(None);
        };
        let (key, value) = item?;
        let block = Block::read(*key.value(), value.value())?;
        let Some(found) = block.entry(position.seq)? else { return Ok(None) };
        self.record_of(position, found.framed).map(Some)
    }

    fn record_of(&self, position: Position, framed: &[u8]) -> Result<Record, Fault> {
        let entry = read_entry(position, framed)?;
        let windows = self.classes.read().get(&position.class).copied();
        let windows = windows.ok_or_else(|| Fault::damaged(&place(position), "its class is unknown"))?;
        Ok(Record { position, windows, entry })
    }

    /// The entry that the index names for a scope. An index row that leads anywhere else is damage, never
    /// "absent".
    pub(super) fn newest_at<J>(
        &self,
        journal: &J,
        position: Position,
        scope: ScopeDigest,
    ) -> Result<Record, Fault>
    where
        J: ReadableTable<&'static JournalKey, &'static [u8]>,
    {
        let record = self.record_at(journal, position)?;
        let record = record
            .ok_or_else(|| Fault::damaged(&place(position), "the index names it, the journal lacks it"))?;
        if ScopeDigest::of(&record.entry.scope, self.identity.scope_mode) != scope {
            return Err(Fault::damaged(&place(position), "the index leads another scope to it"));
        }
        if !record.is_outcome() {
            return Err(Fault::damaged(&place(position), "the index leads to it, and it is no outcome"));
        }
        Ok(record)
    }
}

/// Rows, and the last key that was looked at, if there may be more behind it.
type RowsPage = (Vec<(RowKey, Row)>, Option<RowKey>);

/// A page of rows ends with the one that makes it so large.
const PAGE_BYTES: usize = 1 << 20;

/// Class 0 is the store's own.
const FIRST_CLASS: u16 = 1;

pub(super) fn read_row(key: &[u8], framed: &[u8]) -> Result<Row, Fault> {
    let stored = envelope::open::<StoredRow>(Table::Resource, key, Kind::Row, framed);
    stored.and_then(Row::try_from).map_err(|fault| {
        let place = RowKey::parse(key).map(|key| format!("row {}", key.reference()));
        fault.at(place.as_deref().unwrap_or("a row of table resource"))
    })
}

/// A consistent view of what was committed when it was made.
pub(crate) struct Snapshot<'d> {
    pub(super) db: &'d Db,
    pub(super) journal: ReadOnlyTable<&'static JournalKey, &'static [u8]>,
    pub(super) index: ReadOnlyTable<&'static IndexKey, &'static [u8]>,
    pub(super) resource: ReadOnlyTable<&'static [u8], &'static [u8]>,
    pub(super) read: redb::ReadTransaction,
}

impl Snapshot<'_> {
    /// Up to `limit` merged rows whose keys begin with `prefix`, from `start` to `end`, in key order, and
    /// whether there are more: a page ends where it has grown large, too.
    fn rows_from(
        &self,
        prefix: &[u8],
        start: Bound<&RowKey>,
        end: Option<&RowKey>,
        limit: usize,
    ) -> Result<(Vec<(RowKey, Row)>, bool), Fault> {
        let start = start.map(RowKey::as_bytes);
        let mut page = Vec::new();
        let mut bytes = 0;
        let mut last: Option<Vec<u8>> = None;
        for item in self.resource.range::<&[u8]>((start, Bound::Unbounded))? {
            let (key, stored) = item?;
            let key = key.value();
            // Behind `end` nothing is asked for: to read it for each page would take quadratic time.
            if !key.starts_with(prefix) || end.is_some_and(|end| key > end.as_bytes()) {
                break;
            }
            if page.len() == limit || bytes >= PAGE_BYTES {
                return Ok((page, true));
            }
            bytes += stored.value().len();
            ascending("resource", last.as_deref(), key)?;
            last = Some(key.to_vec());
            let row = read_row(key, stored.value())?;
            let key =
                RowKey::parse(key).ok_or_else(|| Fault::damaged("table resource", "a key names no row"))?;
            page.push((key, row));
        }
        Ok((page, false))
    }

    /// What the newest commit said of itself.
    pub fn state(&self) -> Result<State, Fault> {
        newest_state(&self.read.open_table(META)?, &self.journal, self.db.class_ids().into_iter())
    }

    /// What this view has in the journal and not in its tables yet.
    pub(super) fn late(&self, state: &State) -> Result<Late, Fault> {
        Late::read(&self.journal, self.db.class_ids().into_iter(), state, usize::MAX)
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

/// What the newest commit said of itself: in the last block of the journal, unless the row `state` of `meta`
/// was written after it.
pub(super) fn newest_state<M, J>(
    meta: &M,
    journal: &J,
    classes: impl Iterator<Item = ClassId>,
) -> Result<State, Fault>
where
    M: ReadableTable<&'static str, &'static [u8]>,
    J: ReadableTable<&'static JournalKey, &'static [u8]>,
{
    let written: State = read_meta(meta, tables::STATE, Kind::State)?;
    let mut newest: Option<(u64, JournalKey)> = None;
    for class in classes {
        let first = tables::position_key(Position { class, seq: 0 });
        let last = tables::position_key(Position { class, seq: u64::MAX });
        let Some(item) = journal.range::<&JournalKey>(&first..=&last)?.next_back() else { continue };
        let (key, value) = item?;
        let block = Block::read(*key.value(), value.value())?;
        if newest.is_none_or(|(seq, _)| seq < block.last_seq()) {
            newest = Some((block.last_seq(), *key.value()));
        }
    }
    let Some((seq, key)) = newest.filter(|(seq, _)| *seq > written.last_seq) else { return Ok(written) };
    let value =
        journal.get(&key)?.ok_or_else(|| Fault::damaged("table journal", "its last block is gone"))?;
    let state = Block::read(key, value.value())?.tail()?.state;
    state.filter(|state| state.last_seq == seq).ok_or_else(|| {
        Fault::damaged("table journal", "its last block does not say how its commit left the store")
    })
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

pub(super) fn put_meta<V: serde::Serialize>(
    meta: &mut redb::Table<'_, &'static str, &'static [u8]>,
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
