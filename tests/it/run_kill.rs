//! `onecho run` around a script that appends a line to a file, killed at random moments: never two lines for
//! one key, and every key ends done or unknown, and is then resolved.

#![expect(clippy::unwrap_used, reason = "a test: it fails loudly")]
#![expect(clippy::disallowed_macros, reason = "the seed of a failure has to be seen")]
#![expect(clippy::disallowed_methods, reason = "moments to kill at are measured by the clock")]

use std::collections::BTreeMap;
use std::fs;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use crate::cli::{Ran, Shop};
use crate::common::{Numbers, seed};

const KILLS: u32 = 200;
const UNKNOWN: i32 = 123;
/// Starts before the test says that it cannot kill.
const STARTS_MAX: u32 = 5_000;

#[test]
fn a_killed_run_never_appends_two_lines_for_one_key() {
    let mut chance = Numbers::from(seed(u64::from(std::process::id()) << 20));
    let shop = Shop::new();
    // The first one makes the store, which takes longer.
    Ran(run(&shop, "first").output().unwrap()).ends(0);
    let start = Instant::now();
    Ran(run(&shop, "second").output().unwrap()).ends(0);
    let whole = start.elapsed();

    let (mut kills, mut starts) = (0, 0);
    let mut ends: BTreeMap<String, i32> = BTreeMap::new();
    while kills < KILLS {
        let key = format!("key-{}", ends.len());
        // Killed again and again, until it has an answer.
        let end = loop {
            starts += 1;
            assert!(starts < STARTS_MAX, "{STARTS_MAX} starts and {kills} kills");
            match killed(&shop, &key, whole, &mut chance) {
                None => kills += 1,
                Some(end) => break end,
            }
        };
        assert!(end == 0 || end == UNKNOWN, "{key} ended with {end}");
        ends.insert(key, end);
    }
    no_orphans(&shop);
    let unknown = settle(&shop, &ends);
    assert_eq!(shop.run("list --state unknown,processing --json").ends(0).text(), "");
    shop.run("verify").ends(0);
    println!("{kills} kills, {} keys, {unknown} of them unknown", ends.len());
}

fn run(shop: &Shop, key: &str) -> Command {
    let mut command = shop.command("run");
    command.args(["--key", key, "--lease", "30ms", "--wait", "10m", "--", "sh", "-c"]);
    command.arg(r#"sleep 0.01; echo "$1" >> "$2"; sleep 0.01"#).args(["sh", key]).arg(shop.path("log"));
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// Starts a run and kills it at a random moment; its exit code if it had ended before.
fn killed(shop: &Shop, key: &str, whole: Duration, chance: &mut Numbers) -> Option<i32> {
    let mut child = run(shop, key).spawn().unwrap();
    // Some kills hit the opening of the store; most hit the claim, the script, or what is recorded of it.
    let whole = u64::try_from(whole.as_micros()).unwrap();
    let early = if chance.below(4) == 0 { 0 } else { whole / 3 };
    let moment = early + chance.below(whole - early);
    let (_nobody, never) = mpsc::channel::<()>();
    never.recv_timeout(Duration::from_micros(moment)).unwrap_err();
    child.kill().unwrap(); // SIGKILL; of a child that has ended it does nothing.
    child.wait().unwrap().code()
}

/// Waits until no script of this test runs any more.
fn no_orphans(shop: &Shop) {
    let log = shop.path("log");
    let log = log.to_str().unwrap().as_bytes();
    let (_nobody, never) = mpsc::channel::<()>();
    let is_of_test = |entry: fs::DirEntry| {
        let words = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        words.windows(log.len()).any(|part| part == log)
    };
    while fs::read_dir("/proc").unwrap().flatten().any(is_of_test) {
        never.recv_timeout(Duration::from_millis(10)).unwrap_err();
    }
}

/// Counts lines, resolves each key in unknown by what is found, and runs it once more, as some of the others;
/// returns how many were unknown.
fn settle(shop: &Shop, ends: &BTreeMap<String, i32>) -> usize {
    let mut unknown = 0;
    for (number, (key, end)) in ends.iter().enumerate() {
        let lines = lines(shop, key);
        assert!(lines <= 1, "{lines} lines of {key}");
        assert!(lines == 1 || *end == UNKNOWN, "{key} is done and has no line");
        if *end == UNKNOWN {
            unknown += 1;
            let how = if lines == 1 { "--succeeded 0" } else { "--not-applied" };
            shop.run(&format!("resolve --key {key} {how} --reason counted --actor test")).ends(0);
        }
        if *end == 0 && number % 4 > 0 {
            continue;
        }
        Ran(run(shop, key).output().unwrap()).ends(0);
        assert_eq!(self::lines(shop, key), 1, "{key} after all");
    }
    unknown
}

fn lines(shop: &Shop, key: &str) -> usize {
    let log = fs::read_to_string(shop.path("log")).unwrap_or_default();
    log.lines().filter(|line| *line == key).count()
}
