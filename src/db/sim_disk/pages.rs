//! The bytes of one simulated file, in pages that are shared until one is written.
//!
//! Owns copy-on-write and the cached hash of a page: both are what makes a crash state cost microseconds. It
//! must not know what is durable or pending.

use std::sync::{Arc, LazyLock, OnceLock};

use super::rng::mix;

pub(super) const PAGE_BYTES: usize = 4096;

#[derive(Debug)]
struct Page {
    bytes: [u8; PAGE_BYTES],
    /// Computed at most once per content: a page is dirtied only through [`Page::bytes_mut`].
    hash: OnceLock<u64>,
}

impl Page {
    fn zeroed() -> Self {
        Self { bytes: [0; PAGE_BYTES], hash: OnceLock::new() }
    }

    fn bytes_mut(&mut self) -> &mut [u8; PAGE_BYTES] {
        self.hash.take();
        &mut self.bytes
    }

    fn hash(&self) -> u64 {
        *self.hash.get_or_init(|| {
            let (words, _) = self.bytes.as_chunks::<8>();
            words.iter().fold(0, |hash: u64, word| {
                let mixed = hash ^ u64::from_le_bytes(*word) ^ 0x9e37_79b9_7f4a_7c15;
                let product = u128::from(mixed) * 0xd6e8_feb8_6659_fd93;
                (product as u64) ^ ((product >> 64) as u64)
            })
        })
    }
}

impl Clone for Page {
    fn clone(&self) -> Self {
        Self { bytes: self.bytes, hash: OnceLock::new() }
    }
}

/// What a block reads as before anything is written to it; shared, so that a reserve costs no memory.
static ZEROS: LazyLock<Arc<Page>> = LazyLock::new(|| Arc::new(Page::zeroed()));

/// A file. A page that was never written is a hole: it reads as zeros and has no block.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pages {
    len: u64,
    pages: Vec<Option<Arc<Page>>>,
}

impl Pages {
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Fills `out`, or says no if the file ends before.
    pub(crate) fn read(&self, offset: u64, out: &mut [u8]) -> bool {
        if offset.checked_add(out.len() as u64).is_none_or(|end| end > self.len) {
            return false;
        }
        for_each_piece(offset, out.len(), |page, within, done| {
            let piece = &mut out[done..done + within.len()];
            match self.pages.get(page).and_then(Option::as_ref) {
                Some(page) => piece.copy_from_slice(&page.bytes[within]),
                None => piece.fill(0),
            }
        });
        true
    }

    /// Writes; a write past the end extends the file, with zeros in between.
    pub(crate) fn write(&mut self, offset: u64, data: &[u8]) {
        self.len = self.len.max(offset + data.len() as u64);
        self.pages.resize(pages_of(self.len), None);
        for_each_piece(offset, data.len(), |page, within, done| {
            let piece = &data[done..done + within.len()];
            self.page_mut(page)[within].copy_from_slice(piece);
        });
    }

    /// Cuts or extends the file; new bytes read as zeros.
    pub(crate) fn set_len(&mut self, len: u64) {
        self.pages.resize(pages_of(len), None);
        if len < self.len {
            let within = (len % PAGE_BYTES as u64) as usize;
            // What is cut off must not come back when the file grows again.
            if within > 0 && self.pages.last().is_some_and(Option::is_some) {
                let last = self.pages.len() - 1;
                self.page_mut(last)[within..].fill(0);
            }
        }
        self.len = len;
    }

    /// How many pages in this range have no block yet, counting those past the end.
    pub(crate) fn holes(&self, offset: u64, len: u64) -> u64 {
        let mut holes = 0;
        for_each_piece(offset, usize::try_from(len).unwrap_or(usize::MAX), |page, _, _| {
            holes += u64::from(self.pages.get(page).is_none_or(Option::is_none));
        });
        holes
    }

    /// Gives every page in the range a block, without changing what is read.
    pub(crate) fn allocate(&mut self, offset: u64, len: u64) {
        for_each_piece(offset, usize::try_from(len).unwrap_or(usize::MAX), |page, _, _| {
            if let Some(page) = self.pages.get_mut(page) {
                page.get_or_insert_with(|| ZEROS.clone());
            }
        });
    }

    /// How many pages have a block.
    pub(crate) fn blocks(&self) -> u64 {
        self.pages.iter().filter(|page| page.is_some()).count() as u64
    }

    /// Of what is read, not of how it is stored: a hole and a page of zeros are the same.
    pub(crate) fn hash(&self) -> u64 {
        self.pages
            .iter()
            .fold(mix(0, self.len), |hash, page| mix(hash, page.as_ref().unwrap_or(&ZEROS).hash()))
    }

    fn page_mut(&mut self, page: usize) -> &mut [u8; PAGE_BYTES] {
        let page = self.pages[page].get_or_insert_with(|| Arc::new(Page::zeroed()));
        Arc::make_mut(page).bytes_mut()
    }
}

fn pages_of(len: u64) -> usize {
    usize::try_from(len.div_ceil(PAGE_BYTES as u64)).unwrap_or(usize::MAX)
}

/// Cuts a range at page borders: the page, the range within it, and how many bytes came before.
fn for_each_piece(offset: u64, len: usize, mut piece: impl FnMut(usize, std::ops::Range<usize>, usize)) {
    let mut done = 0;
    while done < len {
        let at = offset + done as u64;
        let page = usize::try_from(at / PAGE_BYTES as u64).unwrap_or(usize::MAX);
        let start = (at % PAGE_BYTES as u64) as usize;
        let end = PAGE_BYTES.min(start + (len - done));
        piece(page, start..end, done);
        done += end - start;
    }
}
