//! Somebody who has `docs/format.md` and no line of this program can read a store.
//!
//! This reader follows that page and shares nothing with `src/`: its own numbers, texts, digests and chains.
//! Where page and program part ways, it fails.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition};
use sha2::{Digest, Sha256};

pub const META: TableDefinition<&str, &[u8]> = TableDefinition::new("meta");
pub const CLASS: TableDefinition<&[u8; 2], &[u8]> = TableDefinition::new("class");
pub const JOURNAL: TableDefinition<&[u8; 10], &[u8]> = TableDefinition::new("journal");
pub const INDEX: TableDefinition<&[u8; 16], &[u8; 10]> = TableDefinition::new("index");
pub const RESOURCE: TableDefinition<&[u8], &[u8]> = TableDefinition::new("resource");

/// Tables by the number in their checksums.
pub const META_NUMBER: u8 = 1;
const CLASS_NUMBER: u8 = 2;
pub const JOURNAL_NUMBER: u8 = 3;
pub const RESOURCE_NUMBER: u8 = 5;

/// A frame around a body.
pub fn framed(table: u8, key: &[u8], kind: u8, body: &[u8]) -> Vec<u8> {
    let len = u32::try_from(body.len()).unwrap();
    let mut frame = [&[1, kind][..], &len.to_be_bytes(), body].concat();
    let crc = crc(table, key, &frame);
    frame.extend(crc);
    frame
}

fn crc(table: u8, key: &[u8], covered: &[u8]) -> [u8; 4] {
    let place = [&[table][..], &(key.len() as u64).to_be_bytes(), key, covered].concat();
    crc32fast::hash(&place).to_be_bytes()
}

/// The body in a frame.
pub fn unframed(table: u8, key: &[u8], kind: u8, frame: &[u8]) -> Vec<u8> {
    let (covered, sum) = frame.split_at(frame.len() - 4);
    assert_eq!(sum, crc(table, key, covered), "checksum");
    assert_eq!(covered[..2], [1, kind], "version and kind");
    let len = u32::from_be_bytes(covered[2..6].try_into().unwrap());
    assert_eq!(len as usize, covered.len() - 6, "length");
    covered[6..].to_vec()
}

/// What is left of a body.
struct Cursor<'b>(&'b [u8]);

