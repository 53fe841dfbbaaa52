//! For tests of programs that use a store: a clock and a disk in the test's hands, and crash tests on them.

mod crash_test;
mod manual_clock;

pub use self::crash_test::{Acknowledged, CrashReport, CrashTest};
pub use self::manual_clock::ManualClock;
pub use crate::db::sim_disk::{Fault, SimDisk};
use crate::{Error, Options, Store};

impl SimDisk {
    /// Opens the store on this disk; makes one if the disk is empty.
    ///
    /// # Errors
    ///
    /// As [`Store::open_or_create`].
    pub fn open(&self, options: Options) -> Result<Store, Error> {
        Store::on(self.clone(), options, true)
    }
}
