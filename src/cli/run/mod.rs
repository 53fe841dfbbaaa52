//! A program that runs at most once per key. Owns the order: read what is asked, claim, start, follow,
//! record; must not know how output or signals travel.
//!
//! The store is held open, and so locked, while the program runs: that this process is gone is then all that
//! another one has to know of the claim's owner. The program is one step, declared with the claim in one
//! commit, so that there is no moment in which it may run and the file does not say so.

mod ask;
mod child;
#[cfg(not(unix))]
#[path = "no_signals.rs"]
mod os;
#[cfg(unix)]
#[path = "signals.rs"]
mod os;
mod record;

use std::io;
use std::process::{Command, ExitCode};
use std::time::Duration;

use self::child::Ended;
use self::os::Courier;
use super::exit::{Exit, Failure, decides_elsewhere, say};
use super::span::{self, Deadline};
use super::work::Run;
use crate::{
    Begin, Claim, Contract, ErrorKind, Evidence, Operation, Options, Outcome, Policy, Refused, Reply,
    Request, Start, Status, Step, Stepped, Store, Takeover, Unfinished,
};

/// What the program is, to the claim: a repeat may act twice. Whoever says that it did not act has seen that
/// it does not run any more, so nothing is left that may still arrive.
const ONCE: Step<u8> = Step::new("run", Contract::Neither).settles_within(Duration::ZERO);
/// The same, where its user says that a repeat does no harm.
const AGAIN: Step<u8> = Step::new("run", Contract::Idempotent).settles_within(Duration::ZERO);
/// Where the program finds the id that is the same over all tries of its key.
const OPERATION_ID: &str = "ONECHO_OPERATION_ID";

const MISMATCH: u8 = 121;
const BUSY: u8 = 122;
const UNKNOWN: u8 = 123;
const EXPIRED: u8 = 124;
/// What onecho's own failures exit with.
pub(super) const FAILED: u8 = 125;
const CANNOT_RUN: u8 = 126;
const NOT_FOUND: u8 = 127;

/// Between two looks at a store that another process has, and at a signal while a claim is waited for.
const PAUSE: Duration = Duration::from_millis(50);
/// How often a result is said again while the store is stopped.
const RECORD_TRIES: u32 = 25;
const RECORD_PAUSE: Duration = Duration::from_millis(200);

pub(super) fn run(args: &Run) -> ExitCode {
    match try_run(args) {
        Ok(code) => ExitCode::from(code),
        Err(Stop { failure, code }) => {
            failure.tell();
            ExitCode::from(code)
        }
    }
}

/// Why nothing was run, or nothing recorded, and the exit code for it.
struct Stop {
    failure: Failure,
    code: u8,
}

impl Stop {
    fn new(code: u8, text: impl Into<String>) -> Self {
        Self { failure: Failure::new(Exit::Partly, text), code }
    }
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        Self { failure, code: FAILED }
    }
}

impl From<crate::Error> for Stop {
    fn from(error: crate::Error) -> Self {
        Failure::from(error).into()
    }
}

/// Signal N ends a program with 128 + N, as a shell tells it.
fn of_signal(signal: i32) -> u8 {
    u8::try_from(signal).map_or(u8::MAX, |signal| signal.saturating_add(128))
}

fn try_run(args: &Run) -> Result<u8, Stop> {
    let input = ask::input(args)?;
    let request = ask::request(args, &input)?;
    let operation = request.scope().operation.clone();
    let courier = Courier::start()
        .map_err(|fault| Stop::new(FAILED, format!("signals cannot be waited for: {fault}")))?;
    let deadline = Deadline::after(args.wait);
    let store = open(args, &options(args, &operation), &courier, deadline)?;
    let Some(store) = store else { return Ok(stopped(&courier)) };
    let code = match begin(args, &store, &request, &courier, deadline)? {
        None => stopped(&courier),
        Some(Begin::Reply(reply)) => answered(args, &store, &request, reply)?,
        Some(Begin::Run(claim)) => claimed(args, &store, claim, input, &courier)?,
    };
    // All that was said is durable; what may fail is the mark that spares the next open its checks.
    if let Err(error) = store.close() {
        say(&format!("note: {error}"));
    }
    Ok(code)
}

