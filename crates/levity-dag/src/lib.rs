//! Runs plans as validated graphs of steps, each step as soon as its inputs are ready.
//!
//! ```
//! use levity_dag::{Plan, Step, StepInput, Team};
//! use serde_json::json;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> levity_dag::Result<()> {
//! let team = Team::builder()
//!     .function("fetch", |_: StepInput| async { Ok(json!("high water at six")) })
//!     .function("count", |input: StepInput| async move {
//!         let page: String = input.parse("page")?;
//!         Ok(json!(page.split_whitespace().count()))
//!     })
//!     .build()?;
//! let plan = Plan::new()
//!     .step(Step::new("fetch", "fetch").writes(["page"]))
//!     .step(Step::new("count", "count").reads(["page"]).writes(["words"]));
//! let finished = team.run(plan).await?;
//! assert_eq!(finished.variable("words"), Some(&json!(4)));
//! # Ok(())
//! # }
//! ```
//!
//! A [`Plan`] is data: you write it in code, load it from a file, or let a [`TeamPlanner`] or a
//! model make it. [`Graph::check`] reports every fault of a plan before any step starts. A [`Team`]
//! holds the agents, functions, tools and code that run the steps. [`Team::run`] makes a plan for a
//! goal and runs it. The guarantees:
//!
//! - A step starts as soon as its inputs are settled and a slot is free. A slow step delays only
//!   its dependents.
//! - The plan decides what a step reads, never timing: the same outcomes give the same result.
//! - A failed step stops only its dependents. The planner can then change steps that have not
//!   started. levity validates the change like a plan and rejects changes to finished steps.
//! - Each agent step is a separate run with its share of the budget. A run resumes after a crash
//!   and does not repeat finished work.
//! - One event stream reports everything about a run. `levity_observe` renders it as a tree, a
//!   summary, a diagram or a session file.
//!
//! Deliberately absent: cycles (an agent loops, a plan does not), a clock and randomness in the
//! machine, and a way to stop a single step of a run.
//!
//! # Reports of a run
//!
//! A run returns a [`TeamAnswer`]: its text, the variables, and a [`StepReport`] for each step. A
//! run that does not reach its goal returns [`Error::Unreached`], and the error holds the partial
//! result:
//!
//! ```
//! use levity_core::ToolError;
//! use levity_dag::{Error, Plan, Step, StepInput, StepStatus, Team, TeamAnswer};
//! use serde_json::json;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> levity_dag::Result<()> {
//! let team = Team::builder()
//!     .function("broken", |_: StepInput| async { Err(ToolError::failed("no network")) })
//!     .function("tide", |_: StepInput| async { Ok(json!("high water at six")) })
//!     .build()?;
//! let plan = Plan::new()
//!     .step(Step::new("fetch", "broken").writes(["page"]))
//!     .step(Step::new("tide", "tide").writes(["tide"]));
//! let Err(Error::Unreached { why, partial }) = team.run(plan).await else { unreachable!() };
//! assert_eq!(why, "step `fetch` failed: no network");
//! let partial: TeamAnswer = partial.downcast().unwrap();
//! assert_eq!(partial.step("tide").unwrap().status, StepStatus::Completed);
//! # Ok(())
//! # }
//! ```
//!
//! # Where to go next
//!
//! - [`Step`] describes conditions, fan-outs, retries, budgets and failure policies.
//! - [`TeamBuilder`] describes the settings of a team and their defaults.
//! - [`TeamPlanner`] makes plans in your code; an agent with the name [`Team::PLANNER`] makes them
//!   with a model.
//! - [`PlanNotice`] lists the events that a plan adds to the event stream of a run.
//! - [`Diff`] describes changes to a plan that is running.
//!
//! # Features
//! This crate has no features.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod check;
mod condition;
mod constraints;
mod diff;
mod estimate;
mod executor;
mod extract;
mod fault;
mod function;
mod graph;
mod machine;
mod names;
mod notice;
mod plan;
mod planner;
mod read;
mod readable;
mod reduce;
mod report;
mod run;
mod schedule;
mod starting_plan;
mod step;
mod task;
mod team;

pub use condition::{Condition, ConditionError};
pub use constraints::{PlanConstraints, StepRunner, StepRunnerKind};
pub use diff::Diff;
pub use estimate::{EstimateRange, PlanEstimate, StepEstimate};
pub use fault::{Fault, FaultKind, Faults};
pub use function::{Function, StepInput};
pub use graph::Graph;
pub use levity_core::{Error, Result};
pub use machine::{CARRY_OUT as APPROVE_PLAN_TOOL, GraphMachine};
pub use notice::{PlanNotice, StepStatus, StepUsage, Strategy, WrittenVariable};
pub use plan::{LoadError, Plan, Variable};
pub use planner::{PlannerInput, Replan, TeamPlanner};
pub use report::{StepReport, TeamAnswer, TeamDetails};
pub use run::TeamInput;
pub use starting_plan::{CompletedStep, StartingPlan};
pub use step::{After, Budget, FanOut, Join, OnFailure, Reducer, Retry, Step, StepId};
pub use team::{Team, TeamBuilder};

/// Internals shared with levity's other crates; not for direct use.
#[doc(hidden)]
pub mod __private {
    pub use crate::names::{near, short};
}
