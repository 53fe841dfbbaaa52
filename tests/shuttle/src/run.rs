//! Runs a model under two schedulers: one that chooses each step by chance, and one that runs the thread of
//! highest priority and changes priorities at a few places (PCT), which finds what needs few switches.

use std::panic::{AssertUnwindSafe, catch_unwind};

use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::{Config, FailurePersistence, MaxSteps, Runner};

/// Schedules of each model, half of them by chance and half by PCT.
const SCHEDULES: usize = 4_000;
/// Places where PCT changes a priority.
const CHANGES: usize = 3;
/// Far more than any schedule takes; one that takes more goes round in circles.
const STEPS_MAX: usize = 200_000;
const SEED: u64 = 0x0EC4_0CAF_E5EE_D001;

fn seed() -> u64 {
    let text = std::env::var("ONECHO_SEED").ok();
    text.map_or(SEED, |text| text.parse().expect("ONECHO_SEED is a number"))
}

fn runner(scheduler: impl Scheduler + 'static, persistence: FailurePersistence) -> Runner<impl Scheduler> {
    let mut config = Config::new();
    config.failure_persistence = persistence;
    config.max_steps = MaxSteps::FailAfter(STEPS_MAX);
    config.silence_warnings = true;
    Runner::new(scheduler, config)
}

fn all(model: fn(), schedules: usize, persistence: &FailurePersistence) {
    let seed = seed();
    runner(RandomScheduler::new_from_seed(seed, schedules / 2), persistence.clone()).run(model);
    runner(PctScheduler::new_from_seed(seed, CHANGES, schedules / 2), persistence.clone()).run(model);
}

/// Every schedule must end well.
pub fn holds(model: fn()) {
    println!("{SCHEDULES} schedules, ONECHO_SEED={}", seed());
    all(model, SCHEDULES, &FailurePersistence::Print);
}

/// At least one schedule must not.
pub fn is_caught(model: fn()) {
    let quiet = FailurePersistence::None;
    let ended = catch_unwind(AssertUnwindSafe(|| all(model, SCHEDULES, &quiet)));
    assert!(ended.is_err(), "no schedule showed the mistake (ONECHO_SEED={})", seed());
}
