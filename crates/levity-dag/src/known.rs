use std::collections::BTreeMap;
use std::sync::Arc;

use levity_core::Limits;

use crate::step::Budget;

/// What a plan may go by: who there is, what may be used, how large it may be.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PlanConstraints {
    /// Who can do a step, by name.
    pub performers: BTreeMap<Arc<str>, StepRunner>,
    /// Whether steps may be code.
    pub code: bool,
    /// What the whole run may use.
    pub limits: Limits,
    /// How many steps a plan may have; [`MAX_STEPS`](Self::MAX_STEPS) by default.
    pub max_steps: usize,
    /// How many edges there may be between them; [`MAX_EDGES`](Self::MAX_EDGES) by default.
    pub max_edges: usize,
    /// How many bytes all texts of a step may have; [`MAX_TEXT`](Self::MAX_TEXT) by default.
    pub max_text: usize,
}

impl PlanConstraints {
    /// 20,000 steps.
    pub const MAX_STEPS: usize = 20_000;
    /// 500,000 edges.
    pub const MAX_EDGES: usize = 500_000;
    /// 1 MiB of text in a step.
    pub const MAX_TEXT: usize = 1 << 20;

    /// Nobody yet, with the default limits.
    pub fn new() -> Self {
        Self {
            performers: BTreeMap::new(),
            code: false,
            limits: Limits::new(),
            max_steps: Self::MAX_STEPS,
            max_edges: Self::MAX_EDGES,
            max_text: Self::MAX_TEXT,
        }
    }

    /// Adds somebody.
    #[must_use]
    pub fn with(mut self, name: impl Into<Arc<str>>, performer: StepRunner) -> Self {
        self.performers.insert(name.into(), performer);
        self
    }
}

impl PlanConstraints {
    /// Who is meant by a name: somebody of that name or, since `Coder` and `CoderAgent` are the
    /// same, of the other.
    pub fn performer(&self, name: &str) -> Option<(&Arc<str>, &StepRunner)> {
        let find = |name: &str| self.performers.get_key_value(name);
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

/// Somebody who can do a step.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct StepRunner {
    /// What it is.
    pub kind: StepRunnerKind,
    /// What it is good for, for the planner.
    pub description: Arc<str>,
    /// What one attempt of it uses at most, where a step says nothing.
    pub budget: Option<Budget>,
    /// Whether its results are verdicts on the work of others.
    pub judges: bool,
    /// Whether code in what it answers is run, where something runs code; it is by default.
    pub code: bool,
}

impl StepRunner {
    /// Somebody.
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

/// What does a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StepRunnerKind {
    /// An agent.
    Agent,
    /// A function of the program.
    Function,
    /// A tool.
    Tool,
}
