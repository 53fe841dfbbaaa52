//! refused: unused `onecho::Reply` that must be used

#![deny(unused_must_use)]
use onecho::{BoxError, Outcome, Request, Store};

fn run(store: &Store, request: &Request) -> Result<(), BoxError> {
    store.execute(request, |_| Ok(Outcome::succeeded(200)))?;
    Ok(())
}

fn main() {}
