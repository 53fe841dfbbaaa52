//! Runs a program once, then opens its store at every state that a power cut could have left.
//!
//! Owns the loop over states and what a failure tells. It must not know what is in a store: what is right is
//! the caller's check, which states there are is the simulated disk's.

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::SimDisk;
use crate::{Error, Options, Store};

/// States of a run unless [`CrashTest::states_max`] says otherwise.
const STATES_MAX: u64 = 2_000;

/// Runs `work` once; reopens at every crash state and gives `check` what `work` had acknowledged by then.
///
/// The disk is a [`SimDisk`], recorded from its first byte on, so that creation and the last close are
/// crashed too. A power cut may come between any two operations of the disk, and what was not synced may then
/// be lost, kept, or torn, each piece on its own. `check` runs on a disk of its own for each state and may
/// write; after it the store has to close, to open again and to pass [`Store::verify`].
///
/// ```
/// use onecho::{testing::CrashTest, *};
/// const T: Tenant = Tenant::new("t");
/// const PAY: Operation = Operation::new("pay");
/// const PAID: Kind<i64> = Kind::counter("paid");
/// fn pay(store: &Store, key: &str) -> Reply {
///     let request = Request::new(&T, &PAY, &Key::parse(key).unwrap()).bytes("body", key);
///     let reply = store.execute(&request, |fx| {
///         fx.add(&PAID, "all", 1, i64::MIN)?;
///         Ok(Outcome::succeeded(201))
///     });
///     reply.unwrap()
/// }
/// let report = CrashTest::new(Options::new().replay_bytes(0), 7).states_max(100).run(
///     |store, acknowledged| {
///         for key in ["a", "b"] {
///             let _ = pay(store, key);
///             acknowledged.push(key);
///         }
///     },
///     |store, acknowledged| {
///         assert!(acknowledged.iter().all(|key| pay(store, key).is_replay()));
///         let _ = (pay(store, "a"), pay(store, "b")); // who got no answer asks again
///         assert_eq!(store.get(&T, &PAID, "all").unwrap().unwrap().value, 2);
///     },
/// );
/// assert!(report.states > 50);
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct CrashTest {
    options: Options,
    seed: u64,
    states_max: u64,
    nested: u64,
    only: Option<u64>,
}

/// What a run of a [`CrashTest`] has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CrashReport {
    /// States that were opened and checked, nested ones apart.
    pub states: u64,
    /// Moments at which the power could go: one before each operation of the disk, and one after the last.
    pub crash_points: u64,
    /// States of a second power cut, in the recovery from the first, that were opened and checked.
    pub nested: u64,
    /// The seed that gives the same states of the same operations again.
    pub seed: u64,
}

/// What `work` was told, in order. A program's clients keep what they were answered, and so does a crash
/// test.
///
/// Several threads of `work` share it behind a mutex: `let acknowledged = Mutex::new(acknowledged);`.
pub struct Acknowledged<A> {
    disk: SimDisk,
    seen: Vec<A>,
}

impl<A> Acknowledged<A> {
    /// Notes something that was told outside, now: each crash after this has to honour it.
    pub fn push(&mut self, seen: A) {
        self.seen.push(seen);
        self.disk.mark();
    }

    /// The disk below the store, for a `work` that closes the store and opens it again, or that makes the
    /// disk fail.
    #[must_use]
    pub fn disk(&self) -> &SimDisk {
        &self.disk
    }
}

impl<A> fmt::Debug for Acknowledged<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Acknowledged").field("seen", &self.seen.len()).finish_non_exhaustive()
    }
}

impl CrashTest {
    /// A test of stores that are opened with `options`. The seed decides which states are tried where not all
    /// can be.
    pub fn new(options: Options, seed: u64) -> Self {
        Self { options, seed, states_max: STATES_MAX, nested: 0, only: None }
    }

    /// At most so many states, spread over all crash points. Default: 2,000.
    pub fn states_max(mut self, states: u64) -> Self {
        self.states_max = states;
        self
    }

    /// Crashes a second time while each state is opened and checked: so many states of that for each state.
    /// `check` then also sees what an earlier run of itself has left. Default: 0.
    pub fn nested(mut self, states: u64) -> Self {
        self.nested = states;
        self
    }

    /// Checks one state only, the one whose number a failure told, and those nested in it. `work` has to do
    /// the same operations again for that: one thread, and a clock that stands.
    pub fn only(mut self, state: u64) -> Self {
        self.only = Some(state);
        self
    }

    /// Runs `work` once on an empty disk; then opens a store at every state, a new one where none was
    /// finished, and calls
    /// `check` with what `work` had acknowledged before that crash.
    ///
    /// # Panics
    ///
    /// With seed, crash point and number of the state, when `check` panics or a store does not open, close,
    /// or pass [`Store::verify`]; with what `work` panics with.
    pub fn run<A: Clone>(
        self,
        work: impl Fn(&Store, &mut Acknowledged<A>),
        check: impl Fn(&Store, &[A]),
    ) -> CrashReport {
        let options = self.options.clone();
        self.run_with(work, |_| options.clone(), check)
    }

