//! Time limits.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};

/// The one timer of a call, for all that is waited for in it.
pub(super) struct Timer {
    /// When the call must be over.
    until: Instant,
    sleep: Pin<Box<Sleep>>,
}

impl Timer {
    pub(super) fn new(total: Duration) -> Self {
        let until = after(total);
        Self {
            until,
            sleep: Box::pin(sleep_until(until)),
        }
    }

    /// What comes of the work, unless it takes longer than `most`, or the call than it may. What is
    /// there at once needs no clock. The work is lent: every future that it is handed on to keeps
    /// room for it.
    pub(super) async fn limit<T>(
        &mut self,
        most: Duration,
        mut work: Pin<&mut impl Future<Output = T>>,
    ) -> Option<T> {
        let mut set = false;
        poll_fn(|cx| {
            if let Poll::Ready(output) = work.as_mut().poll(cx) {
                return Poll::Ready(Some(output));
            }
            if !std::mem::replace(&mut set, true) {
                self.sleep.as_mut().reset(after(most).min(self.until));
            }
            self.sleep.as_mut().poll(cx).map(|()| None)
        })
        .await
    }

    /// Whether it was all of the call that took too long.
    pub(super) fn is_over(&self) -> bool {
        self.sleep.deadline() >= self.until
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "a limit on a connection is one of the real clock"
)]
fn after(time: Duration) -> Instant {
    let (now, years) = (Instant::now(), Duration::from_secs(30 * 365 * 86_400));
    now + time.min(years)
}
