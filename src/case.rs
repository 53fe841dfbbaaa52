//! What whoever finds out says of a command in Unknown. Translation only.

use std::fmt;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::claim::input_of;
use crate::core::case::Case;
use crate::core::claim::StepState;
use crate::core::error::{BoxError, Error};
use crate::core::fact::Evidence;
use crate::core::outcome::Outcome;
use crate::effects::Effects;
use crate::kind::write_json;

impl Case {
    /// What was given to [`Start::input`](crate::Start::input) when the command was first begun.
    ///
    /// # Errors
    ///
    /// `Invalid` when there is none, or it is no `I`.
    pub fn input<I: DeserializeOwned>(&self) -> Result<I, Error> {
        input_of(&self.open)
    }
}

/// What the other side says of one step. "Not applied" counts once a request can no longer arrive there: when
/// the owner is gone and the step's [`settles_within`](crate::Step::settles_within) is over.
#[derive(Clone, Debug)]
pub enum Verdict<T> {
    /// It took effect, with this answer.
    Applied(T, Evidence),
    /// It did not take effect.
    NotApplied(Evidence),
    /// It cannot be told yet.
    Insufficient(Evidence),
}

impl<T: Serialize> Verdict<T> {
    /// The step's new state, if the verdict is enough for one, and the evidence.
    pub(crate) fn into_finding(self) -> Result<(Option<StepState>, Evidence), Error> {
        Ok(match self {
            Self::Applied(answer, evidence) => (Some(StepState::Answered(write_json(&answer)?)), evidence),
            Self::NotApplied(evidence) => (Some(StepState::NotApplied), evidence),
            Self::Insufficient(evidence) => (None, evidence),
        })
    }
}

/// How an operator ends a whole command.
#[non_exhaustive]
pub enum Resolution {
    /// It is over, with the outcome and the effects that this closure says.
    Finished(Conclusion),
    /// None of it happened: a retry may run it.
    NotApplied,
}

/// The closure that says how a command ended.
pub type Conclusion = Box<dyn Fn(&mut Effects<'_, '_>) -> Result<Outcome, BoxError>>;

impl Resolution {
    /// It is over, with the outcome and the effects that this closure says.
    pub fn finished(body: impl Fn(&mut Effects<'_, '_>) -> Result<Outcome, BoxError> + 'static) -> Self {
        Self::Finished(Box::new(body))
    }
}

impl fmt::Debug for Resolution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Finished(_) => "Finished",
            Self::NotApplied => "NotApplied",
        })
    }
}
