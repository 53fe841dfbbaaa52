//! What the command line promises: its exit codes, what it tells, and that nothing it refuses changes
//! anything.

#![expect(clippy::unwrap_used, reason = "a test: it fails loudly")]

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use onecho::{Key, Kind, Operation, Options, Outcome, Request, Store, Tenant};
use serde_json::{Value, json};

/// A directory with one store in it, and the real binary.
pub(crate) struct Shop(tempfile::TempDir);

impl Shop {
    pub fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub fn file(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, text).unwrap();
        path
    }

    pub fn command(&self, word: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_onecho"));
        command.arg(word).arg("--db").arg(self.path("s.onecho")).stdin(Stdio::null());
        command
    }

    pub fn run(&self, words: &str) -> Ran {
        Ran(self.words(words).output().unwrap())
    }

    /// A command line in which no word has a blank.
    pub fn words(&self, words: &str) -> Command {
        let mut words: Vec<&str> = words.split(' ').collect();
        // The commands of these stand before the options.
        let heads = if matches!(words[0], "outbox" | "inbox") { 2 } else { 1 };
        let mut command = Command::new(env!("CARGO_BIN_EXE_onecho"));
        command.args(words.drain(..heads)).arg("--db").arg(self.path("s.onecho")).stdin(Stdio::null());
        command.args(words);
        command
    }

    pub fn ingest_command(&self, words: &str, input: &Path) -> Command {
        let mut command = self.command("ingest");
        command.args("--tenant t --operation import --kind order --json".split(' '));
        command.args(words.split(' ')).arg(input);
        command
    }

    pub fn ingest(&self, words: &str, input: &Path) -> Ran {
        Ran(self.ingest_command(words, input).output().unwrap())
    }
}

pub(crate) struct Ran(pub Output);

impl Ran {
    /// Checks the exit code, and that nobody was shown the inside of the program.
    #[track_caller]
    pub fn ends(self, code: i32) -> Self {
        let said = self.said();
        assert_eq!(self.0.status.code(), Some(code), "{said}");
        for inside in ["panicked", "RUST_BACKTRACE", "ErrorKind", "Err("] {
            assert!(!said.contains(inside), "{said}");
        }
        self
    }

    /// Checks that the last thing said is one line of error that names all of this.
    #[track_caller]
    pub fn says(self, words: &[&str]) -> Self {
        let said = self.said();
        let last = said.lines().last().unwrap_or_default();
        assert!(last.starts_with("error: "), "{said}");
        for word in words {
            assert!(last.contains(word), "{word:?} is not in {last:?}");
        }
        self
    }

    pub fn said(&self) -> String {
        String::from_utf8(self.0.stderr.clone()).unwrap()
    }

    pub fn text(&self) -> String {
        String::from_utf8(self.0.stdout.clone()).unwrap()
    }

    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text()).unwrap()
    }

    /// Counts of the summary, those that are not 0.
    pub fn counts(&self) -> Value {
        let mut summary = self.json();
        let counts = summary.as_object_mut().unwrap();
        counts.remove("seconds");
        counts.remove("rows_per_second");
        counts.retain(|_, count| *count != 0);
        summary
    }
}

