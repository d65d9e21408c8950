use std::fmt;
use std::sync::Arc;

use levity_core::{Ask, Error, Event, Limits, Result, RunId};
use levity_runtime::{Observe, Run, Runtime};

use crate::constraints::PlanConstraints;
use crate::estimate::{self, PlanEstimate};
use crate::executor::TeamExecutor;
use crate::graph::Graph;
use crate::machine::{QUERY, Rules, Settings};
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
    ///
    /// ```
    /// use async_trait::async_trait;
    /// use levity_core::ToolError;
    /// use levity_dag::{Error, PlannerInput, StepInput, Team, TeamPlanner};
    /// use serde_json::{Value, json};
    ///
    /// struct Greet;
    ///
    /// #[async_trait]
    /// impl TeamPlanner for Greet {
    ///     async fn plan(&self, brief: &PlannerInput) -> Result<Value, ToolError> {
    ///         let inputs = json!({"name": brief.goal});
    ///         Ok(json!([{"id": "greet", "agent": "greet", "inputs": inputs, "writes": ["x"]}]))
    ///     }
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> levity_dag::Result<()> {
    /// let team = Team::builder()
    ///     .function("greet", |input: StepInput| async move {
    ///         Ok(json!(format!("Hello {}", input.parse::<String>("name")?)))
    ///     })
    ///     .planner(Greet)
    ///     .build()?;
    /// assert_eq!(team.run("Ada").await?.text(), "Hello Ada");
    /// assert!(matches!(team.run(" ").await, Err(Error::EmptyPrompt)));
    /// # Ok(())
    /// # }
    /// ```
    pub fn run(&self, input: impl Into<TeamInput>) -> Run<Self> {
        Run::new(self.clone(), input)
    }

    /// Returns the events that a run has emitted, from its journal. Use it to show the past of a
    /// resumed run.
    ///
    /// ```
    /// use levity_dag::{Plan, PlanNotice, Step, StepInput, Team};
    /// use levity_runtime::{MemoryJournal, Runtime};
    /// use serde_json::Value;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> levity_dag::Result<()> {
    /// let team = Team::builder()
    ///     .function("noop", |_: StepInput| async { Ok(Value::Null) })
    ///     .runtime(Runtime::new().with_journal(MemoryJournal::new()))
    ///     .build()?;
    /// team.run(Plan::new().step(Step::new("a", "noop"))).id("r1").await?;
    /// let events = team.history(&"r1".into()).await?;
    /// let first = events.iter().find_map(|event| PlanNotice::of(&event.kind));
    /// assert!(matches!(first, Some(PlanNotice::Planned { .. })));
    /// assert!(team.asks(&"r1".into()).await?.is_empty());
    /// # Ok(())
    /// # }
    /// ```
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
    ///
    /// The team must have the same agents and functions as the one that started the run. A function
    /// call that the crash interrupted runs again only if the function is
    /// [`read_only`](crate::Function::read_only) or [`idempotent`](crate::Function::idempotent).
    ///
    /// ```
    /// use levity_dag::{Plan, Step, StepInput, Team};
    /// use levity_runtime::{MemoryJournal, Runtime};
    /// use serde_json::json;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> levity_dag::Result<()> {
    /// let journal = MemoryJournal::new();
    /// let team = || {
    ///     Team::builder()
    ///         .function("tide", |_: StepInput| async { Ok(json!("six")) })
    ///         .runtime(Runtime::new().with_journal(journal.clone()))
    ///         .build()
    /// };
    /// let plan = Plan::new().step(Step::new("tide", "tide").writes(["time"]));
    /// team()?.run(plan).id("r1").await?;
    /// assert_eq!(team()?.resume("r1").await?.text(), "six");
    /// # Ok(())
    /// # }
    /// ```
    pub fn resume(&self, run: impl Into<RunId>) -> Run<Self> {
        Run::resume(self.clone(), run)
    }

    /// Forks a new run from a record of an old run.
    ///
    /// The fork starts with the records of the old run and continues on its own; the old run stays
    /// unchanged. Choose the record with [`Run::after`].
    pub fn fork(&self, run: impl Into<RunId>) -> Run<Self> {
        Run::fork(self.clone(), run)
    }

    /// Validates a plan as [`run`](Self::run) does before it carries one out.
    ///
    /// ```
    /// use levity_dag::{Plan, Step, StepInput, Team};
    /// use serde_json::Value;
    ///
    /// # fn main() -> levity_dag::Result<()> {
    /// let team = Team::builder()
    ///     .function("noop", |_: StepInput| async { Ok(Value::Null) })
    ///     .build()?;
    /// assert_eq!(team.check(Plan::new().step(Step::new("a", "noop")))?.len(), 1);
    ///
    /// let error = team.check(Plan::new().step(Step::new("a", "nop"))).unwrap_err();
    /// assert!(error.to_string().contains("did you mean `noop`"));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns an error if the plan cannot be carried out.
    pub fn check(&self, plan: impl Into<Arc<Plan>>) -> Result<Graph> {
        Graph::check(plan, &self.inner.rules.known).map_err(Error::from)
    }

    /// Estimates the tokens and the cost of a plan without running it. No model is called, but the
    /// context sources of the agents are read.
    ///
    /// The estimate computes a short and a long course of each step from the prompts, tools and
    /// limits of its agent and from the card of its model. The goal is part of each task; it may be
    /// empty. The estimate is no bound: use [`TeamBuilder::limits`] for that. It includes neither
    /// changes of the plan nor agents that other agents call.
    ///
    /// ```
    /// use levity_core::{ModelCard, Price};
    /// use levity_dag::{Plan, Step, Team};
    /// use levity_loop::Agent;
    /// use levity_test::ScriptedModel;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> levity_dag::Result<()> {
    /// let card = ModelCard::new("acme", "small").with_price(Price::new(1.0, 4.0));
    /// let agent = Agent::builder(ScriptedModel::new().with_card(card)).build()?;
    /// let team = Team::builder().agent("Thinker", "Reasons.", agent).build()?;
    /// let plan = Plan::new().step(Step::new("think", "Thinker").prompt("Compare both offers."));
    /// let estimate = team.estimate(plan, "Choose an offer").await?;
    /// assert!(estimate.tokens().low < estimate.tokens().high);
    /// assert!(estimate.known_cost().high.nanos() > 0);
    /// assert!(estimate.unpriced_models().is_empty());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns an error if the plan cannot be carried out, or if a context source fails.
    pub async fn estimate(&self, plan: impl Into<Arc<Plan>>, goal: &str) -> Result<PlanEstimate> {
        let mut plan = plan.into();
        if !goal.is_empty() && !plan.given.contains_key(QUERY) {
            // A run sets this variable, too.
            plan = Arc::new(Plan::clone(&plan).given(QUERY, goal));
        }
        let graph = self.check(plan)?;
        let agents = &self.inner.executor.agents;
        let agent_of = |name: &str| agents.get(self.constraints().runner(name)?.0);
        let estimate = estimate::estimate(graph.plan(), goal, agent_of).await;
        estimate.map_err(Error::config)
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
            .field("runners", &names)
            .finish_non_exhaustive()
    }
}
