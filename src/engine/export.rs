//! Writes what a tenant takes along to another store. Owns the order in which it is read; what it is in
//! bytes is `db`'s. The tenant is handed over, so nothing of it changes meanwhile, and no snapshot is held.

use std::io::{self, Write};

use super::Engine;
use super::authority::PAGE_ROWS;
use crate::core::authority::{Item, Kept, Unit};
use crate::core::claim::Open;
use crate::core::error::{Error, ErrorKind};
use crate::core::message::Post;
use crate::core::name::Tenant;
use crate::core::row::{Content, Row, RowKey};
use crate::core::time::Timestamp;
use crate::db::stream::{ItemCounts, StreamHead, StreamWriter};

impl Engine {
    /// Writes the tenant's outcomes, open commands, rows and messages.
    pub fn export(&self, tenant: &Tenant, to: impl Write) -> Result<ItemCounts, Error> {
        self.not_inside()?;
        let Some(Unit::HandedOver { to: name, epoch }) = self.unit(tenant)? else {
            return Err(Error::invalid(format!(
                "tenant {tenant} is not handed over: only what nobody here decides about any more is exported"
            )));
        };
        let head = StreamHead {
            store_id: self.store_id,
            scope_mode: self.settings.scope_mode,
            tenant: tenant.0.clone(),
            from: (&*self.settings.owner).into(),
            to: name,
            epoch,
        };
        let out = StreamWriter::start(to, &head).map_err(|fault| unwritten(&fault))?;
        let mut export = Export { engine: self, tenant, now: self.clock.now(), out };
        export.outcomes()?;
        export.open()?;
        export.rows()?;
        export.messages()?;
        export.out.finish().map_err(|fault| unwritten(&fault))
    }
}

/// One export on its way.
struct Export<'e, W> {
    engine: &'e Engine,
    tenant: &'e Tenant,
    now: Timestamp,
    out: StreamWriter<W>,
}

impl<W: Write> Export<'_, W> {
    fn put(&mut self, item: &Item) -> Result<(), Error> {
        self.out.item(item).map_err(|fault| unwritten(&fault))
    }

    fn outcomes(&mut self) -> Result<(), Error> {
        let mut after = None;
        loop {
            let (records, last) = self.engine.read(|db| db.outcomes_after(after))?;
            for record in records.iter().filter(|record| record.entry.scope.tenant == *self.tenant) {
                self.put(&Item::Outcome(Box::new(Kept::of(record))))?;
            }
            if last.is_none() {
                return Ok(());
            }
            after = last;
        }
    }

    fn open(&mut self) -> Result<(), Error> {
        let mut after = None;
        loop {
            let page = self.engine.open_rows(after.as_ref())?;
            let Some((last, _)) = page.last() else { return Ok(()) };
            after = Some(last.clone());
            for open in page.iter().filter_map(|(_, row)| row.open()) {
                if open.scope.tenant == *self.tenant {
                    self.put(&Item::Open(Box::new(Open::clone(open))))?;
                }
            }
        }
    }

    fn rows(&mut self) -> Result<(), Error> {
        for prefix in RowKey::all_of(self.tenant) {
            let mut after = None;
            loop {
                let page = self.engine.rows_after(prefix.as_bytes(), after.as_ref(), PAGE_ROWS)?;
                let Some((last, _)) = page.last() else { break };
                after = Some(last.clone());
                for (key, row) in page {
                    let Row { event_time, content, .. } = row;
                    let content = self.as_it_leaves(content)?;
                    self.put(&Item::Row { key, event_time, content })?;
                }
            }
        }
        Ok(())
    }

    /// An ordering key is blocked where its first message leaves with an end that people have to find out.
    fn as_it_leaves(&self, content: Content) -> Result<Content, Error> {
        let Content::Post(Post::Queue(mut queue)) = content else { return Ok(content) };
        if let Some(head) = self.engine.message(queue.head)? {
            queue.blocked = head.leaving(self.now).blocks_since();
        }
        Ok(Content::Post(Post::Queue(queue)))
    }

    fn messages(&mut self) -> Result<(), Error> {
        let mut after = None;
        loop {
            let page = self.engine.rows_after(RowKey::all_messages(), after.as_ref(), PAGE_ROWS)?;
            let Some((last, _)) = page.last() else { return Ok(()) };
            after = Some(last.clone());
            for (key, row) in &page {
                let (Some(id), Some(status)) = (key.message_id(), row.status()) else { continue };
                if status.tenant == self.tenant.0 {
                    let letter = self.engine.letter(id)?;
                    self.put(&Item::Message { id, status: Box::new(status.leaving(self.now)), letter })?;
                }
            }
        }
    }
}

fn unwritten(fault: &io::Error) -> Error {
    Error::new(ErrorKind::Unavailable, format!("the export cannot be written: {fault}"))
}
