//! Work that reaches outside: one owner at a time, never twice in silence, never stuck, and an honest word
//! for what is not known.

use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use onecho::testing::{Fault, ManualClock, SimDisk};
use onecho::{
    Begin, Claim, Contract, ErrorKind, Evidence, Options, Outcome, Policy, Refused, Reply, Request,
    Resolution, Start, Status, Step, Stepped, Store, Takeover, Timestamp, Verdict,
};

use crate::common::{
    NOON, NOTES, PATIENT, PAY, SECOND, SHOP, applied, at_noon, clean, counted, done, fails, mismatch, never,
    note, opened, replay, request, store,
};

const CHARGE: Step<u32> = Step::new("charge", Contract::Queryable).settles_within(Duration::from_secs(60));
const SHIP: Step<String> = Step::new("ship", Contract::Idempotent);
const SWITCH: Step<()> = Step::new("switch", Contract::Neither);
const LEASE: Duration = Duration::from_secs(10);

fn quick() -> Policy {
    Policy::new().wait(Duration::ZERO).lease(LEASE)
}

fn lenient() -> Policy {
    quick().takeover(Takeover::Allowed)
}

#[track_caller]
fn run(begin: Result<Begin, onecho::Error>) -> Claim {
    match begin {
        Ok(Begin::Run(claim)) => claim,
        other => panic!("not granted: {other:?}"),
    }
}

#[track_caller]
fn told(begin: Result<Begin, onecho::Error>) -> Reply {
    match begin {
        Ok(Begin::Reply(reply)) => reply,
        other => panic!("no reply: {other:?}"),
    }
}

#[track_caller]
fn call<T: std::fmt::Debug>(stepped: Result<Stepped<T>, onecho::Error>) -> onecho::OperationId {
    match stepped {
        Ok(Stepped::Call(id)) => id,
        other => panic!("no call: {other:?}"),
    }
}

fn begin(store: &Store, key: &str) -> Claim {
    run(store.begin(&request(key), Start::new()))
}

fn paid(fx: &mut onecho::Effects<'_, '_>) -> Result<Outcome, onecho::BoxError> {
    fx.create(&NOTES, "receipt", &"paid".to_owned())?;
    counted(fx)
}

#[track_caller]
fn unknown(store: &Store, key: &str) -> onecho::Case {
    match store.status(request(key).scope()).unwrap() {
        Status::Unknown(case) => case,
        other => panic!("not unknown: {other:?}"),
    }
}

fn why(text: &str) -> Evidence {
    Evidence::new("test", text)
}

#[test]
fn a_command_is_claimed_moved_on_and_finished() {
    let (store, _, disk) = at_noon(Options::new().default_policy(quick()));
    let mut claim = run(store.begin(&request("k"), Start::new().step(&CHARGE).input(&7_u32).unwrap()));
    assert_eq!((claim.attempt(), claim.input::<u32>().unwrap()), (1, 7));
    let id = call(claim.step(&CHARGE));
    claim.answer(&CHARGE, &100).unwrap();
    assert_eq!(claim.step(&CHARGE).unwrap(), Stepped::Answered(100));
    assert_ne!(call(claim.step(&SHIP)), id);
    claim.answer(&SHIP, &"parcel".to_owned()).unwrap();
    let finished = claim.finish(paid).unwrap();
    assert_eq!((finished.code, applied(&store)), (201, 1));
    let again = replay(store.execute(&request("k"), never));
    assert_eq!((again.code, again.at), (finished.code, finished.at));
    assert!(matches!(told(store.begin(&request("k"), Start::new())), Reply::Replay(_)));
    let changes: Vec<String> =
        store.history(request("k").scope()).unwrap().into_iter().map(|entry| entry.change).collect();
    assert_eq!(changes, ["begun", "advanced", "finished"]);
    clean(&store);
    store.close().unwrap();
    let store = disk.open(Options::new().default_policy(quick())).unwrap();
    assert!(store.execute(&request("k"), never).unwrap().is_replay());
    assert_eq!(note(&store, "receipt").as_deref(), Some("paid"));
}

