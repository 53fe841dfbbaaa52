//! SQLite, bundled with rusqlite: WAL, `synchronous=FULL`, a unique constraint, one immediate transaction a
//! call. One connection writes, under a lock (connections that wait for one another's locks are slower and
//! unfair); each reading thread has its own with a prepared statement. 64 MiB of cache for each, and the file
//! mapped for reads.

use std::path::{Path, PathBuf};
use std::sync::Mutex;

use rusqlite::{Connection, Statement, TransactionBehavior, params};

use crate::command::{CODE, Command, KIND, OPERATION, TENANT, now_ms};
use crate::contender::{Contender, Done, Looks};
use crate::lookup::{Looked, Plan, Reader, time};

const SCHEMA: &str = "
    CREATE TABLE IF NOT EXISTS command (
        tenant TEXT NOT NULL, operation TEXT NOT NULL, key TEXT NOT NULL,
        fingerprint BLOB NOT NULL, end_ms INTEGER NOT NULL, code INTEGER NOT NULL, body BLOB NOT NULL,
        UNIQUE (tenant, operation, key));
    CREATE TABLE IF NOT EXISTS resource (
        tenant TEXT NOT NULL, kind TEXT NOT NULL, id TEXT NOT NULL, value BLOB NOT NULL,
        UNIQUE (tenant, kind, id));";
const RECORD: &str = "INSERT INTO command VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT DO NOTHING";
const ROW: &str = "INSERT INTO resource VALUES (?1, ?2, ?3, ?4)";
const LOOK: &str =
    "SELECT fingerprint, end_ms, code, body FROM command WHERE tenant = ?1 AND operation = ?2 AND key = ?3";

pub struct Sqlite {
    path: PathBuf,
    writer: Mutex<Connection>,
    /// Those that read, while no thread has them: what they have mapped stays mapped.
    readers: Mutex<Vec<Connection>>,
}

impl Sqlite {
    pub fn open(dir: &Path) -> Done<Self> {
        let path = dir.join("store.sqlite");
        let writer = connect(&path)?;
        writer.execute_batch(SCHEMA)?;
        Ok(Self { path, writer: Mutex::new(writer), readers: Mutex::default() })
    }

    fn reader(&self) -> Done<Pooled<'_>> {
        let mut readers = self.readers.lock().map_err(|_| "a reader panicked")?;
        let connection = match readers.pop() {
            Some(connection) => connection,
            None => connect(&self.path)?,
        };
        Ok(Pooled { connection: Some(connection), readers: &self.readers })
    }
}

fn connect(path: &Path) -> Done<Connection> {
    let connection = Connection::open(path)?;
    let mode: String = connection.query_row("PRAGMA journal_mode=WAL", [], |row| row.get(0))?;
    if mode != "wal" {
        return Err(format!("SQLite's journal mode is {mode}").into());
    }
    connection
        .execute_batch("PRAGMA synchronous=FULL; PRAGMA cache_size=-65536; PRAGMA mmap_size=4294967296;")?;
    Ok(connection)
}

impl Contender for Sqlite {
    fn run(&self, commands: &[Command]) -> Done<()> {
        let mut writer = self.writer.lock().map_err(|_| "a caller panicked")?;
        let write = writer.transaction_with_behavior(TransactionBehavior::Immediate)?;
        {
            let mut record = write.prepare_cached(RECORD)?;
            let mut row = write.prepare_cached(ROW)?;
            for command in commands {
                let (fingerprint, end_ms) = (command.fingerprint(), Command::end_ms().cast_signed());
                let made = record.execute(params![
                    TENANT,
                    OPERATION,
                    command.key,
                    fingerprint,
                    end_ms,
                    CODE,
                    &command.outcome[..]
                ])?;
                if made != 1 {
                    return Err("a fresh command was there already".into());
                }
                row.execute(params![TENANT, KIND, command.id, &command.resource[..]])?;
            }
        }
        Ok(write.commit()?)
    }

    fn looks(&self) -> Done<Box<dyn Looks + '_>> {
        Ok(Box::new(self.reader()?))
    }

    fn time(&self, plan: &Plan) -> Done<Looked> {
        let reader = self.reader()?;
        time(&mut Select { look: reader.open()?.prepare(LOOK)?, body: Vec::new() }, plan)
    }

    fn count(&self) -> Done<(u64, u64)> {
        let writer = self.writer.lock().map_err(|_| "a caller panicked")?;
        let count = |table: &str| {
            writer.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get::<_, i64>(0))
        };
        Ok((count("command")?.cast_unsigned(), count("resource")?.cast_unsigned()))
    }

    fn close(self: Box<Self>) -> Done<()> {
        let readers = self.readers.into_inner().map_err(|_| "a reader panicked")?;
        for reader in readers {
            reader.close().map_err(|(_, error)| error)?;
        }
        let writer = self.writer.into_inner().map_err(|_| "a caller panicked")?;
        writer.close().map_err(|(_, error)| error.into())
    }
}

#[derive(Clone)]
struct AskedText {
    key: String,
    fingerprint: [u8; 32],
}

fn with<R>(look: &mut Statement<'_>, asked: &AskedText, on: impl FnOnce(&[u8]) -> R) -> Done<Option<R>> {
    let mut rows = look.query(params![TENANT, OPERATION, asked.key])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let end_ms: i64 = row.get(1)?;
    if row.get_ref(0)?.as_blob()? != asked.fingerprint || now_ms().cast_signed() >= end_ms {
        return Ok(None);
    }
    Ok(Some(on(row.get_ref(3)?.as_blob()?)))
}

/// One thread's statement.
struct Select<'c> {
    look: Statement<'c>,
    body: Vec<u8>,
}

impl Reader for Select<'_> {
    type Asked = AskedText;

    fn ask(&self, command: &Command) -> Done<AskedText> {
        Ok(AskedText { key: command.key.clone(), fingerprint: command.fingerprint() })
    }

    fn judged(&mut self, asked: &AskedText) -> bool {
        matches!(with(&mut self.look, asked, <[u8]>::len), Ok(Some(_)))
    }

    fn answered(&mut self, asked: &AskedText) -> Option<&[u8]> {
        self.body.clear();
        let found = with(&mut self.look, asked, |found| self.body.extend_from_slice(found));
        matches!(found, Ok(Some(()))).then_some(&self.body[..])
    }
}

/// A connection of one thread, which goes back to the others.
struct Pooled<'s> {
    connection: Option<Connection>,
    readers: &'s Mutex<Vec<Connection>>,
}

impl Pooled<'_> {
    fn open(&self) -> Done<&Connection> {
        self.connection.as_ref().ok_or_else(|| "the connection is gone".into())
    }
}

impl Drop for Pooled<'_> {
    fn drop(&mut self) {
        if let (Some(connection), Ok(mut readers)) = (self.connection.take(), self.readers.lock()) {
            readers.push(connection);
        }
    }
}

impl Looks for Pooled<'_> {
    fn look(&mut self, command: &Command, body: &mut Vec<u8>) -> Done<bool> {
        let asked = AskedText { key: command.key.clone(), fingerprint: command.fingerprint() };
        body.clear();
        let mut look = self.open()?.prepare_cached(LOOK)?;
        Ok(with(&mut look, &asked, |found| body.extend_from_slice(found))?.is_some())
    }
}
