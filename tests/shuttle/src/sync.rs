//! What `src/engine/sync.rs` offers, made of the scheduler's threads.
//!
//! Time stands still: what is told to last a second or more never ends, anything shorter may end at any
//! moment. So whoever is forgotten sleeps for ever, and the scheduler tells.

use std::ops::{Deref, DerefMut};
use std::sync::PoisonError;
use std::time::Duration;

use shuttle::sync as inner;

pub(crate) use shuttle::sync::atomic::{AtomicUsize, Ordering::Relaxed};
pub(crate) use shuttle::thread::yield_now;

pub(crate) fn is_endless(span: Duration) -> bool {
    span >= Duration::from_secs(1)
}

#[derive(Default)]
pub(crate) struct Mutex<T>(inner::Mutex<T>);

/// Empty only while its condition variable has it.
pub(crate) struct Guard<'m, T>(Option<inner::MutexGuard<'m, T>>);

impl<T> Mutex<T> {
    pub fn new(value: T) -> Self {
        Self(inner::Mutex::new(value))
    }

    pub fn lock(&self) -> Guard<'_, T> {
        Guard(Some(self.0.lock().unwrap_or_else(PoisonError::into_inner)))
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_ref().unwrap()
    }
}

impl<T> DerefMut for Guard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.0.as_mut().unwrap()
    }
}

#[derive(Default)]
pub(crate) struct Condvar(inner::Condvar);

impl Condvar {
    fn wait<T>(&self, guard: &mut Guard<'_, T>) {
        let taken = guard.0.take().unwrap();
        guard.0 = Some(self.0.wait(taken).unwrap_or_else(PoisonError::into_inner));
    }

    pub fn wait_for<T>(&self, guard: &mut Guard<'_, T>, span: Duration) {
        if is_endless(span) {
            self.wait(guard);
        }
    }

    #[allow(dead_code, reason = "mistakes call it")]
    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}

#[derive(Default)]
pub(crate) struct Bell {
    rung: Mutex<u32>,
    changed: Condvar,
}

impl Bell {
    pub fn rung(&self) -> u32 {
        *self.rung.lock()
    }

    pub fn wait(&self, rung: u32, span: Option<Duration>) {
        if span.is_some_and(|span| !is_endless(span)) {
            return yield_now();
        }
        let mut now = self.rung.lock();
        if *now == rung {
            self.changed.wait(&mut now);
        }
    }

    pub fn ring(&self) {
        *self.rung.lock() += 1;
        self.changed.notify_all();
    }
}
