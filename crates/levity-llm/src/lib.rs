//! Models for levity: providers behind [`Model`](levity_core::Model), and layers that wrap a model and are
//! one.

pub mod json;
pub mod layers;

#[cfg(feature = "anthropic")]
mod anthropic;
#[cfg(feature = "http")]
mod body;
#[cfg(any(feature = "openai", feature = "compatible"))]
mod chat;
#[cfg(feature = "http")]
#[allow(dead_code, reason = "each provider uses some of it")]
mod http;

#[cfg(feature = "anthropic")]
pub use anthropic::{AnthropicModel, CacheTtl};
#[cfg(any(feature = "openai", feature = "compatible"))]
pub use chat::ChatModel;
#[cfg(feature = "http")]
pub use http::{Endpoint, Secret, TimeLimits};
pub use layers::ext::ModelExt;
