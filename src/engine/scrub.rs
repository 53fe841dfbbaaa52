//! Reads a file that was too large to be checked when it was opened, in slices, beside everything else. Until
//! it has ended, a damaged tree may make a key look absent; what it finds stops the store.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::Engine;
use crate::core::error::{Error, ErrorKind};
use crate::db::database::Db;
use crate::db::fault::Fault;
use crate::db::learn::Learning;
use crate::db::verify::Walk;

impl Engine {
    /// Starts the scrub's thread if the file has not been checked.
    #[expect(
        clippy::disallowed_methods,
        reason = "the one thread of the library: it checks what the open could not"
    )]
    pub fn scrub(self: &Arc<Self>) -> Result<(), Error> {
        if self.checked.load(Ordering::Relaxed) {
            return Ok(());
        }
        let engine = Arc::downgrade(self);
        let thread = std::thread::Builder::new().name("onecho-scrub".to_owned());
        thread.spawn(move || run(&engine)).map(drop).map_err(|fault| {
            Error::new(
                ErrorKind::Unavailable,
                format!("the thread that checks the file cannot start: {fault}"),
            )
        })
    }

    /// Does the next slice; true when there is more.
    fn scrub_slice(&self, scrub: &mut Scrub) -> bool {
        // Made before the file is held, so that it is held no more when it stops the store.
        let guard = StopOnPanic(self);
        let Ok(db) = self.file() else {
            std::mem::forget(guard);
            return false;
        };
        let opening = db.opening();
        let done = scrub.slice(&db);
        drop(db);
        std::mem::forget(guard);
        match done {
            Ok(more) => {
                if !more {
                    self.checked.store(true, Ordering::Relaxed);
                }
                more
            }
            Err(fault) => {
                self.stop(Some(opening), &fault);
                false
            }
        }
    }
}

/// Keys that are read in one slice to fill the filter.
const SLICE_KEYS: usize = 1024;

/// What is left to be done: first the filter learns the keys, which makes fresh commands cheap, then all is
/// checked.
struct Scrub {
    /// Begun with the first slice.
    learning: Option<Learning>,
    is_learned: bool,
    walk: Option<Walk>,
}

impl Scrub {
    /// Whether there is more to do after this slice.
    fn slice(&mut self, db: &Db) -> Result<bool, Fault> {
        if !self.is_learned {
            let learning = self.learning.get_or_insert_with(|| Learning::of(db));
            self.is_learned = !learning.slice(db, SLICE_KEYS)?;
            return Ok(true);
        }
        let walk = match &mut self.walk {
            Some(walk) => walk,
            None => match Walk::beside_the_writer(db)? {
                Some(new) => self.walk.insert(new),
                None => return Ok(true),
            },
        };
        let more = walk.slice(db)?;
        match walk.first_fault() {
            Some(what) => Err(Fault::Damaged(what.to_owned())),
            None => Ok(more),
        }
    }
}

/// The least time between two slices, so that the scrub takes a small part of a slow disk and a small cache.
const PACE_MIN: Duration = Duration::from_millis(2);
/// The time between two slices as a multiple of what the last one took: the scrub takes a tenth of a
/// processor, the filter a third.
const PACE_CHECKING: u32 = 9;
const PACE_LEARNING: u32 = 2;

/// Goes on while somebody holds the store.
fn run(engine: &Weak<Engine>) {
    let mut scrub = Scrub { learning: None, is_learned: false, walk: None };
    loop {
        let Some(engine) = engine.upgrade() else { return };
        let pace = if scrub.is_learned { PACE_CHECKING } else { PACE_LEARNING };
        let start = engine.clock.monotonic();
        if !engine.scrub_slice(&mut scrub) {
            return;
        }
        let took = engine.clock.monotonic().saturating_sub(start);
        drop(engine);
        std::thread::park_timeout(took.saturating_mul(pace).max(PACE_MIN));
    }
}

/// The storage engine may panic on a damaged page. A file that cannot be read through must not look sound.
struct StopOnPanic<'e>(&'e Engine);

impl Drop for StopOnPanic<'_> {
    fn drop(&mut self) {
        self.0.stop(None, &Fault::Damaged("a page could not be read".to_owned()));
    }
}
