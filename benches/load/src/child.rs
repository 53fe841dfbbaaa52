//! Parts of a run that need a process of their own: one that is killed, one whose memory is looked at. Owns
//! what the child does and how it is started and read.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command as Process, Stdio};
use std::time::Duration;

use crate::choice::{Choice, Keys};
use crate::command::{Command, Ids, start_at};
use crate::contender::{Contender, Done, Profile, Who};
use crate::drive::{Caller, Until, drive};
use crate::measure::{Memory, memory};
use crate::writes::Fresh;

/// The first argument of a child.
pub const CHILD: &str = "--child";

const IDS: Ids = Ids::Growing;
const CALLERS: usize = 8;

/// What a child was told on its command line.
struct Told {
    what: String,
    who: Who,
    dir: String,
    /// Where its fresh commands begin.
    start: u64,
    records: u64,
    is_small: bool,
}

impl Told {
    fn read(arguments: &[String]) -> Option<Self> {
        let [what, who, dir, start, records, profile] = arguments else { return None };
        Some(Self {
            what: what.clone(),
            who: Who::named(who)?,
            dir: dir.clone(),
            start: start.parse().ok()?,
            records: records.parse().ok()?,
            is_small: profile == "small",
        })
    }
}

pub fn main(arguments: &[String]) -> Done<()> {
    let told = Told::read(arguments).ok_or("this is for the program itself")?;
    start_at(told.start);
    let profile = if told.is_small { Profile::Small } else { Profile::Default };
    let store = told.who.open(Path::new(&told.dir), profile)?;
    if told.what == "kill" { write_until_killed(&*store) } else { use_memory(&*store, told.records) }
}

/// Prints the number of each command once it is acknowledged.
struct Telling<'s>(Fresh<'s>);

impl Caller for Telling<'_> {
    type Kept = ();

    fn prepare(&mut self) -> Done<()> {
        self.0.prepare()
    }

    fn call(&mut self) -> Done<()> {
        let number = self.0.call()?;
        let mut out = std::io::stdout().lock();
        writeln!(out, "{number}")?;
        Ok(out.flush()?)
    }
}

fn write_until_killed(store: &dyn Contender) -> Done<()> {
    // Should nobody kill it, it ends.
    let length = Until::Time(Duration::from_secs(60));
    drive(CALLERS, length, |_| Ok(Telling(Fresh::new(store, 1, IDS))))?;
    Ok(())
}

/// Says how much memory it has after opening, after lookups all over the store, and after fresh commands.
fn use_memory(store: &dyn Contender, records: u64) -> Done<()> {
    tell(memory());
    let choice = Choice::new(Keys::Uniform, records);
    let (mut looks, mut body) = (store.looks()?, Vec::new());
    for step in 0..records.min(200_000) {
        let command = Command::numbered(u64::from(choice.at(step)), IDS);
        if !looks.look(&command, &mut body)? || !command.is_answered_by(&body) {
            return Err(format!("the command under {} was answered wrongly", command.key).into());
        }
    }
    tell(memory());
    drive(CALLERS, Until::Time(Duration::from_secs(2)), |_| Ok(Fresh::new(store, 1, IDS)))?;
    tell(memory());
    Ok(())
}

fn tell(memory: Memory) {
    println!("{} {} {}", memory.anonymous, memory.resident, memory.highest);
}

fn start(
    what: &str,
    who: Who,
    dir: &Path,
    numbers: (u64, u64),
    is_small: bool,
) -> Done<(Child, ChildStdout)> {
    let mut child = Process::new(std::env::current_exe()?)
        .args([CHILD, what, who.name()])
        .arg(dir)
        .args([numbers.0.to_string(), numbers.1.to_string()])
        .arg(if is_small { "small" } else { "default" })
        .stdout(Stdio::piped())
        .spawn()?;
    let out = child.stdout.take().ok_or("a child without output")?;
    Ok((child, out))
}

/// Starts a writer on the store in `dir`, kills it amid its commits, and gives the numbers of the commands
/// that it had acknowledged.
pub fn killed(who: Who, dir: &Path, first: u64) -> Done<Vec<u64>> {
    const ENOUGH: usize = 200;
    let (mut child, out) = start("kill", who, dir, (first, 0), false)?;
    let mut acknowledged = Vec::new();
    for line in BufReader::new(out).lines() {
        // The last line of a killed process may be cut off.
        let Ok(number) = line?.parse::<u64>() else { continue };
        acknowledged.push(number);
        if acknowledged.len() == ENOUGH {
            child.kill()?;
        }
    }
    child.wait()?;
    // A number that was cut off reads as a smaller one.
    acknowledged.retain(|number| *number >= first);
    if acknowledged.len() < ENOUGH {
        return Err(format!("the writer on {} ended by itself", who.name()).into());
    }
    Ok(acknowledged)
}

/// Memory of a process with the store in `dir`: after opening, after lookups, after fresh commands.
pub fn footprint(who: Who, dir: &Path, records: u64, is_small: bool) -> Done<Vec<Memory>> {
    let (mut child, out) = start("memory", who, dir, (1 << 41, records), is_small)?;
    let mut told = Vec::new();
    for line in BufReader::new(out).lines() {
        let numbers: Vec<u64> = line?.split(' ').filter_map(|number| number.parse().ok()).collect();
        if let [anonymous, resident, highest] = numbers[..] {
            told.push(Memory { anonymous, resident, highest });
        }
    }
    if child.wait()?.success() && told.len() == 3 {
        return Ok(told);
    }
    Err(format!("the child with {} failed", who.name()).into())
}
