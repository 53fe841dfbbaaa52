//! Decides. Owns every rule; must not know clocks, files, locks, threads, randomness, or a map without order.

pub(crate) mod act;
pub(crate) mod audit;
pub(crate) mod authority;
pub(crate) mod case;
pub(crate) mod claim;
pub(crate) mod decide;
pub(crate) mod effect;
pub(crate) mod error;
pub(crate) mod fact;
pub(crate) mod fingerprint;
pub(crate) mod finite;
pub(crate) mod imprint;
pub(crate) mod invariants;
pub(crate) mod json;
pub(crate) mod message;
pub(crate) mod name;
pub(crate) mod outcome;
pub(crate) mod policy;
pub(crate) mod receipt;
pub(crate) mod record;
pub(crate) mod reply;
pub(crate) mod row;
pub(crate) mod text;
pub(crate) mod time;
