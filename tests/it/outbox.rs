//! Messages that go out: made with their command or alone, sent until they have arrived, never twice where that
//! is not allowed, in the order of their key.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use onecho::testing::{CrashTest, ManualClock, SimDisk};
use onecho::{
    BoxError, Bytes, Contract, Delivered, Delivery, Destination, ErrorKind, Evidence, Kind, Message,
    MessageId, MessageState, OnDead, Options, Outcome, Reply, Settle, Store, Timestamp, Workers,
};

use crate::common::{
    NOON, NOTES, OTHER_SHOP, SECOND, SHOP, at_noon, clean, done, key, replay, request, store,
};

/// Takes a repeat.
const SAFE: Destination<String> = Destination::json("safe", Contract::Idempotent);
/// Can be asked.
const ASKED: Destination<String> =
    Destination::json("asked", Contract::Queryable).settles_within(Duration::from_secs(100));
/// Can do neither.
const BLIND: Destination<String> = Destination::json("blind", Contract::Neither);
const SKIPPING: Destination<String> =
    Destination::json("skipping", Contract::Idempotent).on_dead(OnDead::Skip);
const JOBS: Destination<String> = Destination::json("jobs", Contract::Idempotent);
const DONE: Kind<String> = Kind::json("done");
/// Longer than any pause here.
const LATER: Duration = Duration::from_secs(3600);

fn message(to: &Destination<String>, text: &str) -> Message {
    Message::new(to, &text.to_owned()).unwrap().backoff(SECOND..=SECOND * 60)
}

fn enqueue(store: &Store, message: Message) -> MessageId {
    store.enqueue(&SHOP, &[message]).unwrap()[0]
}

fn state(store: &Store, id: MessageId) -> MessageState {
    store.message(id).unwrap().unwrap()
}

fn attempts(store: &Store, id: MessageId) -> u32 {
    match state(store, id) {
        MessageState::Waiting { attempts, .. }
        | MessageState::Sending { attempts }
        | MessageState::Unknown { attempts } => attempts,
        other => panic!("{other:?}"),
    }
}

fn is_delivered(store: &Store, id: MessageId) -> bool {
    matches!(state(store, id), MessageState::Delivered { .. })
}

/// What the other side has seen.
#[derive(Default)]
struct Sink(Mutex<Vec<Seen>>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    operation: String,
    text: String,
    order: Option<String>,
    attempt: u32,
    headers: Vec<(String, String)>,
}

impl Sink {
    fn take(&self, text: &str, delivery: &Delivery) {
        self.0.lock().unwrap().push(Seen {
            operation: delivery.operation_id().to_string(),
            text: text.to_owned(),
            order: delivery.ordering_key().map(str::to_owned),
            attempt: delivery.attempt(),
            headers: delivery.headers().map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
        });
    }

    fn seen(&self) -> Vec<Seen> {
        self.0.lock().unwrap().clone()
    }

    fn texts(&self) -> Vec<String> {
        self.seen().into_iter().map(|seen| seen.text).collect()
    }
}

/// Workers that hand everything to a closure.
fn sending(
    store: &Store,
    to: &Destination<String>,
    send: impl Fn(&String, &Delivery) -> Result<Delivered, BoxError> + Send + Sync + 'static,
) -> Workers {
    Workers::new(store).deliver(to, send)
}

/// A sink that a test keeps, as long as the tests run.
fn sink() -> &'static Sink {
    Box::leak(Box::default())
}

