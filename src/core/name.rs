//! The names that identify one logical command. Owns their limits and the digest of a scope;
//! must not know what a command does.

use std::fmt;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::error::{Error, ErrorKind};
use super::text::{Text, is_printable_ascii};

/// The longest tenant, operation, kind, step or uniqueness name, in bytes.
pub const NAME_BYTES_MAX: usize = 128;
/// The longest key, in characters.
pub const KEY_CHARS_MAX: usize = 255;
/// The longest key, in bytes: room for 255 characters of four bytes.
pub const KEY_BYTES_MAX: usize = 4 * KEY_CHARS_MAX;
/// The longest id of a resource or value of a uniqueness, in bytes.
pub const ID_BYTES_MAX: usize = 1024;

/// True for a name that may stand in a row key: not empty, not too long, no control byte.
///
/// Says the same as [`checked`], on bytes, so that it can run while the program is compiled.
pub(crate) const fn is_name(name: &str) -> bool {
    let bytes = name.as_bytes();
    if bytes.is_empty() || bytes.len() > NAME_BYTES_MAX {
        return false;
    }
    let mut at = 0;
    while at < bytes.len() {
        let (byte, next, after) = (bytes[at], byte_at(bytes, at + 1), byte_at(bytes, at + 2));
        // C0 and DEL; then, as UTF-8, C1 and the separators of lines and paragraphs.
        if byte < 0x20 || byte == 0x7F || (byte == 0xC2 && next < 0xA0) {
            return false;
        }
        if byte == 0xE2 && next == 0x80 && (after == 0xA8 || after == 0xA9) {
            return false;
        }
        at += 1;
    }
    true
}

/// What the store's own names begin with; no other tenant or operation has such a name.
const RESERVED: &str = "onecho:";

/// Whether only the store may have this name.
pub(crate) const fn is_reserved(name: &str) -> bool {
    let (name, reserved) = (name.as_bytes(), RESERVED.as_bytes());
    let mut at = 0;
    while at < reserved.len() {
        if at == name.len() || name[at] != reserved[at] {
            return false;
        }
        at += 1;
    }
    true
}

const fn byte_at(bytes: &[u8], at: usize) -> u8 {
    if at < bytes.len() { bytes[at] } else { 0xFF }
}

/// Checks one text that comes from outside.
pub(crate) fn checked(what: &str, text: &str, bytes_max: usize) -> Result<(), Error> {
    let fault = if text.is_empty() {
        "is empty".to_owned()
    } else if text.len() > bytes_max {
        format!("has {} bytes, more than {bytes_max}", text.len())
    } else if !is_printable_ascii(text) && text.chars().any(is_unprintable) {
        "holds a control character".to_owned()
    } else {
        return Ok(());
    };
    let kind = if text.len() > bytes_max { ErrorKind::LimitExceeded } else { ErrorKind::Invalid };
    Err(Error::new(kind, format!("{what} {fault}")))
}

/// Control characters, and the two separators that end a line or paragraph.
fn is_unprintable(c: char) -> bool {
    c.is_control() || c == '\u{2028}' || c == '\u{2029}'
}

macro_rules! name {
    ($(#[$doc:meta])* $name:ident, $what:literal) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub(crate) Text);

        impl $name {
            /// A name that the program knows: checked while it is compiled when it stands in a `const`.
            ///
            /// # Panics
            ///
            /// When the name is empty, longer than 128 bytes, holds a control byte, or begins with `onecho:`,
            /// as the store's own do; in a `const` that is a compile error.
            #[must_use]
            pub const fn new(name: &'static str) -> Self {
                assert!(is_name(name), "a name is 1 to 128 bytes without control characters");
                assert!(!is_reserved(name), "names that begin with `onecho:` are the store's own");
                Self(Text::constant(name))
            }

            /// A name that comes from outside.
            ///
            /// # Errors
            ///
            /// `Invalid` when it is empty, holds a control character, or begins with `onecho:`, as the
            /// store's own names do; `LimitExceeded` above 128 bytes.
            pub fn parse(name: &str) -> Result<Self, Error> {
                checked($what, name, NAME_BYTES_MAX)?;
                if is_reserved(name) {
                    let text = concat!($what, " begins with `onecho:`, as the store's own do");
                    return Err(Error::invalid(text));
                }
                Ok(Self(name.into()))
            }

            /// The name as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                self.0.as_str()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self.as_str())
            }
        }
    };
}

name!(
    /// Whose command it is. Keys, resources and messages of one tenant do not exist for another.
    ///
    /// ```
    /// use onecho::Tenant;
    /// const SHOP: Tenant = Tenant::new("shop");
    /// assert_eq!(Tenant::parse("shop")?, SHOP);
    /// assert!(Tenant::parse("").is_err());
    /// # Ok::<(), onecho::Error>(())
    /// ```
    Tenant,
    "tenant"
);
name!(
    /// Which kind of command it is. Each has a [`Policy`](crate::Policy).
    ///
    /// ```
    /// use onecho::Operation;
    /// const CREATE_ORDER: Operation = Operation::new("create-order");
    /// assert_eq!(CREATE_ORDER.as_str(), "create-order");
    /// ```
    Operation,
    "operation"
);

/// One logical command of a client: 1 to 255 characters, the same over all its retries.
///
/// Any printable text is a key; it is compared byte for byte, without Unicode normalisation or trimming. A
/// key is never made anew for a retry: that would be another command.
///
/// ```
/// use onecho::Key;
/// let key = Key::parse("welcome-user/usr_abc123")?;
/// assert_eq!(key.as_str(), "welcome-user/usr_abc123");
/// assert!(Key::parse("").is_err());
/// assert!(Key::parse(&"k".repeat(256)).is_err());
/// # Ok::<(), onecho::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(pub(crate) Text);

