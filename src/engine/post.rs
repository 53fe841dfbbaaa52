//! Where the writer and the workers meet: what has become due rings a bell, and a scan of what is due begins
//! where the last one found the first. Owns the bell, the beginnings of scans and what is being taken; all of
//! it can be forgotten, for the file knows what is due.

use std::time::Duration;

use foldhash::{HashMap, HashSet};

use super::sync::{Bell, Mutex};
use crate::core::message::MessageId;
use crate::core::row::RowKey;
use crate::core::time::Timestamp;

/// Shared by the writer and all workers of a store.
#[derive(Default)]
pub(crate) struct PostOffice {
    lists: Mutex<HashMap<String, List>>,
    /// Messages that somebody of this process is about to take.
    reserved: Mutex<HashSet<MessageId>>,
    bell: Bell,
}

/// The list of what is due at one destination. What was taken from its front leaves removed rows behind until
/// they are merged, and a scan that went through them each time would take quadratic time.
#[derive(Default)]
struct List {
    /// Nothing stands up to this key.
    empty_to: Option<RowKey>,
    /// How often something was put into it.
    put: u64,
}

/// A moment before a scan: what was put into the list since is not forgotten.
pub(crate) struct Front {
    pub after: Option<RowKey>,
    put: u64,
}

impl PostOffice {
    /// Messages are due, or will be.
    pub fn tell<'k>(&self, keys: impl Iterator<Item = &'k RowKey>) {
        let mut keys = keys.peekable();
        if keys.peek().is_none() {
            return;
        }
        {
            let mut lists = self.lists.lock();
            for key in keys {
                let Some(list) = key.destination().and_then(|name| lists.get_mut(name)) else { continue };
                list.put += 1;
                if list.empty_to.as_ref().is_some_and(|empty_to| empty_to >= key) {
                    list.empty_to = key.before_due();
                }
            }
        }
        self.bell.ring();
    }

    /// Where a scan of a destination begins.
    pub fn front(&self, destination: &str) -> Front {
        let mut lists = self.lists.lock();
        if !lists.contains_key(destination) {
            lists.insert(destination.to_owned(), List::default());
        }
        let list = lists.get(destination);
        Front { after: list.and_then(|list| list.empty_to.clone()), put: list.map_or(0, |list| list.put) }
    }

    /// A scan from `front` on found this row first, or none.
    pub fn found(&self, destination: &str, front: &Front, first: Option<&RowKey>) {
        let empty_to = if let Some(first) = first {
            first.before_due()
        } else {
            let last = MessageId { seq: u64::MAX, ordinal: u32::MAX };
            Some(RowKey::due(destination, Timestamp::FOREVER, last))
        };
        if let Some(list) = self.lists.lock().get_mut(destination)
            && list.put == front.put
        {
            list.empty_to = empty_to;
        }
    }

    /// What was committed is not sure any more: the file is read anew.
    pub fn forget(&self) {
        self.lists.lock().values_mut().for_each(|list| {
            list.empty_to = None;
            list.put += 1;
        });
        self.bell.ring();
    }

    /// Reserves a message, unless somebody is about to take it.
    pub fn reserve(&self, id: MessageId) -> bool {
        self.reserved.lock().insert(id)
    }

    /// Gives reserved messages free: they are taken, or will not be.
    pub fn release(&self, ids: impl Iterator<Item = MessageId>) {
        let mut reserved = self.reserved.lock();
        ids.for_each(|id| {
            reserved.remove(&id);
        });
    }

    /// How often the bell has rung.
    pub fn rung(&self) -> u32 {
        self.bell.rung()
    }

    /// Sleeps until it rings again, for `span` at most.
    pub fn wait(&self, rung: u32, span: Option<Duration>) {
        self.bell.wait(rung, span);
    }

    /// Wakes all workers: they have to look at something else than the file.
    pub fn ring(&self) {
        self.bell.ring();
    }
}
