//! Random commands of several tenants, operations and keys against a plain map: every answer, every row and
//! every uniqueness is what the map says, through reopening, in both scope modes.

use std::collections::BTreeMap;
use std::time::Duration;

use onecho::testing::{ManualClock, SimDisk};
use onecho::{
    Effects, Error, ErrorKind, Operation, Options, Outcome, Policy, Reply, Request, ScopeMode, Store, Tenant,
};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use crate::common::*;

const TENANTS: [Tenant; 2] = [SHOP, OTHER_SHOP];
const OPERATIONS: [Operation; 2] = [PAY, REFUND];
const KEY_WINDOW: u64 = 60_000;

#[derive(Clone, Debug)]
enum Change {
    Create(u8, u8),
    Put(u8, u8),
    Remove(u8),
    /// Adds, and remembers in the outcome whether it could.
    Add(u8, i8),
    Unique(u8, u8),
    Release(u8, u8),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    Succeed,
    Fail,
    FailWithEffects,
    Abort,
}

#[derive(Clone, Debug)]
struct Asked {
    tenant: usize,
    operation: usize,
    key: u8,
    body: u8,
    changes: Vec<Change>,
    end: End,
}

#[derive(Clone, Debug)]
enum Act {
    One(Asked),
    Many(Vec<Asked>),
    Advance(u32),
    Reopen,
}

fn asked() -> impl Strategy<Value = Asked> {
    let change = prop_oneof![
        (0..4_u8, any::<u8>()).prop_map(|(id, value)| Change::Create(id, value)),
        (0..4_u8, any::<u8>()).prop_map(|(id, value)| Change::Put(id, value)),
        (0..4_u8).prop_map(Change::Remove),
        (0..2_u8, -4..6_i8).prop_map(|(id, by)| Change::Add(id, by)),
        (0..3_u8, 0..3_u8).prop_map(|(value, holder)| Change::Unique(value, holder)),
        (0..3_u8, 0..3_u8).prop_map(|(value, holder)| Change::Release(value, holder)),
    ];
    let end = prop_oneof![
        6 => Just(End::Succeed), 1 => Just(End::Fail), 1 => Just(End::FailWithEffects), 1 => Just(End::Abort)
    ];
    (0..2_usize, 0..2_usize, 0..4_u8, 0..6_u8, vec(change, 0..4), end).prop_map(
        |(tenant, operation, key, body, changes, end)| Asked {
            tenant,
            operation,
            key,
            body: body / 5,
            changes,
            end,
        },
    )
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let act = prop_oneof![
        8 => asked().prop_map(Act::One),
        3 => vec(asked(), 0..6).prop_map(Act::Many),
        1 => (0..40_000_u32).prop_map(Act::Advance),
        1 => Just(Act::Reopen),
    ];
    vec(act, 1..40)
}

/// What the store should hold.
#[derive(Clone, Default)]
struct Model {
    now: u64,
    mode: ScopeMode,
    /// Operation, body, the outcome's body, whether it failed, and when it was finished.
    records: BTreeMap<(usize, usize, u8), (usize, u8, String, bool, u64)>,
    rows: BTreeMap<(usize, u8), u8>,
    counters: BTreeMap<(usize, u8), i64>,
    held: BTreeMap<(usize, u8), u8>,
}

#[derive(Debug, PartialEq)]
enum Answered {
    Done(String, bool),
    Replay(String, bool),
    Mismatch(Vec<String>),
    Expired(bool),
    Duplicate(String),
    Failed(ErrorKind),
}

impl Model {
    fn answer(&mut self, asked: &Asked) -> Answered {
        let slot = if self.mode == ScopeMode::PerTenant { 0 } else { asked.operation };
        let scope = (asked.tenant, slot, asked.key);
        if let Some((operation, body, told, failed, at)) = self.records.get(&scope) {
            if self.now >= at + KEY_WINDOW {
                return Answered::Expired(*failed);
            }
            let mut parts = Vec::new();
            if *operation != asked.operation {
                parts.push("@operation".to_owned());
            }
            if *body != asked.body {
                parts.push("body".to_owned());
            }
            return if parts.is_empty() {
                Answered::Replay(told.clone(), *failed)
            } else {
                Answered::Mismatch(parts)
            };
        }
        let mut next = self.clone();
        let (mut told, mut taken, mut stages) = (String::new(), None, false);
        for change in &asked.changes {
            let (took, obstacle) = next.apply(asked.tenant, change);
            told.push(if took { '+' } else { '-' });
            taken = taken.or(obstacle);
            stages |= took || !matches!(change, Change::Add(..));
        }
        match asked.end {
            End::Abort => return Answered::Failed(ErrorKind::Aborted),
            End::Fail if stages => return Answered::Failed(ErrorKind::Invalid),
            _ => {}
        }
        if let Some(held) = taken {
            return Answered::Duplicate(held);
        }
        let failed = asked.end != End::Succeed;
        next.records.insert(scope, (asked.operation, asked.body, told.clone(), failed, self.now));
        *self = next;
        Answered::Done(told, failed)
    }

    /// Whether it took place, and what was in its way.
    fn apply(&mut self, tenant: usize, change: &Change) -> (bool, Option<String>) {
        match *change {
            Change::Create(id, _) if self.rows.contains_key(&(tenant, id)) => {
                (true, Some(format!("note/{id}")))
            }
            Change::Create(id, value) | Change::Put(id, value) => {
                self.rows.insert((tenant, id), value);
                (true, None)
            }
            Change::Remove(id) => {
                self.rows.remove(&(tenant, id));
                (true, None)
            }
            Change::Add(id, by) => {
                let sum = self.counters.get(&(tenant, id)).copied().unwrap_or_default() + i64::from(by);
                if sum >= 0 {
                    self.counters.insert((tenant, id), sum);
                }
                (sum >= 0, None)
            }
            Change::Unique(value, holder) => {
                let held = *self.held.entry((tenant, value)).or_insert(holder);
                (true, (held != holder).then(|| format!("note/{held}")))
            }
            Change::Release(value, holder) => {
                if self.held.get(&(tenant, value)) == Some(&holder) {
                    self.held.remove(&(tenant, value));
                }
                (true, None)
            }
        }
    }

