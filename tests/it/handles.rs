//! A handle of a store may be kept, shared, closed, reopened and dropped anywhere.

use std::cell::RefCell;
use std::time::Duration;

use onecho::testing::{Fault, ManualClock, SimDisk};
use onecho::{
    AfterExpiry, ErrorKind, Key, Kind, Operation, Options, Outcome, Policy, Reply, Request, Status, Store,
    Tenant, Timestamp,
};

const TENANT: Tenant = Tenant::new("shop");
const ORDER: Operation = Operation::new("order");
const NOTES: Kind<String> = Kind::json("note");

fn request(key: &str) -> Request {
    Request::new(&TENANT, &ORDER, &Key::parse(key).unwrap()).bytes("body", key)
}

fn done(store: &Store, key: &str) {
    let reply = store.execute(&request(key), |_| Ok(Outcome::succeeded(201))).unwrap();
    assert!(matches!(reply, Reply::Done(_)), "{reply:?}");
}

thread_local! {
    static KEPT: RefCell<Option<Store>> = const { RefCell::new(None) };
}

/// The last handle may go when its thread's own variables do.
#[test]
fn a_store_may_be_kept_in_a_thread_local() {
    let disk = SimDisk::seeded(1);
    let store = disk.open(Options::new()).unwrap();
    std::thread::spawn(move || {
        done(&store, "k");
        KEPT.set(Some(store));
    })
    .join()
    .unwrap();
    assert!(disk.open(Options::new()).unwrap().execute(&request("k"), |_| panic!()).unwrap().is_replay());
}

/// What is told of the progress is told to the caller's code, which may not call the store: it could wait for
/// itself.
#[test]
fn the_progress_of_verify_cannot_call_the_store() {
    let store = SimDisk::seeded(1).open(Options::new()).unwrap();
    for number in 0..1_000 {
        done(&store, &format!("k{number}"));
    }
    let mut told = 0;
    let report = store.verify_with(|_, _| {
        told += 1;
        assert_eq!(store.get(&TENANT, &NOTES, "n").unwrap_err().kind(), ErrorKind::Reentrant);
        assert_eq!(store.close().unwrap_err().kind(), ErrorKind::Reentrant);
        assert_eq!(store.reopen().unwrap_err().kind(), ErrorKind::Reentrant);
    });
    assert!(report.unwrap().is_clean() && told > 0);
}

/// A failed commit stops the store while somebody still looks at the file; only the reopen waits for him.
#[test]
fn a_long_look_keeps_nobody_from_being_told() {
    let disk = SimDisk::seeded(1);
    let store = disk.open(Options::new()).unwrap();
    for number in 0..1_000 {
        done(&store, &format!("k{number}"));
    }
    let mut uncertain = None;
    let looked = store.verify_with(|_, _| {
        if uncertain.is_none() {
            disk.fail(Fault::Sync, 0);
            let failed = std::thread::scope(|scope| {
                scope
                    .spawn(|| store.execute(&request("late"), |_| Ok(Outcome::succeeded(201))))
                    .join()
                    .unwrap()
            });
            uncertain = Some(failed.unwrap_err().kind());
        }
    });
    assert_eq!(uncertain, Some(ErrorKind::CommitUncertain));
    drop(looked); // The disk has failed under it: it may end either way.
    store.reopen().unwrap();
    let reply = store.execute(&request("late"), |_| Ok(Outcome::succeeded(201))).unwrap();
    assert!(reply.into_finished().is_ok());
}

/// A disk that said "synced" and had not, and then failed: the file lacks what was acknowledged. Nothing may
/// run again on it as if that had never been.
#[test]
fn a_file_that_lost_what_was_acknowledged_is_not_reopened() {
    let disk = SimDisk::seeded(7);
    let store = disk.open(Options::new()).unwrap();
    done(&store, "kept");
    for _ in 0..20 {
        disk.fail(Fault::LyingSync, 0);
    }
    done(&store, "lost");
    disk.heal();
    disk.fail(Fault::Sync, 0);
    let error = store.execute(&request("uncertain"), |_| Ok(Outcome::succeeded(201))).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::CommitUncertain);
    let error = store.reopen().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OlderCopy, "{error}");
    assert_eq!(store.execute(&request("lost"), |_| panic!()).unwrap_err().kind(), ErrorKind::Unavailable);
}

/// Calls that come more often than once a millisecond let time pass all the same.
#[test]
fn time_passes_however_often_it_is_asked_for() {
    let clock = ManualClock::at(Timestamp(1_000_000));
    let store = SimDisk::seeded(1).open(Options::new().clock(clock.clone())).unwrap();
    clock.set_wall(Timestamp(0)); // Behind: the store goes on by the monotonic clock.
    for _ in 0..4_000 {
        clock.advance(Duration::from_micros(500));
        let _ = store.stats();
    }
    let reply = store.execute(&request("k"), |_| Ok(Outcome::succeeded(200))).unwrap();
    assert_eq!(reply.into_finished().unwrap().at, Timestamp(1_002_000));
}

/// A clock can be confirmed before anything has looked at it.
#[test]
fn a_clock_is_confirmed_though_nobody_has_looked() {
    let clock = ManualClock::at(Timestamp(1_000_000));
    let store = SimDisk::seeded(1).open(Options::new().clock(clock.clone())).unwrap();
    let right = Timestamp(1_000_000).after(Duration::from_secs(365 * 24 * 3600));
    clock.set_wall(right);
    store.confirm_clock();
    assert!(!store.stats().clock_suspect);
    let reply = store.execute(&request("k"), |_| Ok(Outcome::succeeded(200))).unwrap();
    assert_eq!(reply.into_finished().unwrap().at, right);
}

