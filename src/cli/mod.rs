//! The command line: ingest a file, run a program, look at a store, decide what nobody knows. Owns words,
//! exit codes and output; uses the public API only, as any other program would.

mod args;
mod columns;
mod exit;
mod ingest;
mod line;
mod look;
mod members;
mod output;
mod post;
mod records;
mod report;
mod resolve;
mod rows;
mod run;
mod span;
mod verify;
mod work;
mod workers;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser;

use self::args::{Args, Command};
use self::exit::{Exit, Failure};

/// Runs one command line, its program name first, and says how it ended.
pub fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let words: Vec<OsString> = args.into_iter().collect();
    let is_run = words.get(1).is_some_and(|word| word == "run");
    let args = match Args::try_parse_from(words) {
        Ok(args) => args,
        Err(asked) => {
            // Help goes to standard output, a fault to standard error; neither can be told to a closed pipe.
            let _ = asked.print();
            return match (asked.use_stderr(), is_run) {
                (false, _) => Exit::Well.into(),
                // All small codes are those of the program that it runs.
                (true, true) => ExitCode::from(run::FAILED),
                (true, false) => Exit::Usage.into(),
            };
        }
    };
    let ended = match &args.command {
        Command::Run(args) => return run::run(args),
        Command::Ingest(args) => ingest::run(args),
        Command::Get(args) => look::get(args),
        Command::Status(args) => look::status(args),
        Command::List(args) => look::list(args),
        Command::History(args) => resolve::history(args),
        Command::Resolve(args) => resolve::resolve(args),
        Command::Cancel(args) => resolve::cancel(args),
        Command::Outbox(args) => post::outbox(&args.what),
        Command::Inbox(args) => post::inbox(&args.what),
        Command::Stats(args) => look::stats(args),
        Command::Verify(args) => verify::run(args),
    };
    ended.unwrap_or_else(Failure::tell).into()
}
