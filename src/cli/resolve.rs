//! What people decide about a command, and what was decided before. Owns how long a lease is waited for; what
//! may be decided, the store says.

use std::fs;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use serde::Serialize;

use super::args::At;
use super::exit::{Exit, Failure, say};
use super::line::StatusLine;
use super::look::{print_fields, scope};
use super::output::{json, print};
use super::span::{Deadline, shown};
use super::work::{Audit, Cancel, History, Resolve, Which};
use crate::{Case, ErrorKind, Evidence, Outcome, Policy, Resolution, Scope, Status, Store, Transition};

/// Between two looks at a command that is waited for.
const PAUSE: Duration = Duration::from_millis(100);
/// How long what somebody decides is answered, and the longest answer.
const KEEP: Duration = Duration::from_secs(30 * 24 * 3600);
const ANSWER_BYTES_MAX: usize = 4 << 20;
/// Where the evidence of somebody at a command line comes from.
const SOURCE: &str = "operator";

/// One entry of the journal, as `history --json` prints it.
#[derive(Serialize)]
pub(super) struct EntryLine {
    position: u64,
    at_ms: u64,
    change: String,
    actor: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    why: String,
}

impl From<Transition> for EntryLine {
    fn from(entry: Transition) -> Self {
        let Transition { position, at, change, why, actor } = entry;
        Self { position, at_ms: at.0, change, actor, why }
    }
}

impl EntryLine {
    /// For people.
    pub fn text(&self) -> String {
        let why = if self.why.is_empty() { String::new() } else { format!(": {}", self.why) };
        format!("{:>6}  {}  {} by {}{why}", self.position, self.at_ms, self.change, self.actor)
    }
}

pub(super) fn history(args: &History) -> Result<Exit, Failure> {
    let scope = args.which.scope()?;
    let store = args.which.at.open()?;
    let entries = store.history(&scope)?;
    let is_known = !entries.is_empty();
    for entry in entries.into_iter().map(EntryLine::from) {
        if !print(&if args.json { json(&entry) } else { entry.text() })? {
            break;
        }
    }
    if !is_known {
        say("the journal says nothing of it");
    }
    Ok(if is_known { Exit::Well } else { Exit::Partly })
}

pub(super) fn resolve(args: &Resolve) -> Result<Exit, Failure> {
    let scope = args.which.scope()?;
    let evidence = args.audit.evidence()?;
    let outcome = outcome(args)?;
    let store = open_as(&args.which.at, &args.audit.actor)?;
    let status = decide(args, &store, &scope, outcome.as_ref(), &evidence)?;
    show(&status, args.json)
}

pub(super) fn cancel(args: &Cancel) -> Result<Exit, Failure> {
    let scope = args.which.scope()?;
    let store = open_as(&args.which.at, &args.actor)?;
    let status = store.cancel(&scope)?;
    let is_kept_from_running = matches!(status, Status::Finished(_) | Status::Tombstone { .. });
    show(&StatusLine::from(status), args.json)?;
    if !is_kept_from_running {
        say("it was begun before, and may have done its work: it is asked to stop, and stays what it is");
    }
    Ok(if is_kept_from_running { Exit::Well } else { Exit::Partly })
}

/// All that this program writes is then signed by the one who decides: that a lease has lapsed, too.
pub(super) fn open_as(at: &At, actor: &str) -> Result<Store, Failure> {
    if actor.is_empty() {
        return Err(Failure::usage("`--actor` is empty: say who decides"));
    }
    // A second run of `run` gets the answer for as long as it is kept from running.
    let policy = Policy::new().body_window(KEEP).key_window(KEEP).outcome_bytes_max(ANSWER_BYTES_MAX);
    Store::open(&at.db, at.options().owner(actor).default_policy(policy)).map_err(|error| {
        match error.kind() {
            ErrorKind::Invalid | ErrorKind::LimitExceeded => Failure::usage(format!("`--actor`: {error}")),
            _ => at.unopened(&error),
        }
    })
}

impl Which {
    pub fn scope(&self) -> Result<Scope, Failure> {
        scope(&self.tenant, &self.operation, &self.key)
    }
}

impl Audit {
    pub fn evidence(&self) -> Result<Evidence, Failure> {
        if self.reason.trim().is_empty() {
            return Err(Failure::usage("`--reason` is empty: say how you know"));
        }
        Ok(Evidence::new(SOURCE, self.reason.as_str()))
    }
}

/// What a second run is answered; none when nothing has happened.
fn outcome(args: &Resolve) -> Result<Option<Outcome>, Failure> {
    let outcome = match (args.succeeded, args.failed) {
        (Some(code), _) => Outcome::succeeded(code),
        (_, Some(code)) => Outcome::failed(code),
        _ => return Ok(None),
    };
    let body = match (&args.body, &args.body_file) {
        (Some(text), _) => text.clone().into_bytes(),
        (_, Some(path)) => {
            let failed = |fault| Failure::usage(format!("{} cannot be read: {fault}", path.display()));
            fs::read(path).map_err(failed)?
        }
        _ => Vec::new(),
    };
    Ok(Some(outcome.body(body)))
}

/// Resolves once the lease is over, and once nothing can arrive any more where that is what counts.
fn decide(
    args: &Resolve,
    store: &Store,
    scope: &Scope,
    outcome: Option<&Outcome>,
    evidence: &Evidence,
) -> Result<StatusLine, Failure> {
    let deadline = Deadline::after(args.wait);
    loop {
        let why = match store.status(scope)? {
            Status::Unknown(case) => match end(store, &case, outcome, evidence, &args.audit.actor) {
                Ok(status) => return Ok(status.into()),
                Err(error) if matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Conflict) => {
                    error.to_string()
                }
                Err(error) if matches!(error.kind(), ErrorKind::Invalid | ErrorKind::LimitExceeded) => {
                    return Err(Failure::usage(error));
                }
                Err(error) => return Err(error.into()),
            },
            Status::Processing { lease_left, owner, .. } => {
                format!("the lease of {owner} still has {}, and is never overridden", shown(lease_left))
            }
            status => {
                let state = StatusLine::from(status).state;
                return Err(Failure::new(
                    Exit::Partly,
                    format!("it is {state}, not unknown: nothing was changed"),
                ));
            }
        };
        if deadline.left().is_zero() {
            return Err(Failure::new(
                Exit::Partly,
                format!("{why}; nothing was changed: wait longer with `--wait`"),
            ));
        }
        Condvar::new().wait_for(&mut Mutex::new(()).lock(), PAUSE);
    }
}

fn end(
    store: &Store,
    case: &Case,
    outcome: Option<&Outcome>,
    evidence: &Evidence,
    actor: &str,
) -> Result<Status, crate::Error> {
    let how = match outcome.cloned() {
        Some(outcome) => Resolution::finished(move |_| Ok(outcome.clone())),
        None => Resolution::NotApplied,
    };
    store.resolve(case, how, evidence.clone(), actor)
}

fn show(status: &StatusLine, as_json: bool) -> Result<Exit, Failure> {
    if as_json {
        print(&json(status))?;
    } else {
        print_fields(status)?;
    }
    Ok(Exit::Well)
}
