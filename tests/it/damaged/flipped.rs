//! Bits, pages and ends of a file at rest. Below `check_at_open_max` every open checks the whole file.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;

use onecho::{ErrorKind, Key, Outcome, Reply, Request, Status, Store};

use super::{COMMANDS, Chance, ORDER, SHOP, Said, cases, listing, make, options, quick_dir, seed, sound};

const PAGE_BYTES: usize = 4096;
/// Where the storage engine keeps what leads to everything else.
const HEADER_BYTES: usize = 320;

/// A sound store, and a path to put damaged ones under.
struct Bench {
    sound: Vec<u8>,
    _dir: tempfile::TempDir,
    path: PathBuf,
    /// Refused, harmless, found by `verify`.
    refused: usize,
    harmless: usize,
    found: usize,
}

impl Bench {
    fn new() -> Self {
        let dir = quick_dir();
        let path = dir.path().join("orders.onecho");
        Self { sound: sound(), path, _dir: dir, refused: 0, harmless: 0, found: 0 }
    }

    /// A typed error and the file as it was, or right answers all over, or a fault that `verify` tells.
    fn holds(&mut self, bytes: &[u8], damage: &str) {
        std::fs::write(&self.path, bytes).unwrap();
        let opened = catch_unwind(AssertUnwindSafe(|| Store::open(&self.path, options())));
        match opened.unwrap_or_else(|_| panic!("{damage}: the open panics")) {
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Corrupt, "{damage}: {error}");
                assert!(error.to_string().contains("orders.onecho"), "{damage}: {error}");
                assert!(
                    std::fs::read(&self.path).unwrap() == bytes,
                    "{damage}: a refused file was changed: {error}"
                );
                assert_eq!(
                    listing(self.path.parent().unwrap()).len(),
                    1,
                    "{damage}: something was left beside it"
                );
                self.refused += 1;
            }
            Ok(store) => {
                let said = catch_unwind(AssertUnwindSafe(|| (Said::of(&store), store.verify())));
                let (said, report) = said.unwrap_or_else(|_| panic!("{damage}: an answer panics"));
                assert!(said.wrong.is_empty() && said.gone.is_empty(), "{damage}: {said:?}");
                match report {
                    Ok(report) if report.is_clean() => {
                        assert_eq!(said.errors, 0, "{damage}: errors, and verify finds nothing");
                        assert_eq!(report.records, COMMANDS as u64, "{damage}");
                        self.harmless += 1;
                    }
                    _ => self.found += 1,
                }
            }
        }
    }

    fn flip(&mut self, bit: usize) {
        let mut bytes = self.sound.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        self.holds(&bytes, &format!("bit {} of byte {}", bit % 8, bit / 8));
    }
}

#[test]
fn every_bit_of_the_header_may_flip() {
    let mut bench = Bench::new();
    for bit in 0..HEADER_BYTES * 8 {
        bench.flip(bit);
    }
    assert!(bench.refused > 0 && bench.harmless > 0);
}

#[test]
fn every_flip_of_a_closed_file_is_refused_told_or_harmless() {
    let seed = seed();
    let mut chance = Chance(seed);
    let mut bench = Bench::new();
    for _ in 0..cases(3_000) {
        let bit = chance.below(bench.sound.len() * 8);
        let flipped = catch_unwind(AssertUnwindSafe(|| bench.flip(bit)));
        assert!(flipped.is_ok(), "ONECHO_SEED={seed}");
    }
    assert!(bench.refused > 0 && bench.harmless > 0, "ONECHO_SEED={seed}");
}

