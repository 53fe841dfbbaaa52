//! What the journal behind `merged_to` says of scopes and rows: of each, the newest.
//!
//! Owns how that part of the journal is read. Must not know what is made of it.

use foldhash::HashMap;
use redb::ReadableTable;

use super::block::Block;
use super::database::ascending;
use super::fault::Fault;
use super::late::LateFrame;
use super::stored::{Image, LateRow, State};
use super::tables::{self, JournalKey};
use crate::core::name::ScopeDigest;
use crate::core::record::{ClassId, Position};
use crate::core::row::RowKey;

/// In no order: to find its place among many sorted keys costs each more than to sort all of them once.
#[derive(Default)]
pub(super) struct Found {
    /// What has no higher number is *old*: the sweep goes over it.
    pub sweep_to: u64,
    pub scopes: HashMap<ScopeDigest, Position>,
    /// Whether it is old, and the frame; none for a row that is in its table already.
    pub rows: HashMap<RowKey, (bool, Option<LateFrame>)>,
    /// Bytes of the journal that are old, and that are not.
    pub journal: [u64; 2],
    entries: u64,
}

impl Found {
    /// All of it.
    pub fn read<J>(journal: &J, classes: impl Iterator<Item = ClassId>, state: &State) -> Result<Self, Fault>
    where
        J: ReadableTable<&'static JournalKey, &'static [u8]>,
    {
        let mut found = Self { sweep_to: state.sweep_to, ..Self::default() };
        let mut runs = Vec::new();
        for class in classes {
            let first = tables::position_key(Position { class, seq: state.merged_to.saturating_add(1) });
            let last = tables::position_key(Position { class, seq: state.last_seq });
            let mut run = journal.range::<&JournalKey>(&first..=&last)?;
            let next = run.next().transpose()?;
            runs.push((run, next));
        }
        // In the order of their commits, over all classes: of a row, the newest is what counts.
        let seq_of = |key: &redb::AccessGuard<'_, &JournalKey>| tables::position_of(key.value()).seq;
        while let Some((run, next)) = runs
            .iter_mut()
            .filter(|(_, next)| next.is_some())
            .min_by_key(|(_, next)| next.as_ref().map(|(key, _)| seq_of(key)))
        {
            if let Some((key, value)) = next.take() {
                found.take(&Block::read(*key.value(), value.value())?, value.value().len() as u64)?;
                *next = run.next().transpose()?;
                if let Some((following, _)) = next {
                    ascending("journal", Some(key.value()), following.value())?;
                }
            }
        }
        // No number is left out, and none comes twice in the place of another. Where pages are not checked, a
        // damaged tree may pass over some, and what an older entry says would count.
        let expected = state.last_seq.saturating_sub(state.merged_to);
        if found.entries != expected {
            let what =
                format!("it has {} entries above number {}, not {expected}", found.entries, state.merged_to);
            return Err(Fault::damaged("table journal", &what));
        }
        Ok(found)
    }

    fn take(&mut self, block: &Block<'_>, bytes: u64) -> Result<(), Fault> {
        let is_old = block.last_seq() <= self.sweep_to;
        self.journal[usize::from(!is_old)] += bytes;
        for found in block.entries() {
            let found = found?;
            self.entries += 1;
            let Some(scope) = found.scope.filter(|_| found.is_outcome) else { continue };
            let newest = self.scopes.entry(scope).or_insert(found.position);
            // A commit may hold two outcomes of a scope, in blocks of two classes, the newer block first.
            if newest.seq < found.position.seq {
                *newest = found.position;
            }
        }
        for LateRow { key, image } in block.tail()?.rows {
            let frame = match image {
                Image::Here(framed) => Some(Some(framed)),
                Image::Removed => Some(None),
                Image::Settled => None,
            };
            self.rows.insert(key, (is_old, frame));
        }
        Ok(())
    }
}
