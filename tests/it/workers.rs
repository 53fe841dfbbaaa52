//! Workers: nothing runs unless asked for, each message by one of them, a job's effects and its end in one
//! commit, and a stop that is clean.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Mutex, mpsc};
use std::time::Duration;

use onecho::testing::SimDisk;
use onecho::{
    Contract, Delivered, Destination, ErrorKind, Kind, Message, MessageId, MessageState, Options, Store,
    Ticked, Workers,
};

use crate::common::{NOTES, PATIENT, SECOND, SHOP, at_noon, clean, store};

const JOBS: Destination<String> = Destination::json("jobs", Contract::Neither);
const OUT: Destination<String> = Destination::json("out", Contract::Idempotent);
const COUNTS: Kind<i64> = Kind::counter("jobs-done");
const LATER: Duration = Duration::from_secs(3600);

fn message(to: &Destination<String>, text: &str) -> Message {
    Message::new(to, &text.to_owned()).unwrap()
}

fn enqueue(store: &Store, to: &Destination<String>, text: &str) -> MessageId {
    store.enqueue(&SHOP, &[message(to, text)]).unwrap()[0]
}

fn state(store: &Store, id: MessageId) -> MessageState {
    store.message(id).unwrap().unwrap()
}

/// Workers that count each job in a row of its own.
fn counting(store: &Store) -> Workers {
    Workers::new(store).handle(&JOBS, |text, _, fx| {
        fx.add(&COUNTS, text, 1, i64::MIN)?;
        Ok(())
    })
}

fn count(store: &Store, text: &str) -> i64 {
    store.get(&SHOP, &COUNTS, text).unwrap().map_or(0, |row| row.value)
}

#[test]
fn nothing_runs_unless_it_is_ticked_or_started() {
    let store = store();
    let id = enqueue(&store, &JOBS, "a");
    let workers = counting(&store);
    assert!(matches!(state(&store, id), MessageState::Waiting { attempts: 0, .. }));
    let ticked = workers.tick().unwrap();
    assert_eq!((ticked.handled, ticked.delivered, count(&store, "a")), (1, 0, 1));
    assert_eq!(workers.tick().unwrap(), Ticked::default());
    clean(&store);
}

/// Whatever the contract says: without its end there is nothing of what a job did.
#[test]
fn a_job_that_fails_writes_nothing_and_is_done_again() {
    let (store, clock, _disk) = at_noon(Options::new());
    let id = enqueue(&store, &JOBS, "a");
    let calls = AtomicU64::new(0);
    let workers = Workers::new(&store).handle(&JOBS, move |text, delivery, fx| {
        fx.add(&COUNTS, text, 1, i64::MIN)?;
        fx.enqueue(message(&OUT, "done"))?;
        match calls.fetch_add(1, SeqCst) {
            0 => Err("not yet".into()),
            1 => panic!("on purpose"),
            _ => {
                fx.put(&NOTES, "attempt", &delivery.attempt().to_string())?;
                Ok(())
            }
        }
    });
    for attempts in 1..=2 {
        assert_eq!(workers.tick().unwrap().retried, 1);
        assert!(
            matches!(state(&store, id), MessageState::Waiting { attempts: made, .. } if made == attempts)
        );
        assert_eq!((count(&store, "a"), store.messages().count()), (0, 1));
        clock.advance(LATER);
    }
    assert_eq!(workers.tick().unwrap().handled, 1);
    assert_eq!((count(&store, "a"), store.messages().count()), (1, 2));
    assert_eq!(store.get(&SHOP, &NOTES, "attempt").unwrap().unwrap().value, "3");
    clean(&store);
}

/// The end of what may not be repeated waits for no other call: whatever becomes of that, it is known.
#[test]
fn what_has_arrived_is_recorded_before_the_next_call() {
    const BLIND: Destination<String> = Destination::json("blind", Contract::Neither);
    let store = store();
    let ids = [enqueue(&store, &BLIND, "a"), enqueue(&store, &BLIND, "b")];
    let inner = store.clone();
    let workers = Workers::new(&store).deliver(&BLIND, move |text, _| {
        if text == "b" {
            assert!(matches!(state(&inner, ids[0]), MessageState::Delivered { .. }));
        }
        Ok(Delivered::Done(None))
    });
    assert_eq!(workers.tick().unwrap().delivered, 2);
}

