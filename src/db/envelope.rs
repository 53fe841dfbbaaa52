//! What stands around every value in the file: version, kind, length, body, CRC-32.
//!
//! The CRC also covers the table and the key, so that a row found under another key is damage and not data.
//! Owns the frame; must not know what is in it.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::codec;
use super::fault::Unreadable;

/// The version of the frame and of every body in it. A change needs a new number and a reader for the old
/// one.
pub(crate) const VERSION: u8 = 1;
/// Version, kind, and the length of the body as a big-endian `u32`.
pub(crate) const HEAD_BYTES: usize = 6;
pub(crate) const CRC_BYTES: usize = 4;

/// Tables by the number that goes into the CRC. Numbers are only ever added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Table {
    Meta = 1,
    Class = 2,
    Journal = 3,
    Index = 4,
    Resource = 5,
    /// No table: what a tenant takes along to another store.
    Stream = 6,
}

/// What a body is. Numbers are only ever added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Identity = 1,
    State = 2,
    Class = 3,
    Entry = 4,
    Row = 5,
    Directory = 6,
    Tail = 7,
    Scopes = 8,
    StreamHead = 9,
    StreamItem = 10,
    StreamEnd = 11,
}

/// Frames `value` for one place in the file.
pub(crate) fn seal<T: Serialize>(table: Table, key: &[u8], kind: Kind, value: &T) -> Result<Vec<u8>, String> {
    let mut framed = Vec::new();
    seal_into(&mut framed, table, key, kind, value)?;
    Ok(framed)
}

/// Appends the frame of `value` for one place in the file.
pub(crate) fn seal_into<T: Serialize>(
    out: &mut Vec<u8>,
    table: Table,
    key: &[u8],
    kind: Kind,
    value: &T,
) -> Result<(), String> {
    frame_into(out, table, key, kind, |framed| codec::encode_into(value, framed))
}

/// Frames a body that is encoded already.
#[cfg(any(test, feature = "testing"))]
pub(crate) fn frame(table: Table, key: &[u8], kind: Kind, body: &[u8]) -> Result<Vec<u8>, String> {
    let mut framed = Vec::new();
    frame_into(&mut framed, table, key, kind, |framed| {
        framed.extend_from_slice(body);
        Ok(())
    })?;
    Ok(framed)
}

/// Appends a frame around the body that `put_body` appends.
pub(crate) fn frame_into(
    out: &mut Vec<u8>,
    table: Table,
    key: &[u8],
    kind: Kind,
    put_body: impl FnOnce(&mut Vec<u8>) -> Result<(), String>,
) -> Result<(), String> {
    let start = out.len();
    out.extend_from_slice(&[VERSION, kind as u8, 0, 0, 0, 0]);
    put_body(out)?;
    let framed = &mut out[start..];
    let body_len = framed.len() - HEAD_BYTES;
    if body_len > codec::BODY_BYTES_MAX {
        return Err(format!("{body_len} bytes are more than a row may have"));
    }
    let len = u32::try_from(body_len).map_err(|_| "longer than 4 GiB".to_owned())?;
    framed[HEAD_BYTES - size_of::<u32>()..HEAD_BYTES].copy_from_slice(&len.to_be_bytes());
    let crc = crc(table, key, framed);
    out.extend_from_slice(&crc.to_be_bytes());
    Ok(())
}

/// The value of a frame that was sealed for this place; the text says what is wrong with any other.
pub(crate) fn open<T: DeserializeOwned>(
    table: Table,
    key: &[u8],
    kind: Kind,
    framed: &[u8],
) -> Result<T, Unreadable> {
    Ok(codec::decode(body(table, key, kind, framed)?)?)
}

/// The body of a frame that was sealed for this place, not decoded yet.
pub(crate) fn body<'b>(
    table: Table,
    key: &[u8],
    kind: Kind,
    framed: &'b [u8],
) -> Result<&'b [u8], Unreadable> {
    let Some((covered, crc_bytes)) = framed.split_last_chunk::<CRC_BYTES>() else {
        return Err(format!("{} bytes are too few for a row", framed.len()).into());
    };
    let Some((head, body)) = covered.split_first_chunk::<HEAD_BYTES>() else {
        return Err(format!("{} bytes are too few for a row", framed.len()).into());
    };
    if u32::from_be_bytes(*crc_bytes) != crc(table, key, covered) {
        return Err("its checksum is wrong".into());
    }
    let [version, stored_kind, len @ ..] = *head;
    if version != VERSION {
        let what = format!("its row version is {version}, this program knows {VERSION}");
        return Err(if version > VERSION { Unreadable::Newer(what) } else { what.into() });
    }
    if stored_kind != kind as u8 {
        return Err(format!("it is of kind {stored_kind}, not {}", kind as u8).into());
    }
    if u32::from_be_bytes(len) as usize != body.len() {
        return Err("its length is wrong".into());
    }
    Ok(body)
}

/// The frame that `bytes` begin with, and what stands behind it. Nothing is said of its content.
pub(crate) fn split(bytes: &[u8]) -> Result<(&[u8], &[u8]), Unreadable> {
    let too_few = || Unreadable::from(format!("{} bytes are too few for a row", bytes.len()));
    let (_, len) = bytes
        .get(..HEAD_BYTES)
        .and_then(<[u8]>::split_last_chunk::<{ size_of::<u32>() }>)
        .ok_or_else(too_few)?;
    let framed = (u32::from_be_bytes(*len) as usize).saturating_add(HEAD_BYTES + CRC_BYTES);
    bytes.split_at_checked(framed).ok_or_else(too_few)
}

fn crc(table: Table, key: &[u8], covered: &[u8]) -> u32 {
    let mut hash = crc32fast::Hasher::new();
    hash.update(&[table as u8]);
    hash.update(&(key.len() as u64).to_be_bytes());
    hash.update(key);
    hash.update(covered);
    hash.finalize()
}
