//! A killed `ingest` loses nothing it has told of and does nothing twice.
//!
//! The real binary works on real rows, is killed at random moments, again and again, and is started again
//! until it is done.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test: it fails loudly")]
#![expect(clippy::disallowed_macros, reason = "the seed of a failure has to be seen")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use onecho::{Bytes, Kind, Options, Store, Tenant};
use serde_json::Value;

use crate::common::{Numbers, seed};

const SHOP: Tenant = Tenant::new("shop");
const ORDERS: Kind<Bytes> = Kind::raw("order");
/// Kills in one run of the test.
const KILLS_MIN: u32 = 30;
/// Starts of one round before the test says that it makes no progress.
const STARTS_MAX: u32 = 500;
/// About the length of an answer.
const LINE_BYTES: u64 = 125;

#[test]
fn a_killed_ingest_goes_on_where_it_was_and_every_row_is_there_once() {
    let mut chance = Numbers::from(seed(u64::from(std::process::id()) << 20));
    let mut kills = 0;
    let mut rounds = 0;
    while kills < KILLS_MIN {
        rounds += 1;
        kills += round(&mut chance);
    }
    println!("{kills} kills in {rounds} rounds");
}

/// One input from an absent store to a whole one; returns how often the program was killed meanwhile.
fn round(chance: &mut Numbers) -> u32 {
    let place = Place::new();
    let mut kills = 0;
    let mut acknowledged = Acknowledged::default();
    for start in 0.. {
        assert!(start < STARTS_MAX, "{STARTS_MAX} starts did not bring it to its end");
        let mut child = place.ingest();
        if wait_and_kill(chance, &mut child, &place, acknowledged.lines.len()) {
            kills += 1;
            acknowledged.read(&place.output);
            acknowledged.are_in(&place);
        } else {
            break;
        }
    }
    acknowledged.read(&place.output);
    place.is_whole(&acknowledged);
    kills
}

struct Place {
    directory: tempfile::TempDir,
    db: PathBuf,
    output: PathBuf,
}

impl Place {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let db = directory.path().join("orders.onecho");
        let output = directory.path().join("answers.jsonl");
        Self { directory, db, output }
    }

    fn command(&self, word: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_onecho"));
        command.arg(word).arg("--db").arg(&self.db).stdin(Stdio::null());
        command
    }

    fn ingest_command(&self) -> Command {
        let mut command = self.command("ingest");
        command.args(["--tenant", "shop", "--operation", "import", "--key-line", "--kind", "order"]);
        command.args(["--jobs", "64", "--append", "--output"]).arg(&self.output).arg(input());
        command
    }

    fn ingest(&self) -> Child {
        self.ingest_command().stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
    }

    fn output_bytes(&self) -> u64 {
        fs::metadata(&self.output).map_or(0, |found| found.len())
    }

    /// Every row once, sums as in the input, a second run replays all, and the file agrees with itself.
    fn is_whole(&self, acknowledged: &Acknowledged) {
        let again = self.ingest_command().arg("--json").output().unwrap();
        assert!(again.status.success(), "{again:?}");
        let summary: Value = serde_json::from_slice(&again.stdout).unwrap();
        assert_eq!((&summary["rows"], &summary["replayed"]), (&2000.into(), &2000.into()));

        let verified = self.command("verify").output().unwrap();
        assert!(verified.status.success(), "{verified:?}");

        let store = Store::open(&self.db, Options::new()).unwrap();
        assert_eq!((store.stats().executed, store.stats().records, store.stats().rows), (2000, 2000, 2000));
        let stored: BTreeMap<String, Bytes> =
            store.scan(&SHOP, &ORDERS, "").map(|row| row.unwrap()).map(|row| (row.id, row.value)).collect();
        let expected: BTreeMap<String, String> = rows().into_iter().collect();
        assert_eq!(stored.len(), expected.len());
        let mut cents = (0, 0);
        for (id, row) in &expected {
            let value: BTreeMap<String, String> = serde_json::from_slice(&stored[id]).unwrap();
            let fields = ["customer", "date", "quantity", "amount_cents"].map(|name| value[name].as_str());
            assert_eq!(fields.join(","), *row, "{id}");
            cents.0 += fields[3].parse::<u64>().unwrap();
            cents.1 += row.rsplit(',').next().unwrap().parse::<u64>().unwrap();
        }
        assert_eq!(cents.0, cents.1);
        assert_eq!(acknowledged.lines.len(), 2000);
    }
}

