//! Commands by their state, for whoever looks for those that are stuck. Owns the filter and the table; what a
//! state is, the store says.

use std::collections::HashSet;

use serde::Serialize;

use super::args::List;
use super::exit::{Exit, Failure};
use super::line::StatusLine;
use super::output::{json, print};
use super::span::{ago, shown};
use super::work::State;
use crate::{Key, Operation, Scope, Status, Tenant};

/// One command, as `list --state` prints it.
#[derive(Serialize)]
struct RecordLine<'r> {
    tenant: &'r str,
    operation: &'r str,
    key: &'r str,
    #[serde(skip_serializing_if = "Option::is_none")]
    age_ms: Option<u64>,
    #[serde(flatten)]
    status: StatusLine,
}

pub(super) fn list(args: &List) -> Result<Exit, Failure> {
    let wanted = Wanted::of(args)?;
    let store = args.at.open()?;
    let mut left = args.limit.unwrap_or(u64::MAX);
    if !args.json && left > 0 {
        print(&format!("{:<10} {:>7} {:>6}  {:<28} COMMAND", "STATE", "AGE", "LEASE", "OWNER"))?;
    }
    // A command whose owner goes while the list is read may be met as open and as finished.
    let mut seen = HashSet::new();
    for found in store.records() {
        let (scope, status) = found?;
        let is_open = matches!(status, Status::Processing { .. } | Status::Unknown(_));
        if left == 0 || (!is_open && wanted.is_open_only()) {
            break;
        }
        if !wanted.has(&scope, &status) || (is_open && !seen.insert(scope.clone())) {
            continue;
        }
        left -= 1;
        let status = StatusLine::from(status);
        if !print(&if args.json { line(&scope, status) } else { row(&scope, &status) })? {
            break;
        }
    }
    Ok(Exit::Well)
}

/// Which commands are shown.
struct Wanted<'a> {
    args: &'a List,
    tenant: Option<Tenant>,
    operation: Option<Operation>,
    key: Option<Key>,
}

impl<'a> Wanted<'a> {
    fn of(args: &'a List) -> Result<Self, Failure> {
        let parse = |text: &Option<String>| text.as_deref().map(Tenant::parse).transpose();
        Ok(Self {
            args,
            tenant: parse(&args.tenant).map_err(Failure::usage)?,
            operation: args.operation.as_deref().map(Operation::parse).transpose().map_err(Failure::usage)?,
            key: args.key.as_deref().map(Key::parse).transpose().map_err(Failure::usage)?,
        })
    }

    /// Whether the journal, which has the finished ones, need not be read.
    fn is_open_only(&self) -> bool {
        self.args.state.iter().all(|state| matches!(state, State::Processing | State::Unknown))
    }

    fn has(&self, scope: &Scope, status: &Status) -> bool {
        let (state, since) = match status {
            Status::Absent => return false,
            Status::Processing { since, .. } => (State::Processing, *since),
            Status::Unknown(case) => (State::Unknown, case.since),
            Status::Finished(finished) => (State::Finished, finished.at),
            Status::Tombstone { at, .. } => (State::Expired, *at),
        };
        self.args.state.contains(&state)
            && self.tenant.as_ref().is_none_or(|tenant| *tenant == scope.tenant)
            && self.operation.as_ref().is_none_or(|operation| *operation == scope.operation)
            && self.key.as_ref().is_none_or(|key| *key == scope.key)
            && self.args.older_than.is_none_or(|span| ago(since) >= span)
    }
}

fn line(scope: &Scope, status: StatusLine) -> String {
    json(&RecordLine {
        tenant: scope.tenant.as_str(),
        operation: scope.operation.as_str(),
        key: scope.key.as_str(),
        age_ms: status.since().and_then(|since| u64::try_from(ago(since).as_millis()).ok()),
        status,
    })
}

fn row(scope: &Scope, status: &StatusLine) -> String {
    let age = status.since().map(|since| shown(ago(since))).unwrap_or_default();
    let lease = status.lease_left_ms.map(|left| shown(std::time::Duration::from_millis(left)));
    let owner = status.owner.clone().or_else(|| status.ended()).unwrap_or_default();
    let Scope { tenant, operation, key } = scope;
    format!(
        "{:<10} {age:>7} {:>6}  {owner:<28} {} {} {}",
        status.state,
        lease.unwrap_or_else(|| "-".to_owned()),
        tenant.as_str(),
        operation.as_str(),
        key.as_str()
    )
}
