//! What the store promises, each promise in a module of its own.
mod classes;
mod common;
mod effects;
mod many;
mod outcomes;
mod races;
mod tidy;
