//! The same bytes through another codec, into types that share nothing with the store's.

use wincode::SchemaRead;
use wincode::config::{Configuration, deserialize_exact};

use super::*;

#[derive(SchemaRead)]
enum Mode {
    PerOperation,
    PerTenant,
}

#[derive(SchemaRead)]
struct WIdentity {
    store_id: [u8; 16],
    scope_mode: Mode,
    created_at: u64,
    owns_nothing: bool,
}

#[derive(SchemaRead)]
struct WHead {
    class: u16,
    seq: u64,
    entries: u64,
    link: [u8; 32],
}

#[derive(SchemaRead)]
struct WState {
    epoch: u64,
    last_time: u64,
    last_seq: u64,
    clock_settled: Option<u64>,
    merged_to: u64,
    sweep_to: u64,
    swept: WSwept,
    records: u64,
    rows: u64,
    own_rows: u64,
    open: u64,
    unknown: u64,
    posts: (u64, u64, u64, u64),
    executed: u64,
    resolved: u64,
    differences: u64,
    blocks: u64,
    indexed: u64,
    index_rows: u64,
    settled: u64,
    heads: Vec<WHead>,
}

#[derive(SchemaRead, Debug, PartialEq)]
struct WSwept {
    scope: Option<[u8; 16]>,
    row: Option<Vec<u8>>,
}

#[derive(SchemaRead)]
struct WListed {
    above: u64,
    len: u32,
    scope: Option<[u8; 16]>,
    is_outcome: bool,
}

#[derive(SchemaRead, Debug, PartialEq)]
enum WImage {
    Here(Vec<u8>),
    Removed,
    Settled,
}

#[derive(SchemaRead)]
struct WTail {
    rows: Vec<(Vec<u8>, WImage)>,
    state: Option<WState>,
}

#[derive(SchemaRead)]
struct WPrint {
    name: String,
    exact: [u8; 8],
    canonical: Option<[u8; 8]>,
}

#[derive(SchemaRead)]
struct WFingerprint {
    scheme: u16,
    policy: u8,
    digest: [u8; 32],
    exact: Option<[u8; 32]>,
    parts: Vec<WPrint>,
}

#[derive(SchemaRead)]
struct WResource {
    kind: String,
    id: String,
    shared: bool,
}

#[derive(SchemaRead)]
enum WBody {
    Kept(Vec<u8>),
    NotKept { digest: [u8; 32], len: u64 },
}

#[derive(SchemaRead)]
struct WNote {
    key: Vec<u8>,
    verb: u8,
    digest: Option<[u8; 32]>,
}

#[derive(SchemaRead)]
struct WEntry {
    transition: u8,
    at: u64,
    generation: u32,
    tenant: String,
    operation: String,
    key: String,
    fingerprint: WFingerprint,
    failed: bool,
    code: u16,
    meta: Vec<(String, Vec<u8>)>,
    resource: Option<WResource>,
    body: WBody,
    actor: String,
    token: u64,
    facts: Vec<WFact>,
    notes: Vec<WNote>,
}

#[derive(SchemaRead, Debug, PartialEq)]
enum WFact {
    Declared { step: String },
    Answered { step: String, digest: [u8; 32], len: u64 },
    NotApplied { step: String },
    Reached { point: String, digest: [u8; 32] },
    Because(WEvidence),
    Brought { at: u64, ended_by: u8, made: u64, count: u32 },
}

#[derive(SchemaRead, Debug, PartialEq)]
struct WEvidence {
    source: String,
    text: String,
}

#[derive(SchemaRead, Debug, PartialEq)]
enum WCodec {
    Raw,
    Json,
    Bincode,
    Counter,
}

#[derive(SchemaRead)]
enum WContent {
    Value { codec: WCodec, bytes: Vec<u8> },
    Removed,
    Held(WResource),
    Open(WOpen),
    Post(WPost),
    Unit(WUnit),
}

#[derive(SchemaRead, Debug, PartialEq)]
enum WUnit {
    Owned { epoch: u64 },
    HandedOver { to: String, epoch: u64 },
    Arriving { from: String, epoch: u64 },
}

