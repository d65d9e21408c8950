//! How a run is driven, be it new, old or a fork.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use levity_core::{Event, Limits, RunId};
use levity_runtime::{Job, Watcher};

use crate::agent::Agent;
use crate::answer::Answer;
use crate::error::Result;
use crate::machine::AgentMachine;
use crate::output::OutputCheck;
use crate::run::{AgentRun, finish};

/// What can be set on a run before it is driven.
pub(crate) struct Way {
    pub(crate) agent: Agent,
    pub(crate) id: Option<RunId>,
    /// In a box, since a run that has begun keeps the room of what it was made of.
    pub(crate) limits: Option<Box<Limits>>,
    pub(crate) output: Option<OutputCheck>,
    pub(crate) park: bool,
    watcher: Option<Watcher>,
}

impl Way {
    pub(crate) fn new(agent: Agent) -> Self {
        Self { agent, id: None, limits: None, output: None, park: false, watcher: None }
    }

    pub(crate) fn watch(&mut self, watcher: impl Fn(&Event) + Send + Sync + 'static) {
        self.watcher = Some(Arc::new(watcher));
    }

    /// Drives a job on a task of its own.
    pub(crate) fn start(self, job: Job<AgentMachine>) -> AgentRun {
        let runtime = self.agent.runtime().clone();
        let agent = self.agent.clone();
        AgentRun::new(agent, runtime.start(self.set_up(job)))
    }

    /// Drives a job to its end.
    pub(crate) fn answer(
        self,
        job: Job<AgentMachine>,
    ) -> Pin<Box<dyn Future<Output = Result<Answer>> + Send>> {
        let runtime = self.agent.runtime().clone();
        let agent = self.agent.clone();
        let job = self.set_up(job);
        Box::pin(async move { finish(agent, runtime.run(job).await).await })
    }

    fn set_up(self, job: Job<AgentMachine>) -> Job<AgentMachine> {
        let mut job = self.agent.audited(job, self.output);
        if let Some(name) = &self.agent.inner.name {
            job = job.named(name.clone());
        }
        if let Some(run) = self.id {
            job = job.id(run);
        }
        if let Some(limits) = self.limits {
            job = job.limits(*limits);
        }
        if let Some(watcher) = self.watcher {
            job = job.watch(watcher);
        }
        if self.park { job.park() } else { job }
    }
}
