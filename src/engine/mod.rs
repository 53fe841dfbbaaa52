//! Runs commands: clock, queue, writer, reader, places, opening. Owns threads' meeting points and the life of
//! the file; rules are the core's, bytes are `db`'s. User code never runs inside a write transaction.

pub(crate) mod clock;
pub(crate) mod counters;
mod execute;
mod inside;
pub(crate) mod many;
mod open;
mod places;
pub(crate) mod queue;
pub(crate) mod read;
mod replay_index;
mod scrub;
pub(crate) mod settings;
pub(crate) mod staging;
mod writer;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, RwLock, RwLockReadGuard};

use self::clock::EngineClock;
use self::counters::{Counters, count};
use self::places::Places;
use self::queue::{Queue, Writer};
use self::replay_index::ReplayIndex;
use self::settings::Settings;
use self::writer::{Desk, Draft, Verdict};
use crate::core::error::{Error, ErrorKind};
use crate::core::time::millis;
use crate::db::database::{Db, Failed};
use crate::db::disk::Disk;
use crate::db::fault::Fault;
use crate::db::stored::State;

/// An open store, shared by all its handles.
pub(crate) struct Engine {
    disk: Arc<dyn Disk>,
    settings: Settings,
    clock: EngineClock,
    counters: Counters,
    index: ReplayIndex,
    places: Places,
    queue: Queue<Vec<Draft>, Answers>,
    file: RwLock<File>,
    /// What the last commit said; only the leader moves it.
    tail: Mutex<State>,
    room: Room,
    /// The whole file was checked, when it was opened or by the scrub since.
    checked: AtomicBool,
}

/// Answers to one submission: one verdict a draft, or why none was written.
type Answers = Result<Vec<Verdict>, Error>;

/// The life of the file.
enum File {
    Open(Db),
    /// A failure has stopped the store. The file waits for `reopen`.
    Stopped {
        why: Stop,
        left: Option<Db>,
    },
    Closed,
}

/// Why a store has stopped.
struct Stop {
    what: String,
    cause: Cause,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Cause {
    Failed,
    Full,
    Damaged,
}

/// Whether the disk has room for new commands.
struct Room {
    is_full: AtomicBool,
    /// When to try again, on the monotonic clock.
    try_at: Mutex<Duration>,
}

/// How long to wait before trying again whether the disk has room.
const FULL_RETRY: Duration = Duration::from_secs(1);

impl Engine {
    /// The file, if it is open.
    fn file(&self) -> Result<OpenFile<'_>, Error> {
        let file = self.file.read();
        match &*file {
            File::Open(_) => Ok(OpenFile(file)),
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

    /// Stops the store: no later call touches the file until it is reopened.
    fn stop(&self, fault: &Fault) {
        let (what, cause) = match fault {
            Fault::Full(what) => (format!("the disk is full: {what}"), Cause::Full),
            Fault::Damaged(what) => (what.clone(), Cause::Damaged),
            Fault::Newer(what) | Fault::Io(what) | Fault::Refused(what) => (what.clone(), Cause::Failed),
            Fault::Locked => ("the file is locked by another".to_owned(), Cause::Failed),
        };
        let mut file = self.file.write();
        *file = match std::mem::replace(&mut *file, File::Closed) {
            File::Open(db) => File::Stopped { why: Stop { what, cause }, left: Some(db) },
            // A reader may have met the failed handle before the writer came to tell why it failed.
            File::Stopped { left, .. } if cause == Cause::Full => {
                File::Stopped { why: Stop { what, cause }, left }
            }
            other => other,
        };
    }

    fn damaged(&self, what: &str) -> Error {
        let name = self.disk.name();
        let text = format!("{name} is damaged: {what}; keep the file, run `verify`, restore from a backup");
        Error::new(ErrorKind::Corrupt, text)
    }

    /// A fault of reading, told to the caller. A disk that fails stops the store.
    fn fault(&self, fault: Fault) -> Error {
        let name = self.disk.name();
        match fault {
            Fault::Damaged(what) => self.damaged(&what),
            Fault::Newer(what) => Error::new(
                ErrorKind::UnsupportedFormat,
                format!("{name}: {what}; use the version that wrote it"),
            ),
            Fault::Io(what) | Fault::Full(what) => {
                self.stop(&Fault::Io(what.clone()));
                Error::new(ErrorKind::Unavailable, format!("{name} cannot be read: {what}; reopen the store"))
            }
            Fault::Refused(what) => Error::new(ErrorKind::LimitExceeded, format!("{name}: {what}")),
            Fault::Locked => Error::new(ErrorKind::Locked, format!("{name} is locked by another")),
        }
    }

    /// Whether new commands may be written: not while the disk is full, until its reserve is back with room
    /// to spare.
    fn has_room(&self) -> bool {
        if !self.room.is_full.load(Ordering::Relaxed) {
            return true;
        }
        let now = self.clock.monotonic();
        let mut try_at = self.room.try_at.lock();
        if now < *try_at {
            return false;
        }
        *try_at = now.saturating_add(FULL_RETRY);
        // The blocks that the reserve gave up would make it again and leave none to write with, so that each
        // command would fail in its commit: there has to be as much room beside it.
        let bytes = self.settings.reserve_bytes;
        let beside = self.disk.reserve(bytes.saturating_mul(2));
        let has_room = beside.and_then(|()| self.disk.reserve(bytes)).is_ok();
        self.room.is_full.store(!has_room, Ordering::Relaxed);
        has_room
    }

    fn desk(&self) -> Desk<'_> {
        Desk { clock: &self.clock, counters: &self.counters, index: &self.index, owner: &self.settings.owner }
    }

