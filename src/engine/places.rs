//! One in-memory place per scope: of many callers of one scope one runs, the others wait for what becomes of
//! it.
//!
//! A place costs no write and proves nothing: the writer alone admits an outcome. It only keeps callers from
//! running in vain. Most meet nobody: a place is an entry in a map, and what others sleep at is made by the
//! first who waits. Owns waiting and waking; must not know what a closure does.

use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::time::Duration;

use foldhash::HashMap;

use super::clock::{Deadline, EngineClock};
use super::sync::{Condvar, Mutex};
use super::turns::Turns;
use crate::core::decide::Asked;
use crate::core::error::Error;
use crate::core::fingerprint::Match;
use crate::core::name::{ScopeDigest, Tenant};
use crate::core::outcome::ResourceRef;
use crate::core::policy::{Policy, WhileRunning};
use crate::core::record::Record;
use crate::core::reply::{Reply, Status, retry_within};
use crate::core::time::Timestamp;

const SHARDS: usize = 64;

/// The places of all scopes that are being run.
pub(crate) struct Places {
    shards: Vec<Mutex<Shard>>,
    owner: String,
    /// Of callers who lost on a row and are to run again.
    pub turns: Turns<(Tenant, ResourceRef)>,
}

#[derive(Default)]
struct Shard {
    taken: HashMap<ScopeDigest, Place>,
    /// How many places were taken here.
    begun: u64,
    /// Places that have ended here; see [`Stamp`].
    ended: u64,
}

struct Place {
    /// Tells it from the others of its shard, those before it too.
    number: u64,
    running: Running,
    /// None while nobody waits.
    bench: Option<Arc<Bench>>,
}

/// What is known of whoever is in a place.
#[derive(Clone)]
struct Running {
    asked: Arc<Asked>,
    since: Timestamp,
    /// When its time is over, on the monotonic clock.
    until: Duration,
}

/// Where those sleep who wait for the end of a place.
#[derive(Default)]
struct Bench {
    end: Mutex<Option<End>>,
    ended: Condvar,
}

/// How the runner of a place came out of it.
#[derive(Clone)]
pub(crate) enum End {
    /// The scope has an outcome.
    Finished(Arc<Record>),
    /// The scope is as it was: somebody else may run.
    Free,
    /// Nobody knows: nobody may run.
    Uncertain(Arc<Error>),
}

/// A moment before a look at the store. If no place of the shard has ended since, what the store said still
/// holds when the place is taken, and need not be read again.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stamp(u64);

/// What a caller gets who wants to run.
pub(crate) enum Entered<'p> {
    /// The place. With `stale` somebody was in it since the caller looked: look again.
    Run {
        guard: PlaceGuard<'p>,
        stale: bool,
    },
    /// An outcome came out of the place while the caller waited.
    Finished(Arc<Record>),
    Reply(Reply),
    Uncertain(Arc<Error>),
}

impl Places {
    pub fn new(owner: &str) -> Self {
        let shards = (0..SHARDS).map(|_| Mutex::new(Shard::default())).collect();
        Self { shards, owner: owner.to_owned(), turns: Turns::new() }
    }

    fn shard(&self, scope: ScopeDigest) -> &Mutex<Shard> {
        // The digest is uniform already.
        &self.shards[usize::from(scope.0[0]) % SHARDS]
    }

    pub fn stamp(&self, scope: ScopeDigest) -> Stamp {
        Stamp(self.shard(scope).lock().ended)
    }

