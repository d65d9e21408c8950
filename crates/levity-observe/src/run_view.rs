//! A view of a run of any kind, as a page shows it: the chat, the graph, the questions and the
//! files.
//!
//! The fold knows the agent loop from core's events. Plans and swarms report their work by custom
//! events, which [`notices`] reads as JSON, so the view needs neither of their crates. Everything
//! is bounded: the number of items and nodes, the length of each text, and the total size.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use levity_core::{Event, RunId, Stats, Timestamp, Usage};
use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};
use serde_json::{Map, Value, json};

mod calls;
mod changes;
mod fold;
mod graph;
mod items;
pub(crate) mod layout;
mod marks;
mod messages;
mod model;
mod nodes;
mod notices;
mod runs;
mod swarm;
#[cfg(test)]
mod tests;
mod text;

pub use changes::{ItemChange, ViewChanges};
pub use model::{
    CallStatus, ItemKind, ItemProgressView, NodeKind, NodeStatus, ViewArtifact, ViewAsk, ViewCall,
    ViewItem, ViewMedia, ViewNode, ViewState,
};

use fold::ModelCall;
use items::{ItemKey, Items};
use marks::Marks;
use nodes::Nodes;
use runs::RunInfo;

/// The maximum number of bytes of a text.
const MAX_TEXT: usize = 64 << 10;
/// The maximum number of items.
const MAX_ITEMS: usize = 2_000;
/// The maximum number of bytes of all items.
const MAX_ITEM_BYTES: usize = 4 << 20;
/// The maximum number of nodes.
const MAX_NODES: usize = 20_000;
/// The maximum number of bytes of a text of a node.
const MAX_NODE_TEXT: usize = 8 << 10;
/// The number of bytes of all texts of nodes after which only short ones are added.
const MAX_NODE_BYTES: usize = 4 << 20;
/// The maximum number of pending questions.
const MAX_ASKS: usize = 200;
/// The maximum number of changed files.
const MAX_FILES: usize = 2_000;
/// The maximum number of events that wait for the start of their run.
const MAX_EARLY: usize = 256;
/// The maximum number of remembered runs.
const MAX_RUNS: usize = 100_000;

/// A view of a run of an agent, a team, a swarm or a program: a fold over its events and those of
/// all runs below it.
///
/// The view has no clock, does no I/O and never fails. A finished run has the same view whether its
/// events are live, replayed or read from the journal, with or without transient events. All texts
/// in it are untrusted.
///
/// It serializes as the JSON that the HTTP API returns. Use [`changes_since`](Self::changes_since)
/// to send only the difference to a page.
///
/// ```
/// use levity_core::{Event, EventKind, RunId, Timestamp};
/// use levity_observe::{RunView, ViewState};
///
/// let run = RunId::new("r1");
/// let mut view = RunView::new(run.clone());
/// let goal = EventKind::Goal { text: "Compare two pages.".into() };
/// view.apply(&Event::new(run, 1, Timestamp::from_millis(5), goal));
/// assert_eq!((view.goal(), view.state()), ("Compare two pages.", ViewState::Running));
/// assert_eq!(view.items().count(), 1);
/// assert_eq!(serde_json::to_value(&view)?["nodes"][0]["id"], "r1");
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct RunView {
    run: RunId,
    revision: u64,
    /// The number of durable events.
    seq: u64,
    /// The number of the last record of the run itself.
    record: Option<u64>,
    goal: String,
    paused: bool,
    started: Option<Timestamp>,
    updated: Option<Timestamp>,
    usage: Usage,
    stats: Stats,
    ending: Option<Arc<Value>>,
    asks: BTreeMap<(Timestamp, RunId, u64), ViewAsk>,
    waits: BTreeSet<(RunId, u64)>,
    items: Items,
    nodes: Nodes,
    /// The last change of each path; `None` after the file was removed.
    files: BTreeMap<String, (ItemKey, Option<ViewArtifact>)>,
    runs: BTreeMap<RunId, RunInfo>,
    /// The nodes that child runs will work for, as plans and swarms announce them.
    owners: BTreeMap<RunId, Arc<str>>,
    /// The nodes whose usage is final.
    settled: BTreeSet<Arc<str>>,
    models: BTreeMap<(RunId, u64), ModelCall>,
    /// The calls in progress, with the ids of their items.
    calls: BTreeMap<(RunId, u64), String>,
    /// The events of runs whose start is not known yet.
    early: Vec<Event>,
    marks: Marks,
    changed: Changed,
}

/// The revisions of the latest changes of the top-level fields.
#[derive(Clone, Debug, Default)]
struct Changed {
    /// The number of events, the state, the time of the last event and the usage.
    head: u64,
    goal: u64,
    ending: u64,
    asks: u64,
    files: u64,
}

impl RunView {
    /// Creates an empty view of this run, which may also be a child run.
    pub fn new(run: RunId) -> Self {
        let mut view = Self {
            run: run.clone(),
            revision: 0,
            seq: 0,
            record: None,
            goal: String::new(),
            paused: false,
            started: None,
            updated: None,
            usage: Usage::default(),
            stats: Stats::default(),
            ending: None,
            asks: BTreeMap::new(),
            waits: BTreeSet::new(),
            items: Items::default(),
            nodes: Nodes::default(),
            files: BTreeMap::new(),
            runs: BTreeMap::new(),
            owners: BTreeMap::new(),
            settled: BTreeSet::new(),
            models: BTreeMap::new(),
            calls: BTreeMap::new(),
            early: Vec::new(),
            marks: Marks::default(),
            changed: Changed::default(),
        };
        let node: Arc<str> = run.as_str().into();
        view.nodes.add(&node, None, NodeKind::Agent, "agent", 0);
        view.runs.insert(run, RunInfo::new(node));
        view
    }

