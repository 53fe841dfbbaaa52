//! The simulated disk under redb with commits in two phases.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::disallowed_macros,
    reason = "a test starts threads, takes time and prints what it did"
)]

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::sync::Arc;
use std::time::{Duration, Instant};

use redb::{Builder, Database, DatabaseError, ReadableDatabase, ReadableTable, TableDefinition};

use super::crash::{CrashState, Log};
use super::model::{Beyond, Change, Image, Logged, SyncEnd};
use super::pages::Pages;
use super::rng::{Rng, mix};
use super::*;

const ROWS: TableDefinition<u64, &[u8]> = TableDefinition::new("rows");
const COMMITS: u64 = 24;

fn builder() -> Builder {
    let mut builder = Builder::new();
    builder.set_cache_size(1 << 20);
    builder.set_check_integrity_on_open(true);
    builder
}

fn body(row: u64) -> Vec<u8> {
    let mut body = vec![0; 200 + (row as usize * 97) % 3000];
    Rng::new(row).fill(&mut body);
    body
}

/// One more row, in one commit of two phases.
fn commit(database: &Database, row: u64) -> Result<(), String> {
    commit_in(database, row, true)
}

fn commit_in(database: &Database, row: u64, two_phases: bool) -> Result<(), String> {
    let mut writing = database.begin_write().map_err(|error| error.to_string())?;
    writing.set_two_phase_commit(two_phases);
    {
        let mut rows = writing.open_table(ROWS).map_err(|error| error.to_string())?;
        rows.insert(row, body(row).as_slice()).map_err(|error| error.to_string())?;
    }
    writing.commit().map_err(|error| error.to_string())
}

/// The rows as far as they are whole and in order; an error for anything else.
fn rows(database: &Database) -> Result<u64, String> {
    let reading = database.begin_read().map_err(|error| error.to_string())?;
    let rows = match reading.open_table(ROWS) {
        Err(redb::TableError::TableDoesNotExist(_)) => return Ok(0),
        rows => rows.map_err(|error| error.to_string())?,
    };
    let mut count = 0;
    for row in rows.iter().map_err(|error| error.to_string())? {
        let (key, value) = row.map_err(|error| error.to_string())?;
        if key.value() != count || value.value() != body(count) {
            return Err(format!("row {} of {count} is wrong", key.value()));
        }
        count += 1;
    }
    Ok(count)
}

/// What the owner of a store does: create under a temporary name unless it is there, then open.
fn open(disk: &SimDisk) -> Result<Database, String> {
    match disk.look().map_err(|error| error.to_string())? {
        Found::Missing => {
            let database = disk.create(&mut builder()).map_err(|error| error.to_string())?;
            database.close().map_err(|error| error.to_string())?;
            disk.publish().map_err(|error| error.to_string())?;
        }
        Found::File { .. } => {}
        other => return Err(format!("under the name stands {other:?}")),
    }
    Disk::open(disk, &mut builder()).map_err(|error| error.to_string())
}

/// Creates a store and commits, each acknowledgement marked.
fn run(disk: &SimDisk, commits: u64) -> Result<(), String> {
    let database = open(disk)?;
    let first = rows(&database)?;
    for row in first..first + commits {
        commit(&database, row)?;
        disk.mark();
    }
    database.close().map_err(|error| error.to_string())
}

fn recorded(disk: &SimDisk, commits: u64) -> Log {
    disk.record();
    run(disk, commits).unwrap();
    disk.recorded()
}

/// All that was acknowledged is there, and at most the one commit in flight besides.
fn judge(state: &CrashState, before: u64) -> Result<(), String> {
    let found = rows(&open(&state.disk)?)?;
    let acknowledged = before + state.marks;
    if (acknowledged..=acknowledged + 1).contains(&found) {
        return Ok(());
    }
    Err(format!("{acknowledged} acknowledged, {found} found at point {}", state.point))
}

/// Judges every state of a log in both cores' time; how many there were, and what was wrong.
fn judge_all(log: &Log, states_max: u64, before: u64) -> (u64, Vec<String>) {
    let states = Mutex::new(log.crash_states(states_max));
    let counted = Mutex::new((0, Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let Some(state) = states.lock().next() else {
                        return;
                    };
                    let judged = judge(&state, before);
                    let mut counted = counted.lock();
                    counted.0 += 1;
                    counted.1.extend(judged.err());
                }
            });
        }
    });
    counted.into_inner()
}

