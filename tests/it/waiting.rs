//! Nothing waits for itself and nothing waits for ever: closures that call their store, callers of a store
//! that closes or is slow.

use std::sync::mpsc;
use std::time::Duration;

use onecho::testing::{Fault, SimDisk};
use onecho::{Advice, Effects, ErrorKind, Options, Outcome, Refused, Reply, Store};

use crate::common::*;

/// C089: inside a closure every call of its own store that touches rows is `Reentrant`, through every clone;
/// the command itself goes on.
#[test]
fn a_closure_cannot_call_its_own_store() {
    let store = store();
    done(store.execute(&request("before"), counted));
    let clone = store.clone();
    let outside = clone.scan(&SHOP, &COUNT, "");
    let outside = std::cell::RefCell::new(outside);
    let calls_all = |fx: &mut Effects<'_, '_>| {
        let refused = |answer: Result<(), onecho::Error>| drop(fails(answer, ErrorKind::Reentrant));
        refused(clone.execute(&request("inner"), never).map(drop));
        for answer in clone.execute_many(&[(request("inner"), ())], |(), fx| never(fx)) {
            refused(answer.map(drop));
        }
        refused(clone.status(request("before").scope()).map(drop));
        refused(clone.get(&SHOP, &COUNT, "applied").map(drop));
        refused(clone.scan(&SHOP, &COUNT, "").next().unwrap().map(drop));
        refused(outside.borrow_mut().next().unwrap().map(drop));
        refused(clone.holder(&SHOP, "email", "a@b.c").map(drop));
        refused(clone.verify().map(drop));
        refused(clone.verify_with(|_, _| {}).map(drop));
        refused(clone.reopen());
        refused(clone.close());
        counted(fx)
    };
    done(store.execute(&request("outer"), calls_all));
    for answer in store.execute_many(&[(request("many"), ())], |(), fx| calls_all_again(&store, fx)) {
        done(answer);
    }
    assert_eq!(applied(&store), 3);
}

fn calls_all_again(store: &Store, fx: &mut Effects<'_, '_>) -> Answer {
    fails(store.execute(&request("inner"), never), ErrorKind::Reentrant);
    fails(store.get(&SHOP, &COUNT, "applied"), ErrorKind::Reentrant);
    counted(fx)
}

/// C089: what a closure got `Reentrant` for and passes on ends its command, and the key is free.
#[test]
fn a_reentrant_closure_frees_its_key() {
    let store = store();
    let reply = store.execute(&request("k"), |_| {
        store.execute(&request("k"), never)?.into_finished().map_err(|_| "not finished")?;
        Ok(Outcome::succeeded(200))
    });
    let error = fails(reply, ErrorKind::Reentrant);
    assert_eq!(error.advice(), Advice::FixRequest);
    done(store.execute(&request("k"), counted));
}

/// Another store may be called, and what only looks at memory too.
#[test]
fn a_closure_may_call_another_store() {
    let (store, other) = (store(), store());
    done(store.execute(&request("before"), counted));
    done(store.execute(&request("k"), |fx| {
        done(other.execute(&request("k"), |inner| {
            fails(store.execute(&request("deep"), never), ErrorKind::Reentrant);
            counted(inner)
        }));
        assert_eq!(applied(&other), 1);
        assert!(store.peek(&request("before")).is_some());
        assert_eq!(store.stats().executed, 1);
        counted(fx)
    }));
    // A panic inside leaves no trace of having been inside.
    let called = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        store.execute(&request("p"), |_| std::panic::resume_unwind(Box::new("planned")))
    }));
    assert!(called.is_err());
    done(store.execute(&request("p"), counted));
}

/// Closing ends what is under way with its true answer or `Closed`; who waited is told, later calls are
/// `Closed`, and what was acknowledged is there.
#[test]
fn closing_answers_everybody() {
    let disk = SimDisk::seeded(1);
    let store = disk.open(Options::new().default_policy(patient())).unwrap();
    done(store.execute(&request("before"), counted));
    let gate = Gate::new();
    std::thread::scope(|scope| {
        let running = scope.spawn(|| {
            store.execute(&request("k"), |fx| {
                gate.pass();
                counted(fx)
            })
        });
        gate.arrived(1);
        let waiting = scope.spawn(|| store.execute(&request("k"), counted));
        let_others_wait();
        store.close().unwrap();
        gate.open();
        for late in [running.join().unwrap(), waiting.join().unwrap()] {
            let error = fails(late, ErrorKind::Closed);
            assert_eq!(error.ran(), onecho::Ran::No);
        }
    });
    store.close().unwrap(); // again changes nothing
    fails(store.execute(&request("before"), never), ErrorKind::Closed);
    fails(store.execute_many(&[(request("x"), ())], |(), fx| never(fx)).remove(0), ErrorKind::Closed);
    fails(store.status(request("before").scope()), ErrorKind::Closed);
    fails(store.get(&SHOP, &COUNT, "applied"), ErrorKind::Closed);
    fails(store.scan(&SHOP, &COUNT, "").next().unwrap(), ErrorKind::Closed);
    fails(store.holder(&SHOP, "a", "b"), ErrorKind::Closed);
    fails(store.verify(), ErrorKind::Closed);
    fails(store.reopen(), ErrorKind::Closed);
    assert_eq!(store.peek(&request("before")), None);
    let store = disk.open(Options::new()).unwrap();
    assert_eq!(applied(&store), 1);
    replay(store.execute(&request("before"), never));
}

