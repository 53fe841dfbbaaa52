//! Rows that commands make: resources and uniquenesses. Owns their keys and contents; must not know which
//! command is allowed to change them (`effect`) or how they are stored (`db`).

use std::fmt;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::audit::Layout;
use super::name::Tenant;
use super::outcome::{Digest, ResourceRef};
use super::record::Position;
use super::time::Timestamp;

/// The key of a row, as it stands in the file: a space tag, then the names, each closed by a zero byte, then
/// the id.
///
/// Names hold no control byte, so the keys of one kind lie together and in the order of their ids.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct RowKey(Bytes);

const RESOURCE_OF_TENANT: u8 = b't';
const RESOURCE_SHARED: u8 = b's';
const UNIQUE_OF_TENANT: u8 = b'u';
const UNIQUE_SHARED: u8 = b'v';

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

    fn build(tag: u8, tenant: Option<&Tenant>, name: &str, last: &str) -> Self {
        let tenant_len = tenant.map_or(0, |tenant| tenant.as_str().len() + 1);
        let mut key = Vec::with_capacity(2 + tenant_len + name.len() + last.len());
        key.push(tag);
        if let Some(tenant) = tenant {
            key.extend_from_slice(tenant.as_str().as_bytes());
            key.push(0);
        }
        key.extend_from_slice(name.as_bytes());
        key.push(0);
        key.extend_from_slice(last.as_bytes());
        Self(key.into())
    }

    /// A key read back from the file; `None` when it has no such shape.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        Self::of_bytes(Bytes::copy_from_slice(bytes))
    }

    /// What sorts directly before every key that begins with `prefix`. Names no row by itself.
    pub fn before(prefix: &[u8]) -> Self {
        Self(Bytes::copy_from_slice(prefix))
    }

    /// As [`RowKey::parse`], without a copy.
    pub fn of_bytes(bytes: Bytes) -> Option<Self> {
        let key = Self(bytes);
        if key.split().is_some() { Some(key) } else { None }
    }

    /// The row of another id of the same kind and space.
    pub fn sibling(&self, id: &str) -> Self {
        let end = self.split().map_or(self.0.len(), |(_, _, last)| self.0.len() - last.len());
        Self([&self.0[..end], id.as_bytes()].concat().into())
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The key's bytes, shared and not copied.
    pub fn to_bytes(&self) -> Bytes {
        self.0.clone()
    }

    pub fn is_unique(&self) -> bool {
        matches!(self.0.first(), Some(&(UNIQUE_OF_TENANT | UNIQUE_SHARED)))
    }

    /// Whether the row belongs to all tenants.
    pub fn is_shared(&self) -> bool {
        matches!(self.0.first(), Some(&(RESOURCE_SHARED | UNIQUE_SHARED)))
    }

    /// The kind and id, or the name and value, that this key was built from.
    pub fn reference(&self) -> ResourceRef {
        let (_, kind, id) = self.split().unwrap_or_default();
        ResourceRef::new(kind, id, self.is_shared())
    }

    /// Tenant (empty when shared), name, and id or value.
    fn split(&self) -> Option<(&str, &str, &str)> {
        let (&tag, rest) = self.0.split_first()?;
        let (tenant, rest) = match tag {
            RESOURCE_OF_TENANT | UNIQUE_OF_TENANT => cut(rest)?,
            RESOURCE_SHARED | UNIQUE_SHARED => ("", rest),
            _ => return None,
        };
        let (name, last) = cut(rest)?;
        Some((tenant, name, std::str::from_utf8(last).ok()?))
    }
}

/// Splits at the first zero byte.
fn cut(bytes: &[u8]) -> Option<(&str, &[u8])> {
    let at = bytes.iter().position(|&byte| byte == 0)?;
    Some((std::str::from_utf8(&bytes[..at]).ok()?, &bytes[at + 1..]))
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
}

impl Row {
    /// The bytes of its value.
    pub fn value_bytes(&self) -> usize {
        match &self.content {
            Content::Value { bytes, .. } => bytes.len(),
            Content::Removed | Content::Held(_) => 0,
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
