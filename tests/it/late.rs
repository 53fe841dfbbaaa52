//! Rows and outcomes move from memory into the tables of the file while others look: nobody misses one, and
//! nobody sees an older one than before.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

use onecho::testing::SimDisk;
use onecho::{Options, Outcome, Reply, Status, Store};

use crate::common::*;

/// More than one page of a scan.
const ROWS: u64 = 300;
const COMMITS: u64 = 600;

fn id(number: u64) -> String {
    format!("p-{number:04}")
}

/// Memory that holds few of the rows, and none for what answers without the file.
fn options(late_bytes: usize) -> Options {
    Options::new().late_bytes(late_bytes).replay_bytes(0).filter_bytes(4 << 10)
}

fn fill(store: &Store) {
    let filled = store.execute(&request("fill"), |fx| {
        for number in 0..ROWS {
            fx.put(&NOTES, &id(number), &"0".to_owned())?;
        }
        Ok(Outcome::succeeded(201))
    });
    done(filled);
}

/// One commit: some rows get a new value, a row comes and one goes, a name passes on.
fn commit(store: &Store, number: u64) {
    let reply = store.execute(&request(&format!("c-{number}")), |fx| {
        for row in 0..5 {
            fx.put(&NOTES, &id((number * 37 + row * 61) % ROWS), &number.to_string())?;
        }
        // Large ones go straight into their table.
        let large = format!("{number}{}", " ".repeat(3_000));
        fx.put(&NOTES, &id(number * 11 % ROWS), &large)?;
        fx.put(&NOTES, &format!("q-{number:04}"), &"comes and goes".to_owned())?;
        fx.remove(&NOTES, &format!("q-{:04}", number - 1))?;
        Ok(Outcome::succeeded(200).body(number.to_string()))
    });
    done(reply);
}

/// What one reader has seen: no row gets older.
#[derive(Default)]
struct Seen(BTreeMap<String, u64>);

impl Seen {
    fn see(&mut self, id: &str, value: &str) {
        let value = value.trim_end().parse().unwrap();
        let newest = self.0.entry(id.to_owned()).or_insert(value);
        assert!(*newest <= value, "{id} was {newest} and is {value}");
        *newest = value;
    }

    fn scan(&mut self, store: &Store) {
        let mut before = String::new();
        let mut lasting = 0;
        for row in store.scan(&SHOP, &NOTES, "") {
            let row = row.unwrap();
            assert!(before < row.id, "{before} before {}", row.id);
            if row.id.starts_with("p-") {
                assert_eq!(row.id, id(lasting), "a row that is there throughout was missed");
                self.see(&row.id, &row.value);
                lasting += 1;
            }
            before = row.id;
        }
        assert_eq!(lasting, ROWS, "rows that are there throughout were missed at the end");
    }

    fn get(&mut self, store: &Store, number: u64) {
        let row = note(store, &id(number)).expect("a row that is there throughout");
        self.see(&id(number), &row);
    }
}

/// Every finished command has its outcome, and none runs again.
fn outcomes(store: &Store, finished: u64, numbers: &mut Numbers) {
    let number = 1 + numbers.below(finished.max(1));
    if number > finished {
        return;
    }
    let asked = request(&format!("c-{number}"));
    assert!(matches!(store.status(asked.scope()).unwrap(), Status::Finished(_)), "{number}");
    assert!(matches!(store.execute(&asked, never).unwrap(), Reply::Replay(_)), "{number}");
    let absent = request(&format!("absent-{number}"));
    assert!(matches!(store.status(absent.scope()).unwrap(), Status::Absent), "{number}");
}

fn readers_beside_a_writer(late_bytes: usize) {
    let seed = seed(37);
    let disk = SimDisk::seeded(1);
    let store = disk.open(options(late_bytes)).unwrap();
    fill(&store);
    let (finished, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for reader in 0..3 {
            let (store, finished, is_over) = (&store, &finished, &is_over);
            scope.spawn(move || {
                let (mut seen, mut numbers) = (Seen::default(), Numbers::from(seed ^ reader));
                while !is_over.load(SeqCst) {
                    match reader {
                        0 => seen.scan(store),
                        1 => seen.get(store, numbers.below(ROWS)),
                        _ => outcomes(store, finished.load(SeqCst), &mut numbers),
                    }
                }
                seen.scan(store);
            });
        }
        for number in 1..=COMMITS {
            commit(&store, number);
            finished.store(number, SeqCst);
        }
        is_over.store(true, SeqCst);
    });
    clean(&store);
    store.close().unwrap();
    let store = disk.open(options(late_bytes)).unwrap();
    let mut seen = Seen::default();
    seen.scan(&store);
    assert_eq!(seen.0.len() as u64, ROWS);
    clean(&store);
}

#[test]
fn readers_miss_nothing_that_is_merged_at_once() {
    readers_beside_a_writer(0);
}

#[test]
fn readers_miss_nothing_that_the_sweep_moves_in_slices() {
    readers_beside_a_writer(16 << 10);
}

/// What waits is bounded by its option, give or take one commit.
#[test]
fn what_waits_keeps_to_its_memory() {
    let store = opened(options(8 << 10));
    for number in 1..=200 {
        commit(&store, number);
        assert!(store.stats().late_bytes <= (8 << 10) + 4_000, "{:?}", store.stats());
    }
    assert!(store.stats().late_bytes > 0);
    clean(&store);
}

/// Rows that were removed and whose removal still waits are passed over without reading what comes behind
/// them again for each page.
#[test]
fn a_scan_over_removed_rows_reads_the_others_once() {
    const LARGE: u64 = 256;
    let disk = SimDisk::seeded(1);
    let store = disk.open(options(16 << 20).cache_bytes(256 << 10)).unwrap();
    let large = " ".repeat(10_000);
    for number in 0..LARGE {
        done(store.execute(&request(&format!("large-{number}")), |fx| {
            fx.put(&NOTES, &format!("z-{number:04}"), &large)?;
            Ok(Outcome::succeeded(201))
        }));
    }
    for number in 0..20_u64 {
        done(store.execute(&request(&format!("gone-{number}")), |fx| {
            for row in 0..200 {
                fx.put(&NOTES, &format!("a-{number:04}-{row:04}"), &String::new())?;
                fx.remove(&NOTES, &format!("a-{number:04}-{row:04}"))?;
            }
            Ok(Outcome::succeeded(200))
        }));
    }
    let operations = |prefix: &str| {
        let before = disk.operations();
        assert_eq!(store.scan(&SHOP, &NOTES, prefix).count() as u64, LARGE);
        disk.operations() - before
    };
    let (once, all) = (operations("z-"), operations(""));
    assert!(once >= LARGE / 2, "the cache has them all: {once}");
    assert!(all < 3 * once, "{all} operations instead of {once}");
}
