//! A row of `index`: a block of scopes in their order, each with the position of its newest merged entry.
//! Owns the packed form, and how a block is found, read, merged into and split. Must not know transactions.
//!
//! Scopes are digests, so those that a commit merges lie all over the table. With a row for each, the storage
//! engine would rewrite as many leaves of one page; of a block the same scopes touch few, in one piece each.
//! A block is what it takes to find a scope: it is searched where it lies, once its frame has been checked.

use std::ops::Bound;

use redb::{AccessGuard, ReadableTable};

use super::database::ascending;
use super::envelope::{self, Kind, Table};
use super::fault::{Fault, Unreadable};
use super::stored::State;
use super::tables::{self, IndexKey, JournalKey};
use crate::core::name::{ScopeDigest, hex};
use crate::core::record::Position;

/// A digest, then a position.
const ENTRY_BYTES: usize = size_of::<IndexKey>() + size_of::<JournalKey>();
/// The pages that the storage engine gives to the largest block, in bytes; of larger ones fewer are touched,
/// and more is written.
const BLOCK_BYTES_MAX: usize = 16 * 1024;
/// Its least allocation.
const BLOCK_BYTES_MIN: usize = 4 * 1024;
/// What waits in memory for each byte of a block. Little that waits lies far apart in the table: each scope
/// would rewrite a block by itself, so that is to be small.
const LATE_PER_BLOCK: usize = 1024;
/// How full its pages may be, in percent, before a block is split. What is merged at once still fits then,
/// and each half fills half of them.
const FULL_PERCENT: usize = 92;
/// The key of the first block: every scope has a block that it belongs into.
pub(super) const FIRST: IndexKey = [0; 16];

/// The most scopes of a block that is written where so many bytes may wait.
pub(super) fn scopes_max(late_bytes: usize) -> usize {
    let bytes = (late_bytes / LATE_PER_BLOCK).clamp(BLOCK_BYTES_MIN, BLOCK_BYTES_MAX);
    let pages = bytes.next_power_of_two().min(BLOCK_BYTES_MAX);
    pages * FULL_PERCENT / 100 / ENTRY_BYTES
}

/// The scopes of one block, checked.
#[derive(Clone, Copy)]
pub(super) struct Scopes<'b>(&'b [[u8; ENTRY_BYTES]]);

impl<'b> Scopes<'b> {
    /// Those of the block under `key`.
    pub fn read(key: &IndexKey, value: &'b [u8]) -> Result<Self, Fault> {
        Self::parse(key, value).map_err(|fault| fault.at(&place(key)))
    }

    fn parse(key: &IndexKey, value: &'b [u8]) -> Result<Self, Unreadable> {
        let body = envelope::body(Table::Index, key, Kind::Scopes, value)?;
        let (entries, rest) = body.as_chunks::<ENTRY_BYTES>();
        if !rest.is_empty() {
            return Err("its last scope is cut".into());
        }
        let scopes = Self(entries);
        let Some(first) = entries.first() else { return Err("it has no scope".into()) };
        if digest(first) < u128::from_be_bytes(*key) {
            return Err("a scope belongs into the block before it".into());
        }
        if !entries.is_sorted_by(|one, next| digest(one) < digest(next)) {
            return Err("its scopes are out of order".into());
        }
        Ok(scopes)
    }

    pub fn find(self, scope: ScopeDigest) -> Option<Position> {
        let at = self.0.binary_search_by_key(&u128::from_be_bytes(scope.0), digest).ok()?;
        Some(unpacked(self.0.get(at)?).1)
    }

    /// From `start` on.
    pub fn from(self, start: &IndexKey) -> impl Iterator<Item = (ScopeDigest, Position)> + use<'b> {
        let start = u128::from_be_bytes(*start);
        let at = self.0.partition_point(|entry| digest(entry) < start);
        self.0.iter().skip(at).map(unpacked)
    }
}

/// In the order of bytes, in one comparison.
fn digest(entry: &[u8; ENTRY_BYTES]) -> u128 {
    entry.first_chunk().map_or(0, |digest| u128::from_be_bytes(*digest))
}

fn unpacked(entry: &[u8; ENTRY_BYTES]) -> (ScopeDigest, Position) {
    let (mut scope, mut position) = ([0; 16], [0; 10]);
    scope.copy_from_slice(&entry[..16]);
    position.copy_from_slice(&entry[16..]);
    (ScopeDigest(scope), tables::position_of(&position))
}

fn packed(scope: ScopeDigest, position: Position) -> [u8; ENTRY_BYTES] {
    let mut entry = [0; ENTRY_BYTES];
    entry[..16].copy_from_slice(&scope.0);
    entry[16..].copy_from_slice(&tables::position_key(position));
    entry
}

/// A block in its table.
pub(super) struct Block<'t> {
    pub key: IndexKey,
    /// The key of the next one.
    pub end: Option<IndexKey>,
    value: AccessGuard<'t, &'static [u8]>,
}

impl Block<'_> {
    pub fn scopes(&self) -> Result<Scopes<'_>, Fault> {
        let scopes = Scopes::read(&self.key, self.value.value())?;
        let last = scopes.0.last().map(digest);
        if self.end.is_some_and(|end| last >= Some(u128::from_be_bytes(end))) {
            return Err(Fault::damaged(&place(&self.key), "a scope belongs into the block behind it"));
        }
        Ok(scopes)
    }
}

