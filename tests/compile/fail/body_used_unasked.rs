//! refused: E0308

use onecho::{Bytes, Finished};

fn send(finished: Finished) -> Bytes {
    finished.body
}

fn main() {}