impl Key {
    /// A key that a client sent.
    ///
    /// # Errors
    ///
    /// `Invalid` when it is empty or holds a control character; `LimitExceeded` above 255 characters.
    pub fn parse(text: &str) -> Result<Self, Error> {
        checked("key", text, KEY_BYTES_MAX)?;
        // A character has one byte at least.
        let chars = if text.len() > KEY_CHARS_MAX { text.chars().count() } else { 0 };
        if chars > KEY_CHARS_MAX {
            let fault = format!("key has {chars} characters, more than {KEY_CHARS_MAX}");
            return Err(Error::new(ErrorKind::LimitExceeded, fault));
        }
        Ok(Self(text.into()))
    }

    /// A key made from the business fields that identify one command, such as `("cart", "c-17")`.
    ///
    /// The order of the fields counts. It is the hexadecimal SHA-256 of the fields with their lengths, so no
    /// two lists of fields give one key by running together.
    ///
    /// ```
    /// use onecho::Key;
    /// let one = Key::derived(&[("cart", "17"), ("day", "2026-11-30")])?;
    /// let other = Key::derived(&[("cart", "172"), ("day", "026-11-30")])?;
    /// assert_ne!(one, other);
    /// # Ok::<(), onecho::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `Invalid` without a field, or with a field whose name is empty.
    pub fn derived(fields: &[(&str, &str)]) -> Result<Self, Error> {
        if fields.is_empty() || fields.iter().any(|(name, _)| name.is_empty()) {
            return Err(Error::new(ErrorKind::Invalid, "a derived key needs fields, each with a name"));
        }
        let mut hash = Sha256::new_with_prefix(b"onecho derived key 1");
        for (name, value) in fields {
            feed(&mut hash, name.as_bytes());
            feed(&mut hash, value.as_bytes());
        }
        Ok(Self(Text::from(format!("derived-{}", hex(&hash.finalize())).as_str())))
    }

    /// The key as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Shows no key: keys may identify people, and logs are read by many.
impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({} bytes)", self.as_str().len())
    }
}

/// The identity of one logical command.
///
/// ```
/// use onecho::{Key, Operation, Scope, Tenant};
/// let scope = Scope {
///     tenant: Tenant::new("shop"),
///     operation: Operation::new("create-order"),
///     key: Key::parse("k-1")?,
/// };
/// assert_eq!(scope.key.as_str(), "k-1");
/// # Ok::<(), onecho::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Scope {
    /// Whose command it is.
    pub tenant: Tenant,
    /// Which kind of command it is.
    pub operation: Operation,
    /// Which command it is.
    pub key: Key,
}

impl Scope {
    /// Whether both name one command in a store of this mode.
    pub(crate) fn is_same(&self, other: &Self, mode: ScopeMode) -> bool {
        self.tenant == other.tenant
            && self.key == other.key
            && (self.mode(mode) == ScopeMode::PerTenant || self.operation == other.operation)
    }

    /// What makes it the same as another in a store of this mode: events are told apart by their inbox in
    /// every store.
    fn mode(&self, mode: ScopeMode) -> ScopeMode {
        if is_reserved(self.operation.as_str()) { ScopeMode::PerOperation } else { mode }
    }
}

/// What makes two commands the same. Chosen when the file is created and stored in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum ScopeMode {
    /// Tenant, operation and key: one key may be used once in each operation.
    #[default]
    PerOperation,
    /// Tenant and key: the operation is part of what was asked, so another one under the same key is a
    /// mismatch.
    PerTenant,
}

/// The first 16 bytes of SHA-256 over a scope: its place in the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ScopeDigest(pub [u8; 16]);

impl ScopeDigest {
    /// The digest as two numbers.
    #[inline]
    pub(crate) fn words(self) -> [u64; 2] {
        let (words, _) = self.0.as_chunks();
        [u64::from_le_bytes(words[0]), u64::from_le_bytes(words[1])]
    }

    /// The digest of `scope` in a store of this mode, over length-prefixed fields.
    #[must_use]
    pub fn of(scope: &Scope, mode: ScopeMode) -> Self {
        let mode = scope.mode(mode);
        let mut hash = Sha256::new_with_prefix(b"onecho scope 1");
        hash.update([match mode {
            ScopeMode::PerOperation => 0,
            ScopeMode::PerTenant => 1,
        }]);
        feed(&mut hash, scope.tenant.0.as_bytes());
        if mode == ScopeMode::PerOperation {
            feed(&mut hash, scope.operation.0.as_bytes());
        }
        feed(&mut hash, scope.key.0.as_bytes());
        let mut short = [0; 16];
        short.copy_from_slice(&hash.finalize()[..16]);
        Self(short)
    }
}

/// Feeds bytes behind their length, so that fields cannot run together.
pub(crate) fn feed(hash: &mut Sha256, bytes: &[u8]) {
    hash.update((bytes.len() as u64).to_be_bytes());
    hash.update(bytes);
}

/// Lower-case hexadecimal text.
pub(crate) fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        text.push(char::from(DIGITS[usize::from(byte >> 4)]));
        text.push(char::from(DIGITS[usize::from(byte & 0xF)]));
    }
    text
}

#[cfg(test)]
mod tests;
