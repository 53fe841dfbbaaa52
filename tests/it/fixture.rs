//! A store that an earlier build wrote opens, verifies and answers as it did then.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use onecho::{Body, Key, Outcome, Reply, Request, Store, Timestamp};

#[path = "../fixtures/content.rs"]
pub mod content;

use content::{CLINIC, ORDERS, PAYMENTS, SCANS, SHOP, STOCK};

pub fn path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/format-1.onecho")
}

/// A copy in a directory of its own, for opening changes a file.
pub fn copy() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let copy = dir.path().join("copy.onecho");
    std::fs::copy(path(), &copy).unwrap();
    (dir, copy)
}

fn open(path: &Path) -> Store {
    let clock = content::Steps(Arc::new(AtomicU64::new(content::START + 60_000)));
    Store::open(path, content::options(&clock)).unwrap()
}

fn says_what_the_fixture_says(store: &Store) {
    let report = store.verify().unwrap();
    assert!(report.is_clean(), "{report:?}");
    assert_eq!((report.entries, report.records, report.rows), (9, 7, 8));
    for (number, command) in content::commands().into_iter().enumerate() {
        let reply = store.execute(&command.request, |_| panic!("command {number} runs again")).unwrap();
        let Reply::Replay(finished) = reply else { panic!("command {number} is answered {reply:?}") };
        assert_eq!((finished.code, finished.failed), (command.code, command.failed), "command {number}");
        assert_eq!(finished.at, Timestamp(content::START + 1000 * number as u64));
        match (&finished.body, command.body) {
            (Body::Present(body), Some(wrote)) => assert_eq!(body, wrote),
            (Body::NotKept { len, .. }, None) => assert_eq!(*len, "a secret receipt".len() as u64),
            other => panic!("command {number} has the body {other:?}"),
        }
    }
    let order = store.get(&SHOP, &ORDERS, "17").unwrap().unwrap();
    assert_eq!(order.value, content::Order { cents: 1300 });
    let seen = store.get(&CLINIC, &ORDERS, "seen").unwrap().unwrap();
    assert_eq!(seen.event_time, Some(Timestamp(5_000)));
    assert_eq!(store.get(&CLINIC, &SCANS, "s/1").unwrap().unwrap().value, &b"\x00\xFFscan"[..]);
    assert_eq!(store.get(&CLINIC, &SCANS, "large").unwrap().unwrap().value, content::large_scan());
    assert_eq!(store.get(&SHOP, &PAYMENTS, "1").unwrap().unwrap().value, (70_000, "Ada".to_owned()));
    assert_eq!(store.get(&SHOP, &STOCK, "pen").unwrap().unwrap().value, 299);
    assert!(store.get(&SHOP, &ORDERS, "gone").unwrap().is_none());
    assert!(store.get(&SHOP, &SCANS, "short-lived").unwrap().is_none());
    assert_eq!(store.holder(&SHOP, "promise", "one").unwrap(), Some(ORDERS.at("17")));
    assert_eq!(store.holder(&SHOP, "cart", "c-9").unwrap(), None);
}

#[test]
fn the_store_of_an_earlier_build_opens_and_answers_as_then() {
    let (_dir, copy) = copy();
    let store = open(&copy);
    says_what_the_fixture_says(&store);
    let again = content::commands().remove(0);
    let other = Request::new(&SHOP, &content::ORDER, &again.request.scope().key).bytes("method", "PUT");
    assert!(matches!(store.execute(&other, again.run).unwrap(), Reply::Mismatch { .. }));
    store.close().unwrap();
    says_what_the_fixture_says(&open(&copy));
}

#[test]
fn the_store_of_an_earlier_build_takes_new_commands() {
    let (_dir, copy) = copy();
    let store = open(&copy);
    let key = Key::parse("new").unwrap();
    let request = Request::new(&SHOP, &content::ORDER, &key).bytes("body", "x");
    let reply = store
        .execute(&request, |fx| {
            fx.put(&ORDERS, "17", &content::Order { cents: 1 })?;
            Ok(Outcome::succeeded(200))
        })
        .unwrap();
    assert!(matches!(reply, Reply::Done(_)));
    let report = store.verify().unwrap();
    assert!(report.is_clean(), "{report:?}");
    assert_eq!((report.entries, report.records, report.rows), (10, 8, 8));
}

#[test]
fn what_makes_the_fixture_still_makes_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let fresh = dir.path().join("fresh.onecho");
    content::write(&fresh);
    let (one, other) = (super::format::Read::of(&path()), super::format::Read::of(&fresh));
    assert_eq!(one.without_chance(), other.without_chance());
    says_what_the_fixture_says(&open(&fresh));
}