#[test]
fn no_acknowledged_commit_is_lost_at_any_crash() {
    let log = recorded(&SimDisk::seeded(1), COMMITS);
    let (states, wrong) = judge_all(&log, 5500, 0);
    assert_eq!(wrong, Vec::<String>::new());
    assert!(states >= 5000, "only {states} states");
}

#[test]
fn a_crash_in_the_recovery_from_a_crash_loses_nothing() {
    let log = recorded(&SimDisk::seeded(2), 4);
    let mut judged = 0;
    for state in log.crash_states(40) {
        let acknowledged = state.marks;
        let inner = state.disk;
        inner.record();
        let database = open(&inner).unwrap();
        let present = rows(&database).unwrap();
        assert!(present >= acknowledged);
        // Whoever has read a row has been told: it may not go away again.
        for _ in 0..present {
            inner.mark();
        }
        commit(&database, present).unwrap();
        inner.mark();
        drop(database);
        let inner_log = inner.recorded();
        for again in inner_log.crash_states(30) {
            let floor = acknowledged.max(again.marks);
            let found = rows(&open(&again.disk).unwrap()).unwrap();
            assert!((floor..=present + 1).contains(&found), "{floor} <= {found} <= {}", present + 1);
            judged += 1;
        }
    }
    assert!(judged > 1000, "only {judged} states");
}

#[test]
fn a_chain_of_random_crashes_loses_nothing() {
    let mut disk = SimDisk::seeded(3);
    let mut acknowledged = 0;
    for round in 0..120 {
        let database = open(&disk).unwrap();
        let found = rows(&database).unwrap();
        assert!((acknowledged..=acknowledged + 1).contains(&found), "{acknowledged}, {found}");
        commit(&database, found).unwrap();
        acknowledged = found + 1;
        if round % 3 == 0 {
            // Cut in the middle of the next commit.
            disk.fail(Fault::Write, round % 7);
            let _ = commit(&database, acknowledged);
        }
        let next = disk.crash();
        assert!(commit(&database, acknowledged + 1).is_err());
        drop(database);
        disk = next;
    }
}

#[test]
fn a_lying_sync_is_caught() {
    let disk = SimDisk::seeded(4);
    run(&disk, 3).unwrap();
    disk.record();
    let database = open(&disk).unwrap();
    commit(&database, 3).unwrap();
    // Both syncs of one commit.
    disk.fail(Fault::LyingSync, 0);
    disk.fail(Fault::LyingSync, 0);
    commit(&database, 4).unwrap();
    disk.mark();
    disk.mark();
    let (_, wrong) = judge_all(&disk.recorded(), 400, 3);
    assert!(wrong.iter().any(|what| what.contains("5 acknowledged, 4 found")), "{wrong:?}");
    drop(database);
}

#[test]
fn a_skipped_sync_of_any_commit_is_caught() {
    let log = recorded(&SimDisk::seeded(5), 3);
    let marks = (0..log.lines.len()).filter(|at| matches!(log.lines[*at], Logged::Mark));
    for mark in marks {
        let done = |at: &usize| matches!(log.lines[*at], Logged::SyncDone { .. });
        // A commit in two phases rests on its last two syncs: the rows', then the header's.
        for skipped in (0..mark).rev().filter(done).take(2) {
            let mut without = log.clone();
            if let Logged::SyncDone { end, .. } = &mut without.lines[skipped] {
                *end = SyncEnd::Lied;
            }
            let (_, wrong) = judge_all(&without, 500, 0);
            assert!(!wrong.is_empty(), "line {skipped}, before the mark at {mark}");
        }
    }
}

#[test]
fn syncs_of_the_directory_left_out_are_caught() {
    let mut log = recorded(&SimDisk::seeded(6), 2);
    log.lines.retain(|line| !matches!(line, Logged::DirectorySynced));
    let (_, wrong) = judge_all(&log, 300, 0);
    assert!(wrong.iter().any(|what| what.contains("acknowledged, 0 found")), "{wrong:?}");
}

#[test]
fn the_same_seed_gives_the_same_states() {
    let all = |seed| {
        let log = recorded(&SimDisk::seeded(seed), 5);
        let states = log.crash_states(2000);
        states.fold(0, |all, state| mix(all, mix(state.hash, state.marks)))
    };
    assert_eq!(all(7), all(7));
    assert_ne!(all(7), all(8));
    let crashed = |seed| {
        let disk = SimDisk::seeded(seed);
        let database = open(&disk).unwrap();
        disk.fail(Fault::Sync, 0);
        let _ = commit(&database, 0);
        let next = disk.crash();
        next.shared.state.lock().live.hash()
    };
    assert_eq!(crashed(9), crashed(9));
}

