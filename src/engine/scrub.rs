//! Reads a file that was too large to be checked when it was opened, in slices, beside everything else. Until
//! it has ended, a damaged tree may make a key look absent; what it finds stops the store.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::Engine;
use crate::core::error::{Error, ErrorKind};
use crate::db::database::Db;
use crate::db::fault::Fault;
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

    /// Checks the next slice; true when there is more.
    fn scrub_slice(&self, walk: &mut Option<Walk>) -> bool {
        // Made before the file is held, so that it is held no more when it stops the store.
        let guard = StopOnPanic(self);
        let Ok(db) = self.file() else {
            std::mem::forget(guard);
            return false;
        };
        let opening = db.opening();
        let checked = checked(&db, walk);
        drop(db);
        std::mem::forget(guard);
        match checked {
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

/// Whether there is more to check.
fn checked(db: &Db, walk: &mut Option<Walk>) -> Result<bool, Fault> {
    let walk = match walk {
        Some(walk) => walk,
        None => match Walk::beside_the_writer(db)? {
            Some(new) => walk.insert(new),
            None => return Ok(true),
        },
    };
    let more = walk.slice(db)?;
    match walk.first_fault() {
        Some(what) => Err(Fault::Damaged(what.to_owned())),
        None => Ok(more),
    }
}

/// Between two slices, so that the scrub takes a small part of a slow disk and of a small cache.
const PACE: Duration = Duration::from_millis(5);

/// Goes on while somebody holds the store.
fn run(engine: &Weak<Engine>) {
    let mut walk = None;
    while engine.upgrade().is_some_and(|engine| engine.scrub_slice(&mut walk)) {
        std::thread::park_timeout(PACE);
    }
}

/// The storage engine may panic on a damaged page. A file that cannot be read through must not look sound.
struct StopOnPanic<'e>(&'e Engine);

impl Drop for StopOnPanic<'_> {
    fn drop(&mut self) {
        self.0.stop(None, &Fault::Damaged("a page could not be read".to_owned()));
    }
}
