//! One batch, one commit: decides every command on fresh rows, then applies what was decided.
//!
//! Deciding comes first and for all, each on the rows as the commands before left them; a refused command
//! leaves no trace. Owns the order decide, apply, commit, publish; rules are the core's.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::clock::EngineClock;
use super::counters::{Counters, count, count_many};
use super::queue::Size;
use super::replay_index::ReplayIndex;
use crate::core::audit;
use crate::core::decide::{Answer, Asked, Command, Decision, View, decide};
use crate::core::effect::Staged;
use crate::core::error::{Error, ErrorKind};
use crate::core::invariants;
use crate::core::name::{Scope, ScopeDigest, Tenant};
use crate::core::outcome::{Outcome, ResourceRef};
use crate::core::policy::{Policy, Windows};
use crate::core::record::{ClassId, Entry, Position, Record, Transition};
use crate::core::reply::Reply;
use crate::core::row::{Row, RowKey};
use crate::core::time::Timestamp;
use crate::db::database::{Batch, Commit, Db, Failed, Rows};
use crate::db::fault::Fault;
pub(crate) use crate::db::open::CLASSES_MAX;
use crate::db::stored::{Head, State};

/// A command whose closure has run.
pub(crate) struct Draft {
    pub asked: Arc<Asked>,
    pub policy: Policy,
    pub outcome: Outcome,
    pub staged: Staged,
}

impl Draft {
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
    pub owner: &'e str,
}

/// Rows and records as the commands of this batch leave them. Rows that they leave alone are outlines.
#[derive(Default)]
struct Page {
    records: BTreeMap<ScopeDigest, Option<Arc<Record>>>,
    rows: BTreeMap<RowKey, Option<Row>>,
    /// Rows of `rows` that differ from the file.
    changed: BTreeSet<RowKey>,
    new_classes: BTreeMap<ClassId, Windows>,
    accepted: Vec<(ScopeDigest, Arc<Record>)>,
    stale: u64,
}

/// What one batch publishes once it is durable.
type Publish = Vec<(ScopeDigest, Arc<Record>)>;

/// Writes one batch and moves `tail` on. On failure `tail` is as it was.
pub(crate) fn write(
    db: &Db,
    tail: &mut State,
    drafts: &[&Draft],
    desk: &Desk<'_>,
) -> Result<Vec<Verdict>, Failed> {
    let mut next = tail.clone();
    let now = desk.clock.now();
    let (verdicts, page, publish) = db.batch(|batch| {
        let mut page = Page::default();
        let mut verdicts = Vec::with_capacity(drafts.len());
        for draft in drafts {
            verdicts.push(one(db, batch, &mut page, &mut next, draft, now, desk)?);
        }
        if page.accepted.is_empty() {
            return Ok((Commit::No, (verdicts, page, Publish::new())));
        }
        let publish = apply(db, batch, &page, &mut next, now, desk)?;
        Ok((Commit::Yes, (verdicts, page, publish)))
    })?;
    if !page.accepted.is_empty() {
        *tail = next;
        count(&desk.counters.commits);
        count_many(&desk.counters.committed, page.accepted.len() as u64);
        count_many(&desk.counters.stale_events, page.stale);
    }
    for (scope, record) in publish {
        desk.index.publish(scope, &record);
    }
    Ok(verdicts)
}

