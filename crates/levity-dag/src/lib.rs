//! Plans as checked graphs of steps, each run as soon as its inputs are ready.

mod check;
mod condition;
mod diff;
mod fault;
mod graph;
mod known;
mod notice;
mod plan;
mod read;
mod reduce;
mod step;

pub use condition::{Condition, ConditionError};
pub use diff::Diff;
pub use fault::{Fault, FaultKind, Faults};
pub use graph::Graph;
pub use known::{Known, Performer, PerformerKind};
pub use notice::{Notice, StepSpent, StepStatus, Strategy, Written};
pub use plan::{LoadError, Plan, Variable};
pub use step::{After, Budget, FanOut, Join, More, OnFailure, Reducer, Retry, Step, StepId};
