//! The simulated disk's own randomness: a named algorithm, so that a seed means the same states for ever.

/// `SplitMix64`: every seed is good, every draw is one multiplication away from the next.
#[derive(Clone, Debug)]
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A generator for one of many purposes under one seed.
    pub(crate) fn derived(seed: u64, purpose: u64) -> Self {
        Self(mix(seed, purpose))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        finish(self.0)
    }

    /// A number below `limit`; 0 if that is 0. The bias is below 2^-32 for the limits used here.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        let scaled = (u128::from(self.next()) * limit as u128) >> 64;
        scaled as usize
    }

    /// True once in `times`, on average.
    pub(crate) fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    pub(crate) fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let random = self.next().to_le_bytes();
            chunk.copy_from_slice(&random[..chunk.len()]);
        }
    }

    /// Fisher and Yates.
    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            let chosen = self.below(last + 1);
            items.swap(last, chosen);
        }
    }
}

/// Two numbers into one, order kept apart.
pub(crate) fn mix(left: u64, right: u64) -> u64 {
    finish(left.rotate_left(32) ^ finish(right.wrapping_add(0x9e37_79b9_7f4a_7c15)))
}

fn finish(mut value: u64) -> u64 {
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}
