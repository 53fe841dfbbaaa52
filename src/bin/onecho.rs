//! The command line. Everything is in the library's `cli`.

use std::process::ExitCode;

fn main() -> ExitCode {
    onecho::cli::run(std::env::args_os())
}
