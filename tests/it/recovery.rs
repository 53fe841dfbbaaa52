//! Workers find out what became of commands whose owner is gone, and run them on: nobody is charged twice,
//! nothing stays stuck.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use onecho::{
    Begin, Claim, Contract, Evidence, Operation, OperationId, Options, Outcome, Policy, Reply, Resolution,
    Start, Status, Step, Stepped, Store, Takeover, Verdict, Workers,
};

use crate::common::{PAY, SECOND, at_noon, clean, never, request};

const CHARGE: Step<u32> = Step::new("charge", Contract::Queryable).settles_within(Duration::from_secs(60));
const LEASE: Duration = Duration::from_secs(10);

fn policy() -> Policy {
    Policy::new().wait(Duration::ZERO).lease(LEASE).takeover(Takeover::Allowed)
}

fn begun(store: &Store, key: &str) -> Claim {
    match store.begin(&request(key), Start::new().step(&CHARGE)) {
        Ok(Begin::Run(claim)) => claim,
        other => panic!("{other:?}"),
    }
}

fn why() -> Evidence {
    Evidence::new("processor", "looked up")
}

/// Runs a command on as its first owner would have.
fn run_on(mut claim: Claim) -> Result<(), onecho::BoxError> {
    let charged = match claim.step(&CHARGE)? {
        Stepped::Answered(charged) => charged,
        Stepped::Call(_) => {
            claim.answer(&CHARGE, &1)?;
            1
        }
    };
    claim.finish(|_| Ok(Outcome::succeeded(201).json(&charged)?))?;
    Ok(())
}

#[test]
fn a_worker_asks_and_runs_on_what_was_charged() {
    let (store, clock, _) = at_noon(Options::new().default_policy(policy()));
    let mut claim = begun(&store, "k");
    let Stepped::Call(id) = claim.step(&CHARGE).unwrap() else { panic!("it is open") };
    drop(claim);
    let asked: Arc<Mutex<Vec<OperationId>>> = Arc::default();
    let seen = Arc::clone(&asked);
    let workers = Workers::new(&store)
        .probe(&PAY, &CHARGE, move |case, id| {
            assert_eq!(case.steps.len(), 1);
            seen.lock().unwrap().push(*id);
            Ok(Verdict::Applied(7, why()))
        })
        .resume(&PAY, run_on);
    assert_eq!(workers.tick().unwrap().lapsed, 0, "its owner may be at it");
    clock.advance(LEASE);
    let ticked = workers.tick().unwrap();
    assert_eq!((ticked.lapsed, ticked.resolved, ticked.resumed), (1, 1, 1));
    assert_eq!(*asked.lock().unwrap(), [id]);
    let finished = store.execute(&request("k"), never).unwrap().into_finished().unwrap();
    assert_eq!(finished.decode::<u32>().unwrap(), Some(7));
    assert_eq!(store.stats().open, 0);
    clean(&store);
}

/// "Not found" waits until nothing can arrive; what cannot be told is asked again, less and less often.
#[test]
fn a_worker_believes_no_negative_evidence_too_early() {
    let (store, clock, _) = at_noon(Options::new().default_policy(policy()));
    let mut claim = begun(&store, "k");
    let _ = claim.step(&CHARGE).unwrap();
    claim.unsure("timed out").unwrap();
    let asked = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&asked);
    let workers = Workers::new(&store)
        .probe(&PAY, &CHARGE, move |_, _| match count.fetch_add(1, Ordering::Relaxed) {
            0 => Err("no connection".into()),
            1 => panic!("a probe that panics is one that failed"),
            2 => Ok(Verdict::Insufficient(why())),
            _ => Ok(Verdict::NotApplied(why())),
        })
        .resume(&PAY, run_on);
    for round in 0..3 {
        workers.tick().unwrap();
        workers.tick().unwrap();
        assert_eq!(asked.load(Ordering::Relaxed), round + 1, "it waits before it asks again");
        clock.advance(8 * SECOND);
    }
    workers.tick().unwrap();
    assert_eq!(asked.load(Ordering::Relaxed), 4);
    clock.advance(35 * SECOND);
    workers.tick().unwrap();
    assert!(matches!(store.status(request("k").scope()).unwrap(), Status::Unknown(_)));
    assert_eq!(asked.load(Ordering::Relaxed), 4, "nothing it could say would count");
    clock.advance(2 * SECOND);
    let ticked = workers.tick().unwrap();
    assert_eq!((ticked.resolved, ticked.resumed), (1, 1));
    assert!(store.execute(&request("k"), never).unwrap().is_replay());
    clean(&store);
}

