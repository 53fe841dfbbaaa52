//! What threads share, as loom explores it; and the orderings, each of which can be weakened by its name.

pub(super) use loom::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A lock with the calls of the engine's.
pub(super) struct Mutex<T>(loom::sync::Mutex<T>);

impl<T> Mutex<T> {
    pub fn new(value: T) -> Self {
        Self(loom::sync::Mutex::new(value))
    }

    pub fn lock(&self) -> loom::sync::MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(|_| unreachable!("nobody panics with the lock"))
    }

    pub fn try_lock(&self) -> Option<loom::sync::MutexGuard<'_, T>> {
        self.0.try_lock().ok()
    }
}

/// As `src/engine/replay_index/sync.rs` has them.
pub(super) mod order {
    use std::cell::Cell;

    use loom::sync::atomic::Ordering::{self, Acquire, Relaxed, Release};
    use loom::sync::atomic::fence;

    /// An ordering that was forgotten.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Mistake {
        ReaderBegins,
        ReaderFence,
        WriterFence,
        WriterEnds,
        Stamp,
        Change,
    }

    thread_local! {
        // All threads of a model run on one thread of the system.
        static FORGOTTEN: Cell<Option<Mistake>> = const { Cell::new(None) };
    }

    /// Forgets one ordering, for the models that this thread runs.
    pub fn forget(mistake: Mistake) {
        FORGOTTEN.set(Some(mistake));
    }

    fn unless(mistake: Mistake, ordering: Ordering) -> Ordering {
        if FORGOTTEN.get() == Some(mistake) { Relaxed } else { ordering }
    }

    fn fence_unless(mistake: Mistake, ordering: Ordering) {
        if FORGOTTEN.get() != Some(mistake) {
            fence(ordering);
        }
    }

    pub fn reader_begins() -> Ordering {
        unless(Mistake::ReaderBegins, Acquire)
    }

    pub fn reader_fence() {
        fence_unless(Mistake::ReaderFence, Acquire);
    }

    pub fn writer_fence() {
        fence_unless(Mistake::WriterFence, Release);
    }

    pub fn writer_ends() -> Ordering {
        unless(Mistake::WriterEnds, Release)
    }

    pub fn stamp() -> Ordering {
        unless(Mistake::Stamp, Acquire)
    }

    pub fn change() -> Ordering {
        unless(Mistake::Change, Release)
    }
}
