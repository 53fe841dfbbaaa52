//! How large the table's parts are. The model has smaller ones (`tests/loom`).

/// Words of one record. With the header of the slot they fill 15 cache lines: an odd number, so that the
/// first lines of all slots spread over all sets of a processor's cache.
pub(super) const RECORD_WORDS: usize = 15 * 8 - 4;

/// The slots in which a scope may be found: their tags fill one cache line.
pub(super) const SET_SLOTS: usize = 8;
