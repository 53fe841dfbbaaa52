//! Rows as a user reads them, one by one or page by page. Translation only.

use std::collections::VecDeque;
use std::fmt;

use crate::core::effect::wrong_codec;
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
        Content::Removed | Content::Held(_) | Content::Open(_) | Content::Post(_) | Content::Unit(_) => {
            return Err(wrong_codec(&kind.at(id), "no value"));
        }
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
pub struct Scan<R: Scanned>(R::Pages);

/// What can be read page by page. Closed: the store alone makes scans.
pub trait Scanned: Sized {
    /// Where its items come from.
    #[doc(hidden)]
    type Pages;
    /// The next item.
    #[doc(hidden)]
    fn next(pages: &mut Self::Pages) -> Option<Result<Self, Error>>;
}

impl<R: Scanned> Scan<R> {
    pub(crate) fn of(pages: R::Pages) -> Self {
        Self(pages)
    }
}

impl<T> Scan<Resource<T>> {
    pub(crate) fn new(store: &Store, kind: &Kind<T>, prefix: RowKey) -> Self {
        Self(Rows {
            store: store.clone(),
            kind: kind.clone(),
            prefix,
            after: None,
            page: VecDeque::new(),
            is_over: false,
        })
    }

    /// Goes on behind an id. An id that does not begin with the prefix and sorts after it ends the scan.
    pub fn after(mut self, id: &str) -> Self {
        self.0.after = Some(self.0.prefix.sibling(id));
        self.0.page.clear();
        self.0.is_over = false;
        self
    }
}

impl<R: Scanned> Iterator for Scan<R> {
    type Item = Result<R, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        R::next(&mut self.0)
    }
}

impl<R: Scanned> fmt::Debug for Scan<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scan").finish_non_exhaustive()
    }
}

/// The rows of one kind, as far as they are read.
#[doc(hidden)]
pub struct Rows<T> {
    store: Store,
    kind: Kind<T>,
    prefix: RowKey,
    after: Option<RowKey>,
    page: VecDeque<(RowKey, Row)>,
    is_over: bool,
}

impl<T> Scanned for Resource<T> {
    type Pages = Rows<T>;

    fn next(rows: &mut Rows<T>) -> Option<Result<Self, Error>> {
        loop {
            while let Some((key, row)) = rows.page.pop_front() {
                if row.is_there() {
                    return Some(decoded(&rows.kind, &key.reference().id, row));
                }
            }
            if rows.is_over {
                return None;
            }
            if let Err(fault) = rows.fetch() {
                rows.is_over = true;
                return Some(Err(fault));
            }
        }
    }
}

impl<T> Rows<T> {
    fn fetch(&mut self) -> Result<(), Error> {
        self.store.engine().not_inside()?;
        let page = self.store.engine().rows_after(self.prefix.as_bytes(), self.after.as_ref(), PAGE_ROWS)?;
        self.is_over = page.is_empty();
        if let Some((last, _)) = page.last() {
            self.after = Some(last.clone());
        }
        self.page = page.into();
        Ok(())
    }
}
