//! Room for one record, and how a reader and the publisher share it.
//!
//! Owns the sequence number and the mark; must not know what the words mean or how a slot is chosen.
//!
//! # Why what is read cannot be torn
//!
//! The sequence number is odd while the slot is written. The publisher stores the odd number, passes a
//! release fence, stores the words, and releases the even number. A reader acquires the number, looks at the
//! words, passes an acquire fence and reads the number again. If one word that it saw came from a later
//! write, the two fences order that write's odd number before the second look, which then differs; the reader
//! drops what it saw and misses. It never tries again, so its work has a bound whatever the publisher does.
//! The number has 64 bits and never comes round.

use std::array;

use super::shape::RECORD_WORDS;
use super::sync::{AtomicU64, Relaxed, order};

const UNREAD: u64 = 0;
const READ: u64 = 1;

/// Room for one record, behind its sequence number.
#[repr(C, align(64))]
pub(super) struct Slot {
    /// Odd while the slot is written.
    sequence: AtomicU64,
    digest: [AtomicU64; 2],
    /// Whether the record was read since the hand last passed; outside the sequence, since a wrong one does
    /// no harm.
    mark: AtomicU64,
    words: [AtomicU64; RECORD_WORDS],
}

/// The words of a slot under a reader's eyes. What they say counts only once [`Slot::read`] has answered:
/// until then any of them may be another record's, or a mixture.
pub(super) struct Words<'s>(&'s [AtomicU64; RECORD_WORDS]);

impl Words<'_> {
    /// One word; zero beyond the last.
    #[inline]
    pub fn get(&self, at: usize) -> u64 {
        self.0.get(at).map_or(0, |word| word.load(Relaxed))
    }

    /// `count` words from `from` on, fewer where the slot ends.
    #[inline]
    pub fn range(&self, from: usize, count: usize) -> impl Iterator<Item = u64> {
        let from = from.min(RECORD_WORDS);
        self.0[from..from.saturating_add(count).min(RECORD_WORDS)].iter().map(|word| word.load(Relaxed))
    }

    /// Whether the words from `from` on are these.
    #[inline]
    pub fn are(&self, from: usize, expected: &[u64]) -> bool {
        let Some(words) = self.0.get(from..from + expected.len()) else { return false };
        // Without a branch for each word: almost always they are.
        let ((fours, words), (expected_fours, expected)) =
            (words.as_chunks::<4>(), expected.as_chunks::<4>());
        let differs = |word: &AtomicU64, expected: &u64| word.load(Relaxed) ^ expected;
        let in_fours = fours.iter().zip(expected_fours).fold(0, |found, ([a, b, c, d], [e, f, g, h])| {
            found | differs(a, e) | differs(b, f) | differs(c, g) | differs(d, h)
        });
        words.iter().zip(expected).fold(in_fours, |found, (word, expected)| found | differs(word, expected))
            == 0
    }
}

impl Slot {
    pub fn new() -> Self {
        Self {
            sequence: AtomicU64::new(0),
            digest: array::from_fn(|_| AtomicU64::new(0)),
            mark: AtomicU64::new(UNREAD),
            words: array::from_fn(|_| AtomicU64::new(0)),
        }
    }

    /// What `look` says of the record of `digest`, if it is here and nothing changed while it was looked at.
    #[inline]
    pub fn read<R>(&self, digest: [u64; 2], look: &mut impl FnMut(&Words<'_>) -> Option<R>) -> Option<R> {
        let sequence = self.sequence.load(order::reader_begins());
        if sequence % 2 == 1 || !self.holds(digest) {
            return None;
        }
        let seen = look(&Words(&self.words))?;
        order::reader_fence();
        if self.sequence.load(Relaxed) != sequence {
            return None;
        }
        self.mark_read();
        Some(seen)
    }

    /// Whether the slot names `digest`: for the publisher a fact, for a reader a guess until the sequence
    /// proves it.
    #[inline]
    pub fn holds(&self, digest: [u64; 2]) -> bool {
        self.digest[0].load(Relaxed) == digest[0] && self.digest[1].load(Relaxed) == digest[1]
    }

    /// Looks first: a line that all readers share is written once per round of the hand, not once per read.
    #[inline]
    fn mark_read(&self) {
        if self.mark.load(Relaxed) == UNREAD {
            self.mark.store(READ, Relaxed);
        }
    }
}

/// What the publisher does; needs the publishing lock.
impl Slot {
    pub fn is_unread(&self) -> bool {
        self.mark.load(Relaxed) == UNREAD
    }

    pub fn mark_unread(&self) {
        self.mark.store(UNREAD, Relaxed);
    }

    /// Makes `words` the record; those behind them stay as they were. They are taken while the slot cannot be
    /// read, so they have to be at hand.
    pub fn fill(&self, digest: [u64; 2], words: impl Iterator<Item = u64>) {
        self.rewrite(|| {
            self.name(digest);
            for (word, new) in self.words.iter().zip(words) {
                word.store(new, Relaxed);
            }
        });
    }

    /// Leaves no record behind. No scope has a digest of zeros that anybody could find.
    pub fn empty(&self) {
        self.rewrite(|| self.name([0; 2]));
    }

    fn name(&self, digest: [u64; 2]) {
        self.digest[0].store(digest[0], Relaxed);
        self.digest[1].store(digest[1], Relaxed);
    }

    /// Changes the slot so that no reader takes a part of the change for a record.
    fn rewrite(&self, change: impl FnOnce()) {
        let sequence = self.sequence.load(Relaxed);
        debug_assert!(sequence.is_multiple_of(2), "two publishers in one slot");
        self.sequence.store(sequence + 1, Relaxed);
        order::writer_fence();
        change();
        self.sequence.store(sequence + 2, order::writer_ends());
    }
}
