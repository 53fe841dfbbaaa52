//! Fresh commands, durable before the answer: one cell of callers, commands a call, ids and records. Owns the
//! rounds and their table; `execute` and `many` say which cells there are.

use crate::command::{Command, Ids};
use crate::contender::{Contender, Done, Profile, Who};
use crate::drive::{Caller, Driven, Until, drive};
use crate::measure::Sample;
use crate::run::{Run, answers, counts};
use crate::table::{Table, counted, heading, note, number, progress, times};

pub struct Cell {
    pub callers: usize,
    /// Commands a call.
    pub batch: usize,
    pub ids: Ids,
    pub records: u64,
}

impl Cell {
    fn name(&self) -> String {
        let callers = if self.callers == 1 { "1 caller".into() } else { format!("{} callers", self.callers) };
        let what = if self.batch == 1 {
            format!("`execute`, {callers}")
        } else {
            format!("`execute_many` of {}, {callers}", self.batch)
        };
        format!("{what}, {}, from {} records", self.ids.name(), counted(self.records))
    }
}

/// One caller of fresh commands.
pub struct Fresh<'s> {
    pub store: &'s dyn Contender,
    pub batch: usize,
    pub ids: Ids,
    pub commands: Vec<Command>,
    pub first: u64,
}

impl<'s> Fresh<'s> {
    pub fn new(store: &'s dyn Contender, batch: usize, ids: Ids) -> Self {
        Self { store, batch, ids, commands: Vec::new(), first: 0 }
    }
}

impl Caller for Fresh<'_> {
    /// The number of its first command.
    type Kept = u64;

    fn prepare(&mut self) -> Done<()> {
        (self.first, self.commands) = Command::fresh(self.batch, self.ids);
        Ok(())
    }

    fn call(&mut self) -> Done<u64> {
        self.store.run(&self.commands)?;
        Ok(self.first)
    }
}

/// What one round came to.
struct Round {
    per_second: f64,
    spans: Vec<f64>,
    cpu_us: f64,
    device_kib: f64,
    handed_kib: f64,
    /// Commands a commit, where the store tells.
    shared: f64,
}

/// The rounds of one contender.
struct Row {
    who: Who,
    rounds: Vec<Round>,
}

impl Row {
    fn sample(&self, of: impl Fn(&Round) -> f64) -> Sample {
        Sample::of(self.rounds.iter().map(of).collect())
    }

    fn rate(&self) -> f64 {
        self.sample(|round| round.per_second).median()
    }

    /// All calls of all rounds.
    fn latency(&self) -> Sample {
        Sample::of(self.rounds.iter().flat_map(|round| round.spans.iter().copied()).collect())
    }
}

pub fn measure(run: &Run, cell: &Cell) -> Done<()> {
    progress(&cell.name());
    let mut rows: Vec<Row> =
        run.who(Who::ALL).into_iter().map(|&who| Row { who, rounds: Vec::new() }).collect();
    for _ in 0..run.rounds {
        for row in &mut rows {
            row.rounds.push(round(run, cell, row.who)?);
        }
    }
    heading(&cell.name());
    run.tell_side(cell.ids, cell.records)?;
    ratios(cell.callers, &rows);
    tell(run, cell, &rows);
    table(&rows);
    Ok(())
}

fn round(run: &Run, cell: &Cell, who: Who) -> Done<Round> {
    let opened = run.opened(who, cell.ids, cell.records, Profile::Checked)?;
    let store = opened.store()?;
    let caller = |_| Ok(Fresh::new(store, cell.batch, cell.ids));
    // What a store reads once after opening is not in the figures.
    let warm = drive(cell.callers, Until::Time(run.round / 4), caller)?;
    let commits = store.commits();
    let driven = drive(cell.callers, Until::Time(run.round), caller)?;
    let commits = store.commits().zip(commits).map(|(after, before)| after - before);
    let commands = driven.calls.len() * cell.batch;
    counts(store, cell.records + (commands + warm.calls.len() * cell.batch) as u64)?;
    answers(store, &driven.calls.iter().map(|call| call.kept).collect::<Vec<_>>(), cell.ids)?;
    let round = figures(&driven, commands as f64, commits);
    opened.end()?;
    Ok(round)
}

fn figures(driven: &Driven<u64>, commands: f64, commits: Option<u64>) -> Round {
    Round {
        per_second: commands / driven.took.as_secs_f64(),
        spans: driven.spans(),
        cpu_us: driven.cpu.as_secs_f64() * 1e6 / commands,
        device_kib: driven.written.device_kib(commands),
        handed_kib: driven.written.handed_kib(commands),
        shared: commits.map_or(f64::NAN, |commits| commands / commits as f64),
    }
}

/// How many times each peer's rate onecho reaches, and the time of a call against redb in the same phases.
fn ratios(callers: usize, rows: &[Row]) {
    for ours in rows.iter().filter(|row| row.who.store() == "onecho") {
        let against: Vec<String> = rows
            .iter()
            .filter(|row| row.who.store() != "onecho")
            .map(|row| format!("{} x {}", times(ours.rate() / row.rate()), row.who.name()))
            .collect();
        // With several callers p50 says who queues how, not how long a command takes.
        let same = if ours.who == Who::OnechoOne { Who::RedbOne } else { Who::RedbTwo };
        let p50 = rows.iter().find(|row| callers == 1 && row.who == same).map(|row| {
            let ratio = ours.latency().median() / row.latency().median();
            format!("; p50 {} of {}'s", number(ratio, 2), same.name())
        });
        note(&format!("**{}** {}{}.", ours.who.name(), against.join(", "), p50.unwrap_or_default()));
    }
}

/// The same for the goals.
fn tell(run: &Run, cell: &Cell, rows: &[Row]) {
    let ids = if cell.ids == Ids::Growing { "growing" } else { "random" };
    let name = format!("{}x{} {ids} {}", cell.batch, cell.callers, cell.records);
    for ours in rows.iter().filter(|row| row.who.store() == "onecho") {
        let phases = ours.who.phases();
        for peer in rows.iter().filter(|row| row.who.store() != "onecho") {
            let rate = ours.rate() / peer.rate();
            run.figures.tell(format!("rate {name} {phases}/{}", peer.who.name()), rate);
            if peer.who.store() == "redb" && peer.who.phases() == phases {
                let p50 = ours.latency().median() / peer.latency().median();
                run.figures.tell(format!("p50 {name} {phases}"), p50);
            }
        }
        let device = ours.sample(|round| round.device_kib).median();
        run.figures.tell(format!("device {name} {phases}"), device);
    }
}

fn table(rows: &[Row]) {
    let base = rows.iter().find(|row| row.who == Who::RedbOne).map_or(f64::NAN, Row::rate);
    let mut table = Table::new(&[
        "",
        "x redb one-phase",
        "commands/s",
        "min-max",
        "p50 us",
        "p99 us",
        "CPU us/command",
        "KiB to device/command",
        "KiB handed over/command",
        "commands/commit",
    ]);
    for row in rows {
        let (rate, latency) = (row.sample(|round| round.per_second), row.latency());
        table.row(vec![
            row.who.name().to_owned(),
            times(rate.median() / base),
            number(rate.median(), 0),
            format!("{}-{}", number(rate.min(), 0), number(rate.max(), 0)),
            number(latency.median(), 0),
            number(latency.at(0.99), 0),
            number(row.sample(|round| round.cpu_us).median(), 1),
            number(row.sample(|round| round.device_kib).median(), 2),
            number(row.sample(|round| round.handed_kib).median(), 2),
            number(row.sample(|round| round.shared).median(), 1),
        ]);
    }
    table.print();
}
