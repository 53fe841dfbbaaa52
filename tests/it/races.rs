//! Of many callers of one key exactly one runs, and every one is answered.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use onecho::{Advice, Body, ErrorKind, Operation, Options, Outcome, Reply, Status, WhileRunning};

use crate::common::*;

const THREADS: u64 = 64;

/// C001, C002: callers with one key, started together, are one command: in each of 1,000 rounds one closure
/// runs and 63 callers get its outcome.
#[test]
fn callers_started_together_run_once() {
    let store = opened(Options::new().default_policy(patient()));
    let runs = AtomicU64::new(0);
    let counts = [AtomicU64::new(0), AtomicU64::new(0)];
    let start = Barrier::new(THREADS as usize);
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for round in 0..1_000 {
                    start.wait();
                    let reply = store
                        .execute(&request(&format!("k-{round}")), |fx| {
                            runs.fetch_add(1, SeqCst);
                            counted(fx)
                        })
                        .unwrap();
                    counts[usize::from(reply.is_replay())].fetch_add(1, SeqCst);
                    let finished = reply.into_finished().unwrap();
                    assert_eq!((finished.code, finished.body), (201, Body::Present("counted".into())));
                }
            });
        }
    });
    assert_eq!(runs.load(SeqCst), 1_000);
    assert_eq!(counts.map(AtomicU64::into_inner), [1_000, 63 * 1_000]);
    assert_eq!(applied(&store), 1_000);
    assert_eq!(store.stats().executed, 1_000);
    clean(&store);
}

/// C001, C035, C056, C059: few keys, four different requests under each, budgets from none to long: one
/// request a key runs, its equals get the outcome or are told to come back, the others are refused, and
/// nobody gets an error.
#[test]
fn mixed_requests_on_few_keys_run_once_each() {
    let store = store();
    let seed = seed(11);
    let keys = 600;
    let runs: Vec<[AtomicU64; 4]> = (0..keys).map(|_| Default::default()).collect();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (store, runs) = (&store, &runs);
            scope.spawn(move || {
                let mut numbers = Numbers::from(seed ^ thread);
                for round in 0..keys {
                    // Threads drift apart, but a few keys at a time are crowded.
                    let n = (round + numbers.below(4)) % keys;
                    let variant = numbers.below(4);
                    let wait = [Duration::ZERO, Duration::from_millis(1), PATIENT][numbers.below(3) as usize];
                    let asked = asking(&format!("k-{n}"), &variant.to_string()).wait(wait);
                    let reply = store.execute(&asked, |fx| {
                        runs[n as usize][variant as usize].fetch_add(1, SeqCst);
                        std::thread::yield_now();
                        fx.add(&COUNT, "applied", 1, i64::MIN)?;
                        Ok(Outcome::succeeded(200).body(variant.to_string()))
                    });
                    match reply.unwrap() {
                        Reply::Done(finished) | Reply::Replay(finished) => {
                            assert_eq!(finished.body, Body::Present(variant.to_string().into()));
                        }
                        Reply::Mismatch { parts, formatting_only, .. } => {
                            assert_eq!((parts, formatting_only), (vec!["body".to_owned()], false));
                        }
                        Reply::InProgress { retry_after, .. } => {
                            assert!(retry_after > Duration::ZERO && retry_after <= SECOND);
                            assert_ne!(wait, PATIENT);
                        }
                        other => panic!("{other:?}"),
                    }
                }
            });
        }
    });
    let mut asked = 0;
    for (n, runs) in runs.iter().enumerate() {
        let runs: Vec<u64> = runs.iter().map(|runs| runs.load(SeqCst)).collect();
        assert!(runs.iter().sum::<u64>() <= 1, "key {n} ran {runs:?}");
        for (variant, &ran) in runs.iter().enumerate().filter(|_| runs.contains(&1)) {
            asked += ran;
            let reply = store.execute(&asking(&format!("k-{n}"), &variant.to_string()), never).unwrap();
            assert_eq!(reply.is_replay(), ran == 1);
        }
    }
    assert_eq!(applied(&store), i64::try_from(asked).unwrap());
    clean(&store);
}

