//! A processor that applies or not, answers or not, late or never; callers in a process that is killed at
//! random; two runners of recovery in it. Each key is charged once at most, and each ends.

use std::collections::{HashMap, HashSet};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use onecho::{
    Begin, BoxError, Claim, Contract, ErrorKind, Evidence, Key, Kind, Operation, Options, Outcome, Policy,
    Reply, Request, Start, Status, Step, Stepped, Store, Takeover, Tenant, Unfinished, Verdict, Workers,
};

use crate::common::{Numbers, seed};

const SHOP: Tenant = Tenant::new("shop");
const CHECKOUT: Operation = Operation::new("checkout");
const CHARGE: Step<u64> = Step::new("charge", Contract::Queryable).settles_within(Duration::from_millis(300));
const ORDERS: Kind<u64> = Kind::json("order");
const CALLERS: usize = 64;
const KEYS: u64 = 10_000;
const KILLS: usize = 12;

/// How late a request may take effect at most: well within what the step declares.
const LATE_MAX_MS: u64 = 100;

/// The other side. It knows no repeats: an id that comes twice is charged twice.
#[derive(Default)]
struct Processor {
    charged: Mutex<HashMap<String, u32>>,
    asked: AtomicU64,
    numbers: Mutex<Option<Numbers>>,
}

impl Processor {
    fn below(&self, end: u64) -> u64 {
        self.numbers.lock().unwrap().as_mut().unwrap().below(end)
    }

    fn apply(&self, id: &str) {
        *self.charged.lock().unwrap().entry(id.to_owned()).or_default() += 1;
    }

    /// Serves one connection: `charge ID` or `query ID`, one answer or none.
    fn serve(self: &Arc<Self>, stream: UnixStream) {
        let mut line = String::new();
        let _ = BufReader::new(&stream).read_line(&mut line);
        let answer = |text: &str| drop((&stream).write_all(text.as_bytes()));
        match line.trim().split_once(' ') {
            Some(("charge", id)) => match self.below(100) {
                0..80 => {
                    self.apply(id);
                    answer("yes\n");
                }
                80..86 => answer("no\n"),
                86..92 => self.apply(id),
                92..96 => {}
                _ => {
                    let (late, id) = (self.below(LATE_MAX_MS), id.to_owned());
                    let processor = Arc::clone(self);
                    thread::spawn(move || {
                        thread::sleep(Duration::from_millis(late));
                        processor.apply(&id);
                    });
                }
            },
            Some(("query", id)) => {
                self.asked.fetch_add(1, Ordering::Relaxed);
                let is_charged = self.charged.lock().unwrap().contains_key(id);
                match self.below(10) {
                    0 => {}
                    _ if is_charged => answer("yes\n"),
                    _ => answer("no\n"),
                }
            }
            _ => {}
        }
    }
}

fn asked(socket: &Path, what: &str) -> Option<bool> {
    let stream = UnixStream::connect(socket).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
    (&stream).write_all(format!("{what}\n").as_bytes()).ok()?;
    let mut line = String::new();
    BufReader::new(&stream).read_line(&mut line).ok()?;
    match line.trim() {
        "yes" => Some(true),
        "no" => Some(false),
        _ => None,
    }
}

fn checkout(mut claim: Claim, socket: &Path) -> Result<(), BoxError> {
    let number: u64 = claim.input()?;
    let _lease = claim.keep_alive();
    let cents = match claim.step(&CHARGE)? {
        Stepped::Answered(cents) => cents,
        Stepped::Call(id) => match asked(socket, &format!("charge {id}")) {
            Some(true) => {
                claim.answer(&CHARGE, &number)?;
                number
            }
            Some(false) => {
                claim.not_applied(&CHARGE, Evidence::new("processor", "declined before it was booked"))?;
                claim.abort("declined")?;
                return Ok(());
            }
            None => return Ok(claim.unsure("no answer")?),
        },
    };
    claim.finish(|fx| {
        let order = fx.create(&ORDERS, &number.to_string(), &cents)?;
        Ok(Outcome::succeeded(201).resource(&order))
    })?;
    Ok(())
}

fn options() -> Options {
    let policy = Policy::new()
        .wait(Duration::ZERO)
        .lease(Duration::from_millis(500))
        .run_max(Duration::from_secs(20))
        .takeover(Takeover::Allowed);
    Options::new().operation(&CHECKOUT, policy)
}

fn request(number: u64) -> Request {
    let key = Key::parse(&format!("cart-{number}")).unwrap();
    Request::new(&SHOP, &CHECKOUT, &key).bytes("cart", number.to_be_bytes())
}

fn workers(store: &Store, socket: &Path) -> Workers {
    let (asking, running) = (socket.to_owned(), socket.to_owned());
    Workers::new(store)
        .threads(2)
        .probe(&CHECKOUT, &CHARGE, move |case, id| {
            let number: u64 = case.input()?;
            Ok(match asked(&asking, &format!("query {id}")) {
                Some(true) => Verdict::Applied(number, Evidence::new("processor", "booked")),
                Some(false) => Verdict::NotApplied(Evidence::new("processor", "not booked")),
                None => Verdict::Insufficient(Evidence::new("processor", "no answer")),
            })
        })
        .resume(&CHECKOUT, move |claim| checkout(claim, &running))
}

