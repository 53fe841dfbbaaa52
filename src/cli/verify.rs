//! Reads the whole file and tells what does not agree. Repairs nothing.

use serde::Serialize;

use super::args::Verify;
use super::exit::{Exit, Failure};
use super::output::{json, print};
use super::report::bar;
use crate::{Error, ErrorKind, Store, VerifyReport};

/// What `verify --json` prints.
#[derive(Serialize)]
struct Verdict<'v> {
    clean: bool,
    #[serde(flatten)]
    counts: Option<Counts>,
    faults: &'v [String],
}

/// What was read; absent where the file could not be read to its end.
#[derive(Serialize)]
struct Counts {
    entries: u64,
    records: u64,
    rows: u64,
    duplicate_effects: u64,
}

pub(super) fn run(args: &Verify) -> Result<Exit, Failure> {
    // Without the check at the open, the storage engine may panic on a damaged page.
    let store = match Store::open(&args.at.db, args.at.options().strict_open(true)) {
        Ok(store) => store,
        Err(error) if error.kind() == ErrorKind::Corrupt => return unreadable(args, error),
        Err(error) => return Err(args.at.unopened(&error)),
    };
    let bar = bar(Some(0), "{bar:32} {percent:>3}%  {pos} of {len} checks  {elapsed}");
    let report = store.verify_with(|done, total| {
        bar.set_length(total);
        bar.set_position(done);
    });
    bar.finish_and_clear();
    let report = match report {
        Err(error) if error.kind() == ErrorKind::Corrupt => return unreadable(args, error),
        report => report?,
    };
    let VerifyReport { entries, records, rows, duplicate_effects, ref faults, .. } = report;
    let clean = report.is_clean();
    tell(args.json, clean, Some(Counts { entries, records, rows, duplicate_effects }), faults)?;
    if clean {
        return Ok(Exit::Well);
    }
    Err(Failure::new(
        Exit::Partly,
        format!(
            "{} does not agree with itself in {} places; keep the file and restore from a backup",
            args.at.db.display(),
            faults.len()
        ),
    ))
}

/// A file that is too damaged to be read is a finding, and told as one.
fn unreadable(args: &Verify, error: Error) -> Result<Exit, Failure> {
    tell(args.json, false, None, &[error.to_string()])?;
    Err(error.into())
}

fn tell(as_json: bool, clean: bool, counts: Option<Counts>, faults: &[String]) -> Result<(), Failure> {
    if as_json {
        return print(&json(&Verdict { clean, counts, faults })).map(|_| ());
    }
    for fault in faults {
        print(fault)?;
    }
    let verdict = if clean { "clean" } else { "NOT CLEAN" };
    print(&match counts {
        Some(Counts { entries, records, rows, .. }) => {
            format!("{verdict}: {entries} entries, {records} records, {rows} rows")
        }
        None => format!("{verdict}: the file cannot be read to its end"),
    })
    .map(|_| ())
}
