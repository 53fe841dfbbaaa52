//! refused: E0308

use onecho::{Key, Operation, Request, Tenant};

fn main() {
    let _ = Request::new(&Operation::new("pay"), &Tenant::new("shop"), &Key::random());
}