/// The process that is killed. Not a test by itself.
#[test]
#[ignore = "started as a process by each_key_is_charged_once_at_most_and_ends_whatever_is_killed"]
fn caller() {
    let Ok(place) = std::env::var("ONECHO_TEST_PLACE") else { return };
    let (db, socket) = (Path::new(&place).join("store"), Path::new(&place).join("processor"));
    let store = loop {
        match Store::open_or_create(&db, options()) {
            Ok(store) => break store,
            Err(error) if error.kind() == ErrorKind::Locked => thread::sleep(Duration::from_millis(20)),
            Err(error) => panic!("{error}"),
        }
    };
    let runners = [workers(&store, &socket).start().unwrap(), workers(&store, &socket).start().unwrap()];
    let next = AtomicU64::new(0);
    thread::scope(|scope| {
        for _ in 0..CALLERS {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= KEYS {
                        return;
                    }
                    until_done(&store, number, &socket);
                    println!("done {number}");
                }
            });
        }
    });
    for runner in runners {
        runner.stop(Duration::from_secs(60)).unwrap();
    }
    assert_eq!(store.stats().open, 0);
    println!("all");
    store.close().unwrap();
}

/// A client that does not give up: it asks again under the same key until it has its answer.
fn until_done(store: &Store, number: u64, socket: &Path) {
    loop {
        let start = Start::new().step(&CHARGE).input(&number).unwrap();
        match store.begin(&request(number), start).unwrap() {
            Begin::Run(claim) => match checkout(claim, socket) {
                Ok(()) => {}
                // It was too slow for its lease: whoever decides now, the file knows.
                Err(error) if is_lost(&*error) => {}
                Err(error) => panic!("{error}"),
            },
            Begin::Reply(Reply::Replay(_)) => return,
            Begin::Reply(Reply::InProgress { .. } | Reply::Unknown { .. }) => {
                thread::sleep(Duration::from_millis(20));
            }
            Begin::Reply(other) => panic!("{other:?}"),
        }
    }
}

fn is_lost(error: &(dyn std::error::Error + 'static)) -> bool {
    let lost = |error: &onecho::Error| error.kind() == ErrorKind::FenceLost;
    let unfinished = |error: &Unfinished| error.error.kind() == ErrorKind::FenceLost;
    error.downcast_ref().is_some_and(lost) || error.downcast_ref().is_some_and(unfinished)
}

fn started(place: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["recovery::processor::caller", "--exact", "--ignored", "--nocapture"])
        .env("ONECHO_TEST_PLACE", place)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

#[test]
fn each_key_is_charged_once_at_most_and_ends_whatever_is_killed() {
    let seed = seed(4);
    let mut numbers = Numbers::from(seed);
    let dir = tempfile::tempdir().unwrap();
    let place: PathBuf = dir.path().to_owned();
    let listener = UnixListener::bind(place.join("processor")).unwrap();
    let processor =
        Arc::new(Processor { numbers: Mutex::new(Some(Numbers::from(seed + 1))), ..Processor::default() });
    let serving = Arc::clone(&processor);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let processor = Arc::clone(&serving);
            thread::spawn(move || processor.serve(stream));
        }
    });
    let told = Arc::new(Mutex::new(HashSet::new()));
    let is_over = Arc::new(AtomicBool::new(false));
    let mut kills = 0;
    loop {
        let mut child = started(&place);
        let out = BufReader::new(child.stdout.take().unwrap());
        let (told, over) = (Arc::clone(&told), Arc::clone(&is_over));
        let reader = thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                if line == "all" {
                    over.store(true, Ordering::Relaxed);
                } else if let Some(number) = line.strip_prefix("done ") {
                    told.lock().unwrap().insert(number.parse::<u64>().unwrap());
                }
            }
        });
        let is_killed = kills < KILLS;
        if is_killed {
            thread::sleep(Duration::from_millis(150 + numbers.below(700)));
            let _ = child.kill();
            kills += 1;
        }
        let status = child.wait().unwrap();
        reader.join().unwrap();
        if is_over.load(Ordering::Relaxed) {
            break;
        }
        assert!(is_killed, "it ended by itself without having done all: {status}");
    }
    thread::sleep(Duration::from_millis(LATE_MAX_MS));
    let store = Store::open(place.join("store"), options()).unwrap();
    let charged = processor.charged.lock().unwrap().clone();
    assert!(charged.values().all(|&times| times == 1), "somebody was charged twice");
    for number in 0..KEYS {
        match store.status(request(number).scope()).unwrap() {
            Status::Finished(finished) => assert!(!finished.failed),
            other => panic!("{number}: {other:?}"),
        }
    }
    assert_eq!(charged.len() as u64, KEYS, "as many were charged as were finished");
    assert_eq!(store.scan(&SHOP, &ORDERS, "").count() as u64, KEYS);
    assert_eq!(told.lock().unwrap().len() as u64, KEYS, "each was told done");
    let stats = store.stats();
    assert_eq!((stats.executed, stats.records, stats.rows), (KEYS, KEYS, KEYS));
    assert_eq!((stats.open, stats.unknown_open), (0, 0));
    assert!(store.verify().unwrap().is_clean());
    println!("{} came late", stats.differences);
    println!("{kills} kills, {} questions asked", processor.asked.load(Ordering::Relaxed));
}