    /// Takes the scope's place, or waits until `deadline` for what comes out of it.
    pub fn enter(
        &self,
        asked: &Arc<Asked>,
        policy: &Policy,
        stamp: Stamp,
        deadline: Deadline,
        clock: &EngineClock,
    ) -> Entered<'_> {
        loop {
            let (running, bench) = match self.take(asked, policy, stamp, clock) {
                Ok((guard, stale)) => return Entered::Run { guard, stale },
                Err(taken) => taken,
            };
            if let Some(reply) = self.mismatch(&running, asked, policy, clock) {
                return Entered::Reply(reply);
            }
            match bench.wait(&running, deadline, clock) {
                Some(End::Finished(record)) => return Entered::Finished(record),
                Some(End::Uncertain(error)) => return Entered::Uncertain(error),
                Some(End::Free) => {}
                None if running.is_over(clock.monotonic()) => {}
                None => return Entered::Reply(self.in_progress(&running, clock)),
            }
        }
    }

    /// The place, and whether one has ended since `stamp`; or who is in it, and where to wait.
    fn take(
        &self,
        asked: &Arc<Asked>,
        policy: &Policy,
        stamp: Stamp,
        clock: &EngineClock,
    ) -> Result<(PlaceGuard<'_>, bool), (Running, Arc<Bench>)> {
        let (since, monotonic) = clock.both();
        let mut shard = self.shard(asked.digest).lock();
        let Shard { taken, begun, ended } = &mut *shard;
        let entry = match taken.entry(asked.digest) {
            Entry::Occupied(mut place) if !place.get().running.is_over(monotonic) => {
                return Err(place.get_mut().joined());
            }
            entry => entry,
        };
        let stale = Stamp(*ended) != stamp;
        *begun += 1;
        let guard = PlaceGuard { places: self, scope: asked.digest, number: *begun, end: Some(End::Free) };
        let until = monotonic.saturating_add(policy.execute_max);
        let running = Running { asked: Arc::clone(asked), since, until };
        let place = Place { number: guard.number, running, bench: None };
        let overdue = match entry {
            Entry::Occupied(mut entry) => entry.insert(place).bench,
            Entry::Vacant(entry) => {
                entry.insert(place);
                None
            }
        };
        drop(shard);
        if let Some(bench) = overdue {
            // Who waits for it is to wait for this one.
            bench.tell(End::Free);
        }
        Ok((guard, stale))
    }

    /// Another request under the key is refused at once, also while the first runs.
    fn mismatch(
        &self,
        running: &Running,
        asked: &Asked,
        policy: &Policy,
        clock: &EngineClock,
    ) -> Option<Reply> {
        match running.asked.fingerprint.judge(&asked.parts) {
            // A place is taken by this program, so its scheme is known.
            Match::Same | Match::Unknowable => None,
            Match::Differs { .. } if policy.while_running == WhileRunning::InProgressFirst => {
                Some(self.in_progress(running, clock))
            }
            Match::Differs { parts, formatting_only } => {
                Some(Reply::Mismatch { parts, formatting_only, in_flight: true })
            }
        }
    }

    fn in_progress(&self, running: &Running, clock: &EngineClock) -> Reply {
        Reply::InProgress {
            since: running.since,
            retry_after: retry_within(running.left(clock.monotonic())),
            attempt: 1,
            owner: self.owner.clone(),
        }
    }

    /// What somebody who looks is told of a running scope.
    pub fn status(&self, scope: ScopeDigest, clock: &EngineClock) -> Option<Status> {
        let shard = self.shard(scope).lock();
        shard.taken.get(&scope).map(|place| Status::Processing {
            since: place.running.since,
            lease_left: place.running.left(clock.monotonic()),
            owner: self.owner.clone(),
        })
    }

    fn leave(&self, scope: ScopeDigest, number: u64, end: End) {
        let place = {
            let mut shard = self.shard(scope).lock();
            shard.ended += 1;
            match shard.taken.entry(scope) {
                Entry::Occupied(place) if place.get().number == number => Some(place.remove()),
                // A runner that stayed too long has lost its place to another.
                _ => None,
            }
        };
        if let Some(bench) = place.and_then(|place| place.bench) {
            bench.tell(end);
        }
    }
}

impl Place {
    /// Who is in it, and where its end is told.
    fn joined(&mut self) -> (Running, Arc<Bench>) {
        (self.running.clone(), Arc::clone(self.bench.get_or_insert_default()))
    }
}

impl Running {
    fn left(&self, monotonic: Duration) -> Duration {
        self.until.saturating_sub(monotonic)
    }

    fn is_over(&self, monotonic: Duration) -> bool {
        self.left(monotonic).is_zero()
    }
}

impl Bench {
    /// Waits until the place ends, its time is over, or the caller's budget is.
    fn wait(&self, running: &Running, deadline: Deadline, clock: &EngineClock) -> Option<End> {
        let mut end = self.end.lock();
        while end.is_none() {
            let span = deadline.left().min(running.left(clock.monotonic())).min(WAIT_SLICE);
            if span.is_zero() {
                break;
            }
            self.ended.wait_for(&mut end, span);
        }
        end.clone()
    }

    fn tell(&self, end: End) {
        *self.end.lock() = Some(end);
        self.ended.notify_all();
    }
}

/// The longest sleep without a look at the injected clock, which may be moved by hand.
const WAIT_SLICE: Duration = Duration::from_secs(1);

/// A taken place. Dropping it frees the place, also when the closure panics.
pub(crate) struct PlaceGuard<'p> {
    places: &'p Places,
    scope: ScopeDigest,
    number: u64,
    end: Option<End>,
}

impl PlaceGuard<'_> {
    /// Ends the place and tells those who wait.
    pub fn leave(mut self, end: End) {
        self.end = Some(end);
    }
}

impl Drop for PlaceGuard<'_> {
    fn drop(&mut self) {
        if let Some(end) = self.end.take() {
            self.places.leave(self.scope, self.number, end);
        }
    }
}
