//! Time limits for the parts of a call.
//!
//! A call waits many times: for the connection, the first byte and each chunk. One timer for all of
//! them avoids registering a new one with tokio per chunk, which matters for replies with
//! thousands.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};

/// The single timer of a call, used for all its waits.
///
/// It is boxed because tokio's timer must not move, and reset instead of replaced.
pub(super) struct Timer {
    /// The deadline of the whole call.
    until: Instant,
    sleep: Pin<Box<Sleep>>,
}

impl Timer {
    /// Starts the clock of the whole call.
    pub(super) fn new(total: Duration) -> Self {
        let until = after(total);
        Self {
            until,
            sleep: Box::pin(sleep_until(until)),
        }
    }

    /// Returns the output of the work, or `None` if it exceeds `limit` or the call exceeds its
    /// total limit. Work that is ready immediately does not read the clock. The work is borrowed,
    /// because every future that owns it would grow by its size.
    pub(super) async fn limit<T>(
        &mut self,
        limit: Duration,
        mut work: Pin<&mut impl Future<Output = T>>,
    ) -> Option<T> {
        let mut set = false;
        poll_fn(|cx| {
            if let Poll::Ready(output) = work.as_mut().poll(cx) {
                return Poll::Ready(Some(output));
            }
            if !std::mem::replace(&mut set, true) {
                self.sleep.as_mut().reset(after(limit).min(self.until));
            }
            self.sleep.as_mut().poll(cx).map(|()| None)
        })
        .await
    }

    /// Returns `true` if the total limit of the call was exceeded.
    pub(super) fn is_over(&self) -> bool {
        self.sleep.deadline() >= self.until
    }
}

/// Returns a point in time; durations of more than 30 years are shortened, because the clock would
/// overflow.
#[expect(
    clippy::disallowed_methods,
    reason = "limits on a connection depend on the real clock"
)]
fn after(time: Duration) -> Instant {
    let (now, years) = (Instant::now(), Duration::from_secs(30 * 365 * 86_400));
    now + time.min(years)
}
