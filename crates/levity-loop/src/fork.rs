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

/// A run that is about to go another way than an old one did: await it for the answer, or set something
/// first; see [`Agent::fork`].
#[must_use = "a fork does nothing until it is awaited or started"]
pub struct Fork {
    from: RunId,
    after: Option<u64>,
    way: Way,
}

impl Fork {
    pub(crate) fn new(agent: Agent, from: RunId) -> Self {
        Self { from, after: None, way: Way::new(agent) }
    }

    /// The last record of the old run that the new one begins with, by its number; by default the last there
    /// is, and of a run that has ended the last before the last call of its model.
    pub fn after(mut self, record: u64) -> Self {
        self.after = Some(record);
        self
    }

    /// The new run's id; a random one by default.
    pub fn id(mut self, run: impl Into<RunId>) -> Self {
        self.way.id = Some(run.into());
        self
    }

    /// What the run may use, in place of what the old one could; what it had used by then counts.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.way.limits = Some(Box::new(limits));
        self
    }

    /// Calls `watcher` with each new event; see [`Run::on_event`](crate::Run::on_event).
    pub fn on_event(mut self, watcher: impl Fn(&Event) + Send + Sync + 'static) -> Self {
        self.way.watch(watcher);
        self
    }

    /// Leaves the run in its journal when all it does is wait; see [`Run::park`](crate::Run::park).
    pub fn park(mut self) -> Self {
        self.way.park = true;
        self
    }

    /// Says as what the answer was wanted, if it was; [`Answer::parse`] then gives the `T`.
    pub fn typed<T: DeserializeOwned + JsonSchema>(mut self) -> Self {
        self.way.output = Some(OutputCheck::of::<T>());
        self
    }

    /// Works on a task of its own, and returns a handle on it at once.
    ///
    /// # Panics
    /// When called outside a tokio runtime.
    pub fn start(self) -> AgentRun {
        let job = self.job();
        self.way.start(job)
    }

    fn job(&self) -> Job<AgentMachine> {
        let (agent, output) = (self.way.agent.clone(), self.way.output.clone());
        Job::fork(self.from.clone(), self.after, agent.executor(), move |kind, state| async move {
            AgentMachine::check_kind(&kind)?;
            let machine = agent.restore_as(&state, output)?;
            let gathered = agent
                .gather(&machine.goal().text(), machine.conversation())
                .await
                .map_err(|error| error.to_string())?;
            Ok(machine.forked(gathered))
        })
    }
}

impl IntoFuture for Fork {
    type Output = Result<Answer>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        let job = self.job();
        self.way.answer(job)
    }
}

impl fmt::Debug for Fork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fork").field("from", &self.from).finish_non_exhaustive()
    }
}
