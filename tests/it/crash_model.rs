//! What a store should show, as plain maps: fed by what was asked and what was answered, never by the
//! engine's code.
//!
//! [`Action`] is the program under test, once as a closure for the store ([`run`]) and once, written apart,
//! as changes of maps ([`Model::does`]). [`Model`] follows the log of a crash test; [`Model::expect`] says
//! what the next answer must be.

use std::collections::{BTreeMap, BTreeSet};

use onecho::*;
use sha2::{Digest as _, Sha256};

pub const TENANTS: [Tenant; 2] = [Tenant::new("north"), Tenant::new("south")];
/// In place of a tenant: rows of all of them.
const SHARED: usize = 2;
const COUNTS: Kind<i64> = Kind::counter("count");
const STOCK: Kind<i64> = Kind::counter("stock").shared();
const ORDERS: Kind<String> = Kind::json("order");
const NOTES: Kind<i64> = Kind::json("note");
const EVENTS: Kind<String> = Kind::bincode("event");
const BLOBS: Kind<Bytes> = Kind::raw("blob");

/// Kinds of commands by how long their records last, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Op {
    Lasting,
    /// Expires and runs as new.
    Rerun,
    /// Expires, is refused, and is forgotten at last.
    Reject,
}

impl Op {
    pub const ALL: [Self; 3] = [Self::Lasting, Self::Rerun, Self::Reject];

    pub fn operation(self) -> Operation {
        Operation::new(match self {
            Self::Lasting => "lasting",
            Self::Rerun => "rerun",
            Self::Reject => "reject",
        })
    }

