//! The running disk: what a process that has it open sees, and what goes wrong when.
//!
//! Owns the live bytes, the faults, the locks and the count of operations; every change goes through here
//! into the model and the log. It must not know redb.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::time::Duration;

use super::Fault;
use super::crash::Log;
use super::model::{Beyond, Change, FileId, Image, Logged, Model, Name, SyncEnd};
use super::pages::PAGE_BYTES;
use super::rng::Rng;

#[derive(Debug)]
pub(super) struct State {
    pub(super) seed: u64,
    pub(super) rng: Rng,
    pub(super) model: Model,
    /// What reads return: everything that was done and not cut off.
    pub(super) live: Image,
    pub(super) log: Option<Log>,
    /// The power is gone: whoever still runs gets errors.
    pub(super) cut: bool,
    pub(super) operations: u64,
    /// Who holds which file.
    locks: BTreeMap<FileId, u64>,
    armed: Vec<Armed>,
    /// Blocks left once the disk is full; `None` while there is no end of them.
    blocks_free: Option<u64>,
    pub(super) sync_delay: Duration,
    /// The last number given to a lock, a sync or a temporary name.
    serial: u64,
}

#[derive(Debug)]
struct Armed {
    /// The first operation that it may hit.
    from: u64,
    fault: Fault,
}

/// A sync between its beginning and its end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Syncing {
    file: FileId,
    sync: u64,
    end: SyncEnd,
    pub(super) delay: Duration,
}

impl State {
    pub(super) fn at_rest(seed: u64, image: Image) -> Self {
        Self {
            seed,
            rng: Rng::derived(seed, u64::MAX),
            live: image.clone(),
            model: Model::at_rest(image),
            log: None,
            cut: false,
            operations: 0,
            locks: BTreeMap::new(),
            armed: Vec::new(),
            blocks_free: None,
            sync_delay: Duration::ZERO,
            serial: 0,
        }
    }

    pub(super) fn arm(&mut self, fault: Fault, after_operations: u64) {
        let from = self.operations.saturating_add(after_operations);
        self.armed.push(Armed { from, fault });
    }

    pub(super) fn heal(&mut self) {
        self.armed.clear();
        self.blocks_free = None;
        self.sync_delay = Duration::ZERO;
    }

    pub(super) fn serial(&mut self) -> u64 {
        self.serial += 1;
        self.serial
    }

    pub(super) fn powered(&self) -> io::Result<()> {
        if self.cut { Err(error("the power is gone")) } else { Ok(()) }
    }

    /// Each operation begins here: it is counted, and refused when the power is gone.
    fn begin(&mut self) -> io::Result<()> {
        self.powered()?;
        if self.due(|fault| matches!(fault, Fault::NoSpace)).is_some() {
            self.blocks_free.get_or_insert(0);
        }
        if let Some(Fault::SlowSync(delay)) = self.due(|fault| matches!(fault, Fault::SlowSync(_))) {
            self.sync_delay = delay;
        }
        self.operations += 1;
        Ok(())
    }

    /// Takes the first fault out that fits and whose time has come.
    fn due(&mut self, fits: impl Fn(&Fault) -> bool) -> Option<Fault> {
        let now = self.operations;
        let due = self.armed.iter().position(|armed| armed.from <= now && fits(&armed.fault))?;
        Some(self.armed.remove(due).fault)
    }

    pub(super) fn note(&mut self, logged: Logged) {
        self.model.apply(&logged);
        if let Some(log) = &mut self.log {
            log.lines.push(logged);
        }
    }

    fn change(&mut self, change: Change) {
        self.live.apply(&change, Beyond::Extends);
        self.note(Logged::Changed(change));
    }

    pub(super) fn len(&self, file: FileId) -> io::Result<u64> {
        self.powered()?;
        Ok(self.live.files.get(file).map_or(0, super::pages::Pages::len))
    }

    pub(super) fn read(&mut self, file: FileId, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let fault = self.due(|fault| matches!(fault, Fault::Read));
        self.begin()?;
        if fault.is_some() {
            return Err(error("a read failed"));
        }
        if self.live.file_mut(file).read(offset, out) {
            Ok(())
        } else {
            Err(io::Error::new(ErrorKind::UnexpectedEof, "simulated: read past the end"))
        }
    }

    pub(super) fn write(&mut self, file: FileId, offset: u64, data: &[u8]) -> io::Result<()> {
        let fault = self.due(|fault| matches!(fault, Fault::Write));
        self.begin()?;
        if fault.is_some() {
            return Err(error("a write failed"));
        }
        self.take_blocks(file, offset, data.len() as u64)?;
        self.change(Change::Write { file, offset, data: data.into() });
        Ok(())
    }

