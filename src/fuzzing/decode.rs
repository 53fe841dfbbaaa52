//! Any bytes as stored bodies, frames and keys.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::Input;
use crate::core::audit::Brought;
use crate::core::claim::{Moment, Open, Uptime};
use crate::core::name::{ScopeDigest, ScopeMode};
use crate::core::policy::Policy;
use crate::core::record::Entry;
use crate::core::row::{Row, RowKey};
use crate::db::block;
use crate::db::codec;
use crate::db::envelope::{self, Kind, Table};
use crate::db::index;
use crate::db::stored::{Directory, Identity, Listed, State, StoredClass, StoredEntry, StoredRow, Tail};

/// Any bytes are refused or mean one value; a frame with one bit changed, or under another key or table, is
/// refused; a block whose directory lies is refused or gives no entry that is not there; a block of scopes is
/// refused or gives each where it is.
///
/// # Panics
///
/// When they are not.
pub fn decode(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let (choice, bit) = (input.byte(), input.number());
    let rest = input.rest();
    match choice % 7 {
        0 => bodies(rest),
        1 => frames(rest),
        2 => framed(rest, bit),
        3 => row_key(rest),
        4 => {
            let _ = block::read_all(&KEY, rest);
        }
        5 => listed(rest, bit),
        _ => scopes(rest, bit),
    }
}

fn bodies(body: &[u8]) {
    means_one_value::<Identity>(body);
    means_one_value::<State>(body);
    means_one_value::<StoredClass>(body);
    means_one_value::<Directory>(body);
    means_one_value::<Tail>(body);
    if let Some(stored) = means_one_value::<StoredEntry>(body)
        && let canonical = codec::encode(&stored).unwrap()
        && let Ok(entry) = Entry::try_from(stored)
    {
        assert_eq!(codec::encode(&StoredEntry::from(&entry)).unwrap(), canonical, "an entry lost something");
        let _ = Brought::of(&entry.told);
        entry.facts.iter().for_each(|fact| drop(fact.to_string()));
    }
    if let Some(stored) = means_one_value::<StoredRow>(body)
        && let canonical = codec::encode(&stored).unwrap()
        && let Ok(row) = Row::try_from(stored)
    {
        assert_eq!(codec::encode(&StoredRow::from(&row)).unwrap(), canonical, "a row lost something");
        let _ = (row.digest(), row.value_bytes());
        if let Some(open) = row.open() {
            begun(open);
        }
    }
}

/// A command that is open, whatever it says, can be looked at and judged.
fn begun(open: &Open) {
    let key = RowKey::open(ScopeDigest::of(&open.scope, ScopeMode::PerOperation));
    assert!(key.is_open() && RowKey::parse(key.as_bytes()).is_some_and(|parsed| parsed == key));
    let _ = (open.check(), open.may_be_taken_over(&Policy::new()), open.is_untouched());
    for step in &open.steps {
        assert!(open.step(&step.name).is_some());
        assert_eq!(open.operation_id(&step.name).as_str().len(), 32);
        for epoch in [step.started.epoch, step.started.epoch.wrapping_add(1)] {
            let uptime = Uptime { now: Moment { epoch, monotonic: 1 }, opened: 0 };
            assert!(step.settles_in(&uptime) <= step.settles_within);
        }
    }
}

/// What decodes is written again as the same bytes, or as fewer: a number may be spelled longer than it has
/// to be.
fn means_one_value<T: Serialize + DeserializeOwned>(body: &[u8]) -> Option<T> {
    let value: T = codec::decode(body).ok()?;
    let again = codec::encode(&value).unwrap();
    assert!(again.len() < body.len() || again == body, "a value is written in two ways");
    let value: T = codec::decode(&again).unwrap();
    assert_eq!(codec::encode(&value).unwrap(), again, "a value changes by writing");
    Some(value)
}

/// Where frames and blocks stand.
const KEY: [u8; 10] = [7; 10];

const KINDS: [(Table, Kind); 8] = [
    (Table::Meta, Kind::Identity),
    (Table::Meta, Kind::State),
    (Table::Class, Kind::Class),
    (Table::Journal, Kind::Entry),
    (Table::Resource, Kind::Row),
    (Table::Journal, Kind::Directory),
    (Table::Journal, Kind::Tail),
    (Table::Index, Kind::Scopes),
];

/// Bytes as a whole frame: nearly always refused, never a panic.
fn frames(bytes: &[u8]) {
    for (table, kind) in KINDS {
        let _ = envelope::open::<StoredEntry>(table, b"key", kind, bytes);
        let _ = envelope::open::<State>(table, b"key", kind, bytes);
        let _ = envelope::open::<StoredRow>(table, b"key", kind, bytes);
    }
}

