//! Nothing: what every Rust program weighs.

fn main() {}
