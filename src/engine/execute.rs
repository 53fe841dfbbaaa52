//! One command from call to answer: look, take the place, run the closure, commit, tell who waits.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::clock::Deadline;
use super::counters::count;
use super::inside::Inside;
use super::places::{End, Entered, PlaceGuard};
use super::settings::Authority;
use super::staging::{Ids, Staging};
use super::writer::{Draft, Verdict};
use super::{Engine, FULL_RETRY, told};
use crate::core::decide::Asked;
use crate::core::error::{BoxError, Error, ErrorKind};
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
        if let Some(refused) = self.refused(asked) {
            return Ok(refused);
        }
        let deadline = Deadline::after(wait.unwrap_or(policy.wait));
        if !asked.is_protected {
            return self.run(None, asked, &policy, deadline, run);
        }
        loop {
            match self.place(asked, &policy, deadline)? {
                Placed::Answered(reply) => return Ok(reply),
                Placed::Run(guard) => return self.run(Some(guard), asked, &policy, deadline, run),
                Placed::Again => {}
            }
        }
    }

    /// Refusals before anything is looked at.
    pub(super) fn refused(&self, asked: &Asked) -> Option<Reply> {
        let decider = self.settings.authority.as_ref()?;
        match decider(&asked.scope) {
            Authority::Here => None,
            Authority::Elsewhere(owner) => {
                let reply = Reply::Refused(Refused::NotAuthoritative { owner });
                self.tally(&reply);
                Some(reply)
            }
        }
    }

    /// Looks the scope up and takes its place if it is free.
    pub(super) fn place(
        &self,
        asked: &Arc<Asked>,
        policy: &Policy,
        deadline: Deadline,
    ) -> Result<Placed<'_>, Error> {
        // Memory first, before anything that takes a lock. Its miss proves nothing, so the stamp may come
        // after it.
        if let Some(reply) = self.remembered(asked, policy) {
            return Ok(Placed::Answered(reply));
        }
        let stamp = self.places.stamp(asked.digest);
        if let Some(reply) = self.stored(asked, policy)? {
            return Ok(Placed::Answered(reply));
        }
        match self.places.enter(asked, policy, stamp, deadline, &self.clock) {
            Entered::Run { guard, stale } => {
                // Somebody may have finished between the look and the place.
                if stale && let Some(reply) = self.known(asked, policy)? {
                    return Ok(Placed::Answered(reply));
                }
                if !self.has_room() {
                    return Ok(Placed::Answered(self.full(FULL_RETRY)));
                }
                Ok(Placed::Run(guard))
            }
            Entered::Finished(record) => Ok(match self.judged(&record, asked, policy)? {
                Some(reply) => Placed::Answered(reply),
                None => Placed::Again,
            }),
            Entered::Reply(reply) => {
                self.tally(&reply);
                Ok(Placed::Answered(reply))
            }
            Entered::Uncertain(error) => Err(error.share()),
        }
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
        let mut ids = Ids::default();
        let mut lost = None;
        let mut turn = None;
        for attempt in 0..=self.settings.rerun_max {
            let mut staging = Staging::new(self, &asked.scope.tenant, &mut ids, None);
            let outcome = self.call(run, &mut staging).map_err(|error| self.aborted(error))?;
            let (staged, body) = (staging.into_left().staged, outcome.body.clone());
            let draft = Draft::new(asked, policy, outcome, staged, &self.settings.owner)?;
            let size = draft.size();
            let verdict = match self.queue.submit(vec![draft], size, attempt, deadline, self) {
                Err(_) => return Ok(self.full(RETRY_SOON)),
                Ok(Err(error)) => {
                    leave_failed(guard, &error);
                    return Err(error);
                }
                Ok(Ok(verdicts)) => verdicts.into_iter().next(),
            };
            match verdict {
                Some(Verdict::Done(record)) => return Ok(self.done(guard, asked, record, body)),
                Some(Verdict::Reply { reply, record }) => {
                    if let (Some(guard), Some(record)) = (guard, record) {
                        guard.leave(End::Finished(record));
                    }
                    self.settled(asked, &reply);
                    return Ok(reply);
                }
                Some(Verdict::Again { resource, version }) => {
                    count(&self.counters.reruns);
                    if attempt < self.settings.rerun_max {
                        let row = (asked.scope.tenant.clone(), resource.clone());
                        turn = self.places.turns.after_loss(turn, row, attempt + 1, deadline);
                    }
                    lost = Some(Reply::Conflict { resource, version });
                }
                Some(Verdict::Fault(error)) => return Err(error),
                None => break,
            }
        }
        let reply = lost.unwrap_or_else(|| self.full(RETRY_SOON));
        self.tally(&reply);
        Ok(reply)
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
        let mut finished = record.finished(record.entry.at);
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
    pub(super) fn call(&self, run: Run<'_>, staging: &mut Staging<'_>) -> Result<Outcome, BoxError> {
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

/// What came of looking for a place.
pub(super) enum Placed<'p> {
    Answered(Reply),
    Run(PlaceGuard<'p>),
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
