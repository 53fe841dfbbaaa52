//! The arms of authority: what a command of another store's tenant is told, and how a tenant becomes another
//! store's.
//!
//! | tenant | event | to | answer |
//! | --- | --- | --- | --- |
//! | owned | hand over | handed over, same epoch | |
//! | handed over | hand over to the same store | same | as before |
//! | handed over, or never owned | an owner moves its claim on | same | fence lost |
//! | the same | rows are cleared | same, without them | |
//! | the same | all else | same | not authoritative |
//!
//! A hand-over changes one row and no other: it counts in the same commit for every command behind it, and a
//! command before it is among what is handed over. What was begun loses its fence with it, for nobody here may
//! move it on any more.

use std::sync::Arc;

use super::{Answer, Applying, Command, Decider, Decision, Rows, Units, answer};
use crate::core::act::Act;
use crate::core::authority::Unit;
use crate::core::name::Tenant;
use crate::core::record::{Told, Transition};
use crate::core::reply::{Refused, Reply};
use crate::core::row::{Content, Row, RowKey};
use crate::core::text::Text;

/// Who decides about a tenant, if this store does not.
pub(super) fn owner_elsewhere(units: Units, tenant: &Tenant, rows: &dyn Rows) -> Option<Text> {
    match units {
        // Nothing is looked up, and nothing made to be looked up by.
        Units::AllOurs => None,
        Units::Listed { .. } => units.elsewhere(tenant, rows.row(&RowKey::unit(tenant))),
    }
}

impl Decider<'_> {
    fn tenant(&self) -> &Tenant {
        &self.asked.scope.tenant
    }

    fn elsewhere(&self) -> Option<Text> {
        owner_elsewhere(self.view.units, self.tenant(), self.view.rows)
    }

    /// What is said to a command whose tenant is another store's; none where it is ours.
    pub(super) fn not_ours(&self, command: &Command<'_>) -> Option<Decision> {
        if let Command::Act { act: Act::HandOver { .. } | Act::Clear { .. }, .. } = command {
            return None;
        }
        let owner = self.elsewhere()?;
        Some(match command {
            // Who has a claim ran while it counted; it is told that it does not any more.
            Command::Act { act: Act::Claimed { token, deed, .. }, told, .. } => {
                self.fenced(*token, deed, told)
            }
            _ => answer(refused(&owner)),
        })
    }

    /// owned -> handed over.
    pub(super) fn hand_over(&self, to: &Text, told: &Arc<Told>) -> Decision {
        let row = self.view.rows.row(&RowKey::unit(self.tenant()));
        let unit = row.and_then(Row::unit);
        let epoch = match (unit, self.elsewhere()) {
            (Some(Unit::HandedOver { to: before, .. }), _) if before == to => {
                return answer(unit.map_or(Answer::Stale, |unit| Answer::Unit(unit.clone())));
            }
            (_, Some(owner)) => return answer(refused(&owner)),
            (unit, None) => unit.map_or(0, Unit::epoch),
        };
        self.put_unit(Transition::HandedOver, Unit::HandedOver { to: to.clone(), epoch }, told)
    }

    fn put_unit(&self, transition: Transition, unit: Unit, told: &Arc<Told>) -> Decision {
        let (key, position) = (RowKey::unit(self.tenant()), self.view.position);
        let made = self.view.rows.row(&key).map_or(position, |row| row.made);
        let content = Content::Unit(unit.clone());
        let mut applying = Applying::nothing();
        applying.put_own(key, Some(Row { version: position.seq, made, event_time: None, content }));
        self.written(transition, told, 1, applying, Answer::Unit(unit))
    }

    /// Takes rows away of a tenant that is not ours.
    pub(super) fn clear(&self, keys: &[RowKey], told: &Arc<Told>) -> Decision {
        if self.elsewhere().is_none() {
            return answer(Answer::Stale);
        }
        let mut applying = Applying::nothing();
        for key in keys.iter().filter(|key| self.view.rows.row(key).is_some()) {
            applying.put_own(key.clone(), None);
        }
        if applying.rows.is_empty() {
            return answer(Answer::Gone);
        }
        self.written(Transition::Cleared, told, 1, applying, Answer::Gone)
    }
}

fn refused(owner: &Text) -> Answer {
    Answer::Reply(Reply::Refused(Refused::NotAuthoritative { owner: owner.to_string() }))
}
