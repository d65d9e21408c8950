//! The origin of each event of a run and its children.
//!
//! Runs form a tree by their ids: the effect 3 of the run `r1` starts the run `r1.3`. The lineage
//! maps each id to the name of its agent and drops it when the run ends, so its size follows the
//! work in progress and not the length of the run.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use levity_core::{EffectId, Event, EventKind, RunId};

/// The maximum number of remembered runs and calls.
const MAX_ENTRIES: usize = 100_000;

/// A fold that returns the origin of each event of a run and its children:
/// `swarm › coder › read_file`.
///
/// Pass it every event in order. It remembers the runs and calls in progress, at most 100,000;
/// beyond that it drops the older half.
///
/// ```
/// # use levity_core::{EffectId, Event, EventKind, RunId, Timestamp};
/// # use levity_observe::Lineage;
/// let mut lineage = Lineage::new("swarm");
/// # let event = |run: &str, kind| Event::new(run.into(), 1, Timestamp::default(), kind);
/// # let mut apply = |run: &str, kind| lineage.apply(&event(run, kind));
/// # let (effect, child) = (EffectId::new(3), RunId::new("r1.3"));
/// apply("r1", EventKind::ChildStarted { effect, child, agent: "coder".into() });
/// let origin = apply("r1.3", EventKind::Paused);
/// assert_eq!(origin.to_string(), "swarm › coder");
/// assert_eq!(origin.worker(), Some("coder"));
/// ```
///
/// A listener that joins late has missed the start of some runs. Such a run appears by its id, as
/// in `swarm › r1.3 › read_file`. A run that is neither the root nor below it appears by its id
/// alone.
#[derive(Clone)]
pub struct Lineage {
    name: Arc<str>,
    root: Option<RunId>,
    /// `true` if the caller named the root; `false` if it was derived from events.
    is_fixed: bool,
    /// The runs in progress below the root.
    runs: BTreeMap<RunId, Entry>,
    /// The calls in progress, and the approval requests for calls.
    calls: BTreeMap<(RunId, EffectId), Entry>,
    /// The total number of entries ever made.
    count: u64,
}

/// A remembered name and its sequence number.
#[derive(Clone)]
struct Entry {
    name: Arc<str>,
    number: u64,
}

/// The origin of an event: the agents and the tool it comes from.
///
/// Its `Display` form is the path: `swarm › coder › read_file`.
///
/// ```
/// use levity_core::{EffectId, Event, EventKind, RunId, Timestamp, ToolCall};
/// use levity_observe::Lineage;
/// use serde_json::json;
///
/// let event = |run: &str, kind| Event::new(run.into(), 1, Timestamp::default(), kind);
/// let mut lineage = Lineage::with_root("swarm", RunId::new("r1"));
/// let (effect, child) = (EffectId::new(3), RunId::new("r1.3"));
/// lineage.apply(&event("r1", EventKind::ChildStarted { effect, child, agent: "coder".into() }));
///
/// let call = ToolCall::new("c1", "read_file", json!({}));
/// let started = EventKind::ToolStarted { effect, call };
/// let origin = lineage.apply(&event("r1.3", started));
/// assert_eq!((origin.worker(), origin.tool()), (Some("coder"), Some("read_file")));
/// assert_eq!(origin.agents().len(), 2);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Origin {
    /// The name of the root, then the agents from the outermost to the innermost, then the tool, if
    /// the event belongs to one.
    pub path: Vec<Arc<str>>,
    /// The run of the event.
    pub run: RunId,
    of_tool: bool,
}

impl Origin {
    /// Returns the worker: the agent directly below the root.
    pub fn worker(&self) -> Option<&str> {
        self.agents().get(1).map(|name| &**name)
    }

    /// Returns the tool, if the event is about a tool call.
    pub fn tool(&self) -> Option<&str> {
        self.path
            .last()
            .filter(|_| self.of_tool)
            .map(|name| &**name)
    }

    /// Returns the path without the tool: the name of the root, then the agents.
    pub fn agents(&self) -> &[Arc<str>] {
        &self.path[..self.path.len() - usize::from(self.of_tool)]
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, name) in self.path.iter().enumerate() {
            let before = if at == 0 { "" } else { " › " };
            write!(f, "{before}{name}")?;
        }
        Ok(())
    }
}

