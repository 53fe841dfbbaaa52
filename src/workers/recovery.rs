//! Finds out what became of commands whose owner is gone, and runs on those that may be. Owns the order in
//! which they are looked at and when again; what a verdict means is the core's.
//!
//! An open command whose lease is over is taken over and handed to the operation's `resume`, where policy and
//! steps allow that; else it is told to be `Unknown`. Of an `Unknown` one the first open step is asked about,
//! where a `probe` is known; a verdict that closes the last open step makes it one that may be taken over.
//! Whatever does not help is tried again later, backed off with jitter; where nothing helps it stays listed,
//! for people.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use foldhash::{HashMap, HashSet};
use parking_lot::Mutex;

use super::Ticked;
use crate::claim::Claim;
use crate::core::case::Case;
use crate::core::claim::{Open, OperationId, Phase, StepState};
use crate::core::error::{BoxError, Error, ErrorKind};
use crate::core::fact::Evidence;
use crate::core::row::{Row, RowKey};
use crate::core::text::Text;
use crate::store::Store;

/// The first wait after a question or a run that did not help, and the longest.
const BACKOFF_FIRST: Duration = Duration::from_secs(1);
const BACKOFF_MAX: Duration = Duration::from_secs(600);
/// How often `resume` is called for one command that fails each time, since the workers were made; then it
/// is Unknown, and waits for people.
const RESUMES_MAX: u32 = 16;
/// How often one tick goes through what is open: a command that lapsed, was asked about and runs on needs
/// three, and each step one more.
const PASSES_MAX: usize = 8;
/// How often open commands are looked through while there are any.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// What a question about a step came to: its new state, if that can be told, and the evidence.
type Told = (Option<StepState>, Evidence);
pub(super) type Probe = Arc<dyn Fn(&Case, &OperationId) -> Result<Told, BoxError> + Send + Sync>;
pub(super) type Resume = Arc<dyn Fn(Claim) -> Result<(), BoxError> + Send + Sync>;

/// Who is asked, who runs on, and when next.
#[derive(Default)]
pub(super) struct Recovery {
    probes: BTreeMap<(String, Text), Probe>,
    resumes: BTreeMap<String, Resume>,
    book: Mutex<Book>,
}

#[derive(Default)]
struct Book {
    retries: HashMap<RowKey, Retry>,
    /// Commands that a thread is at.
    busy: HashSet<RowKey>,
    /// When open commands are looked through next, on the monotonic clock.
    look_at: Duration,
}

#[derive(Clone, Copy, Default)]
struct Retry {
    tries: u32,
    runs: u32,
    /// On the monotonic clock.
    at: Duration,
}

/// What came of looking after one command.
enum Came {
    Nothing,
    Lapsed,
    /// A step's end was found out.
    Judged,
    /// It ran on, to its end or not.
    Resumed,
    /// It did not help; not before this much time has passed, if that is known.
    Later(Option<Duration>),
    /// It ran on and failed.
    Failed,
}

impl Recovery {
    pub fn probe(&mut self, operation: &str, step: &Text, ask: Probe) {
        self.probes.insert((operation.to_owned(), step.clone()), ask);
    }

    pub fn resume(&mut self, operation: &str, run: Resume) {
        self.resumes.insert(operation.to_owned(), run);
    }

    fn is_off(&self) -> bool {
        self.probes.is_empty() && self.resumes.is_empty()
    }

    /// Looks after all open commands that are due, until there is nothing more to do for them now.
    pub fn tick(&self, store: &Store, stopping: &dyn Fn() -> bool) -> Result<Ticked, Error> {
        let mut ticked = Ticked::default();
        if self.is_off() {
            return Ok(ticked);
        }
        self.book.lock().look_at = store.engine().monotonic().saturating_add(LOOK_EVERY);
        for _ in 0..PASSES_MAX {
            let passed = self.pass(store, stopping)?;
            ticked = ticked.and(passed);
            // What was lapsed may be asked about, and what was found out may be run on.
            if passed.lapsed + passed.resolved == 0 {
                break;
            }
        }
        Ok(ticked)
    }

    fn pass(&self, store: &Store, stopping: &dyn Fn() -> bool) -> Result<Ticked, Error> {
        let engine = store.engine();
        let mut ticked = Ticked::default();
        if store.stats().open == 0 {
            self.book.lock().retries.clear();
            return Ok(ticked);
        }
        let mut open_still = HashSet::default();
        let mut after = None;
        loop {
            let page = engine.open_rows(after.as_ref())?;
            let Some((last, _)) = page.last() else { break };
            after = Some(last.clone());
            for (key, row) in &page {
                if stopping() {
                    return Ok(ticked);
                }
                open_still.insert(key.clone());
                let Some(open) = row.open().filter(|_| self.take(key, engine.monotonic())) else { continue };
                let busy = Busy { recovery: self, key };
                let came = self.look_after(store, key, open, row);
                self.note(key, came.as_ref(), engine.monotonic());
                drop(busy);
                ticked.count(&came?);
            }
        }
        self.book.lock().retries.retain(|key, _| open_still.contains(key));
        Ok(ticked)
    }

    /// How long it is until open commands are looked through again.
    pub fn next(&self, store: &Store) -> Duration {
        if self.is_off() {
            return Duration::MAX;
        }
        if store.stats().open == 0 {
            return LOOK_EVERY;
        }
        self.book.lock().look_at.saturating_sub(store.engine().monotonic())
    }

