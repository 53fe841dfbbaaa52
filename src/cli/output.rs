//! Where answers go: the output file of an ingest, and standard output. Owns what happens to lines that are
//! there already.

use std::fs::{self, File, OpenOptions};
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
    to: Box<dyn Write + Send>,
    path: PathBuf,
}

impl Output {
    /// Finds out what would be wrong with an output, and makes and changes nothing.
    pub fn check(path: &Path, append: bool) -> Result<(), Failure> {
        if is_stdout(path) {
            return Ok(());
        }
        match OpenOptions::new().read(true).write(true).open(path) {
            Ok(mut file) => kept_bytes(&mut file, path, append).map(|_| ()),
            Err(fault) if fault.kind() == ErrorKind::NotFound => {
                fs::metadata(directory(path)).map(|_| ()).map_err(|fault| unopened(path, &fault))
            }
            Err(fault) => Err(unopened(path, &fault)),
        }
    }

    /// Opens an output that does not exist or is empty; with `append` also one that a run before has left.
    pub fn open(path: &Path, append: bool) -> Result<Self, Failure> {
        if is_stdout(path) {
            return Ok(Self { to: Box::new(io::stdout()), path: path.to_owned() });
        }
        let failed = |fault: io::Error| unopened(path, &fault);
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .map_err(failed)?;
        if let Some(bytes) = kept_bytes(&mut file, path, append)? {
            // A line that was cut by a kill is written again, whole, when its row is replayed.
            file.set_len(bytes).and_then(|()| file.seek(SeekFrom::End(0))).map_err(failed)?;
        }
        Ok(Self { to: Box::new(file), path: path.to_owned() })
    }

    /// Hands one line to the operating system, whole.
    pub fn write(&mut self, line: &impl Serialize) -> Result<(), Failure> {
        let mut text = json(line);
        text.push('\n');
        self.to.write_all(text.as_bytes()).map_err(|fault| self.failed(&fault))
    }

    fn failed(&self, fault: &io::Error) -> Failure {
        let (name, next) = if is_stdout(&self.path) {
            ("standard output".to_owned(), "to go on")
        } else {
            (self.path.display().to_string(), "with `--append` to go on")
        };
        let text = format!(
            "{name}: cannot be written: {fault}; the rows that are done are safe; run the same command {next}"
        );
        Failure::new(Exit::InputOutput, text)
    }
}

pub(super) fn is_stdout(path: &Path) -> bool {
    path == Path::new("-")
}

/// Whether two paths are one file, or would be if it were made.
pub(super) fn is_same(one: &Path, other: &Path) -> bool {
    let place = |path: &Path| {
        let made = || Some(directory(path).canonicalize().ok()?.join(path.file_name()?));
        path.canonicalize().ok().or_else(made)
    };
    one == other || place(one).is_some_and(|one| place(other) == Some(one))
}

fn directory(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn unopened(path: &Path, fault: &io::Error) -> Failure {
    Failure::usage(format!("{}: cannot be opened: {fault}", path.display()))
}

/// How much of an output is kept: its whole lines. `None` if there is nothing, or no end to go on at.
fn kept_bytes(file: &mut File, path: &Path, append: bool) -> Result<Option<u64>, Failure> {
    let failed = |fault: io::Error| unopened(path, &fault);
    let found = file.metadata().map_err(failed)?;
    if !found.is_file() || found.len() == 0 {
        return Ok(None);
    }
    let name = path.display();
    if !append {
        return Err(Failure::usage(format!(
            "{name} exists; name another output, remove it, or go on at its end with `--append`"
        )));
    }
    match end_of_lines(file, found.len()).map_err(failed)? {
        Some(end) => Ok(Some(end)),
        None => Err(Failure::usage(format!("{name} is no output of `ingest`; it was left as it is"))),
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
