//! Rows that commands make: resources and uniquenesses. Owns their keys and contents; must not know which
//! command is allowed to change them (`effect`) or how they are stored (`db`).

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::audit::Layout;
use super::authority::Unit;
use super::claim::Open;
use super::message::{MessageId, Post, Status};
use super::name::{ScopeDigest, Tenant, hex};
use super::outcome::{Digest, ResourceRef};
use super::record::Position;
use super::text::{Text, joined};
use super::time::Timestamp;

/// The key of a row, as it stands in the file: a space tag, then the names, each closed by a zero byte, then
/// the id.
///
/// Names hold no control byte, so the keys of one kind lie together and in the order of their ids.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct RowKey(Arc<str>);

const RESOURCE_OF_TENANT: &str = "t";
const RESOURCE_SHARED: &str = "s";
const UNIQUE_OF_TENANT: &str = "u";
const UNIQUE_SHARED: &str = "v";
/// Spaces of the store's own, which no command names.
const OPEN: &str = "o";
/// Messages: what is known of each, what is sent, what is due, what is under way, ordering keys, the keys
/// that messages are known under, and the newest event of each stream.
const MESSAGE: &str = "m";
const LETTER: &str = "p";
const DUE: &str = "d";
const FLYING: &str = "a";
const QUEUE: &str = "q";
const KNOWN: &str = "k";
const STREAM: &str = "w";
/// Who decides about a tenant.
const UNIT: &str = "h";
const OWN: [&str; 9] = [OPEN, MESSAGE, LETTER, DUE, FLYING, QUEUE, KNOWN, STREAM, UNIT];
/// Closes a name.
const END: char = '\0';

impl RowKey {
    /// The row of a resource; `tenant` is `None` in the space that all tenants share.
    pub fn resource(tenant: Option<&Tenant>, kind: &str, id: &str) -> Self {
        let tag = if tenant.is_some() { RESOURCE_OF_TENANT } else { RESOURCE_SHARED };
        Self::build(tag, tenant, kind, id)
    }

    /// The row of a uniqueness.
    pub fn unique(tenant: Option<&Tenant>, name: &str, value: &str) -> Self {
        let tag = if tenant.is_some() { UNIQUE_OF_TENANT } else { UNIQUE_SHARED };
        Self::build(tag, tenant, name, value)
    }

    /// The row of a command that was begun and is not finished.
    pub fn open(scope: ScopeDigest) -> Self {
        Self(joined(&[OPEN, &hex(&scope.0)]))
    }

