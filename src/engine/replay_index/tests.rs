//! The index against a map, under readers, at its edges, and in what it keeps.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::thread;

use super::*;

fn scope(number: u64) -> ScopeDigest {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    bytes[8..].copy_from_slice(&mixed(number).to_le_bytes());
    ScopeDigest(bytes)
}

/// A bijection that spreads the bits (the last steps of splitmix64).
fn mixed(number: u64) -> u64 {
    let mut word = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    word ^ (word >> 31)
}

/// Numbers that are the same in each run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 += 1;
        mixed(self.0) % bound
    }
}

fn hit(index: &ReplayIndex, number: u64) -> Option<Vec<u8>> {
    let mut out = vec![0xEE; 3];
    let found = index.get(scope(number), &mut out);
    assert!(found || out.is_empty(), "a miss leaves nothing in `out`");
    found.then_some(out)
}

/// Number and version, then words made from them: how many, and how many bytes of the last, depends on the
/// version.
fn payload(number: u64, version: u64) -> Vec<u8> {
    let words = PAYLOAD_WORDS as u64 / 2 + mixed(version ^ number) % (PAYLOAD_WORDS as u64 / 2);
    let mut bytes = Vec::new();
    bytes.extend(number.to_le_bytes());
    bytes.extend(version.to_le_bytes());
    for at in 0..words - 2 {
        bytes.extend(mixed(number ^ version.rotate_left(20) ^ (at << 56)).to_le_bytes());
    }
    bytes.extend(vec![0xA5; usize::try_from(version % 8).unwrap()]);
    bytes
}

/// The version that a payload names, after a look at all its words.
fn version_of(number: u64, bytes: &[u8]) -> u64 {
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    assert_eq!(word(0), number, "a record of another scope");
    let version = word(8);
    assert_eq!(bytes, payload(number, version), "a torn record of version {version}");
    version
}

#[test]
fn a_slot_has_its_size_and_a_set_its_lines() {
    assert_eq!(size_of::<Slot>(), SLOT_BYTES);
    assert_eq!(size_of::<Set>(), SET_SLOTS * WORD_BYTES + SET_SLOTS * SLOT_BYTES);
    assert_eq!(REPLAY_RECORD_BYTES_MAX, 984);
}

#[test]
fn a_budget_below_one_set_is_off() {
    for bytes in [0, 1, SLOT_BYTES, SET_BYTES - 1] {
        let index = ReplayIndex::new(bytes);
        index.publish(scope(1), b"answer");
        assert_eq!(hit(&index, 1), None);
        index.withdraw(scope(1));
        index.clear();
        assert_eq!((index.len(), index.bytes()), (0, 0));
    }
}

#[test]
fn the_table_never_takes_more_than_its_budget() {
    for bytes in [SET_BYTES, 2 * SET_BYTES - 1, 2 * SET_BYTES, 100_000, 1 << 20] {
        let index = ReplayIndex::new(bytes);
        let taken = index.bytes();
        assert!(taken <= bytes && bytes - taken < SET_BYTES);
        for number in 0..3000 {
            index.publish(scope(number), &payload(number, 1));
        }
        assert_eq!(index.bytes(), taken);
        assert!(index.len() <= taken / SET_BYTES * SET_SLOTS);
        let hits = (0..3000).filter(|&number| hit(&index, number).is_some()).count();
        assert_eq!(hits, index.len());
    }
}

#[test]
fn every_length_up_to_the_longest_comes_back_and_a_longer_one_withdraws() {
    let index = ReplayIndex::new(SET_BYTES);
    let bytes: Vec<u8> = (0..=REPLAY_RECORD_BYTES_MAX).map(|at| at.to_le_bytes()[0]).collect();
    for length in 0..=REPLAY_RECORD_BYTES_MAX {
        index.publish(scope(1), &bytes[..length]);
        assert_eq!(hit(&index, 1).as_deref(), Some(&bytes[..length]));
    }
    index.publish(scope(1), &bytes);
    assert_eq!((hit(&index, 1), index.len()), (None, 0));
    index.publish(scope(2), &bytes);
    assert_eq!((hit(&index, 2), index.len()), (None, 0));
}

#[test]
fn scopes_that_share_a_tag_are_told_apart() {
    let index = ReplayIndex::new(SET_BYTES);
    let twins: Vec<ScopeDigest> =
        (0..4).map(|last| ScopeDigest([[0; 15].as_slice(), &[last]].concat().try_into().unwrap())).collect();
    let mut out = Vec::new();
    for twin in &twins {
        assert!(!index.get(*twin, &mut out), "the digest of zeros is a scope like any other");
        index.publish(*twin, &twin.0);
    }
    index.withdraw(twins[0]);
    assert!(!index.get(twins[0], &mut out));
    for twin in &twins[1..] {
        assert!(index.get(*twin, &mut out));
        assert_eq!(out, twin.0);
    }
}

#[test]
fn a_record_that_is_read_outlives_those_that_are_not() {
    let index = ReplayIndex::new(SET_BYTES);
    for number in 0..SET_SLOTS as u64 {
        index.publish(scope(number), b"first");
    }
    for number in 100..1100 {
        assert!(hit(&index, 3).is_some() && hit(&index, 5).is_some(), "displaced by {number}");
        index.publish(scope(number), b"later");
        assert_eq!(index.len(), SET_SLOTS);
        assert_eq!(hit(&index, number).as_deref(), Some(b"later".as_slice()));
    }
    for number in 2000..2100 {
        index.publish(scope(number), b"later still");
    }
    assert_eq!((hit(&index, 3), hit(&index, 5)), (None, None), "no longer read");
}