/// C001, C002: callers started together; one is let in.
#[test]
fn of_many_who_begin_together_one_runs() {
    let store = opened(Options::new().default_policy(quick()));
    let runs = AtomicU32::new(0);
    thread::scope(|scope| {
        for _ in 0..64 {
            scope.spawn(|| match store.begin(&request("k"), Start::new()).unwrap() {
                Begin::Run(claim) => {
                    runs.fetch_add(1, Ordering::Relaxed);
                    let _ = claim.finish(counted).unwrap();
                }
                Begin::Reply(reply) => {
                    assert!(matches!(reply, Reply::InProgress { .. } | Reply::Replay(_)), "{reply:?}");
                }
            });
        }
    });
    assert_eq!((runs.into_inner(), applied(&store)), (1, 1));
    clean(&store);
}

/// C003, C006, C102: who is kept waiting learns who is at it and until when, and gets the outcome if it waits.
#[test]
fn who_waits_for_a_claim_gets_its_outcome() {
    let store = opened(Options::new().owner("edge-7").default_policy(quick()));
    let claim = begin(&store, "k");
    match store.execute(&request("k"), never).unwrap() {
        Reply::InProgress { retry_after, attempt, owner, .. } => {
            assert!(!retry_after.is_zero() && retry_after <= LEASE);
            assert_eq!((attempt, owner.as_str()), (1, "edge-7"));
        }
        other => panic!("{other:?}"),
    }
    match store.status(request("k").scope()).unwrap() {
        Status::Processing { lease_left, owner, .. } => {
            assert!(!lease_left.is_zero() && lease_left <= LEASE && owner == "edge-7");
        }
        other => panic!("{other:?}"),
    }
    thread::scope(|scope| {
        let waits = [0, 1].map(|number| {
            let store = &store;
            scope.spawn(move || match number {
                0 => store.execute(&request("k").wait(PATIENT), never).unwrap(),
                _ => told(store.begin(&request("k").wait(PATIENT), Start::new())),
            })
        });
        crate::common::let_others_wait();
        let _ = claim.finish(counted).unwrap();
        for waited in waits {
            assert!(waited.join().unwrap().is_replay());
        }
    });
}

#[test]
fn another_request_under_an_open_key_is_a_mismatch() {
    let store = opened(Options::new().default_policy(quick()));
    let claim = begin(&store, "k");
    let other = crate::common::asking("k", "something else");
    assert!(mismatch(store.execute(&other, never)).2, "nothing is recorded yet");
    assert!(matches!(told(store.begin(&other, Start::new())), Reply::Mismatch { in_flight: true, .. }));
    claim.unsure("no idea").unwrap();
    assert!(mismatch(store.execute(&other, never)).2);
}

/// C008, C011, C018: an owner that is gone leaves no key stuck.
#[test]
fn a_lapsed_claim_is_unknown_until_somebody_finds_out() {
    let (store, clock, _) = at_noon(Options::new().default_policy(quick()));
    let mut claim = run(store.begin(&request("k"), Start::new().step(&CHARGE)));
    let id = call(claim.step(&CHARGE));
    drop(claim);
    clock.advance(LEASE - SECOND);
    assert!(matches!(store.execute(&request("k"), never).unwrap(), Reply::InProgress { .. }));
    clock.advance(SECOND);
    // What is answered depends on the times alone, not on whether anybody has told the file.
    assert_eq!(unknown(&store, "k").steps.len(), 1);
    match store.execute(&request("k"), never).unwrap() {
        Reply::Unknown { open_steps, .. } => assert_eq!(open_steps, [("charge".to_owned(), id)]),
        other => panic!("{other:?}"),
    }
    let cases: Vec<_> = store.cases().map(Result::unwrap).collect();
    assert_eq!(cases.len(), 1);
    let how = Resolution::finished(paid);
    let status = store.resolve(&cases[0], how, why("the processor says so"), "ada").unwrap();
    assert!(matches!(status, Status::Finished(finished) if finished.code == 201));
    assert_eq!(applied(&store), 1);
    assert!(store.execute(&request("k"), never).unwrap().is_replay());
    let last = store.history(request("k").scope()).unwrap().pop().unwrap();
    assert_eq!((last.change.as_str(), last.actor.as_str()), ("resolved", "ada"));
    assert!(last.why.contains("the processor says so"), "{}", last.why);
    assert_eq!((store.stats().resolved, store.stats().unknown_open, store.stats().open), (1, 0, 0));
    clean(&store);
}

