//! A block: what one row of `journal` holds, a run of entries of one class and one commit with what they left
//! of the rows they changed. Owns how a commit is cut into blocks and how one entry is found in one.
//!
//! The storage engine keeps a value of 4 KiB or more in 2^k pages of its own, so a commit is cut where it
//! fills them. Each part has a frame, so damage in one entry leaves the others readable.

use std::collections::BTreeMap;
use std::ops::Range;

use super::codec;
use super::envelope::{self, Kind, Table};
use super::fault::{Fault, Unreadable};
use super::stored::{Directory, Image, LateRow, Listed, State, StoredEntry, Tail, encode_entry};
use super::tables::{JournalKey, position_key, position_of};
use crate::core::name::ScopeDigest;
use crate::core::record::{ClassId, Entry, Position};

/// The pages of the storage engine, in bytes.
const PAGE_BYTES: usize = 4096;
/// What the engine needs of a value's pages for itself, and a block for its frames.
const OVERHEAD_BYTES: usize = 64;
/// The pages of the largest block that has more than one entry, in bytes: a cold read of one entry reads its
/// whole block.
const BLOCK_BYTES_MAX: usize = 64 * 1024;
/// What the state of a store with a few classes takes.
const STATE_BYTES_USUAL: usize = 256;
/// How full the pages of a block have to be, in percent, for it not to be cut smaller.
const FULL_PERCENT: usize = 85;

/// One entry on its way into the file.
pub(crate) struct NewEntry {
    pub position: Position,
    /// None for a command without a key.
    pub scope: Option<ScopeDigest>,
    /// Whether it is the outcome of that scope.
    pub is_outcome: bool,
    /// Its frame, in the frames of the commit.
    pub framed: Range<usize>,
    /// The rows that it was the last of its commit to change.
    pub rows: Vec<LateRow>,
}

impl NewEntry {
    /// The scope that it is the outcome of.
    pub fn outcome_of(&self) -> Option<ScopeDigest> {
        self.scope.filter(|_| self.is_outcome)
    }

    /// What it takes of a block.
    fn bytes(&self) -> usize {
        const LISTED_BYTES: usize = 25;
        self.framed.len() + LISTED_BYTES + self.rows.iter().map(LateRow::bytes).sum::<usize>()
    }
}

impl LateRow {
    /// What it takes of a block.
    fn bytes(&self) -> usize {
        const LENGTHS_BYTES: usize = 7;
        let image = match &self.image {
            Image::Here(framed) => framed.len(),
            Image::Removed | Image::Settled => 0,
        };
        self.key.as_bytes().len() + image + LENGTHS_BYTES
    }
}

/// The blocks of one commit, each a run of entries of one class. The last of each class has room for what the
/// commit says of itself.
pub(super) fn cut<'e>(entries: &'e [NewEntry], state: &State) -> Result<Vec<Vec<&'e NewEntry>>, Fault> {
    let state_bytes = codec::encode(state).map_err(Fault::Refused)?.len();
    let mut classes: BTreeMap<ClassId, Vec<&NewEntry>> = BTreeMap::new();
    for entry in entries {
        let of_class = classes.entry(entry.position.class);
        of_class.or_insert_with(|| Vec::with_capacity(entries.len())).push(entry);
    }
    let mut blocks = Vec::new();
    for entries in classes.values() {
        // Summed once: a commit may have as many blocks as entries.
        let mut bytes: usize = entries.iter().map(|entry| entry.bytes()).sum();
        let mut rest = entries.as_slice();
        while !rest.is_empty() {
            let (block, behind) = rest.split_at(first_block(rest, bytes, state_bytes));
            bytes -= block.iter().map(|entry| entry.bytes()).sum::<usize>();
            blocks.push(block.to_vec());
            rest = behind;
        }
    }
    Ok(blocks)
}

