//! What a finished command says without its body. Owns the rule by which it is a replay; must not know where
//! it was found.

use super::policy::Windows;
use super::record::{Age, Record};
use super::time::Timestamp;

/// Proof that a command has run, without its body: for callers who only have to know, and see
/// [`Store::peek_receipt`](crate::Store::peek_receipt).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Receipt {
    /// The code of the outcome.
    pub code: u16,
    /// Whether it was a business refusal.
    pub failed: bool,
    /// When the command finished, by the store's clock.
    pub at: Timestamp,
    /// Until when a retry gets the body.
    pub body_until: Timestamp,
    /// Until when a retry gets the outcome.
    pub key_until: Timestamp,
    /// Which use of the key this was; above 1 only with `AfterExpiry::RunAsNew`.
    pub generation: u32,
}

impl Receipt {
    /// The receipt of a record; none if its windows do not follow one another, so that two times would not
    /// tell its age.
    pub(crate) fn of(record: &Record) -> Option<Self> {
        let Windows { body, key, tombstone } = record.windows;
        (body <= key && key <= tombstone).then(|| Self {
            code: record.entry.code,
            failed: record.entry.failed,
            at: record.finished_at(),
            body_until: record.body_until(),
            key_until: record.key_until(),
            generation: record.entry.generation,
        })
    }

    /// What the record is at `now`, as [`Record::age`] says it; none when its key's window is over, and with
    /// it the replays.
    #[inline]
    pub(crate) fn age(&self, now: Timestamp) -> Option<Age> {
        if Windows::is_over(self.key_until, now) {
            None
        } else if Windows::is_over(self.body_until, now) {
            Some(Age::Trimmed)
        } else {
            Some(Age::Whole)
        }
    }
}
