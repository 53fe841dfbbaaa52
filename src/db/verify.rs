//! Reads the whole file and tells what does not agree. Owns the list of checks; repairs nothing.

use std::collections::BTreeMap;
use std::ops::Bound;

use redb::{ReadableTable, ReadableTableMetadata};

use super::block::{Block, Found, place};
use super::database::{Db, Snapshot, ascending, read_row};
use super::fault::Fault;
use super::index;
use super::late::Late;
use super::stored::State;
use super::tables::{IndexKey, JournalKey};
use crate::core::audit::{self, Link};
use crate::core::claim::Phase;
use crate::core::effect::{Note, Verb};
use crate::core::name::ScopeDigest;
use crate::core::record::{ClassId, Entry, Position, Record};
use crate::core::row::{Content, Row, RowKey};
use crate::core::{invariants, time::Timestamp};

/// The most faults that are told; a file with more is no better understood for a longer list.
pub const FAULTS_MAX: usize = 1_000;

/// What a look at the whole file found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct VerifyReport {
    /// Entries of the journal that were read.
    pub entries: u64,
    /// Scopes that have an outcome.
    pub records: u64,
    /// Resources and uniquenesses that were read.
    pub rows: u64,
    /// Commands that were begun and are not finished.
    pub open: u64,
    /// Scopes whose effects were committed twice in one generation. Must be 0.
    pub duplicate_effects: u64,
    /// What does not agree, in words that name the place; at most 1,000.
    pub faults: Vec<String>,
}

impl VerifyReport {
    /// Whether everything agrees.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.faults.is_empty() && self.duplicate_effects == 0
    }

    /// What was read; damage goes into the report, a disk that fails ends the walk.
    fn readable<R>(&mut self, table: &str, read: Result<R, Fault>) -> Result<Option<R>, Fault> {
        match read {
            Ok(read) => Ok(Some(read)),
            Err(Fault::Damaged(what) | Fault::Newer(what)) => {
                self.fault(table, &what);
                Ok(None)
            }
            Err(fault) => Err(fault),
        }
    }

    /// Whether the keys of a table do not ascend; a walk that went on from there might never end.
    fn is_turned(&mut self, table: &str, last: Option<&[u8]>, key: &[u8]) -> bool {
        let turned = ascending(table, last, key).err();
        if let Some(fault) = &turned {
            self.fault(table, &fault.to_string());
        }
        turned.is_some()
    }

    fn fault(&mut self, place: &str, what: &str) {
        if self.faults.len() < FAULTS_MAX {
            self.faults.push(format!("{place}: {what}"));
        }
    }
}

/// One class's chain as far as it was followed.
struct Follower {
    link: Link,
    seq: u64,
    entries: u64,
    at: Timestamp,
}

/// Rows that are followed at once because they are absent or old; of those beyond it only the count is told.
const BEHIND_ROWS_MAX: usize = 65_536;

/// Rows that are read in one slice.
const SLICE_ROWS: usize = 128;
/// Blocks of the journal that are read in one slice.
const SLICE_BLOCKS: usize = 2;

/// A walk through the whole file in slices, each on a snapshot of its own or all on one. What is appended
/// while it walks is not looked at.
pub(crate) struct Walk {
    /// What the last commit said when the walk began.
    start: State,
    next: Stage,
    followers: BTreeMap<ClassId, Follower>,
    /// Blocks of the journal that were read.
    blocks: u64,
    /// Rows of the store's own, and of them the commands in Unknown.
    own_rows: u64,
    unknown: u64,
    /// What the entries add up to.
    counted: State,
    /// What is counted of messages.
    posts: State,
    /// Scopes of the index that were read.
    indexed: u64,
    report: VerifyReport,
}

/// Where the walk stands: a table, and the last key that was read of it; of the index, where to go on.
enum Stage {
    Journal(Option<JournalKey>),
    Index(IndexKey),
    Resource(Option<Vec<u8>>),
    /// What is not in its table yet.
    Late,
    Over,
}

/// What a slice is checked on: what waits, and then the tables.
struct Seen<'s> {
    snapshot: &'s Snapshot<'s>,
    late: &'s Late,
}

