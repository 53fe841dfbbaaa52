//! What goes to the writer and what comes back. Owns what can be worked out on the caller's thread; must not
//! know how it is decided or written.

use std::sync::Arc;

use bytes::Bytes;

use super::queue::Size;
use crate::core::act::Act;
use crate::core::audit::Brought;
use crate::core::authority::Unit;
use crate::core::claim::Open;
use crate::core::decide::Asked;
use crate::core::effect::Staged;
use crate::core::error::{Error, ErrorKind};
use crate::core::message::{MessageId, Status};
use crate::core::outcome::{Outcome, ResourceRef};
use crate::core::policy::Policy;
use crate::core::record::{Record, Told};
use crate::core::reply::Reply;
use crate::db::stored::encode_told;

/// What is asked of a scope, with all that can be worked out before it has its number.
pub(crate) struct Draft {
    pub(super) asked: Arc<Asked>,
    pub(super) policy: Policy,
    pub(super) act: Act,
    pub(super) staged: Staged,
    pub(super) told: Arc<Told>,
    /// What `told` is in the file.
    pub(super) encoded: Vec<u8>,
    pub(super) brought: Brought,
}

impl Draft {
    /// Of an act that may end with an outcome. Made on the caller's thread, so that the writer, who is alone,
    /// has less to do.
    pub fn new(
        asked: &Arc<Asked>,
        policy: &Policy,
        act: Act,
        outcome: Outcome,
        staged: Staged,
        actor: &Arc<str>,
    ) -> Result<Self, Error> {
        outcome.check(policy.outcome_bytes_max, staged.changes_rows())?;
        let told = Told::new(&asked.scope, &asked.fingerprint, outcome, actor);
        Self::telling(asked, policy, act, told, staged)
    }

    /// Of an act without an outcome.
    pub fn note(
        asked: &Arc<Asked>,
        policy: &Policy,
        act: Act,
        staged: Staged,
        actor: &Arc<str>,
    ) -> Result<Self, Error> {
        let told = Told::note(&asked.scope, &asked.fingerprint, actor);
        Self::telling(asked, policy, act, told, staged)
    }

    /// Of an act that brings along what its entry says.
    pub fn telling(
        asked: &Arc<Asked>,
        policy: &Policy,
        act: Act,
        told: Told,
        staged: Staged,
    ) -> Result<Self, Error> {
        let told = told.saying(act.token(), act.facts());
        let encoded = encode_told(&told).map_err(|fault| Error::new(ErrorKind::LimitExceeded, fault))?;
        let brought = Brought::of(&told);
        let (asked, told) = (Arc::clone(asked), Arc::new(told));
        Ok(Self { asked, policy: *policy, act, staged, told, encoded, brought })
    }

    /// What it takes of a batch.
    pub fn size(&self) -> Size {
        Size { commands: 1, bytes: self.encoded.len() + self.staged.bytes() + self.act.bytes() }
    }
}

/// What became of one draft.
pub(crate) enum Verdict {
    /// It has run, or had before, and this is its record, durable.
    Done(Arc<Record>),
    /// It is answered otherwise; `record` is what is now known of its scope, if anything.
    Reply {
        reply: Reply,
        record: Option<Arc<Record>>,
    },
    /// The open command as it is now.
    Open(OpenRow),
    /// Committed before under this name.
    Reached(Bytes),
    /// The scope is as if it had never been begun.
    Gone,
    /// Its claim is over; `record` is what the scope came to, if anything.
    FenceLost {
        record: Option<Arc<Record>>,
    },
    /// The owner of what is open is gone, and nobody may go on.
    Lapsed,
    /// What was known is out of date.
    Stale,
    /// Rows have changed: its closure has to run again.
    Again {
        resource: ResourceRef,
        version: u64,
    },
    /// The messages that were made, or were known.
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

/// An open command, and the number of the entry that left it so.
#[derive(Clone)]
pub(crate) struct OpenRow {
    pub open: Arc<Open>,
    pub version: u64,
}
