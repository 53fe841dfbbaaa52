//! The bodies that stand in envelopes, and their translation from and to the core's nouns.
//!
//! Field order is the format: `docs/format.md` specifies it and golden bytes pin it.

use std::borrow::Cow;
use std::ops::Deref;
use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::codec;
use super::fault::Unreadable;
use crate::core::authority::Unit;
use crate::core::claim::{Moment, Open, Phase, Point, StepRecord};
use crate::core::effect::{Note, Verb};
use crate::core::fact::{Evidence, Fact};
use crate::core::fingerprint::Fingerprint;
use crate::core::message::Post;
use crate::core::name::{Key, Operation, Scope, ScopeMode, Tenant};
use crate::core::outcome::{Digest, ResourceRef};
use crate::core::policy::Windows;
use crate::core::record::{ClassId, Entry, KeptBody, Position, Told, Transition};
use crate::core::row::{Codec, Content, Row, RowKey};
use crate::core::text::Text;
use crate::core::time::Timestamp;

/// What never changes after creation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Identity {
    pub store_id: [u8; 16],
    pub scope_mode: ScopeMode,
    pub created_at: Timestamp,
    /// Whether it decides only about tenants that were handed to it.
    pub owns_nothing: bool,
}

/// What changes with every commit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct State {
    /// Raised by each open of another process.
    pub epoch: u64,
    /// The newest time that was stored.
    pub last_time: Timestamp,
    /// The highest sequence number that was used.
    pub last_seq: u64,
    /// When a clock that had jumped last settled by itself.
    pub clock_settled: Option<Timestamp>,
    /// Every entry up to this number is in `index`, and what it wrote in `resource`, or something newer is.
    pub merged_to: u64,
    /// Up to this number, what the sweep has passed is merged, too.
    pub sweep_to: u64,
    /// How far the sweep has come.
    pub swept: Swept,
    /// Scopes that have an outcome.
    pub records: u64,
    /// Resources and uniquenesses, what is left of removed ones included.
    pub rows: u64,
    /// Rows of the store's own.
    pub own_rows: u64,
    /// Commands that are open, those in Unknown included.
    pub open: u64,
    /// Of these, those in Unknown.
    pub unknown: u64,
    /// Messages that are not over and may still be sent without anybody's doing.
    pub waiting: u64,
    /// Messages that may have arrived.
    pub doubtful: u64,
    /// Messages that were refused, or have used up their attempts.
    pub dead: u64,
    /// Ordering keys that wait for somebody who settles their first message.
    pub blocked: u64,
    /// Commands that were ever executed.
    pub executed: u64,
    /// Commands in Unknown whose end was ever found out.
    pub resolved: u64,
    /// Completions that ever came too late and were refused.
    pub differences: u64,
    /// Rows of `journal`.
    pub blocks: u64,
    /// Scopes in `index`: what has not been merged is missing.
    pub indexed: u64,
    /// Rows of `index`, blocks of scopes.
    pub index_rows: u64,
    /// Rows of `resource`: what has not been merged is missing, or still there.
    pub settled: u64,
    /// One for each class that has an entry, ascending.
    pub heads: Vec<Head>,
}

/// How far the sweep has come, in the order of keys.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Swept {
    /// The last scope that it passed.
    pub scope: Option<[u8; 16]>,
    /// The last row that it passed.
    pub row: Option<Bytes>,
}

impl Swept {
    pub fn has_scope(&self, scope: [u8; 16]) -> bool {
        self.scope.is_some_and(|last| scope <= last)
    }

    pub fn has_row(&self, key: &[u8]) -> bool {
        self.row.as_ref().is_some_and(|last| key <= last.as_ref())
    }
}

/// The end of a class's chain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Head {
    pub class: u16,
    /// The sequence number of its newest entry.
    pub seq: u64,
    /// Its entries.
    pub entries: u64,
    pub link: [u8; 32],
}

impl State {
    /// The head of a class, if it has an entry.
    pub fn head(&self, class: ClassId) -> Option<&Head> {
        self.heads.iter().find(|head| head.class == class.0)
    }

    /// Counts an entry, in what its transition alone tells.
    pub fn count(&mut self, entry: &Entry) {
        let transition = entry.transition;
        let is_brought = transition == Transition::BroughtOutcome;
        let has_run = transition.is_outcome() && transition != Transition::Cancelled && !is_brought;
        self.executed += u64::from(has_run || transition == Transition::Unprotected);
        self.resolved += u64::from(matches!(transition, Transition::Resolved | Transition::Released));
        self.differences += u64::from(transition == Transition::Differed);
    }

