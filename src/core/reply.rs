//! The answers to a command, and what a client should do about each. Owns the closed set of states a caller
//! must tell apart; must not know how they were found out.

use std::fmt;
use std::time::Duration;

use super::case::Case;
use super::claim::OperationId;
use super::name::Scope;
use super::outcome::{Digest, Finished, ResourceRef};
use super::time::Timestamp;

/// The answer to a command. Complete: a `match` that forgets a state does not compile.
///
/// ```
/// # use onecho::{testing::SimDisk, *};
/// # let store = SimDisk::seeded(1).open(Options::new())?;
/// # let (tenant, operation) = (Tenant::new("t"), Operation::new("o"));
/// # let request = Request::new(&tenant, &operation, &Key::parse("k")?).bytes("body", "x");
/// let first = store.execute(&request, |_| Ok(Outcome::succeeded(201)))?;
/// let retry = store.execute(&request, |_| Ok(Outcome::succeeded(500)))?; // not called
/// assert!(!first.is_replay() && retry.is_replay());
/// assert_eq!(first.into_finished().unwrap().code, retry.into_finished().unwrap().code);
/// # Ok::<(), BoxError>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
#[must_use]
pub enum Reply {
    /// This call ran it; it is durable.
    Done(Finished),
    /// An earlier call ran it; this is its outcome.
    Replay(Finished),
    /// Another call runs it now.
    #[non_exhaustive]
    InProgress {
        /// When that call began.
        since: Timestamp,
        /// When to ask again; finite, above zero.
        retry_after: Duration,
        /// Which attempt runs.
        attempt: u32,
        /// The label of the store that runs it, see `Options::owner`.
        owner: String,
    },
    /// It may have taken effect outside; it is being found out.
    #[non_exhaustive]
    Unknown {
        /// Since when.
        since: Timestamp,
        /// Steps that may have been made and have no result, each with the id that the other side knows it
        /// by.
        open_steps: Vec<(String, OperationId)>,
    },
    /// The key belongs to another request. Nothing of that one is told.
    #[non_exhaustive]
    Mismatch {
        /// The parts that differ.
        parts: Vec<String>,
        /// They differ in formatting only: member order, white space, escapes.
        formatting_only: bool,
        /// The other request still runs; nothing is recorded yet.
        in_flight: bool,
    },
    /// The key's window is over; the command ran once.
    #[non_exhaustive]
    Expired {
        /// Whether the outcome was a business refusal.
        failed: bool,
        /// Its code.
        code: u16,
        /// When it finished.
        at: Timestamp,
        /// What it made; told to the same request only.
        resource: Option<ResourceRef>,
        /// SHA-256 of its body; told to the same request only.
        digest: Option<Digest>,
    },
    /// What the command wants to make exists, or its uniqueness is taken. Nothing was written; the key is
    /// free.
    #[non_exhaustive]
    Duplicate {
        /// The row that is in the way, or the holder of the uniqueness.
        held: ResourceRef,
        /// The command that made it, when it was one of the same tenant.
        made_by: Option<Scope>,
    },
    /// Rows kept changing under the closure. Nothing was written; the key is free.
    #[non_exhaustive]
    Conflict {
        /// The row that changed last.
        resource: ResourceRef,
        /// Its version now; 0 when it is absent.
        version: u64,
    },
    /// Refused before anything was written.
    Refused(Refused),
}

/// Why a command was refused before anything was written.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refused {
    /// A queue or the disk is full.
    Capacity {
        /// When to ask again.
        retry_after: Duration,
    },
    /// Another store decides about this scope.
    NotAuthoritative {
        /// Its name, as configured or as said when the tenant was handed over; empty where this store does
        /// not know it.
        owner: String,
    },
    /// The store was restored from a backup and does not yet know what it missed.
    Restored,
}

/// What a client should do next.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Advice {
    /// Nothing: the answer is final.
    Settled,
    /// Send the same request again under the same key.
    RetrySameKey {
        /// Not before this much time has passed.
        after: Duration,
    },
    /// Nothing ran under this key; a new command may use it or another.
    NewKeySafe,
    /// The key belongs to another command: this one needs its own.
    NewKeyNeeded,
    /// Find out what became of the first attempt before doing anything.
    LookUpFirst,
    /// The call is wrong and will fail again.
    FixRequest,
    /// A person has to look.
    AskOperator,
}

