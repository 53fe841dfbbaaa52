//! refused: E0080

use onecho::{Kind, Operation, Tenant};

const NOBODY: Tenant = Tenant::new("");
const NOTHING: Operation = Operation::new("");
const NO_KIND: Kind<String> = Kind::json("");
const LINES: Tenant = Tenant::new("two\nlines");
const SEPARATED: Tenant = Tenant::new("a\u{2028}b");
const CONTROLLED: Tenant = Tenant::new("a\u{85}b");

fn main() {
    let _ = (NOBODY, NOTHING, NO_KIND, LINES, SEPARATED, CONTROLLED);
}
