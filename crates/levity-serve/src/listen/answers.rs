//! Answers that a client takes too slowly.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;

/// How long a client may take for an answer that is being sent; for one connection, which sends one
/// answer at a time.
#[derive(Clone, Debug, Default)]
pub(crate) struct AnswerTimer(Arc<watch::Sender<Option<Duration>>>);

/// An answer that is being sent; its time ends with this value.
#[derive(Debug)]
pub(crate) struct TimedAnswer(AnswerTimer);

impl AnswerTimer {
    /// Begins the time of an answer.
    pub(crate) fn start(&self, time: Duration) -> TimedAnswer {
        self.0.send_replace(Some(time));
        TimedAnswer(self.clone())
    }

    /// Ends when an answer has taken too long.
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
