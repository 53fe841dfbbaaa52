//! What the store promises, each promise in a module of its own.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]
#![allow(clippy::disallowed_methods, clippy::disallowed_macros, reason = "tests start threads and print what they did")]
#![allow(clippy::pedantic, reason = "tests are read for their promise")]

mod clock;
mod common;
mod effects;
mod errors;
mod expiry;
mod fingerprints;
mod keys;
mod limits;
mod many;
mod outcomes;
mod properties;
mod races;
mod waiting;
