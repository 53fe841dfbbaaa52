//! refused: E0594

use onecho::{Outcome, Request, Store};

fn run(store: &Store, request: &Request) -> u32 {
    let mut runs = 0;
    let _ = store.execute(request, |_| {
        runs += 1;
        Ok(Outcome::succeeded(200))
    });
    runs
}

fn main() {}
