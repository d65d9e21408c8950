//! Converts schemas to the dialects of providers. The user's own schema stays unchanged.
//! Constraints that a dialect lacks are described to the model in words, and the dispatcher still
//! checks them.

#[cfg(any(feature = "openai", feature = "compatible"))]
pub(crate) mod answer;
#[cfg(feature = "gemini")]
pub(crate) mod gemini;
pub(crate) mod nulls;
#[cfg(any(feature = "anthropic", feature = "openai", feature = "compatible"))]
pub(crate) mod object;
#[cfg(any(feature = "openai", feature = "compatible"))]
pub(crate) mod strict;
#[cfg(any(feature = "openai", feature = "compatible"))]
pub(crate) mod tool_json;
