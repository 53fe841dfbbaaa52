//! From a name on a disk to an open file: looking, creating, settling, checking. Owns the order of these
//! steps; must not know what the store does afterwards.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::RwLock;
use redb::{ReadableDatabase, ReadableTable, ReadableTableMetadata, TableHandle};

use super::block::{Block, place};
use super::commit::CommitMode;
use super::database::{Db, newest_state, put_meta, read_meta};
use super::disk::{Disk, Found, Published};
use super::envelope::{self, Kind, Table};
use super::fault::Fault;
use super::filter::Filter;
use super::late::Late;
use super::learn::Learning;
use super::stored::{Identity, State, StoredClass};
use super::tables::{self, CLASS, INDEX, JOURNAL, JournalKey, META, RESOURCE};
use crate::core::name::ScopeMode;
use crate::core::policy::Windows;
use crate::core::record::{ClassId, Position};
use crate::core::row::RowKey;
use crate::core::time::Timestamp;

/// The version of the file's layout. Row versions are the envelope's.
pub(crate) const FORMAT_VERSION: u16 = 1;
/// The most classes a file may have; they are numbered from 1.
pub(crate) const CLASSES_MAX: usize = 64;
/// The highest sequence number a file may have: a program writes no more entries than there are numbers
/// above.
const SEQ_MAX: u64 = u64::MAX - (1 << 33);
/// What the row `format` begins with; the version follows, big-endian.
const FORMAT_MARK: &[u8] = b"onecho";
/// The first bytes of a redb file, and behind them the byte whose second bit says "not closed cleanly".
const REDB_MAGIC: [u8; 9] = *b"redb\x1A\x0A\xA9\x0D\x0A";
const UNCLEAN_BIT: u8 = 2;

/// The dry run reads nearly all of it once: what it keeps is memory to be had, and not used again.
const DRY_CACHE_BYTES_MAX: usize = 1 << 20;

/// How to open.
#[derive(Clone, Copy, Debug)]
pub(crate) struct How {
    pub cache_bytes: usize,
    /// What the file must have been created with.
    pub scope_mode: ScopeMode,
    pub mode: CommitMode,
    /// Up to this size every open checks the whole file.
    pub check_at_open_max: u64,
    /// Memory for what is not merged yet.
    pub late_bytes: usize,
    /// Memory for the filter over all keys.
    pub filter_bytes: usize,
    /// Check the whole file whatever its size.
    pub strict: bool,
    /// A handle of this process has failed on the file: what is cached may never have reached the disk.
    pub after_failure: bool,
}

/// What a new file is made with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Birth {
    pub store_id: [u8; 16],
    pub scope_mode: ScopeMode,
    /// Whether it decides only about tenants that are handed to it.
    pub owns_nothing: bool,
    pub now: Timestamp,
}

