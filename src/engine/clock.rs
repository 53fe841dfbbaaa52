//! The only source of time. Owns trust in the wall clock; must not know what is decided by it.
//!
//! Engine time is the wall clock while that can be believed, and the last time plus the monotonic clock
//! otherwise. It never goes back and never stands still. A jump forward above `jump_max` makes the wall clock
//! suspect: time then goes on from before the jump, so that nothing expires by it, until the clock has kept
//! step with the monotonic one for `settle`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
#[cfg(target_os = "linux")]
use rustix::time::{ClockId, clock_gettime};

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
    /// Both, as they were a few milliseconds ago at most: for whoever asks often and can be late. By default
    /// as they are.
    fn recent(&self) -> (Timestamp, Duration) {
        (self.now(), self.monotonic())
    }
}

/// The clocks of the operating system.
#[derive(Debug)]
pub(crate) struct SystemClock {
    start: Instant,
    #[cfg(target_os = "linux")]
    start_coarse: Duration,
}

impl SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the file that owns the clocks")]
    pub fn new() -> Self {
        Self {
            start: Instant::now(),
            #[cfg(target_os = "linux")]
            start_coarse: coarse(ClockId::MonotonicCoarse),
        }
    }
}

/// The clock as of the last tick of the system: some 6 ns instead of 28, and up to 10 ms late.
#[cfg(target_os = "linux")]
#[inline]
fn coarse(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0))
}

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the file that owns the clocks")]
    fn now(&self) -> Timestamp {
        Timestamp(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, millis))
    }

    fn monotonic(&self) -> Duration {
        self.start.elapsed()
    }

    #[cfg(target_os = "linux")]
    #[inline]
    fn recent(&self) -> (Timestamp, Duration) {
        let monotonic = coarse(ClockId::MonotonicCoarse).saturating_sub(self.start_coarse);
        (Timestamp(millis(coarse(ClockId::RealtimeCoarse))), monotonic)
    }
}

/// How far wall and monotonic clock may drift apart while a suspect clock settles.
const STEP_TOLERANCE_MS: u64 = 1_000;

/// A glance believes the wall clock for so long after the last full look, and so far beyond it.
const GLANCE: Duration = Duration::from_secs(1);
/// How far a recent wall clock may be behind the newest time without having been set back.
const RECENT_LAG_MS: u64 = 20;

/// Time as the engine uses it.
pub(crate) struct EngineClock {
    source: Arc<dyn Clock>,
    jump_max: u64,
    settle: Duration,
    reading: Mutex<Reading>,
    glanced: Glanced,
}

struct Reading {
    /// Engine time at `monotonic`.
    last: Timestamp,
    monotonic: Duration,
    suspect: Option<Suspect>,
    settled: Option<Timestamp>,
}

/// What a glance needs, on a line that changes once a millisecond at most.
#[repr(align(128))]
struct Glanced {
    /// The newest engine time that anybody was told.
    newest: AtomicU64,
    /// Until when on the monotonic clock, in milliseconds, the wall clock need not be looked at closely;
    /// 0 while it is suspect.
    steady_until: AtomicU64,
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
        let reading = Mutex::new(Reading { last, monotonic, suspect: None, settled });
        let glanced = Glanced { newest: AtomicU64::new(last.0), steady_until: AtomicU64::new(0) };
        Self { source, jump_max: millis(jump_max), settle, reading, glanced }
    }

    pub fn monotonic(&self) -> Duration {
        self.source.monotonic()
    }

    /// Engine time, read once for each decision.
    pub fn now(&self) -> Timestamp {
        self.read(&mut self.reading.lock())
    }

    /// Engine time for a look that takes no lock and can be a few milliseconds late: never earlier than what
    /// anybody was told before, never ahead of [`EngineClock::now`].
    ///
    /// While the wall clock goes on in small steps it is believed as it is. Once a second, and whenever it
    /// does anything else, it is looked at closely; if somebody does so already, the newest time that was
    /// told is good enough.
    #[inline]
    pub fn glance(&self) -> Timestamp {
        let (wall, monotonic) = self.source.recent();
        let newest = self.glanced.newest.load(Ordering::Acquire);
        if millis(monotonic) < self.glanced.steady_until.load(Ordering::Relaxed) {
            if wall.0 <= newest && newest - wall.0 <= RECENT_LAG_MS {
                return Timestamp(newest);
            }
            if wall.0 > newest && wall.0 - newest <= self.step_max() {
                return self.tell(wall);
            }
        }
        self.glance_closely(newest)
    }

    #[cold]
    fn glance_closely(&self, newest: u64) -> Timestamp {
        match self.reading.try_lock() {
            Some(mut reading) => self.read(&mut reading),
            None => Timestamp(newest),
        }
    }

    fn step_max(&self) -> u64 {
        self.jump_max.min(millis(GLANCE))
    }

    /// The newest time that anybody was told, with `now` among them.
    fn tell(&self, now: Timestamp) -> Timestamp {
        Timestamp(self.glanced.newest.fetch_max(now.0, Ordering::AcqRel).max(now.0))
    }

    fn read(&self, reading: &mut Reading) -> Timestamp {
        let wall = self.source.now();
        let monotonic = self.source.monotonic();
        // Whole milliseconds; what is left of one counts in the next reading.
        let elapsed = Duration::from_millis(millis(monotonic.saturating_sub(reading.monotonic)));
        let steady = reading.last.after(elapsed);
        // Glances may have gone on with the wall clock.
        let newest = steady.max(Timestamp(self.glanced.newest.load(Ordering::Acquire)));
        let trusted = wall.0 <= newest.0.saturating_add(self.jump_max);
        let now = match reading.suspect {
            _ if trusted => {
                reading.suspect = None;
                wall.max(newest)
            }
            Some(suspect) if !suspect.keeps_step(wall, monotonic) => {
                reading.suspect = Some(Suspect { wall, monotonic });
                newest
            }
            Some(suspect) if monotonic.saturating_sub(suspect.monotonic) >= self.settle => {
                reading.suspect = None;
                reading.settled = Some(wall);
                wall
            }
            Some(_) => newest,
            None => {
                reading.suspect = Some(Suspect { wall, monotonic });
                newest
            }
        };
        let now = self.tell(now);
        reading.monotonic = if now > steady { monotonic } else { reading.monotonic.saturating_add(elapsed) };
        reading.last = now;
        let steady_until =
            if reading.suspect.is_some() { 0 } else { millis(monotonic.saturating_add(GLANCE)) };
        self.glanced.steady_until.store(steady_until, Ordering::Relaxed);
        now
    }

    /// When a clock that had jumped last settled by itself.
    pub fn settled(&self) -> Option<Timestamp> {
        self.reading.lock().settled
    }

    /// Whether the wall clock is not believed now.
    pub fn is_suspect(&self) -> bool {
        let mut reading = self.reading.lock();
        self.read(&mut reading);
        reading.suspect.is_some()
    }

    /// Somebody knows that the wall clock is right: believes it from now on.
    pub fn confirm(&self) {
        let mut reading = self.reading.lock();
        self.read(&mut reading);
        if reading.suspect.take().is_some() {
            reading.last = self.tell(self.source.now());
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
