//! Foreign events: each id accepted once, together with its job, and acknowledged whenever it comes again.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use onecho::testing::CrashTest;
use onecho::{
    Contract, Destination, ErrorKind, Inbox, Kind, Message, MessageState, Operation, Options, Policy, Reply,
    ScopeMode, Store, Tenant, Timestamp, Workers,
};

use crate::common::{NOON, OTHER_SHOP, SHOP, asking, at_noon, clean, done, mismatch, opened, replay, store};

const HOOKS: Inbox = Inbox::new("forge", "mirror");
const OTHER_CONSUMER: Inbox = Inbox::new("forge", "search");
const JOBS: Destination<String> = Destination::json("jobs", Contract::Idempotent);
const RUNS: Kind<i64> = Kind::counter("runs");
const STARS: Kind<String> = Kind::json("stars");
const LATER: Duration = Duration::from_secs(3600);

fn job(text: &str) -> Message {
    Message::new(&JOBS, &text.to_owned()).unwrap()
}

fn accept(store: &Store, inbox: &Inbox, id: &str, content: &str) -> Result<Reply, onecho::Error> {
    store.accept(&SHOP, &inbox.event(id)?.content(content), job(content))
}

fn accepted(reply: Result<Reply, onecho::Error>) -> bool {
    matches!(reply, Ok(Reply::Done(_)))
}

/// Workers that count the runs of each content.
fn counting(store: &Store) -> Workers {
    Workers::new(store).handle(&JOBS, |text, _, fx| {
        fx.add(&RUNS, text, 1, i64::MIN)?;
        Ok(())
    })
}

fn runs(store: &Store, text: &str) -> i64 {
    store.get(&SHOP, &RUNS, text).unwrap().map_or(0, |row| row.value)
}

#[test]
fn c071_a_redelivery_while_the_job_is_open_is_acknowledged_and_makes_no_second_one() {
    let (store, clock, disk) = at_noon(Options::new());
    let first = done(accept(&store, &HOOKS, "e", "x"));
    let calls: &'static AtomicU64 = Box::leak(Box::default());
    let failing = |store: &Store| {
        Workers::new(store).handle(&JOBS, |text, _, fx| {
            fx.add(&RUNS, text, 1, i64::MIN)?;
            if calls.fetch_add(1, SeqCst) < 3 { Err("not yet".into()) } else { Ok(()) }
        })
    };
    for _ in 0..3 {
        assert_eq!(failing(&store).tick().unwrap().retried, 1);
        let again = replay(accept(&store, &HOOKS, "e", "x"));
        assert_eq!(again.messages, first.messages);
        assert!(matches!(store.message(again.messages[0]).unwrap(), Some(MessageState::Waiting { .. })));
        clock.advance(LATER);
    }
    store.close().unwrap();
    let store = disk.open(Options::new().clock(clock)).unwrap();
    assert_eq!(failing(&store).tick().unwrap().handled, 1);
    assert_eq!(replay(accept(&store, &HOOKS, "e", "x")).messages, first.messages);
    assert_eq!((runs(&store, "x"), store.messages().count()), (1, 1));
    clean(&store);
}

/// Id and job are there together, or neither, and then a redelivery is new.
#[test]
fn c071_a_power_cut_leaves_an_event_with_its_job_or_not_at_all() {
    let report = CrashTest::new(Options::new().replay_bytes(0), 5).states_max(800).run(
        |store, acknowledged| {
            for id in ["a", "b", "c"] {
                assert!(accepted(accept(store, &HOOKS, id, id)));
                acknowledged.push(id);
            }
        },
        |store, acknowledged| {
            assert_eq!(store.messages().count() as u64, store.stats().records);
            for id in ["a", "b", "c"] {
                let reply = accept(store, &HOOKS, id, id).unwrap();
                assert!(reply.is_replay() || !acknowledged.contains(&id), "{id} is lost");
            }
            assert_eq!(counting(store).tick().unwrap().handled, 3);
            assert!(["a", "b", "c"].iter().all(|id| runs(store, id) == 1));
        },
    );
    assert!(report.states > 100, "{report:?}");
}

