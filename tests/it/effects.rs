//! Reads are preconditions, and what a command wants changed is checked on the rows as they are when it
//! commits.

use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use onecho::{
    Advice, ErrorKind, Kind, Options, Outcome, Reply, Request, ResourceRef, Status, Tenant, Timestamp,
};

use crate::common::*;

const SUMS: Kind<i64> = Kind::json("sum");
const STOCK: Kind<i64> = Kind::counter("stock").shared();

fn of(tenant: &Tenant, text: &str) -> Request {
    Request::new(tenant, &PAY, &key(text)).bytes("body", text)
}

#[track_caller]
fn duplicate(reply: Result<Reply, onecho::Error>) -> (ResourceRef, Option<onecho::Scope>) {
    match reply {
        Ok(Reply::Duplicate { held, made_by, .. }) => (held, made_by),
        other => panic!("not a duplicate: {other:?}"),
    }
}

/// 32 threads read, add one and write one row: no addition is lost, however small a batch is and however few
/// reruns are allowed. A command that lost too often is `Conflict`, and its key is free for the next try.
#[test]
fn no_update_is_lost() {
    for (rerun_max, batch_max) in [(16, 512), (0, 512), (16, 1), (1_000, 2)] {
        let options = Options::new().rerun_max(rerun_max).batch_max(batch_max).default_policy(patient());
        let store = opened(options);
        let conflicts = AtomicU64::new(0);
        let start = Barrier::new(32);
        std::thread::scope(|scope| {
            for thread in 0..32 {
                let (store, conflicts, start) = (&store, &conflicts, &start);
                scope.spawn(move || {
                    start.wait();
                    for n in 0..10 {
                        let add_one = || {
                            store.execute(&request(&format!("{thread}-{n}")), |fx| {
                                let sum = fx.get(&SUMS, "one")?.map_or(0, |row| row.value);
                                fx.put(&SUMS, "one", &(sum + 1))?;
                                Ok(Outcome::succeeded(200))
                            })
                        };
                        loop {
                            match add_one().unwrap() {
                                Reply::Done(_) => break,
                                Reply::Conflict { resource, version, .. } => {
                                    assert_eq!(resource, SUMS.at("one"));
                                    assert!(version > 0);
                                    conflicts.fetch_add(1, SeqCst);
                                }
                                other => panic!("{other:?}"),
                            }
                        }
                    }
                });
            }
        });
        assert_eq!(store.get(&SHOP, &SUMS, "one").unwrap().unwrap().value, 320);
        assert_eq!(store.stats().conflicts, conflicts.load(SeqCst));
        assert_eq!(store.stats().executed, 320);
        clean(&store);
    }
}

/// With no rerun allowed, a read row that changes under the closure is `Conflict`: nothing is written and the
/// key is free.
#[test]
fn a_changed_row_is_a_conflict_when_reruns_are_over() {
    for rerun_max in [0, 3] {
        let store = opened(Options::new().rerun_max(rerun_max));
        let runs = AtomicU64::new(0);
        let reply = store.execute(&request("loser"), |fx| {
            let run = runs.fetch_add(1, SeqCst);
            fx.get(&NOTES, "contested")?;
            // Another thread, for a closure cannot call its own store.
            std::thread::scope(|scope| {
                let winner = scope.spawn(|| {
                    store.execute(&request(&format!("winner-{run}")), |fx| {
                        fx.put(&NOTES, "contested", &run.to_string())?;
                        Ok(Outcome::succeeded(200))
                    })
                });
                done(winner.join().unwrap());
            });
            fx.put(&NOTES, "by-loser", &"x".to_owned())?;
            Ok(Outcome::succeeded(200))
        });
        let reply = reply.unwrap();
        assert_eq!(reply.advice(), Advice::RetrySameKey { after: Duration::from_millis(100) });
        let Reply::Conflict { resource, version, .. } = reply else { panic!("{reply:?}") };
        let contested = store.get(&SHOP, &NOTES, "contested").unwrap().unwrap();
        assert_eq!((resource, version), (NOTES.at("contested"), contested.version));
        assert_eq!(runs.load(SeqCst), u64::from(rerun_max) + 1);
        assert_eq!(note(&store, "by-loser"), None);
        assert_eq!(store.status(request("loser").scope()).unwrap(), Status::Absent);
        done(store.execute(&request("loser"), counted));
    }
}