/// Bytes as the body of a right frame, which one changed bit makes a wrong one.
fn framed(body: &[u8], bit: u64) {
    let (table, kind) = KINDS[body.len() % KINDS.len()];
    let key = KEY;
    let mut frame = envelope::frame(table, &key, kind, body).unwrap();
    let _ = envelope::open::<StoredEntry>(table, &key, kind, &frame);
    assert!(envelope::body(table, &key, kind, &frame).is_ok_and(|inside| inside == body));
    for (other, _) in KINDS.iter().filter(|(other, _)| *other != table) {
        assert!(envelope::body(*other, &key, kind, &frame).is_err(), "a row is taken from another table");
    }
    let bit = usize::try_from(bit % (frame.len() as u64 * 8)).unwrap();
    let mut other = key;
    other[bit % 10] ^= 1 << (bit % 8);
    assert!(envelope::body(table, &other, kind, &frame).is_err(), "a row is taken under another key");
    frame[bit / 8] ^= 1 << (bit % 8);
    assert!(envelope::body(table, &key, kind, &frame).is_err(), "bit {bit} may change unnoticed");
}

/// A directory with a right checksum that says anything, before entries and a tail that say anything.
fn listed(bytes: &[u8], bit: u64) {
    let mut input = Input::new(bytes);
    let mut entries = Vec::new();
    for _ in 0..input.below(6) {
        let above = if input.byte() < 0xF0 { entries.len() as u64 } else { input.number() };
        let len = u32::from(input.byte()) | if input.byte() < 0xF0 { 0 } else { u32::MAX << 8 };
        let scope = (len % 2 == 0).then_some([9; 16]);
        entries.push(Listed { above, len, scope, is_outcome: len % 3 == 0 });
    }
    let rest = input.rest();
    let directory = codec::encode(&Directory { entries }).unwrap();
    let directory = envelope::frame(Table::Journal, &KEY, Kind::Directory, &directory).unwrap();
    let mut value = [&directory, rest].concat();
    let _ = block::read_all(&KEY, &value);
    let empty: Tail = Tail { rows: Vec::new(), state: None };
    value.extend(envelope::seal(Table::Journal, &KEY, Kind::Tail, &empty).unwrap());
    if let Ok((listed, readable, Ok(tail))) = block::read_all(&KEY, &value) {
        assert!(listed > 0 && readable <= listed && tail == empty);
    }
    let bit = usize::try_from(bit % (directory.len() as u64 * 8)).unwrap();
    value[bit / 8] ^= 1 << (bit % 8);
    assert!(block::read_all(&KEY, &value).is_err(), "bit {bit} of a directory may change unnoticed");
}

/// A block of scopes with a right checksum that says anything, as it is and with its scopes in their order.
fn scopes(body: &[u8], bit: u64) {
    const KEY: [u8; 16] = [7; 16];
    const SCOPE_BYTES: usize = 26;
    let sealed = |body: &[u8]| envelope::frame(Table::Index, &KEY, Kind::Scopes, body).unwrap();
    if let Ok(count) = index::read_all(&KEY, &sealed(body)) {
        assert!(count > 0 && count * SCOPE_BYTES == body.len());
    }
    let mut entries: Vec<&[u8]> =
        body.chunks_exact(SCOPE_BYTES).filter(|entry| entry[..16] >= KEY[..]).collect();
    entries.sort_unstable();
    entries.dedup_by_key(|entry| &entry[..16]);
    let mut value = sealed(&entries.concat());
    let read = index::read_all(&KEY, &value);
    assert!(read.map_or(entries.is_empty(), |count| count == entries.len()), "a block is refused");
    let bit = usize::try_from(bit % (value.len() as u64 * 8)).unwrap();
    value[bit / 8] ^= 1 << (bit % 8);
    assert!(index::read_all(&KEY, &value).is_err(), "bit {bit} of a block may change unnoticed");
}

fn row_key(bytes: &[u8]) {
    let Some(key) = RowKey::parse(bytes) else {
        return;
    };
    assert_eq!(key.as_bytes(), bytes);
    let named = key.reference();
    if key.is_open() {
        assert_eq!(bytes, [b"o", named.id.as_bytes()].concat());
        return;
    }
    if key.is_own() {
        // Nobody names one: what can be asked of it is answered, and that is all.
        let _ = (key.message_id(), key.destination(), key.is_message(), key.is_queue(), key.before_due());
        return;
    }
    assert_eq!(key.sibling(&named.id), key, "a key is not what its names make");
    assert!(bytes.ends_with(&[named.kind.as_bytes(), &[0], named.id.as_bytes()].concat()));
}
