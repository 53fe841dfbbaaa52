//! Reads the whole file and tells what does not agree. Owns the list of checks; repairs nothing.

use std::collections::BTreeMap;

use redb::{ReadableTable, ReadableTableMetadata};

use super::database::{Rows, Snapshot, place, read_entry, read_row};
use super::fault::Fault;
use super::stored::State;
use super::tables;
use crate::core::audit::{self, Link};
use crate::core::effect::Verb;
use crate::core::name::ScopeDigest;
use crate::core::outcome::Digest;
use crate::core::record::{ClassId, Entry, Position, Transition};
use crate::core::row::{Content, Row, RowKey};
use crate::core::{invariants, time::Timestamp};

/// The most faults that are told; a file with more is no better understood for a longer list.
pub const FAULTS_MAX: usize = 1_000;

/// What a look at the whole file found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct VerifyReport {
    /// Entries of the journal that were read.
    pub entries: u64,
    /// Scopes that have an outcome.
    pub records: u64,
    /// Resources and uniquenesses that were read.
    pub rows: u64,
    /// Scopes whose effects were committed twice in one generation. Must be 0.
    pub duplicate_effects: u64,
    /// What does not agree, in words that name the place; at most 1,000.
    pub faults: Vec<String>,
}

impl VerifyReport {
    /// Whether everything agrees.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.faults.is_empty() && self.duplicate_effects == 0
    }

    fn fault(&mut self, place: &str, what: &str) {
        if self.faults.len() < FAULTS_MAX {
            self.faults.push(format!("{place}: {what}"));
        }
    }
}

/// One class's chain as far as it was followed.
struct Follower {
    link: Link,
    seq: u64,
    entries: u64,
    at: Timestamp,
}

/// Checks a snapshot. An error means that the file could not be read on; what does not agree is in the report.
pub(crate) fn verify(
    snapshot: &Snapshot<'_>,
    mut progress: impl FnMut(u64, u64),
) -> Result<VerifyReport, Fault> {
    let state = snapshot.state()?;
    let mut report = VerifyReport::default();
    let total = snapshot.journal.len()? + snapshot.index.len()? + snapshot.resource.len()?;
    let mut done = 0;
    let mut step = || {
        done += 1;
        if done % 1024 == 0 || done == total {
            progress(done, total);
        }
    };
    journal(snapshot, &state, &mut report, &mut step)?;
    index(snapshot, &state, &mut report, &mut step)?;
    resources(snapshot, &state, &mut report, &mut step)?;
    Ok(report)
}

/// Chains, order, time, and that the index leads to each scope's newest entry.
fn journal(
    snapshot: &Snapshot<'_>,
    state: &State,
    report: &mut VerifyReport,
    step: &mut impl FnMut(),
) -> Result<(), Fault> {
    let mut followers: BTreeMap<ClassId, Follower> = BTreeMap::new();
    for item in snapshot.journal.iter()? {
        let (key, stored) = item?;
        step();
        let position = tables::position_of(key.value());
        let follower = followers.entry(position.class).or_insert_with(|| Follower {
            link: audit::genesis(&snapshot.db.identity.store_id, position.class),
            seq: 0,
            entries: 0,
            at: Timestamp(0),
        });
        let entry = match read_entry(key.value(), stored.value()) {
            Ok(entry) => entry,
            Err(Fault::Damaged(what)) => {
                report.fault("journal", &what);
                continue;
            }
            Err(fault) => return Err(fault),
        };
        report.entries += 1;
        let scope = ScopeDigest::of(&entry.scope, snapshot.db.identity.scope_mode);
        follower.follow(position, scope, &entry, state, report);
        check_indexed(snapshot, position, scope, &entry, report)?;
    }
    for head in &state.heads {
        let place = format!("chain of class {}", head.class);
        match followers.remove(&ClassId(head.class)) {
            None => report.fault(&place, "the journal has no entry of it"),
            Some(end) if end.link != head.link || end.seq != head.seq || end.entries != head.entries => {
                report.fault(&place, "it does not end where the last commit says");
            }
            Some(_) => {}
        }
    }
    for class in followers.keys() {
        report.fault(&format!("chain of class {}", class.0), "the last commit does not know it");
    }
    Ok(())
}

