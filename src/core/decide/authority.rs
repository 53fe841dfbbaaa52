//! The arms of authority: what a command of another store's tenant is told, and how a tenant becomes another
//! store's.
//!
//! | tenant | event | to | answer |
//! | --- | --- | --- | --- |
//! | owned | hand over | handed over, same epoch | |
//! | handed over | hand over to the same store | same | as before |
//! | handed over, or never owned | arrive, of a later epoch than is known | arriving | |
//! | arriving | arrive, of no earlier epoch | arriving, another arrival | |
//! | arriving | rows, outcomes, open commands are brought, or cleared; of this arrival | same, with them | |
//! | arriving | own, of this arrival | owned, next epoch | |
//! | handed over, arriving, or never owned | an owner moves its claim on | same | fence lost |
//! | handed over | rows are cleared | same, without them | |
//! | the same | all else | same | not authoritative |
//!
//! A hand-over changes one row and no other: it counts in the same commit for every command behind it, and a
//! command before it is among what is handed over. What was begun loses its fence with it, for nobody here
//! may move it on any more.

use std::sync::Arc;

use super::{Answer, Applying, Command, Decider, Decision, Rows, Units, answer};
use crate::core::act::Act;
use crate::core::authority::Unit;
use crate::core::claim::{Open, Phase};
use crate::core::error::{Error, ErrorKind};
use crate::core::message::Post;
use crate::core::message::step::When;
use crate::core::name::Tenant;
use crate::core::record::{Told, Transition};
use crate::core::reply::{Refused, Reply};
use crate::core::row::{Content, Row, RowKey};
use crate::core::text::Text;
use crate::core::time::Timestamp;

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

    pub(super) fn elsewhere(&self) -> Option<Text> {
        owner_elsewhere(self.view.units, self.tenant(), self.view.rows)
    }

    /// What is said to a command whose tenant is another store's; none where it is ours, or where that is
    /// what the command is about.
    pub(super) fn not_ours(&self, command: &Command<'_>) -> Option<Decision> {
        if let Command::Act { act, .. } = command
            && act.is_of_authority()
        {
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

    fn unit(&self) -> Option<(&Unit, u64)> {
        let row = self.view.rows.row(&RowKey::unit(self.tenant()))?;
        row.unit().map(|unit| (unit, row.version))
    }

    /// owned -> handed over.
    pub(super) fn hand_over(&self, to: &Text, told: &Arc<Told>) -> Decision {
        let epoch = match (self.unit(), self.elsewhere()) {
            (Some((unit @ Unit::HandedOver { to: before, .. }, version)), _) if before == to => {
                return answer(Answer::Unit { unit: unit.clone(), version });
            }
            (_, Some(owner)) => return answer(refused(&owner)),
            (unit, None) => unit.map_or(0, |(unit, _)| unit.epoch()),
        };
        self.put_unit(Transition::HandedOver, Unit::HandedOver { to: to.clone(), epoch }, told)
    }

    /// another's -> arriving.
    pub(super) fn arrive(&self, from: &Text, epoch: u64, told: &Arc<Told>) -> Decision {
        let fault = match self.unit() {
            // All of it has arrived before.
            Some((unit @ Unit::Owned { epoch: known }, version)) if *known == epoch.saturating_add(1) => {
                return answer(Answer::Unit { unit: unit.clone(), version });
            }
            Some((Unit::HandedOver { epoch: known, .. }, _)) if epoch <= *known => "is of an older hand-over",
            Some((Unit::Arriving { epoch: known, .. }, _)) if epoch < *known => "is of an older hand-over",
            _ if self.elsewhere().is_none() => "is of a tenant that this store decides about already",
            _ => {
                let unit = Unit::Arriving { from: from.clone(), epoch };
                return self.put_unit(Transition::Arriving, unit, told);
            }
        };
        answer(Answer::Fault(Error::invalid(format!("what is to be imported {fault}: nothing was written"))))
    }

    /// arriving -> owned.
    pub(super) fn own(&self, arrival: u64, told: &Arc<Told>) -> Decision {
        match self.unit() {
            Some((Unit::Arriving { epoch, .. }, version)) if version == arrival => {
                let unit = Unit::Owned { epoch: epoch.saturating_add(1) };
                self.put_unit(Transition::Owned, unit, told)
            }
            _ => answer(Answer::Stale),
        }
    }

    fn put_unit(&self, transition: Transition, unit: Unit, told: &Arc<Told>) -> Decision {
        let (key, position) = (RowKey::unit(self.tenant()), self.view.position);
        let made = self.view.rows.row(&key).map_or(position, |row| row.made);
        let content = Content::Unit(unit.clone());
        let mut applying = Applying::nothing();
        applying.put_own(key, Some(Row { version: position.seq, made, event_time: None, content }));
        self.written(transition, told, 1, applying, Answer::Unit { unit, version: position.seq })
    }

    /// Whether it is this arrival that reads what another store exported.
    fn is_arriving(&self, arrival: u64) -> bool {
        matches!(self.unit(), Some((Unit::Arriving { .. }, version)) if version == arrival)
    }

    /// Takes rows away of a tenant that is not ours.
    pub(super) fn clear(&self, arrival: Option<u64>, keys: &[RowKey], told: &Arc<Told>) -> Decision {
        let may_go = match arrival {
            Some(arrival) => self.is_arriving(arrival),
            None => matches!(self.unit(), Some((Unit::HandedOver { .. }, _))),
        };
        if !may_go {
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

    /// Puts rows in that another store had.
    pub(super) fn bring(
        &self,
        arrival: u64,
        rows: &[(RowKey, Option<Timestamp>, Content)],
        told: &Arc<Told>,
    ) -> Decision {
        if !self.is_arriving(arrival) {
            return answer(Answer::Stale);
        }
        let position = self.view.position;
        let when = When { now: self.now, uptime: self.view.uptime, seq: position.seq };
        let mut applying = Applying::nothing();
        let mut put = |key: RowKey, event_time: Option<Timestamp>, content: Content| {
            applying.put_own(key, Some(Row { version: position.seq, made: position, event_time, content }));
        };
        for (key, event_time, content) in rows {
            let content = match (content, key.message_id()) {
                (Content::Post(Post::Status(status)), Some(id)) => {
                    let status = status.arriving(&when);
                    if let Some(due) = status.due_key(id) {
                        put(due, None, Content::Post(Post::Mark));
                    }
                    Content::Post(Post::Status(Box::new(status)))
                }
                (content, _) => content.clone(),
            };
            put(key.clone(), *event_time, content);
        }
        self.written(Transition::Brought, told, 1, applying, Answer::Gone)
    }

    /// Keeps an outcome that another store had. One that is here already came from here.
    pub(super) fn bring_outcome(&self, arrival: u64, generation: u32, told: &Arc<Told>) -> Decision {
        if !self.is_arriving(arrival) {
            return answer(Answer::Stale);
        }
        if let Some(known) = self.view.record.filter(|known| known.entry.generation >= generation) {
            let is_same = known.entry.generation == generation && known.entry.told.is_same_outcome(told);
            return answer(if is_same { Answer::Gone } else { Answer::Fault(two_outcomes()) });
        }
        let mut applying = Applying::nothing();
        self.put_open(&mut applying, None);
        self.written(Transition::BroughtOutcome, told, generation, applying, Answer::Gone)
    }

    /// absent -> Unknown: what was open in another store. Its owner has no claim any more, and what it may
    /// have sent can still arrive: until it cannot is counted anew.
    pub(super) fn bring_open(&self, arrival: u64, open: &Open, told: &Arc<Told>) -> Decision {
        if !self.is_arriving(arrival) {
            return answer(Answer::Stale);
        }
        let known = self.view.record.map_or(0, |known| known.entry.generation);
        if known >= open.generation {
            return answer(Answer::Fault(two_outcomes()));
        }
        let mut open = open.clone();
        if open.phase == Phase::Processing {
            // With no step open nothing is to be found out: it may be gone on with, where its policy allows.
            let is_settled = open.open_steps().next().is_none();
            open.phase = Phase::Unknown { since: self.now, is_settled };
        }
        (open.token, open.granted) = (self.view.position.seq, self.moment());
        for step in &mut open.steps {
            step.started = self.moment();
        }
        self.moved(Transition::BroughtOpen, told, Applying::nothing(), open)
    }
}

fn two_outcomes() -> Error {
    let text = "a command of the tenant has another outcome here: two stores have decided about it";
    Error::new(ErrorKind::Conflict, text)
}

fn refused(owner: &Text) -> Answer {
    Answer::Reply(Reply::Refused(Refused::NotAuthoritative { owner: owner.to_string() }))
}
