//! Plans as checked graphs of steps, each run as soon as its inputs are ready.

mod check;
mod condition;
mod diff;
mod fault;
mod files;
mod graph;
mod known;
mod notice;
mod plan;
mod step;
mod view;

pub use condition::{Condition, ConditionError};
pub use diff::Diff;
pub use fault::{Fault, FaultKind, Faults};
pub use files::{
    Column, ColumnType, Count, Encoding, FileKind, FileProfile, JsonType, Manifest, Shape, Structure,
    profile_all,
};
pub use graph::Graph;
pub use known::{Known, Performer, PerformerKind};
pub use notice::{Notice, StepSpent, StepStatus, Strategy, Written};
pub use plan::{Plan, Variable};
pub use step::{After, Budget, FanOut, Join, More, OnFailure, Reducer, Retry, Step, StepId};
pub use view::{Activity, Items, LogLine, Preparation, Stage, StepView, Totals, TreeOptions, View, one_line};
