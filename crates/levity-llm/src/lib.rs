//! Models for levity: providers behind [`Model`](levity_core::Model), and layers that wrap a model and are
//! one.

pub mod json;
pub mod layers;

#[cfg(feature = "http")]
mod body;
#[cfg(any(feature = "openai", feature = "compatible"))]
mod chat;
#[cfg(feature = "gemini")]
mod gemini;
#[cfg(feature = "http")]
mod http;
#[cfg(feature = "gemini")]
mod schema;

#[cfg(any(feature = "openai", feature = "compatible"))]
pub use chat::ChatModel;
#[cfg(feature = "gemini")]
pub use gemini::{AccessToken, AccessTokens, GeminiModel};
#[cfg(feature = "http")]
pub use http::{Endpoint, Secret, TimeLimits};
pub use layers::ext::ModelExt;
