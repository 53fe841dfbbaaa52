//! What holds for one operation. Owns the windows and their order; must not know who applies them.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::error::Error;
use super::fingerprint::{Compare, PARTS_MAX, name_defect};
use super::time::{Timestamp, millis};

/// What holds for one operation; `const`, so that it can stand beside it.
///
/// ```
/// use std::time::Duration;
/// use onecho::{Operation, Options, Policy};
///
/// const CREATE_ORDER: Operation = Operation::new("create-order");
/// const ORDERS_LAST: Policy = Policy::new()
///     .key_window(Duration::from_secs(90 * 24 * 3600))
///     .must_outlast(Duration::from_secs(3600), Duration::from_secs(24 * 3600), Duration::ZERO);
/// let options = Options::new().operation(&CREATE_ORDER, ORDERS_LAST);
/// # let _ = options;
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Policy {
    pub(crate) wait: Duration,
    pub(crate) compare: Compare,
    pub(crate) while_running: WhileRunning,
    pub(crate) execute_max: Duration,
    pub(crate) lease: Duration,
    pub(crate) run_max: Duration,
    pub(crate) takeover: Takeover,
    pub(crate) outcome_bytes_max: usize,
    pub(crate) body_window: Duration,
    pub(crate) key_window: Duration,
    pub(crate) tombstone_window: Duration,
    pub(crate) outlast: Duration,
    pub(crate) after_expiry: AfterExpiry,
}

/// Which answer another request under a key gets while the first still runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WhileRunning {
    /// `Mismatch`, at once.
    MismatchFirst,
    /// `InProgress`, at once; the mismatch shows when the first is finished.
    InProgressFirst,
}

/// Whether a command whose owner is gone may be run on by another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Takeover {
    /// Never: a lapsed command becomes `Unknown`, and somebody finds out what came of it.
    Never,
    /// Where every declared step has a result or is [`Contract::Idempotent`](crate::Contract). For work that
    /// declares all it does outside.
    Allowed,
}

/// What a key answers when its window is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AfterExpiry {
    /// `Expired`, until the tombstone window is over too.
    Reject,
    /// It runs as a new command, in the next generation.
    RunAsNew,
}

const DAY: Duration = Duration::from_secs(24 * 3600);

impl Policy {
    /// The defaults: others of a scope wait 5 s, compare canonically, a closure holds its scope for 30 s, a
    /// claim lasts 30 s without a heartbeat and can be kept alive for 1 hour, nothing lapsed is taken over,
    /// outcomes of 64 KiB, bodies for 1 day, keys for 30 days, tombstones for ever, expired keys rejected.
    pub const fn new() -> Self {
        Self {
            wait: Duration::from_secs(5),
            compare: Compare::Canonical,
            while_running: WhileRunning::MismatchFirst,
            execute_max: Duration::from_secs(30),
            lease: Duration::from_secs(30),
            run_max: Duration::from_secs(3600),
            takeover: Takeover::Never,
            outcome_bytes_max: 64 * 1024,
            body_window: DAY,
            key_window: Duration::from_secs(30 * 24 * 3600),
            tombstone_window: Duration::MAX,
            outlast: Duration::ZERO,
            after_expiry: AfterExpiry::Reject,
        }
    }

