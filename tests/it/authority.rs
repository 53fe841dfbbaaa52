//! One scope has one store that decides. What the file says counts: a tenant that was handed over is refused,
//! and what it took along answers at its new store as it did at the old one.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use onecho::testing::{ManualClock, SimDisk};
use onecho::{
    AfterExpiry, Authority, Begin, Bytes, Contract, Delivered, Destination, Error, ErrorKind, Evidence,
    Finished, Inbox, Kind, Message, MessageState, Operation, Options, Outcome, Policy, Refused, Reply,
    Request, Resolution, Settle, Start, Status, Step, Stepped, Store, Tenant, Workers,
};

use crate::common::{
    COUNT, NOON, NOTES, OTHER_SHOP, PAY, REFUND, SECOND, SHOP, applied, clean, counted, done, fails, key,
    never, replay, request,
};

const NORTH: &str = "north";
const SOUTH: &str = "south";
const CHARGE: Step<u32> = Step::new("charge", Contract::Queryable).settles_within(Duration::from_secs(60));
const MAIL: Destination<String> = Destination::json("mail", Contract::Neither);
const PUSH: Destination<String> = Destination::json("push", Contract::Idempotent);
const SHARED: Kind<i64> = Kind::counter("stock").shared();

fn options(name: &str, clock: &ManualClock) -> Options {
    let policy = Policy::new().wait(Duration::ZERO).lease(Duration::from_secs(10));
    Options::new().owner(name).clock(clock.clone()).default_policy(policy).reserve_bytes(0)
}

/// A store that decides about all, and one that decides about nothing yet.
fn two(clock: &ManualClock) -> (Store, Store) {
    let north = SimDisk::seeded(1).open(options(NORTH, clock)).unwrap();
    let south = SimDisk::seeded(2).open(options(SOUTH, clock).owns_nothing()).unwrap();
    (north, south)
}

fn exported(store: &Store, tenant: &Tenant) -> Vec<u8> {
    let mut stream = Vec::new();
    store.export(tenant, &mut stream).unwrap();
    stream
}

/// Moves the shop from one store to another.
fn moved(from: &Store, to: &Store, name: &str) -> Vec<u8> {
    from.hand_over(&SHOP, name, "Ada").unwrap();
    let stream = exported(from, &SHOP);
    to.import(&stream[..], "Ada").unwrap();
    stream
}

#[track_caller]
fn refused(reply: Result<Reply, Error>, by: &str) {
    match reply {
        Ok(Reply::Refused(Refused::NotAuthoritative { owner, .. })) => assert_eq!(owner, by),
        other => panic!("not refused: {other:?}"),
    }
}

