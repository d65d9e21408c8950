//! Decides which steps may start, from the settled steps alone and without I/O.
//!
//! The scheduler combines the dependency engine of `levity_graph`, which knows numbers only, with
//! the meaning of steps: conditions, joins, failure policies and fallbacks. A step whose
//! predecessors are settled is evaluated: it becomes ready or is skipped, and a skip settles it at
//! once.
//!
//! The value of a variable is computed on reading and never stored: it is the last value of the
//! writers before the reader in topological order. So a step that a replan adds cannot change the
//! input of a step that has started.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use levity_graph::Schedule;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::condition::Condition;
use crate::graph::{Edge, Graph};
use crate::notice::{StepStatus, StepUsage};
use crate::step::{Join, OnFailure, Step, StepId};

/// The state of each step of a graph, and the steps that may start.
#[derive(Debug)]
pub(crate) struct Scheduler {
    graph: Graph,
    nodes: Vec<Node>,
    /// The steps that each fallback step is a fallback for.
    sources: HashMap<u32, Vec<u32>>,
    /// The queue of ready steps; steps on the longest path to an end have the highest priority. A
    /// fan-out that settles early leaves its step in the queue, where it is ignored. Held steps
    /// have failed and wait for a replan.
    pub(crate) schedule: Schedule,
}

/// The state of a single step.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Node {
    pub(crate) status: StepStatus,
    /// `true` if a replan has handled the failure of the step.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) handled: bool,
    /// The reason why the step was skipped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) skip: Option<Skip>,
    /// The error message, if the step failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<Box<str>>,
    /// The written values, in the order of `writes`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) values: Vec<Value>,
    /// The complete output, stored only if the step writes no variables.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) output: Option<Box<Value>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) spent: Option<Box<StepUsage>>,
}

/// The reason why a step is skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Skip {
    /// The step that it is a fallback for has not failed.
    NotNeeded,
    /// A condition does not hold.
    Condition,
    /// A predecessor failed, and its policy tolerates that.
    Tolerated,
    /// A predecessor failed, so the step cannot run.
    Failure,
}

/// A step that was skipped, with the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SkippedStep {
    pub(crate) at: u32,
    pub(crate) reason: Skip,
    /// The step that caused the skip.
    pub(crate) cause: Option<u32>,
}

impl Scheduler {
    /// Creates a scheduler with all steps pending.
    pub(crate) fn new(graph: Graph) -> Self {
        let nodes = (0..graph.len()).map(|_| Node::default()).collect();
        let mut sources: HashMap<u32, Vec<u32>> = HashMap::new();
        for (source, fallback) in graph.fallbacks() {
            sources.entry(fallback).or_default().push(source);
        }
        Self {
            schedule: Schedule::new(graph.len()),
            graph,
            nodes,
            sources,
        }
    }

    /// Restores steps from a saved state, some of them held. Pending steps that may start become
    /// ready, but a fan-out with remaining elements does not.
    pub(crate) fn restored(graph: Graph, nodes: Vec<Node>, held: &[u32]) -> Result<Self, String> {
        let mut new = Self::new(graph);
        if nodes.len() != new.nodes.len() {
            return Err("the saved state has a different number of steps than its plan".to_owned());
        }
        let is_failed = |at: &u32| {
            nodes
                .get(*at as usize)
                .is_some_and(|node| node.status == StepStatus::Failed)
        };
        if !held.iter().all(is_failed) {
            return Err("the saved state waits for a replan, but no step has failed".to_owned());
        }
        for (at, node) in (0..).zip(&nodes) {
            _ = match node.status {
                StepStatus::Pending => false,
                StepStatus::Running => new.schedule.begin(at),
                _ if held.contains(&at) => new.schedule.hold(at),
                _ => new.schedule.settle(at),
            };
        }
        new.nodes = nodes;
        for at in new.schedule.open(&new.graph.links()) {
            new.push(at);
        }
        Ok(new)
    }