/// That a row was absent is a precondition too.
#[test]
fn absence_is_a_precondition() {
    let store = store();
    let runs = AtomicU64::new(0);
    done(store.execute(&request("slow"), |fx| {
        let first = runs.fetch_add(1, SeqCst) == 0;
        let seen = fx.get(&NOTES, "spot")?;
        if first {
            std::thread::scope(|scope| {
                let quick = scope.spawn(|| {
                    store.execute(&request("quick"), |fx| {
                        fx.create(&NOTES, "spot", &"quick".to_owned())?;
                        Ok(Outcome::succeeded(200))
                    })
                });
                done(quick.join().unwrap());
            });
        }
        let text = seen.map_or("nobody".to_owned(), |row| row.value);
        fx.put(&NOTES, "seen", &text)?;
        Ok(Outcome::succeeded(200))
    }));
    assert_eq!(runs.load(SeqCst), 2);
    assert_eq!(note(&store, "seen").as_deref(), Some("quick"));
}

/// A `put` without a read has no precondition: it goes over whatever came between.
#[test]
fn a_blind_put_has_no_precondition() {
    let store = store();
    let runs = AtomicU64::new(0);
    done(store.execute(&request("slow"), |fx| {
        runs.fetch_add(1, SeqCst);
        fx.put(&NOTES, "spot", &"slow".to_owned())?;
        std::thread::scope(|scope| {
            let quick = scope.spawn(|| {
                store.execute(&request("quick"), |fx| {
                    fx.put(&NOTES, "spot", &"quick".to_owned())?;
                    Ok(Outcome::succeeded(200))
                })
            });
            quick.join().unwrap().unwrap().into_finished().unwrap();
        });
        Ok(Outcome::succeeded(200))
    }));
    assert_eq!((runs.load(SeqCst), note(&store, "spot").as_deref()), (1, Some("slow")));
}

/// A closure sees its own changes, and others see none before the commit.
#[test]
fn a_closure_sees_its_own_changes_first() {
    let store = store();
    done(store.execute(&request("k"), |fx| {
        assert_eq!(fx.get(&NOTES, "a")?, None);
        fx.create(&NOTES, "a", &"1".to_owned())?;
        assert_eq!(fx.get(&NOTES, "a")?.map(|row| (row.value, row.version)), Some(("1".to_owned(), 0)));
        fx.put(&NOTES, "a", &"2".to_owned())?;
        assert_eq!(fx.get(&NOTES, "a")?.map(|row| row.value).as_deref(), Some("2"));
        assert!(fx.add(&COUNT, "c", 3, 0)? && !fx.add(&COUNT, "c", -4, 0)? && fx.add(&COUNT, "c", -3, 0)?);
        assert_eq!(fx.get(&COUNT, "c")?.map(|row| row.value), Some(0));
        fx.remove(&NOTES, "a")?;
        assert_eq!(fx.get(&NOTES, "a")?, None);
        let seen = std::thread::scope(|scope| {
            scope.spawn(|| applied(&store) + i64::from(note(&store, "a").is_some())).join()
        });
        assert_eq!(seen.unwrap(), 0);
        fx.put(&NOTES, "a", &"3".to_owned())?;
        Ok(Outcome::succeeded(200))
    }));
    assert_eq!(note(&store, "a").as_deref(), Some("3"));
}

/// 64 threads take from one counter: never below its floor, exactly as many as there are succeed, nobody
/// conflicts, and each refusal was true when it was recorded.
#[test]
fn a_counter_never_goes_below_its_floor() {
    let store = opened(Options::new().default_policy(patient()));
    done(store.execute(&request("fill"), |fx| {
        assert!(fx.add(&STOCK, "bolts", 300, 0)?);
        Ok(Outcome::succeeded(200))
    }));
    let (sold, refused) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for thread in 0..64 {
            let (store, sold, refused) = (&store, &sold, &refused);
            scope.spawn(move || {
                for n in 0..10 {
                    let finished = done(store.execute(&request(&format!("{thread}-{n}")), |fx| {
                        if fx.add(&STOCK, "bolts", -1, 0)? {
                            return Ok(Outcome::succeeded(200));
                        }
                        // Recorded as a refusal, though it asked: what was refused changes nothing.
                        Ok(Outcome::failed(409))
                    }));
                    if finished.failed { refused } else { sold }.fetch_add(1, SeqCst);
                }
            });
        }
    });
    assert_eq!((sold.load(SeqCst), refused.load(SeqCst)), (300, 340));
    assert_eq!(store.get(&SHOP, &STOCK, "bolts").unwrap().unwrap().value, 0);
    assert_eq!(store.stats().conflicts, 0);
    clean(&store);
}

