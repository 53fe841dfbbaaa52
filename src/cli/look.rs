//! Looks at a store: one resource, one command, a list, numbers. Owns the words; every look opens what
//! exists and makes nothing.

use serde::Serialize;

use super::args::{At, Get, List, Stats, Status};
use super::exit::{Exit, Failure, say};
use super::line::{ResourceLine, StatusLine};
use super::members;
use super::output::{json, print, print_bytes};
use crate::{Bytes, Error, ErrorKind, Key, Kind, Operation, Resource, Scope, Store, Tenant};

/// The longest id, in bytes.
const ID_BYTES_MAX: usize = 1024;

pub(super) fn get(args: &Get) -> Result<Exit, Failure> {
    let tenant = Tenant::parse(&args.tenant).map_err(Failure::usage)?;
    let kinds = Kinds::parse(&args.kind, args.shared)?;
    if args.id.is_empty() {
        return Err(Failure::usage("id is empty"));
    }
    check_id("id", &args.id)?;
    let store = args.at.open()?;
    let found = match kinds.get(&store, &tenant, &args.id) {
        Ok(Some(found)) => found,
        Ok(None) => {
            say(&format!("there is no {}/{} of tenant {}", args.kind, args.id, args.tenant));
            return Ok(Exit::Partly);
        }
        Err(error) if error.kind() == ErrorKind::Invalid => return Err(unshown(&args.at, &error)),
        Err(error) => return Err(error.into()),
    };
    if args.json {
        print(&json(&ResourceLine::new(&args.kind, &found)))?;
    } else {
        print_bytes(&found.value)?;
    }
    Ok(Exit::Well)
}

