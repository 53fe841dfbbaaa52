//! Submissions in the order in which they are written: first those that have lost, the most often first,
//! then all others as they came.
//!
//! Owns that order; must not know who waits or how.

use std::collections::VecDeque;

/// Entries of type `T`, each with how often it has lost.
pub(crate) struct Line<T> {
    /// By how often they have lost, falling; among equals as they came.
    again: VecDeque<(u32, T)>,
    fresh: VecDeque<T>,
}

impl<T> Line<T> {
    pub const fn new() -> Self {
        Self { again: VecDeque::new(), fresh: VecDeque::new() }
    }

    pub fn len(&self) -> usize {
        self.again.len() + self.fresh.len()
    }

    pub fn is_empty(&self) -> bool {
        self.again.is_empty() && self.fresh.is_empty()
    }

    /// Whether one that has lost so often would be the first.
    pub fn would_lead(&self, lost: u32) -> bool {
        match self.again.front() {
            Some((most, _)) => *most < lost,
            None => lost > 0 || self.fresh.is_empty(),
        }
    }

    pub fn push(&mut self, lost: u32, entry: T) {
        if lost == 0 {
            self.fresh.push_back(entry);
        } else {
            let at = self.again.partition_point(|(others, _)| *others >= lost);
            self.again.insert(at, (lost, entry));
        }
    }

    pub fn front(&self) -> Option<&T> {
        self.iter().next()
    }

    /// The first one and how often it has lost.
    pub fn pop(&mut self) -> Option<(u32, T)> {
        self.again.pop_front().or_else(|| self.fresh.pop_front().map(|entry| (0, entry)))
    }

    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.again.iter().map(|(_, entry)| entry).chain(&self.fresh)
    }

    /// Takes out the one that is meant; the others keep their order.
    pub fn remove(&mut self, is_meant: impl Fn(&T) -> bool) -> Option<T> {
        if let Some(at) = self.again.iter().position(|(_, entry)| is_meant(entry)) {
            return self.again.remove(at).map(|(_, entry)| entry);
        }
        let at = self.fresh.iter().position(is_meant)?;
        self.fresh.remove(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(entries: &[(u32, char)]) -> Line<char> {
        let mut line = Line::new();
        for &(lost, entry) in entries {
            line.push(lost, entry);
        }
        line
    }

    #[test]
    fn who_lost_most_often_is_first_and_equals_keep_their_order() {
        let mut line = line(&[(0, 'e'), (1, 'c'), (2, 'a'), (1, 'd'), (0, 'f'), (2, 'b')]);
        assert_eq!((line.len(), line.front()), (6, Some(&'a')));
        assert_eq!(line.iter().collect::<String>(), "abcdef");
        assert_eq!(line.pop(), Some((2, 'a')));
        let rest: String = std::iter::from_fn(|| line.pop()).map(|(_, entry)| entry).collect();
        assert_eq!(rest, "bcdef");
        assert!(line.is_empty() && line.pop().is_none() && line.front().is_none());
    }

    #[test]
    fn who_leaves_changes_no_order() {
        let mut line = line(&[(0, 'c'), (1, 'a'), (0, 'd'), (1, 'b')]);
        assert_eq!(line.remove(|entry| *entry == 'a'), Some('a'));
        assert_eq!(line.remove(|entry| *entry == 'c'), Some('c'));
        assert_eq!(line.remove(|entry| *entry == 'x'), None);
        assert_eq!(line.iter().collect::<String>(), "bd");
    }

    #[test]
    fn nobody_passes_one_who_is_before_him() {
        assert!(line(&[]).would_lead(0) && line(&[]).would_lead(1));
        let fresh = line(&[(0, 'a')]);
        assert!(!fresh.would_lead(0) && fresh.would_lead(1));
        let again = line(&[(0, 'a'), (2, 'b')]);
        assert!(!again.would_lead(0) && !again.would_lead(2) && again.would_lead(3));
    }
}
