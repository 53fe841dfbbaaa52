//! A disk that fails while the process lives on: every answer is right or says that it is none, and after a
//! reopen of the same handle each command has one stable answer.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use onecho::testing::{Fault, ManualClock, SimDisk};
use onecho::*;

use crate::crash::{SETUPS, TWO_PHASE, agree, seed_of, verified};
use crate::crash_model::{Action, Answer, Call, Event, Expect, Model, Op};
use crate::crash_plan::{Plan, START, Setup, Shape, Step, ask, ask_many};

/// One workload on one disk that is going to fail.
struct Run<'p> {
    plan: &'p Plan,
    setup: Setup,
    disk: SimDisk,
    clock: ManualClock,
    store: Option<Store>,
    model: Model,
    /// Answers that were none.
    failures: u64,
    fault: Option<Fault>,
    /// Room was kept back for when the disk is full, and has not been used yet.
    has_reserve: bool,
}

impl<'p> Run<'p> {
    fn new(plan: &'p Plan, setup: Setup, seed: u64, fault: Option<Fault>) -> Self {
        let model = Model::at(START);
        let (disk, clock) = (SimDisk::seeded(seed), ManualClock::at(Timestamp(START)));
        Self { plan, setup, disk, clock, store: None, model, failures: 0, fault, has_reserve: false }
    }

    /// Opens the store. Where that fails it says `Unavailable`, and the next try, on a disk with space,
    /// succeeds.
    fn open(&mut self) {
        let opened = self.disk.open(self.setup.options(&self.clock)).unwrap_or_else(|error| {
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
            self.failures += 1;
            assert!(!self.has_reserve || self.fault != Some(Fault::NoSpace), "{error}");
            self.disk.heal();
            self.disk.open(self.setup.options(&self.clock)).unwrap()
        });
        self.has_reserve = !opened.stats().disk_full;
        self.store = Some(opened);
    }

    /// Does the whole plan, then checks everything, and once more after a clean close.
    fn finish(mut self) -> u64 {
        self.open();
        for step in &self.plan.lanes[0] {
            match step {
                Step::Call(call) => self.step(std::slice::from_ref(call)),
                Step::Many(calls) => self.step(calls),
                Step::Advance(_) => {}
                Step::Reopen => {
                    if let Some(store) = self.store.take()
                        && let Err(error) = store.close()
                    {
                        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
                    }
                    self.open();
                }
            }
        }
        self.disk.heal();
        self.clock.advance(Duration::from_secs(2));
        self.model.now = self.clock.now().0;
        let store = self.store.take().unwrap();
        store.reopen().unwrap();
        agree(self.plan, &store, &self.model, &[], &self.plan.carts());
        verified(&store);
        store.close().unwrap();
        let store = self.disk.open(self.setup.options(&self.clock)).unwrap();
        agree(self.plan, &store, &self.model, &[], &self.plan.carts());
        verified(&store);
        self.failures
    }

    /// Asks; those that got no answer ask again with the same key.
    fn step(&mut self, calls: &[Call]) {
        let store = self.store.clone().unwrap();
        let answers = match calls {
            [call] => vec![ask(&store, call)],
            _ => ask_many(&store, calls),
        };
        let mut unanswered = Vec::new();
        for (call, answer) in calls.iter().zip(answers) {
            match answer {
                Answer::Error(kind @ (ErrorKind::Unavailable | ErrorKind::CommitUncertain)) => {
                    unanswered.push((call, kind == ErrorKind::CommitUncertain));
                }
                Answer::Reply(Reply::Refused(Refused::Capacity { .. })) => unanswered.push((call, false)),
                answer => self.model.answered(call, &answer, unanswered.is_empty()),
            }
        }
        if unanswered.is_empty() {
            return;
        }
        self.failures += 1;
        self.reopen(&store);
        for (call, is_uncertain) in unanswered {
            self.once_more(&store, call, is_uncertain);
        }
    }

