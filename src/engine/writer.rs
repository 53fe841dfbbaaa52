//! One batch, one commit: decides every command on fresh rows, then applies what was decided.
//!
//! Deciding comes first and for all, each on the rows as the commands before left them; a refused command
//! leaves no trace. Owns the order decide, apply, commit, publish; rules are the core's.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use foldhash::{HashMap, HashMapExt as _, HashSet, HashSetExt as _};

use super::clock::EngineClock;
use super::counters::{Counters, count, count_many};
use super::draft::{Draft, OpenRow, Verdict};
use super::leases::Leases;
use super::post::PostOffice;
use crate::core::act::Act;
use crate::core::audit::{self, Brought};
use crate::core::authority::Units;
use crate::core::claim::{self, Uptime};
use crate::core::decide::{Answer, Command, Decision, OpenView, Rows, View, decide, footprint};
use crate::core::error::{Error, ErrorKind};
use crate::core::invariants;
use crate::core::name::{Scope, ScopeDigest, Tenant};
use crate::core::policy::Windows;
use crate::core::record::{ClassId, Entry, Position, Record, Transition};
use crate::core::reply::Reply;
use crate::core::row::{Row, RowKey};
use crate::core::time::{Timestamp, millis};
use crate::db::commit::{Batch, Failed};
use crate::db::database::Db;
use crate::db::fault::Fault;
pub(crate) use crate::db::open::CLASSES_MAX;
use crate::db::stored::{Head, State};

/// What a batch needs beside the file.
pub(crate) struct Desk<'e> {
    pub clock: &'e EngineClock,
    pub counters: &'e Counters,
    pub leases: &'e Leases,
    pub post: &'e PostOffice,
    /// When this process opened the store, on the monotonic clock.
    pub opened: Duration,
    /// The most commands that may be open.
    pub open_max: u64,
}

/// Rows and records as the commands of this batch leave them; what is in neither is absent in the file, too.
/// Rows that they leave alone are outlines.
struct Page<'d> {
    records: HashMap<ScopeDigest, Arc<Record>>,
    rows: PageRows,
    /// Classes that commands of this batch use, new and known.
    classes: BTreeMap<ClassId, Windows>,
    accepted: Vec<Accepted<'d>>,
    /// Whether a row of an open command stands among the rows: usually none does, and none is looked for.
    has_open: bool,
    /// What is known of tenants: in the file, or as this batch leaves it.
    units: Units,
    stale: u64,
    overtaken: u64,
}

impl Page<'_> {
    fn for_commands(commands: usize, units: Units) -> Self {
        Self {
            records: HashMap::with_capacity(commands),
            rows: PageRows { list: Vec::with_capacity(commands), places: HashMap::with_capacity(commands) },
            classes: BTreeMap::new(),
            accepted: Vec::with_capacity(commands),
            has_open: false,
            units,
            stale: 0,
            overtaken: 0,
        }
    }

    /// The claims that this batch grants.
    fn granted(&self) -> impl Iterator<Item = (ScopeDigest, u64)> {
        let grants = self.accepted.iter().filter(|accepted| accepted.record.entry.transition.is_grant());
        grants.map(|accepted| (accepted.draft.asked.digest, accepted.record.position.seq))
    }

    /// The row of the command that is open in the draft's scope.
    fn open_row(&self, draft: &Draft) -> Option<&Row> {
        if !self.has_open || !draft.asked.is_protected {
            return None;
        }
        self.rows.row(&RowKey::open(draft.asked.digest))
    }
}

/// Rows in the order in which the batch met them.
struct PageRows {
    list: Vec<PageRow>,
    places: HashMap<RowKey, usize>,
}

struct PageRow {
    key: RowKey,
    row: Option<Row>,
    was_there: bool,
    /// The number of the last entry that changed it.
    changed_by: Option<u64>,
}

impl PageRows {
    fn has(&self, key: &RowKey) -> bool {
        self.places.contains_key(key)
    }

    /// A row as it stands in the file.
    fn put_loaded(&mut self, key: &RowKey, row: Row) {
        self.places.insert(key.clone(), self.list.len());
        self.list.push(PageRow { key: key.clone(), row: Some(row), was_there: true, changed_by: None });
    }

