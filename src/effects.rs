//! What a closure reads and wants: the typed face of staging. Translation only.

use std::fmt;
use std::marker::PhantomData;

use crate::core::effect::{Change, Value};
use crate::core::error::Error;
use crate::core::name::{ID_BYTES_MAX, NAME_BYTES_MAX, Tenant, checked};
use crate::core::outcome::ResourceRef;
use crate::core::row::{Content, Row, RowKey};
use crate::core::time::Timestamp;
use crate::engine::staging::Staging;
use crate::kind::Kind;
use crate::message::Message;
use crate::resource::{Resource, decoded};

/// What a command reads and wants changed. Each read sees the command's own changes and is checked again at
/// commit; nothing is written before. Methods fail on limits and on encoding only.
///
/// ```
/// # use onecho::{testing::SimDisk, *};
/// const SEATS: Kind<i64> = Kind::counter("seats");
/// const BOOKINGS: Kind<String> = Kind::json("booking");
/// # let store = SimDisk::seeded(1).open(Options::new())?;
/// # let (tenant, book) = (Tenant::new("t"), Operation::new("book"));
/// # let request = Request::new(&tenant, &book, &Key::parse("k")?).bytes("body", "x");
/// let reply = store.execute(&request, |fx| {
///     if !fx.add(&SEATS, "flight-7", -1, -100)? {
///         return Ok(Outcome::failed(409)); // sold out: recorded, and replayed
///     }
///     let id = fx.new_id();
///     let booking = fx.create(&BOOKINGS, &id, &"Ada".to_owned())?;
///     fx.unique("passenger", "Ada", &booking)?;
///     Ok(Outcome::succeeded(201).resource(&booking))
/// })?;
/// assert_eq!(reply.into_finished().unwrap().code, 201);
/// # Ok::<(), BoxError>(())
/// ```
pub struct Effects<'s, 'e> {
    staging: &'s mut Staging<'e>,
    /// The first failure of a method that returns no `Result`.
    failed: Option<Error>,
    /// A closure's effects stay on its thread.
    on_thread: PhantomData<*const ()>,
}

impl<'s, 'e> Effects<'s, 'e> {
    pub(crate) fn new(staging: &'s mut Staging<'e>) -> Self {
        Self { staging, failed: None, on_thread: PhantomData }
    }

    pub(crate) fn into_failed(self) -> Option<Error> {
        self.failed
    }

    /// A row, with this command's own changes on it. That it is so, or absent, must still hold at commit;
    /// else the closure is called again. A row this command has changed shows version 0 until it is
    /// committed.
    ///
    /// # Errors
    ///
    /// `Invalid` when the row was written with another codec or is no `T`; `LimitExceeded` above 1,024 rows;
    /// `Corrupt` or `Unavailable` when it cannot be read.
    pub fn get<T>(&mut self, kind: &Kind<T>, id: &str) -> Result<Option<Resource<T>>, Error> {
        let key = self.key(kind, id)?;
        let row = self.staging.read(&key)?;
        row.map(|row| decoded(kind, id, row)).transpose()
    }

    /// Makes a row that must not exist; where it does, the command is answered `Duplicate`.
    ///
    /// # Errors
    ///
    /// `Invalid` when the value cannot be written, `LimitExceeded` when it or the command grows too large.
    pub fn create<T>(&mut self, kind: &Kind<T>, id: &str, value: &T) -> Result<ResourceRef, Error> {
        let value = encoded(kind, value)?;
        self.stage(kind, id, Change::Create(value))
    }

    /// Writes a row, whatever stands there. With a [`get`](Effects::get) before it, only over what was read.
    ///
    /// # Errors
    ///
    /// As [`Effects::create`].
    pub fn put<T>(&mut self, kind: &Kind<T>, id: &str, value: &T) -> Result<ResourceRef, Error> {
        let value = encoded(kind, value)?;
        self.stage(kind, id, Change::Put(value))
    }

    /// Writes a row unless it has seen an event of this time or a newer one; then the row stays, counted as
    /// stale.
    ///
    /// # Errors
    ///
    /// As [`Effects::create`].
    pub fn put_if_newer<T>(
        &mut self,
        kind: &Kind<T>,
        id: &str,
        time: Timestamp,
        value: &T,
    ) -> Result<(), Error> {
        let value = encoded(kind, value)?;
        self.stage(kind, id, Change::PutIfNewer(value, time)).map(drop)
    }

    /// Adds, unless that ends below `floor`: says which. Guards only this answer, so that a hot counter does
    /// not conflict.
    ///
    /// # Errors
    ///
    /// `LimitExceeded` when the sum leaves 64 bits.
    pub fn add(&mut self, kind: &Kind<i64>, id: &str, by: i64, floor: i64) -> Result<bool, Error> {
        let key = self.key(kind, id)?;
        self.staging.add(key, by, floor)
    }

