use std::collections::VecDeque;

/// Something for each effect under way, by its number.
///
/// Numbers count upwards and mostly finish in that order, so a line with
/// gaps finds each at once.
#[derive(Debug)]
pub struct Slots<T> {
    /// The number of the first in line.
    first: u64,
    line: VecDeque<Option<T>>,
    taken: usize,
}

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Self { first: 0, line: VecDeque::new(), taken: 0 }
    }
}

impl<T> Slots<T> {
    /// Whether nothing is under way.
    pub fn is_empty(&self) -> bool {
        self.taken == 0
    }

    /// The number of those under way.
    pub fn len(&self) -> usize {
        self.taken
    }

    /// Adds one behind all others.
    pub fn push(&mut self, id: u64, item: T) {
        if self.line.is_empty() {
            self.first = id;
        }
        let gap = id.saturating_sub(self.first + self.line.len() as u64);
        self.line.extend((0..gap).map(|_| None));
        self.line.push_back(Some(item));
        self.taken += 1;
    }

    /// Takes one out.
    pub fn remove(&mut self, id: u64) -> Option<T> {
        let at = usize::try_from(id.checked_sub(self.first)?).ok()?;
        let item = self.line.get_mut(at)?.take()?;
        self.taken -= 1;
        while let Some(None) = self.line.front() {
            self.line.pop_front();
            self.first += 1;
        }
        Some(item)
    }

    /// All of them, in the order of their numbers.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.line.iter_mut().flatten()
    }

    /// Takes all of them out.
    pub fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_found_once_in_any_order() {
        let mut slots = Slots::default();
        for n in [3, 4, 7, 8] {
            slots.push(n, n);
        }
        assert_eq!(slots.remove(5), None);
        assert_eq!(slots.remove(1), None);
        for n in [7, 3, 8, 4] {
            assert!(!slots.is_empty());
            assert_eq!(slots.remove(n), Some(n));
            assert_eq!(slots.remove(n), None);
        }
        assert!(slots.is_empty());
        slots.push(20, 20);
        assert_eq!(slots.values_mut().count(), 1);
        assert_eq!(slots.remove(20), Some(20));
    }
}
