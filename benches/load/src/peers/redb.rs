//! Plain redb: a table of records under tenant, operation and key, a table of rows, one transaction a call.
//! Cache: redb's default of 1 GiB. Every commit is `Durability::Immediate`, the default. One-phase is how
//! redb comes.

use std::path::Path;

use redb::{Database, ReadableDatabase, ReadableTable, ReadableTableMetadata, TableDefinition};

use crate::command::{Asked, Command, judged};
use crate::contender::{Contender, Done, Looks};
use crate::lookup::{Finds, Gets, Looked, Plan, time};

const RECORDS: TableDefinition<&[u8], &[u8]> = TableDefinition::new("record");
const ROWS: TableDefinition<&[u8], &[u8]> = TableDefinition::new("row");

pub struct Redb {
    database: Database,
    is_two_phase: bool,
}

impl Redb {
    pub fn open(dir: &Path, is_two_phase: bool) -> Done<Self> {
        let path = dir.join("store.redb");
        let is_new = !path.exists();
        let database = Database::create(path)?;
        if is_new {
            let write = database.begin_write()?;
            write.open_table(RECORDS)?;
            write.open_table(ROWS)?;
            write.commit()?;
        }
        Ok(Self { database, is_two_phase })
    }
}

impl Contender for Redb {
    fn run(&self, commands: &[Command]) -> Done<()> {
        let mut write = self.database.begin_write()?;
        write.set_two_phase_commit(self.is_two_phase);
        {
            let mut records = write.open_table(RECORDS)?;
            let mut rows = write.open_table(ROWS)?;
            for command in commands {
                let key = command.record_key();
                if records.get(key.as_slice())?.is_some() {
                    return Err("a fresh command was there already".into());
                }
                records.insert(key.as_slice(), command.record().as_slice())?;
                rows.insert(command.row_key().as_slice(), &command.resource[..])?;
            }
        }
        Ok(write.commit()?)
    }

    fn looks(&self) -> Done<Box<dyn Looks + '_>> {
        Ok(Box::new(Gets::new(&self.database)))
    }

    fn time(&self, plan: &Plan) -> Done<Looked> {
        time(&mut Gets::new(&self.database), plan)
    }

    fn count(&self) -> Done<(u64, u64)> {
        let read = self.database.begin_read()?;
        Ok((read.open_table(RECORDS)?.len()?, read.open_table(ROWS)?.len()?))
    }

    fn close(self: Box<Self>) -> Done<()> {
        drop(self.database);
        Ok(())
    }
}

/// A read transaction for each lookup, as a service has it that must see what was committed last.
impl Finds for &Database {
    fn find<R>(&self, asked: &Asked, on: impl FnOnce(&[u8]) -> R) -> Done<Option<R>> {
        let records = self.begin_read()?.open_table(RECORDS)?;
        let found = records.get(asked.key.as_slice())?;
        Ok(found.and_then(|found| judged(found.value(), &asked.fingerprint).map(on)))
    }
}
