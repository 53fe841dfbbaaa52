//! Changes that leave every checksum right: made with the storage engine itself, as a wrong program or a
//! person would, to a store of which all is merged. The open looks at counts and at the ends of chains;
//! `verify` looks at everything, and says where.

use std::io::Write;
use std::process::{Command, Stdio};

use onecho::{ErrorKind, Store};
use redb::{Database, ReadableTable, WriteTransaction};

use super::edit::*;
use super::{COMMANDS, Said, options, refuses, request};
use crate::format::{self, Block, Content, Image, Read, Row, State, framed, scopes_value, unframed};

#[test]
fn an_edit_that_changes_nothing_is_told_of_nothing() {
    let (_dir, path) = edited(|write, state| {
        rewrite_entry(write, entry_key(5), |_| {});
        let key = b"tshop\0note\0n-5";
        put_row(write, key, &state.rows[&key[..]]);
        let key = b"ushop\0name\0u-5";
        put_row(write, key, &state.rows[&key[..]]);
    });
    let store = Store::open(&path, options()).unwrap();
    assert_eq!(store.verify().unwrap().faults, [""; 0]);
    assert_eq!(Said::of(&store), Said::default());
}

#[test]
fn rows_that_are_too_few_or_too_many_are_told_at_the_open() {
    let (_dir, path) = edited(|write, state| {
        let first = *state.index_rows.keys().next().unwrap();
        write.open_table(format::INDEX).unwrap().remove(&first).unwrap();
    });
    refuses(
        &path,
        &options(),
        ErrorKind::Corrupt,
        &["table index: it has 0 rows, not 1", "restore from a backup"],
    );
    let (_dir, path) = edited(|write, _| {
        write.open_table(format::JOURNAL).unwrap().remove(&entry_key(5)).unwrap();
    });
    refuses(&path, &options(), ErrorKind::Corrupt, &["table journal: it has 23 rows, not 24"]);
    let (_dir, path) = edited(|write, _| {
        write.open_table(format::RESOURCE).unwrap().remove(&b"tshop\0note\0n-5"[..]).unwrap();
    });
    refuses(&path, &options(), ErrorKind::Corrupt, &["table resource: it has 48 rows, not 49"]);
    let (_dir, path) = edited(|write, state| {
        write.open_table(format::JOURNAL).unwrap().remove(&entry_key(24)).unwrap();
        state.said.blocks -= 1;
    });
    refuses(&path, &options(), ErrorKind::Corrupt, &["journal entry 24 of class 1", "the chain ends there"]);
}

#[test]
fn rows_of_the_store_itself_that_are_missing_are_told_at_the_open() {
    for name in ["identity", "state"] {
        let (_dir, path) = edited(|_, _| {});
        let database = Database::open(&path).unwrap();
        let write = database.begin_write().unwrap();
        write.open_table(format::META).unwrap().remove(name).unwrap();
        write.commit().unwrap();
        drop(database);
        refuses(
            &path,
            &options(),
            ErrorKind::Corrupt,
            &[&format!("row `{name}` of table meta: it is missing")],
        );
    }
    let (_dir, path) = edited(|write, _| {
        write.open_table(format::CLASS).unwrap().insert(&[0, 1], &b"short"[..]).unwrap();
    });
    refuses(&path, &options(), ErrorKind::Corrupt, &["class 1: 5 bytes are too few"]);
    let (_dir, path) = edited(|write, _| {
        assert!(write.delete_table(format::INDEX).unwrap());
    });
    refuses(&path, &options(), ErrorKind::Corrupt, &["index"]);
}

