//! Where answers go: the output file of an ingest, and standard output. Owns what happens to lines that are
//! there already.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::exit::{Exit, Failure};

/// How each line of an output begins, whole or cut.
const LINE_START: &[u8] = b"{\"line\":";
/// The longest tail of a file that is looked at for the start of its last line.
const TAIL_BYTES_MAX: u64 = 64 * 1024;

/// The output of an ingest: one JSON line a row.
pub(super) struct Output {
    file: File,
    path: PathBuf,
}

impl Output {
    /// Opens an output that does not exist or is empty; with `append` also one that a run before has left.
    pub fn open(path: &Path, append: bool) -> Result<Self, Failure> {
        let failed = |fault: io::Error| Failure::file(path, "cannot be opened", &fault);
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .map_err(failed)?;
        let found = file.metadata().map_err(failed)?;
        if found.is_file() && found.len() > 0 {
            if !append {
                let text = format!(
                    "{} exists; name another output, remove it, or go on at its end with `--append`",
                    path.display()
                );
                return Err(Failure::usage(text));
            }
            let end = end_of_lines(&mut file, found.len()).map_err(failed)?;
            let Some(end) = end else {
                let text = format!("{} is no output of `ingest`; it was left as it is", path.display());
                return Err(Failure::usage(text));
            };
            // A line that was cut by a kill is written again, whole, when its row is replayed.
            file.set_len(end).and_then(|()| file.seek(SeekFrom::End(0))).map_err(failed)?;
        }
        Ok(Self { file, path: path.to_owned() })
    }

    /// Hands one line to the operating system, whole.
    pub fn write(&mut self, line: &impl Serialize) -> Result<(), Failure> {
        let mut text = json(line);
        text.push('\n');
        self.file.write_all(text.as_bytes()).map_err(|fault| self.failed(&fault))
    }

    fn failed(&self, fault: &io::Error) -> Failure {
        let next = "the rows that are done are safe; run the same command with `--append` to go on";
        Failure::new(
            Exit::InputOutput,
            format!("{}: cannot be written: {fault}; {next}", self.path.display()),
        )
    }
}

/// Where the last whole line of an output ends; `None` if the file is something else.
fn end_of_lines(file: &mut File, len: u64) -> io::Result<Option<u64>> {
    let mut start = [0; LINE_START.len()];
    let start_bytes = start.len().min(usize::try_from(len).unwrap_or(usize::MAX));
    file.read_exact(&mut start[..start_bytes])?;
    if start[..start_bytes] != LINE_START[..start_bytes] {
        return Ok(None);
    }
    let tail_bytes = len.min(TAIL_BYTES_MAX);
    file.seek(SeekFrom::Start(len - tail_bytes))?;
    let mut tail = Vec::new();
    file.take(tail_bytes).read_to_end(&mut tail)?;
    let cut = match tail.iter().rposition(|byte| *byte == b'\n') {
        Some(end) => &tail[end + 1..],
        None if tail_bytes == len => &tail,
        None => return Ok(None),
    };
    let shown = cut.len().min(LINE_START.len());
    Ok((cut[..shown] == LINE_START[..shown]).then_some(len - cut.len() as u64))
}

/// A value as one line of JSON. What is told here is made of texts and numbers, which can always be written.
pub(super) fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

/// One line on standard output. `false` when nobody reads on, which ends a list and is no fault.
pub(super) fn print(line: &str) -> Result<bool, Failure> {
    print_bytes(line.as_bytes())
}

/// As [`print`], of bytes that need not be text.
pub(super) fn print_bytes(line: &[u8]) -> Result<bool, Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(line).and_then(|()| out.write_all(b"\n")).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(fault) if fault.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(fault) => Err(Failure::file(Path::new("standard output"), "cannot be written", &fault)),
    }
}
