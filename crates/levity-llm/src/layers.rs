//! Layers that wrap a model and implement `Model` themselves, so you can compose them in any order.
//!
//! | layer | purpose |
//! |---|---|
//! | [`Retry`] | retries transient failures and honours the provider's retry delay |
//! | [`RateLimit`] | limits requests and tokens per minute and spaces calls, across the process |
//! | [`Fallback`] | calls the next model when one fails |
//! | [`Route`] | chooses a model for each request by cost, difficulty or a custom rule |
//! | [`Cached`] | returns the stored reply to a repeated request, from memory or disk |
//! | [`Record`], [`Replay`] | records calls to a file and answers tests from that file |
//! | [`DebugLog`] | writes every prompt and reply as text to a folder |
//! | [`TextTools`] | adds tool calls to models that lack them, by text or by schema |
//! | [`AdaptTools`] | detects from the server's replies how to send tools to the model |
//! | [`AutoThinking`] | enables thinking for queries that need it |
//! | [`Defaults`] | sets options that requests do not set themselves |
//!
//! ```
//! use levity_core::{Model, Request};
//! use levity_llm::ModelExt;
//! use levity_llm::layers::{Cache, Rate};
//! use levity_test::ScriptedModel;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), levity_core::ModelError> {
//! # let (gemini, local) = (ScriptedModel::new().reply("yes"), ScriptedModel::new());
//! let model = gemini
//!     .rate_limit(Rate::gemini_free())
//!     .retry()
//!     .fallback(local.text_tools())
//!     .cached(Cache::new());
//! assert_eq!(model.complete(Request::new()).await?.message.text(), "yes");
//! # Ok(())
//! # }
//! ```
//!
//! Layers that wait take their time from a [`World`](levity_core::World), so tests do not have to
//! wait. They emit a [`Delta::Waiting`](levity_core::Delta::Waiting), and dropping the call ends
//! the wait. Layers that may send a request more than once declare it in
//! [`CostBound::sends`](levity_core::CostBound) and report the usage of all attempts.
//!
//! # Order of layers
//!
//! Each call of [`ModelExt`](crate::ModelExt) wraps the model that it is called on, so the last
//! layer is the outermost. These orders differ:
//!
//! | chain | effect |
//! |---|---|
//! | `.rate_limit(r).retry()` | each attempt counts against the rate |
//! | `.retry().rate_limit(r)` | a call counts once, however often it is retried |
//! | `.retry().fallback(b)` | `b` is called after the last attempt of the first model |
//! | `.fallback(b).retry()` | each attempt tries both models |
//! | `.cached(c).debug_log(d)` | the log has replies from the cache as well |
//! | `.debug_log(d).cached(c)` | the log has only calls that reach the model |
//!
//! Your own layer implements [`Model`](levity_core::Model) around another one. Forward each method
//! of the trait, or the inner model's own `complete` and `cost_bound` are lost:
//!
//! ```
//! use async_trait::async_trait;
//! use levity_core::{CostBound, Deltas, Model, ModelCard, ModelError, Request, Response};
//! use levity_test::ScriptedModel;
//!
//! /// Adds a sentence to the system prompt of each request.
//! struct Polite<M>(M);
//!
//! impl<M> Polite<M> {
//!     fn polite(&self, request: Request) -> Request {
//!         request.with_system("Be polite.")
//!     }
//! }
//!
//! #[async_trait]
//! impl<M: Model> Model for Polite<M> {
//!     fn card(&self) -> &ModelCard {
//!         self.0.card()
//!     }
//!     async fn stream(&self, request: Request) -> Result<Deltas, ModelError> {
//!         self.0.stream(self.polite(request)).await
//!     }
//!     async fn complete(&self, request: Request) -> Result<Response, ModelError> {
//!         self.0.complete(self.polite(request)).await
//!     }
//!     fn cost_bound(&self, request: &Request) -> CostBound {
//!         self.0.cost_bound(&self.polite(request.clone()))
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), ModelError> {
//! let inner = ScriptedModel::new().reply("Certainly.");
//! Polite(inner.clone()).complete(Request::new()).await?;
//! assert_eq!(inner.requests()[0].system.as_deref(), Some("Be polite."));
//! # Ok(())
//! # }
//! ```

mod adapt;
mod auto_thinking;
mod cached;
mod canonical;
mod debug_log;
mod defaults;
mod error_filter;
pub(crate) mod ext;
mod fallback;
mod files;
mod flow;
mod log;
mod rate_limit;
mod record;
mod replay;
mod retry;
mod route;
mod scrub;
mod tally;
mod text_tools;

use error_filter::ErrorFilter;

pub use adapt::{AdaptTools, ToolMode};
pub(crate) use adapt::{refuses_schema, refuses_tools};
pub use auto_thinking::AutoThinking;
pub use cached::{Cache, Cached};
pub use debug_log::DebugLog;
pub use defaults::Defaults;
pub use fallback::Fallback;
pub use rate_limit::{Rate, RateLimit};
pub use record::Record;
pub use replay::{Replay, ReplayError};
pub use retry::Retry;
pub use route::{Classifier, Difficulty, Route};
pub use scrub::Scrub;
pub use text_tools::TextTools;
