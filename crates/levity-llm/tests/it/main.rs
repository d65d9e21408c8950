//! Models, their layers, and JSON from model output.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test fails by panicking"
)]

#[cfg(all(
    feature = "anthropic",
    feature = "compatible",
    feature = "gemini",
    feature = "ollama",
    feature = "openai"
))]
mod all_providers;
#[cfg(feature = "anthropic")]
mod anthropic;
#[cfg(any(feature = "openai", feature = "compatible"))]
mod chat;
#[cfg(all(
    feature = "openai",
    feature = "compatible",
    feature = "gemini",
    feature = "ollama"
))]
mod embed;
#[cfg(feature = "compatible")]
mod faults;
#[cfg(all(
    feature = "anthropic",
    feature = "compatible",
    feature = "gemini",
    feature = "ollama",
    feature = "openai"
))]
mod fees;
mod full_results;
#[cfg(feature = "gemini")]
mod gemini;
#[cfg(all(
    feature = "anthropic",
    feature = "compatible",
    feature = "gemini",
    feature = "ollama",
    feature = "openai"
))]
mod hidden_keys;
mod json;
mod json_hostile;
mod json_random;
mod layers;
#[cfg(all(
    feature = "anthropic",
    feature = "compatible",
    feature = "gemini",
    feature = "ollama",
    feature = "openai"
))]
mod model_names;
#[cfg(feature = "compatible")]
mod models;
#[cfg(feature = "ollama")]
mod ollama;
#[cfg(all(
    feature = "anthropic",
    feature = "compatible",
    feature = "gemini",
    feature = "ollama",
    feature = "openai"
))]
mod provider_errors;
#[cfg(feature = "compatible")]
mod rerank;
#[cfg(feature = "openai")]
mod responses;
#[cfg(feature = "http")]
#[allow(dead_code, reason = "each provider uses some of it")]
mod server;
#[cfg(feature = "static-embedder")]
mod static_embedder;
#[cfg(all(
    feature = "anthropic",
    feature = "compatible",
    feature = "gemini",
    feature = "ollama",
    feature = "openai"
))]
mod untrusted_folder;
