//! The decision: what a command is answered and what it changes. The only place where a scope changes its
//! state.
//!
//! | from | event | guard | to | answer |
//! | --- | --- | --- | --- | --- |
//! | absent | `Ask` | | absent | run |
//! | absent | `Execute` | every precondition holds | Succeeded or Failed | done |
//! | absent | `Execute` | a row that was read has changed | absent | again, then conflict |
//! | absent | `Execute` | a row or a name is taken | absent | duplicate |
//! | absent | `Begin` | room for one more | Processing | granted |
//! | absent | `Cancel` | | Failed | done |
//! | Processing | `Claimed` | token; see `claims` | Processing, Succeeded, Failed, Unknown or absent | |
//! | Processing, lapsed | `Begin`, `TakeOver` | allowed, nothing open but repeatable | Processing | granted |
//! | Processing, lapsed | `Execute` | the same, and nothing declared or committed | as absent | as absent |
//! | Processing, lapsed | `Lapse` | otherwise | Unknown | unknown |
//! | Unknown | `Found` | the known position; see `findings` | Unknown, Succeeded, Failed, absent | |
//! | Unknown, settled | `Begin`, `TakeOver` | as Processing, lapsed | Processing | granted |
//! | Processing, Unknown | `Execute`, `Begin` | otherwise | same | in progress, unknown, mismatch |
//! | Succeeded, Failed | any | same fingerprint, key window open | same | replay |
//! | Succeeded, Failed | any | other fingerprint, key window open | same | mismatch |
//! | Tombstone | any | `AfterExpiry::Reject` | same | expired |
//! | Tombstone | as absent | `AfterExpiry::RunAsNew` | as absent, next generation | as absent |
//! | Tombstone, its window over | as absent | | as absent, next generation | as absent |
//! | any, of another store's tenant | any; see `authority` | | same | not authoritative, or fence lost |
//!
//! Nothing leaves Succeeded or Failed but by time. The reader asks with `Ask` on a snapshot; the writer
//! decides on the rows as they then are, so a check and its act cannot drift apart.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::act::Act;
use super::authority::{Unit, Units};
use super::claim::{Moment, Open, Phase, Uptime};
use super::effect::Staged;
use super::error::{Error, ErrorKind};
use super::fingerprint::{Fingerprint, Match, Parts};
use super::imprint::Imprint;
use super::invariants;
use super::message::{MessageId, Status};
use super::name::{Scope, ScopeDigest};
use super::outcome::ResourceRef;
use super::policy::{AfterExpiry, Policy, WhileRunning};
use super::record::{Age, Entry, Position, Record, Told, Transition};
use super::reply::{Reply, retry_within};
use super::row::{Row, RowKey};
use super::time::Timestamp;

mod authority;
mod claims;
mod effects;
mod findings;
mod messages;

use effects::Applying;
pub(crate) use messages::footprint;

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
    /// What is known of the scope, to somebody who wants this?
    Ask(Purpose),
    /// May this be committed?
    Act { act: &'a Act, told: &'a Arc<Told>, staged: &'a Staged },
}

/// What a caller wants to do with a free scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    Execute,
    Begin,
}

/// Everything a decision may look at: the newest outcome of the scope, the command that is open in it, and
/// the rows of the command's footprint.
pub(crate) struct View<'a> {
    pub record: Option<&'a Record>,
    pub open: Option<OpenView<'a>>,
    pub rows: &'a dyn Rows,
    /// Where a new entry would stand.
    pub position: Position,
    /// When a clock that had jumped settled by itself; see [`Record::may_run_after`].
    pub clock_settled: Option<Timestamp>,
    pub uptime: Uptime,
    /// Whether one more command may be open.
    pub has_room: bool,
    /// Whose the tenants are; where rows say so, they are among `rows`.
    pub units: Units,
}

/// An open command, and how its claim stands.
#[derive(Clone, Copy)]
pub(crate) struct OpenView<'a> {
    pub open: &'a Arc<Open>,
    pub row: &'a Row,
    /// What is left of the claim's lease; zero when it is over.
    pub lease_left: Duration,
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
    /// The scope is free: the closure may run, the work may begin.
    Run,
    Reply(Reply),
    /// The command has run: its entry is among the changes.
    Done,
    /// The claim's finish was committed before: this is the record's answer.
    DoneBefore,
    /// The open command as it is now; granted, if this was a begin.
    Open(Arc<Open>),
    /// Committed before under this name.
    Reached(Bytes),
    /// The scope is as if it had never been begun.
    Gone,
    /// The claim is over or somebody else's; the record is its end, if there is one.
    FenceLost,
    /// Its owner is gone and nobody may go on: it is to be told so with `Lapse`.
    Lapsed,
    /// What was known of it is out of date.
    Stale,
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
    /// The messages that were made, or were known; one for each that was asked for.
    Enqueued(Vec<MessageId>),
    /// Each message as it is now; none of one that could not be moved on.
    Posted(Vec<Option<Status>>),
    /// Whose the tenant is now, and the entry that said so.
    Unit {
        unit: Unit,
        version: u64,
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
    /// Events that were not the newest of their stream.
    pub overtaken: u32,
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
    let decider = Decider { view, asked, now, policy };
    let decision = match (decider.not_ours(command), command) {
        (Some(refused), _) => refused,
        (None, Command::Ask(purpose)) => match decider.judge(*purpose) {
            Judged::Free { .. } | Judged::TakeOver => answer(Answer::Run),
            other => other.answered(),
        },
        (None, Command::Act { act, told, staged }) => decider.act(act, told, staged),
    };
    debug_assert!(invariants::record_and_effects_together(&decision.changes));
    debug_assert!(invariants::one_outcome_per_generation(
        view.record.filter(|_| asked.is_protected),
        &decision.changes,
        now,
        view.clock_settled
    ));
    decision
}

