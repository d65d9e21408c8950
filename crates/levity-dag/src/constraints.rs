use std::collections::BTreeMap;
use std::sync::Arc;

use levity_core::Limits;

use crate::step::Budget;

/// The constraints on a plan: the available runners, the limits of a run and the maximum sizes.
///
/// A [`Team`](crate::Team) builds its own; see [`Team::constraints`](crate::Team::constraints).
/// Build them yourself to validate plans in a program that does not run them, such as an editor.
///
/// ```
/// use levity_dag::{FaultKind, Graph, Plan, PlanConstraints, Step, StepRunner, StepRunnerKind};
///
/// let mut known = PlanConstraints::new()
///     .with("Coder", StepRunner::new(StepRunnerKind::Agent, "writes code"));
/// known.max_steps = 1;
/// let plan = Plan::new().step(Step::new("a", "Coder")).step(Step::new("b", "Coder"));
/// let faults = Graph::check(plan, &known).unwrap_err();
/// assert_eq!(faults.faults[0].kind, FaultKind::Size);
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PlanConstraints {
    /// The agents, functions and tools that can run a step, by name.
    pub runners: BTreeMap<Arc<str>, StepRunner>,
    /// `true` if steps may be code.
    pub code: bool,
    /// The limits of the whole run.
    pub limits: Limits,
    /// The maximum number of steps in a plan; [`MAX_STEPS`](Self::MAX_STEPS) by default.
    pub max_steps: usize,
    /// The maximum number of edges between steps; [`MAX_EDGES`](Self::MAX_EDGES) by default.
    pub max_edges: usize,
    /// The maximum size of all texts of a step in bytes; [`MAX_TEXT`](Self::MAX_TEXT) by default.
    pub max_text: usize,
}

impl PlanConstraints {
    /// The default maximum of 20,000 steps.
    pub const MAX_STEPS: usize = 20_000;
    /// The default maximum of 500,000 edges.
    pub const MAX_EDGES: usize = 500_000;
    /// The default maximum of 1 MiB of text in a step.
    pub const MAX_TEXT: usize = 1 << 20;

    /// Creates constraints without runners and with the default limits.
    pub fn new() -> Self {
        Self {
            runners: BTreeMap::new(),
            code: false,
            limits: Limits::new(),
            max_steps: Self::MAX_STEPS,
            max_edges: Self::MAX_EDGES,
            max_text: Self::MAX_TEXT,
        }
    }

    /// Adds a runner under a name.
    #[must_use]
    pub fn with(mut self, name: impl Into<Arc<str>>, performer: StepRunner) -> Self {
        self.runners.insert(name.into(), performer);
        self
    }
}

impl PlanConstraints {
    /// Returns the runner with this name. `Coder` and `CoderAgent` are treated as the same name.
    ///
    /// An exact match has priority.
    ///
    /// ```
    /// use levity_dag::{PlanConstraints, StepRunner, StepRunnerKind};
    ///
    /// let known = PlanConstraints::new()
    ///     .with("Coder", StepRunner::new(StepRunnerKind::Agent, "writes code"));
    /// let (name, _) = known.runner("CoderAgent").unwrap();
    /// assert_eq!(&**name, "Coder");
    /// assert!(known.runner("coder").is_none());
    /// ```
    pub fn runner(&self, name: &str) -> Option<(&Arc<str>, &StepRunner)> {
        let find = |name: &str| self.runners.get_key_value(name);
        find(name)
            .or_else(|| find(name.strip_suffix("Agent")?))
            .or_else(|| {
                if name.is_empty() {
                    None
                } else {
                    find(&format!("{name}Agent"))
                }
            })
    }
}

impl Default for PlanConstraints {
    fn default() -> Self {
        Self::new()
    }
}

/// An agent, function or tool that can run a step.
///
/// Pass one to [`TeamBuilder::runner`](crate::TeamBuilder::runner) to give an agent a default
/// budget, to make it a judge, or to prevent that levity runs code from its answers.
///
/// ```
/// use levity_dag::{Budget, StepRunner, StepRunnerKind};
///
/// let mut critic = StepRunner::new(StepRunnerKind::Agent, "checks facts");
/// critic.judges = true;
/// critic.budget = Some(Budget::new().model_calls(3));
/// assert!(critic.code);
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct StepRunner {
    /// The kind of runner.
    pub kind: StepRunnerKind,
    /// The description that the planner reads.
    pub description: Arc<str>,
    /// The budget of one attempt if the step does not set one.
    pub budget: Option<Budget>,
    /// `true` if its results are verdicts on the work of other steps.
    pub judges: bool,
    /// `true` if levity runs code in its answers, provided the team can run code; the default.
    pub code: bool,
}

impl StepRunner {
    /// Creates a runner with this kind and description.
    pub fn new(kind: StepRunnerKind, description: impl Into<Arc<str>>) -> Self {
        Self {
            kind,
            description: description.into(),
            budget: None,
            judges: false,
            code: true,
        }
    }
}

/// The kinds of step runners.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StepRunnerKind {
    /// An agent of the team.
    Agent,
    /// A function of your program.
    Function,
    /// A tool of the team.
    Tool,
}