    /// Counts what a command was before and is after.
    pub fn count_open(&mut self, before: Option<&Row>, after: Option<&Row>) {
        let is_unknown = |row: &Row| row.open().is_some_and(|open| open.phase != Phase::Processing);
        self.open += u64::from(after.is_some());
        self.open = self.open.saturating_sub(u64::from(before.is_some()));
        self.unknown += u64::from(after.is_some_and(is_unknown));
        self.unknown = self.unknown.saturating_sub(u64::from(before.is_some_and(is_unknown)));
    }

    /// Counts what a message, or an ordering key, was before and is after.
    pub fn count_post(&mut self, before: Option<&Row>, after: Option<&Row>) {
        for (row, is_after) in [(before, false), (after, true)] {
            let counted = match row.and_then(Row::post) {
                Some(Post::Status(status)) if status.is_unknown() => &mut self.doubtful,
                Some(Post::Status(status)) if status.is_dead() => &mut self.dead,
                Some(Post::Status(status)) if !status.is_over() => &mut self.waiting,
                Some(Post::Queue(queue)) if queue.blocked.is_some() => &mut self.blocked,
                _ => continue,
            };
            *counted = if is_after { counted.saturating_add(1) } else { counted.saturating_sub(1) };
        }
    }

    /// Puts a head in its place.
    pub fn set_head(&mut self, head: Head) {
        match self.heads.binary_search_by_key(&head.class, |known| known.class) {
            Ok(at) => self.heads[at] = head,
            Err(at) => self.heads.insert(at, head),
        }
    }
}

/// What a block begins with: the entries in it, in the order of their numbers.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Directory {
    pub entries: Vec<Listed>,
}

/// One entry of a block.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Listed {
    /// How far its number is above the one in the block's key.
    pub above: u64,
    /// The bytes of its frame.
    pub len: u32,
    /// The scope that it speaks of; none for a command without a key.
    pub scope: Option<[u8; 16]>,
    /// Whether it is the outcome of that scope.
    pub is_outcome: bool,
}

/// What a block ends with. Written from where it lies.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Tail<R = LateRow, S = State> {
    /// Rows as the entries of this block leave them. Of one commit, each row stands in one block only.
    pub rows: Vec<R>,
    /// What the commit said of itself; in its last block.
    pub state: Option<S>,
}

/// One row as a commit leaves it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LateRow {
    pub key: RowKey,
    pub image: Image,
}

/// The frame of a row, shared by who reads it and the map of what waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Framed(pub Arc<[u8]>);

impl Deref for Framed {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl Serialize for Framed {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_bytes(&self.0)
    }
}

impl<'de> Deserialize<'de> for Framed {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Ok(Self(Bytes::deserialize(from)?.as_ref().into()))
    }
}

/// Where a row is to be found after a commit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Image {
    /// Here: the frame that `resource` will have.
    Here(Framed),
    /// It was removed.
    Removed,
    /// In `resource` already: it is large.
    Settled,
}

#[derive(Serialize, Deserialize)]
pub(crate) struct StoredClass {
    pub windows: Windows,
}

/// Borrows what it is written from, owns what is read.
#[derive(Serialize, Deserialize)]
pub(crate) struct StoredEntry<'e> {
    transition: u8,
    at: Timestamp,
    generation: u32,
    told: StoredTold<'e>,
    notes: Vec<StoredNote>,
}

/// The fields of an entry that are known before its turn; they stand among its own.
#[derive(Serialize, Deserialize)]
pub(crate) struct StoredTold<'e> {
    tenant: Cow<'e, str>,
    operation: Cow<'e, str>,
    key: Cow<'e, str>,
    fingerprint: Cow<'e, Fingerprint>,
    failed: bool,
    code: u16,
    meta: Cow<'e, [(Text, Bytes)]>,
    resource: Option<Cow<'e, ResourceRef>>,
    body: StoredBody,
    actor: Cow<'e, str>,
    token: u64,
    facts: Cow<'e, [Fact]>,
}

#[derive(Serialize, Deserialize)]
enum StoredBody {
    Kept(Bytes),
    NotKept { digest: Digest, len: u64 },
}

#[derive(Serialize, Deserialize)]
struct StoredNote {
    key: RowKey,
    verb: u8,
    digest: Option<Digest>,
}

impl<'e> From<&'e Entry> for StoredEntry<'e> {
    fn from(entry: &'e Entry) -> Self {
        Self {
            transition: entry.transition as u8,
            at: entry.at,
            generation: entry.generation,
            told: StoredTold::from(&*entry.told),
            notes: entry.notes.iter().map(StoredNote::from).collect(),
        }
    }
}

