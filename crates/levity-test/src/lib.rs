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
//! - [`WordEmbedder`] makes vectors of words, and fails on request.
//! - [`FaultyJournal`] and [`FaultyTool`] fail on request; [`RecordingTool`] remembers its calls.
//! - [`ManualHost`] drives a run by hand, in any order of outcomes, without an async runtime.
//! - [`crash`] stops a scenario after every record in turn, resumes it and compares the results.
//! - [`story`] renders a run as lines that can be compared.
//! - [`conformance`] checks an implementation of one of levity's traits against its contract.

pub mod conformance;
pub mod crash;

mod embed;
mod function;
mod host;
mod journal;
mod manual;
mod script;
mod story;
mod tools;

pub use embed::WordEmbedder;
pub use function::FunctionModel;
pub use host::ManualHost;
pub use journal::FaultyJournal;
pub use manual::ManualWorld;
pub use script::{ScriptError, ScriptedModel, Turn};
pub use story::story;
pub use tools::{FaultyTool, RecordedCall, RecordingTool};