    /// Creates the view of a run from these events.
    ///
    /// ```
    /// use levity_core::RunId;
    /// use levity_observe::RunView;
    /// let view = RunView::of(RunId::new("r1"), &[]);
    /// assert_eq!((view.len(), view.is_empty()), (0, true));
    /// ```
    pub fn of<'a>(run: RunId, events: impl IntoIterator<Item = &'a Event>) -> Self {
        let mut view = Self::new(run);
        events.into_iter().for_each(|event| view.apply(event));
        view
    }

    /// Returns the run of the view.
    pub fn run(&self) -> &RunId {
        &self.run
    }

    /// Returns the number of durable events that were applied.
    pub fn len(&self) -> u64 {
        self.seq
    }

    /// Returns `true` if no durable event was applied.
    pub fn is_empty(&self) -> bool {
        self.seq == 0
    }

    /// Returns the revision, which grows with each change.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Returns the goal of the run.
    pub fn goal(&self) -> &str {
        &self.goal
    }

    /// Returns the state of the run.
    pub fn state(&self) -> ViewState {
        match () {
            () if self.ending.is_some() => ViewState::Ended,
            () if self.paused => ViewState::Paused,
            () if !self.asks.is_empty() || !self.waits.is_empty() => ViewState::Waiting,
            () => ViewState::Running,
        }
    }

    /// Returns the items, the oldest first.
    pub fn items(&self) -> impl Iterator<Item = &ViewItem> {
        self.items.iter()
    }

    /// Returns the nodes, sorted by their id.
    pub fn nodes(&self) -> impl Iterator<Item = &ViewNode> {
        self.nodes.iter()
    }

    /// Returns the pending questions, the oldest first.
    pub fn asks(&self) -> impl Iterator<Item = &ViewAsk> {
        self.asks.values()
    }

    /// Returns the files that the run wrote and did not remove again, in the order of their paths.
    pub fn artifacts(&self) -> impl Iterator<Item = &ViewArtifact> {
        self.files.values().filter_map(|(_, file)| file.as_ref())
    }

    /// Returns up to 500 notable events: the number of durable events up to it, its time, and its
    /// name.
    ///
    /// ```
    /// use levity_core::{Event, EventKind, RunId, Timestamp};
    /// use levity_observe::RunView;
    ///
    /// let goal = EventKind::Goal { text: "Tidy up.".into() };
    /// let event = Event::new(RunId::new("r1"), 1, Timestamp::from_millis(5), goal);
    /// let view = RunView::of(RunId::new("r1"), [&event]);
    /// assert_eq!(view.marks().collect::<Vec<_>>(), [(1, Timestamp::from_millis(5), "goal")]);
    /// ```
    pub fn marks(&self) -> impl Iterator<Item = (u64, Timestamp, &'static str)> {
        self.marks.iter()
    }

    /// Returns the approximate size of the view in bytes.
    pub fn size(&self) -> usize {
        let asks: usize = self
            .asks
            .values()
            .map(|ask| text::size_of(&ask.call.args))
            .sum();
        self.items.bytes() + self.nodes.bytes() + asks + self.files.len() * 512
    }

    /// Returns the changes since a revision, or `None` if the revision is too old; then use the
    /// whole view.
    ///
    /// [`ViewChanges`] has an example.
    pub fn changes_since(&self, revision: u64) -> Option<ViewChanges> {
        let (items, removed_items) = self.items.changes_since(revision)?;
        let (nodes, removed_nodes) = self.nodes.changes_since(revision)?;
        Some(ViewChanges {
            fields: self.fields(Some(revision)),
            items,
            removed_items,
            nodes,
            removed_nodes,
        })
    }

    /// Returns the top-level fields that changed after a revision, or all of them.
    fn fields(&self, since: Option<u64>) -> Map<String, Value> {
        let is_new = |changed: u64| since.is_none_or(|since| changed > since);
        let mut fields = Map::new();
        let mut add = |name: &str, value: Value| drop(fields.insert(name.to_owned(), value));
        if is_new(self.changed.head) {
            add("seq", self.seq.into());
            add("record", json!(self.record));
            add("state", json!(self.state()));
            add("updated", json!(self.updated));
            add("usage", model::usage_value(&self.usage));
            add("stats", json!(self.stats));
            add("dropped", self.items.dropped().into());
            add("dropped_nodes", self.nodes.dropped().into());
        }
        if is_new(self.changed.goal) {
            add("goal", self.goal.as_str().into());
            add("started", json!(self.started));
        }
        if is_new(self.changed.ending) {
            add("ending", json!(self.ending));
        }
        if is_new(self.changed.asks) {
            add("asks", self.asks().map(|ask| json!(ask)).collect());
        }
        if is_new(self.nodes.edges_changed()) {
            add(
                "edges",
                self.nodes.edges().map(|edge| json!(edge)).collect(),
            );
        }
        if is_new(self.changed.files) {
            add(
                "artifacts",
                self.artifacts().map(|file| json!(file)).collect(),
            );
        }
        fields
    }
}

/// Serializes the whole view.
impl Serialize for RunView {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let fields = self.fields(None);
        let mut map = serializer.serialize_map(Some(fields.len() + 3))?;
        map.serialize_entry("run", &self.run)?;
        for (name, value) in &fields {
            map.serialize_entry(name, value)?;
        }
        map.serialize_entry("items", &self.items.iter().collect::<Vec<_>>())?;
        map.serialize_entry("nodes", &self.nodes.iter().collect::<Vec<_>>())?;
        map.end()
    }
}
