//! The tools of the suites: comparisons and futures that report a broken promise.
//!
//! Every function takes the promise as a text, `"trait: promise"`, and puts it at the start of its
//! panic message. None needs an async runtime: futures are polled by hand, with the waker of the
//! caller or with one that does nothing.

use std::error::Error;
use std::fmt::Debug;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::pin;
use std::task::{Context, Poll, Waker};

/// Returns the value, or panics with the broken promise.
#[track_caller]
#[expect(clippy::panic, reason = "a suite reports a broken promise by a panic")]
pub(super) fn expect_ok<T, E: Error>(result: Result<T, E>, promise: &str) -> T {
    match result {
        Ok(value) => value,
        Err(error) => panic!("{promise}; it failed: {error}{}", causes(&error)),
    }
}

fn causes(error: &dyn Error) -> String {
    let mut text = String::new();
    let mut next = error.source();
    while let Some(cause) = next {
        text = format!("{text}: {cause}");
        next = cause.source();
    }
    text
}

/// Compares two values, and panics with the broken promise if they differ.
#[track_caller]
pub(super) fn same<T: PartialEq + Debug>(found: &T, expected: &T, promise: &str) {
    assert!(
        found == expected,
        "{promise}\n   found: {found:?}\nexpected: {expected:?}"
    );
}

/// Waits for `future`; a panic inside names the broken promise.
pub(super) async fn no_panic<T>(future: impl Future<Output = T>, promise: &str) -> T {
    let mut future = pin!(future);
    poll_fn(
        |cx| match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx))) {
            Ok(poll) => poll,
            Err(panic) => resume_unwind(Box::new(format!(
                "{promise}; it panicked: {}",
                panic_message(&*panic)
            ))),
        },
    )
    .await
}

/// Runs `work`; a panic inside names the broken promise.
pub(super) fn no_panic_sync<T>(work: impl FnOnce() -> T, promise: &str) -> T {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        resume_unwind(Box::new(format!(
            "{promise}; it panicked: {}",
            panic_message(&*panic)
        )))
    })
}

/// Returns the message of a panic.
pub(crate) fn panic_message(panic: &(dyn std::any::Any + Send)) -> &str {
    panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("no message")
}

/// Polls a future once and drops it, like a caller that loses interest.
///
/// Returns its value if one poll was enough, which is also fine for a caller that no longer wants
/// it.
pub(super) fn abandon<T>(future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    match future
        .as_mut()
        .poll(&mut Context::from_waker(Waker::noop()))
    {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    }
}

/// Waits for both futures concurrently.
pub(super) async fn both<A, B>(a: impl Future<Output = A>, b: impl Future<Output = B>) -> (A, B) {
    let (mut a, mut b) = (pin!(a), pin!(b));
    let (mut first, mut second) = (None, None);
    poll_fn(|cx| {
        if first.is_none() {
            first = ready(a.as_mut().poll(cx));
        }
        if second.is_none() {
            second = ready(b.as_mut().poll(cx));
        }
        match (first.take(), second.take()) {
            (Some(a), Some(b)) => Poll::Ready((a, b)),
            (one, other) => {
                (first, second) = (one, other);
                Poll::Pending
            }
        }
    })
    .await
}

fn ready<T>(poll: Poll<T>) -> Option<T> {
    match poll {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    }
}

/// The number of polls after which [`poll_until_ready`] gives up.
const MAX_POLLS: usize = 100_000;

/// Polls repeatedly, without waiting for a wake-up, and gives up after many polls: for futures that
/// might hang forever.
pub(super) async fn poll_until_ready<T>(future: impl Future<Output = T>, promise: &str) -> T {
    let mut future = pin!(future);
    let mut polls = 0;
    poll_fn(|cx| {
        polls += 1;
        assert!(
            polls <= MAX_POLLS,
            "{promise}; there was no answer after {MAX_POLLS} polls"
        );
        let poll = future.as_mut().poll(cx);
        if poll.is_pending() {
            cx.waker().wake_by_ref();
        }
        poll
    })
    .await
}
