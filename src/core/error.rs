//! What goes wrong that is not an answer. Owns the kinds and what each says about running again;
//! must not know which layer failed.

use std::fmt;
use std::time::Duration;

use super::outcome::{Finished, ResourceRef};
use super::reply::Advice;

/// What user code fails with: `?` takes any error, `.into()` makes one of a string.
pub type BoxError = Box<dyn std::error::Error + Send + Sync + 'static>;

/// Not an answer: fix the call, wait, or stop. Expected answers are a [`Reply`](crate::Reply).
///
/// Each error says three things: whether this attempt ran ([`Error::ran`]), whether an earlier one of the
/// same scope may have ([`Error::ran_before`]), and what to do with the key ([`Error::advice`]).
///
/// ```
/// use onecho::{ErrorKind, Key, Ran};
/// let error = Key::parse("").unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::Invalid);
/// assert_eq!(error.ran(), Ran::No);
/// ```
pub struct Error(Box<Inner>);

struct Inner {
    kind: ErrorKind,
    text: String,
    resource: Option<ResourceRef>,
    finished: Option<Finished>,
    source: Option<BoxError>,
}

/// What to do about an [`Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The closure's own error: nothing was written, the key is free.
    Aborted,
    /// While finishing: a row changed, or a name is taken.
    Conflict,
    /// Refused before anything was written; wait and try again.
    Unavailable,
    /// The commit may or may not have happened: reopen, then ask again with the same key.
    CommitUncertain,
    /// The claim is somebody else's, or finished.
    FenceLost,
    /// The call or the configuration is wrong.
    Invalid,
    /// A named limit was passed.
    LimitExceeded,
    /// A closure called its own store.
    Reentrant,
    /// There is no store at that path, and the call does not create one.
    Missing,
    /// Another handle or process has the file.
    Locked,
    /// The file is damaged, or not a store.
    Corrupt,
    /// The file was written by another version.
    UnsupportedFormat,
    /// The file was created with another scope mode.
    ScopeMode,
    /// The file is an older copy of a store that went on elsewhere.
    OlderCopy,
    /// Another store decides about this tenant: ask that one, with the same key.
    NotAuthoritative,
    /// The store was closed.
    Closed,
}

