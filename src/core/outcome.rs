//! What a command says and what is replayed of it. Owns the outcome and its sizes; must not know where it is
//! kept.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::error::{Error, ErrorKind};
use super::finite::to_json;
use super::message::MessageId;
use super::name::{ID_BYTES_MAX, NAME_BYTES_MAX, checked, hex};
use super::text::Text;
use super::time::Timestamp;

/// The most metadata entries an outcome may carry.
pub const META_ENTRIES_MAX: usize = 64;

/// SHA-256 of bytes that may be gone.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Digest(pub [u8; 32]);

impl Digest {
    pub(crate) fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Digest({self})")
    }
}

/// Names a row: its kind and its id. Tenants do not show in it; a row of another tenant cannot be named.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ResourceRef {
    /// The kind's name.
    pub kind: Text,
    /// The id within the kind.
    pub id: Text,
    pub(crate) shared: bool,
}

impl ResourceRef {
    pub(crate) fn new(kind: &str, id: &str, shared: bool) -> Self {
        Self { kind: kind.into(), id: id.into(), shared }
    }

    /// Whether the row belongs to all tenants.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        self.shared
    }

    /// Checks what anybody may have put into it: it is written where it is named.
    pub(crate) fn check(&self) -> Result<(), Error> {
        checked("kind of the resource", &self.kind, NAME_BYTES_MAX)?;
        checked("id of the resource", &self.id, ID_BYTES_MAX)
    }

    pub(crate) fn bytes(&self) -> usize {
        self.kind.len() + self.id.len()
    }
}

impl fmt::Display for ResourceRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.kind, self.id)
    }
}

impl fmt::Debug for ResourceRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ResourceRef({self})")
    }
}

/// What a command says. `failed` is a business refusal, kept and replayed like a success; an `Err` is
/// neither.
///
/// ```
/// use onecho::Outcome;
/// let outcome = Outcome::succeeded(201).meta("location", "/orders/17").body("made");
/// # let _ = outcome;
/// ```
#[derive(Clone, PartialEq, Eq)]
#[must_use]
pub struct Outcome {
    pub(crate) failed: bool,
    pub(crate) code: u16,
    pub(crate) meta: Vec<(Text, Bytes)>,
    pub(crate) body: Bytes,
    pub(crate) resource: Option<ResourceRef>,
    pub(crate) keeps_body: bool,
    pub(crate) with_effects: bool,
}

impl Outcome {
    /// A success with a code of the caller's choice, such as an HTTP status.
    pub fn succeeded(code: u16) -> Self {
        Self {
            failed: false,
            code,
            meta: Vec::new(),
            body: Bytes::new(),
            resource: None,
            keeps_body: true,
            with_effects: false,
        }
    }

    /// A business refusal, recorded and replayed. With staged effects it is `Invalid`, unless
    /// [`Outcome::with_effects`].
    pub fn failed(code: u16) -> Self {
        Self { failed: true, ..Self::succeeded(code) }
    }

    /// For a refusal that changes rows, such as a counter of attempts.
    pub fn with_effects(mut self) -> Self {
        self.with_effects = true;
        self
    }

    /// The body, replayed byte for byte.
    pub fn body(mut self, body: impl Into<Bytes>) -> Self {
        self.body = body.into();
        self
    }

    /// A JSON body, and `content-type: application/json`.
    ///
    /// # Errors
    ///
    /// `Invalid` when `body` cannot be written as JSON, or not read back: a NaN, an infinity, more than 127
    /// levels.
    pub fn json<V: Serialize>(self, body: &V) -> Result<Self, Error> {
        let text = to_json(body)
            .map_err(|fault| Error::invalid(format!("the outcome cannot be written as JSON: {fault}")))?;
        Ok(self.body(text).with_meta("content-type", Bytes::from_static(b"application/json")))
    }

    /// One piece of metadata, such as a header. A name given again replaces its value.
    pub fn meta(self, name: &str, value: impl AsRef<[u8]>) -> Self {
        self.with_meta(name, Bytes::copy_from_slice(value.as_ref()))
    }

    fn with_meta(mut self, name: &str, value: Bytes) -> Self {
        match self.meta.iter_mut().find(|(known, _)| known == name) {
            Some((_, old)) => *old = value,
            None => self.meta.push((name.into(), value)),
        }
        self
    }

    /// The resource that the command made or is about.
    pub fn resource(mut self, made: &ResourceRef) -> Self {
        self.resource = Some(made.clone());
        self
    }

    /// Keeps the body's digest and length, never the body: a retry learns "done, body not kept". The first
    /// caller gets the body.
    pub fn body_not_kept(mut self) -> Self {
        self.keeps_body = false;
        self
    }

