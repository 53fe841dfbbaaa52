//! What the store promises, each promise in a module of its own.
mod classes;
mod common;
mod crash;
mod crash_mistakes;
mod crash_model;
mod crash_plan;
mod disk_faults;
mod effects;
mod many;
mod outcomes;
mod races;
mod tidy;
