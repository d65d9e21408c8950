//! Plans as checked graphs of steps, each run as soon as its inputs are ready.

mod catalogue;
mod check;
mod condition;
mod diff;
mod error;
mod executor;
mod extract;
mod fault;
mod files;
mod finished;
mod function;
mod graph;
mod known;
mod machine;
mod notice;
mod parts;
mod plan;
mod planner;
mod read;
mod reduce;
mod run;
mod schedule;
mod seed;
mod session;
mod step;
mod task;
mod team;
mod view;

pub use catalogue::{AgentPart, Catalogue, CatalogueError, Entry, Missing, Named, Need, Place};
pub use condition::{Condition, ConditionError};
pub use diff::Diff;
pub use error::{Error, ErrorKind, Result};
pub use fault::{Fault, FaultKind, Faults};
pub use files::{
    Column, ColumnType, Count, Encoding, FileKind, FileProfile, JsonType, Manifest, Shape, Structure,
    profile_all,
};
pub use finished::{Finished, StepReport};
pub use function::{Function, StepInput};
pub use graph::Graph;
pub use known::{Known, Performer, PerformerKind};
pub use machine::GraphMachine;
pub use notice::{Notice, StepSpent, StepStatus, Strategy, Written};
pub use parts::Parts;
pub use plan::{LoadError, Plan, Variable};
pub use planner::{Brief, Planner, Replan};
pub use run::{Fork, Resume, TeamHandle, TeamRun};
pub use seed::{Seed, Sown};
pub use session::{
    Session, SessionError, SessionFilter, SessionInfo, SessionProblem, SessionStep, SessionWriter, Sessions,
};
pub use step::{After, Budget, FanOut, Join, More, OnFailure, Reducer, Retry, Step, StepId};
pub use team::{Team, TeamBuilder};
pub use view::{Activity, Items, LogLine, Preparation, Stage, StepView, Totals, TreeOptions, View, one_line};