/// A restart counts leases anew, and the owner is gone then.
#[test]
fn a_restart_leaves_a_claim_its_lease_and_then_unknown() {
    let (store, clock, disk) = at_noon(Options::new().default_policy(quick()));
    let claim = begin(&store, "k");
    clock.advance(LEASE - SECOND);
    let left = disk.crash();
    let store = left.open(Options::new().clock(clock.clone()).default_policy(quick())).unwrap();
    clock.advance(LEASE - SECOND);
    assert!(matches!(store.execute(&request("k"), never).unwrap(), Reply::InProgress { .. }));
    clock.advance(SECOND);
    assert!(matches!(store.execute(&request("k"), never).unwrap(), Reply::Unknown { .. }));
    drop(claim);
    clean(&store);
}

/// C010, C012, C094: a lease depends on heartbeats and the monotonic clock, never on age or the wall clock.
#[test]
fn a_heartbeat_keeps_a_lease_whatever_the_wall_clock_says() {
    let (store, clock, _) = at_noon(Options::new().default_policy(lenient()));
    let claim = begin(&store, "k");
    let writes = store.stats().commits;
    for _ in 0..20 {
        clock.advance(LEASE / 2);
        clock.set_wall(Timestamp(NOON.0 + 86_400_000));
        assert!(matches!(told(store.begin(&request("k"), Start::new())), Reply::InProgress { .. }));
        clock.set_wall(Timestamp(0));
        claim.heartbeat().unwrap();
    }
    assert_eq!(store.stats().commits, writes, "a heartbeat is no commit");
    clock.advance(LEASE);
    let taken = run(store.begin(&request("k"), Start::new()));
    assert_eq!(taken.attempt(), 2);
    fails(claim.heartbeat(), ErrorKind::FenceLost);
}

#[test]
fn a_guard_keeps_a_lease_until_it_or_the_claim_is_dropped_or_time_is_over() {
    let policy = lenient().run_max(6 * LEASE);
    let (store, clock, _) = at_noon(Options::new().default_policy(policy));
    let claim = begin(&store, "guarded");
    let guard = claim.keep_alive();
    clock.advance(3 * LEASE);
    assert!(matches!(told(store.begin(&request("guarded"), Start::new())), Reply::InProgress { .. }));
    drop(guard);
    clock.advance(LEASE - SECOND);
    assert!(matches!(told(store.begin(&request("guarded"), Start::new())), Reply::InProgress { .. }));
    clock.advance(SECOND);
    let claim = run(store.begin(&request("guarded"), Start::new()));
    let guard = claim.keep_alive();
    drop(claim);
    clock.advance(LEASE);
    let claim = run(store.begin(&request("guarded"), Start::new()));
    drop(guard);
    let guard = claim.keep_alive();
    clock.advance(6 * LEASE);
    // It hangs: its time is over.
    assert_eq!(run(store.begin(&request("guarded"), Start::new())).attempt(), 4);
    drop((guard, claim));
}

/// C009, C016: a stale owner changes no record, no row, and learns who finished.
#[test]
fn a_stale_owner_changes_nothing() {
    let (store, clock, _) = at_noon(Options::new().default_policy(lenient()));
    let mut first = begin(&store, "k");
    clock.advance(LEASE);
    let second = run(store.begin(&request("k"), Start::new()));
    fails(first.step(&SHIP), ErrorKind::FenceLost);
    fails(first.transact("p", |fx| Ok(fx.new_id())), ErrorKind::FenceLost);
    let lost = first.finish(paid).unwrap_err();
    assert_eq!(lost.error.kind(), ErrorKind::FenceLost);
    assert!(lost.claim.is_none() && lost.error.finished().is_none());
    assert_eq!(applied(&store), 0);
    assert!(matches!(told(store.begin(&request("k"), Start::new())), Reply::InProgress { attempt: 2, .. }));
    let _ = second.finish(counted).unwrap();
    assert_eq!((applied(&store), store.stats().differences), (1, 1));
    clean(&store);
}

