//! onecho makes a command run once and answers every retry with the same result.

#[cfg(feature = "cli")]
#[doc(hidden)]
pub mod cli;
mod core;
mod db;
mod effects;
mod engine;
mod kind;
mod names;
mod options;
mod request;
mod resource;
mod stats;
mod store;
#[cfg(feature = "testing")]
pub mod testing;

pub use bytes::Bytes;

pub use crate::core::error::{BoxError, Error, ErrorKind, Ran};
pub use crate::core::fingerprint::Compare;
pub use crate::core::name::{Key, Operation, Scope, ScopeMode, Tenant};
pub use crate::core::outcome::{Body, Digest, Finished, Outcome, ResourceRef};
pub use crate::core::policy::{AfterExpiry, Policy, WhileRunning};
pub use crate::core::reply::{Advice, Refused, Reply, Status};
pub use crate::core::time::Timestamp;
pub use crate::db::database::CommitMode;
pub use crate::db::verify::VerifyReport;
pub use crate::effects::Effects;
pub use crate::engine::clock::Clock;
pub use crate::engine::settings::Authority;
pub use crate::kind::Kind;
pub use crate::options::Options;
pub use crate::request::Request;
pub use crate::resource::{Resource, Scan};
pub use crate::stats::Stats;
pub use crate::store::Store;
