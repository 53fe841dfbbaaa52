//! Commands that were begun and are not finished: rows, entries and counts of them that somebody changed and
//! left every checksum right. They are written here by what `docs/format.md` says of them alone.

use std::path::{Path, PathBuf};
use std::time::Duration;

use onecho::{ErrorKind, Key, Reply, Request, Status, Store};
use redb::WriteTransaction;

use super::edit::*;
use super::{COMMANDS, ORDER, SHOP, Said, options, refuses, request};
use crate::format::{
    self, Block, Content, Entry, Evidence, Fact, Image, KeptBody, Listed, Note, Open, Phase, Read, Row,
    State, Step, StepState, Swept, framed, open_key, sha,
};

/// Written in this order: nothing is known of it, something is, its end is unknown, somebody found out.
const OPEN: [&str; 4] = ["o-new", "o-done", "o-unknown", "o-settled"];
/// What `OPEN` has as the entries that wrote them last.
const LAST: [u64; 4] = [25, 27, 29, 32];

fn open_request(key: &str) -> Request {
    Request::new(&SHOP, &ORDER, &Key::parse(key).unwrap()).bytes("body", "4").wait(Duration::ZERO)
}

/// A store to which commits are appended by hand.
struct Hand<'s> {
    store: &'s mut Read,
    write: &'s WriteTransaction,
}

impl Hand<'_> {
    /// An entry that says nothing; it has the fingerprint of the command `4`.
    fn entry(&self, key: &str, transition: u8, token: u64, facts: &[Fact]) -> Entry {
        let like = &self.store.journal[&entry_key(5)];
        Entry {
            transition,
            at: self.store.said.last_time,
            generation: 1,
            scope: [like.scope[0].clone(), like.scope[1].clone(), key.to_owned()],
            fingerprint: like.fingerprint.clone(),
            failed: false,
            code: 0,
            meta: Vec::new(),
            resource: None,
            body: KeptBody::Kept(Vec::new()),
            actor: "by hand".to_owned(),
            token,
            facts: facts.to_vec(),
            notes: Vec::new(),
        }
    }

    /// Begins a command; returns its row.
    fn begin(&mut self, key: &str, steps: Vec<Step>) -> Row {
        let seq = self.store.said.last_seq + 1;
        let facts: Vec<Fact> = steps.iter().map(|step| Fact::Declared(step.name.clone())).collect();
        let entry = self.entry(key, 3, 0, &facts);
        let open = Open {
            scope: entry.scope.clone(),
            fingerprint: entry.fingerprint.clone(),
            generation: 1,
            phase: Phase::Processing,
            since: entry.at,
            attempt: 1,
            token: seq,
            granted: (self.store.said.epoch, 17),
            lease: 30_000,
            owner: "by hand".to_owned(),
            input: Some(b"to go on".to_vec()),
            steps,
            points: Vec::new(),
            stop_asked: false,
            evidence: Vec::new(),
        };
        let row =
            Row { version: seq, made: (1, seq), event_time: None, content: Content::Open(Box::new(open)) };
        self.append(entry, None, Some(row.clone()));
        row
    }

    /// Moves a command on, to what `change` makes of it.
    fn advance(&mut self, row: &mut Row, transition: u8, facts: &[Fact], change: impl FnOnce(&mut Open)) {
        let before = row.clone();
        let open = open_of(row);
        let token = if matches!(transition, 5 | 8 | 12) { open.token } else { 0 };
        change(open);
        let key = open.scope[2].clone();
        row.version = self.store.said.last_seq + 1;
        let entry = self.entry(&key, transition, token, facts);
        self.append(entry, Some(before), Some(row.clone()));
    }

    /// Ends a command.
    fn end(&mut self, mut row: Row, transition: u8, facts: &[Fact]) {
        let open = open_of(&mut row);
        let token = if matches!(transition, 6 | 7 | 13 | 14) { open.token } else { 0 };
        let key = open.scope[2].clone();
        let entry = self.entry(&key, transition, token, facts);
        self.append(entry, Some(row), None);
    }

    /// Commits an entry, with what it makes of the open row of its scope.
    fn append(&mut self, mut entry: Entry, before: Option<Row>, after: Option<Row>) {
        let scope = entry.scope_digest(self.store.scope_mode);
        let (seq, row_key) = (self.store.said.last_seq + 1, open_key(scope));
        let mut rows = Vec::new();
        if before.is_some() || after.is_some() {
            let made = after.as_ref().map(|row| {
                let [_, made] = [row.made.0, row.made.1].map(u64::to_be_bytes);
                [&[0, 1][..], &made].concat()
            });
            let digest = after.as_ref().zip(made).map(|(row, made)| row.digest(&made));
            let verb = u8::from(after.is_none());
            entry.notes.push(Note { row: row_key.clone(), verb, digest });
            let here = |row: &Row| Image::Here(row_frame(&row_key, row));
            rows.push((row_key.clone(), after.as_ref().map_or(Image::Removed, here)));
        }
        let (key, said) = (entry_key(seq), &mut self.store.said);
        let head = &mut said.heads[0];
        (head.link, head.seq, head.entries) = (entry.link(head.link, key, scope), seq, head.entries + 1);
        said.last_seq = seq;
        said.blocks += 1;
        said.records += u64::from(entry.is_outcome());
        said.executed += u64::from(matches!(entry.transition, 6 | 13));
        said.resolved += u64::from(matches!(entry.transition, 13 | 14));
        said.differences += u64::from(entry.transition == 15);
        let is_unknown = |mut row: Row| open_of(&mut row).phase != Phase::Processing;
        let grown =
            |count: &mut u64, more: bool, less: bool| *count = *count + u64::from(more) - u64::from(less);
        grown(&mut said.own_rows, after.is_some(), before.is_some());
        grown(&mut said.open, after.is_some(), before.is_some());
        grown(&mut said.unknown, after.is_some_and(is_unknown), before.is_some_and(is_unknown));
        let frame = framed(format::JOURNAL_NUMBER, &key, 4, &entry.body());
        let listed = Listed { above: 0, scope: Some(scope), is_outcome: entry.is_outcome(), frame };
        let block = Block { entries: vec![listed], rows, state: Some(said.clone()) };
        self.write.open_table(format::JOURNAL).unwrap().insert(&key, &block.value(&key)[..]).unwrap();
    }
}

