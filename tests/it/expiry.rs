//! Windows: until when a retry gets the body, until when the outcome, and what it gets after. Decided by the
//! record's own times when it is read, whether or not anything has been removed yet.

use std::time::Duration;

use onecho::testing::{ManualClock, SimDisk};
use onecho::{
    AfterExpiry, Body, ErrorKind, Operation, Options, Outcome, Policy, Reply, Request, Status, Store,
    Timestamp,
};

use crate::common::*;

const MINUTE: Duration = Duration::from_secs(60);
const MILLI: Duration = Duration::from_millis(1);
/// Bodies for a second, keys for a minute.
const SHORT: Policy = Policy::new().body_window(SECOND).key_window(MINUTE);

fn short(policy: Policy) -> (Store, ManualClock, SimDisk) {
    at_noon(Options::new().operation(&PAY, policy))
}

fn make(store: &Store, text: &str) -> onecho::Finished {
    done(store.execute(&request(text), |fx| {
        let made = fx.create(&NOTES, text, &"made".to_owned())?;
        Ok(Outcome::failed(402).with_effects().body("abc").resource(&made))
    }))
}

/// C061, C064: a window ends exactly at its end: the body is there up to the last millisecond before, then
/// its digest; the outcome is there up to the last millisecond of the key's window, then `Expired`.
#[test]
fn a_window_ends_at_its_end() {
    for replay_bytes in [0, 16 << 20] {
        let options = Options::new().operation(&PAY, SHORT).replay_bytes(replay_bytes);
        let (store, clock, _) = at_noon(options);
        let first = make(&store, "k");
        assert_eq!(
            (first.at, first.body_until, first.key_until),
            (NOON, NOON.after(SECOND), NOON.after(MINUTE))
        );
        clock.advance(SECOND - MILLI);
        assert_eq!(replay(store.execute(&request("k"), never)), first);
        clock.advance(MILLI);
        let trimmed = replay(store.execute(&request("k"), never));
        let Body::Trimmed { digest, len } = trimmed.body else { panic!("{trimmed:?}") };
        assert_eq!((digest.to_string().get(..8), len), (Some("ba7816bf"), 3));
        assert_eq!((trimmed.code, trimmed.failed, trimmed.resource), (402, true, Some(NOTES.at("k"))));
        assert_eq!(trimmed.key_until, first.key_until);
        clock.advance(MINUTE - SECOND - MILLI);
        replay(store.execute(&request("k"), never));
        clock.advance(MILLI);
        match store.execute(&request("k"), never).unwrap() {
            Reply::Expired { failed, code, at, resource, digest: told, .. } => {
                assert_eq!((failed, code, at), (true, 402, NOON));
                assert_eq!((resource, told), (Some(NOTES.at("k")), Some(digest)));
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(store.stats().expired, 1);
    }
}

/// C062: another request under an expired key learns that it is expired, and nothing of what it made.
#[test]
fn an_expired_key_tells_its_own_request_only() {
    let (store, clock, _) = short(SHORT);
    make(&store, "k");
    clock.advance(MINUTE);
    match store.execute(&asking("k", "other"), never).unwrap() {
        Reply::Expired { failed: true, code: 402, resource: None, digest: None, .. } => {}
        other => panic!("{other:?}"),
    }
    match store.status(request("k").scope()).unwrap() {
        Status::Tombstone { failed, code, resource, at, .. } => {
            assert_eq!((failed, code, resource, at), (true, 402, Some(NOTES.at("k")), NOON));
        }
        other => panic!("{other:?}"),
    }
}

/// C014: a refusal is kept as long as a success: its window starts when it is finished, whenever the closure
/// began.
#[test]
fn a_window_starts_at_the_finish() {
    let (store, clock, _) = short(SHORT);
    let finished = done(store.execute(&request("k"), |_| {
        clock.advance(Duration::from_secs(29));
        Ok(Outcome::failed(402))
    }));
    assert_eq!(finished.at, NOON.after(Duration::from_secs(29)));
    clock.advance(MINUTE - MILLI);
    assert!(replay(store.execute(&request("k"), never)).failed);
}

/// C062: with `RunAsNew` an expired key runs again, in the next generation, whatever it asks.
#[test]
fn an_expired_key_may_run_as_new() {
    let (store, clock, _) = short(SHORT.after_expiry(AfterExpiry::RunAsNew));
    for generation in 1..=3 {
        let body = generation.to_string();
        let finished = done(store.execute(&asking("k", &body), counted));
        assert_eq!((finished.generation, applied(&store)), (generation, i64::from(generation)));
        assert_eq!(replay(store.execute(&asking("k", &body), never)).generation, generation);
        clock.advance(MINUTE - MILLI);
        replay(store.execute(&asking("k", &body), never));
        clock.advance(MILLI);
    }
    assert_eq!((store.stats().executed, store.stats().records), (3, 1));
    clean(&store);
}

/// When the tombstone's window is over too, the key is free, and even `Reject` runs.
#[test]
fn a_forgotten_key_runs() {
    let (store, clock, disk) = short(SHORT.tombstone_window(2 * MINUTE));
    make(&store, "k");
    clock.advance(2 * MINUTE - MILLI);
    assert!(matches!(store.execute(&request("k"), never).unwrap(), Reply::Expired { .. }));
    clock.advance(MILLI);
    assert_eq!(store.status(request("k").scope()).unwrap(), Status::Absent);
    assert_eq!(done(store.execute(&request("k"), counted)).generation, 2);
    store.close().unwrap();
    let store = disk.open(Options::new().clock(clock).operation(&PAY, SHORT)).unwrap();
    assert_eq!(replay(store.execute(&request("k"), never)).generation, 2);
}

/// Windows of length zero: the outcome is durable and its first caller has it, but nothing is replayed.
#[test]
fn a_window_may_be_empty() {
    let (store, _, _) = short(Policy::new().body_window(Duration::ZERO).key_window(Duration::ZERO));
    done(store.execute(&request("k"), counted));
    assert!(matches!(store.execute(&request("k"), never).unwrap(), Reply::Expired { .. }));
    let (store, _, _) = short(Policy::new().body_window(Duration::ZERO));
    done(store.execute(&request("k"), counted));
    assert!(matches!(replay(store.execute(&request("k"), never)).body, Body::Trimmed { len: 7, .. }));
}

/// A window for ever is never over, not even at the end of time.
#[test]
fn for_ever_is_for_ever() {
    let policy = Policy::new().body_window(Duration::MAX).key_window(Duration::MAX);
    for (policy, is_kept) in [(policy, true), (SHORT, false)] {
        let clock = ManualClock::at(NOON);
        let options =
            Options::new().clock(clock.clone()).operation(&PAY, policy).clock_jump_max(Duration::MAX);
        let store = opened(options);
        let first = done(store.execute(&request("k"), counted));
        for time in [Timestamp(u64::MAX / 2), Timestamp(u64::MAX - 1), Timestamp(u64::MAX)] {
            clock.set_wall(time);
            let reply = store.execute(&request("k"), never).unwrap();
            if is_kept {
                assert_eq!(replay(Ok(reply)), first);
            } else {
                assert!(matches!(reply, Reply::Expired { .. }), "{reply:?}");
            }
        }
        // What is written at the end of time is kept as well.
        done(store.execute(&request("last"), counted));
        replay(store.execute(&request("last"), never));
    }
}

/// A changed policy holds for new records; what is stored keeps the windows it was written with, over
/// reopening.
#[test]
fn a_changed_policy_leaves_old_records_as_they_were() {
    let (store, clock, disk) = short(SHORT);
    let old = make(&store, "old");
    store.close().unwrap();
    let long = Policy::new().body_window(MINUTE).key_window(10 * MINUTE);
    let store = disk.open(Options::new().clock(clock.clone()).operation(&PAY, long)).unwrap();
    assert_eq!(replay(store.execute(&request("old"), never)), old);
    let new = make(&store, "new");
    assert_eq!(new.key_until, NOON.after(10 * MINUTE));
    clock.advance(MINUTE);
    assert!(matches!(store.execute(&request("old"), never).unwrap(), Reply::Expired { .. }));
    assert!(matches!(replay(store.execute(&request("new"), never)).body, Body::Trimmed { .. }));
    // What an expired key leads to is a question of now, and the policy of now answers it.
    store.close().unwrap();
    let options = Options::new().clock(clock).operation(&PAY, long.after_expiry(AfterExpiry::RunAsNew));
    assert_eq!(done(disk.open(options).unwrap().execute(&request("old"), counted)).generation, 2);
}

/// Windows out of order, and keys that would expire before the last retry, are refused on opening, by name.
#[test]
fn windows_out_of_order_are_refused() {
    let day = Duration::from_secs(86_400);
    let bad = [
        (Policy::new().body_window(MINUTE).key_window(SECOND), "body_window"),
        (Policy::new().body_window(SECOND).key_window(MINUTE).tombstone_window(SECOND), "tombstone_window"),
        (Policy::new().key_window(2 * day).must_outlast(day, day, MILLI), "must_outlast"),
        (Policy::new().must_outlast(Duration::MAX, Duration::MAX, day), "must_outlast"),
        (Policy::new().execute_max(Duration::ZERO), "execute_max"),
        (Policy::new().outcome_bytes_max((8 << 20) + 1), "outcome_bytes_max"),
        (Policy::new().compare(onecho::Compare::Parts(&[])), "Parts"),
    ];
    for (policy, named) in bad {
        let error =
            fails(SimDisk::seeded(1).open(Options::new().operation(&PAY, policy)), ErrorKind::Invalid);
        assert!(error.to_string().contains(named) && error.to_string().contains("pay"), "{error}");
        fails(SimDisk::seeded(1).open(Options::new().default_policy(policy)), ErrorKind::Invalid);
    }
    let enough = Policy::new().key_window(2 * day).must_outlast(day, day, Duration::ZERO);
    opened(Options::new().operation(&PAY, enough));
}

/// A file has at most 64 different triples of windows; one more is refused on opening, and the file stays as
/// it was.
#[test]
fn triples_of_windows_are_limited() {
    let names: Vec<Operation> = (0..65).map(|n| Operation::parse(&format!("op-{n}")).unwrap()).collect();
    let policy = |n: u64| Policy::new().tombstone_window(Duration::from_secs(86_400 * (31 + n)));
    let disk = SimDisk::seeded(1);
    let options = |from: usize, to: usize| {
        (from..to).fold(Options::new().default_policy(policy(0)), |options, n| {
            options.operation(&names[n], policy(n as u64))
        })
    };
    fails(disk.open(options(0, 65)), ErrorKind::LimitExceeded);
    for (from, to) in [(0, 40), (40, 64)] {
        let store = disk.open(options(from, to)).unwrap();
        for name in &names[from..to] {
            done(store.execute(&Request::new(&SHOP, name, &key("k")).bytes("body", "x"), counted));
        }
        store.close().unwrap();
    }
    fails(disk.open(options(64, 65)), ErrorKind::LimitExceeded);
    // Whoever only looks can, with whatever policy; what would need another triple is refused when it is written.
    let store = disk.open(Options::new()).unwrap();
    clean(&store);
    fails(
        store.execute(&Request::new(&SHOP, &names[0], &key("new")).bytes("body", "x"), counted),
        ErrorKind::LimitExceeded,
    );
    store.close().unwrap();
    let store = disk.open(options(0, 64)).unwrap();
    for name in &names[..64] {
        replay(store.execute(&Request::new(&SHOP, name, &key("k")).bytes("body", "x"), never));
    }
    clean(&store);
}

/// C060: removing what a command made leaves its record: a late retry is a replay and makes nothing.
#[test]
fn a_record_outlives_what_it_made() {
    let (store, _, _) = short(SHORT);
    let first = make(&store, "k");
    done(store.execute(&request("remove"), |fx| {
        fx.remove(&NOTES, "k")?;
        Ok(Outcome::succeeded(200))
    }));
    assert_eq!(replay(store.execute(&request("k"), never)), first);
    assert_eq!(note(&store, "k"), None);
}

/// Rows and uniquenesses outlive the record that made them.
#[test]
fn what_was_made_outlives_its_record() {
    let (store, clock, _) = short(SHORT.tombstone_window(MINUTE));
    done(store.execute(&request("k"), |fx| {
        let made = fx.create(&NOTES, "n", &"kept".to_owned())?;
        fx.unique("email", "a@b.c", &made)?;
        Ok(Outcome::succeeded(201))
    }));
    clock.advance(10 * MINUTE);
    assert_eq!(note(&store, "n").as_deref(), Some("kept"));
    assert_eq!(store.holder(&SHOP, "email", "a@b.c").unwrap(), Some(NOTES.at("n")));
    let again = store.execute(&request("k"), |fx| {
        Ok(Outcome::succeeded(201).resource(&fx.create(&NOTES, "n", &"again".to_owned())?))
    });
    assert!(matches!(again.unwrap(), Reply::Duplicate { .. }));
}