#[test]
fn a_completion_after_a_resolution_is_refused_and_told() {
    let (store, clock, _) = at_noon(Options::new().default_policy(quick()));
    let late = begin(&store, "k");
    clock.advance(LEASE);
    let case = unknown(&store, "k");
    let how = Resolution::finished(|_| Ok(Outcome::failed(409)));
    let _ = store.resolve(&case, how, why("never arrived"), "ada").unwrap();
    let lost = late.finish(paid).unwrap_err();
    assert_eq!(lost.error.kind(), ErrorKind::FenceLost);
    assert_eq!(lost.error.finished().map(|finished| finished.code), Some(409));
    assert_eq!((applied(&store), note(&store, "receipt"), store.stats().differences), (0, None, 1));
    let changes: Vec<_> = store.history(request("k").scope()).unwrap();
    assert_eq!(changes.last().unwrap().change, "differed");
    assert_eq!(replay(store.execute(&request("k"), never)).code, 409);
    // What was decided is decided: the case is out of date.
    let again = Resolution::NotApplied;
    fails(store.resolve(&case, again, why("or was it"), "bob"), ErrorKind::Conflict);
    clean(&store);
}

#[test]
fn a_takeover_goes_on_where_the_first_stopped() {
    let (store, clock, disk) = at_noon(Options::new().default_policy(lenient()));
    let mut first = run(store.begin(&request("k"), Start::new().input(&"cart").unwrap()));
    let reserved: u32 = first
        .transact("reserve", |fx| {
            fx.add(&crate::common::COUNT, "reserved", 1, i64::MIN)?;
            Ok(17)
        })
        .unwrap();
    let id = call(first.step(&SHIP));
    call(first.step(&CHARGE));
    first.answer(&CHARGE, &5).unwrap();
    call(first.step(&SWITCH));
    first.not_applied(&SWITCH, why("refused before it was sent")).unwrap();
    let _: u32 = first.transact("second", |_| Ok(1)).unwrap();
    clock.advance(LEASE);
    let left = disk.crash();
    let store = left.open(Options::new().clock(clock.clone()).default_policy(lenient())).unwrap();
    clock.advance(LEASE);
    let mut second = run(store.begin(&request("k"), Start::new().input(&"other").unwrap()));
    assert_eq!((second.attempt(), second.input::<String>().unwrap().as_str()), (2, "cart"));
    let stored: u32 = second.transact("reserve", |_| panic!("it was committed")).unwrap();
    assert_eq!(stored, reserved);
    assert_eq!(second.step(&CHARGE).unwrap(), Stepped::Answered(5));
    assert_eq!(call(second.step(&SHIP)), id, "the same id over restarts and takeovers");
    call(second.step(&SWITCH));
    second.answer(&SHIP, &"parcel".to_owned()).unwrap();
    second.answer(&SWITCH, &()).unwrap();
    let _ = second.finish(counted).unwrap();
    let reserved = store.get(&SHOP, &crate::common::COUNT, "reserved").unwrap().unwrap().value;
    assert_eq!((reserved, applied(&store)), (1, 1));
    clean(&store);
}

/// Nothing that may have been done is done again by itself.
#[test]
fn an_open_call_is_taken_over_only_where_it_may_be_repeated() {
    let (store, clock, _) = at_noon(Options::new().default_policy(lenient()));
    let mut open = [("q", &CHARGE)].map(|(key, step)| {
        let mut claim = begin(&store, key);
        call(claim.step(step));
        claim
    });
    let mut switched = begin(&store, "n");
    call(switched.step(&SWITCH));
    let mut shipped = begin(&store, "i");
    call(shipped.step(&SHIP));
    clock.advance(LEASE);
    for key in ["q", "n"] {
        assert!(matches!(told(store.begin(&request(key), Start::new())), Reply::Unknown { .. }), "{key}");
        assert!(matches!(store.execute(&request(key), never).unwrap(), Reply::Unknown { .. }), "{key}");
    }
    // An execute would know nothing of what was declared.
    assert!(matches!(store.execute(&request("i"), never).unwrap(), Reply::Unknown { .. }));
    call(run(store.begin(&request("i"), Start::new())).step(&SHIP));
    fails(open[0].answer(&SHIP, &String::new()), ErrorKind::Invalid);
}

/// Nothing was declared or committed: the command may run as if it had not been begun.
#[test]
fn an_execute_takes_the_place_of_an_untouched_claim() {
    for (policy, may) in [(lenient(), true), (quick(), false)] {
        let (store, clock, _) = at_noon(Options::new().default_policy(policy));
        let claim = begin(&store, "k");
        clock.advance(LEASE);
        if may {
            done(store.execute(&request("k"), counted));
            fails(claim.heartbeat(), ErrorKind::FenceLost);
        } else {
            assert!(matches!(store.execute(&request("k"), never).unwrap(), Reply::Unknown { .. }));
        }
        assert_eq!((applied(&store), store.stats().open), (i64::from(may), u64::from(!may)));
        clean(&store);
    }
}

