//! Rows that commands make: resources and uniquenesses. Owns their keys and contents; must not know which
//! command is allowed to change them (`effect`) or how they are stored (`db`).

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::audit::Layout;
use super::claim::Open;
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
const OWN: [&str; 1] = [OPEN];
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
        if self.is_open() {
            return ResourceRef::new("open command", &self.0[OPEN.len()..], true);
        }
        let (_, kind, id) = split(&self.0).unwrap_or_default();
        let kind_end = self.0.len().saturating_sub(id.len() + END.len_utf8());
        let kind = Text::part(&self.0, kind_end.saturating_sub(kind.len())..kind_end);
        ResourceRef { kind, id: self.ending(id.len()), shared: self.is_shared() }
    }
}

/// The tenant (empty when shared), the name, and the id or value that make a key.
fn split(key: &str) -> Option<(&str, &str, &str)> {
    let (tag, rest) = key.split_at_checked(1)?;
    let (tenant, rest) = match tag {
        RESOURCE_OF_TENANT | UNIQUE_OF_TENANT => rest.split_once(END)?,
        RESOURCE_SHARED | UNIQUE_SHARED => ("", rest),
        OPEN if is_scope(rest) => return Some(("", "", rest)),
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
}

impl Row {
    /// The bytes of its value.
    pub fn value_bytes(&self) -> usize {
        match &self.content {
            Content::Value { bytes, .. } => bytes.len(),
            Content::Removed | Content::Held(_) => 0,
            Content::Open(open) => open.bytes(),
        }
    }

    /// The command that was begun, of such a row.
    pub fn open(&self) -> Option<&Arc<Open>> {
        match &self.content {
            Content::Open(open) => Some(open),
            Content::Value { .. } | Content::Removed | Content::Held(_) => None,
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
