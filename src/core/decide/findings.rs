//! The arms of what was found out: a verdict on a step, the end of a whole command. Only from Unknown, only
//! on the position that whoever decided knew of, always with evidence.
//!
//! | finding | guard | to |
//! | --- | --- | --- |
//! | a step was applied | it is open | Unknown with its answer |
//! | a step was not applied | it is open; no request can still arrive | Unknown with that |
//! | not enough to tell | | Unknown with the evidence |
//! | finished | preconditions hold | Succeeded or Failed |
//! | not applied | no point committed, no step applied, no request can still arrive | absent |

use std::sync::Arc;
use std::time::Duration;

use super::{Answer, Applying, Decider, Decision, OpenView, answer};
use crate::core::act::Finding;
use crate::core::claim::{Open, Phase, StepState};
use crate::core::effect::Staged;
use crate::core::error::{Error, ErrorKind};
use crate::core::fact::Evidence;
use crate::core::record::{Told, Transition};
use crate::core::text::Text;

impl Decider<'_> {
    pub(super) fn found(
        &self,
        version: u64,
        finding: &Finding,
        evidence: &Evidence,
        told: &Arc<Told>,
        staged: &Staged,
    ) -> Decision {
        let view = match &self.view.open {
            Some(view) if view.row.version == version && view.open.phase != Phase::Processing => view,
            _ => return answer(Answer::Stale),
        };
        match finding {
            Finding::Step { name, state } => self.judged(view, name, state.as_ref(), evidence, told),
            Finding::Finished => self.outcome(Transition::Resolved, told, staged, view.open.generation),
            Finding::NotApplied => match self.nothing_happened(view.open) {
                Ok(()) => self.gone(Transition::Released, told, view.open.generation),
                Err(fault) => answer(Answer::Fault(fault)),
            },
        }
    }

    fn judged(
        &self,
        view: &OpenView<'_>,
        name: &Text,
        state: Option<&StepState>,
        evidence: &Evidence,
        told: &Arc<Told>,
    ) -> Decision {
        let mut open = Open::clone(view.open);
        let Some(at) = open.steps.iter().position(|step| step.name == *name) else {
            return answer(Answer::Fault(Error::invalid(format!("step {name} was not declared"))));
        };
        if let Some(state) = state {
            let step = &open.steps[at];
            if step.state != StepState::Open {
                return answer(Answer::Fault(Error::invalid(format!("step {name} has a result already"))));
            }
            if *state == StepState::NotApplied
                && let Err(fault) = self.has_settled(&open, name)
            {
                return answer(Answer::Fault(fault));
            }
            open.steps[at].state = state.clone();
        }
        open.learn(evidence.clone());
        if let Phase::Unknown { since, .. } = open.phase
            && state.is_some()
        {
            let is_settled = open.open_steps().next().is_none();
            open.phase = Phase::Unknown { since, is_settled };
        }
        self.moved(Transition::Judged, told, Applying::nothing(), open)
    }

    fn nothing_happened(&self, open: &Open) -> Result<(), Error> {
        if !open.points.is_empty() {
            return Err(Error::invalid("a recovery point was committed: it can only be finished"));
        }
        for step in &open.steps {
            match step.state {
                StepState::NotApplied => {}
                StepState::Answered(_) => {
                    let text = format!("step {} was applied: it can only be finished", step.name);
                    return Err(Error::invalid(text));
                }
                StepState::Open => self.has_settled(open, &step.name)?,
            }
        }
        Ok(())
    }

    /// "The other side has not seen it" counts only when nothing that was sent can still arrive.
    fn has_settled(&self, open: &Open, name: &str) -> Result<(), Error> {
        let left = open.step(name).map_or(0, |step| step.settles_in(&self.view.uptime));
        if left == 0 {
            return Ok(());
        }
        let text = format!(
            "a request of step {name} may still arrive: that it was not applied counts in {:?}",
            Duration::from_millis(left)
        );
        Err(Error::new(ErrorKind::Unavailable, text))
    }
}
