//! A list that most often has one item. Owns where its items lie; must not know what they are.

use std::slice;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The items of a list; one by itself takes no block, and a clone takes none either.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum Few<T> {
    One(T),
    Many(Arc<[T]>),
}

impl<T> Few<T> {
    /// The items of an iterator that can be walked twice. One that knows its end takes one block.
    pub fn of(mut items: impl Iterator<Item = T> + Clone) -> Self {
        if items.clone().nth(1).is_none()
            && let Some(item) = items.next()
        {
            return Self::One(item);
        }
        Self::Many(items.collect())
    }

    /// Puts an item in front of the one at `at`.
    pub fn insert(&mut self, at: usize, item: T)
    where
        T: Clone,
    {
        let (before, behind) = self.as_slice().split_at(at);
        *self = if before.len() + behind.len() == 0 {
            Self::One(item)
        } else {
            Self::Many(before.iter().chain([&item]).chain(behind).cloned().collect())
        };
    }

    pub fn as_slice(&self) -> &[T] {
        match self {
            Self::One(item) => slice::from_ref(item),
            Self::Many(items) => items,
        }
    }
}

impl<T> Default for Few<T> {
    fn default() -> Self {
        Self::Many(Arc::default())
    }
}

impl<T> From<Vec<T>> for Few<T> {
    fn from(items: Vec<T>) -> Self {
        match <[T; 1]>::try_from(items) {
            Ok([item]) => Self::One(item),
            Err(items) => Self::Many(items.into()),
        }
    }
}

/// As a `Vec`.
impl<T: Serialize> Serialize for Few<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.as_slice().serialize(serializer)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Few<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Vec::deserialize(deserializer).map(Self::from)
    }
}