    /// A row as an entry leaves it.
    fn put_changed(&mut self, key: RowKey, row: Option<Row>, by: u64) {
        let place = *self.places.entry(key.clone()).or_insert(self.list.len());
        if let Some(known) = self.list.get_mut(place) {
            (known.row, known.changed_by) = (row, Some(by));
            return;
        }
        // Of the store's own rows who writes one without a look at it makes it, and who removes one knows
        // that it is there.
        let was_there = row.is_none() && key.is_own();
        self.list.push(PageRow { key, row, was_there, changed_by: Some(by) });
    }
}

impl Rows for PageRows {
    fn row(&self, key: &RowKey) -> Option<&Row> {
        self.places.get(key).and_then(|&place| self.list[place].row.as_ref())
    }
}

/// A command that has run, and its entry.
struct Accepted<'d> {
    draft: &'d Draft,
    record: Arc<Record>,
    /// The token of the claim that was open in its scope before.
    open_before: Option<u64>,
}

/// The time of a batch, one for all its commands.
#[derive(Clone, Copy)]
struct Moment<'e> {
    now: Timestamp,
    /// When a clock that had jumped settled by itself.
    settled: Option<Timestamp>,
    uptime: Uptime,
    desk: &'e Desk<'e>,
}

/// What an entry has beside what its command brought along: frame, numbers and the note of an effect.
const ENTRY_REST_BYTES_USUAL: usize = 128;

/// Writes one batch and moves `tail` on. On failure `tail` is as it was.
pub(crate) fn write(
    db: &Db,
    tail: &mut State,
    drafts: &[&Draft],
    desk: &Desk<'_>,
) -> Result<Vec<Verdict>, Failed> {
    let mut next = tail.clone();
    let (now, monotonic) = desk.clock.both();
    let uptime = Uptime { now: claim::Moment::at(tail.epoch, monotonic), opened: millis(desk.opened) };
    let moment = Moment { now, settled: desk.clock.settled(), uptime, desk };
    let mut page = Page::for_commands(drafts.len(), db.units());
    let written = decided_and_committed(db, &mut page, &mut next, drafts, moment);
    if let Err(failed) = written {
        // No grant of it reaches anybody.
        page.granted().for_each(|(scope, token)| desk.leases.end(scope, token));
        return Err(failed);
    }
    let verdicts = written?;
    if page.accepted.is_empty() {
        return Ok(verdicts);
    }
    *tail = next;
    tell_claims(&page, desk);
    count(&desk.counters.commits);
    count_many(&desk.counters.committed, page.accepted.len() as u64);
    count_many(&desk.counters.stale_events, page.stale);
    count_many(&desk.counters.inbox_overtaken, page.overtaken);
    tell_post(&page, desk);
    Ok(verdicts)
}

fn decided_and_committed<'d>(
    db: &Db,
    page: &mut Page<'d>,
    next: &mut State,
    drafts: &[&'d Draft],
    moment: Moment<'_>,
) -> Result<Vec<Verdict>, Failed> {
    let mut verdicts = Vec::with_capacity(drafts.len());
    for draft in drafts {
        verdicts.push(one(db, page, next, draft, moment)?);
    }
    if !page.accepted.is_empty() {
        let batch = apply(db, page, next, moment)?;
        db.commit(batch, next)?;
    }
    Ok(verdicts)
}

/// Tells the leases what was committed, and so those who wait for the end of a claim.
fn tell_claims(page: &Page<'_>, desk: &Desk<'_>) {
    if !page.has_open {
        return;
    }
    for Accepted { draft, record, open_before } in &page.accepted {
        let (scope, Some(token)) = (draft.asked.digest, *open_before) else { continue };
        match record.entry.transition {
            Transition::CancelAsked => desk.leases.ask_to_cancel(scope, token),
            Transition::Advanced | Transition::Differed => {}
            // Its claim is over; what is open in the scope now has another token.
            _ => desk.leases.end(scope, token),
        }
    }
}

