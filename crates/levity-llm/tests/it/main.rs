//! Models, their layers, and JSON from what they write.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod json;
mod json_hostile;
mod json_random;
mod layers;
