//! What is no store, is another's, or cannot be reached.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use onecho::{ErrorKind, ScopeMode, Store};
use redb::Database;

use super::{Said, listing, make, options, quick_dir, refuses, sound};
use crate::format;

const LEFT: &str = "it was left as it is";

fn foreign(bytes: &[u8]) {
    let dir = quick_dir();
    let path = dir.path().join("orders.onecho");
    std::fs::write(&path, bytes).unwrap();
    refuses(&path, &options(), ErrorKind::Corrupt, &["is not a onecho store", LEFT, "check the path"]);
}

#[test]
fn what_is_no_store_is_refused_and_left_alone() {
    foreign(b"id,cents\n17,1200\n");
    foreign(b"PK\x03\x04\x14\x00\x00\x00\x08\x00 and so on");
    foreign(b"SQLite format 3\x00\x10\x00\x01\x01");
    foreign(b"redb");
    foreign(&vec![0; 100_000]);
    foreign(&[0xFF; 4096]);
    foreign(b"\n");
}

#[test]
fn a_redb_file_that_is_no_store_is_refused() {
    const OTHER: redb::TableDefinition<&str, u64> = redb::TableDefinition::new("other");
    const META_OF_OTHERS: redb::TableDefinition<&str, &[u8]> = redb::TableDefinition::new("meta");
    let dir = quick_dir();
    for (name, with_meta) in [("a", false), ("b", true)] {
        let path = dir.path().join(name);
        let database = Database::create(&path).unwrap();
        let write = database.begin_write().unwrap();
        write.open_table(OTHER).unwrap().insert("x", 1).unwrap();
        if with_meta {
            write.open_table(META_OF_OTHERS).unwrap().insert("format", b"something 1".as_slice()).unwrap();
        }
        write.commit().unwrap();
        drop(database);
        refuses(&path, &options(), ErrorKind::Corrupt, &["is not a onecho store", LEFT]);
    }
}

#[test]
fn a_redb_file_with_a_table_of_our_name_and_another_shape_is_refused() {
    const META: redb::TableDefinition<u64, u64> = redb::TableDefinition::new("meta");
    let dir = quick_dir();
    let path = dir.path().join("a");
    let database = Database::create(&path).unwrap();
    let write = database.begin_write().unwrap();
    write.open_table(META).unwrap().insert(1, 1).unwrap();
    write.commit().unwrap();
    drop(database);
    refuses(&path, &options(), ErrorKind::Corrupt, &[LEFT]);
}

#[test]
fn an_empty_file_is_no_fresh_store() {
    let dir = quick_dir();
    let path = dir.path().join("orders.onecho");
    std::fs::write(&path, b"").unwrap();
    refuses(&path, &options(), ErrorKind::Corrupt, &["is empty", "restore it, or remove it"]);
}

#[test]
fn what_is_no_file_is_refused() {
    let dir = quick_dir();
    let path = dir.path().join("orders.onecho");
    std::fs::create_dir(&path).unwrap();
    refuses(&path, &options(), ErrorKind::Invalid, &["is a directory", "give the store's file"]);
    let pipe = dir.path().join("pipe");
    if Command::new("mkfifo").arg(&pipe).status().is_ok_and(|status| status.success()) {
        refuses(&pipe, &options(), ErrorKind::Invalid, &["is a pipe", "give the store's file"]);
    }
    let null = Path::new("/dev/null");
    for opened in [Store::open(null, options()), Store::open_or_create(null, options())] {
        let error = opened.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().starts_with("/dev/null is a device"), "{error}");
    }
}

#[test]
fn a_missing_file_is_said_to_be_missing_and_not_made() {
    let dir = quick_dir();
    let path = dir.path().join("orders.onecho");
    let error = Store::open(&path, options()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Missing);
    let text = error.to_string();
    assert!(
        text.contains(&path.display().to_string()) && text.contains("check the path and the mount"),
        "{text}"
    );
    assert!(listing(dir.path()).is_empty());
}

