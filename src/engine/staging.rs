//! What a running closure reads and wants. Owns the view a closure has of its own changes; writes nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use foldhash::HashMap;

use super::Engine;
use crate::core::effect::{
    Applied, Change, EFFECTS_MAX, Effect, Guard, READ_BYTES_MAX, READS_MAX, Staged, VALUE_BYTES_MAX, Value,
    counter, wrong_codec,
};
use crate::core::error::{Error, ErrorKind};
use crate::core::message::{MESSAGES_MAX, NewMessage};
use crate::core::name::Tenant;
use crate::core::record::{ClassId, Position};
use crate::core::row::{Row, RowKey};
use crate::core::time::Timestamp;

/// The most bytes that one command may stage, keys and values together.
pub const STAGED_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Where a closure's own change would stand: it is not in the file yet.
const NOWHERE: Position = Position { class: ClassId(0), seq: 0 };

/// One run of one closure.
pub(crate) struct Staging<'e> {
    engine: &'e Engine,
    tenant: Tenant,
    now: Timestamp,
    staged: Staged,
    staged_bytes: usize,
    /// Rows as they were read, before the closure's own changes.
    base: BTreeMap<RowKey, Option<Row>>,
    read_bytes: usize,
    ids: &'e mut Ids,
    next_id: usize,
    ahead: Option<&'e Ahead>,
    seen: Seen,
}

/// Rows that earlier commands of the same round change, which the file does not show yet. A counter that is
/// only added to is known as they leave it; of another row only that it changes (`None`).
#[derive(Default)]
pub(crate) struct Ahead(HashMap<RowKey, Option<Row>>);

/// What a closure saw of the commands before it that are not committed yet.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Seen {
    Nothing,
    /// Counters as those commands should leave them. The writer decides on what they did leave.
    Counters,
    /// It read a row that they change: whatever it said, it has to be called again.
    Hidden,
}

/// What a closure leaves behind.
pub(crate) struct Left {
    pub staged: Staged,
    pub seen: Seen,
    base: BTreeMap<RowKey, Option<Row>>,
}

impl Ahead {
    /// One more command, as it was told of the rows.
    pub fn follow(&mut self, left: &Left) {
        for effect in &left.staged.effects {
            let Change::Add { took, .. } = effect.change else {
                self.0.insert(effect.key.clone(), None);
                continue;
            };
            let before = match self.0.get(&effect.key) {
                // What is refused changes nothing, and what is not known stays so.
                Some(None) => continue,
                _ if !took => continue,
                Some(before) => before.as_ref(),
                None => left.base.get(&effect.key).and_then(Option::as_ref),
            };
            let after = match effect.apply(before, NOWHERE) {
                Ok(Applied::Write(row)) => Some(row),
                _ => None,
            };
            self.0.insert(effect.key.clone(), after);
        }
    }
}

/// Ids handed to a closure, the same when it is called again.
#[derive(Default)]
pub(crate) struct Ids(Vec<String>);

impl<'e> Staging<'e> {
    pub fn new(engine: &'e Engine, tenant: &Tenant, ids: &'e mut Ids, ahead: Option<&'e Ahead>) -> Self {
        Self {
            engine,
            tenant: tenant.clone(),
            now: engine.clock.now(),
            staged: Staged::default(),
            staged_bytes: 0,
            base: BTreeMap::new(),
            read_bytes: 0,
            ids,
            next_id: 0,
            ahead,
            seen: Seen::Nothing,
        }
    }

    pub fn tenant(&self) -> &Tenant {
        &self.tenant
    }

    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// The `n`-th id of this closure, made at its first call.
    pub fn new_id(&mut self) -> Result<String, Error> {
        if self.next_id == self.ids.0.len() {
            self.ids.0.push(time_ordered_id(self.now)?);
        }
        self.next_id += 1;
        Ok(self.ids.0[self.next_id - 1].clone())
    }

    /// A row with the closure's own changes on it. What was read must still hold when the command commits.
    pub fn read(&mut self, key: &RowKey) -> Result<Option<Row>, Error> {
        if self.ahead.is_some_and(|ahead| ahead.0.contains_key(key)) {
            self.seen = Seen::Hidden;
        }
        let row = self.with_own_changes(key)?;
        if !self.staged.guards.iter().any(|guard| guard.key == *key) {
            if self.staged.guards.len() == READS_MAX {
                return Err(over("rows read by one command", READS_MAX));
            }
            let version = self.base.get(key).and_then(Option::as_ref).map(|row| row.version);
            self.staged.guards.push(Guard { key: key.clone(), version });
        }
        Ok(row.filter(Row::is_there))
    }

