//! Who holds which claim, and for how long: in memory alone, on the monotonic clock. Owns leases and those
//! who wait for the end of a claim; must not know what a claim is for.
//!
//! The file says which token is the last one granted; a lease says whether its owner is believed to be at it.
//! A claim of this process without a lease here is over at once: its grant never reached anybody. One of an
//! earlier process is counted anew, whole, from the moment this one opened the store.

use std::sync::Arc;
use std::time::Duration;

use foldhash::HashMap;
use parking_lot::{Condvar, Mutex};

use crate::core::claim::{Open, Phase, Uptime};
use crate::core::error::{Error, ErrorKind};
use crate::core::name::ScopeDigest;

const SHARDS: usize = 64;

/// The leases of this process.
pub(crate) struct Leases {
    shards: Vec<Mutex<Shard>>,
    /// When the store stopped, on the monotonic clock.
    stopped: Mutex<Option<Duration>>,
}

#[derive(Default)]
struct Shard {
    held: HashMap<ScopeDigest, Lease>,
    waiting: HashMap<ScopeDigest, Arc<Waiting>>,
    /// Claims that have ended here; see [`Stamp`].
    ended: u64,
}

struct Lease {
    token: u64,
    /// When it is over without a heartbeat.
    until: Duration,
    /// How many guards hold it beyond that, and until when at most.
    keepers: u32,
    kept_until: Duration,
    cancel_asked: bool,
}

/// Where those sleep who wait for the end of a claim.
#[derive(Default)]
struct Waiting {
    is_over: Mutex<bool>,
    bell: Condvar,
}

/// A moment before a look at the store: who waits after it misses no end since.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stamp(u64);

/// The longest sleep without a look at the injected clock, which may be moved by hand.
const WAIT_SLICE: Duration = Duration::from_millis(250);

