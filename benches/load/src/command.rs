//! The commands: keys, ids, bytes, and what a store keeps of each. Owns that everybody gets the same bytes;
//! must not know any store.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use bytes::Bytes;
use sha2::{Digest, Sha256};

pub const TENANT: &str = "shop";
pub const OPERATION: &str = "create-order";
pub const KIND: &str = "order";
pub const CODE: u16 = 201;

pub const KEY_BYTES: usize = 36;
pub const OUTCOME_BYTES: usize = 512;
pub const RESOURCE_BYTES: usize = 200;
/// What a caller gives to be kept, by command.
pub const PAYLOAD_BYTES: usize = KEY_BYTES + OUTCOME_BYTES + RESOURCE_BYTES;
const REQUEST_BYTES: usize = 200;

/// Long enough that nothing expires in a run; everybody compares it with the time of the lookup.
const WINDOW_MS: u64 = 90 * 24 * 3600 * 1000;

/// Under which ids the resources are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ids {
    Growing,
    Random,
}

impl Ids {
    pub fn name(self) -> &'static str {
        match self {
            Self::Growing => "growing ids",
            Self::Random => "random ids",
        }
    }
}

/// One command. The same number and ids make the same command.
pub struct Command {
    pub key: String,
    pub id: String,
    pub outcome: Bytes,
    pub resource: Bytes,
    number: u64,
}

/// Fresh commands have numbers above those of any prepared store.
static FRESH: AtomicU64 = AtomicU64::new(1 << 40);

/// Where fresh numbers begin: for a process that goes on with a store of another one.
pub fn start_at(number: u64) {
    FRESH.store(number, Ordering::Relaxed);
}

impl Command {
    /// Commands that no call of this process had; the number of the first. Another process starts elsewhere,
    /// see [`start_at`].
    pub fn fresh(count: usize, ids: Ids) -> (u64, Vec<Self>) {
        let first = FRESH.fetch_add(count as u64, Ordering::Relaxed);
        (first, (first..first + count as u64).map(|number| Self::numbered(number, ids)).collect())
    }

    pub fn numbered(number: u64, ids: Ids) -> Self {
        let id = match ids {
            Ids::Growing => format!("{number:036}"),
            Ids::Random => uuid(mixed(number ^ 0xA5A5_0000_5A5A_0000), mixed(number.rotate_left(17))),
        };
        let key = uuid(mixed(number), mixed(!number));
        let outcome = Bytes::copy_from_slice(&filled::<OUTCOME_BYTES>(number, 0x5A));
        let resource = Bytes::copy_from_slice(&filled::<RESOURCE_BYTES>(number, 0xA5));
        Self { key, id, outcome, resource, number }
    }

    /// What the client sent. Its SHA-256 is what tells another request under the same key.
    pub fn request(&self) -> [u8; REQUEST_BYTES] {
        filled(self.number, 0x33)
    }

    pub fn fingerprint(&self) -> [u8; 32] {
        Sha256::digest(self.request()).into()
    }

    /// Tenant, operation and key, for stores whose keys are bytes.
    pub fn record_key(&self) -> Vec<u8> {
        [TENANT.as_bytes(), b"\0", OPERATION.as_bytes(), b"\0", self.key.as_bytes()].concat()
    }

    /// Tenant, kind and id, for stores whose keys are bytes.
    pub fn row_key(&self) -> Vec<u8> {
        [TENANT.as_bytes(), b"\0", KIND.as_bytes(), b"\0", self.id.as_bytes()].concat()
    }

    /// What is kept under [`Command::record_key`]: fingerprint, end of the window, code, body.
    pub fn record(&self) -> Vec<u8> {
        let end = now_ms() + WINDOW_MS;
        [&self.fingerprint()[..], &end.to_be_bytes(), &CODE.to_be_bytes(), &self.outcome].concat()
    }

    /// When it expires, for stores with columns.
    pub fn end_ms() -> u64 {
        now_ms() + WINDOW_MS
    }

    /// Whether this is the answer to it.
    pub fn is_answered_by(&self, body: &[u8]) -> bool {
        body == &self.outcome[..]
    }
}

const FINGERPRINT: usize = 32;
const END: usize = FINGERPRINT + 8;
const HEAD: usize = END + 2;

/// What is asked of a store whose keys are bytes.
#[derive(Clone)]
pub struct Asked {
    pub key: Vec<u8>,
    pub fingerprint: [u8; 32],
}

impl Asked {
    pub fn of(command: &Command) -> Self {
        Self { key: command.record_key(), fingerprint: command.fingerprint() }
    }
}

/// The body of a record, if it is of this request and has not expired.
#[inline]
pub fn judged<'r>(record: &'r [u8], fingerprint: &[u8; 32]) -> Option<&'r [u8]> {
    let (head, body) = record.split_at_checked(HEAD)?;
    let end = u64::from_be_bytes(head[FINGERPRINT..END].try_into().ok()?);
    (head[..FINGERPRINT] == fingerprint[..] && now_ms() < end).then_some(body)
}

/// The time of a lookup: everybody reads it once for each, as onecho does.
#[inline]
pub fn now_ms() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |time| time.as_millis() as u64)
}

fn filled<const N: usize>(number: u64, with: u8) -> [u8; N] {
    let mut bytes = [with; N];
    bytes[..8].copy_from_slice(&number.to_be_bytes());
    bytes
}

fn uuid(high: u64, low: u64) -> String {
    let (a, b, c) = (high >> 32, (high >> 16) & 0xFFFF, high & 0xFFFF);
    format!("{a:08x}-{b:04x}-{c:04x}-{:04x}-{:012x}", low >> 48, low & 0xFFFF_FFFF_FFFF)
}

/// A number that looks random and meets no other's (the finalizer of `SplitMix64`, a bijection).
pub fn mixed(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_have_the_promised_sizes_and_differ() {
        let (one, other) = (Command::numbered(1, Ids::Random), Command::numbered(2, Ids::Random));
        assert_eq!((one.key.len(), one.outcome.len(), one.resource.len()), (36, 512, 200));
        assert_eq!((one.id.len(), Command::numbered(1, Ids::Growing).id.len()), (36, 36));
        assert!(one.key != other.key && one.id != other.id && one.fingerprint() != other.fingerprint());
        assert!(!one.is_answered_by(&other.outcome));
    }

    #[test]
    fn a_record_answers_its_own_request_only() {
        let (one, other) = (Command::numbered(1, Ids::Growing), Command::numbered(2, Ids::Growing));
        let record = one.record();
        assert_eq!(judged(&record, &one.fingerprint()), Some(&one.outcome[..]));
        assert_eq!(judged(&record, &other.fingerprint()), None);
        assert_eq!(judged(&record[..10], &one.fingerprint()), None);
    }
}
