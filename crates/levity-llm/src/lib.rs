//! Models for levity: providers that implement [`Model`](levity_core::Model), and layers that wrap
//! a model and implement the same trait.
//!
//! ```
//! use levity_core::{Message, Model, ModelErrorKind, Request};
//! use levity_llm::ModelExt;
//! use levity_test::{ManualWorld, ScriptedModel};
//! use std::sync::Arc;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), levity_core::ModelError> {
//! // A script replaces a provider such as `levity_llm::model("gemini:gemini-3.8-flash")?`.
//! let primary = ScriptedModel::new().fail(ModelErrorKind::Overloaded).reply("Blue.");
//! let backup = ScriptedModel::new();
//! let model = primary.retry().with_world(Arc::new(ManualWorld::auto())).fallback(backup.clone());
//! let reply = model.complete(Request::new().with_message(Message::user("The sky?"))).await?;
//! assert_eq!(reply.message.text(), "Blue.");
//! assert!(backup.requests().is_empty());
//! # Ok(())
//! # }
//! ```
//!
//! # Parts
//!
//! | part | purpose |
//! |---|---|
//! | `model`, `model_from_env`, `Models` | create models by name, with keys from the environment |
//! | `embedder` | creates embedders by name, for recall |
//! | `reranker` | creates rerankers by name, for documents |
//! | `GeminiModel`, `OpenAiModel`, `ChatModel`, `AnthropicModel`, `OllamaModel` | one per API |
//! | [`ModelExt`], [`layers`] | retry, rate limit, fallback, cache, recording, tools as text |
//! | [`json`] | parses and repairs the JSON that a model wrote |
//! | [`check_tools`] | tests with three requests how a server handles tools |
//!
//! # Promises
//!
//! - Dropping a call, or the stream that it returned, cancels the request and its waits.
//! - A provider sends each request once. Only the layers that say so send it again, and they
//!   declare the number in [`CostBound::sends`](levity_core::CostBound).
//! - No key appears in `Display`, in `Debug` or in a log. Errors show addresses without user,
//!   password and query.
//! - A key from the environment is never sent to an address that a file chose.
//! - Replies are untrusted: levity limits their size and validates calls before a tool runs.
//!
//! # Features
//!
//! No feature is enabled by default; `layers`, `json` and `check_tools` need none.
//!
//! - `gemini`: Gemini through AI Studio and Vertex AI.
//! - `openai`: OpenAI through Responses and Chat Completions.
//! - `anthropic`: Anthropic through Messages.
//! - `ollama`: the native API of Ollama.
//! - `compatible`: any server that supports Chat Completions.
//! - `static-embedder`: an embedder that reads vectors from a table on disk, without a server.
//! - `tracing`: log lines for retries and fallbacks, with the target `levity::model`.
//! - `http`: the shared HTTP client. Each provider enables it.
//!
//! # Further reading
//!
//! - `docs/models.md` lists names, variables, prices and profiles.
//! - `docs/layers.md` shows how to combine layers.
//! - `docs/providers.md` describes each provider and its options.
//! - `docs/json.md` lists all repairs of [`json`].

#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod json;
pub mod layers;

#[cfg(any(feature = "openai", feature = "compatible"))]
#[doc(hidden)]
pub mod __private;
#[cfg(feature = "anthropic")]
mod anthropic;
#[cfg(feature = "http")]
#[allow(dead_code, reason = "each provider uses some of it")]
mod body;
#[cfg(any(feature = "openai", feature = "compatible"))]
mod chat;
mod check;
#[cfg(any(feature = "openai", feature = "compatible"))]
mod effort;
#[cfg(any(
    feature = "openai",
    feature = "compatible",
    feature = "gemini",
    feature = "ollama"
))]
mod embed;
#[cfg(any(feature = "http", feature = "static-embedder"))]
mod error;
#[cfg(feature = "gemini")]
mod gemini;
#[cfg(feature = "http")]
#[allow(dead_code, reason = "each provider uses some of it")]
mod http;
#[cfg(any(feature = "compatible", feature = "ollama", feature = "openai"))]
mod lenient;
#[cfg(feature = "http")]
mod models;
#[allow(dead_code, reason = "each provider uses some of it")]
mod names;
#[cfg(feature = "ollama")]
mod ollama;
#[cfg(any(
    feature = "openai",
    feature = "compatible",
    feature = "anthropic",
    feature = "ollama"
))]
mod omitted_media;
#[cfg(feature = "http")]
mod origin;
mod rerank;
#[cfg(feature = "openai")]
mod responses;
#[cfg(feature = "http")]
#[cfg_attr(
    not(any(feature = "openai", feature = "compatible", feature = "gemini")),
    allow(dead_code, reason = "only some dialects need it")
)]
mod schema;
#[cfg(feature = "static-embedder")]
mod static_embedder;
mod text_calls;
mod thoughts;

#[cfg(feature = "anthropic")]
pub use anthropic::{AnthropicModel, CacheTtl};
#[cfg(any(feature = "openai", feature = "compatible"))]
pub use chat::{ChatModel, OpenAiEmbedder};
pub use check::{CallFormat, SchemaSupport, ToolCheck, ToolVisibility, check_tools};
#[cfg(any(feature = "http", feature = "static-embedder"))]
pub use error::{Error, ErrorKind};
#[cfg(feature = "gemini")]
pub use gemini::{AccessToken, AccessTokens, GeminiEmbedder, GeminiModel};
#[cfg(feature = "http")]
pub use http::{Endpoint, Secret, TimeLimits};
pub use layers::ext::ModelExt;
#[cfg(feature = "http")]
pub use models::{
    ChosenModel, ModelList, Models, ToolModes, embedder, model, model_from_env, reranker,
};
#[cfg(feature = "ollama")]
pub use ollama::{OllamaEmbedder, OllamaEntry, OllamaModel};
#[cfg(feature = "compatible")]
pub use rerank::HttpReranker;
pub use rerank::ModelReranker;
#[cfg(feature = "openai")]
pub use responses::OpenAiModel;
#[cfg(feature = "static-embedder")]
pub use static_embedder::StaticEmbedder;