impl Reply {
    /// What was recorded, of [`Reply::Done`] and [`Reply::Replay`].
    ///
    /// # Errors
    ///
    /// Any other reply comes back.
    pub fn into_finished(self) -> Result<Finished, Box<Self>> {
        match self {
            Self::Done(finished) | Self::Replay(finished) => Ok(finished),
            other => Err(Box::new(other)),
        }
    }

    /// Whether an earlier call ran the command.
    #[must_use]
    pub fn is_replay(&self) -> bool {
        matches!(self, Self::Replay(_))
    }

    /// What a client should do next.
    #[must_use]
    pub fn advice(&self) -> Advice {
        match self {
            Self::Done(_) | Self::Replay(_) => Advice::Settled,
            Self::InProgress { retry_after, .. } | Self::Refused(Refused::Capacity { retry_after }) => {
                Advice::RetrySameKey { after: *retry_after }
            }
            Self::Unknown { .. } => Advice::RetrySameKey { after: RETRY_UNKNOWN },
            // Nothing is recorded yet in either case.
            Self::Mismatch { in_flight: true, .. } | Self::Conflict { .. } => {
                Advice::RetrySameKey { after: RETRY_SOON }
            }
            Self::Mismatch { in_flight: false, .. } => Advice::NewKeyNeeded,
            Self::Expired { .. } | Self::Duplicate { .. } => Advice::LookUpFirst,
            // At its owner, which may be another in a moment.
            Self::Refused(Refused::NotAuthoritative { .. }) => Advice::RetrySameKey { after: RETRY_FULL },
            Self::Refused(Refused::Restored) => Advice::AskOperator,
        }
    }
}

/// When to ask again while somebody is at it who has so much time left.
pub(crate) fn retry_within(left: Duration) -> Duration {
    left.clamp(RETRY_AFTER_MIN, RETRY_AFTER_MAX)
}

/// The longest a caller is told to wait before it asks again.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(1);
const RETRY_AFTER_MIN: Duration = Duration::from_millis(1);
/// When to ask again where there is no room.
pub(crate) const RETRY_FULL: Duration = Duration::from_secs(1);
/// When to ask again where the answer may change at any moment.
pub(crate) const RETRY_SOON: Duration = Duration::from_millis(100);
/// When to ask again where somebody has to find something out.
const RETRY_UNKNOWN: Duration = Duration::from_secs(30);

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Done(finished) => write!(f, "Done({finished:?})"),
            Self::Replay(finished) => write!(f, "Replay({finished:?})"),
            Self::InProgress { retry_after, owner, .. } => {
                write!(f, "InProgress(again after {retry_after:?}, run by {owner})")
            }
            Self::Unknown { since, .. } => write!(f, "Unknown(since {since})"),
            Self::Mismatch { parts, formatting_only, in_flight } => f
                .debug_struct("Mismatch")
                .field("parts", parts)
                .field("formatting_only", formatting_only)
                .field("in_flight", in_flight)
                .finish(),
            Self::Expired { failed, code, at, .. } => {
                write!(f, "Expired(code {code}, failed {failed}, at {at})")
            }
            Self::Duplicate { held, .. } => write!(f, "Duplicate({held:?})"),
            Self::Conflict { resource, version } => write!(f, "Conflict({resource:?}, version {version})"),
            Self::Refused(refused) => write!(f, "Refused({refused:?})"),
        }
    }
}

/// What a store knows of a scope. Looking never runs anything.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Status {
    /// Nothing: a command under it would run.
    Absent,
    /// Somebody is at it, or was and it waits to be taken over.
    #[non_exhaustive]
    Processing {
        /// When it began.
        since: Timestamp,
        /// For how long it keeps others waiting; zero when it waits to be taken over.
        lease_left: Duration,
        /// The label of the store that runs it.
        owner: String,
    },
    /// It may have taken effect outside; this is what is known of it.
    Unknown(Case),
    /// It is finished, and this is what a retry gets.
    Finished(Finished),
    /// It was finished; its key's window is over.
    #[non_exhaustive]
    Tombstone {
        /// Whether the outcome was a business refusal.
        failed: bool,
        /// Its code.
        code: u16,
        /// What it made.
        resource: Option<ResourceRef>,
        /// When it finished.
        at: Timestamp,
    },
}
