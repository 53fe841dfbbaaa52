//! The crash tests would notice: each mistake here shows only after a crash, and each is caught.

use std::panic::{AssertUnwindSafe, catch_unwind};

use onecho::testing::{Acknowledged, CrashTest, Fault, ManualClock, SimDisk};
use onecho::*;

use crate::crash::{Run, SETUPS, TWO_PHASE};
use crate::crash_plan::{START, Shape};

const T: Tenant = Tenant::new("t");
const ADD: Operation = Operation::new("add");
const COUNT: Kind<i64> = Kind::counter("count");
const COMMANDS: u32 = 4;

fn request(n: u32) -> Request {
    Request::new(&T, &ADD, &Key::parse(&format!("k{n}")).unwrap()).bytes("body", n.to_string())
}

fn add(fx: &mut Effects<'_, '_>) -> Result<Outcome, BoxError> {
    fx.add(&COUNT, "a", 1, i64::MIN)?;
    Ok(Outcome::succeeded(200))
}

fn nothing(_: &mut Effects<'_, '_>) -> Result<Outcome, BoxError> {
    Ok(Outcome::succeeded(200))
}

type Command = fn(&Store, u32, &mut dyn FnMut());

/// Runs a service whose every command is `command`, which says when it acknowledges.
fn test(lies: usize, command: Command) {
    let options = || TWO_PHASE.options(&ManualClock::at(Timestamp(START)));
    let work = |store: &Store, acknowledged: &mut Acknowledged<u32>| {
        let disk: SimDisk = acknowledged.disk().clone();
        (0..lies).for_each(|_| disk.fail(Fault::LyingSync, 0));
        for n in 0..COMMANDS {
            command(store, n, &mut || acknowledged.push(n));
        }
    };
    let report = CrashTest::new(options(), 7).states_max(600).run(work, |store, acknowledged| {
        for &n in acknowledged {
            assert!(store.execute(&request(n), add).unwrap().is_replay(), "command {n} is lost");
        }
        for n in 0..COMMANDS {
            command(store, n, &mut || {}); // Everybody asks again.
        }
        let count = store.get(&T, &COUNT, "a").unwrap().map_or(0, |row| row.value);
        assert_eq!(count, i64::from(COMMANDS), "effects");
    });
    assert!(report.states > 400, "{report:?}");
}

/// What the crash test says of a mistake.
fn caught(mistaken: impl FnOnce()) -> String {
    let panic = catch_unwind(AssertUnwindSafe(mistaken)).expect_err("the mistake was not noticed");
    let text = panic.downcast_ref::<String>().expect("a crash test says where it failed").clone();
    assert!(text.starts_with("crash test failed: seed "), "{text}");
    assert!(
        text.contains(", crash point ") && text.contains(", state ") && text.contains(".only("),
        "{text}"
    );
    text
}

fn right(store: &Store, n: u32, acknowledge: &mut dyn FnMut()) {
    store.execute(&request(n), add).unwrap().into_finished().unwrap();
    acknowledge();
}

#[test]
fn without_a_mistake_nothing_is_caught() {
    test(0, right);
}

#[test]
fn syncs_that_lie_are_caught() {
    caught(|| test(1_000, right));
}

#[test]
fn an_answer_before_the_commit_is_caught() {
    let text = caught(|| {
        test(0, |store, n, acknowledge| {
            acknowledge();
            right(store, n, &mut || {});
        });
    });
    assert!(text.contains("is lost"), "{text}");
}

#[test]
fn a_record_that_is_committed_before_its_effects_is_caught() {
    let text = caught(|| {
        test(0, |store, n, acknowledge| {
            if !store.execute(&request(n), nothing).unwrap().is_replay() {
                let _ = store.execute(&Request::unprotected(&T, &ADD), add).unwrap();
            }
            acknowledge();
        });
    });
    assert!(text.contains("effects"), "{text}");
}

#[test]
fn effects_that_are_committed_before_their_record_are_caught() {
    let text = caught(|| {
        test(0, |store, n, acknowledge| {
            if matches!(store.status(request(n).scope()), Ok(Status::Absent)) {
                let _ = store.execute(&Request::unprotected(&T, &ADD), add).unwrap();
                let _ = store.execute(&request(n), nothing).unwrap();
            }
            acknowledge();
        });
    });
    assert!(text.contains("effects"), "{text}");
}

#[test]
fn a_number_of_a_state_brings_the_same_failure_again() {
    let mistaken = |only: Option<u64>| {
        let clock = ManualClock::at(Timestamp(START));
        let mut test = CrashTest::new(TWO_PHASE.options(&clock), 3).states_max(300);
        if let Some(only) = only {
            test = test.only(only);
        }
        test.run(
            |store, acknowledged: &mut Acknowledged<u32>| {
                acknowledged.push(0);
                right(store, 0, &mut || {});
            },
            |store, acknowledged| {
                let is_known = !matches!(store.status(request(0).scope()), Ok(Status::Absent));
                assert!(acknowledged.is_empty() || is_known, "command 0 is lost");
            },
        );
    };
    let first = caught(|| mistaken(None));
    let number = first.split(".only(").nth(1).and_then(|rest| rest.split(')').next()).unwrap();
    assert_eq!(caught(|| mistaken(Some(number.parse().unwrap()))), first);
}

/// The big crash test, its model and all its setups, on disks whose syncs lie.
#[test]
fn the_model_catches_syncs_that_lie_under_every_setup() {
    for (seed, setup) in (1..).zip(SETUPS) {
        let run = Run { seed, shape: Shape::Alone, setup, nested: 0 };
        caught(|| {
            let _ = run.states_on(400, |disk| (0..1_000).for_each(|_| disk.fail(Fault::LyingSync, 0)));
        });
    }
}
