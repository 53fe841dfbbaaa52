//! Fresh commands, durable before the answer, beside plain redb in the same run on the same disk. See
//! `README.md`.

#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_macros,
    clippy::cast_precision_loss,
    reason = "a bench reads the clock, prints, and divides counts"
)]

mod support;

use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion};

use support::{
    ALL, Command, Contender, Done, ONECHO, ONECHO_ONE, PLAIN, PLAIN_TWO, Who, bytes_written, copied, cpu_us,
    is_measured, load, median, real_disk,
};

/// How many callers, and how many commands each hands over in one call.
struct Cell {
    callers: usize,
    batch: usize,
    records: u64,
}

const SMALL: u64 = 10_000;
/// Above 64 MiB of file, where a commit also saves what makes the open after a kill short.
const LARGE: u64 = 100_000;

const CELLS: [Cell; 6] = [
    Cell { callers: 64, batch: 1, records: SMALL },
    Cell { callers: 8, batch: 1, records: SMALL },
    Cell { callers: 1, batch: 1, records: SMALL },
    Cell { callers: 64, batch: 1, records: LARGE },
    Cell { callers: 1, batch: 64, records: SMALL },
    Cell { callers: 1, batch: 512, records: SMALL },
];

const ROUNDS: usize = 5;
const ROUND: Duration = Duration::from_millis(600);

fn main() -> Done<()> {
    let dir = real_disk()?;
    let cell = std::env::var("ONECHO_BENCH_CELL").ok();
    if is_measured() {
        table(dir.path(), cell.as_deref())?;
    }
    if cell.is_some() {
        return Ok(());
    }
    let mut criterion = Criterion::default().configure_from_args();
    parts(&mut criterion, dir.path())?;
    criterion.final_summary();
    Ok(())
}

/// What one round came to.
struct Round {
    per_second: f64,
    p50_us: f64,
    p99_us: f64,
    kib_per_command: f64,
    cpu_us_per_command: f64,
}

/// All cells, or those whose name holds `filter`.
fn table(dir: &Path, filter: Option<&str>) -> Done<()> {
    for cell in CELLS.iter().filter(|cell| filter.is_none_or(|filter| cell.name().contains(filter))) {
        let mut rounds: Vec<Vec<Round>> = ALL.iter().map(|_| Vec::new()).collect();
        for _ in 0..ROUNDS {
            for (who, rounds) in ALL.iter().zip(&mut rounds) {
                rounds.push(round(dir, cell, *who)?);
            }
        }
        print(cell, &rounds);
    }
    Ok(())
}

impl Cell {
    fn name(&self) -> String {
        let callers =
            if self.callers == 1 { "1 caller".to_owned() } else { format!("{} callers", self.callers) };
        let batch = if self.batch == 1 { String::new() } else { format!(", {} a call", self.batch) };
        format!("{callers}{batch}, from {} records", self.records)
    }
}

fn print(cell: &Cell, rounds: &[Vec<Round>]) {
    let of = |who: Who, number: fn(&Round) -> f64| {
        let at = ALL.iter().position(|known| *known == who).unwrap_or_default();
        median(rounds[at].iter().map(number).collect())
    };
    let rate = |who| of(who, |round| round.per_second);
    println!("\n{}", cell.name());
    for (who, other) in [(ONECHO, PLAIN), (ONECHO, PLAIN_TWO), (ONECHO_ONE, PLAIN)] {
        let (ours, theirs) = (rate(who), rate(other));
        println!("  {} {ours:.0}/s, {} {theirs:.0}/s, ratio {:.1}", who.name(), other.name(), ours / theirs);
    }
    println!(
        "  {:<22}{:>10}{:>10}{:>10}{:>14}{:>16}",
        "", "per s", "p50 us", "p99 us", "KiB/command", "CPU us/command"
    );
    for who in ALL {
        println!(
            "  {:<22}{:>10.0}{:>10.0}{:>10.0}{:>14.1}{:>16.0}",
            who.name(),
            rate(who),
            of(who, |round| round.p50_us),
            of(who, |round| round.p99_us),
            of(who, |round| round.kib_per_command),
            of(who, |round| round.cpu_us_per_command)
        );
    }
}

/// The file that each round of a contender begins with. Both phases make the same file.
fn template(dir: &Path, who: Who, records: u64) -> Done<PathBuf> {
    let path = dir.join(format!("{}-{records}", if who.is_onecho { "onecho" } else { "plain" }));
    if !path.exists() {
        load(&*who.open(&path)?, records)?;
    }
    Ok(path)
}

fn round(dir: &Path, cell: &Cell, who: Who) -> Done<Round> {
    let path = dir.join("round");
    copied(&template(dir, who, cell.records)?, &path)?;
    let contender = who.open(&path)?;
    let measured = measure(&*contender, cell);
    drop(contender);
    std::fs::remove_file(&path)?;
    measured
}

fn measure(contender: &dyn Contender, cell: &Cell) -> Done<Round> {
    let barrier = Barrier::new(cell.callers + 1);
    let (written, cpu) = (bytes_written(), cpu_us());
    let (spans, took) = std::thread::scope(|scope| {
        let callers: Vec<_> =
            (0..cell.callers).map(|_| scope.spawn(|| caller(contender, cell.batch, &barrier))).collect();
        barrier.wait();
        let start = Instant::now();
        let spans: Vec<_> = callers.into_iter().map(ScopedJoinHandle::join).collect();
        (spans, start.elapsed())
    });
    let mut all = Vec::new();
    for spans in spans {
        all.extend(spans.map_err(|_| "a caller panicked")??);
    }
    let commands = (all.len() * cell.batch) as f64;
    all.sort_by(f64::total_cmp);
    Ok(Round {
        per_second: commands / took.as_secs_f64(),
        p50_us: all[all.len() / 2],
        p99_us: all[all.len() * 99 / 100],
        kib_per_command: (bytes_written() - written) as f64 / 1024.0 / commands,
        cpu_us_per_command: (cpu_us() - cpu) as f64 / commands,
    })
}

/// One caller: calls until the round is over; the microseconds of each call.
fn caller(contender: &dyn Contender, batch: usize, barrier: &Barrier) -> Result<Vec<f64>, String> {
    let mut spans = Vec::new();
    barrier.wait();
    let end = Instant::now() + ROUND;
    loop {
        let commands: Vec<Command> = (0..batch).map(|_| Command::fresh()).collect();
        let start = Instant::now();
        if start >= end && !spans.is_empty() {
            return Ok(spans);
        }
        contender.run(&commands).map_err(|error| error.to_string())?;
        spans.push(start.elapsed().as_secs_f64() * 1e6);
    }
}

/// A single caller, call by call, with criterion's statistics.
fn parts(criterion: &mut Criterion, dir: &Path) -> Done<()> {
    for batch in [1_usize, 64] {
        let mut group = criterion.benchmark_group(format!("one caller, {batch} a call"));
        group
            .sample_size(20)
            .warm_up_time(Duration::from_millis(300))
            .measurement_time(Duration::from_secs(2));
        for who in ALL {
            let path = dir.join("part");
            let contender = who.open(&path)?;
            load(&*contender, 1_000)?;
            group.bench_function(BenchmarkId::from_parameter(who.name()), |bencher| {
                bencher.iter_batched(
                    || (0..batch).map(|_| Command::fresh()).collect::<Vec<_>>(),
                    |commands| assert!(contender.run(&commands).is_ok(), "a fresh command was not run"),
                    criterion::BatchSize::SmallInput,
                );
            });
            drop(contender);
            std::fs::remove_file(&path)?;
        }
        group.finish();
    }
    Ok(())
}