/// A refused `add` is a precondition as well: when there is enough after all, the closure runs again.
#[test]
fn a_refused_add_is_checked_again() {
    let store = store();
    let runs = AtomicU64::new(0);
    let finished = done(store.execute(&request("buyer"), |fx| {
        let first = runs.fetch_add(1, SeqCst) == 0;
        let took = fx.add(&STOCK, "bolts", -5, 0)?;
        if first {
            assert!(!took);
            std::thread::scope(|scope| {
                let supplier = scope.spawn(|| {
                    store.execute(&request("supplier"), |fx| {
                        fx.add(&STOCK, "bolts", 5, 0)?;
                        Ok(Outcome::succeeded(200))
                    })
                });
                done(supplier.join().unwrap());
            });
        }
        Ok(if took { Outcome::succeeded(200) } else { Outcome::failed(409) })
    }));
    assert_eq!((finished.code, runs.load(SeqCst)), (200, 2));
    assert_eq!(store.get(&SHOP, &STOCK, "bolts").unwrap().unwrap().value, 0);
}

/// Commands on one counter do not run one another again while its floor is far.
#[test]
fn a_hot_counter_does_not_conflict() {
    let store = opened(Options::new().rerun_max(0).default_policy(patient()));
    std::thread::scope(|scope| {
        for thread in 0..32 {
            let store = &store;
            scope.spawn(move || {
                for n in 0..10 {
                    done(store.execute(&request(&format!("{thread}-{n}")), counted));
                }
            });
        }
    });
    assert_eq!((applied(&store), store.stats().reruns), (320, 0));
}

/// A counter that would leave 64 bits is a typed error; nothing is written.
#[test]
fn a_counter_does_not_wrap() {
    let store = store();
    done(store.execute(&request("fill"), |fx| {
        fx.add(&COUNT, "c", i64::MAX, 0)?;
        Ok(Outcome::succeeded(200))
    }));
    fails(
        store.execute(&request("k"), |fx| {
            fx.add(&COUNT, "c", 1, 0)?;
            Ok(Outcome::succeeded(200))
        }),
        ErrorKind::LimitExceeded,
    );
    assert_eq!(store.get(&SHOP, &COUNT, "c").unwrap().unwrap().value, i64::MAX);
    done(store.execute(&request("k"), counted));
}

/// A row that must not exist and does is `Duplicate`: it names the row and, within the tenant, who made it.
/// Nothing is written and the key is free.
#[test]
fn a_taken_row_is_a_duplicate() {
    let store = store();
    let make = |text: &str| {
        let text = text.to_owned();
        store.execute(&request(&text.clone()), move |fx| {
            fx.put(&NOTES, &format!("by-{text}"), &text)?;
            let made = fx.create(&NOTES, "spot", &text)?;
            Ok(Outcome::succeeded(201).resource(&made))
        })
    };
    done(make("first"));
    let reply = make("second").unwrap();
    assert_eq!(reply.advice(), Advice::LookUpFirst);
    assert_eq!(duplicate(Ok(reply)), (NOTES.at("spot"), Some(request("first").scope().clone())));
    assert_eq!((note(&store, "spot").as_deref(), note(&store, "by-second")), (Some("first"), None));
    assert_eq!(store.status(request("second").scope()).unwrap(), Status::Absent);
    assert_eq!(store.stats().duplicates, 1);
    done(store.execute(&request("second"), counted));
}

/// Two creations of one id in one command stand in each other's way: nothing is written.
#[test]
fn a_command_cannot_create_one_row_twice() {
    let store = store();
    let (held, made_by) = duplicate(store.execute(&request("k"), |fx| {
        fx.create(&NOTES, "spot", &"one".to_owned())?;
        fx.create(&NOTES, "spot", &"two".to_owned())?;
        Ok(Outcome::succeeded(201))
    }));
    assert_eq!((held, made_by, note(&store, "spot")), (NOTES.at("spot"), None, None));
    assert_eq!((store.stats().executed, store.stats().rows), (0, 0));
}