#[test]
fn a_budget_is_spread_over_all_points() {
    let log = recorded(&SimDisk::seeded(10), COMMITS);
    for states_max in [50, 500] {
        let mut by_quarter = BTreeMap::new();
        let mut given = 0;
        for state in log.crash_states(states_max) {
            *by_quarter.entry(state.point * 4 / log.points()).or_insert(0_u64) += 1;
            given += 1;
        }
        assert!(given <= states_max && given * 10 >= states_max * 9, "{given} of {states_max}");
        assert!(by_quarter.values().all(|count| count * 6 >= states_max), "{by_quarter:?}");
    }
}

#[test]
fn states_come_by_the_thousand() {
    let log = recorded(&SimDisk::seeded(11), COMMITS);
    let start = Instant::now();
    let states = log.crash_states(10_000).count();
    println!("{states} states of {} points in {:?}", log.points(), start.elapsed());
    assert!(states > 5000);
}

#[test]
fn a_failed_sync_is_forgotten_until_the_pages_are_dropped() {
    let disk = SimDisk::seeded(12);
    run(&disk, 2).unwrap();
    let database = open(&disk).unwrap();
    disk.fail(Fault::Sync, 0);
    assert!(commit(&database, 2).is_err());
    assert!(commit(&database, 2).is_err(), "redb latches the first error");
    drop(database);
    let durable = disk.shared.state.lock().model.durable().hash();
    assert_ne!(disk.shared.state.lock().live.hash(), durable, "reads still return the new bytes");
    assert!(disk.settle().unwrap().pages_dropped);
    assert_eq!(disk.shared.state.lock().live.hash(), durable);
    assert_eq!(rows(&open(&disk).unwrap()).unwrap(), 2);
}

#[test]
fn without_settle_a_failed_sync_loses_acknowledged_commits() {
    // Why `settle` exists: a reopen that trusts the cache acknowledges on top of pages the disk never got.
    let lost = |two_phases: bool, commits_after: u64, settled: bool| {
        let mut lost = 0;
        for seed in 0..20 {
            let disk = SimDisk::seeded(seed);
            run(&disk, 2).unwrap();
            let database = open(&disk).unwrap();
            disk.fail(Fault::Sync, seed % 10);
            let failed = (2..1_000).find(|row| commit_in(&database, *row, two_phases).is_err());
            assert!(failed.is_some());
            drop(database);
            if settled {
                disk.settle().unwrap();
            }
            let database = open(&disk).unwrap();
            let mut seen = rows(&database).unwrap();
            for _ in 0..commits_after {
                commit_in(&database, seen, two_phases).unwrap();
                seen += 1;
            }
            let after = disk.crash();
            drop(database);
            let kept = open(&after).and_then(|database| rows(&database));
            lost += u64::from(kept.is_err() || kept.is_ok_and(|kept| kept < seen));
        }
        lost
    };
    let figures = [(true, 0), (true, 1), (false, 0), (false, 1)]
        .map(|(two_phases, after)| (lost(two_phases, after, false), lost(two_phases, after, true)));
    println!("lost without and with settle, of 20: {figures:?}");
    assert!(figures[2].0 + figures[3].0 > 0, "{figures:?}");
    assert_eq!(figures.map(|(_, settled)| settled), [0; 4]);
}

#[test]
fn a_full_disk_gives_the_reserve_back() {
    let disk = SimDisk::seeded(13);
    run(&disk, 1).unwrap();
    disk.reserve(4 << 20).unwrap();
    assert_eq!(disk.reserve_bytes(), 4 << 20);
    let before = disk.operations();
    disk.reserve(4 << 20).unwrap();
    assert_eq!(disk.operations(), before, "nothing to do");
    let database = open(&disk).unwrap();
    disk.fail(Fault::NoSpace, 0);
    let mut row = 1;
    while commit(&database, row).is_ok() {
        row += 1;
    }
    drop(database);
    assert_eq!(disk.reserve(8 << 20).unwrap_err().kind(), ErrorKind::StorageFull);
    assert_eq!(disk.reserve_bytes(), 4 << 20);
    assert!(disk.release_reserve().unwrap());
    assert!(!disk.release_reserve().unwrap());
    assert_eq!(disk.reserve_bytes(), 0);
    run(&disk, 5).unwrap();
    disk.heal();
    disk.reserve(4 << 20).unwrap();
    let after = disk.crash();
    assert_eq!(after.reserve_bytes(), 4 << 20);
    assert_eq!(rows(&open(&after).unwrap()).unwrap(), row + 5);
}

