//! The format, pinned: every kind of stored body with its exact bytes, the refusal of all that is near them,
//! and another codec that reads them.

mod another_codec;
mod row_samples;

use std::sync::Arc;

use bytes::Bytes;
use proptest::prelude::*;
use serde::Serialize;
use serde::de::DeserializeOwned;

use self::row_samples::*;
use super::codec;
use super::envelope::{self, Kind, Table};
use super::fault::Unreadable;
use super::index;
use super::stored::{
    Directory, Framed, Head, Identity, Image, LateRow, Listed, State, StoredClass, StoredEntry, StoredRow,
    Swept, Tail,
};
use super::tables::position_key;
use crate::core::authority::Unit;
use crate::core::claim::{Contract, Moment, Open, Phase, Point, StepRecord, StepState};
use crate::core::effect::{Note, Verb};
use crate::core::fact::{Evidence, Fact};
use crate::core::fingerprint::{Compare, Fingerprint, Match, Parts};
use crate::core::message::{
    Errand, EventStamp, Flight, Letter, MessageId, OnDead, Post, Queue, Stage, Status, Terms,
};
use crate::core::name::{Key, Operation, Scope, ScopeDigest, ScopeMode, Tenant, hex};
use crate::core::outcome::{Digest, ResourceRef};
use crate::core::policy::Windows;
use crate::core::record::{ClassId, Entry, KeptBody, Position, Told, Transition};
use crate::core::row::{Codec, Content, Row, RowKey};
use crate::core::time::Timestamp;

/// One line each: name, key and frame in hexadecimal. When the format changes on purpose, the failing test
/// prints the new text.
const GOLDEN: &str = include_str!("../../tests/fixtures/format-1.golden");

struct Sample {
    name: &'static str,
    table: Table,
    key: Vec<u8>,
    kind: Kind,
    frame: Vec<u8>,
    /// Decodes a body, and writes again what it says.
    again: fn(&[u8]) -> Result<Vec<u8>, String>,
}

impl Sample {
    fn of<T: Serialize + DeserializeOwned>(
        name: &'static str,
        table: Table,
        key: impl Into<Vec<u8>>,
        kind: Kind,
        value: &T,
    ) -> Self {
        let key = key.into();
        let frame = envelope::seal(table, &key, kind, value).unwrap();
        let again = |body: &[u8]| codec::encode(&codec::decode::<T>(body)?);
        Self { name, table, key, kind, frame, again }
    }

    fn open(&self, frame: &[u8]) -> Result<Vec<u8>, String> {
        let body = envelope::body(self.table, &self.key, self.kind, frame);
        (self.again)(body.map_err(|fault| fault.at("a row").to_string())?)
    }

    fn body(&self) -> &[u8] {
        &self.frame[6..self.frame.len() - 4]
    }
}

const POSITION: Position = Position { class: ClassId(1), seq: 300 };

fn identity() -> Identity {
    Identity {
        store_id: std::array::from_fn(|at| u8::try_from(at).unwrap()),
        scope_mode: ScopeMode::PerTenant,
        created_at: Timestamp(1_796_040_000_000),
        owns_nothing: true,
    }
}

fn state() -> State {
    State {
        epoch: 250,
        last_time: Timestamp(1_796_040_000_001),
        last_seq: 251,
        clock_settled: Some(Timestamp(65_536)),
        merged_to: 248,
        sweep_to: 249,
        swept: Swept { scope: Some([0xBA; 16]), row: Some(Bytes::from_static(b"sstock\0pen")) },
        records: 65_535,
        rows: 3,
        own_rows: 1_000,
        open: 999,
        unknown: 998,
        waiting: 997,
        doubtful: 996,
        dead: 995,
        blocked: 994,
        executed: 1 << 32,
        resolved: 245,
        differences: 246,
        blocks: 252,
        indexed: 253,
        index_rows: 254,
        settled: 255,
        heads: vec![Head { class: 1, seq: 251, entries: 2, link: [0xAB; 32] }],
    }
}

