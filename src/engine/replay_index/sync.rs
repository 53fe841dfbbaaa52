//! What two threads share, behind one door: a model checker stands in for it (`tests/loom`), and weakens
//! each ordering by its name to see whether anybody would notice.

pub(super) use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

pub(super) use parking_lot::Mutex;

/// The orderings that the protocol rests on. Everything else is relaxed.
pub(super) mod order {
    use std::sync::atomic::Ordering::{self, Acquire, Release};
    use std::sync::atomic::fence;

    /// The reader's first look at a sequence number: the words that it copies are at least as new.
    pub(in super::super) const fn reader_begins() -> Ordering {
        Acquire
    }

    /// Before the reader's second look: it is not older than the words that were copied.
    pub(in super::super) fn reader_fence() {
        fence(Acquire);
    }

    /// Behind the odd number: who sees a word of this change sees the odd number too.
    pub(in super::super) fn writer_fence() {
        fence(Release);
    }

    /// The even number behind a change: who sees it sees all of the change.
    pub(in super::super) const fn writer_ends() -> Ordering {
        Release
    }

    /// A filler's look at the count of changes, before it reads the file: the file is at least as new.
    pub(in super::super) const fn stamp() -> Ordering {
        Acquire
    }

    /// The count of changes is raised behind the commit that it speaks of.
    pub(in super::super) const fn change() -> Ordering {
        Release
    }
}
