//! What the store promises, each promise in a module of its own.
#[cfg(feature = "cli")]
mod cli;
#[cfg(feature = "cli")]
mod kill;
mod smoke;
mod stopped;
