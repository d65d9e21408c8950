//! Layers: each wraps a model and is one, so they compose in any order.
//!
//! | layer | what it adds |
//! |---|---|
//! | [`Retry`] | sends again after a failure that may pass, as late as the provider asks |
//! | [`RateLimit`] | requests and tokens a minute and a least gap, over all agents of a process |
//! | [`Fallback`] | the next model when one fails |
//! | [`Route`] | a model for each request: by cost, by difficulty, by a rule |
//! | [`Cached`] | the same reply to the same request, in memory and on disk |
//! | [`Record`], [`Replay`] | calls written to a file that tests answer from |
//! | [`DebugLog`] | every prompt and reply as text in a folder |
//! | [`TextTools`] | tool calls for models that have none, by text or by schema |
//! | [`AdaptTools`] | the way in which tools reach the model, learned from its server |
//! | [`AutoThinking`] | thinking for queries that need it |
//! | [`Defaults`] | options that requests do not set themselves |
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
//! let model = gemini.rate_limit(Rate::gemini_free()).retry().fallback(local.text_tools()).cached(Cache::new());
//! assert_eq!(model.complete(Request::new()).await?.message.text(), "yes");
//! # Ok(())
//! # }
//! ```
//!
//! What waits takes its time from a [`World`](levity_core::World), so that tests need not; it says
//! so by a [`Delta::Waiting`](levity_core::Delta::Waiting), and dropping the call ends the wait.
//! What sends more than once says so by [`CostBound::sends`](levity_core::CostBound) and reports
//! the usage of all attempts.

mod adapt;
mod auto_thinking;
mod cached;
mod canonical;
mod debug_log;
mod defaults;
pub(crate) mod ext;
mod fallback;
mod files;
mod flow;
mod kinds;
mod rate_limit;
mod record;
mod replay;
mod retry;
mod route;
mod scrub;
mod tally;
mod text_tools;
mod told;

use kinds::Kinds;

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