impl Seen<'_> {
    /// Where the newest entry of a scope stands.
    fn newest(&self, scope: ScopeDigest) -> Result<Option<Position>, Fault> {
        match self.late.scope(scope) {
            Some(position) => Ok(Some(position)),
            None => index::find(&self.snapshot.index, scope),
        }
    }

    fn entry(&self, position: Position) -> Result<Option<Record>, Fault> {
        self.snapshot.db.record_at(&self.snapshot.journal, position)
    }

    /// The number of the entry that a row has as its last writer; `None` where there is no row.
    fn version(&self, key: &RowKey) -> Result<Option<u64>, Fault> {
        let read = |framed: &[u8]| match read_row(key.as_bytes(), framed) {
            Ok(row) => Ok(row.version),
            // The row's own check tells it.
            Err(Fault::Damaged(_) | Fault::Newer(_)) => Ok(u64::MAX),
            Err(fault) => Err(fault),
        };
        match self.late.row(key) {
            Some(framed) => framed.as_deref().map(read).transpose(),
            None => {
                self.snapshot.resource.get(key.as_bytes())?.map(|stored| read(stored.value())).transpose()
            }
        }
    }
}

/// Checks a snapshot. An error means that the file could not be read on; what does not agree is in the
/// report.
pub(crate) fn verify(
    snapshot: &Snapshot<'_>,
    mut progress: impl FnMut(u64, u64),
) -> Result<VerifyReport, Fault> {
    let mut walk = Walk::new(snapshot)?;
    let late = snapshot.late(&walk.start)?;
    let seen = Seen { snapshot, late: &late };
    let State { records, rows, own_rows, .. } = walk.start;
    let entries: u64 = walk.start.heads.iter().map(|head| head.entries).sum();
    let total = [records, rows, own_rows].into_iter().fold(entries, u64::saturating_add);
    while walk.step(&seen)? {
        progress(walk.rows(), total);
    }
    let Walk { start, blocks, indexed, own_rows, unknown, counted, posts, mut report, .. } = walk;
    rows_behind(&seen, &mut report)?;
    let tables = [
        ("journal", snapshot.journal.len()?, start.blocks),
        ("index", snapshot.index.len()?, start.index_rows),
        ("resource", snapshot.resource.len()?, start.settled),
        ("blocks read of journal", blocks, start.blocks),
        ("scopes of index", indexed, start.indexed),
        ("entries of journal", report.entries, start.heads.iter().map(|head| head.entries).sum()),
        ("scopes", report.records, start.records),
        ("resources and uniquenesses", report.rows, start.rows),
        ("rows of the store's own", own_rows, start.own_rows),
        ("open commands", report.open, start.open),
        ("open commands in Unknown", unknown, start.unknown),
        ("commands that were executed", counted.executed, start.executed),
        ("commands whose end was found out", counted.resolved, start.resolved),
        ("completions that came too late", counted.differences, start.differences),
        ("messages that wait", posts.waiting, start.waiting),
        ("messages in doubt", posts.doubtful, start.doubtful),
        ("dead letters", posts.dead, start.dead),
        ("blocked ordering keys", posts.blocked, start.blocked),
    ];
    for (what, found, expected) in tables {
        if found != expected {
            report.fault(what, &format!("there are {found}, not {expected}"));
        }
    }
    Ok(report)
}

impl Walk {
    /// A walk over what is committed now; none at the moment in which a commit is in the file and its caller
    /// does not know yet.
    pub fn beside_the_writer(db: &Db) -> Result<Option<Self>, Fault> {
        let late = db.late.read();
        let walk = Self::new(&db.snapshot()?)?;
        Ok((walk.start.last_seq == late.last_seq()).then_some(walk))
    }

    fn new(snapshot: &Snapshot<'_>) -> Result<Self, Fault> {
        Ok(Self {
            start: snapshot.state()?,
            next: Stage::Journal(None),
            followers: BTreeMap::new(),
            blocks: 0,
            own_rows: 0,
            unknown: 0,
            counted: State::default(),
            posts: State::default(),
            indexed: 0,
            report: VerifyReport::default(),
        })
    }

    /// Rows read so far.
    pub fn rows(&self) -> u64 {
        self.report.entries + self.report.records + self.report.rows + self.own_rows
    }

    /// The first thing that does not agree, if any.
    pub fn first_fault(&self) -> Option<&str> {
        self.report.faults.first().map(String::as_str)
    }

    /// Checks the next rows of what is committed now; false when there are none left. What waits to be merged
    /// is not looked at: this process wrote it, or read it when it opened the file.
    pub fn slice(&mut self, db: &Db) -> Result<bool, Fault> {
        // What waits first, the tables after. A writer that is about to take what it has merged out of the
        // map waits for us.
        let late = db.late.read();
        let snapshot = db.snapshot()?;
        let more = self.step(&Seen { snapshot: &snapshot, late: &late })?;
        Ok(more && !matches!(self.next, Stage::Late))
    }

