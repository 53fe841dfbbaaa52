//! Members of a JSON object, picked out without reading the rest into memory. Owns what may be a key.
//!
//! A member given twice is refused and no number is rounded: a key that two readers read differently is none.

use std::fmt;

use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor,
};
use serde_json::value::RawValue;

/// The members of `names` in the object `text`, each as text.
pub(super) fn pick(text: &str, names: &[&str]) -> Result<Vec<String>, String> {
    let mut parser = serde_json::Deserializer::from_str(text);
    let found = Pick(names).deserialize(&mut parser).and_then(|found| parser.end().map(|()| found));
    let found = found.map_err(|fault| told(&fault))?;
    found
        .into_iter()
        .zip(names)
        .map(|(member, name)| match member {
            Some(Member::Text(text)) => Ok(text),
            Some(Member::Other) => Err(format!("member {name:?} is neither text nor a whole number")),
            None => Err(format!("it has no member {name:?}")),
        })
        .collect()
}

/// All members of the object `text` in their order, each value as it is written there.
pub(super) fn all(text: &str) -> serde_json::Result<Vec<(String, &RawValue)>> {
    serde_json::Deserializer::from_str(text).deserialize_map(All)
}

/// Whether `text` is one JSON value.
pub(super) fn check(text: &str) -> Result<(), String> {
    serde_json::from_str::<IgnoredAny>(text).map(|_| ()).map_err(|fault| told(&fault))
}

/// A fault of one line. The parser's number of that line is always 1, and not the one in the input.
fn told(fault: &serde_json::Error) -> String {
    let text = fault.to_string();
    match text.strip_suffix(&format!(" at line {} column {}", fault.line(), fault.column())) {
        Some(what) => format!("{what} at column {}", fault.column()),
        None => text,
    }
}

struct Pick<'n>(&'n [&'n str]);

impl<'de> DeserializeSeed<'de> for Pick<'_> {
    type Value = Vec<Option<Member>>;

    fn deserialize<D: Deserializer<'de>>(self, parser: D) -> Result<Self::Value, D::Error> {
        parser.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Pick<'_> {
    type Value = Vec<Option<Member>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Self::Value, A::Error> {
        let mut found: Self::Value = self.0.iter().map(|_| None).collect();
        while let Some(name) = members.next_key::<String>()? {
            if !self.0.contains(&name.as_str()) {
                members.next_value::<IgnoredAny>()?;
                continue;
            }
            let member: Member = members.next_value()?;
            for (place, _) in found.iter_mut().zip(self.0).filter(|(_, wanted)| **wanted == name) {
                if place.replace(member.clone()).is_some() {
                    return Err(A::Error::custom(format!("member {name:?} is there twice")));
                }
            }
        }
        Ok(found)
    }
}

struct All;

impl<'de> Visitor<'de> for All {
    type Value = Vec<(String, &'de RawValue)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Self::Value, A::Error> {
        let mut found = Vec::new();
        while let Some(member) = members.next_entry()? {
            found.push(member);
        }
        Ok(found)
    }
}

#[derive(Clone, Debug)]
enum Member {
    Text(String),
    Other,
}

impl<'de> Deserialize<'de> for Member {
    fn deserialize<D: Deserializer<'de>>(parser: D) -> Result<Self, D::Error> {
        parser.deserialize_any(AsMember)
    }
}

struct AsMember;

impl<'de> Visitor<'de> for AsMember {
    type Value = Member;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_str<E>(self, text: &str) -> Result<Member, E> {
        Ok(Member::Text(text.to_owned()))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Member, E> {
        Ok(Member::Text(number.to_string()))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Member, E> {
        Ok(Member::Text(number.to_string()))
    }

    fn visit_f64<E>(self, _: f64) -> Result<Member, E> {
        Ok(Member::Other)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Member, E> {
        Ok(Member::Other)
    }

    fn visit_unit<E>(self) -> Result<Member, E> {
        Ok(Member::Other)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Member, A::Error> {
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Member::Other)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Member, A::Error> {
        while members.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Member::Other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_whole_numbers_are_keys_and_nothing_that_could_be_read_two_ways() {
        let key = |text| pick(text, &["id"]).map(|mut found| found.remove(0));
        assert_eq!(key(r#"{"x":{"id":1},"id":"a\u0062"}"#), Ok("ab".to_owned()));
        assert_eq!(key(r#"{"id":18446744073709551615}"#), Ok(u64::MAX.to_string()));
        assert_eq!(key(r#"{"id":-7}"#), Ok("-7".to_owned()));
        for bad in [
            r#"{"id":18446744073709551616}"#,
            r#"{"id":1.0}"#,
            r#"{"id":null}"#,
            r#"{"id":["a"]}"#,
            r#"{"id":{"id":"a"}}"#,
            r#"{"id":"a","id":"a"}"#,
            r#"{"other":1}"#,
            r#"{"id":"a"} x"#,
            r#"["id"]"#,
            r#"{"id":"a""#,
        ] {
            assert!(key(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_fault_is_told_with_its_column_and_no_line() {
        let told = |text| pick(text, &["id"]).unwrap_err();
        assert_eq!(told(r#"{"id":1} x"#), "trailing characters at column 10");
        assert_eq!(told(r#"{"id":1,"id":1}"#), "member \"id\" is there twice at column 15");
        assert_eq!(check("[1").unwrap_err(), "EOF while parsing a list at column 2");
    }

    #[test]
    fn one_member_may_be_both_key_and_id() {
        assert_eq!(pick(r#"{"a":1}"#, &["a", "a"]), Ok(vec!["1".to_owned(), "1".to_owned()]));
    }
}
