//! What a command said is what every retry is told, byte for byte.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use onecho::{
    Advice, Body, BoxError, ErrorKind, Operation, Options, Outcome, Policy, Reply, Request, Status,
};

use crate::common::*;

/// C045, C053: every code is replayed as it was, success and refusal alike.
#[test]
fn a_code_is_replayed_as_it_was() {
    let store = store();
    for code in [0, 200, 201, 202, 204, 303, 400, 402, 409, 422, 599, u16::MAX] {
        for failed in [false, true] {
            let asked = request(&format!("{code}-{failed}"));
            let first = done(store.execute(&asked, |_| {
                Ok(if failed { Outcome::failed(code) } else { Outcome::succeeded(code) }.body("why"))
            }));
            assert_eq!((first.code, first.failed, first.generation), (code, failed, 1));
            assert_eq!(replay(store.execute(&asked, never)), first);
            assert_eq!(store.status(asked.scope()).unwrap(), Status::Finished(first));
        }
    }
}

/// C021, C046, C047, C049, C052: body, metadata and resource are replayed byte for byte, from memory, from
/// the file, and after the store was opened again.
#[test]
fn an_outcome_is_replayed_byte_for_byte() {
    for replay_bytes in [0, 16 << 20] {
        let options = Options::new().replay_bytes(replay_bytes);
        let disk = onecho::testing::SimDisk::seeded(1);
        let store = disk.open(options.clone()).unwrap();
        let all: Vec<u8> = (0..=255).collect();
        let bodies = [vec![], vec![0], all.clone(), all.repeat(240), vec![0xC3, 0x28, 0xFF]];
        let firsts: Vec<_> = bodies
            .iter()
            .enumerate()
            .map(|(n, body)| {
                let first = done(store.execute(&request(&n.to_string()), |fx| {
                    let made = fx.create(&NOTES, &n.to_string(), &"made".to_owned())?;
                    let outcome =
                        Outcome::succeeded(201).body(body.clone()).meta("location", format!("/{n}"));
                    Ok(outcome
                        .meta("x-all", &all)
                        .meta("empty", "")
                        .meta("location", "/last")
                        .resource(&made))
                }));
                assert_eq!(first.body, Body::Present(body.clone().into()));
                first
            })
            .collect();
        let check = |store: &onecho::Store| {
            for (n, first) in firsts.iter().enumerate() {
                let again = replay(store.execute(&request(&n.to_string()), never));
                assert_eq!(again, *first);
                assert_eq!(again.meta("x-all"), Some(&all[..]));
                let names: Vec<_> = again.metadata().map(|(name, value)| (name, value.len())).collect();
                assert_eq!(names, [("location", 5), ("x-all", 256), ("empty", 0)]);
                assert_eq!(again.resource, Some(NOTES.at(&n.to_string())));
            }
        };
        check(&store);
        assert_eq!(store.stats().answered_from_memory > 0, replay_bytes > 0);
        assert_eq!(store.peek(&request("2")).is_some(), replay_bytes > 0);
        assert_eq!(store.peek(&request("never asked")), None);
        store.close().unwrap();
        check(&disk.open(options).unwrap());
    }
}

/// C051: what was run now and what was run before differ by the answer, and in nothing else.
#[test]
fn a_replay_says_that_it_is_one() {
    let store = store();
    let first = store.execute(&request("k"), counted).unwrap();
    let second = store.execute(&request("k"), never).unwrap();
    assert_eq!((first.is_replay(), second.is_replay()), (false, true));
    assert_eq!((first.advice(), second.advice()), (Advice::Settled, Advice::Settled));
    assert_eq!(first.into_finished(), second.into_finished());
}

/// A JSON body comes with its type and is read back as a value.
#[test]
fn a_json_body_is_read_back() {
    let store = store();
    let first = done(store.execute(&request("k"), |_| Ok(Outcome::succeeded(200).json(&vec![1, 2, 3])?)));
    assert_eq!(first.meta("content-type"), Some(&b"application/json"[..]));
    assert_eq!(first.decode::<Vec<u8>>().unwrap(), Some(vec![1, 2, 3]));
    fails(first.decode::<String>(), ErrorKind::Invalid);
}

