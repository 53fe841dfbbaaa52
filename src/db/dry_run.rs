//! A file that takes every write and keeps none: opened on it, the storage engine does all that it does at an
//! open, and a store that is then refused was not touched. Owns the pages that would have been written; must
//! not know what is in them.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::ops::Bound;

use parking_lot::Mutex;
use redb::{BackendError, StorageBackend};

const PAGE_BYTES: u64 = 4096;

/// A backend below, and what was written on top of it.
#[derive(Debug)]
pub(super) struct DryRun<B> {
    below: B,
    written: Mutex<Written>,
}

#[derive(Debug)]
struct Written {
    len: u64,
    /// How far the bytes below still show: what was cut off once is zeros when the file grows again.
    shows: u64,
    pages: BTreeMap<u64, Vec<u8>>,
}

impl<B: StorageBackend> DryRun<B> {
    pub fn new(below: B) -> io::Result<Self> {
        let len = below.len()?;
        Ok(Self { below, written: Mutex::new(Written { len, shows: len, pages: BTreeMap::new() }) })
    }

    /// A page as it would be in the file: zeros beyond its end.
    fn page(&self, written: &Written, page: u64) -> io::Result<Vec<u8>> {
        if let Some(bytes) = written.pages.get(&page) {
            return Ok(bytes.clone());
        }
        let mut bytes = vec![0; usize_of(PAGE_BYTES)];
        let start = page * PAGE_BYTES;
        if start < written.shows {
            let there = usize_of((written.shows - start).min(PAGE_BYTES));
            self.below.read(start, &mut bytes[..there])?;
        }
        Ok(bytes)
    }
}

impl Written {
    /// Whether nothing of `offset..offset + len` was written: the bytes below are what is read, at once.
    fn leaves(&self, offset: u64, len: usize) -> bool {
        let end = offset + len as u64;
        let touched = offset / PAGE_BYTES..end.div_ceil(PAGE_BYTES);
        end <= self.shows && self.pages.range(touched).next().is_none()
    }
}

/// The parts of `offset..offset + len` that lie in one page each: page, first byte in it, length.
fn pieces(offset: u64, len: usize) -> impl Iterator<Item = (u64, usize, usize)> {
    let end = offset + len as u64;
    let mut at = offset;
    std::iter::from_fn(move || {
        let within = at % PAGE_BYTES;
        let piece = (PAGE_BYTES - within).min(end - at);
        let page = at / PAGE_BYTES;
        at += piece;
        (piece > 0).then_some((page, usize_of(within), usize_of(piece)))
    })
}

/// At most a page, or the length of a slice.
fn usize_of(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

impl<B: StorageBackend> StorageBackend for DryRun<B> {
    fn len(&self) -> io::Result<u64> {
        Ok(self.written.lock().len)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let written = self.written.lock();
        if offset.checked_add(out.len() as u64).is_none_or(|end| end > written.len) {
            return Err(io::Error::new(ErrorKind::UnexpectedEof, "a read beyond the end of the file"));
        }
        if written.leaves(offset, out.len()) {
            return self.below.read(offset, out);
        }
        let mut done = 0;
        for (page, start, len) in pieces(offset, out.len()) {
            let bytes = self.page(&written, page)?;
            out[done..done + len].copy_from_slice(&bytes[start..start + len]);
            done += len;
        }
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut written = self.written.lock();
        if len < written.len {
            let cut = len / PAGE_BYTES;
            let mut last = self.page(&written, cut)?;
            last[usize_of(len % PAGE_BYTES)..].fill(0);
            written.pages.split_off(&cut);
            written.pages.insert(cut, last);
            written.shows = written.shows.min(len);
        }
        written.len = len;
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut written = self.written.lock();
        let mut done = 0;
        for (page, start, len) in pieces(offset, data.len()) {
            let mut bytes = self.page(&written, page)?;
            bytes[start..start + len].copy_from_slice(&data[done..done + len]);
            written.pages.insert(page, bytes);
            done += len;
        }
        written.len = written.len.max(offset + data.len() as u64);
        Ok(())
    }

    fn close(&self) -> io::Result<()> {
        self.below.close()
    }

    fn try_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.below.try_lock_range(start, end)
    }

    fn try_lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.below.try_lock_shared_range(start, end)
    }

    fn lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.below.lock_range(start, end)
    }

    fn lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.below.lock_shared_range(start, end)
    }

    fn unlock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.below.unlock_range(start, end)
    }

    fn query_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.below.query_lock_range(start, end)
    }
}

#[cfg(test)]
mod tests {
    use redb::backends::InMemoryBackend;

    use super::*;

    fn below(bytes: &[u8]) -> InMemoryBackend {
        let below = InMemoryBackend::new();
        below.set_len(bytes.len() as u64).unwrap();
        below.write(0, bytes).unwrap();
        below
    }

    fn all(file: &impl StorageBackend) -> Vec<u8> {
        let mut bytes = vec![0; usize_of(file.len().unwrap())];
        file.read(0, &mut bytes).unwrap();
        bytes
    }

    #[test]
    fn shows_what_was_written_and_writes_nothing() {
        let wrote: Vec<u8> = (0..10_000_u32).map(|at| at.to_le_bytes()[0]).collect();
        let file = DryRun::new(below(&wrote)).unwrap();
        let mut expected = wrote.clone();
        for (offset, data) in
            [(0, vec![1; 3]), (4095, vec![2; 2]), (4000, vec![3; 5000]), (9_999, vec![4; 1])]
        {
            file.write(offset, &data).unwrap();
            expected[usize_of(offset)..][..data.len()].copy_from_slice(&data);
            assert!(all(&file) == expected);
            // Parts that were written and parts that were not, at once and alone.
            for (from, len) in
                [(0, 0), (1, 2), (4, 4090), (4095, 1), (4096, 4096), (8_000, 1_999), (9_999, 1)]
            {
                let mut part = vec![0; len];
                file.read(from, &mut part).unwrap();
                assert!(part == expected[usize_of(from)..][..len], "{len} bytes at {from}");
            }
        }
        assert!(all(&file.below) == wrote);
    }

    #[test]
    fn what_was_cut_off_comes_back_as_zeros() {
        let wrote = vec![7; 10_000];
        let file = DryRun::new(below(&wrote)).unwrap();
        file.set_len(5_000).unwrap();
        file.set_len(9_000).unwrap();
        assert!(all(&file) == [vec![7; 5_000], vec![0; 4_000]].concat());
        file.write(8_999, &[1, 2]).unwrap();
        assert_eq!(file.len().unwrap(), 9_001);
        assert!(file.read(9_000, &mut [0; 2]).is_err());
        assert!(all(&file.below) == wrote);
    }
}
