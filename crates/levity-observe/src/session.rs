//! Session files: the plan of a run, the state of its steps and their outputs, for people and
//! tools.
//!
//! The journal of a run is the truth, and a session file is a view of it that other programs can
//! read. A writer folds the events of the run into the content of the file, and replaces the file
//! after each settled step. Reading accepts files of other programs, and continues or repeats their
//! work.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use levity_core::{Ending, FileChange, RunId, Timestamp};
use levity_dag::{
    CompletedStep, Plan, StartingPlan, Step, StepId, StepStatus, StepUsage, WrittenVariable,
};
use serde_json::{Map, Value};

use crate::view::{ItemProgress, PlanStage, PlanView, Preparation};

mod content;
mod date;
mod disk;
mod error;
mod folder;
mod head;
mod node;
mod read;
mod steps;
mod writer;

pub use error::{SessionError, SessionProblem};
pub use folder::{SessionFilter, SessionFolder, SessionInfo};
pub use writer::SessionWriter;

/// A run of a plan as stored in a session file: everything known about it without its journal.
///
/// The file is a graph in the node-link format of NetworkX. Files of other programs in that format
/// are accepted as well: missing attributes get their defaults, and unknown ones are retained.
///
/// ```
/// # use levity_observe::Session;
/// let session = Session::parse(br#"{
///     "graph": {"session_id": "7", "original_query": "tides", "status": "running"},
///     "nodes": [
///         {"id": "ROOT"},
///         {"id": "a", "agent": "Retriever", "writes": ["page"], "status": "completed",
///          "output": {"page": "full moon"}},
///         {"id": "b", "agent": "Summarizer", "reads": ["page"], "status": "pending"}],
///     "links": [{"source": "ROOT", "target": "a"}, {"source": "a", "target": "b"}]
/// }"#)?;
/// assert_eq!(session.query, "tides");
/// assert_eq!(session.plan().steps[1].after[0].step.as_str(), "a");
/// # Ok::<(), levity_observe::SessionProblem>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Session {
    /// The id of the session, which is the id of the run.
    pub id: RunId,
    /// The goal of the run.
    pub query: String,
    /// Descriptions of the given files.
    pub files: Vec<Value>,
    /// The start time of the run.
    pub created: Option<Timestamp>,
    /// The status: a [`PlanStage`] while the run is in progress, then `completed`, `partial`,
    /// `cancelled` or `failed`.
    pub status: String,
    /// The values of the variables.
    pub globals: BTreeMap<Arc<str>, Value>,
    /// The steps, in the order of the plan.
    pub steps: Vec<SessionStep>,
    /// The edges, as indices into [`steps`](Self::steps).
    pub edges: Vec<(u32, u32)>,
    /// The stage of the run.
    pub stage: PlanStage,
    /// The number of changes to the plan.
    pub replans: u32,
    /// The reason why the planner gave up, if it did.
    pub gave_up: Option<String>,
    /// The ending of the run, if it has ended.
    pub ending: Option<Ending>,
    /// The time of the last recorded event.
    pub last: Option<Timestamp>,
    /// The profiling of files before the plan.
    pub profiling: Preparation,
    /// The creation of the plan and of its changes.
    pub planning: Preparation,
    /// Graph attributes of other programs.
    pub extra: Map<String, Value>,
    plan: Arc<Plan>,
}

/// One step of a session.
///
/// ```
/// use levity_dag::StepStatus;
/// use levity_observe::Session;
/// use serde_json::json;
///
/// let session = Session::parse(br#"{
///     "graph": {"globals_schema": {"page": "full moon"}},
///     "nodes": [{"id": "a", "agent": "Retriever", "writes": ["page"], "status": "completed",
///                "output": {"page": "full moon"}, "label": "mine"}]
/// }"#)?;
/// let step = session.step("a").unwrap();
/// assert_eq!((step.status, &*step.written[0].name), (StepStatus::Completed, "page"));
/// // Attributes of other programs are retained.
/// assert_eq!(step.extra["label"], json!("mine"));
/// # Ok::<(), levity_observe::SessionProblem>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct SessionStep {
    /// The step definition from the plan.
    pub step: Arc<Step>,
    /// The status of the step.
    pub status: StepStatus,
    /// The complete output of the step.
    pub output: Option<Value>,
    /// The variables that the step wrote.
    pub written: Vec<WrittenVariable>,
    /// The reason why the step failed or was skipped.
    pub error: Option<String>,
    /// The usage of the step.
    pub spent: StepUsage,
    /// The attempt number, from 1; for a step that runs for each element of a list, the latest.
    pub attempt: u32,
    /// The round of the attempt.
    pub round: u32,
    /// The progress of a step that runs once for each element of a list.
    pub items: Option<ItemProgress>,
    /// The start time of the step.
    pub started: Option<Timestamp>,
    /// The time at which the step was settled.
    pub ended: Option<Timestamp>,
    /// The files that the step wrote and did not remove again.
    pub artifacts: Vec<FileChange>,
    /// Attributes of other programs.
    pub extra: Map<String, Value>,
}

