//! A disk in memory that keeps, drops, reorders and tears what was not synced (feature `testing`).
//!
//! Owns the simulated directory: the store's name, its temporary names, its reserve. The parts: [`pages`]
//! bytes that are cheap to copy; [`model`] what is durable and what is pending; [`crash`] the states a
//! power cut may leave; [`state`] the running disk with its faults; [`backend`] a file as redb sees it;
//! [`rng`] the randomness. None of them may know what a store keeps in its file.
//!
//! # The model
//! A write or a resize is pending until a sync of its file that began later has ended well; a creation,
//! rename or removal until the directory is synced. A power cut keeps or loses each pending change on its
//! own, tears a kept write at 4096 or 512 bytes or at one (always at one in the first 512 bytes of a file,
//! where redb has its header), and may fill a sector that did not arrive with random bytes (never there).
//! If a growth is lost, a kept write past the old end is lost too or extends the file with zeros. What was
//! synced never changes.

#![expect(clippy::cast_possible_truncation, reason = "an image in memory is far smaller than any usize")]

mod backend;
pub(crate) mod crash;
pub(crate) mod model;
pub(crate) mod pages;
pub(crate) mod rng;
mod state;

use std::fmt;
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use self::backend::SimFile;
use self::crash::{Log, Plan};
use self::model::{FileId, Image, Logged, Name};
use self::state::State;
use super::disk::{Disk, Found, HEAD_BYTES_MAX, Published, Settled, creation_under_way};
use super::dry_run::DryRun;

const STORE: &str = "store";
const RESERVE: &str = "store.reserve";
const TEMPORARY_PREFIX: &str = "store.new-";

/// A disk in memory that keeps, drops, reorders and tears what was not synced. Same seed and same calls,
/// same disk.
///
/// A clone is the same disk. What a power cut leaves is a disk of its own, see [`SimDisk::crash`].
///
/// ```
/// use onecho::testing::{Fault, SimDisk};
///
/// let disk = SimDisk::seeded(1);
/// disk.fail(Fault::Sync, 3); // the first sync after three more operations
/// assert_eq!(disk.operations(), 0); // nobody has opened a store on it yet
/// let after = disk.crash(); // and nothing is left of nothing
/// assert_eq!(after.operations(), 0);
/// ```
pub struct SimDisk {
    shared: Arc<Shared>,
    /// The creation under way through this clone.
    temporary: Mutex<Option<(Name, FileId)>>,
}

/// Something that goes wrong on a [`SimDisk`] while the process lives on.
///
/// [`SimDisk::fail`] says from which operation on; the fault then waits for the first operation it can hit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// One read fails. The bytes are unharmed: the next read of them succeeds.
    Read,
    /// One write fails, and nothing of it arrives. The next write succeeds.
    Write,
    /// One sync fails, of the file or of its directory.
    ///
    /// Of a file: nothing that was pending becomes durable, and never will. Reads go on returning it and
    /// later syncs succeed without it, because the system holds those pages for clean; when cached pages
    /// are dropped before a reopen, reads return what is durable. A byte written anew is pending anew. Of a
    /// directory: its names stay pending, a later sync may make them durable.
    Sync,
    /// One sync, of the file or of its directory, says that it succeeded, and nothing became durable: what
    /// was pending stays pending, and a later sync may make it durable.
    LyingSync,
    /// The disk is full from then on: every write to bytes that have no block yet and every growth fails
    /// with `StorageFull` and changes nothing. A file that shrinks, and the reserve when it is released,
    /// give blocks back that can be used. Lasts until [`SimDisk::heal`].
    NoSpace,
    /// Every sync of a file takes this much longer from then on, other operations going on beside it. Lasts
    /// until [`SimDisk::heal`] or another one; a power cut ends the wait.
    SlowSync(Duration),
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// A slow sync waits here for its time, a heal or the power cut.
    woken: Condvar,
}

impl Shared {
    fn sync(&self, file: FileId) -> io::Result<()> {
        let mut state = self.state.lock();
        let syncing = state.sync_begin(file)?;
        if !syncing.delay.is_zero() {
            let waiting = |state: &mut State| !state.cut && !state.sync_delay.is_zero();
            self.woken.wait_while_for(&mut state, waiting, syncing.delay);
        }
        state.sync_end(syncing)
    }
}

