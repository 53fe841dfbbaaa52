//! What is committed in the journal and not yet merged into `index` and `resource`: a complete map in memory,
//! and the sweep that empties it. Owns which of it is merged when; must not know transactions.
//!
//! To rewrite a leaf of a tree for each command costs a scattered page each. So scopes and rows wait here, in
//! two halves. New ones arrive in one; the other is swept in the order of its keys, a slice with some of
//! the commits, so that one rewritten leaf takes many. When it is empty the halves change places: a lap.
//! What the sweep has passed stands in each commit, so that an open, which reads the journal from `merged_to`
//! on, makes a map of the same scopes and rows again.
//!
//! Readers ask the map first and take their snapshot after; what is merged leaves the map only after the
//! commit that put it into its table. So nobody misses what moves.

use std::collections::BTreeMap;
use std::ops::Bound;

use redb::ReadableTable;

use super::block::NewEntry;
use super::fault::Fault;
use super::found::Found;
use super::index;
use super::stored::{Framed, Image, LateRow, State, Swept};
use super::tables::JournalKey;
use crate::core::name::ScopeDigest;
use crate::core::record::{ClassId, Position};
use crate::core::row::RowKey;

/// The frame of a row; none where it was removed.
pub(super) type LateFrame = Option<Framed>;

/// About what a scope takes in the map, in bytes.
const SCOPE_BYTES: usize = 48;
/// About what a row takes beside its key and its frame.
const ROW_BYTES: usize = 128;
/// How much journal may stand behind `merged_to`, as a multiple of the map's bytes: an open reads it.
const JOURNAL_PER_BYTE: usize = 6;
/// What is merged at once, as a part of the map: enough for several keys of a leaf, too little to be felt.
const SLICES: usize = 256;

/// The map.
#[derive(Debug)]
pub(crate) struct Late {
    arriving: Half,
    sweeping: Half,
    /// The last number of what is in `sweeping`; what has a higher one is in `arriving`.
    sweep_to: u64,
    /// The journal behind `merged_to`: that of `sweeping`, and what came since.
    journal: [u64; 2],
    bytes_max: usize,
    /// The last number of the commits that it knows.
    last_seq: u64,
}

/// Scopes and rows, newest only.
#[derive(Debug, Default)]
struct Half {
    scopes: BTreeMap<ScopeDigest, Position>,
    rows: BTreeMap<RowKey, LateFrame>,
    /// Keys and frames of `rows`.
    row_bytes: usize,
}

/// What one commit merges.
pub(super) struct Slice {
    pub scopes: Vec<(ScopeDigest, Position)>,
    pub rows: Vec<(RowKey, LateFrame)>,
    /// The most scopes of a block that they are merged into.
    pub scopes_max: usize,
    /// The halves change places first: what arrived is swept from now on.
    turns: bool,
}

/// How much one commit adds.
#[derive(Clone, Copy, Default)]
pub(super) struct Weight {
    /// To the map, in bytes.
    map: usize,
    /// To the journal, in bytes.
    journal: u64,
}

