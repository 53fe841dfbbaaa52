//! A power cut at any moment of work that reaches outside: what was granted, declared, committed or finished
//! before an answer was sent is there afterwards, nothing is done twice, and each command can be brought to
//! its end.

use std::time::Duration;

use onecho::testing::{CrashTest, ManualClock};
use onecho::{
    Begin, Claim, CommitMode, Contract, Evidence, Kind, Options, Outcome, Policy, Reply, Resolution, Start,
    Status, Step, Stepped, Store, Takeover, Verdict,
};

use crate::common::{NOON, SHOP, request, seed};

const CHARGE: Step<u32> = Step::new("charge", Contract::Queryable).settles_within(Duration::from_secs(60));
const MADE: Kind<i64> = Kind::counter("made");
const LEASE: Duration = Duration::from_secs(10);
const KEYS: usize = 5;

/// What the owner of a command was told.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Told {
    Begun(usize),
    /// The call of its step may be made.
    Called(usize),
    /// Its half is committed.
    Half(usize),
    Finished(usize),
    Unsure(usize),
    Aborted(usize),
}

fn key(number: usize) -> String {
    format!("k{number}")
}

/// Commits the first half of a command, or finds that it was.
fn half(claim: &mut Claim, number: usize) {
    let half: u32 = claim
        .transact("half", |fx| {
            fx.add(&MADE, &format!("half {number}"), 1, i64::MIN)?;
            Ok(11)
        })
        .unwrap();
    assert_eq!(half, 11);
}

fn whole(claim: Claim, number: usize) {
    let finished = claim.finish(|fx| {
        fx.add(&MADE, &format!("whole {number}"), 1, i64::MIN)?;
        Ok(Outcome::succeeded(201).body(vec![7; 40 + number]))
    });
    assert_eq!(finished.unwrap().code, 201);
}

/// The first owner: each key goes as far as its number says.
fn work(store: &Store, tell: &mut dyn FnMut(Told)) {
    for number in 0..KEYS {
        let begun = store.begin(&request(&key(number)), Start::new().input(&number).unwrap()).unwrap();
        let Begin::Run(mut claim) = begun else { panic!("{begun:?}") };
        tell(Told::Begun(number));
        if number == 4 {
            claim.abort("not now").unwrap();
            tell(Told::Aborted(number));
            continue;
        }
        let Stepped::Call(_) = claim.step(&CHARGE).unwrap() else { panic!("nobody was before") };
        tell(Told::Called(number));
        if number == 3 {
            claim.unsure("no answer").unwrap();
            tell(Told::Unsure(number));
            continue;
        }
        claim.answer(&CHARGE, &7).unwrap();
        half(&mut claim, number);
        tell(Told::Half(number));
        if number == 2 {
            continue; // Its owner goes without a word.
        }
        whole(claim, number);
        tell(Told::Finished(number));
    }
}

fn made(store: &Store, what: &str, number: usize) -> i64 {
    store.get(&SHOP, &MADE, &format!("{what} {number}")).unwrap().map_or(0, |row| row.value)
}

/// What is there after the cut fits what was told before it.
fn check(store: &Store, clock: &ManualClock, told: &[Told]) {
    clock.advance(LEASE);
    for number in 0..KEYS {
        let was = |what: fn(usize) -> Told| told.contains(&what(number));
        let status = store.status(request(&key(number)).scope()).unwrap();
        if was(Told::Finished) {
            assert!(matches!(&status, Status::Finished(finished) if finished.code == 201), "{status:?}");
        }
        if was(Told::Unsure) {
            assert!(matches!(&status, Status::Unknown(_)), "{status:?}");
        }
        if was(Told::Aborted) {
            assert_eq!(status, Status::Absent);
        }
        if was(Told::Begun) && !was(Told::Aborted) && number != 4 {
            assert_ne!(status, Status::Absent, "{number} was begun");
        }
        assert!(made(store, "half", number) >= i64::from(was(Told::Half)));
        if matches!(status, Status::Finished(_)) {
            assert_eq!((made(store, "half", number), made(store, "whole", number)), (1, 1));
        }
        // A call that may have been made is known, or its answer is.
        if was(Told::Called)
            && let Status::Unknown(case) = &status
        {
            assert_eq!(case.steps.len(), 1, "the call of {number} is forgotten");
        }
        brought_to_an_end(store, clock, number);
    }
    assert_eq!(store.stats().open, 0);
}

