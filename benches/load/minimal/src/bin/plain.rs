//! The same with plain redb, as far as plain redb goes: look, insert record and row, commit.

use redb::{Database, ReadableDatabase, TableDefinition};

const RECORDS: TableDefinition<&str, &[u8]> = TableDefinition::new("record");
const ROWS: TableDefinition<&str, &[u8]> = TableDefinition::new("row");

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args_os().nth(1).ok_or("which file?")?;
    let database = Database::create(path)?;
    for _ in 0..2 {
        let write = database.begin_write()?;
        {
            let mut records = write.open_table(RECORDS)?;
            let is_new = records.insert("shop/create-order/k-1", b"made".as_slice())?.is_none();
            if is_new {
                write.open_table(ROWS)?.insert("shop/order/o-1", b"two of them".as_slice())?;
            }
        }
        write.commit()?;
    }
    database.begin_read()?.open_table(ROWS)?.get("shop/order/o-1")?.ok_or("no order")?;
    Ok(())
}
