//! The decision: what a command is answered and what it changes. The only place where a scope changes its
//! state.
//!
//! | from | event | guard | to | answer |
//! | --- | --- | --- | --- | --- |
//! | absent | `Ask` | | absent | run |
//! | absent | `Finish` | every precondition holds | Succeeded or Failed | done |
//! | absent | `Finish` | a row that was read has changed | absent | again, then conflict |
//! | absent | `Finish` | a row or a name is taken | absent | duplicate |
//! | Succeeded, Failed | any | same fingerprint, key window open | same | replay |
//! | Succeeded, Failed | any | other fingerprint, key window open | same | mismatch |
//! | Tombstone | any | `AfterExpiry::Reject` | same | expired |
//! | Tombstone | as absent | `AfterExpiry::RunAsNew` | as absent, next generation | as absent |
//! | Tombstone, its window over | as absent | | as absent, next generation | as absent |
//!
//! Nothing leaves Succeeded or Failed but by time. The reader asks with `Ask` on a snapshot; the writer
//! decides `Finish` on the rows as they then are, so a check and its act cannot drift apart.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::effect::{Applied, Change, Note, Obstacle, Staged, Verb, wrong_codec};
use super::error::{Error, ErrorKind};
use super::fingerprint::{Fingerprint, Match, Parts};
use super::imprint::Imprint;
use super::invariants;
use super::name::{Scope, ScopeDigest};
use super::outcome::ResourceRef;
use super::policy::{AfterExpiry, Policy};
use super::record::{Age, Entry, Position, Record, Told, Transition};
use super::reply::Reply;
use super::row::{Row, RowKey};
use super::time::Timestamp;

/// One request as the engine carries it: hashed once, then only compared.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub scope: Scope,
    pub digest: ScopeDigest,
    pub parts: Parts,
    /// What a new record would keep.
    pub fingerprint: Fingerprint,
    /// Scope and fingerprint, to be compared where a record lies.
    pub imprint: Imprint,
    /// A command without a key: runs, leaves an entry, is never looked up.
    pub is_protected: bool,
}

/// What is to be decided.
pub(crate) enum Command<'a> {
    /// What is known of the scope?
    Ask,
    /// A closure has run: may its outcome and effects be committed?
    Finish { told: &'a Arc<Told>, staged: &'a Staged },
}

/// Everything a decision may look at: the newest entry of the scope and the rows of the command's footprint.
pub(crate) struct View<'a> {
    pub record: Option<&'a Record>,
    pub rows: &'a dyn Rows,
    /// Where a new entry would stand.
    pub position: Position,
    /// When a clock that had jumped settled by itself; see [`Record::may_run_after`].
    pub clock_settled: Option<Timestamp>,
}

/// Where a decision finds the rows that it may look at.
pub(crate) trait Rows {
    /// The row as it is before the command; none where there is none.
    fn row(&self, key: &RowKey) -> Option<&Row>;
}

/// No row: for a decision that looks at none.
pub(crate) struct NoRows;

impl Rows for NoRows {
    fn row(&self, _: &RowKey) -> Option<&Row> {
        None
    }
}

/// What was decided. `changes` may not be lost; `notices` may.
pub(crate) struct Decision {
    pub answer: Answer,
    pub changes: Changes,
    pub notices: Notices,
}

pub(crate) enum Answer {
    /// The scope is free: the closure may run.
    Run,
    Reply(Reply),
    /// The command has run: its entry is among the changes.
    Done,
    /// A precondition no longer holds: the closure has to run again, on fresh rows.
    Again {
        resource: ResourceRef,
        version: u64,
    },
    /// Something is taken. Who made it is told to its own tenant only, so the engine has to look.
    Duplicate {
        held: ResourceRef,
        made: Position,
    },
    Fault(Error),
}

/// What is to be written, all of it or nothing.
#[derive(Default)]
pub(crate) struct Changes {
    pub entry: Option<Entry>,
    /// Each row once, as it is after the command.
    pub rows: Vec<(RowKey, Option<Row>)>,
}