    /// Body, key and tombstone window.
    pub fn windows(self) -> (u64, u64, u64) {
        match self {
            Self::Lasting => (86_400_000, 30 * 86_400_000, u64::MAX),
            Self::Rerun => (1_000, 2_000, u64::MAX),
            Self::Reject => (1_000, 2_000, 4_000),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    Add {
        id: &'static str,
        by: i64,
    },
    /// From a counter of all tenants, never below zero.
    Stock {
        by: i64,
    },
    /// Creates, takes a cart, counts.
    Order {
        id: String,
        cart: String,
    },
    /// Reads; removes and releases, or refuses.
    Cancel {
        id: String,
        cart: String,
    },
    Put {
        id: String,
        fill: u8,
        len: usize,
    },
    /// Reads and writes.
    Bump {
        id: &'static str,
    },
    Event {
        id: &'static str,
        time: u64,
    },
    Drop {
        id: &'static str,
        time: u64,
    },
    Refuse,
    /// A refusal that counts itself, whose body is not kept.
    Attempt,
    Abort,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    pub id: u64,
    pub tenant: usize,
    pub op: Op,
    pub key: String,
    pub action: Action,
}

type ScopeKey = (usize, Op, String);

impl Call {
    pub fn scope(&self) -> ScopeKey {
        (self.tenant, self.op, self.key.clone())
    }

    pub fn request(&self) -> Request {
        let key = Key::parse(&self.key).unwrap();
        Request::new(&TENANTS[self.tenant], &self.op.operation(), &key).bytes("body", self.label())
    }

    pub fn label(&self) -> String {
        format!("{:?}", self.action)
    }
}

/// The program: what a command does, said to the store.
pub fn run(call: &Call, fx: &mut Effects<'_, '_>) -> Result<Outcome, BoxError> {
    let mut outcome = Outcome::succeeded(200);
    match &call.action {
        Action::Add { id, by } => assert!(fx.add(&COUNTS, id, *by, i64::MIN)?),
        Action::Stock { by } => {
            if !fx.add(&STOCK, "s", *by, 0)? {
                outcome = Outcome::failed(409).with_effects();
            }
        }
        Action::Order { id, cart } => {
            let order = fx.create(&ORDERS, id, &format!("order of {cart}"))?;
            fx.unique("cart", cart, &order)?;
            fx.add(&COUNTS, "orders", 1, i64::MIN)?;
            outcome = Outcome::succeeded(201).resource(&order);
        }
        Action::Cancel { id, cart } => {
            if fx.get(&ORDERS, id)?.is_some() {
                fx.remove(&ORDERS, id)?;
                fx.release("cart", cart, &ORDERS.at(id))?;
                fx.add(&COUNTS, "orders", -1, i64::MIN)?;
            } else {
                outcome = Outcome::failed(404);
            }
        }
        Action::Put { id, fill, len } => {
            fx.put(&BLOBS, id, &Bytes::from(vec![*fill; *len]))?;
        }
        Action::Bump { id } => {
            let value = fx.get(&NOTES, id)?.map_or(0, |row| row.value);
            fx.put(&NOTES, id, &(value + 1))?;
        }
        Action::Event { id, time } => {
            fx.put_if_newer(&EVENTS, id, Timestamp(*time), &format!("at {time}"))?;
        }
        Action::Drop { id, time } => fx.remove_if_newer(&EVENTS, id, Timestamp(*time))?,
        Action::Refuse => outcome = Outcome::failed(402),
        Action::Attempt => {
            fx.add(&COUNTS, "attempts", 1, i64::MIN)?;
            outcome = Outcome::failed(401).with_effects().body_not_kept();
        }
        Action::Abort => return Err("the program gave up".into()),
    }
    Ok(outcome.meta("call", call.label()).body(format!("answer to {}", call.label())))
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    Text(String),
    Number(i64),
    Bytes(Vec<u8>),
    /// A row that events write; without a text it is removed, and its time stays.
    Event(u64, Option<String>),
}

type RowKey = (usize, &'static str, String);

/// Everything that a look at the rows can show.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shown {
    pub rows: BTreeMap<RowKey, Value>,
    /// Tenant and cart, and the order that has it.
    pub held: BTreeMap<(usize, String), String>,
}

/// What must be on record for a scope.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rec {
    label: String,
    code: u16,
    failed: bool,
    is_kept: bool,
    resource: Option<String>,
    at: u64,
    generation: u32,
}

/// What a command would do now.
pub enum Does {
    Finish(Rec, Vec<(RowKey, Value)>, Option<Taken>),
    Duplicate(&'static str, String),
    Abort,
}

/// An order that comes with its cart, or goes.
pub struct Taken {
    is_taken: bool,
    order: RowKey,
    cart: (usize, String),
}

/// What the answer must be.
#[derive(Debug)]
pub enum Expect {
    Done,
    Replay,
    Mismatch,
    Expired,
    Duplicate(&'static str, String),
    Aborted,
}

/// What a caller was told.
#[derive(Clone, Debug)]
pub enum Answer {
    Reply(Reply),
    Error(ErrorKind),
}

/// One line of what happened.
#[derive(Clone, Debug)]
pub enum Event {
    Issued(Call),
    Answered(Call, Answer),
    Clock(u64),
}

#[derive(Clone, Debug, Default)]
pub struct Model {
    pub now: u64,
    pub records: BTreeMap<ScopeKey, Rec>,
    pub shown: Shown,
    /// Entries of the journal.
    pub entries: u64,
    /// Who was told `Done`: at most one a generation.
    done: BTreeSet<(ScopeKey, u32)>,
    /// Asked and not answered, in the order of asking.
    pub doubtful: Vec<Call>,
}

impl Model {
    /// Of a new store.
    pub fn at(now: u64) -> Self {
        Self { now, ..Self::default() }
    }

    /// The state after a log. With `is_alone` the commands came one after another, so that each answer was
    /// determined.
    pub fn after(start: u64, log: &[Event], is_alone: bool) -> Self {
        let mut model = Self::at(start);
        for event in log {
            match event {
                Event::Clock(now) => model.now = *now,
                Event::Issued(call) => model.doubtful.push(call.clone()),
                Event::Answered(call, answer) => {
                    model.doubtful.retain(|open| open.id != call.id);
                    model.answered(call, answer, is_alone);
                }
            }
        }
        model
    }