impl Leases {
    pub fn new() -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::new(Shard::default())).collect(),
            stopped: Mutex::new(None),
        }
    }

    fn shard(&self, scope: ScopeDigest) -> &Mutex<Shard> {
        // The digest is uniform already.
        &self.shards[usize::from(scope.0[0]) % SHARDS]
    }

    /// What is left of the lease of an open command's last claim; zero when nobody is at it.
    pub fn left(&self, scope: ScopeDigest, open: &Open, uptime: &Uptime) -> Duration {
        if open.phase != Phase::Processing {
            return Duration::ZERO;
        }
        if open.granted.epoch != uptime.now.epoch {
            return Duration::from_millis(open.lease.saturating_sub(uptime.since(open.granted)));
        }
        let now = Duration::from_millis(uptime.now.monotonic);
        let shard = self.shard(scope).lock();
        let lease = shard.held.get(&scope).filter(|lease| lease.token == open.token);
        lease.map_or(Duration::ZERO, |lease| lease.end().saturating_sub(now))
    }

    /// A claim is granted; before anybody can see that in the file.
    pub fn grant(&self, scope: ScopeDigest, token: u64, until: Duration) {
        let lease = Lease { token, until, keepers: 0, kept_until: Duration::ZERO, cancel_asked: false };
        self.shard(scope).lock().held.insert(scope, lease);
    }

    /// A claim is over, or was never granted: who waits for its end looks again.
    pub fn end(&self, scope: ScopeDigest, token: u64) {
        let mut shard = self.shard(scope).lock();
        shard.ended += 1;
        if shard.held.get(&scope).is_some_and(|lease| lease.token == token) {
            shard.held.remove(&scope);
        }
        let waiting = shard.waiting.remove(&scope);
        drop(shard);
        if let Some(waiting) = waiting {
            *waiting.is_over.lock() = true;
            waiting.bell.notify_all();
        }
    }

    /// Renews a lease. A lapsed one too, as long as nobody has taken its place.
    pub fn renew(&self, scope: ScopeDigest, token: u64, until: Duration) -> Result<(), Error> {
        self.with(scope, token, |lease| lease.until = lease.until.max(until)).ok_or_else(fence_lost)
    }

    /// One guard more keeps the lease, until `kept_until` at most.
    pub fn keep(&self, scope: ScopeDigest, token: u64, kept_until: Duration) {
        let _ = self.with(scope, token, |lease| {
            lease.keepers += 1;
            lease.kept_until = lease.kept_until.max(kept_until);
        });
    }

    /// One guard less keeps it, or none any more; it lasts until `until` then.
    pub fn let_go(&self, scope: ScopeDigest, token: u64, all: bool, until: Duration) {
        let _ = self.with(scope, token, |lease| {
            let kept = lease.keepers;
            lease.keepers = if all { 0 } else { kept.saturating_sub(1) };
            if kept > 0 && lease.keepers == 0 {
                lease.until = lease.until.max(until.min(lease.kept_until));
            }
        });
    }

    /// Whether the lease of this very claim lasts.
    pub fn lasts(&self, scope: ScopeDigest, token: u64, now: Duration) -> bool {
        self.with(scope, token, |lease| lease.end() > now).unwrap_or(false)
    }

    /// Somebody wants the command to stop.
    pub fn ask_to_cancel(&self, scope: ScopeDigest, token: u64) {
        let _ = self.with(scope, token, |lease| lease.cancel_asked = true);
    }

    pub fn is_cancel_asked(&self, scope: ScopeDigest, token: u64) -> bool {
        self.with(scope, token, |lease| lease.cancel_asked).unwrap_or(false)
    }

    fn with<R>(&self, scope: ScopeDigest, token: u64, change: impl FnOnce(&mut Lease) -> R) -> Option<R> {
        let mut shard = self.shard(scope).lock();
        shard.held.get_mut(&scope).filter(|lease| lease.token == token).map(change)
    }

    pub fn stamp(&self, scope: ScopeDigest) -> Stamp {
        Stamp(self.shard(scope).lock().ended)
    }

    /// Waits for the end of the claim that was seen after `stamp`, for `span` at most and never long: whoever
    /// waits looks again.
    pub fn wait(&self, scope: ScopeDigest, stamp: Stamp, span: Duration) {
        let waiting = {
            let mut shard = self.shard(scope).lock();
            if Stamp(shard.ended) != stamp {
                return;
            }
            Arc::clone(shard.waiting.entry(scope).or_default())
        };
        let mut is_over = waiting.is_over.lock();
        if !*is_over {
            waiting.bell.wait_for(&mut is_over, span.min(WAIT_SLICE));
        }
        drop(is_over);
        self.tidy(scope, &waiting);
    }

    /// Leaves nothing behind where nobody waits any more.
    fn tidy(&self, scope: ScopeDigest, waiting: &Arc<Waiting>) {
        let mut shard = self.shard(scope).lock();
        let is_last = Arc::strong_count(waiting) <= 2;
        if is_last && shard.waiting.get(&scope).is_some_and(|known| Arc::ptr_eq(known, waiting)) {
            shard.waiting.remove(&scope);
        }
    }

    /// The store has stopped: its owners cannot go on, and their leases stand still.
    pub fn pause(&self, now: Duration) {
        self.stopped.lock().get_or_insert(now);
    }

    /// It goes on: each lease is prolonged by the time it stood still.
    pub fn resume(&self, now: Duration) {
        let Some(stopped) = self.stopped.lock().take() else { return };
        let stood = now.saturating_sub(stopped);
        for shard in &self.shards {
            for lease in shard.lock().held.values_mut() {
                lease.until = lease.until.saturating_add(stood);
                lease.kept_until = lease.kept_until.saturating_add(stood);
            }
        }
    }
}

impl Lease {
    fn end(&self) -> Duration {
        if self.keepers > 0 { self.until.max(self.kept_until) } else { self.until }
    }
}

pub(crate) fn fence_lost() -> Error {
    Error::new(ErrorKind::FenceLost, "the claim is over or somebody else's; nothing was written")
}
