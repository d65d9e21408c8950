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
//!
//! # Limits
//!
//! | limit | default | change it with |
//! |---|---|---|
//! | turns of a catalogue agent | 15 | `CatalogueEntry::max_turns` |
//! | turns of the ready-made coder | 40 | `PresetWorkers::finish` |
//! | turns of the researcher and the reviewer | 20 | `PresetWorkers::finish` |
//! | size of a config or a prompt file | 256 KiB | fixed |
//!
//! # Trust
//!
//! A folder of agents may come from a third party. Its config can choose models, tools and prompts
//! among the parts that the program offers, and nothing else: files outside of the folder are not
//! read, and no key is sent to an address in a model name if you use `Models::model_named_in`.
//!
//! # Further reading
//! - `docs/agents.md` describes the default agents and the format of `agent_config.yaml`.
//! - `levity_dag` runs the team, and `levity_swarm` the workers.

#![cfg_attr(docsrs, feature(doc_cfg))]

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

/// Internals shared with levity's command; not for direct use.
#[cfg(feature = "dag")]
#[doc(hidden)]
pub mod __private {
    pub use crate::catalogue::yaml_to_json;
}
