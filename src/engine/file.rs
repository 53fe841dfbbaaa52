//! The life of the file: open, stopped by a failure, closed. Owns who may touch it and what callers are told
//! when nobody may; must not know how it is opened.
//!
//! Who reads or writes holds a read lock of the file's slot, not of the state: a failure can stop the store
//! while a long look goes on, and only a reopen or a close waits until it has ended.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::lock_api::ArcRwLockReadGuard;
use parking_lot::{RawRwLock, RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::Engine;
use super::counters::count;
use crate::core::error::{Error, ErrorKind};
use crate::db::commit::Failed;
use crate::db::database::Db;
use crate::db::fault::Fault;

/// The open file; empty once it has been taken out to be closed.
pub(super) struct Slot(Arc<RwLock<Option<Db>>>);

/// Which opening of the file it is: a failure met on an earlier one says nothing about this one.
pub(super) type Opening = u64;

pub(super) enum File {
    Open {
        slot: Slot,
        opening: Opening,
    },
    /// A failure has stopped the store. The file waits for `reopen`.
    Stopped {
        why: Stop,
        left: Option<Slot>,
        opening: Opening,
    },
    Closed,
}

/// Why a store has stopped.
pub(super) struct Stop {
    what: String,
    pub(super) cause: Cause,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Cause {
    Failed,
    Full,
    Damaged,
}

/// The state of the file, and whether it is open in a word of its own: who is answered from memory takes no
/// lock.
pub(super) struct Life {
    state: RwLock<File>,
    is_open: AtomicBool,
}

impl Life {
    pub fn new(state: File) -> Self {
        let is_open = AtomicBool::new(matches!(state, File::Open { .. }));
        Self { state: RwLock::new(state), is_open }
    }

    /// Whether the file is open; at once, without a lock. True only if all that an opening did is seen too.
    #[inline]
    pub fn is_open(&self) -> bool {
        self.is_open.load(Ordering::Acquire)
    }

    pub fn read(&self) -> RwLockReadGuard<'_, File> {
        self.state.read()
    }

    pub fn write(&self) -> Turn<'_> {
        Turn { state: self.state.write(), is_open: &self.is_open }
    }
}

/// The right to change the state. The word follows when it ends, before the lock is given back.
pub(super) struct Turn<'l> {
    state: RwLockWriteGuard<'l, File>,
    is_open: &'l AtomicBool,
}

impl std::ops::Deref for Turn<'_> {
    type Target = File;

    fn deref(&self) -> &File {
        &self.state
    }
}

impl std::ops::DerefMut for Turn<'_> {
    fn deref_mut(&mut self) -> &mut File {
        &mut self.state
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.is_open.store(matches!(*self.state, File::Open { .. }), Ordering::Release);
    }
}

impl Slot {
    pub fn new(db: Db) -> Self {
        Self(Arc::new(RwLock::new(Some(db))))
    }

    /// Takes the file out, once nobody uses it any more.
    pub fn take(self) -> Option<Db> {
        self.0.write().take()
    }
}

/// Proves that the file is open, and keeps it so.
pub(super) struct OpenFile {
    slot: ArcRwLockReadGuard<RawRwLock, Option<Db>>,
    opening: Opening,
}

impl OpenFile {
    pub fn opening(&self) -> Opening {
        self.opening
    }
}

impl std::ops::Deref for OpenFile {
    type Target = Db;

    fn deref(&self) -> &Db {
        // A slot is emptied only after the state has let go of it, and then waits for those who hold it.
        self.slot.as_ref().unwrap_or_else(|| unreachable!("a held slot is full"))
    }
}

