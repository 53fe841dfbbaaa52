//! Canonical JSON: the text that two spellings of one document share.
//!
//! Owns: what counts as formatting. Member order (by UTF-16 code units), white space and the spelling of
//! string escapes follow RFC 8785. Number tokens are kept as they were written, so `1`, `1.0` and `1e0` are
//! three different values: RFC 8785 would pass them through a double, and two amounts that differ in the
//! thirtieth digit must never become one. Strings are never taken for numbers.
//!
//! What is not strict RFC 8259 JSON has no canonical text, and so has what parsers disagree about: a member
//! that occurs twice, half of a surrogate pair, a byte order mark, invalid UTF-8, nesting beyond
//! [`DEPTH_MAX`]. The caller then compares the bytes as they are.
//!
//! Must not know: fingerprints, digests, or why somebody compares.

use std::borrow::Cow;
use std::cmp::Ordering;

/// Containers inside each other at most. The parser keeps its own stack, so this bounds work, not the
/// thread's stack: sorting copies an object once a level.
pub const DEPTH_MAX: usize = 128;

/// The canonical text of a JSON document, or `None` where it has none and is to be compared byte by byte.
///
/// Borrowed exactly when `text` is canonical already. The result is never longer than `text`, and its own
/// canonical text is itself.
#[must_use]
pub fn canonical(text: &[u8]) -> Option<Cow<'_, [u8]>> {
    let mut writer = Writer::new(std::str::from_utf8(text).ok()?);
    writer.document()?;
    let out = writer.out.into_bytes();
    Some(if out == text { Cow::Borrowed(text) } else { Cow::Owned(out) })
}

/// An open container.
struct Level {
    object: bool,
    /// Where its content starts in `out`.
    start: usize,
    /// Its first member in `members`; members of closed objects are gone from there.
    first: usize,
}

/// Where one member stands in `out`: `start` at the opening quote, `colon` after the closing one.
struct Member {
    start: usize,
    colon: usize,
    end: usize,
}

struct Writer<'t> {
    text: &'t str,
    at: usize,
    out: String,
    levels: Vec<Level>,
    members: Vec<Member>,
    scratch: String,
}

impl<'t> Writer<'t> {
    fn new(text: &'t str) -> Self {
        // No canonical spelling is longer than any other, so `out` never grows.
        let out = String::with_capacity(text.len());
        Self { text, at: 0, out, levels: Vec::new(), members: Vec::new(), scratch: String::new() }
    }

    /// Reads one value a turn, then closes whatever ends with it.
    fn document(&mut self) -> Option<()> {
        loop {
            self.space();
            match self.peek()? {
                bracket @ (b'{' | b'[') => {
                    if self.open(bracket)? {
                        continue;
                    }
                }
                b'"' => self.string()?,
                b'-' | b'0'..=b'9' => self.number()?,
                _ => self.word()?,
            }
            if self.after_value()? {
                return Some(());
            }
        }
    }

    /// True if a value is expected next; false if the container was empty, which makes it a finished value.
    fn open(&mut self, bracket: u8) -> Option<bool> {
        if self.levels.len() == DEPTH_MAX {
            return None;
        }
        self.at += 1;
        self.out.push(char::from(bracket));
        self.space();
        let object = bracket == b'{';
        let close = if object { b'}' } else { b']' };
        if self.peek()? == close {
            self.at += 1;
            self.out.push(char::from(close));
            return Some(false);
        }
        self.levels.push(Level { object, start: self.out.len(), first: self.members.len() });
        if object {
            self.key()?;
        }
        Some(true)
    }

    /// True if the document is complete, false if a comma asks for another value.
    fn after_value(&mut self) -> Option<bool> {
        loop {
            self.space();
            let Some(level) = self.levels.last() else {
                return (self.at == self.text.len()).then_some(true);
            };
            let object = level.object;
            if let Some(member) = self.members.last_mut().filter(|_| object) {
                member.end = self.out.len();
            }
            match (self.next()?, object) {
                (b',', _) => {
                    self.out.push(',');
                    if object {
                        self.key()?;
                    }
                    return Some(false);
                }
                (b'}', true) => self.close_object()?,
                (b']', false) => {
                    self.levels.pop();
                    self.out.push(']');
                }
                _ => return None,
            }
        }
    }

    fn key(&mut self) -> Option<()> {
        self.space();
        let start = self.out.len();
        if self.peek()? != b'"' {
            return None;
        }
        self.string()?;
        let colon = self.out.len();
        self.space();
        if self.next()? != b':' {
            return None;
        }
        self.out.push(':');
        self.members.push(Member { start, colon, end: colon });
        Some(())
    }

    /// Puts the members of the innermost object in order; `None` if two have one name.
    fn close_object(&mut self) -> Option<()> {
        let level = self.levels.pop()?;
        let out = &self.out;
        let name = |member: &Member| &out[member.start + 1..member.colon - 1];
        let members = &mut self.members[level.first..];
        if !members.is_sorted_by(|a, b| name_order(name(a), name(b)).is_lt()) {
            members.sort_unstable_by(|a, b| name_order(name(a), name(b)));
            // Both names are spelled canonically: equal text is an equal name.
            if members.windows(2).any(|pair| name(&pair[0]) == name(&pair[1])) {
                return None;
            }
            self.scratch.clear();
            for (index, member) in members.iter().enumerate() {
                if index > 0 {
                    self.scratch.push(',');
                }
                self.scratch.push_str(&out[member.start..member.end]);
            }
            self.out.truncate(level.start);
            self.out.push_str(&self.scratch);
        }
        self.members.truncate(level.first);
        self.out.push('}');
        Some(())
    }

