//! Messages and ordering keys as operators list them, page by page. Translation only.

use std::collections::VecDeque;
use std::fmt;

use crate::core::error::Error;
use crate::core::message::{MessageId, MessageState, Post};
use crate::core::name::Tenant;
use crate::core::row::{Row, RowKey};
use crate::core::text::Text;
use crate::core::time::Timestamp;
use crate::resource::{Scan, Scanned};
use crate::store::Store;

/// An ordering key whose first message waits for somebody who settles it.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct BlockedKey {
    /// Whose messages they are.
    pub tenant: Tenant,
    /// Where they go.
    pub destination: Text,
    /// The ordering key.
    pub key: Text,
    /// The message that is dead or unknown; see [`Store::settle`].
    pub message: MessageId,
    /// Since when.
    pub since: Timestamp,
    /// How many wait behind it.
    pub waiting: u64,
}

/// Shows no key.
impl fmt::Debug for BlockedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlockedKey")
            .field("destination", &self.destination)
            .field("message", &self.message)
            .field("since", &self.since)
            .field("waiting", &self.waiting)
            .finish_non_exhaustive()
    }
}

/// Rows that are read in one go.
const PAGE_ROWS: usize = 256;

/// Rows of the store's own, as far as they are read.
#[doc(hidden)]
pub struct OwnRows<R> {
    store: Store,
    prefix: &'static [u8],
    read: fn(&RowKey, &Row) -> Option<R>,
    after: Option<RowKey>,
    page: VecDeque<R>,
    is_over: bool,
}

impl<R> OwnRows<R> {
    fn of(store: &Store, prefix: &'static [u8], read: fn(&RowKey, &Row) -> Option<R>) -> Self {
        Self { store: store.clone(), prefix, read, after: None, page: VecDeque::new(), is_over: false }
    }

    fn next(&mut self) -> Option<Result<R, Error>> {
        loop {
            if let Some(next) = self.page.pop_front() {
                return Some(Ok(next));
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

    fn fetch(&mut self) -> Result<(), Error> {
        let engine = self.store.engine();
        engine.not_inside()?;
        let page = engine.rows_after(self.prefix, self.after.as_ref(), PAGE_ROWS)?;
        self.is_over = page.is_empty();
        if let Some((last, _)) = page.last() {
            self.after = Some(last.clone());
        }
        self.page = page.iter().filter_map(|(key, row)| (self.read)(key, row)).collect();
        Ok(())
    }
}

impl Scanned for (MessageId, MessageState) {
    type Pages = OwnRows<Self>;

    fn next(messages: &mut Self::Pages) -> Option<Result<Self, Error>> {
        messages.next()
    }
}

impl Scanned for BlockedKey {
    type Pages = OwnRows<Self>;

    fn next(keys: &mut Self::Pages) -> Option<Result<Self, Error>> {
        keys.next()
    }
}

/// All messages, in the order of their ids.
pub(crate) fn messages(store: &Store) -> Scan<(MessageId, MessageState)> {
    let read = |key: &RowKey, row: &Row| Some((key.message_id()?, row.status()?.told()));
    Scan::of(OwnRows::of(store, RowKey::all_messages(), read))
}

/// All ordering keys that are blocked.
pub(crate) fn blocked_keys(store: &Store) -> Scan<BlockedKey> {
    Scan::of(OwnRows::of(store, RowKey::all_queues(), blocked))
}

fn blocked(key: &RowKey, row: &Row) -> Option<BlockedKey> {
    let Some(Post::Queue(queue)) = row.post() else { return None };
    let (tenant, destination, order) = key.queue_names()?;
    Some(BlockedKey {
        tenant: Tenant(tenant.into()),
        destination: destination.into(),
        key: order.into(),
        message: queue.head,
        since: queue.blocked?,
        waiting: queue.count.saturating_sub(1),
    })
}
