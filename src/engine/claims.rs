//! Work that reaches outside: begin, move on, end; what to do when its owner is gone; what people found out.
//! Owns the order look, place, commit, tell; rules are the core's.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::clock::Deadline;
use super::counters::count;
use super::draft::{Draft, OpenRow, Verdict};
use super::execute::{Placed, Settled, leave_failed};
use super::leases::fence_lost;
use super::read::Known;
use super::staging::Staging;
use super::{Engine, FULL_RETRY};
use crate::core::act::{Act, Deed, Moves, Start};
use crate::core::claim::{Open, Point, StepRecord};
use crate::core::decide::{Asked, Purpose};
use crate::core::effect::Staged;
use crate::core::error::{BoxError, Error, ErrorKind};
use crate::core::outcome::{Finished, Outcome, ResourceRef};
use crate::core::policy::Policy;
use crate::core::record::Record;
use crate::core::reply::{RETRY_SOON, Refused, Reply};
use crate::core::text::Text;
use crate::core::time::millis;

/// How long after its claim a call may be made as if it were made with it: this part of its time to settle,
/// and so many milliseconds at most.
const LATE_PART: u64 = 10;
const LATE_MILLIS_MAX: u64 = 1_000;

/// What came of a begin.
pub(crate) enum Begun {
    Run(Arc<Open>),
    Reply(Reply),
}

/// What came of moving a claim on.
pub(crate) enum Moved {
    Open(Arc<Open>),
    /// It was committed before under this name.
    Reached(Bytes),
}

/// The name of a recovery point, and the closure that makes it and stages its effects.
pub(crate) type Halfway<'p> = (&'p Text, &'p dyn Fn(&mut Staging<'_>) -> Result<Bytes, BoxError>);

/// A claim as its owner holds it.
pub(crate) struct Held<'c> {
    pub asked: &'c Arc<Asked>,
    pub policy: &'c Policy,
    pub token: u64,
}

impl Engine {
    /// Grants a claim on a scope that is free or may be gone on with; otherwise answers with what is known.
    pub fn begin(&self, asked: &Arc<Asked>, wait: Option<Duration>, start: &Start) -> Result<Begun, Error> {
        self.not_inside()?;
        let policy = *self.settings.policy(&asked.scope.operation);
        if !asked.is_protected {
            return Err(Error::invalid("work that reaches outside needs a key: nothing could tell a retry"));
        }
        if let Some(refused) = self.refused(asked)? {
            return Ok(Begun::Reply(refused));
        }
        let deadline = Deadline::after(wait.unwrap_or(policy.wait));
        loop {
            let guard = match self.place(asked, &policy, deadline, Purpose::Begin)? {
                Placed::Answered(reply) => return Ok(Begun::Reply(reply)),
                Placed::Again => continue,
                Placed::Claimed(reply) => match self.wait_for_claim(asked, &policy, deadline, reply)? {
                    Some(reply) => return Ok(Begun::Reply(reply)),
                    None => continue,
                },
                Placed::Run(guard) => guard,
            };
            let act = Act::Begin(start.clone());
            let draft = Draft::note(asked, &policy, act, Staged::default(), &self.settings.owner)?;
            match self.submit_one(draft, deadline) {
                Ok(Some(Verdict::Open(OpenRow { open, .. }))) => {
                    count(&self.counters.claims);
                    return Ok(Begun::Run(open));
                }
                Ok(Some(Verdict::Lapsed)) => {
                    drop(guard);
                    self.lapse(asked, &policy)?;
                }
                // Another claim came first.
                Ok(Some(Verdict::Reply { reply: Reply::InProgress { .. }, .. })) => {}
                Ok(Some(verdict)) => {
                    return self.refusal(Some(guard), asked, &policy, verdict).map(Begun::Reply);
                }
                Ok(None) => return Ok(Begun::Reply(self.full(RETRY_SOON))),
                Err(error) => {
                    leave_failed(Some(guard), &error);
                    return Err(error);
                }
            }
        }
    }

