//! Time-driven work: each kind of it is a `tick` that a test drives with its own clock, and a runner that
//! owns threads. Owns who is called for what; must not know how anything is stored. Workers submit ordinary
//! acts through the queue of the writer: they have no side door, and no lock is held while user code runs.

mod outbox;
mod recovery;
mod runner;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;

use self::outbox::Outbox;
use self::recovery::Recovery;
pub use self::runner::{Health, Running};
use crate::case::Verdict;
use crate::claim::Claim;
use crate::core::case::Case;
use crate::core::claim::{Contract, OperationId};
use crate::core::error::{BoxError, Error};
use crate::core::message::step::Move;
use crate::core::name::Operation;
use crate::core::time::Timestamp;
use crate::effects::Effects;
use crate::message::{Delivered, Delivery, Destination};
use crate::step::Step;
use crate::store::Store;

/// The most threads of one runner.
const THREADS_MAX: usize = 1024;

/// Time-driven work of a store: sends messages, does jobs, finds out what became of commands. Nothing runs
/// unless it is ticked or started.
///
/// Closures run on the thread that ticks, or on the runner's, and may block; of one destination several may
/// run at once, on several threads. Several runners may serve one store: a message is taken by one of them.
///
/// ```
/// # use onecho::{testing::SimDisk, *};
/// const UPLOAD: Destination<Bytes> = Destination::raw("telemetry", Contract::Idempotent);
/// # let store = SimDisk::seeded(1).open(Options::new())?;
/// let message = Message::new(&UPLOAD, &Bytes::from_static(b"1,2"))?;
/// let id = store.enqueue(&Tenant::new("device"), &[message])?[0];
/// let workers = Workers::new(&store).deliver(&UPLOAD, |batch, delivery| {
///     println!("{} sends {} bytes", delivery.operation_id(), batch.len());
///     Ok(Delivered::Done(None))
/// });
/// assert_eq!(workers.tick()?.delivered, 1);
/// assert!(matches!(store.message(id)?, Some(MessageState::Delivered { .. })));
/// # Ok::<(), BoxError>(())
/// ```
#[must_use]
pub struct Workers {
    store: Store,
    routes: BTreeMap<String, Route>,
    recovery: Recovery,
    threads: usize,
    lapses: outbox::Lapses,
    /// Ends of attempts whose commit failed, to be said again.
    unsaid: Mutex<Vec<Move>>,
}

type Call = Arc<dyn Fn(&Bytes, &Delivery) -> Result<Delivered, BoxError> + Send + Sync>;
type Job = Arc<dyn Fn(&Bytes, &Delivery, &mut Effects<'_, '_>) -> Result<(), BoxError> + Send + Sync>;

/// What is called for the messages of one destination.
#[derive(Clone, Default)]
struct Route {
    send: Option<Call>,
    ask: Option<Call>,
    job: Option<Job>,
    /// Somebody has to be asked before a message is sent again.
    needs_ask: bool,
}

impl Workers {
    /// Workers that do nothing yet.
    pub fn new(store: &Store) -> Self {
        Self {
            store: store.clone(),
            routes: BTreeMap::new(),
            recovery: Recovery::default(),
            threads: 1,
            lapses: outbox::Lapses::default(),
            unsaid: Mutex::new(Vec::new()),
        }
    }

