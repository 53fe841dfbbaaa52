//! Where there are no Unix signals: what ends this program ends it, and the key of its child is unknown.

use std::io;
use std::process::{Child, Command, ExitStatus};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// Passes nothing on.
pub(super) struct Courier;

impl Courier {
    pub fn start() -> io::Result<Self> {
        Ok(Self)
    }

    pub fn early(&self) -> Option<i32> {
        None
    }

    pub fn pause(&self, span: Duration) {
        Condvar::new().wait_for(&mut Mutex::new(()).lock(), span);
    }

    pub fn serve(&self, _: &Child) {}

    pub fn wait(&self, child: &mut Child) -> io::Result<ExitStatus> {
        child.wait()
    }
}

pub(super) fn apart(_: &mut Command) {}

/// The exit code of a child; one that does not fit is 255.
pub(super) fn code(status: ExitStatus) -> (u8, Option<i32>) {
    (status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX), None)
}
