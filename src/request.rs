//! What is asked: a scope and the digests of what was sent. Owns the builder; digests are the core's.

use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use serde::Serialize;

use crate::core::decide::Asked;
use crate::core::error::Error;
use crate::core::fingerprint::{Compare, Fingerprint, Parts};
use crate::core::imprint::Imprint;
use crate::core::name::{Key, Operation, Scope, ScopeDigest, ScopeMode, Tenant};
use crate::engine::settings::Settings;

/// A scope and digests of what was asked. Owns no part, borrows nothing, is hashed once.
///
/// A request without a part is `Invalid` when it is executed: without a fingerprint one body could be
/// replayed for another. A command that asks nothing says so with `.bytes("body", [])`. A part named twice is
/// `Invalid` too.
///
/// ```
/// use onecho::{Key, Operation, Request, Tenant};
/// const CREATE_ORDER: Operation = Operation::new("create-order");
/// let request = Request::new(&Tenant::new("shop"), &CREATE_ORDER, &Key::parse("k-1")?)
///     .bytes("method", "POST")
///     .json("body", r#"{ "cents": 1200 }"#);
/// assert_eq!(request.scope().key.as_str(), "k-1");
/// # Ok::<(), onecho::Error>(())
/// ```
#[derive(Clone)]
#[must_use]
pub struct Request {
    scope: Scope,
    parts: Parts,
    wait: Option<Duration>,
    is_protected: bool,
    /// As the first store that was asked carries it.
    prepared: OnceLock<Prepared>,
}

/// The number of no settings.
const NEVER_LOOKED_UP: u64 = 0;

/// A request as stores of one kind carry it. What a look into memory needs comes first and lies in the
/// request itself: each pointer on the way would be a cache miss more.
#[derive(Clone)]
#[repr(C, align(64))]
struct Prepared {
    /// Of the settings that it was made for, which spares the look at mode and policy; none of a request
    /// without a key.
    number: u64,
    imprint: Imprint,
    mode: ScopeMode,
    compare: Compare,
    asked: Arc<Asked>,
}

impl Request {
    /// A request under a client's key.
    pub fn new(tenant: &Tenant, operation: &Operation, key: &Key) -> Self {
        let scope = Scope { tenant: tenant.clone(), operation: operation.clone(), key: key.clone() };
        Self { scope, parts: Parts::new(), wait: None, is_protected: true, prepared: OnceLock::new() }
    }

    /// A request without a key: runs each time, is counted, and can never be replayed.
    ///
    /// # Panics
    ///
    /// When the operating system gives no random bytes.
    pub fn unprotected(tenant: &Tenant, operation: &Operation) -> Self {
        // The journal names each entry; this name is given to nobody.
        let key = Key::random();
        Self { is_protected: false, ..Self::new(tenant, operation, &key) }
    }

    /// A part compared byte for byte: method, path, a header, any text.
    pub fn bytes(mut self, part: &str, value: impl AsRef<[u8]>) -> Self {
        self.parts_mut().bytes(part, value.as_ref());
        self
    }

    /// A part that is JSON: compared by content where the policy says so, where member order, white space and
    /// escapes are formatting and a number is its text, never rounded. What is not JSON, or names a member
    /// twice, is compared exactly.
    pub fn json(mut self, part: &str, text: impl AsRef<[u8]>) -> Self {
        self.parts_mut().json(part, text.as_ref());
        self
    }

    /// A part of names and values, such as a query or a form. The order of different names is formatting; the
    /// order of the values of one name is not.
    pub fn fields(mut self, part: &str, fields: &[(&str, &str)]) -> Self {
        self.parts_mut().fields(part, fields);
        self
    }

    /// A part that the program holds as a value; compared by content.
    ///
    /// # Errors
    ///
    /// `Invalid` when it cannot be written as JSON, or holds a NaN or an infinity, which JSON would swallow.
    pub fn value<V: Serialize>(mut self, part: &str, value: &V) -> Result<Self, Error> {
        self.parts_mut()
            .value(part, value)
            .map_err(|fault| Error::invalid(format!("part {part}: {fault}")))?;
        Ok(self)
    }

