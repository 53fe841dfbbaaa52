//! A store's file under a path of the file system.
//!
//! Owns names (temporary, final, reserve), the rename that replaces nothing, every sync that redb does not do
//! itself, and the guard around redb's file backend. It must not know what is in the file.
//!
//! A path is resolved once per call: a symbolic link to a file is followed, and everything beside the store
//! (temporary names, the reserve, the synced directory) is beside the file the link leads to.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::ops::Bound;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use redb::backends::FileBackend;
use redb::{BackendError, StorageBackend};

use super::disk::{Disk, EMPTY_FILE, Found, HEAD_BYTES_MAX, Published, Settled, creation_under_way};
use super::dry_run::DryRun;

/// Links followed before a path is given up, as Linux does.
const LINKS_MAX: usize = 40;
/// Fresh temporary names tried before a creation is given up.
const NAMES_MAX: usize = 16;
/// Written at once where blocks cannot be preallocated.
const ZEROS_CHUNK_BYTES: usize = 64 * 1024;

/// A path on a file system.
#[derive(Debug)]
pub struct FileDisk {
    /// As it was given: what messages show.
    given: PathBuf,
    /// The same made absolute, so that a later change of the working directory does not move the store.
    path: PathBuf,
    /// The temporary file of the creation that is under way, until it is published or discarded.
    temporary: Mutex<Option<PathBuf>>,
}

impl FileDisk {
    /// The disk of the store at `path`. Looks at nothing yet.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        let given = path.into();
        // Fails for an empty path or without a working directory; both then fail again, with their reason,
        // at the first real access.
        let path = std::path::absolute(&given).unwrap_or_else(|_| given.clone());
        Self { given, path, temporary: Mutex::new(None) }
    }

    /// The path with a link at its end followed, whether or not anything stands there.
    fn target(&self) -> io::Result<PathBuf> {
        let mut path = self.path.clone();
        for _ in 0..LINKS_MAX {
            match fs::symlink_metadata(&path) {
                Ok(found) if found.file_type().is_symlink() => {
                    // An absolute link replaces the whole path, a relative one is relative to the link.
                    path = directory_of(&path).join(fs::read_link(&path)?);
                }
                Ok(_) => return Ok(path),
                Err(error) if error.kind() == ErrorKind::NotFound => return Ok(path),
                Err(error) => return Err(error),
            }
        }
        Err(io::Error::other("too many symbolic links"))
    }
}

impl Disk for FileDisk {
    fn name(&self) -> String {
        self.given.display().to_string()
    }

    fn look(&self) -> io::Result<Found> {
        let target = self.target()?;
        let found = match fs::metadata(&target) {
            Ok(found) => found,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let there = fs::exists(directory_of(&target))?;
                return Ok(if there { Found::Missing } else { Found::DirectoryMissing });
            }
            Err(error) => return Err(error),
        };
        if let Some(kind) = kind_of_other(&found) {
            return Ok(Found::NotAFile(kind));
        }
        let file = File::open(&target)?;
        let len = file.metadata()?.len();
        if len == 0 {
            return Ok(Found::Empty);
        }
        let mut head = Vec::new();
        file.take(HEAD_BYTES_MAX).read_to_end(&mut head)?;
        Ok(Found::File { len, head })
    }

    fn create(&self, builder: &mut redb::Builder) -> Result<redb::Database, redb::DatabaseError> {
        let mut temporary = self.temporary.lock();
        if temporary.is_some() {
            return Err(creation_under_way().into());
        }
        let (path, file) = create_temporary(&self.target()?)?;
        *temporary = Some(path);
        builder.create_with_backend(GuardedFile::new(file, Contents::New)?)
    }

    fn publish(&self) -> io::Result<Published> {
        let mut temporary = self.temporary.lock();
        let Some(path) = temporary.as_ref() else {
            return Err(io::Error::new(ErrorKind::InvalidInput, "there is no new file to publish"));
        };
        let published = publish_file(path, &self.target()?)?;
        *temporary = None;
        Ok(published)
    }

    fn discard(&self) {
        if let Some(path) = self.temporary.lock().take() {
            let _ = fs::remove_file(path);
        }
    }

    fn settle(&self) -> io::Result<Settled> {
        let file = open_target(&self.target()?)?;
        file.sync_all()?;
        Ok(Settled { pages_dropped: drop_cached_pages(&file) })
    }

    fn open(&self, builder: &mut redb::Builder) -> Result<redb::Database, redb::DatabaseError> {
        let target = self.target()?;
        let file = open_target(&target)?;
        match sync_directory(directory_of(&target)) {
            // A directory that may be passed through but not read cannot be synced by us; its file can
            // still be used, and was published by somebody who could.
            Err(error) if error.kind() != ErrorKind::PermissionDenied => return Err(error.into()),
            _ => {}
        }
        let database = builder.create_with_backend(GuardedFile::new(file, Contents::Existing)?)?;
        remove_stale(&target);
        Ok(database)
    }

    fn dry_run(&self, builder: &mut redb::Builder) -> Result<redb::Database, redb::DatabaseError> {
        let file = GuardedFile::new(open_target(&self.target()?)?, Contents::Existing)?;
        builder.create_with_backend(DryRun::new(file)?)
    }

    fn file_bytes(&self) -> io::Result<u64> {
        Ok(fs::metadata(&self.path)?.len())
    }

    fn lock_holder(&self) -> Option<u32> {
        lock_holder_of(&fs::metadata(&self.path).ok()?)
    }

    fn reserve(&self, bytes: u64) -> io::Result<()> {
        let path = reserve_path(&self.target()?);
        if bytes == 0 {
            return release(&path).map(|_| ());
        }
        let (before, existed) = match fs::symlink_metadata(&path) {
            Ok(found) if !found.is_file() => return Err(no_reserve(&path)),
            Ok(found) if found.len() == bytes && allocated_bytes(&found) >= bytes => return Ok(()),
            Ok(found) => (found.len(), true),
            Err(error) if error.kind() == ErrorKind::NotFound => (0, false),
            Err(error) => return Err(error),
        };
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path)?;
        if !is_blank(&file)? {
            return Err(no_reserve(&path));
        }
        // The first sync brings the blocks to the disk, the second the name.
        let filled = allocate(&file, bytes)
            .and_then(|()| file.set_len(bytes))
            .and_then(|()| file.sync_all())
            .and_then(|()| sync_directory(directory_of(&path)));
        if filled.is_err() {
            // Half a reserve would hold the last blocks of a full disk and promise nothing.
            let _ = if existed { file.set_len(before) } else { fs::remove_file(&path) };
        }
        filled
    }

    fn release_reserve(&self) -> io::Result<bool> {
        release(&reserve_path(&self.target()?))
    }

    fn reserve_bytes(&self) -> u64 {
        let found = self.target().and_then(|target| fs::symlink_metadata(reserve_path(&target)));
        found.map_or(0, |found| allocated_bytes(&found).min(found.len()))
    }
}