/// Recovery by hand: a takeover where it may be, else what the other side says.
fn brought_to_an_end(store: &Store, clock: &ManualClock, number: usize) {
    for _ in 0..4 {
        match store.begin(&request(&key(number)), Start::new().input(&number).unwrap()).unwrap() {
            Begin::Run(mut claim) => {
                assert_eq!(claim.input::<usize>().unwrap(), number);
                if let Stepped::Call(_) = claim.step(&CHARGE).unwrap() {
                    claim.answer(&CHARGE, &7).unwrap();
                }
                half(&mut claim, number);
                whole(claim, number);
            }
            Begin::Reply(Reply::Replay(finished)) => {
                assert_eq!(finished.code, 201);
                break;
            }
            Begin::Reply(Reply::Unknown { open_steps, .. }) => {
                assert_eq!(open_steps.len(), 1);
                let Status::Unknown(case) = store.status(request(&key(number)).scope()).unwrap() else {
                    panic!("it was a moment ago")
                };
                let evidence = Evidence::new("processor", "booked");
                let _ = store.judge(&case, &CHARGE, Verdict::Applied(7, evidence), "worker").unwrap();
            }
            Begin::Reply(Reply::InProgress { .. }) => clock.advance(LEASE),
            Begin::Reply(other) => panic!("{number}: {other:?}"),
        }
    }
    assert_eq!((made(store, "half", number), made(store, "whole", number)), (1, 1), "{number}");
}

#[test]
fn a_power_cut_loses_nothing_that_was_told_and_does_nothing_twice() {
    let clock = ManualClock::at(NOON);
    let policy = Policy::new().wait(Duration::ZERO).lease(LEASE).takeover(Takeover::Allowed);
    let mut states = 0;
    for (mode, late_bytes) in
        [(CommitMode::TwoPhase, 0), (CommitMode::OnePhase, 700), (CommitMode::TwoPhase, 1 << 20)]
    {
        let options = Options::new()
            .clock(clock.clone())
            .commit_mode(mode)
            .late_bytes(late_bytes)
            .reserve_bytes(0)
            .default_policy(policy);
        let report = CrashTest::new(options, seed(11)).states_max(700).run(
            |store, acknowledged| work(store, &mut |told| acknowledged.push(told)),
            |store, told| check(store, &clock, told),
        );
        states += report.states;
    }
    println!("{states} states");
    assert!(states > 1_000);
}

/// An operator's decision is as durable as any other.
#[test]
fn a_power_cut_leaves_a_resolution_whole_or_not_at_all() {
    let clock = ManualClock::at(NOON);
    let options = Options::new()
        .clock(clock.clone())
        .reserve_bytes(0)
        .default_policy(Policy::new().wait(Duration::ZERO).lease(LEASE));
    let report = CrashTest::new(options, seed(12)).states_max(800).run(
        |store, acknowledged| {
            let Begin::Run(mut claim) = store.begin(&request("k0"), Start::new()).unwrap() else { panic!() };
            let _ = claim.step(&CHARGE).unwrap();
            claim.unsure("no answer").unwrap();
            let Status::Unknown(case) = store.status(request("k0").scope()).unwrap() else { panic!() };
            let how = Resolution::finished(|fx| {
                fx.add(&MADE, "whole 0", 1, i64::MIN)?;
                Ok(Outcome::succeeded(201))
            });
            let _ = store.resolve(&case, how, Evidence::new("people", "booked"), "ada").unwrap();
            acknowledged.push(());
        },
        |store, told| {
            clock.advance(LEASE);
            let is_over = matches!(store.status(request("k0").scope()).unwrap(), Status::Finished(_));
            assert_eq!(made(store, "whole", 0), i64::from(is_over));
            assert!(is_over || told.is_empty());
        },
    );
    assert!(report.states > 300);
}
