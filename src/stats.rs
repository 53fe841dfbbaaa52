//! Numbers for people and gauges. Owns the list of names; must not know how anything is counted.

use serde::Serialize;

use crate::engine::read::Numbers;

/// What a store has done and holds. `executed`, `resolved` and `differences` are totals kept in the file;
/// counters without another note count since the store was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Stats {
    /// Commands that were ever executed in this file.
    pub executed: u64,
    /// Scopes that have an outcome in this file.
    pub records: u64,
    /// Resources and uniquenesses in this file.
    pub rows: u64,
    /// The highest sequence number that was used.
    pub last_seq: u64,
    /// How often the file was opened by a process.
    pub epoch: u64,
    /// The length of the file, in bytes.
    pub file_bytes: u64,
    /// Outcomes replayed, with and without their body.
    pub replays: u64,
    /// Of these, those whose body is gone or was not kept.
    pub replays_without_body: u64,
    /// Answers given from memory, without a look at the file.
    pub answered_from_memory: u64,
    /// Records in that memory now.
    pub remembered: u64,
    /// Requests under the key of another, finished or in flight.
    pub mismatches: u64,
    /// Of these, those that differed in formatting only.
    pub mismatches_formatting_only: u64,
    /// Callers told that another runs their command.
    pub in_progress: u64,
    /// Requests whose key's window was over.
    pub expired: u64,
    /// Commands stopped by a resource or uniqueness that was taken.
    pub duplicates: u64,
    /// Closures called again because a row had changed.
    pub reruns: u64,
    /// Commands given up because rows kept changing.
    pub conflicts: u64,
    /// Closures that ended in an error.
    pub aborted: u64,
    /// Commands refused before anything was written.
    pub refused: u64,
    /// Commands without a key.
    pub unprotected: u64,
    /// Effects that left a row alone because it has seen a newer event.
    pub stale_events: u64,
    /// Commits whose end is not known. Above 0: reopen, and ask again.
    pub uncertain_commits: u64,
    /// Commits, and commands in them: their ratio is what group commit saves.
    pub commits: u64,
    /// Commands in those commits.
    pub committed: u64,
    /// Commands that wait for the writer now.
    pub queued: u64,
    /// Commands that were begun and are not finished now, those in `Unknown` included.
    pub open: u64,
    /// Commands in `Unknown` now.
    pub unknown_open: u64,
    /// Commands in `Unknown` whose end was ever found out, in this file.
    pub resolved: u64,
    /// Completions that ever came after their claim was over and were refused, in this file.
    pub differences: u64,
    /// Claims granted.
    pub claims: u64,
    /// Callers told that a command may have taken effect outside.
    pub unknown: u64,
    /// Calls of owners whose claim was over or somebody else's.
    pub fence_losses: u64,
    /// Messages that wait or are under way now, jobs included.
    pub messages_waiting: u64,
    /// Messages now that may have arrived: asked for, or waiting for somebody who settles them.
    pub messages_unknown: u64,
    /// Dead letters now.
    pub messages_dead: u64,
    /// Ordering keys now that wait for somebody who settles their first message.
    pub keys_blocked: u64,
    /// Messages made without a command, those known under their key included.
    pub messages_enqueued: u64,
    /// Attempts and questions that workers began.
    pub messages_attempted: u64,
    /// Messages that have arrived, jobs done included.
    pub messages_delivered: u64,
    /// Attempts and questions without an end that says what came of them.
    pub attempts_unknown: u64,
    /// Ends of attempts that came when somebody else had the message, or had ended it.
    pub attempts_late: u64,
    /// Messages that became dead letters.
    pub dead_letters: u64,
    /// Events that were accepted for the first time.
    pub inbox_new: u64,
    /// Events that had been accepted before.
    pub inbox_duplicate: u64,
    /// Events refused because their id was another's.
    pub inbox_conflict: u64,
    /// Events that were accepted and were not the newest of their stream.
    pub inbox_overtaken: u64,
    /// The wall clock has jumped and is not believed; nothing expires by the jump.
    pub clock_suspect: bool,
    /// The whole file was checked, when it was opened or in the background since. Until then a damaged tree
    /// may make a key look absent.
    pub checked: bool,
    /// Memory of the replay index, in bytes.
    pub replay_bytes: u64,
    /// About the memory of what is committed and not merged yet, in bytes; see `Options::late_bytes`.
    pub late_bytes: u64,
    /// What is kept back for a full disk now, in bytes; see `Options::reserve_bytes`.
    pub reserve_bytes: u64,
    /// The disk is full and its reserve is spent: new commands are refused.
    pub disk_full: bool,
}

impl From<Numbers> for Stats {
    fn from(numbers: Numbers) -> Self {
        let Numbers { counts, state, .. } = numbers;
        Self {
            executed: state.executed,
            records: state.records,
            rows: state.rows,
            last_seq: state.last_seq,
            epoch: state.epoch,
            file_bytes: numbers.file_bytes,
            replays: counts.replays_with_body + counts.replays_without_body,
            replays_without_body: counts.replays_without_body,
            answered_from_memory: counts.replays_from_memory,
            remembered: numbers.remembered,
            mismatches: counts.mismatches,
            mismatches_formatting_only: counts.mismatches_formatting_only,
            in_progress: counts.in_progress,
            expired: counts.expired,
            duplicates: counts.duplicates,
            reruns: counts.reruns,
            conflicts: counts.conflicts,
            aborted: counts.aborted,
            refused: counts.refused,
            unprotected: counts.unprotected,
            stale_events: counts.stale_events,
            uncertain_commits: counts.uncertain_commits,
            commits: counts.commits,
            committed: counts.committed,
            queued: numbers.queued as u64,
            open: state.open,
            unknown_open: state.unknown,
            resolved: state.resolved,
            differences: state.differences,
            claims: counts.claims,
            unknown: counts.unknown,
            fence_losses: counts.fence_losses,
            messages_waiting: state.waiting,
            messages_unknown: state.doubtful,
            messages_dead: state.dead,
            keys_blocked: state.blocked,
            messages_enqueued: counts.messages_enqueued,
            messages_attempted: counts.messages_attempted,
            messages_delivered: counts.messages_delivered,
            attempts_unknown: counts.messages_unknown,
            attempts_late: counts.messages_late,
            dead_letters: counts.messages_dead,
            inbox_new: counts.inbox_new,
            inbox_duplicate: counts.inbox_duplicate,
            inbox_conflict: counts.inbox_conflict,
            inbox_overtaken: counts.inbox_overtaken,
            clock_suspect: numbers.clock_suspect,
            checked: numbers.checked,
            replay_bytes: numbers.replay_bytes as u64,
            late_bytes: numbers.late_bytes as u64,
            reserve_bytes: numbers.reserve_bytes,
            disk_full: numbers.is_full,
        }
    }
}
