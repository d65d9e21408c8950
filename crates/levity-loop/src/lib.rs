//! An agent loop: goal, plan, act, observe and reflect, repeated until there is an answer.
//!
//! ```
//! use levity_loop::Agent;
//! use levity_test::ScriptedModel;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> levity_loop::Result<()> {
//! let model = ScriptedModel::new().reply("Paris.");
//! let agent = Agent::builder(model).instructions("Be brief.").build()?;
//! assert_eq!(agent.run("What is the capital of France?").await?.text(), "Paris.");
//! # Ok(())
//! # }
//! ```
//!
//! - The loop itself is [`AgentMachine`]. It decides and performs no I/O, so any run can be
//!   resumed, replayed and tested without a network.
//! - A run ends in an answer, a best-effort answer marked as such, or an error that carries all
//!   partial results. Its conversation can be sent to a provider unchanged.
//! - A tool's failure goes back to the model; only a failure that ends the run is an error of the
//!   run.
//! - Planning and reflecting cost nothing unless you enable them.

mod agent;
mod answer;
mod builder;
mod child_task;
mod control_tools;
mod conversations;
mod executor;
mod gather;
mod guards;
mod inspect;
mod machine;
mod notes;
mod output;
mod result_reader;
mod spec;
mod strategy;
mod wait;

pub use agent::{Agent, AgentInput};
pub use answer::{AgentDetails, Answer};
pub use builder::AgentBuilder;
pub use child_task::ChildTask;
pub use guards::{GuardFailurePolicy, Guarded, SecretGuard, SizeGuard, TopicGuard};
pub use levity_core::{Error, Result};
pub use machine::AgentMachine;
pub use strategy::{
    Goal, LowBudgetAction, ModelPlanner, ModelReflector, NoPlan, NoReflection, Planner, Planning,
    Reflection, Reflector, RulePlanner, RuleReflector, TurnSummary,
};

/// Internal items for levity's own crates, which use guards elsewhere. They carry no stability
/// promise.
#[doc(hidden)]
pub mod __private {
    pub use crate::guards::Guards;
}
