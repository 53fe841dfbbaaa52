//! What is kept of a finished command. Owns the entry and its times; must not know the bytes it is written
//! as.

use std::ops::Deref;
use std::sync::Arc;

use bytes::Bytes;

use super::effect::{Note, Verb};
use super::fact::Fact;
use super::fingerprint::{Fingerprint, Match, Parts};
use super::message::MessageId;
use super::name::Scope;
use super::outcome::{Body, Digest, Finished, Outcome, ResourceRef};
use super::policy::Windows;
use super::reply::Status;
use super::text::Text;
use super::time::Timestamp;

/// The number of a class: an immutable triple of windows. 0 is the store's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ClassId(pub u16);

/// Where an entry stands in the journal. `seq` is unique in the store, and so also the version of what the
/// entry wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Position {
    pub class: ClassId,
    pub seq: u64,
}

/// Which transition an entry tells. Numbered in the format; numbers are only ever added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transition {
    /// absent -> Succeeded or Failed, by `execute`.
    Executed = 1,
    /// A command without a key ran; nothing can be replayed of it.
    Unprotected = 2,
    /// absent -> Processing.
    Begun = 3,
    /// Processing, lapsed, or Unknown, settled -> Processing, with a new token.
    TakenOver = 4,
    /// Processing -> Processing: steps declared or answered, effects and a recovery point committed.
    Advanced = 5,
    /// Processing -> Succeeded or Failed.
    Finished = 6,
    /// Processing -> absent: nothing happened.
    Aborted = 7,
    /// Processing -> Unknown, as its owner says.
    Unsure = 8,
    /// Processing -> Unknown: its owner is gone, and nobody may go on.
    Lapsed = 9,
    /// absent -> Failed, before it ever ran.
    Cancelled = 10,
    /// Processing -> Processing: somebody wants it to stop.
    CancelAsked = 11,
    /// Unknown -> Unknown: something was found out about a step.
    Judged = 12,
    /// Unknown -> Succeeded or Failed, as somebody found out.
    Resolved = 13,
    /// Unknown -> absent: somebody found out that nothing happened.
    Released = 14,
    /// A completion came after its claim was over, and was refused.
    Differed = 15,
    /// Messages were made without a command.
    Enqueued = 16,
    /// Workers took messages, to send them, to ask for them or to do them.
    Attempted = 17,
    /// Attempts have ended, or will not.
    Ended = 18,
    /// A job was done here: what it changed and its end.
    Handled = 19,
    /// Somebody ended a message that nobody delivers any more.
    Settled = 20,
    /// The tenant is another store's from now on.
    HandedOver = 21,
    /// Rows of a tenant that another store decides about were removed.
    Cleared = 22,
    /// What another store exported of a tenant is being read.
    Arriving = 23,
    /// Rows of it.
    Brought = 24,
    /// An outcome of it: absent, or an earlier generation -> Succeeded or Failed.
    BroughtOutcome = 25,
    /// A command that is open in it: absent -> Unknown.
    BroughtOpen = 26,
    /// All of it has arrived: the tenant is this store's.
    Owned = 27,
}

impl Transition {
    /// Whether it ends a scope with an outcome that is replayed.
    pub fn is_outcome(self) -> bool {
        matches!(
            self,
            Self::Executed | Self::Finished | Self::Cancelled | Self::Resolved | Self::BroughtOutcome
        )
    }

    /// Whether it is of a scope that can be looked up.
    pub fn has_scope(self) -> bool {
        !matches!(
            self,
            Self::Unprotected
                | Self::Enqueued
                | Self::Attempted
                | Self::Ended
                | Self::Handled
                | Self::Settled
                | Self::HandedOver
                | Self::Cleared
                | Self::Arriving
                | Self::Brought
                | Self::Owned
        )
    }

    /// Whether it gives somebody a claim.
    pub fn is_grant(self) -> bool {
        matches!(self, Self::Begun | Self::TakenOver)
    }

    /// The transition of a stored number.
    pub fn of(number: u8) -> Option<Self> {
        const ALL: [Transition; 27] = [
            Transition::Executed,
            Transition::Unprotected,
            Transition::Begun,
            Transition::TakenOver,
            Transition::Advanced,
            Transition::Finished,
            Transition::Aborted,
            Transition::Unsure,
            Transition::Lapsed,
            Transition::Cancelled,
            Transition::CancelAsked,
            Transition::Judged,
            Transition::Resolved,
            Transition::Released,
            Transition::Differed,
            Transition::Enqueued,
            Transition::Attempted,
            Transition::Ended,
            Transition::Handled,
            Transition::Settled,
            Transition::HandedOver,
            Transition::Cleared,
            Transition::Arriving,
            Transition::Brought,
            Transition::BroughtOutcome,
            Transition::BroughtOpen,
            Transition::Owned,
        ];
        ALL.into_iter().find(|known| *known as u8 == number)
    }

