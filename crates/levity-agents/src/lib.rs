//! Ready-made agents for teams and swarms.
//!
//! ```
//! # #[cfg(feature = "dag")]
//! # {
//! use levity_agents::Catalogue;
//! # use levity_test::ScriptedModel;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> levity_core::Result<()> {
//! # let model = ScriptedModel::new()
//! #     .reply(r#"{"steps": [{"id": "think", "agent": "Thinker", "writes": ["answer"]}]}"#)
//! #     .reply(r#"{"answer": "At six."}"#);
//! let team = Catalogue::defaults().team(model)?.build()?;
//! let finished = team.run("When is high water?").await?;
//! assert_eq!(finished.variable("answer"), Some(&"At six.".into()));
//! # Ok(())
//! # }
//! # main().unwrap();
//! # }
//! ```
//!
//! - `Catalogue` (`dag`) contains ten agents by name. Files in a folder can change them, and it
//!   builds single agents, a whole team, or workers of a swarm. `AgentParts` are the models, tools
//!   and servers from which it builds them.
//! - `PresetWorkers` (`swarm`) builds a researcher, a coder and a reviewer.
//!
//! This crate deliberately has no state machines. A ready-made agent is an ordinary
//! [`Agent`](levity_loop::Agent) that you could build yourself.
//!
//! # Features
//! - `dag`: the catalogue, and teams of its agents.
//! - `swarm`: ready-made workers; `files`, `commands` and `web` add tools of these kinds.

#[cfg(feature = "dag")]
mod catalogue;
#[cfg(feature = "dag")]
mod parts;
#[cfg(feature = "swarm")]
mod ready;
#[cfg(any(feature = "dag", feature = "swarm"))]
mod shared;
#[cfg(feature = "dag")]
mod team;

#[cfg(feature = "dag")]
pub use catalogue::{
    AgentPart, Catalogue, CatalogueEntry, CatalogueError, ConfigLocation, MissingPart, NamedPart,
    Requirement,
};
#[cfg(feature = "dag")]
pub use parts::AgentParts;
#[cfg(feature = "swarm")]
pub use ready::PresetWorkers;
