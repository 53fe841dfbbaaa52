//! A file of rows into a store. Owns the order: input, store, output, workers, summary; what can be wrong
//! with the arguments is found out before a store or an output is made.

use std::fs::File;
use std::io;
use std::path::Path;

use super::args::{Format, Ingest};
use super::columns::Columns;
use super::exit::{Exit, Failure, input_name, say};
use super::output::{Output, is_same, is_stdout, print};
use super::report::Report;
use super::rows::Rows;
use super::workers::{Crew, Target};
use crate::{Kind, Operation, Store, Tenant};

pub(super) fn run(args: &Ingest) -> Result<Exit, Failure> {
    let target = Target {
        tenant: Tenant::parse(&args.tenant).map_err(Failure::usage)?,
        operation: Operation::parse(&args.operation).map_err(Failure::usage)?,
        kind: Kind::parse(&args.kind).map_err(Failure::usage)?,
    };
    let format = format(args)?;
    let (mut rows, bytes) = input(&args.input, format)?;
    let columns = Columns::of(&mut rows, format, args)?;
    let output = args.output.as_deref();
    output.map_or(Ok(()), |path| check_output(path, args))?;
    let store =
        Store::open_or_create(&args.at.db, args.at.options()).map_err(|error| args.at.unopened(&error))?;
    let output = output.map(|path| Output::open(path, args.append)).transpose()?;

    let report = Report::new(output, bytes);
    let crew = Crew::new(&store, target, columns, rows, &args.input, &report);
    let stopped = crew.work(args.jobs).err();
    let closed = store.close();
    let (tally, took) = report.end();
    say(&tally.text(took));
    if args.json {
        print(&tally.json(took, stopped.as_ref()))?;
    }
    if let Some(stopped) = stopped {
        return Err(stopped);
    }
    // Every row was durable before; what failed is only the mark that spares the next open its checks.
    if let Err(error) = closed {
        say(&format!("note: {error}"));
    }
    Ok(if tally.is_well() { Exit::Well } else { Exit::Partly })
}

fn check_output(path: &Path, args: &Ingest) -> Result<(), Failure> {
    if is_stdout(path) && args.json {
        return Err(Failure::usage(
            "`--output -` and `--json` both write to standard output; name a file, or leave `--json` out",
        ));
    }
    for (other, what) in [(&args.at.db, "the store"), (&args.input, "the input")] {
        if !is_stdout(path) && is_same(path, other) {
            let name = path.display();
            return Err(Failure::usage(format!("{name} is {what}; name another file for `--output`")));
        }
    }
    Output::check(path, args.append)
}

fn format(args: &Ingest) -> Result<Format, Failure> {
    if let Some(format) = args.format {
        return Ok(format);
    }
    let ending = args.input.extension().and_then(|ending| ending.to_str()).map(str::to_ascii_lowercase);
    match ending.as_deref() {
        Some("csv") => Ok(Format::Csv),
        Some("jsonl" | "ndjson") => Ok(Format::Jsonl),
        _ => Err(Failure::usage(format!(
            "the ending of {} tells no format; say `--format csv` or `--format jsonl`",
            input_name(&args.input)
        ))),
    }
}

/// The records of the input, and its length where that is known.
fn input(path: &Path, format: Format) -> Result<(Rows, Option<u64>), Failure> {
    if path == Path::new("-") {
        return Ok((Rows::new(io::stdin(), format), None));
    }
    let failed = |fault: io::Error| Failure::usage(format!("{} cannot be read: {fault}", path.display()));
    let file = File::open(path).map_err(failed)?;
    let found = file.metadata().map_err(failed)?;
    if found.is_dir() {
        return Err(Failure::usage(format!("{} is a directory; give a file of rows", path.display())));
    }
    let bytes = found.is_file().then_some(found.len());
    Ok((Rows::new(file, format), bytes))
}