/// Tells the post office what is due from now on, and so the workers.
fn tell_post(page: &Page<'_>, desk: &Desk<'_>) {
    let rows = page.rows.list.iter().filter(|row| row.row.is_some() && row.changed_by.is_some());
    desk.post.tell(rows.map(|row| &row.key).filter(|key| key.is_due()));
}

/// Decides one command. Damage in the rows of one harms no other; a disk that fails fails all.
fn one<'d>(
    db: &Db,
    page: &mut Page<'d>,
    next: &mut State,
    draft: &'d Draft,
    moment: Moment<'_>,
) -> Result<Verdict, Fault> {
    if let Err(fault) = load(db, page, draft) {
        return match fault {
            Fault::Damaged(what) => Ok(Verdict::Fault(Error::new(ErrorKind::Corrupt, what))),
            Fault::Newer(what) => Ok(Verdict::Fault(Error::new(ErrorKind::UnsupportedFormat, what))),
            other => Err(other),
        };
    }
    let Some(class) = class_of(db, page, draft.policy.windows()) else {
        let text = format!("the file has {CLASSES_MAX} classes of windows already; reuse the windows of one");
        return Ok(Verdict::Fault(Error::new(ErrorKind::LimitExceeded, text)));
    };
    let known = page.records.get(&draft.asked.digest).filter(|_| draft.asked.is_protected).cloned();
    let position = Position { class, seq: next.last_seq + 1 };
    let open_row = page.open_row(draft).cloned();
    let Decision { answer, changes, notices } =
        decided(page, next, draft, position, (known.as_deref(), open_row.as_ref()), moment);
    page.stale += u64::from(notices.stale);
    page.overtaken += u64::from(notices.overtaken);
    for (key, row) in changes.rows {
        if key.is_message() || key.is_queue() {
            next.count_post(page.rows.row(&key), row.as_ref());
        } else if key.is_open() {
            page.has_open = true;
            next.count_open(page.rows.row(&key), row.as_ref());
        } else if key.is_unit() {
            page.units = Units::Listed { owns_rest: !db.identity().owns_nothing };
        }
        page.rows.put_changed(key, row, position.seq);
    }
    let open_before = open_row.as_ref().and_then(Row::open).map(|open| open.token);
    let record = changes.entry.map(|entry| accept(page, next, (draft, open_before), position, entry));
    if let (Some(record), Answer::Open(open)) = (&record, &answer)
        && record.position.seq == open.token
    {
        // Before the next command of this batch can look at it, and before anybody can see it in the file.
        let until = Duration::from_millis(moment.uptime.now.monotonic.saturating_add(open.lease));
        moment.desk.leases.grant(draft.asked.digest, open.token, until);
    }
    verdict(db, page, draft, Decided { answer, record, known, open_row })
}

/// Asks the core, on the page as the commands before left it.
fn decided(
    page: &Page<'_>,
    next: &State,
    draft: &Draft,
    position: Position,
    (record, open_row): (Option<&Record>, Option<&Row>),
    moment: Moment<'_>,
) -> Decision {
    let open = open_row.and_then(|row| {
        let open = row.open()?;
        let lease_left = moment.desk.leases.left(draft.asked.digest, open, &moment.uptime);
        Some(OpenView { open, row, lease_left })
    });
    let view = View {
        record,
        open,
        rows: &page.rows,
        position,
        clock_settled: moment.settled,
        uptime: moment.uptime,
        has_room: next.open < moment.desk.open_max,
        units: page.units,
    };
    let command = Command::Act { act: &draft.act, told: &draft.told, staged: &draft.staged };
    decide(&view, &draft.asked, &command, moment.now, &draft.policy)
}

/// What was decided of a draft, and what was known before and is after.
struct Decided {
    answer: Answer,
    /// Its entry, if it left one.
    record: Option<Arc<Record>>,
    known: Option<Arc<Record>>,
    open_row: Option<Row>,
}

