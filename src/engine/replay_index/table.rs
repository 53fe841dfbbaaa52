//! Slots in sets, found by a digest: which slot a record takes, which gives way, and who may change one.
//!
//! Owns tags, hands, the count of changes and the publishing lock. Must not know what a record says.
//!
//! # Shape
//!
//! A set has sixteen slots, and one cache line with a tag of 32 bits for each, so a miss usually reads that
//! line only. The lines of all sets lie together, apart from the slots: those of 100,000 records stay in a
//! processor's cache. A digest belongs to one set, chosen by a hash with a seed of this table: a client that
//! chooses keys cannot aim at a set. The digest is uniform already, so one multiplication is hash enough.
//!
//! Within a set a new record takes a free slot, else CLOCK chooses: a record that was read since the hand
//! last passed is passed over once. A new record starts unread, so a run of keys that nobody asks for again
//! displaces one another rather than what is read. A filler passes over nothing for free: it takes a free
//! slot or an unread one under the hand, else it moves the hand on by one and gives up.
//!
//! # Who may change a slot
//!
//! The holder of the publishing lock. The writer waits for it; a reader who found a record in the file only
//! tries, and fills only if nothing changed in the set since before it took its snapshot. The count of
//! changes is raised behind each commit that the change speaks of, so an unchanged count says that the
//! snapshot is not older than what was published or withdrawn here.

#![expect(clippy::cast_possible_truncation, reason = "tags are halves of words, places fit a byte")]

use super::shape::{RECORD_WORDS, SET_SLOTS};
use super::slot::{Slot, Words};
use super::sync::{AtomicU64, Mutex, Relaxed, order};

/// The tag of a slot without a record.
const TAG_FREE: u32 = 0;
/// Two tags share a word.
const TAG_BITS: u32 = u32::BITS;

/// What one set costs, in bytes: its tags, its slots, its count and its hand.
pub(super) const SET_BYTES: usize =
    size_of::<Tags>() + SET_SLOTS * size_of::<Slot>() + size_of::<AtomicU64>() + size_of::<u8>();

/// Records by digest, bounded in number, read without a lock.
pub(super) struct Table {
    tags: Box<[Tags]>,
    slots: Box<[[Slot; SET_SLOTS]]>,
    /// How often the file's side has changed each set.
    changes: Box<[AtomicU64]>,
    seed: [u64; 2],
    publishing: Publishing,
}

/// The tags of one set, on one cache line.
#[repr(align(64))]
struct Tags([AtomicU64; SET_SLOTS / 2]);

/// Every bit of a word but the highest of each tag.
const BELOW: u64 = 0x7FFF_FFFF_7FFF_FFFF;

impl Tags {
    /// The slots of this tag.
    #[inline]
    fn places(&self, tag: u32) -> Places {
        let both = u64::from(tag) << TAG_BITS | u64::from(tag);
        let found = self.0.iter().enumerate().fold(0, |found, (at, pair)| {
            let differs = pair.load(Relaxed) ^ both;
            // The highest bit of each half that is zero: added to, any other half has it, or had it.
            let equal = !(((differs & BELOW) + BELOW) | differs | BELOW);
            found | (equal >> (TAG_BITS - 1 - at as u32))
        });
        Places(found)
    }

    fn get(&self, place: usize) -> u32 {
        (self.0[place / 2].load(Relaxed) >> shift(place)) as u32
    }

    /// Needs the publishing lock: the other tag of the word is written back as it was.
    fn set(&self, place: usize, tag: u32) {
        let pair = self.0[place / 2].load(Relaxed);
        let other = pair & !(u64::from(u32::MAX) << shift(place));
        self.0[place / 2].store(other | u64::from(tag) << shift(place), Relaxed);
    }
}

/// Slots of a set, a bit each: the even ones in the low half, the odd ones in the high.
struct Places(u64);