/// One decision on its way.
struct Decider<'c> {
    view: &'c View<'c>,
    asked: &'c Asked,
    now: Timestamp,
    policy: &'c Policy,
}

enum Judged {
    Free {
        generation: u32,
    },
    /// Another's claim is over, and this one may go on with it.
    TakeOver,
    /// Another's claim is over, and nobody may.
    Lapsed,
    Taken(Reply),
    Unreadable(Error),
}

impl Judged {
    fn answered(self) -> Decision {
        match self {
            Self::Free { .. } | Self::TakeOver => answer(Answer::Run),
            Self::Lapsed => answer(Answer::Lapsed),
            Self::Taken(reply) => answer(Answer::Reply(reply)),
            Self::Unreadable(fault) => answer(Answer::Fault(fault)),
        }
    }
}

impl Decider<'_> {
    fn act(&self, act: &Act, told: &Arc<Told>, staged: &Staged) -> Decision {
        match act {
            Act::Execute => match self.judge(Purpose::Execute) {
                Judged::Free { generation } => self.execute(told, staged, generation),
                other => other.answered(),
            },
            Act::Begin(start) => match self.judge(Purpose::Begin) {
                Judged::Free { generation } => self.begin(start, told, generation),
                Judged::TakeOver => self.take_over(start, told),
                other => other.answered(),
            },
            Act::TakeOver { token, start } => match &self.view.open {
                Some(view)
                    if view.open.token == *token
                        && !view.is_live()
                        && view.open.may_be_taken_over(self.policy) =>
                {
                    self.take_over(start, told)
                }
                _ => answer(Answer::Stale),
            },
            Act::Claimed { token, moves, deed } => self.claimed(*token, moves, deed, told, staged),
            Act::Lapse => self.lapse(told),
            Act::Cancel => self.cancel(told),
            Act::Found { version, finding, evidence, .. } => {
                self.found(*version, finding, evidence, told, staged)
            }
            Act::Enqueue { nonce } => self.enqueue(nonce, told, staged),
            Act::Post { moves, .. } => self.post(moves, told),
            Act::Job(end) => self.job(end, told, staged),
            Act::HandOver { to } => self.hand_over(to, told),
            Act::Clear { arrival, keys } => self.clear(*arrival, keys, told),
            Act::Arrive { from, epoch } => self.arrive(from, *epoch, told),
            Act::Bring { arrival, rows } => self.bring(*arrival, rows, told),
            Act::BringOutcome { arrival, generation, .. } => self.bring_outcome(*arrival, *generation, told),
            Act::BringOpen { arrival, open } => self.bring_open(*arrival, open, told),
            Act::Own { arrival } => self.own(*arrival, told),
        }
    }

    /// What the scope says to this request.
    fn judge(&self, purpose: Purpose) -> Judged {
        if !self.asked.is_protected {
            return Judged::Free { generation: 1 };
        }
        match &self.view.open {
            Some(open) => self.judge_open(open, purpose),
            None => self.judge_record(),
        }
    }

    /// What the scope's record says to this request.
    fn judge_record(&self) -> Judged {
        let Some(record) = self.view.record else {
            return Judged::Free { generation: 1 };
        };
        let (now, settled) = (self.now, self.view.clock_settled);
        let next = Judged::Free { generation: record.entry.generation.saturating_add(1) };
        match record.age(now) {
            Age::Whole | Age::Trimmed => match record.judge(&self.asked.parts) {
                Match::Same => {
                    let finished = record.finished(now);
                    debug_assert!(invariants::replay_is_the_record(record, &finished));
                    Judged::Taken(Reply::Replay(finished))
                }
                Match::Differs { parts, formatting_only } => {
                    Judged::Taken(Reply::Mismatch { parts, formatting_only, in_flight: false })
                }
                Match::Unknowable => unreadable(),
            },
            Age::Forgotten if record.may_run_after(record.windows.tombstone, settled, now) => next,
            // A forgotten record that is held back is a tombstone still.
            Age::Tombstone | Age::Forgotten
                if self.policy.after_expiry == AfterExpiry::RunAsNew
                    && record.may_run_after(record.windows.key, settled, now) =>
            {
                next
            }
            Age::Tombstone | Age::Forgotten => Judged::Taken(expired(record, self.asked)),
        }
    }

    /// What an open command says to this request.
    fn judge_open(&self, view: &OpenView<'_>, purpose: Purpose) -> Judged {
        let open = view.open;
        match open.fingerprint.judge(&self.asked.parts) {
            Match::Same => {}
            // What is not known of it is its own request's to learn.
            Match::Differs { .. }
                if view.is_live() && self.policy.while_running == WhileRunning::InProgressFirst =>
            {
                return Judged::Taken(view.in_the_way());
            }
            Match::Differs { parts, formatting_only } => {
                return Judged::Taken(Reply::Mismatch { parts, formatting_only, in_flight: true });
            }
            Match::Unknowable => return unreadable(),
        }
        if view.is_live() {
            return Judged::Taken(view.in_the_way());
        }
        match purpose {
            Purpose::Begin if open.may_be_taken_over(self.policy) => Judged::TakeOver,
            Purpose::Execute if open.may_be_taken_over(self.policy) && open.is_untouched() => {
                Judged::Free { generation: open.generation }
            }
            // It waits for a begin, which may go on with it.
            Purpose::Execute if open.may_be_taken_over(self.policy) => Judged::Taken(view.unknown()),
            Purpose::Begin | Purpose::Execute if open.phase == Phase::Processing => Judged::Lapsed,
            Purpose::Begin | Purpose::Execute => Judged::Taken(view.unknown()),
        }
    }

    /// The arm of a closure that has run on a free scope.
    fn execute(&self, told: &Arc<Told>, staged: &Staged, generation: u32) -> Decision {
        let transition = if self.asked.is_protected { Transition::Executed } else { Transition::Unprotected };
        self.outcome(transition, told, staged, generation)
    }

    /// Commits an outcome with its effects, if every precondition holds; what was open is over.
    fn outcome(
        &self,
        transition: Transition,
        told: &Arc<Told>,
        staged: &Staged,
        generation: u32,
    ) -> Decision {
        match self.applied(staged, generation, "") {
            Ok(mut applying) => {
                self.put_open(&mut applying, None);
                self.written(transition, told, generation, applying, Answer::Done)
            }
            Err(stopped) => answer(stopped),
        }
    }

    /// One entry, with the rows it changes.
    fn written(
        &self,
        transition: Transition,
        told: &Arc<Told>,
        generation: u32,
        applying: Applying<'_>,
        said: Answer,
    ) -> Decision {
        let Applying { rows, notes, stale, overtaken, .. } = applying;
        let entry = Entry { transition, at: self.now, generation, told: Arc::clone(told), notes };
        Decision {
            answer: said,
            changes: Changes { entry: Some(entry), rows },
            notices: Notices { stale, overtaken },
        }
    }

    /// The moment of this decision on the monotonic clock.
    fn moment(&self) -> Moment {
        self.view.uptime.now
    }
}

