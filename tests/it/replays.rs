//! What memory answers is what `execute` answers, and nothing else.

use std::time::Duration;

use onecho::testing::{Fault, SimDisk};
use onecho::{
    AfterExpiry, Body, Compare, ErrorKind, Finished, Options, Outcome, Policy, ReplayBuffer, Reply, Request,
    ScopeMode, Store,
};

use crate::common::*;

fn made(fx: &mut onecho::Effects<'_, '_>) -> Answer {
    let made = fx.create(&NOTES, "n", &"note".to_owned())?;
    Ok(Outcome::succeeded(201).meta("location", "/n").meta("empty", "").body("made").resource(&made))
}

/// Both short forms against the replay that `execute` gives.
#[track_caller]
fn is_answered(store: &Store, request: &Request, expected: &Finished) {
    let mut buffer = ReplayBuffer::new();
    let outcome = store.peek_into(request, &mut buffer).expect("in memory");
    let Body::Present(body) = &expected.body else { panic!("{expected:?}") };
    assert_eq!(outcome.body(), body);
    assert_eq!((outcome.code(), outcome.failed()), (expected.code, expected.failed));
    assert!(outcome.metadata().eq(expected.metadata()));
    assert_eq!(outcome.meta("location"), expected.meta("location"));
    assert_eq!(outcome.meta("never given"), None);
    is_known(store, request, expected);
    assert_eq!(store.peek_receipt(request), Some(outcome.receipt()));
}

#[track_caller]
fn is_known(store: &Store, request: &Request, expected: &Finished) {
    let receipt = store.peek_receipt(request).expect("in memory");
    assert_eq!((receipt.code, receipt.failed, receipt.at), (expected.code, expected.failed, expected.at));
    assert_eq!((receipt.body_until, receipt.key_until), (expected.body_until, expected.key_until));
    assert_eq!(receipt.generation, expected.generation);
    assert_eq!(store.peek(request), Some(Reply::Replay(expected.clone())));
}

#[track_caller]
fn is_left_alone(store: &Store, request: &Request) {
    let mut buffer = ReplayBuffer::new();
    assert!(store.peek_into(request, &mut buffer).is_none());
    assert!(store.peek_receipt(request).is_none());
}

#[test]
fn a_replay_from_memory_is_the_replay() {
    let store = store();
    is_left_alone(&store, &request("k"));
    done(store.execute(&request("k"), made));
    let expected = replay(store.execute(&request("k"), never));
    is_answered(&store, &request("k"), &expected);
    done(store.execute(&request("refused"), |_| Ok(Outcome::failed(422).body(""))));
    let refused = replay(store.execute(&request("refused"), never));
    is_answered(&store, &request("refused"), &refused);
    let stats = store.stats();
    // Two of `execute`; of each key one into a buffer, two receipts and one `peek`.
    assert_eq!((stats.answered_from_memory, stats.replays), (10, 10));
}

/// What is no replay with its body is never told as one, and `peek` says what it is.
#[test]
fn what_is_no_replay_is_left_to_the_others() {
    let policy = Policy::new().body_window(SECOND).key_window(2 * SECOND);
    let (store, clock, _) = at_noon(Options::new().operation(&PAY, policy));
    done(store.execute(&request("k"), counted));
    done(store.execute(&request("bare"), |_| Ok(Outcome::succeeded(200).body("b").body_not_kept())));

    is_left_alone(&store, &asking("k", "something else"));
    assert!(matches!(store.peek(&asking("k", "something else")), Some(Reply::Mismatch { .. })));
    is_left_alone(&store, &request("another"));
    is_left_alone(&store, &Request::new(&OTHER_SHOP, &PAY, &key("k")).bytes("body", "k"));
    is_left_alone(&store, &Request::new(&SHOP, &PAY, &key("k")));
    is_left_alone(&store, &Request::unprotected(&SHOP, &PAY).bytes("body", "k"));

    let mut buffer = ReplayBuffer::new();
    assert!(store.peek_into(&request("bare"), &mut buffer).is_none());
    is_known(&store, &request("bare"), &replay(store.execute(&request("bare"), never)));

    clock.advance(SECOND - Duration::from_millis(1));
    is_answered(&store, &request("k"), &replay(store.execute(&request("k"), never)));
    clock.advance(Duration::from_millis(1));
    assert!(store.peek_into(&request("k"), &mut buffer).is_none());
    is_known(&store, &request("k"), &replay(store.execute(&request("k"), never)));
    clock.advance(SECOND);
    is_left_alone(&store, &request("k"));
    assert!(matches!(store.peek(&request("k")), Some(Reply::Expired { .. })));
}

