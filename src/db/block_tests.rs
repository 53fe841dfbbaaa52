//! Blocks: how a commit is cut into them, and that what went in comes out.

use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::*;

use super::block::{Block, NewEntry, cut, write};
use super::stored::{Framed, Head, Image, LateRow, State};
use crate::core::name::{ScopeDigest, Tenant};
use crate::core::record::{ClassId, Position};
use crate::core::row::RowKey;

const PAGE_BYTES: usize = 4096;
const PAGES_BYTES_MAX: usize = 64 * 1024;
/// What the storage engine needs of a value's pages for itself, at most.
const ENGINE_BYTES: usize = 32;

/// The frames of a commit, as bytes that differ from place to place; nobody opens them here.
fn frames() -> Vec<u8> {
    (0..=250).cycle().take(2 << 20).collect()
}

/// An entry whose frame has so many bytes.
fn entry(class: u16, seq: u64, len: usize, rows: &[usize]) -> NewEntry {
    let rows = rows.iter().enumerate().map(|(at, &len)| LateRow {
        key: RowKey::resource(Some(&Tenant::new("shop")), "note", &format!("{seq}-{at}")),
        image: if len == 0 { Image::Removed } else { Image::Here(Framed(vec![3; len].into())) },
    });
    let start = usize::try_from(seq).unwrap();
    NewEntry {
        position: Position { class: ClassId(class), seq },
        scope: (!seq.is_multiple_of(5)).then_some(ScopeDigest([class.to_be_bytes()[1]; 16])),
        is_outcome: !seq.is_multiple_of(5) && !seq.is_multiple_of(3),
        framed: start..start + len,
        rows: rows.collect(),
    }
}

fn state() -> State {
    let head = |class| Head { class, seq: 1 << 40, entries: 1 << 40, link: [1; 32] };
    State { last_seq: 1 << 40, heads: (1..4).map(head).collect(), ..State::default() }
}

/// A block as its key and value, with the commit's state where it is the last of its class.
fn written(blocks: &[Vec<&NewEntry>]) -> Vec<([u8; 10], Vec<u8>, usize)> {
    let mut last = BTreeMap::new();
    last.extend(blocks.iter().enumerate().map(|(at, block)| (block[0].position.class, at)));
    let (state, frames) = (state(), frames());
    let blocks = blocks.iter().enumerate().map(|(at, block)| {
        let is_last = last[&block[0].position.class] == at;
        let mut value = b"what was there before".to_vec();
        let key = write(block, &frames, is_last.then_some(&state), &mut value).unwrap();
        (key, value, block.len())
    });
    blocks.collect()
}

/// The pages that the engine gives a value of its own.
fn pages_of(value: &[u8]) -> usize {
    (value.len() + ENGINE_BYTES).next_multiple_of(PAGE_BYTES).next_power_of_two()
}

/// Entries with rows, of three classes; sizes as in `entry`.
type Sizes = Vec<(u16, usize, Vec<usize>)>;

fn sizes(len: std::ops::Range<usize>, count: usize) -> impl Strategy<Value = Sizes> {
    vec((1..4_u16, len, vec(0..120_usize, 0..3)), 1..count)
}

fn entries(sizes: &Sizes) -> Vec<NewEntry> {
    let entries = sizes.iter().zip(1..).map(|((class, len, rows), seq)| entry(*class, seq, *len, rows));
    entries.collect()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn small_entries_fill_the_pages_of_their_blocks(sizes in sizes(60..300, 900)) {
        for (_, value, entries) in written(&cut(&entries(&sizes), &state()).unwrap()) {
            let pages = pages_of(&value);
            prop_assert!(pages <= PAGES_BYTES_MAX);
            let fills = value.len() * 100 >= pages * 80;
            prop_assert!(pages == PAGE_BYTES || fills, "{} bytes of {entries} in {pages}", value.len());
        }
    }

    #[test]
    fn each_class_keeps_its_entries_and_their_order(sizes in sizes(10..30_000, 60)) {
        let mut expected: BTreeMap<u16, Vec<u64>> = BTreeMap::new();
        sizes.iter().zip(1..).for_each(|((class, ..), seq)| expected.entry(*class).or_default().push(seq));
        let mut found: BTreeMap<u16, Vec<u64>> = BTreeMap::new();
        for block in cut(&entries(&sizes), &state()).unwrap() {
            let class = block[0].position.class;
            prop_assert!(block.iter().all(|entry| entry.position.class == class));
            found.entry(class.0).or_default().extend(block.iter().map(|entry| entry.position.seq));
        }
        prop_assert_eq!(found, expected);
    }

    #[test]
    fn what_is_written_is_read(sizes in sizes(0..2_000, 40)) {
        let (given, mut blocks) = (entries(&sizes), Vec::new());
        for (key, value, _) in written(&cut(&entries(&sizes), &state()).unwrap()) {
            blocks.push((key, value));
        }
        let (mut read, mut rows) = (BTreeMap::new(), Vec::new());
        for (key, value) in &blocks {
            let block = Block::read(*key, value).unwrap();
            for found in block.entries().map(Result::unwrap) {
                let again = block.entry(found.position.seq).unwrap().unwrap();
                prop_assert_eq!((again.position, again.framed), (found.position, found.framed));
                prop_assert_eq!((again.scope, again.is_outcome), (found.scope, found.is_outcome));
                let scope = (found.scope.map(|scope| scope.0), found.is_outcome);
                read.insert(found.position.seq, (found.position, scope, found.framed));
            }
            prop_assert!(block.entry(block.last_seq() + 1).unwrap().is_none());
            rows.extend(block.tail().unwrap().rows);
        }
        let frames = frames();
        for entry in &given {
            let (position, scope, framed) = read[&entry.position.seq];
            prop_assert_eq!((position, framed), (entry.position, &frames[entry.framed.clone()]));
            prop_assert_eq!(scope, (entry.scope.map(|scope| scope.0), entry.is_outcome));
            prop_assert!(entry.rows.iter().all(|row| rows.contains(row)));
        }
        prop_assert_eq!(read.len(), given.len());
        prop_assert_eq!(rows.len(), given.iter().map(|entry| entry.rows.len()).sum::<usize>());
    }
}

#[test]
fn a_commit_below_a_page_is_one_block() {
    let small: Vec<_> = (1..=10).map(|seq| entry(1, seq, 300, &[20])).collect();
    assert_eq!(cut(&small, &state()).unwrap().len(), 1);
}

#[test]
fn an_entry_that_is_larger_than_any_block_stands_alone() {
    let entries: Vec<_> = [300, 100_000, 300, 300, 1 << 20]
        .into_iter()
        .zip(1..)
        .map(|(len, seq)| entry(1, seq, len, &[]))
        .collect();
    let lens: Vec<_> = cut(&entries, &state()).unwrap().iter().map(Vec::len).collect();
    assert_eq!(lens, [1, 1, 2, 1]);
}

/// Eleven entries that are a page, or nearly, and with what the commit says of itself two: the last goes into
/// a page of its own rather than half of the two stay empty.
#[test]
fn what_a_commit_says_of_itself_has_its_room() {
    for len in 320..360 {
        let entries: Vec<_> = (1..=11).map(|seq| entry(1, seq, len, &[])).collect();
        for (_, value, _) in written(&cut(&entries, &state()).unwrap()) {
            assert_eq!(pages_of(&value), PAGE_BYTES, "{} bytes, of entries of {len}", value.len());
        }
    }
}
