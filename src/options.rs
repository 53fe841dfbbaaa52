//! Settings with documented defaults and bounds, checked together on opening. Every limit has its name here.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::core::error::Error;
use crate::core::name::{NAME_BYTES_MAX, Operation, Scope, ScopeMode, checked};
use crate::core::policy::Policy;
use crate::db::commit::CommitMode;
use crate::engine::clock::{Clock, SystemClock};
use crate::engine::queue::Size;
use crate::engine::settings::{Authority, Settings};

const MIB: usize = 1024 * 1024;

/// Settings with documented defaults and bounds, checked together on opening.
///
/// ```
/// use onecho::{Operation, Options, Policy};
/// const CREATE_ORDER: Operation = Operation::new("create-order");
/// let options = Options::new()
///     .cache_bytes(16 << 20)
///     .owner("edge-7")
///     .operation(&CREATE_ORDER, Policy::new());
/// # let _ = options;
/// ```
#[derive(Clone)]
#[must_use]
pub struct Options(Settings);

impl Options {
    /// The defaults, for a service. Memory is, at most: [`Options::cache_bytes`] (64 MiB),
    /// [`Options::replay_bytes`] (16 MiB), [`Options::late_bytes`] (16 MiB), [`Options::filter_bytes`]
    /// (4 MiB), what waits for the writer, as it was made and as it will stand in the file (each
    /// [`Options::queue_bytes_max`], 64 MiB), one batch of it ([`Options::batch_bytes_max`], 8 MiB, or one
    /// larger command) as it is written, and for each closure that runs what it has read and staged (8 MiB
    /// each, and one value of at most 4 MiB).
    pub fn new() -> Self {
        Self(Settings {
            number: 0,
            policies: HashMap::new(),
            default_policy: Policy::new(),
            scope_mode: ScopeMode::PerOperation,
            commit_mode: CommitMode::TwoPhase,
            cache_bytes: 64 * MIB,
            replay_bytes: 16 * MIB,
            late_bytes: 16 * MIB,
            filter_bytes: 4 * MIB,
            queue_max: Size { commands: 4096, bytes: 64 * MIB },
            batch: Size { commands: 512, bytes: 8 * MIB },
            rerun_max: 16,
            open_max: 65_536,
            check_at_open_max: 64 << 20,
            strict_open: false,
            reserve_bytes: 1 << 20,
            clock: Arc::new(SystemClock::new()),
            clock_jump_max: Duration::from_secs(7 * 24 * 3600),
            clock_settle: Duration::from_secs(600),
            owner: Arc::from("onecho"),
            authority: None,
            owns_nothing: false,
        })
    }

    /// For a device: small batches, and of what [`Options::new`] lists 2 MiB, 512 KiB, 512 KiB, 256 KiB, 4
    /// MiB and 1 MiB. What the closures that run read and stage comes on top, as much as they read and stage.
    ///
    /// An allocator that keeps what each thread gave back, as glibc's does, keeps it for each thread that
    /// calls: eight callers at once have 21 MiB, with `MALLOC_ARENA_MAX=1` in the environment 10. A store
    /// that was written with more `late_bytes` has as much in memory until the first commit has merged it.
    pub fn small_device() -> Self {
        Self::new()
            .cache_bytes(2 * MIB)
            .replay_bytes(MIB / 2)
            .late_bytes(MIB / 2)
            .filter_bytes(MIB / 4)
            .queue_max(256)
            .queue_bytes_max(4 * MIB)
            .batch_max(64)
            .batch_bytes_max(MIB)
    }

    /// What holds for one operation.
    pub fn operation(mut self, operation: &Operation, policy: Policy) -> Self {
        self.0.policies.insert(operation.clone(), policy);
        self
    }

    /// What holds for operations that are not named.
    pub fn default_policy(mut self, policy: Policy) -> Self {
        self.0.default_policy = policy;
        self
    }

    /// What makes two commands the same. Fixed when the file is created; opening it with another mode is an
    /// error.
    pub fn scope_mode(mut self, mode: ScopeMode) -> Self {
        self.0.scope_mode = mode;
        self
    }

    /// How a commit reaches the disk. Default: [`CommitMode::TwoPhase`].
    pub fn commit_mode(mut self, mode: CommitMode) -> Self {
        self.0.commit_mode = mode;
        self
    }

