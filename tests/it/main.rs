//! What the store promises, each promise in a module of its own.
mod common;
mod races;
mod effects;
mod many;
mod outcomes;
mod clock;
mod expiry;
mod fingerprints;
mod keys;
mod errors;
mod limits;
mod waiting;
mod properties;