#[test]
fn verify_names_what_was_taken_out_or_put_in() {
    let (_dir, path) = edited(|write, state| {
        let gone = scope_of(state, 5);
        rewrite_index(write, state, |scopes| scopes.retain(|(scope, _)| *scope != gone));
    });
    verify_tells(
        &path,
        &[
            "journal entry 5 of class 1: the index does not know its scope",
            "scopes of index: there are 23, not 24",
        ],
    );
    let (_dir, path) = edited(|write, state| {
        write.open_table(format::RESOURCE).unwrap().remove(&b"tshop\0note\0n-5"[..]).unwrap();
        state.said.settled -= 1;
    });
    verify_tells(&path, &["row note/n-5: entry 6 wrote it, and it is not there"]);
    let (_dir, path) = edited(|write, state| {
        put_row(write, b"tshop\0note\0forged", &state.rows[&b"tshop\0note\0n-5"[..]]);
        state.said.settled += 1;
    });
    verify_tells(&path, &["row note/forged: entry 6 did not write it"]);
}

/// Makes the index lead the scope of entry 5 to another place.
fn lead(write: &WriteTransaction, state: &Read, to: [u8; 10]) {
    let scope = scope_of(state, 5);
    rewrite_index(write, state, |scopes| {
        scopes.iter_mut().find(|(other, _)| *other == scope).unwrap().1 = to
    });
}

/// Says that nothing waits, so that the commit of the open merges nothing into a block that is damaged.
fn all_is_merged(state: &mut Read) {
    let said = &mut state.said;
    (said.merged_to, said.sweep_to, said.swept) = (said.last_seq, said.last_seq, format::Swept::default());
}

/// Whoever asks for a scope of such a block is told, and so is who goes through it: no scope counts as unknown.
#[test]
fn a_block_of_the_index_that_nobody_writes_is_told_and_no_command_of_it_runs_again() {
    let told = |what: &str, change: fn(&mut Vec<u8>)| {
        let (_dir, path) = edited(|write, state| {
            all_is_merged(state);
            let mut index = write.open_table(format::INDEX).unwrap();
            let mut value = index.get(&[0; 16]).unwrap().unwrap().value().to_vec();
            change(&mut value);
            index.insert(&[0; 16], &value[..]).unwrap();
        });
        let what = format!("the block of table index from scope {} on: {what}", "0".repeat(32));
        verify_tells(&path, &[&what]);
        let store = Store::open(&path, options()).unwrap();
        for number in [0, 4, COMMANDS] {
            let error = store.execute(&request(number), |_| panic!("a command runs on a broken index"));
            let error = error.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt);
            assert!(error.to_string().contains(&what), "{error}");
        }
    };
    fn body(value: &[u8]) -> Vec<u8> {
        unframed(format::INDEX_NUMBER, &[0; 16], 8, value)
    }
    fn again(body: &[u8]) -> Vec<u8> {
        framed(format::INDEX_NUMBER, &[0; 16], 8, body)
    }
    told("its scopes are out of order", |value| {
        let mut body = body(value);
        body.rotate_left(26);
        *value = again(&body);
    });
    told("its last scope is cut", |value| *value = again(&body(value)[..100]));
    told("it has no scope", |value| *value = again(b""));
    told("its checksum is wrong", |value| value[20] ^= 1);
    told("its checksum is wrong", |value| value.truncate(value.len() - 26));
    told("7 bytes are too few", |value| value.truncate(7));
}

/// A scope in the wrong block would not be found where it belongs.
#[test]
fn a_scope_outside_the_range_of_its_block_is_told() {
    let split = |first: fn(usize) -> bool| {
        edited(move |write, state| {
            all_is_merged(state);
            let all: Vec<_> = state.index_rows[&[0; 16]].clone();
            let key = all[all.len() / 2].0;
            let part = |is_first| {
                let scopes = all.iter().enumerate().filter(move |(at, _)| first(*at) == is_first);
                scopes.map(|(_, scope)| *scope).collect::<Vec<_>>()
            };
            let mut index = write.open_table(format::INDEX).unwrap();
            index.insert(&[0; 16], &scopes_value(&[0; 16], &part(true))[..]).unwrap();
            index.insert(&key, &scopes_value(&key, &part(false))[..]).unwrap();
            state.said.index_rows = 2;
        })
    };
    let (_dir, path) = split(|at| at < COMMANDS / 2);
    assert_eq!(Store::open(&path, options()).unwrap().verify().unwrap().faults, [""; 0]);
    let (_dir, path) = split(|at| at <= COMMANDS / 2);
    verify_tells(&path, &["a scope belongs into the block behind it", "the index does not know its scope"]);
    let (_dir, path) = split(|at| at + 1 < COMMANDS / 2);
    verify_tells(&path, &["a scope belongs into the block before it"]);
}

