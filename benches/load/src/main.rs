//! The load program of onecho: the same commands on onecho and on what one would pick instead, in one run, on
//! one disk. `../README.md` says how it measures and how to read it.

mod child;
mod choice;
mod command;
mod contender;
mod disk;
mod drive;
mod execute;
mod footprint;
mod goals;
mod growth;
mod lookup;
mod many;
mod measure;
mod mixed;
mod open;
mod peers;
mod replay;
mod run;
mod table;
mod writes;

use std::time::{Duration, Instant};

use contender::{Done, Who};
use disk::RunDir;
use measure::{machine, others_percent};
use run::Run;
use table::{note, progress};

type Cell = (&'static str, &'static str, fn(&Run) -> Done<()>);

const CELLS: [Cell; 8] = [
    ("execute", "fresh commands at 1, 2, 8 and 64 callers, ids that grow", execute::growing),
    ("execute-random", "fresh commands at 1 and 64 callers, random ids", execute::random),
    ("many", "many commands a call", many::cells),
    ("mixed", "nine retries a fresh command, 8 and 64 callers", mixed::cells),
    ("replay", "lookups of finished commands, maps in memory beside", replay::cells),
    ("growth", "64 callers from 10,000 to 1,000,000 records", growth::cells),
    ("open", "opening after a close and after a kill", open::cells),
    ("footprint", "memory and size of a program", footprint::cells),
];

const USAGE: &str = "\
onecho-load [CELL...] [--quick] [--rounds N] [--stores A,B] [--callers N,M] [--records N,M]

Without a cell all of them, one after the other. Tables go to standard output, progress to standard error.
  --quick      one short round at 10,000 records at most: whether it runs, not how fast
  --rounds N   rounds of each contender; a figure is their median (default 3)
  --stores     only these: onecho, redb, sqlite, fjall, lmdb, rocksdb
  --callers    only these numbers of callers, of those that a cell has
  --records    only these sizes, of those that a cell has
ONECHO_BENCH_DIR names a directory on the disk to measure; default: the build's own.

Cells:";

fn main() -> Done<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.first().map(String::as_str) {
        Some(child::CHILD) => child::main(&arguments[1..]),
        Some("--help" | "-h") => {
            println!("{USAGE}");
            for (name, what, _) in CELLS {
                println!("  {name:<15}{what}");
            }
            Ok(())
        }
        _ => measure(&arguments),
    }
}

fn measure(arguments: &[String]) -> Done<()> {
    let (run, wanted) = parsed(arguments)?;
    let begun = Instant::now();
    note(&format!(
        "{}. Median of {} rounds of {} ms, contenders taking turns{}.",
        machine(),
        run.rounds,
        run.round.as_millis(),
        if run.is_quick { "; quick: these are no figures" } else { "" }
    ));
    for (name, _, cell) in CELLS {
        if wanted.is_empty() || wanted.iter().any(|wanted| wanted == name) {
            let started = Instant::now();
            cell(&run)?;
            let others = others_percent();
            if !others.is_nan() {
                note(&format!("In the rounds of `{name}` others used {others:.0} % of one processor."));
            }
            progress(&format!("{name} took {} s", started.elapsed().as_secs()));
        }
    }
    goals::print(&run.figures);
    progress(&format!("all of it took {} s", begun.elapsed().as_secs()));
    Ok(())
}

fn parsed(arguments: &[String]) -> Done<(Run, Vec<String>)> {
    let mut run = Run {
        dir: RunDir::new()?,
        rounds: 3,
        round: Duration::from_millis(500),
        is_quick: false,
        stores: Vec::new(),
        callers: Vec::new(),
        records: Vec::new(),
        figures: goals::Figures::default(),
    };
    let mut wanted = Vec::new();
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or_else(|| format!("{argument} needs a value"));
        match argument.as_str() {
            "--quick" => {
                run.is_quick = true;
                run.rounds = 1;
                run.round = Duration::from_millis(150);
            }
            "--rounds" => run.rounds = value()?.parse::<usize>()?.max(1),
            "--stores" => run.stores = list(value()?)?,
            "--callers" => run.callers = list(value()?)?,
            "--records" => run.records = list(value()?)?,
            cell if CELLS.iter().any(|(name, ..)| *name == cell) => wanted.push(cell.to_owned()),
            other => return Err(format!("`{other}` is no cell and no option; --help lists both").into()),
        }
    }
    if let Some(unknown) = run.stores.iter().find(|store| Who::ALL.iter().all(|who| who.store() != *store)) {
        return Err(format!("`{unknown}` is no store of this build").into());
    }
    Ok((run, wanted))
}

fn list<T: std::str::FromStr>(text: &str) -> Result<Vec<T>, T::Err> {
    text.split(',').map(str::parse).collect()
}
