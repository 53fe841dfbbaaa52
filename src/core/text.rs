//! Short texts that are cloned often. Owns where their bytes lie; must not know what they name.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::{Deref, Range};
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A text of this many bytes lies in the [`Text`] itself, which is no larger than a `String`.
const SHORT_BYTES_MAX: usize = 22;
/// Pieces of this many bytes in all are put together without a block for them alone.
const JOINED_BYTES_USUAL: usize = 256;

/// A name or an id: text whose clone copies nothing that is long.
///
/// It is read as a `str`, and compared, ordered, hashed and serialized as one.
///
/// ```
/// use onecho::{Kind, Text};
/// const ORDERS: Kind<String> = Kind::json("order");
/// let order = ORDERS.at("17");
/// assert!(order.kind == "order" && order.id.starts_with('1'));
/// let id: String = order.id.into();
/// assert_eq!(Text::from(id), Text::from("17"));
/// ```
#[derive(Clone)]
pub struct Text(Source);

#[derive(Clone)]
enum Source {
    /// A text of the program.
    Constant(&'static str),
    Short {
        len: u8,
        bytes: [u8; SHORT_BYTES_MAX],
    },
    Shared(Arc<str>),
    /// A part of a text that somebody keeps anyway.
    Part {
        of: Arc<str>,
        start: u16,
        end: u16,
    },
}

impl Text {
    pub(crate) const fn constant(text: &'static str) -> Self {
        Self(Source::Constant(text))
    }

    /// A part of a shared text; empty if there is no such part.
    pub(crate) fn part(of: &Arc<str>, range: Range<usize>) -> Self {
        let text = of.get(range.clone()).unwrap_or_default();
        match (u16::try_from(range.start), u16::try_from(range.end)) {
            (Ok(start), Ok(end)) if text.len() > SHORT_BYTES_MAX => {
                Self(Source::Part { of: Arc::clone(of), start, end })
            }
            _ => Self::from(text),
        }
    }

    /// The text.
    #[inline]
    #[must_use]
    pub fn as_str(&self) -> &str {
        match &self.0 {
            Source::Constant(text) => text,
            // They were copied from a text, whole.
            Source::Short { .. } => str::from_utf8(self.as_bytes()).unwrap_or_default(),
            Source::Shared(text) => text,
            Source::Part { of, start, end } => {
                of.get(usize::from(*start)..usize::from(*end)).unwrap_or_default()
            }
        }
    }

    /// The text's bytes, which cost less than the text where it is short.
    #[inline]
    pub(crate) fn as_bytes(&self) -> &[u8] {
        match &self.0 {
            Source::Constant(text) => text.as_bytes(),
            Source::Short { len, bytes } => bytes.get(..usize::from(*len)).unwrap_or_default(),
            Source::Shared(text) => text.as_bytes(),
            Source::Part { of, start, end } => {
                of.as_bytes().get(usize::from(*start)..usize::from(*end)).unwrap_or_default()
            }
        }
    }
}

/// One shared text of several pieces, in one block.
pub(crate) fn joined(pieces: &[&str]) -> Arc<str> {
    let mut room = [0; JOINED_BYTES_USUAL];
    let mut len = 0;
    for piece in pieces {
        let end = len + piece.len();
        let Some(place) = room.get_mut(len..end) else {
            return pieces.concat().into();
        };
        place.copy_from_slice(piece.as_bytes());
        len = end;
    }
    str::from_utf8(&room[..len]).map_or_else(|_| pieces.concat().into(), Arc::from)
}

/// Whether all of it is ASCII that is printed. The sum over all bytes, without a way out, is taken many at a
/// time.
pub(crate) fn is_printable_ascii(text: &str) -> bool {
    text.bytes().fold(true, |all, byte| all & (byte.wrapping_sub(b' ') < 0x7F - b' '))
}

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        let mut bytes = [0; SHORT_BYTES_MAX];
        match (bytes.get_mut(..text.len()), u8::try_from(text.len())) {
            (Some(place), Ok(len)) => {
                place.copy_from_slice(text.as_bytes());
                Self(Source::Short { len, bytes })
            }
            _ => Self(Source::Shared(text.into())),
        }
    }
}

impl From<String> for Text {
    fn from(text: String) -> Self {
        Self::from(text.as_str())
    }
}

impl From<Text> for String {
    fn from(text: Text) -> Self {
        text.as_str().to_owned()
    }
}

impl Deref for Text {
    type Target = str;

    fn deref(&self) -> &str {
        self.as_str()
    }
}

impl AsRef<str> for Text {
    fn as_ref(&self) -> &str {
        self.as_str()
    }
}

impl PartialEq for Text {
    fn eq(&self, other: &Self) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl Eq for Text {}

impl PartialEq<str> for Text {
    fn eq(&self, other: &str) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl PartialEq<&str> for Text {
    fn eq(&self, other: &&str) -> bool {
        self == *other
    }
}

impl PartialEq<String> for Text {
    fn eq(&self, other: &String) -> bool {
        self == other.as_str()
    }
}

impl PartialEq<Text> for str {
    fn eq(&self, other: &Text) -> bool {
        other == self
    }
}

impl PartialEq<Text> for &str {
    fn eq(&self, other: &Text) -> bool {
        other == *self
    }
}

impl PartialEq<Text> for String {
    fn eq(&self, other: &Text) -> bool {
        other == self
    }
}

/// Hashed and ordered as a `str`: a map of texts is asked by a `str`.
impl Borrow<str> for Text {
    fn borrow(&self) -> &str {
        self.as_str()
    }
}

impl Default for Text {
    fn default() -> Self {
        Self::constant("")
    }
}

impl PartialOrd for Text {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Text {
    fn cmp(&self, other: &Self) -> Ordering {
        self.as_bytes().cmp(other.as_bytes())
    }
}

impl Hash for Text {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_str().hash(state);
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self.as_str(), f)
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl Serialize for Text {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Self::from)
    }
}

#[cfg(test)]
mod tests;
