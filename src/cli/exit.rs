//! How a run ends. Owns the exit codes and the one line that a person is told.

use std::fmt;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use crate::{Error, ErrorKind};

/// The exit codes; `--help` and `docs/cli.md` list them in these words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Exit {
    Well = 0,
    /// The run came to its end, and something in it was not as asked.
    Partly = 1,
    Usage = 2,
    NotOpened = 3,
    Stopped = 4,
    InputOutput = 5,
}

/// What `--help` says of them.
pub(super) const EXIT_CODES: &str = "\
Exit codes:
  0  all well: every row executed or replayed; found; clean; decided
  1  done, but: rows were neither executed nor replayed (bad, mismatch, duplicate, error and
     so on); not found; values that cannot be shown; not clean; nothing was decided
  2  the arguments or the input's header are wrong, or the output cannot be opened; no row was run
  3  the store could not be opened or read (`verify` of a damaged file, too); it was left as it is
  4  the store stopped on the way (disk full or failed, file damaged): see to it, then run the
     same command again to go on
  5  input or output failed on the way: run the same command again (with --append) to go on
`run` has codes of its own: see `onecho run --help`";

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// Why a run ended early, and with which code.
#[derive(Debug)]
pub(super) struct Failure {
    exit: Exit,
    text: String,
}

impl Failure {
    pub fn new(exit: Exit, text: impl Into<String>) -> Self {
        Self { exit, text: text.into() }
    }

    pub fn usage(text: impl fmt::Display) -> Self {
        Self::new(Exit::Usage, text.to_string())
    }

    /// A file beside the store that cannot be read or written.
    pub fn file(path: &Path, what: &str, fault: &io::Error) -> Self {
        Self::new(Exit::InputOutput, format!("{}: {what}: {fault}", input_name(path)))
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    /// Tells it, in one line, and gives the exit code.
    pub fn tell(self) -> Exit {
        say(&format!("error: {}", one_line(&self.text)));
        self.exit
    }
}

/// A store that could not be read, or does not decide.
impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let is_elsewhere = error.kind() == ErrorKind::NotAuthoritative;
        Self::new(if is_elsewhere { Exit::Partly } else { Exit::NotOpened }, error.to_string())
    }
}

/// Why a store refused what another decides about.
pub(super) fn decides_elsewhere(owner: &str) -> String {
    if owner.is_empty() {
        "this store does not decide about the tenant yet".to_owned()
    } else {
        format!("the store {owner} decides about the tenant")
    }
}

/// What an input is called; `-` is standard input.
pub(super) fn input_name(path: &Path) -> String {
    if path == Path::new("-") { "standard input".to_owned() } else { path.display().to_string() }
}

/// Names and paths come from outside and may hold line ends.
fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// One line on standard error, if anybody listens.
pub(super) fn say(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}
