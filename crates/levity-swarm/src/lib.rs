//! Agents that work together: a router and its workers, handoff, debate, a blackboard, and the bus
//! they talk by.
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
//! A [`Swarm`] is workers and a pattern by which they work together: a [`Router`] that delegates
//! and puts the results together, a [`Handoff`] of the conversation from one to the next, a
//! [`Debate`] with a judge, or a [`Blackboard`] that all write on. An agent as a tool of another is
//! `AgentBuilder::agent`; a swarm as one is [`Swarm::as_tool`]. What is promised of all of them:
//!
//! - Each piece of work is a run below the swarm's own, with its share of the budget. The budget of
//!   the whole is never passed.
//! - What a worker is shown, and the order on the [`Bus`], follow from the plan and never from who
//!   was faster.
//! - A run goes on after a crash where it was; nothing that was finished is done again.
//! - A member that fails, hangs, panics or floods costs its own part of the answer, by name, and
//!   nothing else.
//! - One event stream tells of all; `levity_observe::Lineage` says whose each event is. One worker
//!   can be spoken to, stopped and answered:
//!   [`RunHandle::agent`](levity_runtime::RunHandle::agent).
//!
//! What is deliberately absent: talk between workers that are at work at the same time (what one
//! says reaches those who begin after it, so that a run can be repeated), and workers that start
//! others by themselves (an agent with agents as tools does). Workers that are ready to use are in
//! `levity_agents`.

mod blackboard;
mod board;
mod bus;
mod coordinator;
mod crew;
mod debate;
mod delegated;
mod desk;
mod effort;
mod executor;
mod finished;
mod handoff;
mod judge;
mod keywords;
mod machine;
mod names;
mod notice;
mod pattern;
mod plan;
mod report;
mod router;
mod rules;
mod run;
mod swarm;
mod talk;
mod tool;
mod worker;

pub use blackboard::Blackboard;
pub use board::{Board, BoardEntry, Earlier};
pub use bus::{Bus, BusMessage, Lagged, MessageKind, Messages, NewMessage, ReadError, Recipient};
pub use coordinator::{Coordinator, Move, SwarmProgress};
pub use debate::Debate;
pub use finished::{SwarmAnswer, SwarmDetails};
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
