//! What an error says: whether this attempt ran, whether an earlier one may have, what to do; and what
//! nothing ever shows.

use std::fmt::Debug;
use std::time::Duration;

use onecho::testing::{Fault, SimDisk};
use onecho::{
    Advice, Body, BoxError, Error, ErrorKind, Key, Kind, Options, Outcome, Policy, Ran, Reply, Request,
    ScopeMode, Store,
};

use crate::common::*;

fn says(error: &Error, kind: ErrorKind, ran: Ran, before: Ran, advice: &Advice) {
    assert_eq!((error.kind(), error.ran(), error.ran_before()), (kind, ran, before), "{error}");
    assert_eq!(error.advice(), *advice, "{error}");
    assert!(!error.to_string().is_empty());
}

/// Each kind of error that can be met today says what it should.
#[test]
fn each_error_says_what_to_do() {
    let soon = Advice::RetrySameKey { after: Duration::ZERO };
    let later = Advice::RetrySameKey { after: SECOND };
    let disk = SimDisk::seeded(1);
    let store = disk.open(Options::new()).unwrap();
    let run =
        |body: fn(&mut onecho::Effects<'_, '_>) -> Answer| store.execute(&request("k"), body).unwrap_err();

    says(&run(|_| Err("no".into())), ErrorKind::Aborted, Ran::No, Ran::No, &soon);
    says(
        &run(|_| Ok(Outcome::succeeded(200).body(vec![0; 70_000]))),
        ErrorKind::LimitExceeded,
        Ran::No,
        Ran::Maybe,
        &Advice::FixRequest,
    );
    let bare = Request::new(&SHOP, &PAY, &key("k"));
    says(
        &store.execute(&bare, never).unwrap_err(),
        ErrorKind::Invalid,
        Ran::No,
        Ran::Maybe,
        &Advice::FixRequest,
    );
    let reentrant = store.execute(&request("k"), |_| {
        Ok(Outcome::succeeded(200).json(&store.status(request("k").scope()).map(|_| 0)?)?)
    });
    says(&reentrant.unwrap_err(), ErrorKind::Reentrant, Ran::No, Ran::Maybe, &Advice::FixRequest);
    let mode = disk.crash().open(Options::new().scope_mode(ScopeMode::PerTenant));
    says(&mode.unwrap_err(), ErrorKind::ScopeMode, Ran::No, Ran::Maybe, &Advice::AskOperator);
    let missing = Store::open("/no/such/place/at.all", Options::new()).unwrap_err();
    says(&missing, ErrorKind::Missing, Ran::No, Ran::Maybe, &Advice::AskOperator);

    let disk = SimDisk::seeded(2);
    let store = disk.open(Options::new()).unwrap();
    says(&disk.open(Options::new()).unwrap_err(), ErrorKind::Locked, Ran::No, Ran::Maybe, &later);
    disk.fail(Fault::Sync, 0);
    let uncertain = store.execute(&request("k"), counted).unwrap_err();
    says(&uncertain, ErrorKind::CommitUncertain, Ran::Maybe, Ran::Maybe, &soon);
    says(
        &store.execute(&request("l"), never).unwrap_err(),
        ErrorKind::Unavailable,
        Ran::No,
        Ran::Maybe,
        &later,
    );
    store.close().unwrap();
    says(&store.execute(&request("k"), never).unwrap_err(), ErrorKind::Closed, Ran::No, Ran::Maybe, &later);
}

/// A second handle on one file is `Locked` at once, and the first goes on.
#[test]
fn a_file_has_one_owner() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("orders.onecho");
    fails(Store::open(&path, Options::new()), ErrorKind::Missing);
    let store = Store::open_or_create(&path, Options::new()).unwrap();
    done(store.execute(&request("k"), counted));
    let error = fails(Store::open(&path, Options::new()), ErrorKind::Locked);
    assert!(error.to_string().contains("orders.onecho"), "{error}");
    replay(store.execute(&request("k"), never));
    drop(store);
    replay(Store::open(&path, Options::new()).unwrap().execute(&request("k"), never));
}

const SECRET: &str = "s3cr3t-marker";