    /// Waits for the end of a claim; the reply of one who has no time left to wait, none if it is worth to
    /// look again.
    pub(super) fn wait_for_claim(
        &self,
        asked: &Arc<Asked>,
        policy: &Policy,
        deadline: Deadline,
        reply: Reply,
    ) -> Result<Option<Reply>, Error> {
        let left = deadline.left();
        if left.is_zero() {
            self.tally(&reply);
            return Ok(Some(reply));
        }
        // A look after the stamp: whatever ends from then on is not missed.
        let stamp = self.leases.stamp(asked.digest);
        if let Known::Reply(Reply::InProgress { retry_after, .. }) =
            self.stored(asked, policy, Purpose::Begin)?
        {
            self.leases.wait(asked.digest, stamp, left.min(retry_after));
        }
        Ok(None)
    }

    /// Tells the file that the owner of what is open is gone, if it is.
    pub(super) fn lapse(&self, asked: &Arc<Asked>, policy: &Policy) -> Result<Option<OpenRow>, Error> {
        let act = Act::Lapse;
        let draft = Draft::note(asked, policy, act, Staged::default(), &self.settings.owner)?;
        match self.submit_one(draft, Deadline::after(policy.wait))? {
            Some(Verdict::Open(row)) => Ok(Some(row)),
            Some(Verdict::Fault(error)) => Err(error),
            Some(_) => Ok(None),
            None => Err(queue_full()),
        }
    }

    /// Moves a claim on: steps, their results, and with a point effects that a closure stages.
    pub fn advance(
        &self,
        held: &Held<'_>,
        moves: &Moves,
        point: Option<Halfway<'_>>,
    ) -> Result<Moved, Error> {
        self.not_inside()?;
        let settled = self.settle(&held.asked.scope.tenant, patience(held), |staging| {
            let (point, staged) = match point {
                None => (None, Staged::default()),
                Some((name, body)) => {
                    let value = self.call(body, staging).map_err(|error| self.aborted(error))?;
                    (Some(Point { name: name.clone(), value }), staging.take_staged())
                }
            };
            let deed = Deed::Advance { point };
            let act = Act::Claimed { token: held.token, moves: moves.clone(), deed };
            Draft::note(held.asked, held.policy, act, staged, &self.settings.owner).map(|draft| (draft, ()))
        })?;
        match verdict(settled)? {
            Verdict::Open(OpenRow { open, .. }) => Ok(Moved::Open(open)),
            Verdict::Reached(value) => Ok(Moved::Reached(value)),
            other => Err(self.lost(held, other)),
        }
    }