    /// Takes an answer in, after checking that it is a right one.
    pub fn answered(&mut self, call: &Call, answer: &Answer, is_determined: bool) {
        if is_determined {
            self.agrees(call, answer);
        }
        match answer {
            Answer::Reply(Reply::Done(finished)) => {
                let first = self.done.insert((call.scope(), finished.generation));
                assert!(first, "two callers were told that they ran {call:?}");
                self.learn(call, finished, true);
            }
            Answer::Reply(Reply::Replay(finished)) if self.is_free(call) => {
                self.learn(call, finished, false);
            }
            Answer::Reply(Reply::Replay(finished)) => self.same(call, finished, false),
            _ => {}
        }
    }

    /// The time that a log ends with.
    pub fn after_clock(start: u64, log: &[Event]) -> u64 {
        let times = log.iter().rev().filter_map(|event| match event {
            Event::Clock(now) => Some(*now),
            _ => None,
        });
        times.take(1).last().unwrap_or(start)
    }

    /// Whether the outcome is of a run that the model does not know.
    pub fn is_newer(&self, call: &Call, finished: &Finished) -> bool {
        self.records.get(&call.scope()).is_none_or(|known| known.generation < finished.generation)
    }

    /// Whether a command under the scope would run now.
    pub fn is_free(&self, call: &Call) -> bool {
        let Some(record) = self.records.get(&call.scope()) else { return true };
        let (_, key, tombstone) = call.op.windows();
        self.now >= record.at.saturating_add(tombstone)
            || call.op == Op::Rerun && self.now >= record.at.saturating_add(key)
    }

    /// The answer that the call must get now.
    pub fn expect(&self, call: &Call) -> Expect {
        if self.is_free(call) {
            return match self.does(call, None) {
                Does::Finish(..) => Expect::Done,
                Does::Duplicate(kind, id) => Expect::Duplicate(kind, id),
                Does::Abort => Expect::Aborted,
            };
        }
        let record = &self.records[&call.scope()];
        if self.now >= record.at.saturating_add(call.op.windows().1) {
            Expect::Expired
        } else if record.label == call.label() {
            Expect::Replay
        } else {
            Expect::Mismatch
        }
    }

    fn agrees(&self, call: &Call, answer: &Answer) {
        let expected = self.expect(call);
        let agrees = match (&expected, answer) {
            (Expect::Done, Answer::Reply(Reply::Done(_)))
            | (Expect::Replay, Answer::Reply(Reply::Replay(_)))
            | (Expect::Mismatch, Answer::Reply(Reply::Mismatch { in_flight: false, .. }))
            | (Expect::Aborted, Answer::Error(ErrorKind::Aborted)) => true,
            (Expect::Expired, Answer::Reply(Reply::Expired { failed, code, at, .. })) => {
                let record = &self.records[&call.scope()];
                (record.failed, record.code, record.at) == (*failed, *code, at.0)
            }
            (Expect::Duplicate(kind, id), Answer::Reply(Reply::Duplicate { held, .. })) => {
                held.kind == *kind && held.id == *id
            }
            _ => false,
        };
        assert!(agrees, "{call:?} was answered {answer:?}, not {expected:?}");
    }

    /// The call has run: so says `finished`. Changes the rows as the command must have.
    pub fn learn(&mut self, call: &Call, finished: &Finished, is_first: bool) {
        if self.records.get(&call.scope()).is_some_and(|known| known.generation == finished.generation) {
            return self.same(call, finished, is_first);
        }
        match self.does(call, Some(finished.failed)) {
            Does::Finish(record, rows, taken) => {
                self.records.insert(call.scope(), record);
                self.shown.rows.extend(rows);
                if let Some(taken) = taken {
                    self.take(call, taken);
                }
                self.entries += 1;
            }
            Does::Duplicate(kind, id) => panic!("{call:?} has run although {kind}/{id} was in its way"),
            Does::Abort => panic!("{call:?} is on record although its closure failed"),
        }
        self.same(call, finished, is_first);
    }

