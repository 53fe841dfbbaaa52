//! refused: unused `Begin` that must be used

#![deny(unused_must_use)]
use onecho::{BoxError, Request, Start, Store};

fn run(store: &Store, request: &Request) -> Result<(), BoxError> {
    store.begin(request, Start::new())?;
    Ok(())
}

fn main() {}