fn begun(store: &Store, text: &str, start: Start) -> onecho::Claim {
    match store.begin(&request(text), start) {
        Ok(Begin::Run(claim)) => claim,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_tenant_that_was_handed_over_is_refused_before_anything_runs() {
    let clock = ManualClock::at(NOON);
    let disk = SimDisk::seeded(1);
    let store = disk.open(options(NORTH, &clock)).unwrap();
    done(store.execute(&request("k"), counted));
    begun(&store, "lapsed", Start::new()).unsure("no answer").unwrap();
    let case = store.cases().next().unwrap().unwrap();
    let sent = store.enqueue(&SHOP, &[Message::new(&MAIL, &"a".to_owned()).unwrap()]).unwrap()[0];
    assert_eq!(store.hand_over(&SHOP, SOUTH, "Ada").unwrap().epoch, 0);
    assert_eq!(store.hand_over(&SHOP, SOUTH, "Ada").unwrap().epoch, 0, "said again");
    fails(store.hand_over(&SHOP, "west", "Ada"), ErrorKind::NotAuthoritative);
    let calls = |store: &Store| {
        refused(store.execute(&request("new"), never), SOUTH);
        refused(store.execute(&request("k"), never), SOUTH);
        let many = store.execute_many(&[(request("n1"), ()), (request("n2"), ())], |(), fx| never(fx));
        many.into_iter().for_each(|reply| refused(reply, SOUTH));
        match store.begin(&request("begin"), Start::new()) {
            Ok(Begin::Reply(reply)) => refused(Ok(reply), SOUTH),
            other => panic!("{other:?}"),
        }
        let event = Inbox::new("forge", "mirror").event("e").unwrap();
        refused(store.accept(&SHOP, &event, Message::new(&MAIL, &"b".to_owned()).unwrap()), SOUTH);
        let message = Message::new(&MAIL, &"c".to_owned()).unwrap();
        fails(store.enqueue(&SHOP, &[message]), ErrorKind::NotAuthoritative);
        fails(store.cancel(request("free").scope()), ErrorKind::NotAuthoritative);
        let why = || Evidence::new("people", "looked");
        fails(store.resolve(&case, Resolution::NotApplied, why(), "Ada"), ErrorKind::NotAuthoritative);
        fails(store.settle(sent, Settle::Discard, why(), "Ada"), ErrorKind::NotAuthoritative);
        assert_eq!(store.cases().count(), 0, "the other store finds out");
        let ticked = Workers::new(store).deliver(&MAIL, |_, _| panic!("it was sent")).tick().unwrap();
        assert_eq!((ticked.delivered, ticked.unknown), (0, 0));
        // Looking is allowed, and other tenants are as before.
        assert!(matches!(store.status(request("k").scope()), Ok(Status::Finished(_))));
        assert!(matches!(store.status(request("new").scope()), Ok(Status::Absent)));
        let other = Request::new(&OTHER_SHOP, &PAY, &key("k")).bytes("body", "x");
        assert!(store.execute(&other, |_| Ok(Outcome::succeeded(201))).unwrap().into_finished().is_ok());
        clean(store);
    };
    calls(&store);
    store.close().unwrap();
    calls(&disk.open(options(NORTH, &clock)).unwrap());
}

#[test]
fn a_store_that_owns_nothing_stays_so_and_configuration_only_narrows() {
    let clock = ManualClock::at(NOON);
    let disk = SimDisk::seeded(3);
    let own = disk.open(options(SOUTH, &clock).owns_nothing()).unwrap();
    refused(own.execute(&request("k"), never), "");
    fails(own.hand_over(&SHOP, NORTH, "Ada"), ErrorKind::NotAuthoritative);
    own.close().unwrap();
    let here = options(SOUTH, &clock).authority(|_| Authority::Here);
    let own = disk.open(here).unwrap();
    refused(own.execute(&request("k"), never), "");
    let all = SimDisk::seeded(4);
    all.open(options(NORTH, &clock)).unwrap().close().unwrap();
    fails(all.open(options(NORTH, &clock).owns_nothing()), ErrorKind::Invalid);
    fails(all.open(options(NORTH, &clock)).unwrap().hand_over(&SHOP, NORTH, "Ada"), ErrorKind::Invalid);
}

/// Callers that race with a hand-over are either before it, and handed over, or refused.
#[test]
fn a_hand_over_racing_with_commands_admits_each_once() {
    let clock = ManualClock::at(NOON);
    for round in 0..20 {
        let (north, south) = two(&clock);
        let ran = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (north, ran) = (&north, &ran);
                scope.spawn(move || {
                    for number in 0..50 {
                        let text = format!("{thread}-{number}");
                        match north.execute(&request(&text), counted).unwrap() {
                            Reply::Done(_) => ran.lock().unwrap().push(text),
                            reply => return refused(Ok(reply), SOUTH),
                        }
                    }
                });
            }
            while ran.lock().unwrap().len() < round * 5 {
                std::thread::yield_now();
            }
            north.hand_over(&SHOP, SOUTH, "Ada").unwrap();
            refused(north.execute(&request("behind"), never), SOUTH);
        });
        let ran = ran.into_inner().unwrap();
        assert_eq!(applied(&north), ran.len() as i64);
        south.import(&exported(&north, &SHOP)[..], "Ada").unwrap();
        assert_eq!(applied(&south), ran.len() as i64);
        ran.iter().for_each(|text| drop(replay(south.execute(&request(text), never))));
    }
}

