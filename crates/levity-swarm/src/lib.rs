//! Multi-agent patterns: a router with workers, handoff, debate and a blackboard, and the message
//! bus that they share.
//!
//! ```
//! use levity_loop::Agent;
//! use levity_swarm::{Router, Swarm, Worker};
//! use levity_test::ScriptedModel;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let model = ScriptedModel::new().reply(
//! #     r#"{"delegations": [{"id": "draw", "worker": "artist", "task": "Draw a boat."},
//! #         {"id": "name", "worker": "poet", "task": "Name it.", "depends_on": ["draw"]}]}"#,
//! # ).reply("The artist drew a boat, and the poet calls it Tern.");
//! # let agent = |says: &str| Agent::builder(ScriptedModel::new().reply(says)).build();
//! # let (artist, poet) = (agent("A boat.")?, agent("Tern.")?);
//! let swarm = Swarm::builder(Router::new(model))
//!     .worker(Worker::new("artist", "Draws.", artist))
//!     .worker(Worker::new("poet", "Finds words.", poet))
//!     .build()?;
//! let finished = swarm.run("I need a boat with a name.").await?;
//! assert_eq!(finished.text(), "The artist drew a boat, and the poet calls it Tern.");
//! for message in finished.bus().messages() {
//!     println!("{} to {}: {}", message.from, message.to, message.content);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! A [`Swarm`] consists of workers and a pattern for their cooperation. A [`Router`] delegates work
//! and combines the results. A [`Handoff`] passes the conversation from one agent to the next. A
//! [`Debate`] has a judge, and all workers write on a [`Blackboard`]. Use `AgentBuilder::agent` for
//! an agent as a tool of another one, and [`Swarm::as_tool`] for a swarm as a tool. The guarantees
//! for all patterns:
//!
//! - Each piece of work is a child run of the swarm's run, with its share of the budget. The total
//!   budget is never exceeded.
//! - The plan decides what a worker sees and the order on the [`Bus`], never the speed of the
//!   workers.
//! - A run resumes after a crash and does not repeat finished work.
//! - A member that fails, hangs, panics or floods costs only its own part of the answer, which
//!   names it.
//! - One event stream reports everything; `levity_observe::Lineage` attributes each event to a
//!   member. You can send messages to one worker, stop it and answer its questions:
//!   [`RunHandle::agent`](levity_runtime::RunHandle::agent).
//!
//! Deliberately absent: messages between workers that run at the same time, and workers that start
//! other workers. A message reaches only workers that start after it, so that a run can be
//! repeated. Use an agent with agents as tools to start others. `levity_agents` provides ready-made
//! workers.
//!
//! # Features
//! This crate has no features.
//!
//! # Where to go next
//! - [`SwarmBuilder`] lists the settings of a swarm and their defaults.
//! - [`Worker`] describes retries, fallbacks, timeouts and the memory of a worker.
//! - [`Router`], [`Handoff`], [`Debate`] and [`Blackboard`] are the ready-made patterns, and
//!   [`Coordinator`] is the trait for your own.
//! - [`SwarmAnswer`] has the reports of the workers and the messages on the [`Bus`].
//! - [`SwarmNotice`] lists the events that a swarm adds to the event stream of a run.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod answer;
mod blackboard;
mod board;
mod bus;
mod coordinator;
mod debate;
mod delegated_work;
mod executor;
mod handoff;
mod judge;
mod keywords;
mod machine;
mod message_tool;
mod names;
mod notice;
mod pattern;
mod plan;
mod report;
mod round_work;
mod router;
mod rules;
mod run;
mod shared_state;
mod swarm;
mod tool;
mod work_limits;
mod worker;

pub use answer::{SwarmAnswer, SwarmDetails};
pub use blackboard::Blackboard;
pub use board::{Board, BoardEntry, EarlierVersion};
pub use bus::{Bus, BusMessage, Lagged, MessageKind, Messages, NewMessage, ReadError, Recipient};
pub use coordinator::{Coordinator, Move, SwarmProgress};
pub use debate::Debate;
pub use handoff::{Handoff, HandoffHistory};
pub use levity_core::{Error, Result};
pub use machine::SwarmMachine;
pub use notice::{FailureAction, PlannedBy, SwarmNotice};
pub use pattern::Pattern;
pub use plan::{Delegation, PlanFault, PlanFaults};
pub use report::{ReportStatus, WorkerReport};
pub use router::Router;
pub use run::SwarmInput;
pub use swarm::{Swarm, SwarmBuilder};
pub use tool::SwarmTool;
pub use worker::{Worker, WorkerMemory};