#[test]
fn c072_fifty_deliveries_at_once_make_one_job() {
    let store = store();
    let news = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..50 {
            scope.spawn(|| match accept(&store, &HOOKS, "e", "x").unwrap() {
                Reply::Done(_) => drop(news.fetch_add(1, SeqCst)),
                Reply::Replay(finished) => assert_eq!(finished.messages.len(), 1),
                other => panic!("{other:?}"),
            });
        }
    });
    assert_eq!(news.load(SeqCst), 1);
    assert_eq!(counting(&store).tick().unwrap().handled, 1);
    let stats = store.stats();
    assert_eq!((stats.inbox_new, stats.inbox_duplicate, runs(&store, "x")), (1, 49, 1));
}

#[test]
fn c073_each_consumer_gets_its_own_copy() {
    for mode in [ScopeMode::PerOperation, ScopeMode::PerTenant] {
        let store = opened(Options::new().scope_mode(mode));
        assert!(accepted(accept(&store, &HOOKS, "e", "x")));
        assert!(accepted(accept(&store, &OTHER_CONSUMER, "e", "y")));
        // A client's key of the same text is another thing, and so is another tenant's event.
        done(store.execute(&asking("e", "x"), |_| Ok(onecho::Outcome::succeeded(200))));
        let event = HOOKS.event("e").unwrap().content("z");
        assert!(accepted(store.accept(&OTHER_SHOP, &event, job("z"))));
        assert_eq!(counting(&store).tick().unwrap().handled, 3);
        assert_eq!((runs(&store, "x"), runs(&store, "y")), (1, 1));
        clean(&store);
    }
}

/// The sender's id of the event is what counts, whatever its delivery is called.
#[test]
fn c074_an_event_is_known_by_its_own_id_not_by_that_of_its_delivery() {
    let store = store();
    let deliver = |event: &str, delivery: &str| {
        let job = job(event).header("delivery", delivery);
        store.accept(&SHOP, &HOOKS.event(event).unwrap().content(event), job).unwrap()
    };
    assert!(matches!(deliver("e-1", "d-1"), Reply::Done(_)));
    assert!(deliver("e-1", "d-2").is_replay());
    assert!(matches!(deliver("e-2", "d-1"), Reply::Done(_)));
    assert_eq!(counting(&store).tick().unwrap().handled, 2);
}

#[test]
fn c075_without_an_id_nothing_is_accepted() {
    let store = store();
    for id in ["", "\n", "a\0b"] {
        for _ in 0..2 {
            assert_eq!(accept(&store, &HOOKS, id, "x").unwrap_err().kind(), ErrorKind::Invalid, "{id:?}");
        }
    }
    let long = "x".repeat(256);
    assert_eq!(accept(&store, &HOOKS, &long, "x").unwrap_err().kind(), ErrorKind::LimitExceeded);
    assert_eq!((store.messages().count(), store.stats().records), (0, 0));
}