#[test]
fn an_owner_that_finishes_after_the_hand_over_has_lost_its_fence() {
    let clock = ManualClock::at(NOON);
    let (north, south) = two(&clock);
    let mut claim = begun(&north, "k", Start::new().input(&17).unwrap());
    let Stepped::Call(id) = claim.step(&CHARGE).unwrap() else { panic!("nobody was before") };
    let point: u32 = claim.transact("half", |fx| Ok(fx.add(&COUNT, "half", 1, 0).map(|_| 5)?)).unwrap();
    assert_eq!(point, 5);
    clock.advance(SECOND);
    moved(&north, &south, SOUTH);
    assert_eq!(claim.heartbeat().unwrap_err().kind(), ErrorKind::FenceLost);
    claim.answer(&CHARGE, &7).unwrap();
    let lost = claim.finish(counted).unwrap_err();
    assert_eq!(Error::from(lost).kind(), ErrorKind::FenceLost);
    assert_eq!((applied(&north), north.stats().differences), (0, 1));
    clean(&north);

    let Reply::Unknown { open_steps, .. } = south.execute(&request("k"), never).unwrap() else { panic!() };
    assert_eq!(open_steps, [("charge".to_owned(), id)]);
    let case = south.cases().next().unwrap().unwrap();
    assert_eq!(case.input::<u32>().unwrap(), 17);
    let why = || Evidence::new("processor", "not seen");
    let too_early = south.resolve(&case, Resolution::NotApplied, why(), "Ada");
    fails(too_early, ErrorKind::Invalid); // Its point was committed.
    let not_yet = onecho::Verdict::NotApplied(why());
    fails(south.judge(&case, &CHARGE, not_yet.clone(), "Ada"), ErrorKind::Unavailable);
    clock.advance(Duration::from_secs(60));
    south.judge(&case, &CHARGE, not_yet, "Ada").unwrap();
    let case = south.cases().next().unwrap().unwrap();
    let status = south.resolve(&case, Resolution::finished(counted), why(), "Ada").unwrap();
    assert!(matches!(status, Status::Finished(_)));
    assert_eq!((applied(&south), south.get(&SHOP, &COUNT, "half").unwrap().unwrap().value), (1, 1));
    replay(south.execute(&request("k"), never));
    clean(&south);
}