/// Whether a command took effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ran {
    /// It did not: nothing was written.
    No,
    /// It cannot be told from this error.
    Maybe,
    /// It did.
    Yes,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, text: impl Into<String>) -> Self {
        Self(Box::new(Inner { kind, text: text.into(), resource: None, finished: None, source: None }))
    }

    pub(crate) fn invalid(text: impl Into<String>) -> Self {
        Self::new(ErrorKind::Invalid, text)
    }

    /// Nothing was written, for another store decides: the one of this name, if that is known.
    pub(crate) fn not_authoritative(owner: &str) -> Self {
        let who = if owner.is_empty() { "another store".to_owned() } else { format!("store {owner}") };
        let text = format!("{who} decides about this tenant: nothing was written");
        Self::new(ErrorKind::NotAuthoritative, text)
    }

    pub(crate) fn with_source(mut self, source: impl Into<BoxError>) -> Self {
        self.0.source = Some(source.into());
        self
    }

    pub(crate) fn with_resource(mut self, resource: ResourceRef) -> Self {
        self.0.resource = Some(resource);
        self
    }

    pub(crate) fn with_finished(mut self, finished: Finished) -> Self {
        self.0.finished = Some(finished);
        self
    }

    /// An error of a closure: ours comes back as it was, any other inside `Aborted`.
    pub(crate) fn from_closure(error: BoxError) -> Self {
        match error.downcast::<Self>() {
            Ok(own) => *own,
            Err(foreign) => {
                let text = "the command's closure failed; nothing was written and the key is free";
                Self::new(ErrorKind::Aborted, text).with_source(foreign)
            }
        }
    }

    /// A copy for each caller that shares one failure. The source stays with the first.
    pub(crate) fn share(&self) -> Self {
        let mut copy = Self::new(self.0.kind, self.0.text.clone());
        copy.0.resource.clone_from(&self.0.resource);
        copy.0.finished.clone_from(&self.0.finished);
        copy
    }

    /// What to do about it.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Whether this attempt took effect.
    #[must_use]
    pub fn ran(&self) -> Ran {
        match self.0.kind {
            ErrorKind::CommitUncertain | ErrorKind::FenceLost => Ran::Maybe,
            _ => Ran::No,
        }
    }

    /// Whether an earlier attempt of the same scope may have taken effect. An error decides nothing about it,
    /// except that an [`Aborted`](ErrorKind::Aborted) closure was called only because the scope had no
    /// outcome.
    #[must_use]
    pub fn ran_before(&self) -> Ran {
        match self.0.kind {
            ErrorKind::Aborted => Ran::No,
            _ => Ran::Maybe,
        }
    }

    /// What a client should do next.
    #[must_use]
    pub fn advice(&self) -> Advice {
        match self.0.kind {
            ErrorKind::Aborted | ErrorKind::Conflict | ErrorKind::CommitUncertain => {
                Advice::RetrySameKey { after: Duration::ZERO }
            }
            // Of a store that does not decide: at its owner, under the same key.
            ErrorKind::Unavailable | ErrorKind::Locked | ErrorKind::Closed | ErrorKind::NotAuthoritative => {
                Advice::RetrySameKey { after: Duration::from_secs(1) }
            }
            ErrorKind::FenceLost => Advice::LookUpFirst,
            ErrorKind::Invalid | ErrorKind::LimitExceeded | ErrorKind::Reentrant => Advice::FixRequest,
            ErrorKind::Missing
            | ErrorKind::Corrupt
            | ErrorKind::UnsupportedFormat
            | ErrorKind::ScopeMode
            | ErrorKind::OlderCopy => Advice::AskOperator,
        }
    }

    /// What the command came to, of a [`FenceLost`](ErrorKind::FenceLost) whose scope somebody else has
    /// finished.
    #[must_use]
    pub fn finished(&self) -> Option<&Finished> {
        self.0.finished.as_ref()
    }

    /// The row that is in the way, of a [`Conflict`](ErrorKind::Conflict).
    #[must_use]
    pub fn resource(&self) -> Option<&ResourceRef> {
        self.0.resource.as_ref()
    }

    /// The closure's own error, out of [`Aborted`](ErrorKind::Aborted).
    ///
    /// ```
    /// # use onecho::{testing::SimDisk, *};
    /// # let store = SimDisk::seeded(1).open(Options::new())?;
    /// # let (tenant, operation) = (Tenant::new("t"), Operation::new("o"));
    /// # let request = Request::new(&tenant, &operation, &Key::parse("k")?).bytes("body", "x");
    /// let error = store
    ///     .execute(&request, |_| Err(std::fmt::Error.into()))
    ///     .unwrap_err();
    /// assert!(error.downcast::<std::fmt::Error>().is_ok());
    /// # Ok::<(), BoxError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The error itself, when it holds no `E`.
    pub fn downcast<E: std::error::Error + Send + Sync + 'static>(mut self) -> Result<E, Self> {
        match self.0.source.take().map(<dyn std::error::Error + Send + Sync>::downcast::<E>) {
            Some(Ok(own)) => Ok(*own),
            Some(Err(other)) => {
                self.0.source = Some(other);
                Err(self)
            }
            None => Err(self),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.text)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Error");
        debug.field("kind", &self.0.kind).field("text", &self.0.text);
        // A closure's own error is its author's to word. Sources of ours may quote what was read.
        if let Some(source) = self.0.source.as_ref().filter(|_| self.0.kind == ErrorKind::Aborted) {
            debug.field("source", source);
        }
        debug.finish()
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_ref().map(|source| &**source as &(dyn std::error::Error + 'static))
    }
}
