//! Runs of a team.

use levity_core::{Error, Executor, Limits, MachineKind, Message, Reached, Result, SharedError};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use levity_builtin_tools::profile::{Manifest, profile_all};
use levity_core::text::is_blank;
use levity_runtime::{Beginning, Observe, Runnable, Runtime};
use serde_json::Value;

use crate::finished::{TeamAnswer, TeamDetails};
use crate::graph::Graph;
use crate::machine::{FILES, GraphMachine, Start};
use crate::plan::Plan;
use crate::seed::StartingPlan;
use crate::team::Team;

/// The input of a team's run: a goal, for which a plan is made, or a plan.
///
/// ```
/// # use levity_dag::{Plan, TeamInput};
/// let input = TeamInput::from("Compare the two tables").given("currency", "EUR").files(["a.csv", "b.csv"]);
/// let input = TeamInput::from(Plan::new()).goal("Compare the two tables");
/// ```
#[derive(Clone, Debug, Default)]
#[must_use = "an input does nothing until a team runs it"]
pub struct TeamInput {
    goal: String,
    given: BTreeMap<Arc<str>, Value>,
    files: Vec<PathBuf>,
    plan: Option<Arc<Plan>>,
    checked: Option<Box<Graph>>,
    seed: Option<StartingPlan>,
}

impl TeamInput {
    /// The variable that tells every step about the files of a run: `file_manifest`.
    pub const FILES: &'static str = FILES;

    /// What is to be reached, for a plan that is there already.
    pub fn goal(mut self, goal: impl Into<String>) -> Self {
        self.goal = goal.into();
        self
    }

    /// Gives a variable from the start.
    pub fn given(mut self, name: impl Into<Arc<str>>, value: impl Into<Value>) -> Self {
        self.given.insert(name.into(), value.into());
        self
    }

    /// Gives files: what they are is found out before the plan is made, and is there for every step
    /// as [`FILES`](Self::FILES).
    pub fn files<P: Into<PathBuf>>(mut self, paths: impl IntoIterator<Item = P>) -> Self {
        self.files.extend(paths.into_iter().map(Into::into));
        self
    }
}

impl From<&str> for TeamInput {
    fn from(goal: &str) -> Self {
        Self::default().goal(goal)
    }
}

impl From<String> for TeamInput {
    fn from(goal: String) -> Self {
        Self::default().goal(goal)
    }
}

impl From<Message> for TeamInput {
    fn from(goal: Message) -> Self {
        Self::default().goal(goal.text())
    }
}

/// Carries the plan out. When steps fail, a planner may change it, if the team has one.
impl From<Plan> for TeamInput {
    fn from(plan: Plan) -> Self {
        Arc::new(plan).into()
    }
}

impl From<Arc<Plan>> for TeamInput {
    fn from(plan: Arc<Plan>) -> Self {
        Self {
            plan: Some(plan),
            ..Self::default()
        }
    }
}

/// Carries out a plan that [`Team::check`] has found sound, without checking it once more.
impl From<Graph> for TeamInput {
    fn from(graph: Graph) -> Self {
        Self {
            plan: Some(graph.plan().clone()),
            checked: Some(Box::new(graph)),
            ..Self::default()
        }
    }
}

/// Goes on from what another run has left, in a run of its own: what is done there is not done
/// again. A session file gives the seed, with or without some of its steps; see
/// `levity_observe::Session`.
impl From<StartingPlan> for TeamInput {
    fn from(seed: StartingPlan) -> Self {
        Self {
            seed: Some(seed),
            ..Self::default()
        }
    }
}

impl Runnable for Team {
    type Input = TeamInput;
    type Machine = GraphMachine;
    type Output = TeamAnswer;

    fn runtime(&self) -> &Runtime {
        Self::runtime(self)
    }

    fn executor(&self) -> Arc<dyn Executor> {
        self.inner.executor.clone()
    }

    fn limits(&self) -> Limits {
        self.inner.limits
    }

    fn begin(&self, input: TeamInput, limits: &Limits) -> Result<Beginning<GraphMachine>> {
        let TeamInput {
            goal,
            given,
            files,
            plan,
            checked,
            seed,
        } = input;
        let (plan, done) = seed.map_or((plan, Vec::new()), |seed| (Some(seed.plan), seed.done));
        // A plan says what is to be done by itself.
        if plan.is_none() && is_blank(&goal) {
            return Err(Error::EmptyPrompt);
        }
        let settings = self.inner.settings;
        let mut start = Start {
            goal,
            given,
            files: None,
            plan,
            done,
            limits: *limits,
            settings,
        };
        let rules = self.inner.rules.clone();
        let mut machine = GraphMachine::new(rules.clone(), start.clone());
        machine
            .check_start(!files.is_empty(), checked)
            .map_err(Error::from)?;
        if files.is_empty() {
            return Ok(Beginning::now(machine));
        }
        Ok(Beginning::later(async move {
            start.files = Some(look_at(files).await?);
            Ok(GraphMachine::new(rules, start).into())
        }))
    }

    fn restore(&self, kind: &MachineKind, state: &Value) -> Result<GraphMachine, String> {
        GraphMachine::check_kind(kind)?;
        GraphMachine::restore(self.inner.rules.clone(), state)
    }

    fn conclude(&self, reached: Reached<GraphMachine>) -> Result<TeamAnswer> {
        reached.finish(TeamDetails::new)
    }

    fn observers(&self) -> &[Arc<dyn Observe>] {
        &self.inner.observers
    }
}

/// Finds out what files are, where that holds up nobody.
async fn look_at(files: Vec<PathBuf>) -> Result<Manifest, SharedError> {
    let looked = tokio::runtime::Handle::current().spawn_blocking(move || profile_all(files));
    looked.await.map_err(SharedError::new)
}
