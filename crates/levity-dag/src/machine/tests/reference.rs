//! A sequential run, directly from the fields of a plan. It uses no code of the scheduler.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use serde_json::{Map, Value};

use super::generated_plan::GeneratedPlan;
use super::seeded_outcomes::{Attempt, AttemptOutcome, SeededOutcomes};
use crate::condition::Condition;
use crate::notice::StepStatus;
use crate::plan::Plan;
use crate::step::{FanOut, Join, OnFailure, Reducer, Step, StepId};

/// The result of a step.
#[derive(Clone, Debug)]
pub(super) struct StepResult {
    pub(super) status: StepStatus,
    /// `true` if the step was skipped because of a failure that was not tolerated.
    pub(super) lost: bool,
    pub(super) values: Vec<Value>,
}

/// A sequential run of a plan.
pub(super) struct Sequential<'a> {
    plan: &'a Plan,
    order: &'a [StepId],
    outcomes: SeededOutcomes,
    steps: HashMap<&'a StepId, &'a Arc<Step>>,
    /// The position of each step in the order.
    pub(super) place: HashMap<&'a StepId, usize>,
    writers: HashMap<&'a str, Vec<&'a StepId>>,
    fallbacks: HashMap<&'a StepId, Vec<&'a StepId>>,
    sources: HashMap<&'a StepId, Vec<&'a StepId>>,
    pub(super) results: BTreeMap<StepId, StepResult>,
}

/// A predecessor of a step, and the condition of the edge.
pub(super) type Before<'a> = (&'a StepId, Option<&'a Condition>);

impl<'a> Sequential<'a> {
    pub(super) fn new(generated: &'a GeneratedPlan, outcomes: SeededOutcomes) -> Self {
        let GeneratedPlan { plan, order } = generated;
        let steps: HashMap<_, _> = plan.steps.iter().map(|step| (&step.id, step)).collect();
        let place: HashMap<_, _> = order.iter().enumerate().map(|(at, id)| (id, at)).collect();
        let mut writers: HashMap<&str, Vec<&StepId>> = HashMap::new();
        let (mut fallbacks, mut sources) =
            (HashMap::<_, Vec<_>>::new(), HashMap::<_, Vec<_>>::new());
        for id in order {
            let step = steps[id];
            step.writes
                .iter()
                .for_each(|name| writers.entry(&**name).or_default().push(id));
            let pairs = [
                step.fallback_for().map(|source| (source, id)),
                match &step.on_failure {
                    OnFailure::Fallback(fallback) => Some((id, fallback)),
                    _ => None,
                },
            ];
            for (source, fallback) in pairs.into_iter().flatten() {
                fallbacks.entry(source).or_default().push(fallback);
                sources.entry(fallback).or_default().push(source);
            }
        }
        let results = BTreeMap::new();
        Self {
            plan,
            order,
            outcomes,
            steps,
            place,
            writers,
            fallbacks,
            sources,
            results,
        }
    }

    pub(super) fn run(mut self) -> Self {
        for id in self.order {
            let result = self.one(self.steps[id]);
            self.results.insert(id.clone(), result);
        }
        self
    }

