//! Answers that need no write: what is known of a scope, rows, numbers. Owns the order memory, then snapshot.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::Engine;
use super::counters::{Counts, count};
use super::inside::Inside;
use super::replay_index::AnswerBuffer;
use crate::core::authority::Units;
use crate::core::claim::{Moment, Uptime};
use crate::core::decide::{Answer, Asked, Command, NoRows, OpenView, Purpose, View, decide};
use crate::core::error::Error;
use crate::core::imprint::Imprint;
use crate::core::name::{Scope, ScopeDigest};
use crate::core::outcome::Body;
use crate::core::policy::Policy;
use crate::core::receipt::Receipt;
use crate::core::record::{ClassId, Position, Record};
use crate::core::reply::{Refused, Reply, Status};
use crate::core::row::{Row, RowKey};
use crate::core::time::millis;
use crate::db::database::Db;
use crate::db::fault::Fault;
use crate::db::stored::State;
use crate::db::verify::{VerifyReport, verify};

/// What is known of a scope by somebody who wants to run in it.
pub(super) enum Known {
    /// It is free to run, or to be gone on with.
    Free,
    Reply(Reply),
    /// The owner of what is open is gone, and nobody may go on.
    Lapsed,
}

/// Where `Ask` would write: nowhere.
const NOWHERE: Position = Position { class: ClassId(0), seq: 0 };

impl Engine {
    /// What is known of a scope, from memory or the file.
    pub(super) fn known(&self, asked: &Asked, policy: &Policy, purpose: Purpose) -> Result<Known, Error> {
        match self.remembered(asked, policy) {
            Some(reply) => Ok(Known::Reply(reply)),
            None => self.stored(asked, policy, purpose),
        }
    }

    /// The receipt of a command that has run, from memory. A miss proves nothing.
    #[inline]
    pub fn receipt(&self, imprint: &Imprint) -> Option<Receipt> {
        if !self.file.is_open() {
            return None;
        }
        let receipt = self.index.receipt(imprint, self.clock.glance())?;
        self.counters.replayed.count(false);
        Some(receipt)
    }

    /// The whole answer of a command that has run, copied from memory. A miss proves nothing.
    #[inline]
    pub fn answered(&self, imprint: &Imprint, out: &mut AnswerBuffer) -> Option<Receipt> {
        if !self.file.is_open() {
            return None;
        }
        let receipt = self.index.answer(imprint, self.clock.glance(), out)?;
        self.counters.replayed.count(true);
        Some(receipt)
    }

    /// What the memory answers. A miss proves nothing.
    pub fn remembered(&self, asked: &Asked, policy: &Policy) -> Option<Reply> {
        if !asked.is_protected || !self.file.is_open() {
            return None;
        }
        if let Some(finished) = self.index.finished(&asked.imprint, self.clock.glance()) {
            self.counters.replayed.count(matches!(finished.body, Body::Present(_)));
            return Some(Reply::Replay(finished));
        }
        // Another request, another policy, or a window that is over.
        let record = self.index.record(asked.digest)?;
        if !record.entry.scope.is_same(&asked.scope, self.settings.scope_mode) {
            return None;
        }
        let known = self.decided(Some(&record), None, asked, policy, Purpose::Execute);
        let Ok(Known::Reply(reply)) = known else { return None };
        // Callers publish what they ran, and a slow one may do so behind its successor. Whoever
        // could have run behind this record could still, and it would not answer, unless a clock has settled
        // since: that makes its window begin again. Then the file knows.
        let is_held_back = self.clock.settled().is_some_and(|settled| settled > record.entry.at);
        if is_held_back && matches!(reply, Reply::Expired { .. }) {
            return None;
        }
        self.tally(&reply);
        count(&self.counters.replays_from_memory);
        Some(reply)
    }

    /// What the file answers.
    pub(super) fn stored(&self, asked: &Asked, policy: &Policy, purpose: Purpose) -> Result<Known, Error> {
        if !asked.is_protected {
            return Ok(Known::Free);
        }
        let stamp = self.index.stamp(asked.digest);
        // What is open first: what ends between the two looks is then seen as ended.
        let look = |db: &Db| {
            let elsewhere = db.elsewhere(&asked.scope.tenant)?;
            Ok((elsewhere, db.open_row(asked.digest)?, db.record(asked.digest)?))
        };
        let (elsewhere, open, record) = self.read(look)?;
        if let Some(owner) = elsewhere {
            let owner = owner.to_string();
            return Ok(Known::Reply(Reply::Refused(Refused::NotAuthoritative { owner })));
        }
        if let Some(record) = record.as_ref().filter(|record| record.may_be_remembered()) {
            self.index.fill(asked.digest, record, stamp);
        }
        if record.is_none() && open.is_none() {
            return Ok(Known::Free);
        }
        self.decided(record.as_ref(), open.as_ref(), asked, policy, purpose)
    }

    /// What a record and an open command answer to a request.
    pub(super) fn decided(
        &self,
        record: Option<&Record>,
        open: Option<&Row>,
        asked: &Asked,
        policy: &Policy,
        purpose: Purpose,
    ) -> Result<Known, Error> {
        // The clock may settle as it is read.
        let (now, monotonic) = self.clock.both();
        let uptime = self.uptime(monotonic);
        let open = open.and_then(|row| self.open_view(asked.digest, row, &uptime));
        let view = View {
            record,
            open,
            rows: &NoRows,
            position: NOWHERE,
            clock_settled: self.clock.settled(),
            uptime,
            has_room: true,
            // Looked up where the scope is.
            units: Units::AllOurs,
        };
        match decide(&view, asked, &Command::Ask(purpose), now, policy).answer {
            Answer::Reply(reply) => Ok(Known::Reply(reply)),
            Answer::Lapsed => Ok(Known::Lapsed),
            Answer::Fault(fault) => Err(fault),
            _ => Ok(Known::Free),
        }
    }

