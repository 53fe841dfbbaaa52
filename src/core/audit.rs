//! The chain that proves a history: each entry's digest stands on the one before. Owns the byte layout that
//! is hashed; must not use the storage codec, so that the chain survives a change of it.
//!
//! ```text
//! chain(0) = SHA-256("onecho chain 1" ‖ store id (16) ‖ class (u16))
//! chain(n) = SHA-256(chain(n-1) ‖ stub(n) ‖ content(n))
//! content  = SHA-256(SHA-256(detail) ‖ SHA-256(outcome) ‖ SHA-256(effects))
//! ```
//!
//! Detail and outcome are known before a command has its number, so their digests are made where the command
//! runs, and the writer, who is alone, hashes only what it decides.
//!
//! Numbers are big-endian; texts and byte strings stand behind their length as `u32`; an absent value is the
//! byte 0, a present one the byte 1 and then the value. `docs/format.md` lists the fields in order.

use bytes::Bytes;
use sha2::{Digest as _, Sha256};

use super::claim::Moment;
use super::effect::Note;
use super::name::ScopeDigest;
use super::outcome::ResourceRef;
use super::record::{ClassId, Entry, KeptBody, Position, Told};
use super::text::Text;

/// One link: what the next entry stands on.
pub(crate) type Link = [u8; 32];

/// What the first entry of a class stands on.
pub(crate) fn genesis(store_id: &[u8; 16], class: ClassId) -> Link {
    let mut hash = Sha256::new_with_prefix(b"onecho chain 1");
    hash.update(store_id);
    hash.update(class.0.to_be_bytes());
    hash.finalize().into()
}

/// The digests of what a command brings along.
#[derive(Clone, Copy)]
pub(crate) struct Brought {
    detail: [u8; 32],
    outcome: [u8; 32],
}

impl Brought {
    pub fn of(told: &Told) -> Self {
        Self { detail: detail(told), outcome: outcome(&told.meta, &told.body) }
    }
}

/// The link of an entry at `position`.
pub(crate) fn link(before: &Link, position: Position, scope: ScopeDigest, entry: &Entry) -> Link {
    link_of(before, position, scope, entry, &Brought::of(&entry.told))
}

/// The same, of an entry whose digests are known.
pub(crate) fn link_of(
    before: &Link,
    position: Position,
    scope: ScopeDigest,
    entry: &Entry,
    brought: &Brought,
) -> Link {
    let mut out = Layout::default();
    out.raw(before);
    stub(&mut out, position, scope, entry);
    out.raw(&content(brought, &entry.notes));
    out.finish()
}

/// What a tombstone keeps in clear.
fn stub(out: &mut Layout, position: Position, scope: ScopeDigest, entry: &Entry) {
    out.u16(position.class.0);
    out.u64(position.seq);
    out.u8(entry.transition as u8);
    out.u64(entry.at.0);
    out.raw(&scope.0);
    out.u8(u8::from(entry.failed));
    out.u16(entry.code);
    out.u32(entry.generation);
}

/// What a tombstone keeps the digest of.
fn content(brought: &Brought, notes: &[Note]) -> [u8; 32] {
    let mut out = Layout::default();
    out.raw(&brought.detail);
    out.raw(&brought.outcome);
    out.raw(&effects(notes));
    out.finish()
}

/// What goes when the key window is over.
fn detail(told: &Told) -> [u8; 32] {
    let mut out = Layout::default();
    out.text(told.scope.tenant.as_str());
    out.text(told.scope.operation.as_str());
    out.text(told.scope.key.as_str());
    told.fingerprint.layout(&mut out);
    match &told.resource {
        None => out.u8(0),
        Some(resource) => {
            out.u8(1);
            out.resource(resource);
        }
    }
    out.text(&told.actor);
    out.u64(told.token);
    out.count(told.facts.len());
    for fact in told.facts.iter() {
        fact.layout(&mut out);
    }
    out.finish()
}

/// What goes when the body window is over: the outcome.
fn outcome(meta: &[(Text, Bytes)], body: &KeptBody) -> [u8; 32] {
    let mut out = Layout::default();
    out.u32(len_u32(meta.len()));
    for (name, value) in meta {
        out.text(name);
        out.bytes(value);
    }
    match body {
        KeptBody::Kept(bytes) => {
            out.u8(1);
            out.bytes(bytes);
        }
        KeptBody::NotKept { digest, len } => {
            out.u8(0);
            out.raw(&digest.0);
            out.u64(*len);
        }
    }
    out.finish()
}

/// What goes with it: the effects.
fn effects(notes: &[Note]) -> [u8; 32] {
    let mut out = Layout::default();
    out.u32(len_u32(notes.len()));
    for note in notes {
        out.bytes(note.key.as_bytes());
        out.u8(note.verb as u8);
        match &note.digest {
            None => out.u8(0),
            Some(digest) => {
                out.u8(1);
                out.raw(&digest.0);
            }
        }
    }
    out.finish()
}

/// The digest of fields in a fixed order, hashed as they come.
#[derive(Default)]
pub(crate) struct Layout(Sha256);

impl Layout {
    pub fn finish(self) -> [u8; 32] {
        self.0.finalize().into()
    }

    /// Bytes whose number is fixed.
    pub fn raw(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub fn u8(&mut self, number: u8) {
        self.raw(&[number]);
    }

    pub fn u16(&mut self, number: u16) {
        self.raw(&number.to_be_bytes());
    }

    pub fn u32(&mut self, number: u32) {
        self.raw(&number.to_be_bytes());
    }

    pub fn u64(&mut self, number: u64) {
        self.raw(&number.to_be_bytes());
    }

    pub fn bytes(&mut self, bytes: &[u8]) {
        self.u32(len_u32(bytes.len()));
        self.raw(bytes);
    }

    pub fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
    }

    /// How many come now.
    pub fn count(&mut self, many: usize) {
        self.u32(len_u32(many));
    }

    pub fn maybe_bytes(&mut self, bytes: Option<&[u8]>) {
        match bytes {
            None => self.u8(0),
            Some(bytes) => {
                self.u8(1);
                self.bytes(bytes);
            }
        }
    }

    pub fn moment(&mut self, moment: Moment) {
        self.u64(moment.epoch);
        self.u64(moment.monotonic);
    }

    pub fn resource(&mut self, resource: &ResourceRef) {
        self.u8(u8::from(resource.is_shared()));
        self.text(&resource.kind);
        self.text(&resource.id);
    }
}

/// Every length here is bounded far below 4 GiB by the limits on outcomes, names and effects.
pub(crate) fn len_u32(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}