    /// One open command, as it was read; whoever changes it first has changed it.
    fn look_after(&self, store: &Store, key: &RowKey, open: &Arc<Open>, row: &Row) -> Result<Came, Error> {
        let engine = store.engine();
        let is_over = engine.is_lapsed(open);
        if open.phase == Phase::Processing && !is_over {
            return Ok(Came::Nothing);
        }
        if engine.elsewhere(&open.scope.tenant)?.is_some() {
            // It is the other store's to find out.
            return Ok(Came::Nothing);
        }
        if open.may_be_taken_over(engine.settings().policy(&open.scope.operation)) {
            return self.run_on(store, key, open);
        }
        if is_over {
            return Ok(if engine.lapse_open(open)? { Came::Lapsed } else { Came::Nothing });
        }
        self.ask(store, &Case::of(open, row.version))
    }

    fn run_on(&self, store: &Store, key: &RowKey, open: &Open) -> Result<Came, Error> {
        let Some(run) = self.resumes.get(open.scope.operation.as_str()) else { return Ok(Came::Nothing) };
        let Some((asked, policy, open)) = store.engine().begin_again(open)? else { return Ok(Came::Nothing) };
        let claim = Claim::new(store, &asked, &policy, open);
        if self.book.lock().retries.get(key).is_some_and(|retry| retry.runs >= RESUMES_MAX) {
            // From now on it is listed, for people.
            claim.unsure(&format!("it was run on {RESUMES_MAX} times and failed each time"))?;
            return Ok(Came::Lapsed);
        }
        match catch_unwind(AssertUnwindSafe(|| run(claim))) {
            Ok(Ok(())) => Ok(Came::Resumed),
            Ok(Err(_)) | Err(_) => Ok(Came::Failed),
        }
    }

    /// Asks about the first step that is open and can be asked about.
    fn ask(&self, store: &Store, case: &Case) -> Result<Came, Error> {
        let operation = case.scope.operation.as_str();
        let known = case.open.open_steps().find_map(|step| {
            let probe = self.probes.get(&(operation.to_owned(), step.name.clone()))?;
            Some((step, probe))
        });
        let Some((step, probe)) = known else { return Ok(Came::Nothing) };
        let id = case.open.operation_id(&step.name);
        let engine = store.engine();
        // What it says is as old as the question: of a request that arrives meanwhile, it knows nothing.
        let left = engine.settles_in(&case.open, &step.name);
        let Ok(Ok((state, evidence))) = catch_unwind(AssertUnwindSafe(|| probe(case, &id))) else {
            return Ok(Came::Later(None));
        };
        if state == Some(StepState::NotApplied) && !left.is_zero() {
            // A request could still arrive then. To be asked again when none can.
            return Ok(Came::Later(Some(engine.settles_in(&case.open, &step.name))));
        }
        if state.is_none() && case.evidence.last() == Some(&evidence) {
            // The journal has it already.
            return Ok(Came::Later(None));
        }
        let is_told = state.is_some();
        let actor = engine.settings().owner.to_string();
        match engine.judge(case, &step.name, state, &evidence, &actor) {
            Ok(_) if is_told => Ok(Came::Judged),
            Ok(_) => Ok(Came::Later(None)),
            // Somebody else was faster.
            Err(error) if error.kind() == ErrorKind::Conflict => Ok(Came::Nothing),
            // It cannot be said of this one: the others need not wait.
            Err(error)
                if matches!(error.kind(), ErrorKind::LimitExceeded | ErrorKind::Invalid)
                    || error.kind() == ErrorKind::Unavailable && engine.is_open() =>
            {
                Ok(Came::Later(None))
            }
            Err(error) => Err(error),
        }
    }

    /// Takes a command in hand, if it is due and no other thread is at it.
    fn take(&self, key: &RowKey, now: Duration) -> bool {
        let mut book = self.book.lock();
        let is_due = book.retries.get(key).is_none_or(|retry| retry.at <= now);
        is_due && book.busy.insert(key.clone())
    }

    /// Notes when it is to be looked after again.
    fn note(&self, key: &RowKey, came: Result<&Came, &Error>, now: Duration) {
        let mut book = self.book.lock();
        match came {
            Ok(Came::Nothing | Came::Lapsed) => {}
            Ok(Came::Judged | Came::Resumed) => {
                book.retries.remove(key);
            }
            Ok(Came::Later(_) | Came::Failed) | Err(_) => {
                let retry = book.retries.entry(key.clone()).or_default();
                retry.tries += 1;
                retry.runs += u32::from(matches!(came, Ok(Came::Failed)));
                let known = if let Ok(Came::Later(left)) = came { *left } else { None };
                let wait = known.unwrap_or_else(|| backoff(key, retry.tries));
                retry.at = now.saturating_add(wait);
            }
        }
    }
}

/// A command that a thread is at, however that ends.
struct Busy<'r> {
    recovery: &'r Recovery,
    key: &'r RowKey,
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.recovery.book.lock().busy.remove(self.key);
    }
}

impl Ticked {
    fn count(&mut self, came: &Came) {
        match came {
            Came::Lapsed => self.lapsed += 1,
            Came::Judged => self.resolved += 1,
            Came::Resumed => self.resumed += 1,
            Came::Nothing | Came::Later(_) | Came::Failed => {}
        }
    }
}

/// Twice as long after each try, up to the longest; less by up to a quarter, so that what failed together is
/// not tried together.
fn backoff(key: &RowKey, tries: u32) -> Duration {
    let full = BACKOFF_FIRST.saturating_mul(1 << tries.saturating_sub(1).min(20)).min(BACKOFF_MAX);
    let spread =
        key.as_bytes().iter().fold(tries, |sum, byte| sum.wrapping_mul(31).wrapping_add(u32::from(*byte)));
    full.saturating_sub(full.mul_f64(f64::from(spread % 1_000) / 4_000.0))
}
