//! The right to run one command that reaches outside. Owns what its owner has said and not committed yet;
//! decisions are the core's, order is the engine's.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::core::act::{Closing, Deed, Moves};
use crate::core::claim::{Contract, Open, StepRecord, StepState};
use crate::core::decide::Asked;
use crate::core::error::{BoxError, Error, ErrorKind};
use crate::core::fact::Evidence;
use crate::core::name::{NAME_BYTES_MAX, Scope, checked};
use crate::core::outcome::{Finished, Outcome};
use crate::core::policy::Policy;
use crate::core::reply::Reply;
use crate::core::text::Text;
use crate::effects::Effects;
use crate::engine::claims::{Halfway, Held, Moved};
use crate::kind::{read_json, write_json};
use crate::step::{Step, Stepped};
use crate::store::{Store, typed};

/// What came of [`Store::begin`](crate::Store::begin).
#[derive(Debug)]
#[must_use]
pub enum Begin<C = Claim> {
    /// The command is this caller's to run; the claim is durable.
    Run(C),
    /// It is answered otherwise: replay, in progress, unknown, mismatch and so on.
    Reply(Reply),
}

/// The right to run one command now. Not `Clone`; dropping it writes nothing, its lease ends it.
///
/// Its owner declares each call to something outside before making it ([`Claim::step`]), says what came of it
/// ([`Claim::answer`], [`Claim::not_applied`]), and ends the command with one of [`Claim::finish`],
/// [`Claim::abort`] and [`Claim::unsure`]. An owner that is gone leaves what is known, and so the next one
/// goes on where it stopped, or the command is `Unknown` until somebody finds out: never is a call made
/// twice in silence.
///
/// ```
/// # use onecho::{testing::SimDisk, *};
/// const CHECKOUT: Operation = Operation::new("checkout");
/// const CHARGE: Step<u64> = Step::new("charge", Contract::Idempotent);
/// # fn charge(id: &OperationId, cents: u64) -> Result<u64, BoxError> { Ok(cents) }
/// # let store = SimDisk::seeded(1).open(Options::new())?;
/// # let key = Key::parse("k-1")?;
/// let request = Request::new(&Tenant::new("shop"), &CHECKOUT, &key).json("body", r#"{"cents":5}"#);
/// match store.begin(&request, Start::new().step(&CHARGE).input(&5_u64)?)? {
///     Begin::Run(mut claim) => {
///         let charged = match claim.step(&CHARGE)? {
///             Stepped::Answered(charged) => charged,
///             Stepped::Call(id) => {
///                 let charged = charge(&id, claim.input()?)?;
///                 claim.answer(&CHARGE, &charged)?;
///                 charged
///             }
///         };
///         let finished = claim.finish(|_| Ok(Outcome::succeeded(201).json(&charged)?))?;
///         assert_eq!(finished.code, 201);
///     }
///     Begin::Reply(reply) => println!("{:?}", reply.advice()),
/// }
/// assert!(store.execute(&request, |_| unreachable!())?.is_replay());
/// # Ok::<(), BoxError>(())
/// ```
#[must_use]
pub struct Claim(Box<Owned>);

/// What an owner holds.
struct Owned {
    store: Store,
    asked: Arc<Asked>,
    policy: Policy,
    /// The command as the file has it.
    open: Arc<Open>,
    /// Said, and written with the next commit.
    moves: Moves,
    /// Steps whose call this claim has handed out.
    handed: Vec<Text>,
}

impl Claim {
    pub(crate) fn new(store: &Store, asked: &Arc<Asked>, policy: &Policy, open: Arc<Open>) -> Self {
        let (store, asked, policy) = (store.clone(), Arc::clone(asked), *policy);
        Self(Box::new(Owned { store, asked, policy, open, moves: Moves::default(), handed: Vec::new() }))
    }

    /// Whose command it is, of which kind, and which.
    #[must_use]
    pub fn scope(&self) -> &Scope {
        &self.0.asked.scope
    }

