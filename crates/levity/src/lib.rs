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
//!     # let args = serde_json::json!({"a": 2, "b": 5});
//!     # let model = ScriptedModel::new().call("add", args).reply("7");
//!     let agent = Agent::builder(model).instructions("Be brief.").tool(add).build()?;
//!     assert_eq!(agent.run("What is 2 + 5?").await?.text(), "7");
//!     Ok(())
//! }
//! ```
//!
//! A run is a fold over its events: a machine makes the decisions, one runtime performs and
//! journals the effects, and observers read one event stream. So you can pause, approve, resume,
//! replay and test a run without a network.
//!
//! This crate only combines the others. Each is a module here:
//!
//! | module | crate | contents |
//! |---|---|---|
//! | [`core`] | `levity-core` | the shared types and traits |
//! | [`agent`] | `levity-loop` | the agent and its loop |
//! | [`tools`] | `levity-tools`, `levity-builtin-tools` | registry, dispatcher, policy, built-ins |
//! | [`runtime`] | `levity-runtime` | the driver of runs: journal, limits, events |
//! | [`memory`] | `levity-memory` | conversations, context windows, long-term memory |
//! | `context` | `levity-context` | context of an agent: files, the workspace, the context value |
//! | `llm` | `levity-llm` | models: providers, middleware, JSON from model output |
//! | `sandbox` | `levity-sandbox` | access limits for models: files, commands, addresses |
//! | `dag` | `levity-dag` | plans as graphs of steps: planner, scheduler, replanning |
//! | `swarm` | `levity-swarm` | agents together: router and workers, handoff, debate, blackboard |
//! | `agents` | `levity-agents` | predefined agents: a catalogue for teams, workers for swarms |
//! | `observe` | `levity-observe` | views of events: plans as trees and diagrams, session files |
//! | `docs` | `levity-docs` | documents: index, search, citations |
//! | `mcp` | `levity-mcp` | MCP servers as tools: many servers, every transport |
//! | `serve` | `levity-serve` | agents as services: MCP server, HTTP API, bridge |
//! | `eval` | `levity-eval` | evaluations: cases, subjects, trials, reports with intervals |
//! | `python` | `levity-python` | code written by a model, and Python functions as tools |
//! | `test` | `levity-test` | scripted models, a manual clock, faults, conformance suites |
//!
//! # Features
//! - `macros` (default): the `#[tool]` attribute.
//! - `tracing` (default): a span for each run, model call and tool call; it costs nothing without a
//!   subscriber.
//! - `log`: log files of runs; `otlp`: traces and metrics to an OpenTelemetry collector.
//! - `gemini`, `openai`, `anthropic`, `ollama`, `compatible`: models of these providers, opened by
//!   name with [`model`]. Without any of them, `model` returns an error that names the one to add.
//! - `static-embedder`: `StaticEmbedder`, embeddings from a table of words, without a server.
//! - `llm`: middleware for models and JSON from model output, without a provider.
//! - `sqlite`: `SqliteJournal`, runs in a SQLite file; `SqliteMemory`, conversations in a SQLite
//!   file; `Recall`, long-term memory.
//! - `context`: context files and the workspace for the model.
//! - `files`, `commands`, `web`: the tools of `levity::tools` that work on files, run commands and
//!   fetch pages, within `levity::sandbox`.
//! - `profile`: profiles of files, in `levity::tools::profile`. `dag` enables it.
//! - `dag`: plans as graphs of steps; `levity::agents` has predefined agents for them,
//!   `levity::observe` has views and session files of their runs.
//! - `docs`: documents in one SQLite file, with search and citations; `docs-chroma`: their vectors
//!   in a Chroma server; `docs-formats`: PDF, Office, EPUB and e-mail files, and archives.
//! - `swarm`: agents that work together, and `levity::observe` to find the source of an event; with
//!   `files`, `commands` and `web`, the predefined workers in `levity::agents` have these tools.
//! - `mcp`: MCP servers as tools, as programs or in this process; `mcp-http`: servers reached by
//!   HTTP; `mcp-oauth`: servers that require OAuth.
//! - `serve`: agents, swarms and teams as services, by MCP, HTTP and the bridge.
//! - `eval`: evaluations of agents.
//! - `python`: code written by a model, and Python functions as tools. It requires Rust 1.95.
//! - `test`: the test kit, as `levity::test`.
//! - `audit`: every run is folded again at its end, and fails if the result differs. For tests; see
//!   `AgentBuilder::verify_replay`.

#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(any(feature = "dag", feature = "swarm"))]
pub use levity_agents as agents;
#[cfg(feature = "context")]
pub use levity_context as context;
pub use levity_core as core;
#[cfg(feature = "dag")]
pub use levity_dag as dag;
#[cfg(feature = "docs")]
pub use levity_docs as docs;
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
#[cfg(any(feature = "dag", feature = "swarm", feature = "serve"))]
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
pub use models::{embedder, model, model_from_env, reranker};

pub use {async_trait::async_trait, schemars, serde, serde_json};

#[cfg(not(feature = "providers"))]
#[path = "models_without_providers.rs"]
mod models;
#[cfg(feature = "providers")]
mod models;
// Builds with providers also run its tests, because other builds are not tested.
#[cfg(all(test, feature = "providers"))]
#[expect(dead_code, unreachable_pub, reason = "only tests call it here")]
mod models_without_providers;

/// The registry, dispatcher and policy of `levity-tools`, and the tools of `levity-builtin-tools`.
pub mod tools {
    pub use levity_builtin_tools::*;
    pub use levity_tools::*;
}

/// The names that nearly every program uses: an agent and its answer, tools, and a runtime with
/// events and limits.
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
#[doc = include_str!("../README.md")]
struct Readme;
