//! Limits the time that a client may take to read a response.
//!
//! The write timeout of [`TimedStream`](super::timed_stream::TimedStream) restarts whenever the
//! client reads a byte. A client that reads one byte per minute would hold its response, and the
//! permit of its request, forever. This timer limits the whole response. The handler starts it,
//! because only the handler knows that a response is not an endless stream.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;

/// The time limit for the response that is being sent. A connection sends one response at a time.
#[derive(Clone, Debug, Default)]
pub(crate) struct AnswerTimer(Arc<watch::Sender<Option<Duration>>>);

/// A response that is being sent. Dropping this value ends the time limit.
#[derive(Debug)]
pub(crate) struct TimedAnswer(AnswerTimer);

impl AnswerTimer {
    /// Starts the time limit of a response.
    pub(crate) fn start(&self, time: Duration) -> TimedAnswer {
        self.0.send_replace(Some(time));
        TimedAnswer(self.clone())
    }

    /// Completes when a response has exceeded its time limit.
    pub(super) async fn expired(&self) {
        let mut changes = self.0.subscribe();
        loop {
            let time = *changes.borrow_and_update();
            let ended = match time {
                None => changes.changed().await,
                Some(time) => match timeout(time, changes.changed()).await {
                    Ok(changed) => changed,
                    Err(_) => return,
                },
            };
            if ended.is_err() {
                pending::<()>().await;
            }
        }
    }
}

impl Drop for TimedAnswer {
    fn drop(&mut self) {
        self.0.0.send_replace(None);
    }
}