/// C050, C064: a body that is not kept goes to the first caller; a retry learns its digest and length, never
/// an empty body, and does not run.
#[test]
fn a_body_not_kept_is_never_empty() {
    let store = store();
    let first =
        done(store.execute(&request("k"), |_| Ok(Outcome::succeeded(200).body("abc").body_not_kept())));
    assert_eq!(first.body, Body::Present("abc".into()));
    let again = replay(store.execute(&request("k"), never));
    let Body::NotKept { digest, len } = again.body else { panic!("{again:?}") };
    assert_eq!(len, 3);
    assert_eq!(digest.to_string(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    assert_eq!(again.decode::<String>().unwrap(), None);
    assert_eq!(store.stats().replays_without_body, 1);
}

/// C022, C050: an outcome over its operation's limit is a typed error: nothing is written and the key is
/// free. What is not kept does not count.
#[test]
fn an_outcome_too_large_writes_nothing() {
    let store = opened(Options::new().operation(&PAY, Policy::new().outcome_bytes_max(100)));
    let sized = |bytes: usize, keep: bool| {
        store.execute(&request("k"), move |fx| {
            fx.add(&COUNT, "applied", 1, 0)?;
            let outcome = Outcome::succeeded(200).meta("name", "value").body(vec![7; bytes]);
            Ok(if keep { outcome } else { outcome.body_not_kept() })
        })
    };
    let error = fails(sized(92, true), ErrorKind::LimitExceeded);
    assert!(error.to_string().contains("101 bytes") && error.to_string().contains("100"), "{error}");
    assert_eq!(error.advice(), Advice::FixRequest);
    assert_eq!((applied(&store), store.stats().executed), (0, 0));
    assert_eq!(store.status(request("k").scope()).unwrap(), Status::Absent);
    done(sized(91, true));
    let other =
        store.execute(&request("other"), |_| Ok(Outcome::succeeded(200).body(vec![7; 1000]).body_not_kept()));
    done(other);
}

/// A refusal with staged effects is `Invalid`, and neither half is applied, unless it says that it means
/// both.
#[test]
fn a_refusal_changes_rows_only_when_it_says_so() {
    let store = store();
    let refuse = |says_so: bool| {
        store.execute(&request("k"), move |fx| {
            fx.add(&COUNT, "applied", 1, 0)?;
            Ok(if says_so { Outcome::failed(402).with_effects() } else { Outcome::failed(402) })
        })
    };
    fails(refuse(false), ErrorKind::Invalid);
    assert_eq!((applied(&store), store.stats().executed), (0, 0));
    assert!(done(refuse(true)).failed);
    assert_eq!(applied(&store), 1);
    // A read alone is no effect.
    done(store.execute(&request("read"), |fx| {
        fx.get(&COUNT, "applied")?;
        Ok(Outcome::failed(404))
    }));
}

/// C054, C055, C025: `Err` is not recorded, so the corrected or recovered command runs under the same key;
/// `Ok(failed)` is.
#[test]
fn only_what_was_said_is_recorded() {
    let store = store();
    let calls = AtomicU64::new(0);
    let error = store
        .execute(&asking("k", "{bad"), |_| {
            calls.fetch_add(1, SeqCst);
            Err(std::io::Error::other("503").into())
        })
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Aborted);
    assert_eq!(error.downcast::<std::io::Error>().unwrap().to_string(), "503");
    assert!(done(store.execute(&asking("k", "{}"), |_| Ok(Outcome::failed(402)))).failed);
    assert!(replay(store.execute(&asking("k", "{}"), never)).failed);
    assert_eq!(calls.load(SeqCst), 1);
}

/// An error of the store that a closure passes on comes back as it was; any other comes back inside
/// `Aborted`.
#[test]
fn an_error_passes_through_a_closure() {
    let store = store();
    let own = store.execute(&request("k"), |fx| {
        fx.get(&NOTES, "")?;
        Ok(Outcome::succeeded(200))
    });
    fails(own, ErrorKind::Invalid);
    let foreign = store.execute(&request("k"), |_| Err("no stock".into()));
    let error = fails(foreign, ErrorKind::Aborted);
    let error = error.downcast::<std::io::Error>().unwrap_err();
    assert_eq!(std::error::Error::source(&error).unwrap().to_string(), "no stock");
    assert_eq!(store.stats().aborted, 2);
}

/// C023: the key and the fingerprint are those of the call, whatever the program does to its own data
/// meanwhile.
#[test]
fn a_request_is_taken_down_once() {
    let store = store();
    let mut body = b"asked".to_vec();
    let asked = Request::new(&SHOP, &PAY, &key("k")).bytes("body", &body);
    body.clear();
    done(store.execute(&asked, counted));
    replay(store.execute(&Request::new(&SHOP, &PAY, &key("k")).bytes("body", "asked"), never));
    mismatch(store.execute(&Request::new(&SHOP, &PAY, &key("k")).bytes("body", &body), never));
    assert_eq!(store.stats().records, 1);
}

/// C101: every answer that `execute` can give is reached by one sequence of calls, and each has its advice.
#[test]
fn each_answer_is_reachable() -> Result<(), BoxError> {
    const ELSEWHERE: Operation = Operation::new("elsewhere");
    let options = Options::new()
        .rerun_max(0)
        .operation(&REFUND, Policy::new().body_window(SECOND).key_window(SECOND))
        .authority(|scope| match scope.operation.as_str() {
            "elsewhere" => onecho::Authority::Elsewhere("node-2".to_owned()),
            _ => onecho::Authority::Here,
        });
    let (store, clock, _) = at_noon(options);
    let refund = Request::new(&SHOP, &REFUND, &key("k")).bytes("body", "x");
    let create = |fx: &mut onecho::Effects<'_, '_>| {
        Ok(Outcome::succeeded(201).resource(&fx.create(&NOTES, "n", &String::new())?))
    };
    assert!(matches!(store.execute(&refund, create)?, Reply::Done(_)));
    assert!(matches!(store.execute(&refund, never)?, Reply::Replay(_)));
    let other = Request::new(&SHOP, &REFUND, &key("k")).bytes("body", "y");
    assert!(matches!(store.execute(&other, never)?, Reply::Mismatch { in_flight: false, .. }));
    clock.advance(SECOND);
    let expired = store.execute(&refund, never)?;
    assert!(matches!(expired, Reply::Expired { .. }));
    assert_eq!(expired.advice(), Advice::LookUpFirst);
    assert!(matches!(store.execute(&request("k"), create)?, Reply::Duplicate { .. }));
    let refused = store.execute(&Request::new(&SHOP, &ELSEWHERE, &key("k")).bytes("body", "x"), never)?;
    let Reply::Refused(onecho::Refused::NotAuthoritative { owner }) = &refused else { panic!("{refused:?}") };
    let after = std::time::Duration::from_secs(1);
    assert_eq!((owner.as_str(), refused.advice()), ("node-2", Advice::RetrySameKey { after }));
    assert_eq!(store.stats().refused, 1);
    // `InProgress` and `Mismatch` in flight: races.rs. `Conflict`: effects.rs. `Refused(Capacity)`:
    // limits.rs.
    Ok(())
}

/// Whatever is not `Done` or `Replay` comes back whole from `into_finished`.
#[test]
fn other_answers_come_back() {
    let store = store();
    done(store.execute(&request("k"), counted));
    let reply = store.execute(&asking("k", "other"), never).unwrap();
    assert_eq!(*reply.clone().into_finished().unwrap_err(), reply);
}
