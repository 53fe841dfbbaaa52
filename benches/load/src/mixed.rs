//! Nine retries for each fresh command, by callers who do not know which it is. Owns the cell.

use std::time::Duration;

use crate::command::{Command, Ids, mixed};
use crate::contender::{Contender, Done, Looks, Profile, Who};
use crate::drive::{Call, Caller, Driven, Until, drive};
use crate::measure::Sample;
use crate::run::{Run, counts};
use crate::table::{Table, counted, heading, note, number, progress, times};

const IDS: Ids = Ids::Growing;
const FRESH_EVERY: u64 = 10;

/// One caller: mostly retries of commands that are in the store.
struct Retrying<'s> {
    store: &'s dyn Contender,
    looks: Box<dyn Looks + 's>,
    records: u64,
    step: u64,
    command: Command,
    is_fresh: bool,
    body: Vec<u8>,
}

impl<'s> Retrying<'s> {
    fn new(store: &'s dyn Contender, records: u64, number: usize) -> Done<Self> {
        let (looks, command) = (store.looks()?, Command::numbered(0, IDS));
        let step = mixed(number as u64);
        Ok(Self { store, looks, records, step, command, is_fresh: false, body: Vec::new() })
    }
}

impl Caller for Retrying<'_> {
    /// Whether it was a replay.
    type Kept = bool;

    fn prepare(&mut self) -> Done<()> {
        self.step = self.step.wrapping_add(1);
        let random = mixed(self.step);
        self.is_fresh = random.is_multiple_of(FRESH_EVERY);
        let fresh = if self.is_fresh { Command::fresh(1, IDS).1.pop() } else { None };
        self.command = fresh.unwrap_or_else(|| Command::numbered(random / FRESH_EVERY % self.records, IDS));
        Ok(())
    }

    fn call(&mut self) -> Done<bool> {
        let is_replay = self.store.serve(&mut *self.looks, &self.command, &mut self.body)?;
        if is_replay == self.is_fresh || (is_replay && !self.command.is_answered_by(&self.body)) {
            return Err(format!("the command under {} was answered wrongly", self.command.key).into());
        }
        Ok(is_replay)
    }
}

#[derive(Default)]
struct Row {
    per_second: Vec<f64>,
    replays: Vec<f64>,
    fresh: Vec<f64>,
}

pub fn cells(run: &Run) -> Done<()> {
    for records in run.sizes(&[10_000, 100_000]).into_iter().rev().take(1) {
        for callers in run.callers(&[8, 64]) {
            cell(run, records, callers)?;
        }
    }
    Ok(())
}

fn cell(run: &Run, records: u64, callers: usize) -> Done<()> {
    let name = format!("Nine retries a fresh command, {callers} callers, from {} records", counted(records));
    progress(&name);
    let who = run.who(Who::ALL);
    let mut rows: Vec<Row> = who.iter().map(|_| Row::default()).collect();
    for _ in 0..run.rounds {
        for (who, row) in who.iter().zip(&mut rows) {
            let opened = run.opened(**who, IDS, records, Profile::Replays(records * 2))?;
            let store = opened.store()?;
            // As a service that has been up for a while: most of what is asked again has been asked before.
            let warm = retries(store, records, callers, run.round * 2)?;
            let driven = retries(store, records, callers, run.round)?;
            let fresh = warm.calls.iter().chain(&driven.calls).filter(|call| !call.kept).count();
            counts(store, records + fresh as u64)?;
            row.per_second.push(driven.calls.len() as f64 / driven.took.as_secs_f64());
            let spans = |of: bool| driven.calls.iter().filter(move |call| call.kept == of).map(span);
            row.replays.extend(spans(true));
            row.fresh.extend(spans(false));
            opened.end()?;
        }
    }
    heading(&name);
    note("A peer looks first and runs what is not there; onecho is called once for either.");
    let rate = |row: &Row| Sample::of(row.per_second.clone()).median();
    let base =
        |of: Who| who.iter().zip(&rows).find(|(who, _)| ***who == of).map_or(f64::NAN, |(_, row)| rate(row));
    let (ours, plain) = (base(Who::OnechoTwo), base(Who::RedbOne));
    let mut table = Table::new(&[
        "",
        "onecho two-phase is x this",
        "x redb one-phase",
        "calls/s",
        "min-max",
        "p50 us, fresh",
        "p99 us, fresh",
        "p50 us, replay",
        "p99 us, replay",
    ]);
    for (who, row) in who.iter().zip(&rows) {
        let rates = Sample::of(row.per_second.clone());
        let (fresh, replays) = (Sample::of(row.fresh.clone()), Sample::of(row.replays.clone()));
        table.row(vec![
            who.name().to_owned(),
            times(ours / rates.median()),
            times(rates.median() / plain),
            number(rates.median(), 0),
            format!("{}-{}", number(rates.min(), 0), number(rates.max(), 0)),
            number(fresh.median(), 0),
            number(fresh.at(0.99), 0),
            number(replays.median(), 1),
            number(replays.at(0.99), 1),
        ]);
    }
    table.print();
    Ok(())
}

fn span(call: &Call<bool>) -> f64 {
    call.us
}

fn retries(store: &dyn Contender, records: u64, callers: usize, length: Duration) -> Done<Driven<bool>> {
    drive(callers, Until::Time(length), |number| Retrying::new(store, records, number))
}