impl<'b> Cursor<'b> {
    fn take(&mut self, len: usize) -> &'b [u8] {
        let (taken, rest) = self.0.split_at(len);
        self.0 = rest;
        taken
    }

    fn array<const N: usize>(&mut self) -> [u8; N] {
        self.take(N).try_into().unwrap()
    }

    fn byte(&mut self) -> u8 {
        self.take(1)[0]
    }

    fn number(&mut self) -> u64 {
        match self.byte() {
            251 => u64::from(u16::from_le_bytes(self.array())),
            252 => u64::from(u32::from_le_bytes(self.array())),
            253 => u64::from_le_bytes(self.array()),
            small => {
                assert!(small < 251, "a number of {small}");
                u64::from(small)
            }
        }
    }

    fn bytes(&mut self) -> Vec<u8> {
        let len = self.number();
        self.take(usize::try_from(len).unwrap()).to_vec()
    }

    fn text(&mut self) -> String {
        String::from_utf8(self.bytes()).unwrap()
    }

    fn bool(&mut self) -> bool {
        let byte = self.byte();
        assert!(byte < 2, "a truth value of {byte}");
        byte == 1
    }

    fn option<T>(&mut self, read: impl FnOnce(&mut Self) -> T) -> Option<T> {
        self.bool().then(|| read(self))
    }

    fn list<T>(&mut self, mut read: impl FnMut(&mut Self) -> T) -> Vec<T> {
        let len = self.number();
        (0..len).map(|_| read(self)).collect()
    }

    fn resource(&mut self) -> Resource {
        Resource { kind: self.text(), id: self.text(), shared: self.bool() }
    }

    fn end(self) {
        assert!(self.0.is_empty(), "{} bytes are left over", self.0.len());
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resource {
    pub kind: String,
    pub id: String,
    pub shared: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Print {
    pub name: String,
    pub exact: [u8; 8],
    pub canonical: Option<[u8; 8]>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeptBody {
    Kept(Vec<u8>),
    NotKept([u8; 32], u64),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    pub row: Vec<u8>,
    pub verb: u8,
    pub digest: Option<[u8; 32]>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub transition: u8,
    pub at: u64,
    pub generation: u64,
    pub scope: [String; 3],
    pub scheme: u64,
    pub policy: u8,
    pub digest: [u8; 32],
    pub exact: Option<[u8; 32]>,
    pub prints: Vec<Print>,
    pub failed: bool,
    pub code: u64,
    pub meta: Vec<(String, Vec<u8>)>,
    pub resource: Option<Resource>,
    pub body: KeptBody,
    pub notes: Vec<Note>,
    pub actor: String,
}

impl Entry {
    fn read(body: &[u8]) -> Self {
        let mut cursor = Cursor(body);
        let here = &mut cursor;
        let entry = Self {
            transition: here.byte(),
            at: here.number(),
            generation: here.number(),
            scope: [here.text(), here.text(), here.text()],
            scheme: here.number(),
            policy: here.byte(),
            digest: here.array(),
            exact: here.option(Cursor::array),
            prints: here.list(|cursor| Print {
                name: cursor.text(),
                exact: cursor.array(),
                canonical: cursor.option(Cursor::array),
            }),
            failed: here.bool(),
            code: here.number(),
            meta: here.list(|cursor| (cursor.text(), cursor.bytes())),
            resource: here.option(Cursor::resource),
            body: match here.number() {
                0 => KeptBody::Kept(here.bytes()),
                1 => KeptBody::NotKept(here.array(), here.number()),
                other => panic!("a body of kind {other}"),
            },
            notes: here.list(|cursor| Note {
                row: cursor.bytes(),
                verb: cursor.byte(),
                digest: cursor.option(Cursor::array),
            }),
            actor: here.text(),
        };
        cursor.end();
        entry
    }

    fn scope_digest(&self, mode: u64) -> [u8; 16] {
        let mut hash = Sha256::new_with_prefix(b"onecho scope 1");
        hash.update([u8::try_from(mode).unwrap()]);
        for (field, text) in self.scope.iter().enumerate() {
            if field != 1 || mode == 0 {
                hash.update((text.len() as u64).to_be_bytes());
                hash.update(text);
            }
        }
        hash.finalize()[..16].try_into().unwrap()
    }

    fn stub(&self, key: [u8; 10], scope: [u8; 16]) -> Vec<u8> {
        let mut stub = key.to_vec();
        stub.push(self.transition);
        stub.extend(self.at.to_be_bytes());
        stub.extend(scope);
        stub.push(u8::from(self.failed));
        stub.extend(u16::try_from(self.code).unwrap().to_be_bytes());
        stub.extend(u32::try_from(self.generation).unwrap().to_be_bytes());
        stub
    }

    fn detail(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for text in &self.scope {
            put(&mut out, text.as_bytes());
        }
        out.extend(u16::try_from(self.scheme).unwrap().to_be_bytes());
        out.push(self.policy);
        put(&mut out, &self.digest);
        put(&mut out, self.exact.as_ref().map_or(&[], |exact| &exact[..]));
        out.extend((self.prints.len() as u64).to_be_bytes());
        for print in &self.prints {
            put(&mut out, print.name.as_bytes());
            put(&mut out, &print.exact);
            put(&mut out, print.canonical.as_ref().map_or(&[], |canonical| &canonical[..]));
        }
        out.push(u8::from(self.resource.is_some()));
        if let Some(resource) = &self.resource {
            out.push(u8::from(resource.shared));
            put(&mut out, resource.kind.as_bytes());
            put(&mut out, resource.id.as_bytes());
        }
        put(&mut out, self.actor.as_bytes());
        out
    }

    fn body_layout(&self) -> Vec<u8> {
        let mut out = u32::try_from(self.meta.len()).unwrap().to_be_bytes().to_vec();
        for (name, value) in &self.meta {
            put(&mut out, name.as_bytes());
            put(&mut out, value);
        }
        match &self.body {
            KeptBody::Kept(bytes) => {
                out.push(1);
                put(&mut out, bytes);
            }
            KeptBody::NotKept(digest, len) => {
                out.push(0);
                out.extend(digest);
                out.extend(len.to_be_bytes());
            }
        }
        out.extend(u32::try_from(self.notes.len()).unwrap().to_be_bytes());
        for note in &self.notes {
            put(&mut out, &note.row);
            out.push(note.verb);
            out.push(u8::from(note.digest.is_some()));
            out.extend(note.digest.iter().flatten());
        }
        out
    }

    /// The link of the chain at this entry.
    fn link(&self, before: [u8; 32], key: [u8; 10], scope: [u8; 16]) -> [u8; 32] {
        let content = sha(&[&sha(&[&self.detail()]), &sha(&[&self.body_layout()])]);
        sha(&[&before, &self.stub(key, scope), &content])
    }
}

fn put(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend(u32::try_from(bytes.len()).unwrap().to_be_bytes());
    out.extend(bytes);
}

fn sha(parts: &[&[u8]]) -> [u8; 32] {
    Sha256::digest(parts.concat()).into()
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    Value(u64, Vec<u8>),
    Removed,
    Held(Resource),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    pub version: u64,
    pub made: (u64, u64),
    pub event_time: Option<u64>,
    pub content: Content,
}

impl Row {
    fn read(body: &[u8]) -> Self {
        let mut cursor = Cursor(body);
        let row = Self {
            version: cursor.number(),
            made: (cursor.number(), cursor.number()),
            event_time: cursor.option(Cursor::number),
            content: match cursor.number() {
                0 => Content::Value(cursor.number(), cursor.bytes()),
                1 => Content::Removed,
                2 => Content::Held(cursor.resource()),
                other => panic!("a content of kind {other}"),
            },
        };
        cursor.end();
        row
    }

    fn digest(&self, made: &[u8]) -> [u8; 32] {
        let mut out = made.to_vec();
        out.push(u8::from(self.event_time.is_some()));
        out.extend(self.event_time.iter().flat_map(|time| time.to_be_bytes()));
        match &self.content {
            Content::Value(codec, bytes) => {
                out.extend([0, u8::try_from(*codec).unwrap()]);
                put(&mut out, bytes);
            }
            Content::Removed => out.push(1),
            Content::Held(holder) => {
                out.extend([2, u8::from(holder.shared)]);
                put(&mut out, holder.kind.as_bytes());
                put(&mut out, holder.id.as_bytes());
            }
        }
        sha(&[&out])
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    pub class: u64,
    pub seq: u64,
    pub entries: u64,
    pub link: [u8; 32],
}

/// A whole store, read by the page alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Read {
    pub store_id: [u8; 16],
    pub scope_mode: u64,
    pub created_at: u64,
    pub epoch: u64,
    pub last_time: u64,
    pub last_seq: u64,
    pub clock_settled: Option<u64>,
    /// Records, rows, executed.
    pub counts: [u64; 3],
    pub heads: Vec<Head>,
    pub classes: BTreeMap<u16, [u64; 3]>,
    pub journal: BTreeMap<[u8; 10], Entry>,
    pub index: BTreeMap<[u8; 16], [u8; 10]>,
    pub rows: BTreeMap<Vec<u8>, Row>,
}

impl Read {
    /// Reads a copy: redb writes into what it opens.
    pub fn of(path: &Path) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let copy = dir.path().join("copy");
        std::fs::copy(path, &copy).unwrap();
        let database = Database::open(&copy).unwrap();
        let read = database.begin_read().unwrap();
        let meta = read.open_table(META).unwrap();
        assert_eq!(meta.get("format").unwrap().unwrap().value(), b"onecho\x00\x01");
        let row = |name: &str, kind| {
            unframed(META_NUMBER, name.as_bytes(), kind, meta.get(name).unwrap().unwrap().value())
        };
        let (identity, state) = (row("identity", 1), row("state", 2));
        let (mut identity, mut state) = (Cursor(&identity), Cursor(&state));
        let mut store = Self {
            store_id: identity.array(),
            scope_mode: identity.number(),
            created_at: identity.number(),
            epoch: state.number(),
            last_time: state.number(),
            last_seq: state.number(),
            clock_settled: state.option(Cursor::number),
            counts: std::array::from_fn(|_| state.number()),
            heads: state.list(|cursor| Head {
                class: cursor.number(),
                seq: cursor.number(),
                entries: cursor.number(),
                link: cursor.array(),
            }),
            classes: BTreeMap::new(),
            journal: BTreeMap::new(),
            index: BTreeMap::new(),
            rows: BTreeMap::new(),
        };
        identity.end();
        state.end();
        store.read_tables(&read);
        store
    }

    fn read_tables(&mut self, read: &redb::ReadTransaction) {
        for item in read.open_table(CLASS).unwrap().iter().unwrap() {
            let (key, frame) = item.unwrap();
            let body = unframed(CLASS_NUMBER, key.value(), 3, frame.value());
            let mut cursor = Cursor(&body);
            self.classes.insert(u16::from_be_bytes(*key.value()), std::array::from_fn(|_| cursor.number()));
            cursor.end();
        }
        for item in read.open_table(JOURNAL).unwrap().iter().unwrap() {
            let (key, frame) = item.unwrap();
            let body = unframed(JOURNAL_NUMBER, key.value(), 4, frame.value());
            self.journal.insert(*key.value(), Entry::read(&body));
        }
        for item in read.open_table(INDEX).unwrap().iter().unwrap() {
            let (scope, position) = item.unwrap();
            self.index.insert(*scope.value(), *position.value());
        }
        for item in read.open_table(RESOURCE).unwrap().iter().unwrap() {
            let (key, frame) = item.unwrap();
            let body = unframed(RESOURCE_NUMBER, key.value(), 5, frame.value());
            self.rows.insert(key.value().to_vec(), Row::read(&body));
        }
    }

    /// Chains, counts and references, as the page says they are.
    pub fn check(&self) {
        let mut ends: BTreeMap<u16, Head> = BTreeMap::new();
        let mut newest = BTreeMap::new();
        for (key, entry) in &self.journal {
            let class = u16::from_be_bytes([key[0], key[1]]);
            let seq = u64::from_be_bytes(key[2..].try_into().unwrap());
            let scope = entry.scope_digest(self.scope_mode);
            let genesis = sha(&[b"onecho chain 1", &self.store_id, &class.to_be_bytes()]);
            let end =
                ends.entry(class).or_insert(Head { class: class.into(), seq: 0, entries: 0, link: genesis });
            assert!(seq > end.seq && seq <= self.last_seq && entry.at <= self.last_time);
            assert!(self.classes.contains_key(&class));
            end.link = entry.link(end.link, *key, scope);
            (end.seq, end.entries) = (seq, end.entries + 1);
            if entry.transition == 1 {
                let known = newest.entry(scope).or_insert((0, *key));
                *known = (*known).max((seq, *key));
            }
        }
        assert_eq!(ends.into_values().collect::<Vec<_>>(), self.heads, "chains");
        let newest: BTreeMap<_, _> = newest.into_iter().map(|(scope, (_, key))| (scope, key)).collect();
        assert_eq!(newest, self.index, "index");
        assert_eq!(self.counts[..2], [self.index.len() as u64, self.rows.len() as u64]);
        for (key, row) in &self.rows {
            self.check_row(key, row);
        }
    }

    fn check_row(&self, key: &[u8], row: &Row) {
        let writer = self.journal.iter().find(|(at, _)| at[2..] == row.version.to_be_bytes()).unwrap().1;
        let note = writer.notes.iter().rev().find(|note| note.row == key && note.verb != 2).unwrap();
        let [c0, c1] = u16::try_from(row.made.0).unwrap().to_be_bytes();
        let made = [&[c0, c1][..], &row.made.1.to_be_bytes()].concat();
        assert_eq!((note.verb, note.digest), (0, Some(row.digest(&made))));
        assert!(self.journal.contains_key(&made[..]));
        assert_eq!(matches!(key[0], b'u' | b'v'), matches!(row.content, Content::Held(_)));
    }

    /// Without what differs from one making to the next: the store's id, and what follows from it.
    pub fn without_chance(&self) -> Self {
        let mut same = self.clone();
        same.store_id = [0; 16];
        same.heads.iter_mut().for_each(|head| head.link = [0; 32]);
        for entry in same.journal.values_mut().filter(|entry| entry.transition == 2) {
            entry.scope[2] = String::new();
        }
        same
    }
}

#[test]
fn the_page_on_the_format_is_enough_to_read_a_store() {
    let store = Read::of(&super::fixture::path());
    store.check();
    assert_eq!(store.scope_mode, 0);
    assert_eq!((store.epoch, store.last_seq, store.clock_settled), (1, 7, None));
    assert_eq!(store.counts, [6, 7, 7]);
    let commands = super::fixture::content::commands();
    let mut found = BTreeSet::new();
    for (command, entry) in commands.iter().zip(by_number(&store)) {
        let scope = command.request.scope();
        assert_eq!(entry.scope, [scope.tenant.as_str(), scope.operation.as_str(), scope.key.as_str()]);
        assert_eq!((entry.code, entry.failed), (u64::from(command.code), command.failed));
        assert_eq!((entry.transition, entry.generation, &*entry.actor), (1, 1, "fixture"));
        match (&entry.body, command.body) {
            (KeptBody::Kept(bytes), Some(wrote)) => assert_eq!(bytes, wrote),
            (KeptBody::NotKept(digest, len), None) => {
                assert_eq!((*digest, *len), (sha(&[b"a secret receipt"]), 16));
            }
            other => panic!("{other:?}"),
        }
        found.insert(entry.scope.clone());
    }
    assert_eq!(found.len(), store.index.len());
}

fn by_number(store: &Read) -> Vec<&Entry> {
    let mut entries: Vec<_> = store.journal.iter().collect();
    entries.sort_by_key(|(key, _)| key[2..].to_vec());
    entries.into_iter().map(|(_, entry)| entry).collect()
}

#[test]
fn the_page_on_the_format_is_enough_to_find_one_record() {
    let store = Read::of(&super::fixture::path());
    // SHA-256 over the domain, the mode, and the three names behind their lengths.
    let mut asked = b"onecho scope 1\x00".to_vec();
    for text in ["shop", "create-order", "k-1"] {
        asked.extend((text.len() as u64).to_be_bytes());
        asked.extend(text.as_bytes());
    }
    let entry = &store.journal[&store.index[&sha(&[&asked])[..16]]];
    assert_eq!(entry.meta[1], ("location".to_owned(), b"/orders/17".to_vec()));
    assert_eq!(entry.resource.as_ref().unwrap().id, "17");
    let Row { content: Content::Value(codec, bytes), .. } = &store.rows[&b"tshop\0order\x0017"[..]] else {
        panic!()
    };
    assert_eq!((*codec, &bytes[..]), (1, &b"{\"cents\":1300}"[..]));
    let stock = &store.rows[&b"sstock\0pen"[..]];
    assert_eq!(stock.content, Content::Value(3, 299_i64.to_be_bytes().to_vec()));
    let gone = &store.rows[&b"tshop\0order\0gone"[..]];
    assert_eq!((gone.event_time, &gone.content), (Some(9_000), &Content::Removed));
}

#[test]
fn the_page_on_the_format_is_enough_to_judge_a_retry() {
    let store = Read::of(&super::fixture::path());
    let entries = by_number(&store);
    let octets = |content: &[u8]| sha(&[&[1], content]);
    let request = |parts: &[(&str, [u8; 32])]| {
        let mut out = b"onecho request 1".to_vec();
        out.extend((parts.len() as u64).to_be_bytes());
        for (name, digest) in parts {
            out.extend((name.len() as u64).to_be_bytes());
            out.extend(name.as_bytes());
            out.extend(digest);
        }
        sha(&[&out])
    };
    let spelled = octets(br#"{ "cents": 1200, "lines": [1, 2.50] }"#);
    let canonical = octets(br#"{"cents":1200,"lines":[1,2.50]}"#);
    let first = entries[0];
    assert_eq!((first.scheme, first.policy), (1, 2));
    assert_eq!(first.digest, request(&[("body", canonical), ("method", octets(b"POST"))]));
    assert_eq!(first.exact, Some(request(&[("body", spelled), ("method", octets(b"POST"))])));
    assert_eq!(first.prints[0].exact, spelled[..8]);
    assert_eq!(first.prints[0].canonical, Some(canonical[..8].try_into().unwrap()));
    let pairs = |pairs: &[(&str, &str)]| {
        let mut out = vec![2];
        out.extend((pairs.len() as u64).to_be_bytes());
        for text in pairs.iter().flat_map(|(name, value)| [name, value]) {
            out.extend((text.len() as u64).to_be_bytes());
            out.extend(text.as_bytes());
        }
        sha(&[&out])
    };
    let pay = entries[4];
    let sorted = pairs(&[("bic", "Y"), ("iban", "X")]);
    assert_eq!(pay.policy, 3);
    assert_eq!(pay.digest, request(&[("amount", octets(b"12.00")), ("to", sorted)]));
    let names: Vec<&str> = pay.prints.iter().map(|print| &*print.name).collect();
    assert_eq!(names, ["amount", "to"], "the part that is not compared leaves no print");
}
