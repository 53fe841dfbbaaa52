//! Somebody who has `docs/format.md` and no line of this program can read a store.
//!
//! This reader follows that page and shares nothing with `src/`: its own numbers, texts, digests and chains.
//! Where page and program part ways, it fails.

mod reader;
mod writer;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use redb::{Database, ReadableDatabase, ReadableTable};

pub use self::reader::*;
pub use self::writer::scopes_value;

/// A whole store, read by the page alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Read {
    pub store_id: [u8; 16],
    pub scope_mode: u64,
    pub created_at: u64,
    /// What the newest commit says of the store.
    pub said: State,
    pub classes: BTreeMap<u16, [u64; 3]>,
    pub blocks: BTreeMap<[u8; 10], Block>,
    pub journal: BTreeMap<[u8; 10], Entry>,
    /// The table `index`, what its blocks say together, and what waits laid over that.
    pub index_rows: BTreeMap<[u8; 16], Scopes>,
    pub index_table: BTreeMap<[u8; 16], [u8; 10]>,
    pub index: BTreeMap<[u8; 16], [u8; 10]>,
    /// The table `resource`, and what waits laid over it.
    pub row_table: BTreeMap<Vec<u8>, Row>,
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
        let (identity, written) = (row("identity", 1), row("state", 2));
        let (mut identity, mut written) = (Cursor(&identity), Cursor(&written));
        let mut store = Self {
            store_id: identity.array(),
            scope_mode: identity.number(),
            created_at: identity.number(),
            said: State::read(&mut written),
            classes: BTreeMap::new(),
            blocks: BTreeMap::new(),
            journal: BTreeMap::new(),
            index_rows: BTreeMap::new(),
            index_table: BTreeMap::new(),
            index: BTreeMap::new(),
            row_table: BTreeMap::new(),
            rows: BTreeMap::new(),
        };
        identity.end();
        written.end();
        store.read_tables(&read);
        store.find_newest_state();
        store.lay_over();
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
            let (key, value) = item.unwrap();
            let block = Block::read(key.value(), value.value());
            for (at, listed) in block.positions(key.value()).into_iter().zip(&block.entries) {
                let entry = Entry::read(&unframed(JOURNAL_NUMBER, &at, 4, &listed.frame));
                assert!(self.journal.insert(at, entry).is_none(), "two entries at one position");
            }
            self.blocks.insert(*key.value(), block);
        }
        let index = read.open_table(INDEX).unwrap();
        let keys: Vec<[u8; 16]> = index.iter().unwrap().map(|item| *item.unwrap().0.value()).collect();
        assert!(keys.first().is_none_or(|first| *first == [0; 16]), "every scope has a block");
        for (at, key) in keys.iter().enumerate() {
            let scopes = scopes(key, keys.get(at + 1), index.get(key).unwrap().unwrap().value());
            self.index_table.extend(scopes.iter().copied());
            self.index_rows.insert(*key, scopes);
        }
        for item in read.open_table(RESOURCE).unwrap().iter().unwrap() {
            let (key, frame) = item.unwrap();
            self.row_table.insert(key.value().to_vec(), row_of(key.value(), frame.value()));
        }
    }

    /// The row of `meta`, or the tail of the block that goes further.
    fn find_newest_state(&mut self) {
        let last = self.blocks.iter().max_by_key(|(key, block)| block.last_seq(key));
        if let Some((key, block)) = last.filter(|(key, block)| block.last_seq(key) > self.said.last_seq) {
            self.said = block.state.clone().unwrap();
            assert_eq!(self.said.last_seq, block.last_seq(key));
        }
    }

    /// Blocks whose entries may wait, in the order of their first numbers.
    fn waiting(&self) -> Vec<(&[u8; 10], &Block)> {
        let mut waiting: Vec<_> =
            self.blocks.iter().filter(|(key, _)| seq_of(key) > self.said.merged_to).collect();
        waiting.sort_by_key(|(key, _)| seq_of(key));
        waiting
    }

    fn lay_over(&mut self) {
        let (index, rows) = self.laid_over(|_, _| true, |_, _| true);
        (self.index, self.rows) = (index, rows);
    }

    /// The tables with what waits over them: of the scopes and rows of a block, those that are chosen.
    fn laid_over(
        &self,
        scope_waits: impl Fn(&[u8; 16], u64) -> bool,
        row_waits: impl Fn(&[u8], u64) -> bool,
    ) -> (BTreeMap<[u8; 16], [u8; 10]>, BTreeMap<Vec<u8>, Row>) {
        let mut scopes: BTreeMap<[u8; 16], [u8; 10]> = BTreeMap::new();
        let mut images: BTreeMap<&[u8], &Image> = BTreeMap::new();
        for (key, block) in self.waiting() {
            let last = block.last_seq(key);
            for (at, listed) in block.positions(key).into_iter().zip(&block.entries) {
                let Some(scope) = listed.scope.filter(|scope| scope_waits(scope, last)) else { continue };
                let newest = scopes.entry(scope).or_insert(at);
                if seq_of(newest) < seq_of(&at) {
                    *newest = at;
                }
            }
            let waits = block.rows.iter().filter(|(key, _)| row_waits(key, last));
            images.extend(waits.map(|(key, image)| (&key[..], image)));
        }
        let (mut index, mut rows) = (self.index_table.clone(), self.row_table.clone());
        index.extend(scopes);
        for (key, image) in images {
            match image {
                Image::Here(frame) => drop(rows.insert(key.to_vec(), row_of(key, frame))),
                Image::Removed => drop(rows.remove(key)),
                Image::Settled => {}
            }
        }
        (index, rows)
    }

    /// Chains, counts and references, as the page says they are.
    pub fn check(&self) {
        let newest = self.check_chains();
        assert_eq!(newest, self.index, "index");
        self.check_counts();
        self.check_sweep();
        for (key, block) in &self.blocks {
            self.check_block(key, block);
        }
        self.check_rows();
    }

    /// Each chain ends at its head. Returns the newest entry of each scope.
    fn check_chains(&self) -> BTreeMap<[u8; 16], [u8; 10]> {
        let mut ends: BTreeMap<u16, Head> = BTreeMap::new();
        let mut newest: BTreeMap<[u8; 16], [u8; 10]> = BTreeMap::new();
        let mut numbers = BTreeSet::new();
        for (key, entry) in &self.journal {
            let class = u16::from_be_bytes([key[0], key[1]]);
            let seq = seq_of(key);
            let scope = entry.scope_digest(self.scope_mode);
            let genesis = sha(&[b"onecho chain 1", &self.store_id, &class.to_be_bytes()]);
            let end =
                ends.entry(class).or_insert(Head { class: class.into(), seq: 0, entries: 0, link: genesis });
            assert!(seq > end.seq && seq <= self.said.last_seq && entry.at <= self.said.last_time);
            assert!(self.classes.contains_key(&class));
            assert!(numbers.insert(seq), "a number of two entries");
            end.link = entry.link(end.link, *key, scope);
            (end.seq, end.entries) = (seq, end.entries + 1);
            if entry.transition == 1 {
                let known = newest.entry(scope).or_insert(*key);
                if seq_of(known) < seq {
                    *known = *key;
                }
            }
        }
        assert_eq!(ends.into_values().collect::<Vec<_>>(), self.said.heads, "chains");
        newest
    }

    fn check_counts(&self) {
        let State { records, rows, executed, blocks, indexed, index_rows, settled, .. } = self.said;
        let found = [
            self.index.len(),
            self.rows.len(),
            self.journal.len(),
            self.blocks.len(),
            self.index_table.len(),
            self.index_rows.len(),
            self.row_table.len(),
        ];
        assert_eq!(
            found.map(|len| len as u64),
            [records, rows, executed, blocks, indexed, index_rows, settled]
        );
    }

    /// What the sweep has passed is in the tables: without it nothing else is laid over them.
    fn check_sweep(&self) {
        let State { last_seq, merged_to, sweep_to, swept, .. } = &self.said;
        assert!(merged_to <= sweep_to && sweep_to <= last_seq);
        let (index, rows) = self.laid_over(
            |scope, last| last > *sweep_to || !swept.has_scope(scope),
            |row, last| last > *sweep_to || !swept.has_row(row),
        );
        assert_eq!((&index, &rows), (&self.index, &self.rows), "the sweep");
        for (key, block) in &self.blocks {
            for end in [*merged_to, *sweep_to] {
                assert!(seq_of(key) > end || block.last_seq(key) <= end, "a commit that is merged in part");
            }
        }
    }

    fn check_block(&self, key: &[u8; 10], block: &Block) {
        assert_eq!(block.entries[0].above, 0);
        let entries = block.positions(key);
        for (at, listed) in entries.iter().zip(&block.entries) {
            let entry = &self.journal[at];
            let scope = (entry.transition == 1).then(|| entry.scope_digest(self.scope_mode));
            assert_eq!(listed.scope, scope, "the scope in the directory");
        }
        for (key, image) in &block.rows {
            let changes =
                |at: &&[u8; 10]| self.journal[*at].notes.iter().any(|n| n.row == *key && n.verb != 2);
            let writer = seq_of(entries.iter().rev().find(changes).unwrap());
            if let Image::Here(frame) = image {
                assert_eq!(row_of(key, frame).version, writer);
            }
        }
        if let Some(state) = &block.state {
            assert_eq!(state.last_seq, block.last_seq(key));
        }
    }

    /// Each row is as the last entry that changed it says.
    fn check_rows(&self) {
        let mut last: BTreeMap<&[u8], (u64, &Note)> = BTreeMap::new();
        for (key, note) in
            self.journal.iter().flat_map(|(key, entry)| entry.notes.iter().map(move |n| (key, n)))
        {
            let changed = last.get(&note.row[..]).map_or(0, |(seq, _)| *seq);
            if note.verb != 2 && seq_of(key) >= changed {
                last.insert(&note.row, (seq_of(key), note));
            }
        }
        last.retain(|_, (_, note)| note.verb == 0);
        assert_eq!(last.keys().copied().collect::<Vec<_>>(), self.rows.keys().collect::<Vec<_>>());
        for (key, row) in &self.rows {
            let (seq, note) = last[&key[..]];
            let [c0, c1] = u16::try_from(row.made.0).unwrap().to_be_bytes();
            let made = [&[c0, c1][..], &row.made.1.to_be_bytes()].concat();
            assert_eq!((seq, note.digest), (row.version, Some(row.digest(&made))));
            assert!(self.journal.contains_key(&made[..]));
            assert_eq!(matches!(key[0], b'u' | b'v'), matches!(row.content, Content::Held(_)));
        }
    }

    /// Without what differs from one making to the next: the store's id, and what follows from it.
    pub fn without_chance(&self) -> Self {
        let mut same = self.clone();
        same.store_id = [0; 16];
        let states = same.blocks.values_mut().filter_map(|block| block.state.as_mut());
        for state in states.chain([&mut same.said]) {
            state.heads.iter_mut().for_each(|head| head.link = [0; 32]);
        }
        for entry in same.journal.values_mut().filter(|entry| entry.transition == 2) {
            entry.scope[2] = String::new();
        }
        let unprotected = same.blocks.values_mut().flat_map(|block| &mut block.entries);
        unprotected.filter(|listed| listed.scope.is_none()).for_each(|listed| listed.frame.clear());
        same
    }
}

