//! What is committed in the journal and not yet merged into `index` and `resource`: a complete map in memory,
//! and the sweep that empties it. Owns which of it is merged when; must not know transactions.
//!
//! To rewrite a leaf of a tree for each command costs a scattered page each. So scopes and rows wait here, and
//! a sweep goes round over all keys in their order, a slice with some of the commits, so that it finds many
//! for each leaf it rewrites. A lap is one round. Everything that was there when a lap began is merged when
//! it ends, which is what moves `merged_to`: an open reads the journal from there on to make the map again.
//!
//! Readers ask the map first and take their snapshot after; what is merged leaves the map only after the
//! commit that put it into its table. So nobody misses what moves.

use std::collections::BTreeMap;
use std::ops::Bound;

use bytes::Bytes;
use redb::ReadableTable;

use super::block::Block;
use super::fault::Fault;
use super::stored::{Image, LateRow, State};
use super::tables::{self, JournalKey};
use crate::core::name::ScopeDigest;
use crate::core::record::{ClassId, Position};
use crate::core::row::RowKey;

/// The frame of a row; none where it was removed.
pub(super) type LateFrame = Option<Bytes>;

/// About what a scope takes in the map, in bytes.
const SCOPE_BYTES: usize = 48;
/// About what a row takes beside its key and its frame.
const ROW_BYTES: usize = 128;
/// How much journal may stand behind `merged_to`, as a multiple of the map's bytes: an open reads it.
const JOURNAL_PER_BYTE: usize = 6;
/// What is merged at once, as a part of the map: enough for several rows of a leaf, too little to be felt.
const SLICES: usize = 64;

/// The map.
#[derive(Debug)]
pub(crate) struct Late {
    scopes: BTreeMap<ScopeDigest, Position>,
    rows: BTreeMap<RowKey, LateFrame>,
    /// Keys and frames of `rows`.
    row_bytes: usize,
    lap: Lap,
    bytes_max: usize,
    /// The last number of the commits that it knows.
    last_seq: u64,
}

/// Where the sweep stands.
#[derive(Clone, Debug)]
struct Lap {
    /// The last number when the lap began.
    from: u64,
    next: Next,
    /// The journal behind `merged_to`: what was there when the lap began, and what came since.
    journal_before: u64,
    journal_since: u64,
}

/// What the sweep merges next: scopes, then rows, each from behind a key on.
#[derive(Clone, Debug)]
enum Next {
    Scopes(Option<ScopeDigest>),
    Rows(Option<RowKey>),
}

/// What one commit merges.
pub(super) struct Slice {
    pub scopes: Vec<(ScopeDigest, Position)>,
    pub rows: Vec<(RowKey, LateFrame)>,
    /// Where `merged_to` stands after it, if it moves.
    pub merged_to: Option<u64>,
    lap: Lap,
}

/// What one commit adds to the map.
#[derive(Default)]
pub(super) struct Added {
    pub scopes: Vec<(ScopeDigest, Position)>,
    pub rows: Vec<LateRow>,
    /// Of the journal.
    pub bytes: u64,
}

impl Added {
    fn map_bytes(&self) -> usize {
        let rows = self.rows.iter().map(|row| match &row.image {
            Image::Here(framed) => ROW_BYTES + row.key.len() + framed.len(),
            Image::Removed => ROW_BYTES + row.key.len(),
            Image::Settled => 0,
        });
        self.scopes.len() * SCOPE_BYTES + rows.sum::<usize>()
    }
}

impl Late {
    /// An empty map that may take so many bytes, in a store whose last number is `last_seq`.
    fn new(bytes_max: usize, last_seq: u64) -> Self {
        let lap = Lap { from: last_seq, next: Next::Scopes(None), journal_before: 0, journal_since: 0 };
        Self { scopes: BTreeMap::new(), rows: BTreeMap::new(), row_bytes: 0, lap, bytes_max, last_seq }
    }

    /// The map that the journal behind `state.merged_to` makes.
    pub fn read<J>(
        journal: &J,
        classes: impl Iterator<Item = ClassId>,
        state: &State,
        bytes_max: usize,
    ) -> Result<Self, Fault>
    where
        J: ReadableTable<&'static JournalKey, &'static [u8]>,
    {
        let mut late = Self::new(bytes_max, state.last_seq);
        let mut keys = Vec::new();
        for class in classes {
            let first = tables::position_key(Position { class, seq: state.merged_to.saturating_add(1) });
            let last = tables::position_key(Position { class, seq: state.last_seq });
            for item in journal.range::<&JournalKey>(&first..=&last)? {
                keys.push(*item?.0.value());
            }
        }
        // In the order of their commits, over all classes: of a row, the newest is what counts.
        keys.sort_unstable_by_key(|key| tables::position_of(key).seq);
        for key in keys {
            let Some(value) = journal.get(&key)? else { continue };
            let block = Block::read(key, value.value())?;
            for found in block.entries() {
                let found = found?;
                if let Some(scope) = found.scope {
                    late.scopes.insert(scope, found.position);
                }
            }
            late.put_rows(block.tail()?.rows)?;
            late.lap.journal_before += value.value().len() as u64;
        }
        Ok(late)
    }

    fn put_rows(&mut self, rows: Vec<LateRow>) -> Result<(), Fault> {
        for LateRow { key, image } in rows {
            let key = RowKey::of_bytes(key).ok_or_else(|| Fault::damaged("a block", "a key names no row"))?;
            match image {
                Image::Here(framed) => self.put_row(key, Some(framed)),
                Image::Removed => self.put_row(key, None),
                Image::Settled => self.drop_row(&key),
            }
        }
        Ok(())
    }

