//! What both benches share: the command, plain redb as its user would call it, a real disk, and medians.
//!
//! Each bench compiles this for itself and uses a part of it.

#![allow(dead_code, reason = "each bench uses a part")]

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use onecho::{BoxError, CommitMode, Effects, Key, Kind, Operation, Options, Outcome, Request, Store, Tenant};
use redb::{ReadableDatabase, ReadableTable, TableDefinition};
use sha2::{Digest, Sha256};
use tempfile::TempDir;

use self::ram::is_ram;

mod ram;

pub type Done<T> = Result<T, BoxError>;

pub const OUTCOME: &[u8; 512] = &[0x5A; 512];
pub const RESOURCE: &[u8; 200] = &[0xA5; 200];
const REQUEST: &[u8; 200] = &[0x33; 200];
const OPERATION: Operation = Operation::new("create-order");
const ORDERS: Kind<onecho::Bytes> = Kind::raw("order");

/// One command: a client's random key, and an id that grows.
pub struct Command {
    key: String,
    id: String,
}

static MADE: AtomicU64 = AtomicU64::new(0);

impl Command {
    /// A command with a key and an id that no other has: 36 bytes each.
    pub fn fresh() -> Self {
        Self::numbered(MADE.fetch_add(1, Ordering::Relaxed))
    }

    /// A command that no other has, of those with a number from `first` on.
    pub fn fresh_beyond(first: u64) -> Self {
        Self::numbered(first + MADE.fetch_add(1, Ordering::Relaxed))
    }

    /// The same command for the same number.
    pub fn numbered(number: u64) -> Self {
        let (high, low) = (mixed(number), mixed(!number));
        let key = format!(
            "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
            high >> 32,
            (high >> 16) & 0xFFFF,
            high & 0xFFFF,
            low >> 48,
            low & 0xFFFF_FFFF_FFFF
        );
        Self { key, id: format!("{number:036}") }
    }

    pub fn request(&self) -> Done<Request> {
        Ok(Request::new(&Tenant::new("shop"), &OPERATION, &Key::parse(&self.key)?).bytes("body", REQUEST))
    }

    /// What its closure does.
    pub fn effects(&self, fx: &mut Effects<'_, '_>) -> Result<Outcome, BoxError> {
        let made = fx.create(&ORDERS, &self.id, &onecho::Bytes::from_static(RESOURCE))?;
        Ok(Outcome::succeeded(201).body(onecho::Bytes::from_static(OUTCOME)).resource(&made))
    }
}

/// A number that looks random and meets no other's (the finalizer of `SplitMix64`, a bijection).
pub fn mixed(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// Whatever runs commands durably, several of one call in one commit.
pub trait Contender: Sync {
    fn run(&self, commands: &[Command]) -> Done<()>;
}

impl Contender for Store {
    fn run(&self, commands: &[Command]) -> Done<()> {
        if let [command] = commands {
            let reply = self.execute(&command.request()?, |fx| command.effects(fx))?;
            return ran(&reply);
        }
        let requests =
            commands.iter().map(|command| Ok((command.request()?, command))).collect::<Done<Vec<_>>>()?;
        for reply in self.execute_many(&requests, |command, fx| command.effects(fx)) {
            ran(&reply?)?;
        }
        Ok(())
    }
}

fn ran(reply: &onecho::Reply) -> Done<()> {
    match reply {
        onecho::Reply::Done(_) => Ok(()),
        other => Err(format!("a fresh command was answered {other:?}").into()),
    }
}

/// The records of plain redb: tenant, operation and key -> fingerprint, code and body.
const RECORDS: TableDefinition<&[u8], &[u8]> = TableDefinition::new("record");
const ROWS: TableDefinition<&[u8], &[u8]> = TableDefinition::new("row");

/// Plain redb: a table of records under the full key, a table of rows, one transaction a call.
pub struct Plain {
    database: redb::Database,
    mode: CommitMode,
}

impl Plain {
    pub fn open(path: &Path, mode: CommitMode) -> Done<Self> {
        let database = redb::Database::create(path)?;
        let write = database.begin_write()?;
        write.open_table(RECORDS)?;
        write.open_table(ROWS)?;
        write.commit()?;
        Ok(Self { database, mode })
    }

    /// As [`Plain::replay`], without a look at the body.
    pub fn judge(&self, key: &[u8], fingerprint: [u8; 32]) -> Done<bool> {
        let records = self.database.begin_read()?.open_table(RECORDS)?;
        let Some(stored) = records.get(key)? else { return Ok(false) };
        Ok(stored.value().first_chunk::<32>() == Some(&fingerprint))
    }

    /// Looks a record up as a retry does; true if it is there and its fingerprint agrees. Copies the body.
    pub fn replay(&self, key: &[u8], fingerprint: [u8; 32], body: &mut Vec<u8>) -> Done<bool> {
        let records = self.database.begin_read()?.open_table(RECORDS)?;
        let Some(stored) = records.get(key)? else { return Ok(false) };
        let Some((known, rest)) = stored.value().split_first_chunk::<32>() else { return Ok(false) };
        body.clear();
        body.extend_from_slice(&rest[2..]);
        Ok(*known == fingerprint)
    }
}

impl Contender for Plain {
    fn run(&self, commands: &[Command]) -> Done<()> {
        let mut write = self.database.begin_write()?;
        write.set_two_phase_commit(self.mode == CommitMode::TwoPhase);
        {
            let mut records = write.open_table(RECORDS)?;
            let mut rows = write.open_table(ROWS)?;
            for command in commands {
                let key = full_key(command);
                if records.get(key.as_slice())?.is_some() {
                    return Err("a fresh command was there already".into());
                }
                let value = [fingerprint().as_slice(), &201_u16.to_be_bytes(), OUTCOME].concat();
                records.insert(key.as_slice(), value.as_slice())?;
                rows.insert(
                    [b"shop\0order\0", command.id.as_bytes()].concat().as_slice(),
                    RESOURCE.as_slice(),
                )?;
            }
        }
        Ok(write.commit()?)
    }
}

pub fn full_key(command: &Command) -> Vec<u8> {
    [b"shop\0create-order\0", command.key.as_bytes()].concat()
}

pub fn fingerprint() -> [u8; 32] {
    Sha256::digest(REQUEST).into()
}

/// Who is measured.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Who {
    pub is_onecho: bool,
    pub mode: CommitMode,
}