    /// As [`CrashTest::run`]; opens each state with options of its own, such as a clock that shows the time
    /// of the crash.
    ///
    /// # Panics
    ///
    /// As [`CrashTest::run`].
    pub fn run_with<A: Clone>(
        self,
        work: impl Fn(&Store, &mut Acknowledged<A>),
        options: impl Fn(&[A]) -> Options,
        check: impl Fn(&Store, &[A]),
    ) -> CrashReport {
        let disk = SimDisk::seeded(self.seed);
        disk.record();
        let mut acknowledged = Acknowledged { disk: disk.clone(), seen: Vec::new() };
        match disk.open(self.options.clone()) {
            Ok(store) => {
                work(&store, &mut acknowledged);
                // A work that made the disk fail may leave a store that cannot be closed.
                let _ = store.close();
            }
            Err(error) => panic!("crash test, seed {}: the store was not created: {error}", self.seed),
        }
        let log = disk.recorded();
        let mut report =
            CrashReport { crash_points: log.points() as u64, seed: self.seed, ..CrashReport::default() };
        let recovery = Recovery { options, check };
        for (number, state) in (0..).zip(log.crash_states(self.states_max)) {
            if self.only.is_some_and(|only| only != number) {
                continue;
            }
            let told = usize::try_from(state.marks).unwrap_or(usize::MAX).min(acknowledged.seen.len());
            let seen = &acknowledged.seen[..told];
            let place = Place { seed: self.seed, point: state.point, number, nested: None };
            if self.nested > 0 {
                state.disk.record();
            }
            recovery.check(&state.disk, seen, place);
            report.states += 1;
            if self.nested > 0 {
                for (nested, again) in (0..).zip(state.disk.recorded().crash_states(self.nested)) {
                    recovery.check(&again.disk, seen, Place { nested: Some((again.point, nested)), ..place });
                    report.nested += 1;
                }
            }
        }
        report
    }
}

/// What is done at each state.
struct Recovery<O, C> {
    options: O,
    check: C,
}

impl<O, C> Recovery<O, C> {
    fn check<A>(&self, disk: &SimDisk, seen: &[A], place: Place)
    where
        O: Fn(&[A]) -> Options,
        C: Fn(&Store, &[A]),
    {
        let fail = |what: &str| -> ! { place.fail(seen.len(), what) };
        let store = self.open(disk, seen).unwrap_or_else(|what| fail(&what));
        let checked = catch_unwind(AssertUnwindSafe(|| (self.check)(&store, seen)));
        let closed = store.close();
        // Before a panic goes on: a second one in what is dropped on the way would end the process.
        drop(store);
        if let Err(panic) = checked {
            fail(text(&*panic));
        }
        if let Err(error) = closed {
            fail(&format!("the store does not close: {error}"));
        }
        let again = self.open(disk, seen).unwrap_or_else(|what| fail(&format!("after a clean close {what}")));
        match again.verify() {
            Ok(report) if report.is_clean() => {}
            report => fail(&format!("after a clean close, `verify`: {report:?}")),
        }
    }

    fn open<A>(&self, disk: &SimDisk, seen: &[A]) -> Result<Store, String>
    where
        O: Fn(&[A]) -> Options,
    {
        match catch_unwind(AssertUnwindSafe(|| disk.open((self.options)(seen)))) {
            Ok(Ok(store)) => Ok(store),
            Ok(Err(error)) => Err(unopened(&error)),
            Err(panic) => Err(format!("opening panicked: {}", text(&*panic))),
        }
    }
}

fn unopened(error: &Error) -> String {
    format!("the store does not open: {:?}: {error}", error.kind())
}

/// Which state of which run.
#[derive(Clone, Copy)]
struct Place {
    seed: u64,
    point: usize,
    number: u64,
    /// The crash point and the number of a second power cut.
    nested: Option<(usize, u64)>,
}

impl Place {
    fn fail(self, acknowledged: usize, what: &str) -> ! {
        let Self { seed, point, number, nested } = self;
        let nested = nested.map_or(String::new(), |(point, number)| {
            format!(", then in its recovery at crash point {point}, nested state {number}")
        });
        panic!(
            "crash test failed: seed {seed}, crash point {point}, state {number}{nested}, \
             after {acknowledged} acknowledgements: {what}\n(replay with `.only({number})` under this seed)"
        );
    }
}

/// What a panic said.
fn text(panic: &(dyn Any + Send)) -> &str {
    let owned = panic.downcast_ref::<String>().map(String::as_str);
    owned.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic without a text")
}
