use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use levity_core::{Ending, RunId, Timestamp};
use levity_dag::{
    CompletedStep, Plan, StartingPlan, Step, StepId, StepSpent, StepStatus, WrittenVariable,
};
use serde_json::{Map, Value};

use crate::view::{Items, PlanStage, PlanView, Preparation};

mod book;
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

/// A run of a plan as it stands in a session file: all that can be known about it without its
/// journal.
///
/// The file is a graph in the node-link form of NetworkX. Files of other programs in that form are
/// read as well: what they do not say has its default, and what is not known here is kept as it is.
///
/// ```
/// # use levity_observe::Session;
/// let session = Session::parse(br#"{
///     "graph": {"session_id": "7", "original_query": "tides", "status": "running"},
///     "nodes": [
///         {"id": "ROOT"},
///         {"id": "a", "agent": "Retriever", "writes": ["page"], "status": "completed", "output": {"page": "full moon"}},
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
    /// Its id: that of the run.
    pub id: RunId,
    /// What the run is to do.
    pub query: String,
    /// What is known about the files that were given.
    pub files: Vec<Value>,
    /// When the run began.
    pub created: Option<Timestamp>,
    /// Where it stood: a [`PlanStage`] while it ran, then `completed`, `partial`, `cancelled` or
    /// `failed`.
    pub status: String,
    /// The variables.
    pub globals: BTreeMap<Arc<str>, Value>,
    /// The steps, in the order of the plan.
    pub steps: Vec<SessionStep>,
    /// The edges, as places in [`steps`](Self::steps).
    pub edges: Vec<(u32, u32)>,
    /// Where the run stood.
    pub stage: PlanStage,
    /// How many times the plan was changed.
    pub replans: u32,
    /// Why the planner saw no other way, if it said so.
    pub gave_up: Option<String>,
    /// How the run ended, if it had.
    pub ending: Option<Ending>,
    /// When the last thing happened that the file knows of.
    pub last: Option<Timestamp>,
    /// The looking at files before the plan.
    pub profiling: Preparation,
    /// The making of the plan and of its changes.
    pub planning: Preparation,
    /// Attributes of the graph that others put there.
    pub extra: Map<String, Value>,
    plan: Arc<Plan>,
}

/// One step of a session.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct SessionStep {
    /// The step, as the plan has it.
    pub step: Arc<Step>,
    /// Where it stood.
    pub status: StepStatus,
    /// All that it gave.
    pub output: Option<Value>,
    /// What it wrote.
    pub written: Vec<WrittenVariable>,
    /// Why it failed or was skipped.
    pub error: Option<String>,
    /// What it took.
    pub spent: StepSpent,
    /// Which attempt it was, from 1; of a step that is run for each element of a list, the latest.
    pub attempt: u32,
    /// Which round of its attempt it was.
    pub round: u32,
    /// How far it was, where it is run once for each element of a list.
    pub items: Option<Items>,
    /// When it began.
    pub started: Option<Timestamp>,
    /// When it was settled.
    pub ended: Option<Timestamp>,
    /// Attributes that others put there.
    pub extra: Map<String, Value>,
}

impl Session {
    /// 64 MiB: larger files are neither read nor written, unless [`SessionFolder::max_bytes`] says
    /// so.
    pub const MAX_BYTES: u64 = 64 << 20;

    /// Reads a session file of at most [`MAX_BYTES`](Self::MAX_BYTES).
    ///
    /// # Errors
    /// When it cannot be read, or is no session; the error names the file and the place in it.
    pub async fn load(path: impl AsRef<Path>) -> Result<Self, SessionError> {
        Self::load_up_to(path.as_ref().to_owned(), Self::MAX_BYTES).await
    }

    async fn load_up_to(path: PathBuf, most: u64) -> Result<Self, SessionError> {
        let from = path.clone();
        disk::aside(move || Self::load_now(&from, most))
            .await
            .map_err(|problem| problem.at(&path))
    }

    fn load_now(path: &Path, most: u64) -> Result<Self, SessionProblem> {
        Self::parse(&disk::read(path, most)?)
    }

    /// Reads a session from the bytes of its file.
    ///
    /// # Errors
    /// When they are no session; the error names the place.
    pub fn parse(bytes: &[u8]) -> Result<Self, SessionProblem> {
        read::parse(bytes)
    }

    /// The plan as it was when the file was written.
    pub fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }

    /// The step of this id.
    pub fn step(&self, id: &str) -> Option<&SessionStep> {
        self.steps.iter().find(|step| step.step.id.as_str() == id)
    }

    /// The steps that are completed.
    pub fn finished(&self) -> impl Iterator<Item = &SessionStep> {
        self.steps
            .iter()
            .filter(|step| step.status == StepStatus::Completed)
    }

    /// What a run begins with that goes on from here: all completed steps are done.
    pub fn seed(&self) -> StartingPlan {
        self.seed_but(&HashSet::new())
    }

    /// What a run begins with that does these steps again, and all that depends on them.
    ///
    /// # Errors
    /// When there is no such step.
    pub fn seed_without(&self, steps: &[StepId]) -> Result<StartingPlan, SessionProblem> {
        let places: HashMap<&StepId, u32> = self
            .steps
            .iter()
            .zip(0..)
            .map(|(step, at)| (&step.step.id, at))
            .collect();
        let place = |id: &StepId| {
            places
                .get(id)
                .copied()
                .ok_or_else(|| SessionProblem::NoStep(id.to_string()))
        };
        let mut open: Vec<u32> = steps.iter().map(place).collect::<Result<_, _>>()?;
        let mut behind: HashMap<u32, Vec<u32>> = HashMap::new();
        for (from, to) in &self.edges {
            behind.entry(*from).or_default().push(*to);
        }
        let mut again: HashSet<u32> = open.iter().copied().collect();
        while let Some(at) = open.pop() {
            let next = behind.get(&at).into_iter().flatten().copied();
            open.extend(next.filter(|to| again.insert(*to)));
        }
        Ok(self.seed_but(&again))
    }

    fn seed_but(&self, again: &HashSet<u32>) -> StartingPlan {
        let done = self
            .steps
            .iter()
            .zip(0..)
            .filter(|(step, at)| step.status == StepStatus::Completed && !again.contains(at));
        let done = done.map(|(step, _)| {
            CompletedStep::new(
                step.step.id.clone(),
                step.output.clone().unwrap_or_default(),
                step.written.clone(),
            )
        });
        done.fold(StartingPlan::new(self.plan.clone()), StartingPlan::with)
    }

    /// The session as a view, to be drawn.
    pub fn to_view(&self) -> PlanView {
        PlanView::of_session(self)
    }
}