    /// How an open command stands now.
    fn open_view<'r>(&self, scope: ScopeDigest, row: &'r Row, uptime: &Uptime) -> Option<OpenView<'r>> {
        let open = row.open()?;
        Some(OpenView { open, row, lease_left: self.leases.left(scope, open, uptime) })
    }

    /// This process's time.
    pub(super) fn uptime(&self, monotonic: Duration) -> Uptime {
        let epoch = self.tail.lock().epoch;
        Uptime { now: Moment::at(epoch, monotonic), opened: millis(self.opened) }
    }

    /// Counts an answer.
    pub(super) fn tally(&self, reply: &Reply) {
        let counters = &self.counters;
        match reply {
            Reply::Done(_) => {}
            Reply::Unknown { .. } => count(&counters.unknown),
            Reply::Replay(finished) => match finished.body {
                Body::Present(_) => count(&counters.replays_with_body),
                Body::Trimmed { .. } | Body::NotKept { .. } => count(&counters.replays_without_body),
            },
            Reply::InProgress { .. } => count(&counters.in_progress),
            Reply::Mismatch { formatting_only, .. } => {
                count(&counters.mismatches);
                if *formatting_only {
                    count(&counters.mismatches_formatting_only);
                }
            }
            Reply::Expired { .. } => count(&counters.expired),
            Reply::Duplicate { .. } => count(&counters.duplicates),
            Reply::Conflict { .. } => count(&counters.conflicts),
            Reply::Refused(
                Refused::Capacity { .. } | Refused::NotAuthoritative { .. } | Refused::Restored,
            ) => {
                count(&counters.refused);
            }
        }
    }

    /// Counts an event that was answered so.
    pub fn tally_event(&self, reply: &Reply) {
        match reply {
            Reply::Done(_) => count(&self.counters.inbox_new),
            Reply::Replay(_) | Reply::Expired { .. } => count(&self.counters.inbox_duplicate),
            Reply::Mismatch { .. } => count(&self.counters.inbox_conflict),
            _ => {}
        }
    }

    /// What is known of a scope, for somebody who only looks.
    pub fn status(&self, scope: &Scope) -> Result<Status, Error> {
        let digest = ScopeDigest::of(scope, self.settings.scope_mode);
        let running = self.places.status(digest, &self.clock);
        let (open, record) = self.read(|db| Ok((db.open_row(digest)?, db.record(digest)?)))?;
        if let Some(status) = open.and_then(|row| self.status_of(digest, &row)) {
            return Ok(status);
        }
        let now = self.clock.now();
        let known = record.map(|record| record.status(now, self.clock.settled()));
        Ok(match (known, running) {
            // An expired key may be run anew.
            (Some(Status::Absent | Status::Tombstone { .. }) | None, Some(running)) => running,
            (Some(known), _) => known,
            (None, None) => Status::Absent,
        })
    }

    /// One row, as it is committed now.
    pub fn row(&self, key: &RowKey) -> Result<Option<Row>, Error> {
        self.read(|db| db.row(key))
    }

    /// Up to `limit` rows that begin with `prefix`, after `after`; none when there are no more.
    pub fn rows_after(
        &self,
        prefix: &[u8],
        after: Option<&RowKey>,
        limit: usize,
    ) -> Result<Vec<(RowKey, Row)>, Error> {
        self.read(|db| db.rows_after(prefix, after, limit))
    }

    /// Checks the whole file, as it is committed now. `progress` is the caller's code: it may not call the
    /// store.
    pub fn verify(&self, progress: impl FnMut(u64, u64)) -> Result<VerifyReport, Error> {
        let _inside = Inside::of(self);
        self.read(|db| verify(&db.snapshot()?, progress))
    }

    /// Numbers of now.
    pub fn numbers(&self) -> Numbers {
        // The writer takes the file, then the tail: nobody may hold the tail and ask for the file.
        let state = self.tail.lock().clone();
        Numbers {
            counts: self.counters.read(),
            state,
            queued: self.queue.depth(),
            remembered: self.index.len(),
            replay_bytes: self.index.bytes(),
            reserve_bytes: self.disk.reserve_bytes(),
            late_bytes: self.file().map_or(0, |db| db.late_bytes()),
            file_bytes: self.file().map_or(0, |db| db.file_bytes()),
            clock_suspect: self.clock.is_suspect(),
            checked: self.checked.load(Ordering::Relaxed),
            is_full: self.room.is_full.load(Ordering::Relaxed),
        }
    }

    pub(super) fn read<R>(&self, look: impl FnOnce(&Db) -> Result<R, Fault>) -> Result<R, Error> {
        let db = self.file()?;
        let (opening, seen) = (db.opening(), look(&db));
        drop(db);
        seen.map_err(|fault| self.fault(opening, fault))
    }
}

/// What `stats` is made of.
pub(crate) struct Numbers {
    pub counts: Counts,
    pub state: State,
    pub queued: usize,
    pub remembered: u64,
    pub replay_bytes: usize,
    pub late_bytes: usize,
    pub reserve_bytes: u64,
    pub file_bytes: u64,
    pub clock_suspect: bool,
    pub checked: bool,
    pub is_full: bool,
}

#[cfg(test)]
#[path = "read_tests.rs"]
mod tests;