/// C002, C096: the closure is never entered by two callers of one key at a time, nor again after an outcome.
#[test]
fn a_second_entrant_never_comes() {
    let store = opened(Options::new().default_policy(patient()));
    let (inside, entered) = (AtomicU64::new(0), AtomicU64::new(0));
    let start = Barrier::new(THREADS as usize);
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                start.wait();
                let reply = store.execute(&request("k"), |_| {
                    assert_eq!(inside.fetch_add(1, SeqCst), 0);
                    entered.fetch_add(1, SeqCst);
                    let_others_wait();
                    inside.fetch_sub(1, SeqCst);
                    Ok(Outcome::succeeded(200))
                });
                assert!(reply.unwrap().into_finished().is_ok());
            });
        }
    });
    assert_eq!(entered.load(SeqCst), 1);
}

/// Twice as many callers as there are reruns change one row: each of them comes through, for those who lose
/// take turns.
#[test]
fn all_who_change_one_row_come_through() {
    let store = opened(Options::new().rerun_max(16).default_policy(patient()));
    let (start, came_through) = (Barrier::new(32), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for thread in 0..32 {
            let (store, start, came_through) = (&store, &start, &came_through);
            scope.spawn(move || {
                for n in 0..20 {
                    start.wait();
                    let reply = store.execute(&request(&format!("{thread}-{n}")), |fx| {
                        let sum = fx.get(&COUNT, "contested")?.map_or(0, |row| row.value);
                        fx.put(&COUNT, "contested", &(sum + 1))?;
                        Ok(Outcome::succeeded(200))
                    });
                    came_through.fetch_add(u64::from(matches!(reply, Ok(Reply::Done(_)))), SeqCst);
                }
            });
        }
    });
    assert_eq!((came_through.into_inner(), store.stats().conflicts), (640, 0));
    assert_eq!(store.get(&SHOP, &COUNT, "contested").unwrap().unwrap().value, 640);
}

/// C003, C006, C102: without a budget a second caller is told at once that it is in progress, since when, by
/// whom, and when to ask again; `status` tells how long the first still has.
#[test]
fn without_a_budget_the_answer_comes_at_once() {
    let (store, _, _) = at_noon(Options::new().owner("edge-7"));
    let gate = Gate::new();
    std::thread::scope(|scope| {
        let first = scope.spawn(|| {
            store.execute(&request("k"), |_| {
                gate.pass();
                Ok(Outcome::succeeded(200))
            })
        });
        gate.arrived(1);
        let reply = store.execute(&request("k").wait(Duration::ZERO), never).unwrap();
        let advice = reply.advice();
        let Reply::InProgress { since, retry_after, attempt, owner, .. } = reply else { panic!("{reply:?}") };
        assert_eq!((since, attempt, owner.as_str()), (NOON, 1, "edge-7"));
        assert!(retry_after > Duration::ZERO && retry_after <= Duration::from_secs(30));
        assert_eq!(advice, Advice::RetrySameKey { after: retry_after });
        match store.status(request("k").scope()).unwrap() {
            Status::Processing { since, lease_left, owner, .. } => {
                assert_eq!((since, lease_left.as_secs(), owner.as_str()), (NOON, 30, "edge-7"));
            }
            other => panic!("{other:?}"),
        }
        gate.open();
        done(first.join().unwrap());
    });
    replay(store.execute(&request("k"), never));
}

/// C006: a budget that ends before the first caller does is answered `InProgress`; a longer one ends with the
/// outcome.
#[test]
fn a_budget_bounds_the_wait() {
    let store = store();
    let gate = Gate::new();
    std::thread::scope(|scope| {
        let first = scope.spawn(|| {
            store.execute(&request("k"), |_| {
                gate.pass();
                Ok(Outcome::succeeded(200))
            })
        });
        gate.arrived(1);
        // The first is still held, so these return by their budgets alone.
        for millis in [1, 20, 100] {
            let reply = store.execute(&request("k").wait(Duration::from_millis(millis)), never).unwrap();
            assert!(matches!(reply, Reply::InProgress { .. }), "{reply:?}");
        }
        let patient = scope.spawn(|| store.execute(&request("k").wait(PATIENT), never));
        let_others_wait();
        gate.open();
        done(first.join().unwrap());
        replay(patient.join().unwrap());
    });
}

