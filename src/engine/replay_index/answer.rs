//! The answer of one record, copied out of its slot: body, metadata, resource. Owns the buffer and the bytes
//! of what is no body; must not know slots or judgements.
//!
//! ```text
//! rest = n16(entries) { n16(name) n16(value) name value }*  00 | 01 n16(kind) n16(id) shared kind id
//! ```
//!
//! `n16` is a length in two bytes, little end first: a slot has less than 64 KiB.

use bytes::Bytes;

use super::shape::RECORD_WORDS;
use crate::core::outcome::ResourceRef;
use crate::core::text::Text;

const WORD_BYTES: usize = size_of::<u64>();

/// Room for the answer of any record that a slot can hold.
#[derive(Clone)]
#[repr(align(64))]
pub(crate) struct AnswerBuffer {
    bytes: [u8; RECORD_WORDS * WORD_BYTES],
    body: usize,
    rest: usize,
}

impl AnswerBuffer {
    pub const fn new() -> Self {
        Self { bytes: [0; RECORD_WORDS * WORD_BYTES], body: 0, rest: 0 }
    }

    /// Takes an answer of these lengths over.
    #[inline]
    pub(super) fn fill(&mut self, body: usize, rest: usize, words: impl Iterator<Item = u64>) {
        (self.body, self.rest) = (body, rest);
        let (chunks, _) = self.bytes.as_chunks_mut::<WORD_BYTES>();
        for (chunk, word) in chunks.iter_mut().zip(words) {
            *chunk = word.to_le_bytes();
        }
    }

    /// The body, or what stands for it.
    #[inline]
    pub fn body(&self) -> &[u8] {
        self.bytes.get(..self.body).unwrap_or_default()
    }

    /// What is no body, for [`metadata`] and [`resource`].
    #[inline]
    pub fn rest(&self) -> &[u8] {
        self.bytes.get(self.body..self.body + self.rest).unwrap_or_default()
    }
}

/// Appends metadata and resource. What is too long for its length is too long for a slot as well.
pub(super) fn put(out: &mut Vec<u8>, meta: &[(Text, Bytes)], resource: Option<&ResourceRef>) {
    put_length(out, meta.len());
    for (name, value) in meta {
        put_length(out, name.len());
        put_length(out, value.len());
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(value);
    }
    out.push(u8::from(resource.is_some()));
    if let Some(resource) = resource {
        put_length(out, resource.kind.len());
        put_length(out, resource.id.len());
        out.push(u8::from(resource.is_shared()));
        out.extend_from_slice(resource.kind.as_bytes());
        out.extend_from_slice(resource.id.as_bytes());
    }
}

#[expect(clippy::cast_possible_truncation, reason = "what is longer fits no slot, see `put`")]
fn put_length(out: &mut Vec<u8>, length: usize) {
    out.extend_from_slice(&(length as u16).to_le_bytes());
}

/// Names and values, in their order.
pub(crate) fn metadata(rest: &[u8]) -> Metadata<'_> {
    let mut left = Left(rest);
    let entries = left.length().unwrap_or(0);
    Metadata { left, entries }
}

pub(crate) struct Metadata<'b> {
    left: Left<'b>,
    entries: usize,
}

impl<'b> Iterator for Metadata<'b> {
    type Item = (&'b str, &'b [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        self.entries = self.entries.checked_sub(1)?;
        let (name, value) = (self.left.length()?, self.left.length()?);
        Some((self.left.text(name)?, self.left.take(value)?))
    }
}

/// The resource, if the outcome names one.
pub(super) fn resource(rest: &[u8]) -> Option<ResourceRef> {
    let mut metadata = metadata(rest);
    while metadata.next().is_some() {}
    let mut left = metadata.left;
    if left.take(1)? != [1] {
        return None;
    }
    let (kind, id) = (left.length()?, left.length()?);
    let shared = left.take(1)? == [1];
    Some(ResourceRef::new(left.text(kind)?, left.text(id)?, shared))
}

/// Bytes not taken yet.
#[derive(Clone, Copy)]
pub(super) struct Left<'b>(pub &'b [u8]);

impl<'b> Left<'b> {
    pub fn take(&mut self, count: usize) -> Option<&'b [u8]> {
        let (taken, left) = self.0.split_at_checked(count)?;
        self.0 = left;
        Some(taken)
    }

    pub fn text(&mut self, count: usize) -> Option<&'b str> {
        str::from_utf8(self.take(count)?).ok()
    }

    fn length(&mut self) -> Option<usize> {
        let (length, left) = self.0.split_first_chunk()?;
        self.0 = left;
        Some(usize::from(u16::from_le_bytes(*length)))
    }
}
