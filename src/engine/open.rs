//! Opening, reopening and closing a store. Owns what a person is told when a file cannot be opened.

use std::io::ErrorKind as IoKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use super::clock::EngineClock;
use super::counters::Counters;
use super::file::{Cause, File, Life, Slot};
use super::leases::Leases;
use super::places::Places;
use super::post::PostOffice;
use super::queue::Queue;
use super::replay_index::ReplayIndex;
use super::settings::Settings;
use super::writer::CLASSES_MAX;
use super::{Engine, Room, random};
use crate::core::authority::Units;
use crate::core::error::{Error, ErrorKind};
use crate::core::policy::{Policy, Windows};
use crate::core::record::ClassId;
use crate::db::commit::{Batch, Failed};
use crate::db::database::Db;
use crate::db::disk::Disk;
use crate::db::fault::Fault;
use crate::db::open::{self, Birth, FORMAT_VERSION, How, Opened, Unopened};
use crate::db::stored::State;

impl Engine {
    /// Opens the store on a disk; makes one where there is none, if it may.
    pub fn open(disk: Arc<dyn Disk>, settings: Settings, may_create: bool) -> Result<Self, Error> {
        match Self::open_once(Arc::clone(&disk), settings.clone(), may_create, false) {
            // This is what the reserve is for: a store on a full disk can be opened and read.
            Err(unopened) if unopened.is_full && disk.release_reserve().unwrap_or(false) => {
                Ok(Self::open_once(disk, settings, may_create, true)?)
            }
            opened => Ok(opened?),
        }
    }

    /// `disk_was_full`: an open has just failed for want of room, so what is cached of the file may not be on
    /// the disk.
    fn open_once(
        disk: Arc<dyn Disk>,
        settings: Settings,
        may_create: bool,
        disk_was_full: bool,
    ) -> Result<Self, NotOpen> {
        let birth = if may_create {
            let now = settings.clock.now();
            let Settings { scope_mode, owns_nothing, .. } = settings;
            Some(Birth { store_id: random()?, scope_mode, owns_nothing, now })
        } else {
            None
        };
        let opened = open::open(&disk, how(&settings, disk_was_full), birth)
            .map_err(|fault| unopened(&*disk, fault))?;
        check_classes(&opened.db, &settings)?;
        check_authority(&opened.db, &settings)?;
        let Opened { db, mut state, checked } = opened;
        let clock = EngineClock::new(
            Arc::clone(&settings.clock),
            settings.clock_jump_max,
            settings.clock_settle,
            state.last_time,
            state.clock_settled,
        );
        state.epoch += 1;
        begin(&db, &mut state, &clock).map_err(|fault| unopened(&*disk, fault))?;
        let is_full = disk_was_full || reserve(&*disk, settings.reserve_bytes)?;
        Ok(Self {
            store_id: db.identity().store_id,
            index: ReplayIndex::new(settings.replay_bytes),
            places: Places::new(&settings.owner),
            leases: Leases::new(),
            post: PostOffice::default(),
            opened: clock.monotonic(),
            has_units: AtomicBool::new(db.units() != Units::AllOurs),
            queue: Queue::new(settings.queue_max, settings.batch),
            counters: Counters::default(),
            file: Life::new(File::Open { slot: Slot::new(db), opening: 1 }),
            tail: Mutex::new(state),
            room: Room { is_full: AtomicBool::new(is_full), try_at: Mutex::new(Duration::ZERO) },
            checked: AtomicBool::new(checked),
            disk,
            settings,
            clock,
        })
    }

    /// Opens the file again after a stop. The epoch stays: this is still the same owner.
    pub fn reopen(&self) -> Result<(), Error> {
        self.not_inside()?;
        let mut file = self.file.write();
        let (why, left, opening) = match std::mem::replace(&mut *file, File::Closed) {
            File::Closed => {
                let text = format!("{}: the store was closed; open it anew", self.disk.name());
                return Err(Error::new(ErrorKind::Closed, text));
            }
            File::Stopped { why, left, opening } => (why, left, opening),
            open @ File::Open { .. } => {
                *file = open;
                return Ok(());
            }
        };
        // The failed handle must let go of the file before another can have it.
        drop(left.and_then(Slot::take));
        if why.cause == Cause::Full {
            // What cannot be given back is no worse than before; the open below will tell.
            self.give_up_reserve();
        }
        let opened = match self.open_again() {
            Err(unopened) if unopened.is_full && self.give_up_reserve() => self.open_again(),
            opened => opened,
        };
        match opened {
            Ok(db) => {
                self.leases.resume(self.clock.monotonic());
                *file = File::Open { slot: Slot::new(db), opening: opening + 1 };
                Ok(())
            }
            Err(error) => {
                *file = File::Stopped { why, left: None, opening };
                Err(error.into())
            }
        }
    }

