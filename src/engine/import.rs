//! Reads what a tenant takes along from another store, in bounded commits; the authority comes last. Owns the
//! order of these steps; what may be written is the core's to decide, what the bytes mean is `db`'s.
//!
//! Until all of it was read and agrees with its end, nobody decides about the tenant here. What an
//! interrupted import has left is taken away by the next one, but for outcomes, which are true whoever
//! reads them.

use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::Engine;
use super::authority::{PAGE_ROWS, changed_hands};
use super::claims::queue_full;
use super::clock::Deadline;
use super::draft::{Draft, Verdict};
use crate::core::act::Act;
use crate::core::authority::{Item, Kept, Unit};
use crate::core::effect::Staged;
use crate::core::error::{Error, ErrorKind};
use crate::core::fact::check_actor;
use crate::core::message::{MessageId, Post};
use crate::core::name::{Tenant, is_reserved};
use crate::core::policy::Policy;
use crate::core::row::{Content, RowKey};
use crate::core::text::Text;
use crate::core::time::Timestamp;
use crate::db::fault::Unreadable;
use crate::db::stream::{ItemCounts, StreamHead, StreamReader, Unread};

/// The most items, and about the most bytes, of one commit.
const BATCH_ITEMS: usize = 256;
const BATCH_BYTES: usize = 1 << 20;
/// How long it waits for room in the queue.
const PATIENCE: Duration = Duration::from_secs(30);

/// What was imported, and under which epoch the tenant is this store's.
pub(crate) struct Imported {
    pub tenant: Tenant,
    pub epoch: u64,
    pub counts: ItemCounts,
}

type NewRow = (RowKey, Option<Timestamp>, Content);

impl Engine {
    /// Reads what another store has exported, and takes the authority over its tenant.
    pub fn import(&self, from: impl Read, actor: &str) -> Result<Imported, Error> {
        self.not_inside()?;
        check_actor(actor)?;
        let (mut stream, head) = StreamReader::start(from).map_err(unread)?;
        let tenant = self.expected(&head)?;
        if !self.has_room() {
            return Err(Error::new(ErrorKind::Unavailable, "the disk is full: nothing was written"));
        }
        let actor: Arc<str> = actor.into();
        let was_here = self.unit(&tenant)?.is_some();
        // Before any row of it is there.
        self.has_units.store(true, Ordering::Release);
        let arrive = Act::Arrive { from: head.from.clone(), epoch: head.epoch };
        let (arrival, is_new) = match self.of_unit(&tenant, arrive, &actor)? {
            (Unit::Owned { .. }, arrival) => (arrival, false),
            (_, arrival) => (arrival, true),
        };
        let mut import = Import {
            engine: self,
            head: &head,
            tenant: &tenant,
            arrival,
            actor: &actor,
            drafts: Vec::new(),
            rows: Vec::new(),
            bytes: 0,
        };
        if is_new {
            import.clear()?;
        }
        while let Some(item) = stream.next().map_err(unread)? {
            if is_new {
                import.take(item)?;
            }
        }
        let mut epoch = head.epoch.saturating_add(1);
        if is_new {
            import.flush()?;
            if was_here {
                // What memory has of an earlier time may have been followed by a later use of its key.
                self.index.clear();
            }
            epoch = self.of_unit(&tenant, Act::Own { arrival }, &actor)?.0.epoch();
        }
        Ok(Imported { tenant, epoch, counts: stream.counts() })
    }

    /// Refuses what was exported for somebody else.
    fn expected(&self, head: &StreamHead) -> Result<Tenant, Error> {
        if head.to != *self.settings.owner {
            return Err(Error::invalid(format!(
                "tenant {} was handed over to {}, and this store is {} (`Options::owner`): nothing was \
                 written",
                head.tenant, head.to, self.settings.owner
            )));
        }
        if head.store_id == self.store_id {
            return Err(Error::invalid("this store has exported it itself: nothing was written"));
        }
        if head.scope_mode != self.settings.scope_mode {
            let text = format!("it is of a store with scope mode {:?}: nothing was written", head.scope_mode);
            return Err(Error::new(ErrorKind::ScopeMode, text));
        }
        Tenant::parse(&head.tenant).map_err(|_| damaged("it is of no tenant"))
    }

    fn of_unit(&self, tenant: &Tenant, act: Act, actor: &Arc<str>) -> Result<(Unit, u64), Error> {
        let asked = self.post_asked(tenant)?;
        match self.submit_post(&asked, act, Staged::default(), actor)? {
            Verdict::Unit { unit, version } => Ok((unit, version)),
            Verdict::Fault(error) => Err(error),
            _ => Err(changed_hands()),
        }
    }
}

/// One import on its way, and what of it is not committed yet.
struct Import<'e> {
    engine: &'e Engine,
    head: &'e StreamHead,
    tenant: &'e Tenant,
    arrival: u64,
    actor: &'e Arc<str>,
    drafts: Vec<Draft>,
    rows: Vec<NewRow>,
    bytes: usize,
}