impl<'e> From<&'e Told> for StoredTold<'e> {
    fn from(told: &'e Told) -> Self {
        Self {
            tenant: told.scope.tenant.as_str().into(),
            operation: told.scope.operation.as_str().into(),
            key: told.scope.key.as_str().into(),
            fingerprint: Cow::Borrowed(&told.fingerprint),
            failed: told.failed,
            code: told.code,
            meta: Cow::Borrowed(&told.meta),
            resource: told.resource.as_ref().map(Cow::Borrowed),
            body: match &told.body {
                KeptBody::Kept(bytes) => StoredBody::Kept(bytes.clone()),
                KeptBody::NotKept { digest, len } => StoredBody::NotKept { digest: *digest, len: *len },
            },
            actor: (&*told.actor).into(),
            token: told.token,
            facts: Cow::Borrowed(&told.facts),
        }
    }
}

/// What a few parts of a request, a name or two and all the numbers of an entry take, usually.
const TOLD_BYTES_USUAL: usize = 256;

/// What `told` is in the body of an entry.
pub(crate) fn encode_told(told: &Told) -> Result<Vec<u8>, String> {
    let kept = if let KeptBody::Kept(body) = &told.body { body.len() } else { 0 };
    let key = told.scope.key.as_str().len();
    let mut bytes = Vec::with_capacity(kept + key + TOLD_BYTES_USUAL);
    codec::encode_into(&StoredTold::from(told), &mut bytes)?;
    Ok(bytes)
}

/// The body of an entry, put together from fields that are encoded already and those that are not.
pub(crate) fn encode_entry(entry: &Entry, told: &[u8], out: &mut Vec<u8>) -> Result<(), String> {
    codec::encode_into(&(entry.transition as u8, entry.at, entry.generation), out)?;
    out.extend_from_slice(told);
    codec::encode_into(&StoredNotes(&entry.notes), out)
}

/// Notes as they are written, one behind the other.
struct StoredNotes<'e>(&'e [Note]);

impl Serialize for StoredNotes<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(self.0.iter().map(StoredNote::from))
    }
}

/// Bytes as they are written, where they lie.
pub(crate) struct Octets<'b>(pub &'b [u8]);

impl Serialize for Octets<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_bytes(self.0)
    }
}

impl TryFrom<StoredEntry<'_>> for Entry {
    type Error = Unreadable;

    fn try_from(stored: StoredEntry<'_>) -> Result<Self, Unreadable> {
        Ok(Self {
            transition: Transition::of(stored.transition).ok_or_else(|| {
                Unreadable::Newer(format!("its transition {} is unknown", stored.transition))
            })?,
            at: stored.at,
            generation: stored.generation,
            told: Arc::new(Told::try_from(stored.told)?),
            notes: stored.notes.into_iter().map(Note::try_from).collect::<Result<_, _>>()?,
        })
    }
}

impl TryFrom<StoredTold<'_>> for Told {
    type Error = Unreadable;

    fn try_from(stored: StoredTold<'_>) -> Result<Self, Unreadable> {
        stored.fingerprint.check()?;
        Ok(Self {
            scope: Scope {
                tenant: Tenant(text(&stored.tenant)),
                operation: Operation(text(&stored.operation)),
                key: Key(text(&stored.key)),
            },
            fingerprint: stored.fingerprint.into_owned(),
            failed: stored.failed,
            code: stored.code,
            meta: stored.meta.into_owned().into(),
            resource: stored.resource.map(Cow::into_owned),
            body: match stored.body {
                StoredBody::Kept(bytes) => KeptBody::Kept(bytes),
                StoredBody::NotKept { digest, len } => KeptBody::NotKept { digest, len },
            },
            actor: stored.actor.into(),
            token: stored.token,
            facts: stored.facts.into_owned().into(),
        })
    }
}

fn text(text: &str) -> Text {
    Text::from(text)
}

impl From<&Note> for StoredNote {
    fn from(note: &Note) -> Self {
        Self { key: note.key.clone(), verb: note.verb as u8, digest: note.digest }
    }
}

impl TryFrom<StoredNote> for Note {
    type Error = Unreadable;

    fn try_from(stored: StoredNote) -> Result<Self, Unreadable> {
        Ok(Self {
            key: stored.key,
            verb: match stored.verb {
                0 => Verb::Write,
                1 => Verb::Remove,
                2 => Verb::Keep,
                other => return Err(Unreadable::Newer(format!("its effect {other} is unknown"))),
            },
            digest: stored.digest,
        })
    }
}

