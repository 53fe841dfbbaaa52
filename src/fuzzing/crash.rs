//! Any bytes as a workload, a fault in it, and the power cuts after it.

use super::Input;
use crate::testing::{Fault, ManualClock, SimDisk};
use crate::{
    Body, CommitMode, ErrorKind, Key, Kind, Operation, Options, Outcome, Policy, Reply, Request, Scope,
    Status, Store, Tenant, Timestamp,
};

const TENANT: Tenant = Tenant::new("t");
const OPERATION: Operation = Operation::new("pay");
const PAYMENTS: Kind<u64> = Kind::bincode("payment");
const TOTAL: Kind<i64> = Kind::counter("total");
/// The longest workload, in commands.
const COMMANDS_MAX: u8 = 12;
/// States that are opened for one input.
const STATES_MAX: u64 = 24;

/// Whatever a power cut leaves, a store opens on it that holds every acknowledged command whole, at most the
/// one that was not answered beside them, and nothing in part.
///
/// # Panics
///
/// When it does not.
pub fn crash(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let disk = SimDisk::seeded(input.number());
    let mode = if input.below(4) == 0 { CommitMode::OnePhase } else { CommitMode::TwoPhase };
    let fault = match input.below(8) {
        0 => Some(Fault::Sync),
        1 => Some(Fault::Write),
        2 => Some(Fault::Read),
        _ => None,
    };
    let fault_after = u64::from(input.byte());
    let commands = 1 + input.below(COMMANDS_MAX);
    let store = open(&disk, mode);
    disk.record();
    if let Some(fault) = fault {
        disk.fail(fault, fault_after);
    }
    let mut begun = 0;
    for number in 0..commands {
        let len = usize::from(input.byte()) * 16;
        begun += 1;
        if !pay(&store, number, len) {
            break;
        }
        disk.mark();
    }
    disk.heal();
    let log = disk.recorded();
    for state in log.crash_states(STATES_MAX) {
        let store = open(&state.disk, mode);
        whole(&store, state.marks, begun);
    }
}

fn open(disk: &SimDisk, mode: CommitMode) -> Store {
    let options = Options::small_device()
        .cache_bytes(256 << 10)
        .reserve_bytes(0)
        .commit_mode(mode)
        .default_policy(Policy::new())
        .clock(ManualClock::at(Timestamp(1_000_000_000_000)));
    disk.open(options).unwrap()
}

fn request(number: u8) -> Request {
    let key = Key::parse(&number.to_string()).unwrap();
    Request::new(&TENANT, &OPERATION, &key).bytes("body", [number])
}

/// True when it was acknowledged.
fn pay(store: &Store, number: u8, len: usize) -> bool {
    let paid = store.execute(&request(number), |fx| {
        fx.create(&PAYMENTS, &number.to_string(), &(len as u64))?;
        fx.add(&TOTAL, "all", 1 << number, 0)?;
        Ok(Outcome::succeeded(201).body(vec![number; len]))
    });
    match paid {
        Ok(Reply::Done(_)) => true,
        Ok(other) => panic!("a new command is answered {other:?}"),
        Err(error) => {
            assert!(matches!(error.kind(), ErrorKind::CommitUncertain | ErrorKind::Unavailable), "{error}");
            false
        }
    }
}

/// Commands `0..acknowledged` are there, `begun..` are not, and each that is there is there with its effects.
fn whole(store: &Store, acknowledged: u64, begun: u8) {
    let report = store.verify().unwrap();
    assert!(report.is_clean(), "{report:?}");
    let mut total = 0;
    for number in 0..COMMANDS_MAX {
        let scope: Scope = request(number).scope().clone();
        let row = store.get(&TENANT, &PAYMENTS, &number.to_string()).unwrap();
        match store.status(&scope).unwrap() {
            Status::Finished(finished) => {
                assert!(number < begun, "a command that was never given is there");
                let len = row.unwrap().value;
                let body = vec![number; usize::try_from(len).unwrap()];
                assert_eq!(finished.body, Body::Present(body.into()), "an outcome changed");
                total += 1 << number;
            }
            Status::Absent => {
                assert!(u64::from(number) >= acknowledged, "an acknowledged command is gone");
                assert!(row.is_none(), "an effect without its command");
            }
            other => panic!("a command is {other:?}"),
        }
    }
    let counted = store.get(&TENANT, &TOTAL, "all").unwrap().map_or(0, |row| row.value);
    assert_eq!(counted, total, "the counter counts other commands than there are");
}
