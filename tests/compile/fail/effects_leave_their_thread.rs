//! refused: E0277

use onecho::{Outcome, Request, Store};

fn run(store: &Store, request: &Request) {
    let _ = store.execute(request, |fx| {
        std::thread::scope(|scope| {
            scope.spawn(|| fx.new_id());
        });
        Ok(Outcome::succeeded(200))
    });
}

fn main() {}
