//! A child and what it writes. Owns that all of it is passed on while it comes and that its beginning is
//! kept; must not know what becomes of it.

use std::io::{self, Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::os::{Courier, apart, code};

/// Bytes that are passed on at once.
const CHUNK_BYTES: usize = 64 * 1024;
/// How long output is awaited behind the end of the child: of processes that it has left behind, for what it
/// wrote itself is there.
const BEHIND: Duration = Duration::from_secs(1);

/// How a child has ended, and what is kept of what it wrote.
pub(super) struct Ended {
    pub code: u8,
    pub signal: Option<i32>,
    pub stdout: Written,
    pub stderr: Written,
}

/// What came on one stream: the beginning, and how much it was.
#[derive(Clone, Default)]
pub(super) struct Written {
    pub kept: Vec<u8>,
    pub bytes: u64,
}

/// Starts a program in the place where this one is.
pub(super) fn start(mut command: Command, input: Vec<u8>, courier: &Courier) -> io::Result<Child> {
    apart(&mut command);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command.stdin(if input.is_empty() { Stdio::null() } else { Stdio::piped() });
    let mut child = command.spawn()?;
    courier.serve(&child);
    if let Some(mut stdin) = child.stdin.take() {
        // Who does not read its input to the end is not to be waited for. Without a thread it gets an end of
        // file, and its record says what came of that.
        let _ = beside("input", move || stdin.write_all(&input));
    }
    Ok(child)
}

/// Passes on what a child writes until it has ended.
pub(super) fn follow(mut child: Child, courier: &Courier, output_max: usize) -> io::Result<Ended> {
    let tray = Arc::new(Tray::new(output_max));
    for (stream, from) in
        [child.stdout.take().map(pipe), child.stderr.take().map(pipe)].into_iter().enumerate()
    {
        let (Some(from), at_tray) = (from, Arc::clone(&tray)) else { continue };
        tray.piles.lock().open += 1;
        beside("output", move || at_tray.fill(stream, from))?;
    }
    let status = courier.wait(&mut child)?;
    let [stdout, stderr] = tray.empty();
    let (code, signal) = code(status);
    Ok(Ended { code, signal, stdout, stderr })
}

fn pipe(from: impl Read + Send + 'static) -> Box<dyn Read + Send> {
    Box::new(from)
}

#[expect(clippy::disallowed_methods, reason = "each of two pipes is read while it fills")]
fn beside<R: Send + 'static>(name: &str, what: impl FnOnce() -> R + Send + 'static) -> io::Result<()> {
    thread::Builder::new().name(name.to_owned()).spawn(what).map(drop)
}

/// Where both streams are laid down.
struct Tray {
    piles: Mutex<Piles>,
    bell: Condvar,
}

struct Piles {
    of: [Written; 2],
    /// How much more is kept.
    room: usize,
    /// Streams that have not ended.
    open: usize,
    /// Streams whose last piece is being passed on: whoever takes it may be slow.
    busy: usize,
    /// Pieces so far.
    pieces: u64,
    /// Nothing is taken any more.
    is_closed: bool,
}

impl Tray {
    fn new(room: usize) -> Self {
        let of = [Written::default(), Written::default()];
        let piles = Piles { of, room, open: 0, busy: 0, pieces: 0, is_closed: false };
        Self { piles: Mutex::new(piles), bell: Condvar::new() }
    }

    /// Passes a stream on, piece by piece, and keeps its beginning.
    fn fill(&self, stream: usize, mut from: Box<dyn Read + Send>) {
        let mut chunk = vec![0; CHUNK_BYTES];
        let mut is_heard = true;
        loop {
            let bytes = match from.read(&mut chunk) {
                Ok(0) => break,
                Ok(bytes) => bytes,
                Err(fault) if fault.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => break,
            };
            let piece = &chunk[..bytes];
            if !self.piles.lock().take(stream, piece) {
                return;
            }
            // A child that nobody listens to goes on: what it does is not to depend on that.
            is_heard = is_heard && pass_on(stream, piece).is_ok();
            self.piles.lock().busy -= 1;
            self.bell.notify_all();
        }
        self.piles.lock().open -= 1;
        self.bell.notify_all();
    }

    /// What has come when both streams have ended, or nothing came for a while.
    fn empty(&self) -> [Written; 2] {
        let mut piles = self.piles.lock();
        while piles.open > 0 {
            let pieces = piles.pieces;
            let is_late = self.bell.wait_for(&mut piles, BEHIND).timed_out();
            if is_late && piles.pieces == pieces && piles.busy == 0 {
                break;
            }
        }
        piles.is_closed = true;
        std::mem::take(&mut piles.of)
    }
}

impl Piles {
    fn take(&mut self, stream: usize, piece: &[u8]) -> bool {
        if self.is_closed {
            return false;
        }
        let kept = piece.len().min(self.room);
        self.room -= kept;
        // What comes behind a gap would be no beginning.
        if kept < piece.len() {
            self.room = 0;
        }
        let pile = &mut self.of[stream];
        pile.kept.extend_from_slice(&piece[..kept]);
        pile.bytes += piece.len() as u64;
        self.busy += 1;
        self.pieces += 1;
        true
    }
}

/// Writes to the stream of this program that has the same number.
pub(super) fn pass_on(stream: usize, piece: &[u8]) -> io::Result<()> {
    fn all(mut to: impl Write, piece: &[u8]) -> io::Result<()> {
        to.write_all(piece)?;
        to.flush()
    }
    match stream {
        0 => all(io::stdout().lock(), piece),
        _ => all(io::stderr().lock(), piece),
    }
}
