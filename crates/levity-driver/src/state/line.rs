//! The order among the calls of a turn.

use std::collections::{HashMap, VecDeque};

use levity_core::CallId;

/// So few calls are found by a look at each of them.
const FEW: usize = 16;

/// The calls that have no final outcome yet, in the order in which they were first wanted.
///
/// A call that runs alone waits for all calls before it, and all behind it wait for it. Joining,
/// leaving and asking who may begin cost about the same however long the line is.
#[derive(Debug, Default)]
pub(crate) struct Line {
    /// Who has left leaves a gap; the first place is never one.
    places: VecDeque<Option<Place>>,
    /// The number of the first place.
    first: u64,
    /// Where calls stand; empty while there are few.
    known: HashMap<CallId, u64>,
    /// No place before this number is of a call that runs alone, but for the first of all.
    together: u64,
}

/// A call's place in line; it keeps it while a person decides.
#[derive(Debug)]
struct Place {
    call: CallId,
    /// Taken to run alone until the executor says otherwise.
    alone: bool,
}

impl Line {
    /// The number of a call's place.
    pub(super) fn find(&self, call: &CallId) -> Option<u64> {
        if !self.known.is_empty() {
            #[cfg(test)]
            super::by_id::looked::at(1);
            return self.known.get(call).copied();
        }
        #[cfg(test)]
        super::by_id::looked::at(self.places.len());
        let at = self
            .places
            .iter()
            .position(|place| place.as_ref().is_some_and(|place| place.call == *call));
        at.map(|at| self.first + at as u64)
    }

    /// Gives a call a place at the end, unless it has one.
    pub(crate) fn join(&mut self, call: &CallId, alone: bool) {
        if self.find(call).is_some() {
            return;
        }
        let number = self.first + self.places.len() as u64;
        self.places.push_back(Some(Place {
            call: call.clone(),
            alone,
        }));
        if !self.known.is_empty() {
            self.known.insert(call.clone(), number);
        } else if self.places.len() > FEW {
            let calls = (self.first..).zip(&self.places);
            self.known = calls
                .filter_map(|(number, place)| Some((place.as_ref()?.call.clone(), number)))
                .collect();
        }
    }

    /// The calls in their order, and whether they run alone.
    pub(crate) fn calls(&self) -> impl Iterator<Item = (&CallId, bool)> {
        self.places
            .iter()
            .flatten()
            .map(|place| (&place.call, place.alone))
    }

    /// Takes a call out of the line, and says where it stood.
    pub(super) fn leave(&mut self, call: &CallId) -> Option<u64> {
        let number = self.find(call)?;
        self.known.remove(call);
        *self.place(number)? = None;
        while self.places.front().is_some_and(Option::is_none) {
            self.places.pop_front();
            self.first += 1;
        }
        if self.places.is_empty() {
            (self.places, self.known) = (VecDeque::new(), HashMap::new());
        }
        Some(number)
    }

    /// Notes whether a call runs alone.
    pub(super) fn set_alone(&mut self, call: &CallId, alone: bool) {
        let Some(number) = self.find(call) else {
            return;
        };
        if let Some(Some(place)) = self.place(number) {
            place.alone = alone;
        }
        if alone {
            self.together = self.together.min(number);
        }
    }

    /// The number from which on calls have to wait.
    pub(super) fn may_begin_before(&mut self) -> u64 {
        let Some(Some(first)) = self.places.front() else {
            return u64::MAX;
        };
        if first.alone {
            return self.first + 1;
        }
        self.together = self.together.max(self.first);
        while let Some(place) = self.place(self.together)
            && !place.as_ref().is_some_and(|place| place.alone)
        {
            #[cfg(test)]
            super::by_id::looked::at(1);
            self.together += 1;
        }
        self.together
    }

    fn place(&mut self, number: u64) -> Option<&mut Option<Place>> {
        let at = usize::try_from(number.checked_sub(self.first)?).ok()?;
        self.places.get_mut(at)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What the line is, said in the plainest way.
    #[derive(Default)]
    struct Plain(Vec<(String, bool)>);

    impl Plain {
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
        fn calls_may_begin_up_to_the_first_that_runs_alone(
            acts in prop::collection::vec((0_u8..3, 0_u8..40, any::<bool>()), 0..300),
        ) {
            let (mut line, mut plain) = (Line::default(), Plain::default());
            for (act, call, alone) in acts {
                let name = format!("c{call}");
                let id = CallId::from(&*name);
                let at = plain.0.iter().position(|(known, _)| *known == name);
                match (act, at) {
                    (0, None) => {
                        plain.0.push((name, alone));
                        line.join(&id, alone);
                    }
                    (0, Some(_)) => line.join(&id, alone),
                    (1, at) => {
                        at.into_iter().for_each(|at| drop(plain.0.remove(at)));
                        prop_assert_eq!(line.leave(&id).is_some(), at.is_some());
                    }
                    (_, at) => {
                        at.into_iter().for_each(|at| plain.0[at].1 = alone);
                        line.set_alone(&id, alone);
                    }
                }
                let before = line.may_begin_before();
                let may = plain.0.iter().map(|(call, _)| &**call);
                let may: Vec<_> = may.filter(|call| line.find(&CallId::from(*call)).unwrap() < before).collect();
                prop_assert_eq!(may, plain.may_begin());
            }
        }
    }
}