/// A look that began before nothing could arrive any more has not seen what arrived while it went on.
#[test]
fn a_worker_believes_no_negative_evidence_that_was_looked_up_too_early() {
    let (store, clock, _) = at_noon(Options::new().default_policy(policy()));
    let mut claim = begun(&store, "k");
    let _ = claim.step(&CHARGE).unwrap();
    claim.unsure("timed out").unwrap();
    let asked = Arc::new(AtomicU32::new(0));
    let (count, slow) = (Arc::clone(&asked), clock.clone());
    let workers = Workers::new(&store).resume(&PAY, run_on).probe(&PAY, &CHARGE, move |_, _| {
        if count.fetch_add(1, Ordering::Relaxed) > 0 {
            return Ok(Verdict::Applied(7, why()));
        }
        slow.advance(60 * SECOND);
        Ok(Verdict::NotApplied(why()))
    });
    let early = workers.tick().unwrap();
    assert_eq!((early.resolved, early.resumed), (0, 0));
    clock.advance(SECOND);
    assert_eq!(workers.tick().unwrap().resumed, 1);
    let finished = store.execute(&request("k"), never).unwrap().into_finished().unwrap();
    assert_eq!((asked.load(Ordering::Relaxed), finished.decode::<u32>().unwrap()), (2, Some(7)));
    clean(&store);
}

#[test]
fn what_nobody_may_take_over_stays_for_people() {
    const RARE: Operation = Operation::new("rare");
    let (store, clock, _) = at_noon(Options::new().default_policy(policy().takeover(Takeover::Never)));
    drop(begun(&store, "k"));
    clock.advance(LEASE);
    let workers =
        Workers::new(&store)
            .resume(&PAY, |_| panic!("nobody may"))
            .probe(&RARE, &CHARGE, |_, _| panic!("another operation"));
    for _ in 0..3 {
        workers.tick().unwrap();
        clock.advance(100 * SECOND);
    }
    assert!(matches!(store.execute(&request("k"), never).unwrap(), Reply::Unknown { .. }));
    assert_eq!(store.cases().count(), 1);
}

/// A run that fails is tried again, a named number of times.
#[test]
fn a_run_that_fails_is_tried_again_and_then_left() {
    let (store, clock, _) = at_noon(Options::new().default_policy(policy()));
    let Ok(Begin::Run(claim)) = store.begin(&request("k"), Start::new()) else { panic!("it is free") };
    drop(claim);
    let runs = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&runs);
    let workers = Workers::new(&store).resume(&PAY, move |claim| {
        assert_eq!(claim.attempt(), count.fetch_add(1, Ordering::Relaxed) + 2);
        match claim.attempt() % 2 {
            0 => Err("not now".into()),
            _ => panic!("not ever"),
        }
    });
    for _ in 0..100 {
        clock.advance(1_000 * SECOND);
        workers.tick().unwrap();
    }
    assert_eq!(runs.load(Ordering::Relaxed), 16);
    // People see it, and decide.
    let cases: Vec<_> = store.cases().map(Result::unwrap).collect();
    assert!(cases[0].evidence[0].text().contains("16 times"), "{:?}", cases[0].evidence);
    assert!(store.resolve(&cases[0], Resolution::NotApplied, why(), "ada").is_ok());
    let Ok(Begin::Run(claim)) = store.begin(&request("k"), Start::new()) else { panic!("it is free") };
    assert!(claim.finish(|_| Ok(Outcome::succeeded(200))).is_ok());
    clean(&store);
}

#[test]
fn a_runner_looks_after_commands_by_itself_and_stops() {
    let store =
        crate::common::opened(Options::new().default_policy(policy().lease(Duration::from_millis(50))));
    let running = Workers::new(&store).resume(&PAY, run_on).threads(2).start().unwrap();
    let mut claim = begun(&store, "k");
    let _ = claim.step(&CHARGE).unwrap();
    claim.answer(&CHARGE, &1).unwrap();
    let _: u8 = claim.transact("half", |_| Ok(1)).unwrap();
    drop(claim);
    let deadline = std::time::Instant::now() + crate::common::PATIENT;
    while !matches!(store.status(request("k").scope()).unwrap(), Status::Finished(_)) {
        assert!(std::time::Instant::now() < deadline, "nobody looked after it");
        crate::common::let_others_wait();
    }
    assert!(running.health().alive);
    running.stop(crate::common::PATIENT).unwrap();
}

#[cfg(unix)]
mod processor;
