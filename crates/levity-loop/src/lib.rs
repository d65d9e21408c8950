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
//!
//! # The phases of a run
//! | phase | the loop | it ends with |
//! |---|---|---|
//! | goal | receives the goal, after the guards | the plan, or the first turn |
//! | plan | asks the [`Planner`] and perhaps a model | a note with the steps |
//! | act | calls the model, then the tools of its reply | an answer, or results |
//! | observe | adds the results to the conversation | the reflection, or the next turn |
//! | reflect | asks the [`Reflector`] and perhaps a model | a note, or the next turn |
//! | end | saves the conversation | the ending |
//!
//! # Defaults
//! A run has at most 10 turns with 64 calls each. A model call may take 10 minutes, a tool 60
//! seconds and a guard 60 seconds. The model sees 32 KiB of a result. A typed answer of the wrong
//! shape is requested twice more. [`AgentBuilder`] changes each of them.
//!
//! # Features
//! - `sqlite`: long-term memory by `AgentBuilder::recall`.
//! - `audit`: every run is replayed at its end, as by [`AgentBuilder::verify_replay`].
//! - `tracing`: spans of runs, model calls and tool calls.
//!
//! # Where to go next
//! - [`Agent`] runs, resumes and forks; [`AgentBuilder`] has all settings.
//! - [`Answer`] is the result of a run.
//! - [`SecretGuard`], [`SizeGuard`] and [`TopicGuard`] check what enters and leaves an agent.

#![cfg_attr(docsrs, feature(doc_cfg))]

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
