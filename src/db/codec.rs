//! The one place that names the storage codec: bincode 2 in its standard configuration, through serde.
//!
//! Decoding is bounded, consumes every byte, and never panics. Owns nothing else; the envelope checks length
//! and CRC before anything comes here.

use bincode::config::{Configuration, Limit, LittleEndian, Varint};
use bincode::enc::write::Writer;
use bincode::error::EncodeError;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The largest body that is decoded, in bytes: above the largest entry or value that can be written.
pub(crate) const BODY_BYTES_MAX: usize = 16 * 1024 * 1024;

type Standard = Configuration<LittleEndian, Varint, Limit<BODY_BYTES_MAX>>;

const fn standard() -> Standard {
    bincode::config::standard().with_limit::<BODY_BYTES_MAX>()
}

/// The bytes of `value`; the text says why it has none.
pub(crate) fn encode<T: Serialize>(value: &T) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    encode_into(value, &mut bytes)?;
    Ok(bytes)
}

/// Appends the bytes of `value`; the text says why it has none.
pub(crate) fn encode_into<T: Serialize>(value: &T, out: &mut Vec<u8>) -> Result<(), String> {
    bincode::serde::encode_into_writer(value, Appended(out), standard()).map_err(|fault| fault.to_string())
}

/// Writes the bytes of `value` to the beginning of `out`, and says how many; none where it has not that much
/// room. Allocates nothing.
pub(crate) fn encode_at<T: Serialize>(value: &T, out: &mut [u8]) -> Option<usize> {
    let mut filled = Filled { out, count: 0 };
    bincode::serde::encode_into_writer(value, &mut filled, standard()).ok()?;
    Some(filled.count)
}

/// Puts bytes behind those of a vector. The codec hands over an array byte by byte, so each call has to be
/// little.
struct Appended<'v>(&'v mut Vec<u8>);

impl Writer for Appended<'_> {
    #[inline]
    fn write(&mut self, bytes: &[u8]) -> Result<(), EncodeError> {
        self.0.extend_from_slice(bytes);
        Ok(())
    }
}

/// Puts bytes into room that there is.
struct Filled<'o> {
    out: &'o mut [u8],
    count: usize,
}

impl Writer for Filled<'_> {
    #[inline]
    fn write(&mut self, bytes: &[u8]) -> Result<(), EncodeError> {
        let end = self.count + bytes.len();
        let room = self.out.get_mut(self.count..end).ok_or(EncodeError::UnexpectedEnd)?;
        room.copy_from_slice(bytes);
        self.count = end;
        Ok(())
    }
}

/// The value of a user of exactly these bytes. The limit counts what the value takes in memory, which may be
/// far more than its bytes, and those are bounded where they are written.
pub(crate) fn decode_value<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    let roomy = bincode::config::standard().with_limit::<VALUE_MEMORY_MAX>();
    let (value, used) = bincode::serde::decode_from_slice(bytes, roomy).map_err(|fault| fault.to_string())?;
    all_used(bytes, used).map(|()| value)
}

/// The most memory that reading one value may claim, in bytes.
const VALUE_MEMORY_MAX: usize = 1 << 30;

fn all_used(bytes: &[u8], used: usize) -> Result<(), String> {
    if used == bytes.len() {
        return Ok(());
    }
    Err(format!("{} bytes are left over", bytes.len() - used))
}

/// The value of exactly these bytes.
pub(crate) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    let (value, used) =
        bincode::serde::decode_from_slice(bytes, standard()).map_err(|fault| fault.to_string())?;
    all_used(bytes, used).map(|()| value)
}
