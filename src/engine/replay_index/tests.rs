//! The table against a map, under readers, at its edges, and in what it keeps.

use std::array;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use super::shape::{RECORD_WORDS, SET_SLOTS};
use super::slot::Slot;
use super::table::{SET_BYTES, Table};
use super::*;

fn scope(number: u64) -> [u64; 2] {
    [mixed(!number), mixed(number)]
}

fn table(sets: usize) -> Table {
    Table::new(sets, [0x1234_5678_9ABC_DEF1, 0x0FED_CBA9_8765_4321])
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

fn hit(table: &Table, number: u64) -> Option<Vec<u64>> {
    table.read(scope(number), |words| Some(words.range(0, RECORD_WORDS).collect()))
}

/// Number and version, then words made from them, as many as a slot has.
fn payload(number: u64, version: u64) -> Vec<u64> {
    let made = (2..RECORD_WORDS as u64).map(|at| mixed(number ^ version.rotate_left(20) ^ (at << 56)));
    [number, version].into_iter().chain(made).collect()
}

fn words(words: &[u64]) -> impl ExactSizeIterator<Item = u64> {
    words.iter().copied()
}

/// The version that a payload names, after a look at all its words.
fn version_of(number: u64, words: &[u64]) -> u64 {
    assert_eq!(words[0], number, "a record of another scope");
    assert_eq!(words, payload(number, words[1]), "a torn record of version {}", words[1]);
    words[1]
}

#[test]
fn a_slot_has_its_lines() {
    assert_eq!(size_of::<Slot>(), 15 * 64);
    assert_eq!(SET_BYTES, 64 + SET_SLOTS * 15 * 64 + 8 + 1);
}

#[test]
fn a_budget_below_one_set_is_off() {
    for bytes in [0, 1, SET_BYTES - 1] {
        let index = ReplayIndex::new(bytes);
        assert_eq!((index.len(), index.bytes()), (0, 0));
    }
    let table = table(0);
    table.publish(scope(1), words(&payload(1, 1)));
    table.fill(scope(1), words(&payload(1, 1)), table.stamp(scope(1)));
    assert_eq!(hit(&table, 1), None);
    table.withdraw(scope(1));
    table.clear();
    assert_eq!(table.len(), 0);
}

#[test]
fn the_table_never_takes_more_than_its_budget() {
    for bytes in [SET_BYTES, 2 * SET_BYTES - 1, 2 * SET_BYTES, 100_000, 1 << 20] {
        let ReplayIndex { table } = ReplayIndex::new(bytes);
        let taken = table.sets() * SET_BYTES;
        assert!(taken <= bytes && bytes - taken < SET_BYTES);
        for number in 0..3000 {
            table.publish(scope(number), words(&payload(number, 1)));
        }
        assert!(table.len() <= (table.sets() * SET_SLOTS) as u64);
        let hits = (0..3000).filter(|&number| hit(&table, number).is_some()).count();
        assert_eq!(hits as u64, table.len());
    }
}

#[test]
fn every_length_up_to_the_longest_comes_back_and_a_longer_one_withdraws() {
    let table = table(1);
    let made: Vec<u64> = (0..=RECORD_WORDS as u64).map(mixed).collect();
    for length in 0..=RECORD_WORDS {
        table.publish(scope(1), words(&made[..length]));
        assert_eq!(hit(&table, 1).unwrap()[..length], made[..length]);
    }
    for number in [1, 2] {
        table.publish(scope(number), words(&made));
        assert_eq!((hit(&table, number), table.len()), (None, 0));
        table.fill(scope(number), words(&made), table.stamp(scope(number)));
        assert_eq!((hit(&table, number), table.len()), (None, 0));
    }
}

#[test]
fn scopes_that_share_a_tag_are_told_apart() {
    let table = table(1);
    let twins: [[u64; 2]; 4] = array::from_fn(|last| [5, last as u64]);
    let found = |twin: [u64; 2]| table.read(twin, |words| Some(words.get(0)));
    for twin in twins {
        assert_eq!(found(twin), None);
        table.publish(twin, words(&[twin[1]]));
    }
    table.withdraw(twins[0]);
    assert_eq!(found(twins[0]), None);
    for twin in &twins[1..] {
        assert_eq!(found(*twin), Some(twin[1]));
    }
}

/// Reading keys that nobody asks for again puts none of them in the place of what is read.
#[test]
fn a_scan_of_cold_keys_flushes_nothing_that_is_read() {
    let table = table(1);
    let hot = 0..SET_SLOTS as u64 / 2;
    for number in hot.clone() {
        table.publish(scope(number), words(&payload(number, 1)));
    }
    for cold in 1_000..11_000 {
        if cold % 8 == 0 {
            assert!(hot.clone().all(|number| hit(&table, number).is_some()), "flushed at {cold}");
        }
        table.fill(scope(cold), words(&payload(cold, 1)), table.stamp(scope(cold)));
    }
    // When nobody reads them any more they give way.
    for cold in 20_000..20_100 {
        table.fill(scope(cold), words(&payload(cold, 1)), table.stamp(scope(cold)));
    }
    assert!(hot.clone().all(|number| hit(&table, number).is_none()));
}

/// What a reader found is dropped when the file's side has changed the set since, and never replaces what is
/// there.
#[test]
fn a_filler_is_dropped_when_it_may_be_late() {
    let table = table(1);
    let stamp = table.stamp(scope(1));
    table.publish(scope(2), words(&payload(2, 1)));
    table.fill(scope(1), words(&payload(1, 1)), stamp);
    assert_eq!(hit(&table, 1), None);
    for change in [Table::withdraw as fn(&Table, [u64; 2]), |table, _| table.clear()] {
        let stamp = table.stamp(scope(1));
        change(&table, scope(3));
        table.fill(scope(1), words(&payload(1, 1)), stamp);
        assert_eq!(hit(&table, 1), None);
    }
    table.fill(scope(1), words(&payload(1, 1)), table.stamp(scope(1)));
    assert_eq!(hit(&table, 1), Some(payload(1, 1)));
    table.fill(scope(1), words(&payload(1, 2)), table.stamp(scope(1)));
    assert_eq!(hit(&table, 1), Some(payload(1, 1)));
}

#[test]
fn a_record_that_is_read_outlives_those_that_are_not() {
    let table = table(1);
    for number in 0..SET_SLOTS as u64 {
        table.publish(scope(number), words(&payload(number, 1)));
    }
    for number in 100..1100 {
        assert!(hit(&table, 3).is_some() && hit(&table, 5).is_some(), "displaced by {number}");
        table.publish(scope(number), words(&payload(number, 1)));
        assert_eq!(table.len(), SET_SLOTS as u64);
        assert!(hit(&table, number).is_some());
    }
    for number in 2000..2100 {
        table.publish(scope(number), words(&payload(number, 1)));
    }
    assert_eq!((hit(&table, 3), hit(&table, 5)), (None, None), "no longer read");
}

#[test]
fn when_all_are_read_one_still_gives_way() {
    let table = table(1);
    for round in 0..100 {
        for number in round..round + SET_SLOTS as u64 {
            table.publish(scope(number), words(&payload(number, 1)));
            for seen in 0..=number {
                hit(&table, seen);
            }
            assert!(hit(&table, number).is_some());
        }
        assert_eq!(table.len(), SET_SLOTS as u64);
    }
}

#[test]
fn a_free_slot_is_used_before_any_record_gives_way() {
    let table = table(1);
    for number in 0..SET_SLOTS as u64 {
        table.publish(scope(number), words(&payload(number, 1)));
    }
    table.withdraw(scope(6));
    table.publish(scope(50), words(&payload(50, 1)));
    for number in (0..SET_SLOTS as u64).filter(|&number| number != 6).chain([50]) {
        assert!(hit(&table, number).is_some());
    }
}

/// A hit equals what was published last; what was withdrawn misses; and the count is that of the hits.
#[test]
fn the_table_agrees_with_a_map() {
    for sets in [1, 2, 7] {
        let table = table(sets);
        let mut model: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        let mut numbers = Numbers(sets as u64 * 1_000_000);
        for version in 0..5_000 {
            let number = numbers.below(40);
            match numbers.below(1000) {
                0..600 => {
                    table.publish(scope(number), words(&payload(number, version)));
                    model.insert(number, payload(number, version));
                    assert!(hit(&table, number).is_some());
                }
                600..850 => {
                    table.withdraw(scope(number));
                    model.remove(&number);
                    assert_eq!(hit(&table, number), None);
                }
                850..870 => {
                    table.publish(scope(number), words(&[0; RECORD_WORDS + 1]));
                    model.remove(&number);
                }
                870 => {
                    table.clear();
                    model.clear();
                }
                _ => drop(hit(&table, number)),
            }
            if version % 16 == 0 {
                agree(&table, &model);
            }
        }
    }
}

fn agree(table: &Table, model: &BTreeMap<u64, Vec<u64>>) {
    let mut hits = 0;
    for number in 0..40 {
        if let Some(bytes) = hit(table, number) {
            assert_eq!(Some(&bytes), model.get(&number));
            hits += 1;
        }
    }
    assert_eq!(hits, table.len());
}

/// The least version of each scope that a reader may see from now on: raised after each publish or withdrawal
/// returned.
struct Floors([AtomicU64; SCOPES]);

/// More scopes than slots, so that slots change hands all the time.
const SCOPES: usize = 23;
/// A build without optimisation is some twenty times slower here.
const VERSIONS: u64 = if cfg!(debug_assertions) { 30_000 } else { 150_000 };

impl Floors {
    fn of(&self, number: u64) -> &AtomicU64 {
        &self.0[usize::try_from(number).unwrap()]
    }
}

#[test]
fn readers_never_see_a_torn_a_foreign_or_an_older_record() {
    let table = table(1);
    let floors = Floors(array::from_fn(|_| AtomicU64::new(0)));
    let (done, readers_hit) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|threads| {
        for start in [1, 2] {
            let (done, hit, table, floors) = (&done, &readers_hit, &table, &floors);
            threads.spawn(move || read_until(done, hit, table, floors, Numbers(start << 40)));
        }
        // A reader that never hit proves nothing: on a busy machine it may start late.
        write_all(&table, &floors, || readers_hit.load(Ordering::Relaxed) == 2);
        done.store(true, Ordering::Release);
    });
}

