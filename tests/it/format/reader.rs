//! The pieces of a store as `docs/format.md` describes them, each read from its bytes. Shares nothing with
//! `src/`.

use redb::TableDefinition;
use sha2::{Digest, Sha256};

use super::claims::{Fact, Open};
use super::messages::Post;

pub const META: TableDefinition<&str, &[u8]> = TableDefinition::new("meta");
pub const CLASS: TableDefinition<&[u8; 2], &[u8]> = TableDefinition::new("class");
pub const JOURNAL: TableDefinition<&[u8; 10], &[u8]> = TableDefinition::new("journal");
pub const INDEX: TableDefinition<&[u8; 16], &[u8]> = TableDefinition::new("index");
pub const RESOURCE: TableDefinition<&[u8], &[u8]> = TableDefinition::new("resource");

/// Tables by the number in their checksums.
pub const META_NUMBER: u8 = 1;
pub const CLASS_NUMBER: u8 = 2;
pub const JOURNAL_NUMBER: u8 = 3;
pub const INDEX_NUMBER: u8 = 4;
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
pub struct Cursor<'b>(pub &'b [u8]);

impl<'b> Cursor<'b> {
    pub fn take(&mut self, len: usize) -> &'b [u8] {
        let (taken, rest) = self.0.split_at(len);
        self.0 = rest;
        taken
    }

    pub fn array<const N: usize>(&mut self) -> [u8; N] {
        self.take(N).try_into().unwrap()
    }

    pub fn byte(&mut self) -> u8 {
        self.take(1)[0]
    }

    pub fn number(&mut self) -> u64 {
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

    pub fn bytes(&mut self) -> Vec<u8> {
        let len = self.number();
        self.take(usize::try_from(len).unwrap()).to_vec()
    }

    pub fn text(&mut self) -> String {
        String::from_utf8(self.bytes()).unwrap()
    }

    pub fn bool(&mut self) -> bool {
        let byte = self.byte();
        assert!(byte < 2, "a truth value of {byte}");
        byte == 1
    }

    pub fn option<T>(&mut self, read: impl FnOnce(&mut Self) -> T) -> Option<T> {
        self.bool().then(|| read(self))
    }

    pub fn list<T>(&mut self, mut read: impl FnMut(&mut Self) -> T) -> Vec<T> {
        let len = self.number();
        (0..len).map(|_| read(self)).collect()
    }

    pub fn fingerprint(&mut self) -> Fingerprint {
        Fingerprint {
            scheme: self.number(),
            policy: self.byte(),
            digest: self.array(),
            exact: self.option(Cursor::array),
            prints: self.list(|cursor| Print {
                name: cursor.text(),
                exact: cursor.array(),
                canonical: cursor.option(Cursor::array),
            }),
        }
    }

    pub fn resource(&mut self) -> Resource {
        Resource { kind: self.text(), id: self.text(), shared: self.bool() }
    }

    pub fn end(self) {
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
pub struct Fingerprint {
    pub scheme: u64,
    pub policy: u8,
    pub digest: [u8; 32],
    pub exact: Option<[u8; 32]>,
    pub prints: Vec<Print>,
}

impl Fingerprint {
    /// As the chain and the digests of open rows have it.
    pub fn layout(&self, out: &mut Vec<u8>) {
        out.extend(u16::try_from(self.scheme).unwrap().to_be_bytes());
        out.push(self.policy);
        put(out, &self.digest);
        put(out, self.exact.as_ref().map_or(&[], |exact| &exact[..]));
        out.extend((self.prints.len() as u64).to_be_bytes());
        for print in &self.prints {
            put(out, print.name.as_bytes());
            put(out, &print.exact);
            put(out, print.canonical.as_ref().map_or(&[], |canonical| &canonical[..]));
        }
    }
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
    pub fingerprint: Fingerprint,
    pub failed: bool,
    pub code: u64,
    pub meta: Vec<(String, Vec<u8>)>,
    pub resource: Option<Resource>,
    pub body: KeptBody,
    pub actor: String,
    pub token: u64,
    pub facts: Vec<Fact>,
    pub notes: Vec<Note>,
}

impl Entry {
    pub fn read(body: &[u8]) -> Self {
        let mut cursor = Cursor(body);
        let here = &mut cursor;
        let entry = Self {
            transition: here.byte(),
            at: here.number(),
            generation: here.number(),
            scope: [here.text(), here.text(), here.text()],
            fingerprint: here.fingerprint(),
            failed: here.bool(),
            code: here.number(),
            meta: here.list(|cursor| (cursor.text(), cursor.bytes())),
            resource: here.option(Cursor::resource),
            body: match here.number() {
                0 => KeptBody::Kept(here.bytes()),
                1 => KeptBody::NotKept(here.array(), here.number()),
                other => panic!("a body of kind {other}"),
            },
            actor: here.text(),
            token: here.number(),
            facts: here.list(Fact::read),
            notes: here.list(|cursor| Note {
                row: cursor.bytes(),
                verb: cursor.byte(),
                digest: cursor.option(Cursor::array),
            }),
        };
        cursor.end();
        entry
    }

    /// Whether the scope is finished by it.
    pub fn is_outcome(&self) -> bool {
        matches!(self.transition, 1 | 6 | 10 | 13 | 25)
    }

    /// Whether it is of a scope that can be looked up.
    pub fn has_scope(&self) -> bool {
        !matches!(self.transition, 2 | 16..=24 | 27)
    }

    pub fn scope_digest(&self, mode: u64) -> [u8; 16] {
        scope_digest(&self.scope, mode)
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
        self.fingerprint.layout(&mut out);
        out.push(u8::from(self.resource.is_some()));
        if let Some(resource) = &self.resource {
            out.push(u8::from(resource.shared));
            put(&mut out, resource.kind.as_bytes());
            put(&mut out, resource.id.as_bytes());
        }
        put(&mut out, self.actor.as_bytes());
        out.extend(self.token.to_be_bytes());
        out.extend(u32::try_from(self.facts.len()).unwrap().to_be_bytes());
        self.facts.iter().for_each(|fact| fact.layout(&mut out));
        out
    }

    fn outcome(&self) -> Vec<u8> {
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
        out
    }

    fn effects(&self) -> Vec<u8> {
        let mut out = u32::try_from(self.notes.len()).unwrap().to_be_bytes().to_vec();
        for note in &self.notes {
            put(&mut out, &note.row);
            out.push(note.verb);
            out.push(u8::from(note.digest.is_some()));
            out.extend(note.digest.iter().flatten());
        }
        out
    }

    /// The link of the chain at this entry.
    pub fn link(&self, before: [u8; 32], key: [u8; 10], scope: [u8; 16]) -> [u8; 32] {
        let pieces = [self.detail(), self.outcome(), self.effects()].map(|piece| sha(&[&piece]));
        let content = sha(&[&pieces.concat()]);
        sha(&[&before, &self.stub(key, scope), &content])
    }
}

pub fn scope_digest(scope: &[String; 3], mode: u64) -> [u8; 16] {
    let mode = if scope[1].starts_with("onecho:") { 0 } else { mode };
    let mut hash = Sha256::new_with_prefix(b"onecho scope 1");
    hash.update([u8::try_from(mode).unwrap()]);
    for (field, text) in scope.iter().enumerate() {
        if field != 1 || mode == 0 {
            hash.update((text.len() as u64).to_be_bytes());
            hash.update(text);
        }
    }
    hash.finalize()[..16].try_into().unwrap()
}

pub fn put(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend(u32::try_from(bytes.len()).unwrap().to_be_bytes());
    out.extend(bytes);
}

pub fn sha(parts: &[&[u8]]) -> [u8; 32] {
    Sha256::digest(parts.concat()).into()
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    Value(u64, Vec<u8>),
    Removed,
    Held(Resource),
    Open(Box<Open>),
    Post(Post),
    Unit(Unit),
}

/// Who decides about a tenant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unit {
    Owned(u64),
    HandedOver(String, u64),
    Arriving(String, u64),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    pub version: u64,
    pub made: (u64, u64),
    pub event_time: Option<u64>,
    pub content: Content,
}

impl Row {
    pub fn read(body: &[u8]) -> Self {
        let mut cursor = Cursor(body);
        let row = Self {
            version: cursor.number(),
            made: (cursor.number(), cursor.number()),
            event_time: cursor.option(Cursor::number),
            content: match cursor.number() {
                0 => Content::Value(cursor.number(), cursor.bytes()),
                1 => Content::Removed,
                2 => Content::Held(cursor.resource()),
                3 => Content::Open(Box::new(Open::read(&mut cursor))),
                4 => Content::Post(Post::read(&mut cursor)),
                5 => Content::Unit(match cursor.number() {
                    0 => Unit::Owned(cursor.number()),
                    1 => Unit::HandedOver(cursor.text(), cursor.number()),
                    2 => Unit::Arriving(cursor.text(), cursor.number()),
                    other => panic!("a tenant of kind {other}"),
                }),
                other => panic!("a content of kind {other}"),
            },
        };
        cursor.end();
        row
    }

    pub fn digest(&self, made: &[u8]) -> [u8; 32] {
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
            Content::Open(open) => {
                out.push(3);
                open.layout(&mut out);
            }
            Content::Post(post) => {
                out.push(4);
                post.layout(&mut out);
            }
            Content::Unit(unit) => {
                let (number, name, epoch) = match unit {
                    Unit::Owned(epoch) => (0, None, epoch),
                    Unit::HandedOver(to, epoch) => (1, Some(to), epoch),
                    Unit::Arriving(from, epoch) => (2, Some(from), epoch),
                };
                out.extend([5, number]);
                name.iter().for_each(|name| put(&mut out, name.as_bytes()));
                out.extend(epoch.to_be_bytes());
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

/// How far the sweep has come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    pub scope: Option<[u8; 16]>,
    pub row: Option<Vec<u8>>,
}

impl Swept {
    pub fn has_scope(&self, scope: &[u8; 16]) -> bool {
        self.scope.as_ref().is_some_and(|last| scope <= last)
    }

    pub fn has_row(&self, key: &[u8]) -> bool {
        self.row.as_ref().is_some_and(|last| key <= &last[..])
    }
}

/// What a commit says of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    pub epoch: u64,
    pub last_time: u64,
    pub last_seq: u64,
    pub clock_settled: Option<u64>,
    pub merged_to: u64,
    pub sweep_to: u64,
    pub swept: Swept,
    pub records: u64,
    pub rows: u64,
    pub own_rows: u64,
    pub open: u64,
    pub unknown: u64,
    /// Messages that wait, that are in doubt, that are dead; ordering keys that are blocked.
    pub posts: [u64; 4],
    pub executed: u64,
    pub resolved: u64,
    pub differences: u64,
    pub blocks: u64,
    pub indexed: u64,
    pub index_rows: u64,
    pub settled: u64,
    pub heads: Vec<Head>,
}

impl State {
    pub fn read(cursor: &mut Cursor<'_>) -> Self {
        Self {
            epoch: cursor.number(),
            last_time: cursor.number(),
            last_seq: cursor.number(),
            clock_settled: cursor.option(Cursor::number),
            merged_to: cursor.number(),
            sweep_to: cursor.number(),
            swept: Swept { scope: cursor.option(Cursor::array), row: cursor.option(Cursor::bytes) },
            records: cursor.number(),
            rows: cursor.number(),
            own_rows: cursor.number(),
            open: cursor.number(),
            unknown: cursor.number(),
            posts: std::array::from_fn(|_| cursor.number()),
            executed: cursor.number(),
            resolved: cursor.number(),
            differences: cursor.number(),
            blocks: cursor.number(),
            indexed: cursor.number(),
            index_rows: cursor.number(),
            settled: cursor.number(),
            heads: cursor.list(|cursor| Head {
                class: cursor.number(),
                seq: cursor.number(),
                entries: cursor.number(),
                link: cursor.array(),
            }),
        }
    }
}

/// Where a row is after a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Image {
    Here(Vec<u8>),
    Removed,
    Settled,
}

/// An entry of a block, still in its frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    pub above: u64,
    pub scope: Option<[u8; 16]>,
    pub is_outcome: bool,
    pub frame: Vec<u8>,
}

