//! Every limit has a name, is checked before anything is written, and says which it was.

use onecho::testing::SimDisk;
use onecho::{Effects, ErrorKind, Kind, Options, Outcome, Status, Store, Tenant};

use crate::common::*;

const BLOBS: Kind<onecho::Bytes> = Kind::raw("blob");

/// The command is refused with this kind of error, nothing is written, and the key is free.
#[track_caller]
fn refused(store: &Store, kind: ErrorKind, body: impl Fn(&mut Effects<'_, '_>) -> Answer) {
    let before = store.stats();
    fails(store.execute(&request("refused"), body), kind);
    let after = store.stats();
    assert_eq!((before.executed, before.rows, before.commits), (after.executed, after.rows, after.commits));
    assert_eq!(store.status(request("refused").scope()).unwrap(), Status::Absent);
}

/// Effects and reads of one command are bounded in number.
#[test]
fn effects_and_reads_are_counted() {
    let store = store();
    let puts = |count: usize| {
        move |fx: &mut Effects<'_, '_>| {
            for n in 0..count {
                fx.put(&NOTES, &n.to_string(), &String::new())?;
            }
            Ok(Outcome::succeeded(200))
        }
    };
    let reads = |count: usize| {
        move |fx: &mut Effects<'_, '_>| {
            for n in 0..count {
                fx.get(&NOTES, &n.to_string())?;
                fx.get(&NOTES, "0")?; // the same row again is no further one
            }
            Ok(Outcome::succeeded(200))
        }
    };
    refused(&store, ErrorKind::LimitExceeded, puts(1_025));
    refused(&store, ErrorKind::LimitExceeded, reads(1_025));
    done(store.execute(&request("puts"), puts(1_024)));
    done(store.execute(&request("reads"), reads(1_024)));
    assert_eq!(store.stats().rows, 1_024);
}

/// Values, and all that a command stages, are bounded in bytes.
#[test]
fn values_are_measured() {
    let store = store();
    let mib = 1 << 20;
    let puts = |sizes: &'static [usize]| {
        move |fx: &mut Effects<'_, '_>| {
            for (n, size) in sizes.iter().enumerate() {
                fx.put(&BLOBS, &n.to_string(), &vec![0; *size].into())?;
            }
            Ok(Outcome::succeeded(200))
        }
    };
    refused(&store, ErrorKind::LimitExceeded, puts(&[4 * (1 << 20) + 1]));
    refused(&store, ErrorKind::LimitExceeded, puts(&[4 << 20, 4 << 20]));
    done(store.execute(&request("one"), puts(&[4 << 20])));
    let read = store.get(&SHOP, &BLOBS, "0").unwrap().unwrap();
    assert_eq!(read.value.len(), 4 * mib);
    done(store.execute(&request("two"), puts(&[4 << 20, (4 << 20) - 100])));
}

/// What a command reads is bounded in bytes; the same row again is read once.
#[test]
fn reads_are_measured() {
    let store = store();
    for id in ["0", "1", "2"] {
        done(store.execute(&request(id), |fx| {
            fx.put(&BLOBS, id, &vec![0; 4 << 20].into())?;
            Ok(Outcome::succeeded(200))
        }));
    }
    let reads = |ids: &'static [&'static str]| {
        move |fx: &mut Effects<'_, '_>| {
            for id in ids {
                fx.get(&BLOBS, id)?;
            }
            Ok(Outcome::succeeded(200))
        }
    };
    refused(&store, ErrorKind::LimitExceeded, reads(&["0", "1", "2"]));
    done(store.execute(&request("two"), reads(&["0", "1", "0", "1"])));
}

/// Metadata is bounded in number and in bytes.
#[test]
fn metadata_is_bounded() {
    let store = store();
    let meta = |count: usize, bytes: usize| {
        move |_: &mut Effects<'_, '_>| {
            Ok((0..count)
                .fold(Outcome::succeeded(200), |outcome, n| outcome.meta(&format!("{n:02}"), vec![0; bytes])))
        }
    };
    refused(&store, ErrorKind::LimitExceeded, meta(65, 1));
    refused(&store, ErrorKind::LimitExceeded, meta(64, 1_023)); // 64 KiB and 64 names of two bytes
    done(store.execute(&request("most"), meta(64, 1_022)));
}

