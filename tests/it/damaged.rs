//! A file that is damaged, foreign, taken or out of reach is an error that says what to do; it is never a
//! fresh store, never a wrong answer, and it is left as it was.
//!
//! `ONECHO_SEED` replays the random ones; `ONECHO_CASES` changes how many there are.

mod claims;
mod edit;
mod edited;
mod flipped;
mod refused;
mod unchecked;
mod waiting;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;

use onecho::{
    Body, Error, ErrorKind, Finished, Key, Kind, Operation, Options, Outcome, Ran, Reply, Request, Status,
    Store, Tenant,
};
use sha2::{Digest as _, Sha256};

const SHOP: Tenant = Tenant::new("shop");
const ORDER: Operation = Operation::new("order");
const NOTES: Kind<String> = Kind::json("note");
const COUNT: Kind<i64> = Kind::counter("count");
/// Commands in the store that is damaged.
const COMMANDS: usize = 24;

/// The seed of a randomised test: given, or new.
pub fn seed() -> u64 {
    match std::env::var("ONECHO_SEED") {
        Ok(text) => text.parse().expect("ONECHO_SEED is a number"),
        Err(_) => getrandom::u64().unwrap(),
    }
}

/// How many cases a randomised test tries.
fn cases(default: u64) -> u64 {
    std::env::var("ONECHO_CASES").map_or(default, |text| text.parse().expect("ONECHO_CASES is a number"))
}

/// Numbers that follow from a seed (`SplitMix64`).
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ mixed >> 31
    }

    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % end as u64).unwrap()
    }
}

/// A directory in memory where there is one: thousands of files are written and synced.
fn quick_dir() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// About half of what is made with them is merged, the rest waits.
fn options() -> Options {
    Options::small_device().reserve_bytes(0).late_bytes(4 << 10)
}

fn request(number: usize) -> Request {
    let key = Key::parse(&format!("k-{number}")).unwrap();
    Request::new(&SHOP, &ORDER, &key).bytes("body", number.to_string())
}

fn body(number: usize) -> Vec<u8> {
    format!("answer {number} ").repeat(1 + number).into_bytes()
}

/// A store with some of everything, closed cleanly.
fn make(path: &Path) {
    make_with(path, options());
}

fn make_with(path: &Path, options: Options) {
    let store = Store::open_or_create(path, options).unwrap();
    for number in 0..COMMANDS {
        let reply = store.execute(&request(number), |fx| {
            let made = fx.create(&NOTES, &format!("n-{number}"), &format!("note {number}"))?;
            fx.unique("name", &format!("u-{number}"), &made)?;
            fx.add(&COUNT, "all", 1, 0)?;
            Ok(Outcome::succeeded(201).body(body(number)).resource(&made))
        });
        assert!(matches!(reply, Ok(Reply::Done(_))), "{reply:?}");
    }
    store.close().unwrap();
}

/// The bytes of such a store.
fn sound() -> Vec<u8> {
    let dir = quick_dir();
    let path = dir.path().join("sound.onecho");
    make(&path);
    std::fs::read(&path).unwrap()
}

/// What an opened store says about everything that is in it.
#[derive(Debug, Default, PartialEq, Eq)]
struct Said {
    /// Answers that are not what was written, with where.
    wrong: Vec<String>,
    /// Answers that what was written is not there.
    gone: Vec<String>,
    /// Answers that are errors.
    errors: usize,
}

impl Said {
    fn of(store: &Store) -> Self {
        let mut said = Self::default();
        for number in 0..COMMANDS {
            let id = format!("n-{number}");
            let wrote = |finished: Finished| {
                finished.code == 201 && finished.body == Body::Present(body(number).into())
            };
            let status = store.status(request(number).scope());
            said.check(&format!("status {number}"), status, |status| match status {
                Status::Finished(finished) => Some(wrote(finished)),
                _ => None,
            });
            let reply = store.execute(&request(number), |_| Err("runs again".into()));
            said.check(&format!("replay {number}"), reply, |reply| reply.into_finished().ok().map(wrote));
            let row = store.get(&SHOP, &NOTES, &id);
            said.check(&format!("row {number}"), row, |row| Some(row?.value == format!("note {number}")));
            let holder = store.holder(&SHOP, "name", &format!("u-{number}"));
            said.check(&format!("name {number}"), holder, |holder| Some(holder? == NOTES.at(&id)));
        }
        let count = store.get(&SHOP, &COUNT, "all");
        said.check("count", count, |row| Some(usize::try_from(row?.value) == Ok(COMMANDS)));
        said
    }

    /// `right`: whether it is what was written; `None` where it is not there.
    fn check<A>(&mut self, what: &str, answer: Result<A, Error>, right: impl FnOnce(A) -> Option<bool>) {
        match answer.map(right) {
            Ok(Some(true)) => {}
            Ok(Some(false)) => self.wrong.push(what.to_owned()),
            Ok(None) => self.gone.push(what.to_owned()),
            Err(error) if error.kind() == ErrorKind::Aborted => self.gone.push(format!("{what} runs again")),
            Err(error) => {
                assert!(
                    matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Unavailable),
                    "{what}: {error:?}"
                );
                self.errors += 1;
            }
        }
    }
}

/// Names in a directory, each with the SHA-256 of its bytes; of what is no file only the name.
fn listing(dir: &Path) -> BTreeMap<OsString, Option<[u8; 32]>> {
    let entries = std::fs::read_dir(dir).unwrap().map(Result::unwrap);
    entries
        .map(|entry| {
            let is_file = entry.file_type().unwrap().is_file();
            let bytes = is_file.then(|| Sha256::digest(std::fs::read(entry.path()).unwrap()).into());
            (entry.file_name(), bytes)
        })
        .collect()
}

/// Both ways of opening refuse with this kind and these words, and nothing in the directory changes.
#[track_caller]
fn refuses(path: &Path, options: &Options, kind: ErrorKind, words: &[&str]) {
    let dir = path.parent().unwrap();
    let before = dir.is_dir().then(|| listing(dir));
    for (way, opened) in [
        ("open", Store::open(path, options.clone())),
        ("open_or_create", Store::open_or_create(path, options.clone())),
    ] {
        let error = opened.expect_err(way);
        assert_eq!(error.kind(), kind, "{way}: {error}");
        assert_eq!(error.ran(), Ran::No);
        let text = error.to_string();
        assert!(text.contains(&path.display().to_string()), "{way}: the path is not in: {text}");
        for word in words {
            assert!(text.contains(word), "{way}: {word:?} is not in: {text}");
        }
        assert!(before == dir.is_dir().then(|| listing(dir)), "{way} changed the directory: {text}");
    }
}
