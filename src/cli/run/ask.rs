//! What is asked: the command, the environment that counts, and standard input. Owns which of it makes
//! another request, and that a child gets the very bytes that were compared.

use std::ffi::OsStr;
use std::io::{self, IsTerminal, Read};

use crate::cli::exit::Failure;
use crate::cli::work::Run;
use crate::{Key, Operation, Request, Tenant};

/// The longest standard input, which is kept in memory until the child has it.
const INPUT_BYTES_MAX: u64 = 64 << 20;

/// All of standard input. A terminal is not asked: what somebody types would be another request each time.
pub(super) fn input(args: &Run) -> Result<Vec<u8>, Failure> {
    if args.no_stdin || io::stdin().is_terminal() {
        return Ok(Vec::new());
    }
    let mut input = Vec::new();
    let read = io::stdin().lock().take(INPUT_BYTES_MAX + 1).read_to_end(&mut input);
    read.map_err(|fault| Failure::usage(format!("standard input cannot be read: {fault}")))?;
    if input.len() as u64 > INPUT_BYTES_MAX {
        return Err(Failure::usage(format!(
            "standard input has more than {INPUT_BYTES_MAX} bytes; give COMMAND the name of a file, and \
             `--no-stdin` to `run`"
        )));
    }
    Ok(input)
}

pub(super) fn request(args: &Run, input: &[u8]) -> Result<Request, Failure> {
    let tenant = Tenant::parse(&args.tenant).map_err(Failure::usage)?;
    let operation = Operation::parse(&args.operation).map_err(Failure::usage)?;
    let key = Key::parse(&args.key).map_err(Failure::usage)?;
    Ok(Request::new(&tenant, &operation, &key)
        .bytes("command", command(args))
        .bytes("environment", environment(args)?)
        .bytes("stdin", input))
}

/// Each word behind its length, so that no two commands are written alike.
fn command(args: &Run) -> Vec<u8> {
    let mut bytes = Vec::new();
    for word in &args.command {
        put(&mut bytes, word);
    }
    bytes
}

/// In the order of names: in which order they were given says nothing. One that is not set differs from an
/// empty one.
fn environment(args: &Run) -> Result<Vec<u8>, Failure> {
    let mut names: Vec<&str> = args.env.iter().map(String::as_str).collect();
    names.sort_unstable();
    names.dedup();
    let mut bytes = Vec::new();
    for name in names {
        if name.is_empty() || name.contains(['=', '\0']) {
            return Err(Failure::usage(format!(
                "{name:?} is no name of a variable; `--env` takes the name alone"
            )));
        }
        put(&mut bytes, OsStr::new(name));
        match std::env::var_os(name) {
            Some(value) => {
                bytes.push(1);
                put(&mut bytes, &value);
            }
            None => bytes.push(0),
        }
    }
    Ok(bytes)
}

fn put(to: &mut Vec<u8>, word: &OsStr) {
    let word = word.as_encoded_bytes();
    to.extend((word.len() as u64).to_le_bytes());
    to.extend(word);
}