    /// A reopen may meet the fault too; then the store stays stopped, and the next one succeeds. On a full
    /// disk the first one does, for the room that was kept back.
    fn reopen(&mut self, store: &Store) {
        if let Err(error) = store.reopen() {
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
            let stopped = store.status(self.plan.calls().next().unwrap().request().scope());
            assert_eq!(stopped.unwrap_err().kind(), ErrorKind::Unavailable);
            if self.fault == Some(Fault::NoSpace) {
                assert!(!self.has_reserve, "{error}");
                self.disk.heal();
            }
            store.reopen().unwrap();
        }
        self.has_reserve = false;
    }

    fn once_more(&mut self, store: &Store, call: &Call, is_uncertain: bool) {
        let mut answer = ask(store, call);
        if let Answer::Reply(Reply::Refused(Refused::Capacity { retry_after })) = &answer {
            // The disk is full: what is on record is still replayed, and room makes new commands run.
            assert!(!retry_after.is_zero());
            for known in self.plan.calls() {
                if matches!(self.model.expect(known), Expect::Replay) {
                    self.model.answered(known, &ask(store, known), true);
                }
            }
            self.disk.heal();
            self.clock.advance(Duration::from_secs(2));
            self.model.now = self.clock.now().0;
            answer = ask(store, call);
        }
        if let Answer::Error(ErrorKind::Unavailable | ErrorKind::CommitUncertain) = &answer {
            // A fault that was armed for later, or one in the reading of what had been in the cache.
            self.reopen(store);
            answer = ask(store, call);
        }
        // "Refused before anything was written" leaves one right answer; "uncertain" two.
        let is_found = is_uncertain && matches!(answer, Answer::Reply(Reply::Replay(_)));
        self.model.answered(call, &answer, !is_found);
        if let Answer::Reply(Reply::Done(_) | Reply::Replay(_)) = answer {
            self.model.answered(call, &ask(store, call), true);
        }
    }
}

/// Lets each operation of some workloads fail in turn, in one way.
fn sweep(fault: Fault, seeds: std::ops::Range<u64>, every: usize) {
    let fresh = seed_of("ONECHO_SEED");
    println!("{fault:?}: seeds {seeds:?}, then {fresh} (again with ONECHO_SEED={fresh})");
    let (runs, failures) = (AtomicU64::new(0), AtomicU64::new(0));
    let work: Vec<u64> = seeds.chain([fresh]).collect();
    let run = |seed: &u64| {
        let plan = Plan::new(*seed, Shape::Alone, 9);
        let setup = Setup { reserve_bytes: 1 << 20, ..SETUPS[(*seed % 4) as usize] };
        let healthy = Run::new(&plan, setup, *seed, None);
        let disk = healthy.disk.clone();
        assert_eq!(healthy.finish(), 0);
        for at in (0..disk.operations()).step_by(every) {
            let failing = Run::new(&plan, setup, *seed, Some(fault));
            failing.disk.fail(fault, at);
            failures.fetch_add(failing.finish(), Ordering::Relaxed);
            runs.fetch_add(1, Ordering::Relaxed);
        }
    };
    std::thread::scope(|threads| {
        let (left, right) = work.split_at(work.len() / 2);
        threads.spawn(|| left.iter().for_each(run));
        threads.spawn(|| right.iter().for_each(run));
    });
    let (runs, failures) = (runs.into_inner(), failures.into_inner());
    println!("{fault:?}: {runs} runs, {failures} calls without an answer");
    let is_seen = !matches!(fault, Fault::LyingSync | Fault::SlowSync(_));
    assert_eq!(failures > 0, is_seen);
}

#[test]
fn every_sync_may_fail_and_no_answer_is_wrong() {
    sweep(Fault::Sync, 1..6, 1);
}

#[test]
fn every_write_may_fail_and_no_answer_is_wrong() {
    sweep(Fault::Write, 1..6, 1);
}

#[test]
fn every_read_may_fail_and_no_answer_is_wrong() {
    sweep(Fault::Read, 1..6, 1);
}

#[test]
fn a_disk_that_is_full_from_any_moment_on_still_replays_and_runs_again_when_it_has_room() {
    sweep(Fault::NoSpace, 1..6, 1);
}

#[test]
fn a_sync_that_lies_changes_no_answer_while_the_power_stays() {
    sweep(Fault::LyingSync, 1..3, 3);
}

