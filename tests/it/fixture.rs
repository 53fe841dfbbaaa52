//! A store that an earlier build wrote opens, verifies and answers as it did then.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use onecho::{Begin, Body, Key, Outcome, Reply, Request, Start, Status, Stepped, Store, Timestamp};

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
    assert_eq!((report.entries, report.records, report.rows, report.open), (69, 13, 10, 7));
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
    says_of_claims_what_the_fixture_says(store);
}

fn says_of_claims_what_the_fixture_says(store: &Store) {
    assert_eq!(store.get(&SHOP, &STOCK, "ink").unwrap().unwrap().value, 6);
    let status = |key: &str| store.status(content::ship(key).scope()).unwrap();
    for key in ["s-begun", "s-moved", "s-stopped", "s-taken"] {
        assert!(matches!(status(key), Status::Processing { owner, .. } if owner == "fixture"), "{key}");
    }
    let read = super::format::Read::of(&path());
    let mut unknown: Vec<String> = Vec::new();
    for case in store.cases().map(Result::unwrap) {
        let key = case.scope.key.as_str().to_owned();
        let scope = ["shop", "ship", &key].map(str::to_owned);
        let (_, open) = read.open_commands().find(|(_, open)| open.scope == scope).unwrap();
        for (step, stored) in case.steps.iter().zip(&open.steps) {
            assert_eq!(step.operation.as_str(), open.operation_id(&stored.name));
        }
        assert_eq!(case.input::<content::Order>().unwrap(), content::Order { cents: 1200 });
        assert!(matches!(status(&key), Status::Unknown(same) if same == case));
        unknown.push(key);
    }
    assert_eq!(unknown, ["s-unsure", "s-judged", "s-lapsed"], "oldest first");
    for key in content::OPEN {
        let reply = store.execute(&content::ship(key), |_| panic!("{key} is open and runs")).unwrap();
        assert!(matches!(reply, Reply::InProgress { .. } | Reply::Unknown { .. }), "{key}: {reply:?}");
    }
    for (key, code, failed) in
        [("s-resolved", 201, false), ("s-finished", 402, true), ("s-cancelled", 499, true)]
    {
        let Status::Finished(finished) = status(key) else { panic!("{key} is not finished") };
        assert_eq!((finished.code, finished.failed), (code, failed), "{key}");
        let reply = store.execute(&content::ship(key), |_| panic!("{key} runs again")).unwrap();
        assert!(reply.is_replay(), "{key}: {reply:?}");
    }
    for key in ["s-released", "s-aborted"] {
        assert!(matches!(status(key), Status::Absent), "{key}");
    }
    let words = |key: &str| -> Vec<String> {
        let history = store.history(content::ship(key).scope()).unwrap();
        history.into_iter().map(|entry| entry.change).collect()
    };
    assert_eq!(words("s-lapsed"), ["begun", "lapsed", "differed"]);
    assert_eq!(words("s-judged"), ["begun", "unsure", "judged", "judged", "judged"]);
    let stats = store.stats();
    assert_eq!((stats.open, stats.unknown_open, stats.resolved, stats.differences), (7, 3, 2, 1));
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
    assert_eq!((report.entries, report.records, report.rows, report.open), (70, 14, 10, 7));
}

#[test]
fn the_claims_of_an_earlier_build_are_gone_on_with() {
    let (_dir, copy) = copy();
    let store = open(&copy);
    // What was settled is free to go on with at once; whoever takes it over gets the answers that are known.
    let begun = store.begin(&content::ship("s-judged"), Start::new()).unwrap();
    let Begin::Run(mut claim) = begun else { panic!("{begun:?}") };
    assert_eq!((claim.attempt(), claim.cancel_asked()), (2, false));
    assert_eq!(claim.step(&content::CHARGE).unwrap(), Stepped::Answered("ch_18".to_owned()));
    assert_eq!(claim.step(&content::LABEL).unwrap(), Stepped::Answered(70_000));
    claim.finish(|_| Ok(Outcome::succeeded(201))).unwrap();
    // Leases are counted anew, so the others are in progress.
    let begun = store.begin(&content::ship("s-moved"), Start::new()).unwrap();
    assert!(matches!(begun, Begin::Reply(Reply::InProgress { attempt: 1, .. })), "{begun:?}");
    let begun = store.begin(&content::ship("s-unsure"), Start::new()).unwrap();
    assert!(matches!(begun, Begin::Reply(Reply::Unknown { .. })), "{begun:?}");
    let report = store.verify().unwrap();
    assert!(report.is_clean() && report.open == 6, "{report:?}");
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
