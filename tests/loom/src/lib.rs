//! Every interleaving, and every outcome that the memory model allows, of small cases of the replay index.
//!
//! The files of the index are taken as they are; `sync` and `shape` are this package's own: the atomics and
//! the lock are loom's, a record has two words and a set two slots. `sync` can also weaken each ordering by
//! its name, and `models` shows that each one is missed.
//!
//! ```text
//! cargo test --release --manifest-path tests/loom/Cargo.toml
//! ```

#![allow(dead_code, reason = "the models use what they need")]

mod shape;
#[path = "../../../src/engine/replay_index/slot.rs"]
mod slot;
mod sync;
#[path = "../../../src/engine/replay_index/table.rs"]
mod table;

#[cfg(test)]
mod models;
