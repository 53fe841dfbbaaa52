//! A power cut at any moment loses nothing that was acknowledged, leaves no command half done, and runs none
//! twice.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use onecho::testing::{CrashReport, CrashTest, ManualClock, SimDisk};
use onecho::*;

use crate::crash_model::{Action, Answer, Call, Event, Expect, Model, Op, run, shown};
use crate::crash_plan::{Plan, START, Setup, Shape, Step, ask_many, work_all};

/// States of the ordinary run, nested ones apart.
const STATES_MIN: u64 = 50_000;
const STATES_A_RUN: u64 = 1_150;
/// Seeds of the runs that are the same every time.
const FIXED_SEEDS: std::ops::Range<u64> = 1..6;

pub const TWO_PHASE: Setup =
    Setup { mode: CommitMode::TwoPhase, is_quick: false, reserve_bytes: 16 << 10, late_bytes: 2 << 10 };
pub const SETUPS: [Setup; 4] = [
    TWO_PHASE,
    Setup { mode: CommitMode::OnePhase, is_quick: false, reserve_bytes: 0, late_bytes: 16 << 20 },
    Setup { mode: CommitMode::TwoPhase, is_quick: true, reserve_bytes: 0, late_bytes: 0 },
    Setup { mode: CommitMode::OnePhase, is_quick: true, reserve_bytes: 16 << 10, late_bytes: 700 },
];

/// One workload under one setup.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    pub seed: u64,
    pub shape: Shape,
    pub setup: Setup,
    pub nested: u64,
}

impl Run {
    /// The runs of one seed: every shape under two of the setups, and over the seeds all of them.
    fn all(seed: u64) -> Vec<Self> {
        let shapes = [Shape::Alone, Shape::Expiring, Shape::Threads(3), Shape::Alone];
        let runs = shapes.into_iter().zip(0..).flat_map(|(shape, at)| {
            [0, 1].map(|half| Self {
                seed: seed.wrapping_mul(100).wrapping_add(at),
                shape,
                setup: SETUPS[((seed % 4 + at + 2 * half) % 4) as usize],
                nested: u64::from(at == 3 && half == 0),
            })
        });
        runs.collect()
    }

    fn states(self, states_max: u64) -> CrashReport {
        self.states_on(states_max, |_| ())
    }

    /// On a disk that `spoil` has done something to.
    pub fn states_on(self, states_max: u64, spoil: impl Fn(&SimDisk)) -> CrashReport {
        let plan = Plan::new(self.seed, self.shape, 7);
        let clock = ManualClock::at(Timestamp(START));
        let setup = self.setup;
        CrashTest::new(setup.options(&clock), self.seed).states_max(states_max).nested(self.nested).run_with(
            |store, acknowledged| {
                spoil(acknowledged.disk());
                work_all(&plan, setup, store, acknowledged, &clock);
            },
            |log| setup.options(&ManualClock::at(Timestamp(Model::after_clock(START, log)))),
            |store, log| check(&plan, store, log),
        )
    }
}

/// Every state of every run, on both cores; prints what it did.
#[test]
fn what_was_acknowledged_survives_every_crash_and_nothing_is_done_twice() {
    let fresh = seed_of("ONECHO_SEED");
    println!("crash states: seeds {FIXED_SEEDS:?}, then {fresh} (again with ONECHO_SEED={fresh})");
    let runs: Vec<Run> = FIXED_SEEDS.chain([fresh]).flat_map(Run::all).collect();
    let (states, points, nested) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let next = AtomicUsize::new(0);
    std::thread::scope(|threads| {
        for _ in 0..2 {
            threads.spawn(|| {
                while let Some(run) = runs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    println!("{run:?}");
                    let report = run.states(STATES_A_RUN);
                    println!("    {report:?}");
                    states.fetch_add(report.states, Ordering::Relaxed);
                    points.fetch_add(report.crash_points, Ordering::Relaxed);
                    nested.fetch_add(report.nested, Ordering::Relaxed);
                }
            });
        }
    });
    let (states, points, nested) = (states.into_inner(), points.into_inner(), nested.into_inner());
    println!("crash states: {states} at {points} points of {} runs, and {nested} nested", runs.len());
    assert!(states >= STATES_MIN, "only {states} states");
    assert!(nested > 0);
}

/// A seed from the environment, or a fresh one.
pub fn seed_of(variable: &str) -> u64 {
    match std::env::var(variable) {
        Ok(seed) => seed.parse().unwrap(),
        Err(_) => RandomState::new().hash_one(0_u8) >> 32,
    }
}

