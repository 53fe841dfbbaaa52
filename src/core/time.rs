//! Points in time as the store knows them. Owns the unit; must not know where time comes from.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Milliseconds since 1970-01-01T00:00:00Z, leap seconds not counted.
///
/// Everything the store decides by time takes one of these as an argument; nothing in it reads a clock by
/// itself.
///
/// ```
/// use std::time::Duration;
/// use onecho::Timestamp;
///
/// let noon = Timestamp(1_796_040_000_000);
/// assert_eq!(noon.after(Duration::from_secs(1)), Timestamp(1_796_040_001_000));
/// assert_eq!(Timestamp(u64::MAX).after(Duration::from_secs(1)), Timestamp(u64::MAX)); // for ever
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Timestamp(pub u64);

impl Timestamp {
    /// The end of time: what a window that never ends reaches to.
    pub const FOREVER: Self = Self(u64::MAX);

    /// This time and `span` more; saturates at [`Timestamp::FOREVER`].
    #[must_use]
    pub fn after(self, span: Duration) -> Self {
        Self(self.0.saturating_add(millis(span)))
    }

    /// How much later this is than `earlier`; zero when it is not later.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ms", self.0)
    }
}

/// Whole milliseconds of a span; what does not fit is for ever.
pub(crate) fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}
