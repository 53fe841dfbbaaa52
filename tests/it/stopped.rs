//! A store that stops and is opened again stays usable from every thread.

#![expect(clippy::unwrap_used, reason = "a test: it fails loudly")]

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use onecho::testing::{Fault, ManualClock, SimDisk};
use onecho::{
    Error, ErrorKind, Key, Operation, Options, Outcome, Refused, Reply, Request, Store, Tenant, Timestamp,
};

const STOPS: u64 = 300;
/// Far more than the test takes: what has not ended by then hangs.
const HANGS: Duration = Duration::from_secs(30);

/// Numbers are asked by gauges at any time: also while the writer works, the store stops, and it is opened
/// again.
#[test]
fn numbers_can_be_asked_while_a_store_stops_and_is_opened_again() {
    let (done, ended) = mpsc::channel();
    thread::spawn(move || {
        let disk = SimDisk::seeded(1);
        let store = disk.open(Options::new()).unwrap();
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !over.load(Ordering::Relaxed) {
                        let stats = store.stats();
                        assert!(stats.records <= STOPS);
                    }
                });
            }
            for number in 0..STOPS {
                disk.fail(Fault::Write, 0);
                let failed = run(&store, number).unwrap_err();
                assert!(
                    matches!(failed.kind(), ErrorKind::CommitUncertain | ErrorKind::Unavailable),
                    "{failed}"
                );
                store.reopen().unwrap();
                assert!(run(&store, number).unwrap().into_finished().is_ok());
            }
            over.store(true, Ordering::Relaxed);
        });
        assert_eq!(store.stats().records, STOPS);
        done.send(()).unwrap();
    });
    ended.recv_timeout(HANGS).expect("it ended");
}

fn run(store: &Store, number: u64) -> Result<Reply, Error> {
    store.execute(&request(number)?, |_| Ok(outcome()))
}

fn request(number: u64) -> Result<Request, Error> {
    let key = Key::parse(&format!("key-{number}"))?;
    Ok(Request::new(&Tenant::new("t"), &Operation::new("op"), &key).bytes("body", key.as_str()))
}

fn outcome() -> Outcome {
    Outcome::succeeded(201).body(vec![b'x'; 1000])
}

/// A full disk stops nothing that is known, loses nothing, and is over when there is room.
#[test]
fn a_store_on_a_full_disk_replays_refuses_and_goes_on_when_there_is_room() {
    for rows in [1, 7, 50, 300, 1000] {
        for closes in [true, false] {
            let clock = ManualClock::at(Timestamp(1_796_040_000_000));
            let options = Options::new().clock(clock.clone());
            let disk = SimDisk::seeded(rows);
            let store = disk.open(options.clone()).unwrap();
            run_all(&store, 0..rows);
            let disk = if closes {
                store.close().unwrap();
                disk
            } else {
                disk.crash()
            };
            disk.fail(Fault::NoSpace, 0);
            let store =
                disk.open(options).unwrap_or_else(|error| panic!("{rows} rows, closed {closes}: {error}"));
            let done = fill(&store, rows);

            assert!(store.stats().disk_full);
            assert!(store.stats().uncertain_commits <= 1, "the full disk was found full again and again");
            for number in 0..done {
                assert!(run(&store, number).unwrap().is_replay(), "{number} of {done}");
            }
            assert!(matches!(run(&store, done).unwrap(), Reply::Refused(Refused::Capacity { .. })));

            disk.heal();
            clock.advance(Duration::from_secs(2));
            assert!(matches!(run(&store, done).unwrap(), Reply::Done(_)));
            assert!(!store.stats().disk_full);
            assert_eq!(store.stats().records, done + 1);
            assert!(store.verify().unwrap().is_clean());
        }
    }
}

/// Runs new commands until one is refused; returns how many are done. Each command's own value takes new
/// room.
fn fill(store: &Store, mut done: u64) -> u64 {
    loop {
        match run(store, done) {
            Ok(Reply::Done(_) | Reply::Replay(_)) => done += 1,
            Ok(Reply::Refused(Refused::Capacity { .. })) => return done,
            Ok(other) => panic!("{other:?}"),
            Err(error) => {
                assert!(
                    matches!(error.kind(), ErrorKind::CommitUncertain | ErrorKind::Unavailable),
                    "{error}"
                );
                store.reopen().unwrap();
            }
        }
    }
}

fn run_all(store: &Store, numbers: std::ops::Range<u64>) {
    let requests: Vec<(Request, ())> = numbers.map(|number| (request(number).unwrap(), ())).collect();
    for answer in store.execute_many(&requests, |(), _| Ok(outcome())) {
        assert!(answer.unwrap().into_finished().is_ok());
    }
}
