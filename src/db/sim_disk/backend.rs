//! One simulated file as redb sees it.
//!
//! Owns the translation and the lock's life. It must not know names, directories or what is durable.

use std::io::{self, ErrorKind};
use std::ops::Bound;
use std::sync::Arc;

use redb::{BackendError, StorageBackend};

use super::Shared;
use super::model::FileId;
use crate::db::disk::EMPTY_FILE;

/// An open file. Its lock covers the whole of it, which is all that redb's exclusive mode asks for.
#[derive(Debug)]
pub(super) struct SimFile {
    shared: Arc<Shared>,
    file: FileId,
    holder: u64,
    /// Whether a database may be started in it if it is empty.
    new: bool,
}

impl SimFile {
    pub(super) fn new(shared: Arc<Shared>, file: FileId, new: bool) -> Self {
        let holder = shared.state.lock().serial();
        Self { shared, file, holder, new }
    }
}

impl Drop for SimFile {
    fn drop(&mut self) {
        self.shared.state.lock().unlock(self.file, self.holder);
    }
}

impl StorageBackend for SimFile {
    fn len(&self) -> io::Result<u64> {
        match (self.shared.state.lock().len(self.file)?, self.new) {
            (0, false) => Err(io::Error::new(ErrorKind::InvalidData, EMPTY_FILE)),
            (len, _) => Ok(len),
        }
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.shared.state.lock().read(self.file, offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.shared.state.lock().set_len(self.file, len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.shared.sync(self.file)
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.shared.state.lock().write(self.file, offset, data)
    }

    fn close(&self) -> io::Result<()> {
        self.shared.state.lock().unlock(self.file, self.holder);
        Ok(())
    }

    fn try_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        let whole = matches!(start, Bound::Unbounded | Bound::Included(0)) && end == Bound::Unbounded;
        if !whole {
            return Err(BackendError::Unsupported);
        }
        Ok(self.shared.state.lock().lock(self.file, self.holder))
    }

    fn unlock_range(&self, _start: Bound<u64>, _end: Bound<u64>) -> Result<(), BackendError> {
        self.shared.state.lock().unlock(self.file, self.holder);
        Ok(())
    }
}