#[derive(SchemaRead, Debug, PartialEq)]
enum WPost {
    Status(WStatus),
    Letter { headers: Vec<(String, String)>, payload: Vec<u8>, event: Option<WEvent> },
    Queue { head: (u64, u32), tail: (u64, u32), count: u64, blocked: Option<u64> },
    Known((u64, u32)),
    Mark,
}

type WEvent = (String, String, Option<u64>, Option<String>);

#[derive(SchemaRead, Debug, PartialEq)]
enum WOnDead {
    Block,
    Skip,
}

#[derive(SchemaRead, Debug, PartialEq)]
struct WStatus {
    tenant: String,
    destination: String,
    order: Option<String>,
    operation: [u8; 16],
    contract: WContract,
    on_dead: WOnDead,
    lease: u64,
    settles_within: u64,
    backoff: (u64, u64),
    attempts_max: u32,
    not_before: u64,
    since: u64,
    attempts: u32,
    left: u32,
    asked: u32,
    stage: WStage,
    why: Option<String>,
    next: Option<(u64, u32)>,
}

#[derive(SchemaRead, Debug, PartialEq)]
enum WStage {
    Queued,
    Waiting(u64),
    Flying(WFlight),
    Unsure(u64, WFlight),
    Unknown(u64, WFlight),
    Dead(u64),
    Delivered(u64, Option<Vec<u8>>),
    Discarded(u64),
}

#[derive(SchemaRead, Debug, PartialEq)]
struct WFlight {
    token: u64,
    errand: WErrand,
    started: WMoment,
}

#[derive(SchemaRead, Debug, PartialEq)]
enum WErrand {
    Send,
    Ask { token: u64, started: WMoment },
    Job,
}

#[derive(SchemaRead)]
struct WOpen {
    tenant: String,
    operation: String,
    key: String,
    fingerprint: WFingerprint,
    generation: u32,
    phase: WPhase,
    since: u64,
    attempt: u32,
    token: u64,
    granted: WMoment,
    lease: u64,
    owner: String,
    input: Option<Vec<u8>>,
    steps: Vec<WStep>,
    points: Vec<(String, Vec<u8>)>,
    cancel_asked: bool,
    evidence: Vec<WEvidence>,
}

#[derive(SchemaRead, Debug, PartialEq)]
enum WPhase {
    Processing,
    Unknown { since: u64, is_settled: bool },
}

#[derive(SchemaRead, Debug, PartialEq)]
struct WMoment {
    epoch: u64,
    monotonic: u64,
}

#[derive(SchemaRead, Debug, PartialEq)]
enum WContract {
    Idempotent,
    Queryable,
    Neither,
}

#[derive(SchemaRead, Debug, PartialEq)]
struct WStep {
    name: String,
    contract: WContract,
    settles_within: u64,
    started: WMoment,
    state: WStepState,
}

#[derive(SchemaRead, Debug, PartialEq)]
enum WStepState {
    Open,
    Answered(Vec<u8>),
    NotApplied,
}

impl WEvidence {
    fn new(source: &str, text: &str) -> Self {
        Self { source: source.to_owned(), text: text.to_owned() }
    }
}

#[derive(SchemaRead)]
struct WRow {
    version: u64,
    made_class: u16,
    made_seq: u64,
    event_time: Option<u64>,
    content: WContent,
}

macro_rules! read {
    ($name:literal as $type:ty) => {{
        let sample = samples().into_iter().find(|sample| sample.name == $name).unwrap();
        deserialize_exact::<$type, _>(sample.body(), Configuration::default().with_varint_encoding()).unwrap()
    }};
}

