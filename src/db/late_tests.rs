//! What waits to be merged, through commits on a simulated disk: an open makes the same map again, and
//! nothing is lost on its way into the tables.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use proptest::collection::vec;
use proptest::prelude::*;

use super::commit::{Batch, CommitMode};
use super::database::Db;
use super::disk::Disk;
use super::open::{Birth, How, open};
use super::sim_disk::SimDisk;
use super::stored::{Head, State, encode_told};
use crate::core::fingerprint::{Compare, Fingerprint, Parts};
use crate::core::name::{Key, Operation, Scope, ScopeDigest, ScopeMode, Tenant};
use crate::core::policy::Windows;
use crate::core::record::{ClassId, Entry, KeptBody, Position, Told, Transition};
use crate::core::row::{Codec, Content, Row, RowKey};
use crate::core::time::Timestamp;

const CLASSES: u16 = 3;
/// The highest number that a class may have.
const CLASS_OF_LARGE: u16 = 64;
const SCOPES: u8 = 24;
const ROWS: u8 = 24;
const MODE: ScopeMode = ScopeMode::PerOperation;

/// What a commit does with a row.
#[derive(Clone, Copy, Debug)]
enum Change {
    Small(u8),
    /// Too large to wait.
    Large(u8),
    Remove(u8),
    /// Too large for many of them to be read at once.
    Huge(u8),
}

/// One entry: its class, its scope (none for a command without a key), the rows that it changes.
type Asked = (u16, Option<u8>, Vec<Change>);

#[derive(Clone, Debug)]
enum Act {
    Commit(Vec<Asked>),
    Reopen(usize),
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let change = prop_oneof![
        6 => (0..ROWS).prop_map(Change::Small),
        1 => (0..ROWS).prop_map(Change::Large),
        2 => (0..ROWS).prop_map(Change::Remove),
    ];
    let asked = (1..=CLASSES, prop::option::weighted(0.9, 0..SCOPES), vec(change, 0..4));
    let act = prop_oneof![
        9 => vec(asked, 1..6).prop_map(Act::Commit),
        1 => late_bytes().prop_map(Act::Reopen),
    ];
    vec(act, 1..60)
}

fn late_bytes() -> impl Strategy<Value = usize> {
    prop::sample::select(vec![0, 100, 700, 2_000, 5_000, 1 << 20])
}

fn scope(number: u8) -> Scope {
    let key = Key::parse(&format!("k-{number}")).unwrap();
    Scope { tenant: Tenant::new("shop"), operation: Operation::new("order"), key }
}

fn row_key(number: u8) -> RowKey {
    RowKey::resource(Some(&Tenant::new("shop")), "note", &number.to_string())
}

fn entry(asked: &Asked) -> Entry {
    let mut parts = Parts::new();
    parts.bytes("body", b"");
    Entry {
        transition: if asked.1.is_some() { Transition::Executed } else { Transition::Unprotected },
        at: Timestamp(1),
        generation: 1,
        told: Arc::new(Told {
            scope: scope(asked.1.unwrap_or(SCOPES)),
            fingerprint: Fingerprint::of(&parts, Compare::Exact).unwrap(),
            failed: false,
            code: 200,
            meta: Arc::default(),
            resource: None,
            body: KeptBody::Kept(Bytes::from(vec![0; usize::from(asked.0) * 40])),
            actor: "onecho".into(),
            token: 0,
            facts: Arc::default(),
        }),
        notes: Vec::new(),
    }
}

/// An open file, and what should be in it.
struct Bench {
    disk: Arc<dyn Disk>,
    db: Option<Db>,
    state: State,
    scopes: BTreeMap<u8, Position>,
    rows: BTreeMap<u8, u64>,
}

impl Bench {
    fn new(late_bytes: usize) -> Self {
        let disk = Arc::new(SimDisk::seeded(1)) as Arc<dyn Disk>;
        let (scopes, rows) = (BTreeMap::new(), BTreeMap::new());
        let mut bench = Self { disk, db: None, state: State::default(), scopes, rows };
        bench.open(late_bytes);
        bench
    }

    fn db(&self) -> &Db {
        self.db.as_ref().unwrap()
    }

    fn open(&mut self, late_bytes: usize) {
        let how = How {
            cache_bytes: 1 << 20,
            scope_mode: MODE,
            mode: CommitMode::TwoPhase,
            check_at_open_max: 0,
            late_bytes,
            filter_bytes: 1 << 10,
            strict: false,
            after_failure: false,
        };
        let before = self.db.take().map(|db| {
            let late = format!("{:?}", db.late.read().parts());
            db.close().unwrap();
            late
        });
        let birth = Birth { store_id: [7; 16], scope_mode: MODE, owns_nothing: false, now: Timestamp(1) };
        let opened = open(&self.disk, how, Some(birth)).unwrap();
        if let Some(before) = before {
            assert_eq!(format!("{:?}", opened.db.late.read().parts()), before, "another map after the open");
            assert_eq!(opened.state, self.state);
        }
        self.state = opened.state;
        self.db = Some(opened.db);
    }

