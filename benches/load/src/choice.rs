//! Which records are asked for: uniform, or by Zipf's law with exponent 0.99. Owns the distributions.

use crate::command::mixed;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keys {
    Uniform,
    Zipf,
}

impl Keys {
    pub fn name(self) -> &'static str {
        match self {
            Self::Uniform => "uniform",
            Self::Zipf => "Zipf 0.99",
        }
    }
}

/// Chooses among `records` records.
pub struct Choice {
    records: u64,
    /// Of each rank, the part of all lookups that ask for it or a hotter one; empty for uniform.
    up_to: Vec<f64>,
}

/// Has no divisor in common with any number of records that is used here.
const STEP: u64 = 2_147_483_647;

impl Choice {
    pub fn new(keys: Keys, records: u64) -> Self {
        let mut up_to = Vec::new();
        if keys == Keys::Zipf {
            let mut sum = 0.0;
            for rank in 1..=records {
                sum += (rank as f64).powf(-0.99);
                up_to.push(sum);
            }
            for part in &mut up_to {
                *part /= sum;
            }
        }
        Self { records, up_to }
    }

    /// The record of the `step`-th lookup: the same in every run.
    pub fn at(&self, step: u64) -> u32 {
        let random = mixed(step);
        if self.up_to.is_empty() {
            return (random % self.records) as u32;
        }
        let part = (random >> 11) as f64 / (1_u64 << 53) as f64;
        let rank = self.up_to.partition_point(|up_to| *up_to < part) as u64;
        // Hot records lie anywhere, not beside one another.
        (rank.min(self.records - 1) * STEP % self.records) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{HashMap, HashSet};

    #[test]
    fn hot_records_are_asked_for_as_the_law_says() {
        let choice = Choice::new(Keys::Zipf, 1_000);
        let mut asked: HashMap<u32, u32> = HashMap::new();
        (0..100_000).for_each(|step| *asked.entry(choice.at(step)).or_default() += 1);
        let mut counts: Vec<u32> = asked.into_values().collect();
        counts.sort_unstable_by(|a, b| b.cmp(a));
        // The hottest of 1,000 gets 1 / sum of rank^-0.99, which is 13 %; the second half of that.
        assert!((11_500..14_500).contains(&counts[0]), "{}", counts[0]);
        assert!((5_500..7_500).contains(&counts[1]), "{}", counts[1]);
    }

    #[test]
    fn every_rank_is_another_record() {
        for records in [2_000_u64, 100_000, 1_000_000] {
            let records_of: HashSet<u64> = (0..records).map(|rank| rank * STEP % records).collect();
            assert_eq!(records_of.len() as u64, records);
        }
    }
}
