//! Runs commands: clock, queue, writer, reader, places, opening. Owns threads' meeting points and the life of
//! the file; rules are the core's, bytes are `db`'s. User code never runs inside a write transaction.

pub(crate) mod authority;
pub(crate) mod cases;
pub(crate) mod claims;
pub(crate) mod clock;
pub(crate) mod counters;
mod draft;
mod execute;
pub(crate) mod export;
mod file;
pub(crate) mod import;
mod inside;
mod leases;
mod line;
pub(crate) mod many;
pub(crate) mod messages;
mod open;
mod places;
pub(crate) mod post;
pub(crate) mod queue;
pub(crate) mod read;
pub(crate) mod replay_index;
mod scrub;
pub(crate) mod settings;
pub(crate) mod staging;
mod stripes;
mod sync;
mod turns;
mod writer;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use self::clock::EngineClock;
use self::counters::{Counters, count};
use self::draft::{Draft, Verdict};
use self::file::Life;
use self::leases::Leases;
use self::places::Places;
use self::post::PostOffice;
use self::queue::{Queue, Writer};
use self::replay_index::ReplayIndex;
use self::settings::Settings;
use self::writer::Desk;
use crate::core::error::{Error, ErrorKind};
use crate::core::time::millis;
use crate::db::disk::Disk;
use crate::db::fault::Fault;
use crate::db::stored::State;

/// An open store, shared by all its handles.
pub(crate) struct Engine {
    disk: Arc<dyn Disk>,
    store_id: [u8; 16],
    settings: Settings,
    clock: EngineClock,
    counters: Counters,
    index: ReplayIndex,
    places: Places,
    leases: Leases,
    post: PostOffice,
    /// When this process opened the store, on the monotonic clock.
    opened: Duration,
    queue: Queue<Vec<Draft>, Answers>,
    file: Life,
    /// What the last commit said; only the leader moves it.
    tail: Mutex<State>,
    room: Room,
    /// The whole file was checked, when it was opened or by the scrub since.
    checked: AtomicBool,
    /// Whether a tenant may be another store's: usually none is, and nobody looks.
    has_units: AtomicBool,
}

/// Answers to one submission: one verdict a draft, or why none was written.
type Answers = Result<Vec<Verdict>, Error>;

/// Whether the disk has room for new commands.
struct Room {
    is_full: AtomicBool,
    /// When to try again, on the monotonic clock.
    try_at: Mutex<Duration>,
}

/// How long to wait before trying again whether the disk has room.
const FULL_RETRY: Duration = Duration::from_secs(1);

impl Engine {
    /// Whether new commands may be written: not while the disk is full, until its reserve is back with room
    /// to spare.
    fn has_room(&self) -> bool {
        if !self.room.is_full.load(Ordering::Relaxed) {
            return true;
        }
        {
            // One caller looks, without keeping the others; until it knows better they are refused at once.
            let now = self.clock.monotonic();
            let mut try_at = self.room.try_at.lock();
            if now < *try_at {
                return false;
            }
            *try_at = now.saturating_add(FULL_RETRY);
        }
        // The blocks that the reserve gave up would make it again and leave none to write with, so that each
        // command would fail in its commit: there has to be as much room beside it.
        let bytes = self.settings.reserve_bytes;
        let beside = self.disk.reserve(bytes.saturating_mul(2));
        let has_room = beside.and_then(|()| self.disk.reserve(bytes)).is_ok();
        self.room.is_full.store(!has_room, Ordering::Relaxed);
        has_room
    }

    fn desk(&self) -> Desk<'_> {
        Desk {
            clock: &self.clock,
            counters: &self.counters,
            leases: &self.leases,
            post: &self.post,
            opened: self.opened,
            open_max: self.settings.open_max,
        }
    }

    /// Believes the wall clock from now on, if it is suspect.
    pub fn confirm_clock(&self) {
        self.clock.confirm();
    }

    pub fn settings(&self) -> &Settings {
        &self.settings
    }
}

impl Engine {
    /// Damage met while a command was decided is told like any other: where it is and what to do.
    fn placed(&self, verdict: Verdict) -> Verdict {
        match verdict {
            Verdict::Fault(fault) if fault.kind() == ErrorKind::Corrupt => {
                Verdict::Fault(self.damaged(&fault.to_string()))
            }
            other => other,
        }
    }
}

impl Writer<Vec<Draft>, Answers> for Engine {
    fn write(&self, batch: Vec<Vec<Draft>>) -> Vec<Answers> {
        let (written, opening) = match self.file() {
            Ok(db) => {
                let drafts: Vec<&Draft> = batch.iter().flatten().collect();
                // Not locked while the disk works: who reads the numbers does not wait for a commit.
                let mut tail = self.tail.lock().clone();
                let written = writer::write(&db, &mut tail, &drafts, &self.desk());
                *self.tail.lock() = tail;
                (written, db.opening())
            }
            Err(stopped) => return batch.iter().map(|_| Err(stopped.share())).collect(),
        };
        match written {
            Ok(verdicts) => {
                let mut verdicts = verdicts.into_iter().map(|verdict| self.placed(verdict));
                batch.iter().map(|drafts| Ok(verdicts.by_ref().take(drafts.len()).collect())).collect()
            }
            Err(failed) => {
                let error = self.failed(opening, failed);
                batch.iter().map(|_| Err(error.share())).collect()
            }
        }
    }

    fn abandoned(&self) -> Answers {
        if self.stop(None, &Fault::Io("a writer panicked".to_owned())) {
            count(&self.counters.uncertain_commits);
        }
        Err(Error::new(ErrorKind::CommitUncertain, "the writer panicked; reopen the store and ask again"))
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