/// Everything that a replay needs comes along byte for byte.
#[test]
fn what_was_finished_is_replayed_by_the_new_owner() {
    const ANEW: Operation = Operation::new("anew");
    const SHORT: Operation = Operation::new("short");
    let clock = ManualClock::at(NOON);
    let with = |options: Options| {
        let minute = Duration::from_secs(60);
        let short = Policy::new().body_window(SECOND).key_window(minute);
        options.operation(&SHORT, short).operation(&ANEW, short.after_expiry(AfterExpiry::RunAsNew))
    };
    let north = SimDisk::seeded(1).open(with(options(NORTH, &clock))).unwrap();
    let south = SimDisk::seeded(2).open(with(options(SOUTH, &clock).owns_nothing())).unwrap();
    let of =
        |operation: &Operation, text: &str| Request::new(&SHOP, operation, &key(text)).bytes("body", text);
    done(north.execute(&of(&ANEW, "a"), |_| Ok(Outcome::succeeded(1))));
    done(north.execute(&of(&SHORT, "expired"), |_| Ok(Outcome::failed(402).body("gone"))));
    clock.advance(Duration::from_secs(61));
    let second = done(north.execute(&of(&ANEW, "a"), |_| Ok(Outcome::succeeded(2).body("again"))));
    assert_eq!(second.generation, 2);
    done(north.execute(&request("made"), |fx| {
        let note = fx.create(&NOTES, "n", &"text".to_owned())?;
        fx.unique("cart", "c-1", &note)?;
        fx.add(&SHARED, "pen", 3, 0)?;
        fx.enqueue(Message::new(&PUSH, &"one".to_owned())?)?;
        fx.enqueue(Message::new(&PUSH, &"two".to_owned())?)?;
        Ok(Outcome::succeeded(201).meta("location", "/n").body(vec![7; 3000]).resource(&note))
    }));
    done(north.execute(&request("failed"), |_| Ok(Outcome::failed(402).body("no"))));
    done(north.execute(&request("unkept"), |_| Ok(Outcome::succeeded(200).body("x").body_not_kept())));
    north.cancel(request("cancelled").scope()).unwrap();
    let requests =
        [of(&ANEW, "a"), request("made"), request("failed"), request("unkept"), request("cancelled")];
    let replays = |store: &Store| -> Vec<Finished> {
        requests.iter().map(|request| replay(store.execute(request, never))).collect()
    };
    let before = replays(&north);
    clock.advance(SECOND);
    moved(&north, &south, SOUTH);
    let after = replays(&south);
    for (mut before, after) in before.iter().cloned().zip(&after) {
        assert_eq!(before.messages.len(), after.messages.len());
        before.messages.clone_from(&after.messages);
        // Its body's window has ended on the way, or not, at both.
        assert_eq!((before.at, before.code, before.body_until), (after.at, after.code, after.body_until));
        assert_eq!(before.generation, after.generation);
        assert_eq!(before.metadata().collect::<Vec<_>>(), after.metadata().collect::<Vec<_>>());
        assert_eq!((&before.resource, before.key_until), (&after.resource, after.key_until));
        if before.generation == 1 {
            assert_eq!(before, *after);
        }
    }
    assert!(matches!(
        south.execute(&of(&SHORT, "expired"), never).unwrap(),
        Reply::Expired { code: 402, .. }
    ));
    assert!(matches!(south.execute(&request_of("made", "other"), never), Ok(Reply::Mismatch { .. })));
    replay(south.execute(&request_of("cancelled", "whatever"), never));
    let row = south.get(&SHOP, &NOTES, "n").unwrap().unwrap();
    assert_eq!(row.value, "text");
    assert_eq!(south.holder(&SHOP, "cart", "c-1").unwrap(), Some(NOTES.at("n")));
    assert!(south.get(&SHOP, &SHARED, "pen").unwrap().is_none(), "what all tenants share stays");
    let taken = south.execute(&request("second"), |fx| {
        fx.create(&NOTES, "n", &String::new())?;
        Ok(Outcome::succeeded(201))
    });
    assert!(matches!(taken, Ok(Reply::Duplicate { made_by: None, .. })), "{taken:?}");
    let messages = &after[1].messages;
    assert_eq!(messages.len(), 2);
    assert!(messages.iter().all(|id| matches!(south.message(*id), Ok(Some(MessageState::Waiting { .. })))));
    assert_eq!(south.stats().records, 6);
    clean(&south);
    clean(&north);
}

fn request_of(text: &str, body: &str) -> Request {
    crate::common::asking(text, body)
}

