//! Any bytes as JSON, and as the parts of two requests.

use serde::de::IgnoredAny;
use serde_json::Value;

use crate::core::fingerprint::{Compare, Fingerprint, Match, Parts};
use crate::core::json::canonical;
use crate::db::codec;

/// A canonical text is JSON of the same content, is its own canonical text, and is what requests are compared
/// by.
///
/// # Panics
///
/// When it is not.
pub fn json(bytes: &[u8]) {
    text(bytes);
    let cut = bytes.iter().position(|&byte| byte == b'\n').unwrap_or(bytes.len() / 2);
    let (first, second) = bytes.split_at(cut);
    let second = second.strip_prefix(b"\n").unwrap_or(second);
    requests(first, second);
    requests(first, first);
}

fn text(bytes: &[u8]) {
    let Some(out) = canonical(bytes) else {
        return;
    };
    assert!(out.len() <= bytes.len(), "a canonical text is longer");
    assert!(matches!(canonical(&out), Some(std::borrow::Cow::Borrowed(_))), "a canonical text has another");
    assert!(serde_json::from_slice::<IgnoredAny>(bytes).is_ok(), "what is no JSON has a canonical text");
    // A number that fits no double, or deep nesting, is JSON but no `Value`.
    if let Ok(value) = serde_json::from_slice::<Value>(bytes) {
        assert_eq!(
            serde_json::from_slice::<Value>(&out).unwrap(),
            value,
            "a canonical text says something else"
        );
    }
}

fn requests(first: &[u8], second: &[u8]) {
    let (one, other) = (parts(first), parts(second));
    let key = |bytes: &[u8]| canonical(bytes).map_or_else(|| bytes.to_vec(), std::borrow::Cow::into_owned);
    let same_octets = first == second;
    let same_content = key(first) == key(second);
    for (compare, same) in [
        (Compare::Exact, same_octets),
        (Compare::Canonical, same_content),
        (Compare::Parts(&["body"]), same_content),
    ] {
        let fingerprint = Fingerprint::of(&one, compare).unwrap();
        fingerprint.check().unwrap();
        assert_eq!(fingerprint.judge(&one), Match::Same, "a request is not the same as itself");
        assert_eq!(fingerprint.judge(&other) == Match::Same, same, "{compare:?}");
        let stored = codec::encode(&fingerprint).unwrap();
        assert!(codec::decode::<Fingerprint>(&stored).unwrap() == fingerprint);
    }
}

fn parts(body: &[u8]) -> Parts {
    let mut parts = Parts::new();
    parts.json("body", body);
    parts.bytes("method", b"POST");
    parts
}
