//! Finished records in memory: the place where a retry is answered without a lock, a system call or the file.
//!
//! Owns a table of slots of one size, the choice of which record gives way to a new one, and the rules by
//! which a reader and the publisher share a slot. Must not know what the bytes mean, whether a record is
//! still valid, or what is in the file: the caller checks scope, fingerprint and times in the bytes it gets.
//!
//! # Shape
//!
//! A set has eight slots and one cache line with a tag for each, so a miss usually reads that line only. A
//! scope belongs to one set, chosen by a hash with a seed of this index: a client that chooses keys cannot
//! aim at a set. Within a set a new record takes a free slot, else CLOCK chooses: a record that was read
//! since the hand last passed is passed over once. A new record starts unread, so a run of keys that nobody
//! asks for again displaces one another rather than what is read.
//!
//! # Consistency
//!
//! *Later* means that the call to [`ReplayIndex::get`] happens after the other call returned, in the sense of
//! the memory model: on the same thread, or through any lock, channel or release and acquire between the two.
//!
//! - A hit is one whole record, as one `publish` of that very scope gave it; never a mixture, never
//!   another's.
//! - A `get` later than a `publish` of its scope sees that record, a newer one, or misses; never an older
//!   one. The same holds between two hits, on one thread or on two of which the second is later.
//! - A `get` later than a `withdraw` of its scope, or than a `clear`, misses until the scope is published
//!   again.
//! - A `get` that overlaps one of these calls may answer as before it, as after it, or miss.
//! - A miss proves nothing. The record may be too long, displaced, or being written at this moment.
//!
//! # Why a copy cannot be torn
//!
//! Each slot has a sequence number, odd while the slot is written. The publisher stores the odd number,
//! passes a release fence, stores the words, and releases the even number. A reader acquires the number,
//! copies the words, passes an acquire fence and reads the number again. If one copied word came from a later
//! write, the two fences order that write's odd number before the second look, which then differs; the reader
//! drops the copy and misses. It never tries again, so its work has a bound whatever the publisher does. The
//! number has 64 bits and never comes round. The tags are hints outside this protocol: a stale one costs a
//! look at a slot or a miss, never a wrong hit.

use std::array;
use std::hash::{BuildHasher as _, RandomState};

use crate::core::name::ScopeDigest;

use sync::{AtomicU64, AtomicUsize, Mutex, Ordering, fence};

/// What two threads share, behind one door so that a model checker can stand in for it.
mod sync {
    pub(super) use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};

    pub(super) use parking_lot::Mutex;
}

/// One slot with its header, in bytes.
const SLOT_BYTES: usize = 1024;
const WORD_BYTES: usize = size_of::<u64>();
const HEADER_WORDS: usize = 5;
const PAYLOAD_WORDS: usize = SLOT_BYTES / WORD_BYTES - HEADER_WORDS;
/// The slots in which a scope may be found.
const SET_SLOTS: usize = 8;
/// What one set costs: its tags, its slots, and its hand.
const SET_BYTES: usize = size_of::<Set>() + size_of::<u8>();

/// The longest record that the index holds, in bytes.
pub(crate) const REPLAY_RECORD_BYTES_MAX: usize = PAYLOAD_WORDS * WORD_BYTES;

/// The tag of a slot without a record.
const TAG_FREE: u64 = 0;
/// The length in a slot without a record: longer than any that fits.
const LENGTH_FREE: u64 = u64::MAX;
const UNREAD: u64 = 0;
const READ: u64 = 1;

/// Finished records in memory, bounded in bytes, read without a lock.
pub(crate) struct ReplayIndex {
    sets: Box<[Set]>,
    seed: RandomState,
    publishing: Publishing,
}

impl ReplayIndex {
    /// An index that allocates as many whole sets as `bytes` has room for, now and never again.
    ///
    /// With less than one set (about 8 KiB) it is off: each `get` misses and each `publish` does nothing.
    #[must_use]
    pub fn new(bytes: usize) -> Self {
        let count = bytes / SET_BYTES;
        Self {
            sets: (0..count).map(|_| Set::new()).collect(),
            seed: RandomState::new(),
            publishing: Publishing {
                hands: Mutex::new(vec![0; count].into_boxed_slice()),
                published: AtomicUsize::new(0),
            },
        }
    }

    /// Copies the record of `scope` into `out` and answers true, or leaves `out` empty and answers false.
    ///
    /// Wait-free: at most eight slots are looked at, each once. Takes no lock, allocates only when `out` is
    /// too small, and writes nothing shared except an eviction mark that is not yet set.
    pub fn get(&self, scope: ScopeDigest, out: &mut Vec<u8>) -> bool {
        out.clear();
        let Some((_, set)) = self.set_of(scope) else { return false };
        let digest = words_of(scope);
        let tag = tag_of(digest);
        for (place, slot) in set.tags.iter().zip(&set.slots) {
            if place.load(Ordering::Relaxed) == tag && slot.copy_to(digest, out) {
                slot.mark_read();
                return true;
            }
        }
        false
    }

