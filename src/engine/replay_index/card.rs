//! A finished record as words: what is judged first, then what is answered, then the rest.
//!
//! Owns the layout in memory, which no file has. Must not know slots, or which record is put where.
//!
//! ```text
//! 0..4   the fingerprint's digest     4   scheme, policy, lengths of the names
//! 5      generation, code, flags      6   at      7   body_until      8   key_until
//! 9..    the names                    then: how many bytes body, answer's rest and record's rest have
//! then   those bytes, one behind the other
//! ```
//!
//! The words of the request's imprint are 0..5 and 9..; with the times between, a judgement reads two or
//! three cache lines and no more. The *answer's rest* is metadata and resource, read without an allocation;
//! the *record's rest* is what only [`record_of`] needs, for answers other than a replay.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::answer::{self, AnswerBuffer, Left, Room};
use super::shape::RECORD_WORDS;
use super::slot::Words;
use crate::core::effect::{Note, Verb};
use crate::core::fingerprint::Fingerprint;
use crate::core::imprint::{HEAD_WORDS, Imprint, name_bytes};
use crate::core::name::{Key, Operation, Scope, Tenant};
use crate::core::outcome::{Body, Digest, Finished};
use crate::core::policy::Windows;
use crate::core::receipt::Receipt;
use crate::core::record::{Age, ClassId, Entry, KeptBody, Position, Record, Told, Transition};
use crate::core::row::RowKey;
use crate::core::time::Timestamp;
use crate::db::codec;

const WORD_BYTES: usize = size_of::<u64>();
const CARD_BYTES: usize = RECORD_WORDS * WORD_BYTES;
const SAID: usize = HEAD_WORDS;
const AT: usize = SAID + 1;
const BODY_UNTIL: usize = AT + 1;
const KEY_UNTIL: usize = BODY_UNTIL + 1;
const NAMES: usize = KEY_UNTIL + 1;

const FAILED: u64 = 1;
/// The body is there; else its digest and length are.
const KEPT: u64 = 2;

/// How many bytes stand behind the names, in sixteen bits each.
#[derive(Clone, Copy)]
pub(super) struct Lengths {
    pub body: usize,
    pub answer_rest: usize,
    pub record_rest: usize,
}

/// What only a record that is no plain replay is judged by.
#[derive(Serialize, Deserialize)]
struct Rest<'r> {
    class: u16,
    seq: u64,
    windows: Windows,
    fingerprint: Cow<'r, Fingerprint>,
}

/// A record as a slot has it, on the stack of whoever puts it there.
pub(super) struct Card([u8; CARD_BYTES]);

impl Card {
    pub const fn new() -> Self {
        Self([0; CARD_BYTES])
    }

    /// The words of a record; none if they are more than a slot has, or it cannot be judged by two times.
    pub fn pack(&mut self, imprint: &Imprint, record: &Record) -> Option<impl ExactSizeIterator<Item = u64>> {
        let entry = &record.entry;
        if !record.may_be_remembered() {
            // It answers whatever is asked, and here only the same request would get it.
            return None;
        }
        let receipt = Receipt::of(record)?;
        let kept = if matches!(entry.body, KeptBody::Kept(_)) { KEPT } else { 0 };
        let flags = kept | if receipt.failed { FAILED } else { 0 };
        let said = u64::from(receipt.generation) << 32 | u64::from(receipt.code) << 16 | flags;

        let mut room = Room(&mut self.0);
        room.words(imprint.head())?;
        room.words(&[said, receipt.at.0, receipt.body_until.0, receipt.key_until.0])?;
        room.words(imprint.names())?;
        let lengths = room.keep()?;
        let before_body = room.0.len();
        match &entry.body {
            KeptBody::Kept(body) => room.put(body)?,
            KeptBody::NotKept { digest, len } => {
                room.put(&digest.0)?;
                room.put(&len.to_le_bytes())?;
            }
        }
        let before_answer = room.0.len();
        answer::put(&mut room, &entry.meta, entry.resource.as_ref(), answer::Made::of(record))?;
        let before_rest = room.0.len();
        let Position { class, seq } = record.position;
        let fingerprint = Cow::Borrowed(&entry.fingerprint);
        let rest = Rest { class: class.0, seq, windows: record.windows, fingerprint };
        let record_rest = codec::encode_at(&rest, room.0)?;
        let (body, answer_rest) = (before_body - before_answer, before_answer - before_rest);
        *lengths = Lengths { body, answer_rest, record_rest }.word().to_le_bytes();

        let used = CARD_BYTES - before_rest + record_rest;
        let (words, _) = self.0.as_chunks();
        Some(words.get(..used.div_ceil(WORD_BYTES))?.iter().map(|word| u64::from_le_bytes(*word)))
    }
}

/// The receipt of the record under the reader's eyes, if it answers just this request; and whether it has
/// its body.
#[inline]
pub(super) fn judge(words: &Words<'_>, imprint: &Imprint) -> Option<(Receipt, bool)> {
    if !words.are(0, imprint.head()) || !words.are(NAMES, imprint.names()) {
        return None;
    }
    Some(receipt(words.get(SAID), words.get(AT), words.get(BODY_UNTIL), words.get(KEY_UNTIL)))
}

