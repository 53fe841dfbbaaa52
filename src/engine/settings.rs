//! What an engine is opened with: every limit, already checked. Owns nothing but the list.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::clock::Clock;
use super::queue::Size;
use crate::core::name::{Operation, Scope, ScopeMode};
use crate::core::policy::Policy;
use crate::db::commit::CommitMode;

/// Which store decides about a scope.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Authority {
    /// This one.
    Here,
    /// The one of this name.
    Elsewhere(String),
}

type Decider = dyn Fn(&Scope) -> Authority + Send + Sync;

/// Every setting of an engine.
#[derive(Clone)]
pub(crate) struct Settings {
    /// Tells these settings from all others of this process, so that a request knows for which it was
    /// prepared.
    pub number: u64,
    pub policies: HashMap<Operation, Policy>,
    pub default_policy: Policy,
    pub scope_mode: ScopeMode,
    pub commit_mode: CommitMode,
    pub cache_bytes: usize,
    pub replay_bytes: usize,
    /// Memory for what is committed and not merged yet.
    pub late_bytes: usize,
    /// Memory for the filter over all keys.
    pub filter_bytes: usize,
    /// The most that waits for the writer.
    pub queue_max: Size,
    /// The most that one commit takes.
    pub batch: Size,
    pub rerun_max: u32,
    /// The most commands that may be open.
    pub open_max: u64,
    pub check_at_open_max: u64,
    pub strict_open: bool,
    pub reserve_bytes: u64,
    pub clock: Arc<dyn Clock>,
    pub clock_jump_max: Duration,
    pub clock_settle: Duration,
    pub owner: Arc<str>,
    pub authority: Option<Arc<Decider>>,
    /// A file that is created decides only about tenants that are handed to it.
    pub owns_nothing: bool,
}

impl Settings {
    pub fn policy(&self, operation: &Operation) -> &Policy {
        self.policies.get(operation).unwrap_or(&self.default_policy)
    }
}
