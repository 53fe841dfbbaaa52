//! The goals of `docs/performance.md` beside what this run measured. Owns the goals and which figure each is
//! about.

use std::cell::RefCell;
use std::collections::BTreeMap;

use crate::table::{Table, heading, number};

/// Figures of a run, by the names that the cells give them.
#[derive(Default)]
pub struct Figures(RefCell<BTreeMap<String, f64>>);

impl Figures {
    pub fn tell(&self, name: String, figure: f64) {
        self.0.borrow_mut().insert(name, figure);
    }

    fn of(&self, name: &str) -> Option<f64> {
        self.0.borrow().get(name).copied().filter(|figure| !figure.is_nan())
    }
}

enum Bound {
    AtLeast(f64),
    AtMost(f64),
}

use Bound::{AtLeast, AtMost};

impl Bound {
    fn text(&self) -> String {
        match self {
            AtLeast(bound) => format!("at least {bound}"),
            AtMost(bound) => format!("at most {bound}"),
        }
    }

    fn is_met(&self, figure: f64) -> bool {
        match self {
            AtLeast(bound) => figure >= *bound,
            AtMost(bound) => figure <= *bound,
        }
    }
}

struct Goal {
    what: &'static str,
    bound: Bound,
    /// Where `#` stands each of `sizes` is put; the goal holds at all of them.
    figure: &'static str,
    sizes: &'static [&'static str],
}

const fn goal(
    what: &'static str,
    bound: Bound,
    figure: &'static str,
    sizes: &'static [&'static str],
) -> Goal {
    Goal { what, bound, figure, sizes }
}

const BOTH: &[&str] = &["10000", "100000"];
const ONCE: &[&str] = &[""];

/// Fresh commands: rates and times against peers, bytes to the device.
const WRITES: &[Goal] = &[
    goal("64 callers, one-phase x redb", AtLeast(20.0), "rate 1x64 growing # one/redb one-phase", BOTH),
    goal("64 callers, two-phase x redb", AtLeast(15.0), "rate 1x64 growing # two/redb one-phase", BOTH),
    goal(
        "64 callers, random ids, one-phase x redb",
        AtLeast(18.0),
        "rate 1x64 random # one/redb one-phase",
        BOTH,
    ),
    goal(
        "64 callers, random ids, two-phase x redb",
        AtLeast(13.0),
        "rate 1x64 random # two/redb one-phase",
        BOTH,
    ),
    goal("64 callers, two-phase x SQLite", AtLeast(12.0), "rate 1x64 growing # two/SQLite", BOTH),
    goal("64 callers, two-phase x fjall", AtLeast(8.0), "rate 1x64 growing # two/fjall", BOTH),
    goal("64 callers, two-phase x RocksDB", AtLeast(3.0), "rate 1x64 growing # two/RocksDB", BOTH),
    goal("8 callers, two-phase x redb", AtLeast(5.0), "rate 1x8 growing # two/redb one-phase", BOTH),
    goal("8 callers, two-phase x SQLite", AtLeast(3.0), "rate 1x8 growing # two/SQLite", BOTH),
    goal("1 caller, p50, one-phase of redb's", AtMost(0.85), "p50 1x1 growing # one", &["10000"]),
    goal("1 caller, p50, two-phase of redb's", AtMost(0.9), "p50 1x1 growing # two", &["10000"]),
    goal("`execute_many` of 64 x redb", AtLeast(4.0), "rate 64x1 growing # two/redb one-phase", BOTH),
    goal("`execute_many` of 64 x SQLite", AtLeast(4.0), "rate 64x1 growing # two/SQLite", BOTH),
    goal("`execute_many` of 512 x redb", AtLeast(8.0), "rate 512x1 growing # two/redb one-phase", BOTH),
    goal("`execute_many` of 512 x SQLite", AtLeast(8.0), "rate 512x1 growing # two/SQLite", BOTH),
    goal("KiB to device, 100,000, 64 callers", AtMost(2.5), "device 1x64 growing 100000 two", ONCE),
    goal("KiB to device, 100,000, 1 caller", AtMost(35.0), "device 1x1 growing 100000 two", ONCE),
    goal("KiB to device, 1,000,000, 64 callers", AtMost(4.0), "growth device two 1000000", ONCE),
];