/// C006: the budget is the policy's where the call names none.
#[test]
fn the_policy_names_the_usual_budget() {
    let store = opened(Options::new().operation(&PAY, patient().wait(Duration::ZERO)));
    let gate = Gate::new();
    std::thread::scope(|scope| {
        let first = scope.spawn(|| {
            store.execute(&request("k"), |_| {
                gate.pass();
                Ok(Outcome::succeeded(200))
            })
        });
        gate.arrived(1);
        let reply = store.execute(&request("k"), never).unwrap();
        assert!(matches!(reply, Reply::InProgress { .. }), "{reply:?}");
        gate.open();
        done(first.join().unwrap());
    });
}

/// C027, C035: another request under a key that runs is refused at once, however patient it is, and does not
/// poison the key: the true request gets the outcome.
#[test]
fn another_request_is_refused_while_the_first_runs() {
    let store = store();
    let gate = Gate::new();
    std::thread::scope(|scope| {
        let first = scope.spawn(|| {
            store.execute(&asking("k", "true"), |_| {
                gate.pass();
                Ok(Outcome::succeeded(200))
            })
        });
        gate.arrived(1);
        let reply = store.execute(&asking("k", "false").wait(PATIENT), never).unwrap();
        assert!(matches!(reply.advice(), Advice::RetrySameKey { after } if after > Duration::ZERO));
        assert_eq!(mismatch(Ok(reply)), (vec!["body".to_owned()], false, true));
        gate.open();
        done(first.join().unwrap());
    });
    let reply = store.execute(&asking("k", "false"), never).unwrap();
    assert_eq!(reply.advice(), Advice::NewKeyNeeded);
    assert_eq!(mismatch(Ok(reply)), (vec!["body".to_owned()], false, false));
    replay(store.execute(&asking("k", "true"), never));
}

/// `WhileRunning::InProgressFirst` tells nothing of the difference until the first is finished.
#[test]
fn a_policy_may_answer_in_progress_first() {
    const QUIET: Operation = Operation::new("quiet");
    let policy = patient().while_running(WhileRunning::InProgressFirst);
    let store = opened(Options::new().operation(&QUIET, policy));
    let asking = |body: &str| onecho::Request::new(&SHOP, &QUIET, &key("k")).bytes("body", body);
    let gate = Gate::new();
    std::thread::scope(|scope| {
        let first = scope.spawn(|| {
            store.execute(&asking("true"), |_| {
                gate.pass();
                Ok(Outcome::succeeded(200))
            })
        });
        gate.arrived(1);
        let reply = store.execute(&asking("false"), never).unwrap();
        assert!(matches!(reply, Reply::InProgress { .. }), "{reply:?}");
        gate.open();
        done(first.join().unwrap());
    });
    assert!(!mismatch(store.execute(&asking("false"), never)).2);
}

/// C004, C020, C025, C054: closures that fail or panic write nothing and free the key; those who wait run one
/// after the other until one succeeds, and nobody else is harmed.
#[test]
fn a_failed_closure_hands_over_to_one_waiter() {
    for panics in [false, true] {
        let store = opened(Options::new().default_policy(patient()));
        let (calls, inside) = (AtomicU64::new(0), AtomicU64::new(0));
        let counts = [const { AtomicU64::new(0) }; 3];
        let start = Barrier::new(THREADS as usize);
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (store, calls, inside, counts, start) = (&store, &calls, &inside, &counts, &start);
                scope.spawn(move || {
                    start.wait();
                    let called = catch_unwind(AssertUnwindSafe(|| {
                        store.execute(&request("k"), |fx| {
                            assert_eq!(inside.fetch_add(1, SeqCst), 0);
                            fx.add(&COUNT, "applied", 1, i64::MIN)?;
                            std::thread::yield_now();
                            inside.fetch_sub(1, SeqCst);
                            match calls.fetch_add(1, SeqCst) {
                                20.. => Ok(Outcome::succeeded(200)),
                                _ if panics => resume_unwind(Box::new("planned")),
                                _ => Err("planned".into()),
                            }
                        })
                    }));
                    let what = match called {
                        Err(_) => 0,
                        Ok(Err(error)) => {
                            assert_eq!(error.kind(), ErrorKind::Aborted, "{error}");
                            0
                        }
                        Ok(Ok(Reply::Done(_))) => 1,
                        Ok(Ok(Reply::Replay(_))) => 2,
                        Ok(Ok(other)) => panic!("{other:?}"),
                    };
                    counts[what].fetch_add(1, SeqCst);
                    // The thread and the store are as usable as before.
                    done(store.execute(&request(&format!("own-{thread}")), |_| Ok(Outcome::succeeded(200))));
                });
            }
        });
        assert_eq!(calls.load(SeqCst), 21);
        assert_eq!(counts.map(AtomicU64::into_inner), [20, 1, 43]);
        assert_eq!(applied(&store), 1);
        clean(&store);
    }
}