#[test]
fn a_message_is_made_with_its_command_or_not_at_all() {
    let (store, clock, disk) = at_noon(Options::new());
    let make = |fx: &mut onecho::Effects<'_, '_>| {
        fx.enqueue(message(&SAFE, "one"))?;
        fx.enqueue(message(&SAFE, "two"))?;
        Ok(Outcome::succeeded(201))
    };
    let failed = store.execute(&request("a"), |fx| {
        let _ = make(fx)?;
        Err("no".into())
    });
    assert_eq!(failed.unwrap_err().kind(), ErrorKind::Aborted);
    assert_eq!((store.messages().count(), store.stats().messages_waiting), (0, 0));

    let finished = done(store.execute(&request("a"), make));
    assert_eq!(finished.messages.len(), 2);
    let listed: Vec<MessageId> = store.messages().map(|item| item.unwrap().0).collect();
    assert_eq!(listed, finished.messages);
    assert_eq!(store.stats().messages_waiting, 2);
    // Whoever asks again is told the same messages, from memory and from the file.
    assert_eq!(replay(store.execute(&request("a"), make)).messages, finished.messages);
    let Some(Reply::Replay(peeked)) = store.peek(&request("a")) else { panic!("not in memory") };
    assert_eq!(peeked, replay(store.execute(&request("a"), make)));
    store.close().unwrap();
    let store = disk.open(Options::new().clock(clock)).unwrap();
    assert_eq!(replay(store.execute(&request("a"), make)), peeked);
    clean(&store);
}

#[test]
fn a_refusal_that_makes_a_message_has_to_say_so() {
    let store = store();
    let refused = store.execute(&request("a"), |fx| {
        fx.enqueue(message(&SAFE, "one"))?;
        Ok(Outcome::failed(402))
    });
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(store.messages().count(), 0);
}

#[test]
fn c065_two_dispatchers_publish_each_of_ten_thousand_once() {
    const MANY: usize = 10_000;
    let store = SimDisk::seeded(1).open(Options::new()).unwrap();
    let mut ids = BTreeSet::new();
    for batch in 0..MANY / 1_000 {
        let messages: Vec<Message> =
            (0..1_000).map(|number| message(&SAFE, &format!("{}", batch * 1_000 + number))).collect();
        ids.extend(store.enqueue(&SHOP, &messages).unwrap());
    }
    let sink = sink();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let workers = sending(&store, &SAFE, |text, delivery| {
                    sink.take(text, delivery);
                    Ok(Delivered::Done(None))
                });
                while store.stats().messages_waiting > 0 {
                    workers.tick().unwrap();
                }
            });
        }
    });
    let texts: BTreeSet<String> = sink.texts().into_iter().collect();
    assert_eq!((sink.seen().len(), texts.len(), ids.len()), (MANY, MANY, MANY));
    assert!(ids.iter().all(|id| is_delivered(&store, *id)));
    let stats = store.stats();
    assert_eq!((stats.messages_delivered, stats.attempts_late, stats.attempts_unknown), (10_000, 0, 0));
    clean(&store);
}

/// A dispatcher that stops in the middle keeps what it has taken, until its time is over.
#[test]
fn c066_what_one_dispatcher_has_taken_no_other_gets_until_its_lease_ends() {
    let (store, clock, _disk) = at_noon(Options::new());
    let messages: Vec<Message> = (0..10).map(|number| message(&SAFE, &format!("{number}"))).collect();
    let ids = store.enqueue(&SHOP, &messages).unwrap();
    let sink = sink();
    let other = sending(&store, &SAFE, |text, delivery| {
        sink.take(text, delivery);
        Ok(Delivered::Done(None))
    });
    // The first one is in its first call, and has taken all ten.
    let (entered, is_in) = std::sync::mpsc::channel::<()>();
    let (leave, may_leave) = std::sync::mpsc::channel::<()>();
    let (entered, may_leave) = (Mutex::new(entered), Mutex::new(may_leave));
    let first = sending(&store, &SAFE, move |_, _| {
        entered.lock().unwrap().send(()).unwrap();
        may_leave.lock().unwrap().recv().unwrap();
        Ok(Delivered::Done(None))
    });
    std::thread::scope(|scope| {
        let stuck = scope.spawn(|| first.tick().unwrap());
        is_in.recv().unwrap();
        assert_eq!(other.tick().unwrap().delivered, 0);
        clock.advance(Duration::from_millis(59_999));
        assert_eq!(other.tick().unwrap().delivered, 0);
        assert!(ids.iter().all(|id| matches!(state(&store, *id), MessageState::Sending { attempts: 1 })));
        clock.advance(Duration::from_millis(1));
        assert_eq!(other.tick().unwrap().lapsed, 10);
        clock.advance(LATER);
        assert_eq!(other.tick().unwrap().delivered, 10);
        // What comes now comes too late, and changes nothing.
        leave.send(()).unwrap();
        let ticked = stuck.join().unwrap();
        assert_eq!(ticked.delivered, 0);
    });
    assert_eq!(sink.seen().len(), 10);
    assert!(sink.seen().iter().all(|seen| seen.attempt == 2));
    assert_eq!(store.stats().attempts_late, 1); // The other nine it has never begun.
    clean(&store);
}

