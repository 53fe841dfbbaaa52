//! Threads that take rows, ask the store, and hand answers on. Owns when a row is asked again, and when all
//! of them stop.
//!
//! A row is always asked again under its own key. Memory holds one row a thread, however long the input is:
//! a thread takes its next row when it is done with the last.

use std::path::Path;
use std::thread;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::columns::{Columns, Row};
use super::exit::{Exit, Failure};
use super::line::RowLine;
use super::report::Report;
use super::rows::Rows;
use crate::{Advice, Bytes, Error, ErrorKind, Kind, Operation, Outcome, Reply, Request, Store, Tenant};

/// How often one row is asked before the last answer counts.
const ASKS_MAX: u32 = 32;
/// How often a run opens its store again before it gives up.
const REOPENS_MAX: u32 = 8;
/// Between two tries to open the store again.
const REOPEN_PAUSE: Duration = Duration::from_millis(200);
/// The longest pause before a row is asked again.
const ASK_PAUSE_MAX: Duration = Duration::from_secs(1);

/// What each row becomes.
pub(super) struct Target {
    pub tenant: Tenant,
    pub operation: Operation,
    pub kind: Kind<Bytes>,
}

/// The threads of one run and what they share.
pub(super) struct Crew<'r> {
    store: &'r Store,
    target: Target,
    columns: Columns,
    rows: Mutex<Rows>,
    input: &'r Path,
    report: &'r Report,
    /// How often the store was opened again.
    reopens: Mutex<u32>,
    halt: Halt,
}

impl<'r> Crew<'r> {
    pub fn new(
        store: &'r Store,
        target: Target,
        columns: Columns,
        rows: Rows,
        input: &'r Path,
        report: &'r Report,
    ) -> Self {
        let rows = Mutex::new(rows);
        Self { store, target, columns, rows, input, report, reopens: Mutex::new(0), halt: Halt::default() }
    }

    /// Works through the rows on `jobs` threads, this one among them; returns what stopped the run, if
    /// anything did.
    pub fn work(&self, jobs: u16) -> Result<(), Failure> {
        thread::scope(|scope| {
            for _ in 1..jobs {
                // A thread that cannot be had is one job less; this one does the work in any case.
                if thread::Builder::new().spawn_scoped(scope, || self.one_after_another()).is_err() {
                    break;
                }
            }
            self.one_after_another();
        });
        self.halt.why.lock().take().map_or(Ok(()), Err)
    }

    fn one_after_another(&self) {
        while !self.halt.is_called() {
            let (record, bytes_read) = {
                let mut rows = self.rows.lock();
                (rows.next(), rows.bytes_read())
            };
            let record = match record {
                Ok(Some(record)) => record,
                Ok(None) => return,
                Err(fault) => {
                    return self.halt.call(Failure::file(self.input, "cannot be read on", &fault));
                }
            };
            let row = record.text.and_then(|text| self.columns.row(record.line, &text));
            let answer = match row {
                Ok(row) => self.ask(record.line, &row),
                Err(why) => Some(RowLine::bad(record.line, why)),
            };
            let Some(answer) = answer else {
                return;
            };
            if let Err(failure) = self.report.take(&answer, bytes_read) {
                return self.halt.call(failure);
            }
        }
    }

    /// Asks until the answer is final; `None` when the run is over.
    fn ask(&self, line: u64, row: &Row) -> Option<RowLine> {
        let Target { tenant, operation, kind } = &self.target;
        let request = Request::new(tenant, operation, &row.key).json("row", &row.value);
        let mut last = None;
        for _ in 0..ASKS_MAX {
            if self.halt.is_called() {
                return None;
            }
            let reopens = *self.reopens.lock();
            let asked = self.store.execute(&request, |effects| {
                let made = effects.create(kind, &row.id, &row.value)?;
                Ok(Outcome::succeeded(201).resource(&made))
            });
            match asked {
                Ok(Reply::Refused(_)) if self.store.stats().disk_full => {
                    self.halt.call(full(self.store));
                    return None;
                }
                Ok(reply) => match reply.advice() {
                    Advice::RetrySameKey { after } => {
                        last = Some(reply);
                        self.halt.pause(after.min(ASK_PAUSE_MAX));
                    }
                    _ => return Some(RowLine::reply(line, row.key.as_str(), reply)),
                },
                Err(error) if matches!(error.kind(), ErrorKind::CommitUncertain | ErrorKind::Unavailable) => {
                    self.reopen(reopens, error);
                }
                Err(error) if matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Closed) => {
                    self.halt.call(Failure::new(Exit::Stopped, error.to_string()));
                    return None;
                }
                Err(error) => return Some(RowLine::error(line, row.key.as_str(), error.to_string())),
            }
        }
        last.map(|reply| RowLine::reply(line, row.key.as_str(), reply))
    }

    /// Opens a stopped store again, once for all threads that met the stop; halts the run when it stays
    /// stopped.
    fn reopen(&self, seen: u32, mut error: Error) {
        let mut reopens = self.reopens.lock();
        if *reopens != seen {
            return;
        }
        while *reopens < REOPENS_MAX && !self.halt.is_called() {
            *reopens += 1;
            match self.store.reopen() {
                Ok(()) => return,
                Err(failed) => error = failed,
            }
            if error.kind() != ErrorKind::Unavailable {
                break;
            }
            self.halt.pause(REOPEN_PAUSE);
        }
        let text = format!(
            "{error}; what is done is kept; the disk may be full or failing: see to it, then run the same \
             command again to go on"
        );
        self.halt.call(Failure::new(Exit::Stopped, text));
    }
}

fn full(store: &Store) -> Failure {
    let text = format!(
        "the disk is full; what is done ({} rows in the store) is kept: make room, then run the same command \
         again to go on",
        store.stats().executed
    );
    Failure::new(Exit::Stopped, text)
}

/// The end of a run before its input's.
#[derive(Default)]
struct Halt {
    why: Mutex<Option<Failure>>,
    called: Condvar,
}

impl Halt {
    /// Ends the run; the first to call says why.
    fn call(&self, why: Failure) {
        self.why.lock().get_or_insert(why);
        self.called.notify_all();
    }

    fn is_called(&self) -> bool {
        self.why.lock().is_some()
    }

    /// Waits so long, or until the run ends.
    fn pause(&self, span: Duration) {
        let mut why = self.why.lock();
        if why.is_none() {
            self.called.wait_for(&mut why, span);
        }
    }
}
