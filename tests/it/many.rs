//! `execute_many`: many commands, few commits, each answered as if it had been executed alone and in order.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use onecho::{ErrorKind, Kind, Options, Outcome, Policy, Reply, Request, Status};

use crate::common::*;

const SUMS: Kind<i64> = Kind::json("sum");

/// No command, no commit, no answer.
#[test]
fn nothing_asked_is_nothing_answered() {
    let store = store();
    let before = store.stats().commits;
    let none: [(Request, ()); 0] = [];
    assert!(store.execute_many(&none, |(), _| panic!("called")).is_empty());
    assert_eq!(store.stats().commits, before);
}

/// 10,000 commands in one call, in few commits: each has its own answer, in order.
#[test]
fn ten_thousand_commands_are_answered_in_order() {
    let store = store();
    let commands: Vec<_> = (0..10_000).map(|n| (request(&n.to_string()), n)).collect();
    let run = |n: &i32, fx: &mut onecho::Effects<'_, '_>| {
        let made = fx.create(&NOTES, &format!("{n:05}"), &n.to_string())?;
        Ok(Outcome::succeeded(201).json(n)?.resource(&made))
    };
    for again in [false, true] {
        for (n, answer) in store.execute_many(&commands, run).into_iter().enumerate() {
            let finished = if again { replay(answer) } else { done(answer) };
            assert_eq!(finished.decode::<usize>().unwrap(), Some(n));
            assert_eq!(finished.resource, Some(NOTES.at(&format!("{n:05}"))));
        }
    }
    let stats = store.stats();
    assert_eq!((stats.executed, stats.records, stats.committed), (10_000, 10_000, 10_000));
    assert!(stats.commits <= 10_000 / 512 + 2, "{} commits", stats.commits);
    clean(&store);
}

/// A scope given twice is answered by its first: the same request with its replay, another one with a
/// mismatch.
#[test]
fn a_scope_given_twice_is_answered_by_its_first() {
    let store = store();
    let commands = [
        (request("k"), 0),
        (asking("k", "other"), 1),
        (request("k"), 2),
        (request("l"), 3),
        (request("k"), 4),
    ];
    let mut answers = store
        .execute_many(&commands, |n, fx| {
            fx.add(&COUNT, "applied", 1, 0)?;
            Ok(Outcome::succeeded(200).json(n)?)
        })
        .into_iter();
    let mut next = || answers.next().unwrap();
    let first = done(next());
    assert_eq!(mismatch(next()), (vec!["body".to_owned()], false, false));
    assert_eq!(replay(next()), first);
    assert_eq!(done(next()).decode::<i32>().unwrap(), Some(3));
    assert_eq!(replay(next()), first);
    assert_eq!(applied(&store), 2);
}

/// If the first of a scope is not recorded, the second runs.
#[test]
fn a_failed_first_leaves_the_scope_to_the_second() {
    let store = store();
    let commands = [(request("k"), true), (request("k"), false), (request("k"), false)];
    let answers =
        store.execute_many(&commands, |fails, fx| if *fails { Err("planned".into()) } else { counted(fx) });
    let mut answers = answers.into_iter();
    fails(answers.next().unwrap(), ErrorKind::Aborted);
    done(answers.next().unwrap());
    replay(answers.next().unwrap());
    assert_eq!(applied(&store), 1);
}

/// Each command sees what the ones before it did: a chain of read, add one, write ends where it should.
#[test]
fn a_command_sees_the_ones_before_it() {
    let store = store();
    let commands: Vec<_> = (0..200).map(|n| (request(&n.to_string()), n)).collect();
    let answers = store.execute_many(&commands, |n, fx| {
        let sum = fx.get(&SUMS, &(n % 3).to_string())?.map_or(0, |row| row.value);
        fx.put(&SUMS, &(n % 3).to_string(), &(sum + 1))?;
        Ok(Outcome::succeeded(200).json(&sum)?)
    });
    for (n, answer) in answers.into_iter().enumerate() {
        assert_eq!(done(answer).decode::<usize>().unwrap(), Some(n / 3));
    }
    assert_eq!(store.stats().conflicts, 0);
    clean(&store);
}