    fn check(&self, store: &Store) {
        for (at, tenant) in TENANTS.iter().enumerate() {
            let rows: Vec<_> = store
                .scan(tenant, &NOTES, "")
                .map(|row| row.unwrap())
                .map(|row| (row.id, row.value))
                .collect();
            let of_model = self.rows.iter().filter(|((owner, _), _)| *owner == at);
            assert_eq!(
                rows,
                of_model.map(|((_, id), value)| (id.to_string(), value.to_string())).collect::<Vec<_>>()
            );
            for id in 0..2 {
                let sum = store.get(tenant, &COUNT, &id.to_string()).unwrap().map(|row| row.value);
                assert_eq!(sum, self.counters.get(&(at, id)).copied());
            }
            for value in 0..3 {
                let holder =
                    store.holder(tenant, "seat", &value.to_string()).unwrap().map(|held| held.id.to_string());
                assert_eq!(holder, self.held.get(&(at, value)).map(u8::to_string));
            }
        }
        assert_eq!(store.stats().records, self.records.len() as u64);
        clean(store);
    }
}

fn run(asked: &Asked, fx: &mut Effects<'_, '_>) -> Answer {
    let mut told = String::new();
    for change in &asked.changes {
        let mut took = true;
        match change {
            Change::Create(id, value) => drop(fx.create(&NOTES, &id.to_string(), &value.to_string())?),
            Change::Put(id, value) => drop(fx.put(&NOTES, &id.to_string(), &value.to_string())?),
            Change::Remove(id) => fx.remove(&NOTES, &id.to_string())?,
            Change::Add(id, by) => took = fx.add(&COUNT, &id.to_string(), i64::from(*by), 0)?,
            Change::Unique(value, holder) => {
                fx.unique("seat", &value.to_string(), &NOTES.at(&holder.to_string()))?
            }
            Change::Release(value, holder) => {
                fx.release("seat", &value.to_string(), &NOTES.at(&holder.to_string()))?
            }
        }
        told.push(if took { '+' } else { '-' });
    }
    Ok(match asked.end {
        End::Succeed => Outcome::succeeded(200),
        End::Fail => Outcome::failed(409),
        End::FailWithEffects => Outcome::failed(409).with_effects(),
        End::Abort => return Err("planned".into()),
    }
    .body(told))
}

fn told(answer: Result<Reply, Error>) -> Answered {
    let text = |body| match body {
        onecho::Body::Present(bytes) => String::from_utf8(bytes.to_vec()).unwrap(),
        other => panic!("{other:?}"),
    };
    match answer {
        Ok(Reply::Done(finished)) => Answered::Done(text(finished.body), finished.failed),
        Ok(Reply::Replay(finished)) => Answered::Replay(text(finished.body), finished.failed),
        Ok(Reply::Mismatch { parts, in_flight: false, .. }) => Answered::Mismatch(parts),
        Ok(Reply::Expired { failed, .. }) => Answered::Expired(failed),
        Ok(Reply::Duplicate { held, .. }) => Answered::Duplicate(held.to_string()),
        Ok(other) => panic!("{other:?}"),
        Err(error) => Answered::Failed(error.kind()),
    }
}

fn request_of(asked: &Asked) -> Request {
    Request::new(&TENANTS[asked.tenant], &OPERATIONS[asked.operation], &key(&asked.key.to_string()))
        .bytes("body", [asked.body])
}

fn play(acts: &[Act], mode: ScopeMode) {
    let window = Duration::from_millis(KEY_WINDOW);
    let clock = ManualClock::at(NOON);
    let policy = Policy::new().body_window(window).key_window(window);
    let options = || Options::new().clock(clock.clone()).scope_mode(mode).default_policy(policy).batch_max(3);
    let disk = SimDisk::seeded(1);
    let mut store = disk.open(options()).unwrap();
    let mut model = Model { mode, ..Model::default() };
    for act in acts {
        match act {
            Act::One(asked) => {
                let answer = store.execute(&request_of(asked), |fx| run(asked, fx));
                assert_eq!(told(answer), model.answer(asked), "{asked:?}");
            }
            Act::Many(many) => {
                let commands: Vec<_> = many.iter().map(|asked| (request_of(asked), asked)).collect();
                let answers = store.execute_many(&commands, |asked, fx| run(asked, fx));
                for (answer, asked) in answers.into_iter().zip(many) {
                    assert_eq!(told(answer), model.answer(asked), "{asked:?} of {many:?}");
                }
            }
            Act::Advance(millis) => {
                clock.advance(Duration::from_millis(u64::from(*millis)));
                model.now += u64::from(*millis);
            }
            Act::Reopen => {
                store.close().unwrap();
                store = disk.open(options()).unwrap();
            }
        }
    }
    model.check(&store);
}

#[test]
fn the_store_is_a_map() {
    let seed = seed(20_261_130);
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_be_bytes());
    let config = Config { cases: 300, failure_persistence: None, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &bytes));
    let played = runner.run(&(acts(), any::<bool>()), |(acts, per_tenant)| {
        play(&acts, if per_tenant { ScopeMode::PerTenant } else { ScopeMode::PerOperation });
        Ok(())
    });
    played.unwrap();
}
