//! Calls to something outside, as the program names them. Translation only.

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::core::act::Start as Starting;
use crate::core::claim::{Contract, NewStep, OperationId};
use crate::core::error::Error;
use crate::core::name::is_name;
use crate::core::text::Text;
use crate::core::time::millis;
use crate::kind::write_json;

/// How late a request may still take effect, unless a step says otherwise.
const SETTLES_WITHIN: Duration = Duration::from_secs(15 * 60);

/// A call to something outside the store, which answers with a `T`. Declared before it is made, so that
/// nobody makes it again unknowingly.
///
/// ```
/// use std::time::Duration;
/// use onecho::{Contract, Step};
/// const CHARGE: Step<u64> =
///     Step::new("charge", Contract::Queryable).settles_within(Duration::from_secs(600));
/// # let _ = CHARGE;
/// ```
pub struct Step<T> {
    name: Text,
    contract: Contract,
    settles_within: Duration,
    of: PhantomData<fn() -> T>,
}

impl<T: Serialize + DeserializeOwned> Step<T> {
    /// A step under a name, unique within its operation; `contract` is what the other side does with a
    /// repeat. Answers are kept as JSON: fields may be added later.
    ///
    /// # Panics
    ///
    /// When the name is empty, longer than 128 bytes, or holds a control byte; in a `const` that is a compile
    /// error.
    #[must_use]
    pub const fn new(name: &'static str, contract: Contract) -> Self {
        assert!(is_name(name), "a name is 1 to 128 bytes without control characters");
        Self { name: Text::constant(name), contract, settles_within: SETTLES_WITHIN, of: PhantomData }
    }
}

impl<T> Step<T> {
    /// How long after it was declared a request may still take effect at the other side; 15 minutes unless
    /// said. Until then "the other side has not seen it" proves nothing.
    #[must_use]
    pub const fn settles_within(mut self, time: Duration) -> Self {
        self.settles_within = time;
        self
    }

    pub(crate) fn name(&self) -> &Text {
        &self.name
    }

    pub(crate) fn contract(&self) -> Contract {
        self.contract
    }

    pub(crate) fn declared(&self) -> NewStep {
        let settles_within = millis(self.settles_within);
        NewStep { name: self.name.clone(), contract: self.contract, settles_within }
    }
}

impl<T> Clone for Step<T> {
    fn clone(&self) -> Self {
        Self { name: self.name.clone(), ..*self }
    }
}

impl<T> fmt::Debug for Step<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Step({}, {:?})", self.name, self.contract)
    }
}

/// What [`Claim::step`](crate::Claim::step) says.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Stepped<T> {
    /// It is declared and durable: make the call, and send this id along.
    Call(OperationId),
    /// It was made: an earlier owner or somebody who asked the other side knows the answer.
    Answered(T),
}

/// What goes into the claim's own commit.
///
/// ```
/// use onecho::{Contract, Start, Step};
/// const CHARGE: Step<u64> = Step::new("charge", Contract::Queryable);
/// let start = Start::new().step(&CHARGE).input(&("cart-17", 1_200))?;
/// # let _ = start;
/// # Ok::<(), onecho::Error>(())
/// ```
#[derive(Clone, Default)]
#[must_use]
pub struct Start {
    steps: Vec<NewStep>,
    input: Option<Bytes>,
}

impl Start {
    /// Nothing but the claim.
    pub fn new() -> Self {
        Self::default()
    }

    /// Declares a step with the claim, so that its call needs no commit of its own.
    pub fn step<T>(mut self, step: &Step<T>) -> Self {
        if !self.steps.iter().any(|known| known.name == *step.name()) {
            self.steps.push(step.declared());
        }
        self
    }

    /// What a takeover needs to go on, kept as JSON until the command is finished.
    ///
    /// # Errors
    ///
    /// `Invalid` when it cannot be written as JSON.
    pub fn input<I: Serialize>(mut self, input: &I) -> Result<Self, Error> {
        self.input = Some(write_json(input)?);
        Ok(self)
    }

    pub(crate) fn starting(self, lease: Duration) -> Starting {
        Starting { steps: self.steps, input: self.input, lease: millis(lease).max(1) }
    }
}

impl fmt::Debug for Start {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.steps.iter().map(|step| step.name.as_str()).collect();
        f.debug_struct("Start").field("steps", &names).finish_non_exhaustive()
    }
}