/// Decides one command. Damage in the rows of one harms no other; a disk that fails fails all.
fn one(
    db: &Db,
    batch: &Batch<'_>,
    page: &mut Page,
    next: &mut State,
    draft: &Draft,
    now: Timestamp,
    desk: &Desk<'_>,
) -> Result<Verdict, Fault> {
    if let Err(fault) = load(batch, page, draft) {
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
    let known = page.records.get(&draft.asked.digest).cloned().flatten();
    let view = View {
        record: known.as_deref(),
        rows: &page.rows,
        position: Position { class, seq: next.last_seq + 1 },
        clock_settled: desk.clock.settled(),
    };
    let position = view.position;
    let command = Command::Finish { outcome: &draft.outcome, staged: &draft.staged, actor: desk.owner };
    let Decision { answer, changes, notices } = decide(&view, &draft.asked, &command, now, &draft.policy);
    page.stale += u64::from(notices.stale);
    for (key, row) in changes.rows {
        page.changed.insert(key.clone());
        page.rows.insert(key, row);
    }
    let record = match changes.entry {
        Some(entry) => Some(accept(page, next, draft, position, entry)),
        None => known,
    };
    Ok(match answer {
        Answer::Reply(reply) => Verdict::Reply { reply, record },
        Answer::Again { resource, version } => Verdict::Again { resource, version },
        Answer::Duplicate { held, made } => {
            let made_by = maker(batch, page, &draft.asked.scope.tenant, made)?;
            Verdict::Reply { reply: Reply::Duplicate { held, made_by }, record: None }
        }
        Answer::Fault(fault) => Verdict::Fault(fault),
        Answer::Run => unreachable!("`Finish` is never answered with `Run`"),
    })
}

/// Brings the rows of the command's footprint onto the page.
fn load(batch: &Batch<'_>, page: &mut Page, draft: &Draft) -> Result<(), Fault> {
    if draft.asked.is_protected && !page.records.contains_key(&draft.asked.digest) {
        let record = batch.record(draft.asked.digest)?.map(Arc::new);
        page.records.insert(draft.asked.digest, record);
    }
    let guarded = draft.staged.guards.iter().map(|guard| &guard.key);
    for key in guarded.chain(draft.staged.effects.iter().map(|effect| &effect.key)) {
        if !page.rows.contains_key(key) {
            page.rows.insert(key.clone(), batch.row(key)?.map(Row::outline));
        }
    }
    Ok(())
}

/// The class of these windows: in the file, in this batch, or new.
fn class_of(db: &Db, page: &Page, windows: Windows) -> Option<ClassId> {
    let first_free = match db.class_of(windows) {
        Ok(class) => return Some(class),
        Err(first_free) => first_free,
    };
    if let Some((class, _)) = page.new_classes.iter().find(|(_, known)| **known == windows) {
        return Some(*class);
    }
    // Classes of the file stand among those of the batch once a command has used them: the number has to be
    // free in both.
    let after_batch = page.new_classes.keys().next_back().map_or(0, |last| last.0 + 1);
    let new = first_free.0.max(after_batch);
    (usize::from(new) <= CLASSES_MAX).then_some(ClassId(new))
}

fn accept(page: &mut Page, next: &mut State, draft: &Draft, position: Position, entry: Entry) -> Arc<Record> {
    let windows = draft.policy.windows();
    let record = Arc::new(Record { position, windows, entry });
    next.last_seq = position.seq;
    page.new_classes.entry(position.class).or_insert(windows);
    if draft.asked.is_protected {
        page.records.insert(draft.asked.digest, Some(Arc::clone(&record)));
    }
    page.accepted.push((draft.asked.digest, Arc::clone(&record)));
    record
}

/// Who made a row, if that may be told to this tenant.
fn maker(batch: &Batch<'_>, page: &Page, tenant: &Tenant, made: Position) -> Result<Option<Scope>, Fault> {
    let of_batch = page.accepted.iter().find(|(_, record)| record.position == made);
    let record = match of_batch {
        Some((_, record)) => Some(record.entry.scope.clone()),
        None => match batch.entry(made) {
            Ok(record) => record.map(|record| record.entry.scope),
            // Who made it is told where it can be; that it is taken is sure.
            Err(Fault::Damaged(_) | Fault::Newer(_)) => None,
            Err(fault) => return Err(fault),
        },
    };
    Ok(record.filter(|scope| scope.tenant == *tenant))
}

/// Writes everything that was decided.
fn apply(
    db: &Db,
    batch: &mut Batch<'_>,
    page: &Page,
    next: &mut State,
    now: Timestamp,
    desk: &Desk<'_>,
) -> Result<Publish, Fault> {
    debug_assert!(invariants::time_goes_on(next.last_time, now));
    for (&class, &windows) in &page.new_classes {
        if db.class_of(windows).is_err() {
            batch.add_class(class, windows)?;
        }
    }
    let mut publish = Publish::with_capacity(page.accepted.len());
    for (scope, record) in &page.accepted {
        batch.put_entry(record.position, &record.entry)?;
        next.set_head(grown(db, next, *scope, record));
        next.executed += 1;
        if record.entry.transition == Transition::Executed {
            next.records += u64::from(batch.put_index(*scope, record.position)?);
            publish.push((*scope, Arc::clone(record)));
        }
    }
    for key in &page.changed {
        let grown = batch.put_row(key, page.rows.get(key).and_then(Option::as_ref))?;
        next.rows = next.rows.saturating_add_signed(grown);
    }
    next.last_time = now.max(next.last_time);
    next.clock_settled = desk.clock.settled();
    batch.put_state(next)?;
    Ok(publish)
}

/// The head of a class with one more entry in its chain.
fn grown(db: &Db, state: &State, scope: ScopeDigest, record: &Record) -> Head {
    let Position { class, seq } = record.position;
    let head = state.head(class);
    let before = head.map_or_else(|| audit::genesis(&db.identity().store_id, class), |head| head.link);
    debug_assert!(invariants::follows(head.map_or(0, |head| head.seq), seq));
    Head {
        class: class.0,
        seq,
        entries: head.map_or(0, |head| head.entries) + 1,
        link: audit::link(&before, record.position, scope, &record.entry),
    }
}