/// How many of these entries, of so many bytes in all, the next block takes; at least one.
fn first_block(entries: &[&NewEntry], bytes: usize, state_bytes: usize) -> usize {
    let all = OVERHEAD_BYTES + bytes + state_bytes;
    let pages = all.next_multiple_of(PAGE_BYTES).next_power_of_two();
    if all < PAGE_BYTES || (pages <= BLOCK_BYTES_MAX && all * 100 >= pages * FULL_PERCENT) {
        return entries.len();
    }
    let room = (pages / 2).clamp(PAGE_BYTES, BLOCK_BYTES_MAX);
    let mut used = OVERHEAD_BYTES;
    let fit = entries.iter().zip(1..).take_while(|(entry, number)| {
        used += entry.bytes() + if *number == entries.len() { state_bytes } else { 0 };
        used <= room
    });
    fit.count().max(1)
}

/// The key of a block, and its value into `value`; `state` is what the commit says of itself, in its last
/// block.
pub(super) fn write(
    entries: &[&NewEntry],
    frames: &[u8],
    state: Option<&State>,
    value: &mut Vec<u8>,
) -> Result<JournalKey, Fault> {
    let first = entries.first().map_or(NOWHERE, |entry| entry.position);
    let key = position_key(first);
    let listed = entries.iter().map(|entry| {
        let len = u32::try_from(entry.framed.len()).map_err(|_| "longer than 4 GiB".to_owned())?;
        let scope = entry.scope.map(|scope| scope.0);
        let above = entry.position.seq - first.seq;
        Ok(Listed { above, len, scope, is_outcome: entry.is_outcome })
    });
    let directory = Directory { entries: listed.collect::<Result<_, String>>().map_err(Fault::Refused)? };
    let bytes = OVERHEAD_BYTES + entries.iter().map(|entry| entry.bytes()).sum::<usize>();
    value.clear();
    value.reserve(bytes + STATE_BYTES_USUAL);
    envelope::seal_into(value, Table::Journal, &key, Kind::Directory, &directory).map_err(Fault::Refused)?;
    for entry in entries {
        // A frame that is not there would be found out by every reader.
        value.extend_from_slice(frames.get(entry.framed.clone()).unwrap_or_default());
    }
    let tail = Tail { rows: entries.iter().flat_map(|entry| &entry.rows).collect(), state };
    envelope::seal_into(value, Table::Journal, &key, Kind::Tail, &tail).map_err(Fault::Refused)?;
    Ok(key)
}

const NOWHERE: Position = Position { class: ClassId(0), seq: 0 };

/// A block as it is read.
pub(super) struct Block<'b> {
    key: JournalKey,
    directory: Directory,
    /// The frames of the entries, then that of the tail.
    rest: &'b [u8],
}

/// One entry in a block, not opened yet.
pub(super) struct Found<'b> {
    pub position: Position,
    pub scope: Option<ScopeDigest>,
    pub is_outcome: bool,
    pub framed: &'b [u8],
}

impl Found<'_> {
    pub fn entry(&self) -> Result<Entry, Fault> {
        read_entry(self.position, self.framed)
    }
}

impl<'b> Block<'b> {
    /// Reads what a block has: its directory, and that the rest is as long as that says.
    pub fn read(key: JournalKey, value: &'b [u8]) -> Result<Self, Fault> {
        Self::parse(key, value).map_err(|fault| fault.at(&block_place(&key)))
    }

    fn parse(key: JournalKey, value: &'b [u8]) -> Result<Self, Unreadable> {
        let (framed, rest) = envelope::split(value)?;
        let directory: Directory = envelope::open(Table::Journal, &key, Kind::Directory, framed)?;
        if directory.entries.first().is_none_or(|first| first.above != 0) {
            return Err("its first entry is not the one that its key names".into());
        }
        if !directory.entries.is_sorted_by(|one, next| one.above < next.above) {
            return Err("its entries are out of order".into());
        }
        let last = directory.entries.last().map_or(0, |last| last.above);
        if position_of(&key).seq.checked_add(last).is_none() {
            return Err("an entry has a number that does not exist".into());
        }
        Ok(Self { key, directory, rest })
    }

