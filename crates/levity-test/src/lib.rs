//! A test kit for levity: scripted models, a manual clock, faults, crashes, one conformance suite
//! per trait.
//!
//! ```
//! use levity_core::{Message, Model, Request};
//! use levity_test::ScriptedModel;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), levity_core::ModelError> {
//! let model = ScriptedModel::new().reply("Good morning!");
//! let reply = model.complete(Request::new().with_message(Message::user("Hello"))).await?;
//! assert_eq!(reply.message.text(), "Good morning!");
//! model.assert_finished();
//! # Ok(())
//! # }
//! ```
//!
//! Nothing here needs a key, the network, real time or a certain async runtime.
//!
//! - [`ScriptedModel`] and [`FunctionModel`] replace a model, [`ManualWorld`] replaces clock and
//!   randomness.
//! - [`WordEmbedder`] makes vectors of words, and fails on request; [`InMemoryVectors`] stores
//!   vectors.
//! - [`WordReranker`] scores texts by the words of a query, and fails on request.
//! - [`FaultyJournal`] and [`FaultyTool`] fail on request; [`RecordingTool`] remembers its calls.
//! - [`ManualHost`] drives a run by hand, in any order of outcomes, without an async runtime.
//! - [`crash`] stops a scenario after every record in turn, resumes it and compares the results.
//! - [`story`] renders a run as lines that can be compared.
//! - [`conformance`] checks an implementation of one of levity's traits against its contract.
//!
//! # A test of a tool and a model together
//!
//! The doubles of this crate implement the traits of `levity-core`, so they fit wherever the real
//! ones do. Clones share their state: keep a clone, give the other one away, and inspect it
//! afterwards.
//!
//! ```
//! use levity_core::{Message, Model, Request, Tool, ToolCx, ToolOutput};
//! use levity_test::{RecordingTool, ScriptedModel};
//! use serde_json::json;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let model = ScriptedModel::new().call("add", json!({"a": 2, "b": 5})).reply("7");
//! let add = RecordingTool::new("add", |_| Ok(ToolOutput::text("7")));
//!
//! let first = model.complete(Request::new().with_message(Message::user("2 + 5?"))).await?;
//! for call in first.message.calls() {
//!     add.clone().call(call.args.clone(), &ToolCx::detached()).await?;
//! }
//! assert_eq!(add.calls()[0].args, json!({"a": 2, "b": 5}));
//! # Ok(())
//! # }
//! ```
//!
//! # Features
//!
//! | feature | adds |
//! |---|---|
//! | `runtime` | `conformance::runnable` and `conformance::recorded`: suites for all that can run |
//!
//! # Where to go next
//!
//! - Test an agent without a key: start with [`ScriptedModel`], and read the request with
//!   [`ScriptedModel::requests`].
//! - Test waiting, retries and timeouts without real time: [`ManualWorld`].
//! - Implement a trait of levity: call its suite in [`conformance`] from one test.
//! - Test that a run survives a kill: [`crash::after_every_record`].

#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod conformance;
pub mod crash;

mod embed;
mod function;
mod host;
mod journal;
mod manual;
mod rerank;
mod script;
mod story;
mod tools;
mod vectors;

pub use embed::WordEmbedder;
pub use function::FunctionModel;
pub use host::ManualHost;
pub use journal::FaultyJournal;
pub use manual::ManualWorld;
pub use rerank::WordReranker;
pub use script::{ScriptError, ScriptedModel, Turn};
pub use story::story;
pub use tools::{FaultyTool, RecordedCall, RecordingTool};
pub use vectors::InMemoryVectors;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