    /// Returns the predecessors of a step: those in `after` and the writers of variables that it
    /// needs.
    pub(super) fn before(&self, step: &'a Step) -> Vec<Before<'a>> {
        let mut all: Vec<Before<'a>> = step
            .after
            .iter()
            .map(|after| (&after.step, after.when.as_ref()))
            .collect();
        for name in self.needs(step) {
            for writer in self.writers.get(&**name).into_iter().flatten().copied() {
                let earlier = self.place[writer] < self.place[&step.id];
                let alternative = step.writes.contains(name) && self.is_family(&step.id, writer);
                if earlier && !alternative && !all.iter().any(|(known, _)| *known == writer) {
                    all.push((writer, None));
                }
            }
        }
        all.retain(|(before, _)| !self.sources(&step.id).contains(before));
        all
    }

    fn needs(&self, step: &'a Step) -> BTreeSet<&'a Arc<str>> {
        let conditions = step
            .when
            .iter()
            .chain(step.after.iter().filter_map(|after| after.when.as_ref()));
        let asked = conditions.flat_map(Condition::variables);
        step.reads
            .iter()
            .chain(asked)
            .chain(step.fan_out().map(|map| &map.over))
            .collect()
    }

    /// Returns the first step of a family of alternatives. A fallback for several steps is not an
    /// alternative to one of them.
    fn first(&self, mut id: &'a StepId) -> &'a StepId {
        while let [source] = self.sources(id) {
            id = source;
        }
        id
    }

    fn is_family(&self, one: &'a StepId, other: &'a StepId) -> bool {
        self.first(one) == self.first(other)
    }

    /// Returns all steps that a step is a direct or indirect fallback for.
    fn all_sources(&self, id: &StepId) -> Vec<&'a StepId> {
        let mut all: Vec<&'a StepId> = self.sources(id).to_vec();
        let mut next = 0;
        while let Some(id) = all.get(next).copied() {
            all.extend(self.sources(id));
            next += 1;
        }
        all
    }

    /// Returns all direct and indirect fallbacks for a step.
    pub(super) fn all_fallbacks(&self, id: &StepId) -> Vec<&'a StepId> {
        let mut all: Vec<&'a StepId> = self.fallbacks.get(id).cloned().unwrap_or_default();
        let mut next = 0;
        while let Some(id) = all.get(next).copied() {
            all.extend(self.fallbacks.get(id).into_iter().flatten());
            next += 1;
        }
        all
    }

    /// Returns the steps that a step is a fallback for.
    pub(super) fn sources(&self, id: &StepId) -> &[&'a StepId] {
        self.sources.get(id).map_or(&[], Vec::as_slice)
    }

    fn has_completed_fallback(&self, id: &StepId) -> bool {
        let is_done = |id: &&StepId| {
            self.results
                .get(*id)
                .is_some_and(|result| result.status == StepStatus::Completed)
        };
        self.all_fallbacks(id).iter().any(is_done)
    }

    fn one(&self, step: &'a Arc<Step>) -> StepResult {
        if let Some(lost) = self.skipped(step) {
            return StepResult {
                status: StepStatus::Skipped,
                lost,
                values: Vec::new(),
            };
        }
        let inputs = self.inputs(step);
        let done = match step.fan_out() {
            Some(map) => self.list(step, map, &inputs),
            None => self.attempts(step, None).then(|| {
                let mut output = self.outcomes.output(step, None, &self.seen(step, &inputs));
                step.writes
                    .iter()
                    .map(|name| output.remove(&**name).unwrap_or_default())
                    .collect()
            }),
        };
        let status = if done.is_some() {
            StepStatus::Completed
        } else {
            StepStatus::Failed
        };
        StepResult {
            status,
            lost: false,
            values: done.unwrap_or_default(),
        }
    }

    /// Returns `Some` if a step is skipped; the value is `true` if the cause is a failure.
    fn skipped(&self, step: &'a Step) -> Option<bool> {
        let sources: Vec<&StepResult> = self
            .sources(&step.id)
            .iter()
            .map(|source| &self.results[*source])
            .collect();
        if !sources.is_empty()
            && sources
                .iter()
                .all(|source| source.status != StepStatus::Failed)
        {
            let done = sources
                .iter()
                .any(|source| source.status == StepStatus::Completed);
            return Some(!done && sources.iter().any(|source| source.lost));
        }
        let before = self.before(step);
        let (mut taken, mut dead) = (usize::from(!sources.is_empty()), Vec::new());
        for (id, when) in &before {
            let second = self
                .all_sources(id)
                .iter()
                .any(|source| before.iter().any(|(other, _)| other == source));
            // A dependent of a step also waits for its fallbacks; they count once, as that one
            // step.
            if !second {
                match self.edge(id, *when) {
                    Ok(()) => taken += 1,
                    Err(lost) => dead.push(lost),
                }
            }
        }
        let skipped = match step.join {
            Join::All => !dead.is_empty(),
            Join::Any => taken == 0 && !dead.is_empty(),
        };
        match skipped {
            true => Some(dead.contains(&true)),
            false => step
                .when
                .as_ref()
                .filter(|when| !self.holds(when))
                .map(|_| false),
        }
    }

    /// Returns `Ok` if the edge from a settled step is active, otherwise whether the cause is a
    /// failure.
    fn edge(&self, id: &StepId, when: Option<&Condition>) -> Result<(), bool> {
        let result = &self.results[id];
        match (result.status, &self.steps[id].on_failure) {
            (StepStatus::Completed, _) => {}
            _ if self.has_completed_fallback(id) => {}
            (StepStatus::Failed, OnFailure::Continue) => {}
            (StepStatus::Failed, OnFailure::Skip) => return Err(false),
            (StepStatus::Failed, _) => return Err(true),
            _ => return Err(result.lost),
        }
        if when.is_none_or(|when| self.holds(when)) {
            Ok(())
        } else {
            Err(false)
        }
    }

    fn holds(&self, condition: &Condition) -> bool {
        let values: HashMap<&str, Value> = condition
            .variables()
            .iter()
            .filter_map(|name| Some((&**name, self.read(name)?)))
            .collect();
        condition.holds(&|name| values.get(name))
    }

    /// Returns the current value of a variable.
    pub(super) fn read(&self, name: &str) -> Option<Value> {
        let written = |id: &StepId| {
            let result = self
                .results
                .get(id)
                .filter(|result| result.status == StepStatus::Completed)?;
            let at = self.steps[id]
                .writes
                .iter()
                .position(|write| &**write == name)?;
            result.values.get(at).cloned()
        };
        let given = self.plan.given.get(name).cloned();
        let writers = self.writers.get(name);
        match (
            self.plan
                .variables
                .get(name)
                .and_then(|variable| variable.reducer),
            writers,
        ) {
            (Some(reducer), Some(_)) => {
                let by_plan = self.plan.steps.iter().filter_map(|step| written(&step.id));
                let values: Vec<Value> = given.into_iter().chain(by_plan).collect();
                Some(reducer.reduce(&values))
            }
            _ => writers
                .into_iter()
                .flatten()
                .rev()
                .find_map(|id| written(id))
                .or(given),
        }
    }

    /// Returns all final values.
    pub(super) fn values(&self) -> BTreeMap<Arc<str>, Value> {
        let written = self.plan.steps.iter().flat_map(|step| &step.writes);
        let names: BTreeSet<&Arc<str>> = self.plan.given.keys().chain(written).collect();
        names
            .into_iter()
            .filter_map(|name| Some((name.clone(), self.read(name)?)))
            .collect()
    }

    fn inputs(&self, step: &Step) -> Map<String, Value> {
        let mut inputs = step
            .more
            .as_ref()
            .map(|more| more.inputs.clone())
            .unwrap_or_default();
        for name in &step.reads {
            inputs.insert(name.to_string(), self.read(name).unwrap_or_default());
        }
        inputs
    }

    /// Returns the inputs that the outcome depends on: an agent gets only text.
    fn seen(&self, step: &Step, inputs: &Map<String, Value>) -> Map<String, Value> {
        if is_agent(step) {
            Map::new()
        } else {
            inputs.clone()
        }
    }

    fn attempts(&self, step: &Step, item: Option<u32>) -> bool {
        if is_tool(step) && item.is_none() && self.outcomes.approval(&step.id) == Some(false) {
            return false;
        }
        for number in 1..=step.retry_policy().attempts {
            match self.outcomes.attempt_outcome(&Attempt {
                step: step.id.clone(),
                item,
                number,
            }) {
                AttemptOutcome::Good => return true,
                AttemptOutcome::Bad => {}
                AttemptOutcome::Lost => return false,
            }
        }
        false
    }

    fn list(&self, step: &Step, map: &FanOut, inputs: &Map<String, Value>) -> Option<Vec<Value>> {
        let Some(Value::Array(items)) = self.read(&map.over) else {
            return None;
        };
        if items.len() > map.max_items {
            return None;
        }
        let quorum = map.quorum.unwrap_or(items.len()).min(items.len());
        let (mut results, mut done) = (Vec::new(), 0);
        for (at, element) in (0..).zip(&items) {
            if map.stop_early && done >= quorum {
                break;
            }
            let good = self.attempts(step, Some(at));
            done += usize::from(good);
            let mut inputs = inputs.clone();
            inputs.insert(map.name.to_string(), element.clone());
            results.push(good.then(|| {
                self.outcomes
                    .output(step, Some(at), &self.seen(step, &inputs))
            }));
        }
        results.resize(items.len(), None);
        (done >= quorum).then(|| {
            step.writes
                .iter()
                .map(|name| gathered(map.reducer, name, &results))
                .collect()
        })
    }

    /// Returns the steps that should have completed and did not, in plan order, and whether each
    /// failed.
    pub(super) fn missing(&self, handled: &BTreeSet<StepId>) -> Vec<(StepId, bool)> {
        let is_missing = |step: &&Arc<Step>| {
            let result = &self.results[&step.id];
            let tolerated = matches!(step.on_failure, OnFailure::Skip | OnFailure::Continue);
            match result.status {
                StepStatus::Failed => {
                    !tolerated && !handled.contains(&step.id) && !self.is_replaced(&step.id)
                }
                _ => result.lost,
            }
        };
        let missing = self.plan.steps.iter().filter(is_missing);
        missing
            .map(|step| {
                (
                    step.id.clone(),
                    self.results[&step.id].status == StepStatus::Failed,
                )
            })
            .collect()
    }

    /// Returns `true` if a fallback for a step has run, so that the fallback counts.
    fn is_replaced(&self, id: &StepId) -> bool {
        let fallbacks = self.fallbacks.get(id).into_iter().flatten();
        fallbacks
            .into_iter()
            .any(|id| self.results[*id].status != StepStatus::Skipped)
    }
}

fn gathered(reducer: Reducer, name: &str, results: &[Option<Map<String, Value>>]) -> Value {
    let of =
        |result: &Option<Map<String, Value>>| result.as_ref().map(|output| output[name].clone());
    let values: Vec<Value> = match reducer {
        Reducer::List => results
            .iter()
            .map(|result| of(result).unwrap_or_default())
            .collect(),
        _ => results.iter().filter_map(of).collect(),
    };
    reducer.reduce(&values)
}

pub(super) fn is_agent(step: &Step) -> bool {
    &*step.agent == "Thinker"
}

pub(super) fn is_tool(step: &Step) -> bool {
    &*step.agent == "t"
}
