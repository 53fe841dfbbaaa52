//! A message as people look at it. Translation only.

use std::fmt;

use bytes::Bytes;

use crate::core::claim::{Contract, OperationId};
use crate::core::message::{EventStamp, Letter, MessageId, MessageState, Status};
use crate::core::name::Tenant;
use crate::core::time::Timestamp;

/// A message with all that is kept of it: [`Store::message_record`](crate::Store::message_record).
///
/// ```
/// # use onecho::{testing::SimDisk, *};
/// const PRINT: Destination<String> = Destination::json("printer", Contract::Neither);
/// # let store = SimDisk::seeded(1).open(Options::new())?;
/// let id = store.enqueue(&Tenant::new("shop"), &[Message::new(&PRINT, &"label 7".to_owned())?])?[0];
/// let record = store.message_record(id)?.ok_or("there is none")?;
/// assert_eq!((record.destination.as_str(), record.attempts), ("printer", 0));
/// # Ok::<(), BoxError>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct MessageRecord {
    /// Which message it is.
    pub id: MessageId,
    /// Whose message it is.
    pub tenant: Tenant,
    /// Where it goes.
    pub destination: String,
    /// Its ordering key.
    pub ordering_key: Option<String>,
    /// What the other side knows a repeat by.
    pub operation: OperationId,
    /// What a repeat does there.
    pub contract: Contract,
    /// When it was made.
    pub since: Timestamp,
    /// Where it is on its way.
    pub state: MessageState,
    /// Attempts made so far.
    pub attempts: u32,
    /// Attempts that may still be made.
    pub attempts_left: u32,
    /// Why the last attempt did not do.
    pub why: Option<String>,
    /// Its headers, in the order in which they were given; none of one that is over.
    pub headers: Vec<(String, String)>,
    /// What it sends; `None` when it is over.
    pub payload: Option<Bytes>,
    /// The event that brought it as a job; not known any more when it is over.
    pub event: Option<EventOrigin>,
}

/// The event that brought a job.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct EventOrigin {
    /// Its source and its consumer, with a slash between them.
    pub inbox: String,
    /// The id that its sender gave it.
    pub id: String,
    /// When it happened, as its sender says.
    pub time: Option<Timestamp>,
    /// What it is about.
    pub stream: Option<String>,
}

impl MessageRecord {
    pub(crate) fn of(id: MessageId, status: &Status, letter: Option<Letter>) -> Self {
        let (headers, payload, event) = match letter {
            Some(Letter { headers, payload, event }) => (headers, Some(payload), event),
            None => (Vec::new(), None, None),
        };
        Self {
            id,
            tenant: status.tenant(),
            destination: status.destination.to_string(),
            ordering_key: status.order.as_ref().map(ToString::to_string),
            operation: status.operation_id(),
            contract: status.terms.contract,
            since: status.since,
            state: status.told(),
            attempts: status.attempts,
            attempts_left: status.left,
            why: status.why.as_ref().map(ToString::to_string),
            headers: headers.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect(),
            payload,
            event: event.map(EventOrigin::from),
        }
    }
}

impl From<EventStamp> for EventOrigin {
    fn from(event: EventStamp) -> Self {
        Self {
            inbox: event.inbox.to_string(),
            id: event.id.to_string(),
            time: event.time,
            stream: event.stream.map(|stream| stream.to_string()),
        }
    }
}

/// Shows no header, payload or key.
impl fmt::Debug for MessageRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MessageRecord")
            .field("id", &self.id)
            .field("destination", &self.destination)
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}

/// Shows no id.
impl fmt::Debug for EventOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventOrigin").field("inbox", &self.inbox).finish_non_exhaustive()
    }
}