impl OpenView<'_> {
    /// Whether its owner is believed to be at it.
    fn is_live(&self) -> bool {
        self.open.phase == Phase::Processing && !self.lease_left.is_zero()
    }

    /// What a caller is told who has to wait for it.
    fn in_the_way(&self) -> Reply {
        if !self.is_live() {
            return self.unknown();
        }
        Reply::InProgress {
            since: self.open.since,
            retry_after: retry_within(self.lease_left),
            attempt: self.open.attempt,
            owner: self.open.owner.to_string(),
        }
    }

    fn unknown(&self) -> Reply {
        unknown(self.open)
    }
}

/// What is answered of a command that may have taken effect outside.
pub(crate) fn unknown(open: &Open) -> Reply {
    let since = match open.phase {
        Phase::Unknown { since, .. } => since,
        Phase::Processing => open.since,
    };
    let open_steps =
        open.open_steps().map(|step| (step.name.to_string(), open.operation_id(&step.name))).collect();
    Reply::Unknown { since, open_steps }
}

fn unreadable() -> Judged {
    Judged::Unreadable(Error::new(
        ErrorKind::UnsupportedFormat,
        "the scope's record has a fingerprint scheme or policy of a newer version: use that version",
    ))
}

fn expired(record: &Record, asked: &Asked) -> Reply {
    let entry = &record.entry;
    let is_same = record.judge(&asked.parts) == Match::Same;
    let reply = Reply::Expired {
        failed: entry.failed,
        code: entry.code,
        at: record.finished_at(),
        resource: entry.resource.as_ref().filter(|_| is_same).cloned(),
        digest: is_same.then(|| entry.body.digest()),
    };
    debug_assert!(is_same || invariants::tells_another_nothing(&reply));
    reply
}

fn answer(answer: Answer) -> Decision {
    Decision { answer, changes: Changes::default(), notices: Notices::default() }
}

#[cfg(test)]
mod walk_tests;