/// Opens the existing file for reading and writing; anything but a regular file is refused.
fn open_target(target: &Path) -> io::Result<File> {
    // Asked before the open, which on a pipe or a device could wait or have an effect.
    if let Some(kind) = kind_of_other(&fs::metadata(target)?) {
        return Err(io::Error::new(ErrorKind::InvalidInput, format!("it is {kind}, not a file")));
    }
    OpenOptions::new().read(true).write(true).open(target)
}

/// Removes what creations that never finished left beside the file. Best effort: a stale file costs
/// space, not truth. Whoever still works on one of them finds the published file instead.
fn remove_stale(target: &Path) {
    let Ok(entries) = fs::read_dir(directory_of(target)) else {
        return;
    };
    for entry in entries.flatten() {
        if is_temporary(&entry.file_name(), target) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// The name was taken, or somebody who holds the published file cleaned ours away.
fn lost_the_race(temporary: &Path, target: &Path) -> io::Result<Published> {
    match fs::remove_file(temporary) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    sync_directory(directory_of(target))?;
    Ok(Published::AlreadyThere)
}

fn publish_file(temporary: &Path, target: &Path) -> io::Result<Published> {
    let renamed = OpenOptions::new()
        .read(true)
        .write(true)
        .open(temporary)
        .and_then(|file| file.sync_all())
        .and_then(|()| rename_new(temporary, target));
    match renamed {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            return lost_the_race(temporary, target);
        }
        Err(error) if error.kind() == ErrorKind::NotFound && fs::exists(target)? => {
            return lost_the_race(temporary, target);
        }
        Err(error) => return Err(error),
    }
    sync_directory(directory_of(target))?;
    remove_stale(target);
    Ok(Published::Done)
}

/// Whether the backend may start a database in an empty file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Contents {
    New,
    Existing,
}

/// redb's file backend, with two doors closed: an existing file that turns out empty is refused rather than
/// started anew, and a file system without locks is refused rather than used without one. The second is the
/// reason that all six lock methods are forwarded: a backend that leaves them out silently has no lock.
#[derive(Debug)]
struct GuardedFile {
    file: FileBackend,
    contents: Contents,
}

impl GuardedFile {
    fn new(file: File, contents: Contents) -> Result<Self, redb::DatabaseError> {
        Ok(Self { file: FileBackend::new(file)?, contents })
    }
}

impl StorageBackend for GuardedFile {
    fn len(&self) -> io::Result<u64> {
        match (self.file.len()?, self.contents) {
            (0, Contents::Existing) => Err(io::Error::new(ErrorKind::InvalidData, EMPTY_FILE)),
            (len, _) => Ok(len),
        }
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.file.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.file.write(offset, data)
    }