fn state_among_scopes() -> State {
    let mut state = state();
    state.swept = Swept { scope: Some(std::array::from_fn(|at| u8::try_from(at).unwrap())), row: None };
    state.clock_settled = None;
    state.set_head(Head { class: 2, seq: 250, entries: 1, link: [0xBC; 32] });
    state
}

fn directory() -> Directory {
    Directory {
        entries: vec![
            Listed { above: 0, len: 244, scope: Some([0xEF; 16]), is_outcome: true },
            Listed { above: 2, len: 70_000, scope: None, is_outcome: false },
            Listed { above: 3, len: 245, scope: Some([0xEF; 16]), is_outcome: false },
        ],
    }
}

fn late_row(key: &[u8], image: Image) -> LateRow {
    LateRow { key: RowKey::parse(key).unwrap(), image }
}

/// Rows of every kind, and what the commit said.
fn tail() -> Tail {
    let (_, pen) = rows().into_iter().find(|(name, _)| *name == "row, counter").unwrap();
    let key = b"tshop\0order\x0017";
    let framed = envelope::seal(Table::Resource, key, Kind::Row, &StoredRow::from(&pen)).unwrap();
    Tail {
        rows: vec![
            late_row(key, Image::Here(Framed(framed.into()))),
            late_row(b"sstock\0pen", Image::Removed),
            late_row(b"sstock\0ink", Image::Settled),
            late_row(b"o7af0beda63b3b2f94c7d8e0c2ad4f6a1", Image::Removed),
        ],
        state: Some(state_among_scopes()),
    }
}

const WINDOWS: Windows = Windows { body: 86_400_000, key: 2_592_000_000, tombstone: u64::MAX };

fn scope() -> Scope {
    let key = Key::parse("k-1").unwrap();
    Scope { tenant: Tenant::new("shop"), operation: Operation::new("create-order"), key }
}

