//! LMDB, by heed: a database of records, a database of rows, one write transaction a call, synced as it comes
//! (two syncs a commit). The map is 16 GiB of address space; the file grows as it is filled.

use std::path::Path;

use heed::types::Bytes;
use heed::{Database, Env, EnvOpenOptions, WithTls};

use crate::command::{Asked, Command, judged};
use crate::contender::{Contender, Done, Looks};
use crate::lookup::{Finds, Gets, Looked, Plan, time};

pub struct Lmdb {
    env: Env<WithTls>,
    records: Database<Bytes, Bytes>,
    rows: Database<Bytes, Bytes>,
}

impl Lmdb {
    pub fn open(dir: &Path) -> Done<Self> {
        let mut options = EnvOpenOptions::new();
        options.map_size(16 << 30).max_dbs(2).max_readers(256);
        #[expect(unsafe_code, reason = "heed offers no safe way to open")]
        // SAFETY: the directory is this run's own; nobody else changes or shortens the mapped file while it
        // is open, and a run opens each directory once at a time.
        let env = unsafe { options.open(dir)? };
        let mut write = env.write_txn()?;
        let records = env.create_database(&mut write, Some("record"))?;
        let rows = env.create_database(&mut write, Some("row"))?;
        write.commit()?;
        Ok(Self { env, records, rows })
    }
}

impl Contender for Lmdb {
    fn run(&self, commands: &[Command]) -> Done<()> {
        let mut write = self.env.write_txn()?;
        for command in commands {
            let key = command.record_key();
            if self.records.get(&write, &key)?.is_some() {
                return Err("a fresh command was there already".into());
            }
            self.records.put(&mut write, &key, &command.record())?;
            self.rows.put(&mut write, &command.row_key(), &command.resource)?;
        }
        Ok(write.commit()?)
    }

    fn looks(&self) -> Done<Box<dyn Looks + '_>> {
        Ok(Box::new(Gets::new(self)))
    }

    fn time(&self, plan: &Plan) -> Done<Looked> {
        time(&mut Gets::new(self), plan)
    }

    fn count(&self) -> Done<(u64, u64)> {
        let read = self.env.read_txn()?;
        Ok((self.records.len(&read)?, self.rows.len(&read)?))
    }

    fn close(self: Box<Self>) -> Done<()> {
        self.env.prepare_for_closing().wait();
        Ok(())
    }
}

impl Finds for &Lmdb {
    fn find<R>(&self, asked: &Asked, on: impl FnOnce(&[u8]) -> R) -> Done<Option<R>> {
        let read = self.env.read_txn()?;
        let found = self.records.get(&read, &asked.key)?;
        Ok(found.and_then(|found| judged(found, &asked.fingerprint)).map(on))
    }
}
