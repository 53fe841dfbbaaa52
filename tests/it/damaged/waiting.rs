//! The same kind of changes to what waits in the journal: directories, tails, and how far the file says that
//! it is merged.

use onecho::{ErrorKind, Store};
use redb::{ReadableTable, WriteTransaction};

use super::edit::*;
use super::{NOTES, SHOP, Said, options, refuses};
use crate::format::{self, Content, Image, Listed, Read, State, Swept, framed};

/// A sound store of which nothing is merged, changed by `work`.
fn edited(work: impl FnOnce(&WriteTransaction, &mut Read)) -> (tempfile::TempDir, std::path::PathBuf) {
    let (dir, path) = made(Merged::None);
    edit(&path, work);
    (dir, path)
}

/// The same, without a newer state in `meta`.
fn edited_blocks(work: impl FnOnce(&WriteTransaction)) -> (tempfile::TempDir, std::path::PathBuf) {
    let (dir, path) = made(Merged::None);
    edit_tables(&path, |write, _| work(write));
    (dir, path)
}

fn image_of<'b>(block: &'b mut format::Block, key: &[u8]) -> &'b mut (Vec<u8>, Image) {
    block.rows.iter_mut().find(|(row, _)| row == key).unwrap()
}

#[test]
fn an_edit_that_changes_nothing_is_told_of_nothing() {
    let (_dir, path) = edited_blocks(|write| {
        for seq in 1..=24 {
            rewrite_block(write, entry_key(seq), |_| {});
        }
    });
    let store = Store::open(&path, options()).unwrap();
    assert_eq!(store.verify().unwrap().faults, [""; 0]);
    assert_eq!(Said::of(&store), Said::default());
}

#[test]
fn an_entry_that_is_listed_under_another_scope_is_told() {
    let (_dir, path) = edited_blocks(|write| {
        rewrite_block(write, entry_key(5), |block| block.entries[0].scope.as_mut().unwrap()[0] ^= 1);
        rewrite_block(write, entry_key(7), |block| block.entries[0].scope = None);
    });
    verify_tells(
        &path,
        &[
            "journal entry 5 of class 1: its block lists it under another scope",
            "journal entry 5 of class 1: the index does not know its scope",
            "journal entry 5 of class 1: the index leads another scope to it",
            "journal entry 7 of class 1: its block lists it under another scope",
        ],
    );
}

#[test]
fn a_row_that_waits_under_another_key_is_told_and_never_given() {
    let (_dir, path) = edited_blocks(|write| {
        rewrite_block(write, entry_key(6), |block| {
            image_of(block, b"tshop\0note\0n-5").0 = b"tshop\0note\0n-6".to_vec();
        });
        // What comes later would take its place.
        rewrite_block(write, entry_key(7), |block| block.rows.retain(|(key, _)| key != b"tshop\0note\0n-6"));
    });
    verify_tells(
        &path,
        &["row note/n-6: its checksum is wrong", "row note/n-5: entry 6 wrote it, and it is not there"],
    );
    let store = Store::open(&path, options()).unwrap();
    assert_eq!(store.get(&SHOP, &NOTES, "n-6").unwrap_err().kind(), ErrorKind::Corrupt);
}

#[test]
fn a_row_that_waits_and_says_something_else_is_told() {
    let key = b"tshop\0note\0n-5";
    let (_dir, path) = edited(|write, store| {
        let mut row = store.rows[&key[..]].clone();
        row.content = Content::Value(1, b"\"forged\"".to_vec());
        rewrite_block(write, entry_key(6), |block| {
            image_of(block, key).1 = Image::Here(row_frame(key, &row));
        });
        let missing = b"tshop\0note\0n-8";
        rewrite_block(write, entry_key(9), |block| image_of(block, missing).1 = Image::Removed);
        let unsettled = b"tshop\0note\0n-9";
        rewrite_block(write, entry_key(10), |block| image_of(block, unsettled).1 = Image::Settled);
        let count = b"tshop\0count\0all";
        for seq in 12..=24 {
            rewrite_block(write, entry_key(seq), |block| block.rows.retain(|(key, _)| key != count));
        }
    });
    verify_tells(
        &path,
        &[
            "row note/n-5: entry 6 wrote something else",
            "row note/n-8: entry 9 wrote it, and it is not there",
            "row note/n-9: entry 10 wrote it, and it is not there",
            "row count/all: entry 24 changed it later, and it does not show",
        ],
    );
}

#[test]
fn a_file_that_says_more_is_merged_than_is_told() {
    let faults = [
        "journal entry 5 of class 1: the index does not know its scope",
        "row note/n-4: entry 5 wrote it, and it is not there",
        "scopes: there are 14, not 24",
    ];
    let (_dir, path) = edited(|_, store| (store.said.merged_to, store.said.sweep_to) = (10, 10));
    verify_tells(&path, &faults);
    for swept in [&b"\xFF\xFF"[..], b"zz", b"uzz"] {
        let (_dir, path) = edited(|_, store| {
            store.said.sweep_to = 10;
            store.said.swept = Swept { scope: Some([0xFF; 16]), row: Some(swept.to_vec()) };
        });
        verify_tells(&path, &faults);
    }
    let (_dir, path) = edited(|_, store| {
        store.said.sweep_to = 24;
        store.said.swept = Swept { scope: Some([0xFF; 16]), row: None };
    });
    verify_tells(
        &path,
        &["journal entry 24 of class 1: the index does not know its scope", "scopes: there are 0, not 24"],
    );
}

