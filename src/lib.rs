//! An embedded store that makes a command run once and answers every retry with the same result.
//!
//! A client sends "create order", the service commits, the line drops, the client sends it again under the
//! same key: it must get the first answer, never a second order. onecho keeps one record per command, and the
//! effects of the command, in one file, committed together. A service on an edge box or a device links it in;
//! there is no server.
//!
//! ```
//! use onecho::{BoxError, Key, Kind, Operation, Options, Outcome, Reply, Request, Store, Tenant};
//!
//! const CREATE_ORDER: Operation = Operation::new("create-order");
//! const ORDERS: Kind<String> = Kind::json("order");
//!
//! # fn main() -> Result<(), BoxError> {
//! # let directory = tempfile::tempdir()?;
//! # let path = directory.path().join("orders.onecho");
//! let store = Store::open_or_create(path, Options::new())?;
//! let tenant = Tenant::new("shop");
//! let key = Key::parse("k-7f3a")?; // the client's, the same over all its retries
//! let request = Request::new(&tenant, &CREATE_ORDER, &key).json("body", r#"{ "cents": 1200 }"#);
//!
//! let create = |fx: &mut onecho::Effects| {
//!     let id = fx.new_id();
//!     let order = fx.create(&ORDERS, &id, &"twelve euros".to_owned())?;
//!     fx.unique("cart", "c-17", &order)?; // a second protection, which outlives the key
//!     Ok(Outcome::succeeded(201).json(&id)?.resource(&order))
//! };
//! let first = store.execute(&request, create)?; // Done: record and order are on the disk
//! let retry = store.execute(&request, create)?; // Replay: the same answer, nothing runs
//! assert!(matches!(first, Reply::Done(_)) && retry.is_replay());
//! # store.close()?;
//! # Ok(())
//! # }
//! ```
//!
//! # Guarantees
//!
//! - **At most one successful set of effects per key**, whatever crashes, races or clocks do. Record, effects
//!   and journal entry of a command are in one durable commit: all there, or none.
//! - **Accepted exactly once**: a reply that says done was sent after that commit. A retry within the key's
//!   window gets the recorded outcome byte for byte.
//! - Another request under a used key never runs and never sees the first one's outcome. Another tenant sees
//!   nothing.
//! - Of many callers of one key, on any threads, one takes effect; the others wait for it or are told that it
//!   runs.
//! - **Never twice in silence**: a call outside that was declared as a [`Step`], may have been made and is
//!   not idempotent is not made again until somebody has found out what became of it.
//! - A damaged, foreign or newer file is an error, never an empty store.
//!
//! # Limits
//!
//! - It is not "exactly once everywhere". Closures may run again before anything is written, and must not
//!   reach outside: work that does is begun with [`Store::begin`] and declares its calls, and what nobody
//!   knows is said to be `Unknown`.
//! - One process has the file at a time; one writer commits at a time. Reads go on beside it.
//! - A key is remembered for its window ([`Policy::key_window`]), as expired for ever by default.
//! - A file above [`Options::check_at_open_max`] is checked in the background after it is opened: until that
//!   is over ([`Stats::checked`]) damage may make a key look absent.
//! - A disk that says "synced" and is not, and several bits of damage that a 32-bit checksum misses, are out
//!   of reach.
//!
//! # Features
//!
//! | feature | adds |
//! | --- | --- |
//! | none (default) | the library |
//! | `cli` | the program `onecho`: ingest and run; look at what is stored; decide what nobody knows |
//! | `testing` | `testing`: a clock and a disk in a test's hands, crash tests of your own code |
//!
//! Features add names and never change behaviour.
//!
//! # Map
//!
//! [`Store`] runs [`Request`]s; their closures stage [`Effects`] and say an [`Outcome`]; callers match on a
//! [`Reply`], and an [`Error`] says what is wrong with the call, the file or the disk. A [`Claim`] runs what
//! reaches outside, [`Step`] by step; a [`Case`] is what nobody knows; [`Workers`] find out, and deliver
//! [`Message`]s. [`Options`] and [`Policy`] hold every limit. The repository's `docs/` has guides, the
//! architecture, the invariants, the file format and how it is tested.

mod authority;
mod case;
mod claim;
#[cfg(feature = "cli")]
#[doc(hidden)]
pub mod cli;
mod core;
mod db;
mod effects;
mod engine;
#[cfg(feature = "testing")]
#[doc(hidden)]
pub mod fuzzing;
mod inbox;
mod kind;
mod listing;
mod message;
mod message_record;
mod names;
mod operators;
mod options;
mod outbox;
pub mod placement;
mod replay;
mod request;
mod resource;
mod stats;
mod step;
mod store;
#[cfg(feature = "testing")]
pub mod testing;
mod workers;

pub use bytes::Bytes;

pub use crate::authority::{HandOver, Import, Moved};
pub use crate::case::{Conclusion, Resolution, Verdict};
pub use crate::claim::{Begin, Claim, KeepAlive, Unfinished};
pub use crate::core::case::{Case, CaseStep};
pub use crate::core::claim::{Contract, OperationId};
pub use crate::core::error::{BoxError, Error, ErrorKind, Ran};
pub use crate::core::fact::Evidence;
pub use crate::core::fingerprint::Compare;
pub use crate::core::message::{MessageId, MessageState, OnDead, Settle};
pub use crate::core::name::{Key, Operation, Scope, ScopeMode, Tenant};
pub use crate::core::outcome::{Body, Digest, Finished, Outcome, ResourceRef};
pub use crate::core::policy::{AfterExpiry, Policy, Takeover, WhileRunning};
pub use crate::core::receipt::Receipt;
pub use crate::core::reply::{Advice, Refused, Reply, Status};
pub use crate::core::text::Text;
pub use crate::core::time::Timestamp;
pub use crate::db::commit::CommitMode;
pub use crate::db::verify::VerifyReport;
pub use crate::effects::Effects;
pub use crate::engine::clock::Clock;
pub use crate::engine::settings::Authority;
pub use crate::inbox::{Event, Inbox};
pub use crate::kind::Kind;
pub use crate::listing::BlockedKey;
pub use crate::message::{Delivered, Delivery, Destination, Message};
pub use crate::message_record::{EventOrigin, MessageRecord};
pub use crate::operators::Transition;
pub use crate::options::Options;
pub use crate::replay::{OutcomeRef, ReplayBuffer};
pub use crate::request::Request;
pub use crate::resource::{Resource, Scan, Scanned};
pub use crate::stats::Stats;
pub use crate::step::{Start, Step, Stepped};
pub use crate::store::Store;
pub use crate::workers::{Health, Running, Ticked, Workers};