/// The next generation of a key is told as soon as it is acknowledged.
#[test]
fn a_key_that_ran_anew_is_told_anew() {
    let policy = Policy::new().body_window(SECOND).key_window(SECOND).after_expiry(AfterExpiry::RunAsNew);
    let (store, clock, _) = at_noon(Options::new().operation(&PAY, policy));
    for generation in 1..4 {
        done(store.execute(&request("k"), |_| Ok(Outcome::succeeded(generation))));
        let receipt = store.peek_receipt(&request("k")).unwrap();
        assert_eq!((receipt.code, receipt.generation), (generation, u32::from(generation)));
        clock.advance(SECOND);
        is_left_alone(&store, &request("k"));
    }
}

/// A request keeps what it was hashed to for one store: another store, another policy and another part are
/// seen all the same.
#[test]
fn a_request_that_was_used_is_judged_by_each_store() {
    let canonical = opened(Options::new());
    let exact = opened(Options::new().operation(&PAY, Policy::new().compare(Compare::Exact)));
    let per_tenant = opened(Options::new().scope_mode(ScopeMode::PerTenant));
    let spelled = |text: &str| Request::new(&SHOP, &PAY, &key("k")).json("body", text);
    let (one, other) = (spelled(r#"{"a":1}"#), spelled(r#"{ "a": 1 }"#));
    for store in [&canonical, &exact, &per_tenant] {
        done(store.execute(&one, counted));
        is_answered(store, &one, &replay(store.execute(&one, never)));
    }
    for _ in 0..2 {
        assert!(canonical.peek_receipt(&other).is_some());
        assert!(exact.peek_receipt(&other).is_none());
        assert!(per_tenant.peek_receipt(&other).is_some());
    }
    // Built upon after its use, it is another request.
    let more = one.bytes("more", "");
    for store in [&canonical, &exact, &per_tenant] {
        is_left_alone(store, &more);
        assert_eq!(mismatch(store.execute(&more, never)).0, ["more"]);
    }
    let refund = Request::new(&SHOP, &REFUND, &key("k")).json("body", r#"{"a":1}"#);
    is_left_alone(&per_tenant, &refund);
    assert!(matches!(per_tenant.peek(&refund), Some(Reply::Mismatch { .. })));
}

/// A record that is only in the file is in memory after it was asked for.
#[test]
fn a_cold_hit_warms_the_memory() {
    let disk = SimDisk::seeded(1);
    let store = disk.open(Options::new()).unwrap();
    let long = |_: &mut onecho::Effects<'_, '_>| Ok(Outcome::succeeded(201).body(vec![7; 4_000]));
    done(store.execute(&request("k"), made));
    done(store.execute(&request("long"), long));
    store.close().unwrap();
    let store = disk.open(Options::new()).unwrap();
    is_left_alone(&store, &request("k"));
    is_answered_after(&store, "k");
    // An answer longer than a slot stays in the file.
    replay(store.execute(&request("long"), never));
    is_left_alone(&store, &request("long"));
}

#[track_caller]
fn is_answered_after(store: &Store, name: &str) {
    let cold = replay(store.execute(&request(name), never));
    assert_eq!(store.stats().answered_from_memory, 0);
    is_answered(store, &request(name), &cold);
}

/// Memory says nothing of a store that has stopped or was closed, and goes on after a reopen.
#[test]
fn a_stopped_store_answers_nothing_from_memory() {
    let disk = SimDisk::seeded(1);
    let store = disk.open(Options::new()).unwrap();
    done(store.execute(&request("k"), made));
    assert!(store.peek_receipt(&request("k")).is_some());
    disk.fail(Fault::Write, 0);
    let failed = store.execute(&request("fails"), |_| Ok(Outcome::succeeded(201))).unwrap_err();
    assert!(matches!(failed.kind(), ErrorKind::CommitUncertain | ErrorKind::Unavailable), "{failed}");
    is_left_alone(&store, &request("k"));
    assert_eq!(store.peek(&request("k")), None);
    store.reopen().unwrap();
    let cold = replay(store.execute(&request("k"), never));
    is_answered(&store, &request("k"), &cold);
    store.close().unwrap();
    is_left_alone(&store, &request("k"));
    assert_eq!(store.peek(&request("k")), None);
}
