//! Seeded programs for crash and fault tests: what is asked, by whom, in which order, of which store.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ops::DerefMut;
use std::time::Duration;

use onecho::testing::{Acknowledged, ManualClock, SimDisk};
use onecho::*;

use crate::crash_model::{Action, Answer, Call, Event, Op, run};

pub const START: u64 = 1_796_000_000_000;

/// A test's own randomness: SplitMix64.
#[derive(Clone)]
pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut value = self.0;
        value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        value ^ (value >> 31)
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}

/// How the store is opened.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    pub mode: CommitMode,
    /// Each commit saves what makes the open after a kill short, and no open checks the whole file.
    pub is_quick: bool,
    pub reserve_bytes: u64,
    /// From nothing, so that each commit merges the one before it, to more than any plan writes.
    pub late_bytes: usize,
}

impl Setup {
    pub fn options(self, clock: &ManualClock) -> Options {
        let policy = |op: Op| {
            let (body, key, tombstone) = op.windows();
            let policy = Policy::new()
                .body_window(Duration::from_millis(body))
                .key_window(Duration::from_millis(key))
                .tombstone_window(Duration::from_millis(tombstone));
            match op {
                Op::Rerun => policy.after_expiry(AfterExpiry::RunAsNew),
                Op::Lasting | Op::Reject => policy,
            }
        };
        let options = Options::new()
            .clock(clock.clone())
            .commit_mode(self.mode)
            .cache_bytes(1 << 20)
            .replay_bytes(16 << 10)
            .reserve_bytes(self.reserve_bytes)
            .late_bytes(self.late_bytes)
            .check_at_open_max(if self.is_quick { 0 } else { 64 << 20 });
        Op::ALL.into_iter().fold(options, |options, op| options.operation(&op.operation(), policy(op)))
    }
}

#[derive(Clone, Debug)]
pub enum Step {
    Call(Call),
    Many(Vec<Call>),
    /// Time passes, in milliseconds.
    Advance(u64),
    /// The store is closed cleanly and opened again.
    Reopen,
}

/// Which kind of program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// One caller; commands of all sorts.
    Alone,
    /// One caller whose records expire.
    Expiring,
    /// So many threads at once.
    Threads(u64),
}

/// What is asked: one list for each thread.
#[derive(Clone, Debug)]
pub struct Plan {
    pub lanes: Vec<Vec<Step>>,
}

impl Plan {
    pub fn new(seed: u64, shape: Shape, steps: u64) -> Self {
        let lanes = if let Shape::Threads(lanes) = shape { lanes } else { 1 };
        let lane = |lane| {
            let rng = Rng::new(seed ^ lane << 56);
            Lane { rng, lane, lanes, shape, next: 0, orders: Vec::new(), asked: Vec::new() }.steps(steps)
        };
        Self { lanes: (0..lanes).map(lane).collect() }
    }

    pub fn is_alone(&self) -> bool {
        self.lanes.len() == 1
    }

    /// All commands, one thread's after another's.
    pub fn calls(&self) -> impl Iterator<Item = &Call> {
        self.lanes.iter().flatten().flat_map(|step| match step {
            Step::Call(call) => std::slice::from_ref(call),
            Step::Many(calls) => calls,
            Step::Advance(_) | Step::Reopen => &[],
        })
    }

    pub fn carts(&self) -> BTreeSet<String> {
        let carts = self.calls().filter_map(|call| match &call.action {
            Action::Order { cart, .. } => Some(cart.clone()),
            _ => None,
        });
        carts.collect()
    }
}

struct Lane {
    rng: Rng,
    lane: u64,
    lanes: u64,
    shape: Shape,
    next: u64,
    /// Orders made here, with a tenant and a cart that nobody else wants.
    orders: Vec<(usize, String, String)>,
    asked: Vec<Call>,
}

impl Lane {
    fn steps(mut self, count: u64) -> Vec<Step> {
        (0..count).map(|_| self.step()).collect()
    }

    fn step(&mut self) -> Step {
        let is_alone = self.lanes == 1;
        match self.rng.below(12) {
            0 if is_alone => Step::Reopen,
            1 | 2 => Step::Many((0..2 + self.rng.below(4)).map(|_| self.call()).collect()),
            3..=5 if self.shape == Shape::Expiring => Step::Advance(300 + self.rng.below(1_500)),
            _ => Step::Call(self.call()),
        }
    }

    fn call(&mut self) -> Call {
        self.next += 1;
        let id = self.lane * 10_000 + self.next;
        let again = self.rng.below(if self.shape == Shape::Expiring { 2 } else { 6 }) == 0;
        let known = self.rng.below(self.asked.len().max(1) as u64) as usize;
        if again && let Some(before) = self.asked.get(known) {
            // A retry; once in four another request under the same key.
            let mut call = Call { id, ..before.clone() };
            if self.rng.below(4) == 0 {
                call.action = Action::Add { id: "other", by: 1 };
            }
            return call;
        }
        if self.lanes > 1 && self.rng.below(4) == 0 {
            // One that other threads send too.
            let key = format!("common-{}", self.rng.below(4));
            return Call { id, tenant: 0, op: Op::Lasting, key, action: Action::Add { id: "common", by: 7 } };
        }
        let op =
            if self.shape == Shape::Expiring { Op::ALL[self.rng.below(3) as usize] } else { Op::Lasting };
        let mut tenant = self.rng.below(2) as usize;
        let action = self.action(&mut tenant);
        // The other tenant uses the same keys.
        let key = format!("key-{}-{}", self.lane, id / 2);
        let call = Call { id, tenant, op, key, action };
        if self.asked.iter().any(|asked| asked.scope() == call.scope()) {
            return Call { key: format!("key-{}-{id}-own", self.lane), ..call };
        }
        self.asked.push(call.clone());
        call
    }

