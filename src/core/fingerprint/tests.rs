use super::*;
use proptest::prelude::*;
use std::collections::{BTreeMap, HashMap, HashSet};

const BODY: Compare = Compare::Parts(&["body"]);
const ALL: [Compare; 3] = [Compare::Exact, Compare::Canonical, BODY];

fn parts(build: impl FnOnce(&mut Parts)) -> Parts {
    let mut parts = Parts::new();
    build(&mut parts);
    parts
}

fn json(text: &str) -> Parts {
    parts(|it| it.json("body", text.as_bytes()))
}

fn differs(names: &[&str], formatting_only: bool) -> Match {
    Match::Differs { parts: names.iter().map(|&name| name.to_owned()).collect(), formatting_only }
}

fn judged(recorded: &Parts, asked: &Parts, compare: Compare) -> Match {
    Fingerprint::of(recorded, compare).unwrap().judge(asked)
}

/// The answers under `Exact`, `Canonical` and the chosen body, in both directions.
fn check(a: &Parts, b: &Parts, expected: [Match; 3]) {
    for (compare, expected) in ALL.into_iter().zip(expected) {
        assert_eq!(judged(a, b, compare), expected, "{compare:?}: {a:?} {b:?}");
        assert_eq!(judged(b, a, compare), expected, "{compare:?}: {b:?} {a:?}");
        assert_eq!(judged(a, a, compare), Match::Same);
    }
}

fn check_json(a: &str, b: &str, expected: [Match; 3]) {
    check(&json(a), &json(b), expected);
}

fn formatting() -> [Match; 3] {
    [differs(&["body"], true), Match::Same, Match::Same]
}

fn other() -> [Match; 3] {
    [differs(&["body"], false), differs(&["body"], false), differs(&["body"], false)]
}

fn same() -> [Match; 3] {
    [Match::Same, Match::Same, Match::Same]
}

fn written(fingerprint: &Fingerprint) -> Vec<u8> {
    bincode::serde::encode_to_vec(fingerprint, bincode::config::standard()).unwrap()
}

fn read(bytes: &[u8]) -> Fingerprint {
    let (read, used) = bincode::serde::decode_from_slice(bytes, bincode::config::standard()).unwrap();
    assert_eq!(used, bytes.len());
    read
}

