use std::fmt;

use crate::step::StepId;

/// A single problem found in a plan.
///
/// Messages name steps and variables in backticks and suggest a fix.
///
/// ```
/// use levity_dag::{Fault, FaultKind, Faults};
///
/// let fault = Fault::at(FaultKind::Read, &"sum".into(), "step `sum` reads nothing");
/// let faults = Faults::from(fault);
/// assert_eq!(faults.faults[0].step.as_ref().unwrap().as_str(), "sum");
/// assert_eq!(faults.to_string(), "step `sum` reads nothing");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Fault {
    /// The category of the fault.
    pub kind: FaultKind,
    /// The affected step, if the fault concerns one.
    pub step: Option<StepId>,
    /// The message, including a suggested fix.
    pub message: String,
}

/// The categories of faults in a plan.
///
/// ```
/// use levity_dag::{FaultKind, Graph, Plan, PlanConstraints, Step, StepRunner, StepRunnerKind};
///
/// let known = PlanConstraints::new()
///     .with("A", StepRunner::new(StepRunnerKind::Agent, "works"));
/// let plan = Plan::new()
///     .step(Step::new("first", "A").after("second"))
///     .step(Step::new("second", "A").after("first"));
/// let faults = Graph::check(plan, &known).unwrap_err();
/// assert_eq!(faults.faults[0].kind, FaultKind::Cycle);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FaultKind {
    /// The text is not a plan.
    Malformed,
    /// The plan has no steps or too many, or a step has too much text.
    Size,
    /// An id is empty, or two steps have the same id.
    Id,
    /// No agent, function or tool of that name exists.
    Agent,
    /// A step refers to a step that does not exist.
    Reference,
    /// The steps form a cycle.
    Cycle,
    /// A step reads a variable that no earlier step writes.
    Read,
    /// Two steps write a variable, and nothing orders them.
    Write,
    /// The declaration of a variable is invalid.
    Variable,
    /// The worst case exceeds the budget.
    Budget,
    /// A change affects a step that can no longer change.
    Settled,
}

/// All problems found in a plan; at least one.
///
/// The message of the error joins the messages of the faults with `; `. A planner that is a model
/// gets the faults as complaints and corrects its plan.
///
/// ```
/// use levity_dag::{Faults, Plan};
///
/// let steps: Vec<_> = (0..60).map(|_| "{}").collect();
/// let faults = Plan::parse(&format!("[{}]", steps.join(","))).unwrap_err();
/// assert_eq!((faults.faults.len(), faults.more), (Faults::MAX_REPORTED, 10));
/// assert!(faults.to_string().ends_with("; and 10 more"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub struct Faults {
    /// The first faults, at most [`MAX_REPORTED`](Self::MAX_REPORTED).
    pub faults: Vec<Fault>,
    /// The number of further faults.
    pub more: usize,
}

impl Faults {
    /// The maximum number of faults reported in full: 50.
    pub const MAX_REPORTED: usize = 50;
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, fault) in self.faults.iter().enumerate() {
            let between = if at == 0 { "" } else { "; " };
            write!(f, "{between}{}", fault.message)?;
        }
        match self.more {
            0 => Ok(()),
            more => write!(f, "; and {more} more"),
        }
    }
}

impl From<Fault> for Faults {
    fn from(fault: Fault) -> Self {
        Self {
            faults: vec![fault],
            more: 0,
        }
    }
}

impl Fault {
    /// Creates a fault of the plan as a whole.
    pub fn new(kind: FaultKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            step: None,
            message: message.into(),
        }
    }

    /// Creates a fault of one step.
    pub fn at(kind: FaultKind, step: &StepId, message: impl Into<String>) -> Self {
        Self {
            kind,
            step: Some(step.clone()),
            message: message.into(),
        }
    }
}

/// Collects faults; beyond [`Faults::MAX_REPORTED`] it only counts them.
#[derive(Debug, Default)]
pub(crate) struct FaultCollector {
    faults: Vec<Fault>,
    more: usize,
}

impl FaultCollector {
    pub(crate) fn push(&mut self, fault: Fault) {
        self.push_with(|| fault);
    }

    /// Creates the fault only if it is reported, because searching for a similar name is costly.
    pub(crate) fn push_with(&mut self, fault: impl FnOnce() -> Fault) {
        if self.faults.len() < Faults::MAX_REPORTED {
            self.faults.push(fault());
        } else {
            self.more += 1;
        }
    }

    /// Returns `Ok` if there are no faults, otherwise all of them.
    pub(crate) fn finish(&mut self) -> Result<(), Faults> {
        if self.faults.is_empty() {
            return Ok(());
        }
        Err(Faults {
            faults: std::mem::take(&mut self.faults),
            more: std::mem::take(&mut self.more),
        })
    }
}

impl From<Faults> for levity_core::Error {
    fn from(faults: Faults) -> Self {
        Self::config_of("the plan cannot be carried out", faults)
    }
}