fn open_of(row: &mut Row) -> &mut Open {
    let Content::Open(open) = &mut row.content else { panic!("it is open") };
    open
}

fn step(name: &str) -> Step {
    let started = (1, 17);
    Step { name: name.to_owned(), contract: 1, settles_within: 1_000, started, state: StepState::Open }
}

fn answered(name: &str, answer: &[u8]) -> Fact {
    Fact::Answered(name.to_owned(), sha(&[answer]), answer.len() as u64)
}

fn because() -> Evidence {
    Evidence { source: "dashboard".to_owned(), text: "captured".to_owned() }
}

/// Appends commands in every phase, and some that have come to each of their ends.
fn write_claims(write: &WriteTransaction, store: &mut Read) {
    let mut hand = Hand { store, write };
    hand.begin(OPEN[0], Vec::new());
    let mut done = hand.begin(OPEN[1], vec![step("charge"), step("mail")]);
    let reached = Fact::Reached("charged".to_owned(), sha(&[b"ch_17"]));
    hand.advance(&mut done, 5, &[answered("charge", b"ch_17"), reached], |open| {
        open.steps[0].state = StepState::Answered(b"ch_17".to_vec());
        open.points.push(("charged".to_owned(), b"ch_17".to_vec()));
    });
    let mut unknown = hand.begin(OPEN[2], vec![step("charge")]);
    let since = hand.store.said.last_time;
    hand.advance(&mut unknown, 8, &[Fact::Because(because())], |open| {
        open.phase = Phase::Unknown { since, settled: false };
        open.evidence.push(because());
    });
    let mut settled = hand.begin(OPEN[3], vec![step("charge")]);
    hand.advance(&mut settled, 9, &[], |open| open.phase = Phase::Unknown { since, settled: false });
    let found = [Fact::NotApplied("charge".to_owned()), Fact::Because(because())];
    hand.advance(&mut settled, 12, &found, |open| {
        open.phase = Phase::Unknown { since, settled: true };
        open.steps[0].state = StepState::NotApplied;
        open.evidence.push(because());
    });
    let mut finished = hand.begin("o-finished", Vec::new());
    hand.advance(&mut finished, 11, &[], |open| open.stop_asked = true);
    hand.end(finished, 6, &[]);
    let aborted = hand.begin("o-aborted", Vec::new());
    let token = aborted.version;
    hand.end(aborted, 7, &[]);
    let late = hand.entry("o-aborted", 15, token, &[]);
    hand.append(late, None, None);
    for transition in [13, 14] {
        let mut open = hand.begin(&format!("o-{transition}"), vec![step("charge")]);
        hand.advance(&mut open, 9, &[], |open| open.phase = Phase::Unknown { since, settled: false });
        hand.end(open, transition, &[Fact::Because(because())]);
    }
    let cancelled = hand.entry("o-cancelled", 10, 0, &[]);
    hand.append(cancelled, None, None);
    let mut taken = hand.begin("o-taken", Vec::new());
    let token = hand.store.said.last_seq + 1;
    hand.advance(&mut taken, 4, &[], |open| (open.attempt, open.token) = (2, token));
    hand.end(taken, 6, &[]);
}

