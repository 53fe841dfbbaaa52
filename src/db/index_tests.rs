//! Blocks of scopes against a map: what was merged is found and nothing else is, however the blocks were
//! split; and no block that a program would not write passes for one.

use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::*;
use redb::{Database, ReadableDatabase, ReadableTable, ReadableTableMetadata};

use super::envelope::{self, Kind, Table};
use super::fault::Fault;
use super::index::{self, FIRST, Scopes};
use super::stored::State;
use super::tables::{INDEX, IndexKey};
use crate::core::name::ScopeDigest;
use crate::core::record::{ClassId, Position};

const ALL_ONES: IndexKey = [0xFF; 16];
/// With this much that may wait blocks are the largest.
const LATE_BYTES: usize = 16 << 20;
/// The most scopes of the largest and of the smallest block.
const SCOPES_MAX: [usize; 2] = [579, 144];

fn scope(number: u128) -> ScopeDigest {
    ScopeDigest(number.to_be_bytes())
}

fn position(seq: u64) -> Position {
    Position { class: ClassId(1 + u16::from(seq.is_multiple_of(3))), seq }
}

/// A file with the table, what it should hold, and what a store would say of it.
struct Bench {
    dir: tempfile::TempDir,
    database: Option<Database>,
    state: State,
    model: BTreeMap<ScopeDigest, Position>,
    scopes_max: usize,
}

impl Bench {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let database = Database::create(dir.path().join("index")).unwrap();
        let write = database.begin_write().unwrap();
        write.open_table(INDEX).unwrap();
        write.commit().unwrap();
        Self {
            dir,
            database: Some(database),
            state: State::default(),
            model: BTreeMap::new(),
            scopes_max: SCOPES_MAX[0],
        }
    }

    fn database(&self) -> &Database {
        self.database.as_ref().unwrap()
    }

    fn reopen(&mut self) {
        drop(self.database.take());
        self.database = Some(Database::open(self.dir.path().join("index")).unwrap());
    }

    fn table(&self) -> redb::ReadOnlyTable<&'static IndexKey, &'static [u8]> {
        self.database().begin_read().unwrap().open_table(INDEX).unwrap()
    }

    fn merge(&mut self, scopes: impl IntoIterator<Item = (ScopeDigest, Position)>) {
        let scopes: BTreeMap<_, _> = scopes.into_iter().collect();
        let slice: Vec<_> = scopes.iter().map(|(scope, position)| (*scope, *position)).collect();
        self.model.extend(scopes);
        let write = self.database().begin_write().unwrap();
        let mut state = self.state.clone();
        index::merge(&mut write.open_table(INDEX).unwrap(), &slice, self.scopes_max, &mut state).unwrap();
        write.commit().unwrap();
        self.state = state;
    }

    fn keys(&self) -> Vec<IndexKey> {
        self.table().iter().unwrap().map(|item| *item.unwrap().0.value()).collect()
    }

    /// All of it, block by block.
    fn walk(&self) -> Vec<(ScopeDigest, Position)> {
        let table = self.table();
        let (mut all, mut next) = (Vec::new(), Some(FIRST));
        while let Some(start) = next {
            let Some(block) = index::block_of(&table, &start).unwrap() else { break };
            let scopes: Vec<_> = block.scopes().unwrap().from(&block.key).collect();
            assert!((1..=SCOPES_MAX[0]).contains(&scopes.len()), "a block of {}", scopes.len());
            all.extend(scopes);
            next = block.end;
        }
        all
    }

    fn check(&self) {
        let model: Vec<_> = self.model.iter().map(|(scope, position)| (*scope, *position)).collect();
        assert!(self.walk() == model);
        assert_eq!(
            (self.state.indexed, self.state.index_rows),
            (model.len() as u64, self.keys().len() as u64)
        );
        let table = self.table();
        let near = |scope: &IndexKey| {
            let number = u128::from_be_bytes(*scope);
            [number.wrapping_sub(1), number, number.wrapping_add(1)]
        };
        // Of a large one every 16th, and what lies around the borders.
        let known = self.model.keys().step_by(1 + self.model.len() / 500).flat_map(|scope| near(&scope.0));
        let borders = self.keys().into_iter().flat_map(|key| near(&key));
        for asked in known.chain(borders).chain([0, u128::MAX]).map(scope) {
            assert_eq!(index::find(&table, asked).unwrap(), self.model.get(&asked).copied(), "{asked:?}");
        }
    }
}

/// Scopes all over, and close to each other at both ends.
fn scopes() -> impl Strategy<Value = u128> {
    prop_oneof![
        4 => any::<u128>(),
        2 => (0..3_000_u128).prop_map(|number| number * 2),
        2 => (0..3_000_u128).prop_map(|number| u128::MAX - number * 2),
        1 => (0..100_u128).prop_map(|number| number << 120),
    ]
}

