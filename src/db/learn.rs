//! Fills the filter of an open file from its tables, in slices: what is merged meanwhile was in the filter
//! before.

use std::ops::Bound;

use super::database::{Db, ascending};
use super::fault::Fault;
use crate::core::name::ScopeDigest;

/// How far the tables have been read.
#[derive(Debug)]
pub(crate) enum Learning {
    Index(Option<[u8; 16]>),
    Resource(Option<Vec<u8>>),
    Over,
}

impl Learning {
    /// Nothing has been read; a filter without memory needs nothing.
    pub fn of(db: &Db) -> Self {
        if db.filter.is_off() { Self::Over } else { Self::Index(None) }
    }

    /// Reads up to `keys` more; false when the filter is complete.
    pub fn slice(&mut self, db: &Db, keys: usize) -> Result<bool, Fault> {
        match self {
            Self::Index(after) => {
                *self = match index(db, after.as_ref(), keys)? {
                    Some(last) => Self::Index(Some(last)),
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

fn index(db: &Db, after: Option<&[u8; 16]>, keys: usize) -> Result<Option<[u8; 16]>, Fault> {
    let start = after.map_or(Bound::Unbounded, Bound::Excluded);
    let mut last = None;
    for item in db.snapshot()?.index.range::<&[u8; 16]>((start, Bound::Unbounded))?.take(keys) {
        let scope = *item?.0.value();
        ascending("index", last.as_ref().or(after).map(<[u8; 16]>::as_slice), &scope)?;
        db.filter.add_scope(ScopeDigest(scope));
        last = Some(scope);
    }
    Ok(last)
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
