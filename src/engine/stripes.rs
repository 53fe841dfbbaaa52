//! A counter that threads raise beside one another without sharing a cache line.
//!
//! Owns who has which stripe; must not know what is counted.
//!
//! A thread takes a free stripe number when it first counts and gives it back when it ends, so while it lives
//! no other thread writes to its stripes and a plain load and store are enough: no locked instruction, which
//! would also keep the reads of the next lookup from starting. Threads beyond the last number share one more
//! stripe, and add to it as one does.

use std::sync::atomic::{AtomicU64, Ordering};

/// Threads that count on a stripe of their own.
const OWNED: usize = 64;

/// Which numbers are taken, a bit each; one process has one set of numbers for all its counters.
static TAKEN: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static NUMBER: Number = Number::take();
}

/// A stripe number; `OWNED` is everybody's.
struct Number(usize);

impl Number {
    fn take() -> Self {
        let free = |taken: u64| (taken != u64::MAX).then(|| taken | taken + 1);
        // What the last owner of the number has stored is seen by the next.
        match TAKEN.fetch_update(Ordering::AcqRel, Ordering::Acquire, free) {
            Ok(taken) => Self(taken.trailing_ones() as usize),
            Err(_) => Self(OWNED),
        }
    }
}

impl Drop for Number {
    fn drop(&mut self) {
        if self.0 < OWNED {
            TAKEN.fetch_and(!(1 << self.0), Ordering::AcqRel);
        }
    }
}

/// Two counts that go together: of all, and of those that were special.
#[derive(Debug)]
pub(crate) struct Stripes(Box<[Stripe]>);

#[derive(Debug, Default)]
#[repr(align(128))]
struct Stripe([AtomicU64; 2]);

impl Default for Stripes {
    fn default() -> Self {
        Self((0..=OWNED).map(|_| Stripe::default()).collect())
    }
}

impl Stripes {
    /// Adds one to the first count, or to the second.
    #[inline]
    pub fn count(&self, second: bool) {
        // A thread that is ending has no number any more.
        let number = NUMBER.try_with(|number| number.0).unwrap_or(OWNED);
        let Some(Stripe(counts)) = self.0.get(number) else { return };
        let count = &counts[usize::from(second)];
        if number < OWNED {
            count.store(count.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        } else {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Both counts, over all threads.
    pub fn read(&self) -> [u64; 2] {
        self.0.iter().fold([0; 2], |sum, Stripe(counts)| {
            [0, 1].map(|which| sum[which] + counts[which].load(Ordering::Relaxed))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    /// More threads than numbers, and numbers that are given on: nothing is lost.
    #[test]
    fn every_count_is_counted() {
        let stripes = Stripes::default();
        for _ in 0..3 {
            thread::scope(|scope| {
                for thread in 0..OWNED + 10 {
                    let stripes = &stripes;
                    scope.spawn(move || (0..1_000).for_each(|_| stripes.count(thread % 2 == 1)));
                }
            });
        }
        let half = 3 * 1_000 * (OWNED as u64 + 10) / 2;
        assert_eq!(stripes.read(), [half, half]);
    }
}
