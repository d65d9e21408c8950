//! JSON Schemas, narrowed to what a provider takes. The user's own stays whole: the dispatcher checks by it.

#[cfg(feature = "gemini")]
pub(crate) mod gemini;