#[test]
fn a_row_of_the_index_that_leads_elsewhere_is_told_and_never_followed() {
    let (_dir, path) = edited(|write, state| {
        lead(write, state, entry_key(6));
    });
    verify_tells(&path, &["journal entry 6 of class 1: the index leads another scope to it"]);
    let store = Store::open(&path, options()).unwrap();
    let error = store.execute(&request(4), |_| panic!("a recorded command runs again")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    let (_dir, path) = edited(|write, state| {
        lead(write, state, entry_key(99));
    });
    verify_tells(&path, &["journal entry 99 of class 1: the index names it, the journal lacks it"]);
}

#[test]
fn an_entry_missing_in_the_journal_is_told() {
    let (_dir, path) = edited(|write, state| {
        write.open_table(format::JOURNAL).unwrap().remove(&entry_key(5)).unwrap();
        state.said.blocks -= 1;
    });
    verify_tells(
        &path,
        &[
            "chain of class 1: it does not end where the last commit says",
            "journal entry 5 of class 1: the index names it, the journal lacks it",
            "row note/n-4: the journal has no entry 5",
        ],
    );
}

#[test]
fn an_entry_that_says_something_else_breaks_the_chain() {
    let (_dir, path) = edited(|write, _| {
        rewrite_entry(write, entry_key(5), |body| {
            let at = body.windows(8).position(|text| text == b"answer 4").unwrap();
            body[at] = b'A';
        });
    });
    verify_tells(&path, &["chain of class 1: it does not end where the last commit says"]);
    let (_dir, path) = edited(|write, _| {
        rewrite_frame(write, entry_key(5), |frame| frame[40] ^= 1);
    });
    verify_tells(&path, &["journal entry 5 of class 1: its checksum is wrong"]);
}

#[test]
fn entries_that_changed_places_are_told() {
    let (_dir, path) = edited(|write, _| {
        let mut journal = write.open_table(format::JOURNAL).unwrap();
        let one = journal.get(&entry_key(5)).unwrap().unwrap().value().to_vec();
        let other = journal.insert(&entry_key(6), &one[..]).unwrap().unwrap().value().to_vec();
        journal.insert(&entry_key(5), &other[..]).unwrap();
    });
    verify_tells(
        &path,
        &[
            "the block of journal entry 5 of class 1: its checksum",
            "the block of journal entry 6 of class 1: its checksum",
        ],
    );
    let (_dir, path) = edited(|write, _| {
        let mut frames = Vec::new();
        for seq in [5, 6] {
            rewrite_frame(write, entry_key(seq), |frame| frames.push(frame.clone()));
        }
        for (seq, other) in [5, 6].into_iter().zip(frames.into_iter().rev()) {
            rewrite_frame(write, entry_key(seq), |frame| *frame = other);
        }
    });
    verify_tells(
        &path,
        &["journal entry 5 of class 1: its checksum", "journal entry 6 of class 1: its checksum"],
    );
}

#[test]
fn a_row_that_says_something_else_is_told() {
    let key = b"tshop\0note\0n-5";
    let change = |change: fn(&mut Row)| {
        edited(|write, state| {
            let mut row = state.rows[&key[..]].clone();
            change(&mut row);
            put_row(write, key, &row);
        })
    };
    let (_dir, path) = change(|row| row.content = Content::Value(1, b"\"forged\"".to_vec()));
    verify_tells(&path, &["row note/n-5: entry 6 wrote something else"]);
    let (_dir, path) = change(|row| row.content = Content::Value(0, b"\"note 5\"".to_vec()));
    verify_tells(&path, &["row note/n-5: entry 6 wrote something else"]);
    let (_dir, path) = change(|row| row.made.1 = 3);
    verify_tells(&path, &["row note/n-5: entry 6 wrote something else"]);
    let (_dir, path) = change(|row| row.version = 7);
    verify_tells(&path, &["row note/n-5: entry 7 did not write it"]);
    let (_dir, path) = change(|row| row.version = 1 << 40);
    verify_tells(&path, &["row note/n-5: the journal has no entry 1099511627776"]);
    let (_dir, path) = change(|row| row.content = Content::Removed);
    verify_tells(&path, &["row note/n-5: entry 6 wrote something else"]);
}

/// The frame was right once: an older state of the row, which an entry did write.
#[test]
fn a_row_that_was_put_back_to_what_it_was_is_told() {
    let key = b"tshop\0count\0all";
    let (_dir, path) = edited(|write, state| {
        let before = &state.blocks[&entry_key(20)];
        let (_, image) = before.rows.iter().find(|(row, _)| row == key).unwrap();
        let Image::Here(frame) = image else { panic!("a small row is in its block") };
        write.open_table(format::RESOURCE).unwrap().insert(&key[..], &frame[..]).unwrap();
    });
    verify_tells(&path, &["row count/all: entry 24 changed it later, and it does not show"]);
}

/// Counts that are large and not too large: nothing that adds them up goes wrong.
#[test]
fn counts_near_the_end_of_numbers_are_told() {
    let (_dir, path) = edited(|_, state| {
        let State { records, rows, own_rows, open, unknown, executed, resolved, differences, .. } =
            &mut state.said;
        for count in [records, rows, own_rows, open, unknown, executed, resolved, differences] {
            *count = u64::MAX / 2;
        }
    });
    verify_tells(&path, &["scopes: there are 24, not 9223372036854775807"]);
}

#[test]
fn a_name_that_is_held_by_another_is_told() {
    let (_dir, path) = edited(|write, state| {
        let key = b"ushop\0name\0u-5";
        let mut row = state.rows[&key[..]].clone();
        let Content::Held(holder) = &mut row.content else { panic!("it is a name") };
        holder.id = "n-6".to_owned();
        put_row(write, key, &row);
    });
    verify_tells(&path, &["row name/u-5: entry 6 wrote something else"]);
}

#[test]
fn a_row_that_can_be_nobodys_is_told() {
    let (_dir, path) = edited(|write, state| {
        put_row(write, b"xyz", &state.rows[&b"tshop\0note\0n-5"[..]]);
        state.said.settled += 1;
    });
    verify_tells(&path, &["resource: a key names no row"]);
    let (_dir, path) = edited(|write, state| {
        put_row(write, b"tshop\0note\0n-5", &state.rows[&b"ushop\0name\0u-5"[..]]);
    });
    verify_tells(&path, &["row note/n-5: it holds what belongs into a row of another kind"]);
}

#[test]
fn a_row_under_another_key_is_told() {
    let (_dir, path) = edited(|write, _| {
        let mut rows = write.open_table(format::RESOURCE).unwrap();
        let one = rows.get(&b"tshop\0note\0n-5"[..]).unwrap().unwrap().value().to_vec();
        rows.insert(&b"tshop\0note\0n-6"[..], &one[..]).unwrap();
    });
    verify_tells(&path, &["row note/n-6: its checksum is wrong"]);
}

const SMALL: &str = "ONECHO_TEST_SMALL";

/// Plays both sides: started again with little memory, it opens stores whose rows claim to be huge.
#[test]
fn a_length_that_lies_takes_no_memory() {
    if let Some(path) = std::env::var_os(SMALL) {
        let store = Store::open(path, options()).unwrap();
        let report = store.verify().unwrap();
        assert!(!report.is_clean());
        for number in 0..COMMANDS {
            let _ = store.status(request(number).scope());
        }
        std::io::stdout().write_all(b"\nread to the end\n").unwrap();
        return;
    }
    for claim in [1 << 24, 1 << 32, 1 << 40, u64::MAX] {
        let (_dir, path) = edited(|write, _| {
            // The list of parts in the fingerprint, behind its digest and the byte that says there is no
            // other.
            rewrite_entry(write, entry_key(5), |body| {
                let name = body.windows(5).position(|text| text == b"\x04body").unwrap();
                let claim = [&[253][..], &u64::to_le_bytes(claim)].concat();
                body.splice(name - 1..name, claim);
            });
            rewrite_frame(write, entry_key(6), |frame| frame[2..6].copy_from_slice(&u32::MAX.to_be_bytes()));
            let mut journal = write.open_table(format::JOURNAL).unwrap();
            for (seq, kind, body) in [
                // A directory of so many entries, one of so long an entry, a tail of so many rows.
                (8, 6, [&[253][..], &u64::to_le_bytes(claim)].concat()),
                (9, 6, [&[1, 0, 252][..], &u32::MAX.to_le_bytes(), &[0, 0]].concat()),
                (10, 7, [&[253][..], &u64::to_le_bytes(claim)].concat()),
            ] {
                let key = entry_key(seq);
                let sound = journal.get(&key).unwrap().unwrap().value().to_vec();
                let len = u32::from_be_bytes(sound[2..6].try_into().unwrap()) as usize;
                let (directory, rest) = sound.split_at(6 + len + 4);
                let entry = Block::read(&key, &sound).entries[0].frame.len();
                let frame = framed(format::JOURNAL_NUMBER, &key, kind, &body);
                let value = match kind {
                    6 => [&frame, rest].concat(),
                    _ => [directory, &rest[..entry], &frame].concat(),
                };
                journal.insert(&key, &value[..]).unwrap();
            }
        });
        let script = "ulimit -v 700000 && exec \"$0\" --exact --test-threads=1 --nocapture \"$1\"";
        let run = Command::new("sh")
            .args(["-c", script])
            .arg(std::env::current_exe().unwrap())
            .arg("damaged::edited::a_length_that_lies_takes_no_memory")
            .env(SMALL, &path)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&run.stdout);
        let why = String::from_utf8_lossy(&run.stderr);
        assert!(run.status.success() && said.contains("read to the end"), "{claim}: {said}{why}");
    }
}

