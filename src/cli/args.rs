//! The words of the command line. Owns their spelling and help; must not know what they do.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args as ClapArgs, Parser, Subcommand, ValueEnum};

use super::exit::{EXIT_CODES, Exit, Failure};
use super::span;
use super::work::{Cancel, History, Inbox, Outbox, RUN_CODES, Resolve, Run, State};
use crate::{Error, ErrorKind, Options, ScopeMode, Store};

/// Runs a program, or each row of a file, at most once per key; looks at what is stored, and decides.
#[derive(Debug, Parser)]
#[command(name = "onecho", version, after_help = EXIT_CODES)]
pub(super) struct Args {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    #[command(after_help = EXIT_CODES)]
    Ingest(Ingest),
    #[command(after_help = RUN_CODES)]
    Run(Box<Run>),
    #[command(after_help = EXIT_CODES)]
    Get(Get),
    #[command(after_help = EXIT_CODES)]
    Status(Status),
    #[command(after_help = EXIT_CODES)]
    List(List),
    #[command(after_help = EXIT_CODES)]
    History(History),
    #[command(after_help = EXIT_CODES)]
    Resolve(Resolve),
    #[command(after_help = EXIT_CODES)]
    Cancel(Cancel),
    Outbox(Outbox),
    Inbox(Inbox),
    #[command(after_help = EXIT_CODES)]
    Stats(Stats),
    #[command(after_help = EXIT_CODES)]
    Verify(Verify),
}

/// Where the store is.
#[derive(Debug, ClapArgs)]
pub(super) struct At {
    /// The store's file
    #[arg(long, value_name = "FILE")]
    pub db: PathBuf,
    /// What makes two commands the same; fixed when the file is made
    #[arg(long, value_enum, default_value = "per-operation")]
    pub scope_mode: Mode,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum Mode {
    /// Tenant, operation and key
    PerOperation,
    /// Tenant and key
    PerTenant,
}

impl At {
    pub fn options(&self) -> Options {
        Options::new().owner("onecho-cli").scope_mode(match self.scope_mode {
            Mode::PerOperation => ScopeMode::PerOperation,
            Mode::PerTenant => ScopeMode::PerTenant,
        })
    }

    /// Opens a store that exists.
    pub fn open(&self) -> Result<Store, Failure> {
        Store::open(&self.db, self.options()).map_err(|error| self.unopened(&error))
    }

