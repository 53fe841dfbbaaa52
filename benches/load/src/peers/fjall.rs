//! fjall 3: a keyspace of records, a keyspace of rows, one batch a call with `PersistMode::SyncData` (its
//! cheaper durable mode: fdatasync). A stripe of locks by key stands for its transactions. 1 GiB of cache,
//! the rest as it comes; built without compression, under which the bytes here would all but vanish.

use std::path::Path;

use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};

use crate::command::{Asked, Command, judged};
use crate::contender::{Contender, Done, Looks, Stripes};
use crate::lookup::{Finds, Gets, Looked, Plan, time};

pub struct Fjall {
    database: Database,
    records: Keyspace,
    rows: Keyspace,
    stripes: Stripes,
}

impl Fjall {
    pub fn open(dir: &Path) -> Done<Self> {
        let database = Database::builder(dir).cache_size(1 << 30).open()?;
        let records = database.keyspace("record", KeyspaceCreateOptions::default)?;
        let rows = database.keyspace("row", KeyspaceCreateOptions::default)?;
        Ok(Self { database, records, rows, stripes: Stripes::new() })
    }
}

impl Contender for Fjall {
    fn run(&self, commands: &[Command]) -> Done<()> {
        let keys: Vec<Vec<u8>> = commands.iter().map(Command::record_key).collect();
        self.stripes.hold(&keys, || {
            let mut batch = self.database.batch().durability(Some(PersistMode::SyncData));
            for (command, key) in commands.iter().zip(&keys) {
                if self.records.contains_key(key)? {
                    return Err("a fresh command was there already".into());
                }
                batch.insert(&self.records, key.as_slice(), command.record());
                batch.insert(&self.rows, command.row_key(), &command.resource[..]);
            }
            Ok(batch.commit()?)
        })?
    }

    fn looks(&self) -> Done<Box<dyn Looks + '_>> {
        Ok(Box::new(Gets::new(&self.records)))
    }

    fn time(&self, plan: &Plan) -> Done<Looked> {
        time(&mut Gets::new(&self.records), plan)
    }

    fn count(&self) -> Done<(u64, u64)> {
        Ok((self.records.len()? as u64, self.rows.len()? as u64))
    }

    fn close(self: Box<Self>) -> Done<()> {
        Ok(self.database.persist(PersistMode::SyncAll)?)
    }
}

impl Finds for &Keyspace {
    fn find<R>(&self, asked: &Asked, on: impl FnOnce(&[u8]) -> R) -> Done<Option<R>> {
        let found = self.get(&asked.key)?;
        Ok(found.and_then(|found| judged(&found, &asked.fingerprint).map(on)))
    }
}