/// A uniqueness belongs to its holder until the holder frees it: not to the key, and not to the row, whose
/// removal leaves it taken.
#[test]
fn a_uniqueness_outlives_its_row() {
    let store = store();
    let (one, two) = (NOTES.at("one"), NOTES.at("two"));
    let take = |text: &str, by: &ResourceRef| {
        store.execute(&request(text), |fx| {
            fx.unique("email", "a@b.c", by)?;
            Ok(Outcome::succeeded(201))
        })
    };
    done(take("k-1", &one));
    done(take("k-2", &one)); // taken by the same holder: nothing to do
    assert_eq!(duplicate(take("k-3", &two)), (one.clone(), Some(request("k-1").scope().clone())));
    done(store.execute(&request("k-4"), |fx| {
        fx.remove(&NOTES, "one")?;
        fx.release("email", "a@b.c", &two)?; // not the holder: changes nothing
        fx.release("email", "other", &one)?; // not held: changes nothing
        Ok(Outcome::succeeded(200))
    }));
    assert_eq!(store.holder(&SHOP, "email", "a@b.c").unwrap(), Some(one.clone()));
    assert_eq!(duplicate(take("k-5", &two)).0, one);
    done(store.execute(&request("k-6"), |fx| {
        fx.release("email", "a@b.c", &one)?;
        fx.unique("email", "a@b.c", &two)?; // in one command, in its order
        Ok(Outcome::succeeded(200))
    }));
    assert_eq!(store.holder(&SHOP, "email", "a@b.c").unwrap(), Some(two));
    assert_eq!(store.holder(&OTHER_SHOP, "email", "a@b.c").unwrap(), None);
}

/// Of many commands that want one uniqueness exactly one gets it.
#[test]
fn one_of_many_gets_a_uniqueness() {
    let store = opened(Options::new().default_policy(patient()));
    let won = AtomicU64::new(0);
    let start = Barrier::new(32);
    std::thread::scope(|scope| {
        for thread in 0..32 {
            let (store, won, start) = (&store, &won, &start);
            scope.spawn(move || {
                for round in 0..50 {
                    start.wait();
                    let reply = store.execute(&request(&format!("{thread}-{round}")), |fx| {
                        let made = fx.create(&NOTES, &format!("{thread}-{round}"), &String::new())?;
                        fx.unique("seat", &round.to_string(), &made)?;
                        Ok(Outcome::succeeded(201))
                    });
                    match reply.unwrap() {
                        Reply::Done(_) => drop(won.fetch_add(1, SeqCst)),
                        other => drop(duplicate(Ok(other))),
                    }
                }
            });
        }
    });
    assert_eq!(won.load(SeqCst), 50);
    assert_eq!(store.scan(&SHOP, &NOTES, "").count(), 50);
    clean(&store);
}

/// C037, C038: what is one tenant's does not exist for another: no row, no uniqueness, no key, and no sign of
/// them.
#[test]
fn tenants_do_not_see_each_other() {
    let store = store();
    let make = |tenant: &Tenant| {
        store.execute(&of(tenant, "k"), |fx| {
            assert_eq!(fx.get(&NOTES, "spot")?, None);
            let made = fx.create(&NOTES, "spot", &fx_text(tenant))?;
            fx.unique("email", "a@b.c", &made)?;
            fx.add(&COUNT, "c", 1, 0)?;
            Ok(Outcome::succeeded(201).body(fx_text(tenant)))
        })
    };
    done(make(&SHOP));
    assert_eq!(store.get(&OTHER_SHOP, &NOTES, "spot").unwrap(), None);
    assert_eq!(store.scan(&OTHER_SHOP, &NOTES, "").count(), 0);
    assert_eq!(store.holder(&OTHER_SHOP, "email", "a@b.c").unwrap(), None);
    assert_eq!(store.status(of(&OTHER_SHOP, "k").scope()).unwrap(), Status::Absent);
    assert_eq!(store.peek(&of(&OTHER_SHOP, "k")), None);
    assert_eq!(done(make(&OTHER_SHOP)).decode::<String>().ok(), None);
    for tenant in [SHOP, OTHER_SHOP] {
        assert_eq!(store.get(&tenant, &NOTES, "spot").unwrap().unwrap().value, fx_text(&tenant));
        assert_eq!(store.get(&tenant, &COUNT, "c").unwrap().unwrap().value, 1);
    }
}

