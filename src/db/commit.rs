//! One commit: entries, what they leave of rows, a slice of the sweep, all of it durable or none. Owns the
//! write transaction; must not know rules.

use std::sync::atomic::Ordering;

use redb::Durability;

use super::block::{self, NewEntry};
use super::database::Db;
use super::envelope::{self, Kind, Table};
use super::fault::Fault;
use super::index;
use super::late::{Slice, Weight};
use super::stored::{Framed, Image, LateRow, State, StoredClass, StoredRow};
use super::tables::{self, CLASS, INDEX, JOURNAL, META, RESOURCE};
use crate::core::name::ScopeDigest;
use crate::core::policy::Windows;
use crate::core::record::{ClassId, Entry, Position};
use crate::core::row::{Row, RowKey};

/// The longest frame of a row that waits to be merged, in bytes. A longer one is a page or so by itself:
/// to write it twice would cost more than to write it where it belongs.
const LATE_ROW_BYTES_MAX: usize = 2048;

/// How a commit reaches the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum CommitMode {
    /// Two syncs: data, then the switch to it. A damaged last commit is an error, never a silent step back.
    /// The default.
    #[default]
    TwoPhase,
    /// One sync: faster. A single damaged bit in the last commit makes the open after a kill step back to the
    /// commit before it in silence, and an acknowledged command with it. Only for disks whose loss is borne
    /// elsewhere.
    OnePhase,
}

/// What one commit is to write, encoded already.
#[derive(Default)]
pub(crate) struct Batch {
    classes: Vec<(ClassId, Windows)>,
    entries: Vec<NewEntry>,
    /// The frames of the entries, one behind the other.
    frames: Vec<u8>,
    /// Where a row is encoded before its bytes are counted.
    scratch: Vec<u8>,
    settled: Vec<(RowKey, Vec<u8>)>,
    /// Whether a row speaks of a tenant.
    has_units: bool,
}

/// Why a batch was not committed.
#[derive(Debug)]
pub(crate) enum Failed {
    /// Before the commit began: nothing of it is or will be in the file.
    Before(Fault),
    /// In the commit: all of it is in the file, or nothing.
    Uncertain(Fault),
}

impl<F: Into<Fault>> From<F> for Failed {
    fn from(fault: F) -> Self {
        Self::Before(fault.into())
    }
}

impl Batch {
    /// An empty batch for so many entries of so many bytes in all.
    pub fn with_capacity(entries: usize, bytes: usize) -> Self {
        let (entries, frames) = (Vec::with_capacity(entries), Vec::with_capacity(bytes));
        Self { entries, frames, ..Self::default() }
    }

    /// Numbers a class.
    pub fn add_class(&mut self, class: ClassId, windows: Windows) {
        self.classes.push((class, windows));
    }

    /// Appends an entry, after all that have a lower number; `scope` is what it speaks of.
    pub fn put_entry(
        &mut self,
        position: Position,
        scope: Option<ScopeDigest>,
        entry: &Entry,
        told: &[u8],
    ) -> Result<(), Fault> {
        let start = self.frames.len();
        block::seal_entry(&mut self.frames, position, entry, told)?;
        let framed = start..self.frames.len();
        let is_outcome = entry.transition.is_outcome();
        self.entries.push(NewEntry { position, scope, is_outcome, framed, rows: Vec::new() });
        Ok(())
    }

    /// A row as this commit leaves it, once for each row; `seq` is the entry that was the last to change it.
    pub fn put_row(&mut self, key: &RowKey, row: Option<&Row>, seq: u64) -> Result<(), Fault> {
        self.has_units |= key.is_unit();
        let image = match row {
            None => Image::Removed,
            Some(row) => {
                self.scratch.clear();
                let stored = StoredRow::from(row);
                envelope::seal_into(&mut self.scratch, Table::Resource, key.as_bytes(), Kind::Row, &stored)
                    .map_err(Fault::Refused)?;
                if self.scratch.len() > LATE_ROW_BYTES_MAX {
                    self.settled.push((key.clone(), std::mem::take(&mut self.scratch)));
                    Image::Settled
                } else {
                    // It may wait for long: it keeps no room that it does not need.
                    Image::Here(Framed(self.scratch.as_slice().into()))
                }
            }
        };
        let writer = self.entries.binary_search_by_key(&seq, |entry| entry.position.seq);
        let no_writer = |_| Fault::Refused(format!("a row was changed by entry {seq}, which is not written"));
        let writer = writer.map_err(no_writer)?;
        let rows = &mut self.entries[writer].rows;
        if rows.is_empty() {
            // Most commands change one row.
            rows.reserve_exact(1);
        }
        rows.push(LateRow { key: key.clone(), image });
        Ok(())
    }