    fn put_row(&mut self, key: RowKey, framed: LateFrame) {
        self.row_bytes += key.as_bytes().len() + len(&framed);
        let key_len = key.as_bytes().len();
        if let Some(before) = self.rows.insert(key, framed) {
            self.row_bytes -= key_len + len(&before);
        }
    }

    fn drop_row(&mut self, key: &RowKey) {
        if let Some(before) = self.rows.remove(key) {
            self.row_bytes -= key.as_bytes().len() + len(&before);
        }
    }

    /// The newest entry of a scope, if it has not been merged.
    pub fn scope(&self, scope: ScopeDigest) -> Option<Position> {
        self.scopes.get(&scope).copied()
    }

    /// A row, if it has not been merged; the inner `None` says that it was removed.
    pub fn row(&self, key: &RowKey) -> Option<&LateFrame> {
        self.rows.get(key)
    }

    pub fn scopes(&self) -> impl Iterator<Item = (ScopeDigest, Position)> {
        self.scopes.iter().map(|(scope, position)| (*scope, *position))
    }

    pub fn rows(&self) -> impl Iterator<Item = (&RowKey, &LateFrame)> {
        self.rows.iter()
    }

    /// Up to `limit` rows whose keys begin with `prefix`, from `start` on, in key order.
    pub fn rows_from(&self, prefix: &[u8], start: Bound<&RowKey>, limit: usize) -> Vec<(RowKey, LateFrame)> {
        let from = self.rows.range::<RowKey, _>((start, Bound::Unbounded));
        let with_prefix = from.take_while(|(key, _)| key.as_bytes().starts_with(prefix)).take(limit);
        with_prefix.map(|(key, framed)| (key.clone(), framed.clone())).collect()
    }

    /// The last number of the commits that it knows; a snapshot may know one more for a moment.
    pub fn last_seq(&self) -> u64 {
        self.last_seq
    }

    /// About the memory it takes.
    pub fn bytes(&self) -> usize {
        self.scopes.len() * SCOPE_BYTES + self.rows.len() * ROW_BYTES + self.row_bytes
    }

    /// What a commit that adds this is to merge; `last_seq` is the last number before it.
    pub fn slice(&self, added: &Added, last_seq: u64) -> Slice {
        let mut lap = self.lap.clone();
        lap.journal_since += added.bytes;
        let mut slice = Slice { scopes: Vec::new(), rows: Vec::new(), merged_to: None, lap };
        let mut left = self.to_merge(added);
        if left == 0 {
            return slice;
        }
        slice.lap.next = self.take(&mut slice.scopes, &mut slice.rows, &mut left);
        if left > 0 {
            slice.merged_to = Some(slice.lap.from);
            slice.lap = Lap {
                from: last_seq,
                next: Next::Scopes(None),
                journal_before: slice.lap.journal_since,
                journal_since: 0,
            };
        }
        slice
    }

    /// How many bytes of the map a commit should merge.
    fn to_merge(&self, added: &Added) -> usize {
        let (adding, step) = (added.map_bytes(), (self.bytes_max / SLICES).max(1));
        let over = (self.bytes() + adding).saturating_sub(self.bytes_max);
        let journal = self.lap.journal_before + self.lap.journal_since;
        let is_journal_long = journal > (self.bytes_max.saturating_mul(JOURNAL_PER_BYTE)) as u64;
        if over == 0 && !is_journal_long {
            return 0;
        }
        // A map that was read anew may be far over; it comes down in steps, too.
        (over + step).min(step.max(adding.saturating_mul(4)).saturating_mul(2))
    }

    /// Takes `left` bytes from where the sweep stands; something is left where the lap ends.
    fn take(
        &self,
        scopes: &mut Vec<(ScopeDigest, Position)>,
        rows: &mut Vec<(RowKey, LateFrame)>,
        left: &mut usize,
    ) -> Next {
        let mut after = None;
        if let Next::Scopes(last) = &self.lap.next {
            let from = (last.as_ref().map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
            for (scope, position) in self.scopes.range::<ScopeDigest, _>(from) {
                scopes.push((*scope, *position));
                *left = left.saturating_sub(SCOPE_BYTES);
                if *left == 0 {
                    return Next::Scopes(Some(*scope));
                }
            }
        } else if let Next::Rows(last) = &self.lap.next {
            after = last.as_ref();
        }
        let from = (after.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
        for (key, framed) in self.rows.range::<RowKey, _>(from) {
            rows.push((key.clone(), framed.clone()));
            *left = left.saturating_sub(ROW_BYTES + key.as_bytes().len() + len(framed));
            if *left == 0 {
                return Next::Rows(Some(key.clone()));
            }
        }
        Next::Scopes(None)
    }

    /// What is so after the commit that merged `slice` and added `added`, up to the number `last_seq`.
    pub fn commit(&mut self, slice: Slice, added: Added, last_seq: u64) -> Result<(), Fault> {
        self.last_seq = last_seq;
        for (scope, _) in &slice.scopes {
            self.scopes.remove(scope);
        }
        for (key, _) in &slice.rows {
            self.drop_row(key);
        }
        self.lap = slice.lap;
        self.scopes.extend(added.scopes);
        self.put_rows(added.rows)
    }
}

fn len(framed: &LateFrame) -> usize {
    framed.as_ref().map_or(0, Bytes::len)
}