/// Judges one state: first what it shows, then what retries do to it.
fn check(plan: &Plan, store: &Store, log: &[Event]) {
    let mut model = Model::after(START, log, plan.is_alone());
    let extra: Vec<Call> = (0..4).map(after).collect();
    let carts = plan.carts();
    found(plan, store, &mut model, &extra);
    let is_fresh = model.is_free(&extra[0]);
    agree(plan, store, &model, &extra, &carts);
    verified(store);

    // Everybody who got no answer asks again, and so does everybody else.
    once(store, &mut model, &extra[..1]);
    let calls: Vec<Call> = plan.calls().cloned().collect();
    if is_fresh && !log.len().is_multiple_of(4) {
        many(store, &mut model, &calls);
    } else {
        once(store, &mut model, &calls);
    }
    once(store, &mut model, &calls);
    once(store, &mut model, &extra[1..]);
    agree(plan, store, &model, &extra, &carts);
}

/// Commands of the check itself. The first comes before all retries: where it is on record, an earlier check
/// has been here and may have retried.
fn after(n: u64) -> Call {
    let action = Action::Add { id: "after", by: 1 };
    Call { id: 1_000_000 + n, tenant: 0, op: Op::Lasting, key: format!("after-{n}"), action }
}

/// Takes in which of the commands without an answer are there: each whole or not at all, the older ones
/// first.
fn found(plan: &Plan, store: &Store, model: &mut Model, extra: &[Call]) {
    let was_here = matches!(store.status(extra[0].request().scope()), Ok(Status::Finished(_)));
    let mut open = std::mem::take(&mut model.doubtful);
    let lanes = plan.lanes.len();
    let in_one_call = plan.lanes.iter().flatten().map(|step| match step {
        Step::Many(calls) => calls.len(),
        _ => 1,
    });
    assert!(open.len() <= lanes * in_one_call.max().unwrap_or(0), "{open:?} were asked at once");
    if was_here {
        open.extend(extra[..1].iter().chain(plan.calls()).chain(&extra[1..]).cloned());
    }
    let mut missing = None;
    for call in &open {
        if !model.is_free(call) || !matches!(model.expect(call), Expect::Done) {
            continue;
        }
        match store.status(call.request().scope()).unwrap() {
            Status::Finished(finished)
                if finished.meta("call") == Some(call.label().as_bytes())
                    && model.is_newer(call, &finished) =>
            {
                assert_eq!(missing, None, "{call:?} is there, one that was asked earlier is not");
                model.learn(call, &finished, false);
            }
            _ if plan.is_alone() && !was_here => missing = Some(call.id),
            _ => {}
        }
    }
}

/// The store shows what the model has: every scope, every row, every count.
pub fn agree(plan: &Plan, store: &Store, model: &Model, extra: &[Call], carts: &BTreeSet<String>) {
    for call in plan.calls().chain(extra) {
        model.is_status(call, &store.status(call.request().scope()).unwrap());
    }
    assert_eq!(shown(store, carts), model.shown.visible(), "rows");
    let stats = store.stats();
    let rows = model.shown.rows.len() + model.shown.held.len();
    let counts = (model.records.len() as u64, rows as u64, model.entries);
    assert_eq!((stats.records, stats.rows, stats.executed), counts, "records, rows, entries");
}

/// A look at the whole file finds the same.
pub fn verified(store: &Store) {
    let (report, stats) = (store.verify().unwrap(), store.stats());
    assert!(report.is_clean(), "{report:?}");
    let counts = (stats.records, stats.rows, stats.executed);
    assert_eq!((report.records, report.rows, report.entries), counts, "records, rows, entries");
}

/// Asks one after another; each answer is determined.
fn once(store: &Store, model: &mut Model, calls: &[Call]) {
    for call in calls {
        let runs = Cell::new(0);
        let expected = model.expect(call);
        let answer = match store.execute(&call.request(), |fx| {
            runs.set(runs.get() + 1);
            run(call, fx)
        }) {
            Ok(reply) => Answer::Reply(reply),
            Err(error) => Answer::Error(error.kind()),
        };
        let may_run = !matches!(expected, Expect::Replay | Expect::Mismatch | Expect::Expired);
        assert_eq!(runs.get(), u32::from(may_run), "runs of {call:?}");
        model.answered(call, &answer, true);
    }
}

fn many(store: &Store, model: &mut Model, calls: &[Call]) {
    for (call, answer) in calls.iter().zip(ask_many(store, calls)) {
        model.answered(call, &answer, true);
    }
}