fn fx_text(tenant: &Tenant) -> String {
    format!("of {tenant}")
}

/// What is `shared()` is one for all tenants; who of another tenant made it is not told.
#[test]
fn shared_rows_do_not_tell_of_other_tenants() {
    let notices: Kind<String> = Kind::json("notice").shared();
    let store = store();
    let make = |tenant: &Tenant, text: &str| {
        store.execute(&of(tenant, text), |fx| {
            let made = fx.create(&notices, "spot", &"seen by all".to_owned())?;
            fx.unique("slot", "noon", &made)?;
            Ok(Outcome::succeeded(201))
        })
    };
    let take = |tenant: &Tenant, text: &str| {
        store.execute(&of(tenant, text), |fx| {
            fx.unique("slot", "noon", &notices.at("other"))?;
            Ok(Outcome::succeeded(201))
        })
    };
    done(make(&SHOP, "first"));
    assert_eq!(duplicate(make(&SHOP, "k")), (notices.at("spot"), Some(of(&SHOP, "first").scope().clone())));
    assert_eq!(duplicate(make(&OTHER_SHOP, "k")), (notices.at("spot"), None));
    assert_eq!(duplicate(take(&OTHER_SHOP, "k")), (notices.at("spot"), None));
    for tenant in [SHOP, OTHER_SHOP] {
        assert_eq!(store.get(&tenant, &notices, "spot").unwrap().unwrap().value, "seen by all");
        assert_eq!(store.holder(&tenant, "slot", "noon").unwrap(), Some(notices.at("spot")));
    }
    // A tenant's own uniqueness of the same name and value is another one.
    done(store.execute(&of(&OTHER_SHOP, "own"), |fx| {
        fx.unique("slot", "noon", &NOTES.at("own"))?;
        Ok(Outcome::succeeded(201))
    }));
    assert_eq!(store.holder(&OTHER_SHOP, "slot", "noon").unwrap(), Some(NOTES.at("own")));
}

/// Events of one row come in any order: the newest by its time stays, of equal ones the first, removals
/// included.
#[test]
fn an_older_event_changes_nothing() {
    let store = store();
    let numbers = AtomicU64::new(0);
    let event = |time: u64, text: Option<&str>| {
        let number = numbers.fetch_add(1, SeqCst);
        done(store.execute(&request(&number.to_string()), |fx| {
            match text {
                Some(text) => fx.put_if_newer(&NOTES, "row", Timestamp(time), &text.to_owned())?,
                None => fx.remove_if_newer(&NOTES, "row", Timestamp(time))?,
            }
            Ok(Outcome::succeeded(200))
        }));
        note(&store, "row")
    };
    let some = |text: &str| Some(text.to_owned());
    assert_eq!(event(10, Some("ten")), some("ten"));
    assert_eq!(event(9, Some("nine")), some("ten"));
    assert_eq!(event(10, Some("another ten")), some("ten"));
    assert_eq!(event(10, None), some("ten"));
    assert_eq!(event(12, Some("twelve")), some("twelve"));
    assert_eq!(store.get(&SHOP, &NOTES, "row").unwrap().unwrap().event_time, Some(Timestamp(12)));
    assert_eq!(event(11, None), some("twelve"));
    assert_eq!(event(20, None), None);
    assert_eq!(event(19, Some("nineteen")), None); // the removal is remembered
    assert_eq!(event(20, Some("twenty")), None);
    assert_eq!(event(21, Some("back")), some("back"));
    assert_eq!(store.stats().stale_events, 6);
    assert_eq!(event(0, Some("zero")), some("back"));
    assert_eq!(event(u64::MAX, Some("last")), some("last"));
    assert_eq!(event(u64::MAX, None), some("last"));
}

