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

#[cfg(test)]
mod tests {
    use super::*;

    fn due(at: u64, seq: u64) -> RowKey {
        RowKey::due("out", Timestamp(at), MessageId { seq, ordinal: 0 })
    }

    /// Whether a scan that begins where the office says would come by a row.
    fn comes_by(post: &PostOffice, key: &RowKey) -> bool {
        post.front("out").after.is_none_or(|after| *key > after)
    }

    #[test]
    fn a_scan_begins_before_everything_that_may_be_there() {
        let post = PostOffice::default();
        let front = post.front("out");
        assert!(front.after.is_none(), "nothing is known of the list");
        post.found("out", &front, Some(&due(20, 2)));
        assert!(
            comes_by(&post, &due(20, 2)) && !comes_by(&post, &due(20, 1)) && !comes_by(&post, &due(9, 9))
        );
        // What is put before it is found again, and what is put behind it does not hide it.
        post.tell([due(10, 3), due(30, 4)].iter());
        assert!(comes_by(&post, &due(10, 3)) && !comes_by(&post, &due(10, 2)));
        let front = post.front("out");
        post.found("out", &front, None);
        assert!(!comes_by(&post, &due(u64::MAX, 9)));
        post.tell([due(5, 5)].iter());
        assert!(comes_by(&post, &due(5, 5)));
    }

    /// A scan that began before something was put into the list may not have seen it.
    #[test]
    fn a_scan_that_was_overtaken_says_nothing() {
        let post = PostOffice::default();
        let front = post.front("out");
        post.tell([due(10, 1)].iter());
        post.found("out", &front, None);
        assert!(comes_by(&post, &due(10, 1)));
        let front = post.front("out");
        post.forget();
        post.found("out", &front, None);
        assert!(comes_by(&post, &due(10, 1)));
    }

    #[test]
    fn what_is_put_into_a_list_rings_and_what_goes_elsewhere_moves_nothing() {
        let post = PostOffice::default();
        let (rung, front) = (post.rung(), post.front("out"));
        post.tell(std::iter::empty());
        assert_eq!(post.rung(), rung);
        post.tell([RowKey::due("other", Timestamp(1), MessageId { seq: 1, ordinal: 0 })].iter());
        assert_ne!(post.rung(), rung);
        post.found("out", &front, None);
        assert!(!comes_by(&post, &due(1, 1)));
    }

    #[test]
    fn a_message_is_reserved_once_until_it_is_free_again() {
        let (post, id) = (PostOffice::default(), MessageId { seq: 1, ordinal: 0 });
        assert!(post.reserve(id) && !post.reserve(id));
        post.release([id].into_iter());
        assert!(post.reserve(id));
    }
}
