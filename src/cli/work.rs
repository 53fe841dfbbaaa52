//! The words for work that reaches outside: run it, look at it, decide about it. Owns their spelling and
//! help; must not know what they do.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args as ClapArgs, Subcommand, ValueEnum};

use super::args::At;
use super::exit::EXIT_CODES;
use super::span;

/// The exit codes of `run`; `docs/cli.md` lists them in these words.
pub(super) const RUN_CODES: &str = "\
Exit codes: that of COMMAND, run now or replayed (128+N if signal N killed it), or
  121  the key belongs to another command, environment or standard input; nothing was run
  122  the key is being run, or the store is in use, and --wait is over; nothing was run
  123  an earlier run was cut off and nobody knows what it did; nothing was run, see `resolve`
  124  the key has expired: it ran once; nothing was run
  125  onecho failed: arguments, the store, a result that could not be recorded
  126  COMMAND cannot be run; the key is free
  127  COMMAND was not found; the key is free
Each end of 121 to 127 that is onecho's own is told by a last line that begins with `error:`";

/// Run a program at most once per key, and answer a second run with its output and exit code
///
/// The first run records what COMMAND wrote and how it ended, whatever its exit code; a second one runs
/// nothing, writes the same to standard output and standard error, says on standard error that it is a
/// replay, and exits the same. Killed half-way, the key is unknown until somebody resolves it. The store
/// is made where there is none.
#[derive(Debug, ClapArgs)]
pub(super) struct Run {
    #[command(flatten)]
    pub at: At,
    /// What makes two runs the same
    #[arg(long)]
    pub key: String,
    /// Whose run it is
    #[arg(long, default_value = "default")]
    pub tenant: String,
    /// Which kind of run it is
    #[arg(long, default_value = "run")]
    pub operation: String,
    /// A variable of the environment that counts as part of what is asked; may be given again
    #[arg(long = "env", value_name = "NAME")]
    pub env: Vec<String>,
    /// How long after onecho was killed its key counts as being run; from the next time the store is opened
    #[arg(long, value_name = "SPAN", default_value = "10s", value_parser = span::parse)]
    pub lease: Duration,
    /// How long to wait while the key is being run, or the store is in use
    #[arg(long, value_name = "SPAN", default_value = "1m", value_parser = span::parse)]
    pub wait: Duration,
    /// Running COMMAND again is safe: go on where a run was cut off. Both runs have to say so. An orphan of
    /// the first, which onecho's death does not end, may still run beside the second
    #[arg(long)]
    pub takeover: bool,
    /// How long output and exit code are kept for a second run; after this it is told that the key expired
    #[arg(long, value_name = "SPAN", default_value = "30d", value_parser = span::parse)]
    pub keep: Duration,
    /// How much output is kept, both streams together; 0 to 4194304. What is over is passed on only
    #[arg(long, value_name = "BYTES", default_value_t = 1 << 20,
        value_parser = clap::value_parser!(u32).range(0..=4 << 20))]
    pub output_max: u32,
    /// Give COMMAND no standard input, and read none
    #[arg(long)]
    pub no_stdin: bool,
    /// Make no store: fail where there is none, as when its disk is not mounted
    #[arg(long)]
    pub existing: bool,
    /// The program and its arguments, behind `--`
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

/// One command by its name.
#[derive(Debug, ClapArgs)]
pub(super) struct Which {
    #[command(flatten)]
    pub at: At,
    /// Whose command it is
    #[arg(long, default_value = "default")]
    pub tenant: String,
    /// Which kind of command it is
    #[arg(long, default_value = "run")]
    pub operation: String,
    /// Its key
    #[arg(long)]
    pub key: String,
}

/// Show all that the journal says of one command, oldest first
///
/// It reads the whole journal.
#[derive(Debug, ClapArgs)]
pub(super) struct History {
    #[command(flatten)]
    pub which: Which,
    /// As JSON Lines
    #[arg(long)]
    pub json: bool,
}

/// End a command that nobody knows the end of, as somebody has found out
///
/// Only a command in unknown can be resolved. While a lease lasts its owner may still finish, and what
/// it would say is better than what anybody found out: a live lease is waited for, never overridden.
/// Who opens the store has it alone, so the owner's process is gone, and the lease only counts down.
#[derive(Debug, ClapArgs)]
#[group(id = "end", required = true, multiple = false, args = ["succeeded", "failed", "not_applied"])]
pub(super) struct Resolve {
    #[command(flatten)]
    pub which: Which,
    /// It took effect and ended well, with this code (0 for a command of `run`)
    #[arg(long, value_name = "CODE")]
    pub succeeded: Option<u16>,
    /// It is over and was refused or failed, with this code
    #[arg(long, value_name = "CODE")]
    pub failed: Option<u16>,
    /// None of it happened, and none of it is under way any more: the key is free again
    #[arg(long)]
    pub not_applied: bool,
    /// What a second run is answered; for a command of `run`, its standard output
    #[arg(long, value_name = "TEXT", conflicts_with = "not_applied")]
    pub body: Option<String>,
    /// The same from a file
    #[arg(long, value_name = "FILE", conflicts_with_all = ["body", "not_applied"])]
    pub body_file: Option<PathBuf>,
    #[command(flatten)]
    pub audit: Audit,
    /// How long to wait for the end of a lease, and until nothing can arrive any more
    #[arg(long, value_name = "SPAN", default_value = "1m", value_parser = span::parse)]
    pub wait: Duration,
    /// As one JSON object
    #[arg(long)]
    pub json: bool,
}