#[test]
fn c067_a_message_is_delivered_only_when_the_sink_has_said_so() {
    let (store, clock, _disk) = at_noon(Options::new());
    let id = enqueue(&store, message(&SAFE, "x"));
    let calls = AtomicU64::new(0);
    let workers = sending(&store, &SAFE, {
        let clock = clock.clone();
        move |_, _| match calls.fetch_add(1, SeqCst) {
            0 => Err("no route".into()),
            1 => panic!("on purpose"),
            2 => Ok(Delivered::Unknown("no answer".into())),
            3 => Ok(Delivered::NotApplied { retry_after: None, why: "busy".into() }),
            // Takes longer than it may.
            4 => {
                clock.advance(Duration::from_secs(61));
                Err("too late".into())
            }
            _ => Ok(Delivered::Done(Some(Bytes::from_static(b"receipt")))),
        }
    });
    for attempt in 1..=5 {
        assert_eq!(workers.tick().unwrap().delivered, 0);
        assert_eq!(attempts(&store, id), attempt);
        clock.advance(LATER);
    }
    assert_eq!(workers.tick().unwrap().delivered, 1);
    let MessageState::Delivered { answer, .. } = state(&store, id) else { panic!("not delivered") };
    assert_eq!(answer.unwrap(), "receipt");
    assert_eq!(store.stats().messages_waiting, 0);
    clean(&store);
}

#[test]
fn c068_what_is_sent_again_after_a_kill_is_known_again() {
    let clock = ManualClock::at(NOON);
    let disk = SimDisk::seeded(3);
    let store = disk.open(Options::new().clock(clock.clone())).unwrap();
    let id = enqueue(&store, message(&SAFE, "x").ordered_by("k").header("h", "v"));
    let sink = sink();
    // The power goes when the sink has it and before that is recorded.
    let cut: &'static Mutex<Option<SimDisk>> = Box::leak(Box::default());
    let workers = sending(&store, &SAFE, move |text, delivery| {
        sink.take(text, delivery);
        *cut.lock().unwrap() = Some(disk.crash());
        Ok(Delivered::Done(None))
    });
    let _ = workers.tick(); // Its store is cut off.
    let left = cut.lock().unwrap().take().unwrap();
    let store = left.open(Options::new().clock(clock.clone())).unwrap();
    let workers = sending(&store, &SAFE, |text, delivery| {
        sink.take(text, delivery);
        Ok(Delivered::Done(None))
    });
    assert_eq!(workers.tick().unwrap().lapsed, 1); // At once: its process is gone.
    clock.advance(LATER);
    assert_eq!(workers.tick().unwrap().delivered, 1);
    let [first, second] = &sink.seen()[..] else { panic!("{:?}", sink.seen()) };
    assert_eq!((first.attempt, second.attempt), (1, 2));
    assert_eq!(Seen { attempt: 2, ..first.clone() }, *second);
    assert!(is_delivered(&store, id));
    clean(&store);
}

