//! Whose a tenant is: asked before anything runs, and handed over. Owns the order of a hand-over; rules are
//! the core's, and who routes to which store is the caller's business.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Engine;
use super::draft::Verdict;
use super::settings::Authority;
use crate::core::act::Act;
use crate::core::authority::Unit;
use crate::core::effect::Staged;
use crate::core::error::{Error, ErrorKind};
use crate::core::fact::check_actor;
use crate::core::name::{NAME_BYTES_MAX, Scope, ScopeDigest, Tenant, checked};
use crate::core::reply::{Refused, Reply};
use crate::core::row::{Row, RowKey};
use crate::core::text::Text;

/// Rows that one entry takes away.
const CLEAR_ROWS: usize = 512;
/// Messages that are read at once.
pub(super) const PAGE_ROWS: usize = 256;

impl Engine {
    /// Who decides about a scope, if this store does not: as it was configured, and as the file says.
    pub(super) fn owner_of(&self, scope: &Scope) -> Result<Option<String>, Error> {
        if let Some(decider) = &self.settings.authority
            && let Authority::Elsewhere(owner) = decider(scope)
        {
            return Ok(Some(owner));
        }
        self.elsewhere(&scope.tenant).map(|owner| owner.map(|owner| owner.to_string()))
    }

    /// Who decides about a tenant, if the file says that this store does not.
    pub fn elsewhere(&self, tenant: &Tenant) -> Result<Option<Text>, Error> {
        if !self.has_units.load(Ordering::Acquire) {
            return Ok(None);
        }
        self.read(|db| db.elsewhere(tenant))
    }

    /// Refuses a call that has no reply to say it with.
    pub(super) fn check_authority(&self, scope: &Scope) -> Result<(), Error> {
        match self.owner_of(scope)? {
            None => Ok(()),
            Some(owner) => Err(Error::not_authoritative(&owner)),
        }
    }

    /// Gives the authority over a tenant to another store; its epoch. Said again, it changes nothing, and
    /// ends what a first call may have left undone.
    pub fn hand_over(&self, tenant: &Tenant, to: &str, actor: &str) -> Result<u64, Error> {
        self.not_inside()?;
        check_actor(actor)?;
        checked("name of a store", to, NAME_BYTES_MAX)?;
        if to == &*self.settings.owner {
            return Err(Error::invalid(format!("this store is {to}: a tenant is handed over to another")));
        }
        let asked = self.post_asked(tenant)?;
        // Before it counts: whoever does not look yet is decided before it, or is refused by the writer.
        self.has_units.store(true, Ordering::Release);
        let act = Act::HandOver { to: to.into() };
        let epoch = match self.submit_post(&asked, act, Staged::default(), &Arc::from(actor))? {
            Verdict::Unit { unit, .. } => unit.epoch(),
            Verdict::Reply { reply: Reply::Refused(Refused::NotAuthoritative { owner }), .. } => {
                return Err(Error::not_authoritative(&owner));
            }
            Verdict::Fault(error) => return Err(error),
            _ => return Err(Error::new(ErrorKind::Unavailable, "nothing was written; try again")),
        };
        self.end_claims(tenant)?;
        self.forget_due(tenant, actor)?;
        Ok(epoch)
    }

    /// Owners of the tenant's claims learn that they have none any more.
    fn end_claims(&self, tenant: &Tenant) -> Result<(), Error> {
        let mut after = None;
        loop {
            let page = self.open_rows(after.as_ref())?;
            let Some((last, _)) = page.last() else { return Ok(()) };
            after = Some(last.clone());
            for open in page.iter().filter_map(|(_, row)| row.open()) {
                if open.scope.tenant == *tenant {
                    self.leases.end(ScopeDigest::of(&open.scope, self.settings.scope_mode), open.token);
                }
            }
        }
    }

    /// Takes the tenant's messages out of the lists of what is due and of what is under way: workers who find
    /// them there could only be refused, again and again. The messages themselves stay as they were.
    fn forget_due(&self, tenant: &Tenant, actor: &str) -> Result<(), Error> {
        let mut after = None;
        loop {
            let page = self.rows_after(RowKey::all_messages(), after.as_ref(), PAGE_ROWS)?;
            let Some((last, _)) = page.last() else { return Ok(()) };
            after = Some(last.clone());
            let mut keys = Vec::new();
            for (key, row) in &page {
                let (Some(id), Some(status)) = (key.message_id(), row.status()) else { continue };
                if status.tenant == tenant.0 {
                    keys.extend(status.due_key(id));
                    keys.extend(status.is_flying().then(|| RowKey::flying(id)));
                }
            }
            self.clear(tenant, None, &keys, actor)?;
        }
    }

    /// Takes rows away of a tenant that is another store's, a bounded number with each entry.
    pub(super) fn clear(
        &self,
        tenant: &Tenant,
        arrival: Option<u64>,
        keys: &[RowKey],
        actor: &str,
    ) -> Result<(), Error> {
        let asked = self.post_asked(tenant)?;
        for keys in keys.chunks(CLEAR_ROWS) {
            let act = Act::Clear { arrival, keys: keys.to_vec() };
            match self.submit_post(&asked, act, Staged::default(), &Arc::from(actor))? {
                Verdict::Gone => {}
                Verdict::Fault(error) => return Err(error),
                _ => return Err(changed_hands()),
            }
        }
        Ok(())
    }

    /// What the file says of a tenant.
    pub(super) fn unit(&self, tenant: &Tenant) -> Result<Option<Unit>, Error> {
        let row = self.row(&RowKey::unit(tenant))?;
        Ok(row.as_ref().and_then(Row::unit).cloned())
    }
}

/// What was begun for a tenant is out of date.
pub(super) fn changed_hands() -> Error {
    Error::new(
        ErrorKind::Conflict,
        "the tenant has changed hands meanwhile, or is being imported by another call",
    )
}