/// A sound store with such commands.
fn claims(merged: Merged) -> (tempfile::TempDir, PathBuf) {
    let (dir, path) = made(Merged::None);
    edit(&path, write_claims);
    if merged == Merged::All {
        edit(&path, merge);
    }
    Read::of(&path).check();
    (dir, path)
}

/// Puts what waits into its tables.
fn merge(write: &WriteTransaction, store: &mut Read) {
    put_index(write, store);
    write.delete_table(format::RESOURCE).unwrap();
    for (key, row) in &store.rows {
        put_row(write, key, row);
    }
    let State { last_seq, .. } = store.said;
    let said = &mut store.said;
    (said.merged_to, said.sweep_to, said.swept) = (last_seq, last_seq, Swept::default());
    (said.indexed, said.settled) = (store.index.len() as u64, store.rows.len() as u64);
    said.index_rows = 1;
}

/// All scopes in one row of the index.
fn put_index(write: &WriteTransaction, store: &Read) {
    let scopes: Vec<_> = store.index.iter().map(|(scope, position)| (*scope, *position)).collect();
    let mut index = write.open_table(format::INDEX).unwrap();
    index.insert(&[0; 16], &format::scopes_value(&[0; 16], &scopes)[..]).unwrap();
}

/// All of it is merged and then changed.
fn edited(work: impl FnOnce(&WriteTransaction, &mut Read)) -> (tempfile::TempDir, PathBuf) {
    let (dir, path) = claims(Merged::All);
    edit(&path, work);
    (dir, path)
}

fn key_of(store: &Read, key: &str) -> Vec<u8> {
    let [tenant, operation, _] = store.journal[&entry_key(5)].scope.clone();
    open_key(format::scope_digest(&[tenant, operation, key.to_owned()], store.scope_mode))
}

/// The row in words.
fn place(path: &Path, key: &str) -> String {
    let key = String::from_utf8(key_of(&Read::of(path), key)).unwrap();
    format!("row open command/{}", &key[1..])
}

#[test]
fn what_is_written_as_the_page_says_is_a_sound_store() {
    for merged in [Merged::None, Merged::All] {
        let (_dir, path) = claims(merged);
        let store = Store::open(&path, options()).unwrap();
        let report = store.verify().unwrap();
        assert_eq!(report.faults, [""; 0]);
        assert_eq!((report.open, report.records), (4, COMMANDS as u64 + 4));
        assert_eq!(Said::of(&store), Said::default());
        for key in OPEN {
            let reply = store.execute(&open_request(key), |_| panic!("it is open and runs")).unwrap();
            assert!(matches!(reply, Reply::InProgress { .. } | Reply::Unknown { .. }), "{key}: {reply:?}");
        }
        for key in ["o-finished", "o-13", "o-cancelled", "o-taken"] {
            let reply = store.execute(&open_request(key), |_| panic!("it is finished and runs")).unwrap();
            assert!(matches!(reply, Reply::Replay(_)), "{key}: {reply:?}");
        }
        for key in ["o-aborted", "o-14"] {
            assert!(matches!(store.status(open_request(key).scope()).unwrap(), Status::Absent));
        }
    }
}

#[test]
fn an_open_row_that_says_something_else_is_told() {
    let changes: [fn(&mut Open); 17] = [
        |open| open.token += 1,
        |open| open.attempt = 2,
        |open| open.phase = Phase::Processing,
        |open| open.phase = Phase::Unknown { since: 1, settled: false },
        |open| open.phase = Phase::Unknown { since: open.since, settled: true },
        |open| open.steps[0].state = StepState::Answered(b"ch_18".to_vec()),
        |open| open.steps[0].state = StepState::NotApplied,
        |open| open.steps[0].contract = 0,
        |open| open.steps[0].settles_within = 0,
        |open| open.steps.clear(),
        |open| open.points.push(("charged".to_owned(), Vec::new())),
        |open| open.evidence[0].text.clear(),
        |open| open.evidence.clear(),
        |open| open.input = None,
        |open| open.lease = 0,
        |open| open.stop_asked = true,
        |open| open.fingerprint.digest[0] ^= 1,
    ];
    for (number, change) in changes.into_iter().enumerate() {
        let (_dir, path) = edited(|write, store| {
            let key = key_of(store, OPEN[2]);
            let mut row = store.rows[&key].clone();
            change(open_of(&mut row));
            put_row(write, &key, &row);
        });
        let fault = format!("{}: entry {} wrote something else", place(&path, OPEN[2]), LAST[2]);
        let report = Store::open(&path, options()).unwrap().verify().unwrap();
        assert!(report.faults.contains(&fault), "change {number}: {:#?}", report.faults);
    }
}