    fn step(&mut self, seen: &Seen<'_>) -> Result<bool, Fault> {
        self.next = match std::mem::replace(&mut self.next, Stage::Over) {
            Stage::Journal(after) => {
                let last = self.journal(seen, after)?;
                if last.is_none() {
                    self.ends();
                }
                last.map_or(Stage::Index(index::FIRST), |last| Stage::Journal(Some(last)))
            }
            Stage::Index(start) => match self.index(seen, &start)? {
                Some(next) => Stage::Index(next),
                None => Stage::Resource(None),
            },
            Stage::Resource(after) => match self.resources(seen, after.as_deref())? {
                Some(last) => Stage::Resource(Some(last)),
                None => Stage::Late,
            },
            Stage::Late => {
                self.late(seen)?;
                Stage::Over
            }
            Stage::Over => Stage::Over,
        };
        Ok(!matches!(self.next, Stage::Over))
    }

    /// Chains, order, time, and that the index leads to each scope's newest entry.
    fn journal(&mut self, seen: &Seen<'_>, after: Option<JournalKey>) -> Result<Option<JournalKey>, Fault> {
        let start = after.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
        let mut last = None;
        let journal = &seen.snapshot.journal;
        for item in journal.range::<&JournalKey>((start, Bound::Unbounded))?.take(SLICE_BLOCKS) {
            let (key, value) = item?;
            let key = *key.value();
            if self.report.is_turned("journal", last.or(after).as_ref().map(<[u8; 10]>::as_slice), &key) {
                return Ok(None);
            }
            last = Some(key);
            let Some(block) = self.report.readable("journal", Block::read(key, value.value()))? else {
                continue;
            };
            if block.last_seq() > self.start.last_seq {
                continue;
            }
            self.blocks += 1;
            self.tail(&block)?;
            for found in block.entries() {
                if let Some(found) = self.report.readable("journal", found)? {
                    self.entry(seen, &found)?;
                }
            }
        }
        Ok(last)
    }

    /// A block that says how its commit left the store is the last one of that commit.
    fn tail(&mut self, block: &Block<'_>) -> Result<(), Fault> {
        let tail = self.report.readable("journal", block.tail())?;
        let state = tail.and_then(|tail| tail.state);
        if state.is_some_and(|state| state.last_seq != block.last_seq()) {
            self.report.fault(&block.place(), "it says how another commit left the store");
        }
        Ok(())
    }

    fn entry(&mut self, seen: &Seen<'_>, found: &Found<'_>) -> Result<(), Fault> {
        self.report.entries += 1;
        let identity = &seen.snapshot.db.identity;
        let position = found.position;
        let follower = self.followers.entry(position.class).or_insert_with(|| Follower {
            link: audit::genesis(&identity.store_id, position.class),
            seq: 0,
            entries: 0,
            at: Timestamp(0),
        });
        let Some(entry) = self.report.readable("journal", found.entry())? else {
            return Ok(());
        };
        let scope = ScopeDigest::of(&entry.scope, identity.scope_mode);
        let listed = entry.transition.has_scope().then_some(scope);
        if found.scope != listed {
            self.report.fault(&place(position), "its block lists it under another scope");
        }
        if found.is_outcome != entry.transition.is_outcome() {
            self.report.fault(&place(position), "its block does not say rightly whether it is an outcome");
        }
        self.counted.count(&entry);
        follower.follow(position, scope, &entry, &mut self.report);
        check_indexed(seen, position, scope, &entry, self.start.merged_to, &mut self.report)
    }

    /// Each chain ends where the commit said at the start.
    fn ends(&mut self) {
        for head in &self.start.heads {
            let place = format!("chain of class {}", head.class);
            match self.followers.remove(&ClassId(head.class)) {
                None => self.report.fault(&place, "the journal has no entry of it"),
                Some(end) if end.link != head.link || end.seq != head.seq || end.entries != head.entries => {
                    self.report.fault(&place, "it does not end where the last commit says");
                }
                Some(_) => {}
            }
        }
        for class in self.followers.keys() {
            self.report.fault(&format!("chain of class {}", class.0), "the last commit does not know it");
        }
    }

    /// The index leads each scope to an entry of its own. Returns the scope to go on with.
    fn index(&mut self, seen: &Seen<'_>, start: &IndexKey) -> Result<Option<IndexKey>, Fault> {
        let block = self.report.readable("index", index::block_of(&seen.snapshot.index, start))?;
        let Some(block) = block.flatten() else { return Ok(None) };
        let Some(scopes) = self.report.readable("index", block.scopes())? else { return Ok(block.end) };
        let mut from_here = scopes.from(start);
        for (scope, position) in from_here.by_ref().take(SLICE_ROWS) {
            self.report.records += 1;
            self.indexed += 1;
            self.leads(seen, scope, position)?;
        }
        Ok(from_here.next().map(|(scope, _)| scope.0).or(block.end))
    }

