//! Changes that a command wants. Owns what each does to the row it finds; must not know where rows come from.
//!
//! An effect is data with a precondition. It is applied twice by the one function here: while the closure
//! runs, to show the closure its own changes, and when the writer decides, on the rows as they then are.

use std::sync::Arc;

use bytes::Bytes;

use super::error::Error;
use super::message::NewMessage;
use super::outcome::{Digest, ResourceRef};
use super::record::Position;
use super::row::{Codec, Content, Row, RowKey};
use super::time::Timestamp;

/// The most effects one command may stage.
pub const EFFECTS_MAX: usize = 1024;
/// The most rows one command may read.
pub const READS_MAX: usize = 1024;
/// The most bytes of values that one command may read. The value that passes it has been read, so a command
/// keeps at most this and one value more.
pub const READ_BYTES_MAX: usize = 8 * 1024 * 1024;
/// The largest value of a resource, in bytes.
pub const VALUE_BYTES_MAX: usize = 4 * 1024 * 1024;

/// A value to be written.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Value {
    pub codec: Codec,
    pub bytes: Bytes,
}

/// One change to one row.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Effect {
    pub key: RowKey,
    pub change: Change,
}

#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Change {
    /// The row must not exist.
    Create(Value),
    Put(Value),
    PutIfNewer(Value, Timestamp),
    Remove,
    RemoveIfNewer(Timestamp),
    /// Adds to a counter unless that ends below `floor`. `took` is what the closure was told.
    Add {
        by: i64,
        floor: i64,
        took: bool,
    },
    /// The uniqueness must be free, or this holder's already.
    Unique(ResourceRef),
    /// Frees the uniqueness if it is this holder's.
    Release(ResourceRef),
}

/// What came of one effect on one row.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Applied {
    Write(Row),
    Remove,
    /// The row stays as it is: nothing to do.
    Keep,
    /// The row stays as it is: it has seen a newer event.
    Stale,
}

/// Why an effect cannot be applied.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Obstacle {
    /// The row exists, or the uniqueness is somebody else's.
    Taken { held: ResourceRef, made: Position },
    /// What the closure was told of the counter no longer holds.
    Moved,
    /// The sum of a counter does not fit.
    Overflow,
    /// The row was written in another way.
    Codec { stored: Codec },
}

impl Effect {
    /// What this effect makes of `row`, as a command at `position` would write it. Total and deterministic.
    pub fn apply(&self, row: Option<&Row>, position: Position) -> Result<Applied, Obstacle> {
        match &self.change {
            Change::Create(value) => self.create(row, value, position),
            Change::Put(value) => Ok(Applied::Write(written(row, value, None, position)?)),
            Change::PutIfNewer(value, time) if is_newer(*time, row) => {
                Ok(Applied::Write(written(row, value, Some(*time), position)?))
            }
            Change::RemoveIfNewer(time) if is_newer(*time, row) => {
                Ok(Applied::Write(removed(row, *time, position)))
            }
            Change::PutIfNewer(..) | Change::RemoveIfNewer(_) => Ok(Applied::Stale),
            Change::Remove => Ok(match row {
                None | Some(Row { content: Content::Removed, .. }) => Applied::Keep,
                // No older event may bring it back.
                Some(Row { event_time: Some(time), .. }) => Applied::Write(removed(row, *time, position)),
                Some(_) => Applied::Remove,
            }),
            Change::Add { by, floor, took } => add(row, *by, *floor, *took, position),
            Change::Unique(holder) => take(row, holder, position),
            Change::Release(holder) => match row.map(|row| &row.content) {
                Some(Content::Held(held)) if held == holder => Ok(Applied::Remove),
                _ => Ok(Applied::Keep),
            },
        }
    }

    /// How many bytes it writes: key and value.
    pub fn bytes(&self) -> usize {
        self.key.as_bytes().len() + self.change.value_bytes()
    }

    fn create(&self, row: Option<&Row>, value: &Value, position: Position) -> Result<Applied, Obstacle> {
        match row {
            Some(row) if row.is_there() => {
                Err(Obstacle::Taken { held: self.key.reference(), made: row.made })
            }
            // What was removed keeps its event time, so that an older event still changes nothing.
            removed => Ok(Applied::Write(Row { made: position, ..written(removed, value, None, position)? })),
        }
    }
}

/// A value in place of `row`. An event time once set stays unless a newer one comes.
fn written(
    row: Option<&Row>,
    value: &Value,
    time: Option<Timestamp>,
    position: Position,
) -> Result<Row, Obstacle> {
    if let Some(Row { content: Content::Value { codec, .. }, .. }) = row
        && *codec != value.codec
    {
        return Err(Obstacle::Codec { stored: *codec });
    }
    Ok(Row {
        version: position.seq,
        made: row.filter(|row| row.is_there()).map_or(position, |row| row.made),
        event_time: time.or(row.and_then(|row| row.event_time)),
        content: Content::Value { codec: value.codec, bytes: value.bytes.clone() },
    })
}