impl Session {
    /// The default size limit for reading and writing, 64 MiB; [`SessionFolder::max_bytes`]
    /// overrides it.
    pub const MAX_BYTES: u64 = 64 << 20;

    /// Reads a session file of at most [`MAX_BYTES`](Self::MAX_BYTES).
    ///
    /// The file is read on a blocking thread if there is a tokio runtime.
    ///
    /// ```
    /// use levity_observe::{Session, SessionProblem};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), levity_observe::SessionError> {
    /// let folder = tempfile::tempdir().unwrap();
    /// let path = folder.path().join("session.json");
    /// std::fs::write(&path, r#"{"nodes": [{"id": "a", "agent": "Coder"}]}"#).unwrap();
    /// assert_eq!(Session::load(&path).await?.steps.len(), 1);
    ///
    /// std::fs::write(&path, r#"{"nodes": "#).unwrap();
    /// let error = Session::load(&path).await.unwrap_err();
    /// assert!(matches!(error.problem, SessionProblem::Json { line: 1, .. }));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If the file cannot be read or is not a session; the error names the file and the location in
    /// it.
    pub async fn load(path: impl AsRef<Path>) -> Result<Self, SessionError> {
        Self::load_up_to(path.as_ref().to_owned(), Self::MAX_BYTES).await
    }

    async fn load_up_to(path: PathBuf, max_bytes: u64) -> Result<Self, SessionError> {
        let from = path.clone();
        disk::run_blocking(move || Self::load_now(&from, max_bytes))
            .await
            .map_err(|problem| problem.at(&path))
    }

    fn load_now(path: &Path, max_bytes: u64) -> Result<Self, SessionProblem> {
        Self::parse(&disk::read(path, max_bytes)?)
    }

    /// Parses a session from the bytes of its file.
    ///
    /// Missing statuses are `pending`, nodes without an id get their position, and a node with the
    /// id `ROOT` is not a step. A file of a newer version of levity is rejected.
    ///
    /// # Errors
    /// If the bytes are not a session; the error names the location.
    pub fn parse(bytes: &[u8]) -> Result<Self, SessionProblem> {
        read::parse(bytes)
    }

