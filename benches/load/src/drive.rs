//! Callers in a closed loop: each prepares, calls, and calls again. Owns the clock of a round; must not know
//! what is called.

use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

use crate::contender::Done;
use crate::measure::{Sample, Watch, Written, cpu, written};

/// One caller on his own thread.
pub trait Caller {
    /// What is kept of a call.
    type Kept: Send;

    /// Makes ready what the next call hands over; not in its time.
    fn prepare(&mut self) -> Done<()>;

    fn call(&mut self) -> Done<Self::Kept>;
}

/// When a round ends.
#[derive(Clone, Copy)]
pub enum Until {
    Time(Duration),
    Calls(u64),
}

pub struct Call<K> {
    pub kept: K,
    /// As its caller saw it.
    pub us: f64,
    /// When it ended, from the beginning of the round.
    pub at: Duration,
}

/// What a round came to.
pub struct Driven<K> {
    pub calls: Vec<Call<K>>,
    pub took: Duration,
    pub cpu: Duration,
    pub written: Written,
}

impl<K> Driven<K> {
    pub fn spans(&self) -> Vec<f64> {
        self.calls.iter().map(|call| call.us).collect()
    }

    pub fn latency(&self) -> Sample {
        Sample::of(self.spans())
    }
}

pub fn drive<C: Caller>(
    callers: usize,
    until: Until,
    make: impl Fn(usize) -> Done<C> + Sync,
) -> Done<Driven<C::Kept>> {
    let barrier = Barrier::new(callers + 1);
    let made = AtomicU64::new(0);
    let mut all = Vec::with_capacity(callers);
    let (mut took, mut spent, mut wrote) = (Duration::ZERO, Duration::ZERO, Written::default());
    std::thread::scope(|scope| {
        let (make, barrier, made) = (&make, &barrier, &made);
        let threads: Vec<_> =
            (0..callers).map(|number| scope.spawn(move || one(make(number), until, barrier, made))).collect();
        barrier.wait();
        let watch = Watch::begin();
        let (before, cpu_before, begun) = (written(), cpu(), Instant::now());
        all = threads.into_iter().map(ScopedJoinHandle::join).collect();
        took = begun.elapsed();
        spent = cpu().saturating_sub(cpu_before);
        wrote = written().since(before);
        watch.end();
    });
    let mut calls = Vec::new();
    for one in all {
        calls.extend(one.map_err(|_| "a caller panicked")??);
    }
    if calls.is_empty() {
        return Err("no call ended in this round".into());
    }
    Ok(Driven { calls, took, cpu: spent, written: wrote })
}

/// Everybody arrives at the barrier, also who could not be made.
fn one<C: Caller>(
    caller: Done<C>,
    until: Until,
    barrier: &Barrier,
    made: &AtomicU64,
) -> Done<Vec<Call<C::Kept>>> {
    barrier.wait();
    let mut caller = caller?;
    let begun = Instant::now();
    let mut calls = Vec::new();
    loop {
        let is_over = match until {
            Until::Time(length) => begun.elapsed() >= length && !calls.is_empty(),
            Until::Calls(count) => made.fetch_add(1, Ordering::Relaxed) >= count,
        };
        if is_over {
            return Ok(calls);
        }
        caller.prepare()?;
        let start = Instant::now();
        let kept = caller.call()?;
        calls.push(Call { kept, us: start.elapsed().as_secs_f64() * 1e6, at: begun.elapsed() });
    }
}
