//! What the store promises, each promise in a module of its own.
mod common;
mod damaged;
mod effects;
mod fixture;
mod format;
mod fuzzed;
mod many;
mod outcomes;
mod races;
mod tidy;
