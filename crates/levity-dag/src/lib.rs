//! Plans as checked graphs of steps, each run as soon as its inputs are ready.

mod condition;
mod diff;
mod fault;
mod graph;
mod known;
mod notice;
mod plan;
mod session;
mod step;
mod view;

pub use condition::{Condition, ConditionError};
pub use diff::Diff;
pub use fault::{Fault, FaultKind, Faults};
pub use graph::Graph;
pub use known::{Known, Performer, PerformerKind};
pub use notice::{Notice, StepSpent, StepStatus, Strategy, Written};
pub use plan::{Plan, Variable};
pub use session::{
    Seed, Session, SessionError, SessionFilter, SessionInfo, SessionProblem, SessionStep, SessionWriter,
    Sessions,
};
pub use step::{After, Budget, FanOut, Join, More, OnFailure, Reducer, Retry, Step, StepId};
pub use view::{Activity, Items, LogLine, Preparation, Stage, StepView, Totals, TreeOptions, View, one_line};