    /// What the outcome takes of its operation's limit.
    pub(crate) fn bytes_kept(&self) -> usize {
        let meta: usize = self.meta.iter().map(|(name, value)| name.len() + value.len()).sum();
        let resource = self.resource.as_ref().map_or(0, ResourceRef::bytes);
        meta + resource + if self.keeps_body { self.body.len() } else { 0 }
    }

    /// Checks sizes and shape before anything is written.
    pub(crate) fn check(&self, bytes_max: usize, has_effects: bool) -> Result<(), Error> {
        if self.failed && has_effects && !self.with_effects {
            return Err(Error::invalid(
                "a failed outcome has staged effects: say `with_effects`, or stage none",
            ));
        }
        if let Some(resource) = &self.resource {
            resource.check()?;
        }
        let bytes = self.bytes_kept();
        if bytes > bytes_max {
            let text = format!(
                "the outcome has {bytes} bytes, over `outcome_bytes_max` ({bytes_max}); nothing was written"
            );
            return Err(Error::new(ErrorKind::LimitExceeded, text));
        }
        if self.meta.len() > META_ENTRIES_MAX {
            let text =
                format!("the outcome has {} metadata entries, more than {META_ENTRIES_MAX}", self.meta.len());
            return Err(Error::new(ErrorKind::LimitExceeded, text));
        }
        Ok(())
    }
}

impl fmt::Debug for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outcome")
            .field("failed", &self.failed)
            .field("code", &self.code)
            .field("body_bytes", &self.body.len())
            .finish_non_exhaustive()
    }
}

/// What was recorded: the same for the first caller and for every retry.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finished {
    /// The code of the outcome.
    pub code: u16,
    /// Whether it was a business refusal.
    pub failed: bool,
    /// The body, or what is still known of it.
    pub body: Body,
    /// The resource that the outcome names.
    pub resource: Option<ResourceRef>,
    /// When the command finished, by the store's clock.
    pub at: Timestamp,
    /// Until when a retry gets the body.
    pub body_until: Timestamp,
    /// Until when a retry gets the outcome.
    pub key_until: Timestamp,
    /// Which use of the key this was; above 1 only with `AfterExpiry::RunAsNew`.
    pub generation: u32,
    /// The messages that the command made, in their order; known as long as the outcome.
    pub messages: Vec<MessageId>,
    /// Shared with the record.
    pub(crate) metadata: Arc<[(Text, Bytes)]>,
}

impl Finished {
    /// The body read as JSON; `None` when it was not kept or is trimmed.
    ///
    /// # Errors
    ///
    /// `Invalid` when the body is not a `V`.
    pub fn decode<V: DeserializeOwned>(&self) -> Result<Option<V>, Error> {
        match &self.body {
            // Where, not what: the reader's own words may quote the body.
            Body::Present(bytes) => serde_json::from_slice(bytes).map(Some).map_err(|fault| {
                let (line, column) = (fault.line(), fault.column());
                Error::invalid(format!(
                    "the recorded body is of another shape (line {line}, column {column})"
                ))
            }),
            Body::Trimmed { .. } | Body::NotKept { .. } => Ok(None),
        }
    }

    /// One piece of metadata.
    #[must_use]
    pub fn meta(&self, name: &str) -> Option<&[u8]> {
        self.metadata.iter().find(|(known, _)| known == name).map(|(_, value)| &value[..])
    }

    /// All metadata, in the order it was given.
    pub fn metadata(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.metadata.iter().map(|(name, value)| (name.as_str(), &value[..]))
    }
}

impl fmt::Debug for Finished {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Finished")
            .field("code", &self.code)
            .field("failed", &self.failed)
            .field("body", &self.body)
            .field("at", &self.at)
            .field("generation", &self.generation)
            .finish_non_exhaustive()
    }
}

/// A recorded body. One that is gone cannot pass for an empty one.
#[derive(Clone, PartialEq, Eq)]
pub enum Body {
    /// All of it.
    Present(Bytes),
    /// Its window is over.
    Trimmed {
        /// SHA-256 of what it was.
        digest: Digest,
        /// How long it was, in bytes.
        len: u64,
    },
    /// The outcome was marked [`Outcome::body_not_kept`].
    NotKept {
        /// SHA-256 of what it was.
        digest: Digest,
        /// How long it was, in bytes.
        len: u64,
    },
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Present(bytes) => write!(f, "Present({} bytes)", bytes.len()),
            Self::Trimmed { digest, len } => write!(f, "Trimmed({len} bytes, {digest})"),
            Self::NotKept { digest, len } => write!(f, "NotKept({len} bytes, {digest})"),
        }
    }
}