/// C009, C013, C016: a closure that stays longer than `execute_max` may be overtaken. The first commit
/// counts; the late one is answered from the record, and its effects are dropped.
#[test]
fn an_overdue_closure_is_overtaken_and_changes_nothing() {
    for overtaken_by_another_request in [false, true] {
        let policy = patient().execute_max(Duration::from_secs(30));
        let (store, clock, _) = at_noon(Options::new().default_policy(policy));
        let gate = Gate::new();
        std::thread::scope(|scope| {
            let slow = scope.spawn(|| {
                store.execute(&asking("k", "same"), |fx| {
                    gate.pass();
                    fx.put(&NOTES, "by", &"slow".to_owned())?;
                    counted(fx)
                })
            });
            gate.arrived(1);
            clock.advance(Duration::from_millis(29_999));
            let body = if overtaken_by_another_request { "other" } else { "same" };
            let hasty = asking("k", body).wait(Duration::ZERO);
            let early = store.execute(&hasty, never).unwrap();
            assert!(early.into_finished().is_err(), "the time of the first is not over yet");
            clock.advance(Duration::from_millis(1));
            let finished = done(store.execute(&hasty, |fx| {
                fx.put(&NOTES, "by", &"quick".to_owned())?;
                counted(fx)
            }));
            gate.open();
            let late = slow.join().unwrap();
            if overtaken_by_another_request {
                assert_eq!(mismatch(late), (vec!["body".to_owned()], false, false));
            } else {
                assert_eq!(replay(late), finished);
            }
        });
        assert_eq!((note(&store, "by").as_deref(), applied(&store)), (Some("quick"), 1));
        clean(&store);
    }
}

/// A caller who waits for an overdue closure goes on when its time is over: it need not outwait it.
#[test]
fn who_waits_for_an_overdue_closure_goes_on() {
    let policy = patient().execute_max(Duration::from_secs(30));
    let (store, clock, _) = at_noon(Options::new().default_policy(policy));
    let gate = Gate::new();
    std::thread::scope(|scope| {
        let slow = scope.spawn(|| {
            store.execute(&request("k"), |fx| {
                gate.pass();
                counted(fx)
            })
        });
        gate.arrived(1);
        let waiting = scope.spawn(|| store.execute(&request("k"), counted));
        let_others_wait();
        clock.advance(Duration::from_secs(31));
        done(waiting.join().unwrap());
        gate.open();
        replay(slow.join().unwrap());
    });
    assert_eq!(applied(&store), 1);
}

/// C095: with a clock that stands still nobody is ever overdue.
#[test]
fn a_frozen_clock_overtakes_nobody() {
    let policy = patient().execute_max(Duration::from_millis(1)).wait(Duration::from_millis(20));
    let (store, _, _) = at_noon(Options::new().default_policy(policy));
    let gate = Gate::new();
    std::thread::scope(|scope| {
        let first = scope.spawn(|| {
            store.execute(&request("k"), |_| {
                gate.pass();
                Ok(Outcome::succeeded(200))
            })
        });
        gate.arrived(1);
        let reply = store.execute(&request("k"), never).unwrap();
        assert!(matches!(reply, Reply::InProgress { .. }), "{reply:?}");
        gate.open();
        done(first.join().unwrap());
    });
}
