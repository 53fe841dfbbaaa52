//! That a hit takes no lock: it is answered while somebody else holds every lock on its way.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use crate::core::name::{Key, Operation, Tenant};
use crate::core::outcome::Outcome;
use crate::core::policy::{AfterExpiry, Policy};
use crate::core::reply::Reply;
use crate::core::time::Timestamp;
use crate::engine::clock::Clock;
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

/// A wall clock and a monotonic one, in milliseconds.
#[derive(Clone, Default)]
struct Hands(Arc<[AtomicU64; 2]>);

impl Hands {
    fn pass(&self, by: Duration) {
        let by = u64::try_from(by.as_millis()).unwrap();
        for hand in self.0.iter() {
            hand.fetch_add(by, Ordering::Relaxed);
        }
    }

    fn jump(&self, by: Duration) {
        self.0[0].fetch_add(u64::try_from(by.as_millis()).unwrap(), Ordering::Relaxed);
    }
}

impl Clock for Hands {
    fn now(&self) -> Timestamp {
        Timestamp(self.0[0].load(Ordering::Relaxed))
    }

    fn monotonic(&self) -> Duration {
        Duration::from_millis(self.0[1].load(Ordering::Relaxed))
    }
}

/// A caller publishes what it ran, and one that is slow enough does so behind its successor. Nobody is
/// answered from it then, also when a clock that settles makes the older window begin again, and not the
/// newer.
#[test]
fn a_record_that_is_published_behind_its_successor_answers_nobody() {
    const MINUTE: Duration = Duration::from_secs(60);
    let hands = Hands::default();
    let policy = Policy::new().body_window(60 * MINUTE).key_window(60 * MINUTE);
    let options = Options::new()
        .default_policy(policy.after_expiry(AfterExpiry::RunAsNew))
        .clock(hands.clone())
        .clock_jump_max(MINUTE)
        .clock_settle(MINUTE);
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open_or_create(directory.path().join("store"), options).unwrap();
    let (engine, asked) = (store.engine(), request("k"));
    let known = asked.asked(engine.settings()).unwrap().into_owned();

    let run = || store.execute(&asked, |_| Ok(Outcome::succeeded(201).body("made"))).unwrap();
    assert!(matches!(run(), Reply::Done(_)));
    let first = engine.read(|db| db.record(known.digest)).unwrap().unwrap();
    hands.pass(60 * MINUTE);
    assert!(matches!(run(), Reply::Done(_)));
    engine.index.publish(&known.imprint, &first);
    assert!(matches!(run(), Reply::Replay(finished) if finished.generation == 2));

    engine.index.publish(&known.imprint, &first);
    hands.jump(30 * MINUTE);
    assert!(matches!(run(), Reply::Replay(_)), "the jump is not believed");
    engine.index.publish(&known.imprint, &first);
    hands.pass(MINUTE);
    let reply = run();
    assert!(matches!(&reply, Reply::Replay(finished) if finished.generation == 2), "{reply:?}");
    assert!(store.peek(&asked).is_none_or(|reply| reply.is_replay()));
}