    /// What the keys of all such rows begin with.
    pub fn all_open() -> &'static [u8] {
        OPEN.as_bytes()
    }

    /// What is known of a message.
    pub fn message(id: MessageId) -> Self {
        Self::numbered(MESSAGE, id)
    }

    /// What a message sends.
    pub fn letter(id: MessageId) -> Self {
        Self::numbered(LETTER, id)
    }

    /// A message that somebody is at.
    pub fn flying(id: MessageId) -> Self {
        Self::numbered(FLYING, id)
    }

    /// A message that is due at a time: rows of one destination lie in the order of their times.
    pub fn due(destination: &str, at: Timestamp, id: MessageId) -> Self {
        Self(joined(&[DUE, destination, "\0", &format!("{:016x}", at.0), &digits(id)]))
    }

    /// What the keys of all messages of a destination begin with that are due, or will be.
    pub fn all_due(destination: &str) -> Self {
        Self(joined(&[DUE, destination, "\0"]))
    }

    /// What the keys of all messages begin with.
    pub fn all_messages() -> &'static [u8] {
        MESSAGE.as_bytes()
    }

    /// What the keys of all messages begin with that somebody is at.
    pub fn all_flying() -> &'static [u8] {
        FLYING.as_bytes()
    }

    /// What the keys of all ordering keys begin with.
    pub fn all_queues() -> &'static [u8] {
        QUEUE.as_bytes()
    }

    /// The messages of an ordering key.
    pub fn queue(tenant: &str, destination: &str, order: &str) -> Self {
        Self(joined(&[QUEUE, tenant, "\0", destination, "\0", order]))
    }

    /// The message that is known under a key.
    pub fn known(tenant: &str, destination: &str, key: &str) -> Self {
        Self(joined(&[KNOWN, tenant, "\0", destination, "\0", key]))
    }

    /// The tenant, the destination and the ordering key that such a row was built from.
    pub fn queue_names(&self) -> Option<(&str, &str, &str)> {
        split(&self.0).filter(|_| self.is_queue())
    }

    /// The newest event of a stream.
    pub fn stream(tenant: &str, inbox: &str, stream: &str) -> Self {
        Self(joined(&[STREAM, tenant, "\0", inbox, "\0", stream]))
    }

    /// Who decides about a tenant.
    pub fn unit(tenant: &Tenant) -> Self {
        Self(joined(&[UNIT, tenant.as_str()]))
    }

    /// What the keys of a tenant's own rows begin with, those apart that a number or a digest names:
    /// resources, uniquenesses, ordering keys, known messages and streams.
    pub fn all_of(tenant: &Tenant) -> [String; 5] {
        [RESOURCE_OF_TENANT, UNIQUE_OF_TENANT, QUEUE, KNOWN, STREAM]
            .map(|tag| format!("{tag}{}{END}", tenant.as_str()))
    }

    /// What the keys of all such rows begin with.
    pub fn all_units() -> &'static [u8] {
        UNIT.as_bytes()
    }

    /// Whether it says who decides about a tenant.
    pub fn is_unit(&self) -> bool {
        self.0.starts_with(UNIT)
    }

    fn numbered(tag: &str, id: MessageId) -> Self {
        Self(joined(&[tag, &digits(id)]))
    }

    /// The message that such a row is of.
    pub fn message_id(&self) -> Option<MessageId> {
        let digits = match self.0.get(..1)? {
            MESSAGE | LETTER | FLYING => self.0.get(1..)?,
            DUE => self.0.get(self.0.len().checked_sub(ID_DIGITS)?..)?,
            _ => return None,
        };
        let (seq, ordinal) = digits.split_at_checked(16)?;
        Some(MessageId {
            seq: u64::from_str_radix(seq, 16).ok()?,
            ordinal: u32::from_str_radix(ordinal, 16).ok()?,
        })
    }

    /// When the message of such a row is due.
    pub fn due_at(&self) -> Option<Timestamp> {
        let start = self.0.len().checked_sub(16 + ID_DIGITS)?;
        let digits = self.0.get(start..start + 16).filter(|_| self.0.starts_with(DUE))?;
        u64::from_str_radix(digits, 16).ok().map(Timestamp)
    }

    /// Where the message of such a row goes.
    pub fn destination(&self) -> Option<&str> {
        self.0.strip_prefix(DUE)?.split_once(END).map(|(destination, _)| destination)
    }

    /// The last key before that of a message that is due.
    pub fn before_due(&self) -> Option<Self> {
        let (at, id) = (self.due_at()?, self.message_id()?);
        let before = match id.ordinal.checked_sub(1) {
            Some(ordinal) => MessageId { ordinal, ..id },
            None => MessageId { seq: id.seq.checked_sub(1)?, ordinal: u32::MAX },
        };
        Some(Self::due(self.destination()?, at, before))
    }

    /// Whether it is what is known of a message.
    pub fn is_message(&self) -> bool {
        self.0.starts_with(MESSAGE)
    }

    /// Whether it is in the list of what is due.
    pub fn is_due(&self) -> bool {
        self.0.starts_with(DUE)
    }

    /// Whether it is an ordering key.
    pub fn is_queue(&self) -> bool {
        self.0.starts_with(QUEUE)
    }

    /// Whether a row of this key may hold this.
    pub fn holds(&self, post: &Post) -> bool {
        let tags: &[&str] = match post {
            Post::Status(_) => &[MESSAGE],
            Post::Letter(_) => &[LETTER],
            Post::Queue(_) => &[QUEUE],
            Post::Known(_) => &[KNOWN],
            Post::Mark => &[DUE, FLYING, STREAM],
        };
        tags.iter().any(|tag| self.0.starts_with(tag))
    }

    /// Whether the row is the store's own: no resource and no uniqueness.
    pub fn is_own(&self) -> bool {
        OWN.iter().any(|tag| self.0.starts_with(tag))
    }

    /// Whether it is the row of a command that was begun.
    pub fn is_open(&self) -> bool {
        self.0.starts_with(OPEN)
    }

    fn build(tag: &str, tenant: Option<&Tenant>, name: &str, last: &str) -> Self {
        Self(match tenant {
            Some(tenant) => joined(&[tag, tenant.as_str(), "\0", name, "\0", last]),
            None => joined(&[tag, name, "\0", last]),
        })
    }

    /// A key read back from the file; `None` when it has no such shape.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let text = str::from_utf8(bytes).ok()?;
        split(text).map(|_| Self(text.into()))
    }

    /// What sorts directly before every key that begins with `prefix`. Names no row by itself. Keys are text:
    /// a prefix that is none is cut where it ends to be one.
    pub fn before(prefix: &[u8]) -> Self {
        Self(prefix.utf8_chunks().next().map_or("", |chunk| chunk.valid()).into())
    }

    /// The row of another id of the same kind and space.
    pub fn sibling(&self, id: &str) -> Self {
        let end = split(&self.0).map_or(self.0.len(), |(_, _, last)| self.0.len() - last.len());
        Self(joined(&[&self.0[..end], id]))
    }

    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }

    /// A copy of the key's bytes.
    pub fn to_bytes(&self) -> Bytes {
        Bytes::copy_from_slice(self.as_bytes())
    }

    /// The last `len` bytes of the key, such as the id that it was built from.
    pub fn ending(&self, len: usize) -> Text {
        Text::part(&self.0, self.0.len().saturating_sub(len)..self.0.len())
    }

    pub fn is_unique(&self) -> bool {
        self.0.starts_with(UNIQUE_OF_TENANT) || self.0.starts_with(UNIQUE_SHARED)
    }

    /// Whether the row belongs to all tenants.
    pub fn is_shared(&self) -> bool {
        self.0.starts_with(RESOURCE_SHARED) || self.0.starts_with(UNIQUE_SHARED)
    }

    /// The kind and id, or the name and value, that this key was built from.
    pub fn reference(&self) -> ResourceRef {
        if let Some((name, tag)) = OWN_NAMES.iter().find(|(_, tag)| self.0.starts_with(tag)) {
            let rest = self.0.get(tag.len()..).unwrap_or_default();
            return ResourceRef::new(name, &rest.replace(END, "/"), true);
        }
        let (_, kind, id) = split(&self.0).unwrap_or_default();
        let kind_end = self.0.len().saturating_sub(id.len() + END.len_utf8());
        let kind = Text::part(&self.0, kind_end.saturating_sub(kind.len())..kind_end);
        ResourceRef { kind, id: self.ending(id.len()), shared: self.is_shared() }
    }
}