/// C020, C024, C025: an abort says that nothing happened, and has to show it.
#[test]
fn an_abort_frees_the_key_only_if_nothing_happened() {
    let (store, ..) = at_noon(Options::new().default_policy(quick()));
    let mut claim = run(store.begin(&request("k"), Start::new().step(&CHARGE)));
    let id = call(claim.step(&CHARGE));
    let back = claim.abort("timed out").unwrap_err();
    assert_eq!(back.error.kind(), ErrorKind::Invalid);
    let mut claim = back.claim.unwrap();
    claim.not_applied(&CHARGE, why("connection refused")).unwrap();
    claim.abort("not sent").unwrap();
    assert_eq!((store.status(request("k").scope()).unwrap(), store.stats().open), (Status::Absent, 0));
    let mut claim = run(store.begin(&request("k"), Start::new().step(&CHARGE)));
    assert_eq!(call(claim.step(&CHARGE)), id, "the same id after an abort");
    claim.not_applied(&CHARGE, why("connection refused")).unwrap();
    let _: u8 = claim.transact("half", |_| Ok(1)).unwrap();
    let back = claim.abort("half done").unwrap_err();
    assert_eq!(back.error.kind(), ErrorKind::Invalid);
    let _ = back.claim.unwrap().finish(counted).unwrap();
    let why: Vec<_> = store.history(request("k").scope()).unwrap();
    assert_eq!(why[1].change, "aborted");
    assert!(why[1].why.contains("connection refused") && why[1].why.contains("not sent"), "{}", why[1].why);
    clean(&store);
}

#[test]
fn a_finish_needs_an_end_of_every_step() {
    let store = opened(Options::new().default_policy(quick()));
    let mut claim = run(store.begin(&request("k"), Start::new().step(&CHARGE)));
    let back = claim.finish(never).unwrap_err();
    assert_eq!(back.error.kind(), ErrorKind::Invalid);
    claim = back.claim.unwrap();
    call(claim.step(&CHARGE));
    fails(claim.step(&CHARGE), ErrorKind::Invalid);
    fails(claim.answer(&SHIP, &String::new()), ErrorKind::Invalid);
    claim.answer(&CHARGE, &1).unwrap();
    fails(claim.answer(&CHARGE, &2), ErrorKind::Invalid);
    fails(claim.not_applied(&CHARGE, why("no")), ErrorKind::Invalid);
    assert_eq!(claim.finish(counted).unwrap().code, 201);
}

#[test]
fn an_idempotent_call_may_be_made_again_by_its_owner() {
    let store = opened(Options::new().default_policy(quick()));
    let mut claim = begin(&store, "k");
    let id = call(claim.step(&SHIP));
    assert_eq!(call(claim.step(&SHIP)), id);
    claim.answer(&SHIP, &"parcel".to_owned()).unwrap();
    let _ = claim.finish(counted).unwrap();
}

#[test]
fn what_a_finish_cannot_commit_leaves_the_claim_in_hand() {
    let store = opened(Options::new().default_policy(quick()));
    done(store.execute(&request("other"), |fx| {
        fx.create(&NOTES, "receipt", &"taken".to_owned())?;
        Ok(Outcome::succeeded(200))
    }));
    let back = begin(&store, "k").finish(paid).unwrap_err();
    assert_eq!(back.error.kind(), ErrorKind::Conflict);
    assert_eq!(back.error.resource().map(|row| row.id.as_str()), Some("receipt"));
    let back = back.claim.unwrap().finish(|_| Err("no".into())).unwrap_err();
    assert_eq!(back.error.kind(), ErrorKind::Aborted);
    let _ = back.claim.unwrap().finish(counted).unwrap();
    assert_eq!(applied(&store), 1);
    clean(&store);
}

