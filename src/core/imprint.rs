//! Who asks what, as words: scope and fingerprint in a form that is compared where it lies.
//!
//! Owns the layout of the words and what it proves when they are equal. Must not know where they are kept.
//!
//! Equal imprints are the same request: the three names are compared in full, and the fingerprint by scheme,
//! policy and the 32 bytes that decide under that policy, which cover the names of the compared parts. So
//! equal imprints imply [`Match::Same`](super::fingerprint::Match); the reverse does not hold (a program
//! that now compares by another policy, or names another kind of part), and whoever finds other words asks
//! [`decide`](super::decide::decide).

use super::fingerprint::Fingerprint;
use super::name::Scope;

/// Words before the names: four of the digest, one of numbers and lengths.
pub(crate) const HEAD_WORDS: usize = 5;
/// Head and names of 88 bytes together lie in the imprint itself.
const SHORT_WORDS: usize = 16;

/// Scope and fingerprint as words.
#[derive(Clone, Debug)]
pub(crate) struct Imprint(Words);

#[derive(Clone, Debug)]
enum Words {
    Short([u64; SHORT_WORDS], u8),
    Long(Box<[u64]>),
}

impl Imprint {
    /// The imprint of a request, and of the record that it would make.
    pub fn of(scope: &Scope, fingerprint: &Fingerprint) -> Self {
        let names = [scope.tenant.as_str(), scope.operation.as_str(), scope.key.as_str()];
        let bytes: usize = names.iter().map(|name| name.len()).sum();
        let count = HEAD_WORDS + bytes.div_ceil(size_of::<u64>());
        let mut words = if count <= SHORT_WORDS {
            Words::Short([0; SHORT_WORDS], count as u8)
        } else {
            Words::Long(vec![0; count].into_boxed_slice())
        };
        let all = words.as_mut();
        let (scheme, policy, digest) = fingerprint.deciding();
        put(&mut all[..HEAD_WORDS - 1], digest.iter());
        all[HEAD_WORDS - 1] = names.iter().fold(u64::from(scheme) << 8 | u64::from(policy), |word, name| {
            word << LENGTH_BITS | name.len() as u64
        });
        put(&mut all[HEAD_WORDS..], names.iter().flat_map(|name| name.as_bytes()));
        Self(words)
    }

    /// The head, of [`HEAD_WORDS`].
    pub fn head(&self) -> &[u64] {
        &self.words()[..HEAD_WORDS]
    }

    /// The names, one behind the other.
    pub fn names(&self) -> &[u64] {
        &self.words()[HEAD_WORDS..]
    }

    fn words(&self) -> &[u64] {
        match &self.0 {
            Words::Short(words, count) => &words[..usize::from(*count)],
            Words::Long(words) => words,
        }
    }
}

/// Three lengths of this many bits stand below scheme and policy of 24: a name has 1020 bytes at most.
const LENGTH_BITS: u32 = 13;

/// How long tenant, operation and key are, by the last word of a head.
pub(crate) fn name_bytes(word: u64) -> [usize; 3] {
    [2, 1, 0].map(|place| (word >> (place * LENGTH_BITS)) as usize & ((1 << LENGTH_BITS) - 1))
}

impl Words {
    fn as_mut(&mut self) -> &mut [u64] {
        match self {
            Self::Short(words, count) => &mut words[..usize::from(*count)],
            Self::Long(words) => words,
        }
    }
}

/// Bytes into words, little end first, the last word filled up with zeros.
fn put<'b>(words: &mut [u64], bytes: impl Iterator<Item = &'b u8>) {
    for (at, byte) in bytes.enumerate() {
        words[at / size_of::<u64>()] |= u64::from(*byte) << (at % size_of::<u64>() * 8);
    }
}