#[test]
fn a_slow_sync_changes_no_answer() {
    sweep(Fault::SlowSync(Duration::from_micros(200)), 1..3, 11);
}

/// Threads ask, reopen and ask again, each for itself, while one sync fails somewhere.
#[test]
fn threads_get_one_stable_answer_each_over_a_failed_commit() {
    let plan = Plan::new(7, Shape::Threads(4), 6);
    let mut uncertain = 0;
    for at in (60..400).step_by(4) {
        let (disk, clock) = (SimDisk::seeded(at), ManualClock::at(Timestamp(START)));
        let store = disk.open(TWO_PHASE.options(&clock)).unwrap();
        disk.fail(Fault::Sync, at - 60);
        let log = Mutex::new(Vec::new());
        std::thread::scope(|threads| {
            for steps in &plan.lanes {
                threads.spawn(|| steps.iter().for_each(|step| stubborn(step, &store, &log)));
            }
        });
        uncertain += store.stats().uncertain_commits;
        disk.heal();
        store.reopen().unwrap();
        let model = Model::after(START, &log.into_inner().unwrap(), false);
        agree(&plan, &store, &model, &[], &plan.carts());
        verified(&store);
    }
    assert!(uncertain > 0);
}

fn stubborn(step: &Step, store: &Store, log: &Mutex<Vec<Event>>) {
    let (Step::Call(_) | Step::Many(_)) = step else { return };
    let calls = match step {
        Step::Call(call) => std::slice::from_ref(call),
        Step::Many(calls) => calls,
        Step::Advance(_) | Step::Reopen => &[],
    };
    for (call, mut answer) in calls.iter().zip(ask_many(store, calls)) {
        while let Answer::Error(ErrorKind::Unavailable | ErrorKind::CommitUncertain) = answer {
            // Another thread may be reopening it, or may have done so.
            let _ = store.reopen();
            answer = ask(store, call);
        }
        log.lock().unwrap().push(Event::Answered(call.clone(), answer));
    }
}

/// Callers of one key wait for its commit; that fails. Nobody is let in to run it again.
#[test]
fn callers_who_wait_for_a_commit_in_doubt_are_told_so_and_none_runs() {
    let mut waiters = 0;
    for round in 0..50 {
        let (disk, clock) = (SimDisk::seeded(round), ManualClock::at(Timestamp(START)));
        let store = disk.open(TWO_PHASE.options(&clock)).unwrap();
        disk.fail(Fault::SlowSync(Duration::from_millis(50)), 0);
        disk.fail(Fault::Sync, 0);
        let action = Action::Add { id: "a", by: 1 };
        let call = Call { id: 1, tenant: 0, op: Op::Lasting, key: "one".into(), action };
        let (runs, here) = (AtomicU32::new(0), AtomicU32::new(0));
        let one = || {
            here.fetch_add(1, Ordering::SeqCst);
            let reply = store.execute(&call.request(), |fx| {
                runs.fetch_add(1, Ordering::SeqCst);
                while here.load(Ordering::SeqCst) < 6 {
                    std::thread::yield_now();
                }
                crate::crash_model::run(&call, fx)
            });
            reply.unwrap_err().kind()
        };
        let kinds: Vec<ErrorKind> = std::thread::scope(|threads| {
            let callers: Vec<_> = (0..6).map(|_| threads.spawn(one)).collect();
            callers.into_iter().map(|caller| caller.join().unwrap()).collect()
        });
        assert_eq!(runs.into_inner(), 1, "{kinds:?}");
        let uncertain = kinds.iter().filter(|kind| **kind == ErrorKind::CommitUncertain).count();
        let unavailable = kinds.iter().filter(|kind| **kind == ErrorKind::Unavailable).count();
        assert!(uncertain > 0 && uncertain + unavailable == 6, "{kinds:?}");
        waiters += uncertain - 1;

        disk.heal();
        store.reopen().unwrap();
        let mut model = Model::at(START);
        model.answered(&call, &ask(&store, &call), false);
        for _ in 0..3 {
            model.answered(&call, &ask(&store, &call), true);
        }
        if waiters >= 10 {
            return;
        }
    }
    panic!("only {waiters} callers ever waited");
}
