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
    /// The monotonic clock as of 20 milliseconds ago at most, where that costs less: for who asks often and
    /// can be late. With `None`, the default, both clocks are read instead.
    fn recent_monotonic(&self) -> Option<Duration> {
        None
    }
}

/// The clocks of the operating system.
#[derive(Debug)]
pub(crate) struct SystemClock {
    start: Instant,
    /// `start` on the clock that the recent one trails. The recent one itself may have been a tick behind
    /// then: what counts from it would be ahead.
    #[cfg(target_os = "linux")]
    start_precise: Duration,
}

impl SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the file that owns the clocks")]
    pub fn new() -> Self {
        Self {
            start: Instant::now(),
            #[cfg(target_os = "linux")]
            start_precise: reading(ClockId::Monotonic),
        }
    }
}

/// What a clock shows. A coarse one shows the last tick of the system: some 6 ns instead of 28, and up to
/// 10 ms late.
#[cfg(target_os = "linux")]
#[inline]
fn reading(clock: ClockId) -> Duration {
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

    #[inline]
    fn recent_monotonic(&self) -> Option<Duration> {
        #[cfg(target_os = "linux")]
        return Some(reading(ClockId::MonotonicCoarse).saturating_sub(self.start_precise));
        #[cfg(not(target_os = "linux"))]
        Some(self.start.elapsed())
    }
}

/// How far wall and monotonic clock may drift apart while a suspect clock settles.
const STEP_TOLERANCE_MS: u64 = 1_000;

/// How long a glance goes on with the monotonic clock alone.
const GLANCE: Duration = Duration::from_millis(100);

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

/// What a glance needs, on a line that changes with each close look only.
#[repr(align(128))]
struct Glanced {
    /// The newest engine time that a close look told.
    newest: AtomicU64,
    /// What makes a reading of the monotonic clock in milliseconds an engine time; wraps, never decreases.
    offset: AtomicU64,
    /// Until when on the monotonic clock, in milliseconds, no close look is needed.
    until: AtomicU64,
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
        let glanced =
            Glanced { newest: AtomicU64::new(last.0), offset: AtomicU64::new(0), until: AtomicU64::new(0) };
        Self { source, jump_max: millis(jump_max), settle, reading, glanced }
    }

    pub fn monotonic(&self) -> Duration {
        self.source.monotonic()
    }

    /// Engine time, read once for each decision.
    pub fn now(&self) -> Timestamp {
        self.both().0
    }

    /// Engine time, and what the monotonic clock showed at it.
    pub fn both(&self) -> (Timestamp, Duration) {
        self.read(&mut self.reading.lock())
    }

    /// Engine time for a look that waits for nobody and can be late: never earlier than what anybody was told
    /// before, never ahead of [`EngineClock::now`], and an eighth of a second behind it at most; a step of
    /// the wall clock is noticed as late.
    ///
    /// For a tenth of a second after each close look time goes on with the monotonic clock, which is what it
    /// would do if the wall clock were not believed. Then it is looked at closely again; if somebody does so
    /// already, the time that was told last is good enough.
    #[inline]
    pub fn glance(&self) -> Timestamp {
        let newest = self.glanced.newest.load(Ordering::Acquire);
        match self.source.recent_monotonic().map(whole_millis) {
            Some(monotonic) if monotonic < self.glanced.until.load(Ordering::Relaxed) => {
                let offset = self.glanced.offset.load(Ordering::Relaxed);
                // A recent reading may be from before the last close look.
                Timestamp(newest.max(monotonic.wrapping_add(offset)))
            }
            _ => self.glance_closely(newest),
        }
    }

    #[cold]
    fn glance_closely(&self, newest: u64) -> Timestamp {
        match self.reading.try_lock() {
            Some(mut reading) => self.read(&mut reading).0,
            None => Timestamp(newest),
        }
    }

    /// Keeps the lock, to show who does without.
    #[cfg(test)]
    pub fn held(&self) -> impl Drop {
        self.reading.lock()
    }

    fn read(&self, reading: &mut Reading) -> (Timestamp, Duration) {
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
        self.tell(reading);
        (now, monotonic)
    }

    /// Lets glances go on from a close look.
    fn tell(&self, reading: &Reading) {
        let Reading { last, monotonic, .. } = *reading;
        // The part of a millisecond that has not passed yet: a glance is not ahead of a close look.
        let begun = whole_millis(monotonic.saturating_add(Duration::from_nanos(999_999)));
        self.glanced.offset.store(last.0.wrapping_sub(begun), Ordering::Relaxed);
        self.glanced.newest.store(last.0, Ordering::Release);
        self.glanced.until.store(whole_millis(monotonic.saturating_add(GLANCE)), Ordering::Relaxed);
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
            reading.last = self.source.now().max(reading.last);
            reading.monotonic = self.source.monotonic();
            self.tell(&reading);
        }
    }
}

impl Suspect {
    fn keeps_step(self, wall: Timestamp, monotonic: Duration) -> bool {
        let expected = self.wall.after(monotonic.saturating_sub(self.monotonic));
        expected.0.abs_diff(wall.0) <= STEP_TOLERANCE_MS
    }
}

/// As [`millis`], of spans that a clock shows, without its wide arithmetic.
#[inline]
fn whole_millis(span: Duration) -> u64 {
    span.as_secs().wrapping_mul(1_000).wrapping_add(u64::from(span.subsec_millis()))
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

#[cfg(test)]
mod tests;