    fn leads(&mut self, seen: &Seen<'_>, scope: ScopeDigest, position: Position) -> Result<(), Fault> {
        let snapshot = seen.snapshot;
        let led = snapshot.db.newest_at(&snapshot.journal, position, scope);
        self.report.readable("index", led).map(drop)
    }

    /// Each row was written by the entry it names, and holds what that entry says.
    fn resources(&mut self, seen: &Seen<'_>, after: Option<&[u8]>) -> Result<Option<Vec<u8>>, Fault> {
        let start = after.map_or(Bound::Unbounded, Bound::Excluded);
        let mut last = None;
        for item in seen.snapshot.resource.range::<&[u8]>((start, Bound::Unbounded))?.take(SLICE_ROWS) {
            let (key, stored) = item?;
            if self.report.is_turned("resource", last.as_deref().or(after), key.value()) {
                return Ok(None);
            }
            last = Some(key.value().to_vec());
            let read = self.report.readable("resource", read_row(key.value(), stored.value()))?;
            let Some(key) = RowKey::parse(key.value()) else {
                self.report.rows += 1;
                self.report.fault("resource", "a key names no row");
                continue;
            };
            // What waits to take its place is checked in its turn.
            if seen.late.row(&key).is_none() {
                self.row(seen, &key, read.as_ref())?;
            }
        }
        Ok(last)
    }

    /// What waits is as sound as what is merged.
    fn late(&mut self, seen: &Seen<'_>) -> Result<(), Fault> {
        for (scope, position) in seen.late.scopes() {
            let merged = match index::find(&seen.snapshot.index, scope) {
                // The index's own check tells it.
                Err(Fault::Damaged(_) | Fault::Newer(_)) => None,
                merged => merged?,
            };
            self.report.records += u64::from(merged.is_none());
            self.leads(seen, scope, position)?;
        }
        for (key, framed) in seen.late.rows() {
            let Some(framed) = framed else { continue };
            let read = read_row(key.as_bytes(), framed);
            let row = self.report.readable("rows that wait", read)?;
            self.row(seen, key, row.as_ref())?;
        }
        Ok(())
    }

    /// One row, counted; what could not be read was told already.
    fn row(&mut self, seen: &Seen<'_>, key: &RowKey, row: Option<&Row>) -> Result<(), Fault> {
        *(if key.is_own() { &mut self.own_rows } else { &mut self.report.rows }) += 1;
        self.report.open += u64::from(key.is_open());
        let Some(row) = row else { return Ok(()) };
        let is_unknown = row.open().is_some_and(|open| matches!(open.phase, Phase::Unknown { .. }));
        self.unknown += u64::from(is_unknown);
        self.posts.count_post(None, Some(row));
        if let Some(what) = disagreement(seen, key, row)? {
            self.report.fault(&format!("row {}", key.reference()), &what);
        }
        Ok(())
    }
}

impl Follower {
    fn follow(&mut self, position: Position, scope: ScopeDigest, entry: &Entry, report: &mut VerifyReport) {
        let place = place(position);
        if !invariants::follows(self.seq, position.seq) {
            report.fault(&place, "its number is out of order");
        }
        if !invariants::time_goes_on(self.at, entry.at) {
            report.fault(&place, "its time is out of order");
        }
        self.link = audit::link(&self.link, position, scope, entry);
        self.seq = position.seq;
        self.entries += 1;
        self.at = entry.at;
    }
}

fn check_indexed(
    seen: &Seen<'_>,
    position: Position,
    scope: ScopeDigest,
    entry: &Entry,
    merged_to: u64,
    report: &mut VerifyReport,
) -> Result<(), Fault> {
    if !entry.transition.is_outcome() {
        return Ok(());
    }
    let newest = match seen.newest(scope) {
        Ok(Some(newest)) => newest,
        Ok(None) => {
            report.fault(&place(position), "the index does not know its scope");
            return Ok(());
        }
        // The index's own check tells it.
        Err(Fault::Damaged(_) | Fault::Newer(_)) => return Ok(()),
        Err(fault) => return Err(fault),
    };
    if !invariants::merged_or_whole(position.seq, merged_to, seen.late.scope(scope).map(|newest| newest.seq))
    {
        report.fault(&place(position), "it counts as merged, and it is not");
    }
    if newest == position {
        return Ok(());
    }
    let newest = match seen.entry(newest) {
        Ok(Some(newest)) => newest,
        // The index's own check tells it.
        Ok(None) | Err(Fault::Damaged(_) | Fault::Newer(_)) => return Ok(()),
        Err(fault) => return Err(fault),
    };
    if newest.entry.generation == entry.generation {
        report.duplicate_effects += 1;
        report.fault(&place(position), "its scope has a second entry of the same generation");
    } else if !invariants::newest_is_indexed(
        (position.seq, entry.generation),
        (newest.position.seq, newest.entry.generation),
    ) {
        report.fault(&place(position), "the index knows only an older entry of its scope");
    }
    Ok(())
}