/// The power goes in the middle of a call that may not be repeated: whether it has arrived nobody knows, and
/// nobody guesses.
#[test]
fn what_may_not_be_repeated_is_not_sent_again_after_a_kill() {
    let clock = ManualClock::at(NOON);
    let disk = SimDisk::seeded(5);
    let store = disk.open(Options::new().clock(clock.clone())).unwrap();
    let ids = [enqueue(&store, message(&BLIND, "x")), enqueue(&store, message(&BLIND, "y"))];
    let cut: &'static Mutex<Option<SimDisk>> = Box::leak(Box::default());
    let workers = sending(&store, &BLIND, move |_, _| {
        cut.lock().unwrap().get_or_insert_with(|| disk.crash());
        Ok(Delivered::Done(None))
    });
    let _ = workers.tick(); // Its store is cut off.
    let left = cut.lock().unwrap().take().unwrap();
    let store = left.open(Options::new().clock(clock.clone())).unwrap();
    let workers = sending(&store, &BLIND, |_, _| unreachable!("it may have arrived"));
    for lapsed in [2, 0, 0] {
        assert_eq!(workers.tick().unwrap().lapsed, lapsed);
        clock.advance(LATER);
    }
    assert!(ids.iter().all(|id| matches!(state(&store, *id), MessageState::Unknown { attempts: 1 })));
    clean(&store);
}

#[test]
fn c069_an_outage_with_restarts_loses_no_message_and_no_header() {
    let clock = ManualClock::at(NOON);
    let disk = SimDisk::seeded(4);
    let options = || Options::new().clock(clock.clone());
    let mut store = disk.open(options()).unwrap();
    let ids: Vec<MessageId> = (0..5)
        .map(|number| enqueue(&store, message(&SAFE, "x").header("trace", &format!("t{number}"))))
        .collect();
    for round in 0..20 {
        let workers = sending(&store, &SAFE, |_, _| {
            Ok(Delivered::NotApplied { retry_after: None, why: "down".into() })
        });
        assert_eq!(workers.tick().unwrap().retried, 5);
        clock.advance(LATER);
        drop(workers);
        if round == 6 || round == 13 {
            store.close().unwrap();
            store = disk.open(options()).unwrap();
        }
    }
    assert!(ids.iter().all(|id| attempts(&store, *id) == 20));
    let sink = sink();
    let workers = sending(&store, &SAFE, |text, delivery| {
        sink.take(text, delivery);
        Ok(Delivered::Done(None))
    });
    assert_eq!(workers.tick().unwrap().delivered, 5);
    let traces: BTreeSet<String> =
        sink.seen().into_iter().map(|seen| format!("{} {}", seen.headers[0].1, seen.attempt)).collect();
    assert_eq!(traces, (0..5).map(|number| format!("t{number} 21")).collect());
    clean(&store);
}

#[test]
fn c070_two_effects_of_one_kind_are_two_messages() {
    let store = store();
    let make = |fx: &mut onecho::Effects<'_, '_>| {
        fx.put(&NOTES, "n", &"shipped".to_owned())?;
        fx.enqueue(message(&SAFE, "shipped"))?;
        Ok(Outcome::succeeded(200))
    };
    let first = done(store.execute(&request("a"), make)).messages;
    let second = done(store.execute(&request("b"), make)).messages;
    let third = enqueue(&store, message(&SAFE, "shipped"));
    let fourth = enqueue(&store, message(&SAFE, "shipped"));
    let sink = sink();
    let workers = sending(&store, &SAFE, |text, delivery| {
        sink.take(text, delivery);
        Ok(Delivered::Done(None))
    });
    assert_eq!(workers.tick().unwrap().delivered, 4);
    let operations: BTreeSet<String> = sink.seen().into_iter().map(|seen| seen.operation).collect();
    let ids = BTreeSet::from([first[0], second[0], third, fourth]);
    assert_eq!((operations.len(), ids.len()), (4, 4));
}

#[test]
fn a_message_whose_key_is_known_is_not_added_again() {
    let (store, clock, disk) = at_noon(Options::new());
    let keyed = || message(&SAFE, "x").keyed(&key("batch-1"));
    let first = enqueue(&store, keyed());
    assert_eq!(store.enqueue(&SHOP, &[keyed(), keyed()]).unwrap(), [first, first]);
    let workers = sending(&store, &SAFE, |_, _| Ok(Delivered::Done(None)));
    assert_eq!(workers.tick().unwrap().delivered, 1);
    assert_eq!(enqueue(&store, keyed()), first); // Delivered or not.
    // Another tenant's key, and another destination's, are others.
    assert_ne!(store.enqueue(&OTHER_SHOP, &[keyed()]).unwrap()[0], first);
    assert_ne!(enqueue(&store, message(&BLIND, "x").keyed(&key("batch-1"))), first);
    drop(workers);
    store.close().unwrap();
    let store = disk.open(Options::new().clock(clock)).unwrap();
    assert_eq!(enqueue(&store, keyed()), first);
    let in_a_command = store.execute(&request("a"), |fx| {
        fx.enqueue(keyed())?;
        Ok(Outcome::succeeded(200))
    });
    assert_eq!(in_a_command.unwrap_err().kind(), ErrorKind::Invalid);
    clean(&store);
}

