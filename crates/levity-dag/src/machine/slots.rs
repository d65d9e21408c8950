//! What is under way, by effect and by step.

use std::collections::VecDeque;

use levity_core::EffectId;

use super::perform::Work;

/// Something for each effect that is under way. Numbers count upwards and mostly finish in that order, so a line with
/// gaps finds each at once.
#[derive(Debug)]
pub(super) struct Slots<T> {
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
    pub(super) fn is_empty(&self) -> bool {
        self.taken == 0
    }

    /// Adds one behind all others.
    pub(super) fn push(&mut self, id: EffectId, item: T) {
        if self.line.is_empty() {
            self.first = id.get();
        }
        let gap = id.get().saturating_sub(self.first + self.line.len() as u64);
        self.line.extend((0..gap).map(|_| None));
        self.line.push_back(Some(item));
        self.taken += 1;
    }

    pub(super) fn remove(&mut self, id: EffectId) -> Option<T> {
        let at = usize::try_from(id.get().checked_sub(self.first)?).ok()?;
        let item = self.line.get_mut(at)?.take()?;
        self.taken -= 1;
        while let Some(None) = self.line.front() {
            self.line.pop_front();
            self.first += 1;
        }
        Some(item)
    }

    pub(super) fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.line.iter_mut().flatten()
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

/// The steps under way, each in the place of its number.
#[derive(Debug, Default)]
pub(super) struct Works(Vec<Option<Box<Work>>>);

impl Works {
    pub(super) fn insert(&mut self, at: u32, work: Box<Work>) {
        let at = at as usize;
        if self.0.len() <= at {
            self.0.resize_with(at + 1, || None);
        }
        if let Some(slot) = self.0.get_mut(at) {
            *slot = Some(work);
        }
    }

    pub(super) fn get(&self, at: u32) -> Option<&Work> {
        self.0.get(at as usize)?.as_deref()
    }

    pub(super) fn get_mut(&mut self, at: u32) -> Option<&mut Work> {
        self.0.get_mut(at as usize)?.as_deref_mut()
    }

    pub(super) fn remove(&mut self, at: u32) -> Option<Box<Work>> {
        self.0.get_mut(at as usize)?.take()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &Work)> {
        (0..).zip(&self.0).filter_map(|(at, work)| Some((at, work.as_deref()?)))
    }

    /// Gives the steps other numbers; what has none is gone.
    pub(super) fn renumber(&mut self, new: impl Fn(u32) -> Option<u32>) {
        let old = std::mem::take(&mut self.0);
        for (at, work) in (0..).zip(old) {
            if let (Some(work), Some(at)) = (work, new(at)) {
                self.insert(at, work);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_found_once_in_any_order() {
        let mut slots = Slots::default();
        for n in [3, 4, 7, 8] {
            slots.push(EffectId::new(n), n);
        }
        assert_eq!(slots.remove(EffectId::new(5)), None);
        assert_eq!(slots.remove(EffectId::new(1)), None);
        for n in [7, 3, 8, 4] {
            assert!(!slots.is_empty());
            assert_eq!(slots.remove(EffectId::new(n)), Some(n));
            assert_eq!(slots.remove(EffectId::new(n)), None);
        }
        assert!(slots.is_empty());
        slots.push(EffectId::new(20), 20);
        assert_eq!(slots.values_mut().count(), 1);
        assert_eq!(slots.remove(EffectId::new(20)), Some(20));
    }
}
