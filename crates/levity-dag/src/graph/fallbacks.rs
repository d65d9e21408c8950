//! Relates steps and their fallbacks, from `on_failure` and from `instead_of`.

use std::collections::{HashMap, HashSet};

use crate::plan::Plan;
use crate::step::{OnFailure, Step, StepId};

/// The fallback relation in both directions, as pairs of source and fallback.
#[derive(Debug, Default)]
pub(crate) struct Fallbacks {
    /// The pairs, sorted by source.
    of: Vec<(u32, u32)>,
    /// The same pairs, with the fallback first.
    sources: Vec<(u32, u32)>,
}

impl Fallbacks {
    /// Collects the fallbacks of a plan. References to missing steps or to the step itself are
    /// ignored.
    pub(crate) fn new(plan: &Plan, index: &HashMap<StepId, u32>) -> Self {
        let mut of = Vec::new();
        for (at, step) in plan.steps.iter().enumerate() {
            let at = at as u32;
            let source = step.fallback_for().and_then(|id| index.get(id));
            of.extend(source.map(|source| (*source, at)));
            let fallback = fallback_of(step).and_then(|id| index.get(id));
            of.extend(fallback.map(|fallback| (at, *fallback)));
        }
        of.retain(|(source, fallback)| source != fallback);
        of.sort_unstable();
        of.dedup();
        let mut sources: Vec<_> = of
            .iter()
            .map(|(source, fallback)| (*fallback, *source))
            .collect();
        sources.sort_unstable();
        Self { of, sources }
    }

    /// Returns the direct fallbacks for a step.
    pub(crate) fn of(&self, source: u32) -> impl Iterator<Item = u32> + '_ {
        pairs(&self.of, source)
    }

    /// Returns the steps that a step is a fallback for.
    pub(crate) fn sources(&self, fallback: u32) -> impl Iterator<Item = u32> + '_ {
        pairs(&self.sources, fallback)
    }

    /// Returns all pairs of source and fallback.
    pub(crate) fn pairs(&self) -> &[(u32, u32)] {
        &self.of
    }

    /// Returns `true` if no step has a fallback.
    pub(super) fn is_empty(&self) -> bool {
        self.of.is_empty()
    }

    /// Returns all steps that a step is a direct or indirect fallback for; at most `limit`.
    pub(super) fn all_sources(&self, fallback: u32, limit: usize) -> HashSet<u32> {
        let mut all = HashSet::new();
        let mut open = vec![fallback];
        while let Some(at) = open.pop() {
            for source in self.sources(at) {
                if all.len() < limit && all.insert(source) {
                    open.push(source);
                }
            }
        }
        all
    }

    /// Returns the family of each step, identified by its first member. Two steps of one family are
    /// alternatives. A fallback for several steps forms a separate family, because those steps are
    /// not alternatives of each other.
    pub(super) fn families(&self, order: &[u32]) -> Vec<u32> {
        let mut families: Vec<u32> = (0..order.len() as u32).collect();
        if self.of.is_empty() {
            return families;
        }
        for at in order {
            let mut sources = self.sources(*at);
            if let (Some(source), None) = (sources.next(), sources.next()) {
                families[*at as usize] = families[source as usize];
            }
        }
        families
    }
}

fn pairs(sorted: &[(u32, u32)], first: u32) -> impl Iterator<Item = u32> + '_ {
    let from = sorted.partition_point(|pair| pair.0 < first);
    sorted[from..]
        .iter()
        .take_while(move |pair| pair.0 == first)
        .map(|pair| pair.1)
}

/// Returns the step that the failure policy names as the fallback.
pub(crate) fn fallback_of(step: &Step) -> Option<&StepId> {
    match &step.on_failure {
        OnFailure::Fallback(id) => Some(id),
        _ => None,
    }
}