/// What an earlier entry wrote of it, and a phase that came first.
#[test]
fn an_open_row_that_was_put_back_to_what_it_was_is_told() {
    let (_dir, path) = edited(|write, store| {
        let key = key_of(store, OPEN[3]);
        let before = &store.blocks[&entry_key(LAST[3] - 1)];
        let Image::Here(frame) = &before.rows[0].1 else { panic!("a small row is in its block") };
        write.open_table(format::RESOURCE).unwrap().insert(&key[..], &frame[..]).unwrap();
    });
    let place = place(&path, OPEN[3]);
    verify_tells(&path, &[&format!("{place}: entry {} changed it later, and it does not show", LAST[3])]);
}

#[test]
fn an_open_row_under_the_key_of_another_scope_is_told_and_never_followed() {
    for under in [OPEN[0], "o-14"] {
        let (_dir, path) = edited(|write, store| {
            let row = store.rows[&key_of(store, OPEN[2])].clone();
            store.said.settled += u64::from(!store.rows.contains_key(&key_of(store, under)));
            put_row(write, &key_of(store, under), &row);
        });
        let place = place(&path, under);
        verify_tells(&path, &[&format!("{place}: it holds the open command of another scope")]);
        let store = Store::open(&path, options()).unwrap();
        let error = store.execute(&open_request(under), |_| panic!("it runs")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt);
    }
}

#[test]
fn an_open_row_where_there_was_none_is_told() {
    let (_dir, path) = edited(|write, store| {
        let mut row = store.rows[&key_of(store, OPEN[2])].clone();
        open_of(&mut row).scope[2] = "o-14".to_owned();
        store.said.settled += 1;
        put_row(write, &key_of(store, "o-14"), &row);
    });
    let fault = format!("{}: entry {} did not write it", place(&path, "o-14"), LAST[2]);
    verify_tells(
        &path,
        &[&fault, "open commands: there are 5, not 4", "rows of the store's own: there are 5"],
    );
}

#[test]
fn an_open_row_that_is_missing_is_told() {
    let remove = |write: &WriteTransaction, store: &Read| {
        let key = key_of(store, OPEN[2]);
        write.open_table(format::RESOURCE).unwrap().remove(&key[..]).unwrap();
    };
    let (_dir, path) = edited(|write, store| remove(write, store));
    refuses(&path, &options(), ErrorKind::Corrupt, &["table resource: it has"]);
    let (_dir, path) = edited(|write, store| {
        remove(write, store);
        store.said.settled -= 1;
    });
    let fault = format!("{}: entry {} wrote it, and it is not there", place(&path, OPEN[2]), LAST[2]);
    verify_tells(
        &path,
        &[
            &fault,
            "open commands: there are 3, not 4",
            "open commands in Unknown: there are 1, not 2",
            "rows of the store's own: there are 3, not 4",
        ],
    );
}