impl Follower {
    fn follow(
        &mut self,
        position: Position,
        scope: ScopeDigest,
        entry: &Entry,
        state: &State,
        report: &mut VerifyReport,
    ) {
        let place = place(position);
        if !invariants::follows(self.seq, position.seq) || position.seq > state.last_seq {
            report.fault(&place, "its number is out of order");
        }
        if !invariants::time_goes_on(self.at, entry.at) || entry.at > state.last_time {
            report.fault(&place, "its time is out of order");
        }
        self.link = audit::link(&self.link, position, scope, entry);
        self.seq = position.seq;
        self.entries += 1;
        self.at = entry.at;
    }
}

fn check_indexed(
    snapshot: &Snapshot<'_>,
    position: Position,
    scope: ScopeDigest,
    entry: &Entry,
    report: &mut VerifyReport,
) -> Result<(), Fault> {
    if entry.transition == Transition::Unprotected {
        return Ok(());
    }
    let Some(newest) = snapshot.index.get(&scope.0)?.map(|row| tables::position_of(row.value())) else {
        report.fault(&place(position), "the index does not know its scope");
        return Ok(());
    };
    if newest == position {
        return Ok(());
    }
    match snapshot.entry(newest) {
        Ok(Some(newest)) if newest.entry.generation == entry.generation => {
            report.duplicate_effects += 1;
            report.fault(&place(position), "its scope has a second entry of the same generation");
        }
        Ok(Some(record)) if newest.seq < position.seq || record.entry.generation < entry.generation => {
            report.fault(&place(position), "the index knows only an older entry of its scope");
        }
        Ok(_) | Err(Fault::Damaged(_)) => {} // The index's own check tells it.
        Err(fault) => return Err(fault),
    }
    Ok(())
}

/// Each row of the index leads to an entry of its own scope.
fn index(
    snapshot: &Snapshot<'_>,
    state: &State,
    report: &mut VerifyReport,
    step: &mut impl FnMut(),
) -> Result<(), Fault> {
    for item in snapshot.index.iter()? {
        let (scope, _) = item?;
        step();
        report.records += 1;
        match snapshot.record(ScopeDigest(*scope.value())) {
            Ok(_) => {}
            Err(Fault::Damaged(what)) => report.fault("index", &what),
            Err(fault) => return Err(fault),
        }
    }
    if report.records != state.records {
        report.fault("index", &format!("it has {} rows, not {}", report.records, state.records));
    }
    Ok(())
}

/// Each row was written by the entry it names, and holds what that entry says.
fn resources(
    snapshot: &Snapshot<'_>,
    state: &State,
    report: &mut VerifyReport,
    step: &mut impl FnMut(),
) -> Result<(), Fault> {
    let classes: Vec<ClassId> = state.heads.iter().map(|head| ClassId(head.class)).collect();
    for item in snapshot.resource.iter()? {
        let (key, stored) = item?;
        step();
        report.rows += 1;
        let row = match read_row(key.value(), stored.value()) {
            Ok(row) => row,
            Err(Fault::Damaged(what)) => {
                report.fault("resource", &what);
                continue;
            }
            Err(fault) => return Err(fault),
        };
        let Some(key) = RowKey::parse(key.value()) else {
            report.fault("resource", "a key names no row");
            continue;
        };
        if let Some(what) = disagreement(snapshot, &classes, &key, &row)? {
            report.fault(&format!("row {}", key.reference()), &what);
        }
    }
    if report.rows != state.rows {
        report.fault("resource", &format!("it has {} rows, not {}", report.rows, state.rows));
    }
    Ok(())
}

fn disagreement(
    snapshot: &Snapshot<'_>,
    classes: &[ClassId],
    key: &RowKey,
    row: &Row,
) -> Result<Option<String>, Fault> {
    if key.is_unique() != matches!(row.content, Content::Held(_)) {
        return Ok(Some("a uniqueness and a value stand in each other's place".to_owned()));
    }
    for &class in classes {
        let position = Position { class, seq: row.version };
        let record = match snapshot.entry(position) {
            Ok(Some(record)) => record,
            Ok(None) => continue,
            Err(Fault::Damaged(_)) => return Ok(None), // The journal's own check tells it.
            Err(fault) => return Err(fault),
        };
        let digest = match &row.content {
            Content::Value { bytes, .. } => Some(Digest::of(bytes)),
            Content::Removed | Content::Held(_) => None,
        };
        let last = record.entry.notes.iter().rev().find(|note| note.key == *key && note.verb != Verb::Keep);
        return Ok(match last {
            Some(note) if note.verb == Verb::Write && note.digest == digest => None,
            Some(_) => Some(format!("entry {} wrote something else", row.version)),
            None => Some(format!("entry {} did not write it", row.version)),
        });
    }
    Ok(Some(format!("the journal has no entry {}, which it names as its writer", row.version)))
}
