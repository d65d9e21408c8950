use std::fmt;
use std::sync::Arc;

use levity_core::{Ask, Error, Event, Limits, Result, RunId};
use levity_runtime::{Observe, Run, Runtime};

use crate::executor::TeamExecutor;
use crate::graph::Graph;
use crate::known::PlanConstraints;
use crate::machine::{Rules, Settings};
use crate::plan::Plan;
use crate::run::TeamInput;

mod builder;

pub use builder::TeamBuilder;

/// Agents, functions and tools that carry out plans together. Cloning costs nothing.
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
    /// The name of the agent that makes plans. It does no steps.
    pub const PLANNER: &'static str = "Planner";
    /// The name of the agent that looks at files before a plan is made.
    pub const DISTILLER: &'static str = "Distiller";
    /// The name of the agent whose results are verdicts on the work of others.
    pub const QA: &'static str = "QA";
    /// 100,000 calls of functions and tools in a run.
    pub const DEFAULT_TOOL_CALLS: u64 = 100_000;

    /// Begins a team.
    pub fn builder() -> TeamBuilder {
        TeamBuilder::default()
    }

    /// Has a plan made for a goal, and carries it out: await what is returned, after setting what
    /// is to be set. Dropping the future stops the work. A goal without visible text gives
    /// [`Error::EmptyPrompt`](crate::Error::EmptyPrompt).
    ///
    /// A plan can be given in place of a goal: `team.run(plan)`; see [`TeamInput`].
    pub fn run(&self, input: impl Into<TeamInput>) -> Run<Self> {
        Run::new(self.clone(), input)
    }

    /// What a run has told by now, from its journal: for a view of a run that is gone on with.
    ///
    /// # Errors
    /// When there is no such run, or this team cannot have made it.
    pub async fn history(&self, run: &RunId) -> Result<Vec<Event>> {
        Ok(levity_runtime::replay_run(self, run).await?.events)
    }

    /// The questions that a run and the runs below it wait for an answer to, while nobody drives
    /// it.
    ///
    /// # Errors
    /// As for [`history`](Self::history).
    pub async fn asks(&self, run: &RunId) -> Result<Vec<Ask>> {
        Ok(levity_runtime::asks(self, run).await?)
    }

    /// Goes on with a run that an earlier process left, from its journal. What was done is not done
    /// again.
    pub fn resume(&self, run: impl Into<RunId>) -> Run<Self> {
        Run::resume(self.clone(), run)
    }

    /// Goes another way from a record of an old run.
    pub fn fork(&self, run: impl Into<RunId>) -> Run<Self> {
        Run::fork(self.clone(), run)
    }

    /// Checks a plan, as it is before it is carried out.
    ///
    /// # Errors
    /// When it cannot be carried out.
    pub fn check(&self, plan: impl Into<Arc<Plan>>) -> Result<Graph> {
        Graph::check(plan, &self.inner.rules.known).map_err(Error::from)
    }

    /// What plans for this team may go by.
    pub fn known(&self) -> &PlanConstraints {
        &self.inner.rules.known
    }

    /// What drives its runs.
    pub fn runtime(&self) -> &Runtime {
        &self.inner.runtime
    }
}

impl fmt::Debug for Team {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.inner.rules.known.performers.keys().collect();
        f.debug_struct("Team")
            .field("performers", &names)
            .finish_non_exhaustive()
    }
}
