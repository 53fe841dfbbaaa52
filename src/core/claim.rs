//! A command that was begun and is not finished: what is kept of it until it is. Owns the claim's state, its
//! steps and recovery points; must not know which event may change it (`decide`) or how it is stored (`db`).

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::audit::Layout;
use super::error::{Error, ErrorKind};
use super::fact::Evidence;
use super::fingerprint::Fingerprint;
use super::name::Scope;
use super::policy::{Policy, Takeover};
use super::text::Text;
use super::time::Timestamp;

/// The most steps that one command may declare.
pub const STEPS_MAX: usize = 64;
/// The most recovery points of one command.
pub const POINTS_MAX: usize = 64;
/// The most that is kept of one open command, in bytes: its input, answers and points together. Evidence has
/// bounds of its own, so that there is room for it with any command.
pub const OPEN_BYTES_MAX: usize = 4 * 1024 * 1024;
/// The most pieces of evidence that are kept with an open command; the journal has them all.
pub const EVIDENCE_MAX: usize = 32;

/// What a repeat with the same operation id does at the other side of a call.
///
/// ```
/// use std::time::Duration;
/// use onecho::{Contract, Step};
/// const CHARGE: Step<String> =
///     Step::new("charge", Contract::Queryable).settles_within(Duration::from_secs(600));
/// # let _ = CHARGE;
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Contract {
    /// A repeat changes nothing and gets the first answer: the call may be made again.
    Idempotent,
    /// A repeat may act twice, but the other side can be asked what became of an id.
    Queryable,
    /// Neither: what is not known can only be found out by people.
    Neither,
}

/// Sent along with a call so that the other side knows a repeat: the same over retries, restarts and
/// takeovers. 32 hexadecimal digits.
///
/// The first 128 bits of SHA-256 over tenant, operation, key, generation and the step's name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OperationId([u8; 32]);

impl OperationId {
    /// The id of a step of a command.
    pub(crate) fn of(scope: &Scope, generation: u32, step: &str) -> Self {
        let mut out = Layout::default();
        out.raw(b"onecho operation 1");
        out.text(scope.tenant.as_str());
        out.text(scope.operation.as_str());
        out.text(scope.key.as_str());
        out.u32(generation);
        out.text(step);
        Self::from_digest(&out.finish())
    }

    /// The id that the first half of a digest makes.
    pub(crate) fn from_digest(digest: &[u8; 32]) -> Self {
        let mut half = [0; 16];
        half.copy_from_slice(&digest[..16]);
        Self::from_half(&half)
    }

    /// The id of 128 bits.
    pub(crate) fn from_half(half: &[u8; 16]) -> Self {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut text = [0; 32];
        for (pair, byte) in text.chunks_exact_mut(2).zip(half) {
            pair[0] = DIGITS[usize::from(byte >> 4)];
            pair[1] = DIGITS[usize::from(byte & 15)];
        }
        Self(text)
    }

    /// The id as text, to be sent.
    #[must_use]
    pub fn as_str(&self) -> &str {
        // Only digits were put into it.
        str::from_utf8(&self.0).unwrap_or_default()
    }
}

impl fmt::Display for OperationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for OperationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OperationId({self})")
    }
}

/// A command that was begun and is not finished.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Open {
    pub scope: Scope,
    pub fingerprint: Fingerprint,
    pub generation: u32,
    pub phase: Phase,
    /// When it was begun first.
    pub since: Timestamp,
    /// Which claim is the last one, from 1.
    pub attempt: u32,
    /// The fencing token of that claim: the number of the entry that granted it.
    pub token: u64,
    /// When that claim was granted.
    pub granted: Moment,
    /// How long it lasts without a heartbeat, in milliseconds.
    pub lease: u64,
    /// The label of the store that granted it.
    pub owner: Arc<str>,
    /// What a takeover needs to go on.
    pub input: Option<Bytes>,
    pub steps: Vec<StepRecord>,
    pub points: Vec<Point>,
    pub cancel_asked: bool,
    /// The newest last.
    pub evidence: Vec<Evidence>,
}

/// Whether somebody is at it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Phase {
    Processing,
    /// It may have taken effect outside.
    Unknown {
        since: Timestamp,
        /// Its last open step was judged: what is known is enough to go on.
        is_settled: bool,
    },
}

/// A moment on the monotonic clock of one opening; of no meaning to another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Moment {
    pub epoch: u64,
    /// Milliseconds.
    pub monotonic: u64,
}

/// A declared call to something outside.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StepRecord {
    pub name: Text,
    pub contract: Contract,
    /// How long after its start it may still take effect, in milliseconds.
    pub settles_within: u64,
    pub started: Moment,
    pub state: StepState,
}

/// What is known of a declared call.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum StepState {
    /// It may have been made.
    Open,
    /// It was made, and this is its answer.
    Answered(Bytes),
    /// It did not take effect and will not.
    NotApplied,
}

/// What was committed mid-way under a name.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Point {
    pub name: Text,
    pub value: Bytes,
}

/// A step as it is declared.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct NewStep {
    pub name: Text,
    pub contract: Contract,
    pub settles_within: u64,
}

/// Monotonic time of the store that decides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Uptime {
    pub now: Moment,
    /// When this process opened the store, in milliseconds.
    pub opened: u64,
}

impl Uptime {
    /// How long ago a moment was, in milliseconds: since this store was opened if it was before.
    pub fn since(&self, then: Moment) -> u64 {
        let start = if then.epoch == self.now.epoch { then.monotonic } else { self.opened };
        self.now.monotonic.saturating_sub(start)
    }

