//! Events from elsewhere, each accepted once. Translation only: an event is a command of a reserved
//! operation, whose effect is one job.

use std::fmt;
use std::sync::Arc;

use crate::core::decide::Asked;
use crate::core::error::{Error, ErrorKind};
use crate::core::fingerprint::{Compare, Fingerprint, Parts};
use crate::core::imprint::Imprint;
use crate::core::message::{EventStamp, NewMessage};
use crate::core::name::{ID_BYTES_MAX, Key, Operation, Scope, ScopeDigest, Tenant, checked, is_name};
use crate::core::row::RowKey;
use crate::core::text::Text;
use crate::core::time::Timestamp;
use crate::engine::settings::Settings;

/// Foreign events of one source for one consumer. Two consumers of one source each get every event.
///
/// ```
/// use onecho::{Inbox, Timestamp};
/// const HOOKS: Inbox = Inbox::new("forge", "mirror");
/// let event = HOOKS.event("evt_17")?.content(r#"{"stars":3}"#).time(Timestamp(1_000)).stream("onecho");
/// assert!(HOOKS.event("").is_err()); // without an id nothing tells a repeat
/// # let _ = event;
/// # Ok::<(), onecho::Error>(())
/// ```
#[derive(Clone)]
pub struct Inbox {
    source: Text,
    consumer: Text,
}

/// The longest name of a source or a consumer, in bytes: both stand in the name of an operation.
const NAME_BYTES_MAX: usize = 48;
/// What the operation of an inbox begins with.
const OPERATION: &str = "onecho:inbox";

impl Inbox {
    /// The events of a source, as one consumer of them sees them.
    ///
    /// # Panics
    ///
    /// When a name is empty, longer than 48 bytes, or holds a control byte or a slash; in a `const` that is a
    /// compile error.
    #[must_use]
    pub const fn new(source: &'static str, consumer: &'static str) -> Self {
        let are_names = is_part(source) && is_part(consumer);
        assert!(are_names, "a source and a consumer are names of 1 to 48 bytes without a slash");
        Self { source: Text::constant(source), consumer: Text::constant(consumer) }
    }

    /// An inbox whose names come from outside.
    ///
    /// # Errors
    ///
    /// `Invalid` when a name is empty or holds a control character or a slash, `LimitExceeded` above 48
    /// bytes.
    pub fn parse(source: &str, consumer: &str) -> Result<Self, Error> {
        for (what, name) in [("source", source), ("consumer", consumer)] {
            checked(what, name, NAME_BYTES_MAX)?;
            if !is_part(name) {
                return Err(Error::invalid(format!("{what} holds a slash")));
            }
        }
        Ok(Self { source: source.into(), consumer: consumer.into() })
    }

    /// An event by the sender's id *of the event*, which is the same in all its deliveries. Never an id of
    /// the delivery, nor one made here: then nothing would ever be a repeat.
    ///
    /// # Errors
    ///
    /// `Invalid` without an id or with one that holds a control character; `LimitExceeded` above 255
    /// characters. The sender is to be answered "bad request": nothing is stored.
    pub fn event(&self, id: &str) -> Result<Event, Error> {
        let key = Key::parse(id)
            .map_err(|fault| Error::new(fault.kind(), format!("the id of the event: {fault}")))?;
        let (inbox, operation, parts) = (self.name(), self.operation(), content(b""));
        Ok(Event { inbox, operation, key, parts, time: None, stream: None })
    }

    /// The operation that its events are accepted under, for
    /// [`Options::operation`](crate::Options::operation): its policy says how long an event is known.
    #[must_use]
    pub fn operation(&self) -> Operation {
        Operation(Text::from(format!("{OPERATION}/{}/{}", self.source, self.consumer).as_str()))
    }

    fn name(&self) -> Text {
        Text::from(format!("{}/{}", self.source, self.consumer).as_str())
    }
}

impl fmt::Debug for Inbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Inbox({} for {})", self.source, self.consumer)
    }
}

/// Whether a name may stand between slashes.
const fn is_part(name: &str) -> bool {
    let bytes = name.as_bytes();
    if !is_name(name) || bytes.len() > NAME_BYTES_MAX {
        return false;
    }
    let mut at = 0;
    while at < bytes.len() {
        if bytes[at] == b'/' {
            return false;
        }
        at += 1;
    }
    true
}

/// A foreign event, to be accepted with [`Store::accept`](crate::Store::accept).
#[derive(Clone)]
#[must_use]
pub struct Event {
    inbox: Text,
    operation: Operation,
    key: Key,
    /// The digest of its content.
    parts: Parts,
    time: Option<Timestamp>,
    stream: Option<Text>,
}

impl Event {
    /// What it says, byte for byte: under the same id, another content is a `Mismatch`. Only its digest is
    /// kept, and only to tell that; two events with equal content are two events.
    ///
    /// Without content an event says nothing, which is another content than any.
    pub fn content(mut self, bytes: impl AsRef<[u8]>) -> Self {
        self.parts = content(bytes.as_ref());
        self
    }

    /// When it happened, as its sender says.
    pub fn time(mut self, time: Timestamp) -> Self {
        self.time = Some(time);
        self
    }

    /// What it is about: within a stream, a later event overtakes an earlier one. Needs a time.
    pub fn stream(mut self, name: &str) -> Self {
        self.stream = Some(name.into());
        self
    }

    /// The request that it is.
    pub(crate) fn asked(&self, tenant: &Tenant, settings: &Settings) -> Result<Arc<Asked>, Error> {
        if let Some(stream) = &self.stream {
            checked("stream", stream, ID_BYTES_MAX)?;
            if self.time.is_none() {
                return Err(Error::invalid("an event of a stream needs a time"));
            }
        }
        let scope =
            Scope { tenant: tenant.clone(), operation: self.operation.clone(), key: self.key.clone() };
        let parts = self.parts.clone();
        let fingerprint = Fingerprint::of(&parts, Compare::Exact)
            .map_err(|fault| Error::new(ErrorKind::Invalid, fault.to_string()))?;
        let digest = ScopeDigest::of(&scope, settings.scope_mode);
        let imprint = Imprint::of(digest, &scope, &fingerprint);
        Ok(Arc::new(Asked { scope, digest, parts, fingerprint, imprint, is_protected: true }))
    }

    /// The row of its stream, and its time.
    pub(crate) fn seen(&self, tenant: &Tenant) -> Option<(RowKey, Timestamp)> {
        let (stream, time) = (self.stream.as_ref()?, self.time?);
        Some((RowKey::stream(tenant.as_str(), &self.inbox, stream), time))
    }

    /// Its job, which knows where it comes from.
    pub(crate) fn job(&self, job: crate::message::Message) -> NewMessage {
        job.of_event(EventStamp {
            inbox: self.inbox.clone(),
            id: Text::from(self.key.as_str()),
            time: self.time,
            stream: self.stream.clone(),
        })
    }
}

fn content(bytes: &[u8]) -> Parts {
    let mut parts = Parts::new();
    parts.bytes("content", bytes);
    parts
}

/// Shows no id and no content.
impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Event").field("inbox", &self.inbox).field("time", &self.time).finish_non_exhaustive()
    }
}