#[test]
fn messages_go_on_in_their_order_and_what_was_under_way_is_not_known() {
    let clock = ManualClock::at(NOON);
    let (north, south) = two(&clock);
    let mail = |text: &str| Message::new(&MAIL, &text.to_owned()).unwrap().ordered_by("o");
    let push = |text: &str| Message::new(&PUSH, &text.to_owned()).unwrap().ordered_by("p");
    let mails = north.enqueue(&SHOP, &[mail("m1"), mail("m2")]).unwrap();
    let batch = [push("p1"), push("p2").keyed(&key("known")), push("p3")];
    let pushes = north.enqueue(&SHOP, &batch).unwrap();
    north.enqueue(&OTHER_SHOP, &[push("theirs")]).unwrap();
    // The first mail is under way when the tenant goes.
    let out = Arc::new(Mutex::new(Vec::new()));
    let (store, into) = (north.clone(), Arc::clone(&out));
    let workers = Workers::new(&north).deliver(&MAIL, move |text, _| {
        assert_eq!(text, "m1");
        store.hand_over(&SHOP, SOUTH, "Ada")?;
        *into.lock().unwrap() = exported(&store, &SHOP);
        Ok(Delivered::Done(None))
    });
    workers.tick().unwrap();
    let stream = out.lock().unwrap().clone();
    assert_eq!(north.message(mails[0]).unwrap(), Some(MessageState::Sending { attempts: 1 }));
    south.import(&stream[..], "Ada").unwrap();
    clean(&south);
    assert_eq!(south.stats().keys_blocked, 1);
    let all: Vec<_> = south.messages().map(Result::unwrap).collect();
    assert_eq!(all.len(), 5);
    let unknown: Vec<_> =
        all.iter().filter(|(_, state)| matches!(state, MessageState::Unknown { .. })).collect();
    assert_eq!(unknown.len(), 1, "{all:?}");
    let sent = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&sent);
    let again = Arc::clone(&sent);
    let workers = Workers::new(&south)
        .deliver(&PUSH, move |text: &String, delivery| {
            seen.lock().unwrap().push((text.clone(), *delivery.operation_id()));
            Ok(Delivered::Done(Some(Bytes::from_static(b"ok"))))
        })
        .deliver(&MAIL, move |text: &String, delivery| {
            again.lock().unwrap().push((text.clone(), *delivery.operation_id()));
            Ok(Delivered::Done(None))
        });
    for _ in 0..4 {
        workers.tick().unwrap();
    }
    let texts = |sent: &Mutex<Vec<(String, onecho::OperationId)>>| -> Vec<String> {
        sent.lock().unwrap().iter().map(|(text, _)| text.clone()).collect()
    };
    assert_eq!(texts(&sent), ["p1", "p2", "p3"], "the first mail blocks the second");
    south.settle(unknown[0].0, Settle::Delivered, Evidence::new("log", "it came"), "Ada").unwrap();
    for _ in 0..2 {
        workers.tick().unwrap();
    }
    assert_eq!(texts(&sent), ["p1", "p2", "p3", "m2"]);
    // Known under its key, it is not added again.
    let known = south.enqueue(&SHOP, &[push("p2").keyed(&key("known"))]).unwrap()[0];
    assert!(all.iter().any(|(id, _)| *id == known));
    assert_ne!(known, pushes[1]);
    // Home again, each has its own id.
    moved(&south, &north, NORTH);
    assert_eq!(north.enqueue(&SHOP, &[push("p2").keyed(&key("known"))]).unwrap()[0], pushes[1]);
    for id in mails.iter().chain(&pushes) {
        assert!(matches!(north.message(*id).unwrap(), Some(MessageState::Delivered { .. })), "{id}");
    }
    assert_eq!(north.messages().count(), 6);
    clean(&north);
}

