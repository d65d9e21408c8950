use std::collections::{HashMap, HashSet};

use crate::plan::Plan;
use crate::step::{OnFailure, Step, StepId};

/// Who stands in for whom, both ways: pairs of source and stand-in.
#[derive(Debug, Default)]
pub(crate) struct StandIns {
    /// By source.
    of: Vec<(u32, u32)>,
    /// The same, stand-in first.
    sources: Vec<(u32, u32)>,
}

impl StandIns {
    /// Of a plan. What refers to nobody, or to itself, is left out.
    pub(crate) fn new(plan: &Plan, index: &HashMap<StepId, u32>) -> Self {
        let mut of = Vec::new();
        for (at, step) in plan.steps.iter().enumerate() {
            let at = at as u32;
            let source = step.stands_in_for().and_then(|id| index.get(id));
            of.extend(source.map(|source| (*source, at)));
            let stand_in = fallback(step).and_then(|id| index.get(id));
            of.extend(stand_in.map(|stand_in| (at, *stand_in)));
        }
        of.retain(|(source, stand_in)| source != stand_in);
        of.sort_unstable();
        of.dedup();
        let mut sources: Vec<_> = of
            .iter()
            .map(|(source, stand_in)| (*stand_in, *source))
            .collect();
        sources.sort_unstable();
        Self { of, sources }
    }

    /// Who stands in for a step, without those who stand in for them.
    pub(crate) fn of(&self, source: u32) -> impl Iterator<Item = u32> + '_ {
        pairs(&self.of, source)
    }

    /// The steps that a step stands in for.
    pub(crate) fn sources(&self, stand_in: u32) -> impl Iterator<Item = u32> + '_ {
        pairs(&self.sources, stand_in)
    }

    /// All pairs of source and stand-in.
    pub(crate) fn pairs(&self) -> &[(u32, u32)] {
        &self.of
    }

    /// Whether nobody stands in for anybody.
    pub(super) fn is_empty(&self) -> bool {
        self.of.is_empty()
    }

    /// All that a step stands in for, and what those stand in for, and so on; at most `most`.
    pub(super) fn all_sources(&self, stand_in: u32, most: usize) -> HashSet<u32> {
        let mut all = HashSet::new();
        let mut open = vec![stand_in];
        while let Some(at) = open.pop() {
            for source in self.sources(at) {
                if all.len() < most && all.insert(source) {
                    open.push(source);
                }
            }
        }
        all
    }

    /// For each step the first of those of which one does the work: two steps of one family are
    /// alternatives. A step that stands in for several is a family of its own, since those are no
    /// alternatives of each other.
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

/// The step that does it when this one fails.
pub(crate) fn fallback(step: &Step) -> Option<&StepId> {
    match &step.on_failure {
        OnFailure::Fallback(id) => Some(id),
        _ => None,
    }
}
