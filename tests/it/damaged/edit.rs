//! Changes to a file with the storage engine itself that leave every checksum right.

use std::path::{Path, PathBuf};

use onecho::{Options, Store};
use redb::{Database, ReadableTable, WriteTransaction};

use super::{make_with, options, quick_dir};
use crate::format::{self, Block, Read, Row, Scopes, framed, scopes_value, unframed};

/// All that was written is merged, or none of it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Merged {
    All,
    None,
}

/// A sound store.
pub fn made(merged: Merged) -> (tempfile::TempDir, PathBuf) {
    let dir = quick_dir();
    let path = dir.path().join("orders.onecho");
    let late_bytes = if merged == Merged::All { 0 } else { 1 << 20 };
    let options: Options = options().late_bytes(late_bytes);
    make_with(&path, options.clone());
    if merged == Merged::All {
        // What the last commit added is merged by the first one of the next open.
        Store::open(&path, options).unwrap().close().unwrap();
    }
    let store = Read::of(&path);
    store.check();
    let waits = (store.index != store.index_table, store.rows != store.row_table);
    assert_eq!(waits, (merged == Merged::None, merged == Merged::None));
    (dir, path)
}

/// A sound store of which all is merged, changed by `work` behind the program's back.
pub fn edited(work: impl FnOnce(&WriteTransaction, &mut Read)) -> (tempfile::TempDir, PathBuf) {
    let (dir, path) = made(Merged::All);
    edit(&path, work);
    (dir, path)
}

/// `work` also gets what the store says of itself; counts and heads that it changes there are written.
pub fn edit(path: &Path, work: impl FnOnce(&WriteTransaction, &mut Read)) {
    edit_tables(path, |write, store| {
        work(write, store);
        let frame = framed(format::META_NUMBER, b"state", 2, &store.said.body());
        write.open_table(format::META).unwrap().insert("state", &frame[..]).unwrap();
    });
}

/// The same, without a newer state in `meta`.
pub fn edit_tables(path: &Path, work: impl FnOnce(&WriteTransaction, &mut Read)) {
    let mut store = Read::of(path);
    let database = Database::open(path).unwrap();
    let write = database.begin_write().unwrap();
    work(&write, &mut store);
    write.commit().unwrap();
}

/// Changes the first block of the index, with a right checksum.
pub fn rewrite_index(write: &WriteTransaction, store: &Read, change: impl FnOnce(&mut Scopes)) {
    let key = [0; 16];
    let mut scopes = store.index_rows[&key].clone();
    change(&mut scopes);
    write.open_table(format::INDEX).unwrap().insert(&key, &scopes_value(&key, &scopes)[..]).unwrap();
}

/// The frame of a row under a key.
pub fn row_frame(key: &[u8], row: &Row) -> Vec<u8> {
    framed(format::RESOURCE_NUMBER, key, 5, &row.body())
}

/// Puts a row under a key, with a right checksum.
pub fn put_row(write: &WriteTransaction, key: &[u8], row: &Row) {
    write.open_table(format::RESOURCE).unwrap().insert(key, &row_frame(key, row)[..]).unwrap();
}

/// Changes a block, with right checksums and lengths.
pub fn rewrite_block(write: &WriteTransaction, key: [u8; 10], change: impl FnOnce(&mut Block)) {
    let mut journal = write.open_table(format::JOURNAL).unwrap();
    let mut block = Block::read(&key, journal.get(&key).unwrap().unwrap().value());
    change(&mut block);
    journal.insert(&key, &block.value(&key)[..]).unwrap();
}

/// Changes the frame of the one entry of a block.
pub fn rewrite_frame(write: &WriteTransaction, key: [u8; 10], change: impl FnOnce(&mut Vec<u8>)) {
    rewrite_block(write, key, |block| change(&mut block.entries[0].frame));
}

/// Changes the body of the one entry of a block, with a right checksum.
pub fn rewrite_entry(write: &WriteTransaction, key: [u8; 10], change: impl FnOnce(&mut Vec<u8>)) {
    rewrite_frame(write, key, |frame| {
        let mut body = unframed(format::JOURNAL_NUMBER, &key, 4, frame);
        change(&mut body);
        *frame = framed(format::JOURNAL_NUMBER, &key, 4, &body);
    });
}

pub fn entry_key(seq: u64) -> [u8; 10] {
    [&[0, 1][..], &seq.to_be_bytes()].concat().try_into().unwrap()
}

/// The place in the index of the scope whose newest entry is `seq`.
pub fn scope_of(store: &Read, seq: u64) -> [u8; 16] {
    *store.index.iter().find(|(_, at)| **at == entry_key(seq)).unwrap().0
}

/// Opens, and `verify` tells each of `faults`.
#[track_caller]
pub fn verify_tells(path: &Path, faults: &[&str]) {
    let store = Store::open(path, options()).unwrap();
    let report = store.verify().unwrap();
    assert!(!report.is_clean());
    for fault in faults {
        assert!(
            report.faults.iter().any(|told| told.contains(fault)),
            "{fault:?} is not in {:#?}",
            report.faults
        );
    }
}
