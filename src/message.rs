//! Messages as a user makes and gets them: destinations, messages, deliveries. Translation only; what becomes
//! of a message is the core's, and who calls whom the workers'.

use std::fmt;
use std::marker::PhantomData;
use std::ops::RangeInclusive;
use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::core::claim::{Contract, OperationId};
use crate::core::error::Error;
use crate::core::message::{EventStamp, Letter, MessageId, NewMessage, OnDead, Status, Terms};
use crate::core::name::{Key, NAME_BYTES_MAX, Tenant, checked, is_name};
use crate::core::text::Text;
use crate::core::time::{Timestamp, millis};
use crate::kind::{read_json, read_raw, write_json, write_raw};
#[cfg(doc)]
use crate::store::Store;

/// Where messages with payload `T` go: something outside, or a handler in this service.
///
/// What it says of the other side (contract, [`on_dead`](Destination::on_dead), times) is kept with each
/// message, so that a deploy changes nothing for what is under way.
///
/// ```
/// use std::time::Duration;
/// use onecho::{Contract, Destination, OnDead};
/// const PAYMENTS: Destination<u64> = Destination::json("payments", Contract::Idempotent);
/// const LETTERS: Destination<String> = Destination::json("letters", Contract::Neither)
///     .on_dead(OnDead::Skip)
///     .lease(Duration::from_secs(20));
/// # let _ = (PAYMENTS, LETTERS);
/// ```
pub struct Destination<T> {
    name: Text,
    contract: Contract,
    on_dead: OnDead,
    lease: Duration,
    settles_within: Duration,
    write: fn(&T) -> Result<Bytes, Error>,
    read: fn(&Bytes) -> Result<T, Error>,
    of: PhantomData<fn(T) -> T>,
}

/// How long an attempt may take, unless the destination says otherwise.
const LEASE: Duration = Duration::from_secs(60);
/// How long after its start an attempt may still arrive, unless the destination says otherwise.
const SETTLES_WITHIN: Duration = Duration::from_secs(15 * 60);
/// The pauses between attempts, unless the message says otherwise.
const BACKOFF: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(3600));
/// How often a message is sent, unless it says otherwise: for about two days.
const ATTEMPTS_MAX: u32 = 64;

impl<T: Serialize + DeserializeOwned> Destination<T> {
    /// Payloads as JSON: fields may be added later, while messages of before are under way.
    ///
    /// # Panics
    ///
    /// When the name is empty, longer than 128 bytes, or holds a control byte; in a `const` that is a compile
    /// error.
    #[must_use]
    pub const fn json(name: &'static str, contract: Contract) -> Self {
        Self::constant(name, contract, write_json, read_json)
    }
}

impl Destination<Bytes> {
    /// Payloads as they are.
    ///
    /// # Panics
    ///
    /// As [`Destination::json`].
    #[must_use]
    pub const fn raw(name: &'static str, contract: Contract) -> Self {
        Self::constant(name, contract, write_raw, read_raw)
    }

    /// A destination of raw payloads whose name comes from outside.
    ///
    /// # Errors
    ///
    /// `Invalid` when the name is empty or holds a control character, `LimitExceeded` above 128 bytes.
    pub fn parse(name: &str, contract: Contract) -> Result<Self, Error> {
        checked("destination", name, NAME_BYTES_MAX)?;
        Ok(Self { name: name.into(), ..Self::raw("-", contract) })
    }
}

impl<T> Destination<T> {
    const fn constant(
        name: &'static str,
        contract: Contract,
        write: fn(&T) -> Result<Bytes, Error>,
        read: fn(&Bytes) -> Result<T, Error>,
    ) -> Self {
        assert!(is_name(name), "a name is 1 to 128 bytes without control characters");
        Self {
            name: Text::constant(name),
            contract,
            on_dead: OnDead::Block,
            lease: LEASE,
            settles_within: SETTLES_WITHIN,
            write,
            read,
            of: PhantomData,
        }
    }

    /// What a dead letter does to those behind it in its ordering key. Default: [`OnDead::Block`].
    #[must_use]
    pub const fn on_dead(mut self, then: OnDead) -> Self {
        self.on_dead = then;
        self
    }