pub(super) fn list(args: &List) -> Result<Exit, Failure> {
    let (Some(tenant), Some(kind)) = (&args.tenant, &args.kind) else {
        return super::records::list(args);
    };
    let tenant = Tenant::parse(tenant).map_err(Failure::usage)?;
    let kinds = Kinds::parse(kind, args.shared)?;
    let prefix = args.prefix.as_deref().unwrap_or_default();
    check_id("prefix", prefix)?;
    let store = args.at.open()?;
    let limit = usize::try_from(args.limit.unwrap_or(u64::MAX)).unwrap_or(usize::MAX);
    let mut exit = Exit::Well;
    for found in kinds.scan(&store, &tenant, prefix).take(limit) {
        let found = match found {
            Ok(found) => found,
            Err(error) if error.kind() == ErrorKind::Invalid => {
                exit = unshown(&args.at, &error).tell();
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        let goes_on =
            if args.json { print(&json(&ResourceLine::new(kind, &found)))? } else { print(&found.id)? };
        if !goes_on {
            break;
        }
    }
    Ok(exit)
}

pub(super) fn status(args: &Status) -> Result<Exit, Failure> {
    let scope = scope(&args.tenant, &args.operation, &args.key)?;
    let store = args.at.open()?;
    let status = StatusLine::from(store.status(&scope)?);
    if args.json {
        print(&json(&status))?;
    } else {
        print_fields(&status)?;
    }
    Ok(if status.state == "absent" { Exit::Partly } else { Exit::Well })
}

/// The name of a command, as somebody has typed it.
pub(super) fn scope(tenant: &str, operation: &str, key: &str) -> Result<Scope, Failure> {
    Ok(Scope {
        tenant: Tenant::parse(tenant).map_err(Failure::usage)?,
        operation: Operation::parse(operation).map_err(Failure::usage)?,
        key: Key::parse(key).map_err(Failure::usage)?,
    })
}

pub(super) fn stats(args: &Stats) -> Result<Exit, Failure> {
    let store = args.at.open()?;
    let stats = store.stats();
    if args.json {
        print(&json(&stats))?;
        return Ok(Exit::Well);
    }
    // Counters since the open are those of this look; a person wants what the file holds.
    print(&format!("executed     {}", stats.executed))?;
    print(&format!("records      {}", stats.records))?;
    print(&format!("rows         {}", stats.rows))?;
    print(&format!("last seq     {}", stats.last_seq))?;
    print(&format!("opened       {} times", stats.epoch))?;
    print(&format!("file bytes   {}", stats.file_bytes))?;
    print(&format!("checked      {}", if stats.checked { "whole" } else { "not yet" }))?;
    print(&format!("disk         {}", if stats.disk_full { "full" } else { "has room" }))?;
    Ok(Exit::Well)
}

/// Says beforehand what the store would say of an id, or of what an id begins with: such a one is a fault of
/// the arguments, and no store needs to be opened for it.
fn check_id(what: &str, text: &str) -> Result<(), Failure> {
    let is_unprintable = |c: char| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}');
    if text.len() > ID_BYTES_MAX {
        return Err(Failure::usage(format!("{what} has {} bytes, more than {ID_BYTES_MAX}", text.len())));
    }
    if text.contains(is_unprintable) {
        return Err(Failure::usage(format!("{what} holds a control character")));
    }
    Ok(())
}

/// A value whose form only the program that wrote it knows.
fn unshown(at: &At, error: &Error) -> Failure {
    let text = error.to_string();
    // The rest is for those who wrote the kind, and not for who looks.
    let stored = text.split_once(": a kind keeps").map_or(text.as_str(), |(stored, _)| stored);
    let text = format!(
        "{}: {stored}, which this program cannot show; read it with the program that wrote it",
        at.db.display()
    );
    Failure::new(Exit::Partly, text)
}

/// The members of an object as lines of name and value.
pub(super) fn print_fields(of: &impl Serialize) -> Result<(), Failure> {
    for (name, value) in members::all(&json(of)).unwrap_or_default() {
        let value = serde_json::from_str(value.get()).unwrap_or_else(|_| value.get().to_owned());
        if !print(&format!("{name:<16} {value}"))? {
            break;
        }
    }
    Ok(())
}

/// One kind under each codec that values can be shown from. A row says which one it has, and is read by
/// that alone.
struct Kinds {
    raw: Kind<Bytes>,
    json: Kind<Box<serde_json::value::RawValue>>,
    counter: Kind<i64>,
}

impl Kinds {
    fn parse(name: &str, shared: bool) -> Result<Self, Failure> {
        let raw = Kind::parse(name).map_err(Failure::usage)?;
        // Typed kinds are constants of a program; this program looks at one kind, once, and ends.
        let name: &'static str = String::leak(name.to_owned());
        let kinds = Self { raw, json: Kind::json(name), counter: Kind::counter(name) };
        Ok(if shared {
            Self { raw: kinds.raw.shared(), json: kinds.json.shared(), counter: kinds.counter.shared() }
        } else {
            kinds
        })
    }

    fn get(&self, store: &Store, tenant: &Tenant, id: &str) -> Result<Option<Resource<Bytes>>, Error> {
        match store.get(tenant, &self.raw, id) {
            Err(error) if error.kind() == ErrorKind::Invalid => {}
            found => return found,
        }
        match store.get(tenant, &self.json, id) {
            Err(error) if error.kind() == ErrorKind::Invalid => {}
            found => return Ok(found?.map(|row| bytes_of(row, |value| value.get().to_owned()))),
        }
        Ok(store.get(tenant, &self.counter, id)?.map(|row| bytes_of(row, i64::to_string)))
    }

    /// The rows of a kind in order, each under its own codec.
    fn scan(&self, store: &Store, tenant: &Tenant, prefix: &str) -> Mixed {
        let json = store.scan(tenant, &self.json, prefix);
        let counter = store.scan(tenant, &self.counter, prefix);
        Mixed {
            codecs: [
                Codec::new(store.scan(tenant, &self.raw, prefix)),
                Codec::new(json.map(|row| Ok(bytes_of(row?, |value| value.get().to_owned())))),
                Codec::new(counter.map(|row| Ok(bytes_of(row?, i64::to_string)))),
            ],
            place: 0,
        }
    }
}

/// The rows of one kind. All codecs see the same rows, and each tells those it cannot read: a row is asked
/// of the codec of the row before it, then of the others, which catch up first.
struct Mixed {
    codecs: [Codec; 3],
    place: usize,
}

/// The rows as one codec sees them.
struct Codec {
    rows: Box<dyn Iterator<Item = Found>>,
    /// The place of its next row.
    next: usize,
}

impl Codec {
    fn new(rows: impl Iterator<Item = Found> + 'static) -> Self {
        Self { rows: Box::new(rows), next: 0 }
    }

    fn at(&mut self, place: usize) -> Option<Found> {
        let skipped = place - self.next;
        self.next = place + 1;
        self.rows.nth(skipped)
    }
}

impl Iterator for Mixed {
    type Item = Found;

    fn next(&mut self) -> Option<Found> {
        let place = self.place;
        self.place += 1;
        let mut told = None;
        for number in 0..self.codecs.len() {
            match self.codecs[number].at(place)? {
                Err(error) if error.kind() == ErrorKind::Invalid => told = Some(Err(error)),
                found => {
                    self.codecs.swap(0, number);
                    return Some(found);
                }
            }
        }
        told
    }
}

type Found = Result<Resource<Bytes>, Error>;

fn bytes_of<T>(row: Resource<T>, text: impl Fn(&T) -> String) -> Resource<Bytes> {
    let value = Bytes::from(text(&row.value));
    Resource { id: row.id, value, version: row.version, event_time: row.event_time }
}
