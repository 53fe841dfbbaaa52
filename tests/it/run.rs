//! What `onecho run` promises: a program runs at most once per key, and a second run is answered as the first
//! was.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use serde_json::{Value, json};

use crate::cli::{Ran, Shop};

/// Codes of onecho's own, as its help lists them.
const MISMATCH: i32 = 121;
const BUSY: i32 = 122;
const UNKNOWN: i32 = 123;
const FAILED: i32 = 125;
const CANNOT_RUN: i32 = 126;
const NOT_FOUND: i32 = 127;

/// `onecho run` of a shell script, which is told the shop's directory as `$1`.
fn script(shop: &Shop, options: &str, script: &str) -> Command {
    let mut command = shop.command("run");
    command.args(options.split(' ')).args(["--", "sh", "-c", script, "sh"]).arg(shop.path(""));
    command
}

fn run(shop: &Shop, options: &str, text: &str) -> Ran {
    Ran(script(shop, options, text).output().unwrap())
}

fn fed(mut command: Command, input: &[u8]) -> Ran {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // One that is answered before it has read everything closes its end.
    let _ = child.stdin.take().unwrap().write_all(input);
    Ran(child.wait_with_output().unwrap())
}

fn started(mut command: Command) -> Child {
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn ended(child: Child) -> Ran {
    Ran(child.wait_with_output().unwrap())
}

/// What is in a file, or nothing.
fn text(shop: &Shop, name: &str) -> String {
    fs::read_to_string(shop.path(name)).unwrap_or_default()
}

/// Waits until a script has written a line.
fn line_of(shop: &Shop, name: &str) -> String {
    let (_nobody, never) = mpsc::channel::<()>();
    loop {
        if let Some(line) = text(shop, name).strip_suffix('\n') {
            return line.to_owned();
        }
        never.recv_timeout(Duration::from_millis(5)).unwrap_err();
    }
}

fn signal(name: &str, process: &str) {
    assert!(Command::new("kill").args(["-s", name, process]).status().unwrap().success());
}

/// A shop whose key `k` was cut off half-way: onecho was killed, and then what it had started.
fn cut_off(options: &str) -> Shop {
    let shop = Shop::new();
    let mut child = started(script(&shop, options, LONG));
    let orphan = line_of(&shop, "pid");
    child.kill().unwrap();
    child.wait().unwrap();
    signal("KILL", &orphan);
    fs::remove_file(shop.path("pid")).unwrap();
    shop
}

/// Tells its process, then sleeps for longer than any test takes, once.
const LONG: &str = r#"echo $ONECHO_OPERATION_ID >> "$1/ids"
    echo $$ > "$1/pid"; test -e "$1/go" || exec sleep 600
    echo done"#;

#[test]
fn a_second_run_replays_output_and_exit_code_and_runs_nothing() {
    let shop = Shop::new();
    let count = r#"echo ran >> "$1/log"; printf 'to out'; printf 'to err' >&2; exit 3"#;
    let first = run(&shop, "--key k", count).ends(3);
    assert_eq!((first.text().as_str(), first.said().as_str()), ("to out", "to err"));
    for _ in 0..2 {
        let second = run(&shop, "--key k", count).ends(3);
        assert_eq!(second.text(), "to out");
        let said = second.said();
        let (marker, err) = said.split_once('\n').unwrap();
        assert_eq!(marker, "onecho: replay: k ran before and ended with exit code 3; nothing was run");
        assert_eq!(err, "to err");
    }
    assert_eq!(text(&shop, "log"), "ran\n");
    let status = shop.run("status --tenant default --operation run --key k --json").ends(0).json();
    assert_eq!((&status["code"], &status["failed"]), (&json!(3), &json!(true)));
}

#[test]
fn other_arguments_input_or_environment_are_a_mismatch_and_run_nothing() {
    let shop = Shop::new();
    let ask = |options: &str, word: &str, value: &str, input: &str| {
        let mut command = shop.command("run");
        command.args(options.split(' ')).args(["--", "sh", "-c", r#"echo ran >> "$0"; cat"#]);
        command.arg(shop.path("log")).arg(word).env("MODE", value).env("OTHER", input);
        fed(command, input.as_bytes())
    };
    assert_eq!(ask("--key k --env MODE", "a", "1", "in").ends(0).text(), "in");
    assert_eq!(ask("--key k --env MODE --env MODE", "a", "1", "in").ends(0).text(), "in");
    ask("--key k --env MODE", "b", "1", "in").ends(MISMATCH).says(&["k belongs", "command differs"]);
    ask("--key k --env MODE", "a", "2", "in").ends(MISMATCH).says(&["environment differs"]);
    ask("--key k --env MODE", "a", "1", "out").ends(MISMATCH).says(&["stdin differs"]);
    ask("--key k --env MODE --env ABSENT", "a", "1", "in").ends(MISMATCH).says(&["environment"]);
    ask("--key k --env MODE", "b", "2", "in").ends(MISMATCH).says(&["command and environment differ"]);
    assert_eq!(text(&shop, "log"), "ran\n");
    ask("--key other --env MODE", "b", "2", "out").ends(0);
    ask("--key k --operation other --env MODE", "b", "2", "out").ends(0);
    ask("--key k --tenant other --env MODE", "b", "2", "out").ends(0);
    assert_eq!(text(&shop, "log"), "ran\n".repeat(4));
}

/// Words that run into one another the other way are other words.
#[test]
fn no_two_commands_are_taken_for_one() {
    let shop = Shop::new();
    let ask = |words: &[&str]| {
        let mut command = shop.command("run");
        Ran(command.args(["--key", "k", "--", "echo"]).args(words).output().unwrap())
    };
    ask(&["a b", "c"]).ends(0);
    ask(&["a", "b c"]).ends(MISMATCH);
    ask(&["a b", "c", ""]).ends(MISMATCH);
    assert_eq!(ask(&["a b", "c"]).ends(0).text(), "a b c\n");
}

#[test]
fn bytes_go_through_and_come_back_as_they_are() {
    let shop = Shop::new();
    let all: Vec<u8> = (0..=255).cycle().take(100_000).collect();
    let ask = || {
        let mut command = shop.command("run");
        command.args(["--key", "k", "--", "sh", "-c", "tee /dev/stderr"]);
        fed(command, &all).ends_raw(0)
    };
    let first = ask();
    assert!(first.stdout == all && first.stderr == all);
    let second = ask();
    assert!(second.stdout == all && second.stderr.ends_with(&all));
}

trait Raw {
    fn ends_raw(self, code: i32) -> Output;
}

impl Raw for Ran {
    #[track_caller]
    fn ends_raw(self, code: i32) -> Output {
        assert_eq!(self.0.status.code(), Some(code));
        self.0
    }
}

#[test]
fn a_run_that_is_killed_half_way_is_unknown_until_somebody_says_what_it_did() {
    let shop = cut_off("--key k --lease 100ms");
    let again = "--key k --lease 100ms";
    for _ in 0..2 {
        run(&shop, again, LONG).ends(UNKNOWN).says(&["k was cut off", "onecho resolve"]);
        // That an orphan could be run beside is for both runs to say.
        run(&shop, "--key k --lease 100ms --takeover", LONG).ends(UNKNOWN);
    }
    assert_eq!(text(&shop, "ids").lines().count(), 1);
    let listed = shop.run("list --state unknown --json").ends(0).json();
    assert_eq!((&listed["key"], &listed["steps"][0]["name"]), (&json!("k"), &json!("run")));
    assert_eq!(listed["steps"][0]["operation_id"], *text(&shop, "ids").trim());

    let mut resolve = shop.command("resolve");
    resolve.args("--key k --succeeded 0 --actor Ada --body".split(' ')).arg("by hand");
    resolve.args(["--reason", "the file is there"]);
    Ran(resolve.output().unwrap()).ends(0);
    let replay = run(&shop, again, LONG).ends(0);
    assert_eq!(replay.text(), "by hand");
    assert!(replay.said().contains("k was decided before, as succeeded(0)"), "{}", replay.said());
}

#[test]
fn a_run_whose_lease_still_counts_is_told_as_that() {
    let shop = cut_off("--key k --lease 10m");
    let told = run(&shop, "--key k --lease 10m --wait 0s", LONG).ends(BUSY);
    told.says(&["k counts as being run by onecho run, process ", "attempt 1", "is left", "--wait"]);
    let listed = shop.run("list --state processing --json").ends(0).json();
    assert!(listed["lease_left_ms"].as_u64().unwrap() > 500_000, "{listed}");
}

#[test]
fn what_is_not_applied_frees_the_key() {
    let shop = cut_off("--key k --lease 100ms");
    shop.run("resolve --key k --not-applied --reason looked --actor Ada").ends(0);
    fs::write(shop.path("go"), "").unwrap();
    assert_eq!(run(&shop, "--key k", LONG).ends(0).text(), "done\n");
    let ids = text(&shop, "ids");
    let ids: Vec<&str> = ids.lines().collect();
    assert!(ids.len() == 2 && ids[0] == ids[1], "{ids:?}");
}

#[test]
fn a_takeover_runs_again_under_the_same_id() {
    let shop = cut_off("--key k --lease 100ms --takeover");
    // Without the word it is not gone on with.
    fs::write(shop.path("go"), "").unwrap();
    let again = run(&shop, "--key k --lease 100ms --takeover", LONG).ends(0);
    assert_eq!(again.text(), "done\n");
    assert!(again.said().contains("k was cut off; this is attempt 2"), "{}", again.said());
    let ids = text(&shop, "ids");
    let ids: Vec<&str> = ids.lines().collect();
    assert!(ids.len() == 2 && ids[0] == ids[1] && ids[0].len() == 32, "{ids:?}");
    assert!(run(&shop, "--key k", LONG).ends(0).said().starts_with("onecho: replay: k "));
}

#[test]
fn a_takeover_is_for_those_who_say_so() {
    let shop = cut_off("--key k --lease 100ms --takeover");
    fs::write(shop.path("go"), "").unwrap();
    run(&shop, "--key k --lease 100ms", LONG).ends(UNKNOWN);
    assert_eq!(text(&shop, "ids").lines().count(), 1);
}

#[test]
fn signals_reach_the_command_and_its_end_is_recorded() {
    for (name, number) in [("HUP", 1), ("INT", 2), ("QUIT", 3), ("TERM", 15)] {
        // Taken by the command, as a service does that ends in order.
        let shop = Shop::new();
        let taken = format!(
            r#"trap 'echo got {name}; exit 7' {name}; echo $$ > "$1/pid"; while :; do sleep 0.02; done"#
        );
        let child = started(script(&shop, "--key k", &taken));
        line_of(&shop, "pid");
        signal(name, &child.id().to_string());
        assert_eq!(ended(child).ends(7).text(), format!("got {name}\n"));
        assert_eq!(run(&shop, "--key k", &taken).ends(7).text(), format!("got {name}\n"));

        // Not taken: it reaches what the command has started, too.
        let killed = r#"echo $$ > "$1/pid2"; sleep 600"#;
        let child = started(script(&shop, "--key killed", killed));
        line_of(&shop, "pid2");
        signal(name, &child.id().to_string());
        ended(child).ends(128 + number);
        let replay = run(&shop, "--key killed", killed).ends(128 + number);
        assert!(replay.said().contains(&format!("was killed by signal {number}")), "{}", replay.said());
    }
}

#[test]
fn a_signal_that_comes_before_the_command_ends_the_wait_and_runs_nothing() {
    let shop = cut_off("--key k --lease 10m");
    let mut waiting = script(&shop, "--key k --lease 10m --wait 10m", LONG);
    waiting.env("ONECHO_TEST", "1");
    let child = started(waiting);
    // It waits once it has the store, which only one can have.
    let (_nobody, never) = mpsc::channel::<()>();
    while shop.run("stats").0.status.success() {
        never.recv_timeout(Duration::from_millis(5)).unwrap_err();
    }
    signal("TERM", &child.id().to_string());
    ended(child).ends(143);
    assert_eq!(text(&shop, "ids").lines().count(), 1);
}

#[cfg(target_os = "linux")]
#[test]
fn a_signal_that_onecho_was_started_to_ignore_is_ignored() {
    let shop = Shop::new();
    let run = script(
        &shop,
        "--key k",
        r#"echo $$ > "$1/pid"; while ! test -e "$1/go"; do sleep 0.02; done; echo up"#,
    );
    let mut ignoring = Command::new("sh");
    ignoring.args(["-c", "trap '' HUP; exec \"$0\" \"$@\""]).stdin(Stdio::null());
    ignoring.arg(run.get_program()).args(run.get_args());
    let child = started(ignoring);
    let command = line_of(&shop, "pid");
    signal("HUP", &child.id().to_string());
    signal("HUP", &command);
    fs::write(shop.path("go"), "").unwrap();
    assert_eq!(ended(child).ends(0).text(), "up\n");
}

#[test]
fn a_program_that_cannot_be_started_leaves_the_key_free() {
    let shop = Shop::new();
    let ask =
        |program: &Path| Ran(shop.command("run").args(["--key", "k", "--"]).arg(program).output().unwrap());
    ask(&shop.path("absent")).ends(NOT_FOUND).says(&["absent was not found", "nothing was run"]);
    ask(&shop.file("plain", "no program")).ends(CANNOT_RUN).says(&["plain cannot be run"]);
    ask(Path::new("onecho-no-such-program")).ends(NOT_FOUND);
    shop.run("status --tenant default --operation run --key k").ends(1);
    let history = shop.run("history --key k --json").ends(0).text();
    let changes: Vec<Value> =
        history.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["change"].clone()).collect();
    assert_eq!(changes, ["begun", "aborted", "begun", "aborted", "begun", "aborted"]);
    assert_eq!(run(&shop, "--key k", "echo now").ends(0).text(), "now\n");
}

#[test]
fn output_over_the_limit_is_passed_on_and_its_beginning_is_kept() {
    let shop = Shop::new();
    let big = "head -c 3000000 /dev/zero; echo last >&2; exit 4";
    for (key, options, kept) in
        [("a", "", 1 << 20), ("b", " --output-max 1000", 1000), ("c", " --output-max 0", 0)]
    {
        let options = format!("--key {key}{options}");
        let first = run(&shop, &options, big).ends_raw(4);
        assert_eq!((first.stdout.len(), &first.stderr[..]), (3_000_000, &b"last\n"[..]));
        let second = run(&shop, &options, big).ends_raw(4);
        assert_eq!(second.stdout.len(), kept);
        let said = String::from_utf8(second.stderr).unwrap();
        let told = format!("only the first {kept} of 3000000 bytes of its standard output were kept");
        assert!(said.contains(&told), "{said}");
    }
}

#[test]
fn a_command_is_not_waited_for_by_those_that_it_leaves_behind() {
    let shop = Shop::new();
    let ran = run(&shop, "--key k", r#"sleep 600 & echo $! > "$1/pid"; echo started"#).ends(0);
    assert_eq!(ran.text(), "started\n");
    signal("KILL", &line_of(&shop, "pid"));
}

#[test]
fn of_many_runs_of_one_key_one_runs_and_the_others_get_its_answer() {
    let shop = Shop::new();
    let slow = r#"echo ran >> "$1/log"; sleep 0.2; echo answer; exit 5"#;
    let children: Vec<Child> = (0..6).map(|_| started(script(&shop, "--key k --wait 10m", slow))).collect();
    let ran: Vec<Ran> = children.into_iter().map(|child| ended(child).ends(5)).collect();
    assert!(ran.iter().all(|ran| ran.text() == "answer\n"));
    assert_eq!(ran.iter().filter(|ran| ran.said().contains("replay")).count(), 5);
    assert_eq!(text(&shop, "log"), "ran\n");

    let child = started(script(&shop, "--key long", LONG));
    let process = line_of(&shop, "pid");
    run(&shop, "--key long --wait 0s", LONG).ends(BUSY).says(&["s.onecho", "--wait"]);
    run(&shop, "--key another --wait 10ms", LONG).ends(BUSY);
    signal("KILL", &process);
    ended(child).ends(137);
}

#[test]
fn failures_of_onecho_itself_have_codes_of_their_own() {
    let shop = Shop::new();
    run(&shop, "--key k --lease 30", "true").ends(FAILED);
    assert!(run(&shop, "--key k --lease 30", "true").said().contains("30 has no unit: say 30s"));
    run(&shop, "--key k --lease 0s", "true").ends(FAILED).says(&["lease"]);
    run(&shop, "--wait 1s", "true").ends(FAILED);
    run(&shop, "--key k\u{7} --wait 1s", "true").ends(FAILED).says(&["key"]);
    run(&shop, "--key k --env A=B", "true").ends(FAILED).says(&["A=B", "--env"]);
    run(&shop, "--key k --output-max 4194305", "true").ends(FAILED);
    Ran(shop.command("run").args(["--key", "k", "--"]).output().unwrap()).ends(FAILED);
    run(&shop, "--key k --existing", "true").ends(FAILED).says(&["s.onecho", "does not exist"]);
    assert!(!shop.path("s.onecho").exists());
    shop.file("s.onecho", "no store");
    run(&shop, "--key k", "true").ends(FAILED).says(&["s.onecho"]);
}

#[test]
fn the_codes_of_run_are_in_its_help_and_in_the_docs() {
    let help = Command::new(env!("CARGO_BIN_EXE_onecho")).args(["run", "--help"]).output().unwrap();
    let docs = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/cli.md")).unwrap();
    let help = Ran(help).ends(0).text();
    for code in 121..=127 {
        assert!(help.contains(&format!("\n  {code}  ")), "{help}");
        assert!(docs.contains(&format!("\n| {code} | ")), "exit code {code} is not in docs/cli.md");
    }
    let words: Vec<&str> = help.split_whitespace().collect();
    assert!(words.join(" ").contains("An orphan of the first, which onecho's death does not end"), "{help}");
}

#[test]
fn a_span_is_kept_to_the_second_and_a_key_that_is_over_never_runs_again() {
    let shop = Shop::new();
    run(&shop, "--key day --keep 24h", "true").ends(0);
    let status = shop.run("status --tenant default --operation run --key day --json").ends(0).json();
    let at = |name: &str| status[name].as_u64().unwrap();
    assert_eq!(at("key_until_ms") - at("at_ms"), 86_400_000);
    assert_eq!(at("body_until_ms"), at("key_until_ms"));
    run(&shop, "--key short --keep 1ms", r#"echo ran >> "$1/log"; exit 3"#).ends(3);
    let again = run(&shop, "--key short --keep 1ms", r#"echo ran >> "$1/log"; exit 3"#).ends(124);
    again.says(&["short ran once, failed with code 3", "nothing was run"]);
    assert_eq!(text(&shop, "log"), "ran\n");
}

#[test]
fn no_input_is_read_where_none_is_wanted() {
    let shop = Shop::new();
    let mut command = script(&shop, "--key k --no-stdin", "cat");
    command.stdin(Stdio::piped());
    // Its end is never closed before the run is over.
    let mut child = started(command);
    let input = child.stdin.take();
    assert_eq!(ended(child).ends(0).text(), "");
    drop(input);
    assert!(fed(script(&shop, "--key k", "cat"), b"").ends(0).said().contains("replay"));
}

/// The command goes on: what it does is not to depend on who listens.
#[test]
fn a_reader_that_goes_away_stops_no_command() {
    let shop = Shop::new();
    let mut command = script(&shop, "--key k", r#"head -c 300000 /dev/zero; echo "end" > "$1/end""#);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    ended(child).ends(0);
    assert_eq!(text(&shop, "end"), "end\n");
    assert_eq!(
        run(&shop, "--key k", r#"head -c 300000 /dev/zero; echo "end" > "$1/end""#).0.stdout.len(),
        300_000
    );
}
