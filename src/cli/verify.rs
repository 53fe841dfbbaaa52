//! Reads the whole file and tells what does not agree. Repairs nothing.

use serde::Serialize;

use super::args::Verify;
use super::exit::{Exit, Failure, say};
use super::output::{json, print};
use super::report::bar;

/// What `verify --json` prints.
#[derive(Serialize)]
struct Verdict<'v> {
    clean: bool,
    entries: u64,
    records: u64,
    rows: u64,
    duplicate_effects: u64,
    faults: &'v [String],
}

pub(super) fn run(args: &Verify) -> Result<Exit, Failure> {
    let store = args.at.open()?;
    let bar = bar(Some(0), "{bar:32} {percent:>3}%  {pos} of {len} rows  {eta} left");
    let report = store.verify_with(|done, total| {
        bar.set_length(total);
        bar.set_position(done);
    });
    bar.finish_and_clear();
    let report = report?;
    let clean = report.is_clean();
    if args.json {
        print(&json(&Verdict {
            clean,
            entries: report.entries,
            records: report.records,
            rows: report.rows,
            duplicate_effects: report.duplicate_effects,
            faults: &report.faults,
        }))?;
    } else {
        for fault in &report.faults {
            print(fault)?;
        }
        let counts = format!("{} entries, {} records, {} rows", report.entries, report.records, report.rows);
        print(&format!("{}: {counts}", if clean { "clean" } else { "NOT CLEAN" }))?;
    }
    if !clean {
        say(&format!(
            "error: {} does not agree with itself in {} places; keep the file and restore from a backup",
            args.at.db.display(),
            report.faults.len()
        ));
        return Ok(Exit::Partly);
    }
    Ok(Exit::Well)
}