    /// Makes `bytes` the record of `scope`, in the place of what it had.
    ///
    /// Bytes that no slot can hold withdraw the scope: what it had is no longer true.
    pub fn publish(&self, scope: ScopeDigest, bytes: &[u8]) {
        if bytes.len() > REPLAY_RECORD_BYTES_MAX {
            return self.withdraw(scope);
        }
        let Some((at, set)) = self.set_of(scope) else { return };
        let digest = words_of(scope);
        let mut hands = self.publishing.hands.lock();
        if let Some(held) = set.find(digest) {
            set.slots[held].fill(digest, bytes);
            return;
        }
        let (place, was_free) = match set.find_free() {
            Some(free) => (free, true),
            None => (set.displace(&mut hands[at]), false),
        };
        set.slots[place].fill(digest, bytes);
        set.slots[place].mark.store(UNREAD, Ordering::Relaxed);
        set.tags[place].store(tag_of(digest), Ordering::Relaxed);
        if was_free {
            self.publishing.published.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Removes the record of `scope`. When this returns, no later `get` sees it.
    pub fn withdraw(&self, scope: ScopeDigest) {
        let Some((_, set)) = self.set_of(scope) else { return };
        let _hands = self.publishing.hands.lock();
        if let Some(held) = set.find(words_of(scope)) {
            set.free(held);
            self.publishing.published.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Removes every record. When this returns, no later `get` sees one of them.
    pub fn clear(&self) {
        let mut hands = self.publishing.hands.lock();
        for set in &self.sets {
            for place in 0..SET_SLOTS {
                if set.tags[place].load(Ordering::Relaxed) != TAG_FREE {
                    set.free(place);
                }
            }
        }
        hands.fill(0);
        self.publishing.published.store(0, Ordering::Relaxed);
    }

    /// How many records are published.
    #[must_use]
    pub fn len(&self) -> usize {
        self.publishing.published.load(Ordering::Relaxed)
    }

    /// How many bytes the table takes, used or not; never more than the budget.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.sets.len() * SET_BYTES
    }

    /// The set of a scope and its number; none when the index is off.
    fn set_of(&self, scope: ScopeDigest) -> Option<(usize, &Set)> {
        let hash = self.seed.hash_one(u128::from_le_bytes(scope.0));
        // The hash as a fraction of its range, scaled to the sets: even for any number of sets, without a
        // division.
        let at = usize::try_from((u128::from(hash) * self.sets.len() as u128) >> u64::BITS).ok()?;
        Some((at, self.sets.get(at)?))
    }
}

/// What only the publisher writes, on cache lines of its own: a publish must not slow the readers of the
/// fields beside.
#[repr(align(128))]
struct Publishing {
    /// The CLOCK hand of each set. Its lock is the right to change any slot or tag.
    hands: Mutex<Box<[u8]>>,
    published: AtomicUsize,
}

/// The slots in which a scope may be found, behind one cache line of tags.
#[repr(C, align(64))]
struct Set {
    tags: [AtomicU64; SET_SLOTS],
    slots: [Slot; SET_SLOTS],
}

/// All but [`Set::new`] need the publishing lock.
impl Set {
    fn new() -> Self {
        Self { tags: array::from_fn(|_| AtomicU64::new(TAG_FREE)), slots: array::from_fn(|_| Slot::new()) }
    }

    fn find(&self, digest: [u64; 2]) -> Option<usize> {
        let tag = tag_of(digest);
        (0..SET_SLOTS)
            .find(|&place| self.tags[place].load(Ordering::Relaxed) == tag && self.slots[place].holds(digest))
    }

    fn find_free(&self) -> Option<usize> {
        self.tags.iter().position(|tag| tag.load(Ordering::Relaxed) == TAG_FREE)
    }

    /// The slot that gives way: the first unread one from the hand on, or the one under it when all were
    /// read.
    ///
    /// One round only, so readers that keep setting marks cannot hold the publisher up.
    fn displace(&self, hand: &mut u8) -> usize {
        let start = usize::from(*hand);
        let unread = (0..SET_SLOTS).map(|step| (start + step) % SET_SLOTS).find(|&place| {
            let mark = &self.slots[place].mark;
            let unread = mark.load(Ordering::Relaxed) == UNREAD;
            if !unread {
                mark.store(UNREAD, Ordering::Relaxed);
            }
            unread
        });
        let place = unread.unwrap_or(start);
        *hand = NEXT_PLACE[place];
        place
    }

    fn free(&self, place: usize) {
        self.tags[place].store(TAG_FREE, Ordering::Relaxed);
        self.slots[place].empty();
    }
}

/// The place after each place of a set, for the hand.
const NEXT_PLACE: [u8; SET_SLOTS] = [1, 2, 3, 4, 5, 6, 7, 0];

/// Room for one record, behind its sequence number.
#[repr(C, align(64))]
struct Slot {
    /// Odd while the slot is written.
    sequence: AtomicU64,
    digest: [AtomicU64; 2],
    /// In bytes, or [`LENGTH_FREE`].
    length: AtomicU64,
    /// Whether the record was read since the hand last passed; outside the sequence, since a wrong one does
    /// no harm.
    mark: AtomicU64,
    payload: [AtomicU64; PAYLOAD_WORDS],
}

impl Slot {
    fn new() -> Self {
        Self {
            sequence: AtomicU64::new(0),
            digest: array::from_fn(|_| AtomicU64::new(0)),
            length: AtomicU64::new(LENGTH_FREE),
            mark: AtomicU64::new(UNREAD),
            payload: array::from_fn(|_| AtomicU64::new(0)),
        }
    }

    /// Copies the record into `out` if it is that of `digest` and nothing changed meanwhile; else leaves
    /// `out` empty.
    fn copy_to(&self, digest: [u64; 2], out: &mut Vec<u8>) -> bool {
        let sequence = self.sequence.load(Ordering::Acquire);
        if sequence % 2 == 1 || !self.holds(digest) {
            return false;
        }
        // Every length ever stored fits or is LENGTH_FREE; the test is for the latter.
        let length = usize::try_from(self.length.load(Ordering::Relaxed)).unwrap_or(usize::MAX);
        if length > REPLAY_RECORD_BYTES_MAX {
            return false;
        }
        out.resize(length.next_multiple_of(WORD_BYTES), 0);
        let (words, _) = out.as_chunks_mut::<WORD_BYTES>();
        for (word, stored) in words.iter_mut().zip(&self.payload) {
            *word = stored.load(Ordering::Relaxed).to_le_bytes();
        }
        fence(Ordering::Acquire);
        let unchanged = self.sequence.load(Ordering::Relaxed) == sequence;
        out.truncate(if unchanged { length } else { 0 });
        unchanged
    }

    /// Whether the slot names `digest`: for the publisher a fact, for a reader a guess until the sequence
    /// proves it.
    fn holds(&self, digest: [u64; 2]) -> bool {
        self.digest[0].load(Ordering::Relaxed) == digest[0]
            && self.digest[1].load(Ordering::Relaxed) == digest[1]
    }

    /// Looks first: a line that all readers share is written once per round of the hand, not once per read.
    fn mark_read(&self) {
        if self.mark.load(Ordering::Relaxed) == UNREAD {
            self.mark.store(READ, Ordering::Relaxed);
        }
    }

    fn fill(&self, digest: [u64; 2], bytes: &[u8]) {
        self.rewrite(|| {
            self.digest[0].store(digest[0], Ordering::Relaxed);
            self.digest[1].store(digest[1], Ordering::Relaxed);
            self.length.store(bytes.len() as u64, Ordering::Relaxed);
            for (word, chunk) in self.payload.iter().zip(bytes.chunks(WORD_BYTES)) {
                let mut padded = [0; WORD_BYTES];
                padded[..chunk.len()].copy_from_slice(chunk);
                word.store(u64::from_le_bytes(padded), Ordering::Relaxed);
            }
        });
    }

    fn empty(&self) {
        self.rewrite(|| {
            self.digest[0].store(0, Ordering::Relaxed);
            self.digest[1].store(0, Ordering::Relaxed);
            self.length.store(LENGTH_FREE, Ordering::Relaxed);
        });
    }

    /// Changes the slot so that no reader takes a part of the change for a record. Needs the publishing lock.
    fn rewrite(&self, change: impl FnOnce()) {
        let sequence = self.sequence.load(Ordering::Relaxed);
        debug_assert!(sequence.is_multiple_of(2), "two publishers in one slot");
        self.sequence.store(sequence + 1, Ordering::Relaxed);
        fence(Ordering::Release);
        change();
        self.sequence.store(sequence + 2, Ordering::Release);
    }
}

fn words_of(scope: ScopeDigest) -> [u64; 2] {
    let (words, _) = scope.0.as_chunks::<WORD_BYTES>();
    [u64::from_le_bytes(words[0]), u64::from_le_bytes(words[1])]
}

/// The first word of the digest, made different from [`TAG_FREE`].
fn tag_of(digest: [u64; 2]) -> u64 {
    digest[0] | 1
}

#[cfg(test)]
mod tests;
