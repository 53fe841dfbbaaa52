//! The bodies of the fuzz targets: each takes any bytes and panics on a finding.
//!
//! Three callers share them: the libFuzzer binaries in `fuzz/`, a randomised test on stable, and a test that
//! replays the committed corpus. Owns what counts as a finding; must not know who feeds it.

#![expect(clippy::unwrap_used, reason = "a finding is a panic")]

mod crash;
mod decode;
mod json;
mod ops;

pub use self::crash::crash;
pub use self::decode::decode;
pub use self::json::json;
pub use self::ops::ops;

/// The bytes of an input, one after another; zeros once they are used up, so that every input is a whole one.
struct Input<'b>(std::slice::Iter<'b, u8>);

impl<'b> Input<'b> {
    fn new(bytes: &'b [u8]) -> Self {
        Self(bytes.iter())
    }

    fn is_empty(&self) -> bool {
        self.0.len() == 0
    }

    fn byte(&mut self) -> u8 {
        self.0.next().copied().unwrap_or_default()
    }

    fn below(&mut self, end: u8) -> u8 {
        self.byte() % end
    }

    fn number(&mut self) -> u64 {
        u64::from_le_bytes(std::array::from_fn(|_| self.byte()))
    }

    fn rest(self) -> &'b [u8] {
        self.0.as_slice()
    }
}
