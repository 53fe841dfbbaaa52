//! Whether a retry asks the same: by its named parts, as the record's own policy compares them.

use onecho::testing::SimDisk;
use onecho::{Compare, ErrorKind, Operation, Options, Outcome, Policy, Request};

use crate::common::*;

fn bare(text: &str) -> Request {
    Request::new(&SHOP, &PAY, &key(text))
}

fn json(text: &str, body: &str) -> Request {
    bare(text).json("body", body)
}

fn comparing(compare: Compare) -> Options {
    Options::new().operation(&PAY, Policy::new().compare(compare))
}

/// C026: JSON is compared by content: member order, white space and escapes are formatting.
#[test]
fn formatting_of_json_makes_no_difference() {
    let store = store();
    done(store.execute(&json("k", r#"{"a":1,"b":["x",null]}"#), counted));
    for same in [
        r#"{"b":["x",null], "a":1}"#,
        " {\n\"b\" : [ \"\\u0078\" , null ] , \"a\":1 } ",
        r#"{"a":1,"b":["x",null]}"#,
    ] {
        replay(store.execute(&json("k", same), never));
    }
    for other in [
        r#"{"a":1,"b":[null,"x"]}"#,
        r#"{"a":1}"#,
        r#"{"a":1,"b":["x",null],"c":0}"#,
        r#"{"a":1,"b":["X",null]}"#,
    ] {
        assert_eq!(
            mismatch(store.execute(&json("k", other), never)),
            (vec!["body".to_owned()], false, false)
        );
    }
}

/// C027, C034: a mismatch changes nothing of what is stored: the true request is replayed before and after,
/// and an empty body is another body.
#[test]
fn a_mismatch_poisons_nothing() {
    let store = store();
    let first = done(store.execute(&json("k", "{}"), counted));
    let before = store.stats();
    for _ in 0..3 {
        for other in ["", "[]", "{} {}", "null", "{\"a\":{}}"] {
            mismatch(store.execute(&json("k", other), never));
        }
        mismatch(store.execute(&bare("k").bytes("body", []), never));
        assert_eq!(replay(store.execute(&json("k", "{}"), never)), first);
    }
    assert_eq!((store.stats().commits, store.stats().mismatches), (before.commits, 18));
}

/// C028, C029, C030: numbers are compared as they are written, however long; strings are never numbers; what
/// is not JSON is compared byte for byte. The verdict is the same after the store was opened again.
#[test]
fn numbers_are_never_rounded() {
    let cases = [
        (
            r#"{"amount":0.1000000000000000000000000000001}"#,
            r#"{"amount":0.1000000000000000000000000000002}"#,
        ),
        (r#"{"n":1}"#, r#"{"n":1.0}"#),
        (r#"{"n":1}"#, r#"{"n":1e0}"#),
        (r#"{"n":9007199254740993}"#, r#"{"n":9007199254740992}"#),
        (r#"{"n":1}"#, r#"{"n":"1"}"#),
        (r#"{"s":"0.001"}"#, r#"{"s":"0.0010"}"#),
        (r#"{"n":NaN}"#, r#"{"n":null}"#),
        (r#"{"n":NaN}"#, r#"{ "n":NaN}"#),
        (r#"{"n":0}"#, r#"{"n":-0}"#),
        (r#"{"a":1,"a":2}"#, r#"{"a":2}"#),
        (r#"{"n":1e400}"#, r#"{"n":1e401}"#),
    ];
    let disk = SimDisk::seeded(1);
    let store = disk.open(Options::new()).unwrap();
    for (n, (first, other)) in cases.iter().enumerate() {
        done(store.execute(&json(&n.to_string(), first), counted));
        assert_eq!(mismatch(store.execute(&json(&n.to_string(), other), never)).0, ["body"]);
    }
    store.close().unwrap();
    let store = disk.open(Options::new()).unwrap();
    for (n, (first, other)) in cases.iter().enumerate() {
        replay(store.execute(&json(&n.to_string(), first), never));
        assert_eq!(mismatch(store.execute(&json(&n.to_string(), other), never)).0, ["body"]);
    }
}

/// C030: a value that holds a NaN or an infinity cannot be compared, so it is an error where the request is
/// made.
#[test]
fn a_value_without_a_text_is_invalid() {
    for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        fails(bare("k").value("body", &vec![Some(bad)]), ErrorKind::Invalid);
    }
    let store = store();
    done(store.execute(&bare("k").value("body", &(1.5, "x")).unwrap(), counted));
    replay(store.execute(&bare("k").value("body", &(1.5, "x")).unwrap(), never));
    replay(store.execute(&json("k", "[1.5, \"x\"]"), never));
    mismatch(store.execute(&bare("k").value("body", &(1.25, "x")).unwrap(), never));
}

/// C031: each named part counts, and the mismatch names the ones that differ, are missing or came in
/// addition, and nothing of what is in them.
#[test]
fn a_mismatch_names_the_parts() {
    let store = store();
    let asked = |kind: &str, path: &str, body: &str| {
        bare("k").bytes("content-type", kind).bytes("path", path).json("body", body)
    };
    done(store.execute(&asked("application/json", "/a", "{}"), counted));
    replay(store.execute(
        &bare("k").json("body", " {}").bytes("path", "/a").bytes("content-type", "application/json"),
        never,
    ));
    let parts = |request: &Request| mismatch(store.execute(request, never)).0;
    assert_eq!(parts(&asked("text/plain", "/a", "{}")), ["content-type"]);
    assert_eq!(parts(&asked("application/json", "/b", "[]")), ["body", "path"]);
    assert_eq!(parts(&bare("k").bytes("path", "/a").json("body", "{}")), ["content-type"]);
    assert_eq!(parts(&asked("application/json", "/a", "{}").bytes("more", "")), ["more"]);
}

/// A form or query is compared by its fields: the order of different names is formatting, that of one name's
/// values is not.
#[test]
fn fields_are_compared_by_name() {
    let store = store();
    let asked = |fields: &[(&str, &str)]| bare("k").fields("query", fields);
    done(store.execute(&asked(&[("a", "1"), ("b", "2"), ("a", "3")]), counted));
    replay(store.execute(&asked(&[("b", "2"), ("a", "1"), ("a", "3")]), never));
    mismatch(store.execute(&asked(&[("a", "3"), ("b", "2"), ("a", "1")]), never));
    mismatch(store.execute(&asked(&[("a", "1"), ("b", "2")]), never));
}

/// Under `Exact` spelling counts, and a mismatch that is nothing but spelling says so.
#[test]
fn an_exact_policy_tells_formatting_apart() {
    let store = opened(comparing(Compare::Exact));
    done(store.execute(&json("k", r#"{"a":1}"#), counted));
    replay(store.execute(&json("k", r#"{"a":1}"#), never));
    assert_eq!(
        mismatch(store.execute(&json("k", r#"{ "a": 1 }"#), never)),
        (vec!["body".to_owned()], true, false)
    );
    assert_eq!(
        mismatch(store.execute(&json("k", r#"{ "a": 2 }"#), never)),
        (vec!["body".to_owned()], false, false)
    );
    assert_eq!((store.stats().mismatches, store.stats().mismatches_formatting_only), (2, 1));
}

/// Under `Parts` only the named parts count, and a request must have them.
#[test]
fn a_policy_may_choose_the_parts() {
    let store = opened(comparing(Compare::Parts(&["path", "body"])));
    let asked =
        |trace: &str, path: &str| bare("k").bytes("trace", trace).bytes("path", path).json("body", "{}");
    done(store.execute(&asked("t-1", "/a"), counted));
    replay(store.execute(&asked("t-2", "/a"), never));
    replay(store.execute(&bare("k").bytes("path", "/a").json("body", "{ }"), never));
    assert_eq!(mismatch(store.execute(&asked("t-1", "/b"), never)).0, ["path"]);
    fails(store.execute(&bare("new").bytes("path", "/a"), never), ErrorKind::Invalid);
}

/// A deploy changes nothing for what is stored: a retry is judged by the record's own policy, new commands by
/// the new one.
#[test]
fn a_record_is_judged_by_its_own_policy() {
    let disk = SimDisk::seeded(1);
    let asked = |text: &str, trace: &str, body: &str| bare(text).bytes("trace", trace).json("body", body);
    let policies =
        [("exact", Compare::Exact), ("canonical", Compare::Canonical), ("parts", Compare::Parts(&["body"]))];
    let judge = |store: &onecho::Store, text: &str| {
        let same = store.execute(&asked(text, "t", r#"{"a":1}"#), never).unwrap().is_replay();
        let spelled = store.execute(&asked(text, "t", r#"{ "a": 1 }"#), never).unwrap().is_replay();
        let traced = store.execute(&asked(text, "u", r#"{"a":1}"#), never).unwrap().is_replay();
        (same, spelled, traced)
    };
    for (text, compare) in policies {
        let store = disk.open(comparing(compare)).unwrap();
        done(store.execute(&asked(text, "t", r#"{"a":1}"#), counted));
        store.close().unwrap();
    }
    for (_, compare) in policies {
        let store = disk.open(comparing(compare)).unwrap();
        assert_eq!(judge(&store, "exact"), (true, false, false));
        assert_eq!(judge(&store, "canonical"), (true, true, false));
        assert_eq!(judge(&store, "parts"), (true, true, true));
        store.close().unwrap();
    }
}

/// C033: 100,000 bodies that differ deep inside: not one is taken for the recorded one.
#[test]
fn nested_differences_never_collide() {
    let store = store();
    let body = |n: u32| {
        format!(r#"{{"a":[{{"b":{{"c":[[{{"d":{{"e":[0,{{"f":{n}}}]}}}}]]}}}}],"z":"{}"}}"#, "same".repeat(8))
    };
    done(store.execute(&json("k", &body(0)), counted));
    for n in 1..=100_000 {
        assert!(!store.execute(&json("k", &body(n)), never).unwrap().is_replay(), "{n}");
    }
    replay(store.execute(&json("k", &body(0)), never));
    assert_eq!(store.stats().mismatches, 100_000);
}

/// A request that names nothing to compare, one part twice, or a part under a bad name is `Invalid` when it
/// is executed; nothing runs. A command that asks nothing says so.
#[test]
fn a_request_must_say_what_it_asks() {
    let store = store();
    let bad = [
        bare("k"),
        bare("k").bytes("body", "x").json("body", "x"),
        bare("k").bytes("", "x"),
        bare("k").bytes("@operation", "x"),
        bare("k").bytes("line\nbreak", "x"),
        bare("k").bytes(&"p".repeat(65), "x"),
        (0..33).fold(bare("k"), |request, n| request.bytes(&n.to_string(), "x")),
    ];
    for request in &bad {
        let error = fails(store.execute(request, never), ErrorKind::Invalid);
        assert_eq!(error.advice(), onecho::Advice::FixRequest);
        assert_eq!(store.peek(request), None);
    }
    let most = (0..32).fold(bare("most"), |request, n| request.bytes(&format!("{n:064}"), "x"));
    done(store.execute(&most, counted));
    replay(store.execute(&most, never));
    done(store.execute(&bare("nothing").bytes("body", []), counted));
    replay(store.execute(&bare("nothing").bytes("body", []), never));
}

/// The wait budget is no part of what is asked.
#[test]
fn a_budget_makes_no_other_request() {
    const QUICK: Operation = Operation::new("quick");
    let store = opened(Options::new().operation(&QUICK, Policy::new().wait(PATIENT)));
    done(store.execute(&asking("k", "x").wait(SECOND), |_| Ok(Outcome::succeeded(200))));
    replay(store.execute(&asking("k", "x").wait(PATIENT), never));
    replay(store.execute(&asking("k", "x"), never));
}
