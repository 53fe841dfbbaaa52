//! Callers that keep losing to each other take turns: those who lost on one row run again one after another.
//!
//! A turn proves nothing, as a place does not: it only keeps callers from running in vain. Whoever has waited
//! long enough runs without one. Owns the lines and their order; must not know what a closure does.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use super::clock::Deadline;
use super::sync::{Bell, Mutex};

/// Losses after which a caller waits for its turn. Those who only read a row lose once when it changes, and
/// may then all run at once.
const LOSSES_FREE: u32 = 1;
/// The longest a caller stands in line: a slow closure does not hold up others for longer.
const STAND_MAX: Duration = Duration::from_secs(1);

/// One line for each row `K` that callers contend for.
pub(crate) struct Turns<K> {
    lines: Mutex<HashMap<K, VecDeque<Arc<Bell>>>>,
}

/// A caller's turn, or its hope of one. Dropping it calls the next.
pub(crate) struct Turn<'t, K: Clone + Eq + Hash> {
    turns: &'t Turns<K>,
    row: K,
    own: Arc<Bell>,
}

impl<K: Clone + Eq + Hash> Turns<K> {
    pub fn new() -> Self {
        Self { lines: Mutex::new(HashMap::new()) }
    }

    /// Lets a caller wait that has lost so often, the last time on `row`: until its turn, `deadline` or as
    /// long as anybody stands. `before` is the turn that it had when it lost: on the same row it goes on.
    pub fn after_loss<'t>(
        &'t self,
        before: Option<Turn<'t, K>>,
        row: K,
        lost: u32,
        deadline: Deadline,
    ) -> Option<Turn<'t, K>> {
        if let Some(before) = before {
            if before.row == row {
                before.stand(deadline);
                return Some(before);
            }
            // It leaves one line before it stands in another, so no two can wait for each other.
            drop(before);
        }
        let own = Arc::new(Bell::default());
        {
            let mut lines = self.lines.lock();
            if lost <= LOSSES_FREE && !lines.contains_key(&row) {
                return None;
            }
            lines.entry(row.clone()).or_default().push_back(Arc::clone(&own));
        }
        let turn = Turn { turns: self, row, own };
        turn.stand(deadline);
        Some(turn)
    }

    #[cfg(test)]
    fn is_empty(&self) -> bool {
        self.lines.lock().is_empty()
    }
}

impl<K: Clone + Eq + Hash> Turn<'_, K> {
    fn stand(&self, deadline: Deadline) {
        let patience = Deadline::after(STAND_MAX);
        loop {
            let rung = self.own.rung();
            let left = deadline.left().min(patience.left());
            if self.is_first() || left.is_zero() {
                return;
            }
            self.own.wait(rung, Some(left));
        }
    }

    fn is_first(&self) -> bool {
        let lines = self.turns.lines.lock();
        lines.get(&self.row).and_then(VecDeque::front).is_none_or(|first| Arc::ptr_eq(first, &self.own))
    }
}

impl<K: Clone + Eq + Hash> Drop for Turn<'_, K> {
    fn drop(&mut self) {
        let next = {
            let mut lines = self.turns.lines.lock();
            let Some(line) = lines.get_mut(&self.row) else { return };
            line.retain(|other| !Arc::ptr_eq(other, &self.own));
            let next = line.front().map(Arc::clone);
            if next.is_none() {
                lines.remove(&self.row);
            }
            next
        };
        if let Some(next) = next {
            next.ring();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at_once() -> Deadline {
        Deadline::after(Duration::ZERO)
    }

    #[test]
    fn who_lost_once_runs_at_once_unless_others_stand() {
        let turns = Turns::new();
        assert!(turns.after_loss(None, "row", 1, at_once()).is_none());
        let first = turns.after_loss(None, "row", 2, at_once());
        assert!(first.as_ref().is_some_and(Turn::is_first));
        let second = turns.after_loss(None, "row", 1, at_once());
        assert!(second.as_ref().is_some_and(|turn| !turn.is_first()));
        assert!(turns.after_loss(None, "other", 1, at_once()).is_none());
        drop(first);
        assert!(second.as_ref().is_some_and(Turn::is_first));
        drop(second);
        assert!(turns.is_empty());
    }

    #[test]
    fn who_loses_on_another_row_leaves_the_first() {
        let turns = Turns::new();
        let turn = turns.after_loss(None, "a", 2, at_once());
        let turn = turns.after_loss(turn, "a", 3, at_once());
        assert!(turn.as_ref().is_some_and(|turn| turn.row == "a"));
        let turn = turns.after_loss(turn, "b", 4, at_once());
        assert!(turn.as_ref().is_some_and(|turn| turn.row == "b"));
        assert!(!turns.lines.lock().contains_key("a"));
    }

    /// Each comes to its turn by the end of the one before, in the order in which they stood.
    #[test]
    fn turns_are_taken_in_order() {
        let turns = Turns::new();
        let patient = Deadline::after(Duration::from_secs(60));
        let ended = Mutex::new(Vec::new());
        let mut first = turns.after_loss(None, "row", 2, patient);
        std::thread::scope(|scope| {
            for n in 0..4 {
                let (turns, ended) = (&turns, &ended);
                scope.spawn(move || {
                    let turn = turns.after_loss(None, "row", 2, patient);
                    ended.lock().push(n);
                    drop(turn);
                });
                while turns.lines.lock().get("row").map_or(0, VecDeque::len) < n + 2 {
                    std::thread::yield_now();
                }
            }
            drop(first.take());
        });
        assert_eq!(*ended.lock(), [0, 1, 2, 3]);
        assert!(turns.is_empty());
    }
}
