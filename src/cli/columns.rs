//! From a record to a row: its key, its id and its JSON. Owns the meaning of columns; must not know where
//! records come from.

use std::io;

use serde::ser::{SerializeMap, Serializer};

use super::args::{Format, Ingest};
use super::exit::{Failure, input_name};
use super::members;
use super::rows::{Record, Rows};
use crate::{Bytes, Key};

/// One row, ready to be asked.
pub(super) struct Row {
    pub key: Key,
    pub id: String,
    /// The row as JSON: made of the columns (CSV), or the line's own bytes (JSON Lines).
    pub value: Bytes,
}

/// How the records of one input are read.
pub(super) struct Columns {
    format: Format,
    /// Names of the columns; empty for JSON Lines.
    header: Vec<String>,
    /// `None`: rows are keyed by their lines.
    key: Option<Column>,
    /// `None`: the id is the key.
    id: Option<Column>,
}

/// A column by its name, and by its place where a header says it.
struct Column {
    name: String,
    place: usize,
}

impl Columns {
    /// Reads the header, where the format has one, and finds the columns that the arguments name.
    pub fn of(rows: &mut Rows, format: Format, args: &Ingest) -> Result<Self, Failure> {
        let header = match format {
            Format::Csv => header(rows, args)?,
            Format::Jsonl => Vec::new(),
        };
        let column = |name: &String| -> Result<Column, Failure> {
            let place = match format {
                Format::Jsonl => Some(0),
                Format::Csv => header.iter().position(|known| known == name),
            };
            let missing = || {
                let text = format!(
                    "{} has no column {name:?}; its columns are {}",
                    input_name(&args.input),
                    header.join(", ")
                );
                Failure::usage(text)
            };
            Ok(Column { name: name.clone(), place: place.ok_or_else(missing)? })
        };
        let key = args.key.as_ref().map(column).transpose()?;
        let id = args.id.as_ref().map(column).transpose()?;
        Ok(Self { format, header, key, id })
    }

    /// The row of a record, or what is bad about it.
    pub fn row(&self, line: u64, text: &[u8]) -> Result<Row, String> {
        let (value, found) = match self.format {
            Format::Csv => self.of_csv(text)?,
            Format::Jsonl => (Bytes::copy_from_slice(text), self.of_json(text)?),
        };
        let mut found = found.into_iter();
        let key = match self.key {
            Some(_) => found.next().unwrap_or_default(),
            None => format!("line-{line}"),
        };
        let id = found.next().unwrap_or_else(|| key.clone());
        let key = Key::parse(&key).map_err(|fault| fault.to_string())?;
        Ok(Row { key, id, value })
    }

    fn wanted(&self) -> impl Iterator<Item = &Column> {
        self.key.iter().chain(&self.id)
    }

    fn of_csv(&self, text: &[u8]) -> Result<(Bytes, Vec<String>), String> {
        let fields = fields(text)?;
        if fields.len() != self.header.len() {
            return Err(format!("it has {} fields, the header has {}", fields.len(), self.header.len()));
        }
        let mut value = Vec::with_capacity(2 * text.len() + 64);
        write_object(&mut value, &self.header, &fields).map_err(|fault| fault.to_string())?;
        let found = self.wanted().map(|column| fields[column.place].to_owned()).collect();
        Ok((value.into(), found))
    }

    fn of_json(&self, text: &[u8]) -> Result<Vec<String>, String> {
        let text = str::from_utf8(text).map_err(|_| "it is not UTF-8".to_owned())?;
        let names: Vec<&str> = self.wanted().map(|column| column.name.as_str()).collect();
        if names.is_empty() {
            return members::check(text).map(|()| Vec::new());
        }
        members::pick(text, &names)
    }
}

fn header(rows: &mut Rows, args: &Ingest) -> Result<Vec<String>, Failure> {
    let name = input_name(&args.input);
    let record = rows.next().map_err(|fault| Failure::usage(format!("{name} cannot be read: {fault}")))?;
    let Some(Record { text, .. }) = record else {
        return Err(Failure::usage(format!(
            "{name} is empty: a CSV file begins with the names of its columns"
        )));
    };
    let header = text.and_then(|text| Ok(fields(&text)?.iter().map(str::to_owned).collect::<Vec<_>>()));
    let header = header.map_err(|why| Failure::usage(format!("the header of {name} is bad: {why}")))?;
    for (place, column) in header.iter().enumerate() {
        // A file whose lines end in CR alone is one long header, and no row of it would ever run.
        if column.contains(char::is_control) {
            let place = place + 1;
            return Err(Failure::usage(format!(
                "the header of {name} holds a control character in its column {place}; lines end in LF or \
                 CRLF (not in CR alone), and fields are parted by commas"
            )));
        }
        if header[..place].contains(column) {
            return Err(Failure::usage(format!("the header of {name} has the column {column:?} twice")));
        }
    }
    Ok(header)
}

/// The fields of one CSV record.
fn fields(text: &[u8]) -> Result<csv::StringRecord, String> {
    let mut reader = csv::ReaderBuilder::new()
        .has_headers(false)
        .flexible(true)
        // Line ends were found already; what is left of them is text inside quotes.
        .terminator(csv::Terminator::Any(b'\n'))
        .buffer_capacity(text.len().max(1))
        .from_reader(text);
    let mut record = csv::StringRecord::new();
    match reader.read_record(&mut record) {
        Ok(_) => Ok(record),
        Err(fault) if matches!(fault.kind(), csv::ErrorKind::Utf8 { .. }) => {
            Err("it is not UTF-8".to_owned())
        }
        Err(fault) => Err(fault.to_string()),
    }
}

/// An object with the columns in the header's order, each as text: what a number or a date means is not
/// this program's to say.
fn write_object(to: &mut Vec<u8>, header: &[String], fields: &csv::StringRecord) -> io::Result<()> {
    let mut json = serde_json::Serializer::new(to);
    let mut object = json.serialize_map(Some(header.len()))?;
    for (name, field) in header.iter().zip(fields) {
        object.serialize_entry(name, field)?;
    }
    Ok(object.end()?)
}