    /// How long one attempt may take. After this it counts as unknown, whatever its closure still does, so
    /// that a closure which hangs does not keep the message: give it time-outs of its own that are shorter.
    /// Default: 60 s.
    #[must_use]
    pub const fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// How long after its start an attempt may still arrive at the other side. Of a `Queryable` one, "it has
    /// not arrived" counts only after it; "it has" counts at once. Default: 15 min.
    #[must_use]
    pub const fn settles_within(mut self, time: Duration) -> Self {
        self.settles_within = time;
        self
    }

    /// The name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What the other side makes of a repeat.
    #[must_use]
    pub fn contract(&self) -> Contract {
        self.contract
    }

    pub(crate) fn reader(&self) -> fn(&Bytes) -> Result<T, Error> {
        self.read
    }
}

impl<T> fmt::Debug for Destination<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Destination({}, {:?})", self.name.as_str(), self.contract)
    }
}

/// A message to be made: in the commit of a command ([`Effects::enqueue`](crate::Effects::enqueue)), of an
/// event ([`Store::accept`]), or alone ([`Store::enqueue`]).
///
/// A payload has at most 1 MiB, headers 64 and 8 KiB in all, an ordering key 1,024 bytes; that is checked
/// where it is made.
///
/// ```
/// use std::time::Duration;
/// use onecho::{Contract, Destination, Message};
/// const PAYMENTS: Destination<u64> = Destination::json("payments", Contract::Idempotent);
/// let message = Message::new(&PAYMENTS, &1_200)?
///     .ordered_by("customer-7")
///     .header("trace", "4bf92f35")
///     .backoff(Duration::from_secs(1)..=Duration::from_secs(600));
/// # let _ = message;
/// # Ok::<(), onecho::Error>(())
/// ```
#[derive(Clone)]
#[must_use]
pub struct Message(NewMessage);

impl Message {
    /// A message with this payload. It is due at once, is tried 64 times, with pauses that grow from 1 s to 1
    /// hour (about two days), and is then a dead letter.
    ///
    /// # Errors
    ///
    /// `Invalid` when the payload cannot be written.
    pub fn new<T>(to: &Destination<T>, payload: &T) -> Result<Self, Error> {
        let payload = (to.write)(payload)?;
        Ok(Self(NewMessage {
            destination: to.name.clone(),
            order: None,
            keyed: None,
            terms: Terms {
                contract: to.contract,
                on_dead: to.on_dead,
                lease: millis(to.lease),
                settles_within: millis(to.settles_within),
                backoff: (millis(BACKOFF.0), millis(BACKOFF.1)),
                attempts_max: ATTEMPTS_MAX,
            },
            not_before: Timestamp(0),
            letter: Letter { headers: Vec::new(), payload, event: None },
        }))
    }

    /// Messages of one tenant, destination and ordering key are delivered in the order in which they were
    /// made, one at a time.
    pub fn ordered_by(mut self, key: &str) -> Self {
        self.0.order = Some(key.into());
        self
    }

    /// One header, which every delivery has. A name given again replaces its value.
    pub fn header(mut self, name: &str, value: &str) -> Self {
        let headers = &mut self.0.letter.headers;
        match headers.iter_mut().find(|(known, _)| known == name) {
            Some((_, old)) => *old = value.into(),
            None => headers.push((name.into(), value.into())),
        }
        self
    }

    /// It is not delivered before this time.
    pub fn not_before(mut self, time: Timestamp) -> Self {
        self.0.not_before = time;
        self
    }

    /// For [`Store::enqueue`]: within a tenant and a destination, a message whose key is known is not added
    /// again. The key stays known for as long as the message can be looked up, delivered or not.
    pub fn keyed(mut self, key: &Key) -> Self {
        self.0.keyed = Some(Text::from(key.as_str()));
        self
    }

    /// The pauses between attempts: from the first to the longest, each twice as long as the one before, the
    /// second half of it spread so that what failed together does not come together again.
    pub fn backoff(mut self, first_to_longest: RangeInclusive<Duration>) -> Self {
        self.0.terms.backoff = (millis(*first_to_longest.start()), millis(*first_to_longest.end()));
        self
    }