    /// The word for it in an audit.
    pub fn word(self) -> &'static str {
        match self {
            Self::Executed => "executed",
            Self::Unprotected => "executed without a key",
            Self::Begun => "begun",
            Self::TakenOver => "taken over",
            Self::Advanced => "advanced",
            Self::Finished => "finished",
            Self::Aborted => "aborted",
            Self::Unsure => "unsure",
            Self::Lapsed => "lapsed",
            Self::Cancelled => "cancelled",
            Self::CancelAsked => "cancel asked",
            Self::Judged => "judged",
            Self::Resolved => "resolved",
            Self::Released => "released",
            Self::Differed => "differed",
            Self::Enqueued => "messages enqueued",
            Self::Attempted => "messages attempted",
            Self::Ended => "attempts ended",
            Self::Handled => "job handled",
            Self::Settled => "message settled",
            Self::HandedOver => "handed over",
            Self::Cleared => "rows cleared",
            Self::Arriving => "arriving",
            Self::Brought => "rows brought",
            Self::BroughtOutcome => "outcome brought",
            Self::BroughtOpen => "brought open",
            Self::Owned => "owned",
        }
    }
}

/// One entry of the journal: what the command brought along, and what was decided of it.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub transition: Transition,
    pub at: Timestamp,
    pub generation: u32,
    pub told: Arc<Told>,
    pub notes: Vec<Note>,
}

/// What a command brings along: known, and encoded, before its turn comes.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Told {
    pub scope: Scope,
    pub fingerprint: Fingerprint,
    pub failed: bool,
    pub code: u16,
    pub meta: Arc<[(Text, Bytes)]>,
    pub resource: Option<ResourceRef>,
    pub body: KeptBody,
    /// The label of the store that wrote it, or who decided.
    pub actor: Arc<str>,
    /// The fencing token of the claim that it speaks of; 0 without one.
    pub token: u64,
    /// What it says beside the outcome.
    pub facts: Arc<[Fact]>,
}

impl Told {
    pub fn new(scope: &Scope, fingerprint: &Fingerprint, outcome: Outcome, actor: &Arc<str>) -> Self {
        let Outcome { failed, code, meta, body, resource, keeps_body, .. } = outcome;
        let body = KeptBody::of(body, keeps_body);
        // None takes no block.
        let meta = if meta.is_empty() { Arc::default() } else { meta.into() };
        let (scope, fingerprint, actor) = (scope.clone(), fingerprint.clone(), Arc::clone(actor));
        Self {
            scope,
            fingerprint,
            failed,
            code,
            meta,
            resource,
            body,
            actor,
            token: 0,
            facts: Arc::default(),
        }
    }

    /// What an entry says that has no outcome.
    pub fn note(scope: &Scope, fingerprint: &Fingerprint, actor: &Arc<str>) -> Self {
        Self::new(scope, fingerprint, Outcome::succeeded(0), actor)
    }

    /// With the claim that it speaks of, and what it says beside the outcome.
    pub fn saying(self, token: u64, facts: Vec<Fact>) -> Self {
        Self { token, facts: facts.into(), ..self }
    }

    /// Whether both say the same outcome.
    pub fn is_same_outcome(&self, other: &Self) -> bool {
        let digest = |body: &KeptBody| (body.digest(), matches!(body, KeptBody::Kept(_)));
        (self.failed, self.code, &self.meta, &self.resource)
            == (other.failed, other.code, &other.meta, &other.resource)
            && digest(&self.body) == digest(&other.body)
    }
}

impl Deref for Entry {
    type Target = Told;

    fn deref(&self) -> &Told {
        &self.told
    }
}

/// A body as the entry holds it.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum KeptBody {
    Kept(Bytes),
    NotKept { digest: Digest, len: u64 },
}

impl KeptBody {
    pub fn of(body: Bytes, is_kept: bool) -> Self {
        if is_kept {
            return Self::Kept(body);
        }
        Self::NotKept { digest: Digest::of(&body), len: body.len() as u64 }
    }

    pub fn digest(&self) -> Digest {
        match self {
            Self::Kept(bytes) => Digest::of(bytes),
            Self::NotKept { digest, .. } => *digest,
        }
    }
}

/// An entry, where it stands and how long it lasts: what is known of a scope.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Record {
    pub position: Position,
    pub windows: Windows,
    pub entry: Entry,
}

/// What a record is by now, by its own times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Age {
    /// Outcome and body are replayed.
    Whole,
    /// The outcome is replayed, the body's window is over.
    Trimmed,
    /// The key's window is over.
    Tombstone,
    /// The tombstone's window is over too.
    Forgotten,
}

impl Record {
    /// Whether it is what a scope came to; a command without a key has no scope.
    pub fn is_outcome(&self) -> bool {
        self.entry.transition.is_outcome()
    }

    /// What another store did, of an outcome that it exported.
    fn brought(&self) -> Option<(Timestamp, Transition, u64, u32)> {
        if self.entry.transition != Transition::BroughtOutcome {
            return None;
        }
        match self.entry.facts.last() {
            Some(Fact::Brought { at, ended_by, made, count }) => {
                Some((*at, Transition::of(*ended_by)?, *made, *count))
            }
            _ => None,
        }
    }

