//! What a person and a machine are told of an ingest: progress, faults, counts. Owns the tally.

use std::fmt::Write as _;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use parking_lot::Mutex;
use serde::Serialize;

use super::exit::{Failure, say};
use super::line::{RowLine, Told};
use super::output::Output;

/// Rows that are told one by one on standard error; the others are in the output.
const TOLD_MAX: u64 = 20;

/// Takes answers from many threads.
pub(super) struct Report {
    desk: Mutex<Desk>,
    bar: ProgressBar,
    start: Instant,
}

struct Desk {
    tally: Tally,
    output: Option<Output>,
    told: u64,
    bytes_read: u64,
}

/// How many rows ended how.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct Tally {
    pub rows: u64,
    pub executed: u64,
    pub replayed: u64,
    pub mismatched: u64,
    pub duplicate: u64,
    pub in_progress: u64,
    pub unknown: u64,
    pub expired: u64,
    pub conflict: u64,
    pub refused: u64,
    pub errors: u64,
    pub bad: u64,
}

/// The summary for machines.
#[derive(Debug, Serialize)]
struct Summary<'s> {
    #[serde(flatten)]
    tally: Tally,
    seconds: f64,
    rows_per_second: f64,
    /// Why the run ended before the input did.
    #[serde(skip_serializing_if = "Option::is_none")]
    stopped: Option<&'s str>,
}

impl Report {
    /// A report with a bar over `input_bytes`, where that is known and a person is looking.
    #[expect(clippy::disallowed_methods, reason = "a summary tells rows a second, in the time of its reader")]
    pub fn new(output: Option<Output>, input_bytes: Option<u64>) -> Self {
        let desk = Desk { tally: Tally::default(), output, told: 0, bytes_read: 0 };
        let bar = bar(input_bytes, "{bar:32} {percent:>3}%  {msg}  {elapsed}");
        Self { desk: Mutex::new(desk), bar, start: Instant::now() }
    }

    /// Takes one row's answer: counts it, writes its line, tells what is not as asked.
    pub fn take(&self, row: &RowLine, bytes_read: u64) -> Result<(), Failure> {
        let mut desk = self.desk.lock();
        let written = desk.output.as_mut().map_or(Ok(()), |output| output.write(row));
        desk.tally.count(row.result);
        let rows = desk.tally.rows;
        if !matches!(row.result, Told::Executed | Told::Replayed) {
            desk.told += 1;
            if desk.told <= TOLD_MAX {
                self.bar.suspend(|| say(&fault(row)));
            }
            if desk.told == TOLD_MAX + 1 {
                let each = if desk.output.is_some() {
                    "`--output` has each"
                } else {
                    "with `--output FILE` each has a line there"
                };
                let text = format!("further rows are not told one by one; {each}");
                self.bar.suspend(|| say(&text));
            }
        }
        // Rows that were read early may end late; what was read stays read.
        desk.bytes_read = desk.bytes_read.max(bytes_read);
        self.bar.set_position(desk.bytes_read);
        drop(desk);
        if !self.bar.is_hidden() {
            self.bar.set_message(format!("{rows} rows, {:.0} a second", rate(rows, self.start.elapsed())));
        }
        written
    }

    /// Ends the bar and tells the counts.
    pub fn end(&self) -> (Tally, Duration) {
        self.bar.finish_and_clear();
        (self.desk.lock().tally, self.start.elapsed())
    }
}

impl Tally {
    fn count(&mut self, result: Told) {
        self.rows += 1;
        *match result {
            Told::Executed => &mut self.executed,
            Told::Replayed => &mut self.replayed,
            Told::Mismatch => &mut self.mismatched,
            Told::Duplicate => &mut self.duplicate,
            Told::InProgress => &mut self.in_progress,
            Told::Unknown => &mut self.unknown,
            Told::Expired => &mut self.expired,
            Told::Conflict => &mut self.conflict,
            Told::Refused => &mut self.refused,
            Told::Error => &mut self.errors,
            Told::Bad => &mut self.bad,
        } += 1;
    }

    pub fn is_well(&self) -> bool {
        self.rows == self.executed + self.replayed
    }

    /// The summary for people.
    pub fn text(&self, took: Duration) -> String {
        let others = [
            ("duplicate", self.duplicate),
            ("in progress elsewhere", self.in_progress),
            ("unknown", self.unknown),
            ("expired", self.expired),
            ("in conflict", self.conflict),
            ("failed", self.errors),
        ];
        let mut text = format!(
            "{} rows in {:.1} s, {:.0} a second: {} executed, {} replayed, {} mismatched, {} refused, {} bad",
            self.rows,
            took.as_secs_f64(),
            rate(self.rows, took),
            self.executed,
            self.replayed,
            self.mismatched,
            self.refused,
            self.bad,
        );
        for (name, count) in others.iter().filter(|(_, count)| *count > 0) {
            let _ = write!(text, ", {count} {name}");
        }
        text
    }

    /// The summary for machines.
    pub fn json(&self, took: Duration, stopped: Option<&Failure>) -> String {
        super::output::json(&Summary {
            tally: *self,
            seconds: took.as_secs_f64(),
            rows_per_second: rate(self.rows, took),
            stopped: stopped.map(Failure::text),
        })
    }
}

/// A bar on standard error, if that is a terminal; a spinner where the length is unknown.
pub(super) fn bar(length: Option<u64>, template: &str) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let (bar, template) = match length {
        Some(length) => (ProgressBar::new(length), template),
        None => (ProgressBar::new_spinner(), "{spinner} {msg}"),
    };
    match ProgressStyle::with_template(template) {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

fn rate(rows: u64, took: Duration) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
    let rows = rows as f64;
    rows / took.as_secs_f64().max(0.001)
}

fn fault(row: &RowLine) -> String {
    let line = row.line;
    match row.result {
        Told::Bad => format!("line {line} is bad: {}", row.why()),
        Told::Mismatch if row.is_of_another_operation() => {
            format!("line {line}: its key was used by another operation, whose command stays as it is")
        }
        Told::Mismatch => {
            format!("line {line}: its key belongs to another row, which stays as it is{}", row.why())
        }
        Told::Duplicate => format!("line {line}: its resource exists already{}", row.why()),
        Told::Expired => format!("line {line}: its key has expired; it ran once and was not run again"),
        Told::InProgress => format!("line {line} is being run elsewhere: {}", row.why()),
        Told::Unknown => format!("line {line}: what became of its first run is being found out"),
        Told::Conflict => format!("line {line}: other writers kept changing its resource; run it again"),
        Told::Refused | Told::Error => format!("line {line} was not taken: {}", row.why()),
        Told::Executed | Told::Replayed => format!("line {line} is done"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_never_goes_back() {
        let report = Report::new(None, Some(100));
        for (line, read) in [(2, 60), (1, 30), (3, 90)] {
            report.take(&RowLine::bad(line, "bad".to_owned()), read).unwrap();
            assert_eq!(report.bar.position(), read.max(60));
        }
    }
}