    fn close(&self) -> io::Result<()> {
        self.file.close()
    }

    fn try_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        refuse_without_locks(self.file.try_lock_range(start, end), start, end)
    }

    fn try_lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        refuse_without_locks(self.file.try_lock_shared_range(start, end), start, end)
    }

    fn lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.file.lock_range(start, end)
    }

    fn lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.file.lock_shared_range(start, end)
    }

    fn unlock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.file.unlock_range(start, end)
    }

    fn query_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.file.query_lock_range(start, end)
    }
}

/// redb tries ranges, then the whole file, and goes on without any lock if neither is supported. The last
/// step is taken away: two processes without a lock destroy the file. The kind must not be `Unsupported`,
/// which redb would read as the answer it goes on with.
fn refuse_without_locks(
    taken: Result<bool, BackendError>,
    start: Bound<u64>,
    end: Bound<u64>,
) -> Result<bool, BackendError> {
    let unsupported = match &taken {
        Err(BackendError::Unsupported) => true,
        Err(BackendError::Io(error)) => error.kind() == ErrorKind::Unsupported,
        _ => false,
    };
    let whole = matches!(start, Bound::Unbounded | Bound::Included(0)) && end == Bound::Unbounded;
    if unsupported && whole {
        return Err(BackendError::Io(io::Error::other("this file system does not support file locks")));
    }
    taken
}

/// The directory of an entry; a bare name is in the working directory.
fn directory_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

fn file_name_with(target: &Path, suffix: &str) -> OsString {
    let mut name = target.file_name().unwrap_or_default().to_os_string();
    name.push(suffix);
    name
}

fn temporary_prefix(target: &Path) -> OsString {
    file_name_with(target, ".new-")
}

/// Whether this is a name that [`create_temporary`] gives. Exactly, because such files are removed: a user's
/// `a.db.new-backup` is not ours.
fn is_temporary(name: &OsStr, target: &Path) -> bool {
    let prefix = temporary_prefix(target);
    let rest = name.as_encoded_bytes().strip_prefix(prefix.as_encoded_bytes());
    let parts = rest.and_then(|rest| str::from_utf8(rest).ok()).and_then(|rest| rest.split_once('-'));
    parts.is_some_and(|(process, random)| {
        process.parse::<u32>().is_ok() && random.len() == 16 && u64::from_str_radix(random, 16).is_ok()
    })
}

fn reserve_path(target: &Path) -> PathBuf {
    directory_of(target).join(file_name_with(target, ".reserve"))
}

/// A new file under a name that nobody had: process and randomness make a collision an accident, `create_new`
/// makes it harmless.
fn create_temporary(target: &Path) -> io::Result<(PathBuf, File)> {
    if target.file_name().is_none() {
        return Err(io::Error::new(ErrorKind::InvalidInput, "the path has no file name"));
    }
    let mut last = None;
    for _ in 0..NAMES_MAX {
        let random = getrandom::u64().map_err(|error| io::Error::other(error.to_string()))?;
        let mut name = temporary_prefix(target);
        name.push(format!("{}-{random:016x}", std::process::id()));
        let path = directory_of(target).join(name);
        match OpenOptions::new().read(true).write(true).create_new(true).open(&path) {
            Ok(file) => return Ok((path, file)),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => last = Some(error),
            Err(error) => return Err(error),
        }
    }
    Err(last.unwrap_or_else(|| io::Error::other("no free temporary name")))
}

/// Renames without replacing: `AlreadyExists` if the name is taken.
fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    #[cfg(any(target_os = "linux", target_os = "android", target_vendor = "apple"))]
    {
        use rustix::fs::{CWD, RenameFlags, renameat_with};
        use rustix::io::Errno;
        match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
            Ok(()) => return Ok(()),
            // The kernel or the file system does not know the flag; nothing was renamed.
            Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => {}
            Err(error) => return Err(error.into()),
        }
    }
    link_new(from, to)
}

/// The way without such a rename: a link never replaces either. Killed between the two steps, both names lead
/// to one whole file, and the temporary one is removed as stale.
fn link_new(from: &Path, to: &Path) -> io::Result<()> {
    fs::hard_link(from, to)?;
    fs::remove_file(from)
}

/// Makes the names in a directory durable.
fn sync_directory(directory: &Path) -> io::Result<()> {
    if !cfg!(unix) {
        // Directories cannot be opened for a sync there; the file system journals its names.
        return Ok(());
    }
    match File::open(directory)?.sync_all() {
        // Some file systems have no such operation on directories: there is nothing more that we could do.
        Err(error) if matches!(error.kind(), ErrorKind::InvalidInput | ErrorKind::Unsupported) => Ok(()),
        synced => synced,
    }
}