    /// Memory for pages of the file, in bytes. 256 KiB to 16 GiB; default 64 MiB.
    pub fn cache_bytes(mut self, bytes: usize) -> Self {
        self.0.cache_bytes = bytes;
        self
    }

    /// Memory for finished records that are replayed without a look at the file, in bytes; 0 turns it off. At
    /// most 16 GiB; default 16 MiB, some 16,000 records.
    pub fn replay_bytes(mut self, bytes: usize) -> Self {
        self.0.replay_bytes = bytes;
        self
    }

    /// Memory for what is committed and not yet merged into the file's tables, in bytes: the more, the fewer
    /// pages are rewritten for each command, and the more of the journal the next open reads (about six times
    /// as much). 0 merges everything with the next commit. At most 1 GiB; default 16 MiB.
    pub fn late_bytes(mut self, bytes: usize) -> Self {
        self.0.late_bytes = bytes;
        self
    }

    /// Memory for a filter over all keys and resources, in bytes: it tells a fresh one without a look at the
    /// file. Ten bits for each of them make it right 99 times of 100; with fewer it spares less. 0 turns it
    /// off. At most 1 GiB; default 4 MiB.
    pub fn filter_bytes(mut self, bytes: usize) -> Self {
        self.0.filter_bytes = bytes;
        self
    }

    /// Commands that may wait for the writer; when it is full, a call is answered `Refused` after its wait. 1
    /// to 1,000,000; default 4,096.
    pub fn queue_max(mut self, commands: usize) -> Self {
        self.0.queue_max.commands = commands;
        self
    }

    /// Bytes of outcomes and effects that may wait for the writer, as [`Options::queue_max`] bounds their
    /// number. A command that is larger waits until nothing else does. 64 KiB to 16 GiB; default 64 MiB.
    pub fn queue_bytes_max(mut self, bytes: usize) -> Self {
        self.0.queue_max.bytes = bytes;
        self
    }

    /// Commands that one commit takes. 1 to 65,536; default 512.
    pub fn batch_max(mut self, commands: usize) -> Self {
        self.0.batch.commands = commands;
        self
    }

    /// Bytes of outcomes and effects that one commit takes, give or take its last command; a larger command
    /// is a commit of its own. 64 KiB to 1 GiB; default 8 MiB.
    pub fn batch_bytes_max(mut self, bytes: usize) -> Self {
        self.0.batch.bytes = bytes;
        self
    }

    /// How often a closure is called again because rows have changed under it, before `Conflict`. At most
    /// 1,000; default 16.
    pub fn rerun_max(mut self, reruns: u32) -> Self {
        self.0.rerun_max = reruns;
        self
    }

    /// Commands that may be begun and not finished, those in `Unknown` included: none of them is ever given
    /// up for another, so that when there are so many a further `begin` is `Refused`. 1 to 1,000,000; default
    /// 65,536.
    pub fn open_max(mut self, commands: usize) -> Self {
        self.0.open_max = commands as u64;
        self
    }

    /// Up to this size of the file every open checks all of it. Above it, each commit saves what makes the
    /// open after a kill short, and a thread checks the file once it is open: until that has ended,
    /// `Stats::checked` says so, and a damaged tree may make a key look absent. In bytes; default 64 MiB.
    pub fn check_at_open_max(mut self, bytes: u64) -> Self {
        self.0.check_at_open_max = bytes;
        self
    }

    /// Checks the whole file on opening, whatever its size. Default: off.
    pub fn strict_open(mut self, strict: bool) -> Self {
        self.0.strict_open = strict;
        self
    }

    /// Room kept back in a file beside the store, in bytes, given up when the disk is full so that the store
    /// can be opened, read and finish what it began; new commands are refused until there is room for it
    /// again, and as much beside it. 0 keeps none: on a full disk each new command then stops the store. Less
    /// than 256 KiB may be too little to open with. At most 1 GiB; default 1 MiB.
    pub fn reserve_bytes(mut self, bytes: u64) -> Self {
        self.0.reserve_bytes = bytes;
        self
    }