impl Late {
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
        let found = Found::read(journal, classes, state)?;
        let journal = found.journal;
        let [sweeping, arriving] = halves(found, &state.swept);
        let (sweep_to, last_seq) = (state.sweep_to, state.last_seq);
        Ok(Self { arriving, sweeping, sweep_to, journal, bytes_max, last_seq })
    }

    /// The newest entry of a scope, if it has not been merged.
    pub fn scope(&self, scope: ScopeDigest) -> Option<Position> {
        self.arriving.scopes.get(&scope).or_else(|| self.sweeping.scopes.get(&scope)).copied()
    }

    /// A row, if it has not been merged; the inner `None` says that it was removed.
    pub fn row(&self, key: &RowKey) -> Option<&LateFrame> {
        self.arriving.rows.get(key).or_else(|| self.sweeping.rows.get(key))
    }

    pub fn scopes(&self) -> impl Iterator<Item = (ScopeDigest, Position)> {
        let both = self.arriving.scopes.iter().chain(&self.sweeping.scopes);
        both.map(|(scope, position)| (*scope, *position))
    }

    pub fn rows(&self) -> impl Iterator<Item = (&RowKey, &LateFrame)> {
        self.arriving.rows.iter().chain(&self.sweeping.rows)
    }

    /// Up to `limit` rows whose keys begin with `prefix`, from `start` on, in key order.
    pub fn rows_from(&self, prefix: &[u8], start: Bound<&RowKey>, limit: usize) -> Vec<(RowKey, LateFrame)> {
        let of = |half: &Half| {
            let from = half.rows.range::<RowKey, _>((start, Bound::Unbounded));
            let with_prefix = from.take_while(|(key, _)| key.as_bytes().starts_with(prefix)).take(limit);
            with_prefix.map(|(key, framed)| (key.clone(), framed.clone())).collect::<Vec<_>>()
        };
        let mut page = of(&self.arriving);
        page.extend(of(&self.sweeping));
        page.sort_unstable_by(|one, other| one.0.cmp(&other.0));
        page.truncate(limit);
        page
    }

    /// All of it that an open makes again.
    #[cfg(test)]
    pub fn parts(&self) -> impl std::fmt::Debug {
        let of = |half: &Half| {
            let rows: Vec<_> =
                half.rows.iter().map(|(key, framed)| (key.to_bytes(), framed.clone())).collect();
            (half.scopes.clone(), rows, half.row_bytes)
        };
        (of(&self.arriving), of(&self.sweeping), self.sweep_to, self.last_seq)
    }

    /// How much journal an open would read for it.
    #[cfg(test)]
    pub fn journal_bytes(&self) -> u64 {
        self.journal[0] + self.journal[1]
    }

    /// The last number of the commits that it knows; a snapshot may know one more for a moment.
    pub fn last_seq(&self) -> u64 {
        self.last_seq
    }

    /// About the memory it takes.
    pub fn bytes(&self) -> usize {
        self.arriving.bytes() + self.sweeping.bytes()
    }

    /// What a commit that adds this is to merge: the same part of the scopes and of the rows.
    pub fn slice(&self, added: Weight) -> Slice {
        let bytes = self.to_merge(added);
        let turns = bytes > 0 && self.sweeping.is_empty();
        let swept = if turns { &self.arriving } else { &self.sweeping };
        let all = swept.bytes().max(1);
        let part = |keys: usize| keys.saturating_mul(bytes).div_ceil(all).min(keys);
        let scopes = swept.scopes.iter().take(part(swept.scopes.len()));
        let rows = swept.rows.iter().take(part(swept.rows.len()));
        Slice {
            scopes: scopes.map(|(scope, position)| (*scope, *position)).collect(),
            rows: rows.map(|(key, framed)| (key.clone(), framed.clone())).collect(),
            scopes_max: index::scopes_max(self.bytes_max),
            turns,
        }
    }

    /// How many bytes of the map a commit should merge: what is over, and a step more, so that the next few
    /// need not.
    fn to_merge(&self, added: Weight) -> usize {
        let step = (self.bytes_max / SLICES).max(1);
        let over = (self.bytes() + added.map).saturating_sub(self.bytes_max);
        let is_journal_long =
            self.journal[0] + self.journal[1] > self.bytes_max.saturating_mul(JOURNAL_PER_BYTE) as u64;
        if is_journal_long {
            // Large entries of few scopes lengthen it faster than the map grows: a lap's worth of the map
            // goes with as much journal as may stand behind.
            let due = usize::try_from(added.journal).unwrap_or(usize::MAX) / JOURNAL_PER_BYTE;
            return (over + step).saturating_add(due);
        }
        if over > 0 { over + step } else { 0 }
    }

    /// What the commit of a slice says of the sweep; `state` is as the commit before left it.
    pub fn swept(&self, slice: &Slice, state: &mut State) {
        if slice.turns {
            // What was swept before is all merged, or there is something newer of it.
            state.merged_to = state.sweep_to;
            state.sweep_to = self.last_seq;
            state.swept = Swept::default();
        }
        if let Some((scope, _)) = slice.scopes.last() {
            state.swept.scope = Some(scope.0);
        }
        if let Some((key, _)) = slice.rows.last() {
            state.swept.row = Some(key.to_bytes());
        }
    }

    /// What is so after the commit that merged `slice` and added `entries`, up to the number `last_seq`.
    pub fn commit(&mut self, slice: &Slice, entries: Vec<NewEntry>, weight: Weight, last_seq: u64) {
        if slice.turns {
            self.sweeping = std::mem::take(&mut self.arriving);
            self.sweep_to = self.last_seq;
            self.journal = [self.journal[1], 0];
        }
        for (scope, _) in &slice.scopes {
            self.sweeping.scopes.remove(scope);
        }
        for (key, _) in &slice.rows {
            self.sweeping.drop_row(key);
        }
        self.last_seq = last_seq;
        self.journal[1] += weight.journal;
        for entry in entries {
            let outcome_of = entry.outcome_of();
            let NewEntry { position, rows, .. } = entry;
            if let Some(scope) = outcome_of {
                self.sweeping.scopes.remove(&scope);
                self.arriving.scopes.insert(scope, position);
            }
            for LateRow { key, image } in rows {
                self.sweeping.drop_row(&key);
                match image {
                    Image::Here(framed) => self.arriving.put_row(key, Some(framed)),
                    Image::Removed => self.arriving.put_row(key, None),
                    Image::Settled => self.arriving.drop_row(&key),
                }
            }
        }
    }
}

