//! That a hit takes no lock: it is answered while somebody else holds every lock on its way.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use crate::core::name::{Key, Operation, Tenant};
use crate::core::outcome::Outcome;
use crate::options::Options;
use crate::replay::ReplayBuffer;
use crate::request::Request;
use crate::store::Store;

/// Far more than a hit takes: who has not answered by then waits for a lock.
const HANGS: Duration = Duration::from_secs(30);

fn request(key: &str) -> Request {
    Request::new(&Tenant::new("t"), &Operation::new("op"), &Key::parse(key).unwrap()).bytes("body", "x")
}

#[test]
fn a_hit_is_answered_while_somebody_holds_every_lock() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open_or_create(directory.path().join("store"), Options::new()).unwrap();
    let replay = store.execute(&request("k"), |_| Ok(Outcome::succeeded(201).body("made"))).unwrap();
    let finished = replay.into_finished().unwrap();
    let engine = store.engine();

    let (tell, told) = mpsc::channel();
    thread::scope(|scope| {
        let locks = (
            engine.file.write(),
            engine.clock.held(),
            engine.index.held(),
            engine.tail.lock(),
            engine.room.try_at.lock(),
        );
        scope.spawn(|| {
            let asked = request("k");
            // Long enough that the clock wants to be looked at closely, whose lock is held too.
            let start = engine.clock.monotonic();
            let mut buffer = ReplayBuffer::new();
            while engine.clock.monotonic().saturating_sub(start) < Duration::from_millis(300) {
                let receipt = store.peek_receipt(&asked).expect("a hit");
                assert_eq!((receipt.code, receipt.at), (201, finished.at));
                let outcome = store.peek_into(&asked, &mut buffer).expect("a hit");
                assert_eq!(outcome.body(), b"made");
                assert!(store.peek(&asked).is_some_and(|reply| reply.is_replay()));
                assert!(store.peek_receipt(&request("never asked")).is_none());
            }
            tell.send(()).unwrap();
        });
        let answered = told.recv_timeout(HANGS);
        drop(locks);
        answered.expect("it waits for nobody");
    });
}