/// C092 and section 7: a commit in doubt is neither done nor undone until it is read back.
#[test]
fn a_finish_in_doubt_is_said_again_after_a_reopen() {
    for fails_at in 0..40 {
        let clock = ManualClock::at(NOON);
        let disk = SimDisk::seeded(fails_at);
        let store =
            disk.open(Options::new().clock(clock.clone()).reserve_bytes(0).default_policy(quick())).unwrap();
        let mut claim = run(store.begin(&request("k"), Start::new().step(&CHARGE)));
        call(claim.step(&CHARGE));
        claim.answer(&CHARGE, &3).unwrap();
        disk.fail(Fault::Sync, fails_at);
        let back = match claim.finish(paid) {
            Ok(_) => break,
            Err(back) => back,
        };
        assert!(
            matches!(back.error.kind(), ErrorKind::CommitUncertain | ErrorKind::Unavailable),
            "{}",
            back.error
        );
        disk.heal();
        let claim = back.claim.unwrap();
        fails(claim.heartbeat(), ErrorKind::Unavailable);
        // The lease stands still while the store does.
        clock.advance(2 * LEASE);
        store.reopen().unwrap();
        let claim = match claim.heartbeat() {
            Ok(()) => claim,
            Err(error) => panic!("{error}"),
        };
        assert_eq!(claim.finish(paid).unwrap().code, 201);
        assert_eq!(applied(&store), 1);
        assert!(store.execute(&request("k"), never).unwrap().is_replay());
        clean(&store);
    }
}

#[test]
fn a_claim_whose_grant_reached_nobody_is_over_at_once() {
    let mut seen = [false; 2];
    for fails_at in 0..12 {
        let clock = ManualClock::at(NOON);
        let disk = SimDisk::seeded(fails_at);
        let options = Options::new().clock(clock.clone()).reserve_bytes(0).default_policy(lenient());
        let store = disk.open(options).unwrap();
        disk.fail(Fault::Sync, fails_at);
        let Err(error) = store.begin(&request("k"), Start::new()) else { break };
        assert!(matches!(error.kind(), ErrorKind::CommitUncertain | ErrorKind::Unavailable), "{error}");
        disk.heal();
        store.reopen().unwrap();
        let claim = run(store.begin(&request("k"), Start::new()));
        seen[usize::from(claim.attempt() > 1)] = true;
        let _ = claim.finish(counted).unwrap();
        assert_eq!(applied(&store), 1);
        clean(&store);
    }
    assert!(seen.contains(&true));
}

/// Section 4: "the other side has not seen it" proves nothing while a request may still be on its way.
#[test]
fn negative_evidence_counts_once_nothing_can_arrive() {
    let (store, clock, disk) = at_noon(Options::new().default_policy(lenient()));
    let mut claim = begin(&store, "k");
    call(claim.step(&CHARGE));
    clock.advance(30 * SECOND);
    claim.unsure("no answer").unwrap();
    let no = || Verdict::NotApplied(why("not found"));
    fails(store.judge(&unknown(&store, "k"), &CHARGE, no(), "bot"), ErrorKind::Unavailable);
    fails(
        store.resolve(&unknown(&store, "k"), Resolution::NotApplied, why("not found"), "ada"),
        ErrorKind::Unavailable,
    );
    let case = unknown(&store, "k");
    let maybe = Verdict::Insufficient(why("asked too early"));
    assert!(matches!(store.judge(&case, &CHARGE, maybe, "bot").unwrap(), Status::Unknown(_)));
    fails(store.judge(&case, &CHARGE, no(), "bot"), ErrorKind::Conflict);
    // A restart counts it anew, whole.
    let left = disk.crash();
    let store = left.open(Options::new().clock(clock.clone()).default_policy(lenient())).unwrap();
    clock.advance(59 * SECOND);
    fails(store.judge(&unknown(&store, "k"), &CHARGE, no(), "bot"), ErrorKind::Unavailable);
    clock.advance(SECOND);
    let status = store.judge(&unknown(&store, "k"), &CHARGE, no(), "bot").unwrap();
    // Nothing is open any more, and the policy allows it: the next one may go on.
    assert!(matches!(status, Status::Unknown(case) if !case.steps[0].open && case.evidence.len() == 3));
    let mut claim = run(store.begin(&request("k"), Start::new()));
    call(claim.step(&CHARGE));
    claim.answer(&CHARGE, &1).unwrap();
    let _ = claim.finish(counted).unwrap();
    clean(&store);
}

