//! The contenders, one a file. Each owns how its store is set up and called, as its documentation recommends
//! for durable writes; none knows what is measured.

pub mod fjall;
pub mod lmdb;
pub mod maps;
pub mod ours;
pub mod redb;
#[cfg(feature = "rocksdb")]
pub mod rocks;
pub mod sqlite;