    /// Where time comes from. Default: the operating system.
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.0.clock = Arc::new(clock);
        self
    }

    /// The longest jump forward of the wall clock, at opening or against the monotonic clock, that is
    /// believed at once. After a longer one nothing expires until it has kept step for
    /// [`Options::clock_settle`]. Default: 7 days.
    pub fn clock_jump_max(mut self, jump: Duration) -> Self {
        self.0.clock_jump_max = jump;
        self
    }

    /// How long a clock that has jumped must keep step with the monotonic one before it is believed. Default:
    /// 10 min.
    pub fn clock_settle(mut self, settle: Duration) -> Self {
        self.0.clock_settle = settle;
        self
    }

    /// A label of this store, kept with what it writes and shown to callers who wait. At most 128 bytes; no
    /// secret. Default: `onecho`.
    pub fn owner(mut self, label: &str) -> Self {
        self.0.owner = Arc::from(label);
        self
    }

    /// Which store decides about a scope; asked before anything runs. It may only narrow what the file
    /// says: a tenant that was handed over stays so, whatever this answers. Default: this one.
    pub fn authority(mut self, of: impl Fn(&Scope) -> Authority + Send + Sync + 'static) -> Self {
        self.0.authority = Some(Arc::new(of));
        self
    }

    /// Makes a new file that decides about no tenant until one is handed to it ([`Store::import`]): for every
    /// region but the first. Fixed when the file is created; a file that was created without it is not opened
    /// with it. Default: a new file decides about all.
    ///
    /// ```
    /// # use onecho::{testing::SimDisk, *};
    /// # let key = Key::parse("k-1")?;
    /// let store = SimDisk::seeded(1).open(Options::new().owner("south").owns_nothing())?;
    /// let request = Request::new(&Tenant::new("shop"), &Operation::new("pay"), &key).bytes("body", "5");
    /// let reply = store.execute(&request, |_| unreachable!())?;
    /// assert!(matches!(reply, Reply::Refused(Refused::NotAuthoritative { .. })));
    /// # Ok::<(), BoxError>(())
    /// ```
    ///
    /// [`Store::import`]: crate::Store::import
    pub fn owns_nothing(mut self) -> Self {
        self.0.owns_nothing = true;
        self
    }

    /// The settings, checked together.
    pub(crate) fn into_settings(self) -> Result<Settings, Error> {
        let mut settings = self.0;
        checked("owner label", &settings.owner, NAME_BYTES_MAX)?;
        settings.default_policy.check("operations not named")?;
        for (operation, policy) in &settings.policies {
            policy.check(operation.as_str())?;
        }
        within("cache_bytes", settings.cache_bytes as u64, 256 << 10, 16 << 30)?;
        within("replay_bytes", settings.replay_bytes as u64, 0, 16 << 30)?;
        within("late_bytes", settings.late_bytes as u64, 0, 1 << 30)?;
        within("filter_bytes", settings.filter_bytes as u64, 0, 1 << 30)?;
        within("queue_max", settings.queue_max.commands as u64, 1, 1_000_000)?;
        within("queue_bytes_max", settings.queue_max.bytes as u64, 64 << 10, 16 << 30)?;
        within("batch_max", settings.batch.commands as u64, 1, 65_536)?;
        within("batch_bytes_max", settings.batch.bytes as u64, 64 << 10, 1 << 30)?;
        within("rerun_max", u64::from(settings.rerun_max), 0, 1_000)?;
        within("open_max", settings.open_max, 1, 1_000_000)?;
        within("reserve_bytes", settings.reserve_bytes, 0, 1 << 30)?;
        settings.number = OPENED.fetch_add(1, Ordering::Relaxed);
        Ok(settings)
    }
}

/// How many settings were used to open a store.
static OPENED: AtomicU64 = AtomicU64::new(1);

fn within(name: &str, value: u64, min: u64, max: u64) -> Result<(), Error> {
    if (min..=max).contains(&value) {
        return Ok(());
    }
    Err(Error::invalid(format!("`{name}` is {value}; it may be {min} to {max}")))
}

impl Default for Options {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("owner", &self.0.owner)
            .field("scope_mode", &self.0.scope_mode)
            .field("commit_mode", &self.0.commit_mode)
            .field("policies", &self.0.policies.len())
            .finish_non_exhaustive()
    }
}