/// What the entry that a row names as its writer says against it.
fn disagreement(seen: &Seen<'_>, key: &RowKey, row: &Row) -> Result<Option<String>, Fault> {
    let is_its_kind = match &row.content {
        Content::Held(_) => key.is_unique(),
        Content::Open(_) => key.is_open(),
        Content::Post(post) => key.holds(post),
        Content::Unit(_) => key.is_unit(),
        Content::Value { .. } | Content::Removed => !key.is_unique() && !key.is_own(),
    };
    if !is_its_kind {
        return Ok(Some("it holds what belongs into a row of another kind".to_owned()));
    }
    if let Content::Open(open) = &row.content
        && *key != RowKey::open(ScopeDigest::of(&open.scope, seen.snapshot.db.identity.scope_mode))
    {
        return Ok(Some("it holds the open command of another scope".to_owned()));
    }
    for class in seen.snapshot.db.class_ids() {
        let position = Position { class, seq: row.version };
        let record = match seen.entry(position) {
            Ok(Some(record)) => record,
            Ok(None) => continue,
            Err(Fault::Damaged(_) | Fault::Newer(_)) => return Ok(None), // The journal's own check tells it.
            Err(fault) => return Err(fault),
        };
        let last = record.entry.notes.iter().rev().find(|note| note.key == *key && note.verb != Verb::Keep);
        return Ok(match last {
            Some(note) if note.verb == Verb::Write && note.digest == Some(row.digest()) => None,
            Some(_) => Some(format!("entry {} wrote something else", row.version)),
            None => Some(format!("entry {} did not write it", row.version)),
        });
    }
    Ok(Some(format!("the journal has no entry {}, which it names as its writer", row.version)))
}

/// A row that is not as the last entry that changed it left it.
struct Behind {
    /// The row's own version; `None` where it is not there.
    version: Option<u64>,
    /// The last entry that changed it, and how.
    seq: u64,
    verb: Verb,
}

/// Each row is as the last entry that changed it left it: there if that wrote it, and not older. On one
/// snapshot only: beside a writer a row may change between two looks.
fn rows_behind(seen: &Seen<'_>, report: &mut VerifyReport) -> Result<(), Fault> {
    let mut behind: BTreeMap<RowKey, Behind> = BTreeMap::new();
    for item in seen.snapshot.journal.iter()? {
        let (key, value) = item?;
        let Ok(block) = Block::read(*key.value(), value.value()) else {
            continue; // The journal's own check tells it.
        };
        for found in block.entries().flatten() {
            let Ok(entry) = found.entry() else { continue };
            for note in entry.notes.iter().filter(|note| note.verb != Verb::Keep) {
                change(seen, &mut behind, found.position.seq, note)?;
            }
        }
    }
    for (key, Behind { version, seq, verb }) in behind {
        let what = match (version, verb) {
            (None, Verb::Write) => format!("entry {seq} wrote it, and it is not there"),
            (Some(version), _) if version < seq => {
                format!("entry {seq} changed it later, and it does not show")
            }
            _ => continue,
        };
        report.fault(&format!("row {}", key.reference()), &what);
    }
    Ok(())
}

/// Takes note of one change of a row.
fn change(
    seen: &Seen<'_>,
    behind: &mut BTreeMap<RowKey, Behind>,
    seq: u64,
    note: &Note,
) -> Result<(), Fault> {
    if let Some(last) = behind.get_mut(&note.key) {
        if last.seq <= seq {
            (last.seq, last.verb) = (seq, note.verb);
        }
    } else if behind.len() < BEHIND_ROWS_MAX {
        let version = seen.version(&note.key)?;
        if version.is_none_or(|version| version < seq) {
            behind.insert(note.key.clone(), Behind { version, seq, verb: note.verb });
        }
    }
    Ok(())
}