    /// How long this call may wait for another that runs the scope, in place of the policy's time. No part of
    /// the identity.
    pub fn wait(mut self, budget: Duration) -> Self {
        self.wait = Some(budget);
        self
    }

    /// Whose command it is, of which kind, and which.
    #[must_use]
    pub fn scope(&self) -> &Scope {
        &self.scope
    }

    pub(crate) fn budget(&self) -> Option<Duration> {
        self.wait
    }

    /// The request as the engine carries it: hashed once, by the first store that is asked, and again only
    /// for a store of another scope mode or an operation of another policy.
    #[inline]
    pub(crate) fn asked(&self, settings: &Settings) -> Result<Cow<'_, Arc<Asked>>, Error> {
        if let Some(prepared) = self.prepared.get()
            && prepared.number == settings.number
        {
            return Ok(Cow::Borrowed(&prepared.asked));
        }
        self.prepare(settings)
    }

    /// What is looked for in memory; none for a request that is never looked up, or that is none.
    #[inline]
    pub(crate) fn with_imprint<R>(
        &self,
        settings: &Settings,
        look: impl FnOnce(&Imprint) -> Option<R>,
    ) -> Option<R> {
        match self.prepared.get() {
            Some(prepared) if prepared.number == settings.number => look(&prepared.imprint),
            _ if !self.is_protected => None,
            _ => look(&self.prepare(settings).ok()?.imprint),
        }
    }

    #[cold]
    fn prepare(&self, settings: &Settings) -> Result<Cow<'_, Arc<Asked>>, Error> {
        let (mode, compare) = (settings.scope_mode, settings.policy(&self.scope.operation).compare);
        match self.prepared.get() {
            Some(prepared) if prepared.mode == mode && prepared.compare == compare => {
                Ok(Cow::Borrowed(&prepared.asked))
            }
            Some(_) => self.hashed(mode, compare).map(Cow::Owned),
            None => {
                let asked = self.hashed(mode, compare)?;
                let prepared = Prepared {
                    number: if self.is_protected { settings.number } else { NEVER_LOOKED_UP },
                    imprint: asked.imprint.clone(),
                    mode,
                    compare,
                    asked: Arc::clone(&asked),
                };
                // Another thread may have been first, for another store.
                let _ = self.prepared.set(prepared);
                Ok(Cow::Owned(asked))
            }
        }
    }

    fn hashed(&self, mode: ScopeMode, compare: Compare) -> Result<Arc<Asked>, Error> {
        if let Some(defect) = self.parts.defect() {
            return Err(Error::invalid(format!("the request's parts: {defect}")));
        }
        let mut parts = self.parts.clone();
        if parts.is_empty() && !self.is_protected {
            parts.bytes("body", b"");
        }
        if mode == ScopeMode::PerTenant {
            parts.operation(self.scope.operation.as_str());
        }
        let fingerprint =
            Fingerprint::of(&parts, compare).map_err(|fault| Error::invalid(fault.to_string()))?;
        let digest = ScopeDigest::of(&self.scope, mode);
        Ok(Arc::new(Asked {
            scope: self.scope.clone(),
            digest,
            parts,
            imprint: Imprint::of(digest, &self.scope, &fingerprint),
            fingerprint,
            is_protected: self.is_protected,
        }))
    }

    /// The parts, to be changed: what was prepared of them is no longer true.
    fn parts_mut(&mut self) -> &mut Parts {
        self.prepared = OnceLock::new();
        &mut self.parts
    }
}

/// Shows no key and no part.
impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request")
            .field("scope", &self.scope)
            .field("parts", &self.parts)
            .field("is_protected", &self.is_protected)
            .finish_non_exhaustive()
    }
}
