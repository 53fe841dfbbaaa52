//! What a tenant takes along from one store to another, as bytes: a mark, a head, items, an end, each in a
//! frame whose checksum also covers its place in the stream. Owns the layout, which `docs/format.md`
//! specifies; must not know what may be exported or imported.

use std::borrow::Cow;
use std::io::{self, Read, Write};

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::codec;
use super::envelope::{self, Kind, Table};
use super::fault::Unreadable;
use super::stored::{Octets, StoredContent, StoredOpen, StoredTold};
use crate::core::authority::{Item, Kept};
use crate::core::claim::Open;
use crate::core::message::{Letter, MessageId, Status};
use crate::core::name::ScopeMode;
use crate::core::policy::Windows;
use crate::core::record::{Told, Transition};
use crate::core::row::{Content, RowKey};
use crate::core::text::Text;
use crate::core::time::Timestamp;

/// What every stream begins with: what it is, and the version of its layout.
const MARK: &[u8; 16] = b"onecho tenant 1\n";

/// Which tenant it is, from where and for whom.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StreamHead {
    pub store_id: [u8; 16],
    pub scope_mode: ScopeMode,
    pub tenant: Text,
    pub from: Text,
    pub to: Text,
    pub epoch: u64,
}

/// How many items there are of each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ItemCounts {
    pub outcomes: u64,
    pub open: u64,
    pub rows: u64,
    pub messages: u64,
}

impl ItemCounts {
    fn count(&mut self, item: &Item) {
        *match item {
            Item::Outcome(_) => &mut self.outcomes,
            Item::Open(_) => &mut self.open,
            Item::Row { .. } => &mut self.rows,
            Item::Message { .. } => &mut self.messages,
        } += 1;
    }
}

/// What it ends with.
#[derive(Serialize, Deserialize)]
struct StreamEnd {
    counts: ItemCounts,
    /// SHA-256 over everything before this frame.
    digest: [u8; 32],
}

#[derive(Serialize, Deserialize)]
#[expect(clippy::large_enum_variant, reason = "it is taken apart where it is made")]
enum StoredItem<'e, B = Bytes> {
    Outcome {
        windows: Windows,
        generation: u32,
        at: Timestamp,
        ended_by: u8,
        made: (MessageId, u32),
        told: Box<StoredTold<'e>>,
    },
    Open(Box<StoredOpen>),
    Row {
        key: RowKey,
        event_time: Option<Timestamp>,
        content: StoredContent<B>,
    },
    Message {
        id: MessageId,
        status: Cow<'e, Status>,
        letter: Option<Cow<'e, Letter>>,
    },
}

/// Writes a stream.
pub(crate) struct StreamWriter<W> {
    to: W,
    hash: Sha256,
    frames: u64,
    counts: ItemCounts,
    scratch: Vec<u8>,
}

impl<W: Write> StreamWriter<W> {
    pub fn start(to: W, head: &StreamHead) -> io::Result<Self> {
        let counts = ItemCounts::default();
        let mut writer = Self { to, hash: Sha256::new(), frames: 0, counts, scratch: Vec::new() };
        writer.hash.update(MARK);
        writer.to.write_all(MARK)?;
        writer.frame(Kind::StreamHead, head)?;
        Ok(writer)
    }

    pub fn item(&mut self, item: &Item) -> io::Result<()> {
        self.counts.count(item);
        self.frame(Kind::StreamItem, &StoredItem::from(item))
    }

    /// Writes the end; says what there was.
    pub fn finish(mut self) -> io::Result<ItemCounts> {
        let end = StreamEnd { counts: self.counts, digest: self.hash.clone().finalize().into() };
        self.frame(Kind::StreamEnd, &end)?;
        self.to.flush()?;
        Ok(self.counts)
    }

    fn frame<T: Serialize>(&mut self, kind: Kind, body: &T) -> io::Result<()> {
        self.scratch.clear();
        let place = self.frames.to_be_bytes();
        envelope::seal_into(&mut self.scratch, Table::Stream, &place, kind, body)
            .map_err(io::Error::other)?;
        self.frames += 1;
        self.hash.update(&self.scratch);
        self.to.write_all(&self.scratch)
    }
}

/// Why a stream cannot be read.
pub(crate) enum Unread {
    /// It is not what an export wrote, or not all of it.
    Damaged(Unreadable),
    /// Its source failed.
    Source(io::Error),
}

impl<U: Into<Unreadable>> From<U> for Unread {
    fn from(what: U) -> Self {
        Self::Damaged(what.into())
    }
}

/// Reads a stream, a frame at a time.
pub(crate) struct StreamReader<R> {
    from: R,
    hash: Sha256,
    frames: u64,
    counts: ItemCounts,
}

