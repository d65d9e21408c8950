//! Where each event of a run and its children comes from.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use levity_core::{EffectId, Event, EventKind, RunId};

/// How many runs and calls are remembered at a time.
const MAX_ENTRIES: usize = 100_000;

/// Says of each event of a run and its children where it comes from: `swarm › coder › read_file`.
///
/// A fold over the events: hand it each of them, in order. It remembers the runs and the calls that
/// are under way, at most 100,000 of them; past that it forgets the older half.
///
/// ```
/// # use levity_core::{EffectId, Event, EventKind, RunId, Timestamp};
/// # use levity_observe::Lineage;
/// let mut lineage = Lineage::new("swarm");
/// # let mut tell = |run: &str, kind| lineage.apply(&Event::new(run.into(), 1, Timestamp::default(), kind));
/// # let (effect, child) = (EffectId::new(3), RunId::new("r1.3"));
/// tell("r1", EventKind::ChildStarted { effect, child, agent: "coder".into() });
/// let origin = tell("r1.3", EventKind::Paused);
/// assert_eq!(origin.to_string(), "swarm › coder");
/// assert_eq!(origin.worker(), Some("coder"));
/// ```
///
/// A listener that came late was not told of the runs that had begun: such a run is shown by its
/// id, as in `swarm › r1.3 › read_file`. A run that is neither the whole nor below it is shown by
/// its id alone.
#[derive(Clone)]
pub struct Lineage {
    name: Arc<str>,
    whole: Option<RunId>,
    /// Whether the whole was named, and not found out.
    is_fixed: bool,
    /// The runs below the whole that are under way.
    runs: BTreeMap<RunId, Entry>,
    /// The calls, and the questions about calls, that are under way.
    calls: BTreeMap<(RunId, EffectId), Entry>,
    /// How many entries there ever were.
    count: u64,
}

/// What was remembered, and when.
#[derive(Clone)]
struct Entry {
    name: Arc<str>,
    number: u64,
}

/// Where an event comes from.
///
/// It is displayed as its path: `swarm › coder › read_file`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Origin {
    /// The name of the whole, then the agents from the outermost to the innermost, then the tool,
    /// if it is one's.
    pub path: Vec<Arc<str>>,
    /// The run.
    pub run: RunId,
    of_tool: bool,
}

impl Origin {
    /// The worker: the agent directly below the whole.
    pub fn worker(&self) -> Option<&str> {
        self.agents().get(1).map(|name| &**name)
    }

    /// The tool, if the event is about a call of one.
    pub fn tool(&self) -> Option<&str> {
        self.path
            .last()
            .filter(|_| self.of_tool)
            .map(|name| &**name)
    }

    /// The path without the tool: the name of the whole, then the agents.
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
    /// Remembers nothing yet; `name` is that of the whole: the outermost run there are events of.
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        let (runs, calls) = (BTreeMap::new(), BTreeMap::new());
        Self {
            name: name.into(),
            whole: None,
            is_fixed: false,
            runs,
            calls,
            count: 0,
        }
    }

    /// As [`new`](Self::new), where the whole is this run: for a listener that comes late to a run
    /// whose own id has a dot in it, and for a swarm that is itself a part of something larger.
    pub fn of_run(name: impl Into<Arc<str>>, run: RunId) -> Self {
        Self {
            whole: Some(run),
            is_fixed: true,
            ..Self::new(name)
        }
    }

    /// Takes in an event and says where it comes from.
    pub fn apply(&mut self, event: &Event) -> Origin {
        self.find_whole(event);
        self.begin(event);
        let origin = self.origin(&event.run, self.tool_of(event));
        self.end(event);
        origin
    }

    /// Where the events of a run come from, if it is under way.
    pub fn who(&self, run: &RunId) -> Option<Origin> {
        let known = self.whole.as_ref() == Some(run) || self.runs.contains_key(run);
        known.then(|| self.origin(run, None))
    }

    /// The runs of a worker that are under way, in the order in which they began. The runs below
    /// them are not among them.
    pub fn runs_of(&self, worker: &str) -> Vec<RunId> {
        let of_whole = |run: &RunId| run.parent().as_ref() == self.whole.as_ref();
        let named = self
            .runs
            .iter()
            .filter(|(run, entry)| &*entry.name == worker && of_whole(run));
        let mut found: Vec<_> = named.collect();
        found.sort_by_key(|(_, entry)| entry.number);
        found.into_iter().map(|(run, _)| run.clone()).collect()
    }

    /// The whole is the run that the first event begins, and for a listener that came late the
    /// outermost part of the first id. A run above the one that was taken for the whole shows that
    /// it is not.
    fn find_whole(&mut self, event: &Event) {
        match &self.whole {
            None => self.whole = Some(whole_of(event)),
            Some(whole) if !self.is_fixed && *whole != event.run && whole.is_within(&event.run) => {
                self.whole = Some(event.run.clone());
            }
            Some(_) => {}
        }
    }

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

    fn begin_call(&mut self, event: &Event, effect: EffectId, tool: &str) {
        let entry = self.entry(tool.into());
        self.calls.insert((event.run.clone(), effect), entry);
    }

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

    /// Entries whose end was missed would stay, so the oldest go. Half of them at once, so that
    /// each new one costs little.
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

    fn end(&mut self, event: &Event) {
        match &event.kind {
            EventKind::RunEnded(_) => self.forget(&event.run),
            EventKind::ChildFinished { effect, .. } => self.forget(&event.run.child(*effect)),
            EventKind::ToolFinished { effect, .. } | EventKind::Decided { effect, .. } => {
                self.calls.remove(&(event.run.clone(), *effect));
            }
            // A call or a child run, and no other event tells of its end.
            EventKind::Denied { effect, .. }
            | EventKind::Refused { effect, .. }
            | EventKind::OutcomeUnknown { effect } => {
                self.calls.remove(&(event.run.clone(), *effect));
                self.forget(&event.run.child(*effect));
            }
            _ => {}
        }
    }

    /// Forgets a run, the runs below it, and their calls.
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

    /// The names from the whole down to a run.
    fn names(&self, run: &RunId) -> Vec<Arc<str>> {
        let below = self
            .whole
            .as_ref()
            .and_then(|whole| Some((whole, run.as_str().strip_prefix(whole.as_str())?)));
        let Some((whole, below)) =
            below.filter(|(_, below)| below.is_empty() || below.starts_with('.'))
        else {
            return vec![run.as_str().into()];
        };
        let start = whole.as_str().len();
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

/// The run that an event begins; of any other event the outermost run.
fn whole_of(event: &Event) -> RunId {
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
