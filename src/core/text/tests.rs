use super::*;
use proptest::prelude::*;
use std::hash::BuildHasher as _;

/// The text in every place where it can lie.
fn everywhere(text: &str) -> Vec<Text> {
    let around = joined(&["é", text, "\0-"]);
    let leaked = Box::leak(text.to_owned().into_boxed_str());
    vec![
        Text::from(text),
        Text::from(text.to_owned()),
        Text::constant(leaked),
        Text(Source::Shared(text.into())),
        Text::part(&around, 2..2 + text.len()),
    ]
}

fn written(value: &impl Serialize) -> Vec<u8> {
    bincode::serde::encode_to_vec(value, bincode::config::standard()).unwrap()
}

fn check(text: &str) {
    let owned = text.to_owned();
    let hasher = std::hash::RandomState::new();
    for one in everywhere(text) {
        assert_eq!((one.as_str(), one.as_bytes(), &*one), (text, text.as_bytes(), text));
        assert_eq!(one.clone(), one);
        assert!(one == *text && one == text && one == owned);
        assert_eq!(hasher.hash_one(&one), hasher.hash_one(text));
        assert_eq!((format!("{one:>9}"), format!("{one:?}")), (format!("{text:>9}"), format!("{text:?}")));
        assert_eq!(written(&one), written(&text));
        let read: (Text, usize) =
            bincode::serde::decode_from_slice(&written(&one), bincode::config::standard()).unwrap();
        assert_eq!(read.0, one);
        assert_eq!(serde_json::from_str::<Text>(&serde_json::to_string(&one).unwrap()).unwrap(), one);
        assert_eq!(String::from(one), text);
    }
}

#[test]
fn a_text_is_the_same_wherever_it_lies() {
    for len in 0..=3 * SHORT_BYTES_MAX {
        check(&"x".repeat(len));
        check(&"é".repeat(len));
    }
    assert_eq!(size_of::<Text>(), size_of::<String>());
}

#[test]
fn what_is_no_part_is_empty() {
    let text = joined(&["é", "abc"]);
    for range in [1..3, 4..6, 6..7] {
        assert_eq!(Text::part(&text, range), "");
    }
    // Further on than a part can say.
    let long: Arc<str> = "0123456789".repeat(10_000).into();
    assert_eq!(Text::part(&long, 70_001..70_051), long[70_001..70_051]);
}

#[test]
fn pieces_are_joined_in_their_order_however_long() {
    for len in [0, 1, JOINED_BYTES_USUAL - 3, JOINED_BYTES_USUAL - 2, JOINED_BYTES_USUAL - 1, 5_000] {
        let long = "y".repeat(len);
        assert_eq!(*joined(&["é", &long, "", "z"]), format!("é{long}z"));
    }
}

proptest! {
    #[test]
    fn texts_are_ordered_as_str(a in ".{0,30}", b in ".{0,30}") {
        check(&a);
        for (one, other) in everywhere(&a).into_iter().zip(everywhere(&b).into_iter().rev()) {
            prop_assert_eq!(one.cmp(&other), a.cmp(&b));
            prop_assert_eq!(one == other, a == b);
        }
    }
}

#[test]
fn a_map_of_texts_is_asked_by_a_str() {
    for id in ["17", "an id that is longer than what lies in the text itself"] {
        let hashed: std::collections::HashMap<Text, u8> =
            everywhere(id).into_iter().map(|text| (text, 1)).collect();
        let sorted: std::collections::BTreeMap<Text, u8> =
            everywhere(id).into_iter().map(|text| (text, 1)).collect();
        assert_eq!((hashed.len(), hashed.get(id), sorted.get(id)), (1, Some(&1), Some(&1)));
        let (text, owned) = (Text::from(id), id.to_owned());
        assert!(id == text && *id == text && owned == text);
    }
    assert_eq!(Text::default(), "");
}
