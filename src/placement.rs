//! Which store could decide about what: a proposal by hashing. Owns the arithmetic; must not know any
//! store, for what a store's file says decides.
//!
//! ```
//! use onecho::placement::rendezvous;
//! let stores = ["north", "south", "west"];
//! let home = rendezvous("shop", &stores);
//! assert_eq!(rendezvous("shop", &["west", home, "south"]), home); // whatever the order
//! ```

use sha2::{Digest as _, Sha256};

/// Proposes a store for a unit of authority, such as a tenant's name: the one with the highest digest of
/// store and unit. Every caller with the same list proposes the same one, without asking anybody; when a
/// store joins or leaves, only the units that it wins or loses change their place, one of n of all.
///
/// It **only proposes**. Who decides about a tenant is in the stores' files: a new list moves nothing until
/// [`Store::hand_over`](crate::Store::hand_over), [`export`](crate::Store::export) and
/// [`import`](crate::Store::import) have moved it, and a caller with another list is refused, not obeyed.
///
/// The score is SHA-256 over `onecho placement 1`, then the store's name and the unit's, each behind its
/// length in bytes as 64 bits, big-endian; scores are compared byte by byte, and the greater name wins
/// among equal ones. It never changes. An empty list gives an empty name.
#[must_use]
pub fn rendezvous<'s>(unit: &str, stores: &[&'s str]) -> &'s str {
    let scored = stores.iter().map(|store| (score(unit, store), *store));
    scored.max().map_or("", |(_, store)| store)
}

fn score(unit: &str, store: &str) -> [u8; 32] {
    let mut hash = Sha256::new_with_prefix(b"onecho placement 1");
    for name in [store, unit] {
        hash.update((name.len() as u64).to_be_bytes());
        hash.update(name.as_bytes());
    }
    hash.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNITS: usize = 30_000;

    fn units() -> impl Iterator<Item = String> {
        (0..UNITS).map(|number| format!("tenant-{number}"))
    }

    #[test]
    fn units_are_spread_evenly() {
        let stores = ["north", "south", "west", "east", "middle"];
        for store in stores {
            let share = units().filter(|unit| rendezvous(unit, &stores) == store).count();
            let even = UNITS / stores.len();
            // Six standard deviations of a fair draw are 416.
            assert!(share.abs_diff(even) < 416, "{store} has {share} of {UNITS}");
        }
    }

    #[test]
    fn a_store_that_joins_or_leaves_moves_only_what_it_wins_or_loses() {
        let (few, many) = (["a", "b", "c", "d"], ["d", "e", "c", "b", "a"]);
        let mut moved = 0;
        for unit in units() {
            let (before, after) = (rendezvous(&unit, &few), rendezvous(&unit, &many));
            assert!(before == after || after == "e", "{unit} went from {before} to {after}");
            moved += usize::from(before != after);
        }
        assert!(moved.abs_diff(UNITS / 5) < 416, "{moved} of {UNITS} moved");
    }

    #[test]
    fn what_is_proposed_never_changes() {
        let stores = ["north", "south", "west"];
        let proposed = ["shop", "mirror", "device", ""].map(|unit| rendezvous(unit, &stores));
        assert_eq!(proposed, PROPOSED);
        assert_eq!(rendezvous("shop", &[]), "");
    }

    /// Worked out once, by another program, from the description above.
    const PROPOSED: [&str; 4] = ["north", "west", "west", "west"];
}