impl Lineage {
    /// Creates an empty lineage; `name` is the name of the root, the outermost run with events.
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        let (runs, calls) = (BTreeMap::new(), BTreeMap::new());
        Self {
            name: name.into(),
            root: None,
            is_fixed: false,
            runs,
            calls,
            count: 0,
        }
    }

    /// Creates a lineage like [`new`](Self::new), with this run as the root. Use it for a listener
    /// that joins a run late whose own id contains a dot, and for a swarm inside a larger run.
    pub fn with_root(name: impl Into<Arc<str>>, run: RunId) -> Self {
        Self {
            root: Some(run),
            is_fixed: true,
            ..Self::new(name)
        }
    }

    /// Applies an event and returns its origin.
    ///
    /// The event that ends a run or a call still has its full origin; later events do not.
    pub fn apply(&mut self, event: &Event) -> Origin {
        self.find_root(event);
        self.begin(event);
        let origin = self.origin(&event.run, self.tool_of(event));
        self.end(event);
        origin
    }

    /// Returns the origin of a run's events, if the run is in progress.
    ///
    /// ```
    /// use levity_core::{EffectId, Event, EventKind, RunId, Timestamp};
    /// use levity_observe::Lineage;
    ///
    /// let mut lineage = Lineage::new("swarm");
    /// let (effect, child) = (EffectId::new(3), RunId::new("r1.3"));
    /// let kind = EventKind::ChildStarted { effect, child, agent: "coder".into() };
    /// lineage.apply(&Event::new("r1".into(), 1, Timestamp::default(), kind));
    /// assert_eq!(lineage.origin_of(&"r1.3".into()).unwrap().to_string(), "swarm › coder");
    /// assert!(lineage.origin_of(&"r1.4".into()).is_none());
    /// assert_eq!(lineage.runs_of("coder"), [RunId::new("r1.3")]);
    /// ```
    pub fn origin_of(&self, run: &RunId) -> Option<Origin> {
        let known = self.root.as_ref() == Some(run) || self.runs.contains_key(run);
        known.then(|| self.origin(run, None))
    }

    /// Returns the runs in progress of a worker, in the order of their start. The runs below them
    /// are not included.
    pub fn runs_of(&self, worker: &str) -> Vec<RunId> {
        let below_root = |run: &RunId| run.parent().as_ref() == self.root.as_ref();
        let named = self
            .runs
            .iter()
            .filter(|(run, entry)| &*entry.name == worker && below_root(run));
        let mut found: Vec<_> = named.collect();
        found.sort_by_key(|(_, entry)| entry.number);
        found.into_iter().map(|(run, _)| run.clone()).collect()
    }

    /// Determines the root: the run that the first event starts, or for a late listener the
    /// outermost part of the first id. An event of a run above the assumed root corrects it.
    fn find_root(&mut self, event: &Event) {
        match &self.root {
            None => self.root = Some(root_of(event)),
            Some(root) if !self.is_fixed && *root != event.run && root.is_within(&event.run) => {
                self.root = Some(event.run.clone());
            }
            Some(_) => {}
        }
    }

    /// Remembers the name of a child run, or the tool of a call, before events of it arrive.
    fn begin(&mut self, event: &Event) {
        match &event.kind {
            EventKind::ChildStarted { child, agent, .. } => {
                let entry = self.entry(agent.clone());
                self.runs.insert(child.clone(), entry);
            }
            EventKind::ToolStarted { effect, call } => self.begin_call(event, *effect, &call.name),
            EventKind::Asked(ask) => self.begin_call(event, ask.effect, &ask.call.name),
            _ => {}
        }
    }

    /// Remembers the tool of a call or of a question about it.
    fn begin_call(&mut self, event: &Event, effect: EffectId, tool: &str) {
        let entry = self.entry(tool.into());
        self.calls.insert((event.run.clone(), effect), entry);
    }

    /// Returns a new entry, and drops old ones if there are too many.
    fn entry(&mut self, name: Arc<str>) -> Entry {
        if self.runs.len() + self.calls.len() >= MAX_ENTRIES {
            self.forget_older_half();
        }
        self.count += 1;
        Entry {
            name,
            number: self.count,
        }
    }

    /// Entries whose end was missed would stay, so the oldest are dropped. Dropping half of them at
    /// once makes each new entry cheap.
    fn forget_older_half(&mut self) {
        let mut numbers: Vec<_> = self
            .runs
            .values()
            .chain(self.calls.values())
            .map(|entry| entry.number)
            .collect();
        let half = numbers.len() / 2;
        let (_, middle, _) = numbers.select_nth_unstable(half);
        let first = *middle;
        self.runs.retain(|_, entry| entry.number >= first);
        self.calls.retain(|_, entry| entry.number >= first);
    }

    /// Removes the run or the call that ends with an event.
    fn end(&mut self, event: &Event) {
        match &event.kind {
            EventKind::RunEnded(_) => self.forget(&event.run),
            EventKind::ChildFinished { effect, .. } => self.forget(&event.run.child(*effect)),
            EventKind::ToolFinished { effect, .. } | EventKind::Decided { effect, .. } => {
                self.calls.remove(&(event.run.clone(), *effect));
            }
            // The event concerns a call or a child run, and no other event reports its end.
            EventKind::Denied { effect, .. }
            | EventKind::Refused { effect, .. }
            | EventKind::OutcomeUnknown { effect } => {
                self.calls.remove(&(event.run.clone(), *effect));
                self.forget(&event.run.child(*effect));
            }
            _ => {}
        }
    }

    /// Removes a run, the runs below it, and their calls.
    fn forget(&mut self, run: &RunId) {
        self.runs.remove(run);
        let below = RunId::from(format!("{run}."));
        let inner = self.runs.range(below.clone()..).map(|(inner, _)| inner);
        let inner: Vec<_> = inner
            .take_while(|inner| inner.as_str().starts_with(below.as_str()))
            .cloned()
            .collect();
        for run in &inner {
            self.runs.remove(run);
        }
        for run in inner.iter().chain([run]) {
            self.forget_calls(run);
        }
    }

    /// Removes the calls of a run alone.
    fn forget_calls(&mut self, run: &RunId) {
        let all = (run.clone(), EffectId::new(0))..=(run.clone(), EffectId::new(u64::MAX));
        let effects: Vec<_> = self
            .calls
            .range(all)
            .map(|(call, _)| call.clone())
            .collect();
        for call in &effects {
            self.calls.remove(call);
        }
    }

    /// Returns the tool of the call that an event concerns; `None` if it concerns a whole run.
    fn tool_of(&self, event: &Event) -> Option<Arc<str>> {
        let effect = match &event.kind {
            EventKind::Asked(ask) => ask.effect,
            EventKind::ToolStarted { effect, .. }
            | EventKind::Decided { effect, .. }
            | EventKind::Denied { effect, .. }
            | EventKind::Refused { effect, .. }
            | EventKind::OutcomeUnknown { effect }
            | EventKind::Progress { effect, .. }
            | EventKind::FileChanged { effect, .. } => *effect,
            EventKind::ToolFinished { result, .. } => return Some(result.name.as_str().into()),
            _ => return None,
        };
        self.calls
            .get(&(event.run.clone(), effect))
            .map(|call| call.name.clone())
    }

    fn origin(&self, run: &RunId, tool: Option<Arc<str>>) -> Origin {
        let of_tool = tool.is_some();
        let path = self.names(run).into_iter().chain(tool).collect();
        Origin {
            path,
            run: run.clone(),
            of_tool,
        }
    }

    /// Returns the names from the root down to a run.
    ///
    /// For the root `r` and the run `r.3.1`, the ids to name are `r.3` and `r.3.1`. The root itself
    /// may contain dots, so the search starts behind it.
    fn names(&self, run: &RunId) -> Vec<Arc<str>> {
        let below = self
            .root
            .as_ref()
            .and_then(|root| Some((root, run.as_str().strip_prefix(root.as_str())?)));
        let Some((root, below)) =
            below.filter(|(_, below)| below.is_empty() || below.starts_with('.'))
        else {
            return vec![run.as_str().into()];
        };
        let start = root.as_str().len();
        let ends = below.match_indices('.').skip(1).map(|(at, _)| start + at);
        let ends = ends.chain((!below.is_empty()).then_some(run.as_str().len()));
        let agents = ends.map(|end| self.name_of(&run.as_str()[..end]));
        std::iter::once(self.name.clone()).chain(agents).collect()
    }

    fn name_of(&self, run: &str) -> Arc<str> {
        self.runs
            .get(run)
            .map_or_else(|| run.into(), |entry| entry.name.clone())
    }
}

impl fmt::Debug for Lineage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lineage")
            .field("name", &self.name)
            .field("runs", &self.runs.len())
            .field("calls", &self.calls.len())
            .finish()
    }
}

/// Returns the run that an event starts; for any other event, the outermost run.
fn root_of(event: &Event) -> RunId {
    let outermost = event
        .run
        .as_str()
        .split_once('.')
        .map(|(outermost, _)| outermost);
    match (&event.kind, outermost) {
        (EventKind::RunStarted { .. }, _) | (_, None) => event.run.clone(),
        (_, Some(outermost)) => outermost.into(),
    }
}