    pub fn entries(&self) -> impl Iterator<Item = Result<Found<'b>, Fault>> {
        let first = position_of(&self.key);
        let mut at = 0_usize;
        self.directory.entries.iter().map(move |listed| {
            let position = Position { seq: first.seq + listed.above, ..first };
            let from = at;
            at = at.saturating_add(listed.len as usize);
            let framed =
                self.rest.get(from..at).ok_or_else(|| Fault::damaged(&place(position), "it is cut"))?;
            let Listed { scope, is_outcome, .. } = *listed;
            Ok(Found { position, scope: scope.map(ScopeDigest), is_outcome, framed })
        })
    }

    pub fn entry(&self, seq: u64) -> Result<Option<Found<'b>>, Fault> {
        let above = seq.checked_sub(position_of(&self.key).seq);
        let at = above.and_then(|above| {
            self.directory.entries.binary_search_by_key(&above, |listed| listed.above).ok()
        });
        at.and_then(|at| self.entries().nth(at)).transpose()
    }

    /// Where it is, in words.
    pub fn place(&self) -> String {
        block_place(&self.key)
    }

    /// The number of the last entry.
    pub fn last_seq(&self) -> u64 {
        position_of(&self.key).seq + self.directory.entries.last().map_or(0, |last| last.above)
    }

    pub fn tail(&self) -> Result<Tail, Fault> {
        let entries =
            self.directory.entries.iter().fold(0_usize, |sum, entry| sum.saturating_add(entry.len as usize));
        let framed = self.rest.get(entries..).unwrap_or_default();
        envelope::open(Table::Journal, &self.key, Kind::Tail, framed)
            .map_err(|fault| fault.at(&format!("the tail of {}", block_place(&self.key))))
    }
}

/// Reads all that any bytes say as a block under a key: how many entries it lists, how many of them and of
/// what is behind them can be read. For the fuzz targets.
#[cfg(feature = "testing")]
pub(crate) fn read_all(key: &[u8; 10], value: &[u8]) -> Result<(usize, usize, Result<Tail, Fault>), Fault> {
    let block = Block::read(*key, value)?;
    let first = position_of(key);
    let (mut listed, mut readable, mut last) = (0, 0, None);
    for found in block.entries() {
        listed += 1;
        let Ok(found) = found else { continue };
        assert!(last.is_none_or(|last| last < found.position.seq), "entries are out of order");
        last = Some(found.position.seq);
        let again = block.entry(found.position.seq).ok().flatten().map(|again| again.framed);
        assert!(again == Some(found.framed), "an entry is another when it is asked for");
        readable += usize::from(found.entry().is_ok());
    }
    for seq in [0, first.seq.saturating_sub(1), block.last_seq().saturating_add(1), u64::MAX] {
        let is_listed = (first.seq..=block.last_seq()).contains(&seq);
        assert!(is_listed || block.entry(seq).is_ok_and(|found| found.is_none()), "a stranger is found");
    }
    Ok((listed, readable, block.tail()))
}

/// Appends the frame of an entry.
pub(super) fn seal_entry(
    out: &mut Vec<u8>,
    position: Position,
    entry: &Entry,
    told: &[u8],
) -> Result<(), Fault> {
    let put_body = |out: &mut Vec<u8>| encode_entry(entry, told, out);
    envelope::frame_into(out, Table::Journal, &position_key(position), Kind::Entry, put_body)
        .map_err(Fault::Refused)
}

pub(super) fn read_entry(position: Position, framed: &[u8]) -> Result<Entry, Fault> {
    envelope::open::<StoredEntry>(Table::Journal, &position_key(position), Kind::Entry, framed)
        .and_then(Entry::try_from)
        .map_err(|fault| fault.at(&place(position)))
}

pub(super) fn place(position: Position) -> String {
    format!("journal entry {} of class {}", position.seq, position.class.0)
}

fn block_place(key: &JournalKey) -> String {
    let Position { class, seq } = position_of(key);
    format!("the block of journal entry {seq} of class {}", class.0)
}
