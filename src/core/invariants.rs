//! What always holds, as predicates. Each has its number, its place and its test in `docs/INVARIANTS.md`.

use super::decide::Changes;
use super::effect::{Applied, Change};
use super::outcome::{Body, Digest, Finished};
use super::record::{Age, KeptBody, Record, Transition};
use super::reply::Reply;
use super::row::{Content, Row};
use super::time::Timestamp;

/// Invariant 1: a scope that has an outcome gets another only when the first is over by its own times, and
/// then in the next generation.
pub(crate) fn one_outcome_per_generation(
    before: Option<&Record>,
    changes: &Changes,
    now: Timestamp,
    settled: Option<Timestamp>,
) -> bool {
    let Some(entry) = &changes.entry else { return true };
    if matches!(entry.transition, Transition::BroughtOutcome | Transition::BroughtOpen) {
        // It ran elsewhere, behind whatever had run here.
        return before.is_none_or(|before| entry.generation > before.entry.generation);
    }
    let Some(before) = before else { return entry.generation == 1 };
    let is_next = entry.generation == before.entry.generation.saturating_add(1);
    match entry.transition {
        // It tells of what is over.
        Transition::Differed => true,
        // The scope was found free.
        Transition::Executed | Transition::Begun | Transition::Cancelled => {
            is_next
                && matches!(before.age(now), Age::Tombstone | Age::Forgotten)
                && before.may_run_after(before.windows.key, settled, now)
        }
        _ => is_next,
    }
}

/// Invariant 2: no row changes without an entry that tells it.
pub(crate) fn record_and_effects_together(changes: &Changes) -> bool {
    match &changes.entry {
        None => changes.rows.is_empty(),
        Some(entry) => changes.rows.iter().all(|(key, _)| entry.notes.iter().any(|note| note.key == *key)),
    }
}

/// Invariant 3: a replay equals the recorded outcome byte for byte, or says which digest it had.
pub(crate) fn replay_is_the_record(record: &Record, finished: &Finished) -> bool {
    let entry = &record.entry;
    let body = match (&finished.body, &entry.body) {
        (Body::Present(told), KeptBody::Kept(kept)) => told == kept,
        (Body::Trimmed { digest, len }, KeptBody::Kept(kept)) => {
            *len == kept.len() as u64 && *digest == Digest::of(kept)
        }
        (Body::NotKept { digest, len }, KeptBody::NotKept { digest: kept, len: kept_len }) => {
            digest == kept && len == kept_len
        }
        _ => false,
    };
    body && finished.code == entry.code
        && finished.failed == entry.failed
        && finished.resource == entry.resource
        && finished.metadata == entry.meta
        && finished.at == record.finished_at()
        && finished.generation == entry.generation
}

/// Invariant 5: another request under a key is told nothing of the first one's outcome.
pub(crate) fn tells_another_nothing(reply: &Reply) -> bool {
    match reply {
        Reply::Mismatch { .. } => true,
        Reply::Expired { resource, digest, .. } => resource.is_none() && digest.is_none(),
        _ => false,
    }
}

/// Invariant 8: what is taken stays taken. Nothing is made over a row that is there, and a uniqueness changes
/// its holder only by being free in between.
pub(crate) fn taken_stays_taken(row: Option<&Row>, change: &Change, applied: &Applied) -> bool {
    let held = match row.map(|row| &row.content) {
        None | Some(Content::Removed | Content::Open(_) | Content::Post(_) | Content::Unit(_)) => {
            return true;
        }
        Some(Content::Held(holder)) => Some(holder),
        Some(Content::Value { .. }) => None,
    };
    match (change, applied) {
        (Change::Create(_), applied) => !matches!(applied, Applied::Write(_)),
        (Change::Release(holder), Applied::Remove)
        | (_, Applied::Write(Row { content: Content::Held(holder), .. })) => held == Some(holder),
        (_, Applied::Remove | Applied::Write(_)) => held.is_none(),
        (_, Applied::Keep | Applied::Stale) => true,
    }
}

/// Invariant 9: entries of a class follow one another.
pub(crate) fn follows(before: u64, seq: u64) -> bool {
    seq > before
}

/// Invariant 10: stored time never decreases.
pub(crate) fn time_goes_on(before: Timestamp, now: Timestamp) -> bool {
    now >= before
}

/// Invariant 13: the index leads to the newest entry of a scope, which is of a later generation than any
/// before it.
pub(crate) fn newest_is_indexed(entry: (u64, u32), newest: (u64, u32)) -> bool {
    entry == newest || (newest.0 > entry.0 && newest.1 > entry.1)
}

/// Invariant 13: what counts as merged is merged, so no older entry of a scope waits than `merged_to` says.
pub(crate) fn merged_or_whole(seq: u64, merged_to: u64, waiting: Option<u64>) -> bool {
    seq > merged_to || waiting.is_none_or(|waiting| waiting > merged_to)
}
