//! Sends messages and does jobs: takes what is due, commits that it was taken, calls, commits what came of
//! it. Owns that order; what an end means is the core's.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use parking_lot::Mutex;

use super::{Call, Job, Route, Ticked, Workers};
use crate::core::claim::{Contract, Moment};
use crate::core::error::{BoxError, Error};
use crate::core::message::step::{End, Event, Guard, Move};
use crate::core::message::{Errand, Flight, MessageId, Stage, Status, reason};
use crate::core::row::RowKey;
use crate::core::text::Text;
use crate::core::time::millis;
use crate::effects::Effects;
use crate::engine::Engine;
use crate::engine::messages::JobEnd;
use crate::message::{Delivered, Delivery};

/// Messages that are taken in one commit.
const BATCH_MAX: usize = 64;
/// Ends that are committed in one commit.
const ENDS_MAX: usize = 16;
/// The longest that an end waits for others before it is committed, while its worker calls for the next.
const END_WAIT_MAX: Duration = Duration::from_millis(50);
/// Messages that one tick takes.
const TICK_MAX: usize = 65_536;

/// One tick.
pub(super) struct Outbox<'w> {
    pub workers: &'w Workers,
    /// Whether no further message is to be begun.
    pub stopping: &'w dyn Fn() -> bool,
}

/// A message in the hands of this tick.
struct Taken {
    id: MessageId,
    status: Status,
    flight: Flight,
}

/// Ends that are not committed yet.
struct Ends {
    moves: Vec<Move>,
    /// When the first of them came.
    since: Duration,
}