impl<R: Read> StreamReader<R> {
    pub fn start(from: R) -> Result<(Self, StreamHead), Unread> {
        let mut reader = Self { from, hash: Sha256::new(), frames: 0, counts: ItemCounts::default() };
        let mut mark = [0; MARK.len()];
        reader.fill(&mut mark)?;
        if mark != *MARK {
            return Err("it is not what an export of this version writes".into());
        }
        reader.hash.update(mark);
        let (kind, framed) = reader.frame()?;
        if kind != Kind::StreamHead as u8 {
            return Err("it has no head".into());
        }
        let head = reader.body(Kind::StreamHead, &framed)?;
        Ok((reader, head))
    }

    /// The next item; none at its end, which agrees with all that was read.
    pub fn next(&mut self) -> Result<Option<Item>, Unread> {
        let before = self.hash.clone();
        let (kind, framed) = self.frame()?;
        if kind == Kind::StreamEnd as u8 {
            let end: StreamEnd = self.body(Kind::StreamEnd, &framed)?;
            let digest: [u8; 32] = before.finalize().into();
            if end.counts != self.counts || end.digest != digest {
                return Err("its end does not agree with what is before it".into());
            }
            return match self.from.read(&mut [0]).map_err(Unread::Source)? {
                0 => Ok(None),
                _ => Err("something is behind its end".into()),
            };
        }
        let item = Item::try_from(self.body::<StoredItem<'_>>(Kind::StreamItem, &framed)?)?;
        self.counts.count(&item);
        Ok(Some(item))
    }

    /// What was read so far.
    pub fn counts(&self) -> ItemCounts {
        self.counts
    }

    /// A whole frame, and the kind that it says it is of.
    fn frame(&mut self) -> Result<(u8, Vec<u8>), Unread> {
        let mut head = [0; envelope::HEAD_BYTES];
        self.fill(&mut head)?;
        let [_, kind, len @ ..] = head;
        let len = u32::from_be_bytes(len) as usize;
        if len > codec::BODY_BYTES_MAX {
            return Err("a frame is longer than any".into());
        }
        let mut framed = head.to_vec();
        // As it comes: a length alone claims no memory.
        let rest = (len + envelope::CRC_BYTES) as u64;
        let read = (&mut self.from).take(rest).read_to_end(&mut framed).map_err(Unread::Source)?;
        if read as u64 != rest {
            return Err("it ends in the middle".into());
        }
        self.hash.update(&framed);
        Ok((kind, framed))
    }

    fn body<T: serde::de::DeserializeOwned>(&mut self, kind: Kind, framed: &[u8]) -> Result<T, Unread> {
        let place = self.frames.to_be_bytes();
        self.frames += 1;
        Ok(envelope::open(Table::Stream, &place, kind, framed)?)
    }

    fn fill(&mut self, bytes: &mut [u8]) -> Result<(), Unread> {
        self.from.read_exact(bytes).map_err(|fault| match fault.kind() {
            io::ErrorKind::UnexpectedEof => "it ends in the middle".into(),
            _ => Unread::Source(fault),
        })
    }
}

impl<'e> From<&'e Item> for StoredItem<'e, Octets<'e>> {
    fn from(item: &'e Item) -> Self {
        match item {
            Item::Outcome(kept) => Self::Outcome {
                windows: kept.windows,
                generation: kept.generation,
                at: kept.at,
                ended_by: kept.ended_by as u8,
                made: kept.made,
                told: Box::new(StoredTold::from(&kept.told)),
            },
            Item::Open(open) => Self::Open(Box::new(StoredOpen::from(&**open))),
            Item::Row { key, event_time, content } => {
                Self::Row { key: key.clone(), event_time: *event_time, content: StoredContent::from(content) }
            }
            Item::Message { id, status, letter } => Self::Message {
                id: *id,
                status: Cow::Borrowed(status),
                letter: letter.as_ref().map(Cow::Borrowed),
            },
        }
    }
}

impl TryFrom<StoredItem<'_>> for Item {
    type Error = Unreadable;

    fn try_from(stored: StoredItem<'_>) -> Result<Self, Unreadable> {
        Ok(match stored {
            StoredItem::Outcome { windows, generation, at, ended_by, made, told } => {
                let ended_by = Transition::of(ended_by).filter(|transition| transition.is_outcome());
                let ended_by = ended_by.ok_or("an outcome has a transition that makes none")?;
                let told = Told::try_from(*told)?;
                Self::Outcome(Box::new(Kept { windows, generation, at, ended_by, told, made }))
            }
            StoredItem::Open(open) => Self::Open(Box::new(Open::try_from(*open)?)),
            StoredItem::Row { key, event_time, content } => {
                Self::Row { key, event_time, content: Content::try_from(content)? }
            }
            StoredItem::Message { id, status, letter } => Self::Message {
                id,
                status: Box::new(status.into_owned()),
                letter: letter.map(Cow::into_owned),
            },
        })
    }
}