    /// How long another caller of a running scope waits for its outcome; zero answers at once.
    pub const fn wait(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    /// Which differences make another request.
    pub const fn compare(mut self, compare: Compare) -> Self {
        self.compare = compare;
        self
    }

    /// Which answer another request gets while the first still runs.
    pub const fn while_running(mut self, first: WhileRunning) -> Self {
        self.while_running = first;
        self
    }

    /// How long a closure keeps others of its scope waiting; after it another caller may run too, and the
    /// first to commit counts. More than zero.
    pub const fn execute_max(mut self, run: Duration) -> Self {
        self.execute_max = run;
        self
    }

    /// How long a claim lasts without a heartbeat; more than zero. After it the command is taken over, where
    /// that is allowed, or becomes `Unknown`.
    pub const fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// How long [`Claim::keep_alive`](crate::Claim::keep_alive) holds a lease at most, so that an owner that
    /// hangs does not hold it for ever. More than zero.
    pub const fn run_max(mut self, run: Duration) -> Self {
        self.run_max = run;
        self
    }

    /// Whether a lapsed claim may be run on by another.
    pub const fn takeover(mut self, takeover: Takeover) -> Self {
        self.takeover = takeover;
        self
    }

    /// The largest outcome, in bytes: metadata, kept body and the name of its resource together; at most 8
    /// MiB.
    pub const fn outcome_bytes_max(mut self, bytes: usize) -> Self {
        self.outcome_bytes_max = bytes;
        self
    }

    /// How long a retry gets the body, from the finish.
    pub const fn body_window(mut self, window: Duration) -> Self {
        self.body_window = window;
        self
    }

    /// How long a retry gets the outcome, from the finish; at least the body window.
    pub const fn key_window(mut self, window: Duration) -> Self {
        self.key_window = window;
        self
    }

    /// How long a key stays known as expired, from the finish; at least the key window. When it is over even
    /// [`AfterExpiry::Reject`] runs the command. Default: for ever.
    pub const fn tombstone_window(mut self, window: Duration) -> Self {
        self.tombstone_window = window;
        self
    }

    /// Declares what the key window must outlast: the client's longest retry, the longest stay in a queue,
    /// and the time in which somebody may still compensate. Opening fails when their sum is longer.
    pub const fn must_outlast(mut self, retry: Duration, queue: Duration, compensation: Duration) -> Self {
        self.outlast = retry.saturating_add(queue).saturating_add(compensation);
        self
    }

    /// What a key answers when its window is over.
    pub const fn after_expiry(mut self, after: AfterExpiry) -> Self {
        self.after_expiry = after;
        self
    }

    /// The defaults with these windows.
    pub(crate) fn of_windows(windows: Windows) -> Self {
        let Windows { body, key, tombstone } = windows;
        let [body_window, key_window, tombstone_window] = [body, key, tombstone].map(Duration::from_millis);
        Self { body_window, key_window, tombstone_window, ..Self::new() }
    }

    pub(crate) fn windows(&self) -> Windows {
        Windows {
            body: millis(self.body_window),
            key: millis(self.key_window),
            tombstone: millis(self.tombstone_window),
        }
    }

    /// Checks the limits and their order.
    pub(crate) fn check(&self, name: &str) -> Result<(), Error> {
        let fault = if self.body_window > self.key_window {
            "`body_window` is longer than `key_window`"
        } else if self.key_window > self.tombstone_window {
            "`key_window` is longer than `tombstone_window`"
        } else if self.key_window < self.outlast {
            "`key_window` is shorter than `must_outlast` declares: a late retry would find its key expired"
        } else if self.execute_max.is_zero() {
            "`execute_max` is zero"
        } else if self.lease.is_zero() {
            "`lease` is zero: a claim would be over before it began"
        } else if self.run_max.is_zero() {
            "`run_max` is zero"
        } else if self.outcome_bytes_max > OUTCOME_BYTES_CAP {
            "`outcome_bytes_max` is above 8 MiB"
        } else if matches!(self.compare, Compare::Parts(names) if names.is_empty()) {
            "`Compare::Parts` names no part: every request would match"
        } else {
            return self.check_parts(name);
        };
        Err(Error::invalid(format!("policy of {name}: {fault}")))
    }

    /// Refuses a choice of parts that no request can have.
    fn check_parts(&self, name: &str) -> Result<(), Error> {
        let Compare::Parts(parts) = self.compare else { return Ok(()) };
        let defect = if parts.len() > PARTS_MAX {
            Some(format!("it chooses {} parts, and a request has at most {PARTS_MAX}", parts.len()))
        } else {
            parts.iter().find_map(|part| name_defect(part))
        };
        match defect {
            Some(defect) => Err(Error::invalid(format!("policy of {name}: `Compare::Parts`: {defect}"))),
            None => Ok(()),
        }
    }
}

impl Default for Policy {
    fn default() -> Self {
        Self::new()
    }
}

/// The most that any operation may set as its largest outcome.
pub(crate) const OUTCOME_BYTES_CAP: usize = 8 * 1024 * 1024;

/// The three windows of a class, in milliseconds from the finish; `u64::MAX` is for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Windows {
    pub body: u64,
    pub key: u64,
    pub tombstone: u64,
}

impl Windows {
    /// The end of a window that began at `start`.
    pub(crate) fn end(start: Timestamp, window: u64) -> Timestamp {
        Timestamp(start.0.saturating_add(window))
    }

    /// A window is over when `now` has reached its end. One for ever never is, whatever a clock shows.
    pub(crate) fn is_over(end: Timestamp, now: Timestamp) -> bool {
        end != Timestamp::FOREVER && now >= end
    }
}
