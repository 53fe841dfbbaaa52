//! The journal read in order, for people: outcomes a page at a time, and all that was written of one scope.

use std::ops::Bound;

use super::block::Block;
use super::database::{Db, ascending};
use super::fault::Fault;
use super::tables::JournalKey;
use crate::core::name::ScopeDigest;
use crate::core::record::{Entry, Record};
use crate::core::row::RowKey;

/// Where a walk through the journal stands: the key of the last block it has read.
pub(crate) type Place = JournalKey;

/// Entries with their numbers.
type Numbered = Vec<(u64, Entry)>;

/// Blocks that are read under one snapshot.
const PAGE_BLOCKS: usize = 16;

impl Db {
    /// Outcomes in the next blocks after a place, each the newest of its scope, and the place after them;
    /// none when the journal is over.
    pub fn outcomes_after(&self, after: Option<Place>) -> Result<(Vec<Record>, Option<Place>), Fault> {
        let mut outcomes = Vec::new();
        let last = self.blocks_after(after, |block| {
            for found in block.entries() {
                let found = found?;
                if let Some(scope) = found.scope.filter(|_| found.is_outcome) {
                    outcomes.push((scope, found.position));
                }
            }
            Ok(())
        })?;
        let mut records = Vec::with_capacity(outcomes.len());
        for (scope, position) in outcomes {
            records.extend(self.record(scope)?.filter(|record| record.position == position));
        }
        Ok((records, last))
    }

    /// What was written of a scope in the next blocks after a place, and the place after them.
    pub fn history_after(
        &self,
        scope: ScopeDigest,
        after: Option<Place>,
    ) -> Result<(Vec<Record>, Option<Place>), Fault> {
        let mut positions = Vec::new();
        let last = self.blocks_after(after, |block| {
            for found in block.entries() {
                let found = found?;
                if found.scope == Some(scope) {
                    positions.push(found.position);
                }
            }
            Ok(())
        })?;
        let mut records = Vec::with_capacity(positions.len());
        for position in positions {
            records.extend(self.entry(position)?);
        }
        Ok((records, last))
    }

    /// What was written in the next blocks after a place about one row, and the place after them.
    pub fn row_history_after(
        &self,
        row: &RowKey,
        after: Option<Place>,
    ) -> Result<(Numbered, Option<Place>), Fault> {
        let mut entries = Vec::new();
        let last = self.blocks_after(after, |block| {
            for found in block.entries() {
                let found = found?;
                let entry = found.entry()?;
                if entry.notes.iter().any(|note| note.key == *row) {
                    entries.push((found.position.seq, entry));
                }
            }
            Ok(())
        })?;
        Ok((entries, last))
    }

    fn blocks_after(
        &self,
        after: Option<Place>,
        mut each: impl FnMut(&Block<'_>) -> Result<(), Fault>,
    ) -> Result<Option<Place>, Fault> {
        let start = after.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
        let mut last: Option<Place> = None;
        let snapshot = self.snapshot()?;
        for item in snapshot.journal.range::<&JournalKey>((start, Bound::Unbounded))?.take(PAGE_BLOCKS) {
            let (key, value) = item?;
            let key = *key.value();
            ascending("journal", last.or(after).as_ref().map(<[u8; 10]>::as_slice), &key)?;
            each(&Block::read(key, value.value())?)?;
            last = Some(key);
        }
        Ok(last)
    }
}
