//! A filter over all scopes and rows of the file: "absent" is sure, "there" is not. It spares a fresh key the
//! trees, which most commands would otherwise search twice for what is not there.
//!
//! Blocks of one cache line, some ten bits for each key, as in Putze, Sanders, Singler: Cache-, Hash- and
//! Space-Efficient Bloom Filters (2007). It says "absent" only while it is complete: an open fills it from
//! the tables, and until it has seen them all it knows nothing. Keys are only ever added, and before their
//! commit, so what it lacks is in no commit.

use std::hash::BuildHasher;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use foldhash::quality::RandomState;

use crate::core::name::ScopeDigest;
use crate::core::row::RowKey;

/// One cache line.
type Block = [AtomicU64; 8];

/// Bits that each key sets in its block: the best number for ten bits a key, nearly.
const BITS_A_KEY: u32 = 6;

/// The filter.
#[derive(Debug)]
pub(crate) struct Filter {
    blocks: Box<[Block]>,
    seed: RandomState,
    /// Drawn from the seed: a client that chooses keys cannot aim at a block.
    fold: [u64; 2],
    is_complete: AtomicBool,
}

impl Filter {
    /// An empty filter of about so many bytes, that knows nothing yet. With none it never will.
    pub fn new(bytes: usize) -> Self {
        let seed = RandomState::default();
        Self {
            fold: [seed.hash_one(0_u8), seed.hash_one(1_u8)],
            seed,
            blocks: (0..bytes / size_of::<Block>()).map(|_| Block::default()).collect(),
            is_complete: AtomicBool::new(false),
        }
    }

    /// Whether it has no memory, and so never knows anything.
    pub fn is_off(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Every key of the file has been added.
    pub fn complete(&self) {
        self.is_complete.store(!self.is_off(), Ordering::Release);
    }

    pub fn add_scope(&self, scope: ScopeDigest) {
        self.add(self.hash_of_scope(scope));
    }

    pub fn add_row(&self, key: &[u8]) {
        self.add(self.seed.hash_one(key));
    }

    /// Whether the file has no outcome of the scope, for sure.
    pub fn lacks_scope(&self, scope: ScopeDigest) -> bool {
        self.lacks(|| self.hash_of_scope(scope))
    }

    /// Whether the file has no such row, for sure.
    pub fn lacks_row(&self, key: &RowKey) -> bool {
        self.lacks(|| self.seed.hash_one(key.as_bytes()))
    }

    fn hash_of_scope(&self, scope: ScopeDigest) -> u64 {
        // The digest is uniform already, so one multiplication is hash enough.
        let [low, high] = halves(scope.0);
        let product = u128::from(low ^ self.fold[0]) * u128::from(high ^ self.fold[1]);
        let [low, high] = halves(product.to_le_bytes());
        low ^ high
    }

    fn add(&self, hash: u64) {
        let Some(block) = self.block(hash) else { return };
        for (word, bit) in places(hash) {
            block[word].fetch_or(bit, Ordering::Relaxed);
        }
    }

    fn lacks(&self, hash: impl FnOnce() -> u64) -> bool {
        if !self.is_complete.load(Ordering::Acquire) {
            return false;
        }
        let hash = hash();
        self.block(hash).is_some_and(|block| {
            places(hash).any(|(word, bit)| block[word].load(Ordering::Relaxed) & bit == 0)
        })
    }

    fn block(&self, hash: u64) -> Option<&Block> {
        // The hash as a fraction of its range, scaled to the blocks.
        let at = (u128::from(hash) * self.blocks.len() as u128) >> u64::BITS;
        self.blocks.get(usize::try_from(at).ok()?)
    }
}

fn halves(bytes: [u8; 16]) -> [u64; 2] {
    let (low, high) = bytes.split_at(size_of::<u64>());
    [low, high].map(|half| half.try_into().map_or(0, u64::from_le_bytes))
}

/// The word and the bit in it, for each bit of a key: nine bits of the hash each, once its high bits, which
/// chose the block, are spread anew.
fn places(hash: u64) -> impl Iterator<Item = (usize, u64)> {
    let spread = hash.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(32) ^ hash;
    (0..BITS_A_KEY).map(move |number| {
        let nine = spread >> (number * 9);
        ((nine >> 6 & 7) as usize, 1 << (nine & 63))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scope(number: u128) -> ScopeDigest {
        ScopeDigest(number.wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835).to_be_bytes())
    }

    #[test]
    fn what_was_added_is_never_said_to_be_absent() {
        let filter = Filter::new(1024);
        for number in 0..10_000 {
            filter.add_scope(scope(number));
        }
        filter.complete();
        assert!((0..10_000).all(|number| !filter.lacks_scope(scope(number))));
    }

    /// Numbered ids, ids that end in zeros, and short ones.
    fn row(number: u32) -> RowKey {
        let id = match number % 3 {
            0 => format!("{number:036}"),
            1 => "\0".repeat(number as usize % 40) + &(number / 120).to_string() + "\0",
            _ => format!("{number:x}"),
        };
        RowKey::resource(None, "order", &id)
    }

    #[test]
    fn ten_bits_a_key_leave_few_false_hits() {
        let (scopes, rows) = (Filter::new(12_500), Filter::new(12_500));
        for number in 0..10_000 {
            scopes.add_scope(scope(number.into()));
            rows.add_row(row(number).as_bytes());
        }
        scopes.complete();
        rows.complete();
        assert!((0..10_000).all(|number| !rows.lacks_row(&row(number))));
        let hits = (10_000..110_000).filter(|number| !scopes.lacks_scope(scope(*number))).count();
        assert!(hits < 3_000, "{hits} of 100,000 scopes");
        let hits = (10_000..110_000).filter(|number| !rows.lacks_row(&row(*number))).count();
        assert!(hits < 3_000, "{hits} of 100,000 rows");
    }

    #[test]
    fn it_knows_nothing_before_it_is_complete_or_without_memory() {
        let filter = Filter::new(1024);
        assert!(!filter.lacks_scope(scope(1)));
        filter.complete();
        assert!(filter.lacks_scope(scope(1)));
        let none = Filter::new(0);
        none.complete();
        assert!(!none.lacks_scope(scope(1)));
    }
}