#[test]
fn a_row_of_another_kind_in_the_place_of_an_open_one_is_told_and_never_followed() {
    let note = b"tshop\0note\0n-5";
    let (_dir, path) = edited(|write, store| {
        put_row(write, &key_of(store, OPEN[2]), &store.rows[&note[..]]);
        put_row(write, note, &store.rows[&key_of(store, OPEN[0])]);
    });
    let open = format!("{}: it holds what belongs into a row of another kind", place(&path, OPEN[2]));
    verify_tells(&path, &[&open, "row note/n-5: it holds what belongs into a row of another kind"]);
    let store = Store::open(&path, options()).unwrap();
    let error = store.execute(&open_request(OPEN[2]), |_| panic!("it runs")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
}

#[test]
fn a_key_that_is_no_scope_is_told() {
    for key in [&b"o"[..], b"oBA0123456789abcdef0123456789abcd", b"o0123456789abcdef0123456789abcdef0"] {
        let (_dir, path) = edited(|write, store| {
            put_row(write, key, &store.rows[&key_of(store, OPEN[0])]);
            store.said.settled += 1;
        });
        verify_tells(&path, &["resource: a key names no row"]);
    }
    let (_dir, path) = claims(Merged::None);
    edit(&path, |write, _| {
        rewrite_block(write, entry_key(LAST[0]), |block| block.rows[0].0.truncate(9));
    });
    refuses(&path, &options(), ErrorKind::Corrupt, &["a key names no row"]);
}

#[test]
fn counts_of_open_commands_that_are_wrong_are_told() {
    let told: [(fn(&mut State), &str); 7] = [
        (|said| said.own_rows += 1, "rows of the store's own: there are 4, not 5"),
        (|said| said.open -= 1, "open commands: there are 4, not 3"),
        (|said| said.unknown -= 1, "open commands in Unknown: there are 2, not 1"),
        (|said| said.unknown += 1, "open commands in Unknown: there are 2, not 3"),
        (|said| said.executed += 1, "commands that were executed: there are 27, not 28"),
        (|said| said.resolved -= 1, "commands whose end was found out: there are 2, not 1"),
        (|said| said.differences = 0, "completions that came too late: there are 1, not 0"),
    ];
    for (change, fault) in told {
        let (_dir, path) = edited(|_, store| change(&mut store.said));
        verify_tells(&path, &[fault]);
    }
    let refused: [(fn(&mut State), &str); 5] = [
        (|said| said.open += 1, "more commands are open than there are rows of them"),
        (|said| said.unknown = 5, "more commands are open than there are rows of them"),
        (|said| said.own_rows = u64::MAX, "a count is larger than any store's"),
        (|said| said.resolved = u64::MAX, "a count is larger than any store's"),
        (|said| said.differences = u64::MAX, "a count is larger than any store's"),
    ];
    for (change, fault) in refused {
        let (_dir, path) = edited(|_, store| change(&mut store.said));
        refuses(&path, &options(), ErrorKind::Corrupt, &[fault]);
    }
}

#[test]
fn an_entry_that_is_listed_as_an_outcome_and_is_none_is_told_and_never_given() {
    for merged in [Merged::None, Merged::All] {
        let (_dir, path) = claims(merged);
        edit(&path, |write, _| {
            rewrite_block(write, entry_key(LAST[0]), |block| block.entries[0].is_outcome = true);
            rewrite_block(write, entry_key(5), |block| block.entries[0].is_outcome = false);
        });
        let listed = "its block does not say rightly whether it is an outcome";
        let [begun, fifth] = [LAST[0], 5].map(|seq| format!("journal entry {seq} of class 1"));
        verify_tells(&path, &[&format!("{begun}: {listed}"), &format!("{fifth}: {listed}")]);
        if merged == Merged::All {
            continue;
        }
        let no_outcome = format!("{begun}: the index leads to it, and it is no outcome");
        let unknown = format!("{fifth}: the index does not know its scope");
        verify_tells(&path, &[&no_outcome, &unknown]);
        let store = Store::open(&path, options()).unwrap();
        let asked = open_request(OPEN[0]);
        assert_eq!(store.status(asked.scope()).unwrap_err().kind(), ErrorKind::Corrupt);
        let error = store.execute(&asked, |_| panic!("it runs")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt);
    }
}

#[test]
fn a_row_of_the_index_that_leads_to_no_outcome_is_told_and_never_followed() {
    let (_dir, path) = edited(|write, store| {
        let key = key_of(store, "o-finished");
        let finished = store.index.iter_mut().find(|(scope, _)| open_key(**scope) == key).unwrap();
        *finished.1 = entry_key(format::seq_of(finished.1) - 2);
        put_index(write, store);
    });
    verify_tells(&path, &["the index leads to it, and it is no outcome"]);
    let store = Store::open(&path, options()).unwrap();
    let error = store.execute(&open_request("o-finished"), |_| panic!("it runs")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
}

/// The commands beside them are answered as ever.
#[test]
fn an_open_row_that_cannot_be_read_harms_no_other() {
    let (_dir, path) = claims(Merged::All);
    let place = place(&path, OPEN[1]);
    edit(&path, |write, store| {
        let key = key_of(store, OPEN[1]);
        let mut frame = row_frame(&key, &store.rows[&key]);
        frame[20] ^= 1;
        write.open_table(format::RESOURCE).unwrap().insert(&key[..], &frame[..]).unwrap();
    });
    verify_tells(&path, &[&format!("{place}: its checksum is wrong")]);
    let store = Store::open(&path, options()).unwrap();
    let error = store.execute(&open_request(OPEN[1]), |_| panic!("it runs")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(matches!(store.execute(&request(4), |_| panic!("it runs")).unwrap(), Reply::Replay(_)));
    assert_eq!(Said::of(&store), Said::default());
}
