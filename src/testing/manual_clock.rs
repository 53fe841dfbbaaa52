//! A clock in the test's hands. Owns its hands; must not know who reads them.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::{Clock, Timestamp};

/// A clock that moves only when told; clones are one clock.
///
/// ```
/// use std::time::Duration;
/// use onecho::{Clock, Timestamp, testing::ManualClock};
/// let clock = ManualClock::at(Timestamp(1_000));
/// clock.advance(Duration::from_secs(1));
/// assert_eq!(clock.now(), Timestamp(2_000));
/// ```
#[derive(Clone, Debug)]
pub struct ManualClock(Arc<Mutex<Hands>>);

#[derive(Debug)]
struct Hands {
    wall: Timestamp,
    monotonic: Duration,
}

impl ManualClock {
    /// A clock that shows `start`.
    #[must_use]
    pub fn at(start: Timestamp) -> Self {
        Self(Arc::new(Mutex::new(Hands { wall: start, monotonic: Duration::ZERO })))
    }

    /// Lets time pass, on the wall and on the monotonic clock.
    pub fn advance(&self, by: Duration) {
        let mut hands = self.0.lock();
        hands.wall = hands.wall.after(by);
        hands.monotonic = hands.monotonic.saturating_add(by);
    }

    /// Sets the wall clock, as an operator or a time server does.
    pub fn set_wall(&self, to: Timestamp) {
        self.0.lock().wall = to;
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        self.0.lock().wall
    }

    fn monotonic(&self) -> Duration {
        self.0.lock().monotonic
    }
}
