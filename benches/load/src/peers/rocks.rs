//! RocksDB: a column family of records, one of rows, one write batch a call with `sync`. A stripe of locks by
//! key stands for its transactions; RocksDB groups the writes of several callers itself. 1 GiB of block
//! cache, bloom filters of 10 bits, no compression, the rest as it comes.

use std::path::Path;

use rocksdb::{
    BlockBasedOptions, Cache, ColumnFamily, ColumnFamilyDescriptor, DB, DBCompressionType, IteratorMode,
    Options, WriteBatch, WriteOptions,
};

use crate::command::{Asked, Command, judged};
use crate::contender::{Contender, Done, Looks, Stripes};
use crate::lookup::{Finds, Gets, Looked, Plan, time};

pub struct Rocks {
    database: DB,
    stripes: Stripes,
}

impl Rocks {
    pub fn open(dir: &Path) -> Done<Self> {
        let mut options = Options::default();
        options.create_if_missing(true);
        options.create_missing_column_families(true);
        options.set_compression_type(DBCompressionType::None);
        let mut blocks = BlockBasedOptions::default();
        blocks.set_block_cache(&Cache::new_lru_cache(1 << 30)?);
        blocks.set_bloom_filter(10.0, false);
        options.set_block_based_table_factory(&blocks);
        let families = ["record", "row"].map(|name| ColumnFamilyDescriptor::new(name, options.clone()));
        Ok(Self { database: DB::open_cf_descriptors(&options, dir, families)?, stripes: Stripes::new() })
    }

    fn family(&self, name: &str) -> Done<&ColumnFamily> {
        self.database.cf_handle(name).ok_or_else(|| "no such column family".into())
    }

    fn records(&self) -> Done<Records<'_>> {
        Ok(Records { database: &self.database, records: self.family("record")? })
    }
}

impl Contender for Rocks {
    fn run(&self, commands: &[Command]) -> Done<()> {
        let keys: Vec<Vec<u8>> = commands.iter().map(Command::record_key).collect();
        let (records, rows) = (self.family("record")?, self.family("row")?);
        let mut synced = WriteOptions::default();
        synced.set_sync(true);
        self.stripes.hold(&keys, || {
            let mut batch = WriteBatch::default();
            for (command, key) in commands.iter().zip(&keys) {
                if self.database.get_pinned_cf(records, key)?.is_some() {
                    return Err("a fresh command was there already".into());
                }
                batch.put_cf(records, key, command.record());
                batch.put_cf(rows, command.row_key(), &command.resource);
            }
            Ok(self.database.write_opt(batch, &synced)?)
        })?
    }

    fn looks(&self) -> Done<Box<dyn Looks + '_>> {
        Ok(Box::new(Gets::new(self.records()?)))
    }

    fn time(&self, plan: &Plan) -> Done<Looked> {
        time(&mut Gets::new(self.records()?), plan)
    }

    fn count(&self) -> Done<(u64, u64)> {
        let count = |name: &str| -> Done<u64> {
            let mut count = 0;
            for row in self.database.iterator_cf(self.family(name)?, IteratorMode::Start) {
                row?;
                count += 1;
            }
            Ok(count)
        };
        Ok((count("record")?, count("row")?))
    }

    fn close(self: Box<Self>) -> Done<()> {
        Ok(self.database.flush()?)
    }
}

struct Records<'d> {
    database: &'d DB,
    records: &'d ColumnFamily,
}

impl Finds for Records<'_> {
    fn find<R>(&self, asked: &Asked, on: impl FnOnce(&[u8]) -> R) -> Done<Option<R>> {
        let found = self.database.get_pinned_cf(self.records, &asked.key)?;
        Ok(found.and_then(|found| judged(&found, &asked.fingerprint).map(on)))
    }
}
