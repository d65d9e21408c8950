use std::collections::{BTreeSet, HashMap};

use levity_dag::{Graph, OnFailure, Plan, Step, StepId};

/// Why one step comes after another.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct EdgeKind {
    /// The second says so.
    pub(crate) after: bool,
    /// On this condition.
    pub(crate) when: Option<String>,
    /// The second reads these variables, which the first writes.
    pub(crate) variables: Vec<String>,
    /// The second stands in for the first.
    pub(crate) stands_in: bool,
}

pub(crate) fn edge_kind(from: &Step, to: &Step) -> EdgeKind {
    let after = to.after.iter().find(|after| after.step == from.id);
    let fallback = matches!(&from.on_failure, OnFailure::Fallback(id) if *id == to.id);
    EdgeKind {
        after: after.is_some(),
        when: after
            .and_then(|after| after.when.as_ref())
            .map(ToString::to_string),
        variables: to
            .reads
            .iter()
            .filter(|name| from.writes.contains(name))
            .map(ToString::to_string)
            .collect(),
        stands_in: fallback || to.stands_in_for() == Some(&from.id),
    }
}

/// The edges of a plan that need not have been checked, as places in it, by target and source.
pub(crate) fn edges_of(plan: &Plan) -> Vec<(u32, u32)> {
    let places = Places::new(plan);
    let mut edges = BTreeSet::new();
    for (to, step) in plan.steps.iter().enumerate() {
        let to = to as u32;
        let named = step
            .after
            .iter()
            .map(|after| &after.step)
            .chain(step.stands_in_for());
        edges.extend(
            named
                .filter_map(|id| places.ids.get(id.as_str()))
                .map(|from| (to, *from)),
        );
        if let OnFailure::Fallback(id) = &step.on_failure {
            edges.extend(places.ids.get(id.as_str()).map(|stand_in| (*stand_in, to)));
        }
        for name in &step.reads {
            // A step that changes a variable reads what was written before it, by those who stand
            // before it.
            let own = step.writes.contains(name);
            let writers = places.writers.get(&**name).into_iter().flatten();
            edges.extend(
                writers
                    .filter(|from| !own || **from < to)
                    .map(|from| (to, *from)),
            );
        }
    }
    edges
        .into_iter()
        .filter(|(to, from)| to != from)
        .map(|(to, from)| (from, to))
        .collect()
}

struct Places<'a> {
    ids: HashMap<&'a str, u32>,
    writers: HashMap<&'a str, Vec<u32>>,
}

impl<'a> Places<'a> {
    fn new(plan: &'a Plan) -> Self {
        let mut places = Self {
            ids: HashMap::new(),
            writers: HashMap::new(),
        };
        for (at, step) in plan.steps.iter().enumerate() {
            places.ids.entry(step.id.as_str()).or_insert(at as u32);
            for name in &step.writes {
                places.writers.entry(name).or_default().push(at as u32);
            }
        }
        places
    }
}

impl super::PlanView {
    /// A view of a checked plan that is not run.
    pub fn of_graph(graph: &Graph) -> Self {
        let mut view = Self::default();
        let place = |(from, to): (&StepId, &StepId)| {
            Some((graph.find(to.as_str())?, graph.find(from.as_str())?))
        };
        let mut edges: Vec<(u32, u32)> = graph.edges().filter_map(place).collect();
        edges.sort_unstable();
        edges.dedup();
        view.set_plan(
            graph.plan().clone(),
            edges.into_iter().map(|(to, from)| (from, to)).collect(),
        );
        view
    }
}
