//! levity-llm from outside.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod json;
mod json_hostile;
mod json_random;
