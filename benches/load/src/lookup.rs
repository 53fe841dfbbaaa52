//! How lookups are timed: alone and back to back, on requests that are built before. Owns the loop that all
//! contenders run, compiled for each, so that no dynamic call is in the figures.

use std::hint::black_box;
use std::sync::{Barrier, OnceLock};
use std::time::Instant;

use crate::command::{Asked, Command, Ids};
use crate::contender::{Done, Looks};
use crate::measure::timer_ns;

/// Lookups of one kind by one thread.
pub trait Reader {
    /// What is asked; built before, as a service has it from the client.
    type Asked: Clone;

    fn ask(&self, command: &Command) -> Done<Self::Asked>;

    /// Scope, fingerprint and time agree; the body stays where it is.
    fn judged(&mut self, asked: &Self::Asked) -> bool;

    /// The same, and the body is copied into a buffer of the reader's, which is lent.
    fn answered(&mut self, asked: &Self::Asked) -> Option<&[u8]>;

    /// As [`Reader::answered`], wherever the record is: for callers who need not count nanoseconds.
    fn answered_at_last(&mut self, asked: &Self::Asked, body: &mut Vec<u8>) -> Done<bool> {
        body.clear();
        Ok(self.answered(asked).map(|found| body.extend_from_slice(found)).is_some())
    }

    /// Brings a request into the processor's cache, where it is when it has just come from a client.
    fn heat(&self, asked: &Self::Asked) {
        black_box(asked.clone());
    }
}

/// A store's own read of one record.
pub trait Finds {
    /// What `on` makes of the body, if scope, fingerprint and time agree.
    fn find<R>(&self, asked: &Asked, on: impl FnOnce(&[u8]) -> R) -> Done<Option<R>>;
}

/// The lookups of a store that differ from another's in that read only.
pub struct Gets<F> {
    store: F,
    body: Vec<u8>,
}

impl<F: Finds> Gets<F> {
    pub fn new(store: F) -> Self {
        Self { store, body: Vec::new() }
    }
}

impl<F: Finds> Reader for Gets<F> {
    type Asked = Asked;

    fn ask(&self, command: &Command) -> Done<Asked> {
        Ok(Asked::of(command))
    }

    fn judged(&mut self, asked: &Asked) -> bool {
        matches!(self.store.find(asked, <[u8]>::len), Ok(Some(_)))
    }

    fn answered(&mut self, asked: &Asked) -> Option<&[u8]> {
        let Self { store, body } = self;
        body.clear();
        let found = store.find(asked, |found| body.extend_from_slice(found));
        matches!(found, Ok(Some(()))).then_some(&self.body[..])
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
    /// Nanoseconds a lookup, of each row of lookups.
    pub row_ns: Vec<f64>,
    /// Lookups that were not answered.
    pub missed: u64,
    /// Nanoseconds that building a request took, of each row of requests.
    pub ask_ns: Vec<f64>,
}

/// Lookups that are timed together.
const ROW: usize = 32;

pub fn time<R: Reader>(reader: &mut R, plan: &Plan) -> Done<Looked> {
    let commands: Vec<Command> =
        plan.numbers.iter().map(|number| Command::numbered(u64::from(*number), plan.ids)).collect();
    let mut asked = Vec::with_capacity(commands.len());
    let mut ask_ns = Vec::new();
    for row in commands.chunks(ROW) {
        let begun = Instant::now();
        for command in row {
            asked.push(reader.ask(command)?);
        }
        ask_ns.push(begun.elapsed().as_nanos() as f64 / row.len() as f64);
    }
    check(reader, &commands, &asked)?;
    drop(commands);
    // What building and checking have left in the caches is not what a service finds there.
    evict();
    let mut looked = Looked { ask_ns, ..Looked::default() };
    plan.start.wait();
    match plan.way {
        Way::Judged => each(reader, &asked, &mut looked, Reader::judged),
        Way::Answered => {
            each(reader, &asked, &mut looked, |reader, asked| black_box(reader.answered(asked)).is_some());
        }
    }
    Ok(looked)
}

/// Some answers are compared with what was recorded, so that nobody is fast and wrong.
fn check<R: Reader>(reader: &mut R, commands: &[Command], asked: &[R::Asked]) -> Done<()> {
    let mut body = Vec::new();
    for (command, asked) in commands.iter().zip(asked).step_by(commands.len() / 64 + 1) {
        if !reader.answered_at_last(asked, &mut body)? || !command.is_answered_by(&body) {
            return Err(format!("the command under {} was answered wrongly", command.key).into());
        }
        if reader.answered(asked).is_some_and(|body| !command.is_answered_by(body)) {
            return Err(format!("the command under {} was answered wrongly from memory", command.key).into());
        }
    }
    Ok(())
}

/// Larger than the caches of the processors this is run on.
const EVICTING: usize = 64 << 20;

/// Reads through so much memory that nothing else is left in the processor's caches.
fn evict() {
    static BYTES: OnceLock<Vec<u8>> = OnceLock::new();
    let bytes = BYTES.get_or_init(|| vec![1; EVICTING]);
    black_box(bytes.iter().step_by(64).fold(0_u8, |sum, byte| sum.wrapping_add(*byte)));
}

/// Half of them in rows, half alone; requests are heated right before, and nobody is charged for it.
fn each<R: Reader>(
    reader: &mut R,
    asked: &[R::Asked],
    looked: &mut Looked,
    mut look: impl FnMut(&mut R, &R::Asked) -> bool,
) {
    let (in_rows, alone) = asked.split_at(asked.len() / 2);
    let timer = timer_ns();
    for row in in_rows.chunks_exact(ROW) {
        for asked in row {
            reader.heat(asked);
        }
        let begun = Instant::now();
        let mut missed = 0;
        for one in row {
            missed += u64::from(!look(reader, black_box(one)));
        }
        let span = begun.elapsed().as_nanos() as f64;
        looked.row_ns.push((span - timer).max(0.0) / ROW as f64);
        looked.missed += missed;
    }
    for one in alone {
        reader.heat(one);
        let begun = Instant::now();
        let is_answered = look(reader, black_box(one));
        let span = begun.elapsed().as_nanos() as f64;
        looked.alone_ns.push((span - timer).max(0.0));
        looked.missed += u64::from(!is_answered);
    }
}
