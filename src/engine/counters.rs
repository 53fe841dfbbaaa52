//! What happened, counted. Owns the names; must not know why anything is counted.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::stripes::Stripes;

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// Counters since the store was opened.
        #[derive(Debug, Default)]
        pub(crate) struct Counters {
            $(pub $name: AtomicU64,)*
            /// Replays from memory without, and with, their body: what happens too often to share a line.
            pub replayed: Stripes,
        }

        /// What the counters said at one moment.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub(crate) struct Counts {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Counters {
            pub fn read(&self) -> Counts {
                let mut counts = Counts { $($name: self.$name.load(Relaxed),)* };
                let [without_body, with_body] = self.replayed.read();
                counts.replays_with_body += with_body;
                counts.replays_without_body += without_body;
                counts.replays_from_memory += with_body + without_body;
                counts
            }
        }
    };
}

counters! {
    /// Outcomes replayed with their body.
    replays_with_body,
    /// Outcomes replayed whose body is gone or was not kept.
    replays_without_body,
    /// Replays answered from memory.
    replays_from_memory,
    /// Requests under the key of another, finished or in flight.
    mismatches,
    /// Of these, those that differed in formatting only.
    mismatches_formatting_only,
    /// Callers told that another runs the command.
    in_progress,
    /// Requests whose key's window was over.
    expired,
    /// Commands stopped by a resource or uniqueness that was taken.
    duplicates,
    /// Closures called again because a row had changed.
    reruns,
    /// Commands given up because rows kept changing.
    conflicts,
    /// Closures that ended in an error.
    aborted,
    /// Commands refused before anything was written.
    refused,
    /// Commands without a key.
    unprotected,
    /// Effects that left a row alone because it has seen a newer event.
    stale_events,
    /// Claims granted.
    claims,
    /// Calls of owners whose claim was over or somebody else's.
    fence_losses,
    /// Callers told that a command may have taken effect outside.
    unknown,
    /// Messages made without a command, known ones included.
    messages_enqueued,
    /// Attempts and questions that workers began.
    messages_attempted,
    /// Messages that have arrived, jobs done included.
    messages_delivered,
    /// Attempts and questions without an end that says what came of them.
    messages_unknown,
    /// Messages that became dead letters.
    messages_dead,
    /// Ends that came when somebody else had the message, or had ended it.
    messages_late,
    /// Events that were accepted for the first time.
    inbox_new,
    /// Events that had been accepted before.
    inbox_duplicate,
    /// Events under the id of another.
    inbox_conflict,
    /// Events that were not the newest of their stream.
    inbox_overtaken,
    /// Commits whose end is not known.
    uncertain_commits,
    /// Commits.
    commits,
    /// Commands in them.
    committed,
}

/// Adds one.
pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Relaxed);
}

/// Adds many.
pub(crate) fn count_many(counter: &AtomicU64, many: u64) {
    counter.fetch_add(many, Relaxed);
}