#[inline]
#[expect(clippy::cast_possible_truncation, reason = "three fields of one word")]
fn receipt(said: u64, at: u64, body_until: u64, key_until: u64) -> (Receipt, bool) {
    let receipt = Receipt {
        code: (said >> 16) as u16,
        failed: said & FAILED != 0,
        at: Timestamp(at),
        body_until: Timestamp(body_until),
        key_until: Timestamp(key_until),
        generation: (said >> 32) as u32,
    };
    (receipt, said & KEPT != 0)
}

/// Copies what is answered: the body, and behind it the answer's rest. The lengths are the record's only once
/// the read has proved it whole.
#[inline]
pub(super) fn copy_answer(words: &Words<'_>, imprint: &Imprint, out: &mut AnswerBuffer) {
    let at = NAMES + imprint.names().len();
    let lengths = Lengths::of(words.get(at));
    out.fill(
        lengths.body,
        lengths.answer_rest,
        words.range(at + 1, (lengths.body + lengths.answer_rest).div_ceil(WORD_BYTES)),
    );
}

impl Lengths {
    fn word(self) -> u64 {
        (self.body | self.answer_rest << 16 | self.record_rest << 32) as u64
    }

    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "fields of sixteen bits")]
    fn of(word: u64) -> Self {
        let field = |shift: u32| usize::from((word >> shift) as u16);
        Self { body: field(0), answer_rest: field(16), record_rest: field(32) }
    }
}

/// The record as far as a judgement needs it: without its actor, and of its notes only the messages.
pub(super) fn record_of(words: &[u64; RECORD_WORDS]) -> Option<Record> {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let mut left = Left(bytes.get(NAMES * WORD_BYTES..)?);
    let counts = name_bytes(words[HEAD_WORDS - 1]);
    let [tenant, operation, key] = counts.map(|count| left.text(count));
    let scope = Scope {
        tenant: Tenant(tenant?.into()),
        operation: Operation(operation?.into()),
        key: Key(key?.into()),
    };

    let names = counts.iter().sum::<usize>().div_ceil(WORD_BYTES);
    let lengths = Lengths::of(*words.get(NAMES + names)?);
    let mut left = Left(bytes.get((NAMES + names + 1) * WORD_BYTES..)?);
    let (body, answer_rest) = (left.take(lengths.body)?, left.take(lengths.answer_rest)?);
    let rest: Rest<'_> = codec::decode(left.take(lengths.record_rest)?).ok()?;

    let (receipt, kept) = receipt(words[SAID], words[AT], words[BODY_UNTIL], words[KEY_UNTIL]);
    let (resource, made) = answer::resource_and_messages(answer_rest)?;
    // Of its notes only that it made messages, which a replay tells.
    let note = |id| Note { key: RowKey::message(id), verb: Verb::Write, digest: None };
    let notes = made.ids().map(note).collect();
    let told = Told {
        scope,
        fingerprint: rest.fingerprint.into_owned(),
        failed: receipt.failed,
        code: receipt.code,
        meta: answer::metadata(answer_rest).map(|(name, value)| (name.into(), copied(value))).collect(),
        resource,
        body: if kept { KeptBody::Kept(copied(body)) } else { not_kept(body)? },
        actor: Arc::from(""),
        token: 0,
        facts: Arc::default(),
    };
    let entry = Entry {
        transition: Transition::Executed,
        at: receipt.at,
        generation: receipt.generation,
        told: Arc::new(told),
        notes,
    };
    let position = Position { class: ClassId(rest.class), seq: rest.seq };
    Some(Record { position, windows: rest.windows, entry })
}

/// What a replay says, from a copied answer.
pub(super) fn finished(
    receipt: Receipt,
    kept: bool,
    now: Timestamp,
    answer: &AnswerBuffer,
) -> Option<Finished> {
    let body = match (kept, receipt.age(now)?) {
        (true, Age::Whole) => Body::Present(copied(answer.body())),
        (true, _) => Body::Trimmed { digest: Digest::of(answer.body()), len: answer.body().len() as u64 },
        (false, _) => match not_kept(answer.body())? {
            KeptBody::NotKept { digest, len } => Body::NotKept { digest, len },
            KeptBody::Kept(_) => return None,
        },
    };
    let metadata = answer::metadata(answer.rest()).map(|(name, value)| (name.into(), copied(value)));
    let (resource, made) = answer::resource_and_messages(answer.rest())?;
    Some(Finished {
        code: receipt.code,
        failed: receipt.failed,
        body,
        resource,
        at: receipt.at,
        body_until: receipt.body_until,
        key_until: receipt.key_until,
        generation: receipt.generation,
        messages: made.ids().collect(),
        metadata: metadata.collect(),
    })
}

fn copied(bytes: &[u8]) -> Bytes {
    Bytes::copy_from_slice(bytes)
}

/// What stands for a body that was not kept.
fn not_kept(bytes: &[u8]) -> Option<KeptBody> {
    let (digest, len) = bytes.split_first_chunk::<32>()?;
    let len = u64::from_le_bytes(len.try_into().ok()?);
    Some(KeptBody::NotKept { digest: Digest(*digest), len })
}