/// A row of `journal`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    pub entries: Vec<Listed>,
    pub rows: Vec<(Vec<u8>, Image)>,
    pub state: Option<State>,
}

impl Block {
    pub fn read(key: &[u8; 10], value: &[u8]) -> Self {
        let len = u32::from_be_bytes(value[2..6].try_into().unwrap()) as usize;
        let (directory, mut rest) = value.split_at(6 + len + 4);
        let directory = unframed(JOURNAL_NUMBER, key, 6, directory);
        let mut cursor = Cursor(&directory);
        let entries = cursor.list(|cursor| {
            let (above, len) = (cursor.number(), cursor.number());
            let (frame, behind) = rest.split_at(usize::try_from(len).unwrap());
            rest = behind;
            let (scope, is_outcome) = (cursor.option(Cursor::array), cursor.bool());
            Listed { above, scope, is_outcome, frame: frame.to_vec() }
        });
        cursor.end();
        let tail = unframed(JOURNAL_NUMBER, key, 7, rest);
        let mut cursor = Cursor(&tail);
        let rows = cursor.list(|cursor| {
            let key = cursor.bytes();
            let image = match cursor.number() {
                0 => Image::Here(cursor.bytes()),
                1 => Image::Removed,
                2 => Image::Settled,
                other => panic!("an image of kind {other}"),
            };
            (key, image)
        });
        let state = cursor.option(State::read);
        cursor.end();
        Self { entries, rows, state }
    }