#[test]
fn any_page_may_be_zeros_or_noise() {
    let seed = seed();
    let mut chance = Chance(seed);
    let mut bench = Bench::new();
    for page in 0..bench.sound.len() / PAGE_BYTES {
        let at = page * PAGE_BYTES;
        let mut bytes = bench.sound.clone();
        bytes[at..at + PAGE_BYTES].fill(0);
        bench.holds(&bytes, &format!("zeros in page {page}"));
        bytes[at..at + PAGE_BYTES].fill_with(|| chance.next().to_le_bytes()[0]);
        bench.holds(&bytes, &format!("ONECHO_SEED={seed}: noise in page {page}"));
        bytes.copy_from_slice(&bench.sound);
        bytes[at + PAGE_BYTES / 2..at + PAGE_BYTES].fill(0);
        bench.holds(&bytes, &format!("zeros in half of page {page}"));
    }
    assert!(bench.refused > 0);
}

#[test]
fn any_two_pages_may_stand_in_each_others_place() {
    let mut bench = Bench::new();
    let pages = bench.sound.len() / PAGE_BYTES;
    for (one, other) in (0..pages).flat_map(|one| (one + 1..pages).map(move |other| (one, other))) {
        if one > 3 && other - one > 3 {
            continue;
        }
        let mut bytes = bench.sound.clone();
        let (front, back) = bytes.split_at_mut(other * PAGE_BYTES);
        front[one * PAGE_BYTES..(one + 1) * PAGE_BYTES].swap_with_slice(&mut back[..PAGE_BYTES]);
        bench.holds(&bytes, &format!("pages {one} and {other} swapped"));
        bytes.copy_from_slice(&bench.sound);
        bytes.copy_within(one * PAGE_BYTES..(one + 1) * PAGE_BYTES, other * PAGE_BYTES);
        bench.holds(&bytes, &format!("page {one} over page {other}"));
    }
    assert!(bench.refused > 0);
}

#[test]
fn the_end_may_be_missing() {
    let mut bench = Bench::new();
    let len = bench.sound.len();
    let lens = [1, 8, 9, 10, 63, 64, 127, 128, 319, 320, 511, 512, 4095, 4096, 4097, len - 1, len - 4096];
    for len in lens.into_iter().chain((1..len).step_by(1531)) {
        let bytes = bench.sound[..len].to_vec();
        bench.holds(&bytes, &format!("{len} bytes are left"));
    }
    assert!(bench.refused > 0);
}

#[test]
fn something_may_stand_behind_the_end() {
    let mut bench = Bench::new();
    for more in [1, 100, 4096, 1 << 20] {
        for fill in [0, 0xFF] {
            let mut bytes = bench.sound.clone();
            bytes.resize(bytes.len() + more, fill);
            bench.holds(&bytes, &format!("{more} bytes of {fill} behind the end"));
        }
    }
}

#[test]
fn an_older_copy_of_the_front_may_come_back() {
    let dir = quick_dir();
    let path = dir.path().join("orders.onecho");
    make(&path);
    let older = std::fs::read(&path).unwrap();
    let store = Store::open(&path, options()).unwrap();
    let key = Key::parse("one more").unwrap();
    let one_more = Request::new(&SHOP, &ORDER, &key).bytes("body", "x");
    assert!(matches!(store.execute(&one_more, |_| Ok(Outcome::succeeded(200))), Ok(Reply::Done(_))));
    store.close().unwrap();
    let newer = std::fs::read(&path).unwrap();
    for page in 0..older.len().min(newer.len()) / PAGE_BYTES {
        let place = page * PAGE_BYTES..(page + 1) * PAGE_BYTES;
        if older[place.clone()] == newer[place.clone()] {
            continue;
        }
        let mut bytes = newer.clone();
        bytes[place.clone()].copy_from_slice(&older[place]);
        std::fs::write(&path, &bytes).unwrap();
        match Store::open(&path, options()) {
            Err(error) => assert_eq!(error.kind(), ErrorKind::Corrupt, "page {page}: {error}"),
            Ok(store) => {
                let status = store.status(one_more.scope()).unwrap();
                assert!(
                    matches!(status, Status::Finished(_)),
                    "page {page}: the newest record is gone in silence"
                );
            }
        }
    }
}