fn lines(path: &Path) -> Vec<Value> {
    fs::read_to_string(path).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_second_run_replays_every_row_and_tells_the_same_outcome() {
    let shop = Shop::new();
    let input = shop.file("in.csv", "id,note\na,one\nb,\"two\r\nlines, \"\"quoted\"\"\"\nc,\n");
    let (first, second) = (shop.path("first.jsonl"), shop.path("second.jsonl"));
    let run = |output: &Path| shop.ingest(&format!("--key id --output {}", output.display()), &input).ends(0);
    assert_eq!(run(&first).counts(), json!({"rows": 3, "executed": 3}));
    assert_eq!(run(&second).counts(), json!({"rows": 3, "replayed": 3}));

    let sorted = |path: &Path| {
        let mut lines = lines(path);
        lines.sort_by_key(|line| line["line"].as_u64());
        lines
    };
    let (mut first, mut second) = (sorted(&first), sorted(&second));
    assert_eq!(first.iter().map(|line| line["line"].as_u64().unwrap()).collect::<Vec<_>>(), [2, 3, 5]);
    for (first, second) in first.iter_mut().zip(&mut second) {
        assert_eq!((first["result"].take(), second["result"].take()), (json!("executed"), json!("replayed")));
        assert_eq!(first, second);
        assert_eq!(first["resource"], json!({"kind": "order", "id": first["key"]}));
    }
    let got = shop.run("get --tenant t --kind order --id b").ends(0);
    assert_eq!(got.text(), "{\"id\":\"b\",\"note\":\"two\\r\\nlines, \\\"quoted\\\"\"}\n");
}

#[test]
fn another_row_under_a_key_is_a_mismatch_and_changes_nothing() {
    let shop = Shop::new();
    shop.ingest("--key id", &shop.file("in.csv", "id,cents\na,1\nb,2\n")).ends(0);
    let before = shop.run("list --tenant t --kind order --json").ends(0).text();
    let output = shop.path("out.jsonl");
    let changed = shop.file("changed.csv", "id,cents\na,1\nb,3\nc,4\n");
    let ran = shop.ingest(&format!("--key id --jobs 1 --output {}", output.display()), &changed).ends(1);
    assert_eq!(ran.counts(), json!({"rows": 3, "replayed": 1, "mismatched": 1, "executed": 1}));
    assert!(ran.said().contains("line 3: its key belongs to another row"), "{}", ran.said());
    assert_eq!(lines(&output)[1], json!({"line": 3, "key": "b", "result": "mismatch", "parts": ["row"]}));
    let after = shop.run("list --tenant t --kind order --json").ends(0).text();
    assert!(after.starts_with(&before) && after.lines().count() == 3, "{after}");
}

#[test]
fn a_bad_row_is_told_with_its_line_and_the_rest_goes_on() {
    let shop = Shop::new();
    let long = "k".repeat(256);
    let csv = format!("id,note\na,1\n\nb\nc,2,3\n,4\n{long},5\n\"d,6\ne,7\n");
    let output = shop.path("out.jsonl");
    let words = format!("--key id --jobs 1 --output {}", output.display());
    let ran = shop.ingest(&words, &shop.file("in.csv", csv)).ends(1);
    assert_eq!(ran.counts(), json!({"rows": 7, "executed": 2, "bad": 5}));
    let bad: Vec<Value> = lines(&output).into_iter().filter(|line| line["result"] == "bad").collect();
    assert_eq!(bad.iter().map(|line| line["line"].as_u64().unwrap()).collect::<Vec<_>>(), [4, 5, 6, 7, 8]);
    for line in &bad {
        let told = format!("line {} is bad: {}", line["line"], line["error"].as_str().unwrap());
        assert!(ran.said().contains(&told), "{told}");
    }
    assert_eq!(shop.run("list --tenant t --kind order").ends(0).text(), "a\ne\n");

    let jsonl = [
        r#"{"id":"x","n":1.10}"#,
        r#"{"id":"#,
        "[1]",
        r#"{"n":1}"#,
        r#"{"id":1.5}"#,
        r#"{"id":"y","id":"z"}"#,
        "",
        r#"{"id":7}"#,
    ]
    .join("\n");
    let ran = shop.ingest("--key id", &shop.file("in.jsonl", jsonl)).ends(1);
    assert_eq!(ran.counts(), json!({"rows": 7, "executed": 2, "bad": 5}));
    assert_eq!(shop.run("get --tenant t --kind order --id x").ends(0).text(), "{\"id\":\"x\",\"n\":1.10}\n");
    assert_eq!(shop.run("get --tenant t --kind order --id 7").ends(0).text(), "{\"id\":7}\n");
}

#[test]
fn rows_come_from_standard_input_too() {
    let shop = Shop::new();
    let mut command = shop.ingest_command("--key-line --format jsonl --jobs 3", Path::new("-"));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"{\"a\":1}\r\n\r\n\"text\"\n").unwrap();
    let ran = Ran(child.wait_with_output().unwrap()).ends(0);
    assert_eq!(ran.counts(), json!({"rows": 2, "executed": 2}));
    assert_eq!(shop.run("list --tenant t --kind order").ends(0).text(), "line-1\nline-3\n");
    shop.ingest("--key-line", Path::new("-")).ends(2).says(&["--format"]);
}

