use std::fmt;
use std::sync::Arc;

use levity_core::{
    Ask, ChildRun, Effect, Entry as Recorded, Event, JournalError, Limits, Machine as _, Record, RunId,
};
use levity_runtime::{Replay, Runtime, replay};
use serde_json::Value;

use crate::error::{Error, Result};
use crate::executor::TeamExecutor;
use crate::graph::Graph;
use crate::known::Known;
use crate::machine::{GraphMachine, Rules, Settings, Start};
use crate::plan::Plan;
use crate::run::{Fork, Resume, TeamRun};
use crate::seed::Seed;
use crate::session::Sessions;

mod builder;

pub use builder::TeamBuilder;

/// The agent that makes plans.
pub(crate) const PLANNER: &str = "Planner";
/// The agent that looks at files first.
pub(crate) const DISTILLER: &str = "Distiller";
/// The agent whose results are verdicts.
pub(crate) const QA: &str = "QA";

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
/// let finished = team.carry_out(plan).await?;
/// assert_eq!(finished.value("words"), Some(&json!(4)));
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
    pub(crate) sessions: Option<Sessions>,
}

impl Team {
    /// 100,000 calls of functions and tools in a run.
    pub const DEFAULT_TOOL_CALLS: u64 = 100_000;

    /// Begins a team.
    pub fn builder() -> TeamBuilder {
        TeamBuilder::default()
    }

    /// Has a plan made for a goal, and carries it out: await what is returned, after setting what is to be set. Dropping
    /// the future stops the work. A goal without visible text gives [`Error::EmptyPrompt`](crate::Error::EmptyPrompt).
    pub fn run(&self, goal: impl Into<String>) -> TeamRun {
        let start = Start { goal: goal.into(), settings: self.inner.settings, ..Start::default() };
        TeamRun::new(self.clone(), start)
    }

    /// Carries a plan out. When steps fail, a planner may change it, if the team has one.
    pub fn carry_out(&self, plan: impl Into<Arc<Plan>>) -> TeamRun {
        let plan = Some(plan.into());
        let start = Start { plan, settings: self.inner.settings, ..Start::default() };
        TeamRun::new(self.clone(), start)
    }

    /// Carries out a plan that [`check`](Self::check) has found sound, without checking it once more.
    pub fn carry_out_checked(&self, graph: Graph) -> TeamRun {
        let run = self.carry_out(graph.plan().clone());
        run.checked(graph)
    }

    /// Goes on from what another run has left, in a run of its own: what is done there is not done again. A
    /// [`Session`](crate::Session) gives the seed, with or without some of its steps.
    pub fn go_on(&self, seed: Seed) -> TeamRun {
        let (plan, done) = (Some(seed.plan), seed.done);
        let start = Start { plan, done, settings: self.inner.settings, ..Start::default() };
        TeamRun::new(self.clone(), start)
    }

    /// What a run has told by now, from its journal: for a view of a run that is gone on with.
    ///
    /// # Errors
    /// When there is no such run, or this team cannot have made it.
    pub async fn history(&self, run: &RunId) -> Result<Vec<Event>> {
        Ok(self.replay(run).await?.events)
    }

    /// The questions that a run and the runs below it wait for an answer to, while nobody drives it.
    ///
    /// # Errors
    /// As for [`history`](Self::history).
    pub async fn asks(&self, run: &RunId) -> Result<Vec<Ask>> {
        let folded = self.replay(run).await?;
        let mut asks = Vec::new();
        if folded.machine.ending().is_some() {
            return Ok(asks);
        }
        for (id, effect) in folded.under_way {
            match effect {
                Effect::Ask(ask) => asks.push(ask),
                Effect::Child(child) => asks.extend(self.asks_below(&child, &run.child(id)).await?),
                _ => {}
            }
        }
        Ok(asks)
    }

    async fn asks_below(&self, child: &ChildRun, run: &RunId) -> Result<Vec<Ask>> {
        let Some(agent) = self.inner.executor.agents.get(&child.agent) else { return Ok(Vec::new()) };
        match agent.asks_in(&self.inner.runtime, run).await {
            Ok(asks) => Ok(asks),
            // The process ended before the child could begin.
            Err(levity_loop::Error::Runtime { source: levity_runtime::Error::NotFound(_), .. }) => {
                Ok(Vec::new())
            }
            Err(levity_loop::Error::Runtime { source, .. }) => Err(Error::Runtime { source, partial: None }),
            Err(error) => Err(Error::Agent(Box::new(error))),
        }
    }

    /// What happened in a run up to a record of it, or before its end.
    pub(crate) async fn history_until(&self, run: &RunId, last: Option<u64>) -> Result<Vec<Event>> {
        let mut records = self.records(run).await?;
        match last {
            Some(last) => records.truncate(usize::try_from(last).unwrap_or(usize::MAX).saturating_add(1)),
            None => records.retain(|record| !matches!(record.entry, Recorded::Ended(_))),
        }
        Ok(self.fold(run, &records)?.events)
    }

    async fn replay(&self, run: &RunId) -> Result<Replay<GraphMachine>> {
        self.fold(run, &self.records(run).await?)
    }

    async fn records(&self, run: &RunId) -> Result<Vec<Record>> {
        let failed = |error: JournalError| Error::Runtime { source: error.into(), partial: None };
        self.inner.runtime.journal().read(run).await.map_err(failed)
    }

    fn fold(&self, run: &RunId, records: &[Record]) -> Result<Replay<GraphMachine>> {
        let folded = replay(run, records, |kind, state| {
            GraphMachine::check_kind(kind)?;
            self.restore(state)
        });
        folded.map_err(|source| Error::Runtime { source, partial: None })
    }

    /// Goes on with a run that an earlier process left, from its journal. What was done is not done again.
    pub fn resume(&self, run: impl Into<RunId>) -> Resume {
        Resume::new(self.clone(), run.into())
    }

    /// Goes another way from a record of an old run.
    pub fn fork(&self, run: impl Into<RunId>) -> Fork {
        Fork::new(self.clone(), run.into())
    }

    /// Checks a plan, as it is before it is carried out.
    ///
    /// # Errors
    /// When it cannot be carried out.
    pub fn check(&self, plan: impl Into<Arc<Plan>>) -> Result<Graph> {
        Graph::check(plan, &self.inner.rules.known).map_err(Error::Plan)
    }

    /// What plans for this team may go by.
    pub fn known(&self) -> &Known {
        &self.inner.rules.known
    }

    /// What drives its runs.
    pub fn runtime(&self) -> &Runtime {
        &self.inner.runtime
    }

    pub(crate) fn restore(&self, state: &Value) -> Result<GraphMachine, String> {
        GraphMachine::restore(self.inner.rules.clone(), state)
    }
}

impl fmt::Debug for Team {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.inner.rules.known.performers.keys().collect();
        f.debug_struct("Team").field("performers", &names).finish_non_exhaustive()
    }
}
