//! The only source of time. Owns trust in the wall clock; must not know what is decided by it.
//!
//! Engine time is the wall clock while that can be believed, and the last time plus the monotonic clock
//! otherwise. It never goes back and never stands still. A jump forward above `jump_max` makes the wall clock
//! suspect: time then goes on from before the jump, so that nothing expires by it, until the clock has kept
//! step with the monotonic one for `settle`.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;

use crate::core::time::{Timestamp, millis};

/// Where the store gets its time from. Wait budgets alone are real time. It is asked under the store's own
/// locks, so it must not call the store.
///
/// ```
/// use std::time::Duration;
/// use onecho::{Clock, Options, Timestamp};
///
/// struct Fixed;
/// impl Clock for Fixed {
///     fn now(&self) -> Timestamp { Timestamp(1_796_040_000_000) }
///     fn monotonic(&self) -> Duration { Duration::ZERO }
/// }
/// let options = Options::new().clock(Fixed);
/// # let _ = options;
/// ```
pub trait Clock: Send + Sync + 'static {
    /// The wall clock; may jump in both directions.
    fn now(&self) -> Timestamp;
    /// Time since some fixed moment; never goes back.
    fn monotonic(&self) -> Duration;
}

/// The clocks of the operating system.
#[derive(Debug)]
pub(crate) struct SystemClock {
    start: Instant,
}

impl SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the file that owns the clocks")]
    pub fn new() -> Self {
        Self { start: Instant::now() }
    }
}

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the file that owns the clocks")]
    fn now(&self) -> Timestamp {
        Timestamp(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, millis))
    }

    fn monotonic(&self) -> Duration {
        self.start.elapsed()
    }
}

/// How far wall and monotonic clock may drift apart while a suspect clock settles.
const STEP_TOLERANCE_MS: u64 = 1_000;

/// Time as the engine uses it.
pub(crate) struct EngineClock {
    source: Arc<dyn Clock>,
    jump_max: u64,
    settle: Duration,
    reading: Mutex<Reading>,
}

struct Reading {
    last: Timestamp,
    monotonic: Duration,
    suspect: Option<Suspect>,
    settled: Option<Timestamp>,
}

/// A wall clock that is not believed: when it was first seen so far ahead, and both clocks then.
#[derive(Clone, Copy)]
struct Suspect {
    wall: Timestamp,
    monotonic: Duration,
}

impl EngineClock {
    /// A clock that goes on from `last`, the newest time that was stored.
    pub fn new(
        source: Arc<dyn Clock>,
        jump_max: Duration,
        settle: Duration,
        last: Timestamp,
        settled: Option<Timestamp>,
    ) -> Self {
        let monotonic = source.monotonic();
        let reading = Reading { last, monotonic, suspect: None, settled };
        Self { source, jump_max: millis(jump_max), settle, reading: Mutex::new(reading) }
    }

    pub fn monotonic(&self) -> Duration {
        self.source.monotonic()
    }

    /// Engine time, read once for each decision.
    pub fn now(&self) -> Timestamp {
        let mut reading = self.reading.lock();
        let wall = self.source.now();
        let monotonic = self.source.monotonic();
        // Whole milliseconds; what is left of one counts in the next reading.
        let elapsed = Duration::from_millis(millis(monotonic.saturating_sub(reading.monotonic)));
        let steady = reading.last.after(elapsed);
        let trusted = wall.0 <= steady.0.saturating_add(self.jump_max);
        let now = match reading.suspect {
            _ if trusted => {
                reading.suspect = None;
                wall.max(steady)
            }
            Some(suspect) if !suspect.keeps_step(wall, monotonic) => {
                reading.suspect = Some(Suspect { wall, monotonic });
                steady
            }
            Some(suspect) if monotonic.saturating_sub(suspect.monotonic) >= self.settle => {
                reading.suspect = None;
                reading.settled = Some(wall);
                wall
            }
            Some(_) => steady,
            None => {
                reading.suspect = Some(Suspect { wall, monotonic });
                steady
            }
        };
        reading.monotonic = if now > steady { monotonic } else { reading.monotonic.saturating_add(elapsed) };
        reading.last = now;
        now
    }

    /// When a clock that had jumped last settled by itself.
    pub fn settled(&self) -> Option<Timestamp> {
        self.reading.lock().settled
    }

    /// Whether the wall clock is not believed now.
    pub fn is_suspect(&self) -> bool {
        self.now();
        self.reading.lock().suspect.is_some()
    }

    /// Somebody knows that the wall clock is right: believes it from now on.
    pub fn confirm(&self) {
        self.now();
        let mut reading = self.reading.lock();
        if reading.suspect.take().is_some() {
            reading.last = self.source.now().max(reading.last);
            reading.monotonic = self.source.monotonic();
        }
    }
}

impl Suspect {
    fn keeps_step(self, wall: Timestamp, monotonic: Duration) -> bool {
        let expected = self.wall.after(monotonic.saturating_sub(self.monotonic));
        expected.0.abs_diff(wall.0) <= STEP_TOLERANCE_MS
    }
}

/// Real time that a caller is still willing to wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline(Option<Instant>);

impl Deadline {
    /// `budget` from now; what does not fit on the clock never comes.
    #[expect(
        clippy::disallowed_methods,
        reason = "wait budgets are real time, and this file owns the clocks"
    )]
    pub fn after(budget: Duration) -> Self {
        Self(Instant::now().checked_add(budget))
    }

    /// What is left; zero when it has passed.
    #[expect(
        clippy::disallowed_methods,
        reason = "wait budgets are real time, and this file owns the clocks"
    )]
    pub fn left(self) -> Duration {
        self.0.map_or(Duration::MAX, |end| end.saturating_duration_since(Instant::now()))
    }
}