#[test]
fn what_can_be_asked_is_asked_before_it_is_sent_again() {
    let (store, clock, _disk) = at_noon(Options::new());
    let id = enqueue(&store, message(&ASKED, "x"));
    let sent: &'static AtomicU64 = Box::leak(Box::default());
    let asked: &'static AtomicU64 = Box::leak(Box::default());
    let arrives: &'static Mutex<bool> = Box::leak(Box::default());
    let workers = sending(&store, &ASKED, move |_, _| {
        sent.fetch_add(1, SeqCst);
        Err("no answer".into())
    })
    .query(&ASKED, move |_, _| {
        asked.fetch_add(1, SeqCst);
        Ok(match *arrives.lock().unwrap() {
            true => Delivered::Done(Some(Bytes::from_static(b"found"))),
            false => Delivered::NotApplied { retry_after: None, why: "not seen".into() },
        })
    });
    assert_eq!(workers.tick().unwrap().unknown, 1);
    clock.advance(SECOND);
    // It has not been seen, and it may still arrive: that is no reason to send it again.
    assert_eq!(workers.tick().unwrap().unknown, 1);
    assert_eq!((sent.load(SeqCst), asked.load(SeqCst)), (1, 1));
    clock.advance(SECOND * 98);
    assert_eq!(workers.tick().unwrap(), Default::default());
    // Now it cannot arrive any more.
    clock.advance(SECOND);
    workers.tick().unwrap();
    assert_eq!((sent.load(SeqCst), asked.load(SeqCst)), (2, 2));
    assert!(matches!(state(&store, id), MessageState::Unknown { attempts: 2 }));
    // What has arrived counts at once.
    *arrives.lock().unwrap() = true;
    clock.advance(SECOND * 2);
    assert_eq!(workers.tick().unwrap().delivered, 1);
    assert_eq!((sent.load(SeqCst), asked.load(SeqCst)), (2, 3));
    assert!(is_delivered(&store, id));
    clean(&store);
}

#[test]
fn a_destination_that_can_be_asked_needs_somebody_who_asks() {
    let store = store();
    let workers = sending(&store, &ASKED, |_, _| Ok(Delivered::Done(None)));
    assert_eq!(workers.tick().unwrap_err().kind(), ErrorKind::Invalid);
}

#[test]
fn what_may_not_be_repeated_is_never_sent_again_by_itself() {
    let (store, clock, disk) = at_noon(Options::new());
    let id = enqueue(&store, message(&BLIND, "x"));
    let sink = sink();
    let blind = |store: &Store| {
        sending(store, &BLIND, |text, delivery| {
            sink.take(text, delivery);
            Err("no answer".into())
        })
    };
    assert_eq!(blind(&store).tick().unwrap().unknown, 1);
    for _ in 0..3 {
        clock.advance(LATER);
        assert_eq!(blind(&store).tick().unwrap(), Default::default());
    }
    store.close().unwrap();
    let store = disk.open(Options::new().clock(clock.clone())).unwrap();
    clock.advance(LATER);
    assert_eq!(blind(&store).tick().unwrap(), Default::default());
    assert!(matches!(state(&store, id), MessageState::Unknown { attempts: 1 }));
    assert_eq!((sink.seen().len(), store.stats().messages_unknown), (1, 1));
    // Somebody who knows says so.
    let evidence = || Evidence::new("the tray", "nothing lies in it");
    store.settle(id, Settle::SendAgain, evidence(), "Ada").unwrap();
    assert_eq!(blind(&store).tick().unwrap().unknown, 1);
    store.settle(id, Settle::Delivered, evidence(), "Ada").unwrap();
    assert!(is_delivered(&store, id));
    let settled = store.settle(id, Settle::SendAgain, evidence(), "Ada").unwrap_err();
    assert_eq!(settled.kind(), ErrorKind::Invalid);
    let seen = sink.seen();
    assert_eq!((seen.len(), &seen[0].operation, seen[1].attempt), (2, &seen[1].operation, 2));
    clean(&store);
}