    /// What a person is told of a store that was not opened, in the words of this program's options.
    pub fn unopened(&self, error: &Error) -> Failure {
        let db = self.db.display();
        let text = match error.kind() {
            ErrorKind::Missing => format!(
                "{db} or its directory does not exist; check the path and the mount (only `ingest` and \
                 `run` make a new store, and no directory)"
            ),
            ErrorKind::ScopeMode => {
                let other = match self.scope_mode {
                    Mode::PerOperation => "per-tenant",
                    Mode::PerTenant => "per-operation",
                };
                format!("{db} was made with `--scope-mode {other}`, and that is fixed: say so here too")
            }
            _ => error.to_string(),
        };
        Failure::new(Exit::NotOpened, text)
    }
}

/// Run each row of a CSV or JSON Lines file as one command that makes one resource
///
/// Rows that have run before are replayed, so the same command line goes on where a killed or stopped run
/// ended. Only this subcommand makes a store that is not there.
#[derive(Debug, ClapArgs)]
#[group(id = "keys", required = true, multiple = false, args = ["key", "key_line"])]
pub(super) struct Ingest {
    #[command(flatten)]
    pub at: At,
    /// Whose rows they are
    #[arg(long)]
    pub tenant: String,
    /// Which kind of command each row is
    #[arg(long)]
    pub operation: String,
    /// The column (CSV) or member (JSON Lines) that is the row's key
    #[arg(long, value_name = "COLUMN")]
    pub key: Option<String>,
    /// Key a row by its line: `line-<number>`, counted from 1, the header included
    #[arg(long)]
    pub key_line: bool,
    /// The kind of resource a row becomes
    #[arg(long, default_value = "row")]
    pub kind: String,
    /// The column or member that is the resource's id; default: the key
    #[arg(long, value_name = "COLUMN")]
    pub id: Option<String>,
    /// Rows under way at once
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub jobs: u16,
    /// Write one JSON line a row, each after its row is durable; `-` is standard output
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Go on at the end of an output that has lines already
    #[arg(long, requires = "output")]
    pub append: bool,
    /// The input's format; default: by its ending (.csv; .jsonl, .ndjson)
    #[arg(long, value_enum)]
    pub format: Option<Format>,
    /// The summary as JSON on standard output
    #[arg(long)]
    pub json: bool,
    /// The file of rows; `-` is standard input
    pub input: PathBuf,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// Comma-separated, quoted after RFC 4180, the first record names the columns
    Csv,
    /// One JSON value a line
    Jsonl,
}

/// Show one resource
#[derive(Debug, ClapArgs)]
pub(super) struct Get {
    #[command(flatten)]
    pub at: At,
    /// Whose resource it is
    #[arg(long)]
    pub tenant: String,
    /// Its kind
    #[arg(long)]
    pub kind: String,
    /// Its id
    #[arg(long)]
    pub id: String,
    /// The kind is shared by all tenants
    #[arg(long)]
    pub shared: bool,
    /// As one JSON object
    #[arg(long)]
    pub json: bool,
}

/// Show what became of one command
#[derive(Debug, ClapArgs)]
pub(super) struct Status {
    #[command(flatten)]
    pub at: At,
    /// Whose command it is
    #[arg(long)]
    pub tenant: String,
    /// Which kind of command it is
    #[arg(long)]
    pub operation: String,
    /// Its key
    #[arg(long)]
    pub key: String,
    /// As one JSON object
    #[arg(long)]
    pub json: bool,
}

/// List resources of one kind, in ascending order of their ids, or commands by their state
#[derive(Debug, ClapArgs)]
#[group(id = "what", required = true, multiple = false, args = ["kind", "state"])]
pub(super) struct List {
    #[command(flatten)]
    pub at: At,
    /// Whose resources they are; of commands, only those of this tenant
    #[arg(long, required_unless_present = "state")]
    pub tenant: Option<String>,
    /// Resources of this kind
    #[arg(long)]
    pub kind: Option<String>,
    /// Only ids that begin with this
    #[arg(long, conflicts_with = "state")]
    pub prefix: Option<String>,
    /// Commands in this state; may be given again, or with commas
    #[arg(long, value_enum, value_delimiter = ',')]
    pub state: Vec<State>,
    /// Only commands of this kind
    #[arg(long, requires = "state")]
    pub operation: Option<String>,
    /// Only commands with this key
    #[arg(long, requires = "state")]
    pub key: Option<String>,
    /// Only commands that have been in their state, or were begun, so long ago
    #[arg(long, value_name = "SPAN", value_parser = span::parse, requires = "state")]
    pub older_than: Option<Duration>,
    /// At most so many
    #[arg(long)]
    pub limit: Option<u64>,
    /// The kind is shared by all tenants
    #[arg(long, conflicts_with = "state")]
    pub shared: bool,
    /// As JSON Lines, with values
    #[arg(long)]
    pub json: bool,
}

/// Show what the store holds
#[derive(Debug, ClapArgs)]
pub(super) struct Stats {
    #[command(flatten)]
    pub at: At,
    /// As one JSON object
    #[arg(long)]
    pub json: bool,
}

/// Read the whole file and tell what does not agree
#[derive(Debug, ClapArgs)]
pub(super) struct Verify {
    #[command(flatten)]
    pub at: At,
    /// As one JSON object
    #[arg(long)]
    pub json: bool,
}