    /// Removes a row; one that is absent stays so. Uniquenesses it holds stay taken.
    ///
    /// # Errors
    ///
    /// `LimitExceeded` when the command grows too large.
    pub fn remove<T>(&mut self, kind: &Kind<T>, id: &str) -> Result<(), Error> {
        self.stage(kind, id, Change::Remove).map(drop)
    }

    /// Removes a row unless it has seen an event of this time or a newer one. Leaves the time behind, so that
    /// an older event does not bring the row back.
    ///
    /// # Errors
    ///
    /// As [`Effects::remove`].
    pub fn remove_if_newer<T>(&mut self, kind: &Kind<T>, id: &str, time: Timestamp) -> Result<(), Error> {
        self.stage(kind, id, Change::RemoveIfNewer(time)).map(drop)
    }

    /// Takes a value under a name for `holder`, within its tenant, or within all where the holder is shared.
    /// Where another holds it, the command is answered `Duplicate`. It stays taken until
    /// [`Effects::release`].
    ///
    /// # Errors
    ///
    /// `Invalid` for an empty name or value, `LimitExceeded` for one too long.
    pub fn unique(&mut self, name: &str, value: &str, holder: &ResourceRef) -> Result<(), Error> {
        let key = self.unique_key(name, value, holder)?;
        self.staging.stage(key, Change::Unique(holder.clone()))
    }

    /// Frees a value if `holder` holds it; otherwise nothing changes.
    ///
    /// # Errors
    ///
    /// As [`Effects::unique`].
    pub fn release(&mut self, name: &str, value: &str, holder: &ResourceRef) -> Result<(), Error> {
        let key = self.unique_key(name, value, holder)?;
        self.staging.stage(key, Change::Release(holder.clone()))
    }

    /// Makes a message in the commit of this command: it is there if the command is done, and else was never.
    /// Its id is in [`Finished::messages`](crate::Finished::messages).
    ///
    /// # Errors
    ///
    /// `LimitExceeded` for a payload, headers or a key that are too large, above 1,024 messages, or when the
    /// command grows too large; `Invalid` for one with a key of its own ([`Message::keyed`]).
    pub fn enqueue(&mut self, message: Message) -> Result<(), Error> {
        self.staging.enqueue(message.into_new())
    }

    /// An id that sorts by time (UUID version 7, RFC 9562); the same when this closure is called again.
    /// Should the operating system give no random bytes, the command fails when the closure returns.
    pub fn new_id(&mut self) -> String {
        self.staging.new_id().unwrap_or_else(|error| {
            self.failed.get_or_insert(error);
            String::new()
        })
    }

    /// The store's time when the closure was called.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.staging.now()
    }

    fn key<T>(&self, kind: &Kind<T>, id: &str) -> Result<RowKey, Error> {
        checked("id", id, ID_BYTES_MAX)?;
        Ok(kind.key(self.staging.tenant(), id))
    }

    /// Stages a change of a row; names the row.
    fn stage<T>(&mut self, kind: &Kind<T>, id: &str, change: Change) -> Result<ResourceRef, Error> {
        let key = self.key(kind, id)?;
        let row = kind.at_key(&key, id);
        self.staging.stage(key, change)?;
        Ok(row)
    }

    fn unique_key(&self, name: &str, value: &str, holder: &ResourceRef) -> Result<RowKey, Error> {
        holder.check()?;
        unique_key(self.staging.tenant(), name, value, holder.is_shared())
    }
}

/// The row of a uniqueness.
pub(crate) fn unique_key(tenant: &Tenant, name: &str, value: &str, is_shared: bool) -> Result<RowKey, Error> {
    checked("name of the uniqueness", name, NAME_BYTES_MAX)?;
    checked("value of the uniqueness", value, ID_BYTES_MAX)?;
    Ok(RowKey::unique((!is_shared).then_some(tenant), name, value))
}

/// The holder in the row of a uniqueness.
pub(crate) fn holder_of(row: Option<Row>) -> Option<ResourceRef> {
    match row?.content {
        Content::Held(holder) => Some(holder),
        Content::Value { .. } | Content::Removed | Content::Open(_) | Content::Post(_) | Content::Unit(_) => {
            None
        }
    }
}

fn encoded<T>(kind: &Kind<T>, value: &T) -> Result<Value, Error> {
    Ok(Value { codec: kind.codec(), bytes: kind.encode(value)? })
}

impl fmt::Debug for Effects<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Effects").finish_non_exhaustive()
    }
}
