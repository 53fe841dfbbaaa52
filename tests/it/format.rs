//! Somebody who has `docs/format.md` and no line of this program can read a store.
//!
//! This reader follows that page and shares nothing with `src/`: its own numbers, texts, digests and chains.
//! Where page and program part ways, it fails.

mod claims;
mod messages;
mod reader;
mod writer;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use redb::{Database, ReadableDatabase, ReadableTable};

pub use self::claims::*;
pub use self::messages::{Id, Post, Stage, Status, What};
pub use self::reader::*;
pub use self::writer::scopes_value;

/// A whole store, read by the page alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Read {
    pub store_id: [u8; 16],
    pub scope_mode: u64,
    pub created_at: u64,
    pub owns_nothing: bool,
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
            owns_nothing: identity.bool(),
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
                let outcome_of = listed.scope.filter(|scope| listed.is_outcome && scope_waits(scope, last));
                let Some(scope) = outcome_of else { continue };
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
        self.check_claims();
        self.check_messages();
        self.check_sweep();
        for (key, block) in &self.blocks {
            self.check_block(key, block);
        }
        self.check_rows();
    }

    /// Each chain ends at its head. Returns the newest outcome of each scope.
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
            if entry.is_outcome() {
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
        let State { records, rows, own_rows, open, unknown, executed, .. } = self.said;
        let State { resolved, differences, blocks, indexed, index_rows, settled, .. } = self.said;
        let opens: Vec<&Open> = self.open_commands().map(|(_, open)| open).collect();
        let open_rows = self.rows.keys().filter(|key| key[0] == b'o').count();
        assert!(opens.len() == open_rows, "an open row without an open command, or the other way round");
        let own = self.rows.keys().filter(|key| b"ompdaqkw".contains(&key[0])).count();
        let mut posts = [0; 4];
        let counted = self.rows.values().filter_map(|row| match &row.content {
            Content::Post(post) => post.counted(),
            _ => None,
        });
        counted.for_each(|counted| posts[counted] += 1);
        assert_eq!(posts, self.said.posts, "messages");
        let of = |transitions: &[u8]| {
            self.journal.values().filter(|entry| transitions.contains(&entry.transition)).count()
        };
        let found = [own, opens.len(), opens.iter().filter(|open| open.phase != Phase::Processing).count()];
        assert_eq!(found.map(|len| len as u64), [own_rows, open, unknown]);
        let found = [of(&[1, 2, 6, 13]), of(&[13, 14]), of(&[15])];
        assert_eq!(found.map(|len| len as u64), [executed, resolved, differences]);
        let found = [
            self.index.len(),
            self.rows.len() - own,
            self.blocks.len(),
            self.index_table.len(),
            self.index_rows.len(),
            self.row_table.len(),
        ];
        assert_eq!(found.map(|len| len as u64), [records, rows, blocks, indexed, index_rows, settled]);
    }

    /// Commands that were begun and are not finished, with the rows that hold them.
    pub fn open_commands(&self) -> impl Iterator<Item = (&Row, &Open)> {
        self.rows.values().filter_map(|row| match &row.content {
            Content::Open(open) => Some((row, &**open)),
            Content::Value(..)
            | Content::Removed
            | Content::Held(_)
            | Content::Post(_)
            | Content::Unit(_) => None,
        })
    }

    /// Messages, with the numbers in their keys.
    pub fn messages(&self) -> impl Iterator<Item = (Id, &Status)> {
        self.rows.iter().filter_map(|(key, row)| {
            let Content::Post(Post { what: What::Status(status), .. }) = &row.content else { return None };
            let digits = str::from_utf8(&key[1..]).unwrap();
            let number = |digits: &str| u64::from_str_radix(digits, 16).unwrap();
            Some(((number(&digits[..16]), number(&digits[16..])), &**status))
        })
    }

    /// Each message has just the rows beside it that its stage says, and each ordering key those of its
    /// messages that are not over, first to last.
    fn check_messages(&self) {
        let messages: BTreeMap<Id, &Status> = self.messages().collect();
        let listed = messages.iter().flat_map(|(id, status)| status.beside(*id));
        let beside = self.rows.keys().filter(|key| b"pda".contains(&key[0])).cloned();
        assert_eq!(listed.collect::<BTreeSet<_>>(), beside.collect::<BTreeSet<_>>(), "rows of messages");
        let mut in_order = 0;
        for (key, row) in &self.rows {
            let Content::Post(Post { what: What::Queue { head, tail, count, blocked }, .. }) = &row.content
            else {
                continue;
            };
            let (mut at, mut found) = (*head, Vec::new());
            loop {
                let status = messages[&at];
                let order = status.order.as_deref().expect("it has an ordering key");
                assert_eq!(*key, format!("q{}\0{}\0{order}", status.tenant, status.destination).as_bytes());
                assert_eq!(status.stage == Stage::Queued, at != *head, "its place");
                found.push(at);
                let Some(next) = status.next else { break };
                at = next;
            }
            assert_eq!((at, found.len() as u64), (*tail, *count));
            let since = match messages[head].stage {
                Stage::Unknown(since, _) | Stage::Dead(since) => Some(since),
                _ => None,
            };
            assert_eq!(*blocked, since);
            in_order += found.len();
        }
        let is_in_order = |status: &&&Status| match status.stage {
            Stage::Delivered(..) | Stage::Discarded(_) => false,
            Stage::Dead(_) => status.order.is_some() && status.on_dead == 0,
            _ => status.order.is_some(),
        };
        assert_eq!(messages.values().filter(is_in_order).count(), in_order);
    }

    /// What entries say of a scope follows from what the one before said, and what is left is open.
    fn check_claims(&self) {
        let mut following: BTreeMap<[u8; 16], Following> = BTreeMap::new();
        let mut entries: Vec<_> = self.journal.iter().collect();
        entries.sort_by_key(|(key, _)| seq_of(key));
        for (key, entry) in entries {
            if !entry.has_scope() {
                assert!(entry.token == 0 && entry.notes.iter().all(|note| note.row[0] != b'o'));
                continue;
            }
            let scope = entry.scope_digest(self.scope_mode);
            following.entry(scope).or_default().follow(&open_key(scope), *key, entry);
        }
        let mut left: BTreeMap<Vec<u8>, Claim> = following
            .into_iter()
            .filter_map(|(scope, following)| Some((open_key(scope), following.open?)))
            .collect();
        for (row, open) in self.open_commands() {
            let key = open_key(scope_digest(&open.scope, self.scope_mode));
            let claim = left.remove(&key).expect("it was begun");
            let said = (open.generation, open.attempt, open.token, open.phase != Phase::Processing);
            assert_eq!(said, (claim.generation, claim.attempt, seq_of(&claim.granted), claim.is_unknown));
            assert_eq!((row.made, row.event_time), (position_of(&claim.begun), None));
            assert_eq!(open.since, self.journal[&claim.begun].at);
            assert!(open.steps.len() <= 64 && open.points.len() <= 64 && open.evidence.len() <= 32);
        }
        assert_eq!(left.len(), 0, "open commands without a row");
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
            let scope = entry.has_scope().then(|| entry.scope_digest(self.scope_mode));
            let listed = (listed.scope, listed.is_outcome);
            assert_eq!(listed, (scope, entry.is_outcome()), "what the directory says");
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
            assert_eq!(key[0] == b'o', matches!(row.content, Content::Open(_)));
            let tag = match &row.content {
                Content::Post(post) => match &post.what {
                    What::Status(_) => &b"m"[..],
                    What::Letter { .. } => b"p",
                    What::Queue { .. } => b"q",
                    What::Known(_) => b"k",
                    What::Mark => b"daw",
                },
                Content::Unit(_) => b"h",
                _ => b"tsuvo",
            };
            assert!(tag.contains(&key[0]), "a row of another kind");
            if let Content::Open(open) = &row.content {
                assert_eq!(*key, open_key(scope_digest(&open.scope, self.scope_mode)));
            }
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

/// What was said of one scope so far.
#[derive(Default)]
struct Following {
    /// Of its newest outcome.
    generation: u64,
    open: Option<Claim>,
}

#[derive(Clone, Copy)]
struct Claim {
    begun: [u8; 10],
    granted: [u8; 10],
    generation: u64,
    attempt: u64,
    is_unknown: bool,
}

impl Following {
    /// The table of transitions.
    fn follow(&mut self, row: &[u8], key: [u8; 10], entry: &Entry) {
        let Entry { transition, generation, token, .. } = *entry;
        let last = entry.notes.last().filter(|note| note.row == row).map(|note| note.verb);
        let names_claim = matches!(transition, 5..=8 | 12..=15);
        assert_eq!(names_claim, token != 0, "a token in an entry of transition {transition}");
        if transition == 15 {
            // It is of a claim that is over.
            assert!(
                last.is_none()
                    && self.open.is_none_or(|claim| token < seq_of(&claim.granted) || claim.is_unknown)
            );
            return;
        }
        let claim = self.open.take();
        assert!(!names_claim || claim.is_some_and(|claim| seq_of(&claim.granted) == token));
        let processing = || claim.filter(|claim| !claim.is_unknown).expect("somebody is at it");
        let unknown = || claim.filter(|claim| claim.is_unknown).expect("it is unknown");
        let begun = Claim { begun: key, granted: key, generation, attempt: 1, is_unknown: false };
        self.open = match transition {
            1 => None,
            3 | 10 => {
                assert!(claim.is_none(), "it is open already");
                (transition == 3).then_some(begun)
            }
            4 => claim.map(|claim| Claim {
                granted: key,
                attempt: claim.attempt + 1,
                is_unknown: false,
                ..claim
            }),
            5 | 11 => Some(processing()),
            8 | 9 => Some(Claim { is_unknown: true, ..processing() }),
            12 => Some(unknown()),
            6 | 7 => Some(processing()).filter(|_| false),
            13 | 14 => Some(unknown()).filter(|_| false),
            other => panic!("a transition {other}"),
        };
        let expected = match (&self.open, claim) {
            (Some(_), _) => Some(0),
            (None, Some(_)) => Some(1),
            (None, None) => None,
        };
        assert_eq!(last, expected, "what transition {transition} does to the open row");
        let next = self.open.or(claim).map_or(self.generation + 1, |claim| claim.generation);
        assert!(generation == next && generation > self.generation, "the generation");
        if entry.is_outcome() {
            self.generation = generation;
        } else if transition != 11 {
            let nothing = (entry.failed, entry.code, entry.meta.len(), entry.resource.is_some());
            assert_eq!(nothing, (false, 0, 0, false), "an outcome where there is none");
            assert_eq!(entry.body, KeptBody::Kept(Vec::new()));
        }
    }
}

fn position_of(key: &[u8; 10]) -> (u64, u64) {
    (u64::from(u16::from_be_bytes([key[0], key[1]])), seq_of(key))
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
    assert_eq!((said.epoch, said.last_seq, said.clock_settled), (1, 69, None));
    assert_eq!((said.records, said.rows, said.executed), (13, 10, 14));
    assert_eq!((said.own_rows, said.open, said.unknown), (46, 7, 3));
    assert_eq!((said.resolved, said.differences), (2, 1));
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
    assert_eq!(
        found.len() + 7,
        store.index.len(),
        "and three claims, four that made messages or are the last"
    );
}

fn has_messages_in_every_stage(store: &Read) {
    let stages: [fn(&Stage) -> bool; 8] = [
        |stage| matches!(stage, Stage::Queued),
        |stage| matches!(stage, Stage::Waiting(_)),
        |stage| matches!(stage, Stage::Flying(_)),
        |stage| matches!(stage, Stage::Unsure(..)),
        |stage| matches!(stage, Stage::Unknown(..)),
        |stage| matches!(stage, Stage::Dead(_)),
        |stage| matches!(stage, Stage::Delivered(..)),
        |stage| matches!(stage, Stage::Discarded(_)),
    ];
    for (number, is_stage) in stages.iter().enumerate() {
        assert!(store.messages().any(|(_, status)| is_stage(&status.stage)), "stage {number}");
    }
    for first in b"mpdaqkw" {
        assert!(store.rows.keys().any(|key| key[0] == *first), "{}", char::from(*first));
    }
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
    for transition in 1..=20 {
        assert!(store.journal.values().any(|entry| entry.transition == transition), "{transition}");
    }
    let facts = || store.journal.values().flat_map(|entry| &entry.facts);
    let kinds: [fn(&Fact) -> bool; 5] = [
        |fact| matches!(fact, Fact::Declared(_)),
        |fact| matches!(fact, Fact::Answered(..)),
        |fact| matches!(fact, Fact::NotApplied(_)),
        |fact| matches!(fact, Fact::Reached(..)),
        |fact| matches!(fact, Fact::Because(_)),
    ];
    assert!(kinds.iter().all(|is_kind| facts().any(is_kind)), "a kind of fact is missing");
    has_messages_in_every_stage(store);
    let is_own = |key: &[u8]| b"ompdaqkw".contains(&key[0]);
    let is_merged = |(key, row): (&Vec<u8>, &Row)| is_own(key) && store.rows.get(key) == Some(row);
    let merged = store.row_table.iter().filter(|row| is_merged(*row)).count();
    let all = store.rows.keys().filter(|key| is_own(key)).count();
    assert!(0 < merged && merged < all, "{merged} of {all} rows of the store's own are merged");
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
fn the_page_on_the_format_is_enough_to_go_on_with_an_open_command() {
    let store = Read::of(&super::fixture::path());
    let open = |key: &str| {
        let scope = ["shop", "ship", key].map(str::to_owned);
        match &store.rows[&open_key(scope_digest(&scope, 0))].content {
            Content::Open(open) => (**open).clone(),
            other => panic!("{key} is {other:?}"),
        }
    };
    let begun = open("s-begun");
    assert_eq!((begun.phase, begun.attempt, begun.stop_asked), (Phase::Processing, 1, false));
    assert_eq!((begun.generation, &*begun.owner, begun.lease), (1, "fixture", 30_000));
    assert_eq!((begun.input, begun.steps, begun.points, begun.evidence), (None, vec![], vec![], vec![]));
    assert!(open("s-stopped").stop_asked);

    let moved = open("s-moved");
    assert_eq!(moved.input, Some(br#"{"cents":1200}"#.to_vec()));
    assert_eq!(moved.granted, (1, 67_000));
    let (answer, started) = (|text: &[u8]| StepState::Answered(text.to_vec()), (1, 67_000));
    let step = |name: &str, contract, settles_within, started, state| Step {
        name: name.to_owned(),
        contract,
        settles_within,
        started,
        state,
    };
    let charge = step("charge", 1, 900_000, started, answer(b"\"ch_17\""));
    let label = step("label", 0, 70_000_000, started, StepState::Open);
    let mail = step("mail", 2, 0, (1, 68_000), StepState::NotApplied);
    assert_eq!(moved.steps, [charge, label, mail]);
    let point = |name: &str, value: &[u8]| (name.to_owned(), value.to_vec());
    assert_eq!(moved.points, [point("charged", b"\"ch_17\""), point("told", b"null")]);
    let evidence = |source: &str, text: &str| Evidence { source: source.to_owned(), text: text.to_owned() };
    assert_eq!(moved.evidence, [evidence("mail server", "550 no such user")]);

    let unsure = open("s-unsure");
    assert!(matches!(unsure.phase, Phase::Unknown { settled: false, .. }));
    assert_eq!(unsure.evidence, [evidence("owner", "no answer")]);
    let judged = open("s-judged");
    assert!(matches!(judged.phase, Phase::Unknown { settled: true, since } if since > judged.since - 1));
    assert!(judged.steps[0].state == answer(b"\"ch_18\"") && judged.steps[1].state == answer(b"70000"));
    assert_eq!(judged.evidence.len(), 4);
    assert!(matches!(open("s-lapsed").phase, Phase::Unknown { settled: false, .. }));
    let taken = open("s-taken");
    assert_eq!((taken.phase, taken.attempt, taken.steps.len()), (Phase::Processing, 2, 1));
    assert!(taken.granted.1 > 98_000 && taken.steps[0].started.1 < 70_000);
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
    assert_eq!((first.fingerprint.scheme, first.fingerprint.policy), (1, 2));
    assert_eq!(first.fingerprint.digest, request(&[("body", canonical), ("method", octets(b"POST"))]));
    assert_eq!(first.fingerprint.exact, Some(request(&[("body", spelled), ("method", octets(b"POST"))])));
    assert_eq!(first.fingerprint.prints[0].exact, spelled[..8]);
    assert_eq!(first.fingerprint.prints[0].canonical, Some(canonical[..8].try_into().unwrap()));
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
    assert_eq!(pay.fingerprint.policy, 3);
    assert_eq!(pay.fingerprint.digest, request(&[("amount", octets(b"12.00")), ("to", sorted)]));
    let names: Vec<&str> = pay.fingerprint.prints.iter().map(|print| &*print.name).collect();
    assert_eq!(names, ["amount", "to"], "the part that is not compared leaves no print");
}