#[test]
fn an_ordering_key_is_delivered_in_order_and_one_at_a_time() {
    let (store, clock, _disk) = at_noon(Options::new());
    for number in 0..9 {
        enqueue(&store, message(&SAFE, &format!("{number}")).ordered_by(["a", "b", "c"][number % 3]));
    }
    let sink = sink();
    let workers = sending(&store, &SAFE, |text, delivery| {
        sink.take(text, delivery);
        // The first of each key comes through at its second attempt.
        match (delivery.attempt(), text.as_str()) {
            (1, "0" | "1" | "2") => Err("again".into()),
            _ => Ok(Delivered::Done(None)),
        }
    });
    workers.tick().unwrap();
    assert_eq!(sink.texts(), ["0", "1", "2"]);
    clock.advance(LATER);
    while workers.tick().unwrap().delivered > 0 {}
    let mut of_key: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for seen in sink.seen() {
        of_key.entry(seen.order.unwrap()).or_default().push(seen.text);
    }
    for (key, texts) in
        [("a", ["0", "0", "3", "6"]), ("b", ["1", "1", "4", "7"]), ("c", ["2", "2", "5", "8"])]
    {
        assert_eq!(of_key[key], texts, "{key}");
    }
    assert_eq!(store.stats().messages_waiting, 0);
    clean(&store);
}

#[test]
fn a_key_in_doubt_waits_until_it_is_settled() {
    let (store, clock, _disk) = at_noon(Options::new());
    let ids: Vec<MessageId> =
        (0..3).map(|number| enqueue(&store, message(&BLIND, &format!("{number}")).ordered_by("k"))).collect();
    let sink = sink();
    let workers = sending(&store, &BLIND, |text, delivery| {
        sink.take(text, delivery);
        if text == "0" { Err("no answer".into()) } else { Ok(Delivered::Done(None)) }
    });
    workers.tick().unwrap();
    clock.advance(LATER);
    workers.tick().unwrap();
    assert_eq!(sink.texts(), ["0"]);
    assert_eq!((store.stats().keys_blocked, store.stats().messages_waiting), (1, 2));
    let blocked: Vec<_> = store.blocked_keys().map(Result::unwrap).collect();
    assert_eq!((blocked.len(), blocked[0].message, blocked[0].waiting), (1, ids[0], 2));
    assert_eq!((blocked[0].key.as_str(), blocked[0].since), ("k", NOON));
    store.settle(ids[0], Settle::Discard, Evidence::new("the shop", "not needed"), "Ada").unwrap();
    assert!(matches!(state(&store, ids[0]), MessageState::Discarded { .. }));
    assert_eq!((store.stats().keys_blocked, store.blocked_keys().count()), (0, 0));
    assert_eq!(workers.tick().unwrap().delivered, 2);
    assert_eq!(sink.texts(), ["0", "1", "2"]);
    clean(&store);
}