/// `Debug` of whatever a program may log shows no key, no body, no metadata and no value.
#[test]
fn debug_shows_no_secret() {
    let mut shown = Vec::new();
    let mut show = |what: &str, value: &dyn Debug| {
        shown.push(format!("{what}: {value:?}"));
        shown.push(format!("{what}: {value:#?}"));
    };
    let (store, clock, _) = at_noon(
        Options::new().owner("edge-7").default_policy(Policy::new().key_window(2 * 24 * 3600 * SECOND)),
    );
    let secret = Request::new(&SHOP, &PAY, &key(SECRET))
        .bytes("body", SECRET)
        .json("json", format!("{{\"{SECRET}\":1}}"))
        .fields("query", &[(SECRET, SECRET)]);
    let outcome = || Outcome::succeeded(200).body(SECRET).meta("authorization", SECRET);
    let reply = store.execute(&secret, |fx| {
        fx.create(&NOTES, "n", &SECRET.to_owned())?;
        fx.unique("email", SECRET, &NOTES.at("n"))?;
        assert!(!format!("{fx:?}").contains(SECRET));
        Ok(outcome())
    });
    show("outcome", &outcome());
    show("done", &reply);
    show("finished", &reply.unwrap().into_finished().unwrap());
    show("body", &Body::Present(SECRET.into()));
    show("replay", &store.execute(&secret, never));
    show("peek", &store.peek(&secret));
    show("request", &secret);
    show("scope", secret.scope());
    show("key", &key(SECRET));
    show("bad key", &Key::parse(&SECRET.repeat(30)));
    show("row", &store.get(&SHOP, &NOTES, "n"));
    show("rows", &store.scan(&SHOP, &NOTES, "").collect::<Vec<_>>());
    show("scan", &store.scan(&SHOP, &NOTES, SECRET));
    show("status", &store.status(secret.scope()));
    show("holder", &store.holder(&SHOP, "email", SECRET));
    show("store", &store);
    show("stats", &store.stats());
    show("verify", &store.verify());
    show("options", &Options::new());
    let other = Request::new(&SHOP, &PAY, &key(SECRET)).bytes(SECRET, "x");
    show("mismatch", &store.execute(&Request::new(&SHOP, &PAY, &key(SECRET)).bytes("body", "x"), never));
    let _ = other; // the names of parts are the program's, and a mismatch shows them
    show(
        "duplicate",
        &store.execute(&request("again"), |fx| {
            fx.unique("email", SECRET, &NOTES.at("m"))?;
            Ok(Outcome::succeeded(200))
        }),
    );
    clock.advance(2 * 24 * 3600 * SECOND);
    show("expired", &store.execute(&secret, never));
    show("tombstone", &store.status(secret.scope()));
    for text in shown {
        assert!(!text.contains(SECRET), "{text}");
    }
}

/// What cannot be read as the type that was asked for is not quoted in the error, whatever the codec.
#[test]
fn errors_quote_no_value() {
    const NUMBERS: Kind<i64> = Kind::json("note");
    const TEXTS: Kind<String> = Kind::bincode("text");
    const PAIRS: Kind<(String, u64, String)> = Kind::bincode("text");
    let store = store();
    let finished = done(store.execute(&request("k"), |fx| {
        fx.create(&NOTES, "n", &SECRET.to_owned())?;
        fx.create(&TEXTS, "n", &SECRET.to_owned())?;
        Ok(Outcome::succeeded(200).json(&SECRET)?)
    }));
    let errors = [
        finished.decode::<i64>().map(drop).unwrap_err(),
        store.get(&SHOP, &NUMBERS, "n").map(drop).unwrap_err(),
        store.get(&SHOP, &PAIRS, "n").map(drop).unwrap_err(),
        store
            .execute(&request("read"), |fx| Ok(Outcome::succeeded(fx.get(&NUMBERS, "n")?.map_or(0, |_| 1))))
            .map(drop)
            .unwrap_err(),
    ];
    for error in errors {
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(!format!("{error} {error:?} {error:#?}").contains(SECRET), "{error:?}");
    }
}

/// A closure's own error comes back whole, and its cause can be walked to.
#[test]
fn a_closures_error_keeps_its_cause() -> Result<(), BoxError> {
    let store = store();
    let fail = || store.execute(&request("k"), |_| Err("x".parse::<u8>().unwrap_err().into()));
    let error = fail().unwrap_err();
    assert!(std::error::Error::source(&error).unwrap().is::<std::num::ParseIntError>());
    assert!(error.downcast::<std::num::ParseIntError>().is_ok());
    let error = fail().unwrap_err().downcast::<std::fmt::Error>().unwrap_err();
    assert!(error.downcast::<std::num::ParseIntError>().is_ok(), "a wrong guess loses nothing");
    assert!(matches!(store.execute(&request("k"), counted)?, Reply::Done(_)));
    Ok(())
}
