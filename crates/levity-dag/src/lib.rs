//! Plans as checked graphs of steps, each run as soon as its inputs are ready.

mod catalogue;
mod condition;
mod diff;
mod fault;
mod graph;
mod known;
mod notice;
mod parts;
mod plan;
mod step;

pub use catalogue::{AgentPart, Catalogue, CatalogueError, Entry, Missing, Named, Need, Place};
pub use condition::{Condition, ConditionError};
pub use diff::Diff;
pub use fault::{Fault, FaultKind, Faults};
pub use graph::Graph;
pub use known::{Known, Performer, PerformerKind};
pub use notice::{Notice, StepSpent, StepStatus, Strategy, Written};
pub use parts::Parts;
pub use plan::{Plan, Variable};
pub use step::{After, Budget, FanOut, Join, More, OnFailure, Reducer, Retry, Step, StepId};
