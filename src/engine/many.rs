//! Many commands in one call, few commits: rounds of as many commands as can be decided together, in order.
//!
//! A round ends before the first command that has to see what an earlier one of it does: one whose closure
//! read a row that an earlier one changes, one of a scope that stands in the round already, and one that has
//! to wait for another caller. An `add` reads nothing: commands that share a counter share a round. No place
//! is kept while waiting for another, so two calls cannot wait for each other.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use foldhash::HashSet;

use super::Engine;
use super::clock::Deadline;
use super::counters::count;
use super::draft::{Draft, Verdict};
use super::execute::{Placed, leave_failed};
use super::places::PlaceGuard;
use super::queue::Size;
use super::staging::{Ahead, Ids, Seen, Staging};
use crate::core::act::Act;
use crate::core::decide::{Asked, Purpose};
use crate::core::error::{BoxError, Error};
use crate::core::name::ScopeDigest;
use crate::core::outcome::Outcome;
use crate::core::policy::Policy;
use crate::core::reply::{RETRY_SOON, Reply};

/// The closure of command `n`.
pub(crate) type RunMany<'r> = &'r dyn Fn(usize, &mut Staging<'_>) -> Result<Outcome, BoxError>;

/// One command of the call.
pub(crate) struct Job {
    pub asked: Arc<Asked>,
    pub wait: Option<Duration>,
}

type Answer = Result<Reply, Error>;

/// A command whose closure has run and waits for the round's commit.
struct Ready<'p> {
    draft: Draft,
    waiting: Waiting<'p>,
}

/// What is needed of it once its draft is with the writer.
struct Waiting<'p> {
    number: usize,
    guard: Option<PlaceGuard<'p>>,
    asked: Arc<Asked>,
    /// It was told what the commands before it should do, and they may have done otherwise.
    ran_ahead: bool,
    body: Bytes,
}

/// What became of a command that was to join a round.
#[expect(clippy::large_enum_variant, reason = "it is taken apart where it is made")]
enum Joined<'p> {
    Ready(Ready<'p>),
    Answered(Answer),
    /// It has to wait for the round's commit, or for another caller.
    Later,
}

/// What the commands of a round have in common.
#[derive(Default)]
struct Round {
    scopes: HashSet<ScopeDigest>,
    ahead: Ahead,
}

/// One call of `execute_many`.
struct Call<'e> {
    engine: &'e Engine,
    jobs: &'e [Result<Job, Error>],
    run: RunMany<'e>,
    ids: Vec<Ids>,
    lost: Vec<u32>,
    answers: Vec<Option<Answer>>,
}

impl Engine {
    /// Runs each command that has no outcome yet. Answers are in the order of the commands.
    pub fn execute_many(&self, jobs: &[Result<Job, Error>], run: RunMany<'_>) -> Vec<Answer> {
        let mut call = Call {
            engine: self,
            jobs,
            run,
            ids: jobs.iter().map(|_| Ids::default()).collect(),
            lost: vec![0; jobs.len()],
            answers: jobs.iter().map(|_| None).collect(),
        };
        let mut pending: VecDeque<usize> = (0..jobs.len()).collect();
        while !pending.is_empty() {
            let ready = call.gather(&mut pending);
            if ready.is_empty() {
                // The first one has to wait for another caller; it may, as nothing is held.
                if let Some(number) = pending.pop_front() {
                    call.alone(number);
                }
                continue;
            }
            for number in call.commit(ready).into_iter().rev() {
                pending.push_front(number);
            }
        }
        call.answers.into_iter().map(|answer| answer.unwrap_or_else(|| Ok(self.full(RETRY_SOON)))).collect()
    }
}