/// Written from the row's own bytes, read into bytes of its own.
#[derive(Serialize, Deserialize)]
pub(crate) struct StoredRow<B = Bytes> {
    version: u64,
    made_class: u16,
    made_seq: u64,
    event_time: Option<Timestamp>,
    content: StoredContent<B>,
}

#[derive(Serialize, Deserialize)]
pub(crate) enum StoredContent<B> {
    Value { codec: Codec, bytes: B },
    Removed,
    Held(ResourceRef),
    Open(Box<StoredOpen>),
    Post(Post),
    Unit(Unit),
}

/// A command that was begun and is not finished.
#[derive(Serialize, Deserialize)]
pub(crate) struct StoredOpen {
    tenant: Text,
    operation: Text,
    key: Text,
    fingerprint: Fingerprint,
    generation: u32,
    phase: Phase,
    since: Timestamp,
    attempt: u32,
    token: u64,
    granted: Moment,
    lease: u64,
    owner: Text,
    input: Option<Bytes>,
    steps: Vec<StepRecord>,
    points: Vec<Point>,
    cancel_asked: bool,
    evidence: Vec<Evidence>,
}

impl From<&Open> for StoredOpen {
    fn from(open: &Open) -> Self {
        let Open { scope: Scope { tenant, operation, key }, .. } = open;
        Self {
            tenant: tenant.0.clone(),
            operation: operation.0.clone(),
            key: key.0.clone(),
            fingerprint: open.fingerprint.clone(),
            generation: open.generation,
            phase: open.phase,
            since: open.since,
            attempt: open.attempt,
            token: open.token,
            granted: open.granted,
            lease: open.lease,
            owner: Text::from(&*open.owner),
            input: open.input.clone(),
            steps: open.steps.clone(),
            points: open.points.clone(),
            cancel_asked: open.cancel_asked,
            evidence: open.evidence.clone(),
        }
    }
}

impl TryFrom<StoredOpen> for Open {
    type Error = Unreadable;

    fn try_from(stored: StoredOpen) -> Result<Self, Unreadable> {
        stored.fingerprint.check()?;
        let (tenant, operation, key) = (Tenant(stored.tenant), Operation(stored.operation), Key(stored.key));
        Ok(Self {
            scope: Scope { tenant, operation, key },
            fingerprint: stored.fingerprint,
            generation: stored.generation,
            phase: stored.phase,
            since: stored.since,
            attempt: stored.attempt,
            token: stored.token,
            granted: stored.granted,
            lease: stored.lease,
            owner: stored.owner.as_str().into(),
            input: stored.input,
            steps: stored.steps,
            points: stored.points,
            cancel_asked: stored.cancel_asked,
            evidence: stored.evidence,
        })
    }
}

impl<'r> From<&'r Row> for StoredRow<Octets<'r>> {
    fn from(row: &'r Row) -> Self {
        Self {
            version: row.version,
            made_class: row.made.class.0,
            made_seq: row.made.seq,
            event_time: row.event_time,
            content: StoredContent::from(&row.content),
        }
    }
}

impl<'c> From<&'c Content> for StoredContent<Octets<'c>> {
    fn from(content: &'c Content) -> Self {
        match content {
            Content::Value { codec, bytes } => Self::Value { codec: *codec, bytes: Octets(bytes) },
            Content::Removed => Self::Removed,
            Content::Held(holder) => Self::Held(holder.clone()),
            Content::Open(open) => Self::Open(Box::new(StoredOpen::from(&**open))),
            Content::Post(post) => Self::Post(post.clone()),
            Content::Unit(unit) => Self::Unit(unit.clone()),
        }
    }
}

impl TryFrom<StoredRow> for Row {
    type Error = Unreadable;

    fn try_from(stored: StoredRow) -> Result<Self, Unreadable> {
        Ok(Self {
            version: stored.version,
            made: Position { class: ClassId(stored.made_class), seq: stored.made_seq },
            event_time: stored.event_time,
            content: Content::try_from(stored.content)?,
        })
    }
}

impl TryFrom<StoredContent<Bytes>> for Content {
    type Error = Unreadable;

    fn try_from(stored: StoredContent<Bytes>) -> Result<Self, Unreadable> {
        Ok(match stored {
            StoredContent::Value { codec, bytes } => Self::Value { codec, bytes },
            StoredContent::Removed => Self::Removed,
            StoredContent::Held(holder) => Self::Held(holder),
            StoredContent::Open(open) => Self::Open(Arc::new(Open::try_from(*open)?)),
            StoredContent::Post(post) => Self::Post(post),
            StoredContent::Unit(unit) => Self::Unit(unit),
        })
    }
}
