//! The tables and the bytes of their keys. Owns the names; must not know what is in a value.

use redb::TableDefinition;

use crate::core::record::{ClassId, Position};

pub(super) type JournalKey = [u8; 10];
pub(super) type IndexKey = [u8; 16];

/// `meta`: text -> `format` in clear, the rest in envelopes.
pub(super) const META: TableDefinition<&str, &[u8]> = TableDefinition::new("meta");
/// `class`: class number, big-endian -> its windows.
pub(super) const CLASS: TableDefinition<&[u8; 2], &[u8]> = TableDefinition::new("class");
/// `journal`: class, then sequence number of the first entry, big-endian -> a block of entries.
pub(super) const JOURNAL: TableDefinition<&JournalKey, &[u8]> = TableDefinition::new("journal");
/// `index`: the smallest digest of a scope that may be in it -> a block of scopes, each with the position of
/// its newest entry, once that is merged.
pub(super) const INDEX: TableDefinition<&IndexKey, &[u8]> = TableDefinition::new("index");
/// `resource`: key of a row -> the row, once that is merged.
pub(super) const RESOURCE: TableDefinition<&[u8], &[u8]> = TableDefinition::new("resource");

/// The rows of `meta`.
pub(super) const FORMAT: &str = "format";
pub(super) const IDENTITY: &str = "identity";
pub(super) const STATE: &str = "state";

pub(super) fn position_key(position: Position) -> JournalKey {
    let mut key = [0; 10];
    key[..2].copy_from_slice(&position.class.0.to_be_bytes());
    key[2..].copy_from_slice(&position.seq.to_be_bytes());
    key
}

pub(super) fn position_of(key: &JournalKey) -> Position {
    let [c0, c1, seq @ ..] = *key;
    Position { class: ClassId(u16::from_be_bytes([c0, c1])), seq: u64::from_be_bytes(seq) }
}