/// Where the newest merged entry of a scope stands.
pub(super) fn find<I>(index: &I, scope: ScopeDigest) -> Result<Option<Position>, Fault>
where
    I: ReadableTable<&'static IndexKey, &'static [u8]>,
{
    let Some((key, value)) = row_of(index, &scope.0)? else { return Ok(None) };
    Ok(Scopes::read(&key, value.value())?.find(scope))
}

/// The block that a scope belongs into; none where the table is empty.
pub(super) fn block_of<'t, I>(index: &'t I, scope: &IndexKey) -> Result<Option<Block<'t>>, Fault>
where
    I: ReadableTable<&'static IndexKey, &'static [u8]>,
{
    let Some((key, value)) = row_of(index, scope)? else { return Ok(None) };
    let behind = (Bound::Excluded(scope), Bound::Unbounded);
    let end = match index.range::<&IndexKey>(behind)?.next() {
        None => None,
        Some(item) => Some(*item?.0.value()),
    };
    if let Some(end) = &end {
        // A walk goes on there.
        ascending("index", Some(scope), end)?;
    }
    Ok(Some(Block { key, end, value }))
}

type Row<'t> = (IndexKey, AccessGuard<'t, &'static [u8]>);

fn row_of<'t, I>(index: &'t I, scope: &IndexKey) -> Result<Option<Row<'t>>, Fault>
where
    I: ReadableTable<&'static IndexKey, &'static [u8]>,
{
    let Some(item) = index.range::<&IndexKey>(..=scope)?.next_back() else {
        if index.first()?.is_none() {
            return Ok(None);
        }
        return Err(Fault::damaged("table index", "its first block is missing"));
    };
    let (key, value) = item?;
    Ok(Some((*key.value(), value)))
}

/// Puts scopes, in their order, into their blocks, and splits those that have more than `scopes_max` then.
pub(super) fn merge(
    index: &mut redb::Table<'_, &'static IndexKey, &'static [u8]>,
    scopes: &[(ScopeDigest, Position)],
    scopes_max: usize,
    state: &mut State,
) -> Result<(), Fault> {
    let (mut body, mut value) = (Vec::new(), Vec::new());
    let mut rest = scopes;
    while let Some((first, _)) = rest.first() {
        body.clear();
        let block = block_of(index, &first.0)?;
        let end = block.as_ref().and_then(|block| block.end);
        let (here, behind) =
            rest.split_at(rest.partition_point(|(scope, _)| end.is_none_or(|end| scope.0 < end)));
        let (key, known) = match &block {
            Some(block) => (block.key, block.scopes()?),
            None => (FIRST, Scopes(&[])),
        };
        let before = known.0.len();
        put(known, here, &mut body);
        state.indexed += (body.len() - before) as u64;
        let is_new = block.is_none();
        drop(block);
        let mut rows = 0;
        for (key, scopes) in cut(key, &body, scopes_max) {
            value.clear();
            envelope::frame_into(&mut value, Table::Index, &key, Kind::Scopes, |framed| {
                framed.extend_from_slice(scopes.as_flattened());
                Ok(())
            })
            .map_err(Fault::Refused)?;
            index.insert(&key, value.as_slice())?;
            rows += 1;
        }
        state.index_rows += rows - u64::from(!is_new);
        rest = behind;
    }
    Ok(())
}

/// How many scopes any bytes have as a block under a key. For the fuzz targets.
#[cfg(feature = "testing")]
pub(crate) fn read_all(key: &[u8; 16], value: &[u8]) -> Result<usize, Fault> {
    let scopes = Scopes::read(key, value)?;
    let mut last = None;
    for (scope, position) in scopes.from(&FIRST) {
        assert!(scope.0 >= *key && last.is_none_or(|last| last < scope.0), "scopes are out of order");
        assert_eq!(scopes.find(scope), Some(position), "a scope is not where it is");
        last = Some(scope.0);
    }
    Ok(scopes.0.len())
}

/// What is known with what is new, one for each scope, in their order.
fn put(known: Scopes<'_>, new: &[(ScopeDigest, Position)], out: &mut Vec<[u8; ENTRY_BYTES]>) {
    out.reserve(known.0.len() + new.len());
    let mut rest = known.0;
    for (scope, position) in new {
        let scope_number = u128::from_be_bytes(scope.0);
        let (before, behind) = rest.split_at(rest.partition_point(|entry| digest(entry) < scope_number));
        out.extend_from_slice(before);
        out.push(packed(*scope, *position));
        let is_known = behind.first().is_some_and(|entry| digest(entry) == scope_number);
        rest = &behind[usize::from(is_known)..];
    }
    out.extend_from_slice(rest);
}

/// The blocks that the scopes of one become, each with its key: one where they fit, else parts of one length.
fn cut(
    key: IndexKey,
    scopes: &[[u8; ENTRY_BYTES]],
    scopes_max: usize,
) -> impl Iterator<Item = (IndexKey, &[[u8; ENTRY_BYTES]])> {
    let parts = scopes.len().div_ceil(scopes_max).max(1);
    let of_part = scopes.len().div_ceil(parts).max(1);
    scopes.chunks(of_part).enumerate().map(move |(number, part)| match part.first() {
        Some(first) if number > 0 => (digest(first).to_be_bytes(), part),
        _ => (key, part),
    })
}

fn place(key: &IndexKey) -> String {
    format!("the block of table index from scope {} on", hex(key))
}