/// A signal came before anything was run.
fn stopped(courier: &Courier) -> u8 {
    courier.early().map_or(FAILED, of_signal)
}

fn options(args: &Run, operation: &Operation) -> Options {
    let policy = Policy::new()
        .wait(Duration::ZERO)
        .lease(args.lease)
        // The owner is at it for as long as this process lives, and no other has the file meanwhile.
        .run_max(Duration::MAX)
        .takeover(if args.takeover { Takeover::Allowed } else { Takeover::Never })
        .outcome_bytes_max(args.output_max as usize + record::META_BYTES)
        .body_window(args.keep)
        .key_window(args.keep);
    let owner = format!("onecho run, process {}", std::process::id());
    args.at.options().owner(&owner).operation(operation, policy)
}

fn step(args: &Run) -> Step<u8> {
    if args.takeover { AGAIN } else { ONCE }
}

/// Opens the store, waiting for a process that has it; none when a signal came first.
fn open(args: &Run, options: &Options, courier: &Courier, deadline: Deadline) -> Result<Option<Store>, Stop> {
    loop {
        let opened = if args.existing {
            Store::open(&args.at.db, options.clone())
        } else {
            Store::open_or_create(&args.at.db, options.clone())
        };
        match opened {
            Err(error) if error.kind() == ErrorKind::Locked && deadline.left().is_zero() => {
                let text = format!("{error}; `run` holds its store while its command runs, see `--wait`");
                return Err(Stop::new(BUSY, text));
            }
            Err(error) if error.kind() == ErrorKind::Locked => courier.pause(PAUSE.min(deadline.left())),
            Err(error) if error.kind() == ErrorKind::Invalid => return Err(Failure::usage(error).into()),
            opened => return opened.map(Some).map_err(|error| args.at.unopened(&error).into()),
        }
        if courier.early().is_some() {
            return Ok(None);
        }
    }
}

/// Claims the key, waiting for the lease of a run that was cut off; none when a signal came first.
fn begin(
    args: &Run,
    store: &Store,
    request: &Request,
    courier: &Courier,
    deadline: Deadline,
) -> Result<Option<Begin>, Stop> {
    loop {
        let start = Start::new().step(&step(args));
        let begun = store.begin(request, start)?;
        let is_over = deadline.left().is_zero();
        match begun {
            Begin::Reply(Reply::InProgress { retry_after, .. }) if !is_over => {
                courier.pause(PAUSE.min(retry_after).min(deadline.left()));
            }
            begun => return Ok(Some(begun)),
        }
        if courier.early().is_some() {
            return Ok(None);
        }
    }
}

/// What is said of a key that is not this run's.
fn answered(args: &Run, store: &Store, request: &Request, reply: Reply) -> Result<u8, Stop> {
    let key = &args.key;
    let (code, text) = match reply {
        Reply::Done(finished) | Reply::Replay(finished) => return Ok(record::replay(key, &finished)),
        Reply::Mismatch { parts, .. } => (
            MISMATCH,
            format!(
                "{key} belongs to another run: its {} {}; nothing was run",
                parts.join(" and "),
                if parts.len() == 1 { "differs" } else { "differ" }
            ),
        ),
        Reply::InProgress { attempt, owner, .. } => {
            let left = match store.status(request.scope())? {
                Status::Processing { lease_left, .. } => span::shown(lease_left),
                _ => "nothing".to_owned(),
            };
            let text = format!(
                "{key} counts as being run by {owner} (attempt {attempt}), of whose lease {left} is left; \
                 nothing was run: wait longer with `--wait`"
            );
            (BUSY, text)
        }
        Reply::Unknown { since, .. } => (
            UNKNOWN,
            format!(
                "a run of {key} was cut off; for {} it has been unknown whether it did its work; nothing was \
                 run: find out, then say so with `onecho resolve`",
                span::shown(span::ago(since))
            ),
        ),
        Reply::Expired { failed, code, .. } => {
            let how = if failed { "failed" } else { "succeeded" };
            (EXPIRED, format!("{key} ran once, {how} with code {code}, and is over; nothing was run"))
        }
        Reply::Refused(Refused::NotAuthoritative { owner }) => {
            (FAILED, format!("{}; nothing was run", decides_elsewhere(&owner)))
        }
        Reply::Refused(_) => {
            (FAILED, format!("{}: no room for another key; nothing was run", args.at.db.display()))
        }
        Reply::Duplicate { .. } | Reply::Conflict { .. } => {
            (FAILED, format!("{key} is in conflict; nothing was run"))
        }
    };
    Err(Stop::new(code, text))
}