#[test]
fn a_dead_letter_blocks_its_key_or_is_skipped_as_its_destination_says() {
    let (store, _clock, _disk) = at_noon(Options::new());
    let sink = sink();
    let refuse_first = |to: &'static Destination<String>| {
        sending(&store, to, |text, delivery| {
            sink.take(text, delivery);
            let is_refused = text == "0" && delivery.attempt() == 1;
            Ok(if is_refused { Delivered::Refused("status 410".into()) } else { Delivered::Done(None) })
        })
    };
    const BLOCKING: &Destination<String> = &SAFE;
    const GOING_ON: &Destination<String> = &SKIPPING;
    for to in [BLOCKING, GOING_ON] {
        let ids: Vec<MessageId> =
            (0..3).map(|number| enqueue(&store, message(to, &format!("{number}")).ordered_by("k"))).collect();
        let workers = refuse_first(to);
        assert_eq!(workers.tick().unwrap().dead, 1);
        assert!(matches!(state(&store, ids[0]), MessageState::Dead { why } if why == "status 410"));
        let goes_on = to.name() == "skipping";
        assert_eq!(is_delivered(&store, ids[2]), goes_on);
        assert_eq!(store.stats().keys_blocked, u64::from(!goes_on));
        store.settle(ids[0], Settle::SendAgain, Evidence::new("the other side", "mended"), "Ada").unwrap();
        workers.tick().unwrap();
        workers.tick().unwrap();
        assert!(ids.iter().all(|id| is_delivered(&store, *id)));
    }
    assert_eq!(sink.texts(), ["0", "0", "1", "2", "0", "1", "2", "0"]);
    let stats = store.stats();
    assert_eq!((stats.messages_waiting, stats.messages_dead, stats.dead_letters), (0, 0, 2));
    clean(&store);
}

#[test]
fn attempts_that_are_used_up_make_a_dead_letter() {
    let (store, clock, _disk) = at_noon(Options::new());
    let id = enqueue(&store, message(&SAFE, "x").attempts_max(3));
    let workers = sending(&store, &SAFE, |_, _| Err("down".into()));
    for _ in 0..5 {
        workers.tick().unwrap();
        clock.advance(LATER);
    }
    let MessageState::Dead { why } = state(&store, id) else { panic!("{:?}", state(&store, id)) };
    assert_eq!(why, "3 attempts are used up; the last: down");
    assert_eq!(store.stats().messages_attempted, 3);
    clean(&store);
}

#[test]
fn a_payload_that_nobody_can_read_is_a_dead_letter() {
    const OTHER_SHAPE: Destination<u64> = Destination::json("safe", Contract::Idempotent);
    let store = store();
    let id = enqueue(&store, message(&SAFE, "no number"));
    let workers = Workers::new(&store).deliver(&OTHER_SHAPE, |_, _| unreachable!());
    assert_eq!(workers.tick().unwrap().dead, 1);
    let MessageState::Dead { why } = state(&store, id) else { panic!("{:?}", state(&store, id)) };
    assert!(why.contains("cannot be read") && !why.contains("no number"), "{why}");
}

#[test]
fn pauses_grow_to_the_longest_and_are_spread() {
    let (store, clock, _disk) = at_noon(Options::new());
    let ids: Vec<MessageId> =
        (0..8).map(|_| enqueue(&store, message(&SAFE, "x").backoff(SECOND..=SECOND * 16))).collect();
    let workers = sending(&store, &SAFE, |_, _| Err("down".into()));
    for whole in [1_000, 2_000, 4_000, 8_000, 16_000, 16_000] {
        assert_eq!(workers.tick().unwrap().retried, 8);
        let now = onecho::Clock::now(&clock);
        let pauses: BTreeSet<u64> = ids
            .iter()
            .map(|id| match state(&store, *id) {
                MessageState::Waiting { next, .. } => next.0 - now.0,
                other => panic!("{other:?}"),
            })
            .collect();
        assert!(pauses.iter().all(|pause| (whole / 2..=whole).contains(pause)), "{whole}: {pauses:?}");
        assert!(pauses.len() > 4, "{whole}: {pauses:?}");
        clock.advance(SECOND * 16);
    }
}

#[test]
fn the_other_side_and_the_sender_say_when() {
    let (store, clock, _disk) = at_noon(Options::new());
    let id = enqueue(&store, message(&SAFE, "x").not_before(NOON.after(SECOND)));
    let workers = sending(&store, &SAFE, |_, delivery| {
        Ok(match delivery.attempt() {
            1 => Delivered::NotApplied { retry_after: Some(SECOND * 9), why: "busy".into() },
            _ => Delivered::Done(None),
        })
    });
    assert_eq!(workers.tick().unwrap(), Default::default());
    clock.advance(SECOND);
    assert_eq!(workers.tick().unwrap().retried, 1);
    assert_eq!(state(&store, id), MessageState::Waiting { attempts: 1, next: NOON.after(SECOND * 10) });
    clock.advance(SECOND * 9);
    assert_eq!(workers.tick().unwrap().delivered, 1);
}

