//! How lookups are timed: alone and back to back, on requests that are built before. Owns the loop that all
//! contenders run, compiled for each, so that no dynamic call is in the figures.

use std::hint::black_box;
use std::sync::Barrier;
use std::time::Instant;

use crate::command::{Command, Ids};
use crate::contender::{Done, Looks};
use crate::measure::timer_ns;

/// Lookups of one kind by one thread.
pub trait Reader {
    /// What is asked; built before, as a service has it from the client.
    type Asked: Clone;

    fn ask(&self, command: &Command) -> Done<Self::Asked>;

    /// Scope, fingerprint and time agree; the body stays where it is.
    fn judged(&mut self, asked: &Self::Asked) -> bool;

    /// The same, and the body is copied into `body`.
    fn answered(&mut self, asked: &Self::Asked, body: &mut Vec<u8>) -> bool;

    /// As [`Reader::answered`], wherever the record is: for callers who need not count nanoseconds.
    fn answered_at_last(&mut self, asked: &Self::Asked, body: &mut Vec<u8>) -> Done<bool> {
        Ok(self.answered(asked, body))
    }
}

impl<R: Reader> Looks for R {
    fn look(&mut self, command: &Command, body: &mut Vec<u8>) -> Done<bool> {
        let asked = self.ask(command)?;
        self.answered_at_last(&asked, body)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Judged,
    Answered,
}

impl Way {
    pub fn name(self) -> &'static str {
        match self {
            Self::Judged => "judged",
            Self::Answered => "answered",
        }
    }
}

/// What one thread looks up.
pub struct Plan<'p> {
    pub way: Way,
    pub ids: Ids,
    /// Which records, in this order.
    pub numbers: &'p [u32],
    /// Everybody begins together.
    pub start: &'p Barrier,
}

/// What it came to.
#[derive(Default)]
pub struct Looked {
    /// Nanoseconds of each lookup timed alone, less the timer.
    pub alone_ns: Vec<f64>,
    /// Nanoseconds a lookup, of many in a row.
    pub row_ns: f64,
    /// Lookups that were not answered.
    pub missed: u64,
    /// Nanoseconds that building a request took.
    pub ask_ns: f64,
}

/// Lookups that are timed together.
const ROW: usize = 32;

pub fn time<R: Reader>(reader: &mut R, plan: &Plan) -> Done<Looked> {
    let commands: Vec<Command> =
        plan.numbers.iter().map(|number| Command::numbered(u64::from(*number), plan.ids)).collect();
    let begun = Instant::now();
    let asked = commands.iter().map(|command| reader.ask(command)).collect::<Done<Vec<_>>>()?;
    let ask_ns = begun.elapsed().as_nanos() as f64 / asked.len().max(1) as f64;
    let mut body = Vec::with_capacity(1024);
    check(reader, &commands, &asked, &mut body)?;
    drop(commands);
    let mut looked = Looked { ask_ns, ..Looked::default() };
    plan.start.wait();
    match plan.way {
        Way::Judged => each(&asked, &mut looked, |asked| reader.judged(asked)),
        Way::Answered => each(&asked, &mut looked, |asked| reader.answered(asked, &mut body)),
    }
    Ok(looked)
}

/// Some answers are compared with what was recorded, so that nobody is fast and wrong.
fn check<R: Reader>(
    reader: &mut R,
    commands: &[Command],
    asked: &[R::Asked],
    body: &mut Vec<u8>,
) -> Done<()> {
    for (command, asked) in commands.iter().zip(asked).step_by(commands.len() / 64 + 1) {
        body.clear();
        if !reader.answered_at_last(asked, body)? || !command.is_answered_by(body) {
            return Err(format!("the command under {} was answered wrongly", command.key).into());
        }
    }
    Ok(())
}

/// Half of them in rows, half alone. A clone made right before brings the request into the cache, as it is when
/// it has just been read from a socket; nobody is charged for it.
fn each<A: Clone>(asked: &[A], looked: &mut Looked, mut look: impl FnMut(&A) -> bool) {
    let (in_rows, alone) = asked.split_at(asked.len() / 2);
    let timer = timer_ns();
    let (mut total_ns, mut count) = (0.0, 0);
    for row in in_rows.chunks_exact(ROW) {
        black_box(row.to_vec());
        let begun = Instant::now();
        let mut missed = 0;
        for one in row {
            missed += u64::from(!look(black_box(one)));
        }
        total_ns += (begun.elapsed().as_nanos() as f64 - timer).max(0.0);
        count += ROW;
        looked.missed += missed;
    }
    looked.row_ns = total_ns / f64::from(u32::try_from(count.max(1)).unwrap_or(u32::MAX));
    for one in alone {
        black_box(one.clone());
        let begun = Instant::now();
        let is_answered = look(black_box(one));
        let span = begun.elapsed().as_nanos() as f64;
        looked.alone_ns.push((span - timer).max(0.0));
        looked.missed += u64::from(!is_answered);
    }
}
