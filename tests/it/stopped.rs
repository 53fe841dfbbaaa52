//! A store that stops and is opened again stays usable from every thread.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use onecho::testing::{Fault, SimDisk};
use onecho::{ErrorKind, Key, Operation, Options, Outcome, Request, Store, Tenant};

const STOPS: u64 = 300;
/// Far more than the test takes: what has not ended by then hangs.
const HANGS: Duration = Duration::from_secs(30);

/// Numbers are asked by gauges at any time: also while the writer works, the store stops, and it is opened again.
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

fn run(store: &Store, number: u64) -> Result<onecho::Reply, onecho::Error> {
    let key = Key::parse(&format!("key-{number}"))?;
    let request = Request::new(&Tenant::new("t"), &Operation::new("op"), &key).bytes("body", key.as_str());
    store.execute(&request, |_| Ok(Outcome::succeeded(201)))
}