#[test]
fn a_resource_that_is_there_stops_its_row_and_leaves_the_key_free() {
    let shop = Shop::new();
    let output = shop.path("out.jsonl");
    let words = format!("--key-line --id id --jobs 1 --output {}", output.display());
    let ran = shop.ingest(&words, &shop.file("in.csv", "id,n\na,1\na,2\n")).ends(1);
    assert_eq!(ran.counts(), json!({"rows": 2, "executed": 1, "duplicate": 1}));
    let told = json!({"line": 3, "key": "line-3", "result": "duplicate",
        "resource": {"kind": "order", "id": "a"}, "made_by": "line-2"});
    assert_eq!(lines(&output)[1], told);
    let status = shop.run("status --tenant t --operation import --key line-3 --json").ends(1);
    assert_eq!(status.json(), json!({"state": "absent"}));
}

#[test]
fn what_is_wrong_before_the_first_row_makes_no_store() {
    let shop = Shop::new();
    let input = shop.file("in.csv", "id,n\na,1\n");
    shop.ingest("--key nope", &input).ends(2).says(&["in.csv", "nope", "id, n"]);
    shop.ingest("--key id --id nope", &input).ends(2).says(&["nope"]);
    shop.ingest("--key id", &shop.file("twice.csv", "id,id\n")).ends(2).says(&["twice.csv", "twice"]);
    shop.ingest("--key id", &shop.file("empty.csv", "")).ends(2).says(&["empty.csv"]);
    shop.ingest("--key id", &shop.path("absent.csv")).ends(2).says(&["absent.csv"]);
    shop.ingest("--key id", &shop.file("rows.txt", "id\n")).ends(2).says(&["rows.txt", "--format"]);
    shop.ingest("--key id --format csv", shop.0.path()).ends(2).says(&["directory"]);
    shop.ingest("--key id --key-line", &input).ends(2);
    shop.ingest("--jobs 4", &input).ends(2);
    shop.ingest("--key id --jobs 0", &input).ends(2);
    let taken = shop.file("notes.txt", "mine");
    let words = format!("--key id --output {}", taken.display());
    shop.ingest(&words, &input).ends(2).says(&["notes.txt", "--append"]);
    shop.ingest(&format!("{words} --append"), &input).ends(2).says(&["notes.txt"]);
    assert_eq!(fs::read(&taken).unwrap(), b"mine");
    assert!(!shop.path("s.onecho").exists());
    shop.ingest("--key id", &shop.file("header.csv", "id,n\n")).ends(0);
}

#[test]
fn an_output_is_gone_on_with_behind_its_last_whole_line() {
    let shop = Shop::new();
    let input = shop.file("in.csv", "id,n\na,1\nb,2\n");
    let output = shop.path("out.jsonl");
    let words = format!("--key id --jobs 1 --append --output {}", output.display());
    shop.ingest(&words, &input).ends(0);
    let whole = fs::read_to_string(&output).unwrap();
    for cut in [1, 3, 20, whole.lines().last().unwrap().len()] {
        fs::write(&output, &whole[..whole.len() - cut]).unwrap();
        shop.ingest(&words, &input).ends(0);
        let results: Vec<Value> = lines(&output).iter().map(|line| line["result"].clone()).collect();
        assert_eq!(results, ["executed", "replayed", "replayed"], "{cut} bytes cut");
    }
}

#[test]
fn looking_makes_no_store_and_changes_no_other_file() {
    let looks = [
        "get --tenant t --kind order --id a",
        "status --tenant t --operation import --key a",
        "list --tenant t --kind order",
        "list --state unknown",
        "history --key a",
        "resolve --key a --failed 1 --reason looked --actor Ada",
        "cancel --key a --actor Ada",
        "outbox list",
        "outbox show 1-0",
        "inbox list",
        "inbox requeue 1-0 --reason looked --actor Ada",
        "stats",
        "verify",
    ];
    for look in looks {
        let shop = Shop::new();
        shop.run(look).ends(3).says(&["s.onecho", "does not exist", "ingest"]);
        assert!(!shop.path("s.onecho").exists());
        for foreign in ["", "a,b\n1,2\n", &"x".repeat(10_000)] {
            shop.file("s.onecho", foreign);
            shop.run(look).ends(3).says(&["s.onecho"]);
            let input = shop.file("in.csv", "id\na\n");
            shop.ingest("--key id", &input).ends(3).says(&["s.onecho"]);
            assert_eq!(fs::read(shop.path("s.onecho")).unwrap(), foreign.as_bytes());
        }
    }
}

