//! A map from effect numbers to values.
//!
//! It is used for the requested effects and for those in progress. A `BTreeMap` would allocate and
//! free a node each time that the usual single effect comes and goes; the slots here are reused.

use std::collections::VecDeque;

use levity_core::EffectId;

/// The number of slots below which gaps are not removed.
const MIN_COMPACTED: usize = 32;

/// A map from effect numbers to values, in the order of the numbers.
///
/// Effects are numbered upwards, so a new one nearly always goes to the end. Removing a value
/// leaves a gap, and gaps are closed in batches. Finding, adding and removing take about the same
/// time for any number of values.
#[derive(Debug)]
pub(crate) struct ById<T> {
    slots: VecDeque<(EffectId, Option<T>)>,
    count: usize,
}

impl<T> Default for ById<T> {
    fn default() -> Self {
        Self::with_capacity(0)
    }
}

impl<T> ById<T> {
    pub(crate) fn with_capacity(count: usize) -> Self {
        Self {
            slots: VecDeque::with_capacity(count),
            count: 0,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub(crate) fn contains(&self, id: EffectId) -> bool {
        self.at(id).is_some()
    }

    pub(crate) fn get(&self, id: EffectId) -> Option<&T> {
        self.slots.get(self.at(id)?)?.1.as_ref()
    }

    pub(crate) fn get_mut(&mut self, id: EffectId) -> Option<&mut T> {
        let at = self.at(id)?;
        self.slots.get_mut(at)?.1.as_mut()
    }

    /// Adds a value. A machine that gives one number to two effects breaks its contract; both are
    /// stored, in the order of insertion.
    pub(crate) fn insert(&mut self, id: EffectId, value: T) {
        self.count += 1;
        if self.slots.back().is_none_or(|(last, _)| *last < id) {
            return self.slots.push_back((id, Some(value)));
        }
        let at = self.slots.partition_point(|(other, _)| *other <= id);
        // A gap beside its position is suitable: all values before it are less, and all after it
        // are greater.
        let gap = [at.checked_sub(1), Some(at)]
            .into_iter()
            .flatten()
            .find(|at| self.is_gap(*at));
        match gap.and_then(|gap| self.slots.get_mut(gap)) {
            Some(gap) => *gap = (id, Some(value)),
            None => self.slots.insert(at, (id, Some(value))),
        }
    }

    pub(crate) fn remove(&mut self, id: EffectId) -> Option<T> {
        let at = self.at(id)?;
        let value = self.slots.get_mut(at)?.1.take()?;
        self.count -= 1;
        self.close_gaps();
        Some(value)
    }

    /// Returns all values in the order of their numbers.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (EffectId, &T)> {
        #[cfg(test)]
        inspected::add(self.slots.len());
        self.slots
            .iter()
            .filter_map(|(id, value)| Some((*id, value.as_ref()?)))
    }

    /// Returns the numbers from `first` on.
    pub(crate) fn ids_from(&self, first: EffectId) -> impl Iterator<Item = EffectId> {
        let at = self.slots.partition_point(|(id, _)| *id < first);
        let ids = self
            .slots
            .range(at..)
            .filter(|(_, value)| value.is_some())
            .map(|(id, _)| *id);
        #[cfg(test)]
        let ids = ids.inspect(|_| inspected::add(1));
        ids
    }

    pub(crate) fn into_values(self) -> impl Iterator<Item = (EffectId, T)> {
        self.slots
            .into_iter()
            .filter_map(|(id, value)| Some((id, value?)))
    }

    fn at(&self, id: EffectId) -> Option<usize> {
        #[cfg(test)]
        inspected::add(1);
        // Most runs have at most one effect here, so the search is rarely needed.
        match self.slots.front() {
            None => return None,
            Some((first, Some(_))) if *first == id => return Some(0),
            Some(_) => {}
        }
        let first = self.slots.partition_point(|(other, _)| *other < id);
        let mut same = self
            .slots
            .range(first..)
            .take_while(|(other, _)| *other == id);
        same.position(|(_, value)| value.is_some())
            .map(|beyond| first + beyond)
    }

    fn is_gap(&self, at: usize) -> bool {
        self.slots.get(at).is_some_and(|(_, value)| value.is_none())
    }

    fn close_gaps(&mut self) {
        while self.slots.front().is_some_and(|(_, value)| value.is_none()) {
            self.slots.pop_front();
        }
        while self.slots.back().is_some_and(|(_, value)| value.is_none()) {
            self.slots.pop_back();
        }
        if self.slots.len() > MIN_COMPACTED && self.slots.len() > 2 * self.count {
            #[cfg(test)]
            inspected::add(self.slots.len());
            self.slots.retain(|(_, value)| value.is_some());
        }
        // Release the memory of thousands of slots, because most runs need one at a time.
        if self.count == 0 && self.slots.capacity() > MIN_COMPACTED {
            self.slots = VecDeque::new();
        }
    }
}

/// Counts the inspected values, so that a test can measure the cost of a turn with many calls.
#[cfg(test)]
pub(crate) mod inspected {
    use std::cell::Cell;

    thread_local!(static COUNT: Cell<usize> = const { Cell::new(0) });

    pub(crate) fn add(more: usize) {
        COUNT.set(COUNT.get() + more);
    }

    /// Returns the count since the last call.
    pub(crate) fn take() -> usize {
        COUNT.replace(0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn by_id_returns_values_in_order_of_numbers(
            actions in prop::collection::vec((0_u64..60, any::<bool>()), 0..300),
        ) {
            let mut model: Vec<(u64, usize)> = Vec::new();
            let mut by_id = ById::default();
            for (n, (id, add)) in actions.into_iter().enumerate() {
                if add {
                    let at = model.partition_point(|(other, _)| *other <= id);
                    model.insert(at, (id, n));
                    by_id.insert(EffectId::new(id), n);
                } else {
                    let at = model.iter().position(|(other, _)| *other == id);
                    let expected = at.map(|at| model.remove(at).1);
                    prop_assert_eq!(by_id.remove(EffectId::new(id)), expected);
                }
                let all: Vec<_> = by_id.iter().map(|(id, n)| (id.get(), *n)).collect();
                prop_assert_eq!(&all, &model);
                let later: Vec<_> = by_id.ids_from(EffectId::new(30)).map(EffectId::get).collect();
                let ids = model.iter().map(|(id, _)| *id);
                let expected: Vec<_> = ids.filter(|id| *id >= 30).collect();
                prop_assert_eq!(later, expected);
                prop_assert_eq!(by_id.is_empty(), model.is_empty());
            }
        }
    }
}
