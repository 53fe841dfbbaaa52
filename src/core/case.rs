//! A command in Unknown, as whoever finds out sees it. Owns the public noun; must not know who decides.

use std::fmt;
use std::sync::Arc;

use super::claim::{Contract, Open, OperationId, Phase, StepState};
use super::fact::Evidence;
use super::name::Scope;
use super::time::Timestamp;

/// A command in `Unknown` and all that is known of it.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Case {
    /// Whose command it is, of which kind, and which.
    pub scope: Scope,
    /// Since when it is not known what came of it.
    pub since: Timestamp,
    /// The label of the store that ran it last.
    pub owner: String,
    /// How often it was begun or taken over.
    pub attempts: u32,
    /// The calls that it declared, in the order in which they were declared.
    pub steps: Vec<CaseStep>,
    /// What was said of it so far, the newest last; the journal has more where there is much.
    pub evidence: Vec<Evidence>,
    pub(crate) open: Arc<Open>,
    /// The entry that left it so: a decision is for this one only.
    pub(crate) version: u64,
}

/// A declared call of a command in `Unknown`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CaseStep {
    /// Its name.
    pub name: String,
    /// What a repeat does there.
    pub contract: Contract,
    /// The id that the other side knows it by.
    pub operation: OperationId,
    /// Whether it may have been made and has no result.
    pub open: bool,
}

impl Case {
    pub(crate) fn of(open: &Arc<Open>, version: u64) -> Self {
        let since = match open.phase {
            Phase::Unknown { since, .. } => since,
            Phase::Processing => open.since,
        };
        let steps = open.steps.iter().map(|step| CaseStep {
            name: step.name.to_string(),
            contract: step.contract,
            operation: open.operation_id(&step.name),
            open: step.state == StepState::Open,
        });
        Self {
            scope: open.scope.clone(),
            since,
            owner: open.owner.to_string(),
            attempts: open.attempt,
            steps: steps.collect(),
            evidence: open.evidence.clone(),
            open: Arc::clone(open),
            version,
        }
    }
}

/// Shows no key, no input and no evidence.
impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Case")
            .field("scope", &self.scope)
            .field("since", &self.since)
            .field("attempts", &self.attempts)
            .field("steps", &self.steps)
            .finish_non_exhaustive()
    }
}
