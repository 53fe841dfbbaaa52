//! Which store decides about a tenant. Owns what the file says of a tenant and what follows for a command;
//! must not know how a tenant is handed over (`decide::authority`) or how its row is stored (`db`).
//!
//! The unit of authority is the tenant. Resources, uniquenesses and messages belong to a tenant, and a command
//! of one key may change any of them: a slot of keys by hash would share those rows with other slots, so that
//! it could be handed over only together with them.

use serde::{Deserialize, Serialize};

use super::audit::Layout;
use super::name::{Tenant, is_reserved};
use super::row::Row;
use super::text::Text;

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