    /// Switches to a changed plan that was made because of the `seen` steps; started steps keep
    /// their state. Returns the new numbers of the old steps, too.
    ///
    /// Failed steps that are not among `seen` stay held: they failed while the planner worked on
    /// the change, and get a replan of their own.
    pub(crate) fn changed(self, graph: Graph, seen: &[StepId]) -> (Self, Vec<Option<u32>>) {
        let mut new = Self::new(graph);
        let steps = &self.graph.plan().steps;
        let places: Vec<_> = steps
            .iter()
            .map(|step| new.graph.find(step.id.as_str()))
            .collect();
        for (((at, mut node), place), step) in (0..).zip(self.nodes).zip(&places).zip(steps) {
            let held = self.schedule.is_held(at);
            let is_seen = held && seen.contains(&step.id);
            node.handled |= is_seen;
            let Some(place) = *place else { continue };
            _ = match node.status {
                StepStatus::Pending => false,
                StepStatus::Running => new.schedule.begin(place),
                _ if held && !is_seen => new.schedule.hold(place),
                _ => new.schedule.settle(place),
            };
            new.nodes[place as usize] = node;
        }
        (new, places)
    }

    pub(crate) fn graph(&self) -> &Graph {
        &self.graph
    }

    pub(crate) fn step(&self, at: u32) -> Option<&Arc<Step>> {
        self.graph.step(at)
    }

    pub(crate) fn node(&self, at: u32) -> Option<&Node> {
        self.nodes.get(at as usize)
    }

    pub(crate) fn nodes(&self) -> impl Iterator<Item = (u32, &Node)> {
        (0..).zip(&self.nodes)
    }

    pub(crate) fn all(&self) -> &[Node] {
        &self.nodes
    }

    fn status(&self, at: u32) -> StepStatus {
        self.node(at).map(|node| node.status).unwrap_or_default()
    }

    pub(crate) fn node_mut(&mut self, at: u32) -> Option<&mut Node> {
        self.nodes.get_mut(at as usize)
    }

    /// Finds the steps that may start. Returns the skipped steps.
    pub(crate) fn begin(&mut self) -> Vec<SkippedStep> {
        let mut skipped = Vec::new();
        for at in self.schedule.open(&self.graph.links()) {
            match self.evaluate(at, &mut skipped) {
                Some(weight) => self.schedule.ready(at, weight),
                None => {
                    self.schedule.settle(at);
                    self.release(at, &mut skipped);
                }
            }
        }
        skipped
    }

    /// Marks a step as running.
    pub(crate) fn mark_running(&mut self, at: u32) {
        self.schedule.begin(at);
        if let Some(node) = self.node_mut(at) {
            node.status = StepStatus::Running;
        }
    }

    /// Puts a step with remaining work back into the queue.
    pub(crate) fn push(&mut self, at: u32) {
        self.schedule.ready(at, self.graph.weight(at));
    }

    /// Settles a step and finds the steps that may start now. Returns the steps that are skipped
    /// because of it.
    pub(crate) fn settle(&mut self, at: u32, status: StepStatus) -> Vec<SkippedStep> {
        let mut skipped = Vec::new();
        if self.finish_early(at, status) {
            self.release(at, &mut skipped);
        }
        skipped
    }

    /// Settles a step before the run starts.
    pub(crate) fn finish_early(&mut self, at: u32, status: StepStatus) -> bool {
        let settled = self.schedule.settle(at);
        if settled {
            self.nodes[at as usize].status = status;
        }
        settled
    }

    /// Marks a step as failed and holds its dependents until a replan.
    pub(crate) fn hold(&mut self, at: u32) {
        if self.schedule.hold(at) {
            self.nodes[at as usize].status = StepStatus::Failed;
        }
    }

    /// Releases all held steps after a replan found no other way.
    pub(crate) fn release_held(&mut self) -> Vec<SkippedStep> {
        let held: Vec<u32> = self.schedule.held().collect();
        let mut skipped = Vec::new();
        for at in held {
            self.schedule.let_go(at);
            self.release(at, &mut skipped);
        }
        skipped
    }