#[test]
fn positive_evidence_counts_at_once() {
    let (store, ..) = at_noon(Options::new().default_policy(lenient()));
    let mut claim = begin(&store, "k");
    call(claim.step(&CHARGE));
    claim.unsure("no answer").unwrap();
    let yes = Verdict::Applied(9, why("found it"));
    let _ = store.judge(&unknown(&store, "k"), &CHARGE, yes, "bot").unwrap();
    fails(store.resolve(&unknown(&store, "k"), Resolution::NotApplied, why("no"), "ada"), ErrorKind::Invalid);
    let mut claim = run(store.begin(&request("k"), Start::new()));
    assert_eq!(claim.step(&CHARGE).unwrap(), Stepped::Answered(9));
    let _ = claim.finish(counted).unwrap();
}

#[test]
fn what_nobody_did_is_free_again_once_somebody_says_so() {
    let (store, clock, _) = at_noon(Options::new().default_policy(quick()));
    drop(begin(&store, "k"));
    clock.advance(LEASE);
    assert!(matches!(store.execute(&request("k"), never).unwrap(), Reply::Unknown { .. }));
    let case = unknown(&store, "k");
    fails(store.resolve(&case, Resolution::NotApplied, why("looked"), ""), ErrorKind::Invalid);
    let status = store.resolve(&case, Resolution::NotApplied, why("looked"), "ada").unwrap();
    assert_eq!(status, Status::Absent);
    done(store.execute(&request("k"), counted));
    clean(&store);
}

#[test]
fn a_cancelled_command_never_runs() {
    let (store, clock, _) = at_noon(Options::new().default_policy(quick()));
    // A free one.
    match store.cancel(request("free").scope()).unwrap() {
        Status::Finished(finished) => assert!(finished.failed && finished.code == 499),
        other => panic!("{other:?}"),
    }
    assert_eq!(replay(store.execute(&request("free"), never)).code, 499);
    assert_eq!(replay(store.execute(&crate::common::asking("free", "anything"), never)).code, 499);
    assert!(matches!(told(store.begin(&request("free"), Start::new())), Reply::Replay(_)));
    // One that runs is asked to stop, and decides by itself.
    let claim = begin(&store, "running");
    assert!(!claim.cancel_asked());
    assert!(matches!(store.cancel(request("running").scope()).unwrap(), Status::Processing { .. }));
    assert!(claim.cancel_asked());
    let _ = claim.finish(|_| Ok(Outcome::failed(410))).unwrap();
    // A finished one stays, and so does one that is not known.
    assert!(matches!(
        store.cancel(request("running").scope()).unwrap(),
        Status::Finished(finished) if finished.code == 410
    ));
    drop(begin(&store, "lost"));
    clock.advance(LEASE);
    assert!(matches!(store.cancel(request("lost").scope()).unwrap(), Status::Unknown(_)));
    clean(&store);
}

/// A late first attempt, whose closure has run already, finds the cancellation.
#[test]
fn a_cancel_beats_a_closure_that_has_not_committed() {
    let store = store();
    let reply = store
        .execute(&request("k"), |fx| {
            thread::scope(|scope| {
                scope.spawn(|| store.cancel(request("k").scope()).unwrap()).join().unwrap();
            });
            counted(fx)
        })
        .unwrap();
    assert!(matches!(reply, Reply::Replay(finished) if finished.code == 499));
    assert_eq!(applied(&store), 0);
}

/// C005: what is open is never given up for something new.
#[test]
fn when_too_much_is_open_a_further_begin_is_refused() {
    let (store, clock, _) = at_noon(Options::new().open_max(3).default_policy(quick()));
    let claims: Vec<Claim> = (0..3).map(|number| begin(&store, &format!("k{number}"))).collect();
    let full = told(store.begin(&request("one more"), Start::new()));
    assert!(matches!(full, Reply::Refused(Refused::Capacity { .. })), "{full:?}");
    assert!(matches!(store.execute(&request("k0"), never).unwrap(), Reply::InProgress { .. }));
    done(store.execute(&request("local"), counted));
    clock.advance(LEASE);
    assert!(matches!(store.execute(&request("k0"), never).unwrap(), Reply::Unknown { .. }));
    let full = told(store.begin(&request("one more"), Start::new()));
    assert!(matches!(full, Reply::Refused(Refused::Capacity { .. })), "{full:?}");
    drop(claims);
}