/// To say why it failed is user code as much as the closure is.
#[test]
fn an_error_that_panics_when_it_is_shown_is_a_failure_like_any() {
    #[derive(Debug)]
    struct Rude;
    impl std::fmt::Display for Rude {
        fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            panic!("on purpose")
        }
    }
    impl std::error::Error for Rude {}
    let store = store();
    let ids = [enqueue(&store, &OUT, "a"), enqueue(&store, &JOBS, "b")];
    let workers =
        Workers::new(&store).deliver(&OUT, |_, _| Err(Rude.into())).handle(&JOBS, |_, _, _| Err(Rude.into()));
    assert_eq!(workers.tick().unwrap().retried, 2);
    for id in ids {
        let why = store.message_record(id).unwrap().unwrap().why.unwrap();
        assert!(why.contains("panicked"), "{why}");
    }
    clean(&store);
}

/// A closure of a job may run again on fresh rows, as any other.
#[test]
fn a_job_that_loses_a_row_runs_again_on_what_it_is_now() {
    let store = store();
    for number in 0..40 {
        enqueue(&store, &JOBS, &format!("{number}"));
    }
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let workers = Workers::new(&store).threads(16).handle(&JOBS, |_, _, fx| {
                    let seen = fx.get(&NOTES, "all")?.map_or(0, |row| row.value.parse().unwrap());
                    fx.put(&NOTES, "all", &format!("{}", seen + 1))?;
                    Ok(())
                });
                while store.stats().messages_waiting > 0 {
                    workers.tick().unwrap();
                }
            });
        }
    });
    assert_eq!(store.get(&SHOP, &NOTES, "all").unwrap().unwrap().value, "40");
    clean(&store);
}

#[test]
fn a_job_cannot_call_its_store() {
    let store = store();
    let id = enqueue(&store, &JOBS, "a");
    let inner = store.clone();
    let workers = Workers::new(&store).handle(&JOBS, move |_, _, _| {
        assert_eq!(inner.message(id).unwrap_err().kind(), ErrorKind::Reentrant);
        Ok(())
    });
    assert_eq!(workers.tick().unwrap().handled, 1);
}

#[test]
fn two_runners_on_one_store_share_its_messages() {
    const MANY: usize = 400;
    let store = store();
    let seen: &'static Mutex<Vec<String>> = Box::leak(Box::default());
    let run = || {
        Workers::new(&store)
            .threads(3)
            .deliver(&OUT, move |text, _| {
                seen.lock().unwrap().push(text.clone());
                Ok(Delivered::Done(None))
            })
            .handle(&JOBS, |text, _, fx| {
                fx.add(&COUNTS, text, 1, i64::MIN)?;
                Ok(())
            })
            .start()
            .unwrap()
    };
    let runners = [run(), run()];
    for number in 0..MANY / 4 {
        let text = |part: usize| format!("{}", 4 * number + part);
        let made = [
            message(&OUT, &text(0)),
            message(&JOBS, &text(1)),
            message(&OUT, &text(2)),
            message(&JOBS, &text(3)),
        ];
        store.enqueue(&SHOP, &made).unwrap();
    }
    until(&store, |store| store.stats().messages_waiting == 0);
    for runner in runners {
        let health = runner.health();
        assert!(health.alive && health.oldest_due.is_none() && health.last_error.is_none(), "{health:?}");
        runner.stop(PATIENT).unwrap();
    }
    let seen = seen.lock().unwrap();
    assert_eq!((seen.len(), seen.iter().collect::<BTreeSet<_>>().len()), (MANY / 2, MANY / 2));
    let counts: Vec<i64> = store.scan(&SHOP, &COUNTS, "").map(|row| row.unwrap().value).collect();
    assert!(counts.len() == MANY / 2 && counts.iter().all(|count| *count == 1), "{counts:?}");
    clean(&store);
}

/// Waits for what another thread brings about.
fn until(store: &Store, is_so: impl Fn(&Store) -> bool) {
    for _ in 0..60_000 {
        if is_so(store) {
            return;
        }
        std::thread::park_timeout(Duration::from_millis(1));
    }
    panic!("it did not come about: {:?}", store.stats());
}