fn slices() -> impl Strategy<Value = Vec<(Vec<u128>, bool)>> {
    let slice =
        prop_oneof![4 => vec(scopes(), 0..40), 2 => vec(scopes(), 0..900), 1 => vec(scopes(), 0..2_500)];
    vec((slice, prop::bool::weighted(0.2)), 1..8)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_was_merged_is_found_and_nothing_else(slices in slices()) {
        let (mut bench, mut seq) = (Bench::new(), 0);
        for (slice, reopens) in slices {
            bench.merge(slice.into_iter().map(|number| { seq += 1; (scope(number), position(seq)) }));
            if reopens {
                bench.reopen();
                bench.scopes_max = SCOPES_MAX[usize::from(bench.scopes_max == SCOPES_MAX[0])];
            }
            bench.check();
        }
    }
}

#[test]
fn an_empty_table_has_no_scope() {
    let mut bench = Bench::new();
    bench.check();
    bench.merge([]);
    bench.check();
}

/// The first block begins before the least scope that it has, and the last one ends with the greatest
/// there is.
#[test]
fn the_first_and_the_last_scope_there_can_be_are_found() {
    let mut bench = Bench::new();
    bench.merge([(scope(7), position(1))]);
    assert_eq!(bench.keys(), [FIRST]);
    bench.check();
    bench.merge([(scope(u128::MAX), position(2)), (scope(0), position(3))]);
    bench.check();
    for number in 0..u64::try_from(3 * SCOPES_MAX[0]).unwrap() {
        bench.model.entry(scope(u128::from(number) << 100)).or_insert(position(number));
    }
    bench.merge(bench.model.clone());
    bench.merge([(scope(u128::MAX), position(4)), (scope(0), position(5))]);
    bench.check();
    assert!(bench.keys().len() > 2);
}

#[test]
fn a_full_block_is_split_in_two_halves_and_what_is_newer_takes_no_room() {
    let mut bench = Bench::new();
    let all = |first: u64| {
        (0..SCOPES_MAX[0] as u64).map(move |at| (scope(u128::from(first + 2 * at)), position(at)))
    };
    bench.merge(all(10));
    bench
        .merge(all(10).map(|(scope, Position { class, seq })| (scope, Position { class, seq: seq + 1_000 })));
    assert_eq!(bench.keys(), [FIRST]);
    bench.merge([(scope(11), position(1))]);
    let half = SCOPES_MAX[0].div_ceil(2) as u64;
    assert_eq!(bench.state.index_rows, 2);
    let border = bench.keys()[1];
    let in_first = bench.model.range(..ScopeDigest(border)).count() as u64;
    assert!(in_first.abs_diff(half) <= 1, "{in_first} of {half}");
    bench.check();
    // What lies between the last scope of a block and the key of the next belongs into the first.
    let between = u128::from_be_bytes(border) - 1;
    bench.merge([(scope(between), position(2))]);
    assert_eq!(bench.keys(), [FIRST, border]);
    bench.check();
}

/// The largest blocks where much waits, blocks of one page where little does; each fills its pages, and so
/// does each half of it.
#[test]
fn blocks_fill_the_pages_of_the_storage_engine() {
    const ENGINE_AND_FRAME_BYTES: usize = 64;
    for (late_bytes, pages) in
        [(0, 4096), (512 << 10, 4096), (8 << 20, 8192), (LATE_BYTES, 16_384), (usize::MAX, 16_384)]
    {
        let bytes = index::scopes_max(late_bytes) * 26 + ENGINE_AND_FRAME_BYTES;
        assert!(bytes <= pages && bytes * 100 >= pages * 90, "{bytes} of {pages}");
    }
    assert_eq!([LATE_BYTES, 0].map(index::scopes_max), SCOPES_MAX);
}

/// The body of a block with these scopes, in this order.
fn body(numbers: &[u128]) -> Vec<u8> {
    let entry = |number: &u128| [&number.to_be_bytes()[..], &[0, 1, 0, 0, 0, 0, 0, 0, 0, 9]].concat();
    numbers.iter().flat_map(entry).collect()
}

const KEY: u128 = 1_000;

fn value(key: u128, body: &[u8]) -> Vec<u8> {
    envelope::frame(Table::Index, &key.to_be_bytes(), Kind::Scopes, body).unwrap()
}

