//! levity-core from outside: the vocabulary survives JSON, and small things keep their word.
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
