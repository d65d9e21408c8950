//! Inputs and runs of a team.

use levity_core::{
    Error, Executor, Limits, MachineKind, Media, MediaSource, Message, Part, Result, SharedError,
    StoppedRun,
};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use levity_builtin_tools::profile::{self, FileManifest};
use levity_core::text::is_blank;
use levity_runtime::{MachineStart, Observe, Runnable, Runtime};
use serde_json::Value;

use crate::graph::Graph;
use crate::machine::{FILES, GraphMachine, Start};
use crate::plan::Plan;
use crate::report::{TeamAnswer, TeamDetails};
use crate::starting_plan::StartingPlan;
use crate::team::Team;

/// The input of a team's run: a goal to make a plan for, or a plan.
///
/// ```
/// # use levity_dag::{Plan, TeamInput};
/// let input = TeamInput::from("Compare the two tables")
///     .given("currency", "EUR")
///     .files(["a.csv", "b.csv"]);
/// let input = TeamInput::from(Plan::new()).goal("Compare the two tables");
/// ```
#[derive(Clone, Debug, Default)]
#[must_use = "an input does nothing until a team runs it"]
pub struct TeamInput {
    goal: String,
    given: BTreeMap<Arc<str>, Value>,
    media: Vec<Media>,
    files: Vec<PathBuf>,
    plan: Option<Arc<Plan>>,
    checked: Option<Box<Graph>>,
    seed: Option<StartingPlan>,
}

impl TeamInput {
    /// The variable that describes the files of a run to every step: `file_manifest`.
    pub const FILES: &'static str = FILES;
    /// The maximum size of all media of a goal: 32 MiB.
    pub const MAX_MEDIA_BYTES: usize = 32 << 20;

    /// Sets the goal that an existing plan serves.
    ///
    /// Agents read the goal in their tasks, and steps can read it as the variable `original_query`.
    pub fn goal(mut self, goal: impl Into<String>) -> Self {
        self.goal = goal.into();
        self
    }

    /// Sets a variable before the first step starts.
    ///
    /// It replaces an initial variable of the plan with the same name.
    pub fn given(mut self, name: impl Into<Arc<str>>, value: impl Into<Value>) -> Self {
        self.given.insert(name.into(), value.into());
        self
    }

    /// Adds images and other media to the goal. The planner receives them with the goal, and so
    /// does the agent of each step. An agent whose model accepts no images receives a note instead.
    ///
    /// The journal stores the media with the input, so a resumed run and a fork have them too. A
    /// run rejects more than [`MAX_MEDIA_BYTES`](Self::MAX_MEDIA_BYTES).
    ///
    /// ```
    /// # use levity_core::Media;
    /// # use levity_dag::TeamInput;
    /// let chart = Media::url("image/png", "https://example.com/chart.png");
    /// let input = TeamInput::from("Explain the chart").media([chart]);
    /// ```
    pub fn media(mut self, media: impl IntoIterator<Item = Media>) -> Self {
        self.media.extend(media);
        self
    }

    /// Adds input files. levity profiles them before the plan is made, and every step can read the
    /// result as [`FILES`](Self::FILES).
    ///
    /// ```
    /// use levity_dag::{Plan, Step, StepInput, Team, TeamInput};
    /// use serde_json::json;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> levity_dag::Result<()> {
    /// let folder = tempfile::tempdir().unwrap();
    /// let path = folder.path().join("tides.csv");
    /// std::fs::write(&path, "time,metres\n06:00,4.1\n").unwrap();
    /// let team = Team::builder()
    ///     .function("has", |input: StepInput| async move {
    ///         Ok(json!(input.get(TeamInput::FILES).to_string().contains("tides.csv")))
    ///     })
    ///     .build()?;
    /// let plan = Plan::new()
    ///     .step(Step::new("has", "has").reads([TeamInput::FILES]).writes(["found"]));
    /// let finished = team.run(TeamInput::from(plan).files([path])).await?;
    /// assert_eq!(finished.variable("found"), Some(&json!(true)));
    /// # Ok(())
    /// # }
    /// ```
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

/// The text of the message is the goal, and its media come with the goal.
impl From<Message> for TeamInput {
    fn from(goal: Message) -> Self {
        let input = Self::default().goal(goal.text());
        input.media(goal.parts.into_iter().filter_map(|part| match part {
            Part::Media(media) => Some(media),
            _ => None,
        }))
    }
}

/// Carries out the plan. When steps fail, the team's planner, if there is one, may change it.
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

/// Carries out a plan that [`Team::check`] has validated, without a second check.
impl From<Graph> for TeamInput {
    fn from(graph: Graph) -> Self {
        Self {
            plan: Some(graph.plan().clone()),
            checked: Some(Box::new(graph)),
            ..Self::default()
        }
    }
}

/// Continues the work of another run in a new run, without repeating its completed steps.
/// `levity_observe::Session` creates the seed from a session file, with or without some of its
/// steps.
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

    fn begin(&self, input: TeamInput, limits: &Limits) -> Result<MachineStart<GraphMachine>> {
        let TeamInput {
            goal,
            given,
            media,
            files,
            plan,
            checked,
            seed,
        } = input;
        check_media(&media)?;
        let (plan, done) =
            seed.map_or((plan, Vec::new()), |seed| (Some(seed.plan), seed.completed));
        // A plan needs no goal.
        if plan.is_none() && is_blank(&goal) {
            return Err(Error::EmptyPrompt);
        }
        let settings = self.inner.settings;
        let mut start = Start {
            goal,
            given,
            files: None,
            media: media.into(),
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
            return Ok(MachineStart::now(machine));
        }
        Ok(MachineStart::later(async move {
            start.files = Some(profile_files(files).await?);
            Ok(GraphMachine::new(rules, start).into())
        }))
    }

    fn restore(&self, kind: &MachineKind, state: &Value) -> Result<GraphMachine, String> {
        GraphMachine::check_kind(kind)?;
        GraphMachine::restore(self.inner.rules.clone(), state)
    }

    fn conclude(&self, reached: StoppedRun<GraphMachine>) -> Result<TeamAnswer> {
        reached.finish(TeamDetails::new)
    }

    fn observers(&self) -> &[Arc<dyn Observe>] {
        &self.inner.observers
    }
}

/// Rejects media that are too large: each agent and each record of a child run holds them.
fn check_media(media: &[Media]) -> Result<()> {
    let bytes = media.iter().map(|media| match &media.source {
        MediaSource::Bytes(bytes) => bytes.as_slice().len(),
        _ => 0,
    });
    let (bytes, limit) = (bytes.sum::<usize>(), TeamInput::MAX_MEDIA_BYTES);
    match bytes > limit {
        true => Err(Error::setting(
            "media",
            format!("has {bytes} bytes, and the limit is {limit}; use fewer or smaller images"),
        )),
        false => Ok(()),
    }
}

/// Profiles files on a blocking thread, so that it does not delay other tasks.
async fn profile_files(files: Vec<PathBuf>) -> Result<FileManifest, SharedError> {
    let profiled =
        tokio::runtime::Handle::current().spawn_blocking(move || profile::profile_files(files));
    profiled.await.map_err(SharedError::new)
}