#[test]
fn c076_content_tells_a_conflict_and_is_no_identity() {
    let store = store();
    assert!(accepted(accept(&store, &HOOKS, "a", "same")));
    assert!(accepted(accept(&store, &HOOKS, "b", "same")));
    let (parts, formatting_only, _) = mismatch(accept(&store, &HOOKS, "a", "other"));
    assert_eq!((parts, formatting_only), (vec!["content".to_owned()], false));
    // Byte for byte: of a signed body, formatting is content.
    assert!(accepted(accept(&store, &HOOKS, "json", r#"{"a":1}"#)));
    mismatch(accept(&store, &HOOKS, "json", r#"{ "a": 1 }"#));
    assert_eq!(counting(&store).tick().unwrap().handled, 3);
    assert_eq!((runs(&store, "same"), runs(&store, "other")), (2, 0));
    assert_eq!(store.stats().inbox_conflict, 2);
}

/// C077: how old a delivery may be its receiver says; here no time is too odd to be kept.
#[test]
fn c077_any_time_of_an_event_is_kept_as_it_is() {
    let store = store();
    for at in [0, 1, NOON.0, NOON.0 + 301_000, 1 << 63, u64::MAX] {
        let event = HOOKS.event(&format!("e{at}")).unwrap().content("x").time(Timestamp(at));
        assert!(accepted(store.accept(&SHOP, &event.stream("s"), job(&format!("{at}")))), "{at}");
    }
    let workers = Workers::new(&store).handle(&JOBS, |text, delivery, _| {
        assert_eq!(delivery.event_time(), Some(Timestamp(text.parse().unwrap())));
        Ok(())
    });
    assert_eq!(workers.tick().unwrap().handled, 6);
    let no_time = HOOKS.event("n").unwrap().content("x").stream("s");
    assert_eq!(store.accept(&SHOP, &no_time, job("n")).unwrap_err().kind(), ErrorKind::Invalid);
    clean(&store);
}

#[test]
fn an_older_event_overwrites_nothing_newer_and_knows_that_it_is_overtaken() {
    let (store, _clock, _disk) = at_noon(Options::new());
    let mut jobs = 0;
    for (id, at, stream) in
        [("b", 20, "r"), ("a", 10, "r"), ("c", 20, "r"), ("d", 5, "other"), ("e", 30, "r")]
    {
        let event = HOOKS.event(id).unwrap().content(id).time(Timestamp(at)).stream(stream);
        assert!(accepted(store.accept(&SHOP, &event, job(id))));
        jobs += 1;
    }
    let workers = Workers::new(&store).handle(&JOBS, |id, delivery, fx| {
        let stream = if id == "d" { "other" } else { "r" };
        // Equal times do not overtake one another.
        let is_overtaken = ["a", "b", "c"].contains(&id.as_str());
        assert_eq!(delivery.overtaken(), is_overtaken, "{id}");
        fx.put_if_newer(&STARS, stream, delivery.event_time().unwrap(), id)?;
        Ok(())
    });
    assert_eq!(workers.tick().unwrap().handled, jobs);
    let row = |stream| store.get(&SHOP, &STARS, stream).unwrap().unwrap().value;
    assert_eq!((row("r"), row("other")), ("e".to_owned(), "d".to_owned()));
    let stats = store.stats();
    assert_eq!((stats.inbox_overtaken, stats.stale_events), (1, 2));
    // Of equal times the first stays.
    let late = HOOKS.event("f").unwrap().content("f").time(Timestamp(30)).stream("r");
    assert!(accepted(store.accept(&SHOP, &late, job("f"))));
    let workers = Workers::new(&store).handle(&JOBS, |id, delivery, fx| {
        assert!(!delivery.overtaken());
        fx.put_if_newer(&STARS, "r", delivery.event_time().unwrap(), id)?;
        Ok(())
    });
    assert_eq!(workers.tick().unwrap().handled, 1);
    assert_eq!(row("r"), "e");
    clean(&store);
}

#[test]
fn an_event_is_known_for_as_long_as_its_policy_says() {
    let policy = Policy::new().body_window(LATER).key_window(LATER);
    let (store, clock, _disk) = at_noon(Options::new().operation(&HOOKS.operation(), policy));
    assert!(accepted(accept(&store, &HOOKS, "e", "x")));
    clock.advance(LATER);
    assert!(matches!(accept(&store, &HOOKS, "e", "x"), Ok(Reply::Expired { .. })));
    assert_eq!(store.messages().count(), 1);
}

#[test]
fn names_of_the_store_are_nobody_elses() {
    for name in ["onecho:", "onecho:inbox/forge/mirror", "onecho:messages"] {
        assert_eq!(Operation::parse(name).unwrap_err().kind(), ErrorKind::Invalid);
        assert_eq!(Tenant::parse(name).unwrap_err().kind(), ErrorKind::Invalid);
    }
    assert!(Operation::parse("onecho").is_ok() && Operation::parse("onecho-x").is_ok());
    for (source, consumer) in [("a/b", "c"), ("a", "b/c"), ("", "c"), ("a", "\n")] {
        assert_eq!(Inbox::parse(source, consumer).unwrap_err().kind(), ErrorKind::Invalid);
    }
    assert_eq!(Inbox::parse(&"a".repeat(49), "c").unwrap_err().kind(), ErrorKind::LimitExceeded);
    assert_eq!(Inbox::parse("forge", "mirror").unwrap().operation(), HOOKS.operation());
}
