//! One command from call to answer: look, take the place, run the closure, commit, tell who waits.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::clock::Deadline;
use super::counters::count;
use super::draft::{Draft, Verdict};
use super::inside::Inside;
use super::places::{End, Entered, PlaceGuard};
use super::read::Known;
use super::staging::{Ids, Staging};
use super::{Engine, FULL_RETRY, told};
use crate::core::act::Act;
use crate::core::decide::{Asked, Purpose};
use crate::core::error::{BoxError, Error, ErrorKind};
use crate::core::name::Tenant;
use crate::core::outcome::{Body, Outcome};
use crate::core::policy::Policy;
use crate::core::record::Record;
use crate::core::reply::{RETRY_SOON, Refused, Reply};

/// A closure of user code. It may be called again.
pub(crate) type Run<'r> = &'r dyn Fn(&mut Staging<'_>) -> Result<Outcome, BoxError>;

impl Engine {
    /// Runs `run` if the scope has no outcome yet; otherwise answers with what is known.
    pub fn execute(&self, asked: &Arc<Asked>, wait: Option<Duration>, run: Run<'_>) -> Result<Reply, Error> {
        self.not_inside()?;
        let policy = *self.settings.policy(&asked.scope.operation);
        if let Some(refused) = self.refused(asked)? {
            return Ok(refused);
        }
        let deadline = Deadline::after(wait.unwrap_or(policy.wait));
        if !asked.is_protected {
            return self.run(None, asked, &policy, deadline, run);
        }
        loop {
            match self.place(asked, &policy, deadline, Purpose::Execute)? {
                Placed::Answered(reply) => return Ok(reply),
                Placed::Run(guard) => return self.run(Some(guard), asked, &policy, deadline, run),
                Placed::Again => {}
                Placed::Claimed(reply) => {
                    if let Some(reply) = self.wait_for_claim(asked, &policy, deadline, reply)? {
                        return Ok(reply);
                    }
                }
            }
        }
    }

    /// Refusals before anything is looked at.
    pub(super) fn refused(&self, asked: &Asked) -> Result<Option<Reply>, Error> {
        let owner = self.owner_of(&asked.scope)?;
        let reply = owner.map(|owner| Reply::Refused(Refused::NotAuthoritative { owner }));
        if let Some(reply) = &reply {
            self.tally(reply);
        }
        Ok(reply)
    }

    /// Looks the scope up and takes its place if it is free.
    pub(super) fn place(
        &self,
        asked: &Arc<Asked>,
        policy: &Policy,
        deadline: Deadline,
        purpose: Purpose,
    ) -> Result<Placed<'_>, Error> {
        // Memory first, before anything that takes a lock. Its miss proves nothing, so the stamp may come
        // after it.
        if let Some(reply) = self.remembered(asked, policy) {
            return Ok(Placed::Answered(reply));
        }
        let stamp = self.places.stamp(asked.digest);
        if let Some(placed) = self.taken(self.stored(asked, policy, purpose)?, asked, policy)? {
            return Ok(placed);
        }
        match self.places.enter(asked, policy, stamp, deadline, &self.clock) {
            Entered::Run { guard, stale } => {
                // Somebody may have finished between the look and the place.
                if stale
                    && let Some(placed) = self.taken(self.known(asked, policy, purpose)?, asked, policy)?
                {
                    return Ok(placed);
                }
                if !self.has_room() {
                    return Ok(Placed::Answered(self.full(FULL_RETRY)));
                }
                Ok(Placed::Run(guard))
            }
            Entered::Finished(record) => {
                let known = self.decided(Some(&record), None, asked, policy, purpose)?;
                Ok(self.taken(known, asked, policy)?.unwrap_or(Placed::Again))
            }
            Entered::Reply(reply) => {
                self.tally(&reply);
                Ok(Placed::Answered(reply))
            }
            Entered::Uncertain(error) => Err(error.share()),
        }
    }

    /// What keeps a caller from taking the place; none if the scope is free.
    fn taken(&self, known: Known, asked: &Arc<Asked>, policy: &Policy) -> Result<Option<Placed<'_>>, Error> {
        Ok(Some(match known {
            Known::Free => return Ok(None),
            Known::Reply(reply @ Reply::InProgress { .. }) => Placed::Claimed(reply),
            Known::Reply(reply) => {
                self.tally(&reply);
                Placed::Answered(reply)
            }
            Known::Lapsed => {
                self.lapse(asked, policy)?;
                Placed::Again
            }
        }))
    }

    /// Runs the closure until its outcome is committed, refused, or has lost too often.
    fn run(
        &self,
        guard: Option<PlaceGuard<'_>>,
        asked: &Arc<Asked>,
        policy: &Policy,
        deadline: Deadline,
        run: Run<'_>,
    ) -> Result<Reply, Error> {
        if guard.is_none() && !self.has_room() {
            return Ok(self.full(FULL_RETRY));
        }
        let drafted = self.settle(&asked.scope.tenant, deadline, |staging| {
            let outcome = self.call(run, staging).map_err(|error| self.aborted(error))?;
            let body = outcome.body.clone();
            let staged = staging.take_staged();
            let draft = Draft::new(asked, policy, Act::Execute, outcome, staged, &self.settings.owner)?;
            Ok((draft, body))
        });
        let (verdict, body) = match drafted {
            Ok(Settled::Verdict(verdict, body)) => (verdict, body),
            Ok(Settled::Full) => return Ok(self.full(RETRY_SOON)),
            Err(error) => {
                leave_failed(guard, &error);
                return Err(error);
            }
        };
        match verdict {
            Verdict::Done(record) => Ok(self.done(guard, asked, record, body)),
            Verdict::Again { resource, version } => {
                let reply = Reply::Conflict { resource, version };
                self.tally(&reply);
                Ok(reply)
            }
            other => self.refusal(guard, asked, policy, other),
        }
    }

    /// What a caller is told of a verdict other than that it has run or has to run again.
    pub(super) fn refusal(
        &self,
        guard: Option<PlaceGuard<'_>>,
        asked: &Arc<Asked>,
        policy: &Policy,
        verdict: Verdict,
    ) -> Result<Reply, Error> {
        match verdict {
            Verdict::Reply { reply, record } => {
                if let (Some(guard), Some(record)) = (guard, record) {
                    guard.leave(End::Finished(record));
                }
                self.settled(asked, &reply);
                Ok(reply)
            }
            Verdict::Fault(error) => Err(error),
            Verdict::Lapsed => {
                drop(guard);
                self.lapse(asked, policy)?;
                let reply = match self.stored(asked, policy, Purpose::Execute)? {
                    Known::Reply(reply) => reply,
                    Known::Free | Known::Lapsed => return Ok(self.full(RETRY_SOON)),
                };
                self.tally(&reply);
                Ok(reply)
            }
            _ => Ok(self.full(RETRY_SOON)),
        }
    }

    /// Drafts and submits until the writer has a verdict; again, while rows change under the closure and it
    /// has not lost too often.
    pub(super) fn settle<B>(
        &self,
        tenant: &Tenant,
        deadline: Deadline,
        mut draft: impl FnMut(&mut Staging<'_>) -> Result<(Draft, B), Error>,
    ) -> Result<Settled<B>, Error> {
        let mut ids = Ids::default();
        let mut turn = None;
        let mut attempt = 0;
        loop {
            let mut staging = Staging::new(self, tenant, &mut ids, None);
            let (draft, brought) = draft(&mut staging)?;
            let size = draft.size();
            let verdict = match self.queue.submit(vec![draft], size, attempt, deadline, self) {
                Err(_) => return Ok(Settled::Full),
                Ok(Err(error)) => return Err(error),
                Ok(Ok(verdicts)) => match verdicts.into_iter().next() {
                    Some(verdict) => verdict,
                    None => return Ok(Settled::Full),
                },
            };
            let Verdict::Again { resource, .. } = &verdict else {
                return Ok(Settled::Verdict(verdict, brought));
            };
            count(&self.counters.reruns);
            if attempt == self.settings.rerun_max {
                return Ok(Settled::Verdict(verdict, brought));
            }
            attempt += 1;
            let row = (tenant.clone(), resource.clone());
            turn = self.places.turns.after_loss(turn, row, attempt, deadline);
        }
    }

    /// What the caller of a command that has run is told, once its record can be replayed.
    pub(super) fn done(
        &self,
        guard: Option<PlaceGuard<'_>>,
        asked: &Asked,
        record: Arc<Record>,
        body: Bytes,
    ) -> Reply {
        // Each caller publishes its own: the writer has no time for it, and until the place is left nobody
        // else writes a record of the scope.
        if record.is_outcome() {
            self.index.publish(&asked.imprint, &record);
        }
        let mut finished = record.finished(record.finished_at());
        // The first caller has what it just made, kept or not.
        finished.body = Body::Present(body);
        if let Some(guard) = guard {
            guard.leave(End::Finished(record));
        }
        let reply = Reply::Done(finished);
        self.settled(asked, &reply);
        reply
    }

    /// Calls user code, where a call of this store is refused. A panic goes on to the caller; nothing is
    /// written.
    pub(super) fn call<R>(
        &self,
        run: impl FnOnce(&mut Staging<'_>) -> Result<R, BoxError>,
        staging: &mut Staging<'_>,
    ) -> Result<R, BoxError> {
        let _inside = Inside::of(self);
        run(staging)
    }

    /// What a caller is told of a closure that failed.
    pub(super) fn aborted(&self, error: BoxError) -> Error {
        count(&self.counters.aborted);
        Error::from_closure(error)
    }

    pub(super) fn settled(&self, asked: &Asked, reply: &Reply) {
        self.tally(reply);
        if !asked.is_protected && matches!(reply, Reply::Done(_)) {
            count(&self.counters.unprotected);
        }
    }

    pub(super) fn full(&self, retry_after: Duration) -> Reply {
        let reply = Reply::Refused(Refused::Capacity { retry_after: told(retry_after) });
        self.tally(&reply);
        reply
    }
}

/// What came of a draft.
pub(super) enum Settled<B> {
    /// The writer's verdict, and what the draft was made with.
    Verdict(Verdict, B),
    /// There was no room for it in the queue.
    Full,
}

/// What came of looking for a place.
pub(super) enum Placed<'p> {
    Answered(Reply),
    Run(PlaceGuard<'p>),
    /// A claim is at it; this is what a caller is told who does not wait.
    Claimed(Reply),
    /// What was known is over already: look again.
    Again,
}

/// After a commit in doubt nobody who waits for the scope may run; after any other failure the next one may.
pub(super) fn leave_failed(guard: Option<PlaceGuard<'_>>, error: &Error) {
    if error.kind() == ErrorKind::CommitUncertain
        && let Some(guard) = guard
    {
        guard.leave(End::Uncertain(Arc::new(error.share())));
    }
}