/// What was taken and not begun is as if nobody had taken it.
#[test]
fn a_stop_ends_what_was_begun_and_gives_the_rest_back() {
    let store = store();
    let made: Vec<Message> = (0..10).map(|number| message(&OUT, &format!("{number}"))).collect();
    let ids = store.enqueue(&SHOP, &made).unwrap();
    let (entered, is_in) = mpsc::channel::<()>();
    let (leave, may_leave) = mpsc::channel::<()>();
    let (entered, may_leave) = (Mutex::new(entered), Mutex::new(may_leave));
    let running = Workers::new(&store)
        .deliver(&OUT, move |_, _| {
            entered.lock().unwrap().send(()).unwrap();
            may_leave.lock().unwrap().recv().unwrap();
            Ok(Delivered::Done(None))
        })
        .start()
        .unwrap();
    is_in.recv().unwrap();
    let error = running.stop(Duration::ZERO).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    leave.send(()).unwrap();
    until(&store, |store| store.stats().messages_delivered == 1);
    until(&store, |store| {
        let given_back =
            |id: &MessageId| matches!(state(store, *id), MessageState::Waiting { attempts: 0, .. });
        ids[1..].iter().all(given_back)
    });
    clean(&store);
}

#[test]
fn a_runner_tells_what_it_cannot_do_and_goes_on_when_it_can() {
    let disk = SimDisk::seeded(9);
    let store = disk.open(Options::new()).unwrap();
    let id = enqueue(&store, &OUT, "a");
    disk.fail(onecho::testing::Fault::Sync, 0);
    let running = Workers::new(&store).deliver(&OUT, |_, _| Ok(Delivered::Done(None))).start().unwrap();
    until(&store, |_| running.health().last_error.is_some());
    disk.heal();
    store.reopen().unwrap();
    // Whether the attempt that failed was committed nobody can know before its lease is over.
    until(&store, |store| {
        !matches!(state(store, id), MessageState::Waiting { .. }) || running.health().last_error.is_none()
    });
    assert!(running.health().alive);
    running.stop(PATIENT).unwrap();
    clean(&store);
}

#[test]
fn workers_end_when_their_store_is_closed() {
    let store = store();
    let running = counting(&store).threads(2).start().unwrap();
    store.close().unwrap();
    enqueue_fails(&store);
    running.stop(PATIENT).unwrap();
}

fn enqueue_fails(store: &Store) {
    let error = store.enqueue(&SHOP, &[message(&JOBS, "late")]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Closed);
}

#[test]
fn settings_of_workers_are_checked_before_anything_runs() {
    let store = store();
    for threads in [0, 1_025] {
        assert_eq!(counting(&store).threads(threads).start().unwrap_err().kind(), ErrorKind::Invalid);
    }
    let both = counting(&store).deliver(&JOBS, |_, _| Ok(Delivered::Done(None)));
    assert_eq!(both.tick().unwrap_err().kind(), ErrorKind::Invalid);
}

/// Messages in doubt of a time when their destination could be asked keep nobody from those behind them.
#[test]
fn what_a_program_cannot_ask_for_is_passed_over() {
    const ASKED: Destination<String> = Destination::json("out", Contract::Queryable);
    let (store, clock, _disk) = at_noon(Options::new());
    let made: Vec<Message> = (0..100).map(|_| message(&ASKED, "in doubt")).collect();
    store.enqueue(&SHOP, &made).unwrap();
    let asking = Workers::new(&store)
        .deliver(&ASKED, |_, _| Err("no answer".into()))
        .query(&ASKED, |_, _| Err("no answer".into()));
    assert_eq!(asking.tick().unwrap().unknown, 100);
    clock.advance(LATER);
    let id = enqueue(&store, &OUT, "new");
    let workers = Workers::new(&store).deliver(&OUT, |_, _| Ok(Delivered::Done(None)));
    assert_eq!(workers.tick().unwrap().delivered, 1);
    assert!(matches!(state(&store, id), MessageState::Delivered { .. }));
    assert_eq!(store.stats().messages_unknown, 100);
}

/// A due message that this program knows nothing to do with keeps nobody from the others.
#[test]
fn what_a_program_does_not_serve_waits_for_one_that_does() {
    let (store, clock, _disk) = at_noon(Options::new());
    let other = enqueue(&store, &OUT, "not ours");
    let ours = enqueue(&store, &JOBS, "ours");
    assert_eq!(counting(&store).tick().unwrap().handled, 1);
    clock.advance(SECOND);
    assert!(matches!(state(&store, other), MessageState::Waiting { attempts: 0, .. }));
    assert!(matches!(state(&store, ours), MessageState::Delivered { .. }));
}