    fn string(&mut self) -> Option<()> {
        self.at += 1;
        self.out.push('"');
        loop {
            let run = self.at;
            self.skip(|byte| byte >= b' ' && byte != b'"' && byte != b'\\');
            self.out.push_str(&self.text[run..self.at]);
            match self.next()? {
                b'"' => {
                    self.out.push('"');
                    return Some(());
                }
                b'\\' => {
                    let char = self.escape()?;
                    push_escaped(&mut self.out, char);
                }
                _ => return None, // a control character must be escaped
            }
        }
    }

    /// The character meant by what follows a backslash.
    fn escape(&mut self) -> Option<char> {
        Some(match self.next()? {
            b'b' => '\u{8}',
            b't' => '\t',
            b'n' => '\n',
            b'f' => '\u{c}',
            b'r' => '\r',
            itself @ (b'"' | b'\\' | b'/') => char::from(itself),
            b'u' => {
                let lead = self.hex()?;
                if !(0xD800..0xDC00).contains(&lead) {
                    return char::from_u32(lead); // `None` for a trailing surrogate on its own
                }
                if (self.next()?, self.next()?) != (b'\\', b'u') {
                    return None;
                }
                let trail = self.hex()?.checked_sub(0xDC00).filter(|&bits| bits < 0x400)?;
                char::from_u32(0x1_0000 + ((lead - 0xD800) << 10) + trail)?
            }
            _ => return None,
        })
    }

    fn hex(&mut self) -> Option<u32> {
        let mut code = 0;
        for _ in 0..4 {
            code = code << 4 | char::from(self.next()?).to_digit(16)?;
        }
        Some(code)
    }

    /// Checks the grammar and keeps the token as it is: no number is ever rounded.
    fn number(&mut self) -> Option<()> {
        let start = self.at;
        if self.peek()? == b'-' {
            self.at += 1;
        }
        if self.peek()? == b'0' {
            self.at += 1; // and no digit may follow
        } else {
            self.digits()?;
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if let Some(b'e' | b'E') = self.peek() {
            self.at += 1;
            if let Some(b'+' | b'-') = self.peek() {
                self.at += 1;
            }
            self.digits()?;
        }
        self.out.push_str(&self.text[start..self.at]);
        Some(())
    }

    fn digits(&mut self) -> Option<()> {
        let start = self.at;
        self.skip(|byte| byte.is_ascii_digit());
        (self.at > start).then_some(())
    }

    fn word(&mut self) -> Option<()> {
        let rest = &self.text.as_bytes()[self.at..];
        let word = ["true", "false", "null"].into_iter().find(|word| rest.starts_with(word.as_bytes()))?;
        self.at += word.len();
        self.out.push_str(word);
        Some(())
    }

    fn space(&mut self) {
        self.skip(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r'));
    }

    fn skip(&mut self, wanted: impl Fn(u8) -> bool) {
        let rest = &self.text.as_bytes()[self.at..];
        self.at += rest.iter().position(|&byte| !wanted(byte)).unwrap_or(rest.len());
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn next(&mut self) -> Option<u8> {
        let byte = self.peek()?;
        self.at += 1;
        Some(byte)
    }
}

/// Spells a character inside a string as RFC 8785, section 3.2.2.2 does.
fn push_escaped(out: &mut String, char: char) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    match char {
        '"' => out.push_str("\\\""),
        '\\' => out.push_str("\\\\"),
        '\u{8}' => out.push_str("\\b"),
        '\t' => out.push_str("\\t"),
        '\n' => out.push_str("\\n"),
        '\u{c}' => out.push_str("\\f"),
        '\r' => out.push_str("\\r"),
        '\0'..' ' => {
            out.push_str("\\u00");
            out.push(char::from(HEX[char as usize >> 4]));
            out.push(char::from(HEX[char as usize & 0xF]));
        }
        _ => out.push(char),
    }
}

/// Orders two canonically spelled names by the UTF-16 code units they mean.
fn name_order(a: &str, b: &str) -> Ordering {
    let plain = |name: &str| name.is_ascii() && !name.contains('\\');
    if plain(a) && plain(b) {
        return a.cmp(b);
    }
    unescaped(a).map(utf16_rank).cmp(unescaped(b).map(utf16_rank))
}

/// UTF-16 order is code point order, except that the surrogates, and so every character beyond U+FFFF, come
/// before U+E000.
fn utf16_rank(char: char) -> u32 {
    let code = u32::from(char);
    if (0xE000..=0xFFFF).contains(&code) { code + 0x11_0000 } else { code }
}

/// The characters of a canonically spelled string.
fn unescaped(text: &str) -> impl Iterator<Item = char> {
    let mut chars = text.chars();
    std::iter::from_fn(move || {
        let char = chars.next()?;
        if char != '\\' {
            return Some(char);
        }
        Some(match chars.next()? {
            'b' => '\u{8}',
            't' => '\t',
            'n' => '\n',
            'f' => '\u{c}',
            'r' => '\r',
            'u' => {
                let digits = chars.by_ref().take(4).filter_map(|digit| digit.to_digit(16));
                char::from_u32(digits.fold(0, |code, digit| code << 4 | digit))?
            }
            itself => itself,
        })
    })
}

/// How deep the containers of a valid JSON text nest.
pub fn depth(text: &[u8]) -> usize {
    let (mut depth, mut deepest, mut in_string, mut is_escaped) = (0_usize, 0, false, false);
    for &byte in text {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if in_string => is_escaped = true,
            b'"' => in_string = !in_string,
            b'[' | b'{' if !in_string => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b']' | b'}' if !in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

#[cfg(test)]
mod tests;
