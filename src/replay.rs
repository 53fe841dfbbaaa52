//! Replays without an allocation. Owns the caller's side of one; must not know where it was found.

use std::fmt;

use crate::core::receipt::Receipt;
use crate::engine::replay_index::{AnswerBuffer, metadata};

/// Where [`Store::peek_into`](crate::Store::peek_into) copies an answer to.
///
/// Has about 1 KiB in itself, which is room for any answer that the memory holds, so nothing is ever
/// allocated for it. Meant to be used again: one for each thread that asks.
///
/// ```
/// let buffer = onecho::ReplayBuffer::new();
/// # let _ = buffer;
/// ```
#[derive(Clone)]
pub struct ReplayBuffer(AnswerBuffer);

impl ReplayBuffer {
    /// An empty buffer.
    #[must_use]
    pub const fn new() -> Self {
        Self(AnswerBuffer::new())
    }

    pub(crate) fn room(&mut self) -> &mut AnswerBuffer {
        &mut self.0
    }
}

impl Default for ReplayBuffer {
    fn default() -> Self {
        Self::new()
    }
}

/// Shows nothing of what it holds.
impl fmt::Debug for ReplayBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReplayBuffer").finish_non_exhaustive()
    }
}

/// A replay, lent from the caller's buffer. What [`Reply::Replay`](crate::Reply::Replay) tells of the same
/// request, but for the resource.
#[derive(Clone, Copy)]
pub struct OutcomeRef<'b> {
    receipt: Receipt,
    body: &'b [u8],
    rest: &'b [u8],
}

impl<'b> OutcomeRef<'b> {
    pub(crate) fn new(receipt: Receipt, buffer: &'b ReplayBuffer) -> Self {
        Self { receipt, body: buffer.0.body(), rest: buffer.0.rest() }
    }

    /// The code of the outcome.
    #[must_use]
    pub fn code(&self) -> u16 {
        self.receipt.code
    }

    /// Whether it was a business refusal.
    #[must_use]
    pub fn failed(&self) -> bool {
        self.receipt.failed
    }

    /// Code, times and generation.
    #[must_use]
    pub fn receipt(&self) -> Receipt {
        self.receipt
    }

    /// The body, byte for byte.
    #[must_use]
    pub fn body(&self) -> &'b [u8] {
        self.body
    }

    /// One piece of metadata.
    #[must_use]
    pub fn meta(&self, name: &str) -> Option<&'b [u8]> {
        self.metadata().find(|(known, _)| *known == name).map(|(_, value)| value)
    }

    /// All metadata, in the order it was given.
    pub fn metadata(&self) -> impl Iterator<Item = (&'b str, &'b [u8])> + use<'b> {
        metadata(self.rest)
    }
}

/// Shows no body and no metadata.
impl fmt::Debug for OutcomeRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OutcomeRef")
            .field("code", &self.receipt.code)
            .field("failed", &self.receipt.failed)
            .field("body_bytes", &self.body.len())
            .field("at", &self.receipt.at)
            .finish_non_exhaustive()
    }
}
