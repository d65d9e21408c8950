//! Values by the numbers of effects.

use std::collections::VecDeque;

use levity_core::EffectId;

/// Below so many places, gaps are not worth closing.
const FEW: usize = 32;

/// Values by the numbers of their effects, in the order of the numbers.
///
/// Effects are numbered upwards, so a new one nearly always goes to the end. One that is taken out
/// leaves a gap, and gaps are closed together: finding, adding and taking out cost about the same
/// however many there are.
#[derive(Debug)]
pub(crate) struct ById<T> {
    places: VecDeque<(EffectId, Option<T>)>,
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
            places: VecDeque::with_capacity(count),
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
        self.places.get(self.at(id)?)?.1.as_ref()
    }

    pub(crate) fn get_mut(&mut self, id: EffectId) -> Option<&mut T> {
        let at = self.at(id)?;
        self.places.get_mut(at)?.1.as_mut()
    }

    /// Adds a value. A machine that gives one number to two effects breaks its contract; both are
    /// kept, in the order in which they came.
    pub(crate) fn insert(&mut self, id: EffectId, value: T) {
        self.count += 1;
        if self.places.back().is_none_or(|(last, _)| *last < id) {
            return self.places.push_back((id, Some(value)));
        }
        let at = self.places.partition_point(|(other, _)| *other <= id);
        // A gap beside its place will do: everything before it is less, and everything behind it is
        // more.
        let gap = [at.checked_sub(1), Some(at)]
            .into_iter()
            .flatten()
            .find(|at| self.is_gap(*at));
        match gap.and_then(|gap| self.places.get_mut(gap)) {
            Some(gap) => *gap = (id, Some(value)),
            None => self.places.insert(at, (id, Some(value))),
        }
    }

    pub(crate) fn remove(&mut self, id: EffectId) -> Option<T> {
        let at = self.at(id)?;
        let value = self.places.get_mut(at)?.1.take()?;
        self.count -= 1;
        self.close_gaps();
        Some(value)
    }

    /// All of them, in the order of their numbers.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (EffectId, &T)> {
        #[cfg(test)]
        looked::at(self.places.len());
        self.places
            .iter()
            .filter_map(|(id, value)| Some((*id, value.as_ref()?)))
    }

    /// The numbers from one on.
    pub(crate) fn ids_from(&self, first: EffectId) -> impl Iterator<Item = EffectId> {
        let at = self.places.partition_point(|(id, _)| *id < first);
        let ids = self
            .places
            .range(at..)
            .filter(|(_, value)| value.is_some())
            .map(|(id, _)| *id);
        #[cfg(test)]
        let ids = ids.inspect(|_| looked::at(1));
        ids
    }

    pub(crate) fn into_values(self) -> impl Iterator<Item = (EffectId, T)> {
        self.places
            .into_iter()
            .filter_map(|(id, value)| Some((id, value?)))
    }

    fn at(&self, id: EffectId) -> Option<usize> {
        #[cfg(test)]
        looked::at(1);
        let first = self.places.partition_point(|(other, _)| *other < id);
        let mut same = self
            .places
            .range(first..)
            .take_while(|(other, _)| *other == id);
        same.position(|(_, value)| value.is_some())
            .map(|beyond| first + beyond)
    }

    fn is_gap(&self, at: usize) -> bool {
        self.places
            .get(at)
            .is_some_and(|(_, value)| value.is_none())
    }

    fn close_gaps(&mut self) {
        while self
            .places
            .front()
            .is_some_and(|(_, value)| value.is_none())
        {
            self.places.pop_front();
        }
        while self.places.back().is_some_and(|(_, value)| value.is_none()) {
            self.places.pop_back();
        }
        if self.places.len() > FEW && self.places.len() > 2 * self.count {
            #[cfg(test)]
            looked::at(self.places.len());
            self.places.retain(|(_, value)| value.is_some());
        }
        // Room for thousands is not kept for a run that mostly has one.
        if self.count == 0 && self.places.capacity() > FEW {
            self.places = VecDeque::new();
        }
    }
}

/// Counts how many values are looked at, so that a test can say what a turn of many calls costs.
#[cfg(test)]
pub(crate) mod looked {
    use std::cell::Cell;

    thread_local!(static LOOKED: Cell<usize> = const { Cell::new(0) });

    pub(crate) fn at(more: usize) {
        LOOKED.set(LOOKED.get() + more);
    }

    /// How many since the last time.
    pub(crate) fn so_far() -> usize {
        LOOKED.replace(0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn values_come_back_in_the_order_of_their_numbers(acts in prop::collection::vec((0_u64..60, any::<bool>()), 0..300)) {
            let mut model: Vec<(u64, usize)> = Vec::new();
            let mut by_id = ById::default();
            for (n, (id, add)) in acts.into_iter().enumerate() {
                if add {
                    let at = model.partition_point(|(other, _)| *other <= id);
                    model.insert(at, (id, n));
                    by_id.insert(EffectId::new(id), n);
                } else {
                    let at = model.iter().position(|(other, _)| *other == id);
                    prop_assert_eq!(by_id.remove(EffectId::new(id)), at.map(|at| model.remove(at).1));
                }
                let all: Vec<_> = by_id.iter().map(|(id, n)| (id.get(), *n)).collect();
                prop_assert_eq!(&all, &model);
                let later: Vec<_> = by_id.ids_from(EffectId::new(30)).map(EffectId::get).collect();
                let expected: Vec<_> = model.iter().map(|(id, _)| *id).filter(|id| *id >= 30).collect();
                prop_assert_eq!(later, expected);
                prop_assert_eq!(by_id.is_empty(), model.is_empty());
            }
        }
    }
}