    /// What it adds to what is not merged yet.
    fn weight(&self) -> Weight {
        self.entries.iter().fold(Weight::default(), Weight::and)
    }
}

impl Db {
    /// Commits a batch durably, with what `state` says of the store after it; moves on the numbers of `state`
    /// that tell of tables. A batch without entries writes the state alone.
    pub fn commit(&self, batch: Batch, state: &mut State) -> Result<(), Failed> {
        let weight = batch.weight();
        let mut next = state.clone();
        let slice = {
            let late = self.late.read();
            let slice = late.slice(weight);
            late.swept(&slice, &mut next);
            slice
        };
        let mut write = self.database.begin_write()?;
        // The only calls on durability in the program: never less than synced.
        write.set_durability(Durability::Immediate).map_err(|fault| Fault::Io(fault.to_string()))?;
        write.set_two_phase_commit(self.mode == CommitMode::TwoPhase);
        write.set_quick_repair(self.is_large());
        put(&write, &batch, &slice, &mut next)?;
        for entry in &batch.entries {
            entry.outcome_of().iter().for_each(|scope| self.filter.add_scope(*scope));
            entry.rows.iter().for_each(|row| self.filter.add_row(row.key.as_bytes()));
        }
        if next.open > 0 {
            // Before anybody can see one.
            self.may_have_open.store(true, Ordering::Release);
        }
        if batch.has_units {
            self.has_units.store(true, Ordering::Release);
        }
        if !batch.classes.is_empty() {
            // Readers look a class up after its first entry is committed, so they must know it before.
            self.classes.write().extend(batch.classes);
        }
        write.commit().map_err(|fault| Failed::Uncertain(fault.into()))?;
        self.late.write().commit(&slice, batch.entries, weight, next.last_seq);
        self.may_have_open.store(next.open > 0, Ordering::Release);
        *state = next;
        Ok(())
    }
}

/// Everything that one commit writes. The journal comes last: its last block says how the tables then are.
fn put(write: &redb::WriteTransaction, batch: &Batch, slice: &Slice, next: &mut State) -> Result<(), Fault> {
    for (class, windows) in &batch.classes {
        let key = class.0.to_be_bytes();
        let framed = envelope::seal(Table::Class, &key, Kind::Class, &StoredClass { windows: *windows })
            .map_err(Fault::Refused)?;
        write.open_table(CLASS)?.insert(&key, framed.as_slice())?;
    }
    merge(write, slice, &batch.settled, next)?;
    if batch.entries.is_empty() {
        return put_state(write, next);
    }
    let blocks = block::cut(&batch.entries, next)?;
    next.blocks += blocks.len() as u64;
    let last = batch.entries.last().map(|entry| entry.position);
    let mut journal = write.open_table(JOURNAL)?;
    let mut value = Vec::new();
    for block in blocks {
        let is_last = block.last().map(|entry| entry.position) == last;
        let key = block::write(&block, &batch.frames, is_last.then_some(&*next), &mut value)?;
        journal.insert(&key, value.as_slice())?;
    }
    Ok(())
}

/// Puts a slice of what waits into its tables, in the order of their keys, and what does not wait at all.
fn merge(
    write: &redb::WriteTransaction,
    slice: &Slice,
    settled: &[(RowKey, Vec<u8>)],
    next: &mut State,
) -> Result<(), Fault> {
    if !slice.scopes.is_empty() {
        let mut table = write.open_table(INDEX)?;
        index::merge(&mut table, &slice.scopes, slice.scopes_max, next)?;
    }
    if slice.rows.is_empty() && settled.is_empty() {
        return Ok(());
    }
    let mut resource = write.open_table(RESOURCE)?;
    for (key, framed) in &slice.rows {
        match framed {
            Some(framed) => {
                let is_new = resource.insert(key.as_bytes(), &**framed)?.is_none();
                next.settled += u64::from(is_new);
            }
            None => next.settled -= u64::from(resource.remove(key.as_bytes())?.is_some()),
        }
    }
    for (key, framed) in settled {
        let is_new = resource.insert(key.as_bytes(), framed.as_slice())?.is_none();
        next.settled += u64::from(is_new);
    }
    Ok(())
}

fn put_state(write: &redb::WriteTransaction, state: &State) -> Result<(), Fault> {
    super::database::put_meta(&mut write.open_table(META)?, tables::STATE, Kind::State, state)
}
