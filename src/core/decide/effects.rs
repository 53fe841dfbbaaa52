//! Applies effects one after another, each on the rows as the ones before left them. Owns preconditions and
//! what stops a command; must not know scopes.

use std::collections::BTreeMap;

use super::{Answer, Rows, View};
use crate::core::effect::{Applied, Change, Note, Obstacle, Staged, Verb, wrong_codec};
use crate::core::error::{Error, ErrorKind};
use crate::core::invariants;
use crate::core::row::{Row, RowKey};

/// Rows as the effects of one command leave them, in the order in which they were first changed, and what
/// the journal keeps of each effect.
pub(super) struct Applying<'s> {
    pub rows: Vec<(RowKey, Option<Row>)>,
    pub notes: Vec<Note>,
    pub stale: u32,
    /// Events that were not the newest of their stream.
    pub overtaken: u32,
    /// Where each stands in `rows`; a command of one effect, the usual one, needs no such table.
    places: Option<BTreeMap<&'s RowKey, usize>>,
}

impl<'s> Applying<'s> {
    /// Nothing yet.
    pub fn nothing() -> Self {
        Self { rows: Vec::new(), notes: Vec::new(), stale: 0, overtaken: 0, places: None }
    }

    /// All effects of a closure, if every precondition holds.
    #[expect(
        clippy::result_large_err,
        reason = "the error is the command's answer, made once and moved once"
    )]
    pub fn start(view: &View<'_>, staged: &'s Staged) -> Result<Self, Answer> {
        for guard in &staged.guards {
            let version = view.rows.row(&guard.key).map(|row| row.version);
            if version != guard.version {
                return Err(again(&guard.key, version));
            }
        }
        let effects = staged.effects.len();
        let mut applying = Self {
            rows: Vec::with_capacity(effects),
            notes: Vec::with_capacity(effects),
            stale: 0,
            overtaken: 0,
            places: (effects > 1).then(BTreeMap::new),
        };
        for effect in &staged.effects {
            let row = applying.row(&effect.key, view.rows);
            let applied = effect.apply(row, view.position).map_err(|obstacle| {
                let version = row.map(|row| row.version);
                stopped(&effect.key, &effect.change, version, obstacle)
            })?;
            debug_assert!(invariants::taken_stays_taken(row, &effect.change, &applied));
            applying.apply(&effect.key, applied);
        }
        Ok(applying)
    }

    fn apply(&mut self, key: &'s RowKey, applied: Applied) {
        match applied {
            Applied::Write(row) => self.put(key, Some(row)),
            Applied::Remove => self.put(key, None),
            Applied::Keep => self.kept(key),
            Applied::Stale => {
                self.stale += 1;
                self.kept(key);
            }
        }
    }

    fn row<'r>(&'r self, key: &RowKey, before: &'r dyn Rows) -> Option<&'r Row> {
        match self.places.as_ref().and_then(|places| places.get(key)) {
            Some(&place) => self.rows[place].1.as_ref(),
            None => before.row(key),
        }
    }

    fn put(&mut self, key: &'s RowKey, row: Option<Row>) {
        self.note(key, row.as_ref());
        if let Some(places) = &mut self.places {
            let place = *places.entry(key).or_insert(self.rows.len());
            if let Some(changed) = self.rows.get_mut(place) {
                changed.1 = row;
                return;
            }
        }
        self.rows.push((key.clone(), row));
    }

    /// A row of the store's own, which no effect names.
    pub fn put_own(&mut self, key: RowKey, row: Option<Row>) {
        self.note(&key, row.as_ref());
        self.rows.push((key, row));
    }

    fn note(&mut self, key: &RowKey, row: Option<&Row>) {
        let verb = if row.is_some() { Verb::Write } else { Verb::Remove };
        self.notes.push(Note { key: key.clone(), verb, digest: row.map(Row::digest) });
    }

    fn kept(&mut self, key: &RowKey) {
        self.notes.push(Note { key: key.clone(), verb: Verb::Keep, digest: None });
    }
}

fn stopped(key: &RowKey, change: &Change, version: Option<u64>, obstacle: Obstacle) -> Answer {
    match obstacle {
        Obstacle::Taken { held, made } => Answer::Duplicate { held, made },
        Obstacle::Moved => again(key, version),
        Obstacle::Overflow => Answer::Fault(overflow(key, change)),
        Obstacle::Codec { stored } => Answer::Fault(wrong_codec(&key.reference(), &format!("{stored:?}"))),
    }
}

fn overflow(key: &RowKey, change: &Change) -> Error {
    let by = if let Change::Add { by, .. } = change { *by } else { 0 };
    Error::new(
        ErrorKind::LimitExceeded,
        format!(
            "adding {by} to counter {} leaves the range of 64 bits; nothing was written",
            key.reference()
        ),
    )
}

fn again(key: &RowKey, version: Option<u64>) -> Answer {
    Answer::Again { resource: key.reference(), version: version.unwrap_or_default() }
}