fn write_all(table: &Table, floors: &Floors, all_read: impl Fn() -> bool) {
    let mut numbers = Numbers(0);
    for version in (1..).take_while(|version| *version < VERSIONS || !all_read()) {
        let number = numbers.below(SCOPES as u64);
        match numbers.below(100) {
            0..50 => {
                table.publish(scope(number), words(&payload(number, version)));
                floors.of(number).store(version, Ordering::Release);
            }
            50..70 => {
                // As a reader does whose snapshot shows what was published last, or nothing.
                let floor = floors.of(number).load(Ordering::Relaxed);
                if floor > 0 {
                    table.fill(scope(number), words(&payload(number, floor)), table.stamp(scope(number)));
                }
            }
            70..99 => {
                table.withdraw(scope(number));
                floors.of(number).store(version, Ordering::Release);
            }
            _ => {
                table.clear();
                (0..SCOPES as u64).for_each(|number| floors.of(number).store(version, Ordering::Release));
            }
        }
    }
}

/// Reads until told to stop, or until it breaks the test; tells when it first hits.
fn read_until(
    done: &AtomicBool,
    readers_hit: &AtomicU64,
    table: &Table,
    floors: &Floors,
    mut numbers: Numbers,
) {
    let mut seen = [0; SCOPES];
    let mut has_hit = false;
    while !done.load(Ordering::Acquire) {
        let number = numbers.below(SCOPES as u64);
        let floor = floors.of(number).load(Ordering::Acquire);
        if let Some(words) = hit(table, number) {
            if !has_hit {
                has_hit = true;
                readers_hit.fetch_add(1, Ordering::Relaxed);
            }
            let version = version_of(number, &words);
            let last = &mut seen[usize::try_from(number).unwrap()];
            assert!(version >= floor && version >= *last, "{version} after {floor} and {last}");
            *last = version;
        }
    }
}