/// Ids and uniquenesses are 1 to 1,024 bytes (names 128) without control characters; looking asks the same.
#[test]
fn ids_are_checked() {
    let store = store();
    let (long, longest) = ("i".repeat(1_025), "i".repeat(1_024));
    let bad = [
        (long.as_str(), ErrorKind::LimitExceeded),
        ("", ErrorKind::Invalid),
        ("a\0b", ErrorKind::Invalid),
        ("a\nb", ErrorKind::Invalid),
    ];
    for (id, kind) in bad {
        refused(&store, kind, |fx| {
            Ok(Outcome::succeeded(200).resource(&fx.put(&NOTES, id, &String::new())?))
        });
        refused(&store, kind, |fx| Ok(Outcome::succeeded(fx.get(&NOTES, id)?.map_or(404, |_| 200))));
        refused(&store, kind, |fx| {
            fx.remove(&NOTES, id).map(|()| Outcome::succeeded(200)).map_err(Into::into)
        });
        refused(&store, kind, |fx| Ok(Outcome::succeeded(u16::from(fx.add(&COUNT, id, 1, 0)?))));
        refused(&store, kind, |fx| {
            fx.unique("email", id, &NOTES.at("n")).map(|()| Outcome::succeeded(200)).map_err(Into::into)
        });
        refused(&store, kind, |fx| {
            fx.release("email", id, &NOTES.at("n")).map(|()| Outcome::succeeded(200)).map_err(Into::into)
        });
        fails(store.get(&SHOP, &NOTES, id), kind);
        fails(store.holder(&SHOP, "email", id), kind);
    }
    let name = "n".repeat(129);
    refused(&store, ErrorKind::LimitExceeded, |fx| {
        fx.unique(&name, "v", &NOTES.at("n")).map(|()| Outcome::succeeded(200)).map_err(Into::into)
    });
    done(store.execute(&request("longest"), |fx| {
        let made = fx.put(&NOTES, &longest, &"x".to_owned())?;
        fx.unique(&"n".repeat(128), &longest, &made)?;
        Ok(Outcome::succeeded(200).resource(&made))
    }));
    assert_eq!(note(&store, &longest).as_deref(), Some("x"));
    assert_eq!(replay(store.execute(&request("longest"), never)).resource, Some(NOTES.at(&longest)));
}

/// The longest of everything that names a row goes into one row and comes back.
#[test]
fn the_longest_names_fit() {
    let store = store();
    let tenant = Tenant::parse(&"t".repeat(128)).unwrap();
    let kind = Kind::parse(&"k".repeat(128)).unwrap();
    let id = "i".repeat(1_024);
    let asked = onecho::Request::new(
        &tenant,
        &onecho::Operation::parse(&"o".repeat(128)).unwrap(),
        &key(&"𝕏".repeat(255)),
    )
    .bytes("body", "x");
    let made =
        done(store.execute(&asked, |fx| {
            Ok(Outcome::succeeded(201).resource(&fx.create(&kind, &id, &"v".into())?))
        }));
    assert_eq!(made.resource, Some(kind.at(&id)));
    assert_eq!(store.get(&tenant, &kind, &id).unwrap().unwrap().value, "v");
    assert_eq!(store.scan(&tenant, &kind, "i").count(), 1);
    clean(&store);
}

/// Settings out of bounds are refused on opening, by name, and no file is made.
#[test]
fn settings_out_of_bounds_are_refused() {
    let long = "o".repeat(129);
    let bad = [
        (Options::new().cache_bytes(0), "cache_bytes"),
        (Options::new().queue_max(0), "queue_max"),
        (Options::new().queue_max(1_000_001), "queue_max"),
        (Options::new().queue_bytes_max(1), "queue_bytes_max"),
        (Options::new().batch_max(0), "batch_max"),
        (Options::new().batch_max(65_537), "batch_max"),
        (Options::new().rerun_max(1_001), "rerun_max"),
        (Options::new().reserve_bytes((1 << 30) + 1), "reserve_bytes"),
        (Options::new().owner(""), "owner"),
        (Options::new().owner(&long), "owner"),
    ];
    for (options, name) in bad {
        let disk = SimDisk::seeded(1);
        let error = disk.open(options).unwrap_err();
        assert!(
            matches!(error.kind(), ErrorKind::Invalid | ErrorKind::LimitExceeded)
                && error.to_string().contains(name),
            "{error}"
        );
        assert_eq!(disk.operations(), 0);
    }
    let least = Options::new()
        .cache_bytes(256 << 10)
        .replay_bytes(0)
        .queue_max(1)
        .batch_max(1)
        .rerun_max(0)
        .reserve_bytes(0);
    for options in [least, Options::small_device()] {
        let store = opened(options);
        done(store.execute(&request("k"), counted));
        replay(store.execute(&request("k"), never));
    }
}

/// C005: a full memory of finished records forgets some of them there, never in the file: no retry runs.
#[test]
fn a_full_memory_forgets_nothing() {
    let store = opened(Options::new().replay_bytes(8 << 10));
    let commands: Vec<_> = (0..1_000).map(|n| (request(&n.to_string()), n)).collect();
    store
        .execute_many(&commands, |n, _| Ok(Outcome::succeeded(200).json(n)?))
        .into_iter()
        .for_each(|answer| drop(done(answer)));
    assert!(store.stats().remembered < 1_000);
    for (asked, n) in &commands {
        assert_eq!(replay(store.execute(asked, never)).decode::<i32>().unwrap(), Some(*n));
    }
}
