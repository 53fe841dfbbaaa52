//! Records of an input, each with the line it starts on. Owns line numbers, quotes that span lines, and the
//! bound on a record; must not know what a column means.
//!
//! Lines are counted here and not by the CSV parser, because a row may be known by its line alone: blank
//! lines, line ends of two bytes and a quote that never ends must not move the numbers behind them.

use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, Read};

use super::args::Format;

/// The longest record, in bytes: what one resource can hold.
pub(super) const RECORD_BYTES_MAX: usize = 4 * 1024 * 1024;
/// The most lines of one record. Bounds what holding lines costs beside their bytes.
const RECORD_LINES_MAX: usize = 65_536;
const BUFFER_BYTES: usize = 256 * 1024;
const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

/// One record as it stands in the input, without its line end; or why there is none.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Record {
    /// The line it starts on, counted from 1.
    pub line: u64,
    pub text: Result<Vec<u8>, String>,
}

/// The records of one input. Holds at most one record and one buffer.
pub(super) struct Rows {
    input: Box<dyn BufRead + Send>,
    format: Format,
    lines_read: u64,
    bytes_read: u64,
    /// Lines that were read to find the end of a quote, and are not yet part of a record.
    held: VecDeque<Line>,
    held_bytes: usize,
}

struct Line {
    number: u64,
    /// With its line end; empty if it was too long to keep.
    bytes: Vec<u8>,
    is_whole: bool,
    /// A quote that is open where the line begins is closed where it ends.
    ends_quote: bool,
}

impl Rows {
    pub fn new(input: impl Read + Send + 'static, format: Format) -> Self {
        let input = Box::new(BufReader::with_capacity(BUFFER_BYTES, input));
        Self { input, format, lines_read: 0, bytes_read: 0, held: VecDeque::new(), held_bytes: 0 }
    }

    /// How far the input was read.
    pub fn bytes_read(&self) -> u64 {
        self.bytes_read
    }

    /// The next record that is not blank; `None` at the end.
    pub fn next(&mut self) -> io::Result<Option<Record>> {
        loop {
            let Some(line) = self.line()? else {
                return Ok(None);
            };
            if !line.is_whole {
                return Ok(Some(Record { line: line.number, text: Err(too_long()) }));
            }
            if line.is_blank(self.format) {
                continue;
            }
            return match self.format {
                Format::Jsonl => Ok(Some(whole(line.number, line.bytes))),
                Format::Csv => self.quoted(line).map(Some),
            };
        }
    }

    /// A record that may go on over several lines inside quotes.
    ///
    /// Where an open quote ends is told by each line alone, so no line is scanned again for a record that
    /// begins further down. Of the lines held, only the last can end a quote: behind it nothing is read.
    fn quoted(&mut self, first: Line) -> io::Result<Record> {
        if Quoting::FieldStart.after(&first.bytes) != Quoting::Quoted {
            return Ok(whole(first.number, first.bytes));
        }
        let why = loop {
            let last = self.held.back();
            if first.bytes.len() + self.held_bytes > RECORD_BYTES_MAX
                || self.held.len() >= RECORD_LINES_MAX
                || last.is_some_and(|last| !last.is_whole)
            {
                break format!(
                    "a quote in it does not end within {RECORD_BYTES_MAX} bytes and {RECORD_LINES_MAX} lines"
                );
            }
            if last.is_some_and(|last| last.ends_quote) {
                self.held_bytes = 0;
                let mut bytes = first.bytes;
                self.held.drain(..).for_each(|line| bytes.extend(line.bytes));
                return Ok(whole(first.number, bytes));
            }
            let Some(line) = self.read_line()? else {
                break "a quote in it never ends".to_owned();
            };
            self.held_bytes += line.bytes.len();
            self.held.push_back(line);
        };
        // Only its first line is given up: the rows behind a stray quote are rows.
        Ok(Record { line: first.number, text: Err(why) })
    }

    fn line(&mut self) -> io::Result<Option<Line>> {
        if let Some(line) = self.held.pop_front() {
            self.held_bytes -= line.bytes.len();
            return Ok(Some(line));
        }
        self.read_line()
    }

    fn read_line(&mut self) -> io::Result<Option<Line>> {
        let mut bytes = Vec::new();
        let max = RECORD_BYTES_MAX + 2; // Room for the line end.
        let read = self.input.by_ref().take(max as u64).read_until(b'\n', &mut bytes)?;
        if read == 0 {
            return Ok(None);
        }
        self.lines_read += 1;
        self.bytes_read += read as u64;
        let is_whole = read < max || bytes.ends_with(b"\n");
        if !is_whole {
            bytes = Vec::new();
            self.skip_line()?;
        }
        if self.lines_read == 1 && bytes.starts_with(BYTE_ORDER_MARK) {
            bytes.drain(..BYTE_ORDER_MARK.len());
        }
        let ends_quote = self.format == Format::Csv && Quoting::Quoted.after(&bytes) != Quoting::Quoted;
        Ok(Some(Line { number: self.lines_read, bytes, is_whole, ends_quote }))
    }

