//! What an entry of the journal says beside its outcome: steps, points, evidence. Owns the words of an audit;
//! must not know what they lead to.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::audit::Layout;
use super::error::Error;
use super::name::{NAME_BYTES_MAX, checked};
use super::outcome::Digest;
use super::text::Text;
use super::time::Timestamp;

/// The longest text of one piece of evidence, in bytes; a longer one is cut.
pub const EVIDENCE_BYTES_MAX: usize = 4096;

/// Why somebody says what became of a call: where it comes from and what it said. Kept in the journal, so
/// that a decision can be understood later; no place for secrets.
///
/// ```
/// use onecho::Evidence;
/// let evidence = Evidence::new("processor dashboard", "charge ch_17 captured at 12:03");
/// assert_eq!(evidence.source(), "processor dashboard");
/// ```
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evidence {
    source: Text,
    text: Text,
}

impl Evidence {
    /// What `source` says. A source is cut to 128 bytes, a text to 4,096.
    pub fn new(source: &str, text: impl Into<String>) -> Self {
        let text: String = text.into();
        Self { source: cut(source, NAME_BYTES_MAX).into(), text: cut(&text, EVIDENCE_BYTES_MAX).into() }
    }

    /// Where it comes from.
    #[must_use]
    pub fn source(&self) -> &str {
        &self.source
    }

    /// What it said.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    pub(crate) fn layout(&self, out: &mut Layout) {
        out.text(&self.source);
        out.text(&self.text);
    }
}

impl fmt::Display for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.source, self.text)
    }
}

/// Shows where it comes from only.
impl fmt::Debug for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Evidence({}, {} bytes)", self.source, self.text.len())
    }
}

/// The longest beginning of a text that has at most so many bytes.
fn cut(text: &str, bytes_max: usize) -> &str {
    let end = (0..=bytes_max.min(text.len())).rev().find(|&end| text.is_char_boundary(end));
    &text[..end.unwrap_or_default()]
}

/// Checks the name of somebody who decides.
pub(crate) fn check_actor(actor: &str) -> Result<(), Error> {
    checked("actor", actor, NAME_BYTES_MAX)
}

/// One thing that an entry says. The order of variants and fields is the stored format.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Fact {
    /// A call outside may be made from now on.
    Declared { step: Text },
    /// A call was made, and this is what it answered.
    Answered { step: Text, digest: Digest, len: u64 },
    /// A call did not take effect.
    NotApplied { step: Text },
    /// A part of the command was committed.
    Reached { point: Text, digest: Digest },
    /// Why.
    Because(Evidence),
    /// Another store finished it, at this time and by this transition; of the messages it made the first
    /// one's number here, and how many.
    Brought { at: Timestamp, ended_by: u8, made: u64, count: u32 },
}

impl Fact {
    pub fn layout(&self, out: &mut Layout) {
        match self {
            Self::Declared { step } => {
                out.u8(0);
                out.text(step);
            }
            Self::Answered { step, digest, len } => {
                out.u8(1);
                out.text(step);
                out.raw(&digest.0);
                out.u64(*len);
            }
            Self::NotApplied { step } => {
                out.u8(2);
                out.text(step);
            }
            Self::Reached { point, digest } => {
                out.u8(3);
                out.text(point);
                out.raw(&digest.0);
            }
            Self::Because(evidence) => {
                out.u8(4);
                evidence.layout(out);
            }
            Self::Brought { at, ended_by, made, count } => {
                out.u8(5);
                out.u64(at.0);
                out.u8(*ended_by);
                out.u64(*made);
                out.u32(*count);
            }
        }
    }
}

impl fmt::Display for Fact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Declared { step } => write!(f, "step {step} declared"),
            Self::Answered { step, len, .. } => write!(f, "step {step} answered ({len} bytes)"),
            Self::NotApplied { step } => write!(f, "step {step} not applied"),
            Self::Reached { point, .. } => write!(f, "point {point} committed"),
            Self::Because(evidence) => write!(f, "{evidence}"),
            Self::Brought { at, .. } => write!(f, "finished by another store at {at}"),
        }
    }
}