fn parts() -> Parts {
    let mut parts = Parts::new();
    parts.bytes("method", b"POST");
    parts.json("body", br#"{ "b": 1, "a": 2 }"#);
    parts
}

/// Everything that an entry can hold.
fn full_entry() -> Entry {
    let order = RowKey::resource(Some(&Tenant::new("shop")), "order", "17");
    let stock = RowKey::resource(None, "stock", "pen");
    let cart = RowKey::unique(Some(&Tenant::new("shop")), "cart", "c-9");
    Entry {
        transition: Transition::Executed,
        at: Timestamp(1_796_040_000_000),
        generation: 2,
        told: full_told().into(),
        notes: vec![
            Note { key: order, verb: Verb::Write, digest: Some(Digest::of(b"value")) },
            Note { key: stock, verb: Verb::Keep, digest: None },
            Note { key: cart, verb: Verb::Remove, digest: None },
        ],
    }
}

fn full_told() -> Told {
    Told {
        scope: scope(),
        fingerprint: Fingerprint::of(&parts(), Compare::Exact).unwrap(),
        failed: false,
        code: 201,
        meta: [("location".into(), Bytes::from_static(b"/orders/17"))].into(),
        resource: Some(ResourceRef::new("order", "17", false)),
        body: KeptBody::Kept(Bytes::from_static(b"made")),
        actor: "edge-7".into(),
        token: 299,
        facts: facts().into(),
    }
}

/// One of each kind.
fn facts() -> Vec<Fact> {
    vec![
        Fact::Declared { step: "charge".into() },
        Fact::Answered { step: "reserve".into(), digest: Digest::of(b"r-9"), len: 3 },
        Fact::NotApplied { step: "mail".into() },
        Fact::Reached { point: "reserved".into(), digest: Digest([0xAC; 32]) },
        Fact::Because(Evidence::new("dashboard", "captured \u{fc}")),
        Fact::Brought { at: Timestamp(65_536), ended_by: 6, made: 1 << 63, count: 3 },
    ]
}

fn bare_entry() -> Entry {
    let mut parts = Parts::new();
    parts.bytes("body", b"");
    Entry {
        transition: Transition::Unprotected,
        generation: 1,
        told: Arc::new(Told {
            fingerprint: Fingerprint::of(&parts, Compare::Parts(&["body"])).unwrap(),
            failed: true,
            code: 0,
            meta: Arc::default(),
            resource: None,
            body: KeptBody::NotKept { digest: Digest([0xCD; 32]), len: 70_000 },
            actor: "onecho".into(),
            token: 0,
            facts: Arc::default(),
            ..full_told()
        }),
        notes: Vec::new(),
        ..full_entry()
    }
}

/// A message in each stage is read as it was written.
#[test]
fn every_stage_of_a_message_is_read_as_it_was_written() {
    let flight = |errand| Flight { token: 302, errand, started: moment(253) };
    let time = Timestamp(65_536);
    for stage in [
        Stage::Queued,
        Stage::Waiting { due: time },
        Stage::Flying(flight(Errand::Send)),
        Stage::Flying(flight(Errand::Job)),
        Stage::Unsure { due: time, flight: flight(Errand::Send) },
        Stage::Unknown { since: time, flight: flight(Errand::Send) },
        Stage::Dead { since: time },
        Stage::Delivered { at: time, answer: None },
        Stage::Delivered { at: time, answer: Some(Bytes::from_static(b"receipt")) },
        Stage::Discarded { at: time },
    ] {
        let wrote = row(Content::Post(Post::Status(Box::new(Status { stage, ..message() }))));
        assert!(Row::try_from(read_again(&wrote)).unwrap() == wrote);
    }
}

fn rows() -> [(&'static str, Row); 18] {
    let holder = ResourceRef::new("order", "17", true);
    [
        ("row, raw", value_of(Codec::Raw, b"\x00\xFF")),
        ("row, json", value_of(Codec::Json, br#"{"a":1}"#)),
        ("row, bincode", value_of(Codec::Bincode, &[251, 44, 1])),
        ("row, counter", value_of(Codec::Counter, &[0xFF; 8])),
        ("row, removed", Row { event_time: Some(Timestamp(1_000)), ..row(Content::Removed) }),
        ("row, held", row(Content::Held(holder))),
        ("row, open, processing", open_row(begun())),
        ("row, open, unknown", open_row(unknown(false))),
        ("row, open, settled", open_row(unknown(true))),
        ("row, message", row(Content::Post(Post::Status(Box::new(message()))))),
        ("row, message, bare", row(Content::Post(Post::Status(Box::new(bare_message()))))),
        ("row, letter", row(Content::Post(Post::Letter(letter())))),
        ("row, ordering key", row(Content::Post(Post::Queue(ordering_key())))),
        ("row, known message", row(Content::Post(Post::Known(MESSAGE)))),
        ("row, owned", row(Content::Unit(Unit::Owned { epoch: 251 }))),
        ("row, handed over", row(Content::Unit(Unit::HandedOver { to: "south".into(), epoch: 250 }))),
        ("row, arriving", row(Content::Unit(Unit::Arriving { from: "north".into(), epoch: 252 }))),
        ("row, mark", Row { event_time: Some(Timestamp(1_000)), ..row(Content::Post(Post::Mark)) }),
    ]
}

fn row_key(name: &str) -> RowKey {
    let shop = Tenant::new("shop");
    match name {
        "row, held" => RowKey::unique(None, "cart", "c-9"),
        "row, open, processing" | "row, open, unknown" | "row, open, settled" => {
            RowKey::open(ScopeDigest::of(&scope(), ScopeMode::PerOperation))
        }
        "row, message" | "row, message, bare" => RowKey::message(MESSAGE),
        "row, letter" => RowKey::letter(MESSAGE),
        "row, owned" | "row, handed over" | "row, arriving" => RowKey::unit(&shop),
        "row, ordering key" => RowKey::queue("shop", "payments", "customer-7"),
        "row, known message" => RowKey::known("shop", "payments", "k-1"),
        "row, mark" => RowKey::stream("shop", "forge/mirror", "onecho"),
        _ => RowKey::resource(Some(&shop), "order", "17"),
    }
}

/// A block of one scope: of several, a part is one, too.
fn scopes() -> Sample {
    let key = vec![0xEE; 16];
    let body = [&[0xEF; 16][..], &position_key(POSITION)].concat();
    let frame = envelope::frame(Table::Index, &key, Kind::Scopes, &body).unwrap();
    let again = |body: &[u8]| {
        let framed = envelope::frame(Table::Index, &[0xEE; 16], Kind::Scopes, body)?;
        let scopes = index::Scopes::read(&[0xEE; 16], &framed).map_err(|fault| fault.to_string())?;
        let packed = |(scope, position): (ScopeDigest, _)| [&scope.0[..], &position_key(position)].concat();
        Ok(scopes.from(&index::FIRST).flat_map(packed).collect())
    };
    Sample { name: "scopes", table: Table::Index, key, kind: Kind::Scopes, frame, again }
}

fn bare_tail() -> Tail {
    Tail { rows: Vec::new(), state: None }
}

/// A row as it is read from what was written of it.
fn read_again(row: &Row) -> StoredRow {
    codec::decode(&codec::encode(&StoredRow::from(row)).unwrap()).unwrap()
}

fn samples() -> Vec<Sample> {
    let mut samples = vec![
        Sample::of("identity", Table::Meta, "identity", Kind::Identity, &identity()),
        Sample::of("state, first", Table::Meta, "state", Kind::State, &State::default()),
        Sample::of("state", Table::Meta, "state", Kind::State, &state()),
        Sample::of("state, among scopes", Table::Meta, "state", Kind::State, &state_among_scopes()),
        Sample::of("class", Table::Class, [0, 1], Kind::Class, &StoredClass { windows: WINDOWS }),
    ];
    let key = position_key(POSITION);
    samples.push(Sample::of("directory", Table::Journal, key, Kind::Directory, &directory()));
    samples.push(Sample::of("tail", Table::Journal, key, Kind::Tail, &tail()));
    samples.push(Sample::of("tail, bare", Table::Journal, key, Kind::Tail, &bare_tail()));
    for (name, entry) in [("entry, full", full_entry()), ("entry, bare", bare_entry())] {
        samples.push(Sample::of(name, Table::Journal, key, Kind::Entry, &StoredEntry::from(&entry)));
    }
    samples.push(scopes());
    for (name, row) in rows() {
        let key = row_key(name);
        samples.push(Sample::of(name, Table::Resource, key.as_bytes(), Kind::Row, &read_again(&row)));
    }
    samples
}

#[test]
fn every_kind_of_row_is_written_as_these_bytes() {
    let lines = samples().iter().fold(String::new(), |text, sample| {
        text + &format!("{}: {} {}\n", sample.name, hex(&sample.key), hex(&sample.frame))
    });
    let said: String =
        GOLDEN.lines().filter(|line| !line.starts_with('#')).fold(String::new(), |all, l| all + l + "\n");
    assert!(lines == said, "the format has changed; its bytes are now\n{lines}");
}

#[test]
fn these_bytes_are_read_as_what_was_written() {
    let frame = |name: &str| samples().into_iter().find(|sample| sample.name == name).unwrap();
    let open = |sample: &Sample| {
        envelope::body(sample.table, &sample.key, sample.kind, &sample.frame).unwrap().to_vec()
    };
    assert_eq!(codec::decode::<Identity>(&open(&frame("identity"))).unwrap(), identity());
    assert_eq!(codec::decode::<State>(&open(&frame("state"))).unwrap(), state());
    let among_scopes = open(&frame("state, among scopes"));
    assert_eq!(codec::decode::<State>(&among_scopes).unwrap(), state_among_scopes());
    assert_eq!(codec::decode::<Directory>(&open(&frame("directory"))).unwrap(), directory());
    assert_eq!(codec::decode::<Tail>(&open(&frame("tail"))).unwrap(), tail());
    assert_eq!(codec::decode::<Tail>(&open(&frame("tail, bare"))).unwrap(), bare_tail());
    assert!(codec::decode::<StoredClass>(&open(&frame("class"))).unwrap().windows == WINDOWS);
    for (name, entry) in [("entry, full", full_entry()), ("entry, bare", bare_entry())] {
        let stored = codec::decode::<StoredEntry>(&open(&frame(name))).unwrap();
        assert!(Entry::try_from(stored).unwrap() == entry, "{name}");
    }
    for (name, row) in rows() {
        let stored = codec::decode::<StoredRow>(&open(&frame(name))).unwrap();
        assert!(Row::try_from(stored).unwrap() == row, "{name}");
    }
}

#[test]
fn a_frame_with_any_bit_changed_is_refused() {
    for sample in samples() {
        for bit in 0..sample.frame.len() * 8 {
            let mut frame = sample.frame.clone();
            frame[bit / 8] ^= 1 << (bit % 8);
            assert!(sample.open(&frame).is_err(), "{}: bit {bit}", sample.name);
        }
    }
}

#[test]
fn a_frame_cut_short_or_grown_is_refused() {
    for sample in samples() {
        for len in 0..sample.frame.len() {
            assert!(sample.open(&sample.frame[..len]).is_err(), "{}: {len} bytes", sample.name);
            assert!(sample.open(&sample.frame[len + 1..]).is_err(), "{}: without {len} bytes", sample.name);
        }
        assert!(sample.open(&[&sample.frame[..], &[0]].concat()).is_err(), "{}: one more", sample.name);
        // The same of bodies, where no CRC helps.
        for len in 0..sample.body().len() {
            let body = &sample.body()[..len];
            let framed = envelope::frame(sample.table, &sample.key, sample.kind, body).unwrap();
            assert!(sample.open(&framed).is_err(), "{}: {len} bytes of the body", sample.name);
        }
        let body = [sample.body(), &[0]].concat();
        let framed = envelope::frame(sample.table, &sample.key, sample.kind, &body).unwrap();
        assert!(sample.open(&framed).is_err(), "{}: one more byte in the body", sample.name);
    }
}

#[test]
fn a_frame_in_another_place_is_refused() {
    for sample in samples() {
        for other in samples() {
            if (sample.table, &sample.key) == (other.table, &other.key) {
                continue;
            }
            let open = envelope::body(other.table, &other.key, sample.kind, &sample.frame);
            assert!(open.is_err(), "{} passes for {}", sample.name, other.name);
        }
        for kind in KINDS {
            let open = envelope::body(sample.table, &sample.key, kind, &sample.frame);
            assert_eq!(open.is_ok(), kind == sample.kind, "{}", sample.name);
        }
    }
}

const KINDS: [Kind; 8] = [
    Kind::Identity,
    Kind::State,
    Kind::Class,
    Kind::Entry,
    Kind::Row,
    Kind::Directory,
    Kind::Tail,
    Kind::Scopes,
];

#[test]
fn a_length_that_lies_is_refused_before_anything_of_that_size_is_made() {
    for claim in [codec::BODY_BYTES_MAX as u64 + 1, 1 << 32, 1 << 40, 1 << 62, u64::MAX] {
        let claim = [&[253][..], &claim.to_le_bytes()].concat();
        let heads = [&[0; 23][..], &claim].concat();
        assert!(codec::decode::<State>(&heads).is_err());
        let swept = [&[0, 0, 0, 0, 0, 0, 0, 1][..], &claim].concat();
        assert!(codec::decode::<State>(&swept).is_err());
        assert!(codec::decode::<Directory>(&claim).is_err());
        assert!(codec::decode::<Tail>(&claim).is_err());
        let image = [&[1, 1, b'k', 0][..], &claim].concat();
        assert!(codec::decode::<Tail>(&image).is_err());
        let bytes = [&[1, 1, 1, 0, 0, 0][..], &claim].concat();
        assert!(codec::decode::<StoredRow>(&bytes).is_err());
        let text = [&[1, 1, 1][..], &claim].concat();
        assert!(codec::decode::<StoredEntry>(&text).is_err());
        // The facts stand before a list of no notes.
        let bare = samples().into_iter().find(|sample| sample.name == "entry, bare").unwrap();
        let facts = [&bare.body()[..bare.body().len() - 2], &claim].concat();
        assert!(codec::decode::<StoredEntry>(&facts).is_err());
        // Steps, points, and behind a truth value evidence: all three lists are empty.
        let open = samples().into_iter().find(|sample| sample.name == "row, open, processing").unwrap();
        for behind in [4, 3, 1] {
            let list = [&open.body()[..open.body().len() - behind], &claim].concat();
            assert!(codec::decode::<StoredRow>(&list).is_err());
        }
    }
    let mut frame = samples().remove(0).frame;
    frame[2..6].copy_from_slice(&u32::MAX.to_be_bytes());
    assert!(samples()[0].open(&frame).is_err());
}

#[test]
fn a_body_above_the_limit_is_not_written() {
    let body = vec![0; codec::BODY_BYTES_MAX + 1];
    assert!(envelope::frame(Table::Journal, b"k", Kind::Entry, &body).is_err());
    assert!(envelope::frame(Table::Journal, b"k", Kind::Entry, &body[1..]).is_ok());
}

#[test]
fn what_a_later_release_writes_is_not_guessed_at() {
    let sample = samples().into_iter().find(|sample| sample.name == "entry, full").unwrap();
    let read = |at: usize, byte: u8| {
        let mut body = sample.body().to_vec();
        body[at] = byte;
        Entry::try_from(codec::decode::<StoredEntry>(&body).unwrap())
    };
    for known in 1..=27 {
        assert!(read(0, known).is_ok_and(|entry| entry.transition as u8 == known));
    }
    assert!(
        read(0, 28)
            .is_err_and(|what| matches!(what, Unreadable::Newer(what) if what.contains("transition 28")))
    );
    // Behind transition, time (9 bytes), generation, and three texts.
    let scheme = 1 + 9 + 1 + 5 + 13 + 4;
    for read in [read(scheme, 2), read(scheme + 1, 4)] {
        assert!(read.is_ok_and(|entry| entry.fingerprint.judge(&Parts::default()) == Match::Unknowable));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_are_refused_or_mean_one_value(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        for sample in samples() {
            let _ = sample.open(&bytes);
            one_value(&sample, &bytes)?;
        }
    }

    #[test]
    fn bytes_near_a_real_body_are_refused_or_mean_one_value(
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
        cut in any::<prop::sample::Index>(),
        insert in any::<bool>(),
    ) {
        for sample in samples() {
            let mut body = sample.body().to_vec();
            let place = at.index(body.len());
            if insert { body.insert(place, byte) } else { body[place] = byte }
            one_value(&sample, &body)?;
            body.truncate(cut.index(body.len()));
            one_value(&sample, &body)?;
        }
    }
}

/// What decodes is written again as the same bytes, or as fewer: a number may be spelled longer than it has
/// to be.
fn one_value(sample: &Sample, body: &[u8]) -> Result<(), TestCaseError> {
    if let Ok(again) = (sample.again)(body) {
        prop_assert!(again.len() < body.len() || again == body);
        prop_assert_eq!((sample.again)(&again).unwrap(), again);
    }
    Ok(())
}
