//! Which step may begin: a pure account of what is settled.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use levity_graph::Schedule;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::condition::Condition;
use crate::graph::{Edge, Graph};
use crate::notice::{StepSpent, StepStatus};
use crate::step::{Join, OnFailure, Step, StepId};

/// The steps of a graph: what came of each, and which may begin.
#[derive(Debug)]
pub(crate) struct Scheduler {
    graph: Graph,
    nodes: Vec<Node>,
    /// The steps that each stand-in stands in for.
    sources: HashMap<u32, Vec<u32>>,
    /// Those on the longest way to an end are the most urgent. A list that is settled early leaves
    /// its step behind, which is passed over. Held are steps that have failed and for which another
    /// way is looked for.
    pub(crate) schedule: Schedule,
}

/// Where a step stands.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Node {
    pub(crate) status: StepStatus,
    /// Somebody has found another way since it failed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) handled: bool,
    /// Why it was not run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) skip: Option<Skip>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<Box<str>>,
    /// What it wrote, in the order of its `writes`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) values: Vec<Value>,
    /// All that it gave, when it writes nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) output: Option<Box<Value>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) spent: Option<Box<StepSpent>>,
}

/// Why a step is not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Skip {
    /// The step it stands in for has not failed.
    NotNeeded,
    /// A condition does not hold.
    Condition,
    /// A step before it failed, and that was to be expected.
    Tolerated,
    /// A step before it failed.
    Failure,
}

/// Something that has become of steps that were not begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Skipped {
    pub(crate) at: u32,
    pub(crate) why: Skip,
    /// The step because of which.
    pub(crate) by: Option<u32>,
}

impl Scheduler {
    /// All steps pending.
    pub(crate) fn new(graph: Graph) -> Self {
        let nodes = (0..graph.len()).map(|_| Node::default()).collect();
        let mut sources: HashMap<u32, Vec<u32>> = HashMap::new();
        for (source, stand_in) in graph.stand_ins() {
            sources.entry(stand_in).or_default().push(source);
        }
        Self {
            schedule: Schedule::new(graph.len()),
            graph,
            nodes,
            sources,
        }
    }

