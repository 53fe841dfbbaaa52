//! The file disk against a real directory.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::sync::Barrier;

use redb::{Builder, DatabaseError, StorageError, TableDefinition};

use super::*;

const ROWS: TableDefinition<u64, u64> = TableDefinition::new("rows");

/// A directory that goes away with its test.
struct Directory(PathBuf);

impl Directory {
    fn new() -> Self {
        let name = format!("onecho-disk-{}-{:016x}", std::process::id(), getrandom::u64().unwrap());
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn made(path: impl Into<PathBuf>) -> FileDisk {
    let disk = FileDisk::new(path);
    disk.create(&mut Builder::new()).unwrap().close().unwrap();
    assert_eq!(disk.publish().unwrap(), Published::Done);
    disk
}

fn refused(opened: Result<redb::Database, DatabaseError>) -> ErrorKind {
    match opened {
        Err(DatabaseError::Storage(StorageError::Io(error))) => error.kind(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_store_is_made_found_opened_and_held() {
    let directory = Directory::new();
    let disk = FileDisk::new(directory.at("a.db"));
    assert_eq!(disk.look().unwrap(), Found::Missing);
    assert_eq!(disk.file_bytes().unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(disk.lock_holder(), None);
    assert_eq!(refused(disk.open(&mut Builder::new())), ErrorKind::NotFound);
    assert!(directory.names().is_empty(), "nothing was created by looking or opening");

    let database = disk.create(&mut Builder::new()).unwrap();
    assert_eq!(disk.look().unwrap(), Found::Missing, "no half-made file has the name");
    assert_eq!(refused(disk.create(&mut Builder::new())), ErrorKind::ResourceBusy);
    database.close().unwrap();
    assert_eq!(disk.publish().unwrap(), Published::Done);
    assert_eq!(disk.publish().unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(directory.names(), ["a.db"]);

    let Found::File { len, head } = disk.look().unwrap() else { panic!() };
    assert_eq!((len, head.len()), (disk.file_bytes().unwrap(), 512));
    assert!(head.starts_with(b"redb"));
    assert_eq!(disk.name(), directory.at("a.db").display().to_string());

    assert_eq!(disk.lock_holder(), None);
    let database = disk.open(&mut Builder::new()).unwrap();
    if cfg!(target_os = "linux") {
        assert_eq!(disk.lock_holder(), Some(std::process::id()));
    }
    let other = FileDisk::new(directory.at("a.db"));
    assert!(matches!(other.open(&mut Builder::new()), Err(DatabaseError::DatabaseAlreadyOpen)));
    drop(database);
    assert_eq!(disk.lock_holder(), None);
    drop(other.open(&mut Builder::new()).unwrap());
}

#[test]
fn publish_replaces_nothing() {
    let directory = Directory::new();
    let late = FileDisk::new(directory.at("a.db"));
    late.create(&mut Builder::new()).unwrap().close().unwrap();
    fs::write(directory.at("a.db"), b"precious").unwrap();
    assert_eq!(late.publish().unwrap(), Published::AlreadyThere);
    assert_eq!(fs::read(directory.at("a.db")).unwrap(), b"precious");
    assert_eq!(directory.names(), ["a.db"]);
    assert!(late.open(&mut Builder::new()).is_err());
    assert_eq!(fs::read(directory.at("a.db")).unwrap(), b"precious");
}

#[test]
fn links_replace_nothing_where_the_flag_is_missing() {
    let directory = Directory::new();
    fs::write(directory.at("new"), b"new").unwrap();
    fs::write(directory.at("old"), b"old").unwrap();
    assert_eq!(
        rename_new(&directory.at("new"), &directory.at("old")).unwrap_err().kind(),
        ErrorKind::AlreadyExists
    );
    assert_eq!(
        link_new(&directory.at("new"), &directory.at("old")).unwrap_err().kind(),
        ErrorKind::AlreadyExists
    );
    assert_eq!(fs::read(directory.at("old")).unwrap(), b"old");
    link_new(&directory.at("new"), &directory.at("free")).unwrap();
    assert_eq!(directory.names(), ["free", "old"]);
}

#[test]
fn one_of_eight_creators_publishes() {
    for _ in 0..10 {
        let directory = Directory::new();
        let path = directory.at("a.db");
        let barrier = Barrier::new(8);
        let done: usize = std::thread::scope(|scope| {
            let creators: Vec<_> = (0..8)
                .map(|_| {
                    scope.spawn(|| {
                        let disk = FileDisk::new(&path);
                        barrier.wait();
                        disk.create(&mut Builder::new()).unwrap().close().unwrap();
                        let published = disk.publish().unwrap();
                        // Some open, and clean up, while others are not done yet.
                        match disk.open(&mut Builder::new()) {
                            Ok(_) | Err(DatabaseError::DatabaseAlreadyOpen) => {}
                            Err(error) => panic!("{error}"),
                        }
                        published == Published::Done
                    })
                })
                .collect();
            creators.into_iter().map(|creator| usize::from(creator.join().unwrap())).sum()
        });
        assert_eq!(done, 1);
        drop(FileDisk::new(&path).open(&mut Builder::new()).unwrap());
        assert_eq!(directory.names(), ["a.db"]);
    }
}

#[test]
fn stale_temporaries_go_when_the_file_is_held() {
    const OTHERS: [&str; 4] =
        ["a.db.new-77-backup", "a.db.new-backup", "a.db.news", "b.db.new-77-00000000deadbeef"];
    let directory = Directory::new();
    let slow = FileDisk::new(directory.at("a.db"));
    slow.create(&mut Builder::new()).unwrap().close().unwrap();
    fs::write(directory.at("a.db.new-77-00000000deadbeef"), b"half").unwrap();
    for other in OTHERS {
        fs::write(directory.at(other), b"somebody's").unwrap();
    }
    let mut left = vec!["a.db"];
    left.extend(OTHERS);
    let quick = made(directory.at("a.db"));
    assert_eq!(directory.names(), left);
    assert_eq!(slow.publish().unwrap(), Published::AlreadyThere);
    fs::write(directory.at("a.db.new-78-00000000deadbeef"), b"half").unwrap();
    drop(quick.open(&mut Builder::new()).unwrap());
    assert_eq!(directory.names(), left);
}

#[test]
fn discard_leaves_nothing() {
    let directory = Directory::new();
    let disk = FileDisk::new(directory.at("a.db"));
    disk.discard();
    let database = disk.create(&mut Builder::new()).unwrap();
    disk.discard();
    drop(database);
    assert!(directory.names().is_empty());
    made(directory.at("a.db"));
}

#[test]
fn what_is_no_store_is_named_and_left_alone() {
    let directory = Directory::new();
    let kind = |path: &Path| FileDisk::new(path).look().unwrap();
    assert_eq!(kind(&directory.0), Found::NotAFile("a directory"));
    assert_eq!(kind(Path::new("/dev/null")), Found::NotAFile("a device"));
    assert_eq!(kind(&directory.at("none/a.db")), Found::DirectoryMissing);
    assert_eq!(refused(FileDisk::new(&directory.0).open(&mut Builder::new())), ErrorKind::InvalidInput);
    assert_eq!(refused(FileDisk::new("/dev/null").open(&mut Builder::new())), ErrorKind::InvalidInput);
    let missing = FileDisk::new(directory.at("none/a.db"));
    assert_eq!(refused(missing.create(&mut Builder::new())), ErrorKind::NotFound);
    assert_eq!(refused(FileDisk::new("").create(&mut Builder::new())), ErrorKind::InvalidInput);
    assert_eq!(refused(FileDisk::new("/").create(&mut Builder::new())), ErrorKind::InvalidInput);

    fs::write(directory.at("empty.db"), b"").unwrap();
    let empty = FileDisk::new(directory.at("empty.db"));
    assert_eq!(empty.look().unwrap(), Found::Empty);
    assert_eq!(refused(empty.open(&mut Builder::new())), ErrorKind::InvalidData);
    assert_eq!(empty.file_bytes().unwrap(), 0);

    let whole = made(directory.at("whole.db"));
    let bytes = fs::read(directory.at("whole.db")).unwrap();
    for len in [1, 8, 9, 10, 100, 319, 320, 321, 511, 512, 4095, 4096, 4097, bytes.len() - 1] {
        fs::write(directory.at("whole.db"), &bytes[..len]).unwrap();
        assert!(whole.open(&mut Builder::new()).is_err(), "{len} bytes");
        assert_eq!(fs::read(directory.at("whole.db")).unwrap(), &bytes[..len], "{len} bytes");
    }
    let Found::File { len: 100, head } = ({
        fs::write(directory.at("whole.db"), &bytes[..100]).unwrap();
        whole.look().unwrap()
    }) else {
        panic!()
    };
    assert_eq!(head, &bytes[..100]);
}

#[test]
fn a_link_leads_to_the_real_directory() {
    let directory = Directory::new();
    fs::create_dir(directory.at("real")).unwrap();
    symlink("real/there.db", directory.at("link.db")).unwrap();
    let disk = FileDisk::new(directory.at("link.db"));
    assert_eq!(disk.look().unwrap(), Found::Missing);
    let database = disk.create(&mut Builder::new()).unwrap();
    assert_eq!(directory.names(), ["link.db", "real"], "the temporary file is beside the real one");
    database.close().unwrap();
    assert_eq!(disk.publish().unwrap(), Published::Done);
    disk.reserve(4096).unwrap();
    let database = disk.open(&mut Builder::new()).unwrap();
    let direct = FileDisk::new(directory.at("real/there.db"));
    assert!(matches!(direct.open(&mut Builder::new()), Err(DatabaseError::DatabaseAlreadyOpen)));
    assert_eq!(direct.reserve_bytes(), 4096);
    assert!(disk.settle().unwrap().pages_dropped || !cfg!(target_os = "linux"));
    drop(database);
    symlink("loop.db", directory.at("loop.db")).unwrap();
    assert!(FileDisk::new(directory.at("loop.db")).look().is_err());
}

#[test]
fn a_bare_name_is_in_the_working_directory() {
    let name = format!("onecho-bare-{:016x}.db", getrandom::u64().unwrap());
    let disk = FileDisk::new(&name);
    assert_eq!(disk.look().unwrap(), Found::Missing);
    made(&name);
    disk.reserve(1000).unwrap();
    assert!(disk.release_reserve().unwrap());
    assert_eq!(disk.name(), name);
    drop(disk.open(&mut Builder::new()).unwrap());
    fs::remove_file(&name).unwrap();
    assert_eq!(directory_of(Path::new("a.db")), Path::new("."));
}

#[test]
fn what_may_not_be_written_says_so() {
    let directory = Directory::new();
    let disk = made(directory.at("a.db"));
    fs::set_permissions(directory.at("a.db"), fs::Permissions::from_mode(0o400)).unwrap();
    fs::set_permissions(&directory.0, fs::Permissions::from_mode(0o500)).unwrap();
    // Whom permissions do not bind cannot see them refuse.
    let bound = OpenOptions::new().write(true).open(directory.at("a.db")).is_err();
    if bound {
        assert_eq!(refused(disk.open(&mut Builder::new())), ErrorKind::PermissionDenied);
        assert!(matches!(disk.look().unwrap(), Found::File { .. }));
        let other = FileDisk::new(directory.at("b.db"));
        assert_eq!(refused(other.create(&mut Builder::new())), ErrorKind::PermissionDenied);
        assert_eq!(disk.reserve(10).unwrap_err().kind(), ErrorKind::PermissionDenied);
    }
    fs::set_permissions(&directory.0, fs::Permissions::from_mode(0o700)).unwrap();
    let nowhere = FileDisk::new("/proc/onecho.db");
    let kind = refused(nowhere.create(&mut Builder::new()));
    assert!(matches!(kind, ErrorKind::NotFound | ErrorKind::PermissionDenied), "{kind:?}");
}

#[test]
fn the_reserve_is_real() {
    const BYTES: u64 = 1 << 20;
    let directory = Directory::new();
    let disk = made(directory.at("a.db"));
    let path = directory.at("a.db.reserve");
    assert_eq!((disk.reserve_bytes(), disk.release_reserve().unwrap()), (0, false));
    disk.reserve(BYTES).unwrap();
    let found = fs::metadata(&path).unwrap();
    assert!(found.len() == BYTES && found.blocks() * 512 >= BYTES, "{found:?}");
    assert_eq!(disk.reserve_bytes(), BYTES);

    let changed = found.ctime_nsec();
    disk.reserve(BYTES).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().ctime_nsec(), changed, "nothing to do");
    disk.reserve(2 * BYTES).unwrap();
    assert_eq!(disk.reserve_bytes(), 2 * BYTES);
    disk.reserve(BYTES / 2).unwrap();
    assert_eq!(disk.reserve_bytes(), BYTES / 2);

    // Long enough, but promised only.
    File::create(&path).unwrap().set_len(BYTES).unwrap();
    assert_eq!(disk.reserve_bytes(), 0);
    disk.reserve(BYTES).unwrap();
    assert_eq!(disk.reserve_bytes(), BYTES);

    assert!(disk.release_reserve().unwrap());
    assert_eq!(directory.names(), ["a.db"]);
    // More than any file may have: nothing is left of the attempt, and what was there stays.
    assert!(disk.reserve(1 << 62).is_err());
    assert_eq!(directory.names(), ["a.db"]);
    disk.reserve(BYTES).unwrap();
    assert!(disk.reserve(1 << 62).is_err());
    assert_eq!(disk.reserve_bytes(), BYTES);
    disk.reserve(0).unwrap();
    assert_eq!(directory.names(), ["a.db"]);
    fs::create_dir(&path).unwrap();
    assert_eq!(disk.reserve(BYTES).unwrap_err().kind(), ErrorKind::InvalidInput);
    let file = File::create(directory.at("zeros")).unwrap();
    write_zeros(&file, 100_000).unwrap();
    let found = file.metadata().unwrap();
    assert!(found.len() == 100_000 && found.blocks() * 512 >= 100_000, "{found:?}");
}

#[test]
fn rows_survive_settle_and_reopen() {
    let directory = Directory::new();
    let disk = made(directory.at("a.db"));
    let database = disk.open(&mut Builder::new()).unwrap();
    let writing = database.begin_write().unwrap();
    writing.open_table(ROWS).unwrap().insert(1, 2).unwrap();
    writing.commit().unwrap();
    drop(database);
    disk.settle().unwrap();
    let database = disk.open(&mut Builder::new()).unwrap();
    let reading = redb::ReadableDatabase::begin_read(&database).unwrap();
    let row = reading.open_table(ROWS).unwrap().get(1).unwrap().map(|row| row.value());
    assert_eq!(row, Some(2));
}

#[test]
fn a_file_system_without_locks_is_refused() {
    let answer = |taken, start| refuse_without_locks(taken, start, Bound::Unbounded);
    let unsupported = || Err(BackendError::Unsupported);
    // Of a range it is an answer that redb can work with, of the whole file it is the end.
    assert!(matches!(answer(unsupported(), Bound::Included(9)), Err(BackendError::Unsupported)));
    for start in [Bound::Unbounded, Bound::Included(0)] {
        let wrapped = Err(BackendError::Io(ErrorKind::Unsupported.into()));
        for taken in [unsupported(), wrapped] {
            let Err(BackendError::Io(error)) = answer(taken, start) else { panic!() };
            assert_eq!(error.kind(), ErrorKind::Other);
        }
        assert!(matches!(answer(Ok(false), start), Ok(false)));
    }
}

#[test]
fn the_holder_is_read_from_the_table_of_locks() {
    let locks = "1: OFDLCK ADVISORY  WRITE -1 fe:00:42 0 EOF\n\
                 2: FLOCK  ADVISORY  WRITE 4711 fe:00:42 0 EOF\n\
                 2: -> FLOCK  ADVISORY  WRITE 4712 fe:00:42 0 EOF\n\
                 3: FLOCK  ADVISORY  WRITE 0 fe:00:43 0 EOF\n\
                 garbage\n";
    assert_eq!(holder_in(locks, "fe:00:42"), Some(4711));
    assert_eq!(holder_in(locks, "fe:00:43"), None);
    assert_eq!(holder_in(locks, "fe:00:4"), None);
}

/// A file of somebody else under the reserve's name is neither padded nor removed.
#[test]
fn a_file_that_is_no_reserve_is_left_alone() {
    let directory = Directory::new();
    let disk = made(directory.at("a.db"));
    let other = directory.at("a.db.reserve");
    fs::write(&other, "precious").unwrap();
    for refused in [disk.reserve(1 << 16).map(drop), disk.reserve(0), disk.release_reserve().map(drop)] {
        let error = refused.unwrap_err();
        assert!(error.to_string().contains("a.db.reserve"), "{error}");
    }
    assert_eq!(fs::read_to_string(&other).unwrap(), "precious");
}
