//! Time comes from the injected clock alone; a clock that jumps makes nothing expire and nothing run again.

use std::time::Duration;

use onecho::testing::{ManualClock, SimDisk};
use onecho::{AfterExpiry, Body, Options, Policy, Reply, Status, Store, Timestamp};

use crate::common::*;

const MINUTE: Duration = Duration::from_secs(60);
const DAY: Duration = Duration::from_secs(86_400);
const MILLI: Duration = Duration::from_millis(1);
const SETTLE: Duration = Duration::from_secs(600);
const HOURLY: Policy =
    Policy::new().body_window(MINUTE).key_window(Duration::from_secs(3_600)).tombstone_window(DAY);

fn options(clock: &ManualClock, after: AfterExpiry) -> Options {
    Options::new().clock(clock.clone()).operation(&PAY, HOURLY.after_expiry(after))
}

/// A store, one command run at noon, and then its clock a year ahead: in the process, or over a reopen.
fn jumped(reopens: bool, after: AfterExpiry) -> (Store, ManualClock, SimDisk) {
    let (clock, disk) = (ManualClock::at(NOON), SimDisk::seeded(1));
    let mut store = disk.open(options(&clock, after)).unwrap();
    done(store.execute(&request("k"), counted));
    if reopens {
        store.close().unwrap();
    }
    clock.set_wall(NOON.after(365 * DAY));
    if reopens {
        store = disk.open(options(&clock, after)).unwrap();
    }
    (store, clock, disk)
}

fn is_expired(store: &Store) -> bool {
    match store.execute(&request("k"), never).unwrap() {
        Reply::Replay(_) => false,
        Reply::Expired { .. } => true,
        other => panic!("{other:?}"),
    }
}

/// C094: after a jump forward above `clock_jump_max`, in the process or at opening, nothing expires by the
/// jump; time goes on from before it, and what is written is not written in the future.
#[test]
fn a_jump_makes_nothing_expire() {
    for reopens in [false, true] {
        let (store, clock, _) = jumped(reopens, AfterExpiry::Reject);
        assert!(store.stats().clock_suspect);
        assert!(matches!(replay(store.execute(&request("k"), never)).body, Body::Present(_)));
        assert_eq!(done(store.execute(&request("meanwhile"), counted)).at, NOON);
        clock.advance(MINUTE - MILLI);
        assert!(matches!(replay(store.execute(&request("k"), never)).body, Body::Present(_)));
        clock.advance(MILLI);
        assert!(matches!(replay(store.execute(&request("k"), never)).body, Body::Trimmed { .. }));
    }
}

/// A jump up to `clock_jump_max` is believed at once; one millisecond more is not.
#[test]
fn a_small_jump_is_believed() {
    for (jump, suspect) in [(7 * DAY, false), (7 * DAY + MILLI, true)] {
        let (store, clock, _) = at_noon(Options::new().operation(&PAY, HOURLY));
        done(store.execute(&request("k"), counted));
        clock.set_wall(NOON.after(jump));
        assert_eq!(store.stats().clock_suspect, suspect);
        let at = done(store.execute(&request("now"), counted)).at;
        assert_eq!(at, if suspect { NOON } else { NOON.after(jump) });
    }
}

/// A clock that keeps step for `clock_settle` is believed again, and then what is over is over.
#[test]
fn a_jump_settles() {
    for reopens in [false, true] {
        let (store, clock, _) = jumped(reopens, AfterExpiry::Reject);
        assert!(!is_expired(&store));
        clock.advance(SETTLE - MILLI);
        assert!(store.stats().clock_suspect && !is_expired(&store));
        clock.advance(MILLI);
        assert!(!store.stats().clock_suspect && is_expired(&store));
    }
}

/// A clock that jumps about does not settle, and one that comes back is believed at once.
#[test]
fn an_unsteady_clock_does_not_settle() {
    let (store, clock, _) = jumped(false, AfterExpiry::Reject);
    for n in 0..10_u32 {
        assert!(!is_expired(&store));
        clock.advance(SETTLE / 2);
        clock.set_wall(NOON.after((366 + n) * DAY));
    }
    // All the while time went on at the pace of the monotonic clock: 50 minutes.
    assert!(store.stats().clock_suspect);
    clock.set_wall(NOON.after(10 * SETTLE / 2));
    assert!(!store.stats().clock_suspect);
    assert_eq!(done(store.execute(&request("now"), counted)).at, NOON.after(10 * SETTLE / 2));
}

/// `confirm_clock` believes a jump at once; on a clock that is believed it changes nothing.
#[test]
fn a_jump_can_be_confirmed() {
    let (store, clock, _) = jumped(false, AfterExpiry::RunAsNew);
    assert!(store.stats().clock_suspect);
    store.confirm_clock();
    store.confirm_clock();
    assert!(!store.stats().clock_suspect);
    assert_eq!(done(store.execute(&request("k"), counted)).generation, 2);
    assert_eq!(done(store.execute(&request("now"), counted)).at, clock_now(&clock));
}

fn clock_now(clock: &ManualClock) -> Timestamp {
    use onecho::Clock as _;
    clock.now()
}

