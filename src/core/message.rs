//! A message to something outside, or a job for this service: what is kept of it from the commit that made it
//! to its end. Owns its data and limits; must not know which event may change it (`step`), which rows follow
//! (`decide::messages`) or how it is stored (`db`).

use std::fmt;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::claim::{Contract, Moment, OperationId};
use super::error::{Error, ErrorKind};
use super::name::{ID_BYTES_MAX, NAME_BYTES_MAX, Tenant, checked};
use super::row::RowKey;
use super::text::Text;
use super::time::Timestamp;

mod home;
mod layout;
pub(crate) mod step;

/// The largest payload of a message, in bytes.
pub const PAYLOAD_BYTES_MAX: usize = 1024 * 1024;
/// The most headers of a message.
pub const HEADERS_MAX: usize = 64;
/// The most that the headers of a message take, names and values together, in bytes.
pub const HEADER_BYTES_MAX: usize = 8 * 1024;
/// The most messages that one command, or one call of `Store::enqueue`, makes.
pub const MESSAGES_MAX: usize = 1024;
/// The longest answer of a delivery that is kept, in bytes; of a longer one it is only known that it came.
pub const ANSWER_BYTES_MAX: usize = 64 * 1024;
/// The longest reason that is kept with a message, in bytes; a longer one is cut.
pub const WHY_BYTES_MAX: usize = 1024;

/// Names a message for as long as the store lasts: the number of the journal entry that made it, and which
/// one of that entry it is.
///
/// ```
/// # use onecho::{testing::SimDisk, *};
/// const UPLOAD: Destination<Bytes> = Destination::raw("telemetry", Contract::Idempotent);
/// # let store = SimDisk::seeded(1).open(Options::new())?;
/// let message = Message::new(&UPLOAD, &Bytes::from_static(b"1,2,3"))?;
/// let id = store.enqueue(&Tenant::new("device"), &[message])?[0];
/// assert_eq!(MessageId::parse(&id.to_string())?, id);
/// # Ok::<(), BoxError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct MessageId {
    pub(crate) seq: u64,
    pub(crate) ordinal: u32,
}

impl MessageId {
    /// An id as [`Display`](fmt::Display) writes it, such as `17-0`.
    ///
    /// # Errors
    ///
    /// `Invalid` for any other text.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let parts = text.split_once('-').and_then(|(seq, ordinal)| {
            let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
            (digits(seq) && digits(ordinal)).then_some((seq.parse().ok()?, ordinal.parse().ok()?))
        });
        let (seq, ordinal) =
            parts.ok_or_else(|| Error::invalid("the id of a message is two numbers, such as 17-0"))?;
        Ok(Self { seq, ordinal })
    }
}

impl fmt::Display for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.seq, self.ordinal)
    }
}

/// What a dead letter does to the messages of its ordering key that come after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum OnDead {
    /// They wait until somebody has settled it: what comes later may build on it. The default.
    Block,
    /// They go on without it.
    Skip,
}

/// How somebody ends a message that nobody delivers any more, with
/// [`Store::settle`](crate::Store::settle).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Settle {
    /// It has arrived after all.
    Delivered,
    /// It is sent again, under the same operation id, with all attempts before it.
    SendAgain,
    /// It is not to be sent any more.
    Discard,
}

/// Where a message is on its way.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum MessageState {
    /// It waits for its turn, or for its next attempt.
    Waiting {
        /// Attempts made so far.
        attempts: u32,
        /// When it is due; one behind others of its ordering key is so when they are over, not before.
        next: Timestamp,
    },
    /// An attempt is under way.
    Sending {
        /// Attempts made so far, this one included.
        attempts: u32,
    },
    /// An attempt may have arrived. It is asked for (`Queryable`), or waits for somebody who settles it.
    Unknown {
        /// Attempts made so far.
        attempts: u32,
    },
    /// It has arrived, or its job is done.
    Delivered {
        /// When that was recorded.
        at: Timestamp,
        /// What the other side answered; `None` where it said nothing, or more than 64 KiB.
        answer: Option<Bytes>,
    },
    /// It was refused for good, or has used up its attempts.
    Dead {
        /// Why.
        why: String,
    },
    /// Somebody decided that it is not sent any more.
    Discarded {
        /// When that was recorded.
        at: Timestamp,
    },
}

/// Shows no answer.
impl fmt::Debug for MessageState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Waiting { attempts, next } => write!(f, "Waiting({attempts} attempts, next {next})"),
            Self::Sending { attempts } => write!(f, "Sending({attempts} attempts)"),
            Self::Unknown { attempts } => write!(f, "Unknown({attempts} attempts)"),
            Self::Delivered { at, answer } => {
                write!(f, "Delivered({at}, {} bytes)", answer.as_ref().map_or(0, Bytes::len))
            }
            Self::Dead { why } => write!(f, "Dead({why})"),
            Self::Discarded { at } => write!(f, "Discarded({at})"),
        }
    }
}

