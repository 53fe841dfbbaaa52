//! Finished records in memory: the place where a retry is answered without a lock, a system call or the file.
//!
//! Owns what a hit is, and who may put a record in. Must not know what is in the file or what time it is: the
//! caller gives the time and reads the file.
//!
//! `shape` says how large the parts are, `sync` names what threads share and in which order, `slot` keeps a
//! record whole under readers, `table` chooses slots, `card` is a record as words, `answer` what is copied of
//! it. The first four are what `tests/loom` explores.
//!
//! # Consistency
//!
//! *Later* means that the look happens after the other call returned, in the sense of the memory model: on
//! the same thread, or through any lock, channel or release and acquire between the two.
//!
//! - A hit is one whole record, as one `publish` or `fill` of that very scope gave it; never a mixture, never
//!   another's.
//! - A look later than a `publish` of its scope sees that record, a newer one, or misses; never an older
//!   one. The same holds between two hits, on one thread or on two of which the second is later.
//! - A look later than a `withdraw` of its scope, or than a `clear`, misses until the scope is published or
//!   filled again; and a fill brings back only what a snapshot shows that was taken after the `withdraw`. So
//!   whoever takes a record out of the file withdraws it *before* the commit, that nobody is answered from it
//!   any more, and *after* it, that nobody who read the file before brings it back.
//! - A look that overlaps one of these calls may answer as before it, as after it, or miss.
//! - A miss proves nothing. The record may be too long, displaced, or being written at this moment.

mod answer;
mod card;
mod shape;
mod slot;
mod sync;
mod table;

use std::hash::{BuildHasher as _, RandomState};

pub(crate) use self::answer::{AnswerBuffer, metadata};
use self::card::Card;
use self::shape::RECORD_WORDS;
pub(crate) use self::table::Stamp;
use self::table::{SET_BYTES, Table};
use crate::core::imprint::Imprint;
use crate::core::name::ScopeDigest;
use crate::core::outcome::Finished;
use crate::core::receipt::Receipt;
use crate::core::record::{Age, Record};
use crate::core::time::Timestamp;

/// Finished records in memory, bounded in bytes, read without a lock.
pub(crate) struct ReplayIndex {
    table: Table,
}

impl ReplayIndex {
    /// An index that allocates as many whole sets as `bytes` has room for, now and never again.
    ///
    /// With less than one set (about 15 KiB) it is off: each look misses and each `publish` does nothing.
    #[must_use]
    pub fn new(bytes: usize) -> Self {
        let random = RandomState::new();
        let seed = [random.hash_one(0), random.hash_one(1)];
        Self { table: Table::new(bytes / SET_BYTES, seed) }
    }

    /// The receipt of the command that a request repeats, if a retry would be a replay at `now`.
    ///
    /// Scope, fingerprint and times are judged where they lie. Wait-free; takes no lock, allocates nothing,
    /// makes no system call, and writes nothing shared except an eviction mark that is not yet set.
    #[inline]
    pub fn receipt(&self, imprint: &Imprint, now: Timestamp) -> Option<Receipt> {
        self.table.read(imprint.digest(), |words| {
            let (receipt, _) = card::judge(words, imprint)?;
            receipt.age(now).map(|_| receipt)
        })
    }

    /// As [`ReplayIndex::receipt`], and copies the answer; only where the body is there.
    #[inline]
    pub fn answer(&self, imprint: &Imprint, now: Timestamp, out: &mut AnswerBuffer) -> Option<Receipt> {
        self.table.read(imprint.digest(), |words| {
            let (receipt, kept) = card::judge(words, imprint)?;
            if !kept || receipt.age(now) != Some(Age::Whole) {
                return None;
            }
            card::copy_answer(words, imprint, out);
            Some(receipt)
        })
    }

    /// As [`ReplayIndex::receipt`], with all that a retry is told.
    pub fn finished(&self, imprint: &Imprint, now: Timestamp) -> Option<Finished> {
        // Made where there is something to copy: most who come here are fresh, and miss.
        let mut out = None;
        let (receipt, kept) = self.table.read(imprint.digest(), |words| {
            let (receipt, kept) = card::judge(words, imprint)?;
            receipt.age(now)?;
            card::copy_answer(words, imprint, out.get_or_insert_with(AnswerBuffer::new));
            Some((receipt, kept))
        })?;
        card::finished(receipt, kept, now, &out?)
    }

    /// The record of a scope as far as a judgement needs it, without its notes and its actor.
    pub fn record(&self, scope: ScopeDigest) -> Option<Record> {
        let mut out = None;
        self.table.read(scope.words(), |words| {
            let out = out.get_or_insert([0; RECORD_WORDS]);
            out.iter_mut().zip(words.range(0, RECORD_WORDS)).for_each(|(word, seen)| *word = seen);
            Some(())
        })?;
        card::record_of(&out?)
    }

    /// Makes `record` what a retry of the request that it came of, by its imprint, is answered from; the
    /// commit that wrote it is durable.
    ///
    /// A record that no slot can hold withdraws the scope: what it had is no longer true. Allocates nothing.
    pub fn publish(&self, imprint: &Imprint, record: &Record) {
        if self.is_off() {
            return;
        }
        match Card::new().pack(imprint, record) {
            Some(words) => self.table.publish(imprint.digest(), words),
            None => self.table.withdraw(imprint.digest()),
        }
    }

    /// The moment before a snapshot is taken, for [`ReplayIndex::fill`].
    pub fn stamp(&self, scope: ScopeDigest) -> Stamp {
        self.table.stamp(scope.words())
    }

    /// Puts in what a reader found in a snapshot that it took after `stamp`, unless the file's side has
    /// changed the set since. Never waits: where the publishing lock is taken, nothing happens.
    pub fn fill(&self, scope: ScopeDigest, record: &Record, stamp: Stamp) {
        if self.is_off() {
            return;
        }
        let imprint = Imprint::of(scope, &record.entry.scope, &record.entry.fingerprint);
        if let Some(words) = Card::new().pack(&imprint, record) {
            self.table.fill(scope.words(), words, stamp);
        }
    }

    /// Whether no record is ever put in, so that none need be made ready for it.
    fn is_off(&self) -> bool {
        self.table.sets() == 0
    }

    /// Removes every record. When this returns, no later look sees one of them.
    pub fn clear(&self) {
        self.table.clear();
    }

    /// Keeps the publishing lock, to show who does without.
    #[cfg(test)]
    pub fn held(&self) -> impl Drop {
        self.table.held()
    }

    /// How many records there are.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.table.len()
    }

    /// How many bytes the table takes, used or not; never more than the budget.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.table.sets() * SET_BYTES
    }
}

#[cfg(test)]
mod agreement_tests;
#[cfg(test)]
mod tests;
