//! The promises of the index under *Consistency*, each as a small case that is explored whole.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use loom::model::Builder;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;

use super::sync::order::{self, Mistake};
use super::table::Table;

/// Scopes: digests whose tags differ.
const A: [u64; 2] = [0x10, 7];
const B: [u64; 2] = [0x20, 7];
const C: [u64; 2] = [0x30, 7];

/// Switches of threads that were not forced, in one run. Each weakened ordering shows with two.
const PREEMPTIONS: usize = 2;

fn explored(case: fn()) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(PREEMPTIONS);
    builder.check(case);
}

fn table() -> Arc<Table> {
    Arc::new(Table::new(1, [1, 1]))
}

/// The record of a scope in a version: both words tell both.
fn record(scope: [u64; 2], version: u64) -> impl ExactSizeIterator<Item = u64> {
    [scope[0] + version; 2].into_iter()
}

/// The version that a look finds, if it finds one; whatever it finds is whole and the scope's own.
fn version(table: &Table, scope: [u64; 2]) -> Option<u64> {
    let [first, second] = table.read(scope, |words| Some([words.get(0), words.get(1)]))?;
    assert_eq!(first, second, "broken promise: a torn record");
    assert_eq!(first & !0xF, scope[0], "broken promise: a record of another scope");
    Some(first & 0xF)
}

/// One writer replaces a record under two readers: each sees whole records, and never an older one after a
/// newer one.
fn replaced() {
    let table = table();
    table.publish(A, record(A, 1));
    let readers = [(); 2].map(|()| {
        let table = Arc::clone(&table);
        thread::spawn(move || version(&table, A))
    });
    table.publish(A, record(A, 2));
    for reader in readers {
        assert!(matches!(reader.join().unwrap(), None | Some(1 | 2)), "broken promise: no such version");
    }
    assert_eq!(version(&table, A), Some(2), "broken promise: what was published is not there");
}

/// A look later than a publish sees that record, a newer one, or none; and so does a second look.
fn never_older() {
    let (table, told) = (table(), Arc::new(AtomicU64::new(0)));
    table.publish(A, record(A, 1));
    let reader = {
        let (table, told) = (Arc::clone(&table), Arc::clone(&told));
        thread::spawn(move || {
            let floor = told.load(Ordering::Acquire);
            let first = version(&table, A).unwrap_or(floor);
            assert!(first >= floor, "broken promise: {first} was older than what was told, {floor}");
            let second = version(&table, A).unwrap_or(first);
            assert!(second >= first, "broken promise: {second} after {first}");
        })
    };
    table.publish(A, record(A, 2));
    told.store(2, Ordering::Release);
    reader.join().unwrap();
}

/// A record gives way to another under readers of both.
fn displaced() {
    let table = table();
    table.publish(A, record(A, 1));
    table.publish(B, record(B, 1));
    let readers = [A, C].map(|scope| {
        let table = Arc::clone(&table);
        thread::spawn(move || version(&table, scope))
    });
    table.publish(C, record(C, 1));
    for reader in readers {
        assert!(matches!(reader.join().unwrap(), None | Some(1)), "broken promise: no such version");
    }
    assert_eq!(table.len(), 2);
}

/// A look later than a withdrawal misses.
fn withdrawn() {
    let (table, told) = (table(), Arc::new(AtomicU64::new(0)));
    table.publish(A, record(A, 1));
    let reader = {
        let (table, told) = (Arc::clone(&table), Arc::clone(&told));
        thread::spawn(move || {
            let was_told = told.load(Ordering::Acquire) == 1;
            let seen = version(&table, A);
            assert!(!was_told || seen.is_none(), "broken promise: seen after it was withdrawn");
        })
    };
    table.withdraw(A);
    told.store(1, Ordering::Release);
    reader.join().unwrap();
    assert_eq!(version(&table, A), None);
}

/// A reader that found a record in the file puts it in while the writer commits and publishes a newer one.
///
/// The file is the least that a file can be: what it shows to a reader is ordered by nothing but the count of
/// changes.
fn filled() {
    let (table, file) = (table(), Arc::new(AtomicU64::new(1)));
    let filler = {
        let (table, file) = (Arc::clone(&table), Arc::clone(&file));
        thread::spawn(move || cold_hit(&table, &file))
    };
    let reader = {
        let table = Arc::clone(&table);
        thread::spawn(move || {
            let first = version(&table, A).unwrap_or(0);
            let second = version(&table, A).unwrap_or(first);
            assert!(second >= first, "broken promise: {second} after {first}");
        })
    };
    file.store(2, Ordering::Relaxed);
    table.publish(A, record(A, 2));
    filler.join().unwrap();
    reader.join().unwrap();
    assert_eq!(version(&table, A), Some(2), "broken promise: an older record came back");
}

