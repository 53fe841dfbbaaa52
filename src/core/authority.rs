//! Which store decides about a tenant. Owns what the file says of a tenant and what follows for a command;
//! must not know how a tenant is handed over (`decide::authority`) or how its row is stored (`db`).
//!
//! The unit of authority is the tenant. Resources, uniquenesses and messages belong to a tenant, and a
//! command of one key may change any of them: a slot of keys by hash would share those rows with other
//! slots, so that it could be handed over only together with them.

use serde::{Deserialize, Serialize};

use super::audit::Layout;
use super::claim::Open;
use super::fact::Fact;
use super::message::{Letter, MessageId, Status};
use super::name::{Tenant, is_reserved};
use super::policy::Windows;
use super::record::{Record, Told, Transition};
use super::row::{Content, Row, RowKey};
use super::text::Text;
use super::time::Timestamp;

/// What the file says of a tenant. The order of variants and fields is the stored format.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Unit {
    /// This store decides. The epoch counts the hand-overs.
    Owned { epoch: u64 },
    /// It did, and the one of this name is to.
    HandedOver { to: Text, epoch: u64 },
    /// What another store exported under this epoch is being read; nobody decides here yet.
    Arriving { from: Text, epoch: u64 },
}

impl Unit {
    pub fn epoch(&self) -> u64 {
        match self {
            Self::Owned { epoch } | Self::HandedOver { epoch, .. } | Self::Arriving { epoch, .. } => *epoch,
        }
    }

    /// What the journal keeps the digest of. `docs/format.md` lists the fields.
    pub fn layout(&self, out: &mut Layout) {
        match self {
            Self::Owned { epoch } => {
                out.u8(0);
                out.u64(*epoch);
            }
            Self::HandedOver { to, epoch } => {
                out.u8(1);
                out.text(to);
                out.u64(*epoch);
            }
            Self::Arriving { from, epoch } => {
                out.u8(2);
                out.text(from);
                out.u64(*epoch);
            }
        }
    }
}

/// What is known of tenants without a look at their rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Units {
    /// No row speaks of one: all are this store's.
    AllOurs,
    /// Rows may speak of some; of the rest the store owns all, or none.
    Listed { owns_rest: bool },
}

impl Units {
    /// Who decides about a tenant whose row is this, if this store does not; empty where that is not known.
    pub fn elsewhere(self, tenant: &Tenant, row: Option<&Row>) -> Option<Text> {
        let Self::Listed { owns_rest } = self else { return None };
        match row.and_then(Row::unit) {
            Some(Unit::Owned { .. }) => None,
            Some(Unit::HandedOver { to, .. }) => Some(to.clone()),
            Some(Unit::Arriving { .. }) => Some(Text::constant("")),
            // Entries of the store's own are of no tenant.
            None => (!owns_rest && !is_reserved(tenant.as_str())).then(|| Text::constant("")),
        }
    }
}

/// One thing of a tenant on its way to another store.
pub(crate) enum Item {
    Outcome(Box<Kept>),
    Open(Box<Open>),
    /// A resource, a uniqueness, or what messages are found by.
    Row {
        key: RowKey,
        event_time: Option<Timestamp>,
        content: Content,
    },
    Message {
        id: MessageId,
        status: Box<Status>,
        letter: Option<Letter>,
    },
}

/// An outcome with all that its replays need.
pub(crate) struct Kept {
    pub windows: Windows,
    pub generation: u32,
    /// When it finished, and by which transition.
    pub at: Timestamp,
    pub ended_by: Transition,
    pub told: Told,
    /// The messages it made: the number of the first, and how many.
    pub made: (MessageId, u32),
}

impl Kept {
    pub fn of(record: &Record) -> Self {
        let (first, count) = record.made();
        Self {
            windows: record.windows,
            generation: record.entry.generation,
            at: record.finished_at(),
            ended_by: record.ended_by(),
            told: Told { token: 0, ..Told::clone(&record.entry.told) },
            made: (first, count),
        }
    }

    /// What its entry at another store says beside the outcome.
    pub fn facts(&self) -> Vec<Fact> {
        let own = self.told.facts.iter().filter(|fact| !matches!(fact, Fact::Brought { .. })).cloned();
        let (first, count) = self.made;
        let brought = Fact::Brought { at: self.at, ended_by: self.ended_by as u8, made: first.seq, count };
        own.chain([brought]).collect()
    }
}
