use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_core::Stream;
use futures_util::future::BoxFuture;
use levity_core::{Ask, ControlError, Delta, Error, Event, EventKind, Message, RunId};
use serde_json::Value;

use crate::control::Control;
use crate::events::Events;
use crate::run::{Afterwards, finish};
use crate::runnable::{End, Runnable};
use crate::runtime::MachineRunHandle;

/// A run under way. Awaiting it gives what it comes to; dropping it stops it.
///
/// The methods that tell the run something return once that is in its journal.
#[must_use = "dropping the handle stops the run"]
pub struct RunHandle<W: Runnable> {
    control: Control,
    state: State<W>,
}

enum State<W: Runnable> {
    Driven {
        handle: MachineRunHandle<W::Machine>,
        what: W,
        after: Afterwards,
    },
    /// What is left to do once the run has ended.
    Ended(BoxFuture<'static, End<W::Output>>),
}

impl<W: Runnable> RunHandle<W> {
    pub(crate) fn new(handle: MachineRunHandle<W::Machine>, what: W, after: Afterwards) -> Self {
        Self {
            control: handle.control().clone(),
            state: State::Driven {
                handle,
                what,
                after,
            },
        }
    }

    /// A run that was not begun.
    pub(crate) fn refused(run: RunId, error: Error) -> Self {
        Self {
            control: Control::of_nobody(run),
            state: State::Ended(Box::pin(std::future::ready(End::Stopped(error)))),
        }
    }

    /// The run's id.
    pub fn id(&self) -> &RunId {
        self.control.run()
    }

    /// What happens in the run and its children: at the first call from the start, later from now
    /// on.
    pub fn events(&mut self) -> Events {
        match &mut self.state {
            State::Driven { handle, .. } => handle.events(),
            State::Ended(_) => Events::none(),
        }
    }

    /// The text of the run's own replies, as it comes; that of the runs below it is among the
    /// [`events`](Self::events).
    pub fn text(&mut self) -> ReplyText {
        ReplyText {
            run: self.id().clone(),
            events: self.events(),
        }
    }

    /// Stops the run where it is, as dropping the handle does, and waits until nothing of it is
    /// left.
    pub async fn stop(self) {
        if let State::Driven { handle, .. } = self.state {
            handle.stop().await;
        }
    }

    /// Tells the run what to do, from anywhere: it can be cloned and sent away.
    pub fn control(&self) -> &Control {
        &self.control
    }

    /// Tells the agents of this name directly below the run what to do; see [`Control::agent`].
    #[must_use]
    pub fn agent(&self, name: &str) -> Control {
        self.control.agent(name)
    }

    /// Begins nothing new; what has begun goes on to its end.
    ///
    /// # Errors
    /// When the run has ended.
    pub async fn pause(&self) -> Result<(), ControlError> {
        self.control.pause().await
    }

    /// Goes on after a pause.
    ///
    /// # Errors
    /// When the run has ended.
    pub async fn resume(&self) -> Result<(), ControlError> {
        self.control.resume().await
    }

    /// Ends the run now; awaiting it then gives an error with what was reached.
    ///
    /// # Errors
    /// When the run has ended.
    pub async fn cancel(&self, reason: impl Into<String>) -> Result<(), ControlError> {
        self.control.cancel(reason).await
    }

    /// Says something, to be taken in before the next call of the model.
    ///
    /// # Errors
    /// When the run has ended.
    pub async fn say(&self, message: impl Into<Message>) -> Result<(), ControlError> {
        self.control.say(message).await
    }

    /// The questions of this run and the runs below it that wait for a decision.
    ///
    /// # Errors
    /// When the run has ended.
    pub async fn asks(&self) -> Result<Vec<Ask>, ControlError> {
        self.control.asks().await
    }

    /// Allows what was asked.
    ///
    /// # Errors
    /// When nobody waits for the decision any more.
    pub async fn approve(&self, ask: &Ask) -> Result<(), ControlError> {
        self.control.approve(ask).await
    }

    /// Allows what was asked, with other arguments.
    ///
    /// # Errors
    /// When nobody waits for the decision any more.
    pub async fn edit(&self, ask: &Ask, args: Value) -> Result<(), ControlError> {
        self.control.edit(ask, args).await
    }

    /// Forbids what was asked; the model is told why.
    ///
    /// # Errors
    /// When nobody waits for the decision any more.
    pub async fn deny(&self, ask: &Ask, reason: impl Into<String>) -> Result<(), ControlError> {
        self.control.deny(ask, reason).await
    }

    /// Answers a question of the model's, or tells it this in place of what a call would return.
    ///
    /// # Errors
    /// When nobody waits for the decision any more.
    pub async fn answer(&self, ask: &Ask, text: impl Into<String>) -> Result<(), ControlError> {
        self.control.answer(ask, text).await
    }
}

// Nothing in it is pinned by itself: what is polled stands in boxes.
impl<W: Runnable> Unpin for RunHandle<W> {}

impl<W: Runnable> RunHandle<W> {
    /// Waits for the run, and says whether it could be driven to its end.
    pub async fn end(mut self) -> End<W::Output> {
        std::future::poll_fn(|cx| self.poll_end(cx)).await
    }

    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<End<W::Output>> {
        loop {
            match &mut self.state {
                State::Driven {
                    handle,
                    what,
                    after,
                } => {
                    let ended = ready!(Pin::new(handle).poll(cx));
                    let rest = finish(what.clone(), ended, after.take());
                    self.state = State::Ended(Box::pin(rest));
                }
                State::Ended(rest) => return rest.as_mut().poll(cx),
            }
        }
    }
}

impl<W: Runnable> Future for RunHandle<W> {
    type Output = Result<W::Output, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.poll_end(cx).map(End::into_result)
    }
}

impl<W: Runnable> fmt::Debug for RunHandle<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RunHandle").field(self.id()).finish()
    }
}

/// The text of a run's replies, as it comes; see [`RunHandle::text`].
#[derive(Debug)]
pub struct ReplyText {
    run: RunId,
    events: Events,
}

impl ReplyText {
    /// The next piece, or `None` after the last one.
    pub async fn next(&mut self) -> Option<String> {
        loop {
            let event = self.events.next().await?;
            if let Some(text) = self.piece(event) {
                return Some(text);
            }
        }
    }

    fn piece(&self, event: Event) -> Option<String> {
        match event.kind {
            EventKind::Delta {
                delta: Delta::Text(text),
                ..
            } if event.run == self.run => Some(text),
            _ => None,
        }
    }
}

impl Stream for ReplyText {
    type Item = String;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<String>> {
        loop {
            match ready!(Pin::new(&mut self.events).poll_next(cx)) {
                None => return Poll::Ready(None),
                Some(event) => {
                    if let Some(text) = self.piece(event) {
                        return Poll::Ready(Some(text));
                    }
                }
            }
        }
    }
}