/// What was never said to be swept is merged again, and that changes nothing.
#[test]
fn a_sweep_that_is_set_back_is_harmless() {
    let (_dir, path) = made(Merged::All);
    edit(&path, |_, store| {
        (store.said.merged_to, store.said.sweep_to, store.said.swept) = (0, 3, Swept::default());
    });
    let store = Store::open(&path, options()).unwrap();
    assert_eq!(store.verify().unwrap().faults, [""; 0]);
    assert_eq!(Said::of(&store), Said::default());
}

#[test]
fn a_state_that_is_not_of_the_blocks_own_commit_is_told() {
    let rewrite = |seq: u64, change: fn(&mut Option<State>)| {
        edited_blocks(|write| rewrite_block(write, entry_key(seq), |block| change(&mut block.state)))
    };
    let not_said = "its last block does not say how its commit left the store";
    let changes: [fn(&mut Option<State>); 2] =
        [|state| *state = None, |state| state.as_mut().unwrap().last_seq = 23];
    for change in changes {
        let (_dir, path) = rewrite(24, change);
        refuses(&path, &options(), ErrorKind::Corrupt, &["table journal", not_said]);
        let (_dir, path) = edited(|write, _| {
            rewrite_block(write, entry_key(24), |block| change(&mut block.state));
        });
        assert!(Store::open(&path, options()).is_ok(), "the row of meta is as new");
    }
    let (_dir, path) = rewrite(24, |state| state.as_mut().unwrap().merged_to = 25);
    refuses(&path, &options(), ErrorKind::Corrupt, &["more was merged than was written"]);
    let (_dir, path) = rewrite(5, |state| state.as_mut().unwrap().last_seq = 24);
    verify_tells(&path, &["the block of journal entry 5 of class 1: it says how another commit"]);
}

#[test]
fn blocks_that_overlap_are_told() {
    let overlap = |write: &WriteTransaction| {
        let mut next = None;
        rewrite_block(write, entry_key(6), |block| next = block.entries.first().cloned());
        rewrite_block(write, entry_key(5), |block| {
            block.entries.push(Listed { above: 1, ..next.unwrap() });
            block.state.as_mut().unwrap().last_seq = 6;
        });
    };
    let (_dir, path) = edited_blocks(overlap);
    refuses(
        &path,
        &options(),
        ErrorKind::Corrupt,
        &["table journal: it has 25 entries above number 0, not 24"],
    );
    let (_dir, path) = made(Merged::All);
    edit_tables(&path, |write, _| overlap(write));
    verify_tells(
        &path,
        &[
            "journal entry 6 of class 1: its number is out of order",
            "entries of journal: there are 25, not 24",
        ],
    );
}

/// A block that is passed over would leave older rows to answer.
#[test]
fn a_block_that_is_missing_among_what_waits_is_told_at_the_open() {
    let (_dir, path) = edited(|write, store| {
        write.open_table(format::JOURNAL).unwrap().remove(&entry_key(5)).unwrap();
        store.said.blocks -= 1;
    });
    refuses(
        &path,
        &options(),
        ErrorKind::Corrupt,
        &["table journal: it has 23 entries above number 0, not 24"],
    );
}

/// Puts another directory before the entries of a block.
fn relist(write: &WriteTransaction, seq: u64, directory: &[u8]) {
    let key = entry_key(seq);
    let mut journal = write.open_table(format::JOURNAL).unwrap();
    let value = journal.get(&key).unwrap().unwrap().value().to_vec();
    let len = u32::from_be_bytes(value[2..6].try_into().unwrap()) as usize;
    let frame = framed(format::JOURNAL_NUMBER, &key, 6, directory);
    journal.insert(&key, &[&frame, &value[6 + len + 4..]].concat()[..]).unwrap();
}

#[test]
fn a_directory_that_lies_is_told() {
    let tail = "the tail of the block of journal entry 5 of class 1";
    for (directory, words) in [
        (&[0][..], "its first entry is not the one that its key names"),
        (&[1, 1, 100, 0, 0], "its first entry is not the one that its key names"),
        (&[2, 0, 100, 0, 0, 0, 100, 0, 0], "its entries are out of order"),
        (&[3, 0, 1, 0, 0, 2, 1, 0, 0, 1, 1, 0, 0], "its entries are out of order"),
        (
            &[2, 0, 1, 0, 0, 253, 255, 255, 255, 255, 255, 255, 255, 255, 1, 0, 0],
            "an entry has a number that does not exist",
        ),
        (&[1, 0, 0, 0, 0], tail),
        (&[1, 0, 100, 0, 0], tail),
        (&[2, 0, 252, 255, 255, 255, 255, 0, 0, 1, 252, 255, 255, 255, 255, 0, 0], "it is cut"),
    ] {
        let (_dir, path) = edited_blocks(|write| relist(write, 5, directory));
        refuses(&path, &options(), ErrorKind::Corrupt, &["journal entry 5 of class 1", words]);
        // Where it does not wait, the open has no need of it.
        let (_dir, path) = made(Merged::All);
        edit_tables(&path, |write, _| relist(write, 5, directory));
        verify_tells(&path, &[words]);
    }
}

#[test]
fn a_tail_that_names_no_row_is_told() {
    let (_dir, path) = edited_blocks(|write| {
        rewrite_block(write, entry_key(5), |block| block.rows[0].0 = b"xyz".to_vec());
    });
    refuses(&path, &options(), ErrorKind::Corrupt, &["a key names no row"]);
}
