//! Rows as a user reads them, one by one or page by page. Translation only.

use std::collections::VecDeque;
use std::fmt;

use crate::core::decide::wrong_codec;
use crate::core::error::Error;
use crate::core::row::{Content, Row, RowKey};
use crate::core::time::Timestamp;
use crate::kind::Kind;
use crate::store::Store;

/// A row that was read.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Resource<T> {
    /// The id within its kind.
    pub id: String,
    /// What it holds.
    pub value: T,
    /// Grows with each change of the row; unique in the store.
    pub version: u64,
    /// The time of the newest event it has seen, where events write it.
    pub event_time: Option<Timestamp>,
}

impl<T> fmt::Debug for Resource<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resource")
            .field("id", &self.id)
            .field("version", &self.version)
            .field("event_time", &self.event_time)
            .finish_non_exhaustive()
    }
}

/// A row read as a value of its kind.
pub(crate) fn decoded<T>(kind: &Kind<T>, id: &str, row: Row) -> Result<Resource<T>, Error> {
    let bytes = match row.content {
        Content::Value { codec, bytes } if codec == kind.codec() => bytes,
        Content::Value { codec, .. } => return Err(wrong_codec(&kind.at(id), &format!("{codec:?}"))),
        Content::Removed | Content::Held(_) => return Err(wrong_codec(&kind.at(id), "no value")),
    };
    Ok(Resource {
        id: id.to_owned(),
        value: kind.decode(&bytes)?,
        version: row.version,
        event_time: row.event_time,
    })
}

/// Rows read in one go.
const PAGE_ROWS: usize = 256;

/// Rows page by page, in ascending order of their ids. A row that changes meanwhile is seen old or new, each
/// row at most once; one that is added behind the reader is not seen. To decide by a row, use `Effects::get`.
///
/// ```
/// # use onecho::{testing::SimDisk, *};
/// const NOTES: Kind<String> = Kind::json("note");
/// # let store = SimDisk::seeded(1).open(Options::new())?;
/// # let tenant = Tenant::new("t");
/// for note in store.scan(&tenant, &NOTES, "2026-").after("2026-11-30") {
///     println!("{}", note?.value);
/// }
/// # Ok::<(), BoxError>(())
/// ```
#[must_use]
pub struct Scan<T> {
    store: Store,
    kind: Kind<T>,
    prefix: RowKey,
    after: Option<RowKey>,
    page: VecDeque<(RowKey, Row)>,
    is_over: bool,
}

impl<T> Scan<T> {
    pub(crate) fn new(store: &Store, kind: &Kind<T>, prefix: RowKey) -> Self {
        Self {
            store: store.clone(),
            kind: kind.clone(),
            prefix,
            after: None,
            page: VecDeque::new(),
            is_over: false,
        }
    }

    /// Goes on behind an id. An id that does not begin with the prefix and sorts after it ends the scan.
    pub fn after(mut self, id: &str) -> Self {
        self.after = Some(self.prefix.sibling(id));
        self.page.clear();
        self
    }

    fn fetch(&mut self) -> Result<(), Error> {
        self.store.engine().not_inside()?;
        let after = self.after.as_ref().map(RowKey::as_bytes);
        let page = self.store.engine().rows_after(self.prefix.as_bytes(), after, PAGE_ROWS)?;
        self.is_over = page.len() < PAGE_ROWS;
        if let Some((last, _)) = page.last() {
            self.after = Some(last.clone());
        }
        self.page = page.into();
        Ok(())
    }
}

impl<T> Iterator for Scan<T> {
    type Item = Result<Resource<T>, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            while let Some((key, row)) = self.page.pop_front() {
                if row.is_there() {
                    return Some(decoded(&self.kind, &key.reference().id, row));
                }
            }
            if self.is_over {
                return None;
            }
            if let Err(fault) = self.fetch() {
                self.is_over = true;
                return Some(Err(fault));
            }
        }
    }
}

impl<T> fmt::Debug for Scan<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scan").field("kind", &self.kind).finish_non_exhaustive()
    }
}
