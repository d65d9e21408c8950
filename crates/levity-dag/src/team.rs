use std::fmt;
use std::sync::Arc;

use levity_core::{Ask, Error, Event, Limits, Result, RunId};
use levity_runtime::{Observe, Run, Runtime};

use crate::constraints::PlanConstraints;
use crate::executor::TeamExecutor;
use crate::graph::Graph;
use crate::machine::{Rules, Settings};
use crate::plan::Plan;
use crate::run::TeamInput;

mod builder;

pub use builder::TeamBuilder;

/// Agents, functions and tools that carry out plans together. Cloning is cheap.
///
/// ```
/// use levity_dag::{Plan, Step, Team};
/// use serde_json::json;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> levity_dag::Result<()> {
/// let team = Team::builder()
///     .function("count", |input: levity_dag::StepInput| async move {
///         let text: String = input.parse("text")?;
///         Ok(json!({"words": text.split_whitespace().count()}))
///     })
///     .build()?;
/// let plan = Plan::new()
///     .given("text", "the tide comes in")
///     .step(Step::new("count", "count").reads(["text"]).writes(["words"]));
/// let finished = team.run(plan).await?;
/// assert_eq!(finished.variable("words"), Some(&json!(4)));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Team {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) rules: Arc<Rules>,
    pub(crate) executor: Arc<TeamExecutor>,
    pub(crate) runtime: Runtime,
    pub(crate) settings: Settings,
    pub(crate) limits: Limits,
    pub(crate) observers: Vec<Arc<dyn Observe>>,
}

impl Team {
    /// The name of the agent that makes plans. It does not run steps.
    pub const PLANNER: &'static str = "Planner";
    /// The name of the agent that inspects files before a plan is made.
    pub const DISTILLER: &'static str = "Distiller";
    /// The name of the agent that judges the work of other agents.
    pub const QA: &'static str = "QA";
    /// The default limit on function and tool calls in a run: 100,000.
    pub const DEFAULT_TOOL_CALLS: u64 = 100_000;

    /// Creates a builder for a team.
    pub fn builder() -> TeamBuilder {
        TeamBuilder::default()
    }

    /// Makes a plan for a goal and carries it out. Set options on the returned [`Run`], then await
    /// it. Dropping the future stops the work. A goal without visible text fails with
    /// [`Error::EmptyPrompt`](crate::Error::EmptyPrompt).
    ///
    /// You can pass a plan in place of a goal: `team.run(plan)`; see [`TeamInput`].
    pub fn run(&self, input: impl Into<TeamInput>) -> Run<Self> {
        Run::new(self.clone(), input)
    }

    /// Returns the events that a run has emitted, from its journal. Use it to show the past of a
    /// resumed run.
    ///
    /// # Errors
    /// Returns an error if the run does not exist, or if this team cannot have made it.
    pub async fn history(&self, run: &RunId) -> Result<Vec<Event>> {
        Ok(levity_runtime::replay_run(self, run).await?.events)
    }

    /// Returns the pending questions of a run and its child runs while no process drives the run.
    ///
    /// # Errors
    /// Returns the same errors as [`history`](Self::history).
    pub async fn asks(&self, run: &RunId) -> Result<Vec<Ask>> {
        Ok(levity_runtime::pending_asks(self, run).await?)
    }

    /// Resumes a run of an earlier process from its journal. Finished work is not repeated.
    pub fn resume(&self, run: impl Into<RunId>) -> Run<Self> {
        Run::resume(self.clone(), run)
    }

    /// Forks a new run from a record of an old run.
    pub fn fork(&self, run: impl Into<RunId>) -> Run<Self> {
        Run::fork(self.clone(), run)
    }

    /// Validates a plan as [`run`](Self::run) does before it carries one out.
    ///
    /// # Errors
    /// Returns an error if the plan cannot be carried out.
    pub fn check(&self, plan: impl Into<Arc<Plan>>) -> Result<Graph> {
        Graph::check(plan, &self.inner.rules.known).map_err(Error::from)
    }

    /// Returns the runners and limits that plans for this team must respect.
    pub fn constraints(&self) -> &PlanConstraints {
        &self.inner.rules.known
    }

    /// Returns the runtime that drives its runs.
    pub fn runtime(&self) -> &Runtime {
        &self.inner.runtime
    }
}

impl fmt::Debug for Team {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.inner.rules.known.runners.keys().collect();
        f.debug_struct("Team")
            .field("performers", &names)
            .finish_non_exhaustive()
    }
}