    /// Wall and engine clock agree, or somebody says that the wall clock is right.
    pub fn confirm_clock(&self) {
        self.clock.confirm();
    }

    pub fn settings(&self) -> &Settings {
        &self.settings
    }
}

/// A guard that proves the file is open.
struct OpenFile<'f>(RwLockReadGuard<'f, File>);

impl std::ops::Deref for OpenFile<'_> {
    type Target = Db;

    fn deref(&self) -> &Db {
        match &*self.0 {
            File::Open(db) => db,
            File::Stopped { .. } | File::Closed => unreachable!("`OpenFile` is made of an open file only"),
        }
    }
}

impl Writer<Vec<Draft>, Answers> for Engine {
    fn write(&self, batch: Vec<Vec<Draft>>) -> Vec<Answers> {
        let written = match self.file() {
            Ok(db) => {
                let drafts: Vec<&Draft> = batch.iter().flatten().collect();
                // Not locked while the disk works: who reads the numbers does not wait for a commit.
                let mut tail = self.tail.lock().clone();
                let written = writer::write(&db, &mut tail, &drafts, &self.desk());
                *self.tail.lock() = tail;
                written
            }
            Err(stopped) => return batch.iter().map(|_| Err(stopped.share())).collect(),
        };
        match written {
            Ok(verdicts) => {
                let mut verdicts = verdicts.into_iter();
                batch.iter().map(|drafts| Ok(verdicts.by_ref().take(drafts.len()).collect())).collect()
            }
            Err(failed) => {
                let error = self.failed(failed);
                batch.iter().map(|_| Err(error.share())).collect()
            }
        }
    }

    fn abandoned(&self) -> Answers {
        self.stop(&Fault::Io("a writer panicked".to_owned()));
        count(&self.counters.uncertain_commits);
        Err(Error::new(ErrorKind::CommitUncertain, "the writer panicked; reopen the store and ask again"))
    }
}

impl Engine {
    /// A batch that did not end well stops the store: only what is read back after a reopen can be believed.
    fn failed(&self, failed: Failed) -> Error {
        let name = self.disk.name();
        match failed {
            Failed::Before(fault) => {
                self.stop(&fault);
                match fault {
                    Fault::Damaged(_) | Fault::Newer(_) => self.fault(fault),
                    other => Error::new(
                        ErrorKind::Unavailable,
                        format!("{name}: nothing was written ({other}); reopen the store"),
                    ),
                }
            }
            Failed::Uncertain(fault) => {
                self.stop(&fault);
                count(&self.counters.uncertain_commits);
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

/// Random bytes of the operating system.
pub(crate) fn random<const N: usize>() -> Result<[u8; N], Error> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|fault| {
        let text = format!("the operating system gives no random bytes: {fault}");
        Error::new(ErrorKind::Unavailable, text)
    })?;
    Ok(bytes)
}

/// A span that a caller can be told, never zero.
fn told(span: Duration) -> Duration {
    Duration::from_millis(millis(span).max(1))
}