    /// Steps that stand as they were saved, some of them held. What may begin and has not is ready;
    /// a step that is run for a list and has more of it is not.
    pub(crate) fn restored(graph: Graph, nodes: Vec<Node>, held: &[u32]) -> Result<Self, String> {
        let mut new = Self::new(graph);
        if nodes.len() != new.nodes.len() {
            return Err("its plan has another number of steps than there are".to_owned());
        }
        let is_failed = |at: &u32| {
            nodes
                .get(*at as usize)
                .is_some_and(|node| node.status == StepStatus::Failed)
        };
        if !held.iter().all(is_failed) {
            return Err("another way is looked for, and no step has failed".to_owned());
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

    /// A changed plan, made for the sake of these steps; what has begun keeps its state. Returns it
    /// with the new numbers of the old steps.
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

    /// Finds what may begin. Returns what is skipped.
    pub(crate) fn begin(&mut self) -> Vec<Skipped> {
        let mut skipped = Vec::new();
        for at in self.schedule.open(&self.graph.links()) {
            match self.place(at, &mut skipped) {
                Some(weight) => self.schedule.ready(at, weight),
                None => {
                    self.schedule.settle(at);
                    self.release(at, &mut skipped);
                }
            }
        }
        skipped
    }

    /// A step is under way.
    pub(crate) fn mark_running(&mut self, at: u32) {
        self.schedule.begin(at);
        if let Some(node) = self.node_mut(at) {
            node.status = StepStatus::Running;
        }
    }

    /// Puts a step back that has more to begin.
    pub(crate) fn push(&mut self, at: u32) {
        self.schedule.ready(at, self.graph.weight(at));
    }

    /// Settles a step, and finds what may begin now. Returns what is skipped because of it.
    pub(crate) fn settle(&mut self, at: u32, status: StepStatus) -> Vec<Skipped> {
        let mut skipped = Vec::new();
        if self.finish_early(at, status) {
            self.release(at, &mut skipped);
        }
        skipped
    }

    /// Settles a step before the run begins.
    pub(crate) fn finish_early(&mut self, at: u32, status: StepStatus) -> bool {
        let settled = self.schedule.settle(at);
        if settled {
            self.nodes[at as usize].status = status;
        }
        settled
    }

    /// A step has failed, and those behind it wait for another way to be found.
    pub(crate) fn hold(&mut self, at: u32) {
        if self.schedule.hold(at) {
            self.nodes[at as usize].status = StepStatus::Failed;
        }
    }

    /// No other way was found for the steps that were held.
    pub(crate) fn let_go(&mut self) -> Vec<Skipped> {
        let held: Vec<u32> = self.schedule.held().collect();
        let mut skipped = Vec::new();
        for at in held {
            self.schedule.let_go(at);
            self.release(at, &mut skipped);
        }
        skipped
    }

    /// Tells those behind a settled step; what is skipped because of it is settled, too, and so on.
    fn release(&mut self, at: u32, skipped: &mut Vec<Skipped>) {
        let (graph, empty) = (self.graph.clone(), Schedule::new(0));
        let mut schedule = std::mem::replace(&mut self.schedule, empty);
        schedule.release(at, &graph.links(), |behind| self.place(behind, skipped));
        self.schedule = schedule;
    }

    /// How urgent a step is whose inputs are settled; nothing when it is skipped.
    fn place(&mut self, at: u32, skipped: &mut Vec<Skipped>) -> Option<u32> {
        let Some((why, by)) = self.verdict(at) else {
            return Some(self.graph.weight(at));
        };
        if let Some(node) = self.nodes.get_mut(at as usize) {
            (node.status, node.skip) = (StepStatus::Skipped, Some(why));
        }
        skipped.push(Skipped { at, why, by });
        None
    }

    /// Why a step whose inputs are settled is not run, if it is not.
    fn verdict(&self, at: u32) -> Option<(Skip, Option<u32>)> {
        let step = self.step(at)?;
        let sources = self.sources_of(at);
        if let Some(idle) = self.idle(sources) {
            return Some(idle);
        }
        let (mut taken, mut dead) = (usize::from(!sources.is_empty()), None);
        let before = || self.graph.before(at).filter(|(_, edge)| !edge.stands_in);
        let mut firsts = None;
        for (source, edge) in before() {
            let own = self.sources_of(source);
            if !own.is_empty() {
                // Who stands in for another step that this one comes after as well does not count:
                // that one does.
                let firsts = firsts
                    .get_or_insert_with(|| before().map(|(at, _)| at).collect::<HashSet<_>>());
                if own.iter().any(|first| firsts.contains(first)) {
                    continue;
                }
            }
            match self.edge(at, step, source, edge) {
                Ok(()) => taken += 1,
                // What counts most is told: a failure before a condition.
                Err(why) if dead.is_none_or(|(known, _)| known != Skip::Failure) => {
                    dead = Some((why, Some(source)));
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

    /// Why one who stands in for these has nothing to do: none of them has failed.
    fn idle(&self, sources: &[u32]) -> Option<(Skip, Option<u32>)> {
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

    /// Whether the way from a settled step to another is taken; if not, why not.
    fn edge(&self, at: u32, step: &Step, source: u32, edge: Edge) -> Result<(), Skip> {
        let status = self.status(source);
        if status != StepStatus::Completed && !self.is_rescued(source) {
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

    /// The steps that stand in for one.
    pub(crate) fn stand_ins(&self, at: u32) -> impl Iterator<Item = u32> {
        self.graph
            .behind(at)
            .filter(|(_, edge)| edge.stands_in)
            .map(|(stand_in, _)| stand_in)
    }

    /// Whether a step stands in for one, directly or not, and is done.
    pub(crate) fn is_rescued(&self, at: u32) -> bool {
        let mut look: Vec<u32> = self.stand_ins(at).collect();
        let mut seen: HashSet<u32> = look.iter().copied().collect();
        while let Some(next) = look.pop() {
            if self.status(next) == StepStatus::Completed {
                return true;
            }
            look.extend(self.stand_ins(next).filter(|next| seen.insert(*next)));
        }
        false
    }

    fn holds(&self, condition: &Condition, at: u32) -> bool {
        let values: Vec<(&Arc<str>, Option<Cow<'_, Value>>)> = condition
            .variables()
            .iter()
            .map(|name| (name, self.look(name, Some(at))))
            .collect();
        condition.holds(&|name| {
            values
                .iter()
                .find(|(known, _)| ***known == *name)
                .and_then(|(_, value)| value.as_deref())
        })
    }

    /// The value of a variable: that of the last step that wrote it or, with a reducer, those of
    /// all. What a step reads is what those before it wrote: one that a change of the plan adds
    /// does not change what a step that has begun is given.
    pub(crate) fn read(&self, name: &str, reader: Option<u32>) -> Option<Value> {
        self.look(name, reader).map(Cow::into_owned)
    }

    /// The same, without a copy where there need be none.
    fn look(&self, name: &str, reader: Option<u32>) -> Option<Cow<'_, Value>> {
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