/// What a removal leaves of a row that events write.
fn removed(row: Option<&Row>, time: Timestamp, position: Position) -> Row {
    Row {
        version: position.seq,
        made: row.map_or(position, |row| row.made),
        event_time: Some(time),
        content: Content::Removed,
    }
}

/// Equal times do not overtake one another: the first stays.
fn is_newer(time: Timestamp, row: Option<&Row>) -> bool {
    row.and_then(|row| row.event_time).is_none_or(|known| time > known)
}

fn add(row: Option<&Row>, by: i64, floor: i64, took: bool, position: Position) -> Result<Applied, Obstacle> {
    let sum = counter(row)?.checked_add(by).ok_or(Obstacle::Overflow)?;
    if (sum >= floor) != took {
        return Err(Obstacle::Moved);
    }
    if !took {
        return Ok(Applied::Keep);
    }
    let value = Value { codec: Codec::Counter, bytes: Bytes::copy_from_slice(&sum.to_be_bytes()) };
    Ok(Applied::Write(written(row, &value, None, position)?))
}

/// The number in a counter's row; an absent row is 0.
pub(crate) fn counter(row: Option<&Row>) -> Result<i64, Obstacle> {
    match row.map(|row| &row.content) {
        None | Some(Content::Removed) => Ok(0),
        Some(Content::Value { codec: Codec::Counter, bytes }) if bytes.len() == 8 => {
            let mut number = [0; 8];
            number.copy_from_slice(bytes);
            Ok(i64::from_be_bytes(number))
        }
        Some(Content::Value { codec, .. }) => Err(Obstacle::Codec { stored: *codec }),
        Some(Content::Held(_) | Content::Open(_) | Content::Post(_) | Content::Unit(_)) => {
            Err(Obstacle::Codec { stored: Codec::Raw })
        }
    }
}

/// A kind is written one way: its values would be garbage to another codec.
pub(crate) fn wrong_codec(resource: &ResourceRef, stored: &str) -> Error {
    Error::invalid(format!(
        "{resource} is stored as {stored}: a kind keeps the codec it was first written with"
    ))
}

fn take(row: Option<&Row>, holder: &ResourceRef, position: Position) -> Result<Applied, Obstacle> {
    match row {
        Some(Row { content: Content::Held(held), .. }) if held == holder => Ok(Applied::Keep),
        Some(Row { content: Content::Held(held), made, .. }) => {
            Err(Obstacle::Taken { held: held.clone(), made: *made })
        }
        _ => Ok(Applied::Write(Row {
            version: position.seq,
            made: position,
            event_time: None,
            content: Content::Held(holder.clone()),
        })),
    }
}

impl Row {
    /// The row without a value that no effect looks into: of what stands there an effect needs the codec, the
    /// times and the holder, and of a counter the number.
    pub fn outline(self) -> Self {
        let content = match self.content {
            Content::Value { codec, bytes } if codec != Codec::Counter || bytes.len() > 8 => {
                Content::Value { codec, bytes: Bytes::new() }
            }
            other => other,
        };
        Self { content, ..self }
    }
}

/// What a closure read, and what must still be so when it commits.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Guard {
    pub key: RowKey,
    /// The version it saw; `None` when the row was absent.
    pub version: Option<u64>,
}

/// Everything one run of a closure read and wants.
#[derive(Clone, Default)]
pub(crate) struct Staged {
    pub guards: Vec<Guard>,
    pub effects: Vec<Effect>,
    /// Messages to be made, in order.
    pub messages: Vec<Arc<NewMessage>>,
    /// Events that were seen: the row of their stream, and their time.
    pub events: Vec<(RowKey, Timestamp)>,
}

impl Staged {
    /// Whether a row is to be changed. A refused `add` only guards the refusal.
    pub fn changes_rows(&self) -> bool {
        self.makes_rows()
            || self.effects.iter().any(|effect| !matches!(effect.change, Change::Add { took: false, .. }))
    }

    /// Whether it makes a message or has seen an event.
    pub fn makes_rows(&self) -> bool {
        !self.messages.is_empty() || !self.events.is_empty()
    }

    /// How many bytes it writes: keys and values.
    pub fn bytes(&self) -> usize {
        let messages: usize = self.messages.iter().map(|message| message.bytes()).sum();
        messages + self.effects.iter().map(Effect::bytes).sum::<usize>()
    }
}

impl Change {
    /// The bytes of the value it writes.
    pub fn value_bytes(&self) -> usize {
        match self {
            Self::Create(value) | Self::Put(value) | Self::PutIfNewer(value, _) => value.bytes.len(),
            Self::Remove | Self::RemoveIfNewer(_) | Self::Add { .. } | Self::Unique(_) | Self::Release(_) => {
                0
            }
        }
    }
}

/// What the journal keeps of an effect: which row, what was done, and the digest of what was written.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Note {
    pub key: RowKey,
    pub verb: Verb,
    pub digest: Option<Digest>,
}

/// What was done to a row. Numbered in the format; numbers are only ever added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Write = 0,
    Remove = 1,
    /// An older event, or nothing to do: the row was left alone.
    Keep = 2,
}