/// Lookups: time in a row of each, as a multiple of onecho's.
const REPLAYS: &[Goal] = &[
    goal("judged x redb, Zipf, 100,000", AtLeast(12.0), "judged 100000 Zipf 0.99 1 redb", ONCE),
    goal("judged x SQLite", AtLeast(40.0), "judged 100000 Zipf 0.99 1 SQLite", ONCE),
    goal("judged x fjall", AtLeast(18.0), "judged 100000 Zipf 0.99 1 fjall", ONCE),
    goal("judged x RocksDB", AtLeast(30.0), "judged 100000 Zipf 0.99 1 RocksDB", ONCE),
    goal("judged x LMDB", AtLeast(6.0), "judged 100000 Zipf 0.99 1 LMDB", ONCE),
    goal("answered x redb", AtLeast(6.0), "answered 100000 Zipf 0.99 1 redb", ONCE),
    goal("judged x each map, 1,000,000", AtLeast(1.3), "judged 1000000 Zipf 0.99 1 #", MAPS),
    goal("answered x each map, 1,000,000", AtLeast(1.1), "answered 1000000 Zipf 0.99 1 #", MAPS),
    goal("judged x `Arc` clones, hot, 2 threads", AtLeast(2.0), "judged 2000 Zipf 0.99 2 #", CLONES),
    goal("p99 us beside a writer, judged", AtMost(1.0), "p99 judged 100000 Zipf 0.99 # writer", THREADS),
    goal("p99 us beside a writer, answered", AtMost(1.0), "p99 answered 100000 Zipf 0.99 # writer", THREADS),
    goal("two readers x one", AtLeast(1.8), "scaling judged 100000 Zipf 0.99", ONCE),
];

const MAPS: &[&str] =
    &["papaya, guard", "papaya, Arc clone", "scc `HashIndex`, peek", "quick_cache, Arc clone"];
const CLONES: &[&str] = &["papaya, Arc clone", "quick_cache, Arc clone"];
const THREADS: &[&str] = &["1", "2"];

const SIZES: &[Goal] = &[
    goal("allocated of payload, 1,000,000", AtMost(1.4), "growth allocated two 1000000", ONCE),
    goal("p99 of slow windows x the rest's, worst step", AtMost(1.5), "growth slow # 1000000", PHASES),
    goal("rate at 1,000,000 of that at 10,000", AtLeast(0.8), "growth rate # 1000000", PHASES),
    goal("MiB of its own, 1,000,000, small profile", AtMost(16.0), "own small 1000000", ONCE),
    goal("MiB resident, 1,000,000, small profile", AtMost(16.0), "resident small 1000000", ONCE),
    goal("ms to open after a kill, 1,000,000", AtMost(150.0), "killed two 1000000", ONCE),
];

const PHASES: &[&str] = &["one", "two"];

/// Prints the goals that this run has figures for.
pub fn print(figures: &Figures) {
    let mut table = Table::new(&["goal", "", "measured", "met"]);
    let mut is_empty = true;
    for goal in WRITES.iter().chain(REPLAYS).chain(SIZES) {
        let found: Vec<(&str, f64)> = goal
            .sizes
            .iter()
            .filter_map(|size| Some((*size, figures.of(&goal.figure.replace('#', size))?)))
            .collect();
        if found.is_empty() {
            continue;
        }
        is_empty = false;
        let measured: Vec<String> = found
            .iter()
            .map(|(size, figure)| {
                let figure = number(*figure, 2);
                if goal.sizes.len() == 1 { figure } else { format!("{figure} ({size})") }
            })
            .collect();
        let is_met = found.iter().all(|(_, figure)| goal.bound.is_met(*figure));
        let met = if is_met { "yes" } else { "no" };
        table.row(vec![goal.what.to_owned(), goal.bound.text(), measured.join("; "), met.to_owned()]);
    }
    if !is_empty {
        heading("Goals");
        table.print();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_hold_at_their_edge() {
        assert!(AtLeast(2.0).is_met(2.0) && !AtLeast(2.0).is_met(1.9));
        assert!(AtMost(2.0).is_met(2.0) && !AtMost(2.0).is_met(2.1));
    }

    #[test]
    fn what_is_no_number_is_no_figure() {
        let figures = Figures::default();
        figures.tell("a".into(), f64::NAN);
        assert_eq!((figures.of("a"), figures.of("b")), (None, None));
    }
}
