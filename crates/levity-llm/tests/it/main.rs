//! Models, their layers, and JSON from what they write.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test fails by panicking"
)]

#[cfg(feature = "anthropic")]
mod anthropic;
#[cfg(any(feature = "openai", feature = "compatible"))]
mod chat;
#[cfg(all(
    feature = "anthropic",
    feature = "compatible",
    feature = "gemini",
    feature = "ollama",
    feature = "openai"
))]
mod edges;
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
#[cfg(feature = "static-embedder")]
mod fixed;
#[cfg(all(
    feature = "anthropic",
    feature = "compatible",
    feature = "gemini",
    feature = "ollama",
    feature = "openai"
))]
mod foreign;
#[cfg(feature = "gemini")]
mod gemini;
#[cfg(all(
    feature = "anthropic",
    feature = "compatible",
    feature = "gemini",
    feature = "ollama",
    feature = "openai"
))]
mod hidden;
mod json;
mod json_hostile;
mod json_random;
mod layers;
#[cfg(feature = "compatible")]
mod models;
#[cfg(all(
    feature = "anthropic",
    feature = "compatible",
    feature = "gemini",
    feature = "ollama",
    feature = "openai"
))]
mod named;
#[cfg(feature = "ollama")]
mod ollama;
#[cfg(feature = "openai")]
mod responses;
#[cfg(feature = "http")]
#[allow(dead_code, reason = "each provider uses some of it")]
mod server;
mod wholes;
#[cfg(all(
    feature = "anthropic",
    feature = "compatible",
    feature = "gemini",
    feature = "ollama",
    feature = "openai"
))]
mod wires;
