//! The least that can be torn, and the least that can be full.

pub(super) const RECORD_WORDS: usize = 2;

pub(super) const SET_SLOTS: usize = 2;