#[derive(Default)]
pub(crate) struct Notices {
    /// Effects that left a row alone because it has seen a newer event.
    pub stale: u32,
}

/// Decides one command. Total and deterministic: the same view, command, time and policy give the same
/// decision.
pub(crate) fn decide(
    view: &View<'_>,
    asked: &Asked,
    command: &Command<'_>,
    now: Timestamp,
    policy: &Policy,
) -> Decision {
    let record = view.record.filter(|_| asked.is_protected);
    let generation = match judge(record, asked, now, policy, view.clock_settled) {
        Judged::Free { generation } => generation,
        Judged::Taken(reply) => return answer(Answer::Reply(reply)),
        Judged::Unreadable(fault) => return answer(Answer::Fault(fault)),
    };
    match command {
        Command::Ask => answer(Answer::Run),
        Command::Finish { told, staged } => {
            let decision = finish(view, asked, told, staged, now, generation);
            debug_assert!(invariants::record_and_effects_together(&decision.changes));
            debug_assert!(invariants::one_outcome_per_generation(
                record,
                &decision.changes,
                now,
                view.clock_settled
            ));
            decision
        }
    }
}

enum Judged {
    Free { generation: u32 },
    Taken(Reply),
    Unreadable(Error),
}

/// What the scope's record says to this request.
fn judge(
    record: Option<&Record>,
    asked: &Asked,
    now: Timestamp,
    policy: &Policy,
    settled: Option<Timestamp>,
) -> Judged {
    let Some(record) = record else {
        return Judged::Free { generation: 1 };
    };
    let next = Judged::Free { generation: record.entry.generation.saturating_add(1) };
    match record.age(now) {
        Age::Whole | Age::Trimmed => match record.entry.fingerprint.judge(&asked.parts) {
            Match::Same => {
                let finished = record.finished(now);
                debug_assert!(invariants::replay_is_the_record(record, &finished));
                Judged::Taken(Reply::Replay(finished))
            }
            Match::Differs { parts, formatting_only } => {
                Judged::Taken(Reply::Mismatch { parts, formatting_only, in_flight: false })
            }
            Match::Unknowable => Judged::Unreadable(Error::new(
                ErrorKind::UnsupportedFormat,
                "the scope's record has a fingerprint scheme or policy of a newer version: use that version",
            )),
        },
        Age::Forgotten if record.may_run_after(record.windows.tombstone, settled, now) => next,
        // A forgotten record that is held back is a tombstone still.
        Age::Tombstone | Age::Forgotten
            if policy.after_expiry == AfterExpiry::RunAsNew
                && record.may_run_after(record.windows.key, settled, now) =>
        {
            next
        }
        Age::Tombstone | Age::Forgotten => Judged::Taken(expired(record, asked)),
    }
}

fn expired(record: &Record, asked: &Asked) -> Reply {
    let entry = &record.entry;
    let is_same = entry.fingerprint.judge(&asked.parts) == Match::Same;
    let reply = Reply::Expired {
        failed: entry.failed,
        code: entry.code,
        at: entry.at,
        resource: entry.resource.as_ref().filter(|_| is_same).cloned(),
        digest: is_same.then(|| entry.body.digest()),
    };
    debug_assert!(is_same || invariants::tells_another_nothing(&reply));
    reply
}

/// The arm of a closure that has run on a free scope.
fn finish(
    view: &View<'_>,
    asked: &Asked,
    told: &Arc<Told>,
    staged: &Staged,
    now: Timestamp,
    generation: u32,
) -> Decision {
    for guard in &staged.guards {
        let version = view.rows.row(&guard.key).map(|row| row.version);
        if version != guard.version {
            return again(&guard.key, version);
        }
    }
    let (rows, notes, stale) = match apply_all(view, staged) {
        Ok(applied) => applied,
        Err(stopped) => return answer(stopped),
    };
    let transition = if asked.is_protected { Transition::Executed } else { Transition::Unprotected };
    let entry = Entry { transition, at: now, generation, told: Arc::clone(told), notes };
    Decision {
        answer: Answer::Done,
        changes: Changes { entry: Some(entry), rows },
        notices: Notices { stale },
    }
}