impl Engine {
    /// The file, if it is open.
    pub(super) fn file(&self) -> Result<OpenFile, Error> {
        let file = self.file.read();
        match &*file {
            File::Open { slot, opening } => {
                Ok(OpenFile { slot: RwLock::read_arc(&slot.0), opening: *opening })
            }
            File::Stopped { why: Stop { what, cause: Cause::Damaged }, .. } => Err(self.damaged(what)),
            File::Stopped { why, .. } => Err(Error::new(
                ErrorKind::Unavailable,
                format!(
                    "{}: the store has stopped ({}); `reopen` it, or open it again",
                    self.disk.name(),
                    why.what
                ),
            )),
            File::Closed => {
                let text = format!("{}: the store was closed", self.disk.name());
                Err(Error::new(ErrorKind::Closed, text))
            }
        }
    }

    /// Stops the store: no later call touches the file until it is reopened. A fault met on another opening
    /// than the present one stops nothing; `None` stops any. True if it was this call that stopped it.
    ///
    /// Nobody may hold an [`OpenFile`] and call this: a reopen waits for all of them with the state locked.
    pub(super) fn stop(&self, met_on: Option<Opening>, fault: &Fault) -> bool {
        let (what, cause) = match fault {
            Fault::Full(what) => (format!("the disk is full: {what}"), Cause::Full),
            Fault::Damaged(what) => (what.clone(), Cause::Damaged),
            other => (other.to_string(), Cause::Failed),
        };
        let mut file = self.file.write();
        let is_of_another = |opening| met_on.is_some_and(|met_on| met_on != opening);
        match std::mem::replace(&mut *file, File::Closed) {
            File::Open { slot, opening } if !is_of_another(opening) => {
                self.leases.pause(self.clock.monotonic());
                *file = File::Stopped { why: Stop { what, cause }, left: Some(slot), opening };
                true
            }
            // A reader may have met the failed handle before the writer came to tell why it failed.
            File::Stopped { left, opening, .. } if cause == Cause::Full && !is_of_another(opening) => {
                *file = File::Stopped { why: Stop { what, cause }, left, opening };
                false
            }
            other => {
                *file = other;
                false
            }
        }
    }

    pub(super) fn damaged(&self, what: &str) -> Error {
        let name = self.disk.name();
        let text = format!("{name} is damaged: {what}; keep the file, run `verify`, restore from a backup");
        Error::new(ErrorKind::Corrupt, text)
    }

    /// A fault of reading, told to the caller. A disk that fails stops the store.
    pub(super) fn fault(&self, met_on: Opening, fault: Fault) -> Error {
        let name = self.disk.name();
        match fault {
            Fault::Damaged(what) => self.damaged(&what),
            Fault::Newer(what) => Error::new(
                ErrorKind::UnsupportedFormat,
                format!("{name}: {what}; use the version that wrote it"),
            ),
            Fault::Io(what) | Fault::Full(what) => {
                self.stop(Some(met_on), &Fault::Io(what.clone()));
                Error::new(ErrorKind::Unavailable, format!("{name} cannot be read: {what}; reopen the store"))
            }
            Fault::Refused(what) => Error::new(ErrorKind::LimitExceeded, format!("{name}: {what}")),
            Fault::Locked => Error::new(ErrorKind::Locked, format!("{name} is locked by another")),
        }
    }

    /// A batch that did not end well stops the store: only what is read back after a reopen can be believed.
    pub(super) fn failed(&self, met_on: Opening, failed: Failed) -> Error {
        let name = self.disk.name();
        match failed {
            // Nothing is wrong with the file.
            Failed::Before(fault @ Fault::Refused(_)) => self.fault(met_on, fault),
            Failed::Before(fault) => {
                self.stop(Some(met_on), &fault);
                match fault {
                    Fault::Damaged(_) | Fault::Newer(_) => self.fault(met_on, fault),
                    other => Error::new(
                        ErrorKind::Unavailable,
                        format!("{name}: nothing was written ({other}); reopen the store"),
                    ),
                }
            }
            Failed::Uncertain(fault) => {
                if self.stop(Some(met_on), &fault) {
                    count(&self.counters.uncertain_commits);
                }
                Error::new(
                    ErrorKind::CommitUncertain,
                    format!(
                        "{name}: the commit failed ({fault}), so it is not known whether it is in the file; \
                         reopen the store and ask again with the same key"
                    ),
                )
            }
        }
    }
}