    /// How often it is sent; then it is a dead letter. One at least.
    pub fn attempts_max(mut self, attempts: u32) -> Self {
        self.0.terms.attempts_max = attempts;
        self
    }

    pub(crate) fn into_new(self) -> NewMessage {
        self.0
    }

    /// As the job that an event brings.
    pub(crate) fn of_event(mut self, event: EventStamp) -> NewMessage {
        self.0.letter.event = Some(event);
        self.0
    }
}

/// Shows no payload, header or key.
impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Message")
            .field("destination", &self.0.destination)
            .field("payload_bytes", &self.0.letter.payload.len())
            .finish_non_exhaustive()
    }
}

/// One attempt to deliver a message, or one question about it.
pub struct Delivery {
    pub(crate) id: MessageId,
    pub(crate) status: Status,
    pub(crate) headers: Vec<(Text, Text)>,
    pub(crate) event: Option<EventStamp>,
    pub(crate) newest: Option<Timestamp>,
    pub(crate) operation: OperationId,
}

impl Delivery {
    /// What the other side knows a repeat by: the same in every attempt, over restarts and requeues.
    #[must_use]
    pub fn operation_id(&self) -> &OperationId {
        &self.operation
    }

    /// Which message it is, in this store.
    #[must_use]
    pub fn id(&self) -> MessageId {
        self.id
    }

    /// Whose message it is.
    #[must_use]
    pub fn tenant(&self) -> Tenant {
        self.status.tenant()
    }

    /// Which attempt this is, from 1; of a question, the attempt that it is about.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.status.attempts
    }

    /// Its ordering key.
    #[must_use]
    pub fn ordering_key(&self) -> Option<&str> {
        self.status.order.as_deref()
    }

    /// One header.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// All headers, in the order in which they were given.
    pub fn headers(&self) -> impl Iterator<Item = (&str, &str)> {
        self.headers.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// The id of the event that brought the job.
    #[must_use]
    pub fn event_id(&self) -> Option<&str> {
        self.event.as_ref().map(|event| event.id.as_str())
    }

    /// The time of the event that brought the job.
    #[must_use]
    pub fn event_time(&self) -> Option<Timestamp> {
        self.event.as_ref()?.time
    }

    /// Whether a later event of its stream had been accepted when the attempt began. Events of the same time
    /// do not overtake one another. To decide by, use
    /// [`Effects::put_if_newer`](crate::Effects::put_if_newer): this may have changed meanwhile.
    #[must_use]
    pub fn overtaken(&self) -> bool {
        matches!((self.newest, self.event_time()), (Some(newest), Some(time)) if newest > time)
    }
}

/// Shows no header, id or key.
impl fmt::Debug for Delivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Delivery")
            .field("message", &self.id)
            .field("attempt", &self.attempt())
            .finish_non_exhaustive()
    }
}

/// What came of an attempt, or of a question about one. An `Err` and a panic count as
/// [`Unknown`](Delivered::Unknown), and so does an attempt that takes longer than its
/// [`lease`](Destination::lease).
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Delivered {
    /// It has arrived; this was answered. An answer above 64 KiB is not kept.
    Done(Option<Bytes>),
    /// It did not arrive and will not: it is tried again.
    NotApplied {
        /// When to try again, at most a day from now; `None` leaves it to the message's backoff.
        retry_after: Option<Duration>,
        /// Why.
        why: String,
    },
    /// It was refused for good: a dead letter.
    Refused(String),
    /// It may have arrived. What follows depends on the destination's [`Contract`].
    Unknown(String),
}

/// Shows no answer.
impl fmt::Debug for Delivered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Done(answer) => write!(f, "Done({} bytes)", answer.as_ref().map_or(0, Bytes::len)),
            Self::NotApplied { retry_after, why } => write!(f, "NotApplied({retry_after:?}, {why})"),
            Self::Refused(why) => write!(f, "Refused({why})"),
            Self::Unknown(why) => write!(f, "Unknown({why})"),
        }
    }
}
