//! Time as the model has it: see `sync`.

use std::time::Duration;

use shuttle::rand::{Rng, thread_rng};
use shuttle::sync::atomic::{AtomicU64, Ordering::SeqCst};

use crate::core::time::Timestamp;
use crate::sync::is_endless;

#[derive(Clone, Copy)]
pub(crate) struct Deadline(Duration);

impl Deadline {
    pub fn after(budget: Duration) -> Self {
        Self(budget)
    }

    /// What is short passes at any moment, one look in four.
    pub fn left(self) -> Duration {
        if is_endless(self.0) || !thread_rng().gen_ratio(1, 4) { self.0 } else { Duration::ZERO }
    }
}

/// A clock that is moved by hand.
#[derive(Default)]
pub(crate) struct EngineClock(AtomicU64);

impl EngineClock {
    pub fn both(&self) -> (Timestamp, Duration) {
        (Timestamp(self.0.load(SeqCst)), self.monotonic())
    }

    pub fn monotonic(&self) -> Duration {
        Duration::from_secs(self.0.load(SeqCst))
    }

    pub fn advance(&self, seconds: u64) {
        self.0.fetch_add(seconds, SeqCst);
    }
}