#[test]
fn what_is_too_large_is_refused_by_name() {
    let store = store();
    let huge = "x".repeat(1024 * 1024);
    let mut many = message(&SAFE, "x");
    for number in 0..65 {
        many = many.header(&format!("h{number}"), "v");
    }
    for (what, message) in [
        ("payload", message(&SAFE, &huge)),
        ("headers", many),
        ("headers", message(&SAFE, "x").header("h", &"v".repeat(8 * 1024))),
        ("ordering key", message(&SAFE, "x").ordered_by(&"k".repeat(1025))),
    ] {
        let error = store.enqueue(&SHOP, &[message]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::LimitExceeded, "{what}: {error}");
        assert!(error.to_string().contains(what), "{error}");
    }
    let many: Vec<Message> = (0..1025).map(|_| message(&SAFE, "x")).collect();
    assert_eq!(store.enqueue(&SHOP, &many).unwrap_err().kind(), ErrorKind::LimitExceeded);
    let large: Vec<Message> = (0..9).map(|_| message(&SAFE, &huge[..1024 * 1024 - 2])).collect();
    assert_eq!(store.enqueue(&SHOP, &large).unwrap_err().kind(), ErrorKind::LimitExceeded);
    for wrong in [message(&SAFE, "x").attempts_max(0), message(&SAFE, "x").backoff(SECOND * 2..=SECOND)] {
        assert_eq!(store.enqueue(&SHOP, &[wrong]).unwrap_err().kind(), ErrorKind::Invalid);
    }
    assert_eq!(store.messages().count(), 0);
    assert_eq!(store.enqueue(&SHOP, &[]).unwrap(), []);
}

/// Nothing that was acknowledged is lost, a job is done once, whatever the power does.
#[test]
fn a_power_cut_loses_no_message_and_does_no_job_twice() {
    let clock = ManualClock::at(NOON);
    let options = Options::new().clock(clock).replay_bytes(0);
    let work_off = |store: &Store| {
        let jobs = Workers::new(store).handle(&JOBS, |text, _, fx| {
            fx.create(&DONE, text, text)?; // A second time it would exist.
            Ok(())
        });
        jobs.tick().map(drop)
    };
    let late = ManualClock::at(Timestamp(NOON.0 + 86_400_000));
    let report = CrashTest::new(options.clone(), 11).states_max(1_500).run_with(
        |store, acknowledged| {
            for number in 0..6 {
                let text = format!("{number}");
                let made = store.enqueue(&SHOP, &[message(&JOBS, &text).keyed(&key(&text)).ordered_by("k")]);
                acknowledged.push((number, made.unwrap()[0]));
                if number % 2 == 1 {
                    work_off(store).unwrap();
                }
            }
        },
        |_: &[(u32, MessageId)]| options.clone().clock(late.clone()),
        |store, acknowledged| {
            for (number, id) in acknowledged {
                assert!(store.message(*id).unwrap().is_some(), "{number} is lost");
            }
            // Who does not know says it again.
            let again = (0..6).map(|number| format!("{number}"));
            let again = again.map(|text| message(&JOBS, &text).keyed(&key(&text)).ordered_by("k"));
            let ids = store.enqueue(&SHOP, &again.collect::<Vec<_>>()).unwrap();
            // A job in whose middle the power went has its pause first, and those behind it wait for it.
            for _ in 0..10 {
                work_off(store).unwrap();
                late.advance(LATER);
            }
            assert!(ids.iter().all(|id| is_delivered(store, *id)));
            assert_eq!(store.scan(&SHOP, &DONE, "").count(), 6);
            let stats = store.stats();
            assert_eq!((stats.messages_waiting, stats.messages_dead, stats.messages_unknown), (0, 0, 0));
        },
    );
    assert!(report.states > 500, "{report:?}");
}
