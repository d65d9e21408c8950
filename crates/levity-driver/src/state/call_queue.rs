//! The order among the calls of a turn.
//!
//! The model expects the calls of one reply to happen as if one after the other. Read-only calls
//! may overlap, since no order is visible. A call that changes something runs alone: it waits for
//! the calls before it and holds back those after it.

use std::collections::{HashMap, VecDeque};

use levity_core::CallId;

/// The number of calls up to which a linear search is used.
const LINEAR_SEARCH_LIMIT: usize = 16;

/// The calls without a final outcome, in the order in which they were first requested.
///
/// A call that runs alone waits for all calls before it, and all calls after it wait for it.
/// Joining, leaving and checking take about the same time for any length of the queue.
#[derive(Debug, Default)]
pub(crate) struct CallQueue {
    /// A call that leaves creates a gap; the first slot is never a gap.
    slots: VecDeque<Option<Slot>>,
    /// The number of the first slot.
    first: u64,
    /// The numbers of the calls' slots; empty for few calls.
    known: HashMap<CallId, u64>,
    /// No slot before this number is of a call that runs alone, except the very first.
    together: u64,
}

/// The slot of a call in the queue; the call keeps it while a person decides.
#[derive(Debug)]
struct Slot {
    call: CallId,
    /// `true` until the executor reports that the call does not run alone.
    alone: bool,
}

impl CallQueue {
    /// Returns the number of a call's slot.
    pub(super) fn find(&self, call: &CallId) -> Option<u64> {
        if !self.known.is_empty() {
            #[cfg(test)]
            super::by_id::inspected::add(1);
            return self.known.get(call).copied();
        }
        #[cfg(test)]
        super::by_id::inspected::add(self.slots.len());
        let at = self
            .slots
            .iter()
            .position(|slot| slot.as_ref().is_some_and(|slot| slot.call == *call));
        at.map(|at| self.first + at as u64)
    }

    /// Adds a call at the end, unless it is in the queue.
    pub(crate) fn join(&mut self, call: &CallId, alone: bool) {
        if self.find(call).is_some() {
            return;
        }
        let number = self.first + self.slots.len() as u64;
        self.slots.push_back(Some(Slot {
            call: call.clone(),
            alone,
        }));
        if !self.known.is_empty() {
            self.known.insert(call.clone(), number);
        } else if self.slots.len() > LINEAR_SEARCH_LIMIT {
            let calls = (self.first..).zip(&self.slots);
            self.known = calls
                .filter_map(|(number, slot)| Some((slot.as_ref()?.call.clone(), number)))
                .collect();
        }
    }

    /// Returns the calls in order, and whether they run alone.
    pub(crate) fn calls(&self) -> impl Iterator<Item = (&CallId, bool)> {
        self.slots
            .iter()
            .flatten()
            .map(|slot| (&slot.call, slot.alone))
    }

    /// Removes a call from the queue, and returns its number.
    pub(super) fn leave(&mut self, call: &CallId) -> Option<u64> {
        let number = self.find(call)?;
        self.known.remove(call);
        *self.slot(number)? = None;
        while self.slots.front().is_some_and(Option::is_none) {
            self.slots.pop_front();
            self.first += 1;
        }
        if self.slots.is_empty() {
            (self.slots, self.known) = (VecDeque::new(), HashMap::new());
        }
        Some(number)
    }

    /// Sets whether a call runs alone.
    pub(super) fn set_alone(&mut self, call: &CallId, alone: bool) {
        let Some(number) = self.find(call) else {
            return;
        };
        if let Some(Some(slot)) = self.slot(number) {
            slot.alone = alone;
        }
        if alone {
            self.together = self.together.min(number);
        }
    }

    /// Returns the number from which on calls have to wait.
    pub(super) fn may_begin_before(&mut self) -> u64 {
        let Some(Some(first)) = self.slots.front() else {
            return u64::MAX;
        };
        if first.alone {
            return self.first + 1;
        }
        self.together = self.together.max(self.first);
        while let Some(slot) = self.slot(self.together)
            && !slot.as_ref().is_some_and(|slot| slot.alone)
        {
            #[cfg(test)]
            super::by_id::inspected::add(1);
            self.together += 1;
        }
        self.together
    }

    fn slot(&mut self, number: u64) -> Option<&mut Option<Slot>> {
        let at = usize::try_from(number.checked_sub(self.first)?).ok()?;
        self.slots.get_mut(at)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A reference implementation of the queue.
    #[derive(Default)]
    struct ReferenceQueue(Vec<(String, bool)>);

    impl ReferenceQueue {
        fn may_begin(&self) -> Vec<&str> {
            let free = self
                .0
                .iter()
                .position(|(_, alone)| *alone)
                .unwrap_or(self.0.len())
                .max(1);
            self.0.iter().take(free).map(|(call, _)| &**call).collect()
        }
    }

    proptest! {
        #[test]
        fn calls_may_begin_up_to_first_that_runs_alone(
            acts in prop::collection::vec((0_u8..3, 0_u8..40, any::<bool>()), 0..300),
        ) {
            let (mut queue, mut reference) = (CallQueue::default(), ReferenceQueue::default());
            for (act, call, alone) in acts {
                let name = format!("c{call}");
                let id = CallId::from(&*name);
                let at = reference.0.iter().position(|(known, _)| *known == name);
                match (act, at) {
                    (0, None) => {
                        reference.0.push((name, alone));
                        queue.join(&id, alone);
                    }
                    (0, Some(_)) => queue.join(&id, alone),
                    (1, at) => {
                        at.into_iter().for_each(|at| drop(reference.0.remove(at)));
                        prop_assert_eq!(queue.leave(&id).is_some(), at.is_some());
                    }
                    (_, at) => {
                        at.into_iter().for_each(|at| reference.0[at].1 = alone);
                        queue.set_alone(&id, alone);
                    }
                }
                let before = queue.may_begin_before();
                let may = reference.0.iter().map(|(call, _)| &**call);
                let may: Vec<_> = may
                    .filter(|call| queue.find(&CallId::from(*call)).unwrap() < before)
                    .collect();
                prop_assert_eq!(may, reference.may_begin());
            }
        }
    }
}
