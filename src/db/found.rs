//! What the journal behind `merged_to` says of scopes and rows: of each, the newest.
//!
//! Owns how that part of the journal is read: by two threads where it is long, for half of the time goes by
//! waiting for the disk. Must not know what is made of it.

use std::ops::RangeInclusive;
use std::panic::resume_unwind;
use std::thread;

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

/// Fewer entries than this are not worth a second thread.
const SHARED_ENTRIES_MIN: u64 = 4096;

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
    pub fn read<J>(journal: &J, classes: &[ClassId], state: &State) -> Result<Self, Fault>
    where
        J: ReadableTable<&'static JournalKey, &'static [u8]> + Sync,
    {
        let (first, last) = (state.merged_to.saturating_add(1), state.last_seq);
        let part = |numbers| Self::part(journal, classes, state.sweep_to, numbers);
        let expected = state.last_seq.saturating_sub(state.merged_to);
        let found = if expected < SHARED_ENTRIES_MIN {
            part(first..=last)?
        } else {
            let middle = first + expected / 2;
            thread::scope(|scope| {
                let later = thread::Builder::new().spawn_scoped(scope, || part(middle + 1..=last));
                let earlier = part(first..=middle);
                let later = match later {
                    Ok(later) => later.join().unwrap_or_else(|panic| resume_unwind(panic)),
                    // The system has no thread to give.
                    Err(_) => part(middle + 1..=last),
                };
                Ok::<_, Fault>(earlier?.then(later?))
            })?
        };
        // No number is left out, and none comes twice in the place of another. Where pages are not checked, a
        // damaged tree may pass over some, and what an older entry says would count.
        if found.entries != expected {
            let what =
                format!("it has {} entries above number {}, not {expected}", found.entries, state.merged_to);
            return Err(Fault::damaged("table journal", &what));
        }
        Ok(found)
    }

    /// The blocks that begin with one of these numbers.
    fn part<J>(
        journal: &J,
        classes: &[ClassId],
        sweep_to: u64,
        numbers: RangeInclusive<u64>,
    ) -> Result<Self, Fault>
    where
        J: ReadableTable<&'static JournalKey, &'static [u8]>,
    {
        let mut found = Self { sweep_to, ..Self::default() };
        let mut runs = Vec::new();
        for &class in classes {
            let key = |seq: &u64| tables::position_key(Position { class, seq: *seq });
            let mut run = journal.range::<&JournalKey>(&key(numbers.start())..=&key(numbers.end()))?;
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
        Ok(found)
    }

    fn take(&mut self, block: &Block<'_>, bytes: u64) -> Result<(), Fault> {
        let is_old = block.last_seq() <= self.sweep_to;
        self.journal[usize::from(!is_old)] += bytes;
        for found in block.entries() {
            let found = found?;
            self.entries += 1;
            if let Some(scope) = found.scope {
                self.put_scope(scope, found.position);
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

    fn put_scope(&mut self, scope: ScopeDigest, position: Position) {
        let newest = self.scopes.entry(scope).or_insert(position);
        // A commit may hold two outcomes of a scope, in blocks of two classes, the newer block first.
        if newest.seq < position.seq {
            *newest = position;
        }
    }

    /// With what blocks say that begin with higher numbers. Of one commit each row stands in one block only,
    /// so what stands later is newer.
    fn then(mut self, later: Self) -> Self {
        later.scopes.into_iter().for_each(|(scope, position)| self.put_scope(scope, position));
        self.rows.extend(later.rows);
        let journal = [0, 1].map(|half| self.journal[half] + later.journal[half]);
        Self { journal, entries: self.entries + later.entries, ..self }
    }
}