impl SimDisk {
    /// An empty disk. The seed decides what crashes leave, nothing else.
    pub fn seeded(seed: u64) -> Self {
        Self::at_rest(seed, Image::default())
    }

    /// What a power cut leaves now: one of the legal states, chosen by the seed and the crashes before.
    /// Whoever still has the old disk open is cut off, every operation there fails from now on.
    #[must_use]
    pub fn crash(&self) -> SimDisk {
        let mut state = self.shared.state.lock();
        let pending = state.model.pending_len();
        let image = Plan::any(&mut state.rng, pending).image(&state.model);
        let seed = state.rng.next();
        state.cut = true;
        self.shared.woken.notify_all();
        Self::at_rest(seed, image)
    }

    /// Arms a fault: it hits the first operation it can hit once `after_operations` more have begun, so 0 is
    /// the next such operation. Faults add up; each of the passing kinds hits once.
    pub fn fail(&self, fault: Fault, after_operations: u64) {
        self.shared.state.lock().arm(fault, after_operations);
    }

    /// Ends every fault: armed ones are forgotten, the disk has space again, syncs are quick. What a failed
    /// sync lost stays lost.
    pub fn heal(&self) {
        self.shared.state.lock().heal();
        self.shared.woken.notify_all();
    }

    /// How many operations have begun so far: reads, writes, resizes, syncs, and changes of names. Asking for
    /// a length is none.
    pub fn operations(&self) -> u64 {
        self.shared.state.lock().operations
    }

    /// A disk on which everything is durable.
    pub(crate) fn at_rest(seed: u64, image: Image) -> Self {
        let state = Mutex::new(State::at_rest(seed, image));
        Self { shared: Arc::new(Shared { state, woken: Condvar::new() }), temporary: Mutex::new(None) }
    }

    /// Starts a log of every operation, from the present state on; one that ran before is dropped. Without it
    /// nothing is kept of what was done, so that a long run costs no memory.
    pub(crate) fn record(&self) {
        let mut state = self.shared.state.lock();
        state.log = Some(Log { seed: state.seed, base: state.model.clone(), lines: Vec::new() });
    }

    /// The log so far; an empty one of the present state if none was started.
    pub(crate) fn recorded(&self) -> Log {
        let state = self.shared.state.lock();
        let none = || Log { seed: state.seed, base: state.model.clone(), lines: Vec::new() };
        state.log.clone().unwrap_or_else(none)
    }

    /// Notes in the log that something outside was told: what was acknowledged before it must survive.
    pub(crate) fn mark(&self) {
        let mut state = self.shared.state.lock();
        if !state.cut {
            state.note(Logged::Mark);
        }
    }

    /// The store's file, or why there is none.
    fn file(&self) -> io::Result<FileId> {
        let state = self.shared.state.lock();
        state.powered()?;
        state.live.named(STORE).ok_or_else(no_such_file)
    }

    /// Best effort, as on a real disk.
    fn remove_stale(&self) {
        let mut state = self.shared.state.lock();
        let names = state.live.names.keys();
        let stale: Vec<Name> = names.filter(|name| name.starts_with(TEMPORARY_PREFIX)).cloned().collect();
        for name in stale {
            let _ = state.remove(name);
        }
    }

    fn publish_file(&self, name: &Name, file: FileId) -> io::Result<Published> {
        self.shared.sync(file)?;
        let mut state = self.shared.state.lock();
        let taken = state.live.named(STORE).is_some();
        if taken {
            state.remove(name.clone())?;
        } else if state.live.named(name) == Some(file) {
            state.rename(file, name.clone(), STORE.into())?;
        } else {
            return Err(no_such_file());
        }
        state.sync_directory()?;
        drop(state);
        if taken {
            return Ok(Published::AlreadyThere);
        }
        self.remove_stale();
        Ok(Published::Done)
    }
}

impl Clone for SimDisk {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone(), temporary: Mutex::new(None) }
    }
}

impl fmt::Debug for SimDisk {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.shared.state.lock();
        out.debug_struct("SimDisk")
            .field("seed", &state.seed)
            .field("operations", &state.operations)
            .field("cut", &state.cut)
            .finish_non_exhaustive()
    }
}

impl Disk for SimDisk {
    fn name(&self) -> String {
        format!("simulated disk (seed {})", self.shared.state.lock().seed)
    }