/// What is sent. Written once, and gone when the message is over: until then a dead letter can be sent again.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Letter {
    pub headers: Vec<(Text, Text)>,
    pub payload: Bytes,
    /// The event that brought it.
    pub event: Option<EventStamp>,
}

/// What is kept of an event with its job.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct EventStamp {
    pub inbox: Text,
    pub id: Text,
    pub time: Option<Timestamp>,
    pub stream: Option<Text>,
}

/// What holds for a message, as its destination and its maker said when it was made: a deploy changes nothing
/// for what is under way.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Terms {
    pub contract: Contract,
    pub on_dead: OnDead,
    /// How long one attempt may take, in milliseconds; after this it counts as unknown.
    pub lease: u64,
    /// How long after its start an attempt may still arrive, in milliseconds.
    pub settles_within: u64,
    /// The first and the longest pause between attempts, in milliseconds.
    pub backoff: (u64, u64),
    pub attempts_max: u32,
}

/// A message as somebody wants to send it.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct NewMessage {
    pub destination: Text,
    /// Its ordering key.
    pub order: Option<Text>,
    /// Known under this key, it is not added again.
    pub keyed: Option<Text>,
    pub terms: Terms,
    pub not_before: Timestamp,
    pub letter: Letter,
}

impl NewMessage {
    /// Refuses what is too much to keep, or cannot stand in a key.
    pub fn check(&self) -> Result<(), Error> {
        let over = |what: String| Err(Error::new(ErrorKind::LimitExceeded, what));
        checked("destination", &self.destination, NAME_BYTES_MAX)?;
        if let Some(order) = &self.order {
            checked("ordering key", order, ID_BYTES_MAX)?;
        }
        let Letter { headers, payload, .. } = &self.letter;
        if payload.len() > PAYLOAD_BYTES_MAX {
            return over(format!("the payload has {} bytes, more than {PAYLOAD_BYTES_MAX}", payload.len()));
        }
        if headers.len() > HEADERS_MAX {
            return over(format!("the message has more than {HEADERS_MAX} headers"));
        }
        if self.letter.header_bytes() > HEADER_BYTES_MAX {
            return over(format!("the headers have more than {HEADER_BYTES_MAX} bytes"));
        }
        let Terms { backoff: (first, longest), attempts_max, .. } = self.terms;
        if first == 0 || longest < first || attempts_max == 0 {
            return Err(Error::invalid(
                "a backoff goes from more than zero to no less, and there is one attempt at least",
            ));
        }
        Ok(())
    }

    /// What it writes, in bytes.
    pub fn bytes(&self) -> usize {
        self.letter.bytes() + self.destination.len() + 2 * self.order.as_ref().map_or(0, |order| order.len())
    }
}

impl Letter {
    pub fn header_bytes(&self) -> usize {
        self.headers.iter().map(|(name, value)| name.len() + value.len()).sum()
    }

    pub fn bytes(&self) -> usize {
        self.payload.len() + self.header_bytes()
    }
}

/// A message without what is sent: small, and written again with each attempt.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Status {
    pub tenant: Text,
    pub destination: Text,
    pub order: Option<Text>,
    /// The first half of the digest that makes its operation id.
    pub operation: [u8; 16],
    pub terms: Terms,
    pub not_before: Timestamp,
    /// When it was made.
    pub since: Timestamp,
    /// Attempts that were made, and how many may still be.
    pub attempts: u32,
    pub left: u32,
    /// How often the other side was asked since the last attempt.
    pub asked: u32,
    pub stage: Stage,
    /// Why the last attempt did not do.
    pub why: Option<Text>,
    /// The one behind it in its ordering key.
    pub next: Option<MessageId>,
}

/// Where a message is on its way.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Stage {
    /// Behind another of its ordering key.
    Queued,
    /// Has a row in the list of what is due.
    Waiting {
        due: Timestamp,
    },
    /// Somebody is at it. Has a row in the list of what is under way.
    Flying(Flight),
    /// The flight may have arrived, and the other side can be asked. Has a row in the list of what is due.
    Unsure {
        due: Timestamp,
        flight: Flight,
    },
    /// The flight may have arrived, and only people can find out.
    Unknown {
        since: Timestamp,
        flight: Flight,
    },
    Dead {
        since: Timestamp,
    },
    Delivered {
        at: Timestamp,
        answer: Option<Bytes>,
    },
    Discarded {
        at: Timestamp,
    },
}