    /// Which attempt this is, from 1; above it, the command was taken over.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.0.open.attempt
    }

    /// What was given to [`Start::input`](crate::Start::input) when the command was first begun.
    ///
    /// # Errors
    ///
    /// `Invalid` when there is none, or it is no `I`.
    pub fn input<I: DeserializeOwned>(&self) -> Result<I, Error> {
        input_of(&self.0.open)
    }

    /// Whether somebody asked that this command stop: see [`Store::cancel`](crate::Store::cancel). What
    /// follows, to go on, to compensate, to finish as failed, is the owner's to decide.
    #[must_use]
    pub fn cancel_asked(&self) -> bool {
        self.0.open.cancel_asked || self.0.store.engine().is_cancel_asked(&self.held())
    }

    /// Renews the lease for another [`Policy::lease`](crate::Policy::lease). In memory: it costs no commit.
    ///
    /// # Errors
    ///
    /// `FenceLost` when the claim is somebody else's or over; `Unavailable` or `Closed` when the store is.
    pub fn heartbeat(&self) -> Result<(), Error> {
        self.0.store.engine().heartbeat(&self.held())
    }

    /// Holds the lease until the guard or the claim is dropped, for
    /// [`Policy::run_max`](crate::Policy::run_max) at most. It costs no thread and no commit: while this
    /// process lives, that its owner is at it is a fact in memory.
    pub fn keep_alive(&self) -> KeepAlive {
        self.0.store.engine().keep_alive(&self.held());
        KeepAlive {
            store: self.0.store.clone(),
            asked: Arc::clone(&self.0.asked),
            policy: self.0.policy,
            token: self.0.open.token,
        }
    }

    /// Declares a call, durably, before it is made; or says what it answered. To a claim that took over:
    /// `Answered` for what is known, `Call` with the same id for what was not applied, or is open and
    /// [`Contract::Idempotent`].
    ///
    /// # Errors
    ///
    /// `Invalid` for a step whose call this claim has handed out already, unless it may be repeated, or whose
    /// answer is no `T`; `FenceLost`; `CommitUncertain` and `Unavailable`, upon which the call must not be
    /// made: say it again once the store is open.
    pub fn step<T: DeserializeOwned>(&mut self, step: &Step<T>) -> Result<Stepped<T>, Error> {
        match self.state_of(step.name()) {
            Some(StepState::Answered(answer)) => return Ok(Stepped::Answered(read_json(&answer)?)),
            Some(StepState::Open)
                if self.is_handed(step.name()) && step.contract() != Contract::Idempotent =>
            {
                let text = format!(
                    "the call of step {} was handed out already: say what came of it, or `unsure`",
                    step.name()
                );
                return Err(Error::invalid(text));
            }
            // Declared with the claim a moment ago: there is nothing to write.
            Some(StepState::Open) if !self.is_handed(step.name()) && self.is_fresh(step.name()) => {}
            Some(StepState::Open | StepState::NotApplied) | None => {
                self.0.moves.declared.push(step.declared());
                let advanced = self.advance(None);
                if advanced.is_err() {
                    self.0.moves.declared.clear();
                }
                advanced?;
            }
        }
        if !self.is_handed(step.name()) {
            self.0.handed.push(step.name().clone());
        }
        Ok(Stepped::Call(self.0.open.operation_id(step.name())))
    }

    /// Says what a call answered; written with the claim's next commit.
    ///
    /// # Errors
    ///
    /// `Invalid` for a step that was not declared or has a result, or an answer that cannot be written as
    /// JSON.
    pub fn answer<T: Serialize>(&mut self, step: &Step<T>, answer: &T) -> Result<(), Error> {
        let state = StepState::Answered(write_json(answer)?);
        self.close(step, state, None)
    }

    /// Says that a call did not take effect and will not: known, not guessed. A time-out is no such evidence.
    /// Written with the claim's next commit.
    ///
    /// # Errors
    ///
    /// `Invalid` for a step that was not declared or has a result.
    pub fn not_applied<T>(&mut self, step: &Step<T>, evidence: Evidence) -> Result<(), Error> {
        self.close(step, StepState::NotApplied, Some(evidence))
    }

    /// Commits effects and a recovery point mid-way, once per name: said again, by this owner or a later one,
    /// it changes nothing and returns the stored point.
    ///
    /// # Errors
    ///
    /// `Aborted` or the closure's own error; `Conflict` when rows kept changing or a name is taken;
    /// `FenceLost`; `Invalid` for a stored point that is no `P`; `CommitUncertain`, `Unavailable`.
    pub fn transact<P: Serialize + DeserializeOwned>(
        &mut self,
        name: &str,
        body: impl Fn(&mut Effects<'_, '_>) -> Result<P, BoxError>,
    ) -> Result<P, Error> {
        checked("name of the recovery point", name, NAME_BYTES_MAX)?;
        if let Some(point) = self.0.open.point(name) {
            return read_json(&point.value);
        }
        let name = Text::from(name);
        let written = self.advance(Some((&name, &|staging| {
            let point = typed(staging, &body)?;
            Ok(write_json(&point)?)
        })))?;
        let stored = match written {
            Some(stored) => stored,
            None => self.0.open.point(&name).map(|point| point.value.clone()).unwrap_or_default(),
        };
        read_json(&stored)
    }

    /// Ends the command as its outcome says, with its effects, in one commit.
    ///
    /// # Errors
    ///
    /// `Invalid` with a step open; otherwise as [`Claim::transact`]. The claim comes back with the error,
    /// unless the fence is lost: the same finish said again is answered by the first. A lost fence says
    /// what the command came to, if it did: [`Error::finished`].
    pub fn finish(
        self,
        body: impl Fn(&mut Effects<'_, '_>) -> Result<Outcome, BoxError>,
    ) -> Result<Finished, Unfinished> {
        if let Some(step) = self.0.open.steps.iter().find(|step| self.is_open(&step.name)) {
            let text = format!(
                "step {} is open: say `answer` or `not_applied` first, or `unsure` if it is not known",
                step.name
            );
            return Err(self.unfinished(Error::invalid(text)));
        }
        let finished =
            self.0.store.engine().finish(&self.held(), &self.0.moves, &|staging| typed(staging, &body));
        finished.map_err(|error| self.unfinished(error))
    }

    /// Gives the command up: nothing happened, a retry may run it.
    ///
    /// # Errors
    ///
    /// `Invalid` when a step is not `not_applied` or a point was committed: then something may have happened;
    /// otherwise as [`Claim::finish`].
    pub fn abort(self, why: &str) -> Result<(), Unfinished> {
        self.give_up(why, Deed::Abort)
    }

    /// Leaves the command as `Unknown`: it may have taken effect outside, and somebody has to find out.
    ///
    /// # Errors
    ///
    /// As [`Claim::finish`].
    pub fn unsure(self, note: &str) -> Result<(), Unfinished> {
        self.give_up(note, Deed::Unsure)
    }

    fn give_up(self, why: &str, deed: Deed) -> Result<(), Unfinished> {
        let note = Some(Evidence::new("owner", why));
        let moves = Moves { note, ..self.0.moves.clone() };
        let given_up = self.0.store.engine().give_up(&self.held(), &moves, deed);
        given_up.map_err(|error| self.unfinished(error))
    }

    fn unfinished(self, error: Error) -> Unfinished {
        let is_lost = error.kind() == ErrorKind::FenceLost;
        Unfinished { claim: (!is_lost).then_some(self), error }
    }

    fn held(&self) -> Held<'_> {
        Held { asked: &self.0.asked, policy: &self.0.policy, token: self.0.open.token }
    }

    /// Writes what was said, and with a point its effects.
    fn advance(&mut self, point: Option<Halfway<'_>>) -> Result<Option<Bytes>, Error> {
        match self.0.store.engine().advance(&self.held(), &self.0.moves, point)? {
            Moved::Open(open) => {
                self.0.open = open;
                self.0.moves = Moves::default();
                Ok(None)
            }
            Moved::Reached(value) => Ok(Some(value)),
        }
    }

    fn close<T>(
        &mut self,
        step: &Step<T>,
        state: StepState,
        evidence: Option<Evidence>,
    ) -> Result<(), Error> {
        match self.state_of(step.name()) {
            Some(StepState::Open) => {
                self.0.moves.closed.push(Closing { step: step.name().clone(), state, evidence });
                Ok(())
            }
            Some(_) => Err(Error::invalid(format!("step {} has a result already", step.name()))),
            None => Err(Error::invalid(format!("step {} was not declared", step.name()))),
        }
    }

    /// What is known of a step: what was said and not written yet, else what the file has.
    fn state_of(&self, name: &Text) -> Option<StepState> {
        let said = self.0.moves.closed.iter().rev().find(|closing| closing.step == *name);
        let written = || self.0.open.step(name).map(|step| step.state.clone());
        said.map(|closing| closing.state.clone()).or_else(written)
    }

    fn is_open(&self, name: &Text) -> bool {
        self.state_of(name) == Some(StepState::Open)
    }

    fn is_handed(&self, name: &Text) -> bool {
        self.0.handed.contains(name)
    }

    /// Whether a step was declared with this very claim, just now, and its lease lasts: else it is declared
    /// again, so that the file says whose the command is, and its time to settle begins with its call.
    fn is_fresh(&self, name: &Text) -> bool {
        let is_of_claim = |step: &&StepRecord| step.started == self.0.open.granted;
        let step = self.0.open.step(name).filter(is_of_claim);
        self.0.open.attempt == 1
            && step.is_some_and(|step| self.0.store.engine().is_just_declared(&self.held(), step))
    }
}