    /// When the command finished.
    pub fn finished_at(&self) -> Timestamp {
        self.brought().map_or(self.entry.at, |(at, ..)| at)
    }

    /// By which transition it did.
    pub fn ended_by(&self) -> Transition {
        self.brought().map_or(self.entry.transition, |(_, transition, ..)| transition)
    }

    /// The messages that it made: the first one, and how many.
    pub fn made(&self) -> (MessageId, u32) {
        if let Some((_, _, seq, count)) = self.brought() {
            return (MessageId { seq, ordinal: 0 }, count);
        }
        let count = u32::try_from(self.messages().count()).unwrap_or(u32::MAX);
        (MessageId { seq: self.position.seq, ordinal: 0 }, count)
    }

    /// The messages that it made here, in their order.
    pub fn messages(&self) -> impl Iterator<Item = MessageId> {
        let made = self.entry.notes.iter().filter(|note| note.key.is_message() && note.verb == Verb::Write);
        // It may also have written the one before the first, which now names it.
        made.filter_map(|note| note.key.message_id()).filter(|id| id.seq == self.position.seq)
    }

    /// Whether a retry asks what was recorded. What was cancelled before it ran answers whatever is asked.
    pub fn judge(&self, asked: &Parts) -> Match {
        match self.ended_by() {
            Transition::Cancelled => Match::Same,
            _ => self.entry.fingerprint.judge(asked),
        }
    }

    /// Whether a retry is recognised by its fingerprint alone, as the memory does it, and answered from what
    /// the entry itself says.
    pub fn may_be_remembered(&self) -> bool {
        let is_else = matches!(self.entry.transition, Transition::Cancelled | Transition::BroughtOutcome);
        self.is_outcome() && !is_else
    }

    pub fn body_until(&self) -> Timestamp {
        Windows::end(self.finished_at(), self.windows.body)
    }

    pub fn key_until(&self) -> Timestamp {
        Windows::end(self.finished_at(), self.windows.key)
    }

    /// What the record is at `now`. A window is over when `now` has reached its end; whether a worker has
    /// already removed anything changes no answer.
    pub fn age(&self, now: Timestamp) -> Age {
        if Windows::is_over(Windows::end(self.finished_at(), self.windows.tombstone), now) {
            Age::Forgotten
        } else if Windows::is_over(self.key_until(), now) {
            Age::Tombstone
        } else if Windows::is_over(self.body_until(), now) {
            Age::Trimmed
        } else {
            Age::Whole
        }
    }

    /// What a caller gets of the outcome at `now`.
    pub fn finished(&self, now: Timestamp) -> Finished {
        let entry = &self.entry;
        let trimmed = self.age(now) != Age::Whole;
        let body = match &entry.body {
            KeptBody::Kept(bytes) if !trimmed => Body::Present(bytes.clone()),
            KeptBody::Kept(bytes) => Body::Trimmed { digest: Digest::of(bytes), len: bytes.len() as u64 },
            KeptBody::NotKept { digest, len } => Body::NotKept { digest: *digest, len: *len },
        };
        Finished {
            code: entry.code,
            failed: entry.failed,
            body,
            resource: entry.resource.clone(),
            at: self.finished_at(),
            body_until: self.body_until(),
            key_until: self.key_until(),
            generation: entry.generation,
            messages: match self.brought() {
                Some((_, _, seq, count)) => (0..count).map(|ordinal| MessageId { seq, ordinal }).collect(),
                None => ordered(self.messages()),
            },
            metadata: Arc::clone(&entry.meta),
        }
    }

    /// Whether a window is over for a step that runs a command anew. A clock that jumped forward and settled
    /// by itself, confirmed by nobody, may have made up the time, so the windows of what was written before
    /// it begin again.
    pub fn may_run_after(&self, window: u64, settled: Option<Timestamp>, now: Timestamp) -> bool {
        let start = self.finished_at().max(settled.unwrap_or_default());
        Windows::is_over(Windows::end(start, window), now)
    }

    /// What somebody who only looks is told at `now`.
    pub fn status(&self, now: Timestamp, settled: Option<Timestamp>) -> Status {
        match self.age(now) {
            Age::Whole | Age::Trimmed => Status::Finished(self.finished(now)),
            Age::Forgotten if self.may_run_after(self.windows.tombstone, settled, now) => Status::Absent,
            Age::Tombstone | Age::Forgotten => Status::Tombstone {
                failed: self.entry.failed,
                code: self.entry.code,
                resource: self.entry.resource.clone(),
                at: self.finished_at(),
            },
        }
    }
}

/// Rows are noted in the order in which they were first changed, which is that of the numbers but for those
/// that another of the same ordering key came behind.
fn ordered(ids: impl Iterator<Item = MessageId>) -> Vec<MessageId> {
    let mut ids: Vec<MessageId> = ids.collect();
    ids.sort_unstable();
    ids
}