impl<'e> Call<'e> {
    /// Runs closures from the front of `pending` until one cannot join; the rest stays pending.
    fn gather(&mut self, pending: &mut VecDeque<usize>) -> Vec<Ready<'e>> {
        let mut round = Round::default();
        let mut ready = Vec::new();
        let mut size = Size::default();
        // The last command may go over the limit; the queue then makes it a larger batch, not a split one.
        while size.commands < self.engine.settings.batch.commands && size.fits(self.engine.settings.batch) {
            let Some(&number) = pending.front() else { break };
            match self.join(number, &mut round) {
                Joined::Ready(joined) => {
                    size = size.and(joined.draft.size());
                    ready.push(joined);
                }
                Joined::Answered(answer) => self.answers[number] = Some(answer),
                Joined::Later => break,
            }
            pending.pop_front();
        }
        ready
    }

    fn join(&mut self, number: usize, round: &mut Round) -> Joined<'e> {
        let engine = self.engine;
        let job = match &self.jobs[number] {
            Ok(job) => job,
            Err(fault) => return Joined::Answered(Err(fault.share())),
        };
        let asked = &job.asked;
        if let Err(inside) = engine.not_inside() {
            return Joined::Answered(Err(inside));
        }
        match engine.refused(asked) {
            Ok(None) => {}
            Ok(Some(refused)) => return Joined::Answered(Ok(refused)),
            Err(error) => return Joined::Answered(Err(error)),
        }
        let policy = *engine.settings.policy(&asked.scope.operation);
        let mut guard = None;
        if asked.is_protected {
            if round.scopes.contains(&asked.digest) {
                return Joined::Later;
            }
            match engine.place(asked, &policy, Deadline::after(Duration::ZERO), Purpose::Execute) {
                Ok(Placed::Run(taken)) => guard = Some(taken),
                Ok(Placed::Answered(Reply::InProgress { .. }) | Placed::Claimed(_) | Placed::Again) => {
                    return Joined::Later;
                }
                Ok(Placed::Answered(reply)) => return Joined::Answered(Ok(reply)),
                Err(error) => return Joined::Answered(Err(error)),
            }
        }
        self.stage(number, guard, asked, policy, round)
    }

    fn stage(
        &mut self,
        number: usize,
        guard: Option<PlaceGuard<'e>>,
        asked: &Arc<Asked>,
        policy: Policy,
        round: &mut Round,
    ) -> Joined<'e> {
        let run = self.run;
        let mut staging =
            Staging::new(self.engine, &asked.scope.tenant, &mut self.ids[number], Some(&round.ahead));
        let called = self.engine.call(|staging| run(number, staging), &mut staging);
        let left = staging.into_left();
        // A failure is answered without a commit, so it has to stand on committed rows.
        if left.seen == Seen::Hidden || left.seen == Seen::Counters && called.is_err() {
            return Joined::Later;
        }
        let outcome = match called {
            Ok(outcome) => outcome,
            Err(error) => return Joined::Answered(Err(self.engine.aborted(error))),
        };
        // Should it turn out that its outcome cannot be written, those behind it are told too much, and the
        // writer sends them round again.
        round.ahead.follow(&left);
        let ran_ahead = left.seen == Seen::Counters;
        let body = outcome.body.clone();
        let owner = &self.engine.settings.owner;
        let draft = match Draft::new(asked, &policy, Act::Execute, outcome, left.staged, owner) {
            Ok(draft) => draft,
            Err(_) if ran_ahead => return Joined::Later,
            Err(error) => return Joined::Answered(Err(error)),
        };
        round.scopes.insert(asked.digest);
        let waiting = Waiting { number, guard, asked: Arc::clone(asked), ran_ahead, body };
        Joined::Ready(Ready { draft, waiting })
    }

    /// Commits a round; returns the numbers of those that have to run again, in order.
    fn commit(&mut self, ready: Vec<Ready<'e>>) -> Vec<usize> {
        let (drafts, waiting): (Vec<Draft>, Vec<Waiting<'e>>) =
            ready.into_iter().map(|ready| (ready.draft, ready.waiting)).unzip();
        let deadline = Deadline::after(self.round_wait(waiting.iter().map(|waiting| waiting.number)));
        let size = drafts.iter().map(Draft::size).fold(Size::default(), Size::and);
        let lost = waiting.iter().map(|waiting| self.lost[waiting.number]).max().unwrap_or_default();
        let verdicts = match self.engine.queue.submit(drafts, size, lost, deadline, self.engine) {
            Ok(Ok(verdicts)) => verdicts,
            Ok(Err(error)) => {
                for Waiting { number, guard, .. } in waiting {
                    leave_failed(guard, &error);
                    self.answers[number] = Some(Err(error.share()));
                }
                return Vec::new();
            }
            Err(_) => {
                for Waiting { number, .. } in waiting {
                    self.answers[number] = Some(Ok(self.engine.full(RETRY_SOON)));
                }
                return Vec::new();
            }
        };
        let mut again = Vec::new();
        for (waiting, verdict) in waiting.into_iter().zip(verdicts) {
            let Waiting { number, guard, asked, ran_ahead, body } = waiting;
            match verdict {
                Verdict::Done(record) => {
                    self.answers[number] = Some(Ok(self.engine.done(guard, &asked, record, body)));
                }
                Verdict::Again { resource, version } => {
                    count(&self.engine.counters.reruns);
                    // Who ran ahead lost to its own call. The first of a round never does, so the call ends.
                    self.lost[number] += u32::from(!ran_ahead);
                    if self.lost[number] <= self.engine.settings.rerun_max {
                        again.push(number);
                    } else {
                        let reply = Reply::Conflict { resource, version };
                        self.engine.tally(&reply);
                        self.answers[number] = Some(Ok(reply));
                    }
                }
                other => {
                    let policy = self.engine.settings.policy(&asked.scope.operation);
                    self.answers[number] = Some(self.engine.refusal(guard, &asked, policy, other));
                }
            }
        }
        again
    }

    /// How long the round may wait for room in the queue: as long as its most patient command.
    fn round_wait(&self, numbers: impl Iterator<Item = usize>) -> Duration {
        let jobs = numbers.filter_map(|number| self.jobs[number].as_ref().ok());
        let usual = |job: &Job| self.engine.settings.policy(&job.asked.scope.operation).wait;
        jobs.map(|job| job.wait.unwrap_or_else(|| usual(job))).max().unwrap_or_default()
    }

    /// Runs one command by itself, with its own budget for waiting.
    fn alone(&mut self, number: usize) {
        let run = self.run;
        self.answers[number] = Some(match &self.jobs[number] {
            Ok(job) => self.engine.execute(&job.asked, job.wait, &|staging| run(number, staging)),
            Err(fault) => Err(fault.share()),
        });
    }
}