    /// As it was at a moment of this process; as at the open for one of an earlier process.
    pub fn until(&self, then: Moment) -> Self {
        let monotonic = if then.epoch == self.now.epoch { then.monotonic } else { self.opened };
        Self { now: Moment { epoch: self.now.epoch, monotonic }, opened: self.opened }
    }
}

impl Open {
    pub fn step(&self, name: &str) -> Option<&StepRecord> {
        self.steps.iter().find(|step| step.name == *name)
    }

    pub fn point(&self, name: &str) -> Option<&Point> {
        self.points.iter().find(|point| point.name == *name)
    }

    pub fn operation_id(&self, step: &str) -> OperationId {
        OperationId::of(&self.scope, self.generation, step)
    }

    /// Steps that may have been made and have no result.
    pub fn open_steps(&self) -> impl Iterator<Item = &StepRecord> {
        self.steps.iter().filter(|step| step.state == StepState::Open)
    }

    /// Whether another may go on where its owner stopped: nothing is open but what may be repeated.
    pub fn may_be_taken_over(&self, policy: &Policy) -> bool {
        let is_repeatable = |step: &StepRecord| step.contract == Contract::Idempotent;
        policy.takeover == Takeover::Allowed
            && match self.phase {
                Phase::Processing => self.open_steps().all(is_repeatable),
                Phase::Unknown { is_settled, .. } => is_settled && self.open_steps().next().is_none(),
            }
    }

    /// Whether nothing of it can have left a mark: another kind of run may take its place.
    pub fn is_untouched(&self) -> bool {
        self.phase == Phase::Processing && self.steps.is_empty() && self.points.is_empty()
    }

    /// What is kept of it, in bytes, without its evidence.
    pub fn bytes(&self) -> usize {
        let steps = self.steps.iter().map(|step| match &step.state {
            StepState::Answered(answer) => step.name.len() + answer.len(),
            StepState::Open | StepState::NotApplied => step.name.len(),
        });
        let points = self.points.iter().map(|point| point.name.len() + point.value.len());
        self.input.as_ref().map_or(0, Bytes::len) + steps.chain(points).sum::<usize>()
    }

    /// Adds to what is known; the oldest goes where there is too much.
    pub fn learn(&mut self, evidence: Evidence) {
        if self.evidence.len() == EVIDENCE_MAX {
            self.evidence.remove(0);
        }
        self.evidence.push(evidence);
    }

    /// Refuses what is too much to keep.
    pub fn check(&self) -> Result<(), Error> {
        let over = |what: String| Err(Error::new(ErrorKind::LimitExceeded, what));
        if self.steps.len() > STEPS_MAX {
            return over(format!("more than {STEPS_MAX} steps of one command"));
        }
        if self.points.len() > POINTS_MAX {
            return over(format!("more than {POINTS_MAX} recovery points of one command"));
        }
        if self.bytes() > OPEN_BYTES_MAX {
            return over(format!(
                "input, answers and points of one command have more than {OPEN_BYTES_MAX} bytes"
            ));
        }
        Ok(())
    }

    /// What the journal keeps the digest of. `docs/format.md` lists the fields.
    pub fn layout(&self, out: &mut Layout) {
        out.text(self.scope.tenant.as_str());
        out.text(self.scope.operation.as_str());
        out.text(self.scope.key.as_str());
        self.fingerprint.layout(out);
        out.u32(self.generation);
        match self.phase {
            Phase::Processing => out.u8(0),
            Phase::Unknown { since, is_settled } => {
                out.u8(1);
                out.u64(since.0);
                out.u8(u8::from(is_settled));
            }
        }
        out.u64(self.since.0);
        out.u32(self.attempt);
        out.u64(self.token);
        out.moment(self.granted);
        out.u64(self.lease);
        out.text(&self.owner);
        out.maybe_bytes(self.input.as_deref());
        out.count(self.steps.len());
        for step in &self.steps {
            step.layout(out);
        }
        out.count(self.points.len());
        for point in &self.points {
            out.text(&point.name);
            out.bytes(&point.value);
        }
        out.u8(u8::from(self.cancel_asked));
        out.count(self.evidence.len());
        for evidence in &self.evidence {
            evidence.layout(out);
        }
    }
}

impl StepRecord {
    /// How long it lasts until nothing of it can arrive any more, in milliseconds; zero when it is so.
    pub fn settles_in(&self, uptime: &Uptime) -> u64 {
        self.settles_within.saturating_sub(uptime.since(self.started))
    }

    fn layout(&self, out: &mut Layout) {
        out.text(&self.name);
        out.u8(self.contract as u8);
        out.u64(self.settles_within);
        out.moment(self.started);
        match &self.state {
            StepState::Open => out.u8(0),
            StepState::Answered(answer) => {
                out.u8(1);
                out.bytes(answer);
            }
            StepState::NotApplied => out.u8(2),
        }
    }
}

/// A moment as a span since the clock's start, whole milliseconds.
impl Moment {
    pub fn at(epoch: u64, monotonic: Duration) -> Self {
        Self { epoch, monotonic: super::time::millis(monotonic) }
    }
}

/// Shows no content: input and answers may be anybody's.
impl fmt::Debug for Open {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Open")
            .field("phase", &self.phase)
            .field("attempt", &self.attempt)
            .field("token", &self.token)
            .field("steps", &self.steps.len())
            .field("points", &self.points.len())
            .finish_non_exhaustive()
    }
}