#[test]
fn a_missing_directory_is_not_made() {
    let dir = quick_dir();
    let path = dir.path().join("mount/orders.onecho");
    refuses(&path, &options(), ErrorKind::Missing, &["the directory of", "check the mount"]);
    assert!(listing(dir.path()).is_empty());
}

#[test]
fn a_link_that_leads_nowhere_is_missing() {
    let dir = quick_dir();
    let path = dir.path().join("link");
    std::os::unix::fs::symlink(dir.path().join("nowhere"), &path).unwrap();
    let before = listing(dir.path());
    let error = Store::open(&path, options()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Missing);
    assert!(error.to_string().contains(&path.display().to_string()), "{error}");
    assert_eq!(listing(dir.path()), before);
    let round = dir.path().join("round");
    std::os::unix::fs::symlink(&round, &round).unwrap();
    refuses(&round, &options(), ErrorKind::Unavailable, &["cannot be opened", "check the disk"]);
}

#[test]
fn a_name_that_is_no_text_is_a_name() {
    use std::os::unix::ffi::OsStringExt;
    let dir = quick_dir();
    let path = dir.path().join(OsString::from_vec(b"orders-\xFF\xFE.onecho".to_vec()));
    let error = Store::open(&path, options()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Missing);
    make(&path);
    assert_eq!(Said::of(&Store::open(&path, options()).unwrap()), Said::default());
    assert_eq!(listing(dir.path()).len(), 1);
    std::fs::write(&path, b"").unwrap();
    refuses(&path, &options(), ErrorKind::Corrupt, &["is empty"]);
}

#[test]
fn a_creation_that_was_cut_off_left_nothing_under_the_name() {
    let dir = quick_dir();
    let path = dir.path().join("orders.onecho");
    let left = dir.path().join("orders.onecho.new-4711-0123456789abcdef");
    std::fs::write(&left, &sound()[..5000]).unwrap();
    let before = listing(dir.path());
    assert_eq!(Store::open(&path, options()).unwrap_err().kind(), ErrorKind::Missing);
    assert_eq!(listing(dir.path()), before);
    make(&path);
    assert_eq!(Said::of(&Store::open(&path, options()).unwrap()), Said::default());
    let names: Vec<OsString> = listing(dir.path()).into_keys().collect();
    assert_eq!(names, ["orders.onecho"], "what was cut off is cleared away by the store that has the name");
}

/// The row `format` is replaced with the storage engine itself, as another version of this program would
/// write it.
fn with_format(row: &[u8]) -> (tempfile::TempDir, PathBuf) {
    let dir = quick_dir();
    let path = dir.path().join("orders.onecho");
    make(&path);
    let database = Database::open(&path).unwrap();
    let write = database.begin_write().unwrap();
    write.open_table(format::META).unwrap().insert("format", row).unwrap();
    write.commit().unwrap();
    drop(database);
    (dir, path)
}

#[test]
fn other_versions_of_the_format_are_named_and_left_alone() {
    for (row, found) in [
        (b"onecho\x00\x02", "version 2"),
        (b"onecho\x00\x00", "version 0"),
        (b"onecho\xFF\xFF", "version 65535"),
    ] {
        let (_dir, path) = with_format(row);
        refuses(
            &path,
            &options(),
            ErrorKind::UnsupportedFormat,
            &[found, "knows 1", "use the version that wrote it"],
        );
    }
    for row in [&b"onecho"[..], b"onecho\x00\x01\x00", b"", b"another\x00\x01"] {
        let (_dir, path) = with_format(row);
        refuses(&path, &options(), ErrorKind::Corrupt, &["is not a onecho store", LEFT]);
    }
}

#[test]
fn another_scope_mode_is_named_and_changes_nothing() {
    let dir = quick_dir();
    let path = dir.path().join("orders.onecho");
    make(&path);
    let other = options().scope_mode(ScopeMode::PerTenant);
    refuses(&path, &other, ErrorKind::ScopeMode, &["PerOperation", "open it with that mode"]);
}