    fn skip_line(&mut self) -> io::Result<()> {
        loop {
            let buffer = self.input.fill_buf()?;
            let end = buffer.iter().position(|byte| *byte == b'\n');
            let used = end.map_or(buffer.len(), |end| end + 1);
            self.input.consume(used);
            self.bytes_read += used as u64;
            if end.is_some() || used == 0 {
                return Ok(());
            }
        }
    }
}

impl Line {
    /// Spaces may be the value of a single column; in JSON Lines they are nothing.
    fn is_blank(&self, format: Format) -> bool {
        self.bytes.iter().all(|byte| match format {
            Format::Csv => matches!(byte, b'\r' | b'\n'),
            Format::Jsonl => byte.is_ascii_whitespace(),
        })
    }
}

fn whole(line: u64, mut bytes: Vec<u8>) -> Record {
    if bytes.ends_with(b"\n") {
        bytes.pop();
        if bytes.ends_with(b"\r") {
            bytes.pop();
        }
    }
    Record { line, text: Ok(bytes) }
}

fn too_long() -> String {
    format!("it is longer than {RECORD_BYTES_MAX} bytes")
}

/// Where in a CSV record a byte stands, as far as quotes go. A quote inside a bare field is text.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Quoting {
    FieldStart,
    Bare,
    Quoted,
    /// Behind a quote that closed the field, or was the first of two.
    QuoteInQuoted,
}

impl Quoting {
    fn after(self, bytes: &[u8]) -> Self {
        bytes.iter().fold(self, |at, byte| match (at, byte) {
            (Self::FieldStart | Self::QuoteInQuoted, b'"') | (Self::Quoted, 0..b'"' | b'#'..) => Self::Quoted,
            (Self::Quoted, b'"') => Self::QuoteInQuoted,
            (_, b',') => Self::FieldStart,
            _ => Self::Bare,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(format: Format, text: &str) -> Vec<(u64, Option<String>)> {
        let mut rows = Rows::new(io::Cursor::new(text.to_owned()), format);
        let mut records = Vec::new();
        while let Some(record) = rows.next().unwrap() {
            records.push((record.line, record.text.ok().map(|bytes| String::from_utf8(bytes).unwrap())));
        }
        records
    }

    fn is(line: u64, text: &str) -> (u64, Option<String>) {
        (line, Some(text.to_owned()))
    }

    #[test]
    fn blank_lines_and_both_line_ends_keep_the_numbers_right() {
        for end in ["\n", "\r\n"] {
            let text = ["a,b", "", "1,2", "", "", "3,4"].join(end);
            assert_eq!(read(Format::Csv, &text), [is(1, "a,b"), is(3, "1,2"), is(6, "3,4")]);
            assert_eq!(read(Format::Jsonl, &text), [is(1, "a,b"), is(3, "1,2"), is(6, "3,4")]);
        }
    }

    #[test]
    fn a_quoted_field_may_span_lines_and_the_record_is_known_by_its_first() {
        let text = "a,b\n1,\"x\ny \"\"z\"\"\n,\"\n2,3\n";
        assert_eq!(read(Format::Csv, text), [is(1, "a,b"), is(2, "1,\"x\ny \"\"z\"\"\n,\""), is(5, "2,3")]);
    }

    #[test]
    fn a_quote_that_never_ends_costs_its_own_line_only() {
        let text = "a,b\n1,\"x\n2,3\n4,5\n";
        assert_eq!(read(Format::Csv, text), [is(1, "a,b"), (2, None), is(3, "2,3"), is(4, "4,5")]);
        assert_eq!(
            read(Format::Csv, "a,b\n5\" nail,1\n2,3"),
            [is(1, "a,b"), is(2, "5\" nail,1"), is(3, "2,3")]
        );
    }

    #[test]
    fn a_line_too_long_is_given_up_and_the_next_is_read() {
        let long = "x".repeat(RECORD_BYTES_MAX + 3);
        for format in [Format::Csv, Format::Jsonl] {
            assert_eq!(read(format, &format!("a\n{long}\nb")), [is(1, "a"), (2, None), is(3, "b")]);
        }
        let open = format!("a\n\"b\n{}c\n", "y,\n".repeat(RECORD_BYTES_MAX / 3));
        let records = read(Format::Csv, &open);
        assert_eq!(records[1], (2, None));
        assert_eq!(records.len(), 3 + RECORD_BYTES_MAX / 3);
    }

    #[test]
    fn a_byte_order_mark_is_no_part_of_the_first_field() {
        assert_eq!(read(Format::Csv, "\u{FEFF}a\n1"), [is(1, "a"), is(2, "1")]);
    }
}