    /// Sends the messages of a destination. An `Err`, a panic, and an attempt that takes longer than the
    /// destination's [`lease`](Destination::lease) count as [`Delivered::Unknown`]; a payload that is no `T`
    /// is a dead letter. A second closure for one destination takes the place of the first.
    pub fn deliver<T: 'static>(
        mut self,
        to: &Destination<T>,
        send: impl Fn(&T, &Delivery) -> Result<Delivered, BoxError> + Send + Sync + 'static,
    ) -> Self {
        let read = to.reader();
        let route = self.route(to);
        route.send = Some(Arc::new(move |payload, delivery| match read(payload) {
            Ok(payload) => send(&payload, delivery),
            Err(fault) => Ok(no_payload(&fault)),
        }));
        route.needs_ask = to.contract() == Contract::Queryable;
        self
    }

    /// Asks what became of an attempt, before anything is sent again: `Done` if it has arrived, `NotApplied`
    /// if it has not (which counts once nothing of it can arrive any more, see
    /// [`Destination::settles_within`]), `Unknown` or an `Err` to ask again later. Needed for a `Queryable`
    /// destination.
    pub fn query<T: 'static>(
        mut self,
        to: &Destination<T>,
        ask: impl Fn(&T, &Delivery) -> Result<Delivered, BoxError> + Send + Sync + 'static,
    ) -> Self {
        let read = to.reader();
        self.route(to).ask = Some(Arc::new(move |payload, delivery| match read(payload) {
            Ok(payload) => ask(&payload, delivery),
            Err(fault) => Ok(no_payload(&fault)),
        }));
        self
    }

    /// Does the messages of a destination here, as jobs: what a job stages and its "done" are one commit, so
    /// whatever the contract says, a job is never done twice and never done by half. It may be called again,
    /// as a closure of [`Store::execute`], and must not reach outside. An `Err` or a panic writes nothing;
    /// the job is tried again later.
    pub fn handle<T: 'static>(
        mut self,
        from: &Destination<T>,
        job: impl Fn(&T, &Delivery, &mut Effects<'_, '_>) -> Result<(), BoxError> + Send + Sync + 'static,
    ) -> Self {
        let read = from.reader();
        self.route(from).job =
            Some(Arc::new(move |payload, delivery, effects| job(&read(payload)?, delivery, effects)));
        self
    }

    /// Asks the other side about a step of a command in `Unknown` that may have been made: `Applied` counts
    /// at once, `NotApplied` once a request can no longer arrive (see
    /// [`Step::settles_within`](crate::Step::settles_within)); an `Err`, a panic and `Insufficient` are asked
    /// again later, backed off from 1 second to 10 minutes. What is found out is written with its evidence.
    pub fn probe<T: serde::Serialize + 'static>(
        mut self,
        operation: &Operation,
        step: &Step<T>,
        ask: impl Fn(&Case, &OperationId) -> Result<Verdict<T>, BoxError> + Send + Sync + 'static,
    ) -> Self {
        let ask = Arc::new(move |case: &Case, id: &OperationId| Ok(ask(case, id)?.into_finding()?));
        self.recovery.probe(operation.as_str(), step.name(), ask);
        self
    }

    /// Takes commands of an operation over whose owner is gone, where that is allowed, and runs them on,
    /// without waiting for the client: each with its input, answers and points, as the next
    /// [`Store::begin`](crate::Store::begin) would get it. A run that fails is tried again with backoff, 16
    /// times; then the command is `Unknown`, and waits for people.
    pub fn resume(
        mut self,
        operation: &Operation,
        run: impl Fn(Claim) -> Result<(), BoxError> + Send + Sync + 'static,
    ) -> Self {
        self.recovery.resume(operation.as_str(), Arc::new(run));
        self
    }

    fn route<T>(&mut self, to: &Destination<T>) -> &mut Route {
        self.routes.entry(to.name().to_owned()).or_default()
    }

    /// How many threads [`Workers::start`] starts: 1 to 1,024; default 1.
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = threads;
        self
    }

    /// Does all that is due now, on this thread: at most 65,536 messages, the rest with the next tick.
    ///
    /// # Errors
    ///
    /// `Invalid` for a `Queryable` destination without [`Workers::query`]; what the store says when it cannot
    /// be read or written (`Unavailable`, `CommitUncertain`, `Corrupt`, `Closed`); `Reentrant` inside a
    /// closure. What was done until then is done; an end that could not be recorded is said again by the next
    /// tick. A closure's failure is no error of the tick.
    pub fn tick(&self) -> Result<Ticked, Error> {
        self.check()?;
        self.store.engine().not_inside()?;
        self.tick_while(&|| false)
    }

    /// One tick, unless it is to stop.
    fn tick_while(&self, stopping: &dyn Fn() -> bool) -> Result<Ticked, Error> {
        let ticked = Outbox { workers: self, stopping }.tick()?;
        Ok(ticked.and(self.recovery.tick(&self.store, stopping)?))
    }

    /// Starts the threads. They sleep until a commit makes a message due, or its time comes.
    ///
    /// # Errors
    ///
    /// `Invalid` as [`Workers::tick`], or for no thread or more than 1,024; `Unavailable` when the system
    /// gives no thread.
    pub fn start(self) -> Result<Running, Error> {
        self.check()?;
        if !(1..=THREADS_MAX).contains(&self.threads) {
            return Err(Error::invalid(format!(
                "`threads` is {}; it may be 1 to {THREADS_MAX}",
                self.threads
            )));
        }
        Running::start(self)
    }

    fn check(&self) -> Result<(), Error> {
        for (name, route) in &self.routes {
            if route.needs_ask && route.ask.is_none() {
                return Err(Error::invalid(format!(
                    "destination {name} is `Queryable`: say with `query` how to ask what became of an attempt"
                )));
            }
            if route.send.is_some() && route.job.is_some() {
                return Err(Error::invalid(format!("destination {name} is both delivered and handled")));
            }
        }
        Ok(())
    }

    /// How long it is until something is to be done, if nothing comes.
    fn next_due(&self) -> Result<Duration, Error> {
        let engine = self.store.engine();
        let mut next = self.lapses.next(engine).min(self.recovery.next(&self.store));
        if let Some(due) = self.oldest_due()? {
            next = next.min(due.since(engine.moment().0));
        }
        Ok(next)
    }

    /// When the first message of all destinations is due, or was.
    fn oldest_due(&self) -> Result<Option<Timestamp>, Error> {
        let mut oldest: Option<Timestamp> = None;
        for name in self.routes.keys() {
            let due = self.store.engine().first_due(name)?;
            oldest = oldest.into_iter().chain(due).min();
        }
        Ok(oldest)
    }
}

/// A message that cannot be read by this program will not be read by its next attempt either.
fn no_payload(fault: &Error) -> Delivered {
    Delivered::Refused(format!("its payload cannot be read: {fault}"))
}

impl fmt::Debug for Workers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Workers")
            .field("destinations", &self.routes.keys().collect::<Vec<_>>())
            .field("threads", &self.threads)
            .finish_non_exhaustive()
    }
}

/// What one tick has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Ticked {
    /// Messages that have arrived, as their own call or a question said.
    pub delivered: u64,
    /// Jobs that were done.
    pub handled: u64,
    /// Attempts and jobs that did not do, and are tried again later.
    pub retried: u64,
    /// Messages that may have arrived.
    pub unknown: u64,
    /// Messages that became dead letters.
    pub dead: u64,
    /// Attempts and commands of somebody who did not come back.
    pub lapsed: u64,
    /// Steps whose end was found out.
    pub resolved: u64,
    /// Commands that were taken over and run on.
    pub resumed: u64,
}

impl Ticked {
    fn and(self, other: Self) -> Self {
        Self {
            delivered: self.delivered + other.delivered,
            handled: self.handled + other.handled,
            retried: self.retried + other.retried,
            unknown: self.unknown + other.unknown,
            dead: self.dead + other.dead,
            lapsed: self.lapsed + other.lapsed,
            resolved: self.resolved + other.resolved,
            resumed: self.resumed + other.resumed,
        }
    }
}
