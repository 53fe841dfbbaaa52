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
    executed: u64,
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
    notes: Vec<WNote>,
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
    assert!(matches!(read.scope_mode, Mode::PerTenant));
    let (read, wrote) = (read!("state" as WState), state());
    assert_eq!((read.epoch, read.last_time, read.last_seq), (wrote.epoch, wrote.last_time.0, wrote.last_seq));
    assert_eq!(read.clock_settled, wrote.clock_settled.map(|time| time.0));
    assert_eq!((read.merged_to, read.sweep_to), (wrote.merged_to, wrote.sweep_to));
    assert_eq!(read.swept, WSwept { scope: Some([0xBA; 16]), row: Some(b"sstock\0pen".to_vec()) });
    assert_eq!((read.records, read.rows, read.executed), (wrote.records, wrote.rows, wrote.executed));
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
    let read: Vec<_> = read.iter().map(|listed| (listed.above, listed.len, listed.scope)).collect();
    assert_eq!(read, [(0, 244, Some([0xEF; 16])), (2, 70_000, None)]);
    let read = read!("tail" as WTail);
    let (wrote, key) = (tail(), b"tshop\0order\x0017");
    let Image::Here(framed) = &wrote.rows[0].image else { panic!("the first row is here") };
    assert_eq!(
        read.rows,
        [
            (key.to_vec(), WImage::Here(framed.to_vec())),
            (b"sstock\0pen".to_vec(), WImage::Removed),
            (b"sstock\0ink".to_vec(), WImage::Settled),
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
    assert_eq!(read.actor, "edge-7");
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