pub const ONECHO: Who = Who { is_onecho: true, mode: CommitMode::TwoPhase };
pub const ONECHO_ONE: Who = Who { is_onecho: true, mode: CommitMode::OnePhase };
pub const PLAIN: Who = Who { is_onecho: false, mode: CommitMode::OnePhase };
pub const PLAIN_TWO: Who = Who { is_onecho: false, mode: CommitMode::TwoPhase };
pub const ALL: [Who; 4] = [ONECHO, ONECHO_ONE, PLAIN, PLAIN_TWO];

impl Who {
    pub fn name(self) -> String {
        let phases = if self.mode == CommitMode::TwoPhase { "two-phase" } else { "one-phase" };
        format!("{} {phases}", if self.is_onecho { "onecho" } else { "plain redb" })
    }

    pub fn open(self, path: &Path) -> Done<Box<dyn Contender>> {
        Ok(if self.is_onecho {
            let store = Store::open_or_create(path, Options::new().commit_mode(self.mode))?;
            // What opening leaves to be done is another figure.
            while !store.stats().checked {
                std::thread::park_timeout(Duration::from_millis(10));
            }
            Box::new(store)
        } else {
            Box::new(Plain::open(path, self.mode)?)
        })
    }
}

/// Loads so many fresh commands, in large commits.
pub fn load(contender: &dyn Contender, records: u64) -> Done<()> {
    let mut left = records;
    while left > 0 {
        let commands: Vec<Command> = (0..left.min(512)).map(|_| Command::fresh()).collect();
        contender.run(&commands)?;
        left -= commands.len() as u64;
    }
    Ok(())
}

/// A directory on a real disk: `ONECHO_BENCH_DIR`, else the build's own. On a RAM disk a sync costs nothing,
/// and every figure here would be about something else.
pub fn real_disk() -> Done<TempDir> {
    let parent = std::env::var_os("ONECHO_BENCH_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_TARGET_TMPDIR")), PathBuf::from);
    std::fs::create_dir_all(&parent)?;
    if is_ram(&parent)? {
        let text = format!(
            "{} is on a RAM disk, where syncs are free; set ONECHO_BENCH_DIR to a directory of a real disk",
            parent.display()
        );
        return Err(text.into());
    }
    Ok(TempDir::new_in(parent)?)
}

/// A synced copy, so that every round begins with the same file and no write of the copy falls into it.
pub fn copied(from: &Path, to: &Path) -> Done<()> {
    std::fs::copy(from, to)?;
    Ok(std::fs::File::open(to)?.sync_all()?)
}

/// Bytes that this process has handed to the system to write; 0 where that is not told.
pub fn bytes_written() -> u64 {
    let text = std::fs::read_to_string("/proc/self/io").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("wchar: "));
    line.and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// Processor time of this process so far, in microseconds, in steps of 10 ms; 0 where that is not told.
pub fn cpu_us() -> u64 {
    const USER_TIME: usize = 11;
    const TICK_US: u64 = 10_000;
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let numbers = text.rsplit_once(')').map_or("", |(_, rest)| rest);
    numbers
        .split_whitespace()
        .skip(USER_TIME)
        .take(2)
        .filter_map(|ticks| ticks.parse::<u64>().ok())
        .sum::<u64>()
        * TICK_US
}

pub fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers.get(numbers.len() / 2).copied().unwrap_or(f64::NAN)
}

pub fn timed<R>(work: impl FnOnce() -> R) -> (R, Duration) {
    let start = Instant::now();
    let done = work();
    (done, start.elapsed())
}

/// Whether the tables are wanted: `cargo bench` runs this, and no argument asks criterion for one part only.
pub fn is_measured() -> bool {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    arguments == ["--bench"]
}
