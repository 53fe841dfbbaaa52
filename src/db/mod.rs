//! Our schema on redb: bytes and transactions. Owns every name of the storage engine; must not know rules,
//! clocks or threads.

pub(crate) mod block;
#[cfg(test)]
mod block_tests;
pub(crate) mod codec;
pub(crate) mod commit;
pub(crate) mod database;
pub(crate) mod disk;
mod dry_run;
pub(crate) mod envelope;
pub(crate) mod fault;
pub(crate) mod file_disk;
mod filter;
mod found;
#[cfg(test)]
mod golden_tests;
pub(crate) mod history;
pub(crate) mod index;
#[cfg(test)]
mod index_tests;
mod late;
#[cfg(test)]
#[cfg(feature = "testing")]
mod late_tests;
pub(crate) mod learn;
pub(crate) mod open;
#[cfg(feature = "testing")]
pub(crate) mod sim_disk;
pub(crate) mod stored;
pub(crate) mod stream;
mod tables;
pub(crate) mod verify;
