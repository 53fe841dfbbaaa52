//! What people look through: open commands, all records, the history of one. Translation only.

use std::collections::VecDeque;

use crate::core::case::Case;
use crate::core::claim::Phase;
use crate::core::error::Error;
use crate::core::name::Scope;
use crate::core::record::Entry;
use crate::core::reply::Status;
use crate::core::row::{Row, RowKey};
use crate::core::time::Timestamp;
use crate::db::history::Place;
use crate::resource::Scanned;
use crate::store::Store;

/// One entry of the journal about a scope.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Transition {
    /// Its number; ascending in time.
    pub position: u64,
    /// When it was written.
    pub at: Timestamp,
    /// What it did, in a word or two: `begun`, `finished`, `lapsed` and so on.
    pub change: String,
    /// Why, and what else it says: steps, points, evidence.
    pub why: String,
    /// The label of the store that wrote it, or who decided.
    pub actor: String,
}

impl Transition {
    pub(crate) fn of(position: u64, entry: &Entry) -> Self {
        let facts: Vec<String> = entry.facts.iter().map(ToString::to_string).collect();
        Self {
            position,
            at: entry.at,
            change: entry.transition.word().to_owned(),
            why: facts.join("; "),
            actor: entry.actor.to_string(),
        }
    }
}

/// Commands in Unknown, as far as they are read.
#[doc(hidden)]
pub struct Cases {
    store: Store,
    /// Oldest first; found at the first look.
    found: Option<VecDeque<(Timestamp, RowKey)>>,
}

impl Cases {
    pub(crate) fn new(store: &Store) -> Self {
        Self { store: store.clone(), found: None }
    }

    fn find(&self) -> Result<VecDeque<(Timestamp, RowKey)>, Error> {
        let mut found = Vec::new();
        let mut after = None;
        loop {
            let page = self.store.engine().open_rows(after.as_ref())?;
            let Some((last, _)) = page.last() else { break };
            after = Some(last.clone());
            found.extend(page.iter().filter_map(|(key, row)| Some((since(row)?, key.clone()))));
        }
        found.sort_unstable();
        Ok(found.into())
    }
}

/// Since when it is not known what came of an open command: of one whose owner is gone and nobody has told
/// so yet, since it was begun.
fn since(row: &Row) -> Option<Timestamp> {
    let open = row.open()?;
    Some(match open.phase {
        Phase::Unknown { since, .. } => since,
        Phase::Processing => open.since,
    })
}

impl Scanned for Case {
    type Pages = Cases;

    fn next(cases: &mut Cases) -> Option<Result<Self, Error>> {
        if cases.found.is_none() {
            match cases.store.engine().not_inside().and_then(|()| cases.find()) {
                Ok(found) => cases.found = Some(found),
                Err(fault) => {
                    cases.found = Some(VecDeque::new());
                    return Some(Err(fault));
                }
            }
        }
        loop {
            let (_, key) = cases.found.as_mut()?.pop_front()?;
            match cases.store.engine().open_status(&key) {
                Ok(Some(Status::Unknown(case))) => match cases.store.engine().elsewhere(&case.scope.tenant) {
                    Ok(None) => return Some(Ok(case)),
                    // Another store finds out.
                    Ok(Some(_)) => {}
                    Err(fault) => return Some(Err(fault)),
                },
                // It has gone on meanwhile, or its owner is at it.
                Ok(_) => {}
                Err(fault) => return Some(Err(fault)),
            }
        }
    }
}

/// All that has a status, as far as it is read: open commands first, then outcomes in the order of the
/// journal.
#[doc(hidden)]
pub struct Records {
    store: Store,
    stage: Stage,
    page: VecDeque<(Scope, Status)>,
}

enum Stage {
    Open(Option<RowKey>),
    Outcomes(Option<Place>),
    Over,
}

impl Records {
    pub(crate) fn new(store: &Store) -> Self {
        Self { store: store.clone(), stage: Stage::Open(None), page: VecDeque::new() }
    }

    fn fetch(&mut self) -> Result<(), Error> {
        let engine = self.store.engine();
        engine.not_inside()?;
        match &self.stage {
            Stage::Open(after) => {
                let rows = engine.open_rows(after.as_ref())?;
                self.stage = match rows.last() {
                    Some((last, _)) => Stage::Open(Some(last.clone())),
                    None => Stage::Outcomes(None),
                };
                for (key, row) in rows {
                    let Some(open) = row.open() else { continue };
                    self.page.extend(engine.open_status(&key)?.map(|status| (open.scope.clone(), status)));
                }
            }
            Stage::Outcomes(after) => {
                let (records, last) = engine.outcomes(*after)?;
                self.stage = last.map_or(Stage::Over, |last| Stage::Outcomes(Some(last)));
                self.page.extend(records);
            }
            Stage::Over => {}
        }
        Ok(())
    }
}

impl Scanned for (Scope, Status) {
    type Pages = Records;

    fn next(records: &mut Records) -> Option<Result<Self, Error>> {
        loop {
            if let Some(record) = records.page.pop_front() {
                return Some(Ok(record));
            }
            if matches!(records.stage, Stage::Over) {
                return None;
            }
            if let Err(fault) = records.fetch() {
                records.stage = Stage::Over;
                return Some(Err(fault));
            }
        }
    }
}
