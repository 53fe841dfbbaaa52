//! Fills the filter of an open file from its tables, in slices: what is merged meanwhile was in the filter
//! before.

use std::ops::Bound;

use super::database::{Db, ascending};
use super::fault::Fault;
use super::index;
use super::tables::IndexKey;

/// How far the tables have been read.
#[derive(Debug)]
pub(crate) enum Learning {
    /// The next scope, or one before it.
    Index(IndexKey),
    Resource(Option<Vec<u8>>),
    Over,
}

impl Learning {
    /// Nothing has been read; a filter without memory needs nothing.
    pub fn of(db: &Db) -> Self {
        if db.filter.is_off() { Self::Over } else { Self::Index(index::FIRST) }
    }

    /// Reads about `keys` more; false when the filter is complete.
    pub fn slice(&mut self, db: &Db, keys: usize) -> Result<bool, Fault> {
        match self {
            Self::Index(start) => {
                *self = match index_from(db, start, keys)? {
                    Some(next) => Self::Index(next),
                    None => Self::Resource(None),
                };
            }
            Self::Resource(after) => {
                *self = if let Some(last) = resource(db, after.as_deref(), keys)? {
                    Self::Resource(Some(last))
                } else {
                    db.filter.complete();
                    Self::Over
                };
            }
            Self::Over => {}
        }
        Ok(!matches!(self, Self::Over))
    }
}

/// Reads blocks until they had so many scopes. Returns where the next one begins.
fn index_from(db: &Db, start: &IndexKey, keys: usize) -> Result<Option<IndexKey>, Fault> {
    let snapshot = db.snapshot()?;
    let (mut next, mut read) = (Some(*start), 0);
    while let Some(start) = next.filter(|_| read < keys) {
        let Some(block) = index::block_of(&snapshot.index, &start)? else { return Ok(None) };
        for (scope, _) in block.scopes()?.from(&start) {
            db.filter.add_scope(scope);
            read += 1;
        }
        next = block.end;
    }
    Ok(next)
}

fn resource(db: &Db, after: Option<&[u8]>, keys: usize) -> Result<Option<Vec<u8>>, Fault> {
    let start = after.map_or(Bound::Unbounded, Bound::Excluded);
    let mut last: Option<Vec<u8>> = None;
    for item in db.snapshot()?.resource.range::<&[u8]>((start, Bound::Unbounded))?.take(keys) {
        let (key, _) = item?;
        ascending("resource", last.as_deref().or(after), key.value())?;
        db.filter.add_row(key.value());
        last = Some(key.value().to_vec());
    }
    Ok(last)
}