    fn action(&mut self, tenant: &mut usize) -> Action {
        let (lane, n) = (self.lane, self.next);
        let time = 1 + n * self.lanes + lane;
        match self.rng.below(14) {
            0 | 1 => Action::Add { id: "a", by: self.rng.below(9) as i64 - 3 },
            2 => Action::Stock { by: 2 },
            3 => Action::Stock { by: -3 },
            4 | 5 => {
                let (id, cart) = (format!("o{lane}-{n}"), format!("cart-{lane}-{n}"));
                self.orders.push((*tenant, id.clone(), cart.clone()));
                Action::Order { id, cart }
            }
            6 => Action::Order { id: format!("c{lane}-{n}"), cart: format!("wanted-{}", self.rng.below(2)) },
            7 if !self.orders.is_empty() => {
                let chosen = self.rng.below(self.orders.len() as u64) as usize;
                let (of, id, cart) = self.orders[chosen].clone();
                *tenant = of;
                Action::Cancel { id, cart }
            }
            7 | 8 => {
                let len = [3, 200, 5_000, 12_000][self.rng.below(4) as usize];
                Action::Put { id: format!("b{lane}-{}", self.rng.below(2)), fill: n as u8, len }
            }
            9 => Action::Bump { id: "note" },
            10 => Action::Event { id: "e", time },
            11 => Action::Drop { id: "e", time },
            12 => Action::Attempt,
            _ if self.rng.below(2) == 0 => Action::Refuse,
            _ => Action::Abort,
        }
    }
}

/// Where the log of a run goes.
pub trait Log {
    fn note(&self, event: Event);
}

/// For one caller.
impl Log for RefCell<&mut Acknowledged<Event>> {
    fn note(&self, event: Event) {
        self.borrow_mut().deref_mut().push(event);
    }
}

/// For threads.
impl Log for std::sync::Mutex<&mut Acknowledged<Event>> {
    fn note(&self, event: Event) {
        self.lock().unwrap().push(event);
    }
}

/// Asks once; again where rows kept changing, which stores nothing.
pub fn ask(store: &Store, call: &Call) -> Answer {
    loop {
        match store.execute(&call.request(), |fx| run(call, fx)) {
            Ok(Reply::Conflict { .. }) => {}
            Ok(reply) => return Answer::Reply(reply),
            Err(error) => return Answer::Error(error.kind()),
        }
    }
}

pub fn ask_many(store: &Store, calls: &[Call]) -> Vec<Answer> {
    let commands: Vec<(Request, &Call)> = calls.iter().map(|call| (call.request(), call)).collect();
    let answers = store.execute_many(&commands, |call, fx| run(call, fx));
    let answers = answers.into_iter().zip(calls).map(|(answer, call)| match answer {
        Ok(Reply::Conflict { .. }) => ask(store, call),
        Ok(reply) => Answer::Reply(reply),
        Err(error) => Answer::Error(error.kind()),
    });
    answers.collect()
}

/// Runs one thread's steps, each noted before it is asked and after it is answered. Returns the store it
/// ended with.
pub fn work(
    steps: &[Step],
    store: &Store,
    log: &impl Log,
    clock: &ManualClock,
    again: &impl Fn() -> Store,
) -> Store {
    let mut store = store.clone();
    for step in steps {
        match step {
            Step::Call(call) => {
                log.note(Event::Issued(call.clone()));
                let answer = ask(&store, call);
                log.note(Event::Answered(call.clone(), answer));
            }
            Step::Many(calls) => {
                calls.iter().for_each(|call| log.note(Event::Issued(call.clone())));
                let answers = ask_many(&store, calls);
                for (call, answer) in calls.iter().zip(answers) {
                    log.note(Event::Answered(call.clone(), answer));
                }
            }
            Step::Advance(span) => {
                let now = clock.now().0 + span;
                log.note(Event::Clock(now));
                clock.advance(Duration::from_millis(*span));
            }
            Step::Reopen => {
                store.close().unwrap();
                store = again();
            }
        }
    }
    store
}

/// Runs all threads of a plan.
pub fn work_all(
    plan: &Plan,
    setup: Setup,
    store: &Store,
    acknowledged: &mut Acknowledged<Event>,
    clock: &ManualClock,
) {
    let disk: SimDisk = acknowledged.disk().clone();
    let again = || disk.open(setup.options(clock)).unwrap();
    if let [steps] = &plan.lanes[..] {
        let log = RefCell::new(acknowledged);
        work(steps, store, &log, clock, &again).close().unwrap();
        return;
    }
    let log = std::sync::Mutex::new(acknowledged);
    std::thread::scope(|threads| {
        for steps in &plan.lanes {
            threads.spawn(|| work(steps, store, &log, clock, &again));
        }
    });
}