/// Who looks at a key that expired and is being run anew is told that it runs.
#[test]
fn a_key_that_runs_anew_is_processing() {
    let clock = ManualClock::at(Timestamp(1_000_000));
    let second = Duration::from_secs(1);
    let policy = Policy::new().body_window(second).key_window(second).after_expiry(AfterExpiry::RunAsNew);
    let options = Options::new().clock(clock.clone()).operation(&ORDER, policy);
    let store = SimDisk::seeded(1).open(options).unwrap();
    done(&store, "k");
    clock.advance(second);
    let reply = store.execute(&request("k"), |_| {
        let looked = std::thread::scope(|scope| {
            scope.spawn(|| store.status(request("k").scope()).unwrap()).join().unwrap()
        });
        assert!(matches!(looked, Status::Processing { .. }), "{looked:?}");
        Ok(Outcome::succeeded(201))
    });
    assert_eq!(reply.unwrap().into_finished().unwrap().generation, 2);
}

/// A name that no row can have is refused where it is written, and harms nobody else.
#[test]
fn a_reference_too_long_harms_nobody() {
    let store = SimDisk::seeded(1).open(Options::new()).unwrap();
    let huge = NOTES.at(&"x".repeat(20 << 20));
    let error = store.execute(&request("a"), |_| Ok(Outcome::succeeded(201).resource(&huge))).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::LimitExceeded);
    let taken = store.execute(&request("b"), |fx| {
        fx.unique("cart", "c-1", &huge)?;
        Ok(Outcome::succeeded(201))
    });
    assert_eq!(taken.unwrap_err().kind(), ErrorKind::LimitExceeded);
    for key in ["a", "b", "c"] {
        done(&store, key);
    }
}

/// A scan that has begun can be sent behind another id.
#[test]
fn a_scan_that_has_begun_goes_on_where_it_is_told() {
    let store = SimDisk::seeded(1).open(Options::new()).unwrap();
    let reply = store.execute(&request("k"), |fx| {
        for number in 0..10 {
            fx.create(&NOTES, &format!("id{number}"), &String::new())?;
        }
        Ok(Outcome::succeeded(201))
    });
    assert!(reply.unwrap().into_finished().is_ok());
    let mut scan = store.scan(&TENANT, &NOTES, "");
    assert!(scan.next().is_some());
    let ids: Vec<String> = scan.after("id4").map(|row| row.unwrap().id).collect();
    assert_eq!(ids, ["id5", "id6", "id7", "id8", "id9"]);
}

/// What is accepted can be read back.
#[test]
fn a_value_that_could_not_be_read_is_refused() {
    const NUMBERS: Kind<Vec<u64>> = Kind::bincode("numbers");
    const REAL: Kind<f64> = Kind::json("real");
    const TREE: Kind<serde_json::Value> = Kind::json("tree");
    let store = SimDisk::seeded(1).open(Options::new()).unwrap();
    let refused =
        |key: &str, body: &dyn Fn(&mut onecho::Effects<'_, '_>) -> Result<Outcome, onecho::BoxError>| {
            store.execute(&request(key), body).unwrap_err().kind()
        };
    let nested = |levels| (0..levels).fold(serde_json::Value::Null, |inner, _| serde_json::json!([inner]));
    let put_tree = |fx: &mut onecho::Effects<'_, '_>, levels| {
        fx.put(&TREE, "t", &nested(levels))?;
        Ok(Outcome::succeeded(200))
    };
    assert_eq!(
        refused("nan", &|fx| fx
            .put(&REAL, "r", &f64::NAN)
            .map(|_| Outcome::succeeded(200))
            .map_err(Into::into)),
        ErrorKind::Invalid
    );
    assert_eq!(refused("inf", &|_| Ok(Outcome::succeeded(200).json(&f64::INFINITY)?)), ErrorKind::Invalid);
    assert_eq!(refused("deep", &|fx| put_tree(fx, 128)), ErrorKind::Invalid);
    assert!(store.execute(&request("deep"), |fx| put_tree(fx, 127)).unwrap().into_finished().is_ok());
    assert_eq!(store.get(&TENANT, &TREE, "t").unwrap().unwrap().value, nested(127));
    let many = vec![0; 2_100_000];
    let reply = store.execute(&request("many"), |fx| {
        fx.put(&NUMBERS, "n", &many)?;
        Ok(Outcome::succeeded(200))
    });
    assert!(reply.unwrap().into_finished().is_ok());
    assert_eq!(store.get(&TENANT, &NUMBERS, "n").unwrap().unwrap().value, many);
}

/// A policy whose parts no request can have is refused when the store is opened.
#[test]
fn a_choice_of_parts_that_nobody_can_make_is_refused() {
    const TOO_MANY: [&str; 33] = ["p"; 33];
    for parts in [&["@operation"][..], &["a\0b"], &[""], &TOO_MANY, &[]] {
        let policy = Policy::new().compare(onecho::Compare::Parts(parts));
        let error = SimDisk::seeded(1).open(Options::new().default_policy(policy)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{parts:?}");
    }
}
