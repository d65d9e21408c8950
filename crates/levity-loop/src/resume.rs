use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;

use levity_core::{Event, Limits, RunId};
use levity_runtime::Job;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;

use crate::agent::Agent;
use crate::answer::Answer;
use crate::error::Result;
use crate::machine::AgentMachine;
use crate::output::OutputCheck;
use crate::run::AgentRun;
use crate::way::Way;

/// A run that is about to go on from its journal: await it for the answer, or set something first; see
/// [`Agent::resume`].
#[must_use = "a run does not go on until it is awaited or started"]
pub struct Resume {
    run: RunId,
    way: Way,
}

impl Resume {
    pub(crate) fn new(agent: Agent, run: RunId) -> Self {
        Self { run, way: Way::new(agent) }
    }

    /// What the run may use, in place of what it was made with; what it has used counts.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.way.limits = Some(Box::new(limits));
        self
    }

    /// Calls `watcher` with each new event; see [`Run::on_event`](crate::Run::on_event).
    pub fn on_event(mut self, watcher: impl Fn(&Event) + Send + Sync + 'static) -> Self {
        self.way.watch(watcher);
        self
    }

    /// Leaves the run in its journal again when all it does is wait; see [`Run::park`](crate::Run::park).
    pub fn park(mut self) -> Self {
        self.way.park = true;
        self
    }

    /// Says as what the answer was wanted, if it was; [`Answer::parse`] then gives the `T`.
    pub fn typed<T: DeserializeOwned + JsonSchema>(mut self) -> Self {
        self.way.output = Some(OutputCheck::of::<T>());
        self
    }

    /// Goes on on a task of its own, and returns a handle on it at once.
    ///
    /// # Panics
    /// When called outside a tokio runtime.
    pub fn start(self) -> AgentRun {
        let job = self.job();
        self.way.start(job)
    }

    fn job(&self) -> Job<AgentMachine> {
        let (agent, output) = (self.way.agent.clone(), self.way.output.clone());
        let joining = agent.clone();
        Job::resume(self.run.clone(), agent.executor(), move |kind, state| {
            AgentMachine::check_kind(kind)?;
            agent.restore_as(state, output)
        })
        .joined(move |machine| Box::pin(async move { joining.join(machine).await }))
    }
}

impl IntoFuture for Resume {
    type Output = Result<Answer>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        let job = self.job();
        self.way.answer(job)
    }
}

impl fmt::Debug for Resume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resume").field("run", &self.run).finish_non_exhaustive()
    }
}
