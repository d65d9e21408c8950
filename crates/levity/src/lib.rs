//! A light runtime for LLM agents.
//!
//! ```
//! use levity::prelude::*;
//!
//! /// Adds two numbers.
//! #[tool]
//! async fn add(/** left */ a: f64, /** right */ b: f64) -> f64 {
//!     a + b
//! }
//!
//! # use levity_test::ScriptedModel;
//! #[tokio::main]
//! async fn main() -> levity::Result<()> {
//!     # let model = ScriptedModel::new().call("add", serde_json::json!({"a": 2, "b": 5})).reply("7");
//!     let agent = Agent::builder(model).instructions("Be brief.").tool(add).build()?;
//!     assert_eq!(agent.run("What is 2 + 5?").await?.text(), "7");
//!     Ok(())
//! }
//! ```
//!
//! A run is a fold over its events: a machine decides, one runtime acts and journals, and whoever
//! watches reads one event stream. So a run can be paused, approved, resumed, replayed and tested
//! without a network.
//!
//! This crate only puts the others together. Each is a module here:
//!
//! | module | crate | what is in it |
//! |---|---|---|
//! | [`core`] | `levity-core` | the vocabulary and the traits |
//! | [`agent`] | `levity-loop` | the agent and its loop |
//! | [`tools`] | `levity-tools`, `levity-builtin-tools` | registry, dispatcher, policy; ready-made tools |
//! | [`runtime`] | `levity-runtime` | what drives runs: journal, limits, events |
//! | [`memory`] | `levity-memory` | conversations, windows that fit, long-term recall |
//! | `context` | `levity-context` | what an agent goes by: files, the workspace, the context value |
//! | `llm` | `levity-llm` | models: providers, layers around them, JSON from what they write |
//! | `sandbox` | `levity-sandbox` | what a model may touch: files, commands, addresses |
//! | `dag` | `levity-dag` | plans as graphs of steps: planner, scheduler, replanning |
//! | `swarm` | `levity-swarm` | agents that work together: router and workers, handoff, debate, blackboard |
//! | `agents` | `levity-agents` | ready agents: a catalogue of ten for teams, workers for swarms |
//! | `observe` | `levity-observe` | views made from events: trees and diagrams of plans, session files, whose an event is |
//! | `mcp` | `levity-mcp` | MCP servers as tools: many servers, every transport |
//! | `serve` | `levity-serve` | agents offered to others: MCP server, HTTP API, bridge |
//! | `eval` | `levity-eval` | evaluations: cases, subjects, trials, reports with intervals |
//! | `python` | `levity-python` | code that a model wrote, and Python functions as tools |
//! | `test` | `levity-test` | scripted models, a manual clock, faults, conformance suites |
//!
//! # Features
//! - `macros` (default): the `#[tool]` attribute.
//! - `tracing` (default): a span for each run, call of a model and call of a tool; without a
//!   subscriber it costs nothing.
//! - `log`: log files of what runs do; `otlp`: traces and metrics to an OpenTelemetry collector.
//! - `gemini`, `openai`, `anthropic`, `ollama`, `compatible`: models of these providers, by name:
//!   [`model`]. Without one of them, `model` returns an error that says which one to add.
//! - `static-embedder`: `StaticEmbedder`, vectors from a table of words, without a server.
//! - `llm`: layers around models and JSON from what they write, without a provider.
//! - `sqlite`: `SqliteJournal`, runs in one SQLite file; `SqliteMemory`, conversations in one;
//!   `Recall`, long-term memory.
//! - `context`: context files and the workspace, for the model to go by.
//! - `files`, `commands`, `web`: the tools of `levity::tools` that work on files, run commands and
//!   fetch pages, within `levity::sandbox`.
//! - `profile`: profiles of files, in `levity::tools::profile`. `dag` switches it on.
//! - `dag`: plans as graphs of steps; `levity::agents` has ready agents for them, `levity::observe`
//!   views and session files of their runs.
//! - `swarm`: agents that work together, and `levity::observe` to say whose an event is; with
//!   `files`, `commands` and `web`, the ready workers in `levity::agents` have these tools.
//! - `mcp`: MCP servers as tools, as programs or in this process; `mcp-http`: those reached by
//!   HTTP; `mcp-oauth`: those that ask for OAuth.
//! - `serve`: agents offered to others, by MCP, HTTP and the bridge; swarms and teams, too.
//! - `eval`: evaluations of agents.
//! - `python`: code that a model wrote, and Python functions as tools. It asks for Rust 1.95.
//! - `test`: the test kit, as `levity::test`.
//! - `audit`: every run is folded again when it has ended, and fails when it does not come out the
//!   same. For tests; see `AgentBuilder::audited`.

#[cfg(any(feature = "dag", feature = "swarm"))]
pub use levity_agents as agents;
#[cfg(feature = "context")]
pub use levity_context as context;
pub use levity_core as core;
#[cfg(feature = "dag")]
pub use levity_dag as dag;
pub use levity_driver as driver;
#[cfg(feature = "eval")]
pub use levity_eval as eval;
#[cfg(feature = "llm")]
pub use levity_llm as llm;
#[cfg(feature = "log")]
pub use levity_log as log;
pub use levity_loop as agent;
#[cfg(feature = "mcp")]
pub use levity_mcp as mcp;
pub use levity_memory as memory;
#[cfg(any(feature = "dag", feature = "swarm"))]
pub use levity_observe as observe;
#[cfg(feature = "python")]
pub use levity_python as python;
pub use levity_runtime as runtime;
#[cfg(feature = "sandbox")]
pub use levity_sandbox as sandbox;
#[cfg(feature = "serve")]
pub use levity_serve as serve;
#[cfg(feature = "swarm")]
pub use levity_swarm as swarm;
#[cfg(feature = "test")]
pub use levity_test as test;

pub use levity_core::{Error, ErrorKind, Result};
pub use levity_loop::{Agent, Answer};
#[cfg(feature = "macros")]
pub use levity_macros::tool;
pub use named::{embedder, model, model_from_env};

pub use {async_trait::async_trait, schemars, serde, serde_json};

#[cfg(not(feature = "providers"))]
#[path = "unnamed.rs"]
mod named;
#[cfg(feature = "providers")]
mod named;
// Its tests run in builds with providers, too: no others are tested.
#[cfg(all(test, feature = "providers"))]
#[expect(dead_code, unreachable_pub, reason = "only tests call it here")]
mod unnamed;

/// The registry, the dispatcher and the policy of `levity-tools`, and the ready-made tools of
/// `levity-builtin-tools`.
pub mod tools {
    pub use levity_builtin_tools::*;
    pub use levity_tools::*;
}

/// The names that nearly every program uses: an agent and its answer, tools, and a runtime that is
/// watched and limited.
///
/// Everything else is in the module of its crate, such as `levity::runtime::FileJournal` or
/// `levity::tools::Policy`.
pub mod prelude {
    pub use levity_core::{
        Decision, EventKind, Limits, Message, Model, Tool, ToolCx, ToolError, ToolOutput,
    };
    pub use levity_loop::{Agent, Answer};
    #[cfg(feature = "macros")]
    pub use levity_macros::tool;
    pub use levity_runtime::Runtime;
}

#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
