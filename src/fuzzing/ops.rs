//! Any bytes as a sequence of calls, compared with a map.

use std::collections::BTreeMap;
use std::time::Duration;

use super::Input;
use crate::testing::{ManualClock, SimDisk};
use crate::{
    Body, BoxError, Effects, ErrorKind, Finished, Key, Kind, Operation, Options, Outcome, Policy, Reply,
    Request, ResourceRef, Scope, Status, Store, Tenant, Timestamp,
};

const NOTES: Kind<String> = Kind::json("note");
const COUNTS: Kind<i64> = Kind::counter("count");
const STOCK: Kind<i64> = Kind::counter("stock").shared();
const TENANTS: [Tenant; 2] = [Tenant::new("a"), Tenant::new("b")];
const OPERATIONS: [Operation; 2] = [Operation::new("x"), Operation::new("y")];
const BODY_WINDOW: Duration = Duration::from_secs(3600);
const KEY_WINDOW: Duration = Duration::from_secs(3 * 3600);
/// The longest sequence that is run.
const CALLS_MAX: usize = 48;

/// Calls answer as a map does, across closing, power cuts and time; the file verifies whenever it is looked
/// at.
///
/// # Panics
///
/// When they do not.
pub fn ops(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let clock = ManualClock::at(Timestamp(1_000_000_000_000));
    let mut disk = SimDisk::seeded(input.number());
    let mut store = open(&disk, &clock);
    let mut model = Model::default();
    let mut calls = 0;
    while !input.is_empty() && calls < CALLS_MAX {
        calls += 1;
        match input.below(16) {
            0 => {
                store.close().unwrap();
                store = open(&disk, &clock);
            }
            1 => {
                disk = disk.crash();
                store = open(&disk, &clock);
            }
            2 => clock.advance(Duration::from_secs(u64::from(input.byte()) * 60)),
            3 => model.agrees_with(&store, clock.now_is()),
            _ => model.call(&store, &Call::read(&mut input), clock.now_is()),
        }
    }
    model.agrees_with(&store, clock.now_is());
}

impl ManualClock {
    fn now_is(&self) -> Timestamp {
        crate::Clock::now(self)
    }
}

fn open(disk: &SimDisk, clock: &ManualClock) -> Store {
    let policy = Policy::new().body_window(BODY_WINDOW).key_window(KEY_WINDOW);
    let options = Options::small_device()
        .cache_bytes(256 << 10)
        .reserve_bytes(4096)
        .default_policy(policy)
        .clock(clock.clone())
        .clock_jump_max(Duration::from_secs(u64::from(u32::MAX)));
    disk.open(options).unwrap()
}

/// One `execute`, as the input chose it.
struct Call {
    tenant: Tenant,
    scope: Scope,
    body: u8,
    effect: u8,
    id: String,
    amount: i64,
}

impl Call {
    fn read(input: &mut Input<'_>) -> Self {
        let who = input.byte();
        let tenant = TENANTS[usize::from(who & 1)].clone();
        let operation = OPERATIONS[usize::from(who >> 1 & 1)].clone();
        let key = Key::parse(&format!("k{}", who >> 2 & 3)).unwrap();
        let scope = Scope { tenant: tenant.clone(), operation, key };
        let what = input.byte();
        let amount = i64::from(input.byte()) - 100;
        Self {
            tenant,
            scope,
            body: what & 1,
            effect: what >> 1 & 7,
            id: format!("i{}", what >> 4 & 3),
            amount,
        }
    }

    fn request(&self) -> Request {
        let Scope { tenant, operation, key } = &self.scope;
        Request::new(tenant, operation, key).bytes("body", [self.body])
    }

    fn run(&self, fx: &mut Effects<'_, '_>) -> Result<Outcome, BoxError> {
        let text = self.amount.to_string();
        match self.effect {
            0 => drop(fx.create(&NOTES, &self.id, &text)?),
            1 => drop(fx.put(&NOTES, &self.id, &text)?),
            2 => fx.remove(&NOTES, &self.id)?,
            3 if !fx.add(&COUNTS, &self.id, self.amount, 0)? => return Ok(Outcome::failed(409)),
            4 => drop(fx.add(&STOCK, &self.id, self.amount, i64::MIN)?),
            5 => fx.unique("name", &text, &NOTES.at(&self.id))?,
            6 => fx.release("name", &text, &NOTES.at(&self.id))?,
            7 => return Err("no".into()),
            _ => {}
        }
        Ok(Outcome::succeeded(200).body(text))
    }
}

/// What a store should say.
#[derive(Default)]
struct Model {
    records: BTreeMap<Scope, Recorded>,
    notes: BTreeMap<(Tenant, String), String>,
    /// Counters; the tenant of a shared one is `None`.
    counts: BTreeMap<(Option<Tenant>, String), i64>,
    names: BTreeMap<(Tenant, String), ResourceRef>,
}

struct Recorded {
    at: Timestamp,
    asked: u8,
    code: u16,
    body: String,
}

