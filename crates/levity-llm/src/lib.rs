//! Models for levity: providers that implement [`Model`](levity_core::Model), and layers that wrap
//! a model and implement the same trait.

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
pub use models::{ChosenModel, ModelList, Models, ToolModes, embedder, model, model_from_env};
#[cfg(feature = "ollama")]
pub use ollama::{OllamaEmbedder, OllamaEntry, OllamaModel};
#[cfg(feature = "openai")]
pub use responses::OpenAiModel;
#[cfg(feature = "static-embedder")]
pub use static_embedder::StaticEmbedder;