fn row_of(key: &[u8], frame: &[u8]) -> Row {
    Row::read(&unframed(RESOURCE_NUMBER, key, 5, frame))
}

#[test]
fn the_page_on_the_format_is_enough_to_read_a_store() {
    let store = Read::of(&super::fixture::path());
    store.check();
    assert_eq!(store.scope_mode, 0);
    let said = &store.said;
    assert_eq!((said.epoch, said.last_seq, said.clock_settled), (1, 9, None));
    assert_eq!((said.records, said.rows, said.executed), (7, 8, 9));
    has_every_shape(&store);
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
    assert_eq!(found.len() + 1, store.index.len(), "and one more, in the last commit");
}

/// Blocks of one entry and of several, of two classes in one commit; rows that wait, were removed, are large,
/// are merged; a sweep on its way.
fn has_every_shape(store: &Read) {
    let lens: Vec<_> = store.blocks.values().map(|block| block.entries.len()).collect();
    assert!(lens.contains(&1) && lens.contains(&2), "{lens:?}");
    let with_state = store.blocks.values().filter(|block| block.state.is_some()).count();
    assert_eq!(with_state + 1, store.blocks.len(), "the last commit has two blocks and one state");
    let images: Vec<_> =
        store.blocks.values().flat_map(|block| &block.rows).map(|(_, image)| image).collect();
    assert!(images.iter().any(|image| matches!(image, Image::Here(_))), "{images:?}");
    assert!(images.contains(&&Image::Removed) && images.contains(&&Image::Settled), "{images:?}");
    let State { merged_to, sweep_to, last_seq, .. } = store.said;
    assert!(0 < merged_to && merged_to < sweep_to && sweep_to < last_seq, "{:?}", store.said);
    assert_ne!(store.index, store.index_table, "no scope waits");
    assert_ne!(store.rows, store.row_table, "no row waits");
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