/// A full queue is `Refused` after the caller's wait, with a time to come back; nothing ran to its end, and
/// the key is free.
#[test]
fn a_full_queue_refuses() {
    refuses_when_full(Options::new().queue_max(1));
}

/// So is one that is full by its bytes, though a command larger than all of it is taken when nothing waits.
#[test]
fn a_queue_full_of_bytes_refuses() {
    refuses_when_full(Options::new().queue_bytes_max(64 << 10));
}

fn refuses_when_full(options: Options) {
    let disk = SimDisk::seeded(1);
    let store = disk.open(options.default_policy(patient())).unwrap();
    make_room(&store);
    let counted = |fx: &mut Effects<'_, '_>| {
        fx.put(&NOTES, "room", &"x".repeat(100 << 10))?;
        counted(fx)
    };
    disk.fail(Fault::SlowSync(PATIENT), 0);
    std::thread::scope(|scope| {
        let writing = scope.spawn(|| store.execute(&request("writing"), counted));
        // Whichever comes first takes the lead and waits for the disk; the other stands in the queue.
        let queued = scope.spawn(|| store.execute(&request("queued"), counted));
        while store.stats().queued == 0 {
            std::thread::yield_now();
        }
        let refused = store.execute(&request("refused").wait(Duration::from_millis(5)), counted).unwrap();
        let Reply::Refused(Refused::Capacity { retry_after }) = refused else { panic!("{refused:?}") };
        assert!(retry_after > Duration::ZERO);
        assert_eq!(refused.advice(), Advice::RetrySameKey { after: retry_after });
        for answer in store.execute_many(&[(request("many").wait(Duration::ZERO), ())], |(), fx| counted(fx))
        {
            assert!(matches!(answer, Ok(Reply::Refused(Refused::Capacity { .. }))), "{answer:?}");
        }
        disk.heal();
        done(writing.join().unwrap());
        done(queued.join().unwrap());
    });
    done(store.execute(&request("refused"), counted));
    assert_eq!((applied(&store), store.stats().refused), (3, 2));
}

/// A budget bounds the wait for room in the queue, not for the disk: who is queued gets its true answer, also
/// when that comes later.
#[test]
fn who_is_queued_is_answered() {
    let disk = SimDisk::seeded(1);
    let store = disk.open(Options::new().default_policy(patient())).unwrap();
    make_room(&store);
    disk.fail(Fault::SlowSync(PATIENT), 0);
    std::thread::scope(|scope| {
        let writing = scope.spawn(|| store.execute(&request("writing"), counted));
        let queued = scope.spawn(|| store.execute(&request("queued").wait(Duration::ZERO), counted));
        while store.stats().queued == 0 {
            std::thread::yield_now();
        }
        let_others_wait();
        disk.heal();
        done(writing.join().unwrap());
        done(queued.join().unwrap());
    });
    assert_eq!((applied(&store), store.stats().refused), (2, 0));
}

/// Room in the file for the next commits: while a file grows, readers wait for its sync.
fn make_room(store: &Store) {
    for n in 0..4 {
        done(store.execute(&request(&format!("room-{n}")), |fx| {
            match n {
                0 => drop(fx.put(&NOTES, "room", &"x".repeat(3 << 20))?),
                _ => fx.remove(&NOTES, "room")?,
            }
            Ok(Outcome::succeeded(200))
        }));
    }
}

/// Looking at memory and at the numbers waits for no commit. (A look at the file may: it waits while the file
/// grows.)
#[test]
fn numbers_do_not_wait_for_the_disk() {
    let disk = SimDisk::seeded(1);
    let store = disk.open(Options::new()).unwrap();
    done(store.execute(&request("before"), counted));
    disk.fail(Fault::SlowSync(PATIENT), 0);
    std::thread::scope(|scope| {
        let (entered, has_entered) = mpsc::channel();
        let writing = scope.spawn({
            let store = &store;
            move || {
                store.execute(&request("writing"), |fx| {
                    let _ = entered.send(());
                    counted(fx)
                })
            }
        });
        has_entered.recv().unwrap();
        let_others_wait();
        let (send, receive) = mpsc::channel();
        let store = &store;
        scope.spawn(move || {
            let looked = (store.stats().executed, store.peek(&request("before")).is_some());
            let _ = send.send((looked, store.execute(&request("before"), never).unwrap().is_replay()));
        });
        let looked = receive.recv_timeout(Duration::from_secs(30));
        disk.heal();
        done(writing.join().unwrap());
        assert_eq!(looked, Ok(((1, true), true)));
    });
}