    pub(super) fn set_len(&mut self, file: FileId, len: u64) -> io::Result<()> {
        self.begin()?;
        let before = self.live.file_mut(file).len();
        let blocks = self.blocks_free.map(|_| self.live.file_mut(file).blocks());
        if len > before {
            self.take_blocks(file, before, len - before)?;
        }
        self.change(Change::SetLen { file, len });
        if let (Some(free), Some(blocks)) = (&mut self.blocks_free, blocks) {
            let pages = self.live.file_mut(file);
            // A full disk keeps no promise of blocks that it would have to find later.
            pages.allocate(before, len.saturating_sub(before));
            *free += blocks.saturating_sub(pages.blocks());
        }
        Ok(())
    }

    /// Gives the whole file its length and its blocks.
    pub(super) fn allocate(&mut self, file: FileId, len: u64) -> io::Result<()> {
        self.begin()?;
        let before = self.live.file_mut(file).blocks() + self.live.file_mut(file).holes(0, len);
        self.take_blocks(file, 0, len)?;
        self.change(Change::Allocate { file, len });
        let after = self.live.file_mut(file).blocks();
        if let Some(free) = &mut self.blocks_free {
            *free += before.saturating_sub(after);
        }
        Ok(())
    }

    fn take_blocks(&mut self, file: FileId, offset: u64, len: u64) -> io::Result<()> {
        let Some(free) = self.blocks_free else {
            return Ok(());
        };
        let needed = self.live.file_mut(file).holes(offset, len);
        let left = free.checked_sub(needed);
        self.blocks_free =
            Some(left.ok_or_else(|| {
                io::Error::new(ErrorKind::StorageFull, "simulated: no space left on the disk")
            })?);
        Ok(())
    }

    pub(super) fn sync_begin(&mut self, file: FileId) -> io::Result<Syncing> {
        let fault = self.due(|fault| matches!(fault, Fault::Sync | Fault::LyingSync));
        self.begin()?;
        let sync = self.serial();
        let end = match fault {
            Some(Fault::Sync) => SyncEnd::Lost,
            Some(_) => SyncEnd::Lied,
            None => SyncEnd::Durable,
        };
        self.note(Logged::SyncBegin { sync });
        Ok(Syncing { file, sync, end, delay: self.sync_delay })
    }

    pub(super) fn sync_end(&mut self, syncing: Syncing) -> io::Result<()> {
        self.powered()?;
        let Syncing { file, sync, end, .. } = syncing;
        self.note(Logged::SyncDone { file, sync, end });
        match end {
            SyncEnd::Lost => Err(error("a sync failed")),
            SyncEnd::Durable | SyncEnd::Lied => Ok(()),
        }
    }

    pub(super) fn sync_directory(&mut self) -> io::Result<()> {
        let fault = self.due(|fault| matches!(fault, Fault::Sync | Fault::LyingSync));
        self.begin()?;
        match fault {
            Some(Fault::Sync) => return Err(error("a sync of the directory failed")),
            Some(_) => {}
            None => self.note(Logged::DirectorySynced),
        }
        Ok(())
    }

    /// Forgets what is cached of a file: reads return what is durable, and what was written since.
    pub(super) fn drop_cached(&mut self, file: FileId) {
        let mut image = Image::default();
        if let Some(durable) = self.model.durable().files.get(file) {
            *image.file_mut(file) = durable.clone();
        }
        for change in self.model.pending().filter(|change| change.file() == Some(file)) {
            image.apply(change, Beyond::Extends);
        }
        *self.live.file_mut(file) = image.file_mut(file).clone();
    }

    /// A new, empty file under a name that is free.
    pub(super) fn create(&mut self, name: Name) -> io::Result<FileId> {
        self.begin()?;
        let file = self.live.files.len();
        self.change(Change::Create { file, name });
        Ok(file)
    }

    pub(super) fn rename(&mut self, file: FileId, from: Name, to: Name) -> io::Result<()> {
        self.begin()?;
        self.change(Change::Rename { file, from, to });
        Ok(())
    }

    pub(super) fn remove(&mut self, name: Name) -> io::Result<()> {
        self.begin()?;
        if self.live.names.contains_key(&name) {
            self.change(Change::Remove { name });
        }
        Ok(())
    }

    pub(super) fn lock(&mut self, file: FileId, holder: u64) -> bool {
        *self.locks.entry(file).or_insert(holder) == holder
    }

    pub(super) fn unlock(&mut self, file: FileId, holder: u64) {
        if self.locks.get(&file) == Some(&holder) {
            self.locks.remove(&file);
        }
    }

    pub(super) fn is_locked(&self, file: FileId) -> bool {
        self.locks.contains_key(&file)
    }

    pub(super) fn blocks_bytes(&self, file: FileId) -> u64 {
        self.live.files.get(file).map_or(0, |pages| pages.blocks() * PAGE_BYTES as u64)
    }
}

/// What the hardware would say.
fn error(what: &str) -> io::Error {
    io::Error::other(format!("simulated: {what}"))
}
