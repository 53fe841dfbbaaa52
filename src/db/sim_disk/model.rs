//! What a power cut may leave: what is durable, what is pending, and how operations move the one to the
//! other.
//!
//! Owns the rules of durability. A change is pending from its call on, and durable once a sync that *began*
//! after it has ended well. It must not know redb, faults or locks: it only sees what was done and how it
//! ended.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::pages::Pages;
use super::rng::mix;

/// A file's identity, which survives its name.
pub(crate) type FileId = usize;
pub(crate) type Name = Arc<str>;

/// A change that a sync makes durable.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    Write {
        file: FileId,
        offset: u64,
        data: Arc<[u8]>,
    },
    SetLen {
        file: FileId,
        len: u64,
    },
    /// Length and blocks at once: the whole file reads as zeros where nothing was written.
    Allocate {
        file: FileId,
        len: u64,
    },
    /// A new, empty file gets its name.
    Create {
        file: FileId,
        name: Name,
    },
    Rename {
        file: FileId,
        from: Name,
        to: Name,
    },
    Remove {
        name: Name,
    },
}

impl Change {
    /// The file whose sync makes it durable; `None` for the directory's.
    pub(crate) fn file(&self) -> Option<FileId> {
        match self {
            Self::Write { file, .. } | Self::SetLen { file, .. } | Self::Allocate { file, .. } => Some(*file),
            Self::Create { .. } | Self::Rename { .. } | Self::Remove { .. } => None,
        }
    }
}

/// One line of the log.
#[derive(Clone, Debug)]
pub(crate) enum Logged {
    Changed(Change),
    SyncBegin {
        sync: u64,
    },
    SyncDone {
        file: FileId,
        sync: u64,
        end: SyncEnd,
    },
    /// All changes of names so far are durable.
    DirectorySynced,
    /// Something outside was told, for example a caller that its command is done.
    Mark,
}

/// How a sync ended, whatever it said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SyncEnd {
    /// What came before its beginning is durable.
    Durable,
    /// Nothing became durable; all of it is still pending.
    Lied,
    /// Nothing became durable, and nothing of it ever will: the kernel calls those pages clean.
    Lost,
}

/// What happens to a write past the end of a file whose growth was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Beyond {
    /// The file ends after it, with zeros in between.
    Extends,
    /// It is lost as well.
    Lost,
}

/// Names and bytes at rest.
#[derive(Clone, Debug, Default)]
pub(crate) struct Image {
    pub(crate) names: BTreeMap<Name, FileId>,
    pub(crate) files: Vec<Pages>,
}

impl Image {
    /// The file under a name.
    pub(crate) fn named(&self, name: &str) -> Option<FileId> {
        self.names.get(name).copied()
    }

    /// The file's bytes; one that this image never heard of is empty.
    pub(crate) fn file_mut(&mut self, file: FileId) -> &mut Pages {
        if file >= self.files.len() {
            self.files.resize(file + 1, Pages::default());
        }
        &mut self.files[file]
    }

    pub(crate) fn apply(&mut self, change: &Change, beyond: Beyond) {
        match change {
            Change::Write { file, offset, data } => self.write(*file, *offset, data, beyond),
            Change::SetLen { file, len } => self.file_mut(*file).set_len(*len),
            Change::Allocate { file, len } => {
                let pages = self.file_mut(*file);
                pages.set_len(*len);
                pages.allocate(0, *len);
            }
            Change::Create { file, name } => {
                self.file_mut(*file);
                self.names.insert(name.clone(), *file);
            }
            // The new name may be durable although the creation under the old one is not.
            Change::Rename { file, from, to } => {
                self.file_mut(*file);
                if self.named(from) == Some(*file) {
                    self.names.remove(from);
                }
                self.names.insert(to.clone(), *file);
            }
            Change::Remove { name } => {
                self.names.remove(name);
            }
        }
    }

    pub(crate) fn write(&mut self, file: FileId, offset: u64, data: &[u8], beyond: Beyond) {
        let pages = self.file_mut(file);
        let kept = match beyond {
            Beyond::Extends => data.len(),
            Beyond::Lost => {
                let room = usize::try_from(pages.len().saturating_sub(offset)).unwrap_or(usize::MAX);
                room.min(data.len())
            }
        };
        if kept > 0 {
            pages.write(offset, &data[..kept]);
        }
    }

    /// Of all that can be reached through a name.
    pub(crate) fn hash(&self) -> u64 {
        self.names.iter().fold(self.names.len() as u64, |hash, (name, file)| {
            let name = name.bytes().fold(hash, |hash, byte| mix(hash, u64::from(byte)));
            mix(name, self.files.get(*file).map_or(0, Pages::hash))
        })
    }
}

/// The part of a disk that a power cut sees.
#[derive(Clone, Debug, Default)]
pub(crate) struct Model {
    durable: Image,
    /// In the order of their calls, each with its place in that order.
    pending: Vec<(u64, Change)>,
    next: u64,
    /// Where in that order each sync that is under way began.
    syncs: BTreeMap<u64, u64>,
}

impl Model {
    /// A disk on which everything is durable.
    pub(crate) fn at_rest(durable: Image) -> Self {
        Self { durable, ..Self::default() }
    }

    pub(crate) fn durable(&self) -> &Image {
        &self.durable
    }

    pub(crate) fn pending_len(&self) -> usize {
        self.pending.len()
    }

    pub(crate) fn pending(&self) -> impl Iterator<Item = &Change> {
        self.pending.iter().map(|(_, change)| change)
    }

    pub(crate) fn apply(&mut self, logged: &Logged) {
        match logged {
            Logged::Changed(change) => {
                self.pending.push((self.next, change.clone()));
                self.next += 1;
            }
            Logged::SyncBegin { sync } => {
                self.syncs.insert(*sync, self.next);
            }
            Logged::SyncDone { file, sync, end } => {
                let before = self.syncs.remove(sync).unwrap_or(0);
                match end {
                    SyncEnd::Durable => self.retire(|at, of| of == Some(*file) && at < before, true),
                    SyncEnd::Lost => self.retire(|at, of| of == Some(*file) && at < before, false),
                    SyncEnd::Lied => {}
                }
            }
            Logged::DirectorySynced => self.retire(|_, of| of.is_none(), true),
            Logged::Mark => {}
        }
    }

    /// Takes those out of the pending changes that `chosen` says, and makes them durable or forgets them.
    fn retire(&mut self, chosen: impl Fn(u64, Option<FileId>) -> bool, durable: bool) {
        let image = &mut self.durable;
        self.pending.retain(|(at, change)| {
            let retired = chosen(*at, change.file());
            if retired && durable {
                image.apply(change, Beyond::Extends);
            }
            !retired
        });
    }
}