impl Outbox<'_> {
    pub fn tick(&self) -> Result<Ticked, Error> {
        let unsaid = std::mem::take(&mut *self.workers.unsaid.lock());
        let mut ticked = self.end(unsaid)?;
        ticked = ticked.and(self.lapse()?);
        let mut taken_in_all = 0;
        // Each destination in turn takes one batch, until none of them has anything due.
        loop {
            let mut taken_now = 0;
            for (name, route) in &self.workers.routes {
                if (self.stopping)() || taken_in_all >= TICK_MAX {
                    return Ok(ticked);
                }
                let batch = self.take(name, route)?;
                taken_now += batch.len();
                taken_in_all += batch.len();
                ticked = ticked.and(self.run(batch, route)?);
            }
            if taken_now == 0 {
                return Ok(ticked);
            }
        }
    }

    fn engine(&self) -> &Engine {
        self.workers.store.engine()
    }

    /// Commits that this tick is at the messages that are due. Whoever is faster has them.
    fn take(&self, destination: &str, route: &Route) -> Result<Vec<Taken>, Error> {
        let engine = self.engine();
        // So few that the other threads have something to do, too.
        let limit = (BATCH_MAX / self.workers.threads.max(1)).max(1);
        let due = engine.due(destination, limit, |status| route.can_do(status))?;
        let taken = self.taken(&due, route);
        engine.released(&due);
        taken
    }

    fn taken(&self, due: &[(MessageId, u64)], route: &Route) -> Result<Vec<Taken>, Error> {
        let event = Event::Taken { is_job: route.job.is_some() };
        let take = |&(id, version): &(MessageId, u64)| Move {
            id,
            guard: Guard::Version(version),
            event: event.clone(),
        };
        let moves: Vec<Move> = due.iter().map(take).collect();
        let moved = self.engine().post(&moves)?;
        let taken = due.iter().zip(moved).filter_map(|((id, _), status)| {
            let status = status?;
            let Stage::Flying(flight) = status.stage else { return None };
            Some(Taken { id: *id, status, flight })
        });
        Ok(taken.collect())
    }

    /// Calls for each message of a batch, and commits what came of it.
    fn run(&self, batch: Vec<Taken>, route: &Route) -> Result<Ticked, Error> {
        let mut ticked = Ticked::default();
        let mut ends = Ends { moves: Vec::new(), since: Duration::ZERO };
        let mut batch = batch.into_iter();
        while let Some(taken) = batch.next() {
            if let Err(error) = self.run_one(&taken, route, &mut ends, &mut ticked) {
                // Nobody has been called for the others.
                batch.for_each(|left| ends.push(&left, End::Returned, Duration::ZERO));
                self.workers.unsaid.lock().append(&mut ends.moves);
                return Err(error);
            }
        }
        Ok(ticked.and(self.end(ends.moves)?))
    }

    fn run_one(
        &self,
        taken: &Taken,
        route: &Route,
        ends: &mut Ends,
        ticked: &mut Ticked,
    ) -> Result<(), Error> {
        let engine = self.engine();
        let (_, began, uptime) = engine.moment();
        // Who comes late to the last of a batch leaves it to others, and who is to stop, too.
        let is_late = uptime.since(taken.flight.started) > taken.status.terms.lease / 2;
        if is_late || (self.stopping)() {
            ends.push(taken, End::Returned, began);
        } else if let Some(end) = self.call(taken, route, ticked)? {
            ends.push(taken, end, began);
        }
        // Were the next call cut off, only people could find out that this one has arrived.
        let is_blind = taken.status.terms.contract == Contract::Neither;
        if is_blind || ends.are_due(engine.moment().1) {
            *ticked = ticked.and(self.end(std::mem::take(&mut ends.moves))?);
        }
        Ok(())
    }

    /// Calls user code for one message; its end, unless that is committed already.
    fn call(&self, taken: &Taken, route: &Route, ticked: &mut Ticked) -> Result<Option<End>, Error> {
        let engine = self.engine();
        let Some(letter) = engine.letter(taken.id)? else {
            // Somebody has ended it meanwhile.
            return Ok(None);
        };
        let newest =
            match letter.event.as_ref().and_then(|event| Some((&event.inbox, event.stream.as_ref()?))) {
                Some((inbox, stream)) => {
                    engine.newest_event(&RowKey::stream(&taken.status.tenant, inbox, stream))?
                }
                None => None,
            };
        let delivery = Delivery {
            id: taken.id,
            operation: taken.status.operation_id(),
            status: taken.status.clone(),
            headers: letter.headers,
            event: letter.event,
            newest,
        };
        let send = match taken.flight.errand {
            Errand::Job => {
                let Some(job) = &route.job else { return Ok(Some(End::Returned)) };
                return self.job(taken, job, &letter.payload, &delivery, ticked);
            }
            Errand::Send => route.send.as_ref(),
            Errand::Ask { .. } => route.ask.as_ref(),
        };
        Ok(Some(match send {
            Some(send) => end_of(called(send, &letter.payload, &delivery)),
            None => End::Returned,
        }))
    }

    fn job(
        &self,
        taken: &Taken,
        job: &Job,
        payload: &bytes::Bytes,
        delivery: &Delivery,
        ticked: &mut Ticked,
    ) -> Result<Option<End>, Error> {
        let end = Move {
            id: taken.id,
            guard: Guard::Token(taken.flight.token),
            event: Event::Ended(End::Delivered(None)),
        };
        let done = self.engine().job(&end, &taken.status.tenant(), &|staging| {
            let mut effects = Effects::new(staging);
            guarded(|| job(payload, delivery, &mut effects))?;
            effects.into_failed().map_or(Ok(()), |failed| Err(failed.into()))
        })?;
        Ok(match done {
            JobEnd::Done => {
                ticked.handled += 1;
                None
            }
            JobEnd::NotOurs => None,
            JobEnd::Failed(error) => Some(End::NotApplied { retry_after: None, why: why(&error) }),
        })
    }

    /// Commits ends; keeps them when that fails, to say them again.
    fn end(&self, moves: Vec<Move>) -> Result<Ticked, Error> {
        let mut ticked = Ticked::default();
        if moves.is_empty() {
            return Ok(ticked);
        }
        match self.engine().post(&moves) {
            Ok(moved) => {
                moved.iter().flatten().for_each(|status| ticked.tally(status));
                Ok(ticked)
            }
            Err(error) => {
                self.workers.unsaid.lock().extend(moves);
                Err(error)
            }
        }
    }

    /// Ends the attempts of those who did not come back.
    fn lapse(&self) -> Result<Ticked, Error> {
        let lapses = &self.workers.lapses;
        let Some(mut look) = lapses.begin(self.engine()) else { return Ok(Ticked::default()) };
        let looked = self.look(&mut look);
        if looked.is_ok() {
            lapses.end(look);
        } else {
            lapses.fail();
        }
        looked
    }

    fn look(&self, look: &mut Looked) -> Result<Ticked, Error> {
        let engine = self.engine();
        let mut ticked = Ticked::default();
        let mut after = None;
        loop {
            let ids = engine.flying(after, BATCH_MAX)?;
            let Some(&last) = ids.last() else { return Ok(ticked) };
            after = Some(last);
            let mut moves = Vec::new();
            for id in ids {
                let Some(row) = engine.message_row(id)? else { continue };
                let Some(status) = row.status() else { continue };
                let Stage::Flying(flight) = status.stage else { continue };
                let (_, _, uptime) = engine.moment();
                if status.is_lapsed(flight, &uptime) {
                    moves.push(Move { id, guard: Guard::Version(row.version), event: Event::Lapsed });
                } else {
                    look.see(flight.started, status.terms.lease);
                }
            }
            for status in engine.post(&moves)?.iter().flatten() {
                ticked.lapsed += 1;
                ticked.tally(status);
            }
        }
    }
}

