//! Plans as checked graphs of steps, each run as soon as its inputs are ready.
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
//! A [`Plan`] is data: written in code, loaded from a file, or made by a [`TeamPlanner`] or a
//! model. [`Graph::check`] says all that is wrong with it before anything begins. A [`Team`] has
//! the agents, functions, tools and code that do the steps, and [`Team::run`] has a plan made for a
//! goal and carried out. What it promises:
//!
//! - A step begins the moment its inputs are settled and there is room; a slow step delays only
//!   what needs it.
//! - What a step reads is a matter of the plan, never of timing: the same outcomes give the same
//!   result.
//! - A failed step stops what depends on it, and nothing else. The planner may then change what has
//!   not begun: the change is checked like a plan, and what is finished cannot be touched.
//! - Each step by an agent is a run of its own with its share of the budget. A run goes on after a
//!   crash where it was, and nothing that was finished is done again.
//! - Everything told about a run is in one event stream. `levity_observe` makes a tree, a summary,
//!   a diagram or a session file of it.
//!
//! What is deliberately absent: cycles (an agent loops by itself, a plan does not), a clock and
//! randomness in the machine, and a way to stop one step of a run.

mod check;
mod condition;
mod diff;
mod executor;
mod extract;
mod fault;
mod finished;
mod function;
mod graph;
mod known;
mod machine;
mod names;
mod notice;
mod plan;
mod planner;
mod read;
mod reduce;
mod run;
mod schedule;
mod seed;
mod step;
mod task;
mod team;

pub use condition::{Condition, ConditionError};
pub use diff::Diff;
pub use fault::{Fault, FaultKind, Faults};
pub use finished::{StepReport, TeamAnswer, TeamDetails};
pub use function::{Function, StepInput};
pub use graph::Graph;
pub use known::{PlanConstraints, StepRunner, StepRunnerKind};
pub use levity_core::{Error, Result};
pub use machine::{CARRY_OUT as CARRY_OUT_PLAN, GraphMachine};
pub use notice::{PlanNotice, StepSpent, StepStatus, Strategy, WrittenVariable};
pub use plan::{LoadError, Plan, Variable};
pub use planner::{Brief, Replan, TeamPlanner};
pub use run::TeamInput;
pub use seed::{CompletedStep, StartingPlan};
pub use step::{After, Budget, FanOut, Join, OnFailure, Reducer, Retry, Step, StepId};
pub use team::{Team, TeamBuilder};

/// What levity's other crates need; not for use by hand.
#[doc(hidden)]
pub mod __private {
    pub use crate::names::{near, short};
}
