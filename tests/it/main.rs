//! What the store promises, each promise in a module of its own.
mod common;
mod effects;
mod fixture;
mod format;
mod many;
mod outcomes;
mod races;
mod tidy;
