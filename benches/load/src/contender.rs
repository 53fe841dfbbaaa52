//! What is asked of every contender, and who they are. Owns the list; must not know how any of them works.

use std::path::Path;
use std::sync::Mutex;

use crate::command::Command;
use crate::lookup::{Looked, Plan};
use crate::peers;

pub type Done<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// A store that runs commands durably and answers their retries.
pub trait Contender: Sync {
    /// Runs fresh commands, all of one call in as few commits as the store can. Durable when it returns.
    fn run(&self, commands: &[Command]) -> Done<()>;

    /// For lookups of one thread.
    fn looks(&self) -> Done<Box<dyn Looks + '_>>;

    /// One caller who does not know whether his command is fresh: looks first, then runs. True if it was a
    /// replay.
    fn serve(&self, looks: &mut dyn Looks, command: &Command, body: &mut Vec<u8>) -> Done<bool> {
        if looks.look(command, body)? {
            return Ok(true);
        }
        self.run(std::slice::from_ref(command))?;
        Ok(false)
    }

    /// Times the lookups of one thread.
    fn time(&self, plan: &Plan) -> Done<Looked>;

    /// Records and resources, counted in the store.
    fn count(&self) -> Done<(u64, u64)>;

    /// Commits since it was opened, where the store tells.
    fn commits(&self) -> Option<u64> {
        None
    }

    /// Closes it and tells how that went.
    fn close(self: Box<Self>) -> Done<()>;
}

/// Lookups of one thread, when nobody counts nanoseconds.
pub trait Looks {
    /// True if the command is known; its body is in `body` then.
    fn look(&mut self, command: &Command, body: &mut Vec<u8>) -> Done<bool>;
}

/// Who is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    OnechoOne,
    OnechoTwo,
    RedbOne,
    RedbTwo,
    Sqlite,
    Fjall,
    Lmdb,
    #[cfg(feature = "rocksdb")]
    Rocks,
}

/// What a contender may be told when it is opened. Peers keep their settings.
#[derive(Clone, Copy, Debug)]
pub enum Profile {
    /// As it comes.
    Default,
    /// The same, checked whole on opening, so that no check runs beside what is measured.
    Checked,
    /// For preparing: large commits, much cache.
    Loading,
    /// `Options::small_device`.
    Small,
    /// Room in memory for the replay of so many records; checked on opening.
    Replays(u64),
}

impl Who {
    pub const ALL: &[Self] = &[
        Self::OnechoOne,
        Self::OnechoTwo,
        Self::RedbOne,
        Self::RedbTwo,
        Self::Sqlite,
        Self::Fjall,
        Self::Lmdb,
        #[cfg(feature = "rocksdb")]
        Self::Rocks,
    ];

    /// Each store once: their reads do not depend on how they commit.
    pub const STORES: &[Self] = &[
        Self::OnechoTwo,
        Self::RedbOne,
        Self::Sqlite,
        Self::Fjall,
        Self::Lmdb,
        #[cfg(feature = "rocksdb")]
        Self::Rocks,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::OnechoOne => "onecho one-phase",
            Self::OnechoTwo => "onecho two-phase",
            Self::RedbOne => "redb one-phase",
            Self::RedbTwo => "redb two-phase",
            Self::Sqlite => "SQLite",
            Self::Fjall => "fjall",
            Self::Lmdb => "LMDB",
            #[cfg(feature = "rocksdb")]
            Self::Rocks => "RocksDB",
        }
    }

    /// Of onecho and redb: how it commits.
    pub fn phases(self) -> &'static str {
        match self {
            Self::OnechoOne | Self::RedbOne => "one",
            _ => "two",
        }
    }

    /// The store, whatever its commits: its prepared directories are the same.
    pub fn store(self) -> &'static str {
        match self {
            Self::OnechoOne | Self::OnechoTwo => "onecho",
            Self::RedbOne | Self::RedbTwo => "redb",
            Self::Sqlite => "sqlite",
            Self::Fjall => "fjall",
            Self::Lmdb => "lmdb",
            #[cfg(feature = "rocksdb")]
            Self::Rocks => "rocksdb",
        }
    }

    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|who| who.name() == name)
    }

    /// Opens or makes the store in a directory of its own.
    pub fn open(self, dir: &Path, profile: Profile) -> Done<Box<dyn Contender>> {
        std::fs::create_dir_all(dir)?;
        Ok(match self {
            Self::OnechoOne => Box::new(peers::ours::Ours::open(dir, true, profile)?),
            Self::OnechoTwo => Box::new(peers::ours::Ours::open(dir, false, profile)?),
            Self::RedbOne => Box::new(peers::redb::Redb::open(dir, false)?),
            Self::RedbTwo => Box::new(peers::redb::Redb::open(dir, true)?),
            Self::Sqlite => Box::new(peers::sqlite::Sqlite::open(dir)?),
            Self::Fjall => Box::new(peers::fjall::Fjall::open(dir)?),
            Self::Lmdb => Box::new(peers::lmdb::Lmdb::open(dir)?),
            #[cfg(feature = "rocksdb")]
            Self::Rocks => Box::new(peers::rocks::Rocks::open(dir)?),
        })
    }
}

/// Locks by key, for stores whose writes do not check what they overwrite: whoever has the stripe of a key
/// may look and then write. Cheaper than the transactions of those stores, and callers of other keys go on.
pub struct Stripes(Vec<Mutex<()>>);

impl Stripes {
    const COUNT: usize = 1024;

    pub fn new() -> Self {
        Self((0..Self::COUNT).map(|_| Mutex::new(())).collect())
    }

    /// Runs `work` while nobody else has one of these keys.
    pub fn hold<R>(&self, keys: &[Vec<u8>], work: impl FnOnce() -> R) -> Done<R> {
        let mut at: Vec<usize> = keys.iter().map(|key| Self::stripe(key)).collect();
        at.sort_unstable();
        at.dedup();
        let mut held = Vec::with_capacity(at.len());
        for stripe in at {
            held.push(self.0[stripe].lock().map_err(|_| "a caller panicked")?);
        }
        let done = work();
        drop(held);
        Ok(done)
    }

    fn stripe(key: &[u8]) -> usize {
        use std::hash::BuildHasher;
        foldhash::fast::FixedState::with_seed(7).hash_one(key) as usize % Self::COUNT
    }
}