/// A closure that takes what an earlier command makes for granted finds it there: it neither fails nor panics
/// nor is counted for a run on rows that were not there yet.
#[test]
fn a_command_may_need_the_one_before_it() {
    let store = store();
    let commands = [(request("make"), 0), (request("need"), 1), (request("insist"), 2)];
    let answers = store.execute_many(&commands, |n, fx| {
        match n {
            0 => drop(fx.create(&NOTES, "base", &"made".to_owned())?),
            1 => drop(fx.get(&NOTES, "base")?.ok_or("no base")?),
            _ => assert_eq!(fx.get(&NOTES, "base")?.expect("the first command made it").value, "made"),
        }
        fx.put(&NOTES, "base", &"made".to_owned())?;
        Ok(Outcome::succeeded(200))
    });
    answers.into_iter().for_each(|answer| drop(done(answer)));
    assert_eq!(store.stats().aborted, 0);
}

/// A floor holds along the call: each `add` is decided on what the ones before it left.
#[test]
fn a_floor_holds_along_the_call() {
    let store = store();
    let steps = [5, -3, -3, 1, -3, -1];
    let commands: Vec<_> = steps.iter().enumerate().map(|(n, by)| (request(&n.to_string()), *by)).collect();
    let answers = store.execute_many(&commands, |by, fx| {
        Ok(Outcome::succeeded(if fx.add(&COUNT, "c", *by, 0)? { 200 } else { 409 }))
    });
    let codes: Vec<_> = answers.into_iter().map(|answer| done(answer).code).collect();
    assert_eq!(codes, [200, 200, 409, 200, 200, 409]);
    assert_eq!(store.get(&SHOP, &COUNT, "c").unwrap().unwrap().value, 0);
}

/// One refusal fails one answer: errors, invalid requests, duplicates and limits in the middle harm no other
/// command.
#[test]
fn each_command_stands_alone() {
    let store = opened(Options::new().default_policy(Policy::new().outcome_bytes_max(64)));
    let bare = Request::new(&SHOP, &PAY, &key("bare"));
    let commands = [
        (request("one"), "ok"),
        (request("two"), "err"),
        (bare, "ok"),
        (request("three"), "duplicate"),
        (request("four"), "large"),
        (request("five"), "half"),
        (Request::unprotected(&SHOP, &PAY), "ok"),
        (request("six"), "ok"),
    ];
    let mut answers = store
        .execute_many(&commands, |what, fx| {
            fx.add(&COUNT, "applied", 1, 0)?;
            match *what {
                "err" => return Err("planned".into()),
                "duplicate" => drop(fx.create(&NOTES, "spot", &String::new())?),
                "large" => return Ok(Outcome::succeeded(200).body(vec![0; 65])),
                "half" => return Ok(Outcome::failed(402)),
                _ => fx.put(&NOTES, "spot", &String::new()).map(drop)?,
            }
            Ok(Outcome::succeeded(200))
        })
        .into_iter();
    let mut next = || answers.next().unwrap();
    done(next());
    fails(next(), ErrorKind::Aborted);
    fails(next(), ErrorKind::Invalid);
    assert!(
        matches!(next(), Ok(Reply::Duplicate { made_by: Some(scope), .. }) if scope == *request("one").scope())
    );
    fails(next(), ErrorKind::LimitExceeded);
    fails(next(), ErrorKind::Invalid);
    done(next());
    done(next());
    assert_eq!(applied(&store), 3);
    for free in ["two", "three", "four", "five"] {
        assert_eq!(store.status(request(free).scope()).unwrap(), Status::Absent);
    }
    clean(&store);
}