/// Why a file could not be opened.
#[derive(Debug)]
pub(crate) enum Unopened {
    Missing,
    DirectoryMissing,
    NotAFile(&'static str),
    Empty,
    Foreign,
    Format {
        found: u16,
    },
    ScopeMode {
        stored: ScopeMode,
    },
    /// Pages of a file that failed in this process cannot be dropped, so what it holds cannot be told.
    Unsettled,
    Disk(std::io::Error),
    Fault(Fault),
}

impl<F: Into<Fault>> From<F> for Unopened {
    fn from(fault: F) -> Self {
        Self::Fault(fault.into())
    }
}

/// An open file and what its last commit said.
pub(crate) struct Opened {
    pub db: Db,
    pub state: State,
    /// The whole file was checked.
    pub checked: bool,
}

/// Opens what is there; with `birth` makes a new file where there is none.
pub(crate) fn open(disk: &Arc<dyn Disk>, how: How, birth: Option<Birth>) -> Result<Opened, Unopened> {
    let (len, head) = found(disk, how, birth)?;
    if head.len() <= REDB_MAGIC.len() || head[..REDB_MAGIC.len()] != REDB_MAGIC {
        return Err(Unopened::Foreign);
    }
    let is_unclean = head[REDB_MAGIC.len()] & UNCLEAN_BIT != 0;
    if is_unclean || how.after_failure {
        let settled = disk.settle().map_err(Unopened::Disk)?;
        if how.after_failure && !settled.pages_dropped {
            return Err(Unopened::Unsettled);
        }
    }
    let checked = how.strict || how.after_failure || len <= how.check_at_open_max;
    let mut looked = None;
    if !how.after_failure {
        // The engine writes into what it opens, even when it finds it damaged. What is refused here stays as
        // it was.
        let database = disk
            .dry_run(&mut builder(how.cache_bytes.min(DRY_CACHE_BYTES_MAX), checked))
            .map_err(out_of_reach)?;
        let contents = read(&database, how.scope_mode)?;
        let late = late(&database, &contents, how.late_bytes)?;
        looked = Some((contents, late));
    }
    let database = disk.open(&mut builder(how.cache_bytes, checked)).map_err(out_of_reach)?;
    let contents = read(&database, how.scope_mode)?;
    let late = match looked {
        // Nobody has committed in between.
        Some((before, late)) if before == contents => late,
        _ => late(&database, &contents, how.late_bytes)?,
    };
    let (identity, state, classes) = contents;
    let filter = Filter::new(how.filter_bytes);
    late.scopes().for_each(|(scope, _)| filter.add_scope(scope));
    late.rows().for_each(|(key, _)| filter.add_row(key.as_bytes()));
    let may_have_open = AtomicBool::new(state.open > 0);
    let db = Db {
        database,
        disk: Arc::clone(disk),
        identity,
        classes: RwLock::new(classes),
        mode: how.mode,
        late: RwLock::new(late),
        filter,
        may_have_open,
        has_units: AtomicBool::new(false),
        check_at_open_max: how.check_at_open_max,
    };
    if !db.rows_after(RowKey::all_units(), None, 1)?.is_empty() {
        db.has_units.store(true, Ordering::Release);
    }
    if checked {
        // The check has read it all a moment ago; of a larger file, the scrub fills the filter.
        let mut learning = Learning::of(&db);
        match std::iter::repeat_with(|| learning.slice(&db, usize::MAX)).find(|more| *more != Ok(true)) {
            // Without the filter every scope is looked up, and who asks for one of a damaged block is told.
            Some(Ok(_) | Err(Fault::Damaged(_) | Fault::Newer(_))) | None => {}
            Some(Err(fault)) => return Err(fault.into()),
        }
    }
    Ok(Opened { db, state, checked })
}

/// The length of what is there, made where it may be, and how it begins.
fn found(disk: &Arc<dyn Disk>, how: How, birth: Option<Birth>) -> Result<(u64, Vec<u8>), Unopened> {
    match (disk.look().map_err(Unopened::Disk)?, birth) {
        (Found::Missing, Some(birth)) => {
            create(disk, how, birth)?;
            match disk.look().map_err(Unopened::Disk)? {
                Found::File { len, head } => Ok((len, head)),
                _ => Err(Unopened::Missing),
            }
        }
        (Found::Missing, None) => Err(Unopened::Missing),
        (Found::DirectoryMissing, _) => Err(Unopened::DirectoryMissing),
        (Found::NotAFile(what), _) => Err(Unopened::NotAFile(what)),
        (Found::Empty, _) => Err(Unopened::Empty),
        (Found::File { len, head }, _) => Ok((len, head)),
    }
}

/// A disk that does not let us says so by its kind; all else is what the engine found.
fn out_of_reach(fault: redb::DatabaseError) -> Unopened {
    use std::io::ErrorKind::{PermissionDenied, ReadOnlyFilesystem};
    match fault {
        redb::DatabaseError::Storage(redb::StorageError::Io(fault))
            if matches!(fault.kind(), PermissionDenied | ReadOnlyFilesystem) =>
        {
            Unopened::Disk(fault)
        }
        other => Unopened::Fault(other.into()),
    }
}

fn builder(cache_bytes: usize, check: bool) -> redb::Builder {
    let mut builder = redb::Database::builder();
    builder.set_cache_size(cache_bytes).set_check_integrity_on_open(check);
    builder
}

/// Makes a whole file under a temporary name and gives it its own name last, so that nobody ever sees half of
/// one.
fn create(disk: &Arc<dyn Disk>, how: How, birth: Birth) -> Result<(), Unopened> {
    let made = make(disk, how, birth).and_then(|()| disk.publish().map_err(Unopened::Disk));
    match made {
        Ok(Published::Done | Published::AlreadyThere) => Ok(()),
        Err(fault) => {
            disk.discard();
            Err(fault)
        }
    }
}

fn make(disk: &Arc<dyn Disk>, how: How, birth: Birth) -> Result<(), Unopened> {
    let database = disk.create(&mut builder(how.cache_bytes, false)).map_err(out_of_reach)?;
    let mut write = database.begin_write()?;
    write.set_two_phase_commit(true);
    {
        let mut meta = write.open_table(META)?;
        let format = [FORMAT_MARK, &FORMAT_VERSION.to_be_bytes()].concat();
        meta.insert(tables::FORMAT, format.as_slice())?;
        let Birth { store_id, scope_mode, owns_nothing, now } = birth;
        let identity = Identity { store_id, scope_mode, created_at: now, owns_nothing };
        put_meta(&mut meta, tables::IDENTITY, Kind::Identity, &identity)?;
        put_meta(&mut meta, tables::STATE, Kind::State, &State { last_time: birth.now, ..State::default() })?;
        write.open_table(CLASS)?;
        write.open_table(JOURNAL)?;
        write.open_table(INDEX)?;
        write.open_table(RESOURCE)?;
    }
    write.commit()?;
    Ok(database.close()?)
}

type Contents = (Identity, State, BTreeMap<ClassId, Windows>);

/// Reads what every file must have, and checks what is cheap: counts, and that each chain ends where it says.
fn read(database: &redb::Database, scope_mode: ScopeMode) -> Result<Contents, Unopened> {
    let read = database.begin_read()?;
    if !read.list_tables()?.any(|table| table.name() == META.name()) {
        return Err(Unopened::Foreign);
    }
    let meta = read.open_table(META)?;
    let format = meta.get(tables::FORMAT)?.ok_or(Unopened::Foreign)?;
    let version = match format.value().strip_prefix(FORMAT_MARK) {
        Some(&[high, low]) => u16::from_be_bytes([high, low]),
        _ => return Err(Unopened::Foreign),
    };
    if version != FORMAT_VERSION {
        return Err(Unopened::Format { found: version });
    }
    let identity: Identity = read_meta(&meta, tables::IDENTITY, Kind::Identity)?;
    if identity.scope_mode != scope_mode {
        return Err(Unopened::ScopeMode { stored: identity.scope_mode });
    }
    let mut classes = BTreeMap::new();
    for item in read.open_table(CLASS)?.iter()? {
        let (key, stored) = item?;
        let class = u16::from_be_bytes(*key.value());
        let stored: StoredClass = envelope::open(Table::Class, key.value(), Kind::Class, stored.value())
            .map_err(|fault| fault.at(&format!("class {class}")))?;
        classes.insert(ClassId(class), stored.windows);
    }
    let journal = read.open_table(JOURNAL)?;
    let state = newest_state(&meta, &journal, classes.keys().copied())?;
    sound(&state, &classes)?;
    for head in &state.heads {
        let newest = Position { class: ClassId(head.class), seq: head.seq };
        if !has_entry(&journal, newest)? {
            return Err(Fault::damaged(&place(newest), "the chain ends there, the journal lacks it").into());
        }
    }
    counts("journal", journal.len()?, state.blocks)?;
    counts("index", read.open_table(INDEX)?.len()?, state.index_rows)?;
    counts("resource", read.open_table(RESOURCE)?.len()?, state.settled)?;
    Ok((identity, state, classes))
}

/// What waits to be merged.
fn late(database: &redb::Database, contents: &Contents, late_bytes: usize) -> Result<Late, Unopened> {
    let (_, state, classes) = contents;
    let journal = database.begin_read()?.open_table(JOURNAL)?;
    Ok(Late::read(&journal, classes.keys().copied(), state, late_bytes)?)
}

fn has_entry<J>(journal: &J, position: Position) -> Result<bool, Fault>
where
    J: ReadableTable<&'static JournalKey, &'static [u8]>,
{
    let first = tables::position_key(Position { seq: 0, ..position });
    match journal.range::<&JournalKey>(&first..=&tables::position_key(position))?.next_back() {
        None => Ok(false),
        Some(item) => {
            let (key, value) = item?;
            Ok(Block::read(*key.value(), value.value())?.entry(position.seq)?.is_some())
        }
    }
}

/// Numbers that the program goes on to count from are such as it writes, whatever the checksums say.
fn sound(state: &State, classes: &BTreeMap<ClassId, Windows>) -> Result<(), Fault> {
    let of_state = |what: &str| Err(Fault::damaged("what the newest commit says of the store", what));
    if let Some(class) = classes.keys().find(|class| !(1..=CLASSES_MAX).contains(&usize::from(class.0))) {
        return Err(Fault::damaged("table class", &format!("a class may not have number {}", class.0)));
    }
    let State { epoch, last_seq, records, rows, own_rows, executed, resolved, differences, .. } = *state;
    let State { blocks, indexed, index_rows, settled, .. } = *state;
    let of_scopes = [epoch, last_seq, records, rows, own_rows, executed, resolved, differences];
    let of_tables = [blocks, indexed, index_rows, settled];
    if of_scopes.iter().chain(&of_tables).any(|&n| n > SEQ_MAX) {
        return of_state("a count is larger than any store's");
    }
    if state.unknown > state.open || state.open > state.own_rows {
        return of_state("more commands are open than there are rows of them");
    }
    if state.merged_to > state.sweep_to || state.sweep_to > state.last_seq {
        return of_state("more was merged than was written");
    }
    if !state.heads.is_sorted_by(|one, next| one.class < next.class) {
        return of_state("its heads are out of order");
    }
    let mut entries: u64 = 0;
    for head in &state.heads {
        if !classes.contains_key(&ClassId(head.class)) {
            return of_state(&format!("the file has no class {}, of which it has a head", head.class));
        }
        if head.seq > state.last_seq || head.entries > head.seq {
            return of_state(&format!("the head of class {} does not fit the last number", head.class));
        }
        // At most 64 heads of at most `SEQ_MAX` entries: the sum may still be too large.
        entries = match entries.checked_add(head.entries) {
            Some(sum) if sum <= state.last_seq => sum,
            _ => return of_state("its heads have more entries than there are numbers"),
        };
    }
    Ok(())
}

fn counts(table: &str, found: u64, expected: u64) -> Result<(), Fault> {
    if found == expected {
        return Ok(());
    }
    Err(Fault::damaged(&format!("table {table}"), &format!("it has {found} rows, not {expected}")))
}
