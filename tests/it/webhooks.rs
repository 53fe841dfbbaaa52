//! Real webhooks, delivered three times over, shuffled, from sixteen threads, to a process that is killed again
//! and again: each job is done once, nothing that was acknowledged is lost, and no older event overwrites a
//! newer one.
//!
//! `tests/fixtures/webhooks.csv` has the ids, kinds and lengths of 329 deliveries; `ONECHO_WEBHOOKS` names a
//! file of whole ones, a JSON object with `webhook_id` and `event` a line, to be used in their place.

#![allow(clippy::disallowed_macros, reason = "the seed of a failure has to be seen")]
#![allow(clippy::disallowed_methods, reason = "the child's threads end with it")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::Duration;

use onecho::{
    Contract, Destination, Inbox, Key, Kind, Message, MessageState, Options, Reply, Scope, Status, Store,
    Tenant, Timestamp, Workers,
};
use serde::{Deserialize, Serialize};

use crate::common::{NOON, Numbers, PATIENT, clean, seed};

const MIRROR: Tenant = Tenant::new("mirror");
const HOOKS: Inbox = Inbox::new("forge", "mirror");
const JOBS: Destination<Hook> = Destination::json("mirror-jobs", Contract::Idempotent);
/// What was last heard of each kind of event.
const NEWEST: Kind<String> = Kind::json("newest");
const RUNS: Kind<i64> = Kind::counter("runs");

const THREADS: usize = 16;
const DELIVERIES: usize = 3;
const KILLS: usize = 12;
/// Names the store to a child.
const CHILD: &str = "ONECHO_WEBHOOKS_CHILD";

/// One webhook, as its receiver stores it.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Hook {
    id: String,
    event: String,
    at: u64,
}

impl Hook {
    fn new(id: &str, event: &str) -> Self {
        let spread = id.bytes().fold(7_u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(byte)));
        Self { id: id.to_owned(), event: event.to_owned(), at: NOON.0 + spread % 1_000_000 }
    }

    fn accept(&self, store: &Store, content: &[u8]) -> Reply {
        let event = HOOKS.event(&self.id).unwrap().content(content).time(Timestamp(self.at));
        let millisecond = Duration::from_millis(1);
        let job = Message::new(&JOBS, self).unwrap().backoff(millisecond..=millisecond * 8);
        store.accept(&MIRROR, &event.stream(&self.event), job.ordered_by(&self.event)).unwrap()
    }
}

/// All hooks, each with what it says.
fn hooks() -> Vec<(Hook, Vec<u8>)> {
    let Ok(whole) = std::env::var("ONECHO_WEBHOOKS") else {
        let text = include_str!("../fixtures/webhooks.csv");
        let rows = text.lines().skip(1).map(|line| {
            let [id, event, bytes] = line.split(',').collect::<Vec<_>>()[..] else { panic!("{line}") };
            let content = id.bytes().cycle().take(bytes.parse().unwrap()).collect();
            (Hook::new(id, event), content)
        });
        return rows.collect();
    };
    let text = fs::read_to_string(whole).unwrap();
    let rows = text.lines().map(|line| {
        let hook: serde_json::Value = serde_json::from_str(line).unwrap();
        let field = |name: &str| hook[name].as_str().unwrap().to_owned();
        (Hook::new(&field("webhook_id"), &field("event")), line.as_bytes().to_vec())
    });
    rows.collect()
}

fn workers(store: &Store) -> Workers {
    Workers::new(store).threads(2).handle(&JOBS, |hook, delivery, fx| {
        let time = delivery.event_time().ok_or("no event time")?;
        assert_eq!(delivery.event_id(), Some(hook.id.as_str()));
        fx.add(&RUNS, &hook.id, 1, i64::MIN)?;
        fx.put_if_newer(&NEWEST, &hook.event, time, &hook.id)?;
        Ok(())
    })
}

/// The receiver: not a test of its own, but what the one below starts.
#[test]
fn receiver() {
    let Ok(db) = std::env::var(CHILD) else { return };
    let path = PathBuf::from(db);
    let store = Store::open_or_create(&path, Options::new()).unwrap();
    let running = workers(&store).start().unwrap();
    let mut numbers = Numbers::from(u64::from(std::process::id()));
    let mut deliveries: Vec<(Hook, Vec<u8>)> = Vec::new();
    for _ in 0..DELIVERIES {
        deliveries.extend(hooks());
    }
    for last in (1..deliveries.len()).rev() {
        let other = usize::try_from(numbers.below(last as u64 + 1)).unwrap();
        deliveries.swap(last, other);
    }
    let answers = OpenOptions::new().append(true).create(true).open(answers_of(&path)).unwrap();
    let answers = Mutex::new(answers);
    let (receiver, answers) = (&store, &answers);
    std::thread::scope(|scope| {
        for part in deliveries.chunks(deliveries.len().div_ceil(THREADS)) {
            scope.spawn(move || {
                for (hook, content) in part {
                    let reply = hook.accept(receiver, content);
                    assert!(matches!(reply, Reply::Done(_) | Reply::Replay(_)), "{reply:?}");
                    let line = format!("{}\n", hook.id);
                    answers.lock().unwrap().write_all(line.as_bytes()).unwrap();
                }
            });
        }
    });
    while store.stats().messages_waiting > 0 {
        std::thread::park_timeout(Duration::from_millis(1));
    }
    running.stop(PATIENT).unwrap();
    store.close().unwrap();
}

