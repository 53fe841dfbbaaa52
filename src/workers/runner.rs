//! Threads that tick: how they sleep, are woken, and stop. Owns their life; must not know what a tick does.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::outbox::SLEEP_MAX;
use super::{Ticked, Workers};
use crate::core::error::{Error, ErrorKind};
use crate::core::time::Timestamp;
use crate::engine::clock::Deadline;

/// The longest sleep while something is due later: the store's clock may be moved meanwhile.
const WAIT_MAX: Duration = Duration::from_secs(1);
/// How long a thread waits after a tick that failed.
const FAILED_WAIT: Duration = Duration::from_secs(1);

/// Workers on threads of their own. Dropped, it tells them to stop and waits for nobody; a message that is
/// being delivered then is ended still.
///
/// ```
/// use std::time::Duration;
/// # use onecho::{testing::SimDisk, *};
/// const UPLOAD: Destination<Bytes> = Destination::raw("telemetry", Contract::Idempotent);
/// # let store = SimDisk::seeded(1).open(Options::new())?;
/// let running = Workers::new(&store).deliver(&UPLOAD, |_, _| Ok(Delivered::Done(None))).start()?;
/// store.enqueue(&Tenant::new("device"), &[Message::new(&UPLOAD, &Bytes::from_static(b"1,2"))?])?;
/// assert!(running.health().alive);
/// running.stop(Duration::from_secs(60))?;
/// # Ok::<(), BoxError>(())
/// ```
#[must_use]
pub struct Running(Arc<Shared>);

struct Shared {
    workers: Workers,
    is_stopping: AtomicBool,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Threads that have not ended.
    alive: usize,
    started: usize,
    last_error: Option<String>,
}

/// How a runner is.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Health {
    /// All its threads run, and it is not stopping.
    pub alive: bool,
    /// When the first message that waits was due, if it is due already.
    pub oldest_due: Option<Timestamp>,
    /// Ordering keys of the store that wait for somebody who settles their first message.
    pub keys_blocked: u64,
    /// What the last tick that failed said; none once one has succeeded.
    pub last_error: Option<String>,
}

impl Running {
    #[expect(clippy::disallowed_methods, reason = "these are the threads that somebody asked for")]
    pub(super) fn start(workers: Workers) -> Result<Self, Error> {
        let threads = workers.threads;
        let state = Mutex::new(State { alive: 0, started: threads, last_error: None });
        let is_stopping = AtomicBool::new(false);
        let shared = Arc::new(Shared { workers, is_stopping, state, changed: Condvar::new() });
        let running = Self(Arc::clone(&shared));
        for number in 0..threads {
            let shared = Arc::clone(&shared);
            shared.state.lock().alive += 1;
            let alive = Alive(shared);
            let spawned =
                thread::Builder::new().name(format!("onecho-worker-{number}")).spawn(move || alive.0.run());
            if let Err(fault) = spawned {
                // The others are told to stop as `running` goes.
                let text = format!("the system gives no thread for a worker: {fault}");
                return Err(Error::new(ErrorKind::Unavailable, text));
            }
        }
        Ok(running)
    }

    /// How the workers are. Reads the first rows of what is due.
    #[must_use]
    pub fn health(&self) -> Health {
        let engine = self.0.workers.store.engine();
        let now = engine.moment().0;
        let oldest_due = self.0.workers.oldest_due().ok().flatten().filter(|due| *due <= now);
        let keys_blocked = self.0.workers.store.stats().keys_blocked;
        let state = self.0.state.lock();
        let alive = state.alive == state.started && !self.0.is_stopping.load(Ordering::Relaxed);
        Health { alive, oldest_due, keys_blocked, last_error: state.last_error.clone() }
    }

    /// Stops: no further message is begun, what was taken and not begun is given back, and the ends of those
    /// that are being delivered are recorded. Waits for that, `within` at most.
    ///
    /// # Errors
    ///
    /// `Unavailable` when a closure still runs then. Its thread goes on until it returns, and records its
    /// end if the store is open still; else the attempt counts as unknown.
    pub fn stop(self, within: Duration) -> Result<(), Error> {
        self.0.tell_to_stop();
        let deadline = Deadline::after(within);
        let mut state = self.0.state.lock();
        while state.alive > 0 {
            let left = deadline.left();
            if left.is_zero() {
                let text =
                    format!("{} workers are still in a closure; they stop when it returns", state.alive);
                return Err(Error::new(ErrorKind::Unavailable, text));
            }
            self.0.changed.wait_for(&mut state, left);
        }
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.tell_to_stop();
    }
}

impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Running").field("workers", &self.0.workers).finish_non_exhaustive()
    }
}

/// A thread that has not ended, however it does.
struct Alive(Arc<Shared>);

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.state.lock().alive -= 1;
        self.0.changed.notify_all();
    }
}

impl Shared {
    fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Acquire)
    }

    fn tell_to_stop(&self) {
        self.is_stopping.store(true, Ordering::Release);
        self.workers.store.engine().post_office().ring();
    }

    fn run(&self) {
        let post = self.workers.store.engine().post_office();
        while !self.is_stopping() {
            // Asked before the look: what is rung from then on is not slept through.
            let rung = post.rung();
            let ticked = self.workers.tick_while(&|| self.is_stopping());
            match ticked.and_then(|ticked| Ok((ticked, self.workers.next_due()?))) {
                Ok((ticked, next)) => {
                    self.state.lock().last_error = None;
                    self.sleep(rung, ticked == Ticked::default(), next);
                }
                Err(error) => {
                    let is_closed = error.kind() == ErrorKind::Closed;
                    self.state.lock().last_error = Some(error.to_string());
                    if is_closed {
                        return;
                    }
                    post.wait(rung, Some(FAILED_WAIT));
                }
            }
        }
    }

    /// Sleeps until the bell rings or something is due. `is_idle`: there was nothing for this thread to do,
    /// so what is due already is in others' hands, or for a program that knows what to do with it.
    fn sleep(&self, rung: u32, is_idle: bool, next: Duration) {
        let span = match next {
            Duration::ZERO if is_idle => WAIT_MAX,
            // Others may have begun something since, and nothing rings for that.
            next if next >= SLEEP_MAX => SLEEP_MAX,
            // The store's clock may be moved.
            next => next.min(WAIT_MAX),
        };
        if !span.is_zero() && !self.is_stopping() {
            self.workers.store.engine().post_office().wait(rung, Some(span));
        }
    }
}