/// What rows of the store's own are called where one is named to people.
const OWN_NAMES: [(&str, &str); 9] = [
    ("open command", OPEN),
    ("message", MESSAGE),
    ("letter", LETTER),
    ("due", DUE),
    ("under way", FLYING),
    ("ordering key", QUEUE),
    ("known message", KNOWN),
    ("stream", STREAM),
    ("tenant", UNIT),
];
/// The digits of a message's number in a key: 16 and 8.
const ID_DIGITS: usize = 24;

/// A message's number such that keys lie in the order of numbers.
fn digits(id: MessageId) -> String {
    format!("{:016x}{:08x}", id.seq, id.ordinal)
}

/// The tenant (empty when shared), the name, and the id or value that make a key.
fn split(key: &str) -> Option<(&str, &str, &str)> {
    let (tag, rest) = key.split_at_checked(1)?;
    let (tenant, rest) = match tag {
        RESOURCE_OF_TENANT | UNIQUE_OF_TENANT | QUEUE | KNOWN | STREAM => rest.split_once(END)?,
        RESOURCE_SHARED | UNIQUE_SHARED | DUE => ("", rest),
        OPEN if is_scope(rest) => return Some(("", "", rest)),
        MESSAGE | LETTER | FLYING => return Some(("", "", rest)),
        UNIT if !rest.is_empty() => return Some(("", "", rest)),
        _ => return None,
    };
    let (name, last) = rest.split_once(END)?;
    Some((tenant, name, last))
}