#[test]
fn c026_member_order_and_white_space_are_formatting() {
    check_json(r#"{"a":1,"b":2}"#, r#"{"b":2, "a":1}"#, formatting());
    check_json("[1,2]", "[1, 2]", formatting());
    check_json("[1,2]", "[2,1]", other());
}

#[test]
fn c028_no_number_is_rounded() {
    let amount = |last: char| format!("{{\"amount\":0.100000000000000000000000000000{last}}}");
    check_json(&amount('1'), &amount('2'), other());
}

#[test]
fn c029_number_tokens_count_as_written_and_strings_are_strings() {
    let texts = [r#"{"n":1}"#, r#"{"n":1.0}"#, r#"{"n":1e0}"#, r#"{"n":"1"}"#];
    for (index, a) in texts.iter().enumerate() {
        for b in &texts[index + 1..] {
            check_json(a, b, other());
        }
    }
    check_json(r#"{"s":"0.001"}"#, r#"{"s":"0.0010"}"#, other());
}

#[test]
fn c030_not_a_number_is_neither_null_nor_a_panic() {
    check_json(r#"{"n":NaN}"#, r#"{"n":null}"#, other());
    check_json(r#"{"n":NaN}"#, r#"{"n": NaN}"#, other()); // not JSON: compared byte by byte
    for number in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        let mut it = Parts::new();
        let why = it.value("body", &BTreeMap::from([("n", vec![Some(number)])])).unwrap_err();
        assert!(why.contains("NaN") && why.contains("body"), "{why}");
        assert!(it.is_empty() && it.defect().is_none());
    }
}

#[test]
fn c033_bodies_that_differ_deep_inside_never_meet() {
    let count = if cfg!(debug_assertions) { 10_000 } else { 100_000 };
    let mut seen = HashSet::new();
    let first = Fingerprint::of(&json(r#"{"a":{"b":[{"c":{"d":-1}}]}}"#), Compare::Canonical).unwrap();
    for number in 0..count {
        let asked = json(&format!("{{\"a\":{{\"b\":[{{\"c\":{{\"d\":{number}}}}}]}}}}"));
        assert_ne!(first.judge(&asked), Match::Same);
        assert!(seen.insert(*Fingerprint::of(&asked, Compare::Canonical).unwrap().digest()));
    }
    assert_eq!(first.digest().len(), 32);
}

#[test]
fn c034_an_empty_body_is_a_body() {
    check_json(r#"{"a":1}"#, "", other());
    check_json("", "", same());
}

#[test]
fn fields_of_different_names_have_no_order_but_values_of_one_name_do() {
    let fields = |fields: &[(&str, &str)]| parts(|it| it.fields("body", fields));
    let a = fields(&[("a", "1"), ("b", "2"), ("a", "3")]);
    check(&a, &fields(&[("b", "2"), ("a", "1"), ("a", "3")]), formatting());
    check(&a, &fields(&[("a", "3"), ("b", "2"), ("a", "1")]), other());
    check(&a, &fields(&[("a", "1"), ("b", "2")]), other());
    // Lengths are part of the digest, and so is the kind.
    check(&fields(&[("ab", "c")]), &fields(&[("a", "bc")]), other());
    check(&fields(&[("a", ""), ("", "b")]), &fields(&[("a", "b")]), other());
    check(&fields(&[]), &parts(|it| it.bytes("body", b"")), other());
    let framed = [&n64(1)[..], &n64(1), b"a", &n64(1), b"b"].concat();
    check(&fields(&[("a", "b")]), &parts(|it| it.bytes("body", &framed)), other());
}

#[test]
fn a_value_is_compared_by_content_and_like_its_text() {
    let map = |names: &[&str]| names.iter().map(|&name| (name.to_owned(), 1)).collect::<HashMap<_, _>>();
    let value = |names: &[&str]| parts(|it| it.value("body", &map(names)).unwrap());
    let names: Vec<String> = (0..50).map(|number| format!("n{number}")).collect();
    let mut names: Vec<&str> = names.iter().map(String::as_str).collect();
    let a = value(&names);
    names.reverse();
    check(&a, &value(&names), same());
    check(&value(&["x", "y"]), &json(r#"{"x":1,"y":1}"#), same());
    check(&value(&["x", "y"]), &json(r#"{"y":1,"x":1}"#), formatting());

    let mut it = Parts::new();
    let mut deep = serde_json::json!(1);
    for _ in 0..=crate::core::json::DEPTH_MAX {
        deep = serde_json::json!([deep]);
    }
    assert!(it.value("body", &deep).unwrap_err().contains("deeper"));
    assert!(it.value("body", &HashMap::from([((1, 2), 3)])).is_err()); // no such key in JSON
    assert!(it.is_empty());
}

#[test]
fn a_deploy_that_names_the_kind_otherwise_still_knows_the_octets() {
    let text = r#"{"b":1, "a":2}"#;
    check(&json(text), &parts(|it| it.bytes("body", text.as_bytes())), same());
}

#[test]
fn the_names_say_what_differs() {
    let request = |body: &str, path: &str, query: &[(&str, &str)]| {
        parts(|it| {
            it.json("body", body.as_bytes());
            it.bytes("path", path.as_bytes());
            it.fields("query", query);
        })
    };
    let a = request("[1,2]", "/x", &[("b", "1"), ("a", "1")]);
    let b = request("[1, 2]", "/x", &[("a", "1"), ("b", "1")]);
    check(&a, &b, [differs(&["body", "query"], true), Match::Same, Match::Same]);
    let c = request("[1, 2]", "/y", &[("a", "1"), ("b", "1")]);
    check(&a, &c, [differs(&["body", "path", "query"], false), differs(&["path"], false), Match::Same]);
}

#[test]
fn the_order_of_naming_does_not_matter() {
    let a = parts(|it| {
        it.bytes("path", b"/");
        it.json("body", b"{}");
    });
    let b = parts(|it| {
        it.json("body", b"{}");
        it.bytes("path", b"/");
    });
    check(&a, &b, same());
    let swapped = parts(|it| {
        it.json("path", b"{}");
        it.bytes("body", b"/");
    });
    let both = differs(&["body", "path"], false);
    check(&a, &swapped, [both.clone(), both, differs(&["body"], false)]);
}

#[test]
fn a_part_more_or_less_is_a_difference_unless_parts_are_chosen() {
    let less = json("[1,2]");
    let more = parts(|it| {
        it.json("body", b"[1, 2]");
        it.bytes("actor", b"");
    });
    check(&less, &more, [differs(&["actor", "body"], false), differs(&["actor"], false), Match::Same]);
    let without = parts(|it| it.bytes("actor", b""));
    assert_eq!(judged(&less, &without, BODY), differs(&["body"], false));
    assert_eq!(judged(&less, &Parts::new(), Compare::Exact), differs(&["body"], false));
    assert_eq!(judged(&less, &Parts::new(), BODY), differs(&["body"], false));
}

#[test]
fn the_operation_is_always_compared() {
    let request = |operation: Option<&str>| {
        parts(|it| {
            it.json("body", b"1");
            if let Some(operation) = operation {
                it.operation(operation);
            }
        })
    };
    let operation = || differs(&[RESERVED], false);
    check(&request(Some("a")), &request(Some("b")), [operation(), operation(), operation()]);
    check(&request(Some("a")), &request(None), [operation(), operation(), operation()]);
    let alone = parts(|it| it.operation("a"));
    assert!(alone.is_empty());
    assert!(Fingerprint::of(&alone, Compare::Exact).is_err());
}

#[test]
fn the_records_own_policy_judges() {
    let (a, b) = (json("[1]"), json("[ 1]"));
    let stored = Fingerprint::of(&a, Compare::Exact).unwrap();
    assert!(Fingerprint::of(&b, Compare::Canonical).is_ok(), "what a new record would use is not asked");
    assert_eq!(stored.judge(&b), differs(&["body"], true));
}

#[test]
fn a_later_scheme_or_policy_decodes_and_is_not_guessed_about() {
    let known = Fingerprint::of(&json("[1, 2]"), Compare::Canonical).unwrap();
    assert_eq!(known.check(), Ok(()));
    for later in [Fingerprint { scheme: 2, ..known.clone() }, Fingerprint { policy: 4, ..known.clone() }] {
        let read = read(&written(&later));
        assert_eq!(read, later);
        assert_eq!(read.judge(&json("[1, 2]")), Match::Unknowable);
        assert_eq!(read.check(), Ok(()), "it is not damaged");
    }
    let twice = [known.parts.as_slice(), known.parts.as_slice()].concat();
    for parts in [Vec::new(), twice] {
        assert!(
            Fingerprint { parts: parts.into(), ..known.clone() }.check().unwrap_err().contains("damaged")
        );
    }
}

#[test]
fn a_stored_fingerprint_is_small_and_judges() {
    let bytes = written(&Fingerprint::of(&json("[1, 2]"), Compare::Canonical).unwrap());
    // scheme, policy, digest, exact, one part with its name and both prints
    assert_eq!(bytes.len(), 1 + 1 + 32 + (1 + 32) + 1 + (1 + 4) + 8 + (1 + 8));
    assert_eq!(read(&bytes).judge(&json("[2]")), differs(&["body"], false));
    assert_eq!(read(&bytes).judge(&json("[1,2]")), Match::Same);
}

#[test]
fn the_layout_is_the_documented_one() {
    let sha = |bytes: &[u8]| -> [u8; 32] { Sha256::digest(bytes).into() };
    let body = sha(b"\x01[1,2]");
    let query = sha(&[&[2][..], &n64(1), &n64(1), b"q", &n64(2), b"vv"].concat());
    let request =
        [b"onecho request 1", &n64(2)[..], &n64(4), b"body", &body, &n64(5), b"query", &query].concat();
    let asked = parts(|it| {
        it.fields("query", &[("q", "vv")]);
        it.json("body", b"[1, 2]");
    });
    let made = Fingerprint::of(&asked, Compare::Canonical).unwrap();
    assert_eq!(*made.digest(), sha(&request));
    let pinned = 0x6238_4fae_35e9_dca2_d84d_4cbb_c006_186a_u128;
    assert_eq!(
        u128::from_be_bytes(made.digest()[..16].try_into().unwrap()),
        pinned,
        "stored digests must never change"
    );
}

#[test]
fn defects_are_kept_and_refused() {
    let long = "x".repeat(parts::PART_NAME_BYTES_MAX + 1);
    let cases: [(&[&str], &str); 5] = [
        (&["a", "a"], "twice"),
        (&[""], "no name"),
        (&[&long], "65 bytes"),
        (&["a\nb"], "control"),
        (&[RESERVED], "reserved"),
    ];
    for (names, expected) in cases {
        let it = parts(|it| names.iter().for_each(|name| it.bytes(name, b"1")));
        assert!(it.defect().unwrap().contains(expected), "{it:?}");
        let error = Fingerprint::of(&it, Compare::Exact).unwrap_err();
        assert_eq!(error.to_string(), it.defect().unwrap());
    }
    // The first defect stays, nothing is added after it, and it is never the same as a record.
    let good = parts(|it| it.bytes("a", b"1"));
    let bad = parts(|it| ["a", "a", ""].iter().for_each(|name| it.bytes(name, b"1")));
    assert!(bad.defect().unwrap().contains("twice"));
    assert_eq!(judged(&good, &bad, Compare::Exact), differs(&["a"], false));
    assert_eq!(judged(&good, &bad, Compare::Canonical), differs(&["a"], false));
}

#[test]
fn the_number_of_parts_is_bounded_and_the_operation_is_not_counted() {
    let many = |count: usize| {
        parts(|it| {
            it.operation("op");
            (0..count).for_each(|number| it.bytes(&format!("p{number}"), b""));
        })
    };
    assert!(Fingerprint::of(&many(PARTS_MAX), Compare::Exact).is_ok());
    assert!(many(PARTS_MAX + 1).defect().unwrap().contains("32"));
    assert!(parts(|it| it.bytes(&"é".repeat(32), b"")).defect().is_none());
}

#[test]
fn parts_named_in_any_order_are_sorted_and_a_clone_keeps_its_own() {
    for count in 0..=12 {
        for step in [1, 5, 7, 11] {
            let mut it = Parts::new();
            let mut before = Vec::new();
            for number in 0..count {
                before.push(it.clone());
                it.bytes(&format!("p{:02}", number * step % 13), b"");
            }
            before.push(it);
            for (count, it) in before.iter().enumerate() {
                let mut expected: Vec<String> =
                    (0..count).map(|number| format!("p{:02}", number * step % 13)).collect();
                expected.sort();
                assert!(it.all().map(|part| part.name.as_str()).eq(&expected), "{it:?}");
            }
        }
    }
}

#[test]
fn a_choice_must_fit_the_request() {
    let body = json("1");
    let error = |compare| Fingerprint::of(&body, compare).unwrap_err().to_string();
    assert!(error(Compare::Parts(&[])).contains("choose one"));
    assert!(error(Compare::Parts(&["body", "path"])).contains("\"path\""));
    assert!(error(Compare::Parts(&[RESERVED])).contains("always compared"));
    assert_eq!(Fingerprint::of(&body, Compare::Parts(&["body", "body"])), Fingerprint::of(&body, BODY));
    assert!(Fingerprint::of(&Parts::new(), Compare::Exact).is_err());
}

#[test]
fn debug_shows_names_and_no_digest() {
    let secret = json("\"hunter2\"");
    let shown = format!("{secret:?} {:?}", Fingerprint::of(&secret, Compare::Exact).unwrap());
    assert!(shown.contains("body") && !shown.contains("hunter2"), "{shown}");
    assert!(shown.len() < 160, "{shown}");
}

/// One part: its name, what it holds, and which method adds it.
type Sample = (String, String, u8);

fn requests() -> impl Strategy<Value = Vec<Sample>> {
    let content = prop_oneof![
        any::<String>(),
        prop::sample::select(vec!["[1,2]", "[1, 2]", "{\"a\":1,\"b\":2}", "{\"b\":2,\"a\":1}", ""])
            .prop_map(str::to_owned)
    ];
    prop::collection::btree_map("[a-c]", (content, 0..3_u8), 1..4)
        .prop_map(|map| map.into_iter().map(|(name, (content, kind))| (name, content, kind)).collect())
}

fn built(samples: &[Sample]) -> Parts {
    parts(|it| {
        for (name, content, kind) in samples {
            match kind {
                0 => it.bytes(name, content.as_bytes()),
                1 => it.json(name, content.as_bytes()),
                _ => it.fields(name, &[(content, "v"), ("k", content)]),
            }
        }
    })
}

proptest! {
    #[test]
    fn judging_is_exact(a in requests(), b in requests()) {
        let (left, right) = (built(&a), built(&b));
        // Kinds 0 and 1 are octets both.
        let octets = |of: &[Sample]| -> Vec<_> {
            of.iter().map(|(name, content, kind)| (name.clone(), content.clone(), *kind == 2)).collect()
        };
        let exact = judged(&left, &right, Compare::Exact);
        prop_assert_eq!(exact == Match::Same, octets(&a) == octets(&b));
        let canonical = judged(&left, &right, Compare::Canonical);
        if let Match::Differs { parts, formatting_only } = exact {
            prop_assert_eq!(formatting_only, canonical == Match::Same);
            prop_assert!(!parts.is_empty());
        } else {
            prop_assert_eq!(&canonical, &Match::Same);
        }
        if let Match::Differs { parts, formatting_only } = canonical {
            prop_assert!(!formatting_only && !parts.is_empty());
            for (name, ..) in &a {
                let alike = a.iter().find(|it| it.0 == *name) == b.iter().find(|it| it.0 == *name);
                prop_assert!(!(alike && parts.contains(name)));
            }
        }
    }

    #[test]
    fn a_record_survives_its_encoding(a in requests(), b in requests()) {
        for compare in [Compare::Exact, Compare::Canonical] {
            let made = Fingerprint::of(&built(&a), compare).unwrap();
            let read = read(&written(&made));
            prop_assert_eq!(read.check(), Ok(()));
            prop_assert_eq!(read.judge(&built(&b)), made.judge(&built(&b)));
            prop_assert_eq!(read, made);
        }
    }
}
