//! Maps in memory that do the work of a replay: the full key, the fingerprint and the time are compared. They
//! keep nothing over a restart and, `quick_cache` apart, bound nothing; they are the floor for a lookup, no
//! peers. All hash with foldhash, seeded at random.

use std::sync::Arc;

use foldhash::fast::RandomState;

use crate::command::{Asked, Command, judged};
use crate::contender::Done;
use crate::lookup::{Looked, Plan, Reader, time};

type Key = Box<[u8]>;
/// Head and body in one piece, behind one counter.
type Value = Arc<[u8]>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Map {
    PapayaGuard,
    PapayaArc,
    SccPeek,
    QuickCache,
}

impl Map {
    pub const ALL: &[Self] = &[Self::PapayaGuard, Self::PapayaArc, Self::SccPeek, Self::QuickCache];

    pub fn name(self) -> &'static str {
        match self {
            Self::PapayaGuard => "papaya, guard",
            Self::PapayaArc => "papaya, Arc clone",
            Self::SccPeek => "scc `HashIndex`, peek",
            Self::QuickCache => "quick_cache, Arc clone",
        }
    }
}

/// The same records in each of them.
pub struct Maps {
    papaya: papaya::HashMap<Key, Value, RandomState>,
    scc: scc::HashIndex<Key, Value, RandomState>,
    quick: quick_cache::sync::Cache<Key, Value, quick_cache::UnitWeighter, RandomState>,
}

impl Maps {
    pub fn new(records: u64) -> Self {
        let records = records as usize;
        // Twice the room, so that it evicts nothing.
        let room = records * 2 + 100_000;
        Self {
            papaya: papaya::HashMap::with_capacity_and_hasher(records, RandomState::default()),
            scc: scc::HashIndex::with_capacity_and_hasher(records, RandomState::default()),
            quick: quick_cache::sync::Cache::with(
                room,
                room as u64,
                quick_cache::UnitWeighter,
                RandomState::default(),
                quick_cache::sync::DefaultLifecycle::default(),
            ),
        }
    }

    /// Each map gets bytes of its own: a body in the cache of one would be in the cache of all.
    pub fn insert(&self, map: Map, command: &Command) {
        let (key, value) = (Key::from(command.record_key()), Value::from(command.record()));
        match map {
            Map::PapayaGuard | Map::PapayaArc => {
                self.papaya.pin().insert(key, value);
            }
            Map::SccPeek => drop(self.scc.insert_sync(key, value)),
            Map::QuickCache => self.quick.insert(key, value),
        }
    }

    /// One of each kind of map.
    pub const DISTINCT: &[Map] = &[Map::PapayaGuard, Map::SccPeek, Map::QuickCache];

    pub fn time(&self, map: Map, plan: &Plan) -> Done<Looked> {
        match map {
            Map::PapayaGuard => time(&mut PapayaGuard { maps: self, body: Vec::new() }, plan),
            Map::PapayaArc => time(&mut PapayaArc { maps: self, body: Vec::new() }, plan),
            Map::SccPeek => time(&mut SccPeek { maps: self, body: Vec::new() }, plan),
            Map::QuickCache => time(&mut QuickCache { maps: self, body: Vec::new() }, plan),
        }
    }
}

/// A reader of a map: `with` runs on the value where it is, or on a counted handle of it.
macro_rules! reader {
    ($name:ident, |$maps:ident, $asked:ident, $on:ident| $look:expr) => {
        struct $name<'m> {
            maps: &'m Maps,
            body: Vec<u8>,
        }

        impl $name<'_> {
            #[inline]
            fn with<R>($maps: &Maps, $asked: &Asked, $on: impl FnOnce(&[u8]) -> Option<R>) -> Option<R> {
                $look
            }
        }

        impl Reader for $name<'_> {
            type Asked = Asked;

            fn ask(&self, command: &Command) -> Done<Asked> {
                Ok(Asked::of(command))
            }

            #[inline]
            fn judged(&mut self, asked: &Asked) -> bool {
                let judge = |found: &[u8]| judged(found, &asked.fingerprint).map(|_| ());
                Self::with(self.maps, asked, judge).is_some()
            }

            #[inline]
            fn answered(&mut self, asked: &Asked) -> Option<&[u8]> {
                let body = &mut self.body;
                body.clear();
                let copy = |found: &[u8]| {
                    judged(found, &asked.fingerprint).map(|found| body.extend_from_slice(found))
                };
                Self::with(self.maps, asked, copy)?;
                Some(&self.body)
            }
        }
    };
}

reader!(PapayaGuard, |maps, asked, on| maps.papaya.pin().get(&asked.key[..]).and_then(|found| on(found)));
reader!(PapayaArc, |maps, asked, on| {
    let found = maps.papaya.pin().get(&asked.key[..]).cloned();
    found.and_then(|found| on(&found))
});
reader!(SccPeek, |maps, asked, on| maps.scc.peek_with(&asked.key[..], |_, found| on(found)).flatten());
reader!(QuickCache, |maps, asked, on| maps.quick.get(&asked.key[..]).and_then(|found| on(&found)));