/// Whether a text is the digest of a scope, as it stands in a key.
fn is_scope(text: &str) -> bool {
    text.len() == 32 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// As the bytes that stand in the file.
impl Serialize for RowKey {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(self.as_bytes())
    }
}

/// Fails when the bytes have not the shape of a key.
impl<'de> Deserialize<'de> for RowKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let bytes = Bytes::deserialize(deserializer)?;
        Self::parse(&bytes).ok_or_else(|| D::Error::custom("a key names no row"))
    }
}

/// Shows no id: ids may identify people.
impl fmt::Debug for RowKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RowKey({} bytes)", self.0.len())
    }
}

/// One row as a command finds it.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Row {
    /// The sequence number of the entry that wrote it last.
    pub version: u64,
    /// The entry that made it.
    pub made: Position,
    /// The event time of the newest event it has seen, where events write it.
    pub event_time: Option<Timestamp>,
    pub content: Content,
}

/// What a row holds.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Content {
    /// A value, and how it was written.
    Value { codec: Codec, bytes: Bytes },
    /// Nothing any more; remembers the event that removed it, so that no older one brings it back.
    Removed,
    /// A uniqueness, held by a resource.
    Held(ResourceRef),
    /// A command that was begun and is not finished.
    Open(Arc<Open>),
    /// Of messages.
    Post(Post),
    /// Who decides about a tenant.
    Unit(Unit),
}

impl Content {
    /// The bytes of the value.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Value { bytes, .. } => bytes.len(),
            Self::Removed | Self::Held(_) | Self::Unit(_) => 0,
            Self::Open(open) => open.bytes(),
            Self::Post(post) => post.bytes(),
        }
    }
}

impl Row {
    /// The bytes of its value.
    pub fn value_bytes(&self) -> usize {
        self.content.bytes()
    }

    /// The command that was begun, of such a row.
    pub fn open(&self) -> Option<&Arc<Open>> {
        match &self.content {
            Content::Open(open) => Some(open),
            _ => None,
        }
    }

    /// What is known of a message, of such a row.
    pub fn status(&self) -> Option<&Status> {
        match &self.content {
            Content::Post(Post::Status(status)) => Some(status),
            _ => None,
        }
    }

    /// Who decides about a tenant, of such a row.
    pub fn unit(&self) -> Option<&Unit> {
        match &self.content {
            Content::Unit(unit) => Some(unit),
            _ => None,
        }
    }

    /// What a row of messages holds.
    pub fn post(&self) -> Option<&Post> {
        match &self.content {
            Content::Post(post) => Some(post),
            _ => None,
        }
    }

    /// Whether somebody who reads the row sees something.
    pub fn is_there(&self) -> bool {
        self.content != Content::Removed
    }

    /// What the journal keeps of the row that an entry wrote: over all of it but the version, which is the
    /// entry's own number. Numbers and lengths as in the chain; `docs/format.md` lists the fields.
    pub fn digest(&self) -> Digest {
        let mut out = Layout::default();
        out.u16(self.made.class.0);
        out.u64(self.made.seq);
        match self.event_time {
            None => out.u8(0),
            Some(time) => {
                out.u8(1);
                out.u64(time.0);
            }
        }
        match &self.content {
            Content::Value { codec, bytes } => {
                out.u8(0);
                out.u8(*codec as u8);
                out.bytes(bytes);
            }
            Content::Removed => out.u8(1),
            Content::Held(holder) => {
                out.u8(2);
                out.resource(holder);
            }
            Content::Open(open) => {
                out.u8(3);
                open.layout(&mut out);
            }
            Content::Post(post) => {
                out.u8(4);
                post.layout(&mut out);
            }
            Content::Unit(unit) => {
                out.u8(5);
                unit.layout(&mut out);
            }
        }
        Digest(out.finish())
    }
}

/// How a value was written. Stored with each row, so that a kind cannot be written in two ways unnoticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Codec {
    Raw,
    Json,
    Bincode,
    Counter,
}

#[cfg(test)]
mod tests;