fn answers_of(db: &Path) -> PathBuf {
    db.with_extension("answers")
}

fn start(db: &Path) -> Child {
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "webhooks::receiver", "--nocapture"]).env(CHILD, db);
    child.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

/// The ids that were acknowledged: whole lines only.
fn acknowledged(db: &Path) -> Vec<String> {
    let text = fs::read_to_string(answers_of(db)).unwrap_or_default();
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    whole.lines().map(str::to_owned).collect()
}

#[test]
fn webhooks_that_come_three_times_are_each_done_once_whatever_is_killed() {
    let mut numbers = Numbers::from(seed(17));
    let directory = tempfile::tempdir().unwrap();
    let db = directory.path().join("hooks.onecho");
    for kill in 0..KILLS {
        let goal = acknowledged(&db).len() + 1 + usize::try_from(numbers.below(300)).unwrap();
        let mut child = start(&db);
        while acknowledged(&db).len() < goal {
            let ended = child.try_wait().unwrap();
            assert!(ended.is_none(), "the receiver ended by itself before kill {kill}: {ended:?}");
            std::thread::park_timeout(Duration::from_micros(200));
        }
        child.kill().unwrap(); // SIGKILL
        child.wait().unwrap();
        are_known(&db);
    }
    assert!(start(&db).wait().unwrap().success());
    let store = Store::open(&db, Options::new()).unwrap();
    are_done_once(&store);
    refuses_what_is_altered(&store);
    clean(&store);
    println!("{KILLS} kills, {} answers", acknowledged(&db).len());
}

/// Looks into a copy: the file itself stays as the kill left it.
fn are_known(db: &Path) {
    let copy = db.with_extension("copy");
    fs::copy(db, &copy).unwrap();
    let store = Store::open(&copy, Options::new().reserve_bytes(0)).unwrap();
    for id in acknowledged(db).into_iter().collect::<BTreeSet<_>>() {
        let scope = Scope { tenant: MIRROR, operation: HOOKS.operation(), key: Key::parse(&id).unwrap() };
        let Status::Finished(finished) = store.status(&scope).unwrap() else { panic!("{id} is lost") };
        assert!(store.message(finished.messages[0]).unwrap().is_some(), "the job of {id} is lost");
    }
    store.close().unwrap();
    fs::remove_file(copy).unwrap();
}

fn are_done_once(store: &Store) {
    let hooks = hooks();
    let states: Vec<MessageState> = store.messages().map(|item| item.unwrap().1).collect();
    assert_eq!(states.len(), hooks.len());
    assert!(states.iter().all(|state| matches!(state, MessageState::Delivered { .. })), "{states:?}");
    let runs: BTreeMap<String, i64> =
        store.scan(&MIRROR, &RUNS, "").map(|row| row.unwrap()).map(|row| (row.id, row.value)).collect();
    assert_eq!(runs, hooks.iter().map(|(hook, _)| (hook.id.clone(), 1)).collect());
    let mut newest: BTreeMap<&str, &Hook> = BTreeMap::new();
    for (hook, _) in &hooks {
        let known = newest.entry(&hook.event).or_insert(hook);
        if hook.at > known.at {
            *known = hook;
        }
    }
    for (event, hook) in newest {
        let row = store.get(&MIRROR, &NEWEST, event).unwrap().unwrap();
        assert_eq!((row.event_time, &row.value), (Some(Timestamp(hook.at)), &hook.id), "{event}");
    }
    assert_eq!(store.stats().records, hooks.len() as u64);
}

/// Another content under a known id is no repeat, and nothing runs for it.
fn refuses_what_is_altered(store: &Store) {
    for (hook, mut content) in hooks() {
        assert!(hook.accept(store, &content).is_replay());
        content.push(b'!');
        assert!(matches!(hook.accept(store, &content), Reply::Mismatch { .. }));
    }
    assert_eq!(store.messages().count(), hooks().len());
    let stats = store.stats();
    assert_eq!((stats.inbox_duplicate, stats.inbox_conflict), (329, 329));
}