#[test]
fn a_file_that_is_open_here_is_said_to_be() {
    let dir = quick_dir();
    let path = dir.path().join("orders.onecho");
    make(&path);
    let store = Store::open(&path, options()).unwrap();
    refuses(&path, &options(), ErrorKind::Locked, &["already open in this process", "share the open store"]);
    assert_eq!(Said::of(&store), Said::default());
    store.close().unwrap();
    assert_eq!(Said::of(&Store::open(&path, options()).unwrap()), Said::default());
}

const HELD: &str = "ONECHO_TEST_HELD";

/// Plays both sides: started again with a path in its environment, it holds that store until its input ends.
#[test]
fn a_file_that_is_open_elsewhere_is_said_to_be_and_by_whom() {
    if let Some(path) = std::env::var_os(HELD) {
        let _store = Store::open(path, options()).unwrap();
        std::io::stdout().write_all(b"\nheld\n").unwrap();
        std::io::stdin().lock().lines().for_each(drop);
        return;
    }
    let dir = quick_dir();
    let path = dir.path().join("orders.onecho");
    make(&path);
    let mut holder = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "damaged::refused::a_file_that_is_open_elsewhere_is_said_to_be_and_by_whom",
            "--nocapture",
        ])
        .env(HELD, &path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(holder.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.any(|line| line == "held"), "the other process did not open the store");
    let by = format!("already open in process {}", holder.id());
    refuses(&path, &options(), ErrorKind::Locked, &[&by, "stop it first"]);
    drop(holder.stdin.take());
    lines.for_each(drop);
    assert!(holder.wait().unwrap().success());
    assert_eq!(Said::of(&Store::open(&path, options()).unwrap()), Said::default());
}

/// A mount that is taken away again, whatever happens.
struct ReadOnlyMount(PathBuf);

impl ReadOnlyMount {
    /// `dir` bound onto itself for reading only; `None` where that is not allowed.
    fn over(dir: &Path) -> Option<Self> {
        let mount = |args: &[&str]| {
            let run = Command::new("mount").args(args).arg(dir).stderr(Stdio::null()).status();
            run.is_ok_and(|status| status.success())
        };
        let text = dir.to_str().unwrap();
        if !mount(&["--bind", text]) {
            return None;
        }
        let mounted = Self(dir.to_owned());
        mount(&["-o", "remount,bind,ro"]).then_some(mounted)
    }
}

impl Drop for ReadOnlyMount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

fn skipped(why: &str) {
    let _ = writeln!(std::io::stderr(), "skipped: {why}");
}

#[test]
fn a_disk_that_is_read_only_is_said_to_be() {
    let dir = quick_dir();
    let path = dir.path().join("orders.onecho");
    make(&path);
    let Some(_mount) = ReadOnlyMount::over(dir.path()) else {
        return skipped("this user may not mount a directory for reading only");
    };
    refuses(
        &path,
        &options(),
        ErrorKind::Unavailable,
        &["cannot be opened", "read-only: mount it for writing"],
    );
    let absent = dir.path().join("absent.onecho");
    let error = Store::open_or_create(&absent, options()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let text = error.to_string();
    assert!(text.contains("absent.onecho") && text.contains("read-only"), "{text}");
}

#[test]
fn a_file_without_the_right_to_write_is_said_to_be() {
    use std::os::unix::fs::PermissionsExt;
    let dir = quick_dir();
    let path = dir.path().join("orders.onecho");
    make(&path);
    let allow =
        |path: &Path, mode| std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    allow(&path, 0o444);
    if std::fs::OpenOptions::new().write(true).open(&path).is_ok() {
        return skipped("permissions do not bind this user");
    }
    refuses(&path, &options(), ErrorKind::Unavailable, &["cannot be opened", "the right to read and write"]);
    allow(&path, 0o644);
    allow(dir.path(), 0o555);
    let error = Store::open_or_create(dir.path().join("absent.onecho"), options()).unwrap_err();
    allow(dir.path(), 0o755);
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("the right to read and write"), "{error}");
}
