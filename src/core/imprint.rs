//! Who asks what, as words: scope and fingerprint in a form that is compared where it lies.
//!
//! Owns the layout of the words and what it proves when they are equal. Must not know where they are kept.
//!
//! Equal imprints are the same request: the three names are compared in full, and the fingerprint by scheme,
//! policy and the 32 bytes that decide under that policy, which cover the names of the compared parts. So
//! equal imprints imply [`Match::Same`](super::fingerprint::Match); the reverse does not hold (a program
//! that now compares by another policy, or names another kind of part), and whoever finds other words asks
//! [`decide`](super::decide::decide).

#![expect(clippy::cast_possible_truncation, reason = "three names have less than 2 KiB")]

use super::fingerprint::Fingerprint;
use super::name::{Scope, ScopeDigest};
use super::text::Text;

/// Words before the names: four of the digest, one of numbers and lengths.
pub(crate) const HEAD_WORDS: usize = 5;
/// Head and names of 88 bytes together lie in the imprint itself.
const SHORT_WORDS: usize = 16;

/// Scope and fingerprint as words, behind the digest that leads to them. What a lookup needs of a usual
/// request lies together.
#[derive(Clone, Debug)]
#[repr(C)]
pub(crate) struct Imprint {
    count: u16,
    digest: [u64; 2],
    short: [u64; SHORT_WORDS],
    /// All words, where they are more than `short` has.
    long: Option<Box<[u64]>>,
}

impl Imprint {
    /// The imprint of a request, and of the record that it would make.
    pub fn of(digest: ScopeDigest, scope: &Scope, fingerprint: &Fingerprint) -> Self {
        let names = [&scope.tenant.0, &scope.operation.0, &scope.key.0].map(Text::as_bytes);
        let bytes: usize = names.iter().map(|name| name.len()).sum();
        let count = HEAD_WORDS + bytes.div_ceil(size_of::<u64>());
        let mut imprint = Self {
            count: count as u16,
            digest: digest.words(),
            short: [0; SHORT_WORDS],
            long: (count > SHORT_WORDS).then(|| vec![0; count].into_boxed_slice()),
        };
        let (scheme, policy, decides) = fingerprint.deciding();
        let words = imprint.long.as_deref_mut().unwrap_or(&mut imprint.short);
        put(words, 0, decides);
        words[HEAD_WORDS - 1] =
            names.iter().fold(u64::from(scheme) << 8 | u64::from(policy), |word, name| {
                word << LENGTH_BITS | name.len() as u64
            });
        names.iter().fold(HEAD_WORDS * size_of::<u64>(), |at, name| {
            put(words, at, name);
            at + name.len()
        });
        imprint
    }

    /// The digest of the scope.
    #[inline]
    pub fn digest(&self) -> [u64; 2] {
        self.digest
    }

    /// The head, of [`HEAD_WORDS`].
    #[inline]
    pub fn head(&self) -> &[u64] {
        &self.words()[..HEAD_WORDS]
    }

    /// The names, one behind the other.
    #[inline]
    pub fn names(&self) -> &[u64] {
        &self.words()[HEAD_WORDS..]
    }

    #[inline]
    fn words(&self) -> &[u64] {
        // The count lies with the words: where they are short, nothing else is touched.
        let count = usize::from(self.count);
        match self.short.get(..count) {
            Some(words) => words,
            None => self.long.as_deref().unwrap_or_default(),
        }
    }
}

/// Three lengths of this many bits stand below scheme and policy of 24: a name has 1020 bytes at most.
const LENGTH_BITS: u32 = 13;

/// How long tenant, operation and key are, by the last word of a head.
pub(crate) fn name_bytes(word: u64) -> [usize; 3] {
    [2, 1, 0].map(|place| (word >> (place * LENGTH_BITS)) as usize & ((1 << LENGTH_BITS) - 1))
}

/// Bytes into words, little end first, from the byte `at` on; words not written before are zero.
fn put(words: &mut [u64], at: usize, bytes: &[u8]) {
    let shift = at % size_of::<u64>() * u8::BITS as usize;
    let mut words = words.get_mut(at / size_of::<u64>()..).unwrap_or_default();
    let mut add = |word: u64| {
        if let [this, rest @ ..] = std::mem::take(&mut words) {
            *this |= word << shift;
            if let (Some(next), 1..) = (rest.first_mut(), shift) {
                *next |= word >> (u64::BITS as usize - shift);
            }
            words = rest;
        }
    };
    let (chunks, last) = bytes.as_chunks();
    for chunk in chunks {
        add(u64::from_le_bytes(*chunk));
    }
    if !last.is_empty() {
        add(last.iter().rev().fold(0, |word, byte| word << u8::BITS | u64::from(*byte)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_lie_in_words_one_behind_the_other() {
        let all: Vec<u8> = (1..=40).collect();
        for first in 0..24 {
            for second in 0..=16 {
                let mut words = [0; 6];
                put(&mut words, 0, &all[..first]);
                put(&mut words, first, &all[first..first + second]);
                let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
                assert_eq!(&bytes[..first + second], &all[..first + second]);
                assert!(bytes[first + second..].iter().all(|byte| *byte == 0), "{first} {second}");
            }
        }
    }
}