/// A jump that settled by itself runs nothing anew: for `RunAsNew`, and for forgetting, the windows of what
/// was written before begin again. `status` says the same as `execute`, also after another opening.
#[test]
fn a_jump_that_settled_by_itself_runs_nothing() {
    for (after, held) in [(AfterExpiry::RunAsNew, Duration::from_secs(3_600)), (AfterExpiry::Reject, DAY)] {
        for reopens in [false, true] {
            let (mut store, clock, disk) = jumped(reopens, after);
            assert!(!is_expired(&store));
            clock.advance(SETTLE);
            assert!(is_expired(&store));
            assert!(matches!(store.status(request("k").scope()).unwrap(), Status::Tombstone { .. }));
            done(store.execute(&request("new"), counted));
            store.close().unwrap();
            store = disk.open(options(&clock, after)).unwrap();
            clock.advance(held - MILLI);
            assert!(is_expired(&store));
            clock.advance(MILLI);
            assert_eq!(done(store.execute(&request("k"), counted)).generation, 2);
        }
    }
}

/// The closure of a held key is not even called when the settling happens with the very call.
#[test]
fn a_settling_call_runs_nothing() {
    let (store, clock, _) = jumped(false, AfterExpiry::RunAsNew);
    assert!(!is_expired(&store));
    clock.advance(SETTLE);
    assert!(is_expired(&store)); // `is_expired` would panic in the closure
}

/// C096: a clock that goes back stops nothing: time goes on from where it was, and stored times never
/// decrease.
#[test]
fn a_clock_that_goes_back_stops_nothing() {
    for reopens in [false, true] {
        let (clock, disk) = (ManualClock::at(NOON), SimDisk::seeded(1));
        let mut store = disk.open(options(&clock, AfterExpiry::Reject)).unwrap();
        let mut last = NOON;
        done(store.execute(&request("k"), counted));
        let backs = [NOON.0 - 3_600_000, NOON.0 - 86_400_000, 1, 0];
        for (n, back) in backs.into_iter().enumerate() {
            clock.set_wall(Timestamp(back));
            if reopens {
                store.close().unwrap();
                store = disk.open(options(&clock, AfterExpiry::Reject)).unwrap();
            }
            clock.advance(SECOND);
            let at = done(store.execute(&request(&n.to_string()), counted)).at;
            assert!(at >= last && at <= NOON.after(4 * SECOND), "{at}");
            if !reopens {
                assert_eq!(at, NOON.after(SECOND * (u32::try_from(n).unwrap() + 1)));
            }
            last = at;
        }
        clock.advance(MINUTE);
        assert!(matches!(replay(store.execute(&request("k"), never)).body, Body::Trimmed { .. }));
        clean(&store);
    }
}

/// C096: whatever the wall clock shows, and while a command runs: no panic, waits stay finite, the command
/// ends, and no finished command runs again.
#[test]
fn the_ends_of_time_run_nothing_again() {
    for start in [Timestamp(0), NOON, Timestamp(u64::MAX)] {
        let (clock, disk) = (ManualClock::at(start), SimDisk::seeded(1));
        let store = disk.open(options(&clock, AfterExpiry::Reject).default_policy(patient())).unwrap();
        done(store.execute(&request("k"), counted));
        for (n, wall) in [0, u64::MAX, 1, u64::MAX - 1, NOON.0, u64::MAX].into_iter().enumerate() {
            let gate = Gate::new();
            std::thread::scope(|scope| {
                let running = scope.spawn(|| {
                    store.execute(&request(&n.to_string()), |fx| {
                        gate.pass();
                        counted(fx)
                    })
                });
                gate.arrived(1);
                clock.set_wall(Timestamp(wall));
                match store.execute(&request(&n.to_string()).wait(Duration::ZERO), never).unwrap() {
                    Reply::InProgress { retry_after, .. } => {
                        assert!(retry_after > Duration::ZERO && retry_after <= SECOND)
                    }
                    other => panic!("{other:?}"),
                }
                gate.open();
                done(running.join().unwrap());
            });
            let reply = store.execute(&request("k"), never).unwrap();
            assert!(
                matches!(reply, Reply::Replay(_)),
                "nothing has settled, so nothing has expired: {reply:?}"
            );
        }
        clean(&store);
    }
}

/// A wall clock that shows the end of time until it is believed expires what has a window, and runs nothing
/// again whose tombstone is for ever.
#[test]
fn the_end_of_time_settles_without_harm() {
    for after in [AfterExpiry::Reject, AfterExpiry::RunAsNew] {
        let (clock, disk) = (ManualClock::at(NOON), SimDisk::seeded(1));
        let policy = HOURLY.tombstone_window(Duration::MAX).after_expiry(after);
        let store = disk.open(Options::new().clock(clock.clone()).operation(&PAY, policy)).unwrap();
        done(store.execute(&request("k"), counted));
        clock.set_wall(Timestamp(u64::MAX));
        assert!(!is_expired(&store));
        clock.advance(SETTLE);
        assert!(is_expired(&store));
        clock.advance(365 * DAY);
        assert!(is_expired(&store));
        assert_eq!(applied(&store), 1);
    }
}

/// C095: with a clock that stands still nothing expires, however often it is read.
#[test]
fn a_frozen_clock_expires_nothing() {
    let (store, _, _) =
        at_noon(Options::new().operation(&PAY, Policy::new().body_window(MILLI).key_window(MILLI)));
    let first = done(store.execute(&request("k"), counted));
    for _ in 0..1_000 {
        assert_eq!(replay(store.execute(&request("k"), never)), first);
    }
}
