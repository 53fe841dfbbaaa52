//! What is recorded of a run, and what a second one is shown of it. Owns the names of its metadata; must not
//! know how a program runs.

use super::child::{Ended, Written, pass_on};
use crate::cli::exit::say;
use crate::{Body, Bytes, Finished, Outcome};

/// Says that `run` has recorded it, and not somebody who found out.
const RUN: &str = "onecho-run";
/// What was kept of standard error; the body is what was kept of standard output.
const STDERR: &str = "stderr";
/// The signal that killed it.
const SIGNAL: &str = "signal";
/// How much it wrote in all, where that was not kept in whole.
const STDOUT_BYTES: &str = "stdout-bytes";
const STDERR_BYTES: &str = "stderr-bytes";
/// Room for names and numbers beside the output.
pub(super) const META_BYTES: usize = 1024;

/// What is recorded of a program that has ended. A code that is not 0 is an outcome like any other.
pub(super) fn outcome(ended: &Ended) -> Outcome {
    let code = u16::from(ended.code);
    let mut outcome = if code == 0 { Outcome::succeeded(code) } else { Outcome::failed(code) };
    outcome = outcome.meta(RUN, "1").body(Bytes::copy_from_slice(&ended.stdout.kept));
    outcome = outcome.meta(STDERR, &ended.stderr.kept);
    if let Some(signal) = ended.signal {
        outcome = outcome.meta(SIGNAL, signal.to_string());
    }
    for (name, written) in [(STDOUT_BYTES, &ended.stdout), (STDERR_BYTES, &ended.stderr)] {
        if !is_whole(written) {
            outcome = outcome.meta(name, written.bytes.to_string());
        }
    }
    outcome
}

fn is_whole(written: &Written) -> bool {
    written.bytes == written.kept.len() as u64
}

/// Shows a second run what the first one wrote, says that this is a replay, and gives its exit code.
pub(super) fn replay(key: &str, finished: &Finished) -> u8 {
    let code = exit_code(finished);
    let ended = match text(finished, SIGNAL) {
        Some(signal) => format!("was killed by signal {signal}"),
        None => format!("ended with exit code {code}"),
    };
    let how = match finished.meta(RUN) {
        Some(_) => format!("ran before and {ended}"),
        None => format!("was decided before, as {}", outcome_of(finished)),
    };
    say(&format!("onecho: replay: {key} {how}; nothing was run"));
    let stderr = finished.meta(STDERR).unwrap_or_default();
    match &finished.body {
        Body::Present(stdout) => {
            tell_cut("standard output", stdout.len(), text(finished, STDOUT_BYTES));
            tell_cut("standard error", stderr.len(), text(finished, STDERR_BYTES));
            // Nobody may be listening.
            let _ = pass_on(0, stdout);
        }
        Body::Trimmed { len, .. } | Body::NotKept { len, .. } => {
            say(&format!("onecho: replay: its standard output, {len} bytes, is not kept any more"));
        }
    }
    let _ = pass_on(1, stderr);
    code
}

fn tell_cut(stream: &str, kept: usize, all: Option<&str>) {
    if let Some(all) = all {
        say(&format!("onecho: replay: only the first {kept} of {all} bytes of its {stream} were kept"));
    }
}

/// What somebody decided may have a code that no program can exit with.
fn exit_code(finished: &Finished) -> u8 {
    match (finished.failed, u8::try_from(finished.code)) {
        (false, _) => 0,
        (true, Ok(code)) if code > 0 => code,
        (true, _) => 1,
    }
}

fn outcome_of(finished: &Finished) -> String {
    let how = if finished.failed { "failed" } else { "succeeded" };
    format!("{how}({})", finished.code)
}

fn text<'f>(finished: &'f Finished, name: &str) -> Option<&'f str> {
    finished.meta(name).and_then(|value| str::from_utf8(value).ok())
}