/// What is swept, without what the sweep has passed, and what arrives.
fn halves(found: Found, swept: &Swept) -> [Half; 2] {
    let mut scopes = [Vec::new(), Vec::new()];
    for (scope, position) in found.scopes {
        let is_old = position.seq <= found.sweep_to;
        if !(is_old && swept.has_scope(scope.0)) {
            scopes[usize::from(!is_old)].push((scope, position));
        }
    }
    let mut rows = [Vec::new(), Vec::new()];
    for (key, (is_old, frame)) in found.rows {
        if let Some(framed) = frame
            && !(is_old && swept.has_row(key.as_bytes()))
        {
            rows[usize::from(!is_old)].push((key, framed));
        }
    }
    let ([old_scopes, new_scopes], [old_rows, new_rows]) = (scopes, rows);
    [Half::of(old_scopes, old_rows), Half::of(new_scopes, new_rows)]
}

impl Half {
    fn of(scopes: Vec<(ScopeDigest, Position)>, rows: Vec<(RowKey, LateFrame)>) -> Self {
        let row_bytes = rows.iter().map(|(key, framed)| key.as_bytes().len() + len(framed)).sum();
        Self { scopes: scopes.into_iter().collect(), rows: rows.into_iter().collect(), row_bytes }
    }

    fn is_empty(&self) -> bool {
        self.scopes.is_empty() && self.rows.is_empty()
    }

    fn bytes(&self) -> usize {
        self.scopes.len() * SCOPE_BYTES + self.rows.len() * ROW_BYTES + self.row_bytes
    }

    fn put_row(&mut self, key: RowKey, framed: LateFrame) {
        let key_len = key.as_bytes().len();
        self.row_bytes += key_len + len(&framed);
        if let Some(before) = self.rows.insert(key, framed) {
            self.row_bytes -= key_len + len(&before);
        }
    }

    fn drop_row(&mut self, key: &RowKey) {
        if let Some(before) = self.rows.remove(key) {
            self.row_bytes -= key.as_bytes().len() + len(&before);
        }
    }
}

impl Weight {
    /// With one entry more.
    pub fn and(self, entry: &NewEntry) -> Self {
        let rows = entry.rows.iter().map(|row| match &row.image {
            Image::Here(framed) => ROW_BYTES + row.key.as_bytes().len() + framed.len(),
            Image::Removed => ROW_BYTES + row.key.as_bytes().len(),
            Image::Settled => 0,
        });
        let scope = if entry.outcome_of().is_some() { SCOPE_BYTES } else { 0 };
        Self {
            map: self.map + scope + rows.sum::<usize>(),
            journal: self.journal + entry.framed.len() as u64,
        }
    }
}

fn len(framed: &LateFrame) -> usize {
    framed.as_ref().map_or(0, |framed| framed.len())
}