    /// Ends a claim with the outcome that a closure says.
    pub fn finish(
        &self,
        held: &Held<'_>,
        moves: &Moves,
        run: &dyn Fn(&mut Staging<'_>) -> Result<Outcome, BoxError>,
    ) -> Result<Finished, Error> {
        self.not_inside()?;
        let settled = self.settle(&held.asked.scope.tenant, patience(held), |staging| {
            let outcome = self.call(run, staging).map_err(|error| self.aborted(error))?;
            let (body, staged) = (outcome.body.clone(), staging.take_staged());
            let act = Act::Claimed { token: held.token, moves: moves.clone(), deed: Deed::Finish };
            let draft = Draft::new(held.asked, held.policy, act, outcome, staged, &self.settings.owner)?;
            Ok((draft, body))
        })?;
        let body = if let Settled::Verdict(_, body) = &settled { body.clone() } else { Bytes::new() };
        match verdict(settled)? {
            Verdict::Done(record) => match self.done(None, held.asked, record, body) {
                Reply::Done(finished) => Ok(finished),
                _ => Err(fence_lost()),
            },
            other => Err(self.lost(held, other)),
        }
    }

    /// Ends a claim without an outcome: nothing happened, or something may have.
    pub fn give_up(&self, held: &Held<'_>, moves: &Moves, deed: Deed) -> Result<(), Error> {
        self.not_inside()?;
        let act = Act::Claimed { token: held.token, moves: moves.clone(), deed };
        let draft = Draft::note(held.asked, held.policy, act, Staged::default(), &self.settings.owner)?;
        match self.submit_one(draft, patience(held))? {
            Some(Verdict::Gone | Verdict::Open(_)) => Ok(()),
            Some(other) => Err(self.lost(held, other)),
            None => Err(queue_full()),
        }
    }

    /// Renews the lease of a claim; writes nothing.
    pub fn heartbeat(&self, held: &Held<'_>) -> Result<(), Error> {
        if !self.file.is_open() {
            // Stopped, or closed: which one the file knows.
            self.file().map(drop)?;
        }
        self.leases.renew(held.asked.digest, held.token, self.lease_end(held.policy.lease))
    }

    pub fn keep_alive(&self, held: &Held<'_>) {
        self.leases.keep(held.asked.digest, held.token, self.lease_end(held.policy.run_max));
    }

    /// One guard less keeps the lease, or none any more.
    pub fn let_go(&self, held: &Held<'_>, all: bool) {
        self.leases.let_go(held.asked.digest, held.token, all, self.lease_end(held.policy.lease));
    }

    pub fn is_cancel_asked(&self, held: &Held<'_>) -> bool {
        self.leases.is_cancel_asked(held.asked.digest, held.token)
    }

    /// Whether a call that was declared with its claim may be made without another word to the file: the
    /// lease lasts, and hardly any of its time to settle has passed.
    pub fn is_just_declared(&self, held: &Held<'_>, step: &StepRecord) -> bool {
        let monotonic = self.clock.monotonic();
        let uptime = self.uptime(monotonic);
        let late_max = (step.settles_within / LATE_PART).min(LATE_MILLIS_MAX);
        let is_in_time = step.settles_within == 0 || uptime.since(step.started) <= late_max;
        let now = Duration::from_millis(uptime.now.monotonic);
        is_in_time && self.file.is_open() && self.leases.lasts(held.asked.digest, held.token, now)
    }

    fn lease_end(&self, span: Duration) -> Duration {
        // Whole milliseconds, like the leases that others look at.
        Duration::from_millis(millis(self.clock.monotonic()).saturating_add(millis(span)))
    }

    pub(super) fn submit_one(&self, draft: Draft, deadline: Deadline) -> Result<Option<Verdict>, Error> {
        let size = draft.size();
        match self.queue.submit(vec![draft], size, 0, deadline, self) {
            Err(_) => Ok(None),
            Ok(answers) => Ok(answers?.into_iter().next()),
        }
    }

    /// Why a claim could not be moved on.
    pub(super) fn lost(&self, held: &Held<'_>, verdict: Verdict) -> Error {
        match verdict {
            Verdict::Fault(error) => error,
            Verdict::Reply { reply: Reply::Refused(Refused::NotAuthoritative { owner }), .. } => {
                Error::not_authoritative(&owner)
            }
            Verdict::Again { resource, .. } => {
                count(&self.counters.conflicts);
                conflict("rows kept changing under the closure", resource)
            }
            Verdict::Reply { reply: Reply::Duplicate { held, .. }, .. } => {
                count(&self.counters.duplicates);
                conflict("a row that it makes exists, or a name is taken", held)
            }
            Verdict::FenceLost { record } => {
                count(&self.counters.fence_losses);
                self.fenced(held, record)
            }
            _ => fence_lost(),
        }
    }

    fn fenced(&self, held: &Held<'_>, record: Option<Arc<Record>>) -> Error {
        self.leases.end(held.asked.digest, held.token);
        match record {
            None => fence_lost(),
            Some(record) => fence_lost().with_finished(record.finished(self.clock.now())),
        }
    }
}

/// How long an owner waits for room in the queue.
fn patience(held: &Held<'_>) -> Deadline {
    Deadline::after(held.policy.wait.max(FULL_RETRY))
}

/// The verdict on a draft for which there was room.
pub(super) fn verdict<B>(settled: Settled<B>) -> Result<Verdict, Error> {
    match settled {
        Settled::Verdict(verdict, _) => Ok(verdict),
        Settled::Full => Err(queue_full()),
    }
}

fn conflict(what: &str, resource: ResourceRef) -> Error {
    let text = format!("{what} ({resource}): nothing was written");
    Error::new(ErrorKind::Conflict, text).with_resource(resource)
}

pub(super) fn queue_full() -> Error {
    Error::new(ErrorKind::Unavailable, "the queue is full: nothing was written; try again")
}