#[test]
fn reads_meta_and_classes() {
    let read = read!("identity" as WIdentity);
    assert_eq!((read.store_id, read.created_at), (identity().store_id, identity().created_at.0));
    assert!(matches!(read.scope_mode, Mode::PerTenant) && read.owns_nothing);
    let (read, wrote) = (read!("state" as WState), state());
    assert_eq!((read.epoch, read.last_time, read.last_seq), (wrote.epoch, wrote.last_time.0, wrote.last_seq));
    assert_eq!(read.clock_settled, wrote.clock_settled.map(|time| time.0));
    assert_eq!((read.merged_to, read.sweep_to), (wrote.merged_to, wrote.sweep_to));
    assert_eq!(read.swept, WSwept { scope: Some([0xBA; 16]), row: Some(b"sstock\0pen".to_vec()) });
    assert_eq!((read.records, read.rows, read.executed), (wrote.records, wrote.rows, wrote.executed));
    assert_eq!((read.own_rows, read.open, read.unknown), (1_000, 999, 998));
    assert_eq!(read.posts, (997, 996, 995, 994));
    assert_eq!((read.resolved, read.differences), (245, 246));
    assert_eq!((read.blocks, read.indexed, read.index_rows, read.settled), (252, 253, 254, 255));
    let (head, wrote) = (&read.heads[0], &wrote.heads[0]);
    assert_eq!(read.heads.len(), 1);
    assert_eq!(
        (head.class, head.seq, head.entries, head.link),
        (wrote.class, wrote.seq, wrote.entries, wrote.link)
    );
    assert_eq!(read!("state, first" as WState).swept, WSwept { scope: None, row: None });
    let windows = read!("class" as (u64, u64, u64));
    assert_eq!(windows, (WINDOWS.body, WINDOWS.key, WINDOWS.tombstone));
}

#[test]
fn reads_what_surrounds_the_entries_of_a_block() {
    let read = read!("directory" as Vec<WListed>);
    let read: Vec<_> =
        read.iter().map(|listed| (listed.above, listed.len, listed.scope, listed.is_outcome)).collect();
    let scope = Some([0xEF; 16]);
    assert_eq!(read, [(0, 244, scope, true), (2, 70_000, None, false), (3, 245, scope, false)]);
    let read = read!("tail" as WTail);
    let (wrote, key) = (tail(), b"tshop\0order\x0017");
    let Image::Here(framed) = &wrote.rows[0].image else { panic!("the first row is here") };
    assert_eq!(
        read.rows,
        [
            (key.to_vec(), WImage::Here(framed.to_vec())),
            (b"sstock\0pen".to_vec(), WImage::Removed),
            (b"sstock\0ink".to_vec(), WImage::Settled),
            (b"o7af0beda63b3b2f94c7d8e0c2ad4f6a1".to_vec(), WImage::Removed),
        ]
    );
    let state = read.state.unwrap();
    let scope = Some(std::array::from_fn(|at| u8::try_from(at).unwrap()));
    assert_eq!(state.swept, WSwept { scope, row: None });
    assert_eq!((state.last_seq, state.heads.len(), state.clock_settled), (251, 2, None));
}