/// Runs the program under its claim and records how it ended.
fn claimed(
    args: &Run,
    store: &Store,
    mut claim: Claim,
    input: Vec<u8>,
    courier: &Courier,
) -> Result<u8, Stop> {
    let step = &step(args);
    let id = match claim.step(step)? {
        Stepped::Call(id) => id,
        Stepped::Answered(code) => {
            // Its end is known and its output is not.
            let outcome = if code == 0 { Outcome::succeeded(0) } else { Outcome::failed(u16::from(code)) };
            let finished = record(store, claim, &outcome, courier)?;
            return Ok(record::replay(&args.key, &finished));
        }
    };
    let _alive = claim.keep_alive();
    if claim.attempt() > 1 {
        say(&format!("onecho: a run of {} was cut off; this is attempt {}", args.key, claim.attempt()));
    }
    if let Some(signal) = courier.early() {
        give_up(claim, step, &format!("signal {signal} came before it was started"))?;
        return Ok(of_signal(signal));
    }
    let mut command = Command::new(&args.command[0]);
    command.args(&args.command[1..]).env(OPERATION_ID, id.as_str());
    let child = match child::start(command, input, courier) {
        Ok(child) => child,
        Err(fault) => {
            let (code, text) = not_started(args, &fault);
            give_up(claim, step, &text)?;
            return Err(Stop::new(code, text));
        }
    };
    let ended = child::follow(child, courier, args.output_max as usize).map_err(|fault| {
        Stop::new(
            FAILED,
            format!("the end of the command cannot be waited for ({fault}); its key is unknown"),
        )
    })?;
    let code = ended.code;
    let recorded = claim.answer(step, &code).map_err(Stop::from);
    recorded.and_then(|()| record(store, claim, &record::outcome(&ended), courier)).map_err(|stop| {
        let why = stop.failure.text();
        Stop::new(FAILED, format!("the command {}, which could not be recorded: {why}", how(&ended)))
    })?;
    Ok(code)
}

fn how(ended: &Ended) -> String {
    match ended.signal {
        Some(signal) => format!("was killed by signal {signal}"),
        None => format!("ended with exit code {}", ended.code),
    }
}

fn not_started(args: &Run, fault: &io::Error) -> (u8, String) {
    let name = args.command[0].display();
    match fault.kind() {
        io::ErrorKind::NotFound => (NOT_FOUND, format!("{name} was not found; nothing was run")),
        _ => (CANNOT_RUN, format!("{name} cannot be run: {fault}; nothing was run")),
    }
}

/// Frees the key of a program that was not started; one that an earlier run may have started stays unknown.
fn give_up(mut claim: Claim, step: &Step<u8>, why: &str) -> Result<(), Stop> {
    let given_up = if claim.attempt() > 1 {
        claim.unsure(why)
    } else {
        claim.not_applied(step, Evidence::new("onecho run", why))?;
        claim.abort("nothing was run")
    };
    given_up.map_err(|unfinished| unfinished.error.into())
}

/// Records an outcome; opens a stopped store again and says it anew, for the program has run already.
fn record(
    store: &Store,
    mut claim: Claim,
    outcome: &Outcome,
    courier: &Courier,
) -> Result<crate::Finished, Stop> {
    for _ in 1..RECORD_TRIES {
        match claim.finish(|_| Ok(outcome.clone())) {
            Ok(finished) => return Ok(finished),
            Err(Unfinished { claim: Some(back), error })
                if matches!(error.kind(), ErrorKind::CommitUncertain | ErrorKind::Unavailable) =>
            {
                claim = back;
                if store.reopen().is_err() {
                    courier.pause(RECORD_PAUSE);
                }
            }
            Err(unfinished) => return Err(unfinished.error.into()),
        }
    }
    claim.finish(|_| Ok(outcome.clone())).map_err(|unfinished| unfinished.error.into())
}
