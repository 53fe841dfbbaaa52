//! Kinds of resources and how their values are written. Owns the codecs of values; must not know rows.

use std::fmt;
use std::marker::PhantomData;

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::core::error::Error;
use crate::core::finite::to_json;
use crate::core::name::{NAME_BYTES_MAX, Tenant, checked, is_name};
use crate::core::outcome::ResourceRef;
use crate::core::row::{Codec, RowKey};
use crate::core::text::Text;
use crate::db::codec;

/// A kind of resource and how its values are written.
///
/// The choice outlives the code: a value written as JSON is read by a type that has gained a field since, one
/// written with bincode is smaller and is not. The codec is stored with each row; another one under the same
/// name is `Invalid`.
///
/// ```
/// use onecho::{Kind, testing::SimDisk, *};
/// # use serde::{Deserialize, Serialize};
/// #[derive(Serialize, Deserialize)]
/// struct Order { cents: u64 }
/// const ORDERS: Kind<Order> = Kind::json("order");
/// const STOCK: Kind<i64> = Kind::counter("stock").shared(); // one for all tenants
/// assert_eq!(ORDERS.at("17").kind, "order");
/// ```
pub struct Kind<T> {
    name: Text,
    codec: Codec,
    is_shared: bool,
    write: fn(&T) -> Result<Bytes, Error>,
    read: fn(&Bytes) -> Result<T, Error>,
    of: PhantomData<fn(T) -> T>,
}

impl<T: Serialize + DeserializeOwned> Kind<T> {
    /// Values as JSON: readable, and fields may be added later.
    ///
    /// # Panics
    ///
    /// When the name is empty, longer than 128 bytes, or holds a control byte; in a `const` that is a compile
    /// error.
    #[must_use]
    pub const fn json(name: &'static str) -> Self {
        Self::constant(name, Codec::Json, write_json, read_json)
    }

    /// Values with bincode: smaller, and `T` may never change. Not for types that ask the text what they are,
    /// such as `serde_json::Value` or enums marked `untagged`: they are written and cannot be read.
    ///
    /// # Panics
    ///
    /// As [`Kind::json`].
    #[must_use]
    pub const fn bincode(name: &'static str) -> Self {
        Self::constant(name, Codec::Bincode, write_bincode, read_bincode)
    }
}

impl Kind<Bytes> {
    /// Values as they are.
    ///
    /// # Panics
    ///
    /// As [`Kind::json`].
    #[must_use]
    pub const fn raw(name: &'static str) -> Self {
        Self::constant(name, Codec::Raw, write_raw, read_raw)
    }

    /// A kind of raw values whose name comes from outside.
    ///
    /// # Errors
    ///
    /// `Invalid` when the name is empty or holds a control character, `LimitExceeded` above 128 bytes.
    pub fn parse(name: &str) -> Result<Self, Error> {
        checked("kind", name, NAME_BYTES_MAX)?;
        let name = Text::from(name);
        Ok(Self {
            name,
            codec: Codec::Raw,
            is_shared: false,
            write: write_raw,
            read: read_raw,
            of: PhantomData,
        })
    }
}

impl Kind<i64> {
    /// A number for `Effects::add`; an absent one is 0.
    ///
    /// # Panics
    ///
    /// As [`Kind::json`].
    #[must_use]
    pub const fn counter(name: &'static str) -> Self {
        Self::constant(name, Codec::Counter, write_counter, read_counter)
    }
}

impl<T> Kind<T> {
    const fn constant(
        name: &'static str,
        codec: Codec,
        write: fn(&T) -> Result<Bytes, Error>,
        read: fn(&Bytes) -> Result<T, Error>,
    ) -> Self {
        assert!(is_name(name), "a name is 1 to 128 bytes without control characters");
        Self { name: Text::constant(name), codec, is_shared: false, write, read, of: PhantomData }
    }

    /// One space for all tenants, such as stock; by default each tenant has its own.
    #[must_use]
    pub const fn shared(mut self) -> Self {
        self.is_shared = true;
        self
    }

    /// Names a row of this kind.
    #[must_use]
    pub fn at(&self, id: &str) -> ResourceRef {
        ResourceRef { kind: self.name.clone(), id: id.into(), shared: self.is_shared }
    }

    /// The same of the row at `key`, whose text it shares.
    pub(crate) fn at_key(&self, key: &RowKey, id: &str) -> ResourceRef {
        ResourceRef { kind: self.name.clone(), id: key.ending(id.len()), shared: self.is_shared }
    }

    pub(crate) fn codec(&self) -> Codec {
        self.codec
    }

    pub(crate) fn key(&self, tenant: &Tenant, id: &str) -> RowKey {
        RowKey::resource((!self.is_shared).then_some(tenant), self.name.as_str(), id)
    }

    pub(crate) fn encode(&self, value: &T) -> Result<Bytes, Error> {
        (self.write)(value)
    }

    pub(crate) fn decode(&self, bytes: &Bytes) -> Result<T, Error> {
        (self.read)(bytes)
    }
}

impl<T> Clone for Kind<T> {
    fn clone(&self) -> Self {
        Self { name: self.name.clone(), ..*self }
    }
}

impl<T> fmt::Debug for Kind<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Kind({}, {:?})", self.name.as_str(), self.codec)
    }
}

const OTHER_SHAPE: &str = "the stored value is of another shape than this kind's type";

pub(crate) fn write_json<T: Serialize>(value: &T) -> Result<Bytes, Error> {
    to_json(value)
        .map(Bytes::from)
        .map_err(|fault| Error::invalid(format!("the value cannot be written as JSON: {fault}")))
}

pub(crate) fn read_json<T: DeserializeOwned>(bytes: &Bytes) -> Result<T, Error> {
    // Where, not what: the reader's own words may quote the value.
    serde_json::from_slice(bytes).map_err(|fault| {
        let (line, column) = (fault.line(), fault.column());
        Error::invalid(format!("{OTHER_SHAPE} (line {line}, column {column})"))
    })
}

fn write_bincode<T: Serialize>(value: &T) -> Result<Bytes, Error> {
    codec::encode(value)
        .map(Bytes::from)
        .map_err(|fault| Error::invalid(format!("the value cannot be written with bincode: {fault}")))
}

fn read_bincode<T: DeserializeOwned>(bytes: &Bytes) -> Result<T, Error> {
    codec::decode_value(bytes).map_err(|_| Error::invalid(OTHER_SHAPE))
}

#[expect(clippy::unnecessary_wraps, reason = "the signature of every codec")]
pub(crate) fn write_raw(value: &Bytes) -> Result<Bytes, Error> {
    Ok(value.clone())
}

#[expect(clippy::unnecessary_wraps, reason = "the signature of every codec")]
pub(crate) fn read_raw(bytes: &Bytes) -> Result<Bytes, Error> {
    Ok(bytes.clone())
}

#[expect(
    clippy::unnecessary_wraps,
    clippy::trivially_copy_pass_by_ref,
    reason = "the signature of every codec"
)]
fn write_counter(value: &i64) -> Result<Bytes, Error> {
    Ok(Bytes::copy_from_slice(&value.to_be_bytes()))
}

fn read_counter(bytes: &Bytes) -> Result<i64, Error> {
    let number = bytes[..].try_into().map_err(|_| Error::invalid("the stored value is no counter"))?;
    Ok(i64::from_be_bytes(number))
}