#[test]
fn reads_entries() {
    let (read, wrote) = (read!("entry, full" as WEntry), full_entry());
    assert_eq!((read.transition, read.at, read.generation), (1, wrote.at.0, 2));
    assert_eq!((&*read.tenant, &*read.operation, &*read.key), ("shop", "create-order", "k-1"));
    assert_eq!((read.failed, read.code), (false, 201));
    assert_eq!(read.meta, [("location".to_owned(), b"/orders/17".to_vec())]);
    let resource = read.resource.unwrap();
    assert_eq!((&*resource.kind, &*resource.id, resource.shared), ("order", "17", false));
    assert!(matches!(read.body, WBody::Kept(bytes) if bytes == b"made"));
    let notes: Vec<_> = read.notes.iter().map(|note| (note.key.clone(), note.verb, note.digest)).collect();
    let wrote_notes: Vec<_> = wrote
        .notes
        .iter()
        .map(|note| (note.key.as_bytes().to_vec(), note.verb as u8, note.digest.map(|digest| digest.0)))
        .collect();
    assert_eq!(notes, wrote_notes);
    assert_eq!((&*read.actor, read.token), ("edge-7", 299));
    let (r9, because) = (Digest::of(b"r-9").0, WEvidence::new("dashboard", "captured \u{fc}"));
    assert_eq!(
        read.facts,
        [
            WFact::Declared { step: "charge".to_owned() },
            WFact::Answered { step: "reserve".to_owned(), digest: r9, len: 3 },
            WFact::NotApplied { step: "mail".to_owned() },
            WFact::Reached { point: "reserved".to_owned(), digest: [0xAC; 32] },
            WFact::Because(because),
            WFact::Brought { at: 65_536, ended_by: 6, made: 1 << 63, count: 3 },
        ]
    );
    let print = read.fingerprint;
    assert_eq!((print.scheme, print.policy, &print.digest), (1, 1, wrote.fingerprint.digest()));
    assert!(print.exact.is_none());
    let names: Vec<&str> = print.parts.iter().map(|part| &*part.name).collect();
    assert_eq!(names, ["body", "method"]);
    assert!(print.parts[0].canonical.is_some_and(|other| other != print.parts[0].exact));
    assert!(print.parts[1].canonical.is_none());

    let read = read!("entry, bare" as WEntry);
    assert_eq!((read.transition, read.failed, read.code, read.fingerprint.policy), (2, true, 0, 3));
    assert!(matches!(read.body, WBody::NotKept { digest, len: 70_000 } if digest == [0xCD; 32]));
    assert!(read.resource.is_none() && read.meta.is_empty() && read.notes.is_empty());
    assert_eq!((read.token, read.facts), (0, Vec::new()));
}

