//! The answer of one record, copied out of its slot: body, metadata, resource. Owns the buffer and the bytes
//! of what is no body; must not know slots or judgements.
//!
//! ```text
//! rest = n16(entries) { n16(name) n16(value) name value }*  what [resource] [messages]
//! what = 1 with a resource + 2 with messages
//! resource = n16(kind) n16(id) shared kind id      messages = n64(entry) n32(how many)
//! ```
//!
//! `n16` is a length in two bytes, little end first: a slot has less than 64 KiB.

use std::mem;

use bytes::Bytes;

use super::shape::RECORD_WORDS;
use crate::core::message::MessageId;
use crate::core::outcome::ResourceRef;
use crate::core::record::Record;
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

/// Writes metadata, resource and messages; none where they do not fit. What is too long for its length is too
/// long for a slot as well.
pub(super) fn put(
    room: &mut Room<'_>,
    meta: &[(Text, Bytes)],
    resource: Option<&ResourceRef>,
    messages: Made,
) -> Option<()> {
    room.length(meta.len())?;
    for (name, value) in meta {
        room.length(name.len())?;
        room.length(value.len())?;
        room.put(name.as_bytes())?;
        room.put(value)?;
    }
    let with_resource = if resource.is_some() { WITH_RESOURCE } else { 0 };
    let with_messages = if messages.count > 0 { WITH_MESSAGES } else { 0 };
    room.put(&[with_resource | with_messages])?;
    if let Some(resource) = resource {
        room.length(resource.kind.len())?;
        room.length(resource.id.len())?;
        room.put(&[u8::from(resource.is_shared())])?;
        room.put(resource.kind.as_bytes())?;
        room.put(resource.id.as_bytes())?;
    }
    if messages.count > 0 {
        room.put(&messages.seq.to_le_bytes())?;
        room.put(&messages.count.to_le_bytes())?;
    }
    Some(())
}

const WITH_RESOURCE: u8 = 1;
const WITH_MESSAGES: u8 = 2;

/// The messages that a command made: those of this entry, numbered from 0.
#[derive(Clone, Copy, Default)]
pub(super) struct Made {
    pub seq: u64,
    pub count: u32,
}

impl Made {
    pub fn of(record: &Record) -> Self {
        let count = u32::try_from(record.messages().count()).unwrap_or(u32::MAX);
        Self { seq: record.position.seq, count }
    }

    pub fn ids(self) -> impl Iterator<Item = MessageId> {
        (0..self.count).map(move |ordinal| MessageId { seq: self.seq, ordinal })
    }
}

/// Room not filled yet. What does not fit is not begun.
pub(super) struct Room<'b>(pub &'b mut [u8]);

impl<'b> Room<'b> {
    #[inline]
    pub fn put(&mut self, bytes: &[u8]) -> Option<()> {
        let (taken, left) = mem::take(&mut self.0).split_at_mut_checked(bytes.len())?;
        taken.copy_from_slice(bytes);
        self.0 = left;
        Some(())
    }

    /// Room for `N` bytes, to be written later.
    #[inline]
    pub fn keep<const N: usize>(&mut self) -> Option<&'b mut [u8; N]> {
        let (kept, left) = mem::take(&mut self.0).split_first_chunk_mut()?;
        self.0 = left;
        Some(kept)
    }

    #[inline]
    pub fn words(&mut self, words: &[u64]) -> Option<()> {
        let (taken, left) = mem::take(&mut self.0).split_at_mut_checked(size_of_val(words))?;
        let (chunks, _) = taken.as_chunks_mut::<WORD_BYTES>();
        chunks.iter_mut().zip(words).for_each(|(chunk, word)| *chunk = word.to_le_bytes());
        self.0 = left;
        Some(())
    }

    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "what is longer fits no slot, see `put`")]
    fn length(&mut self, length: usize) -> Option<()> {
        *self.keep()? = (length as u16).to_le_bytes();
        Some(())
    }
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

/// The resource, if the outcome names one, and the messages that the command made.
pub(super) fn resource_and_messages(rest: &[u8]) -> Option<(Option<ResourceRef>, Made)> {
    let mut metadata = metadata(rest);
    while metadata.next().is_some() {}
    let mut left = metadata.left;
    let [what] = left.array()?;
    let mut resource = None;
    if what & WITH_RESOURCE != 0 {
        let (kind, id) = (left.length()?, left.length()?);
        let shared = left.take(1)? == [1];
        resource = Some(ResourceRef::new(left.text(kind)?, left.text(id)?, shared));
    }
    let mut made = Made::default();
    if what & WITH_MESSAGES != 0 {
        made = Made { seq: u64::from_le_bytes(left.array()?), count: u32::from_le_bytes(left.array()?) };
    }
    Some((resource, made))
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
        Some(usize::from(u16::from_le_bytes(self.array()?)))
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, left) = self.0.split_first_chunk()?;
        self.0 = left;
        Some(*taken)
    }
}