impl Model {
    fn call(&mut self, store: &Store, call: &Call, now: Timestamp) {
        let known = self.records.get(&call.scope);
        let answered = store.execute(&call.request(), |fx| {
            assert!(known.is_none(), "a recorded command runs again");
            call.run(fx)
        });
        if let Some(known) = known {
            return known.answers(&answered.unwrap(), call.body, now);
        }
        match self.effect(call) {
            Expected::Done(code) => {
                let body = if code == 200 { call.amount.to_string() } else { String::new() };
                let Reply::Done(finished) = answered.unwrap() else { panic!("a free scope did not run") };
                assert_eq!((finished.code, &finished.body), (code, &Body::Present(body.clone().into())));
                let recorded = Recorded { at: now, asked: call.body, code, body };
                self.records.insert(call.scope.clone(), recorded);
            }
            Expected::Duplicate => assert!(matches!(answered, Ok(Reply::Duplicate { .. })), "{answered:?}"),
            Expected::Aborted => assert_eq!(answered.unwrap_err().kind(), ErrorKind::Aborted),
        }
    }

    /// Does to the maps what the closure asks of the store.
    fn effect(&mut self, call: &Call) -> Expected {
        let own = (call.tenant.clone(), call.id.clone());
        let text = call.amount.to_string();
        match call.effect {
            0 if self.notes.contains_key(&own) => return Expected::Duplicate,
            0 | 1 => drop(self.notes.insert(own, text)),
            2 => drop(self.notes.remove(&own)),
            3 => {
                let count =
                    self.counts.get(&(Some(call.tenant.clone()), call.id.clone())).copied().unwrap_or(0);
                if count + call.amount < 0 {
                    return Expected::Done(409);
                }
                self.counts.insert((Some(call.tenant.clone()), call.id.clone()), count + call.amount);
            }
            4 => *self.counts.entry((None, call.id.clone())).or_default() += call.amount,
            5 => {
                let holder = NOTES.at(&call.id);
                let held = self.names.entry((call.tenant.clone(), text)).or_insert_with(|| holder.clone());
                if *held != holder {
                    return Expected::Duplicate;
                }
            }
            6 => {
                let name = (call.tenant.clone(), text);
                if self.names.get(&name) == Some(&NOTES.at(&call.id)) {
                    self.names.remove(&name);
                }
            }
            _ => return Expected::Aborted,
        }
        Expected::Done(200)
    }

    fn agrees_with(&self, store: &Store, now: Timestamp) {
        let report = store.verify().unwrap();
        assert!(report.is_clean(), "{report:?}");
        assert_eq!(report.records, self.records.len() as u64);
        for (scope, recorded) in &self.records {
            match store.status(scope).unwrap() {
                Status::Finished(finished) => recorded.is(&finished, now),
                Status::Tombstone { code, .. } => {
                    assert_eq!(code, recorded.code);
                    assert!(now >= recorded.at.after(KEY_WINDOW), "a key expired early");
                }
                other => panic!("a record is gone: {other:?}"),
            }
        }
        for tenant in &TENANTS {
            for id in ["i0", "i1", "i2", "i3"] {
                let own = (tenant.clone(), id.to_owned());
                let note = store.get(tenant, &NOTES, id).unwrap().map(|row| row.value);
                assert_eq!(note.as_ref(), self.notes.get(&own));
                let count = store.get(tenant, &COUNTS, id).unwrap().map(|row| row.value);
                assert_eq!(count, self.counts.get(&(Some(tenant.clone()), own.1.clone())).copied());
                let stock = store.get(tenant, &STOCK, id).unwrap().map(|row| row.value);
                assert_eq!(stock, self.counts.get(&(None, own.1)).copied());
            }
        }
        for ((tenant, name), holder) in &self.names {
            assert_eq!(store.holder(tenant, "name", name).unwrap().as_ref(), Some(holder));
        }
    }
}

enum Expected {
    Done(u16),
    Duplicate,
    Aborted,
}

impl Recorded {
    fn answers(&self, reply: &Reply, asked: u8, now: Timestamp) {
        match reply {
            Reply::Expired { code, digest, .. } => {
                assert_eq!(*code, self.code);
                assert_eq!(digest.is_some(), asked == self.asked, "a digest is told to another request");
                assert!(now >= self.at.after(KEY_WINDOW), "a key expired early");
            }
            Reply::Replay(finished) => {
                assert_eq!(asked, self.asked, "another request got the outcome");
                self.is(finished, now);
            }
            Reply::Mismatch { .. } => assert_ne!(asked, self.asked, "the same request is a mismatch"),
            other => panic!("a recorded command is answered {other:?}"),
        }
    }

    fn is(&self, finished: &Finished, now: Timestamp) {
        assert!(now < self.at.after(KEY_WINDOW), "a key outlived its window");
        assert_eq!((finished.code, finished.at), (self.code, self.at));
        match &finished.body {
            Body::Present(body) => {
                assert_eq!(body, self.body.as_bytes());
                assert!(now < self.at.after(BODY_WINDOW), "a body outlived its window");
            }
            Body::Trimmed { len, .. } => {
                assert_eq!(*len, self.body.len() as u64);
                assert!(now >= self.at.after(BODY_WINDOW), "a body was trimmed early");
            }
            Body::NotKept { .. } => panic!("a kept body was not kept"),
        }
    }
}
