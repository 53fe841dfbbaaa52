//! A power cut at any moment of a hand-over and of an import: a tenant is handed over or it is not, it has
//! arrived or it has not, never half; and whatever was cut can be said again and ends the same.

use std::time::Duration;

use onecho::testing::{CrashTest, ManualClock, SimDisk};
use onecho::{
    Begin, Contract, Destination, ErrorKind, Message, Options, Policy, Refused, Reply, Start, Store,
};

use crate::common::{NOON, SHOP, applied, counted, done, never, request, seed};

const PUSH: Destination<String> = Destination::json("push", Contract::Idempotent);
const KEYS: usize = 4;

fn options(name: &str) -> Options {
    let policy = Policy::new().wait(Duration::ZERO);
    Options::new().owner(name).clock(ManualClock::at(NOON)).default_policy(policy).reserve_bytes(0)
}

fn south() -> Options {
    options("south").owns_nothing()
}

fn work(store: &Store) {
    for number in 0..KEYS {
        done(store.execute(&request(&format!("k{number}")), counted));
    }
    let Ok(Begin::Run(claim)) = store.begin(&request("open"), Start::new()) else { panic!("it is free") };
    claim.unsure("no answer").unwrap();
    let push = |text: &str| Message::new(&PUSH, &text.to_owned()).unwrap().ordered_by("o");
    store.enqueue(&SHOP, &[push("a"), push("b")]).unwrap();
}

fn is_refused(store: &Store) -> bool {
    match store.execute(&request("probe"), |_| Err("only asked".into())) {
        Ok(Reply::Refused(Refused::NotAuthoritative { .. })) => true,
        Err(error) if error.kind() == ErrorKind::Aborted => false,
        other => panic!("{other:?}"),
    }
}

/// All of it is there, once.
fn whole(store: &Store) {
    for number in 0..KEYS {
        assert!(store.execute(&request(&format!("k{number}")), never).unwrap().is_replay());
    }
    assert!(matches!(store.execute(&request("open"), never), Ok(Reply::Unknown { .. })));
    assert_eq!((applied(store), store.stats().open, store.messages().count()), (KEYS as i64, 1, 2));
}

fn exported(store: &Store) -> Vec<u8> {
    let mut stream = Vec::new();
    store.export(&SHOP, &mut stream).unwrap();
    stream
}

#[test]
fn a_hand_over_is_whole_after_every_power_cut() {
    let report = CrashTest::new(options("north"), seed(41)).states_max(600).run(
        |store, acknowledged| {
            work(store);
            acknowledged.push(false);
            store.hand_over(&SHOP, "south", "Ada").unwrap();
            acknowledged.push(true);
        },
        |store, acknowledged| {
            let refused = is_refused(store);
            if acknowledged.contains(&true) {
                assert!(refused, "a hand-over that was acknowledged is gone");
            }
            if acknowledged.is_empty() {
                return;
            }
            if !refused {
                whole(store);
            }
            // Whether it was done or not, it can be said again.
            store.hand_over(&SHOP, "south", "Ada").unwrap();
            assert!(is_refused(store));
            let other = SimDisk::seeded(5).open(south()).unwrap();
            other.import(&exported(store)[..], "Ada").unwrap();
            whole(&other);
        },
    );
    assert!(report.states > 100, "{report:?}");
}

#[test]
fn an_import_is_whole_or_owns_nothing_after_every_power_cut() {
    let north = SimDisk::seeded(6).open(options("north")).unwrap();
    work(&north);
    north.hand_over(&SHOP, "south", "Ada").unwrap();
    let stream = exported(&north);
    let report = CrashTest::new(south(), seed(43)).states_max(600).run(
        |store, acknowledged| {
            store.import(&stream[..], "Ada").unwrap();
            acknowledged.push(());
        },
        |store, acknowledged| {
            let refused = is_refused(store);
            assert!(acknowledged.is_empty() || !refused, "an import that was acknowledged is gone");
            if !refused {
                whole(store);
            }
            assert_eq!(store.import(&stream[..], "Ada").unwrap().epoch, 1);
            whole(store);
        },
    );
    assert!(report.states > 100, "{report:?}");
}
