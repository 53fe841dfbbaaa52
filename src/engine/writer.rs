//! One batch, one commit: decides every command on fresh rows, then applies what was decided.
//!
//! Deciding comes first and for all, each on the rows as the commands before left them; a refused command
//! leaves no trace. Owns the order decide, apply, commit, publish; rules are the core's.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::clock::EngineClock;
use super::counters::{Counters, count, count_many};
use super::queue::Size;
use super::replay_index::ReplayIndex;
use crate::core::audit::{self, Brought};
use crate::core::decide::{Answer, Asked, Command, Decision, View, decide};
use crate::core::effect::Staged;
use crate::core::error::{Error, ErrorKind};
use crate::core::invariants;
use crate::core::name::{Scope, ScopeDigest, Tenant};
use crate::core::outcome::{Outcome, ResourceRef};
use crate::core::policy::{Policy, Windows};
use crate::core::record::{ClassId, Entry, KeptBody, Position, Record};
use crate::core::reply::Reply;
use crate::core::row::{Row, RowKey};
use crate::core::time::Timestamp;
use crate::db::commit::{Batch, Failed};
use crate::db::database::Db;
use crate::db::fault::Fault;
pub(crate) use crate::db::open::CLASSES_MAX;
use crate::db::stored::{Head, State};

/// A command whose closure has run.
pub(crate) struct Draft {
    pub asked: Arc<Asked>,
    pub policy: Policy,
    pub outcome: Outcome,
    pub staged: Staged,
    brought: Brought,
}

impl Draft {
    /// Made on the caller's thread, with all that can be worked out before the command has its number.
    pub fn new(asked: &Arc<Asked>, policy: Policy, outcome: Outcome, staged: Staged, actor: &str) -> Self {
        let brought = Brought::new(
            &asked.scope,
            &asked.fingerprint,
            outcome.resource.as_deref(),
            actor,
            &outcome.meta,
            &KeptBody::of(&outcome),
        );
        Self { asked: Arc::clone(asked), policy, outcome, staged, brought }
    }

    /// What it takes of a batch.
    pub fn size(&self) -> Size {
        Size { commands: 1, bytes: self.outcome.bytes_kept() + self.staged.bytes() }
    }
}

/// What became of one draft.
pub(crate) enum Verdict {
    /// It is answered; `record` is what is now known of its scope, if anything.
    Reply {
        reply: Reply,
        record: Option<Arc<Record>>,
    },
    /// Rows have changed: its closure has to run again.
    Again {
        resource: ResourceRef,
        version: u64,
    },
    Fault(Error),
}

/// What a batch needs beside the file.
pub(crate) struct Desk<'e> {
    pub clock: &'e EngineClock,
    pub counters: &'e Counters,
    pub index: &'e ReplayIndex,
    pub owner: &'e Arc<str>,
}

/// Rows and records as the commands of this batch leave them; what is in neither is absent in the file, too.
/// Rows that they leave alone are outlines.
#[derive(Default)]
struct Page {
    records: BTreeMap<ScopeDigest, Arc<Record>>,
    rows: BTreeMap<RowKey, Option<Row>>,
    /// Rows of `rows` that differ from the file: whether the file has them, and the last to change them.
    changed: BTreeMap<RowKey, Changed>,
    /// Classes that commands of this batch use, new and known.
    classes: BTreeMap<ClassId, Windows>,
    accepted: Vec<(ScopeDigest, Arc<Record>, Brought)>,
    stale: u64,
}

/// The time of a batch, one for all its commands.
#[derive(Clone, Copy)]
struct Moment {
    now: Timestamp,
    /// When a clock that had jumped settled by itself.
    settled: Option<Timestamp>,
}

/// A row that a batch changes.
struct Changed {
    was_there: bool,
    /// The number of the last entry that changed it.
    by: u64,
}

/// What most entries take, in bytes.
const ENTRY_BYTES_USUAL: usize = 1024;

/// Writes one batch and moves `tail` on. On failure `tail` is as it was.
pub(crate) fn write(
    db: &Db,
    tail: &mut State,
    drafts: &[&Draft],
    desk: &Desk<'_>,
) -> Result<Vec<Verdict>, Failed> {
    let mut next = tail.clone();
    let now = desk.clock.now();
    let moment = Moment { now, settled: desk.clock.settled() };
    let mut page = Page::default();
    let mut verdicts = Vec::with_capacity(drafts.len());
    for draft in drafts {
        verdicts.push(one(db, &mut page, &mut next, draft, moment, desk)?);
    }
    if page.accepted.is_empty() {
        return Ok(verdicts);
    }
    let batch = apply(db, &page, &mut next, moment)?;
    db.commit(batch, &mut next)?;
    *tail = next;
    count(&desk.counters.commits);
    count_many(&desk.counters.committed, page.accepted.len() as u64);
    count_many(&desk.counters.stale_events, page.stale);
    for (scope, record, _) in page.accepted.iter().filter(|(_, record, _)| record.is_outcome()) {
        desk.index.publish(*scope, record);
    }
    Ok(verdicts)
}