/// What the output has told as done.
#[derive(Default)]
struct Acknowledged {
    /// Each key and when it was executed, as the first line about it says.
    lines: BTreeMap<String, u64>,
    executed: BTreeSet<String>,
    read_bytes: usize,
}

impl Acknowledged {
    /// Reads on behind the last whole line.
    fn read(&mut self, output: &Path) {
        let text = fs::read(output).unwrap_or_default();
        let Some(end) = text.iter().rposition(|byte| *byte == b'\n') else {
            return;
        };
        let new = &text[self.read_bytes.min(end + 1)..=end];
        for line in new.split_inclusive(|byte| *byte == b'\n') {
            let line: Value = serde_json::from_slice(line).expect("a whole line is JSON");
            let key = line["key"].as_str().unwrap().to_owned();
            let at = line["at_ms"].as_u64().unwrap();
            match line["result"].as_str().unwrap() {
                "executed" => assert!(self.executed.insert(key.clone()), "{key} was executed twice"),
                "replayed" => {}
                other => panic!("{key}: {other}"),
            }
            assert_eq!(*self.lines.entry(key.clone()).or_insert(at), at, "{key} has another outcome now");
        }
        self.read_bytes = end + 1;
    }

    /// Looks into a copy: the file itself stays as the kill left it.
    fn are_in(&self, place: &Place) {
        if self.lines.is_empty() {
            return;
        }
        let copy = place.directory.path().join("copy.onecho");
        fs::copy(&place.db, &copy).unwrap();
        let store = Store::open(&copy, Options::new().reserve_bytes(0)).unwrap();
        let stored: BTreeSet<String> = store.scan(&SHOP, &ORDERS, "").map(|row| row.unwrap().id).collect();
        for key in self.lines.keys() {
            assert!(stored.contains(key), "{key} was told as done and is not there");
        }
        store.close().unwrap();
        fs::remove_file(copy).unwrap();
    }
}

/// Kills the child at a random moment; false if it was done before.
fn wait_and_kill(chance: &mut Numbers, child: &mut Child, place: &Place, done: usize) -> bool {
    let (_nobody, never) = mpsc::channel::<()>();
    let pause = |span| never.recv_timeout(span).unwrap_err();
    // Some kills hit the start, whatever it is doing; most hit new work, behind the replays of what is
    // done.
    if chance.below(4) > 0 {
        let goal = place.output_bytes() + LINE_BYTES * (done as u64 + chance.below(150));
        while place.output_bytes() < goal && child.try_wait().unwrap().is_none() {
            pause(Duration::from_micros(200));
        }
        pause(Duration::from_micros(chance.below(3_000)));
    } else {
        pause(Duration::from_micros(chance.below(30_000)));
    }
    child.kill().unwrap(); // SIGKILL; of a child that has ended it does nothing.
    let ended = child.wait().unwrap();
    if ended.code().is_none() {
        return true;
    }
    let mut said = String::new();
    std::io::Read::read_to_string(&mut child.stderr.take().unwrap(), &mut said).unwrap();
    assert!(ended.success(), "{ended}: {said}");
    false
}

fn input() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/orders.csv")
}

/// Each data row of the input under the key that its line gives it.
fn rows() -> Vec<(String, String)> {
    let text = fs::read_to_string(input()).unwrap();
    let lines = text.lines().enumerate().skip(1);
    lines.map(|(number, row)| (format!("line-{}", number + 1), row.to_owned())).collect()
}