/// Numbers that are counted on from are checked at the open: sums and successors of them exist.
#[test]
fn numbers_that_no_store_writes_are_told_at_the_open() {
    let put_class = |write: &WriteTransaction, number: u16| {
        let mut classes = write.open_table(format::CLASS).unwrap();
        let body = unframed(2, &[0, 1], 3, classes.get(&[0, 1]).unwrap().unwrap().value());
        let key = number.to_be_bytes();
        classes.insert(&key, &framed(2, &key, 3, &body)[..]).unwrap();
    };
    let tells = |fault: &str, work: &dyn Fn(&WriteTransaction, &mut Read)| {
        let (_dir, path) = edited(work);
        refuses(&path, &options(), ErrorKind::Corrupt, &[fault]);
    };
    for number in [0, 65, u16::MAX] {
        let fault = format!("table class: a class may not have number {number}");
        tells(&fault, &|write, _| put_class(write, number));
    }
    tells("a count is larger than any store's", &|_, state| state.said.last_seq = u64::MAX);
    tells("a count is larger than any store's", &|_, state| state.said.epoch = u64::MAX);
    tells("the head of class 1 does not fit the last number", &|_, state| state.said.heads[0].seq = 25);
    tells("its heads are out of order", &|_, state| state.said.heads.push(state.said.heads[0].clone()));
    tells("the file has no class 2", &|_, state| {
        let head = format::Head { class: 2, ..state.said.heads[0].clone() };
        state.said.heads.push(head);
    });
    tells("does not fit the last number", &|_, state| state.said.heads[0].entries = u64::MAX);
    let counts: [fn(&mut State) -> &mut u64; 10] = [
        |said| &mut said.records,
        |said| &mut said.rows,
        |said| &mut said.own_rows,
        |said| &mut said.executed,
        |said| &mut said.resolved,
        |said| &mut said.differences,
        |said| &mut said.blocks,
        |said| &mut said.indexed,
        |said| &mut said.index_rows,
        |said| &mut said.settled,
    ];
    for count in counts {
        tells("a count is larger than any store's", &|_, state| *count(&mut state.said) = u64::MAX);
    }
    tells("more was merged than was written", &|_, state| state.said.sweep_to = 25);
    tells("more was merged than was written", &|_, state| state.said.merged_to = state.said.sweep_to + 1);
    tells("its heads have more entries than there are numbers", &|write, state| {
        put_class(write, 2);
        let head = format::Head { class: 2, ..state.said.heads[0].clone() };
        state.said.heads.push(head);
    });
}