    /// Adds to a counter unless that ends below `floor`; says which. Guards only that answer.
    pub fn add(&mut self, key: RowKey, by: i64, floor: i64) -> Result<bool, Error> {
        let row = self.with_own_changes(&key)?;
        let sum = counter(row.as_ref())
            .map_err(|_| wrong_codec(&key.reference(), "something other than a counter"))?
            .checked_add(by)
            .ok_or_else(|| {
                let text = format!("adding {by} to counter {} leaves the range of 64 bits", key.reference());
                Error::new(ErrorKind::LimitExceeded, text)
            })?;
        let took = sum >= floor;
        self.stage(key, Change::Add { by, floor, took })?;
        Ok(took)
    }

    /// Stages one change.
    pub fn stage(&mut self, key: RowKey, change: Change) -> Result<(), Error> {
        if self.staged.effects.len() == EFFECTS_MAX {
            return Err(over("effects of one command", EFFECTS_MAX));
        }
        if let Change::Create(value) | Change::Put(value) | Change::PutIfNewer(value, _) = &change {
            check_value(&key, value)?;
        }
        let effect = Effect { key, change };
        self.staged_bytes += effect.bytes();
        if self.staged_bytes > STAGED_BYTES_MAX {
            return Err(over("bytes staged by one command", STAGED_BYTES_MAX));
        }
        if self.staged.effects.is_empty() {
            // Most commands have one.
            self.staged.effects.reserve_exact(1);
        }
        self.staged.effects.push(effect);
        Ok(())
    }

    /// Stages a message. One that is known under a key is not for commands, which have a key themselves.
    pub fn enqueue(&mut self, message: NewMessage) -> Result<(), Error> {
        message.check()?;
        if message.keyed.is_some() {
            return Err(Error::invalid(
                "a message with a key of its own is for `Store::enqueue`: here the command's key protects it",
            ));
        }
        if self.staged.messages.len() == MESSAGES_MAX {
            return Err(over("messages of one command", MESSAGES_MAX));
        }
        self.staged_bytes += message.bytes();
        if self.staged_bytes > STAGED_BYTES_MAX {
            return Err(over("bytes staged by one command", STAGED_BYTES_MAX));
        }
        self.staged.messages.push(Arc::new(message));
        Ok(())
    }

    /// An event of a stream was seen.
    pub fn see(&mut self, stream: RowKey, time: Timestamp) {
        self.staged.events.push((stream, time));
    }

    /// What it staged, once the closure has returned.
    pub fn take_staged(&mut self) -> Staged {
        std::mem::take(&mut self.staged)
    }

    pub fn into_left(self) -> Left {
        Left { staged: self.staged, seen: self.seen, base: self.base }
    }

    fn with_own_changes(&mut self, key: &RowKey) -> Result<Option<Row>, Error> {
        if !self.base.contains_key(key) {
            let row = match self.ahead.and_then(|ahead| ahead.0.get(key)) {
                None => self.engine.row(key)?,
                // As it was before those commands: whatever the closure makes of it is not taken.
                Some(None) => {
                    self.seen = Seen::Hidden;
                    self.engine.row(key)?
                }
                Some(Some(counter)) => {
                    if self.seen == Seen::Nothing {
                        self.seen = Seen::Counters;
                    }
                    Some(counter.clone())
                }
            };
            self.read_bytes += row.as_ref().map_or(0, Row::value_bytes);
            if self.read_bytes > READ_BYTES_MAX {
                return Err(over("bytes of values read by one command", READ_BYTES_MAX));
            }
            self.base.insert(key.clone(), row);
        }
        let mut row = self.base.get(key).cloned().flatten();
        for effect in self.staged.effects.iter().filter(|effect| effect.key == *key) {
            match effect.apply(row.as_ref(), NOWHERE) {
                Ok(Applied::Write(changed)) => row = Some(changed),
                Ok(Applied::Remove) => row = None,
                // The row shows as it is; where something is in the way, the writer will say so.
                Ok(Applied::Keep | Applied::Stale) | Err(_) => {}
            }
        }
        Ok(row)
    }
}

fn check_value(key: &RowKey, value: &Value) -> Result<(), Error> {
    if value.bytes.len() <= VALUE_BYTES_MAX {
        return Ok(());
    }
    let text = format!(
        "the value of {} has {} bytes, more than {VALUE_BYTES_MAX}",
        key.reference(),
        value.bytes.len()
    );
    Err(Error::new(ErrorKind::LimitExceeded, text))
}

fn over(what: &str, max: usize) -> Error {
    Error::new(ErrorKind::LimitExceeded, format!("more than {max} {what}"))
}

/// An id after RFC 9562, version 7: the time in milliseconds, then random bits.
fn time_ordered_id(now: Timestamp) -> Result<String, Error> {
    let mut bytes: [u8; 16] = super::random()?;
    bytes[..6].copy_from_slice(&now.0.to_be_bytes()[2..]);
    bytes[6] = 0x70 | bytes[6] & 0x0F;
    bytes[8] = 0x80 | bytes[8] & 0x3F;
    let text = crate::core::name::hex(&bytes);
    Ok([&text[..8], &text[8..12], &text[12..16], &text[16..20], &text[20..]].join("-"))
}
