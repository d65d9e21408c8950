//! Tools that a model can call, and the registry, policy and dispatcher around them.
//!
//! ```
//! use levity_core::{RunId, Tool, ToolCall, ToolErrorKind};
//! use levity_tools::{CallCx, Dispatched, Dispatcher, Registry};
//! use serde_json::json;
//! # use levity_core::{ToolCx, ToolError, ToolOutput, ToolSpec};
//! # use serde_json::Value;
//! # struct Weather(ToolSpec);
//! # #[async_trait::async_trait]
//! # impl Tool for Weather {
//! #     fn spec(&self) -> &ToolSpec { &self.0 }
//! #     async fn call(&self, args: Value, _: &ToolCx) -> Result<ToolOutput, ToolError> {
//! #         let city = args["city"].as_str().unwrap_or_default();
//! #         Ok(ToolOutput::text(format!("sunny in {city}")))
//! #     }
//! # }
//! # fn weather() -> Weather {
//! #     let properties = json!({"city": {"type": "string"}});
//! #     let input = json!({"type": "object", "properties": properties, "required": ["city"]});
//! #     Weather(ToolSpec::new("weather", "Tells the weather.").with_input(input))
//! # }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), levity_tools::Error> {
//! let registry = Registry::builder().tool(weather()).build()?;
//! let dispatcher = Dispatcher::builder(registry).build()?;
//!
//! let cx = CallCx::new(RunId::from("r1"), "r1/1");
//! let good = ToolCall::new("c1", "weather", json!({"city": "Rome"}));
//! let Dispatched::Done(result) = dispatcher.dispatch(&good, false, cx.clone()).await else {
//!     return Ok(());
//! };
//! assert_eq!(result.text(), "sunny in Rome");
//!
//! let bad = ToolCall::new("c2", "wether", json!({"city": "Rome"}));
//! let Dispatched::Done(result) = dispatcher.dispatch(&bad, false, cx).await else {
//!     return Ok(());
//! };
//! assert_eq!(result.error, Some(ToolErrorKind::NotFound));
//! assert!(result.text().starts_with("there is no tool `wether`; did you mean `weather`?"));
//! # Ok(())
//! # }
//! ```
//!
//! A [`Registry`] holds the tools, a [`Policy`] decides which calls are allowed, and a
//! [`Dispatcher`] executes a call from end to end. The dispatcher guarantees:
//!
//! - Every call gets a result. If anything fails, the result describes it in words the model can
//!   act on, and no other call is affected.
//! - A tool only gets arguments that match its schema, and an output that does not match its schema
//!   is never returned.
//! - A call that must not happen twice is never retried; other calls are, with growing random
//!   pauses.
//! - The shown part of an output is bounded. The whole of a cut output, up to 8 MiB, stays with the
//!   result.
//! - Dropping the future of a call cancels it; a tool that blocks its thread is notified by its
//!   [`CancelToken`](levity_core::CancelToken).
//! - A tool that is ready at once costs no task, no timer and a few microseconds at most.
//!
//! [`FolderTools`] loads tools from a folder. Ready-made tools are in `levity-builtin-tools`.
//!
//! # Features
//! - `tracing`: logs of a tool on a separate thread are in the call's span.
//!
//! Deliberately absent: tools themselves and their side effects; the order of a turn's calls, which
//! the runtime chooses; fetching schemas from anywhere; a clock and randomness, which come in
//! through [`World`](levity_core::World).
//!
//! # Where to go next
//! - [`Registry`] collects tools; [`DispatcherBuilder`] lists timeouts, retries and limits with
//!   their defaults.
//! - [`Policy`] and [`Rule`] decide which calls need a person.
//! - [`FileLoader`] teaches [`FolderTools`] another kind of file.
//! - [`Schema`] and [`ArgumentValidator`] check JSON outside of a dispatcher.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod dispatch;
mod entry;
mod error;
mod folder;
mod glob;
mod policy;
mod registry;
mod schema;
#[cfg(test)]
mod testing;
mod text;

pub use dispatch::{CallCx, Dispatched, Dispatcher, DispatcherBuilder};
pub use error::{Error, SchemaSide};
pub use folder::{FileLoader, FolderBuilder, FolderTools, LinkedLoader, LoadedFile, ToolFile};
pub use policy::{ArgMatch, HintMatch, Policy, Rule, RuleBuilder};
pub use registry::{Registry, RegistryBuilder, ToolCost, ToolProblem};
pub use schema::{ArgumentValidator, Schema, SchemaError};