/// What a newer version wrote is not damage: no backup helps, that version does.
#[test]
fn what_a_newer_version_wrote_is_told_as_such() {
    let newer = |frame: &mut Vec<u8>, table: u8, key: &[u8]| {
        frame.truncate(frame.len() - 4);
        frame[0] = 2;
        let place = [&[table][..], &(key.len() as u64).to_be_bytes(), key, frame].concat();
        frame.extend(crc32fast::hash(&place).to_be_bytes());
    };
    let (_dir, path) = edited(|write, _| {
        let mut meta = write.open_table(format::META).unwrap();
        let mut frame = meta.get("identity").unwrap().unwrap().value().to_vec();
        newer(&mut frame, format::META_NUMBER, b"identity");
        meta.insert("identity", &frame[..]).unwrap();
    });
    refuses(&path, &options(), ErrorKind::UnsupportedFormat, &["its row version is 2", "newer version"]);

    let (_dir, path) = edited(|write, _| {
        rewrite_frame(write, entry_key(5), |frame| newer(frame, format::JOURNAL_NUMBER, &entry_key(5)));
        let mut rows = write.open_table(format::RESOURCE).unwrap();
        let key = b"tshop\0note\0n-5";
        let mut frame = rows.get(&key[..]).unwrap().unwrap().value().to_vec();
        newer(&mut frame, format::RESOURCE_NUMBER, key);
        rows.insert(&key[..], &frame[..]).unwrap();
        drop(rows);
        // The digest of the fingerprint stands behind its scheme and policy, and before the name of the part.
        rewrite_entry(write, entry_key(7), |body| {
            let name = body.windows(5).position(|text| text == b"\x04body").unwrap();
            body[name - 1 - 1 - 32 - 1 - 1] = 9;
        });
    });
    let store = Store::open(&path, options()).unwrap();
    let unsupported = |error: onecho::Error| {
        assert_eq!(error.kind(), ErrorKind::UnsupportedFormat, "{error}");
        assert!(error.to_string().contains("newer version"), "{error}");
    };
    unsupported(store.status(request(4).scope()).unwrap_err());
    unsupported(store.execute(&request(4), |_| panic!("a recorded command runs again")).unwrap_err());
    unsupported(store.execute(&request(6), |_| panic!("a recorded command runs again")).unwrap_err());
    unsupported(store.get(&super::SHOP, &super::NOTES, "n-5").unwrap_err());
    let over = request(COMMANDS);
    unsupported(
        store
            .execute(&over, |fx| {
                fx.put(&super::NOTES, "n-5", &String::new())?;
                Ok(onecho::Outcome::succeeded(200))
            })
            .unwrap_err(),
    );
    assert!(store.verify().unwrap().faults.iter().any(|fault| fault.contains("newer version")));
}