    fn commit(&mut self, asked: &[Asked]) {
        let mut batch = Batch::default();
        let mut changed: BTreeMap<u8, (u64, Option<Row>)> = BTreeMap::new();
        let mut next = self.state.clone();
        for asked in asked {
            next.last_seq += 1;
            let position = Position { class: ClassId(asked.0), seq: next.last_seq };
            let digest = asked.1.map(|number| ScopeDigest::of(&scope(number), MODE));
            let entry = entry(asked);
            batch.put_entry(position, digest, &entry, &encode_told(&entry.told).unwrap()).unwrap();
            if self.db().class_ids().iter().all(|class| *class != position.class) {
                let window = u64::from(asked.0);
                batch.add_class(position.class, Windows { body: window, key: window, tombstone: window });
            }
            self.scopes.extend(asked.1.map(|number| (number, position)));
            let entries = next.head(position.class).map_or(0, |head| head.entries) + 1;
            next.set_head(Head { class: asked.0, seq: position.seq, entries, link: [0; 32] });
            for change in &asked.2 {
                let (number, len) = match *change {
                    Change::Small(number) => (number, Some(20)),
                    Change::Large(number) => (number, Some(4_000)),
                    Change::Remove(number) => (number, None),
                    Change::Huge(number) => (number, Some(600 << 10)),
                };
                let row = len.map(|len| Row {
                    version: position.seq,
                    made: position,
                    event_time: None,
                    content: Content::Value { codec: Codec::Raw, bytes: Bytes::from(vec![1; len]) },
                });
                changed.insert(number, (position.seq, row));
            }
        }
        for (number, (seq, row)) in changed {
            batch.put_row(&row_key(number), row.as_ref(), seq).unwrap();
            match row {
                Some(_) => drop(self.rows.insert(number, seq)),
                None => drop(self.rows.remove(&number)),
            }
        }
        self.db.as_ref().unwrap().commit(batch, &mut next).unwrap();
        self.state = next;
    }

    /// Every scope and row is found where it should be, and the file makes the map that is in memory.
    fn check(&self) {
        let (db, snapshot) = (self.db(), self.db().snapshot().unwrap());
        assert_eq!(snapshot.state().unwrap(), self.state);
        let again = snapshot.late(&self.state).unwrap();
        assert_eq!(format!("{:?}", db.late.read().parts()), format!("{:?}", again.parts()));
        for number in 0..SCOPES {
            let found = db.record(ScopeDigest::of(&scope(number), MODE)).unwrap();
            assert_eq!(found.map(|record| record.position), self.scopes.get(&number).copied(), "{number}");
        }
        for number in 0..ROWS {
            let found = db.row(&row_key(number)).unwrap().map(|row| row.version);
            assert_eq!(found, self.rows.get(&number).copied(), "row {number}");
        }
        let listed = db.rows_after(b"tshop\0note\0", None, 1_000).unwrap();
        let listed: BTreeMap<_, _> = listed.into_iter().map(|(key, row)| (key, row.version)).collect();
        let expected = self.rows.iter().map(|(number, version)| (row_key(*number), *version));
        assert_eq!(listed, expected.collect());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn an_open_makes_the_same_map_again(acts in acts(), late_bytes in late_bytes()) {
        let mut bench = Bench::new(late_bytes);
        for act in acts {
            match act {
                Act::Commit(asked) => bench.commit(&asked),
                Act::Reopen(late_bytes) => bench.open(late_bytes),
            }
            bench.check();
        }
    }
}

/// Two outcomes of a scope in one commit, which only windows of no length allow: the block of the newer one
/// begins with a lower number than that of the older one.
#[test]
fn of_two_outcomes_in_one_commit_an_open_finds_the_newer() {
    let mut bench = Bench::new(1 << 20);
    bench.commit(&[(1, Some(1), vec![]), (2, Some(2), vec![]), (1, Some(2), vec![])]);
    bench.check();
    bench.open(1 << 20);
    bench.check();
}

/// All that waits is merged after two laps, however the sweep was cut.
#[test]
fn what_waits_is_merged_in_the_end() {
    let mut bench = Bench::new(1 << 20);
    for number in 0..SCOPES {
        bench.commit(&[(1, Some(number), vec![Change::Small(number), Change::Remove(number / 2)])]);
    }
    assert_eq!((bench.state.indexed, bench.state.settled), (0, 0));
    bench.open(0);
    for _ in 0..2 {
        bench.db.as_ref().unwrap().commit(Batch::default(), &mut bench.state).unwrap();
        bench.check();
    }
    assert_eq!(bench.db().late_bytes(), 0);
    assert_eq!(bench.state.indexed, u64::from(SCOPES));
    assert_eq!(bench.state.settled, bench.rows.len() as u64);
}

/// What an open has to read stays in proportion to the map, also where few scopes come with much journal.
#[test]
fn large_entries_of_no_scope_leave_no_long_journal() {
    const LATE_BYTES: usize = 3_000;
    let mut bench = Bench::new(LATE_BYTES);
    for number in 0..60 {
        bench.commit(&[(1, Some(number), vec![])]);
    }
    // The body of an entry grows with its class.
    for _ in 0..200 {
        bench.commit(&[(CLASS_OF_LARGE, None, vec![])]);
        let journal = bench.db().late.read().journal_bytes();
        assert!(journal < 3 * 6 * LATE_BYTES as u64, "{journal} bytes");
    }
}

/// A page of rows is bounded in bytes, and who goes on behind its last row misses none.
#[test]
fn a_page_of_huge_rows_ends_early() {
    let mut bench = Bench::new(1 << 20);
    for number in 0..9 {
        bench.commit(&[(1, None, vec![Change::Huge(number), Change::Small(10 + number)])]);
    }
    let (mut after, mut seen) = (None, 0);
    loop {
        let page = bench.db().rows_after(b"tshop\0note\0", after.as_ref(), 1_000).unwrap();
        let Some((last, _)) = page.last() else { break };
        let huge = page
            .iter()
            .filter(|(_, row)| matches!(&row.content, Content::Value { bytes, .. } if bytes.len() > 1_000))
            .count();
        assert!(huge <= 2, "{huge} of 600 KiB at once");
        seen += page.len();
        after = Some(last.clone());
    }
    assert_eq!(seen, bench.rows.len());
}