impl Route {
    /// Whether this program can do for a message what is due.
    fn can_do(&self, status: &Status) -> bool {
        match &status.stage {
            // What is done here is never in doubt, so it is of a time when it was sent.
            Stage::Unsure { .. } => self.ask.is_some() && self.job.is_none(),
            _ => self.send.is_some() || self.job.is_some(),
        }
    }
}

impl Ends {
    fn push(&mut self, taken: &Taken, end: End, began: Duration) {
        if self.moves.is_empty() {
            self.since = began;
        }
        let guard = Guard::Token(taken.flight.token);
        self.moves.push(Move { id: taken.id, guard, event: Event::Ended(end) });
    }

    fn are_due(&self, now: Duration) -> bool {
        self.moves.len() >= ENDS_MAX
            || !self.moves.is_empty() && now.saturating_sub(self.since) >= END_WAIT_MAX
    }
}

impl Ticked {
    fn tally(&mut self, status: &Status) {
        match &status.stage {
            Stage::Delivered { .. } => self.delivered += 1,
            Stage::Dead { .. } => self.dead += 1,
            Stage::Unsure { .. } | Stage::Unknown { .. } => self.unknown += 1,
            Stage::Waiting { .. } => self.retried += 1,
            Stage::Queued | Stage::Flying(_) | Stage::Discarded { .. } => {}
        }
    }
}

/// When to look for those who did not come back.
#[derive(Default)]
pub(super) struct Lapses(Mutex<Option<Looked>>);

/// The last look, on the monotonic clock.
#[derive(Clone, Copy)]
struct Looked {
    at: Duration,
    /// When the first of those that were seen at something has been at it for too long.
    first_end: Duration,
}

/// The shortest pause between two looks that no end of a lease calls for.
const LOOK_MIN: Duration = Duration::from_secs(1);
/// The longest sleep without a look: others may have begun something since.
pub(super) const SLEEP_MAX: Duration = Duration::from_secs(30);

impl Looked {
    fn see(&mut self, started: Moment, lease: u64) {
        self.first_end = self.first_end.min(Duration::from_millis(started.monotonic.saturating_add(lease)));
    }
}

impl Lapses {
    /// A look, if one is due.
    fn begin(&self, engine: &Engine) -> Option<Looked> {
        let (_, now, _) = engine.moment();
        let mut last = self.0.lock();
        if last.is_some_and(|last| now < last.first_end && now < last.at.saturating_add(LOOK_MIN)) {
            return None;
        }
        let look = Looked { at: now, first_end: Duration::MAX };
        *last = Some(look);
        Some(look)
    }

    fn end(&self, look: Looked) {
        *self.0.lock() = Some(look);
    }

    /// The look failed: the next one is due at once.
    fn fail(&self) {
        *self.0.lock() = None;
    }

    /// How long it is until a look is due that somebody sleeps for.
    pub fn next(&self, engine: &Engine) -> Duration {
        let (_, now, _) = engine.moment();
        let first_end = self.0.lock().map_or(Duration::ZERO, |last| last.first_end);
        first_end.saturating_sub(now).min(SLEEP_MAX)
    }
}

fn called(send: &Call, payload: &bytes::Bytes, delivery: &Delivery) -> Result<Delivered, BoxError> {
    guarded(|| send(payload, delivery))
}

/// Calls user code; a panic is its failure, and goes no further. Nothing of the store is borrowed across it
/// but what it was lent.
fn guarded<R>(call: impl FnOnce() -> Result<R, BoxError>) -> Result<R, BoxError> {
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
        Err(format!("the closure panicked: {}", text.unwrap_or_default()).into())
    })
}

fn end_of(said: Result<Delivered, BoxError>) -> End {
    match said {
        Ok(Delivered::Done(answer)) => End::Delivered(answer),
        Ok(Delivered::NotApplied { retry_after, why }) => {
            End::NotApplied { retry_after: retry_after.map(millis), why: reason(&why) }
        }
        Ok(Delivered::Refused(why)) => End::Refused(reason(&why)),
        Ok(Delivered::Unknown(why)) => End::Unknown(reason(&why)),
        Err(error) => End::Unknown(words(&*error)),
    }
}

/// Why a job failed, in its own words.
fn why(error: &Error) -> Text {
    match std::error::Error::source(error) {
        Some(own) => words(own),
        None => words(error),
    }
}

/// What an error of user code says; to say it is user code, too.
fn words(error: &dyn std::error::Error) -> Text {
    match catch_unwind(AssertUnwindSafe(|| error.to_string())) {
        Ok(text) => reason(&text),
        Err(_) => Text::constant("the closure failed, and its error panicked when it was asked why"),
    }
}