/// A panic goes on to the caller. What was committed before it stays; what was not leaves no trace, and its
/// keys are free.
#[test]
fn a_panic_in_the_middle_frees_what_was_not_written() {
    let store = opened(Options::new().batch_max(10));
    let commands: Vec<_> = (0..40).map(|n| (request(&n.to_string()), n)).collect();
    let called = catch_unwind(AssertUnwindSafe(|| {
        store.execute_many(&commands, |n, fx| {
            if *n == 25 {
                resume_unwind(Box::new("planned"))
            }
            counted(fx)
        })
    }));
    assert!(called.is_err());
    let kept = u64::try_from(applied(&store)).unwrap();
    assert!((20..=25).contains(&kept), "{kept}");
    assert_eq!(store.stats().executed, kept);
    let answers = store.execute_many(&commands, |_, fx| counted(fx));
    assert_eq!(
        answers.into_iter().filter(|answer| matches!(answer, Ok(Reply::Done(_)))).count() as u64,
        40 - kept
    );
    assert_eq!(applied(&store), 40);
    clean(&store);
}

/// A scope that another caller runs is waited for, by its own budget; the commands before and after it are
/// answered too.
#[test]
fn an_occupied_scope_is_waited_for() {
    for budget in [Duration::ZERO, PATIENT] {
        let store = store();
        let gate = Gate::new();
        std::thread::scope(|scope| {
            let first = scope.spawn(|| {
                store.execute(&request("held"), |fx| {
                    gate.pass();
                    counted(fx)
                })
            });
            gate.arrived(1);
            let many = scope.spawn(|| {
                let held = request("held").wait(budget);
                let commands = [(request("a"), ()), (held, ()), (request("b"), ())];
                store.execute_many(&commands, |(), fx| counted(fx))
            });
            if budget > Duration::ZERO {
                let_others_wait();
                gate.open();
            }
            let mut answers = many.join().unwrap().into_iter();
            gate.open();
            done(answers.next().unwrap());
            let held = answers.next().unwrap();
            if budget > Duration::ZERO {
                replay(held);
            } else {
                assert!(matches!(held, Ok(Reply::InProgress { .. })), "{held:?}");
            }
            done(answers.next().unwrap());
            done(first.join().unwrap());
        });
        assert_eq!(applied(&store), 3);
    }
}

/// Calls with the same scopes in opposite order do not wait for each other for ever, and each scope runs
/// once.
#[test]
fn two_calls_in_opposite_order_end() {
    let store = opened(Options::new().batch_max(7).default_policy(patient()));
    let runs = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let (store, runs) = (&store, &runs);
            scope.spawn(move || {
                for round in 0..10 {
                    let mut commands: Vec<_> =
                        (0..50).map(|n| (request(&format!("{round}-{n}")), ())).collect();
                    if thread % 2 == 1 {
                        commands.reverse();
                    }
                    let answers = store.execute_many(&commands, |(), fx| {
                        runs.fetch_add(1, SeqCst);
                        counted(fx)
                    });
                    assert!(answers.into_iter().all(|answer| answer.unwrap().into_finished().is_ok()));
                }
            });
        }
    });
    // A closure whose place was taken by a call that lost a race runs in vain at most; what counts is what
    // was applied.
    assert!(runs.load(SeqCst) >= 500);
    assert_eq!((applied(&store), store.stats().executed), (500, 500));
    clean(&store);
}

/// Many calls that read, add and write one row lose no addition.
#[test]
fn calls_that_contend_lose_nothing() {
    let store = opened(Options::new().rerun_max(1_000).batch_max(16).default_policy(patient()));
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let store = &store;
            scope.spawn(move || {
                let commands: Vec<_> = (0..20).map(|n| (request(&format!("{thread}-{n}")), ())).collect();
                let answers = store.execute_many(&commands, |(), fx| {
                    let sum = fx.get(&SUMS, "one")?.map_or(0, |row| row.value);
                    fx.put(&SUMS, "one", &(sum + 1))?;
                    Ok(Outcome::succeeded(200))
                });
                answers.into_iter().for_each(|answer| drop(done(answer)));
            });
        }
    });
    assert_eq!(store.get(&SHOP, &SUMS, "one").unwrap().unwrap().value, 160);
}

