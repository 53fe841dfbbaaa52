//! The one place that names the storage codec: bincode 2 in its standard configuration, through serde.
//!
//! Decoding is bounded, consumes every byte, and never panics. Owns nothing else; the envelope checks length
//! and CRC before anything comes here.

use bincode::config::{Configuration, Limit, LittleEndian, Varint};
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
    bincode::serde::encode_into_std_write(value, out, standard()).map(drop).map_err(|fault| fault.to_string())
}

/// The value of exactly these bytes.
pub(crate) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    let (value, used) =
        bincode::serde::decode_from_slice(bytes, standard()).map_err(|fault| fault.to_string())?;
    if used != bytes.len() {
        return Err(format!("{} bytes are left over", bytes.len() - used));
    }
    Ok(value)
}