    /// The positions of its entries, in their order.
    pub fn positions(&self, key: &[u8; 10]) -> Vec<[u8; 10]> {
        self.entries.iter().map(|listed| position(key, seq_of(key) + listed.above)).collect()
    }

    pub fn last_seq(&self, key: &[u8; 10]) -> u64 {
        seq_of(key) + self.entries.last().unwrap().above
    }
}

/// The scopes of a row of `index`, each with a position.
pub type Scopes = Vec<([u8; 16], [u8; 10])>;

/// Reads one; `end` is the key of the next.
pub fn scopes(key: &[u8; 16], end: Option<&[u8; 16]>, value: &[u8]) -> Scopes {
    let body = unframed(INDEX_NUMBER, key, 8, value);
    let (mut cursor, mut scopes) = (Cursor(&body), Vec::new());
    while !cursor.0.is_empty() {
        scopes.push((cursor.array(), cursor.array()));
    }
    assert!(!scopes.is_empty() && scopes.is_sorted_by(|one, next| one.0 < next.0), "the order of scopes");
    assert!(scopes.iter().all(|(scope, _)| scope >= key && end.is_none_or(|end| scope < end)), "a range");
    scopes
}

pub fn seq_of(key: &[u8; 10]) -> u64 {
    u64::from_be_bytes(key[2..].try_into().unwrap())
}

/// The position of another number in the same class.
pub fn position(key: &[u8; 10], seq: u64) -> [u8; 10] {
    [&key[..2], &seq.to_be_bytes()].concat().try_into().unwrap()
}
