//! Owners that come late, and say things in an odd order: what they say is kept or refused, and no call is
//! handed out that somebody else may make, too.

use std::time::Duration;

use onecho::testing::ManualClock;
use onecho::{
    Begin, Case, Claim, Contract, ErrorKind, Evidence, OperationId, Options, Outcome, Policy, Resolution,
    Start, Status, Step, Stepped, Store, Takeover, Verdict, Workers,
};

use crate::common::{PAY, at_noon, clean, fails, never, request};

const CHARGE: Step<u32> = Step::new("charge", Contract::Queryable).settles_within(SETTLES);
const SWITCH: Step<u32> = Step::new("switch", Contract::Neither).settles_within(SETTLES);
const SETTLES: Duration = Duration::from_secs(60);
const LEASE: Duration = Duration::from_secs(10);

fn opened() -> (Store, ManualClock) {
    let policy = Policy::new().wait(Duration::ZERO).lease(LEASE).takeover(Takeover::Allowed);
    let (store, clock, _) = at_noon(Options::new().default_policy(policy));
    (store, clock)
}

#[track_caller]
fn begin(store: &Store, start: Start) -> Claim {
    match store.begin(&request("k"), start) {
        Ok(Begin::Run(claim)) => claim,
        other => panic!("not granted: {other:?}"),
    }
}

#[track_caller]
fn call(claim: &mut Claim, step: &Step<u32>) -> OperationId {
    match claim.step(step) {
        Ok(Stepped::Call(id)) => id,
        other => panic!("no call: {other:?}"),
    }
}

#[track_caller]
fn unknown(store: &Store) -> Case {
    match store.status(request("k").scope()).unwrap() {
        Status::Unknown(case) => case,
        other => panic!("not unknown: {other:?}"),
    }
}

fn why(text: &str) -> Evidence {
    Evidence::new("test", text)
}

fn not_seen() -> Verdict<u32> {
    Verdict::NotApplied(why("not seen"))
}

/// C034: a call that did not apply is made again; the file says that it may have been, and nothing else.
#[test]
fn a_call_that_is_made_again_is_open_again() {
    let (store, clock) = opened();
    let mut claim = begin(&store, Start::new());
    let id = call(&mut claim, &SWITCH);
    claim.not_applied(&SWITCH, why("refused to connect")).unwrap();
    assert_eq!(call(&mut claim, &SWITCH), id);
    let unfinished = claim.abort("it may have switched").unwrap_err();
    assert_eq!(unfinished.error.kind(), ErrorKind::Invalid);
    drop(unfinished);
    clock.advance(LEASE);
    assert!(unknown(&store).steps[0].open);
    let history = store.history(request("k").scope()).unwrap();
    assert!(history[2].why.ends_with("step switch declared"), "{history:?}");
    clean(&store);
}

#[test]
fn a_call_that_is_made_again_is_answered() {
    let (store, _) = opened();
    let mut claim = begin(&store, Start::new().step(&SWITCH));
    let _ = call(&mut claim, &SWITCH);
    claim.not_applied(&SWITCH, why("refused to connect")).unwrap();
    let _ = call(&mut claim, &SWITCH);
    claim.answer(&SWITCH, &7).unwrap();
    assert_eq!(claim.finish(|_| Ok(Outcome::succeeded(201))).unwrap().code, 201);
    clean(&store);
}

/// C021: an owner that slept through its lease does not make the call that another makes.
#[test]
fn an_owner_that_was_replaced_gets_no_call() {
    let (store, clock) = opened();
    let mut old = begin(&store, Start::new().step(&CHARGE));
    clock.advance(SETTLES);
    let _ = store.judge(&unknown(&store), &CHARGE, not_seen(), "ann").unwrap();
    fails(old.step(&CHARGE), ErrorKind::FenceLost);
    let mut new = begin(&store, Start::new());
    let _ = call(&mut new, &CHARGE);
    fails(old.step(&CHARGE), ErrorKind::FenceLost);
}

#[test]
fn a_closed_store_hands_out_no_call() {
    let (store, _) = opened();
    let mut claim = begin(&store, Start::new().step(&CHARGE));
    store.close().unwrap();
    fails(claim.step(&CHARGE), ErrorKind::Closed);
}

/// A call is given the whole of its time to settle, however late after its claim it is made.
#[test]
fn time_to_settle_begins_with_the_call() {
    let (store, clock) = opened();
    let mut claim = begin(&store, Start::new().step(&CHARGE));
    let kept = claim.keep_alive();
    clock.advance(SETTLES);
    let _ = call(&mut claim, &CHARGE);
    drop((kept, claim));
    clock.advance(LEASE);
    fails(store.judge(&unknown(&store), &CHARGE, not_seen(), "ann"), ErrorKind::Unavailable);
    clock.advance(SETTLES - LEASE);
    assert!(store.judge(&unknown(&store), &CHARGE, not_seen(), "ann").is_ok());
}

/// A decision is for the state that was seen: an owner whose lease is over may have moved on since.
#[test]
fn a_decision_on_what_has_moved_on_is_refused() {
    let (store, clock) = opened();
    let mut claim = begin(&store, Start::new().step(&CHARGE));
    clock.advance(LEASE);
    let seen = unknown(&store);
    assert_eq!(claim.transact("reserve", |_| Ok(5)).unwrap(), 5);
    let nothing_done = Resolution::finished(|_| Ok(Outcome::failed(400)));
    fails(store.resolve(&seen, nothing_done, why("nothing was done"), "ann"), ErrorKind::Conflict);
    let done = Resolution::finished(|_| Ok(Outcome::succeeded(200)));
    assert!(store.resolve(&unknown(&store), done, why("it was reserved"), "ann").is_ok());
    clean(&store);
}

/// An answer that comes with `unsure` too late is not taken in silence as if it had been written.
#[test]
fn an_answer_that_is_not_kept_is_not_confirmed() {
    let (store, clock) = opened();
    let mut claim = begin(&store, Start::new());
    let _ = call(&mut claim, &CHARGE);
    claim.answer(&CHARGE, &42).unwrap();
    clock.advance(LEASE);
    assert!(store.execute(&request("k"), never).is_ok());
    assert_eq!(claim.unsure("late").unwrap_err().error.kind(), ErrorKind::FenceLost);
    let answered = Verdict::Applied(42, why("its owner came back"));
    assert!(store.judge(&unknown(&store), &CHARGE, answered, "ann").is_ok());
}

/// However much is kept of a command, there is room for what was found out about it.
#[test]
fn evidence_has_room_of_its_own() {
    let (store, clock) = opened();
    let full = "x".repeat(4 * 1024 * 1024 - "charge".len() - 2);
    let mut claim = begin(&store, Start::new().step(&CHARGE).input(&full).unwrap());
    let _ = call(&mut claim, &CHARGE);
    claim.unsure(&"no answer ".repeat(1_000)).unwrap();
    clock.advance(SETTLES);
    for _ in 0..40 {
        let evidence = Verdict::<u32>::Insufficient(why(&"cannot tell ".repeat(1_000)));
        assert!(store.judge(&unknown(&store), &CHARGE, evidence, "ann").is_ok());
    }
    assert!(store.judge(&unknown(&store), &CHARGE, not_seen(), "ann").is_ok());
    let workers = Workers::new(&store).resume(&PAY, |claim| Ok(claim.abort("not charged")?));
    assert_eq!(workers.tick().unwrap().resumed, 1);
    assert!(matches!(store.status(request("k").scope()), Ok(Status::Absent)));
    clean(&store);
}