    /// Releases the successors of a settled step. Successors that are skipped are settled as well,
    /// and so on.
    fn release(&mut self, at: u32, skipped: &mut Vec<SkippedStep>) {
        let (graph, empty) = (self.graph.clone(), Schedule::new(0));
        let mut schedule = std::mem::replace(&mut self.schedule, empty);
        schedule.release(at, &graph.links(), |behind| self.evaluate(behind, skipped));
        self.schedule = schedule;
    }

    /// Returns the priority of a step whose inputs are settled, or `None` if it is skipped.
    fn evaluate(&mut self, at: u32, skipped: &mut Vec<SkippedStep>) -> Option<u32> {
        let Some((reason, cause)) = self.skip_reason(at) else {
            return Some(self.graph.weight(at));
        };
        if let Some(node) = self.nodes.get_mut(at as usize) {
            (node.status, node.skip) = (StepStatus::Skipped, Some(reason));
        }
        skipped.push(SkippedStep { at, reason, cause });
        None
    }

    /// Returns the reason to skip a step whose inputs are settled, if there is one.
    fn skip_reason(&self, at: u32) -> Option<(Skip, Option<u32>)> {
        let step = self.step(at)?;
        let sources = self.sources_of(at);
        if let Some(reason) = self.fallback_skip_reason(sources) {
            return Some(reason);
        }
        let (mut taken, mut dead) = (usize::from(!sources.is_empty()), None);
        let before = || self.graph.before(at).filter(|(_, edge)| !edge.is_fallback);
        let mut firsts = None;
        for (source, edge) in before() {
            let own = self.sources_of(source);
            if !own.is_empty() {
                // A fallback for another predecessor of this step does not count, because that
                // predecessor does.
                let firsts = firsts
                    .get_or_insert_with(|| before().map(|(at, _)| at).collect::<HashSet<_>>());
                if own.iter().any(|first| firsts.contains(first)) {
                    continue;
                }
            }
            match self.edge(at, step, source, edge) {
                Ok(()) => taken += 1,
                // Report the most important reason: a failure before a condition.
                Err(reason) if dead.is_none_or(|(known, _)| known != Skip::Failure) => {
                    dead = Some((reason, Some(source)));
                }
                Err(_) => {}
            }
        }
        let dead = match step.join {
            Join::All => dead,
            Join::Any => dead.filter(|_| taken == 0),
        };
        let holds = |when: &&Condition| self.holds(when, at);
        dead.or_else(|| {
            step.when
                .as_ref()
                .filter(|when| !holds(when))
                .map(|_| (Skip::Condition, None))
        })
    }

    fn sources_of(&self, at: u32) -> &[u32] {
        self.sources.get(&at).map_or(&[], Vec::as_slice)
    }

    /// Returns the reason to skip a fallback for these steps: none of them has failed.
    ///
    /// A fallback of skipped steps is skipped for the same reason as they were, so that a report
    /// names the original cause.
    fn fallback_skip_reason(&self, sources: &[u32]) -> Option<(Skip, Option<u32>)> {
        if sources
            .iter()
            .any(|source| self.status(*source) == StepStatus::Failed)
        {
            return None;
        }
        let done = sources
            .iter()
            .find(|source| self.status(**source) == StepStatus::Completed);
        if let Some(done) = done {
            return Some((Skip::NotNeeded, Some(*done)));
        }
        let lost = sources
            .iter()
            .find(|source| self.skip_of(**source) == Skip::Failure);
        lost.or(sources.first())
            .map(|source| (self.skip_of(*source), Some(*source)))
    }

