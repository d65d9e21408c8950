use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_util::{Stream, StreamExt};
use levity_core::{EventKind, RunId};
use levity_runtime::{Events, RunHandle};
use serde::Deserialize;

use crate::notice::SwarmNotice;
use crate::swarm::Swarm;

use super::message::BusMessage;

/// Under which key a message stands in an event of a swarm.
const KEY: &str = "message";

/// What is said on the bus of a run, as it is said.
///
/// Made of the events of a run; the other events are passed over. A listener that is too slow
/// misses events, and is told so by [`Lagged`] in their place: the ids of the messages around it
/// show whether messages were among them.
///
/// ```
/// # use levity_runtime::{Events, RunHandle};
/// # use levity_swarm::{Lagged, Messages};
/// # async fn listen(events: Events) -> Result<(), Lagged> {
/// let mut messages = Messages::new(events);
/// while let Some(message) = messages.next().await {
///     let message = message?;
///     println!("{} to {}: {}", message.from, message.to, message.content);
/// }
/// # Ok(())
/// # }
/// ```
pub struct Messages {
    events: Events,
    run: Option<RunId>,
}

/// A listener was too slow, and missed events of any kind; messages may be among them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the listener was too slow and missed {missed} events")]
#[non_exhaustive]
pub struct Lagged {
    /// How many events.
    pub missed: u64,
}

impl Messages {
    /// The messages among the events of a run, those of swarms below it included: each says whose
    /// it is by its `run`.
    pub fn new(events: Events) -> Self {
        Self { events, run: None }
    }

    /// What is said on the bus of a run; a worker that is a swarm has a bus of its own.
    pub fn of(run: &mut RunHandle<Swarm>) -> Self {
        Self::new(run.events()).of_run(run.id().clone())
    }

    /// Those of this run's own bus alone.
    #[must_use]
    pub fn of_run(mut self, run: RunId) -> Self {
        self.run = Some(run);
        self
    }

    /// The next message, or `None` after the last one of the run.
    pub async fn next(&mut self) -> Option<Result<BusMessage, Lagged>> {
        StreamExt::next(self).await
    }
}

impl Stream for Messages {
    type Item = Result<BusMessage, Lagged>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            let Some(event) = ready!(self.events.poll_next_unpin(cx)) else {
                return Poll::Ready(None);
            };
            if let EventKind::Lagged { missed } = event.kind {
                return Poll::Ready(Some(Err(Lagged { missed })));
            }
            let is_ours = self.run.as_ref().is_none_or(|run| *run == event.run);
            if let Some(message) = of_event(&event.kind).filter(|_| is_ours) {
                return Poll::Ready(Some(Ok(message)));
            }
        }
    }
}

impl fmt::Debug for Messages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Messages")
            .field("events", &self.events)
            .finish()
    }
}

/// The message in an event, if it tells of one.
pub(crate) fn of_event(kind: &EventKind) -> Option<BusMessage> {
    match kind {
        EventKind::Custom { name, data } if name == SwarmNotice::NAME => {
            BusMessage::deserialize(data.get(KEY)?).ok()
        }
        _ => None,
    }
}