    fn look(&self) -> io::Result<Found> {
        let file = match self.file() {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Found::Missing),
            file => file?,
        };
        let mut state = self.shared.state.lock();
        let len = state.len(file)?;
        if len == 0 {
            return Ok(Found::Empty);
        }
        let mut head = vec![0; usize::try_from(len.min(HEAD_BYTES_MAX)).unwrap_or(usize::MAX)];
        state.read(file, 0, &mut head)?;
        Ok(Found::File { len, head })
    }

    fn create(&self, builder: &mut redb::Builder) -> Result<redb::Database, redb::DatabaseError> {
        let mut temporary = self.temporary.lock();
        if temporary.is_some() {
            return Err(creation_under_way().into());
        }
        let mut state = self.shared.state.lock();
        let mut name: Name = format!("{TEMPORARY_PREFIX}{}", state.serial()).into();
        while state.live.names.contains_key(&name) {
            name = format!("{TEMPORARY_PREFIX}{}", state.serial()).into();
        }
        let file = state.create(name.clone())?;
        drop(state);
        *temporary = Some((name, file));
        builder.create_with_backend(SimFile::new(self.shared.clone(), file, true))
    }

    fn publish(&self) -> io::Result<Published> {
        let mut temporary = self.temporary.lock();
        let Some((name, file)) = temporary.as_ref() else {
            return Err(io::Error::new(ErrorKind::InvalidInput, "there is no new file to publish"));
        };
        let published = self.publish_file(name, *file)?;
        *temporary = None;
        Ok(published)
    }

    fn discard(&self) {
        if let Some((name, _)) = self.temporary.lock().take() {
            let _ = self.shared.state.lock().remove(name);
        }
    }

    fn settle(&self) -> io::Result<Settled> {
        let file = self.file()?;
        self.shared.sync(file)?;
        self.shared.state.lock().drop_cached(file);
        Ok(Settled { pages_dropped: true })
    }

    fn open(&self, builder: &mut redb::Builder) -> Result<redb::Database, redb::DatabaseError> {
        let file = self.file()?;
        self.shared.state.lock().sync_directory()?;
        let database = builder.create_with_backend(SimFile::new(self.shared.clone(), file, false))?;
        self.remove_stale();
        Ok(database)
    }

    fn dry_run(&self, builder: &mut redb::Builder) -> Result<redb::Database, redb::DatabaseError> {
        let file = SimFile::new(self.shared.clone(), self.file()?, false);
        builder.create_with_backend(DryRun::new(file)?)
    }

    fn file_bytes(&self) -> io::Result<u64> {
        let file = self.file()?;
        self.shared.state.lock().len(file)
    }

    fn lock_holder(&self) -> Option<u32> {
        let file = self.file().ok()?;
        self.shared.state.lock().is_locked(file).then(std::process::id)
    }

    fn reserve(&self, bytes: u64) -> io::Result<()> {
        let mut state = self.shared.state.lock();
        let existing = state.live.named(RESERVE);
        if bytes == 0 {
            drop(state);
            return self.release_reserve().map(|_| ());
        }
        if existing.is_some_and(|file| state.len(file).is_ok_and(|len| len == bytes)) {
            return Ok(());
        }
        let file = match existing {
            Some(file) => file,
            None => state.create(RESERVE.into())?,
        };
        if let Err(error) = state.allocate(file, bytes) {
            if existing.is_none() {
                let _ = state.remove(RESERVE.into());
            }
            return Err(error);
        }
        if state.len(file)? > bytes {
            state.set_len(file, bytes)?;
        }
        drop(state);
        self.shared.sync(file)?;
        self.shared.state.lock().sync_directory()
    }

    fn release_reserve(&self) -> io::Result<bool> {
        let mut state = self.shared.state.lock();
        let Some(file) = state.live.named(RESERVE) else {
            return Ok(false);
        };
        let had = state.blocks_bytes(file) > 0;
        state.set_len(file, 0)?;
        drop(state);
        self.shared.sync(file)?;
        self.shared.state.lock().remove(RESERVE.into())?;
        Ok(had)
    }

    fn reserve_bytes(&self) -> u64 {
        let state = self.shared.state.lock();
        let Some(file) = state.live.named(RESERVE) else {
            return 0;
        };
        state.blocks_bytes(file).min(state.len(file).unwrap_or(0))
    }
}

fn no_such_file() -> io::Error {
    io::Error::new(ErrorKind::NotFound, "simulated: no such file")
}

#[cfg(test)]
mod tests;