impl Iterator for Places {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        if self.0 == 0 {
            return None;
        }
        let bit = self.0.trailing_zeros();
        self.0 &= self.0 - 1;
        Some((bit % TAG_BITS * 2 + bit / TAG_BITS) as usize)
    }
}

fn shift(place: usize) -> u32 {
    if place.is_multiple_of(2) { 0 } else { TAG_BITS }
}

/// What only the publisher writes, on cache lines of its own: a publish must not slow the readers of the
/// fields beside.
#[repr(align(128))]
struct Publishing {
    /// The CLOCK hand of each set. Its lock is the right to change any slot or tag.
    hands: Mutex<Box<[u8]>>,
    published: AtomicU64,
}

/// A moment before a look at the file, for one set.
#[derive(Clone, Copy)]
pub(crate) struct Stamp(u64);

impl Table {
    /// A table of `sets` sets.
    pub fn new(sets: usize, seed: [u64; 2]) -> Self {
        Self {
            tags: (0..sets).map(|_| Tags(std::array::from_fn(|_| AtomicU64::new(0)))).collect(),
            slots: (0..sets).map(|_| std::array::from_fn(|_| Slot::new())).collect(),
            changes: (0..sets).map(|_| AtomicU64::new(0)).collect(),
            seed,
            publishing: Publishing {
                hands: Mutex::new(vec![0; sets].into_boxed_slice()),
                published: AtomicU64::new(0),
            },
        }
    }

    pub fn sets(&self) -> usize {
        self.tags.len()
    }

    /// How many records there are.
    pub fn len(&self) -> u64 {
        self.publishing.published.load(Relaxed)
    }

    /// What `look` says of the record of `digest`; none when it is not here, when it changes meanwhile, or
    /// when `look` says none.
    ///
    /// Wait-free: at most sixteen slots are looked at, each once.
    #[inline]
    pub fn read<R>(&self, digest: [u64; 2], mut look: impl FnMut(&Words<'_>) -> Option<R>) -> Option<R> {
        let set = self.set_of(digest);
        let (tags, slots) = (self.tags.get(set)?, self.slots.get(set)?);
        tags.places(tag_of(digest)).find_map(|place| slots[place].read(digest, &mut look))
    }

    /// Makes `words` the record of `digest`, in the place of what it had; more than fit withdraw it.
    pub fn publish(&self, digest: [u64; 2], words: impl ExactSizeIterator<Item = u64>) {
        if words.len() > RECORD_WORDS {
            return self.withdraw(digest);
        }
        let set = self.set_of(digest);
        let Some(slots) = self.slots.get(set) else { return };
        let mut hands = self.publishing.hands.lock();
        self.changed(set);
        if let Some(held) = self.find(set, digest) {
            slots[held].fill(digest, words);
            return;
        }
        let place = self.find_free(set).unwrap_or_else(|| displaced(slots, &mut hands[set]));
        self.put(set, place, digest, words);
    }

    /// The moment before a look at the file, to be given to [`Table::fill`].
    pub fn stamp(&self, digest: [u64; 2]) -> Stamp {
        let changes = self.changes.get(self.set_of(digest));
        Stamp(changes.map_or(0, |changes| changes.load(order::stamp())))
    }

    /// Puts in what a reader has found in the file, if nothing speaks against it; never waits.
    pub fn fill(&self, digest: [u64; 2], words: impl ExactSizeIterator<Item = u64>, stamp: Stamp) {
        let set = self.set_of(digest);
        let Some(slots) = self.slots.get(set).filter(|_| words.len() <= RECORD_WORDS) else { return };
        let Some(mut hands) = self.publishing.hands.try_lock() else { return };
        let unchanged = self.changes[set].load(Relaxed) == stamp.0;
        if !unchanged || self.find(set, digest).is_some() {
            return;
        }
        let place = self.find_free(set).or_else(|| {
            let hand = &mut hands[set];
            let place = usize::from(*hand);
            *hand = NEXT_PLACE[place];
            let was_unread = slots[place].is_unread();
            slots[place].mark_unread();
            was_unread.then_some(place)
        });
        if let Some(place) = place {
            self.put(set, place, digest, words);
        }
    }

    /// Removes the record of `digest`. When this returns, no later read sees it.
    pub fn withdraw(&self, digest: [u64; 2]) {
        let set = self.set_of(digest);
        if set >= self.sets() {
            return;
        }
        let _hands = self.publishing.hands.lock();
        self.changed(set);
        if let Some(held) = self.find(set, digest) {
            self.free(set, held);
        }
    }

    /// Removes every record. When this returns, no later read sees one of them.
    pub fn clear(&self) {
        let mut hands = self.publishing.hands.lock();
        for set in 0..self.sets() {
            self.changed(set);
            for place in 0..SET_SLOTS {
                if self.tags[set].get(place) != TAG_FREE {
                    self.free(set, place);
                }
            }
        }
        hands.fill(0);
    }

    /// Keeps the publishing lock, to show who does without.
    #[cfg(test)]
    pub fn held(&self) -> impl Drop {
        self.publishing.hands.lock()
    }

    /// The set of a digest; out of range when there is none.
    #[inline]
    fn set_of(&self, digest: [u64; 2]) -> usize {
        let product = u128::from(digest[0] ^ self.seed[0]) * u128::from(digest[1] ^ self.seed[1]);
        let hash = (product >> u64::BITS) as u64 ^ product as u64;
        // The hash as a fraction of its range, scaled to the sets: even for any number of sets, without a
        // division.
        let scaled = (u128::from(hash) * self.tags.len() as u128) >> u64::BITS;
        usize::try_from(scaled).unwrap_or(usize::MAX)
    }
}

/// What needs the publishing lock.
impl Table {
    fn changed(&self, set: usize) {
        let changes = self.changes[set].load(Relaxed);
        self.changes[set].store(changes.wrapping_add(1), order::change());
    }