    /// Gives the reserve's room to the store, which then takes no new commands until there is room again.
    /// True if there was a reserve.
    fn give_up_reserve(&self) -> bool {
        if self.settings.reserve_bytes == 0 {
            return false;
        }
        self.room.is_full.store(true, Ordering::Relaxed);
        *self.room.try_at.lock() = Duration::ZERO;
        self.disk.release_reserve().unwrap_or(false)
    }

    fn open_again(&self) -> Result<Db, NotOpen> {
        let opened = open::open(&self.disk, how(&self.settings, true), None)
            .map_err(|fault| unopened(&*self.disk, fault))?;
        let Opened { db, mut state, checked } = opened;
        self.same_store(&db, &state)?;
        begin(&db, &mut state, &self.clock).map_err(|fault| unopened(&*self.disk, fault))?;
        self.index.clear();
        self.post.forget();
        self.checked.store(checked, Ordering::Relaxed);
        *self.tail.lock() = state;
        Ok(db)
    }

    /// A reopen goes on with the file this engine has acknowledged from, not with another under its name.
    fn same_store(&self, db: &Db, state: &State) -> Result<(), Error> {
        let known = self.tail.lock();
        let is_ours = db.identity().store_id == self.store_id;
        let has_all = known.heads.iter().all(|known| {
            let class = ClassId(known.class);
            state.head(class).is_some_and(|head| {
                head.seq > known.seq || (head.seq == known.seq && head.link == known.link)
            })
        });
        if is_ours && has_all {
            return Ok(());
        }
        let what = if is_ours { "lacks what was acknowledged from it" } else { "is another store" };
        let text = format!("{} {what}: it was replaced by a copy; put the right file back", self.disk.name());
        Err(Error::new(ErrorKind::OlderCopy, text))
    }

    /// Closes the file cleanly, for all handles. Reads and commits under way end first; later ones are told
    /// `Closed`.
    pub fn close(&self) -> Result<(), Error> {
        self.not_inside()?;
        self.shut()
    }

    /// Closes, whoever asks.
    pub fn shut(&self) -> Result<(), Error> {
        let was = std::mem::replace(&mut *self.file.write(), File::Closed);
        let db = match was {
            File::Open { slot, .. } => slot.take(),
            File::Stopped { .. } | File::Closed => None,
        };
        db.map_or(Ok(()), Db::close).map_err(|fault| {
            let text = format!(
                "{}: closing failed ({fault}); what was acknowledged is in the file, the next open checks it",
                self.disk.name()
            );
            Error::new(ErrorKind::Unavailable, text)
        })
    }
}

fn how(settings: &Settings, after_failure: bool) -> How {
    How {
        cache_bytes: settings.cache_bytes,
        scope_mode: settings.scope_mode,
        mode: settings.commit_mode,
        check_at_open_max: settings.check_at_open_max,
        late_bytes: settings.late_bytes,
        filter_bytes: settings.filter_bytes,
        strict: settings.strict_open,
        after_failure,
    }
}

/// One durable commit before anything is answered: what this handle reads is then on the disk.
fn begin(db: &Db, state: &mut State, clock: &EngineClock) -> Result<(), Unopened> {
    state.last_time = clock.now().max(state.last_time);
    state.clock_settled = clock.settled();
    db.commit(Batch::default(), state)
        .map_err(|(Failed::Before(fault) | Failed::Uncertain(fault))| Unopened::Fault(fault))
}

/// Keeps the reserve back; true when the disk has no room for it.
fn reserve(disk: &dyn Disk, bytes: u64) -> Result<bool, NotOpen> {
    match disk.reserve(bytes) {
        Ok(()) => Ok(false),
        Err(fault) => match Fault::io(&fault) {
            Fault::Full(_) => Ok(true),
            _ => Err(unopened(disk, Unopened::Disk(fault))),
        },
    }
}

/// Refuses to open a store that decides about every tenant as one that decides about none: two that decide
/// about one would both run its commands.
fn check_authority(db: &Db, settings: &Settings) -> Result<(), Error> {
    if settings.owns_nothing && !db.identity().owns_nothing {
        return Err(Error::invalid(
            "`owns_nothing` is fixed when the file is created, and this file was created without it: it owns \
             every tenant that it has not handed over",
        ));
    }
    Ok(())
}

