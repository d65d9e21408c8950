//! What is offered, as those outside meet it.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod http;