#[test]
fn reads_and_writes_fail_once() {
    let disk = SimDisk::seeded(14);
    run(&disk, 1).unwrap();
    disk.fail(Fault::Read, 0);
    assert!(disk.look().is_err());
    assert!(disk.look().is_ok());
    let database = open(&disk).unwrap();
    disk.fail(Fault::Write, 0);
    assert!(commit(&database, 1).is_err());
    drop(database);
    assert_eq!(rows(&open(&disk).unwrap()).unwrap(), 1);
}

#[test]
fn a_slow_sync_lets_reads_pass_and_ends_with_the_power() {
    let disk = SimDisk::seeded(15);
    run(&disk, 1).unwrap();
    let database = Arc::new(open(&disk).unwrap());
    disk.fail(Fault::SlowSync(Duration::from_secs(60)), 0);
    let start = Instant::now();
    let writer = std::thread::spawn({
        let database = database.clone();
        move || commit(&database, 1)
    });
    while !disk.shared.state.lock().model.pending().any(|change| change.file().is_some()) {
        std::thread::yield_now();
    }
    disk.look().unwrap();
    let after = disk.crash();
    assert!(writer.join().unwrap().is_err());
    assert!(start.elapsed() < Duration::from_secs(30));
    assert!(rows(&open(&after).unwrap()).unwrap() >= 1);
}

#[test]
fn one_database_at_a_time() {
    let disk = SimDisk::seeded(16);
    let database = open(&disk).unwrap();
    assert!(matches!(Disk::open(&disk, &mut builder()), Err(DatabaseError::DatabaseAlreadyOpen)));
    assert_eq!(disk.lock_holder(), Some(std::process::id()));
    database.close().unwrap();
    assert_eq!(disk.lock_holder(), None);
    drop(open(&disk).unwrap());
}

#[test]
fn creations_side_by_side_publish_one() {
    let disk = SimDisk::seeded(17);
    let (first, second) = (disk.clone(), disk.clone());
    let one = first.create(&mut builder()).unwrap();
    assert!(first.create(&mut builder()).is_err(), "one at a time through one handle");
    let two = second.create(&mut builder()).unwrap();
    one.close().unwrap();
    two.close().unwrap();
    assert_eq!(first.publish().unwrap(), Published::Done);
    assert_eq!(second.publish().unwrap(), Published::AlreadyThere);
    second.discard();
    drop(open(&disk).unwrap());
    assert_eq!(disk.shared.state.lock().live.names.len(), 1);
}

#[test]
fn an_empty_file_is_not_made_a_store() {
    let mut image = Image::default();
    image.apply(&Change::Create { file: 0, name: STORE.into() }, Beyond::Extends);
    let disk = SimDisk::at_rest(18, image);
    assert_eq!(disk.look().unwrap(), Found::Empty);
    assert!(Disk::open(&disk, &mut builder()).is_err());
    assert_eq!(disk.file_bytes().unwrap(), 0);
    assert_eq!(disk.lock_holder(), None, "a failed open leaves no lock");
}

#[test]
fn pages_read_what_was_written() {
    let mut pages = Pages::default();
    let mut plain: Vec<u8> = Vec::new();
    let mut rng = Rng::new(19);
    for _ in 0..2000 {
        let offset = rng.below(20_000);
        if rng.once_in(4) {
            pages.set_len(offset as u64);
            plain.resize(offset, 0);
        } else {
            let mut data = vec![0; rng.below(9000)];
            rng.fill(&mut data);
            pages.write(offset as u64, &data);
            plain.resize(plain.len().max(offset + data.len()), 0);
            plain[offset..offset + data.len()].copy_from_slice(&data);
        }
        assert_eq!(pages.len(), plain.len() as u64);
        let mut read = vec![0; plain.len()];
        assert!(pages.read(0, &mut read) && read == plain);
        assert!(!pages.read(1, &mut read) || read.is_empty());
        let mut fresh = Pages::default();
        fresh.write(0, &plain);
        assert_eq!(fresh.hash(), pages.hash());
    }
}
