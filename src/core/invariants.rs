//! What always holds, as predicates. Each has its number and its test in `docs/INVARIANTS.md`.

use super::decide::Changes;
use super::record::{Age, Record};
use super::time::Timestamp;

/// Invariant 1 and 3: a new entry for a scope that has one is only right when that one is over by its own times, and
/// then it is of the next generation.
pub(crate) fn finished_is_final(
    before: Option<&Record>,
    changes: &Changes,
    now: Timestamp,
    settled: Option<Timestamp>,
) -> bool {
    match (before, &changes.entry) {
        (_, None) => true,
        (None, Some(entry)) => entry.generation == 1,
        (Some(before), Some(entry)) => {
            entry.generation == before.entry.generation.saturating_add(1)
                && matches!(before.age(now), Age::Tombstone | Age::Forgotten)
                && before.may_run_after(before.windows.key, settled, now)
        }
    }
}

/// Invariant 2: no row changes without an entry that tells it.
pub(crate) fn record_and_effects_together(changes: &Changes) -> bool {
    match &changes.entry {
        None => changes.rows.is_empty(),
        Some(entry) => changes.rows.iter().all(|(key, _)| entry.notes.iter().any(|note| note.key == *key)),
    }
}

/// Invariant 9: entries of a class follow one another, each later than the one before.
pub(crate) fn follows(before: u64, seq: u64) -> bool {
    seq > before
}

/// Invariant 10: stored time never decreases.
pub(crate) fn time_goes_on(before: Timestamp, now: Timestamp) -> bool {
    now >= before
}