/// Who decides, and why; both are kept in the journal.
#[derive(Debug, ClapArgs)]
pub(super) struct Audit {
    /// Why; kept in the journal, no place for secrets
    #[arg(long, value_name = "TEXT")]
    pub reason: String,
    /// Who decides; kept in the journal
    #[arg(long, value_name = "NAME")]
    pub actor: String,
}

/// Keep a command from running
///
/// A key that is free is answered as failed with code 499 from then on. A command that was begun is
/// asked to stop, and stays what it is; one that is over stays as it is.
#[derive(Debug, ClapArgs)]
pub(super) struct Cancel {
    #[command(flatten)]
    pub which: Which,
    /// Who decides; kept in the journal
    #[arg(long, value_name = "NAME")]
    pub actor: String,
    /// As one JSON object
    #[arg(long)]
    pub json: bool,
}

/// A state that `list --state` shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum State {
    /// Begun by a process that is gone; its lease still counts
    Processing,
    /// Cut off or given up; nobody knows what it did
    Unknown,
    /// Ended, well or not
    Finished,
    /// Ended, and its key is over
    Expired,
}

/// Look at messages to the outside and decide about those that nobody delivers
#[derive(Debug, ClapArgs)]
pub(super) struct Outbox {
    #[command(subcommand)]
    pub what: Post,
}

/// Look at foreign events that were accepted, and decide about jobs that nobody does
#[derive(Debug, ClapArgs)]
pub(super) struct Inbox {
    #[command(subcommand)]
    pub what: Post,
}

#[derive(Debug, Subcommand)]
pub(super) enum Post {
    /// List them, in the order in which they were made
    #[command(after_help = EXIT_CODES)]
    List(PostList),
    /// Show one, and what was done to it
    #[command(after_help = EXIT_CODES)]
    Show(PostShow),
    /// Send one again that is dead or unknown, with all its attempts before it
    #[command(after_help = EXIT_CODES)]
    Requeue(PostSettle),
    /// Never send one again that is dead or unknown
    #[command(after_help = EXIT_CODES)]
    Drop(PostDrop),
    /// Say of one that is dead or unknown that it has arrived
    #[command(after_help = EXIT_CODES)]
    Delivered(PostSettle),
}

/// A state that a message is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum PostState {
    /// Waits for its turn or its next attempt
    Waiting,
    /// An attempt was under way when its process ended
    Sending,
    /// May have arrived
    Unknown,
    /// Refused for good, or out of attempts
    Dead,
    /// Has arrived, or is done
    Delivered,
    /// Somebody decided that it is not sent
    Discarded,
}

#[derive(Debug, ClapArgs)]
pub(super) struct PostList {
    #[command(flatten)]
    pub at: At,
    /// Only those in this state; may be given again
    #[arg(long, value_enum, value_delimiter = ',')]
    pub state: Vec<PostState>,
    /// Only those of this tenant
    #[arg(long)]
    pub tenant: Option<String>,
    /// Only those to this destination
    #[arg(long, value_name = "NAME")]
    pub destination: Option<String>,
    /// Only those that were made so long ago, or longer
    #[arg(long, value_name = "SPAN", value_parser = span::parse)]
    pub older_than: Option<Duration>,
    /// At most so many
    #[arg(long)]
    pub limit: Option<u64>,
    /// As JSON Lines
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, ClapArgs)]
pub(super) struct PostShow {
    #[command(flatten)]
    pub at: At,
    /// Which one, such as 17-0
    pub id: String,
    /// As one JSON object
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, ClapArgs)]
pub(super) struct PostSettle {
    #[command(flatten)]
    pub at: At,
    /// Which one, such as 17-0
    pub id: String,
    #[command(flatten)]
    pub audit: Audit,
}

#[derive(Debug, ClapArgs)]
pub(super) struct PostDrop {
    #[command(flatten)]
    pub settle: PostSettle,
    /// Really: it is not sent any more, and its content is gone
    #[arg(long)]
    pub yes: bool,
}
