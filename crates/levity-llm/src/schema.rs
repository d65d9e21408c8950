//! Schemas in the dialects of providers. The user's own schema stays whole; what a dialect cannot
//! say is left to the dispatcher's check, and said to the model in words.

#[cfg(any(feature = "openai", feature = "compatible"))]
pub(crate) mod answer;
#[cfg(feature = "gemini")]
pub(crate) mod gemini;
pub(crate) mod nulls;
#[cfg(any(feature = "anthropic", feature = "openai", feature = "compatible"))]
pub(crate) mod object;
#[cfg(any(feature = "openai", feature = "compatible"))]
pub(crate) mod offer;
#[cfg(any(feature = "openai", feature = "compatible"))]
pub(crate) mod strict;