/// What its caller is told.
fn verdict(db: &Db, page: &Page<'_>, draft: &Draft, decided: Decided) -> Result<Verdict, Fault> {
    let Decided { answer, record, known, open_row } = decided;
    Ok(match answer {
        Answer::Done | Answer::DoneBefore => match record.or(known) {
            Some(record) => Verdict::Done(record),
            None => Verdict::Stale,
        },
        Answer::Open(open) => {
            let before = open_row.map_or(0, |row| row.version);
            let version = record.map_or(before, |record| record.position.seq);
            Verdict::Open(OpenRow { open, version })
        }
        Answer::Reached(value) => Verdict::Reached(value),
        Answer::Gone => Verdict::Gone,
        Answer::FenceLost => Verdict::FenceLost { record: known },
        Answer::Lapsed => Verdict::Lapsed,
        Answer::Stale => Verdict::Stale,
        Answer::Reply(reply) => Verdict::Reply { reply, record: known },
        Answer::Again { resource, version } => Verdict::Again { resource, version },
        Answer::Duplicate { held, made } => {
            let made_by = maker(db, page, &draft.asked.scope.tenant, made)?;
            Verdict::Reply { reply: Reply::Duplicate { held, made_by }, record: None }
        }
        Answer::Enqueued(ids) => Verdict::Enqueued(ids),
        Answer::Posted(moved) => Verdict::Posted(moved),
        Answer::Unit { unit, version } => Verdict::Unit { unit, version },
        Answer::Fault(fault) => Verdict::Fault(fault),
        Answer::Run => unreachable!("nobody asks here whether it may run"),
    })
}

/// Brings the rows of the command's footprint onto the page.
fn load(db: &Db, page: &mut Page<'_>, draft: &Draft) -> Result<(), Fault> {
    if page.units != Units::AllOurs {
        let key = RowKey::unit(&draft.asked.scope.tenant);
        if !page.rows.has(&key)
            && let Some(row) = db.row(&key)?
        {
            page.rows.put_loaded(&key, row);
        }
    }
    if draft.asked.is_protected
        && let Some(row) = db.open_row(draft.asked.digest)?
    {
        let key = RowKey::open(draft.asked.digest);
        if !page.rows.has(&key) {
            page.rows.put_loaded(&key, row);
            page.has_open = true;
        }
    }
    if draft.asked.is_protected
        && !page.records.contains_key(&draft.asked.digest)
        && let Some(record) = db.record(draft.asked.digest)?
    {
        page.records.insert(draft.asked.digest, Arc::new(record));
    }
    let guarded = draft.staged.guards.iter().map(|guard| &guard.key);
    for key in guarded.chain(draft.staged.effects.iter().map(|effect| &effect.key)) {
        if !page.rows.has(key)
            && let Some(row) = db.row(key)?
        {
            page.rows.put_loaded(key, row.outline());
        }
    }
    if draft.staged.makes_rows()
        || matches!(draft.act, Act::Post { .. } | Act::Job(_) | Act::Clear { .. } | Act::Bring { .. })
    {
        load_post(db, page, draft)?;
    }
    Ok(())
}

/// Brings the rows of messages onto the page. Which they are the rows themselves tell, one from another.
fn load_post(db: &Db, page: &mut Page<'_>, draft: &Draft) -> Result<(), Fault> {
    let mut looked: HashSet<RowKey> = HashSet::new();
    loop {
        let keys = footprint(&draft.act, &draft.staged, &draft.asked.scope.tenant, &page.rows, page.units);
        let mut is_complete = true;
        for key in keys {
            if !page.rows.has(&key) && looked.insert(key.clone()) {
                is_complete = false;
                if let Some(row) = db.row(&key)? {
                    page.rows.put_loaded(&key, row);
                }
            }
        }
        if is_complete {
            return Ok(());
        }
    }
}

/// The class of these windows: in the file, in this batch, or new.
fn class_of(db: &Db, page: &Page<'_>, windows: Windows) -> Option<ClassId> {
    if let Some((class, _)) = page.classes.iter().find(|(_, known)| **known == windows) {
        return Some(*class);
    }
    let first_free = match db.class_of(windows) {
        Ok(class) => return Some(class),
        Err(first_free) => first_free,
    };
    // Classes of the file stand among those of the batch once a command has used them: the number has to be
    // free in both.
    let after_batch = page.classes.keys().next_back().map_or(0, |last| last.0 + 1);
    let new = first_free.0.max(after_batch);
    (usize::from(new) <= CLASSES_MAX).then_some(ClassId(new))
}

