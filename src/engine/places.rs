//! One in-memory place per scope: of many callers of one scope one runs, the others wait for what becomes of
//! it.
//!
//! A place costs no write and proves nothing: the writer alone admits an outcome. It only keeps callers from
//! running in vain. Owns waiting and waking; must not know what a closure does.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

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
use crate::core::reply::{Reply, Status};
use crate::core::time::Timestamp;

const SHARDS: usize = 64;
/// The longest a caller is told to wait before it asks again.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(1);
const RETRY_AFTER_MIN: Duration = Duration::from_millis(1);

/// The places of all scopes that are being run.
pub(crate) struct Places {
    shards: Vec<Mutex<Shard>>,
    owner: String,
    /// Of callers who lost on a row and are to run again.
    pub turns: Turns<(Tenant, ResourceRef)>,
}

#[derive(Default)]
struct Shard {
    taken: HashMap<ScopeDigest, Arc<Place>>,
    /// Places that have ended here; see [`Stamp`].
    ended: u64,
}

struct Place {
    asked: Arc<Asked>,
    since: Timestamp,
    began: Duration,
    execute_max: Duration,
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
        let shards = (0..SHARDS).map(|_| Mutex::default()).collect();
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
            let place = {
                let mut shard = self.shard(asked.digest).lock();
                let stale = Stamp(shard.ended) != stamp;
                match shard.taken.get(&asked.digest) {
                    Some(place) if !place.is_over(clock) => Arc::clone(place),
                    _ => {
                        let place = Arc::new(Place::new(asked, policy, clock));
                        shard.taken.insert(asked.digest, Arc::clone(&place));
                        let guard = PlaceGuard { places: self, place, end: Some(End::Free) };
                        return Entered::Run { guard, stale };
                    }
                }
            };
            if let Some(reply) = self.mismatch(&place, asked, policy, clock) {
                return Entered::Reply(reply);
            }
            match place.wait(deadline, clock) {
                Some(End::Finished(record)) => return Entered::Finished(record),
                Some(End::Uncertain(error)) => return Entered::Uncertain(error),
                Some(End::Free) => {}
                None if place.is_over(clock) => {}
                None => return Entered::Reply(self.in_progress(&place, clock)),
            }
        }
    }

    /// Another request under the key is refused at once, also while the first runs.
    fn mismatch(&self, place: &Place, asked: &Asked, policy: &Policy, clock: &EngineClock) -> Option<Reply> {
        match place.asked.fingerprint.judge(&asked.parts) {
            // A place is taken by this program, so its scheme is known.
            Match::Same | Match::Unknowable => None,
            Match::Differs { .. } if policy.while_running == WhileRunning::InProgressFirst => {
                Some(self.in_progress(place, clock))
            }
            Match::Differs { parts, formatting_only } => {
                Some(Reply::Mismatch { parts, formatting_only, in_flight: true })
            }
        }
    }

    fn in_progress(&self, place: &Place, clock: &EngineClock) -> Reply {
        Reply::InProgress {
            since: place.since,
            retry_after: place.left(clock).clamp(RETRY_AFTER_MIN, RETRY_AFTER_MAX),
            attempt: 1,
            owner: self.owner.clone(),
        }
    }

    /// What somebody who looks is told of a running scope.
    pub fn status(&self, scope: ScopeDigest, clock: &EngineClock) -> Option<Status> {
        let shard = self.shard(scope).lock();
        shard.taken.get(&scope).map(|place| Status::Processing {
            since: place.since,
            lease_left: place.left(clock),
            owner: self.owner.clone(),
        })
    }

    fn leave(&self, place: &Arc<Place>, end: End) {
        {
            let mut shard = self.shard(place.asked.digest).lock();
            // A runner that stayed too long may have lost its place to another.
            if shard.taken.get(&place.asked.digest).is_some_and(|now| Arc::ptr_eq(now, place)) {
                shard.taken.remove(&place.asked.digest);
            }
            shard.ended += 1;
        }
        *place.end.lock() = Some(end);
        place.ended.notify_all();
    }
}

impl Place {
    fn new(asked: &Arc<Asked>, policy: &Policy, clock: &EngineClock) -> Self {
        Self {
            asked: Arc::clone(asked),
            since: clock.now(),
            began: clock.monotonic(),
            execute_max: policy.execute_max,
            end: Mutex::new(None),
            ended: Condvar::new(),
        }
    }

    fn left(&self, clock: &EngineClock) -> Duration {
        self.execute_max.saturating_sub(clock.monotonic().saturating_sub(self.began))
    }

    fn is_over(&self, clock: &EngineClock) -> bool {
        self.left(clock).is_zero()
    }

    /// Waits until the place ends, its time is over, or the caller's budget is.
    fn wait(&self, deadline: Deadline, clock: &EngineClock) -> Option<End> {
        let mut end = self.end.lock();
        while end.is_none() {
            let span = deadline.left().min(self.left(clock)).min(WAIT_SLICE);
            if span.is_zero() {
                break;
            }
            self.ended.wait_for(&mut end, span);
        }
        end.clone()
    }
}

/// The longest sleep without a look at the injected clock, which may be moved by hand.
const WAIT_SLICE: Duration = Duration::from_secs(1);

/// A taken place. Dropping it frees the place, also when the closure panics.
pub(crate) struct PlaceGuard<'p> {
    places: &'p Places,
    place: Arc<Place>,
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
            self.places.leave(&self.place, end);
        }
    }
}