#[test]
fn when_all_are_read_one_still_gives_way() {
    let index = ReplayIndex::new(SET_BYTES);
    for round in 0..100 {
        for number in round..round + SET_SLOTS as u64 {
            index.publish(scope(number), b"answer");
            for seen in 0..=number {
                hit(&index, seen);
            }
            assert!(hit(&index, number).is_some());
        }
        assert_eq!(index.len(), SET_SLOTS);
    }
}

#[test]
fn a_free_slot_is_used_before_any_record_gives_way() {
    let index = ReplayIndex::new(SET_BYTES);
    for number in 0..SET_SLOTS as u64 {
        index.publish(scope(number), b"answer");
    }
    index.withdraw(scope(6));
    index.publish(scope(50), b"answer");
    for number in [0, 1, 2, 3, 4, 5, 7, 50] {
        assert!(hit(&index, number).is_some());
    }
}

/// A hit equals what was published last; what was withdrawn misses; and the count is that of the hits.
#[test]
fn the_index_agrees_with_a_map() {
    for sets in [1, 2, 7] {
        let index = ReplayIndex::new(sets * SET_BYTES);
        let mut model: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
        let mut numbers = Numbers(sets as u64 * 1_000_000);
        for version in 0..5_000 {
            let number = numbers.below(40);
            match numbers.below(1000) {
                0..600 => {
                    index.publish(scope(number), &payload(number, version));
                    model.insert(number, payload(number, version));
                    assert!(hit(&index, number).is_some());
                }
                600..850 => {
                    index.withdraw(scope(number));
                    model.remove(&number);
                    assert_eq!(hit(&index, number), None);
                }
                850..870 => {
                    index.publish(scope(number), &[0; REPLAY_RECORD_BYTES_MAX + 1]);
                    model.remove(&number);
                }
                870 => {
                    index.clear();
                    model.clear();
                }
                _ => drop(hit(&index, number)),
            }
            if version % 16 == 0 {
                agree(&index, &model);
            }
        }
    }
}

fn agree(index: &ReplayIndex, model: &BTreeMap<u64, Vec<u8>>) {
    let mut hits = 0;
    for number in 0..40 {
        if let Some(bytes) = hit(index, number) {
            assert_eq!(Some(&bytes), model.get(&number));
            hits += 1;
        }
    }
    assert_eq!(hits, index.len());
}

/// The least version of each scope that a reader may see from now on: raised after each publish or withdrawal
/// returned.
struct Floors([AtomicU64; SCOPES]);

/// More scopes than slots, so that slots change hands all the time.
const SCOPES: usize = 13;
/// A build without optimisation is some twenty times slower here.
const VERSIONS: u64 = if cfg!(debug_assertions) { 30_000 } else { 150_000 };

impl Floors {
    fn of(&self, number: u64) -> &AtomicU64 {
        &self.0[usize::try_from(number).unwrap()]
    }
}

#[test]
fn readers_never_see_a_torn_a_foreign_or_an_older_record() {
    let index = ReplayIndex::new(SET_BYTES);
    let floors = Floors(array::from_fn(|_| AtomicU64::new(0)));
    let done = AtomicBool::new(false);
    thread::scope(|threads| {
        let readers = [1, 2].map(|start| {
            let (done, index, floors) = (&done, &index, &floors);
            threads.spawn(move || read_until(done, index, floors, Numbers(start << 40)))
        });
        write_all(&index, &floors);
        done.store(true, Ordering::Release);
        for reader in readers {
            assert!(reader.join().unwrap() > 0, "a reader that never hit proves nothing");
        }
    });
}

fn write_all(index: &ReplayIndex, floors: &Floors) {
    let mut numbers = Numbers(0);
    for version in 1..VERSIONS {
        let number = numbers.below(SCOPES as u64);
        match numbers.below(100) {
            0..70 => {
                index.publish(scope(number), &payload(number, version));
                floors.of(number).store(version, Ordering::Release);
            }
            70..99 => {
                index.withdraw(scope(number));
                floors.of(number).store(version, Ordering::Release);
            }
            _ => {
                index.clear();
                (0..SCOPES as u64).for_each(|number| floors.of(number).store(version, Ordering::Release));
            }
        }
    }
}

/// Reads until told to stop; answers how often it hit.
fn read_until(done: &AtomicBool, index: &ReplayIndex, floors: &Floors, mut numbers: Numbers) -> u64 {
    let mut seen = [0; SCOPES];
    let mut out = Vec::new();
    let mut hits = 0;
    while !done.load(Ordering::Acquire) {
        let number = numbers.below(SCOPES as u64);
        let floor = floors.of(number).load(Ordering::Acquire);
        if index.get(scope(number), &mut out) {
            let version = version_of(number, &out);
            let last = &mut seen[usize::try_from(number).unwrap()];
            assert!(version >= floor && version >= *last, "{version} after {floor} and {last}");
            *last = version;
            hits += 1;
        }
    }
    hits
}
