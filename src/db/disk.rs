//! Where a store's file lives: the door between the store and names, bytes and syncs.
//!
//! Owns the trait [`Disk`] and its small nouns. Two things stand behind it: [`super::file_disk`], a path on
//! a file system, and (feature `testing`) the simulated disk. It must not know what is in the file: no
//! table, no record, no format version.
//!
//! The order of calls that makes a store is fixed, because a name must never show a half-made file:
//! `look`, `create`, close that database, `publish`, `open`. A caller that stops in between calls `discard`.

use std::fmt;
use std::io;

/// How many bytes of a file [`Disk::look`] brings along: enough for any magic number and header.
pub(crate) const HEAD_BYTES_MAX: u64 = 512;

/// What an empty file is refused with where an existing store is asked for.
pub(crate) const EMPTY_FILE: &str = "the file is empty: no store was finished under this name";

/// Where a store's file lives. Knows bytes, names and syncs; knows nothing of records.
///
/// One creation at a time may be under way on one value (on one clone, where values can be cloned); several
/// values over the same name may create at once, also in several processes, and exactly one publishes.
pub trait Disk: fmt::Debug + Send + Sync + 'static {
    /// What messages call the file: for a file, its path as it was given.
    fn name(&self) -> String;

    /// What stands under the name now. Changes nothing.
    ///
    /// # Errors
    /// Whatever the system says, with its kind; a name that leads nowhere is not an error but
    /// [`Found::Missing`].
    fn look(&self) -> io::Result<Found>;

    /// Makes an empty database under a fresh temporary name in the directory of the final one.
    ///
    /// # Errors
    /// `ResourceBusy` while an earlier creation on this value was neither published nor discarded; otherwise
    /// what the system or redb says, and then nothing is left behind that [`Disk::discard`] would not remove.
    fn create(&self, builder: &mut redb::Builder) -> Result<redb::Database, redb::DatabaseError>;

    /// Gives what `create` made its final name, after the caller has closed that database: syncs the file,
    /// renames it without replacing anything, syncs the directory.
    ///
    /// [`Published::Done`] and [`Published::AlreadyThere`] both promise that the name survives a power cut.
    ///
    /// # Errors
    /// What the system says. After an error the name may or may not be there; the temporary file is still
    /// known to this value, for another `publish` or a `discard`.
    fn publish(&self) -> io::Result<Published>;

    /// Drops the temporary file of a creation that failed. Best effort; without one, nothing happens.
    fn discard(&self);

    /// To be called before opening a file that was not closed cleanly: syncs it, then drops its cached pages,
    /// so that what is read next is what the disk has, and not what a failed sync left in memory.
    ///
    /// # Errors
    /// What the sync says. No page was dropped then.
    fn settle(&self) -> io::Result<Settled>;

    /// Opens an existing file that is not empty; never creates, never truncates.
    ///
    /// The directory is synced first: whoever gave the file its name may have been killed before its own
    /// sync of the directory, and nothing may be acknowledged in a file whose name can still vanish. Once
    /// the file is held, temporary files of creations that never finished are removed.
    ///
    /// # Errors
    /// What the system or redb says; [`redb::DatabaseError::DatabaseAlreadyOpen`] if the file is held; an
    /// I/O error of kind `InvalidData` if it is empty, and one of kind `Other` where locks do not work.
    fn open(&self, builder: &mut redb::Builder) -> Result<redb::Database, redb::DatabaseError>;

    /// Opens the file as [`Disk::open`] does, its lock included, and keeps every write in memory: nothing in
    /// the directory changes, whatever is done with the database and however it ends.
    ///
    /// # Errors
    /// As [`Disk::open`].
    fn dry_run(&self, builder: &mut redb::Builder) -> Result<redb::Database, redb::DatabaseError>;

    /// The length of the file.
    ///
    /// # Errors
    /// What the system says, `NotFound` included.
    fn file_bytes(&self) -> io::Result<u64>;

    /// The process that holds the file, if it can be told. Never an error: it only improves a message.
    fn lock_holder(&self) -> Option<u32>;

    /// Keeps `bytes` of the disk back in a file beside the store: preallocated, synced, its directory synced.
    /// Does nothing if it already has that size; 0 removes it.
    ///
    /// # Errors
    /// What the system says, `StorageFull` included. What was reserved before is still reserved then.
    fn reserve(&self, bytes: u64) -> io::Result<()>;

    /// Gives the reserve's blocks back to the file system; true if it had any.
    ///
    /// # Errors
    /// What the system says.
    fn release_reserve(&self) -> io::Result<bool>;

    /// How many bytes the reserve really holds now; 0 if it cannot be told.
    fn reserve_bytes(&self) -> u64;
}

/// What [`Disk::look`] saw under the name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// Nothing, in a directory that exists.
    Missing,
    /// Nothing, and the directory is missing too.
    DirectoryMissing,
    /// Something that is no regular file: "a directory", "a device", and so on.
    NotAFile(&'static str),
    /// A regular file without a byte in it.
    Empty,
    /// A regular file.
    File {
        /// Its length.
        len: u64,
        /// Its first bytes, at most 512.
        head: Vec<u8>,
    },
}

/// How a [`Disk::publish`] ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Published {
    /// The new file has the name.
    Done,
    /// Another file had the name already; the new one was removed.
    AlreadyThere,
}

/// What a [`Disk::settle`] achieved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settled {
    /// Whether the system took the request to drop the cached pages. If not, reads may still return bytes
    /// that a failed sync never brought to the disk.
    pub pages_dropped: bool,
}

/// The error of a second `create` before the first was published or discarded.
pub(crate) fn creation_under_way() -> io::Error {
    io::Error::new(io::ErrorKind::ResourceBusy, "another creation is under way through this handle")
}