/// What a worker took a message for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Errand {
    /// To send it.
    Send,
    /// To ask what became of it; `token` and `started` are those of the attempt it asks about, which this one
    /// may not hide.
    Ask { token: u64, started: Moment },
    /// To do it here: what it does and its end are one commit, so that without the one there is not the
    /// other.
    Job,
}

/// One attempt, or one question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Flight {
    /// The number of the entry that it began with.
    pub token: u64,
    pub errand: Errand,
    pub started: Moment,
}

impl Status {
    pub fn operation_id(&self) -> OperationId {
        OperationId::from_half(&self.operation)
    }

    pub fn tenant(&self) -> Tenant {
        Tenant(self.tenant.clone())
    }

    /// Whether nothing will happen to it any more.
    pub fn is_over(&self) -> bool {
        matches!(self.stage, Stage::Delivered { .. } | Stage::Discarded { .. })
    }

    pub fn is_dead(&self) -> bool {
        matches!(self.stage, Stage::Dead { .. })
    }

    /// Whether it has a place in its ordering key.
    pub fn is_in_order(&self) -> bool {
        let is_skipped = self.is_dead() && self.terms.on_dead == OnDead::Skip;
        self.order.is_some() && !self.is_over() && !is_skipped
    }

    /// Since when it keeps those behind it from going on, until somebody settles it.
    pub fn blocks_since(&self) -> Option<Timestamp> {
        match &self.stage {
            Stage::Unknown { since, .. } | Stage::Dead { since } if self.is_in_order() => Some(*since),
            _ => None,
        }
    }

    /// The row of its ordering key.
    pub fn queue_key(&self) -> Option<RowKey> {
        self.order.as_ref().map(|order| RowKey::queue(&self.tenant, &self.destination, order))
    }

    /// Where it stands in the list of what is due.
    pub fn due_key(&self, id: MessageId) -> Option<RowKey> {
        match &self.stage {
            Stage::Waiting { due } | Stage::Unsure { due, .. } => {
                Some(RowKey::due(&self.destination, *due, id))
            }
            _ => None,
        }
    }

    pub fn is_flying(&self) -> bool {
        matches!(self.stage, Stage::Flying(_))
    }

    /// Whether it may have arrived.
    pub fn is_unknown(&self) -> bool {
        match &self.stage {
            Stage::Unsure { .. } | Stage::Unknown { .. } => true,
            Stage::Flying(flight) => matches!(flight.errand, Errand::Ask { .. }),
            _ => false,
        }
    }

    /// What anybody is told of it.
    pub fn told(&self) -> MessageState {
        let attempts = self.attempts;
        match &self.stage {
            Stage::Queued => MessageState::Waiting { attempts, next: self.not_before.max(self.since) },
            Stage::Waiting { due } => MessageState::Waiting { attempts, next: *due },
            Stage::Flying(_) if !self.is_unknown() => MessageState::Sending { attempts },
            Stage::Flying(_) | Stage::Unsure { .. } | Stage::Unknown { .. } => {
                MessageState::Unknown { attempts }
            }
            Stage::Dead { .. } => {
                MessageState::Dead { why: self.why.as_deref().unwrap_or_default().to_owned() }
            }
            Stage::Delivered { at, answer } => MessageState::Delivered { at: *at, answer: answer.clone() },
            Stage::Discarded { at } => MessageState::Discarded { at: *at },
        }
    }
}

/// The messages of one ordering key that are not over, first to last.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Queue {
    pub head: MessageId,
    pub tail: MessageId,
    pub count: u64,
    /// Since when its head waits for somebody who settles it.
    pub blocked: Option<Timestamp>,
}

/// What the store's own rows of messages hold. The order of variants is the stored format.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Post {
    Status(Box<Status>),
    Letter(Letter),
    Queue(Queue),
    /// The message that is known under a key.
    Known(MessageId),
    /// Its key, or the event time of its row, says it all: what is due, what is under way, a stream's newest
    /// event.
    Mark,
}

impl Post {
    /// What it holds, in bytes, where that may be much.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Letter(letter) => letter.bytes(),
            Self::Status(status) => match &status.stage {
                Stage::Delivered { answer: Some(answer), .. } => answer.len(),
                _ => 0,
            },
            Self::Queue(_) | Self::Known(_) | Self::Mark => 0,
        }
    }
}

/// The longest beginning of a text that is kept as a reason.
pub(crate) fn reason(why: &str) -> Text {
    let end = (0..=WHY_BYTES_MAX.min(why.len())).rev().find(|&end| why.is_char_boundary(end));
    Text::from(&why[..end.unwrap_or_default()])
}
