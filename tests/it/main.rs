//! What the store promises, each promise in a module of its own.
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