/// Commands that add to one counter share a commit, and each closure is called once.
#[test]
fn commands_on_one_counter_share_a_commit() {
    let store = store();
    let calls = AtomicU64::new(0);
    let commands: Vec<_> = (0..100).map(|n| (request(&n.to_string()), ())).collect();
    let before = store.stats().commits;
    let answers = store.execute_many(&commands, |(), fx| {
        calls.fetch_add(1, SeqCst);
        Ok(Outcome::succeeded(if fx.add(&COUNT, "c", -1, -60)? { 200 } else { 409 }))
    });
    let codes: Vec<_> = answers.into_iter().map(|answer| done(answer).code).collect();
    assert_eq!(codes, [vec![200; 60], vec![409; 40]].concat());
    assert_eq!((store.stats().commits - before, calls.into_inner()), (1, 100));
    assert_eq!(store.get(&SHOP, &COUNT, "c").unwrap().unwrap().value, -60);
    clean(&store);
}

/// What a counter was told ahead of a command that is then refused is told anew, without a conflict, be it an
/// answer, a failure or a sum out of range.
#[test]
fn a_refused_command_takes_its_additions_back() {
    let store = opened(Options::new().rerun_max(0));
    let commands = [("refused", i64::MAX - 5), ("full", 1), ("low", -5), ("last", -2)]
        .map(|(name, by)| (request(name), (name, by)));
    done(store.execute(&request("spot"), |fx| {
        fx.create(&NOTES, "spot", &String::new())?;
        fx.add(&COUNT, "c", 5, 0)?;
        Ok(Outcome::succeeded(200))
    }));
    let answers = store.execute_many(&commands, |(name, by), fx| {
        let took = fx.add(&COUNT, "c", *by, 0)?;
        if *name == "refused" {
            fx.create(&NOTES, "spot", &String::new())?;
        }
        if !took {
            return Err("too low".into());
        }
        Ok(Outcome::succeeded(200))
    });
    let mut answers = answers.into_iter();
    assert!(matches!(answers.next().unwrap(), Ok(Reply::Duplicate { .. })));
    done(answers.next().unwrap());
    done(answers.next().unwrap());
    fails(answers.next().unwrap(), ErrorKind::Aborted);
    assert_eq!(store.get(&SHOP, &COUNT, "c").unwrap().unwrap().value, 1);
    assert_eq!((store.stats().conflicts, store.stats().aborted), (0, 1));
}

/// A command that adds to a counter and then reads it sees the additions before it.
#[test]
fn a_counter_that_is_read_is_read_as_it_was_left() {
    let store = store();
    let commands: Vec<_> = (0..10).map(|n| (request(&n.to_string()), n)).collect();
    let answers = store.execute_many(&commands, |n, fx| {
        fx.add(&COUNT, "c", 1, 0)?;
        let seen = if n % 3 == 2 { fx.get(&COUNT, "c")?.map(|row| row.value) } else { None };
        Ok(Outcome::succeeded(200).json(&seen)?)
    });
    let seen: Vec<_> =
        answers.into_iter().map(|answer| done(answer).decode::<Option<i64>>().unwrap().flatten()).collect();
    let expected: Vec<_> = (0..10).map(|n| (n % 3 == 2).then_some(n + 1)).collect();
    assert_eq!(seen, expected);
    assert_eq!(store.stats().conflicts, 0);
}

/// What a closure reads never fails because of the commands before it in the call.
#[test]
fn a_closure_may_insist_on_what_it_reads() {
    const LAST: Kind<u64> = Kind::json("last");
    let store = store();
    let commands: Vec<_> = (0..20_u64).map(|number| (request(&format!("k{number}")), number)).collect();
    let answers = store.execute_many(&commands, |number, fx| {
        let before = fx.get(&LAST, "n").expect("a read does not fail").map_or(0, |row| row.value);
        fx.put(&LAST, "n", &(before + number))?;
        Ok(Outcome::succeeded(200))
    });
    assert!(answers.iter().all(|answer| matches!(answer, Ok(Reply::Done(_)))), "{answers:?}");
    assert_eq!(store.get(&SHOP, &LAST, "n").unwrap().unwrap().value, 190);
}
