//! Walks every state of small worlds: owners that hold claims on keys, and everything that may happen to
//! them, in every order. Each step is decided by the function that the store uses; what must always hold is
//! kept beside it in words of its own.

#![allow(
    clippy::cast_possible_truncation,
    clippy::disallowed_macros,
    clippy::match_bool,
    clippy::unused_self,
    reason = "a test: the numbers are small, and how many states there are is printed"
)]

use std::collections::{BTreeSet, VecDeque};

use super::*;
use crate::core::claim::Contract;
use crate::core::policy::Takeover;

mod world;

use world::{Rules, Scoped, World};

/// A state of one scope, as the design's table names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum State {
    Absent,
    Processing,
    Lapsed,
    Unknown,
    Finished,
}

impl Scoped {
    fn state(&self) -> State {
        match (self.row.as_ref().and_then(Row::open), &self.record) {
            (Some(open), _) if open.phase != Phase::Processing => State::Unknown,
            (Some(_), _) if self.is_live => State::Processing,
            (Some(_), _) => State::Lapsed,
            (None, Some(_)) => State::Finished,
            (None, None) => State::Absent,
        }
    }
}

/// The whole table of the design: what leads from where to where. Nothing else may happen.
const TABLE: [(State, Transition, State); 25] = {
    use State::{Absent, Finished, Lapsed, Processing, Unknown};
    use Transition as T;
    [
        (Absent, T::Executed, Finished),
        (Absent, T::Begun, Processing),
        (Absent, T::Cancelled, Finished),
        (Absent, T::Differed, Absent),
        (Processing, T::Advanced, Processing),
        (Processing, T::CancelAsked, Processing),
        (Processing, T::Finished, Finished),
        (Processing, T::Aborted, Absent),
        (Processing, T::Unsure, Unknown),
        (Processing, T::Differed, Processing),
        // Its owner is late, and nobody has said so yet.
        (Lapsed, T::Advanced, Lapsed),
        (Lapsed, T::CancelAsked, Lapsed),
        (Lapsed, T::Finished, Finished),
        (Lapsed, T::Aborted, Absent),
        (Lapsed, T::Unsure, Unknown),
        (Lapsed, T::Differed, Lapsed),
        (Lapsed, T::Executed, Finished),
        (Lapsed, T::TakenOver, Processing),
        (Lapsed, T::Lapsed, Unknown),
        (Unknown, T::Judged, Unknown),
        (Unknown, T::TakenOver, Processing),
        (Unknown, T::Resolved, Finished),
        (Unknown, T::Released, Absent),
        (Unknown, T::Differed, Unknown),
        (Finished, T::Differed, Finished),
    ]
};

/// Visits every state; returns how many there are, and how many steps lead from one to another. What led
/// from where to where goes into `seen`.
fn walk(rules: Rules, seen: &mut BTreeSet<(State, u8, State)>) -> (usize, u64) {
    let start = World::new(rules);
    let mut known = BTreeSet::from([start.essence()]);
    let mut ahead = VecDeque::from([start]);
    let mut steps = 0;
    while let Some(world) = ahead.pop_front() {
        for event in world.events(rules) {
            let Some(next) = world.after(event, rules) else { continue };
            steps += 1;
            for (before, after) in world.keys.iter().zip(&next.keys) {
                if let Some(transition) = after.last.filter(|_| world.seq < next.seq && after.seq == next.seq)
                {
                    seen.insert((before.state(), transition as u8, after.state()));
                }
            }
            if known.insert(next.essence()) {
                ahead.push_back(next);
            }
        }
    }
    (known.len(), steps)
}

#[test]
fn every_small_world_keeps_what_always_holds() {
    let mut seen = BTreeSet::new();
    for contract in [Contract::Idempotent, Contract::Queryable, Contract::Neither] {
        for takeover in [Takeover::Never, Takeover::Allowed] {
            let one = Rules {
                owners: 2,
                keys: 1,
                contract,
                takeover,
                attempts_max: 3,
                hands_over: true,
                verdicts: true,
            };
            let (states, steps) = walk(one, &mut seen);
            println!("{contract:?}, takeover {takeover:?}, one key: {states} states, {steps} steps");
            assert!(states > 100, "the walk came nowhere");
        }
    }
    let table: BTreeSet<_> = TABLE.map(|(from, transition, to)| (from, transition as u8, to)).into();
    let strange: Vec<_> = seen.difference(&table).collect();
    assert!(strange.is_empty(), "the table has no such transitions: {strange:?}");
    let missing: Vec<_> = table.difference(&seen).collect();
    assert!(missing.is_empty(), "these transitions never happened: {missing:?}");
}

#[test]
fn two_keys_do_not_touch_one_another() {
    let rules = Rules {
        owners: 2,
        keys: 2,
        contract: Contract::Queryable,
        takeover: Takeover::Never,
        attempts_max: 1,
        hands_over: false,
        verdicts: false,
    };
    let (states, steps) = walk(rules, &mut BTreeSet::new());
    println!("two keys: {states} states, {steps} steps");
    assert!(states > 10_000, "the walk came nowhere");
}