/// The same while the record is displaced behind its publish, so that nothing newer stands in the way.
fn filled_after_a_displacement() {
    let (table, file) = (table(), Arc::new(AtomicU64::new(1)));
    let filler = {
        let (table, file) = (Arc::clone(&table), Arc::clone(&file));
        thread::spawn(move || cold_hit(&table, &file))
    };
    file.store(2, Ordering::Relaxed);
    table.publish(A, record(A, 2));
    table.publish(B, record(B, 1));
    table.publish(C, record(C, 1));
    filler.join().unwrap();
    assert!(matches!(version(&table, A), None | Some(2)), "broken promise: an older record came back");
}

/// A record is taken out of the file, and withdrawn before and after: a filler does not bring it back.
fn filled_beside_a_removal() {
    let (table, file) = (table(), Arc::new(AtomicU64::new(1)));
    table.publish(A, record(A, 1));
    let filler = {
        let (table, file) = (Arc::clone(&table), Arc::clone(&file));
        thread::spawn(move || cold_hit(&table, &file))
    };
    removed(&table, &file);
    filler.join().unwrap();
    assert_eq!(version(&table, A), None, "broken promise: a removed record came back");
}

/// What whoever takes a record out of the file has to do.
fn removed(table: &Table, file: &AtomicU64) {
    table.withdraw(A);
    file.store(0, Ordering::Relaxed);
    table.withdraw(A);
}

/// What the engine does when memory has missed: stamp, snapshot, fill.
fn cold_hit(table: &Table, file: &AtomicU64) {
    let stamp = table.stamp(A);
    match file.load(Ordering::Relaxed) {
        0 => {}
        version => table.fill(A, record(A, version), stamp),
    }
}

/// The quick ones first.
const CASES: [(&str, fn()); 7] = [
    ("withdrawn", withdrawn),
    ("filled_after_a_displacement", filled_after_a_displacement),
    ("filled_beside_a_removal", filled_beside_a_removal),
    ("never_older", never_older),
    ("displaced", displaced),
    ("filled", filled),
    ("replaced", replaced),
];

#[test]
fn every_promise_holds_in_every_interleaving() {
    for (name, case) in CASES {
        let start = std::time::Instant::now();
        explored(case);
        println!("{name}: {:.1?}", start.elapsed());
    }
}

/// Each ordering is needed: without it a case breaks its promise.
#[test]
fn every_forgotten_ordering_is_missed() {
    let mistakes = [
        Mistake::ReaderBegins,
        Mistake::ReaderFence,
        Mistake::WriterFence,
        Mistake::WriterEnds,
        Mistake::Stamp,
        Mistake::Change,
    ];
    let unnoticed: Vec<Mistake> = mistakes
        .into_iter()
        .filter(|mistake| !CASES.into_iter().any(|(_, case)| breaks(Some(*mistake), case)))
        .collect();
    assert!(unnoticed.is_empty(), "nobody notices {unnoticed:?}");
}

/// What the callers have to do is needed too: the stamp before the snapshot, and the second withdrawal.
#[test]
fn every_mistake_of_a_caller_is_missed() {
    for (name, case) in [("stamped late", stamped_late as fn()), ("withdrawn once", withdrawn_once)] {
        assert!(breaks(None, case), "nobody notices: {name}");
    }
}

fn stamped_late() {
    let (table, file) = (table(), Arc::new(AtomicU64::new(1)));
    let filler = {
        let (table, file) = (Arc::clone(&table), Arc::clone(&file));
        thread::spawn(move || {
            let version = file.load(Ordering::Relaxed);
            let stamp = table.stamp(A);
            if version > 0 {
                table.fill(A, record(A, version), stamp);
            }
        })
    };
    removed(&table, &file);
    filler.join().unwrap();
    assert_eq!(version(&table, A), None, "broken promise: a removed record came back");
}

fn withdrawn_once() {
    let (table, file) = (table(), Arc::new(AtomicU64::new(1)));
    table.publish(A, record(A, 1));
    let filler = {
        let (table, file) = (Arc::clone(&table), Arc::clone(&file));
        thread::spawn(move || cold_hit(&table, &file))
    };
    table.withdraw(A);
    file.store(0, Ordering::Relaxed);
    filler.join().unwrap();
    assert_eq!(version(&table, A), None, "broken promise: a removed record came back");
}

/// Whether a case breaks its promise, with one ordering forgotten or none.
fn breaks(mistake: Option<Mistake>, case: fn()) -> bool {
    // A thread of its own: a model that fails leaves loom as it was.
    let explored = std::thread::spawn(move || {
        mistake.map(order::forget);
        catch_unwind(AssertUnwindSafe(|| explored(case))).err().map(text)
    });
    let failure = explored.join().unwrap_or_else(|panic| Some(text(panic)));
    failure.is_some_and(|failure| failure.contains("broken promise"))
}

fn text(panic: Box<dyn std::any::Any + Send>) -> String {
    match panic.downcast::<String>() {
        Ok(text) => *text,
        Err(panic) => panic.downcast_ref::<&str>().map_or_else(String::new, |text| (*text).to_owned()),
    }
}
