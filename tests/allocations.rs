//! A hit in memory allocates nothing. A binary of its own: the counting allocator is the whole process's.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]
#![allow(missing_docs, reason = "a test")]

use std::hint::black_box;

use allocation_counter::measure;
use onecho::testing::SimDisk;
use onecho::{Key, Operation, Options, Outcome, Policy, ReplayBuffer, Request, Store, Tenant};

const PAY: Operation = Operation::new("pay");
/// More than a tenth of a second of hits, so that the clock is looked at closely among them.
const LOOKS: usize = 2_000_000;

fn request(key: &str) -> Request {
    Request::new(&Tenant::new("shop"), &PAY, &Key::parse(key).unwrap())
        .bytes("method", "POST")
        .json("body", r#"{ "cents": 5 }"#)
}

fn store(policies: bool) -> Store {
    let options = if policies { Options::new().operation(&PAY, Policy::new()) } else { Options::new() };
    SimDisk::seeded(1).open(options).unwrap()
}

fn allocations(work: impl FnOnce()) -> u64 {
    measure(work).count_total
}

#[test]
fn the_counter_counts() {
    assert!(allocations(|| drop(black_box(vec![1_u8, 2]))) > 0);
}

#[test]
fn a_hit_allocates_nothing() {
    for policies in [false, true] {
        let store = store(policies);
        let request = request("k");
        let body = vec![7; 512];
        let made = |_: &mut onecho::Effects<'_, '_>| {
            Ok(Outcome::succeeded(201).meta("location", "/orders/17").body(body.clone()))
        };
        store.execute(&request, made).unwrap().into_finished().unwrap();
        let mut buffer = ReplayBuffer::new();
        // A thread takes its stripe of the counters when it first counts.
        assert!(store.peek_into(&request, &mut buffer).is_some());
        let counted = allocations(|| {
            for _ in 0..LOOKS {
                let receipt = store.peek_receipt(&request).unwrap();
                let outcome = store.peek_into(&request, &mut buffer).unwrap();
                assert_eq!(outcome.receipt(), receipt);
                assert_eq!(outcome.body().len(), 512);
                assert_eq!(outcome.meta("location"), Some(&b"/orders/17"[..]));
            }
        });
        assert_eq!(counted, 0);
        assert_eq!(store.stats().answered_from_memory, 2 * LOOKS as u64 + 1);
    }
}

#[test]
fn a_miss_allocates_nothing_either() {
    let store = store(false);
    let (known, unknown) = (request("k"), request("never asked"));
    let other = request("k").bytes("more", "");
    store.execute(&known, |_| Ok(Outcome::succeeded(201))).unwrap().into_finished().unwrap();
    let mut buffer = ReplayBuffer::new();
    let mut look = || {
        for request in [&unknown, &other] {
            assert!(store.peek_receipt(request).is_none());
            assert!(store.peek_into(request, &mut buffer).is_none());
        }
    };
    look(); // the first use of a request hashes it
    assert_eq!(allocations(look), 0);
}

/// To remember what has run, and what a reader has found in the file, takes the memory that was taken at the
/// opening: with an index and without one, a command makes as many blocks.
#[test]
fn to_remember_a_record_allocates_nothing() {
    let counted = |replay_bytes| {
        let (disk, request) = (SimDisk::seeded(1), request("k"));
        let open = || disk.open(Options::new().replay_bytes(replay_bytes)).unwrap();
        let made = |_: &mut onecho::Effects<'_, '_>| {
            Ok(Outcome::succeeded(201).meta("location", "/orders/17").body(vec![7; 512]))
        };
        let run = |store: &Store| allocations(|| drop(black_box(store.execute(&request, made).unwrap())));
        let store = open();
        let published = run(&store);
        drop(store);
        let store = open();
        let filled = run(&store);
        let remembered = store.peek_receipt(&request).is_some();
        (published, filled, remembered)
    };
    counted(0); // the first use of a request hashes it, a thread takes its stripe of the counters
    let (published, filled, remembered) = counted(1 << 20);
    assert!(published > 0 && filled > 0 && remembered);
    assert_eq!(counted(0), (published, filled, false));
}