/// A row removed by an event can be created anew; what the event left behind still stops older events.
#[test]
fn a_removed_row_can_be_created() {
    let store = store();
    done(store.execute(&request("remove"), |fx| {
        fx.remove_if_newer(&NOTES, "row", Timestamp(20))?;
        Ok(Outcome::succeeded(200))
    }));
    assert_eq!(store.scan(&SHOP, &NOTES, "").count(), 0);
    done(store.execute(&request("create"), |fx| {
        assert_eq!(fx.get(&NOTES, "row")?, None);
        fx.create(&NOTES, "row", &"new".to_owned())?;
        Ok(Outcome::succeeded(201))
    }));
    done(store.execute(&request("older"), |fx| {
        fx.put_if_newer(&NOTES, "row", Timestamp(19), &"old".to_owned())?;
        Ok(Outcome::succeeded(200))
    }));
    assert_eq!(note(&store, "row").as_deref(), Some("new"));
    done(store.execute(&request("gone"), |fx| {
        fx.remove(&NOTES, "row")?;
        fx.remove(&NOTES, "never-there")?;
        Ok(Outcome::succeeded(200))
    }));
    assert_eq!(note(&store, "row"), None);
    clean(&store);
}

/// A kind is written one way: a row of another codec is `Invalid`, read or written, and stays as it was.
#[test]
fn another_codec_is_invalid() {
    const AS_BINCODE: Kind<String> = Kind::bincode("note");
    const AS_COUNTER: Kind<i64> = Kind::counter("note");
    const AS_NUMBER: Kind<i64> = Kind::json("note");
    let store = store();
    done(store.execute(&request("json"), |fx| {
        fx.create(&NOTES, "row", &"text".to_owned())?;
        Ok(Outcome::succeeded(201))
    }));
    fails(store.get(&SHOP, &AS_BINCODE, "row"), ErrorKind::Invalid);
    fails(store.get(&SHOP, &AS_NUMBER, "row"), ErrorKind::Invalid);
    fails(store.scan(&SHOP, &AS_BINCODE, "").next().unwrap(), ErrorKind::Invalid);
    let writes: [fn(&mut onecho::Effects<'_, '_>) -> Answer; 4] = [
        |fx| Ok(Outcome::succeeded(200).resource(&fx.put(&AS_BINCODE, "row", &"x".to_owned())?)),
        |fx| {
            fx.put_if_newer(&AS_BINCODE, "row", Timestamp(1), &"x".to_owned())
                .map(|()| Outcome::succeeded(200))
                .map_err(Into::into)
        },
        |fx| Ok(Outcome::succeeded(if fx.add(&AS_COUNTER, "row", 1, 0)? { 200 } else { 409 })),
        |fx| Ok(Outcome::succeeded(if fx.get(&AS_BINCODE, "row")?.is_some() { 200 } else { 404 })),
    ];
    for write in writes {
        fails(store.execute(&request("k"), write), ErrorKind::Invalid);
    }
    assert_eq!(note(&store, "row").as_deref(), Some("text"));
    done(store.execute(&request("k"), counted));
}

/// `new_id` gives different ids in one run, and the same ones when the closure is called again; they sort by
/// time.
#[test]
fn ids_are_the_same_in_each_run() {
    let (store, clock, _) = at_noon(Options::new());
    let seen = std::sync::Mutex::new(Vec::new());
    done(store.execute(&request("k"), |fx| {
        fx.get(&NOTES, "contested")?;
        let ids = [fx.new_id(), fx.new_id()];
        let runs = {
            let mut seen = seen.lock().unwrap();
            seen.push(ids);
            seen.len()
        };
        if runs < 3 {
            clock.advance(SECOND);
            std::thread::scope(|scope| {
                let other = scope.spawn(|| {
                    store.execute(&request(&format!("other-{runs}")), |fx| {
                        fx.put(&NOTES, "contested", &runs.to_string())?;
                        Ok(Outcome::succeeded(200))
                    })
                });
                done(other.join().unwrap());
            });
        }
        Ok(Outcome::succeeded(200))
    }));
    let seen = seen.into_inner().unwrap();
    assert_eq!(seen.len(), 3);
    assert!(seen.iter().all(|ids| *ids == seen[0]));
    assert_ne!(seen[0][0], seen[0][1]);
    let later = AtomicU64::new(0);
    done(store.execute(&request("later"), |fx| {
        later.store(u64::from(fx.new_id() > seen[0][0].clone().max(seen[0][1].clone())), SeqCst);
        Ok(Outcome::succeeded(200))
    }));
    assert_eq!(later.load(SeqCst), 1);
}