/// Decides one command. Damage in the rows of one harms no other; a disk that fails fails all.
fn one(
    db: &Db,
    page: &mut Page,
    next: &mut State,
    draft: &Draft,
    moment: Moment,
    desk: &Desk<'_>,
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
    let view = View {
        record: known.as_deref(),
        rows: &page.rows,
        position: Position { class, seq: next.last_seq + 1 },
        clock_settled: moment.settled,
    };
    let position = view.position;
    let command = Command::Finish { outcome: &draft.outcome, staged: &draft.staged, actor: desk.owner };
    let Decision { answer, changes, notices } =
        decide(&view, &draft.asked, &command, moment.now, &draft.policy);
    page.stale += u64::from(notices.stale);
    for (key, row) in changes.rows {
        let was_there = page.rows.insert(key.clone(), row).flatten().is_some();
        page.changed.entry(key).or_insert(Changed { was_there, by: 0 }).by = position.seq;
    }
    let record = match changes.entry {
        Some(entry) => Some(accept(page, next, draft, position, entry)),
        None => known,
    };
    Ok(match answer {
        Answer::Reply(reply) => Verdict::Reply { reply, record },
        Answer::Again { resource, version } => Verdict::Again { resource, version },
        Answer::Duplicate { held, made } => {
            let made_by = maker(db, page, &draft.asked.scope.tenant, made)?;
            Verdict::Reply { reply: Reply::Duplicate { held, made_by }, record: None }
        }
        Answer::Fault(fault) => Verdict::Fault(fault),
        Answer::Run => unreachable!("`Finish` is never answered with `Run`"),
    })
}

/// Brings the rows of the command's footprint onto the page.
fn load(db: &Db, page: &mut Page, draft: &Draft) -> Result<(), Fault> {
    if draft.asked.is_protected
        && !page.records.contains_key(&draft.asked.digest)
        && let Some(record) = db.record(draft.asked.digest)?
    {
        page.records.insert(draft.asked.digest, Arc::new(record));
    }
    let guarded = draft.staged.guards.iter().map(|guard| &guard.key);
    for key in guarded.chain(draft.staged.effects.iter().map(|effect| &effect.key)) {
        if !page.rows.contains_key(key)
            && let Some(row) = db.row(key)?
        {
            page.rows.insert(key.clone(), Some(row.outline()));
        }
    }
    Ok(())
}

/// The class of these windows: in the file, in this batch, or new.
fn class_of(db: &Db, page: &Page, windows: Windows) -> Option<ClassId> {
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

fn accept(page: &mut Page, next: &mut State, draft: &Draft, position: Position, entry: Entry) -> Arc<Record> {
    let windows = draft.policy.windows();
    let record = Arc::new(Record { position, windows, entry });
    next.last_seq = position.seq;
    page.classes.entry(position.class).or_insert(windows);
    if draft.asked.is_protected {
        page.records.insert(draft.asked.digest, Arc::clone(&record));
    }
    page.accepted.push((draft.asked.digest, Arc::clone(&record), draft.brought));
    record
}

/// Who made a row, if that may be told to this tenant.
fn maker(db: &Db, page: &Page, tenant: &Tenant, made: Position) -> Result<Option<Scope>, Fault> {
    let of_batch = page.accepted.iter().find(|(_, record, _)| record.position == made);
    let record = match of_batch {
        Some((_, record, _)) => Some(record.entry.scope.clone()),
        None => match db.entry(made) {
            Ok(record) => record.map(|record| record.entry.scope),
            // Who made it is told where it can be; that it is taken is sure.
            Err(Fault::Damaged(_) | Fault::Newer(_)) => None,
            Err(fault) => return Err(fault),
        },
    };
    Ok(record.filter(|scope| scope.tenant == *tenant))
}

/// Encodes everything that was decided.
fn apply(db: &Db, page: &Page, next: &mut State, moment: Moment) -> Result<Batch, Fault> {
    debug_assert!(invariants::time_goes_on(next.last_time, moment.now));
    let mut batch = Batch::with_capacity(page.accepted.len(), page.accepted.len() * ENTRY_BYTES_USUAL);
    for (&class, &windows) in &page.classes {
        if db.class_of(windows).is_err() {
            batch.add_class(class, windows);
        }
    }
    for (scope, record, brought) in &page.accepted {
        let outcome_of = record.is_outcome().then_some(*scope);
        batch.put_entry(record.position, outcome_of, &record.entry)?;
        if outcome_of.is_some() {
            next.records += u64::from(record.entry.generation == 1);
        }
        next.set_head(grown(db, next, *scope, record, brought));
        next.executed += 1;
    }
    for (key, changed) in &page.changed {
        let row = page.rows.get(key).and_then(Option::as_ref);
        batch.put_row(key, row, changed.by)?;
        next.rows = next.rows.saturating_add(u64::from(row.is_some()));
        next.rows = next.rows.saturating_sub(u64::from(changed.was_there));
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
