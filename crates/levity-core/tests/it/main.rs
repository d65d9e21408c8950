//! Tests of levity-core from outside: JSON forms, errors, time, cancellation and small types.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(
    clippy::needless_pass_by_value,
    reason = "cases read better without `&`"
)]

mod cancel;
mod error;
mod json;
mod limits_of_json;
mod small;
mod time;
