//! The command line: ingest a file, look at a store. Owns words, exit codes and output; uses the public API
//! only, as any other program would.

mod args;
mod columns;
mod exit;
mod ingest;
mod line;
mod look;
mod members;
mod output;
mod report;
mod rows;
mod verify;
mod workers;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser;

use self::args::{Args, Command};
use self::exit::{Exit, Failure};

/// Runs one command line, its program name first, and says how it ended.
pub fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let args = match Args::try_parse_from(args) {
        Ok(args) => args,
        Err(asked) => {
            // Help goes to standard output, a fault to standard error; neither can be told to a closed pipe.
            let _ = asked.print();
            return if asked.use_stderr() { Exit::Usage } else { Exit::Well }.into();
        }
    };
    let ended = match &args.command {
        Command::Ingest(args) => ingest::run(args),
        Command::Get(args) => look::get(args),
        Command::Status(args) => look::status(args),
        Command::List(args) => look::list(args),
        Command::Stats(args) => look::stats(args),
        Command::Verify(args) => verify::run(args),
    };
    ended.unwrap_or_else(Failure::tell).into()
}
