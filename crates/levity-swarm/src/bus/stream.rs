//! The messages of a run as a stream, filtered from its events.

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

/// The key of a message in an event of a swarm.
const KEY: &str = "message";

/// A stream of the messages on the bus of a run.
///
/// It reads the events of a run and ignores other events. A slow listener misses events and
/// receives [`Lagged`] in their place. The ids of the messages around it show whether messages were
/// among them.
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

/// The error for a slow listener that missed events of any kind, possibly messages.
///
/// The run does not wait for its listeners. Read the complete log from
/// [`SwarmDetails::bus`](crate::SwarmDetails::bus) after the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the listener was too slow and missed {missed} events")]
#[non_exhaustive]
pub struct Lagged {
    /// The number of missed events.
    pub missed: u64,
}

impl Messages {
    /// Creates a stream of the messages among the events of a run, including those of nested
    /// swarms. The `run` field of a message identifies its swarm.
    pub fn new(events: Events) -> Self {
        Self { events, run: None }
    }

    /// Creates a stream of the messages on the bus of a run, without those of nested swarms.
    ///
    /// ```
    /// use levity_loop::Agent;
    /// use levity_swarm::{Messages, Router, Swarm};
    /// use levity_test::ScriptedModel;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let pilot = Agent::builder(ScriptedModel::new().reply("At six.")).build()?;
    /// let swarm = Swarm::builder(Router::keywords())
    ///     .agent("pilot", "Knows the tides.", pilot)
    ///     .build()?;
    /// let mut run = swarm.run("When is the tide high?").start();
    /// let mut messages = Messages::of(&mut run);
    /// run.await?;
    /// let mut kinds = Vec::new();
    /// while let Some(message) = messages.next().await {
    ///     kinds.push(message?.kind.as_str());
    /// }
    /// assert_eq!(kinds, ["task", "result", "answer"]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn of(run: &mut RunHandle<Swarm>) -> Self {
        Self::new(run.events()).of_run(run.id().clone())
    }

    /// Restricts the stream to the bus of this run.
    #[must_use]
    pub fn of_run(mut self, run: RunId) -> Self {
        self.run = Some(run);
        self
    }

    /// Returns the next message, or `None` after the last one of the run.
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

/// Returns the message in an event, if it contains one.
pub(crate) fn of_event(kind: &EventKind) -> Option<BusMessage> {
    match kind {
        EventKind::Custom { name, data } if name == SwarmNotice::NAME => {
            BusMessage::deserialize(data.get(KEY)?).ok()
        }
        _ => None,
    }
}