#[test]
fn people_see_what_is_open_oldest_first() {
    let (store, clock, _) = at_noon(Options::new().default_policy(quick()));
    for number in [3, 1, 2] {
        drop(begin(&store, &format!("k{number}")));
        clock.advance(SECOND);
    }
    assert_eq!(store.cases().count(), 0);
    clock.advance(LEASE);
    let keys: Vec<String> = store.cases().map(|case| case.unwrap().scope.key.to_string()).collect();
    assert_eq!(keys, ["k3", "k1", "k2"]);
    done(store.execute(&request("done"), counted));
    let all: Vec<_> = store.records().map(Result::unwrap).collect();
    assert_eq!(all.len(), 4);
    assert!(
        all.iter()
            .any(|(scope, status)| { scope.key.as_str() == "done" && matches!(status, Status::Finished(_)) })
    );
    assert_eq!(all.iter().filter(|(_, status)| matches!(status, Status::Unknown(_))).count(), 3);
}

#[test]
fn a_request_without_a_key_cannot_be_begun() {
    let store = store();
    let unprotected = Request::unprotected(&SHOP, &PAY).bytes("body", "x");
    fails(store.begin(&unprotected, Start::new()), ErrorKind::Invalid);
    let inside = store.execute(&request("k"), |_| {
        fails(store.begin(&request("inner"), Start::new()), ErrorKind::Reentrant);
        Ok(Outcome::succeeded(200))
    });
    done(inside);
}

/// C007: zero is no lease.
#[test]
fn a_lease_of_nothing_is_refused() {
    let policy = Policy::new().lease(Duration::ZERO);
    fails(SimDisk::seeded(1).open(Options::new().default_policy(policy)), ErrorKind::Invalid);
    let policy = Policy::new().run_max(Duration::ZERO);
    fails(SimDisk::seeded(1).open(Options::new().default_policy(policy)), ErrorKind::Invalid);
}

#[test]
fn an_expired_key_that_may_run_anew_can_be_begun_anew() {
    let policy = quick().body_window(SECOND).key_window(SECOND).after_expiry(onecho::AfterExpiry::RunAsNew);
    let (store, clock, _) = at_noon(Options::new().default_policy(policy));
    let mut claim = begin(&store, "k");
    let first = call(claim.step(&SHIP));
    claim.answer(&SHIP, &String::new()).unwrap();
    assert_eq!(claim.finish(counted).unwrap().generation, 1);
    clock.advance(SECOND);
    let mut claim = begin(&store, "k");
    assert_ne!(call(claim.step(&SHIP)), first, "another command, another id");
    assert!(matches!(store.status(request("k").scope()).unwrap(), Status::Processing { .. }));
    claim.answer(&SHIP, &String::new()).unwrap();
    assert_eq!(claim.finish(counted).unwrap().generation, 2);
    assert_eq!(applied(&store), 2);
    clean(&store);
}

/// Another request learns nothing of what is open, whatever it is told first.
#[test]
fn another_request_learns_no_open_step() {
    let policy = quick().while_running(onecho::WhileRunning::InProgressFirst);
    let (store, clock, _) = at_noon(Options::new().default_policy(policy));
    let claim = run(store.begin(&request("k"), Start::new().step(&CHARGE)));
    let other = crate::common::asking("k", "something else");
    assert!(matches!(store.execute(&other, never).unwrap(), Reply::InProgress { .. }));
    clock.advance(LEASE);
    assert!(matches!(store.execute(&other, never).unwrap(), Reply::Mismatch { .. }));
    assert!(matches!(store.execute(&request("k"), never).unwrap(), Reply::Unknown { .. }));
    assert!(matches!(store.execute(&other, never).unwrap(), Reply::Mismatch { .. }));
    drop(claim);
}

#[test]
fn an_abort_in_doubt_is_said_again() {
    for fails_at in 0..12 {
        let disk = SimDisk::seeded(fails_at);
        let store = disk.open(Options::new().reserve_bytes(0).default_policy(quick())).unwrap();
        let claim = begin(&store, "k");
        disk.fail(Fault::Sync, fails_at);
        let Err(back) = claim.abort("not now") else { break };
        disk.heal();
        store.reopen().unwrap();
        back.claim.unwrap().abort("not now").unwrap();
        assert_eq!(store.status(request("k").scope()).unwrap(), Status::Absent);
        clean(&store);
    }
}
