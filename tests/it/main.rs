//! What the store promises, each promise in a module of its own.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_macros,
    reason = "tests start threads and print what they did"
)]
#![allow(clippy::pedantic, clippy::type_complexity, reason = "tests are read for their promise")]

mod authority;
mod authority_crash;
mod claims;
mod claims_crash;
mod claims_late;
mod classes;
#[cfg(feature = "cli")]
mod cli;
mod clock;
mod common;
mod compile;
mod crash;
mod crash_mistakes;
mod crash_model;
mod crash_plan;
mod damaged;
#[cfg(feature = "cli")]
mod decide;
mod disk_faults;
mod effects;
mod errors;
mod expiry;
mod fingerprints;
mod fixture;
mod format;
mod fuzzed;
mod handles;
mod inbox;
mod keys;
#[cfg(feature = "cli")]
mod kill;
mod late;
mod limits;
mod many;
mod outbox;
mod outcomes;
mod properties;
mod races;
mod recovery;
mod regions;
mod replays;
#[cfg(all(feature = "cli", unix))]
mod run;
#[cfg(all(feature = "cli", target_os = "linux"))]
mod run_kill;
mod stopped;
mod tidy;
mod waiting;
mod webhooks;
mod workers;