/// A guard that outlives its claim keeps nothing.
impl Drop for Claim {
    fn drop(&mut self) {
        self.0.store.engine().let_go(&self.held(), true);
    }
}

/// Shows no key.
impl fmt::Debug for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Claim").field("open", &self.0.open).finish_non_exhaustive()
    }
}

/// What was given when a command was first begun.
pub(crate) fn input_of<I: DeserializeOwned>(open: &Open) -> Result<I, Error> {
    match &open.input {
        Some(input) => read_json(input),
        None => Err(Error::invalid("the command was begun without an input")),
    }
}

/// While it lives, the lease of its claim does, for [`Policy::run_max`](crate::Policy::run_max) at most.
#[must_use]
pub struct KeepAlive {
    store: Store,
    asked: Arc<Asked>,
    policy: Policy,
    token: u64,
}

impl Drop for KeepAlive {
    fn drop(&mut self) {
        let held = Held { asked: &self.asked, policy: &self.policy, token: self.token };
        self.store.engine().let_go(&held, false);
    }
}

impl fmt::Debug for KeepAlive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeepAlive").finish_non_exhaustive()
    }
}

/// A claim that could not be ended, and why. `?` makes it an [`Error`] and lets the claim go: the command
/// becomes what a crash there would have made of it.
#[non_exhaustive]
pub struct Unfinished<C = Claim> {
    /// The claim, to try again; none when the fence is lost.
    pub claim: Option<C>,
    /// What went wrong.
    pub error: Error,
}

impl<C> From<Unfinished<C>> for Error {
    fn from(unfinished: Unfinished<C>) -> Self {
        unfinished.error
    }
}

impl<C> fmt::Display for Unfinished<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl<C> fmt::Debug for Unfinished<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_back = self.claim.is_some();
        f.debug_struct("Unfinished").field("error", &self.error).field("claim_is_back", &is_back).finish()
    }
}

impl<C> std::error::Error for Unfinished<C> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        std::error::Error::source(&self.error)
    }
}