#[test]
fn a_block_is_digests_and_positions_one_behind_the_other() {
    let value = value(KEY, &body(&[KEY, KEY + 5]));
    let scopes = Scopes::read(&KEY.to_be_bytes(), &value).unwrap();
    let at = Position { class: ClassId(1), seq: 9 };
    assert!(scopes.from(&FIRST).eq([(scope(KEY), at), (scope(KEY + 5), at)]));
    assert!(scopes.from(&(KEY + 1).to_be_bytes()).eq([(scope(KEY + 5), at)]));
    assert_eq!((scopes.find(scope(KEY + 5)), scopes.find(scope(KEY + 4))), (Some(at), None));
}

/// Every way to ask for a scope of a block tells what is wrong with it, and where.
#[track_caller]
fn tells(blocks: &[(u128, Vec<u8>)], asked: u128, what: &str) {
    let bench = Bench::new();
    let write = bench.database().begin_write().unwrap();
    let mut table = write.open_table(INDEX).unwrap();
    for (key, value) in blocks {
        table.insert(&key.to_be_bytes(), &value[..]).unwrap();
    }
    let told = |fault: Fault| {
        assert!(matches!(&fault, Fault::Damaged(said) if said.contains(what)), "{fault:?}");
        assert!(fault.to_string().contains("table index"), "{fault}");
    };
    told(index::find(&table, scope(asked)).unwrap_err());
    let read = index::block_of(&table, &asked.to_be_bytes());
    told(read.and_then(|block| block.unwrap().scopes().map(drop)).unwrap_err());
    let before = table.len().unwrap();
    let merged =
        index::merge(&mut table, &[(scope(asked), position(1))], SCOPES_MAX[0], &mut State::default());
    told(merged.unwrap_err());
    assert_eq!(table.len().unwrap(), before);
}

#[test]
fn a_block_that_nobody_writes_is_damage_and_never_absence() {
    let place = "the block of table index from scope 000000000000000000000000000003e8 on: ";
    let wrong =
        |body: &[u8], what: &str| tells(&[(0, value(0, b"")), (KEY, value(KEY, body))], KEY + 1, what);
    wrong(&body(&[KEY + 5, KEY + 2]), &format!("{place}its scopes are out of order"));
    wrong(&body(&[KEY + 2, KEY + 2]), "its scopes are out of order");
    wrong(&body(&[KEY - 1, KEY + 2]), &format!("{place}a scope belongs into the block before it"));
    wrong(b"", &format!("{place}it has no scope"));
    let sound = body(&[KEY, KEY + 2]);
    for len in (1..sound.len()).filter(|len| len % 26 != 0) {
        wrong(&sound[..len], &format!("{place}its last scope is cut"));
    }
}

#[test]
fn a_block_that_is_cut_or_changed_or_moved_is_damage() {
    let sound = value(KEY, &body(&[KEY, KEY + 2]));
    let wrong =
        |value: &[u8]| tells(&[(KEY, value.to_vec())], KEY + 1, "the block of table index from scope");
    for len in 0..sound.len() {
        wrong(&sound[..len]);
    }
    for bit in 0..sound.len() * 8 {
        let mut value = sound.clone();
        value[bit / 8] ^= 1 << (bit % 8);
        assert!(Scopes::read(&KEY.to_be_bytes(), &value).is_err(), "bit {bit}");
    }
    wrong(&value(KEY - 1, &body(&[KEY, KEY + 2])));
    wrong(&envelope::frame(Table::Index, &KEY.to_be_bytes(), Kind::Tail, &body(&[KEY])).unwrap());
}

#[test]
fn a_block_that_is_missing_before_all_others_is_damage() {
    tells(&[(KEY, value(KEY, &body(&[KEY])))], KEY - 1, "its first block is missing");
}

/// A look-up in the block behind cannot know of it; whoever goes through the table or changes the block
/// tells.
#[test]
fn a_scope_behind_the_end_of_its_block_is_damage() {
    let bench = Bench::new();
    let write = bench.database().begin_write().unwrap();
    let mut table = write.open_table(INDEX).unwrap();
    table.insert(&FIRST, &value(0, &body(&[3, KEY]))[..]).unwrap();
    table.insert(&KEY.to_be_bytes(), &value(KEY, &body(&[KEY + 1]))[..]).unwrap();
    let what =
        "table index from scope 00000000000000000000000000000000 on: a scope belongs into the block behind";
    let told = |fault: Fault| assert!(fault.to_string().contains(what), "{fault}");
    told(index::block_of(&table, &FIRST).unwrap().unwrap().scopes().map(drop).unwrap_err());
    let merged = index::merge(&mut table, &[(scope(5), position(1))], SCOPES_MAX[0], &mut State::default());
    told(merged.unwrap_err());
    assert!(index::block_of(&table, &ALL_ONES).unwrap().unwrap().scopes().is_ok());
}