#[test]
fn a_store_that_is_open_elsewhere_is_refused_with_its_process() {
    let shop = Shop::new();
    let store = Store::open_or_create(shop.path("s.onecho"), Options::new()).unwrap();
    let process = std::process::id().to_string();
    let who = if cfg!(target_os = "linux") { process.as_str() } else { "open" };
    for look in ["stats", "verify", "list --tenant t --kind order"] {
        shop.run(look).ends(3).says(&["s.onecho", who]);
    }
    store.close().unwrap();
    shop.run("stats").ends(0);
    let input = shop.file("in.csv", "id\na\n");
    for ran in [
        shop.run("stats --scope-mode per-tenant"),
        shop.run("verify --scope-mode per-tenant"),
        shop.ingest("--key id --scope-mode per-tenant", &input),
    ] {
        let ran = ran.ends(3).says(&["s.onecho", "`--scope-mode per-operation`"]);
        assert!(!ran.said().contains("PerOperation"), "{}", ran.said());
    }
}

#[test]
fn values_of_a_service_are_shown_under_each_codec() {
    const TENANT: Tenant = Tenant::new("t");
    let shop = Shop::new();
    let store = Store::open_or_create(shop.path("s.onecho"), Options::new()).unwrap();
    let request = Request::new(&TENANT, &Operation::new("op"), &Key::parse("k").unwrap()).bytes("body", "x");
    let reply = store.execute(&request, |fx| {
        fx.create(&Kind::json("json"), "a", &json!({"n": 1}))?;
        fx.create(&Kind::raw("bytes"), "a", &vec![0xFF].into())?;
        fx.create(&Kind::raw("bytes"), "b", &"not json".into())?;
        fx.add(&Kind::counter("count").shared(), "a", 7, 0)?;
        Ok(Outcome::failed(409).with_effects().body("sorry").meta("a", "b"))
    });
    assert!(reply.unwrap().into_finished().is_ok());
    store.close().unwrap();

    let list = |words: &str| {
        let ran = shop.run(&format!("list --tenant t --json --kind {words}")).ends(0);
        ran.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect::<Vec<Value>>()
    };
    assert_eq!(list("json"), [json!({"kind": "json", "id": "a", "version": 1, "value": {"n": 1}})]);
    assert_eq!(list("count --shared")[0]["value"], 7);
    assert_eq!(list("count"), Vec::<Value>::new());
    let bytes = list("bytes");
    assert_eq!((&bytes[0]["base64"], &bytes[1]["text"]), (&json!("/w=="), &json!("not json")));
    assert_eq!(list("bytes --prefix b").len(), 1);
    assert_eq!(list("bytes --limit 1").len(), 1);
    shop.run("get --tenant other --kind json --id a").ends(1);

    let status = shop.run("status --tenant t --operation op --key k --json").ends(0).json();
    assert_eq!(
        (&status["state"], &status["code"], &status["failed"]),
        (&json!("finished"), &json!(409), &json!(true))
    );
    assert_eq!(status["body"], json!({"text": "sorry"}));
    let verified = shop.run("verify --json").ends(0).json();
    assert_eq!(
        verified,
        json!({"clean": true, "entries": 1, "records": 1, "rows": 4, "duplicate_effects": 0,
        "faults": []})
    );
    assert_eq!(shop.run("stats --json").ends(0).json()["records"], 1);
    assert_eq!(shop.run("verify").ends(0).text(), "clean: 1 entries, 1 records, 4 rows\n");
}

#[test]
fn a_reader_that_goes_away_is_no_fault() {
    let shop = Shop::new();
    let rows: Vec<String> = (0..3000).map(|n| format!("{n},{}", "x".repeat(50))).collect();
    shop.ingest("--key id", &shop.file("in.csv", format!("id,n\n{}\n", rows.join("\n")))).ends(0);
    let mut command = shop.command("list");
    command.args("--tenant t --kind order --json".split(' ')).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    drop(child.stdout.take());
    Ran(child.wait_with_output().unwrap()).ends(0);
}

#[test]
fn the_exit_codes_are_in_the_help_and_in_the_docs() {
    let shop = Shop::new();
    let help = Command::new(env!("CARGO_BIN_EXE_onecho")).arg("--help").output().unwrap();
    let docs = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/cli.md")).unwrap();
    let help = Ran(help).ends(0).text();
    for code in 0..=5 {
        assert!(help.contains(&format!("\n  {code}  ")), "{help}");
        assert!(docs.contains(&format!("\n| {code} | ")), "exit code {code} is not in docs/cli.md");
    }
    shop.run("nonsense").ends(2);
}