type AppliedAll = (Vec<(RowKey, Option<Row>)>, Vec<Note>, u32);

/// Applies the effects in order, each on the rows as the ones before left them.
#[expect(clippy::result_large_err, reason = "the error is the command's answer, made once and moved once")]
fn apply_all(view: &View<'_>, staged: &Staged) -> Result<AppliedAll, Answer> {
    let mut changed = Changed::new(staged.effects.len());
    let mut notes = Vec::with_capacity(staged.effects.len());
    let mut stale = 0;
    for effect in &staged.effects {
        let row = changed.row(&effect.key, view.rows);
        let applied = effect.apply(row, view.position).map_err(|obstacle| {
            let version = row.map(|row| row.version);
            stopped(&effect.key, &effect.change, version, obstacle)
        })?;
        debug_assert!(invariants::taken_stays_taken(row, &effect.change, &applied));
        let (verb, digest) = match applied {
            Applied::Write(row) => {
                let digest = row.digest();
                changed.put(&effect.key, Some(row));
                (Verb::Write, Some(digest))
            }
            Applied::Remove => {
                changed.put(&effect.key, None);
                (Verb::Remove, None)
            }
            Applied::Keep => (Verb::Keep, None),
            Applied::Stale => {
                stale += 1;
                (Verb::Keep, None)
            }
        };
        notes.push(Note { key: effect.key.clone(), verb, digest });
    }
    Ok((changed.rows, notes, stale))
}

/// Rows as the effects of one command leave them, in the order in which they were first changed.
struct Changed<'s> {
    rows: Vec<(RowKey, Option<Row>)>,
    /// Where each stands in `rows`; a command of one effect, the usual one, needs no such table.
    places: Option<BTreeMap<&'s RowKey, usize>>,
}

impl<'s> Changed<'s> {
    fn new(effects: usize) -> Self {
        Self { rows: Vec::with_capacity(effects), places: (effects > 1).then(BTreeMap::new) }
    }

    fn row<'r>(&'r self, key: &RowKey, before: &'r dyn Rows) -> Option<&'r Row> {
        match self.places.as_ref().and_then(|places| places.get(key)) {
            Some(&place) => self.rows[place].1.as_ref(),
            None => before.row(key),
        }
    }

    fn put(&mut self, key: &'s RowKey, row: Option<Row>) {
        if let Some(places) = &mut self.places {
            let place = *places.entry(key).or_insert(self.rows.len());
            if let Some(changed) = self.rows.get_mut(place) {
                changed.1 = row;
                return;
            }
        }
        self.rows.push((key.clone(), row));
    }
}

fn stopped(key: &RowKey, change: &Change, version: Option<u64>, obstacle: Obstacle) -> Answer {
    match obstacle {
        Obstacle::Taken { held, made } => Answer::Duplicate { held, made },
        Obstacle::Moved => Answer::Again { resource: key.reference(), version: version.unwrap_or_default() },
        Obstacle::Overflow => Answer::Fault(overflow(key, change)),
        Obstacle::Codec { stored } => Answer::Fault(wrong_codec(&key.reference(), &format!("{stored:?}"))),
    }
}

fn overflow(key: &RowKey, change: &Change) -> Error {
    let by = if let Change::Add { by, .. } = change { *by } else { 0 };
    Error::new(
        ErrorKind::LimitExceeded,
        format!(
            "adding {by} to counter {} leaves the range of 64 bits; nothing was written",
            key.reference()
        ),
    )
}

fn again(key: &RowKey, version: Option<u64>) -> Decision {
    answer(Answer::Again { resource: key.reference(), version: version.unwrap_or_default() })
}

fn answer(answer: Answer) -> Decision {
    Decision { answer, changes: Changes::default(), notices: Notices::default() }
}