    fn take(&mut self, call: &Call, taken: Taken) {
        if taken.is_taken {
            let text = format!("order of {}", taken.cart.1);
            self.shown.held.insert(taken.cart, taken.order.2.clone());
            self.shown.rows.insert(taken.order, Value::Text(text));
        } else {
            self.shown.rows.remove(&taken.order);
            let held = self.shown.held.remove(&taken.cart);
            assert_eq!(held, Some(taken.order.2), "the model of {call:?} lost a cart");
        }
    }

    /// What the command does to the rows as they are. `refused` says what a counter told it, where that is
    /// known already.
    fn does(&self, call: &Call, refused: Option<bool>) -> Does {
        let own = |kind, id: &str| (call.tenant, kind, id.to_owned());
        let number = |key: &RowKey| match self.shown.rows.get(key) {
            Some(Value::Number(number)) => *number,
            _ => 0,
        };
        let plus = |key: RowKey, by: i64| {
            let sum = number(&key) + by;
            (key, Value::Number(sum))
        };
        let (mut code, mut taken, mut rows) = (200, None, Vec::new());
        match &call.action {
            Action::Add { id, by } => rows.push(plus(own("count", id), *by)),
            Action::Stock { by } => {
                let key = (SHARED, "stock", "s".to_owned());
                if refused.unwrap_or(number(&key) + by < 0) {
                    code = 409;
                } else {
                    rows.push(plus(key, *by));
                }
            }
            Action::Order { id, cart } => {
                if self.shown.rows.contains_key(&own("order", id)) {
                    return Does::Duplicate("order", id.clone());
                }
                let cart = (call.tenant, cart.clone());
                if let Some(holder) = self.shown.held.get(&cart).filter(|holder| *holder != id) {
                    return Does::Duplicate("order", holder.clone());
                }
                rows.push(plus(own("count", "orders"), 1));
                taken = Some(Taken { is_taken: true, order: own("order", id), cart });
                code = 201;
            }
            Action::Cancel { id, cart } => {
                if self.shown.rows.contains_key(&own("order", id)) {
                    rows.push(plus(own("count", "orders"), -1));
                    let cart = (call.tenant, cart.clone());
                    taken = Some(Taken { is_taken: false, order: own("order", id), cart });
                } else {
                    code = 404;
                }
            }
            Action::Put { id, fill, len } => rows.push((own("blob", id), Value::Bytes(vec![*fill; *len]))),
            Action::Bump { id } => rows.push(plus(own("note", id), 1)),
            Action::Event { id, time } | Action::Drop { id, time } => {
                let is_put = matches!(call.action, Action::Event { .. });
                let known = match self.shown.rows.get(&own("event", id)) {
                    Some(Value::Event(known, _)) => Some(*known),
                    _ => None,
                };
                if known.is_none_or(|known| known < *time) {
                    let text = is_put.then(|| format!("at {time}"));
                    rows.push((own("event", id), Value::Event(*time, text)));
                }
            }
            Action::Refuse => code = 402,
            Action::Attempt => {
                rows.push(plus(own("count", "attempts"), 1));
                code = 401;
            }
            Action::Abort => return Does::Abort,
        }
        Does::Finish(self.record(call, code), rows, taken)
    }

    fn record(&self, call: &Call, code: u16) -> Rec {
        let before = self.records.get(&call.scope());
        let resource = match &call.action {
            Action::Order { id, .. } => Some(id.clone()),
            _ => None,
        };
        Rec {
            label: call.label(),
            code,
            failed: code >= 400,
            is_kept: call.action != Action::Attempt,
            resource,
            at: self.now,
            generation: before.map_or(1, |before| before.generation + 1),
        }
    }