/// Each line but the last leaves a quote open, so that each of them could be a record up to the bound. Were
/// the lines behind it read again for each, this would take hours.
#[test]
fn quotes_that_never_end_cost_their_own_lines_and_the_rows_between_run() {
    let shop = Shop::new();
    let lines: Vec<String> = (0..400_000)
        .map(|n| if n % 50_000 == 0 { format!("{n:07},good") } else { format!("{n:07}\"x,\"") })
        .collect();
    let input = shop.file("in.csv", format!("id,note\n{}\n", lines.join("\n")));
    let ran = shop.ingest("--key id", &input).ends(1);
    assert_eq!(ran.counts(), json!({"rows": 400_000, "executed": 8, "bad": 399_992}));
    assert!(ran.said().contains("65536 lines"), "{}", ran.said());
}

#[test]
fn text_that_only_looks_like_json_is_shown_as_text_and_json_digit_for_digit() {
    const TENANT: Tenant = Tenant::new("t");
    let shop = Shop::new();
    let store = Store::open_or_create(shop.path("s.onecho"), Options::new()).unwrap();
    let request = Request::new(&TENANT, &Operation::new("op"), &Key::parse("k").unwrap()).bytes("body", "x");
    let number = r#"{"z":12345678901234567890123,"a":1.10}"#;
    let reply = store.execute(&request, |fx| {
        fx.create(&Kind::raw("bytes"), "a", &"\"two\nlines\"".into())?;
        fx.create(&Kind::raw("bytes"), "b", &number.replace(',', ",\r\n").into())?;
        Ok(Outcome::succeeded(201).body(number))
    });
    assert!(reply.unwrap().into_finished().is_ok());
    store.close().unwrap();

    let listed = shop.run("list --tenant t --json --kind bytes").ends(0).text();
    let listed: Vec<&str> = listed.lines().collect();
    assert!(listed[0].ends_with(r#""text":"\"two\nlines\""}"#), "{}", listed[0]);
    let value = number.replace(',', ",  ");
    assert!(listed[1].ends_with(&format!("\"value\":{value}}}")), "{}", listed[1]);
    let status = shop.run("status --tenant t --operation op --key k").ends(0).text();
    let fields: Vec<(&str, &str)> = status.lines().filter_map(|line| line.split_once(' ')).collect();
    assert_eq!((fields[0].0, fields[0].1.trim()), ("state", "finished"));
    assert_eq!(fields[1].0, "code");
    assert!(fields.iter().any(|(name, value)| *name == "body" && value.contains(number)), "{status}");
}

#[test]
fn a_kind_with_rows_of_several_codecs_is_listed_to_its_end() {
    const TENANT: Tenant = Tenant::new("t");
    let shop = Shop::new();
    let store = Store::open_or_create(shop.path("s.onecho"), Options::new()).unwrap();
    let request = Request::new(&TENANT, &Operation::new("op"), &Key::parse("k").unwrap()).bytes("body", "x");
    let reply = store.execute(&request, |fx| {
        fx.create(&Kind::json("mix"), "a", &json!(1))?;
        fx.create(&Kind::raw("mix"), "b", &"two".into())?;
        fx.create(&Kind::<u64>::bincode("mix"), "c", &3)?;
        fx.create(&Kind::<u64>::bincode("mix"), "d", &4)?;
        fx.add(&Kind::counter("mix"), "e", 5, 0)?;
        fx.create(&Kind::json("mix"), "f", &json!(6))?;
        Ok(Outcome::succeeded(201))
    });
    assert!(reply.unwrap().into_finished().is_ok());
    store.close().unwrap();

    let ran = shop.run("list --tenant t --json --kind mix").ends(1).says(&["mix/d"]);
    assert!(ran.said().lines().count() == 2 && ran.said().contains("mix/c"), "{}", ran.said());
    let shown: Vec<Value> = ran.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let shown: Vec<_> = shown.iter().map(|row| (&row["id"], &row["value"], &row["text"])).collect();
    let (none, two) = (&Value::Null, &json!("two"));
    let expected = [
        (&json!("a"), &json!(1), none),
        (&json!("b"), none, two),
        (&json!("e"), &json!(5), none),
        (&json!("f"), &json!(6), none),
    ];
    assert_eq!(shown, expected);
    shop.run("list --tenant t --kind mix --limit 2").ends(0);
}

/// A key whose recorded outcome is damaged in every copy, in a closed store that begins with `filler_rows` of
/// 4 MB. Returns where in the file the damage is.
fn damage(shop: &Shop, filler_rows: u64) -> usize {
    const BODY: &[u8] = b"outcome that will be damaged";
    let path = shop.path("s.onecho");
    let store = Store::open_or_create(&path, Options::new()).unwrap();
    let filler = onecho::Bytes::from(vec![b'x'; 4_000_000]);
    let run = |key: &str, is_filler: bool| {
        let key = Key::parse(key).unwrap();
        let request = Request::new(&Tenant::new("t"), &Operation::new("import"), &key).bytes("body", "x");
        let reply = store.execute(&request, |fx| {
            if is_filler {
                fx.create(&Kind::raw("filler"), key.as_str(), &filler)?;
            }
            Ok(Outcome::succeeded(201).body(BODY))
        });
        assert!(reply.unwrap().into_finished().is_ok());
    };
    for row in 0..filler_rows {
        run(&format!("filler-{row}"), true);
    }
    run("damaged", false);
    run("last", false);
    store.close().unwrap();

    let mut bytes = fs::read(&path).unwrap();
    let places: Vec<usize> =
        (0..bytes.len() - BODY.len()).filter(|&at| bytes[at..].starts_with(BODY)).collect();
    for &place in &places {
        bytes[place] ^= 1;
    }
    fs::write(&path, bytes).unwrap();
    *places.last().unwrap()
}

#[test]
fn a_damaged_file_is_a_finding_of_verify_and_is_left_as_it_is() {
    for filler_rows in [0, 18] {
        let shop = Shop::new();
        let place = damage(&shop, filler_rows);
        let mut bytes = fs::read(shop.path("s.onecho")).unwrap();
        assert_eq!(bytes.len() > 64 << 20, filler_rows > 0, "only a larger file is opened without a check");
        for page in [bytes[place - place % 4096..][..4096].to_vec(), vec![0xFF; 4096]] {
            bytes[place - place % 4096..][..4096].copy_from_slice(&page);
            fs::write(shop.path("s.onecho"), &bytes).unwrap();
            let told = shop.run("verify --json").ends(3).says(&["s.onecho", "damaged", "backup"]).json();
            assert_eq!(told["clean"], false);
            assert!(told["faults"][0].as_str().unwrap().contains("s.onecho"), "{told}");
            let told = shop.run("verify").ends(3).text();
            assert!(told.lines().last().unwrap().starts_with("NOT CLEAN: "), "{told}");
            assert!(fs::read(shop.path("s.onecho")).unwrap() == bytes);
        }
    }
}

#[test]
fn a_store_found_damaged_on_the_way_ends_the_run() {
    let shop = Shop::new();
    damage(&shop, 18);
    let output = shop.path("out.jsonl");
    let words = format!("--key id --jobs 1 --output {}", output.display());
    let input = shop.file("in.csv", "id\ndamaged\nother\n");
    let ran = shop.ingest(&words, &input).ends(4).says(&["s.onecho", "damaged", "backup"]);
    assert_eq!(ran.json()["errors"], 0);
    assert_eq!(fs::read(&output).unwrap(), b"");
}

/// A limit on the size of files stands for a disk that has no more room.
#[cfg(target_os = "linux")]
#[test]
fn a_store_that_stays_stopped_says_that_the_disk_may_be_full_and_the_next_run_goes_on() {
    let shop = Shop::new();
    let rows: Vec<String> = (0..64).map(|n| format!("{n},{}", "x".repeat(500_000))).collect();
    let input = shop.file("in.csv", format!("id,n\n{}\n", rows.join("\n")));
    let run = shop.ingest_command("--key id", &input);
    let mut limited = Command::new("sh");
    limited.args(["-c", "trap '' XFSZ; ulimit -f 8192; exec \"$0\" \"$@\""]).stdin(Stdio::null());
    limited.arg(run.get_program()).args(run.get_args());
    let ran = Ran(limited.output().unwrap()).ends(4).says(&["s.onecho", "disk may be full", "command again"]);
    assert!(ran.json()["stopped"].as_str().unwrap().contains("disk may be full"));
    let counts = shop.ingest("--key id", &input).ends(0).json();
    let count = |name: &str| counts[name].as_u64().unwrap();
    assert_eq!(count("executed") + count("replayed"), 64);
}

#[test]
fn names_that_cannot_be_are_faults_of_the_arguments() {
    let shop = Shop::new();
    shop.ingest("--key id", &shop.file("in.csv", "id\na\n")).ends(0);
    let long = |chars| "n".repeat(chars);
    for (words, name) in [
        ("get --tenant t --kind order --id a\u{7}", "id"),
        ("get --tenant t --kind order --id a\u{2028}", "id"),
        (&format!("get --tenant t --kind order --id {}", long(1025)), "id"),
        ("get --tenant t --kind or\tder --id a", "kind"),
        (&format!("get --tenant {} --kind order --id a", long(129)), "tenant"),
        ("list --tenant t --kind order --prefix a\u{7}", "prefix"),
        (&format!("list --tenant t --kind {}", long(129)), "kind"),
        ("status --tenant t --operation import --key a\u{7}", "key"),
        (&format!("status --tenant t --operation import --key {}", long(256)), "key"),
        (&format!("status --tenant t --operation {} --key a", long(129)), "operation"),
    ] {
        shop.run(words).ends(2).says(&[name]);
    }
    shop.run(&format!("get --tenant t --kind order --id {}", long(1024))).ends(1);
    shop.run(&format!("list --tenant t --kind order --prefix {}", long(1024))).ends(0);
}

#[test]
fn a_header_that_hides_rows_is_refused() {
    let shop = Shop::new();
    for text in ["id,note\ra,1\rb,2\r", "id,note\rx\na,1\n", "id\tnote,n\na\t1,2\n", "id,\"no\nte\"\na,1\n"] {
        let input = shop.file("in.csv", text);
        shop.ingest("--key-line", &input).ends(2).says(&["in.csv", "control character", "LF or CRLF"]);
    }
    assert!(!shop.path("s.onecho").exists());
}

#[test]
fn an_output_is_made_only_when_the_store_is_open_and_never_in_its_place() {
    let shop = Shop::new();
    let input = shop.file("in.jsonl", "{\"line\":1}\n");
    let to = |output: &Path| format!("--key-line --append --output {}", output.display());
    for same in [shop.path("s.onecho"), shop.0.path().join("./s.onecho")] {
        shop.ingest(&to(&same), &input).ends(2).says(&["s.onecho is the store", "--output"]);
    }
    shop.ingest(&to(&input), &input).ends(2).says(&["in.jsonl is the input"]);
    assert_eq!(fs::read(&input).unwrap(), b"{\"line\":1}\n");
    shop.ingest(&to(&shop.path("absent/out.jsonl")), &input).ends(2).says(&["absent/out.jsonl", "opened"]);
    assert!(!shop.path("s.onecho").exists());

    shop.file("s.onecho", "no store");
    let output = shop.path("out.jsonl");
    shop.ingest(&to(&output), &input).ends(3).says(&["s.onecho"]);
    assert!(!output.exists());
    let cut = "{\"line\":1,\"key\":\"line-1\",\"result\":\"executed\"}\n{\"line\":";
    fs::write(&output, cut).unwrap();
    shop.ingest(&to(&output), &input).ends(3);
    assert_eq!(fs::read_to_string(&output).unwrap(), cut);
}

#[test]
fn standard_input_and_output_go_by_their_names() {
    let shop = Shop::new();
    let mut command = shop.command("ingest");
    command.args("--tenant t --operation import --key id --format csv --output - -".split(' '));
    command.current_dir(shop.0.path()).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let run = |command: &mut Command, text: &[u8]| {
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(text).unwrap();
        Ran(child.wait_with_output().unwrap())
    };
    let told = run(&mut command, b"id\na\n").ends(0).json();
    assert_eq!((&told["line"], &told["result"]), (&json!(2), &json!("executed")));
    assert!(!shop.path("-").exists());
    run(&mut command, b"no\na\n").ends(2).says(&["standard input has no column"]);
    run(&mut command, b"").ends(2).says(&["standard input is empty"]);
    run(command.arg("--json"), b"id\na\n").ends(2).says(&["--output -", "--json"]);
}

#[test]
fn a_fault_names_its_own_line_alone_and_an_output_only_where_there_is_one() {
    let shop = Shop::new();
    let input = shop.file("in.jsonl", "{\"a\":1} x\n".repeat(25));
    let ran = shop.ingest("--key-line --jobs 1", &input).ends(1);
    assert!(ran.said().contains("line 2 is bad: trailing characters at column 9\n"), "{}", ran.said());
    assert!(ran.said().contains("with `--output FILE`"), "{}", ran.said());
    let words = format!("--key-line --output {}", shop.path("out.jsonl").display());
    let ran = shop.ingest(&words, &input).ends(1);
    assert!(ran.said().contains("`--output` has each"), "{}", ran.said());
}

#[test]
fn a_value_that_only_its_program_can_read_is_nobodys_fault() {
    const TENANT: Tenant = Tenant::new("t");
    let shop = Shop::new();
    let store = Store::open_or_create(shop.path("s.onecho"), Options::new()).unwrap();
    let request = Request::new(&TENANT, &Operation::new("op"), &Key::parse("k").unwrap()).bytes("body", "x");
    let reply = store.execute(&request, |fx| {
        fx.create(&Kind::<u64>::bincode("order"), "a", &3)?;
        Ok(Outcome::succeeded(201))
    });
    assert!(reply.unwrap().into_finished().is_ok());
    store.close().unwrap();
    for look in ["get --tenant t --kind order --id a", "list --tenant t --kind order"] {
        let ran = shop.run(look).ends(1);
        let ran = ran.says(&["s.onecho: order/a", "Bincode", "cannot show", "the program that wrote it"]);
        assert!(!ran.said().contains("a kind keeps"), "{}", ran.said());
    }
}

#[test]
fn a_key_of_another_operation_is_told_as_that() {
    let shop = Shop::new();
    let input = shop.file("in.csv", "id\na\n");
    shop.ingest("--key id --scope-mode per-tenant", &input).ends(0);
    let mut command = shop.command("ingest");
    command.args("--scope-mode per-tenant --tenant t --operation other --key id".split(' ')).arg(&input);
    let ran = Ran(command.output().unwrap()).ends(1);
    assert!(ran.said().contains("line 2: its key was used by another operation"), "{}", ran.said());
}

#[test]
fn a_rerun_under_another_kind_or_id_makes_nothing_new() {
    let shop = Shop::new();
    let input = shop.file("in.csv", "id,n\na,1\n");
    shop.ingest("--key id", &input).ends(0);
    assert_eq!(shop.ingest("--key id --id n", &input).ends(0).counts(), json!({"rows": 1, "replayed": 1}));
    assert_eq!(shop.run("list --tenant t --kind order").ends(0).text(), "a\n");
}

#[test]
fn every_option_of_every_command_is_in_the_docs_and_all_show_one_way_to_import() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |name: &str| fs::read_to_string(root.join(name)).unwrap();
    let docs = read("docs/cli.md");
    for word in [
        "ingest",
        "run",
        "get",
        "status",
        "list",
        "history",
        "resolve",
        "cancel",
        "outbox list",
        "outbox show",
        "outbox requeue",
        "outbox drop",
        "outbox delivered",
        "inbox list",
        "inbox show",
        "inbox requeue",
        "inbox drop",
        "inbox delivered",
        "stats",
        "verify",
    ] {
        let words: Vec<&str> = word.split(' ').collect();
        // An inbox has the options of an outbox, which are told once.
        let word = word.replace("inbox ", "outbox ");
        let (word, chapter) = (word.as_str(), word.split(' ').next().unwrap());
        let help = Command::new(env!("CARGO_BIN_EXE_onecho")).args(&words).arg("--help").output().unwrap();
        let section =
            docs.split(&format!("\n## `{chapter}`\n")).nth(1).and_then(|rest| rest.split("\n## ").next());
        let common = docs.split("\n## ").find(|section| section.starts_with("Options of every command"));
        let section = section.unwrap_or_else(|| panic!("docs/cli.md has no section `{chapter}`"));
        assert!(section.contains(&format!("$ onecho {word} ")), "{word} has no example");
        let help = Ran(help).ends(0).text();
        let options = help.lines().filter_map(|line| line.trim_start().strip_prefix("--"));
        for option in options.map(|line| line.split([' ', '\n']).next().unwrap()) {
            let known = format!("`--{option}");
            let is_told = section.contains(&known) || common.unwrap().contains(&known);
            assert!(is_told, "`{word} --{option}` is not in docs/cli.md");
        }
    }
    let words = "ingest --db orders.onecho --tenant shop --operation create-order --key-line --kind order";
    for file in ["README.md", "examples/README.md", "docs/cli.md"] {
        assert!(read(file).contains(words), "{file}");
    }
}
