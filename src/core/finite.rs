//! Refuses a value that holds a number JSON cannot say.
//!
//! Owns: one walk over a `Serialize` value that looks at each `f32` and `f64`. It exists because `serde_json`
//! writes `null` for NaN and the infinities, so that two different values would become one text, silently.
//! The walk also stops at a nesting that could only end in a stack overflow further on.
//!
//! Must not know: JSON text, digests, what the value is for. It writes nothing.

use std::cell::Cell;
use std::fmt;

use serde::ser::{self, Serialize, Serializer};

/// Containers, options and newtypes inside each other at most: three for each level of JSON that
/// [`crate::core::json::DEPTH_MAX`] allows.
pub const WALK_DEPTH_MAX: usize = 3 * crate::core::json::DEPTH_MAX;

/// Why a value has no faithful JSON text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unfit {
    /// A NaN or an infinity is inside.
    NonFinite,
    /// It nests beyond [`WALK_DEPTH_MAX`], perhaps without end.
    TooDeep,
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NonFinite => f.write_str("a number is NaN or infinite, which JSON cannot say"),
            Self::TooDeep => write!(f, "the value nests deeper than {WALK_DEPTH_MAX} levels"),
        }
    }
}

impl std::error::Error for Unfit {}

/// The JSON text of a value, if the text says all of it and can be read back.
///
/// # Errors
///
/// Why not, in words.
pub fn to_json<V: Serialize + ?Sized>(value: &V) -> Result<Vec<u8>, String> {
    all_finite(value).map_err(|unfit| unfit.to_string())?;
    let text = serde_json::to_vec(value).map_err(|fault| fault.to_string())?;
    let depth = crate::core::json::depth(&text);
    if depth > READ_DEPTH_MAX {
        return Err(format!("it nests {depth} levels deep; {READ_DEPTH_MAX} can be read back"));
    }
    Ok(text)
}

/// How deep the JSON reader goes.
const READ_DEPTH_MAX: usize = 127;

/// Checks that each number in `value` is finite, map keys included.
///
/// A `Serialize` implementation that fails for a reason of its own passes: the serializer that really writes
/// meets the same failure, and reports it in its own words.
///
/// # Errors
/// [`Unfit::NonFinite`] and [`Unfit::TooDeep`], also if the implementation on the way swallowed the error.
pub fn all_finite<V: Serialize + ?Sized>(value: &V) -> Result<(), Unfit> {
    let found = Cell::new(None);
    // The walk's own result says less than `found`: it may be foreign, or changed on the way up.
    let _ = value.serialize(Walk { found: &found, depth: 0 });
    found.get().map_or(Ok(()), Err)
}

/// The serializer, and each of its compound states: they differ in nothing.
#[derive(Clone, Copy)]
struct Walk<'w> {
    found: &'w Cell<Option<Unfit>>,
    depth: usize,
}

impl Walk<'_> {
    fn stop<T>(self, why: Unfit) -> Result<T, Stopped> {
        self.found.set(self.found.get().or(Some(why)));
        Err(Stopped)
    }

    fn deeper(self) -> Result<Self, Stopped> {
        if self.depth == WALK_DEPTH_MAX {
            return self.stop(Unfit::TooDeep);
        }
        Ok(Self { depth: self.depth + 1, ..self })
    }

    fn inside<V: Serialize + ?Sized>(self, value: &V) -> Result<(), Stopped> {
        value.serialize(self.deeper()?)
    }
}

/// Ends the walk; the reason is in `Walk::found`, or foreign and left to the next serializer.
#[derive(Debug)]
struct Stopped;

impl fmt::Display for Stopped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the value cannot be walked")
    }
}

impl std::error::Error for Stopped {}

impl ser::Error for Stopped {
    fn custom<T: fmt::Display>(_: T) -> Self {
        Self
    }
}

/// Scalars that are always finite.
macro_rules! pass {
    ($($method:ident: $type:ty),* $(,)?) => {
        $(fn $method(self, _: $type) -> Result<(), Stopped> { Ok(()) })*
    };
}

impl<'w> Serializer for Walk<'w> {
    type Ok = ();
    type Error = Stopped;
    type SerializeSeq = Walk<'w>;
    type SerializeTuple = Walk<'w>;
    type SerializeTupleStruct = Walk<'w>;
    type SerializeTupleVariant = Walk<'w>;
    type SerializeMap = Walk<'w>;
    type SerializeStruct = Walk<'w>;
    type SerializeStructVariant = Walk<'w>;

    pass! {
        serialize_bool: bool, serialize_char: char, serialize_str: &str, serialize_bytes: &[u8],
        serialize_i8: i8, serialize_i16: i16, serialize_i32: i32, serialize_i64: i64, serialize_i128: i128,
        serialize_u8: u8, serialize_u16: u16, serialize_u32: u32, serialize_u64: u64, serialize_u128: u128,
        serialize_unit_struct: &'static str,
    }

    fn serialize_f32(self, number: f32) -> Result<(), Stopped> {
        if number.is_finite() { Ok(()) } else { self.stop(Unfit::NonFinite) }
    }

    fn serialize_f64(self, number: f64) -> Result<(), Stopped> {
        if number.is_finite() { Ok(()) } else { self.stop(Unfit::NonFinite) }
    }