fn check_classes(db: &Db, settings: &Settings) -> Result<(), Error> {
    // Whoever names no operation may only want to look: what is written under the default policy is checked
    // when it is written.
    let policies = settings.policies.values();
    let mut new: Vec<Windows> =
        policies.map(Policy::windows).filter(|windows| db.class_of(*windows).is_err()).collect();
    new.sort_unstable();
    new.dedup();
    let classes = db.classes() + new.len();
    if classes <= CLASSES_MAX {
        return Ok(());
    }
    let text = format!(
        "policies and file together have {classes} different triples of windows, more than {CLASSES_MAX}: \
         reuse triples that the file has"
    );
    Err(Error::new(ErrorKind::LimitExceeded, text))
}

/// Why a store could not be opened, and whether room would help.
struct NotOpen {
    error: Error,
    is_full: bool,
}

impl From<Error> for NotOpen {
    fn from(error: Error) -> Self {
        Self { error, is_full: false }
    }
}

impl From<NotOpen> for Error {
    fn from(unopened: NotOpen) -> Self {
        unopened.error
    }
}

fn unopened(disk: &dyn Disk, fault: Unopened) -> NotOpen {
    let is_full = match &fault {
        Unopened::Fault(Fault::Full(_)) => true,
        Unopened::Disk(fault) => matches!(Fault::io(fault), Fault::Full(_)),
        _ => false,
    };
    NotOpen { error: told(disk, fault), is_full }
}

/// What a person is told of a file that cannot be opened: its path, the cause, the next step.
fn told(disk: &dyn Disk, fault: Unopened) -> Error {
    let name = disk.name();
    let (kind, text) = match fault {
        Unopened::Missing => (
            ErrorKind::Missing,
            format!("{name} does not exist; check the path and the mount, or use `open_or_create` at first"),
        ),
        Unopened::DirectoryMissing => (
            ErrorKind::Missing,
            format!("the directory of {name} does not exist; check the mount, or create the directory first"),
        ),
        Unopened::NotAFile(what) => {
            (ErrorKind::Invalid, format!("{name} is {what}, not a file; give the store's file"))
        }
        Unopened::Empty => (
            ErrorKind::Corrupt,
            format!("{name} is empty, and a store never is; restore it, or remove it if it never held one"),
        ),
        Unopened::Foreign => (
            ErrorKind::Corrupt,
            format!(
                "{name} is not a onecho store, or its first bytes are damaged; it was left as it is: \
                 check the path"
            ),
        ),
        Unopened::Format { found } => (
            ErrorKind::UnsupportedFormat,
            format!(
                "{name} has format version {found}, this program knows {FORMAT_VERSION}; \
                 use the version that wrote it"
            ),
        ),
        Unopened::ScopeMode { stored } => (
            ErrorKind::ScopeMode,
            format!(
                "{name} was created with scope mode {stored:?}, and that is fixed: open it with that mode"
            ),
        ),
        Unopened::Unsettled => (
            ErrorKind::Unavailable,
            format!(
                "{name} failed in this process and cannot be read past the cache here; restart the process"
            ),
        ),
        Unopened::Disk(fault) => of_disk(&name, &fault),
        Unopened::Fault(Fault::Locked) => (ErrorKind::Locked, locked(&name, disk.lock_holder())),
        Unopened::Fault(Fault::Damaged(what)) => (
            ErrorKind::Corrupt,
            format!("{name} is damaged: {what}; it was left as it is: keep a copy and restore from a backup"),
        ),
        Unopened::Fault(Fault::Newer(what)) => {
            (ErrorKind::UnsupportedFormat, format!("{name}: {what}; use the version that wrote it"))
        }
        Unopened::Fault(Fault::Full(what)) => (
            ErrorKind::Unavailable,
            format!("{name}: the disk is full ({what}); make room and open it again"),
        ),
        Unopened::Fault(Fault::Io(what) | Fault::Refused(what)) => (
            ErrorKind::Unavailable,
            format!("{name} cannot be opened: {what}; check the disk and its permissions"),
        ),
    };
    Error::new(kind, text)
}

fn of_disk(name: &str, fault: &std::io::Error) -> (ErrorKind, String) {
    let next = match fault.kind() {
        IoKind::PermissionDenied => "give this user the right to read and write the file and its directory",
        IoKind::ReadOnlyFilesystem => "the disk is read-only: mount it for writing",
        IoKind::StorageFull | IoKind::QuotaExceeded => "the disk is full: make room and open it again",
        _ => "check the disk",
    };
    (ErrorKind::Unavailable, format!("{name} cannot be opened: {fault}; {next}"))
}

fn locked(name: &str, holder: Option<u32>) -> String {
    match holder {
        Some(pid) if pid == std::process::id() => {
            format!(
                "{name} is already open in this process; share the open store instead of opening it again"
            )
        }
        Some(pid) => format!("{name} is already open in process {pid}; use that one, or stop it first"),
        None => format!("{name} is already open elsewhere; use that one, or stop it first"),
    }
}