impl Import<'_> {
    /// Takes away what the file has of the tenant from an earlier time: what is true now is in the stream.
    fn clear(&self) -> Result<(), Error> {
        let mut prefixes: Vec<Vec<u8>> = RowKey::all_of(self.tenant).map(String::into_bytes).into();
        prefixes.extend([RowKey::all_open().to_vec(), RowKey::all_messages().to_vec()]);
        for prefix in prefixes {
            let mut after = None;
            loop {
                let page = self.engine.rows_after(&prefix, after.as_ref(), PAGE_ROWS)?;
                let Some((last, _)) = page.last() else { break };
                after = Some(last.clone());
                let mut keys = Vec::new();
                for (key, row) in page {
                    if let (Some(id), Some(status)) = (key.message_id(), row.status()) {
                        if status.tenant != self.tenant.0 {
                            continue;
                        }
                        keys.extend([RowKey::letter(id), RowKey::flying(id)]);
                        keys.extend(status.due_key(id));
                    } else if row.open().is_some_and(|open| open.scope.tenant != *self.tenant) {
                        continue;
                    }
                    keys.push(key);
                }
                self.engine.clear(self.tenant, Some(self.arrival), &keys, self.actor)?;
            }
        }
        Ok(())
    }

    fn take(&mut self, item: Item) -> Result<(), Error> {
        match item {
            Item::Outcome(kept) => self.outcome(*kept)?,
            Item::Open(open) => {
                self.own(&open.scope.tenant.0)?;
                let asked = self.engine.asked_of(&open.scope, &open.fingerprint);
                let policy = *self.engine.settings.policy(&open.scope.operation);
                let act = Act::BringOpen { arrival: self.arrival, open };
                self.draft(Draft::note(&asked, &policy, act, Staged::default(), self.actor)?);
            }
            Item::Row { key, event_time, content } => {
                let is_own = RowKey::all_of(self.tenant)
                    .iter()
                    .any(|prefix| key.as_bytes().starts_with(prefix.as_bytes()));
                if !is_own {
                    return Err(damaged("a row is of another tenant"));
                }
                let content = self.renamed(content)?;
                self.row((key, event_time, content));
            }
            Item::Message { id, mut status, letter } => {
                self.own(&status.tenant)?;
                let id = self.here(id)?;
                status.next = status.next.map(|next| self.here(next)).transpose()?;
                if let Some(letter) = letter {
                    self.row((RowKey::letter(id), None, Content::Post(Post::Letter(letter))));
                }
                self.row((RowKey::message(id), None, Content::Post(Post::Status(status))));
            }
        }
        if self.drafts.len() + self.rows.len() >= BATCH_ITEMS || self.bytes >= BATCH_BYTES {
            self.flush()?;
        }
        Ok(())
    }

    fn outcome(&mut self, mut kept: Kept) -> Result<(), Error> {
        self.own(&kept.told.scope.tenant.0)?;
        kept.made.0 = self.here(kept.made.0)?;
        let asked = self.engine.asked_of(&kept.told.scope, &kept.told.fingerprint);
        let (arrival, generation, facts) = (self.arrival, kept.generation, kept.facts());
        let policy = Policy::of_windows(kept.windows);
        let act = Act::BringOutcome { arrival, generation, facts };
        self.draft(Draft::telling(&asked, &policy, act, kept.told, Staged::default())?);
        Ok(())
    }

    /// Refuses what is of another tenant than the head says.
    fn own(&self, tenant: &Text) -> Result<(), Error> {
        if *tenant == self.tenant.0 && !is_reserved(tenant) {
            return Ok(());
        }
        Err(damaged("it holds something of another tenant"))
    }

    /// What a message is called here.
    fn here(&self, id: MessageId) -> Result<MessageId, Error> {
        id.moved(&self.head.store_id, &self.engine.store_id).ok_or_else(|| {
            Error::new(ErrorKind::LimitExceeded, format!("message {id} has too large a number"))
        })
    }

    /// What names messages names them as they are called here.
    fn renamed(&self, content: Content) -> Result<Content, Error> {
        Ok(match content {
            Content::Post(Post::Known(id)) => Content::Post(Post::Known(self.here(id)?)),
            Content::Post(Post::Queue(mut queue)) => {
                (queue.head, queue.tail) = (self.here(queue.head)?, self.here(queue.tail)?);
                Content::Post(Post::Queue(queue))
            }
            other => other,
        })
    }

    fn draft(&mut self, draft: Draft) {
        self.bytes += draft.size().bytes;
        self.drafts.push(draft);
    }

    fn row(&mut self, row: NewRow) {
        self.bytes += row.0.as_bytes().len() + row.2.bytes();
        self.rows.push(row);
    }

    /// Commits what was taken so far.
    fn flush(&mut self) -> Result<(), Error> {
        let mut drafts = std::mem::take(&mut self.drafts);
        let rows = std::mem::take(&mut self.rows);
        self.bytes = 0;
        let engine = self.engine;
        if !rows.is_empty() {
            let asked = engine.post_asked(self.tenant)?;
            let act = Act::Bring { arrival: self.arrival, rows };
            let policy = engine.settings.default_policy;
            drafts.push(Draft::note(&asked, &policy, act, Staged::default(), self.actor)?);
        }
        if drafts.is_empty() {
            return Ok(());
        }
        let size =
            drafts.iter().map(Draft::size).fold(super::queue::Size::default(), super::queue::Size::and);
        let answers = engine.queue.submit(drafts, size, 0, Deadline::after(PATIENCE), engine);
        for verdict in answers.map_err(|_| queue_full())?? {
            match verdict {
                Verdict::Gone | Verdict::Open(_) => {}
                Verdict::Fault(error) => return Err(error),
                _ => return Err(changed_hands()),
            }
        }
        Ok(())
    }
}

fn damaged(what: &str) -> Error {
    Error::new(ErrorKind::Corrupt, format!("what is to be imported is damaged: {what}; export it again"))
}

fn unread(fault: Unread) -> Error {
    match fault {
        Unread::Damaged(Unreadable::Damaged(what)) => damaged(&what),
        Unread::Damaged(Unreadable::Newer(what)) => {
            let text = format!("what is to be imported is of a newer version: {what}");
            Error::new(ErrorKind::UnsupportedFormat, text)
        }
        Unread::Source(fault) => {
            Error::new(ErrorKind::Unavailable, format!("what is to be imported cannot be read: {fault}"))
        }
    }
}