    fn find(&self, set: usize, digest: [u64; 2]) -> Option<usize> {
        self.tags[set].places(tag_of(digest)).find(|place| self.slots[set][*place].holds(digest))
    }

    fn find_free(&self, set: usize) -> Option<usize> {
        self.tags[set].places(TAG_FREE).next()
    }

    /// A record that was not here into a slot that may be had.
    fn put(&self, set: usize, place: usize, digest: [u64; 2], words: impl Iterator<Item = u64>) {
        let slot = &self.slots[set][place];
        slot.fill(digest, words);
        slot.mark_unread();
        let was = self.tags[set].get(place);
        self.tags[set].set(place, tag_of(digest));
        if was == TAG_FREE {
            self.publishing.published.fetch_add(1, Relaxed);
        }
    }

    fn free(&self, set: usize, place: usize) {
        self.tags[set].set(place, TAG_FREE);
        self.slots[set][place].empty();
        self.publishing.published.fetch_sub(1, Relaxed);
    }
}

/// The slot that gives way: the first unread one from the hand on, or the one under it when all were read.
///
/// One round only, so readers that keep setting marks cannot hold the publisher up.
fn displaced(slots: &[Slot; SET_SLOTS], hand: &mut u8) -> usize {
    let start = usize::from(*hand);
    let unread = (0..SET_SLOTS).map(|step| (start + step) % SET_SLOTS).find(|&place| {
        let unread = slots[place].is_unread();
        slots[place].mark_unread();
        unread
    });
    let place = unread.unwrap_or(start);
    *hand = NEXT_PLACE[place];
    place
}

/// The place after each place of a set, for the hand.
const NEXT_PLACE: [u8; SET_SLOTS] = {
    let mut next = [0; SET_SLOTS];
    let mut place = 0;
    while place + 1 < SET_SLOTS {
        next[place] = place as u8 + 1;
        place += 1;
    }
    next
};

/// Half a word of the digest, made different from [`TAG_FREE`].
#[inline]
fn tag_of(digest: [u64; 2]) -> u32 {
    digest[0] as u32 | 1
}
