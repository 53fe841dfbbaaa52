//! refused: E0507

use onecho::{Outcome, Request, Store};

fn run(store: &Store, request: &Request, text: String) {
    let _ = store.execute(request, move |_| Ok(Outcome::succeeded(200).body(text)));
}

fn main() {}