/// Whether a file may be a reserve, which holds zeros only. Somebody else's file is not written over.
fn is_blank(mut file: &File) -> io::Result<bool> {
    use std::io::Read;
    let mut head = Vec::new();
    file.by_ref().take(4096).read_to_end(&mut head)?;
    Ok(head.iter().all(|&byte| byte == 0))
}

fn no_reserve(path: &Path) -> io::Error {
    let text = format!("{} is there and is no reserve of a store: move it away", path.display());
    io::Error::new(ErrorKind::InvalidInput, text)
}

/// Removes the reserve. Truncated and synced first, so that the blocks are free on return even while the file
/// system delays what an unlink gives back.
fn release(path: &Path) -> io::Result<bool> {
    let file = match OpenOptions::new().read(true).write(true).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error),
    };
    if !is_blank(&file)? {
        return Err(no_reserve(path));
    }
    let had = allocated_bytes(&file.metadata()?) > 0;
    file.set_len(0)?;
    file.sync_all()?;
    fs::remove_file(path)?;
    Ok(had)
}

/// Makes `bytes` of the file real: blocks are taken, not promised.
fn allocate(file: &File, bytes: u64) -> io::Result<()> {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    {
        use rustix::fs::{FallocateFlags, fallocate};
        use rustix::io::Errno;
        match fallocate(file, FallocateFlags::empty(), 0, bytes) {
            Ok(()) => return Ok(()),
            Err(Errno::NOTSUP | Errno::NOSYS | Errno::INVAL) => {}
            Err(error) => return Err(error.into()),
        }
    }
    write_zeros(file, bytes)
}

/// The portable way to take blocks.
fn write_zeros(mut file: &File, bytes: u64) -> io::Result<()> {
    use std::io::{Seek, SeekFrom, Write};
    let zeros = vec![0; ZEROS_CHUNK_BYTES];
    let mut left = bytes;
    file.seek(SeekFrom::Start(0))?;
    while left > 0 {
        let chunk = usize::try_from(left).unwrap_or(usize::MAX).min(ZEROS_CHUNK_BYTES);
        file.write_all(&zeros[..chunk])?;
        left -= chunk as u64;
    }
    Ok(())
}

/// The bytes a file occupies, which a sparse file has fewer of than it is long.
fn allocated_bytes(found: &fs::Metadata) -> u64 {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        found.blocks().saturating_mul(512)
    }
    #[cfg(not(unix))]
    found.len()
}

/// What stands there if it is no regular file.
fn kind_of_other(found: &fs::Metadata) -> Option<&'static str> {
    if found.is_file() {
        return None;
    }
    if found.is_dir() {
        return Some("a directory");
    }
    #[cfg(unix)]
    {
        use std::os::unix::fs::FileTypeExt;
        let kind = found.file_type();
        if kind.is_char_device() || kind.is_block_device() {
            return Some("a device");
        }
        if kind.is_fifo() {
            return Some("a pipe");
        }
        if kind.is_socket() {
            return Some("a socket");
        }
    }
    Some("something else")
}

/// Asks the system to forget the file's cached pages, which must be clean. On a file system that lives in
/// memory it agrees and does nothing, rightly.
fn drop_cached_pages(file: &File) -> bool {
    #[cfg(any(target_os = "linux", target_os = "android", target_os = "freebsd"))]
    {
        rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed).is_ok()
    }
    #[cfg(not(any(target_os = "linux", target_os = "android", target_os = "freebsd")))]
    {
        let _ = file;
        false
    }
}

/// redb holds byte-range locks of the open file, which name no process, and beside them an `flock`, which
/// does.
fn lock_holder_of(found: &fs::Metadata) -> Option<u32> {
    #[cfg(target_os = "linux")]
    {
        use std::os::unix::fs::MetadataExt;
        let device = found.dev();
        let file =
            format!("{:02x}:{:02x}:{}", rustix::fs::major(device), rustix::fs::minor(device), found.ino());
        holder_in(&fs::read_to_string("/proc/locks").ok()?, &file)
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = found;
        None
    }
}

/// The process of the first lock on `file` in the text of `/proc/locks`, as
/// `1: FLOCK  ADVISORY  WRITE 4711 fe:00:2490392 0 EOF`. Waiting locks (`->`) hold nothing; a process that
/// cannot be seen from here has 0 or -1.
#[cfg(any(target_os = "linux", test))]
fn holder_in(locks: &str, file: &str) -> Option<u32> {
    locks.lines().find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let &[_, kind, _, _, process, place, ..] = words.as_slice() else {
            return None;
        };
        if kind == "->" || place != file {
            return None;
        }
        process.parse().ok().filter(|process| *process > 0)
    })
}

#[cfg(all(test, unix))]
#[path = "file_disk_tests.rs"]
mod tests;