    fn serialize_none(self) -> Result<(), Stopped> {
        Ok(())
    }

    fn serialize_unit(self) -> Result<(), Stopped> {
        Ok(())
    }

    fn serialize_unit_variant(self, _: &'static str, _: u32, _: &'static str) -> Result<(), Stopped> {
        Ok(())
    }

    fn collect_str<T: fmt::Display + ?Sized>(self, _: &T) -> Result<(), Stopped> {
        Ok(())
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<(), Stopped> {
        self.inside(value)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        value: &T,
    ) -> Result<(), Stopped> {
        self.inside(value)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        value: &T,
    ) -> Result<(), Stopped> {
        self.inside(value)
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Self, Stopped> {
        Ok(self)
    }

    fn serialize_tuple(self, _: usize) -> Result<Self, Stopped> {
        Ok(self)
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Self, Stopped> {
        Ok(self)
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self, Stopped> {
        Ok(self)
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Self, Stopped> {
        Ok(self)
    }

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Self, Stopped> {
        Ok(self)
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self, Stopped> {
        Ok(self)
    }
}

/// The compound states whose elements have no name.
macro_rules! elements {
    ($($state:ident: $method:ident),*) => {
        $(impl ser::$state for Walk<'_> {
            type Ok = ();
            type Error = Stopped;
            fn $method<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Stopped> {
                self.inside(value)
            }
            fn end(self) -> Result<(), Stopped> { Ok(()) }
        })*
    };
}

elements! {
    SerializeSeq: serialize_element, SerializeTuple: serialize_element,
    SerializeTupleStruct: serialize_field, SerializeTupleVariant: serialize_field
}

/// The compound states whose fields are named in the program.
macro_rules! named {
    ($($state:ident),*) => {
        $(impl ser::$state for Walk<'_> {
            type Ok = ();
            type Error = Stopped;
            fn serialize_field<T: Serialize + ?Sized>(
                &mut self,
                _: &'static str,
                value: &T,
            ) -> Result<(), Stopped> {
                self.inside(value)
            }
            fn end(self) -> Result<(), Stopped> { Ok(()) }
        })*
    };
}

named!(SerializeStruct, SerializeStructVariant);

impl ser::SerializeMap for Walk<'_> {
    type Ok = ();
    type Error = Stopped;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), Stopped> {
        self.inside(key)
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Stopped> {
        self.inside(value)
    }

    fn end(self) -> Result<(), Stopped> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Serialize;
    use std::collections::BTreeMap;

    #[derive(Serialize)]
    enum Shape {
        Unit,
        Newtype(f32),
        Tuple(u8, f64),
        Struct { side: Option<f64> },
    }

    #[derive(Serialize)]
    struct Wrapped(f64);

    #[derive(Serialize)]
    struct Chain(Option<Box<Chain>>);

    fn check<V: Serialize>(value: &V, expected: Result<(), Unfit>) {
        assert_eq!(all_finite(value), expected, "{:?}", serde_json::to_string(value));
    }

    #[test]
    fn finite_values_pass_in_every_position() {
        check(&(1_u8, -1_i128, u128::MAX, 'c', "s", (), true), Ok(()));
        check(&[Shape::Unit, Shape::Newtype(1.0), Shape::Tuple(1, f64::MAX)], Ok(()));
        check(&Shape::Struct { side: Some(f64::MIN_POSITIVE) }, Ok(()));
        check(&BTreeMap::from([("a", vec![Some(-0.0), None])]), Ok(()));
        check(&serde_json::json!({"a": [1, 2.5, null, {"b": "NaN"}]}), Ok(()));
    }

    #[test]
    fn non_finite_numbers_are_found_in_every_position() {
        let nan = Err(Unfit::NonFinite);
        check(&f64::NAN, nan);
        check(&f32::NEG_INFINITY, nan);
        check(&Wrapped(f64::INFINITY), nan);
        check(&Some(vec![1.0, f64::NAN]), nan);
        check(&(1, f32::NAN), nan);
        check(&Shape::Newtype(f32::NAN), nan);
        check(&Shape::Tuple(0, f64::INFINITY), nan);
        check(&Shape::Struct { side: Some(f64::NAN) }, nan);
        check(&BTreeMap::from([("deep", BTreeMap::from([("er", f64::NAN)]))]), nan);
    }

    /// Hides the failure of what it wraps, as a careless implementation may.
    struct Swallows(f64);

    impl Serialize for Swallows {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            serializer.serialize_f64(self.0).map_err(|_| ser::Error::custom("something else"))
        }
    }

    struct Fails;

    impl Serialize for Fails {
        fn serialize<S: Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
            Err(ser::Error::custom("its own reason"))
        }
    }

    #[test]
    fn the_reason_survives_a_rewritten_error_and_foreign_failures_are_left_alone() {
        assert_eq!(all_finite(&Swallows(f64::NAN)), Err(Unfit::NonFinite));
        assert_eq!(all_finite(&Fails), Ok(()));
        assert!(serde_json::to_string(&Fails).is_err());
    }

    #[test]
    fn an_endless_value_stops() {
        let mut chain = Chain(None);
        for _ in 0..2_000 {
            chain = Chain(Some(Box::new(chain)));
        }
        assert_eq!(all_finite(&chain), Err(Unfit::TooDeep));
    }
}