fn accept<'d>(
    page: &mut Page<'d>,
    next: &mut State,
    (draft, open_before): (&'d Draft, Option<u64>),
    position: Position,
    entry: Entry,
) -> Arc<Record> {
    let windows = draft.policy.windows();
    let record = Arc::new(Record { position, windows, entry });
    next.last_seq = position.seq;
    page.classes.entry(position.class).or_insert(windows);
    if record.is_outcome() {
        // One that was known before has its earlier generation.
        let known = page.records.insert(draft.asked.digest, Arc::clone(&record));
        next.records += u64::from(known.is_none());
    }
    page.accepted.push(Accepted { draft, record: Arc::clone(&record), open_before });
    record
}

/// Who made a row, if that may be told to this tenant.
fn maker(db: &Db, page: &Page<'_>, tenant: &Tenant, made: Position) -> Result<Option<Scope>, Fault> {
    // In the order of their numbers: one batch may have many whose names are taken.
    let of_batch = page.accepted.binary_search_by_key(&made.seq, |accepted| accepted.record.position.seq);
    let record = match of_batch.ok().map(|at| &page.accepted[at].record) {
        Some(record) => Some(record.entry.scope.clone()),
        None => match db.entry(made) {
            // What was brought from another store was made there, nobody knows by which command.
            Ok(record) => record
                .filter(|record| record.entry.transition != Transition::Brought)
                .map(|record| record.entry.scope.clone()),
            // Who made it is told where it can be; that it is taken is sure.
            Err(Fault::Damaged(_) | Fault::Newer(_)) => None,
            Err(fault) => return Err(fault),
        },
    };
    Ok(record.filter(|scope| scope.tenant == *tenant))
}

/// Encodes everything that was decided.
fn apply(db: &Db, page: &Page<'_>, next: &mut State, moment: Moment<'_>) -> Result<Batch, Fault> {
    debug_assert!(invariants::time_goes_on(next.last_time, moment.now));
    let bytes = page.accepted.iter().map(|it| it.draft.encoded.len() + ENTRY_REST_BYTES_USUAL).sum();
    let mut batch = Batch::with_capacity(page.accepted.len(), bytes);
    for (&class, &windows) in &page.classes {
        if db.class_of(windows).is_err() {
            batch.add_class(class, windows);
        }
    }
    for Accepted { draft, record, .. } in &page.accepted {
        let scope = draft.asked.digest;
        let speaks_of = draft.asked.is_protected.then_some(scope);
        batch.put_entry(record.position, speaks_of, &record.entry, &draft.encoded)?;
        next.set_head(grown(db, next, scope, record, &draft.brought));
        next.count(&record.entry);
    }
    for PageRow { key, row, was_there, changed_by } in &page.rows.list {
        let Some(by) = changed_by else { continue };
        batch.put_row(key, row.as_ref(), *by)?;
        let counted = if key.is_own() { &mut next.own_rows } else { &mut next.rows };
        *counted = counted.saturating_add(u64::from(row.is_some())).saturating_sub(u64::from(*was_there));
    }
    next.last_time = moment.now.max(next.last_time);
    next.clock_settled = moment.settled;
    Ok(batch)
}

/// The head of a class with one more entry in its chain.
fn grown(db: &Db, state: &State, scope: ScopeDigest, record: &Record, brought: &Brought) -> Head {
    let Position { class, seq } = record.position;
    let head = state.head(class);
    let before = head.map_or_else(|| audit::genesis(&db.identity().store_id, class), |head| head.link);
    debug_assert!(invariants::follows(head.map_or(0, |head| head.seq), seq));
    Head {
        class: class.0,
        seq,
        entries: head.map_or(0, |head| head.entries) + 1,
        link: audit::link_of(&before, record.position, scope, &record.entry, brought),
    }
}
