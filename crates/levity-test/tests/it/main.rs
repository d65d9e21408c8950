//! Tests of levity-test: the replacements behave as documented, and the suites can pass and fail.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]
#![expect(
    clippy::needless_pass_by_value,
    reason = "cases read better without `&`"
)]

mod conformance;
mod crash;
mod faults;
mod manual;
mod script;
mod story;

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs a future to its end.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap()
        .block_on(future)
}

/// Returns the message of the panic that `work` ends in.
#[track_caller]
fn panic_of(work: impl FnOnce()) -> String {
    let panic = catch_unwind(AssertUnwindSafe(work)).expect_err("there was no panic");
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_default()
}

/// Checks that a suite reports this promise as broken.
#[track_caller]
fn refuses(suite: impl Future<Output = ()>, promise: &str) {
    let message = panic_of(|| block_on(suite));
    assert!(
        message.starts_with(promise),
        "the suite says {message:?}, not {promise:?}"
    );
}