    /// Returns the plan as it was when the file was written.
    pub fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }

    /// Returns the step with this id.
    pub fn step(&self, id: &str) -> Option<&SessionStep> {
        self.steps.iter().find(|step| step.step.id.as_str() == id)
    }

    /// Returns the completed steps.
    ///
    /// ```
    /// use levity_observe::Session;
    ///
    /// let session = Session::parse(
    ///     br#"{"nodes": [{"id": "a", "status": "completed"}, {"id": "b", "status": "failed"}]}"#,
    /// )?;
    /// let ids: Vec<_> = session.finished().map(|step| step.step.id.as_str()).collect();
    /// assert_eq!(ids, ["a"]);
    /// # Ok::<(), levity_observe::SessionProblem>(())
    /// ```
    pub fn finished(&self) -> impl Iterator<Item = &SessionStep> {
        self.steps
            .iter()
            .filter(|step| step.status == StepStatus::Completed)
    }

    /// Returns the starting point for a run that continues this one: all completed steps are done.
    ///
    /// Pass the result to `Team::run`. The new run has its own id and file.
    ///
    /// ```
    /// use levity_dag::{StepInput, Team};
    /// use levity_observe::Session;
    /// use serde_json::json;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let session = Session::parse(br#"{
    ///     "graph": {"globals_schema": {"page": "full moon"}},
    ///     "nodes": [
    ///         {"id": "a", "agent": "fetch", "writes": ["page"], "status": "completed",
    ///          "output": {"page": "full moon"}},
    ///         {"id": "b", "agent": "count", "reads": ["page"], "writes": ["words"]}]
    /// }"#)?;
    /// let team = Team::builder()
    ///     .function("fetch", |_: StepInput| async { unreachable!("it is done") })
    ///     .function("count", |input: StepInput| async move {
    ///         Ok(json!(input.parse::<String>("page")?.split(' ').count()))
    ///     })
    ///     .build()?;
    /// let finished = team.run(session.starting_plan()).await?;
    /// assert_eq!(finished.variable("words"), Some(&json!(2)));
    /// # Ok(())
    /// # }
    /// ```
    pub fn starting_plan(&self) -> StartingPlan {
        self.seed_except(&HashSet::new())
    }

    /// Returns the starting point for a run that repeats these steps, and all steps that depend on
    /// them.
    ///
    /// ```
    /// use levity_observe::Session;
    ///
    /// let session = Session::parse(br#"{
    ///     "nodes": [{"id": "a", "status": "completed"}, {"id": "b", "status": "completed"},
    ///               {"id": "c", "status": "completed"}],
    ///     "edges": [{"source": "a", "target": "b"}]
    /// }"#)?;
    /// // `b` depends on `a`, so both run again.
    /// let start = session.starting_plan_repeating(&["a".into()])?;
    /// let done: Vec<_> = start.completed.iter().map(|step| step.step.as_str()).collect();
    /// assert_eq!(done, ["c"]);
    /// assert!(session.starting_plan_repeating(&["z".into()]).is_err());
    /// # Ok::<(), levity_observe::SessionProblem>(())
    /// ```
    ///
    /// # Errors
    /// If there is no such step.
    pub fn starting_plan_repeating(
        &self,
        steps: &[StepId],
    ) -> Result<StartingPlan, SessionProblem> {
        let indices: HashMap<&StepId, u32> = self
            .steps
            .iter()
            .zip(0..)
            .map(|(step, index)| (&step.step.id, index))
            .collect();
        let index_of = |id: &StepId| {
            indices
                .get(id)
                .copied()
                .ok_or_else(|| SessionProblem::NoStep(id.to_string()))
        };
        let mut pending: Vec<u32> = steps.iter().map(index_of).collect::<Result<_, _>>()?;
        let mut dependents: HashMap<u32, Vec<u32>> = HashMap::new();
        for (from, to) in &self.edges {
            dependents.entry(*from).or_default().push(*to);
        }
        let mut repeated: HashSet<u32> = pending.iter().copied().collect();
        while let Some(index) = pending.pop() {
            let next = dependents.get(&index).into_iter().flatten().copied();
            pending.extend(next.filter(|to| repeated.insert(*to)));
        }
        Ok(self.seed_except(&repeated))
    }

    fn seed_except(&self, repeated: &HashSet<u32>) -> StartingPlan {
        let done = self.steps.iter().zip(0..).filter(|(step, index)| {
            step.status == StepStatus::Completed && !repeated.contains(index)
        });
        let done = done.map(|(step, _)| {
            CompletedStep::new(
                step.step.id.clone(),
                step.output.clone().unwrap_or_default(),
                step.written.clone(),
            )
        });
        done.fold(StartingPlan::new(self.plan.clone()), StartingPlan::with)
    }

    /// Returns the session as a view for rendering.
    ///
    /// The view has no log and no live activity, because the file stores neither.
    ///
    /// ```
    /// use levity_observe::{Session, TreeOptions};
    ///
    /// let session = Session::parse(br#"{
    ///     "graph": {"original_query": "tides"},
    ///     "nodes": [{"id": "a", "agent": "Retriever", "status": "completed"}]
    /// }"#)?;
    /// let tree = session.to_view().tree(TreeOptions::new().ascii());
    /// assert_eq!(tree, "ROOT tides\n`-- a [x] Retriever\n");
    /// # Ok::<(), levity_observe::SessionProblem>(())
    /// ```
    pub fn to_view(&self) -> PlanView {
        PlanView::of_session(self)
    }
}
