//! The arms of work that reaches outside: how a claim is granted, moved on and ended by its owner, and what
//! becomes of it when its owner is gone.
//!
//! | deed | guard beside the token | to |
//! | --- | --- | --- |
//! | advance | steps that are closed are open; preconditions of its effects hold | Processing |
//! | advance, a point of a known name | | same; the stored point |
//! | finish | every declared step has a result; preconditions hold | Succeeded or Failed |
//! | finish, the same outcome again | the record is of this token | same; done |
//! | abort | no point was committed; every declared step was not applied | absent |
//! | unsure | | Unknown |
//! | unsure, in Unknown already | it brings no result that is not known | same |
//! | abort, nothing is left of it | | absent |
//! | any, a stale token | | same; fence lost. A finish leaves an entry of the difference |

use std::sync::Arc;

use super::{Answer, Applying, Decider, Decision, answer};
use crate::core::act::{Deed, Moves, Start};
use crate::core::claim::{NewStep, Open, Phase, Point, StepRecord, StepState};
use crate::core::effect::Staged;
use crate::core::error::Error;
use crate::core::record::{Told, Transition};
use crate::core::reply::{RETRY_FULL, Refused, Reply};
use crate::core::row::{Content, Row, RowKey};

impl Decider<'_> {
    /// absent -> Processing.
    pub(super) fn begin(&self, start: &Start, told: &Arc<Told>, generation: u32) -> Decision {
        if !self.view.has_room {
            return answer(Answer::Reply(Reply::Refused(Refused::Capacity { retry_after: RETRY_FULL })));
        }
        let mut open = Open {
            scope: self.asked.scope.clone(),
            fingerprint: self.asked.fingerprint.clone(),
            generation,
            phase: Phase::Processing,
            since: self.now,
            attempt: 1,
            token: self.view.position.seq,
            granted: self.moment(),
            lease: start.lease,
            owner: Arc::clone(&told.actor),
            input: start.input.clone(),
            steps: Vec::new(),
            points: Vec::new(),
            cancel_asked: false,
            evidence: Vec::new(),
        };
        match self.declare(&mut open, &start.steps) {
            Ok(()) => self.moved(Transition::Begun, told, Applying::nothing(), open),
            Err(fault) => answer(Answer::Fault(fault)),
        }
    }

    /// Processing, lapsed, or Unknown, settled -> Processing: another goes on with what is known. What a new
    /// start brings is not taken: the first one's input and steps stand.
    pub(super) fn take_over(&self, start: &Start, told: &Arc<Told>) -> Decision {
        let Some(view) = &self.view.open else { return answer(Answer::Stale) };
        let open = Open {
            phase: Phase::Processing,
            attempt: view.open.attempt.saturating_add(1),
            token: self.view.position.seq,
            granted: self.moment(),
            lease: start.lease,
            owner: Arc::clone(&told.actor),
            ..Open::clone(view.open)
        };
        self.moved(Transition::TakenOver, told, Applying::nothing(), open)
    }

    /// What the owner of a claim does.
    pub(super) fn claimed(
        &self,
        token: u64,
        moves: &Moves,
        deed: &Deed,
        told: &Arc<Told>,
        staged: &Staged,
    ) -> Decision {
        let view = match &self.view.open {
            Some(view) if view.open.token == token => view,
            _ => return self.fenced(token, deed, told),
        };
        match (view.open.phase, deed) {
            (Phase::Processing, _) => {}
            // It was said before, and not heard; or nothing is lost by it.
            (Phase::Unknown { .. }, Deed::Unsure) if is_known(view.open, moves) => {
                return answer(Answer::Open(Arc::clone(view.open)));
            }
            (Phase::Unknown { .. }, _) => return self.fenced(token, deed, told),
        }
        if let Deed::Advance { point: Some(point) } = deed
            && let Some(stored) = view.open.point(&point.name)
        {
            return answer(Answer::Reached(stored.value.clone()));
        }
        let mut open = Open::clone(view.open);
        // In the order in which it was said: a call that did not apply may be declared again in the same
        // commit, and then is open.
        if let Err(fault) = close(&mut open, moves).and_then(|()| self.declare(&mut open, &moves.declared)) {
            return answer(Answer::Fault(fault));
        }
        match deed {
            Deed::Advance { point } => self.advance(open, point.as_ref(), told, staged),
            Deed::Finish => self.finish(&open, told, staged),
            Deed::Abort => self.abort(&open, told),
            Deed::Unsure => {
                open.phase = Phase::Unknown { since: self.now, is_settled: false };
                self.moved(Transition::Unsure, told, Applying::nothing(), open)
            }
        }
    }

    fn advance(&self, mut open: Open, point: Option<&Point>, told: &Arc<Told>, staged: &Staged) -> Decision {
        open.points.extend(point.cloned());
        let name = point.map_or("", |point| point.name.as_str());
        match self.applied(staged, open.generation, name) {
            Ok(applying) => self.moved(Transition::Advanced, told, applying, open),
            Err(stopped) => answer(stopped),
        }
    }

    fn finish(&self, open: &Open, told: &Arc<Told>, staged: &Staged) -> Decision {
        if let Some(step) = open.open_steps().next() {
            let text = format!(
                "step {} is open: say `answer` or `not_applied` first, or `unsure` if it is not known",
                step.name
            );
            return answer(Answer::Fault(Error::invalid(text)));
        }
        self.outcome(Transition::Finished, told, staged, open.generation)
    }

    fn abort(&self, open: &Open, told: &Arc<Told>) -> Decision {
        let fault = if !open.points.is_empty() {
            "a recovery point was committed, so something has happened: finish it, or say `unsure`".to_owned()
        } else if let Some(step) = open.steps.iter().find(|step| step.state != StepState::NotApplied) {
            format!("step {} may have been applied: an abort needs `not_applied` for every step", step.name)
        } else {
            return self.gone(Transition::Aborted, told, open.generation);
        };
        answer(Answer::Fault(Error::invalid(fault)))
    }

    /// A stale token changes nothing. A completion that comes too late leaves an entry, for it says that
    /// something took effect which was decided otherwise.
    pub(super) fn fenced(&self, token: u64, deed: &Deed, told: &Arc<Told>) -> Decision {
        match deed {
            Deed::Finish => {}
            // It is so already: said before, and not heard.
            Deed::Abort
                if self.view.open.is_none() && self.view.record.is_none() && self.elsewhere().is_none() =>
            {
                return answer(Answer::Gone);
            }
            Deed::Abort | Deed::Unsure | Deed::Advance { .. } => return answer(Answer::FenceLost),
        }
        match self.view.record {
            Some(record) if record.entry.token == token && record.entry.told.is_same_outcome(told) => {
                answer(Answer::DoneBefore)
            }
            record => {
                let generation = match (&self.view.open, record) {
                    (Some(view), _) => view.open.generation,
                    (None, Some(record)) => record.entry.generation,
                    (None, None) => 1,
                };
                self.written(Transition::Differed, told, generation, Applying::nothing(), Answer::FenceLost)
            }
        }
    }

    /// Processing -> Unknown, if its owner is gone and nobody may go on.
    pub(super) fn lapse(&self, told: &Arc<Told>) -> Decision {
        match &self.view.open {
            Some(view) if view.is_live() || view.open.phase != Phase::Processing => {
                answer(Answer::Open(Arc::clone(view.open)))
            }
            Some(view) if view.open.may_be_taken_over(self.policy) => {
                answer(Answer::Open(Arc::clone(view.open)))
            }
            Some(view) => {
                let phase = Phase::Unknown { since: self.now, is_settled: false };
                let open = Open { phase, ..Open::clone(view.open) };
                self.moved(Transition::Lapsed, told, Applying::nothing(), open)
            }
            None => answer(Answer::Stale),
        }
    }

    /// absent -> Failed, so that a late first attempt never runs; Processing is asked to stop.
    pub(super) fn cancel(&self, told: &Arc<Told>) -> Decision {
        match &self.view.open {
            Some(view) if view.open.phase == Phase::Processing && !view.open.cancel_asked => {
                let open = Open { cancel_asked: true, ..Open::clone(view.open) };
                self.moved(Transition::CancelAsked, told, Applying::nothing(), open)
            }
            Some(view) => answer(Answer::Open(Arc::clone(view.open))),
            None => match self.judge_record() {
                super::Judged::Free { generation } => {
                    self.outcome(Transition::Cancelled, told, &Staged::default(), generation)
                }
                super::Judged::Unreadable(fault) => answer(Answer::Fault(fault)),
                _ => answer(Answer::DoneBefore),
            },
        }
    }

    /// Declares calls that may be made from now on. One that did not apply, or whose answer is not known, may
    /// be declared again; the same operation id goes with it.
    fn declare(&self, open: &mut Open, steps: &[NewStep]) -> Result<(), Error> {
        for step in steps {
            let NewStep { name, contract, settles_within } = step.clone();
            let started = self.moment();
            let declared = StepRecord { name, contract, settles_within, started, state: StepState::Open };
            match open.steps.iter_mut().find(|known| known.name == step.name) {
                None => open.steps.push(declared),
                Some(known) if matches!(known.state, StepState::Answered(_)) => {
                    return Err(Error::invalid(format!("step {} is answered already", step.name)));
                }
                Some(known) => *known = declared,
            }
        }
        Ok(())
    }

    /// An entry that leaves the command open.
    pub(super) fn moved(
        &self,
        transition: Transition,
        told: &Arc<Told>,
        mut applying: Applying<'_>,
        open: Open,
    ) -> Decision {
        if let Err(fault) = open.check() {
            return answer(Answer::Fault(fault));
        }
        let generation = open.generation;
        let open = Arc::new(open);
        self.put_open(&mut applying, Some(&open));
        self.written(transition, told, generation, applying, Answer::Open(open))
    }

    /// An entry that leaves nothing of the command but itself.
    pub(super) fn gone(&self, transition: Transition, told: &Arc<Told>, generation: u32) -> Decision {
        let mut applying = Applying::nothing();
        self.put_open(&mut applying, None);
        self.written(transition, told, generation, applying, Answer::Gone)
    }

    /// The row of the open command as it is from now on; none when it is over.
    pub(super) fn put_open(&self, applying: &mut Applying<'_>, open: Option<&Arc<Open>>) {
        let before = self.view.open.as_ref().map(|view| view.row);
        if before.is_none() && open.is_none() {
            return;
        }
        let position = self.view.position;
        let row = open.map(|open| Row {
            version: position.seq,
            made: before.map_or(position, |row| row.made),
            event_time: None,
            content: Content::Open(Arc::clone(open)),
        });
        applying.put_own(RowKey::open(self.asked.digest), row);
    }
}

/// Whether all that an owner says of its steps is in the file already.
fn is_known(open: &Open, moves: &Moves) -> bool {
    moves
        .closed
        .iter()
        .all(|closing| open.step(&closing.step).is_some_and(|step| step.state == closing.state))
}

/// Closes steps: with their answer, or as not applied.
fn close(open: &mut Open, moves: &Moves) -> Result<(), Error> {
    for closing in &moves.closed {
        match open.steps.iter_mut().find(|step| step.name == closing.step) {
            None => return Err(Error::invalid(format!("step {} was not declared", closing.step))),
            Some(step) if step.state == StepState::Open || step.state == closing.state => {
                step.state = closing.state.clone();
            }
            Some(step) => return Err(Error::invalid(format!("step {} is closed already", step.name))),
        }
        if let Some(evidence) = &closing.evidence {
            open.learn(evidence.clone());
        }
    }
    if let Some(note) = &moves.note {
        open.learn(note.clone());
    }
    Ok(())
}