    /// Returns `Ok` if the edge from a settled step to another is active, otherwise the reason.
    fn edge(&self, at: u32, step: &Step, source: u32, edge: Edge) -> Result<(), Skip> {
        let status = self.status(source);
        if status != StepStatus::Completed && !self.has_completed_fallback(source) {
            match (status, self.on_failure(source)) {
                (StepStatus::Failed, Some(OnFailure::Continue)) => {}
                (StepStatus::Failed, Some(OnFailure::Skip)) => return Err(Skip::Tolerated),
                (StepStatus::Failed, _) => return Err(Skip::Failure),
                _ => return Err(self.skip_of(source)),
            }
        }
        let after = edge.after.and_then(|after| step.after.get(after as usize));
        let when = after.and_then(|after| after.when.as_ref());
        if when.is_none_or(|when| self.holds(when, at)) {
            Ok(())
        } else {
            Err(Skip::Condition)
        }
    }

    fn skip_of(&self, at: u32) -> Skip {
        self.node(at)
            .and_then(|node| node.skip)
            .unwrap_or(Skip::Condition)
    }

    fn on_failure(&self, at: u32) -> Option<&OnFailure> {
        self.step(at).map(|step| &step.on_failure)
    }

    /// Returns the fallbacks for a step.
    pub(crate) fn fallbacks(&self, at: u32) -> impl Iterator<Item = u32> {
        self.graph
            .behind(at)
            .filter(|(_, edge)| edge.is_fallback)
            .map(|(fallback, _)| fallback)
    }

    /// Returns `true` if a direct or indirect fallback for a step has completed.
    pub(crate) fn has_completed_fallback(&self, at: u32) -> bool {
        let mut pending: Vec<u32> = self.fallbacks(at).collect();
        let mut seen: HashSet<u32> = pending.iter().copied().collect();
        while let Some(next) = pending.pop() {
            if self.status(next) == StepStatus::Completed {
                return true;
            }
            pending.extend(self.fallbacks(next).filter(|next| seen.insert(*next)));
        }
        false
    }

    fn holds(&self, condition: &Condition, at: u32) -> bool {
        let values: Vec<(&Arc<str>, Option<Cow<'_, Value>>)> = condition
            .variables()
            .iter()
            .map(|name| (name, self.value_of(name, Some(at))))
            .collect();
        condition.holds(&|name| {
            values
                .iter()
                .find(|(known, _)| ***known == *name)
                .and_then(|(_, value)| value.as_deref())
        })
    }

    /// Returns the value of a variable for a reader: the last written value, or all values combined
    /// by a reducer. Only writers before the reader count, so steps that a replan adds do not
    /// change the inputs of a started step.
    pub(crate) fn read(&self, name: &str, reader: Option<u32>) -> Option<Value> {
        self.value_of(name, reader).map(Cow::into_owned)
    }

    /// Returns the same value as [`read`](Self::read), without a copy where possible.
    ///
    /// Without a reader, all writers count: that is the final value in a report.
    fn value_of(&self, name: &str, reader: Option<u32>) -> Option<Cow<'_, Value>> {
        let plan = self.graph.plan();
        let given = plan.given.get(name);
        let writers = self.graph.writers(name);
        let rank = reader.map_or(u32::MAX, |reader| self.graph.rank(reader));
        let before = writers
            .iter()
            .copied()
            .filter(|writer| self.graph.rank(*writer) < rank);
        match plan
            .variables
            .get(name)
            .and_then(|variable| variable.reducer)
        {
            Some(reducer) if !writers.is_empty() => {
                let mut before: Vec<u32> = before.collect();
                before.sort_unstable();
                let written = before
                    .iter()
                    .filter_map(|writer| self.written(*writer, name));
                Some(Cow::Owned(reducer.reduce(given.into_iter().chain(written))))
            }
            _ => {
                let last = before.rev().find_map(|writer| self.written(writer, name));
                last.or(given).map(Cow::Borrowed)
            }
        }
    }

    fn written(&self, at: u32, name: &str) -> Option<&Value> {
        let node = self
            .node(at)
            .filter(|node| node.status == StepStatus::Completed)?;
        let place = self
            .step(at)?
            .writes
            .iter()
            .position(|write| &**write == name)?;
        node.values.get(place)
    }
}
