#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test starts threads, takes time and prints what it did"
)]

use super::*;
use proptest::prelude::*;
use serde_json::Value;

fn check(text: &str, expected: Option<&str>) {
    let got = canonical(text.as_bytes());
    assert_eq!(got.as_deref(), expected.map(str::as_bytes), "{text}");
    if let Some(got) = got {
        assert_eq!(matches!(got, Cow::Borrowed(_)), expected == Some(text), "borrowed if canonical: {text}");
    }
}

fn refused(texts: &[&str]) {
    for text in texts {
        check(text, None);
    }
}

#[test]
fn white_space_and_member_order_are_formatting() {
    // C026
    check(r#"{"b":2, "a":1}"#, Some(r#"{"a":1,"b":2}"#));
    check(r#"{"a":1,"b":2}"#, Some(r#"{"a":1,"b":2}"#));
    check(" [ 1 ,\t{ } ,\r\n[ ] , null ] ", Some("[1,{},[],null]"));
    check(r#"{"z":{"y":1,"x":[{"b":0,"a":0}]},"":{}}"#, Some(r#"{"":{},"z":{"x":[{"a":0,"b":0}],"y":1}}"#));
    check(r#"{"aa":1,"a":2,"ab":3}"#, Some(r#"{"a":2,"aa":1,"ab":3}"#));
    check("true", Some("true"));
    check("\n\"x\"\n", Some("\"x\""));
}

#[test]
fn numbers_are_kept_as_written() {
    // C028, C029
    for number in ["0", "-0", "1", "1.0", "1e0", "1E0", "1e+0", "0.1000000000000000000000000000001", "1e999"]
    {
        check(number, Some(number));
        check(&format!("[ {number} ]"), Some(&format!("[{number}]")));
    }
    let digits = "9".repeat(100_000);
    check(&digits, Some(&digits));
}

#[test]
fn escapes_are_spelled_one_way() {
    check(r#""\u0041\/\u00e9\u20AC""#, Some("\"A/é€\""));
    check(r#""\u0000\u001F\u0008\u0009\u000a\u000C\u000d""#, Some(r#""\u0000\u001f\b\t\n\f\r""#));
    check(r#""\u0022\u005c\u002f\u007f""#, Some("\"\\\"\\\\/\u{7f}\""));
    check(r#""\uD83D\ude02""#, Some("\"😂\""));
    // RFC 8785, section 3.2.2, without its numbers, which we keep.
    check(
        r#"{ "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/", "literals": [null, true, false] }"#,
        Some(r#"{"literals":[null,true,false],"string":"€$\u000f\nA'B\"\\\\\"/"}"#),
    );
}

#[test]
fn members_are_ordered_by_utf16_code_units() {
    // RFC 8785, section 3.2.3
    check(
        r#"{"\u20ac":"Euro Sign","\r":"Carriage Return","\ufb33":"Hebrew Letter Dalet With Dagesh","1":"One",
            "\ud83d\ude00":"Emoji: Grinning Face","\u0080":"Control",
            "\u00f6":"Latin Small Letter O With Diaeresis"}"#,
        Some(concat!(
            "{\"\\r\":\"Carriage Return\",\"1\":\"One\",\"\u{80}\":\"Control\",",
            "\"ö\":\"Latin Small Letter O With Diaeresis\",\"€\":\"Euro Sign\",",
            "\"😀\":\"Emoji: Grinning Face\",\"\u{fb33}\":\"Hebrew Letter Dalet With Dagesh\"}"
        )),
    );
    // An escape counts as what it means: \n (0A) < " (22) < A (41) < \ (5C) < a (61).
    check(r#"{"a":5,"\\":4,"A":3,"\"":2,"\n":1}"#, Some(r#"{"\n":1,"\"":2,"A":3,"\\":4,"a":5}"#));
    check(r#"{"x\u001f":2,"x\u0001":1,"x":0}"#, Some(r#"{"x":0,"x\u0001":1,"x\u001f":2}"#));
}

#[test]
fn what_is_not_strict_json_has_no_canonical_text() {
    refused(&["", " ", "NaN", "Infinity", "-Infinity", r#"{"n":NaN}"#, "nul", "nulll", "True", "undefined"]);
    refused(&["01", "-", "-01", "+1", ".5", "1.", "1.e1", "1e", "1e+", "0x1", "1_0", "1 2", "--1", "1,"]);
    refused(&["[", "]", "[1", "[1,]", "[,1]", "[1 2]", "[1}", "{", "}", "{]", "[[]", "[]]", "[]x", "{}{}"]);
    refused(&[r#"{"a"}"#, r#"{"a":}"#, r#"{"a":1,}"#, r#"{,"a":1}"#, "{a:1}", "{1:1}", r#"{"a" 1}"#]);
    refused(&[r#"{"a":1 "b":2}"#, r#"{"a":1]"#, "{'a':1}", "// x\n1", "/**/1", r#"{"a":1:2}"#, r#"["a":1]"#]);
    refused(&["\"", "\"a", "\"\\\"", "\"\n\"", "\"\t\"", "\"\0\"", r#""\x41""#, r#""\u12""#, r#""\u00G0""#]);
    refused(&["\u{feff}{}", "{}\u{feff}", "\u{a0}1", "\u{c}1", "1\0"]);
}

#[test]
fn surrogates_come_in_pairs() {
    refused(&[r#""\ud800""#, r#""\udc00""#, r#""\ud800x""#, r#""\ud800\n""#, r#""\ud800\u0041""#]);
    refused(&[r#""\ud800\ud800""#, r#""\udc00\ud800""#, r#"{"\udfff":1}"#, r#""\ud83d\u+e02""#]);
    check(r#""\ud800\udc00\udbff\udfff""#, Some("\"\u{10000}\u{10ffff}\""));
}

#[test]
fn a_member_that_occurs_twice_is_refused_however_it_is_spelled() {
    refused(&[r#"{"a":1,"a":1}"#, r#"{"a":1,"b":2,"a":3}"#, r#"{"a":1,"\u0061":2}"#, r#"{"/":1,"\/":2}"#]);
    refused(&[r#"[{"x":{"":1,"":2}}]"#, r#"{"é":1,"\u00E9":2}"#, r#"{"😀":1,"\ud83d\ude00":2}"#]);
    check(r#"{"a":{"a":{"a":1}},"A":1}"#, Some(r#"{"A":1,"a":{"a":{"a":1}}}"#));
}

#[test]
fn bytes_that_are_not_utf8_are_refused() {
    let texts: [&[u8]; 5] =
        [b"\"\xff\"", b"\"\xc0\xaf\"", b"\"\xed\xa0\x80\"", b"\xef\xbb\xbf{}", b"\"\xe2\x82\""];
    for text in texts {
        assert_eq!(canonical(text), None, "{text:?}");
    }
}

#[test]
fn nesting_has_a_limit_and_a_bomb_needs_no_stack() {
    let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    check(&nested(DEPTH_MAX), Some(&nested(DEPTH_MAX)));
    check(&nested(DEPTH_MAX + 1), None);
    let objects = |depth: usize| format!("{}1{}", r#"{"a":"#.repeat(depth), "}".repeat(depth));
    check(&objects(DEPTH_MAX), Some(&objects(DEPTH_MAX)));
    check(&objects(DEPTH_MAX + 1), None);
    let bombs = ["[".repeat(1_000_000), r#"{"a":"#.repeat(1_000_000), "[{\"a\":".repeat(1_000_000)];
    // The smallest stack that the platform gives: the parser does not recurse.
    let small = std::thread::Builder::new().stack_size(16 * 1024);
    let all_refused = move || bombs.iter().all(|bomb| canonical(bomb.as_bytes()).is_none());
    assert!(small.spawn(all_refused).unwrap().join().unwrap());
}

/// A document, as a tree that can be spelled in many ways.
#[derive(Debug, Clone, PartialEq)]
enum Tree {
    Word(&'static str),
    Number(i64),
    Text(String),
    List(Vec<Tree>),
    Object(Vec<(String, Tree)>),
}

fn trees() -> impl Strategy<Value = Tree> {
    let leaf = prop_oneof![
        prop::sample::select(vec!["true", "false", "null"]).prop_map(Tree::Word),
        any::<i64>().prop_map(Tree::Number),
        any::<String>().prop_map(Tree::Text),
    ];
    let name = prop_oneof![any::<String>(), "[ab\\\\\"\n\u{e000}\u{ffff}\u{10000}]{0,3}"];
    leaf.prop_recursive(5, 60, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Tree::List),
            prop::collection::btree_map(name.clone(), inner, 0..6)
                .prop_map(|members| Tree::Object(members.into_iter().collect())),
        ]
    })
}

/// A small generator, so that one number decides a spelling.
struct Dice(u64);

impl Dice {
    fn below(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }

    fn space(&mut self, out: &mut String) {
        for _ in 0..self.below(3) {
            out.push([' ', '\t', '\n', '\r'][usize::try_from(self.below(4)).unwrap()]);
        }
    }
}

fn spell_text(text: &str, dice: &mut Dice, out: &mut String) {
    use std::fmt::Write;
    out.push('"');
    for char in text.chars() {
        match (char, dice.below(3)) {
            ('/', 1) => out.push_str("\\/"),
            ('\n', 1) => out.push_str("\\n"),
            ('"' | '\\', 1 | 2) => out.extend(['\\', char]),
            (_, 0) | ('\0'..' ' | '"' | '\\', _) => {
                for unit in char.encode_utf16(&mut [0; 2]) {
                    let upper = dice.below(2) == 0;
                    if upper { write!(out, "\\u{unit:04X}") } else { write!(out, "\\u{unit:04x}") }.unwrap();
                }
            }
            _ => out.push(char),
        }
    }
    out.push('"');
}

fn spell(tree: &Tree, dice: &mut Dice, out: &mut String) {
    dice.space(out);
    match tree {
        Tree::Word(word) => out.push_str(word),
        Tree::Number(number) => out.push_str(&number.to_string()),
        Tree::Text(text) => spell_text(text, dice, out),
        Tree::List(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                out.push_str(if index == 0 { "" } else { "," });
                spell(item, dice, out);
            }
            dice.space(out);
            out.push(']');
        }
        Tree::Object(members) => {
            let mut shuffled: Vec<_> = members.iter().map(|member| (dice.below(1 << 20), member)).collect();
            shuffled.sort_by_key(|&(roll, _)| roll);
            out.push('{');
            for (index, (_, (name, value))) in shuffled.into_iter().enumerate() {
                out.push_str(if index == 0 { "" } else { "," });
                dice.space(out);
                spell_text(name, dice, out);
                dice.space(out);
                out.push(':');
                spell(value, dice, out);
            }
            dice.space(out);
            out.push('}');
        }
    }
    dice.space(out);
}

fn spelled(tree: &Tree, seed: u64) -> String {
    let mut out = String::new();
    spell(tree, &mut Dice(seed), &mut out);
    out
}

/// Whether each object is strictly ascending by the UTF-16 code units of its names: the plain definition.
fn in_utf16_order(text: &[u8]) -> bool {
    /// Keeps the members in the order of the text, whatever map the rest of the build uses.
    struct Ordered(bool);
    impl<'de> serde::Deserialize<'de> for Ordered {
        fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            struct Visitor;
            impl<'de> serde::de::Visitor<'de> for Visitor {
                type Value = Ordered;
                fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                    f.write_str("JSON")
                }
                fn visit_bool<E>(self, _: bool) -> Result<Ordered, E> {
                    Ok(Ordered(true))
                }
                fn visit_i64<E>(self, _: i64) -> Result<Ordered, E> {
                    Ok(Ordered(true))
                }
                fn visit_u64<E>(self, _: u64) -> Result<Ordered, E> {
                    Ok(Ordered(true))
                }
                fn visit_str<E>(self, _: &str) -> Result<Ordered, E> {
                    Ok(Ordered(true))
                }
                fn visit_unit<E>(self) -> Result<Ordered, E> {
                    Ok(Ordered(true))
                }
                fn visit_seq<A: serde::de::SeqAccess<'de>>(self, mut seq: A) -> Result<Ordered, A::Error> {
                    let mut ordered = true;
                    while let Some(item) = seq.next_element::<Ordered>()? {
                        ordered &= item.0;
                    }
                    Ok(Ordered(ordered))
                }
                fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<Ordered, A::Error> {
                    let mut ordered = true;
                    let mut last: Option<Vec<u16>> = None;
                    while let Some((name, value)) = map.next_entry::<String, Ordered>()? {
                        let units: Vec<u16> = name.encode_utf16().collect();
                        ordered &= value.0 && last.is_none_or(|last| last < units);
                        last = Some(units);
                    }
                    Ok(Ordered(ordered))
                }
            }
            deserializer.deserialize_any(Visitor)
        }
    }
    serde_json::from_slice::<Ordered>(text).unwrap().0
}

proptest! {
    #[test]
    fn any_bytes_are_taken(text: Vec<u8>) {
        let _ = canonical(&text);
    }

    #[test]
    fn what_looks_like_json_is_strict_or_refused(text in "[\\[\\]{}:,\"\\\\0-9eE+.a-fu \ntrlsn-]{0,24}") {
        if let Some(canon) = canonical(text.as_bytes()) {
            prop_assert!(canon.len() <= text.len());
            prop_assert_eq!(canonical(&canon), Some(Cow::Borrowed(&*canon)));
            // `serde_json` refuses numbers beyond a double, which are strict JSON all the same.
            match serde_json::from_str::<Value>(&text) {
                Ok(value) => prop_assert_eq!(serde_json::from_slice::<Value>(&canon).unwrap(), value),
                Err(error) => prop_assert!(error.to_string().contains("out of range"), "{}: {}", text, error),
            }
        } else if !text.contains('{') {
            // Without members nothing but the grammar can be at fault.
            prop_assert!(serde_json::from_str::<Value>(&text).is_err(), "{}", text);
        }
    }

    #[test]
    fn each_spelling_has_the_same_canonical_text(tree in trees(), seeds: [u64; 2]) {
        let texts = seeds.map(|seed| spelled(&tree, seed));
        let canon = canonical(texts[0].as_bytes()).unwrap();
        prop_assert_eq!(&canon, &canonical(texts[1].as_bytes()).unwrap());
        prop_assert_eq!(canonical(&canon), Some(Cow::Borrowed(&*canon)));
        prop_assert!(canon.len() <= texts[0].len());
        prop_assert!(in_utf16_order(&canon));
        let value: Value = serde_json::from_str(&texts[0]).unwrap();
        prop_assert_eq!(serde_json::from_slice::<Value>(&canon).unwrap(), value);
    }

    #[test]
    fn canonical_text_is_equal_exactly_where_values_are(a in trees(), b in trees(), seeds: [u64; 2]) {
        let (a, b) = (spelled(&a, seeds[0]), spelled(&b, seeds[1]));
        let value = |text: &str| serde_json::from_str::<Value>(text).unwrap();
        prop_assert_eq!(canonical(a.as_bytes()) == canonical(b.as_bytes()), value(&a) == value(&b));
    }

    #[test]
    fn one_changed_leaf_is_seen(tree in trees(), at: prop::sample::Index, byte: u8, seed: u64) {
        let text = spelled(&tree, seed);
        let mut other = text.clone().into_bytes();
        let at = at.index(other.len());
        other[at] = byte;
        let before = serde_json::from_str::<Value>(&text).unwrap();
        if let Ok(after) = serde_json::from_slice::<Value>(&other)
            && let Some(canon) = canonical(&other)
            && before != after
        {
            prop_assert_ne!(canonical(text.as_bytes()).unwrap(), canon);
        }
    }
}
