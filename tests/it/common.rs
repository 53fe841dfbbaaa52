//! What the promise tests share: names, stores on a disk in memory, requests, and answers taken apart.

use std::sync::{Condvar, Mutex};
use std::time::Duration;

use onecho::testing::{ManualClock, SimDisk};
use onecho::{
    BoxError, Effects, Error, ErrorKind, Finished, Key, Kind, Operation, Options, Outcome, Policy, Reply,
    Request, Store, Tenant, Timestamp,
};

pub const SHOP: Tenant = Tenant::new("shop");
pub const OTHER_SHOP: Tenant = Tenant::new("other-shop");
pub const PAY: Operation = Operation::new("pay");
pub const REFUND: Operation = Operation::new("refund");
pub const COUNT: Kind<i64> = Kind::counter("count");
pub const NOTES: Kind<String> = Kind::json("note");
/// Longer than any test takes.
pub const PATIENT: Duration = Duration::from_secs(600);
pub const SECOND: Duration = Duration::from_secs(1);
/// Noon of some day.
pub const NOON: Timestamp = Timestamp(1_796_040_000_000);

pub type Answer = Result<Outcome, BoxError>;

pub fn key(text: &str) -> Key {
    Key::parse(text).unwrap()
}

/// A request of one shop to pay, which asks for what its key says.
pub fn request(text: &str) -> Request {
    asking(text, text)
}

pub fn asking(text: &str, body: &str) -> Request {
    Request::new(&SHOP, &PAY, &key(text)).bytes("body", body)
}

pub fn opened(options: Options) -> Store {
    SimDisk::seeded(1).open(options).unwrap()
}

pub fn store() -> Store {
    opened(Options::new())
}

/// A store whose time stands at noon until it is moved.
pub fn at_noon(options: Options) -> (Store, ManualClock, SimDisk) {
    let clock = ManualClock::at(NOON);
    let disk = SimDisk::seeded(1);
    let store = disk.open(options.clock(clock.clone())).unwrap();
    (store, clock, disk)
}

/// A policy under which callers wait for one another as long as it takes.
pub fn patient() -> Policy {
    Policy::new().wait(PATIENT)
}

/// A closure that counts its calls in a row: the row then tells how often effects were applied.
pub fn counted(fx: &mut Effects<'_, '_>) -> Answer {
    fx.add(&COUNT, "applied", 1, i64::MIN)?;
    Ok(Outcome::succeeded(201).body("counted"))
}

/// How often [`counted`] has been applied for the shop.
pub fn applied(store: &Store) -> i64 {
    store.get(&SHOP, &COUNT, "applied").unwrap().map_or(0, |row| row.value)
}

/// A closure that must not be called.
pub fn never(_: &mut Effects<'_, '_>) -> Answer {
    panic!("the closure of a command that has its answer was called")
}

#[track_caller]
pub fn done(reply: Result<Reply, Error>) -> Finished {
    match reply {
        Ok(Reply::Done(finished)) => finished,
        other => panic!("not done: {other:?}"),
    }
}

#[track_caller]
pub fn replay(reply: Result<Reply, Error>) -> Finished {
    match reply {
        Ok(Reply::Replay(finished)) => finished,
        other => panic!("not a replay: {other:?}"),
    }
}

/// Parts, formatting only, in flight.
#[track_caller]
pub fn mismatch(reply: Result<Reply, Error>) -> (Vec<String>, bool, bool) {
    match reply {
        Ok(Reply::Mismatch { parts, formatting_only, in_flight, .. }) => (parts, formatting_only, in_flight),
        other => panic!("not a mismatch: {other:?}"),
    }
}

#[track_caller]
pub fn fails<T: std::fmt::Debug>(answer: Result<T, Error>, kind: ErrorKind) -> Error {
    let error = answer.unwrap_err();
    assert_eq!(error.kind(), kind, "{error}");
    error
}

#[track_caller]
pub fn note(store: &Store, id: &str) -> Option<String> {
    store.get(&SHOP, &NOTES, id).unwrap().map(|row| row.value)
}

/// Everything in the file agrees.
#[track_caller]
pub fn clean(store: &Store) {
    let report = store.verify().unwrap();
    assert!(report.is_clean(), "{report:?}");
}

/// A gate that holds closures until the test opens it.
#[derive(Default)]
pub struct Gate {
    state: Mutex<(usize, bool)>,
    changed: Condvar,
}

impl Gate {
    pub fn new() -> Self {
        Self::default()
    }

    /// Arrives and waits until the gate is open.
    pub fn pass(&self) {
        let mut state = self.state.lock().unwrap();
        state.0 += 1;
        self.changed.notify_all();
        drop(self.changed.wait_while(state, |state| !state.1).unwrap());
    }

    /// Waits until so many have arrived.
    pub fn arrived(&self, count: usize) {
        let state = self.state.lock().unwrap();
        drop(self.changed.wait_while(state, |state| state.0 < count).unwrap());
    }

    pub fn open(&self) {
        self.state.lock().unwrap().1 = true;
        self.changed.notify_all();
    }
}

/// Gives other threads time to get where they will wait. Nothing depends on whether they do.
pub fn let_others_wait() {
    std::thread::park_timeout(Duration::from_millis(30));
}

/// The seed of a randomised test: `ONECHO_SEED`, or the given one. Printed, so that a failure can be run
/// again.
pub fn seed(usual: u64) -> u64 {
    let seed = std::env::var("ONECHO_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(usual);
    #[expect(clippy::disallowed_macros, reason = "the seed of a failure has to be seen")]
    {
        println!("ONECHO_SEED={seed}");
    }
    seed
}

/// A small generator of numbers, the same for the same seed.
pub struct Numbers(u64);

impl Numbers {
    pub fn from(seed: u64) -> Self {
        Self(seed)
    }

    /// A number below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % end
    }
}