/// `now` is the store's clock, and the time of the outcome is too.
#[test]
fn a_closure_is_told_the_time() {
    let (store, clock, _) = at_noon(Options::new());
    clock.advance(SECOND);
    let finished = done(store.execute(&request("k"), |fx| {
        assert_eq!(fx.now(), NOON.after(SECOND));
        clock.advance(SECOND);
        assert_eq!(fx.now(), NOON.after(SECOND));
        Ok(Outcome::succeeded(200))
    }));
    assert_eq!(finished.at, NOON.after(2 * SECOND));
}

/// C017, C020, C089: `Err` and panic write nothing, whatever was staged.
#[test]
fn what_fails_leaves_no_trace() {
    let store = store();
    let before = store.stats();
    for panics in [false, true] {
        let called = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            store.execute(&request("k"), |fx| {
                let made = fx.create(&NOTES, "spot", &"x".to_owned())?;
                fx.unique("email", "a@b.c", &made)?;
                drop(counted(fx)?);
                if panics {
                    std::panic::resume_unwind(Box::new("planned"))
                }
                Err("planned".into())
            })
        }));
        assert_eq!(called.is_err(), panics);
        assert_eq!(store.status(request("k").scope()).unwrap(), Status::Absent);
        assert_eq!((note(&store, "spot"), applied(&store)), (None, 0));
        assert_eq!(store.holder(&SHOP, "email", "a@b.c").unwrap(), None);
    }
    assert_eq!((store.stats().last_seq, store.stats().commits), (before.last_seq, before.commits));
    done(store.execute(&request("k"), counted));
}

/// A scan gives a tenant's rows of a kind in ascending order, over pages, from a prefix on or behind an id.
#[test]
fn a_scan_is_in_order() {
    let store = store();
    let commands: Vec<_> =
        (0..600).map(|n| (request(&format!("{n}")), format!("{:03}", (n * 7) % 600))).collect();
    let answers = store.execute_many(&commands, |id, fx| {
        fx.create(&NOTES, id, id)?;
        Ok(Outcome::succeeded(201))
    });
    answers.into_iter().for_each(|answer| drop(done(answer)));
    let ids =
        |scan: onecho::Scan<onecho::Resource<String>>| scan.map(|row| row.unwrap().id).collect::<Vec<_>>();
    let named = |range: std::ops::Range<u32>| range.map(|n| format!("{n:03}")).collect::<Vec<_>>();
    assert_eq!(ids(store.scan(&SHOP, &NOTES, "")), named(0..600));
    assert_eq!(ids(store.scan(&SHOP, &NOTES, "1")), named(100..200));
    assert_eq!(ids(store.scan(&SHOP, &NOTES, "1").after("150")), named(151..200));
    assert_eq!(ids(store.scan(&SHOP, &NOTES, "1").after("0")), named(100..200));
    assert_eq!(ids(store.scan(&SHOP, &NOTES, "1").after("2")), named(0..0));
    assert_eq!(ids(store.scan(&SHOP, &NOTES, "").after("598x")), named(599..600));
    assert_eq!(ids(store.scan(&SHOP, &NOTES, "x")), named(0..0));
    assert_eq!(ids(store.scan(&OTHER_SHOP, &NOTES, "")), named(0..0));
}

/// A plain removal of a row that events write leaves the time behind too: no older event brings it back.
#[test]
fn a_removal_keeps_the_time_of_the_last_event() {
    let store = store();
    let event = |name: &str, time: u64| {
        done(store.execute(&request(name), |fx| {
            fx.put_if_newer(&NOTES, "n", Timestamp(time), &name.to_owned())?;
            Ok(Outcome::succeeded(200))
        }));
    };
    let remove = |name: &str| {
        done(store.execute(&request(name), |fx| {
            fx.remove(&NOTES, "n")?;
            Ok(Outcome::succeeded(200))
        }));
    };
    event("first", 10);
    remove("gone");
    remove("gone again");
    event("older", 9);
    assert_eq!(note(&store, "n"), None);
    event("newer", 11);
    assert_eq!(note(&store, "n").as_deref(), Some("newer"));
    clean(&store);
}