#[test]
fn a_tenant_that_comes_home_brings_what_has_changed_meanwhile() {
    let clock = ManualClock::at(NOON);
    let (north, south) = two(&clock);
    let put = |store: &Store, text: &str, id: &'static str, value: &'static str| {
        done(store.execute(&request(text), |fx| {
            fx.put(&NOTES, id, &value.to_owned())?;
            Ok(Outcome::succeeded(201).body(value))
        }));
    };
    put(&north, "k1", "stays", "old");
    put(&north, "k2", "goes", "old");
    begun(&north, "open", Start::new()).unsure("no answer").unwrap();
    let first = moved(&north, &south, SOUTH);
    done(south.execute(&request("k3"), |fx| {
        fx.remove(&NOTES, "goes")?;
        fx.put(&NOTES, "stays", &"new".to_owned())?;
        Ok(Outcome::succeeded(201))
    }));
    let case = south.cases().next().unwrap().unwrap();
    south.resolve(&case, Resolution::NotApplied, Evidence::new("people", "no"), "Ada").unwrap();
    fails(north.import(&first[..], "Ada"), ErrorKind::Invalid); // It was for the other store.
    let second = moved(&south, &north, NORTH);
    assert_eq!(north.get(&SHOP, &NOTES, "stays").unwrap().unwrap().value, "new");
    assert!(north.get(&SHOP, &NOTES, "goes").unwrap().is_none());
    assert!(matches!(north.status(request("open").scope()).unwrap(), Status::Absent));
    for text in ["k1", "k2", "k3"] {
        replay(north.execute(&request(text), never));
        refused(south.execute(&request(text), never), NORTH);
    }
    // Said again it changes nothing; what is older is refused.
    put(&north, "k4", "stays", "newer");
    assert_eq!(north.import(&second[..], "Ada").unwrap().epoch, 2);
    assert_eq!(north.get(&SHOP, &NOTES, "stays").unwrap().unwrap().value, "newer");
    fails(south.import(&first[..], "Ada"), ErrorKind::Invalid);
    let third = moved(&north, &south, SOUTH);
    fails(north.import(&second[..], "Ada"), ErrorKind::Invalid);
    fails(south.import(&first[..], "Ada"), ErrorKind::Invalid);
    assert_eq!(south.import(&third[..], "Ada").unwrap().epoch, 3);
    assert_eq!(south.get(&SHOP, &NOTES, "stays").unwrap().unwrap().value, "newer");
    clean(&north);
    clean(&south);
}

#[test]
fn a_stream_that_is_cut_damaged_or_foreign_gives_no_authority() {
    let clock = ManualClock::at(NOON);
    let (north, south) = two(&clock);
    for number in 0..40 {
        done(north.execute(&request(&format!("k{number}")), counted));
    }
    fails(north.export(&SHOP, Vec::new()), ErrorKind::Invalid);
    begun(&north, "open", Start::new().step(&CHARGE)).unsure("no answer").unwrap();
    north.enqueue(&SHOP, &[Message::new(&MAIL, &"m".to_owned()).unwrap().ordered_by("o")]).unwrap();
    north.hand_over(&SHOP, SOUTH, "Ada").unwrap();
    let stream = exported(&north, &SHOP);
    fails(north.import(&stream[..], "Ada"), ErrorKind::Invalid);
    let west = SimDisk::seeded(7).open(options("west", &clock).owns_nothing()).unwrap();
    fails(west.import(&stream[..], "Ada"), ErrorKind::Invalid);
    let owner = SimDisk::seeded(8).open(options(SOUTH, &clock)).unwrap();
    fails(owner.import(&stream[..], "Ada"), ErrorKind::Invalid);
    for cut in (0..stream.len()).step_by(97).chain([stream.len() - 1]) {
        fails(south.import(&stream[..cut], "Ada"), ErrorKind::Corrupt);
        refused(south.execute(&request("k0"), never), "");
    }
    for at in (0..stream.len()).step_by(61).chain(stream.len() - 90..stream.len()) {
        let mut damaged = stream.clone();
        damaged[at] ^= 1 << (at % 8);
        let error = south.import(&damaged[..], "Ada").unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::UnsupportedFormat), "{at}: {error}");
        refused(south.execute(&request("k0"), never), "");
    }
    let longer = [&stream[..], b"x"].concat();
    fails(south.import(&longer[..], "Ada"), ErrorKind::Corrupt);
    let import = south.import(&stream[..], "Ada").unwrap();
    assert_eq!((import.epoch, import.moved.outcomes, import.moved.open), (1, 40, 1));
    replay(south.execute(&request("k0"), never));
    assert_eq!((applied(&south), south.stats().open), (40, 1));
    let refund = Request::new(&SHOP, &REFUND, &key("k0")).bytes("body", "x");
    done(south.execute(&refund, counted));
    clean(&south);
}