    /// An outcome as told now must be the recorded one, byte for byte.
    pub fn same(&self, call: &Call, finished: &Finished, is_first: bool) {
        let record = &self.records[&call.scope()];
        let (body_window, key_window, _) = call.op.windows();
        assert_eq!(record.label, call.label(), "the outcome of another request");
        let told = (finished.code, finished.failed, finished.at.0, finished.generation);
        assert_eq!(told, (record.code, record.failed, record.at, record.generation), "{call:?}");
        let resource = finished.resource.as_ref().map(|made| (made.kind.as_str(), made.id.as_str()));
        assert_eq!(resource, record.resource.as_ref().map(|id| ("order", id.as_str())), "{call:?}");
        let until = (finished.body_until.0, finished.key_until.0);
        assert_eq!(until, (record.at + body_window, record.at + key_window), "{call:?}");
        let metadata: Vec<(&str, &[u8])> = finished.metadata().collect();
        assert_eq!(metadata, [("call", record.label.as_bytes())]);
        let body = format!("answer to {}", record.label);
        let is_whole = is_first || record.is_kept && self.now < record.at + body_window;
        match &finished.body {
            Body::Present(bytes) => {
                assert!(is_whole, "{call:?}: a body that must be gone");
                assert_eq!(bytes[..], *body.as_bytes(), "{call:?}");
            }
            Body::Trimmed { digest, len } | Body::NotKept { digest, len } => {
                assert!(!is_whole, "{call:?}: the body is gone");
                assert_eq!(matches!(finished.body, Body::Trimmed { .. }), record.is_kept, "{call:?}");
                let sha: [u8; 32] = Sha256::digest(&body).into();
                assert_eq!((digest.0, *len), (sha, body.len() as u64), "{call:?}");
            }
        }
    }

    /// Whether the scope's status is what the model says.
    pub fn is_status(&self, call: &Call, status: &Status) {
        match (self.records.get(&call.scope()), status) {
            (None, Status::Absent) => {}
            (Some(record), Status::Absent) => {
                assert!(self.now >= record.at.saturating_add(call.op.windows().2), "{call:?} is forgotten");
            }
            (Some(record), Status::Finished(finished)) => {
                assert!(self.now < record.at + call.op.windows().1, "{call:?} has not expired");
                // A request that came later under the same key is no other scope.
                let made = Call { action: call.action.clone(), ..call.clone() };
                if record.label == call.label() {
                    self.same(&made, finished, false);
                }
            }
            (Some(record), Status::Tombstone { failed, code, at, .. }) => {
                assert_eq!((record.failed, record.code, record.at), (*failed, *code, at.0), "{call:?}");
                assert!(self.now >= record.at + call.op.windows().1, "{call:?} has expired early");
            }
            (record, status) => panic!("{call:?}: {status:?}, and the model has {record:?}"),
        }
    }
}

/// What the store shows of its rows.
pub fn shown(store: &Store, carts: &BTreeSet<String>) -> Shown {
    let mut shown = Shown::default();
    for (at, tenant) in TENANTS.iter().enumerate() {
        for row in store.scan(tenant, &COUNTS, "").chain(store.scan(tenant, &NOTES, "")) {
            let row = row.unwrap();
            let kind = if row.id.starts_with("note") { "note" } else { "count" };
            shown.rows.insert((at, kind, row.id), Value::Number(row.value));
        }
        for row in store.scan(tenant, &ORDERS, "").map(Result::unwrap) {
            shown.rows.insert((at, "order", row.id), Value::Text(row.value));
        }
        for row in store.scan(tenant, &EVENTS, "").map(Result::unwrap) {
            let time = row.event_time.unwrap().0;
            shown.rows.insert((at, "event", row.id), Value::Event(time, Some(row.value)));
        }
        for row in store.scan(tenant, &BLOBS, "").map(Result::unwrap) {
            shown.rows.insert((at, "blob", row.id), Value::Bytes(row.value.to_vec()));
        }
        for cart in carts {
            if let Some(holder) = store.holder(tenant, "cart", cart).unwrap() {
                assert_eq!(holder.kind, "order");
                shown.held.insert((at, cart.clone()), holder.id.into());
            }
        }
    }
    for row in store.scan(&TENANTS[0], &STOCK, "").map(Result::unwrap) {
        shown.rows.insert((SHARED, "stock", row.id), Value::Number(row.value));
    }
    shown
}

impl Shown {
    /// Rows that a look shows: all but the traces of removed ones.
    pub fn visible(&self) -> Self {
        let mut shown = self.clone();
        shown.rows.retain(|_, value| !matches!(value, Value::Event(_, None)));
        shown
    }
}