#[test]
fn reads_rows() {
    for (name, codec, wrote) in [
        ("row, raw", WCodec::Raw, b"\x00\xFF".to_vec()),
        ("row, json", WCodec::Json, br#"{"a":1}"#.to_vec()),
        ("row, bincode", WCodec::Bincode, vec![251, 44, 1]),
        ("row, counter", WCodec::Counter, vec![0xFF; 8]),
    ] {
        let sample = samples().into_iter().find(|sample| sample.name == name).unwrap();
        let config = Configuration::default().with_varint_encoding();
        let read: WRow = deserialize_exact(sample.body(), config).unwrap();
        assert_eq!((read.version, read.made_class, read.made_seq, read.event_time), (300, 1, 7, None));
        assert!(
            matches!(read.content, WContent::Value { codec: c, bytes } if c == codec && bytes == wrote),
            "{name}"
        );
    }
    let read = read!("row, removed" as WRow);
    assert_eq!(read.event_time, Some(1_000));
    assert!(matches!(read.content, WContent::Removed));
    let read = read!("row, held" as WRow);
    assert!(matches!(read.content, WContent::Held(to) if to.kind == "order" && to.id == "17" && to.shared));
}

fn read_open(read: WRow) -> WOpen {
    assert_eq!((read.version, read.made_class, read.made_seq, read.event_time), (300, 1, 7, None));
    let WContent::Open(open) = read.content else { panic!("it is open") };
    assert_eq!((&*open.tenant, &*open.operation, &*open.key), ("shop", "create-order", "k-1"));
    assert_eq!((open.fingerprint.policy, open.fingerprint.parts.len()), (2, 2));
    assert_eq!((open.since, &*open.owner, open.lease), (1_796_040_000_000, "edge-7", 30_000));
    assert_eq!(open.granted, WMoment { epoch: 7, monotonic: 250 });
    open
}

#[test]
fn reads_rows_of_messages() {
    let moment = |monotonic| WMoment { epoch: 7, monotonic };
    let WContent::Post(WPost::Status(read)) = read!("row, message" as WRow).content else { panic!() };
    let errand = WErrand::Ask { token: 301, started: moment(252) };
    let flight = WFlight { token: 302, errand, started: moment(253) };
    assert_eq!((&*read.tenant, &*read.destination, read.operation), ("shop", "payments", [0xAD; 16]));
    assert_eq!(read.order.as_deref(), Some("customer-7"));
    assert_eq!((read.contract, read.on_dead), (WContract::Queryable, WOnDead::Skip));
    assert_eq!((read.lease, read.settles_within, read.backoff), (60_000, 900_000, (1_000, 3_600_000)));
    assert_eq!((read.not_before, read.since), (1_796_040_000_000, 1_796_040_000_001));
    assert_eq!((read.attempts_max, read.attempts, read.left, read.asked), (64, 3, 61, 2));
    assert_eq!((read.stage, read.why.as_deref()), (WStage::Flying(flight), Some("no answer")));
    assert_eq!(read.next, Some((303, 0)));
    let WContent::Post(WPost::Status(read)) = read!("row, message, bare" as WRow).content else { panic!() };
    assert_eq!((read.order, read.stage, read.why, read.next), (None, WStage::Queued, None, None));

    let post = |read: WRow| if let WContent::Post(post) = read.content { post } else { panic!() };
    let event = ("forge/mirror".to_owned(), "evt_17".to_owned(), Some(251), Some("onecho".to_owned()));
    assert_eq!(
        post(read!("row, letter" as WRow)),
        WPost::Letter {
            headers: vec![("trace".to_owned(), "4bf92f35".to_owned())],
            payload: b"{\"cents\":1200}".to_vec(),
            event: Some(event),
        }
    );
    let (head, tail) = ((300, 251), (300, 251));
    assert_eq!(
        post(read!("row, ordering key" as WRow)),
        WPost::Queue { head, tail, count: 1, blocked: Some(1_000) }
    );
    assert_eq!(post(read!("row, known message" as WRow)), WPost::Known((300, 251)));
    assert_eq!(read!("row, mark" as WRow).event_time, Some(1_000));
    assert_eq!(post(read!("row, mark" as WRow)), WPost::Mark);
}

#[test]
fn reads_open_commands() {
    let open = read_open(read!("row, open, processing" as WRow));
    assert_eq!((open.generation, open.attempt, open.token), (1, 1, 300));
    assert_eq!((open.phase, open.input, open.cancel_asked), (WPhase::Processing, None, false));
    assert_eq!((open.steps, open.points, open.evidence), (Vec::new(), Vec::new(), Vec::new()));

    let open = read_open(read!("row, open, unknown" as WRow));
    assert_eq!((open.generation, open.attempt, open.token), (2, 3, 299));
    assert_eq!(open.phase, WPhase::Unknown { since: 1_796_040_060_000, is_settled: false });
    assert_eq!((open.input, open.cancel_asked), (Some(br#"{"cents":1200}"#.to_vec()), true));
    let step = |name: &str, contract, state| {
        let started = WMoment { epoch: 7, monotonic: 251 };
        WStep { name: name.to_owned(), contract, settles_within: 600_000, started, state }
    };
    assert_eq!(
        open.steps,
        [
            step("charge", WContract::Queryable, WStepState::Open),
            step("reserve", WContract::Idempotent, WStepState::Answered(b"r-9".to_vec())),
            step("mail", WContract::Neither, WStepState::NotApplied),
        ]
    );
    assert_eq!(open.points, [("reserved".to_owned(), b"r-9".to_vec())]);
    assert_eq!(open.evidence, [WEvidence::new("dashboard", "captured"), WEvidence::new("", "")]);

    let open = read_open(read!("row, open, settled" as WRow));
    assert_eq!(open.phase, WPhase::Unknown { since: 1_796_040_060_000, is_settled: true });
    assert_eq!(open.steps[0].state, WStepState::NotApplied);
}

#[test]
fn reads_rows_of_tenants() {
    let unit = |read: WRow| if let WContent::Unit(unit) = read.content { unit } else { panic!() };
    assert_eq!(unit(read!("row, owned" as WRow)), WUnit::Owned { epoch: 251 });
    let over = WUnit::HandedOver { to: "south".to_owned(), epoch: 250 };
    assert_eq!(unit(read!("row, handed over" as WRow)), over);
    let arriving = WUnit::Arriving { from: "north".to_owned(), epoch: 252 };
    assert_eq!(unit(read!("row, arriving" as WRow)), arriving);
}
