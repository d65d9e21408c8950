//! The handle of a run that was started on its own task.
//!
//! The handle owns the task: dropping it aborts the run. Awaiting it also does the work that
//! observers left for the end, such as closing a session file, before it returns the result.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use futures_core::Stream;
use futures_util::future::BoxFuture;
use levity_core::{Ask, ControlError, Delta, Error, Event, EventKind, Message, RunId};
use serde_json::Value;

use crate::control::Control;
use crate::events::Events;
use crate::run::{FinalWork, finish};
use crate::runnable::{End, Runnable};
use crate::runtime::MachineRunHandle;

/// A handle to a run in progress. Awaiting it returns the result; dropping it stops the run.
///
/// The methods that send something to the run return once that is in its journal.
///
/// ```
/// use levity_core::{Error, EventKind};
/// use levity_runtime::{Run, Runnable};
///
/// /// Cancels a run at its third tool call.
/// async fn short<W: Runnable>(run: Run<W>) -> Result<W::Output, Error> {
///     let mut handle = run.start();
///     let (mut events, mut calls) = (handle.events(), 0);
///     while let Some(event) = events.next().await {
///         calls += u32::from(matches!(event.kind, EventKind::ToolStarted { .. }));
///         if calls == 3 {
///             handle.cancel("three calls are enough").await?;
///             break;
///         }
///     }
///     handle.await
/// }
/// ```
#[must_use = "dropping the handle stops the run"]
pub struct RunHandle<W: Runnable> {
    control: Control,
    /// Never locked: the mutex makes the handle `Sync`, so that its methods can be awaited in tasks
    /// of a runtime with several threads.
    state: Mutex<State<W>>,
}

/// A run that could not start has only its error, as if it had ended.
enum State<W: Runnable> {
    Driven {
        handle: MachineRunHandle<W::Machine>,
        what: W,
        after: FinalWork,
    },
    /// The work that remains once the run has ended.
    Ended(BoxFuture<'static, End<W::Output>>),
}

impl<W: Runnable> RunHandle<W> {
    pub(crate) fn new(handle: MachineRunHandle<W::Machine>, what: W, after: FinalWork) -> Self {
        Self {
            control: handle.control().clone(),
            state: Mutex::new(State::Driven {
                handle,
                what,
                after,
            }),
        }
    }

    fn state_mut(&mut self) -> &mut State<W> {
        self.state.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the handle of a run that was not started.
    pub(crate) fn refused(run: RunId, error: Error) -> Self {
        Self {
            control: Control::disconnected(run),
            state: Mutex::new(State::Ended(Box::pin(std::future::ready(End::Stopped(
                error,
            ))))),
        }
    }

    /// Returns the id of the run.
    pub fn id(&self) -> &RunId {
        self.control.run()
    }

    /// Returns the events of the run and its children: at the first call from the start, later from
    /// now on.
    pub fn events(&mut self) -> Events {
        match self.state_mut() {
            State::Driven { handle, .. } => handle.events(),
            State::Ended(_) => Events::none(),
        }
    }

    /// Returns the text of the run's own replies as it is streamed; that of its child runs is among
    /// the [`events`](Self::events).
    ///
    /// ```
    /// use levity_core::Error;
    /// use levity_runtime::{Run, Runnable};
    ///
    /// /// Prints the reply while the model writes it.
    /// async fn print<W: Runnable>(run: Run<W>) -> Result<W::Output, Error> {
    ///     let mut handle = run.start();
    ///     let mut text = handle.text();
    ///     while let Some(piece) = text.next().await {
    ///         print!("{piece}");
    ///     }
    ///     handle.await
    /// }
    /// ```
    pub fn text(&mut self) -> ReplyText {
        ReplyText {
            run: self.id().clone(),
            events: self.events(),
        }
    }

    /// Stops the run where it is, as dropping the handle does, and waits until all its tasks have
    /// ended.
    pub async fn stop(self) {
        let state = self
            .state
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        if let State::Driven { handle, .. } = state {
            handle.stop().await;
        }
    }

    /// Returns a control of the run, which you can clone and send to other tasks.
    pub fn control(&self) -> &Control {
        &self.control
    }

    /// Returns a control of the direct child agents of this name; see [`Control::agent`].
    #[must_use]
    pub fn agent(&self, name: &str) -> Control {
        self.control.agent(name)
    }

    /// Pauses the run: nothing new starts, and effects in progress continue to their end.
    ///
    /// # Errors
    /// Returns an error if the run has ended.
    pub async fn pause(&self) -> Result<(), ControlError> {
        self.control.pause().await
    }

    /// Resumes the run after a pause.
    ///
    /// # Errors
    /// Returns an error if the run has ended.
    pub async fn resume(&self) -> Result<(), ControlError> {
        self.control.resume().await
    }

    /// Cancels the run now; awaiting it then returns an error with the partial result.
    ///
    /// # Errors
    /// Returns an error if the run has ended.
    pub async fn cancel(&self, reason: impl Into<String>) -> Result<(), ControlError> {
        self.control.cancel(reason).await
    }

    /// Sends a message, which the run adds before the next model call.
    ///
    /// # Errors
    /// Returns an error if the run has ended.
    pub async fn send_message(&self, message: impl Into<Message>) -> Result<(), ControlError> {
        self.control.send_message(message).await
    }

    /// Returns the questions of this run and its child runs that wait for a decision.
    ///
    /// # Errors
    /// Returns an error if the run has ended.
    ///
    /// ```
    /// use levity_core::Error;
    /// use levity_runtime::{RunHandle, Runnable};
    ///
    /// /// Allows everything that the run asks for at the moment.
    /// async fn allow_all<W: Runnable>(handle: &RunHandle<W>) -> Result<(), Error> {
    ///     for ask in handle.pending_asks().await? {
    ///         handle.approve(&ask).await?;
    ///     }
    ///     Ok(())
    /// }
    /// ```
    pub async fn pending_asks(&self) -> Result<Vec<Ask>, ControlError> {
        self.control.pending_asks().await
    }

    /// Approves the call of a question.
    ///
    /// # Errors
    /// Returns an error if the run no longer waits for the decision.
    pub async fn approve(&self, ask: &Ask) -> Result<(), ControlError> {
        self.control.approve(ask).await
    }

    /// Approves the call of a question, with other arguments.
    ///
    /// # Errors
    /// Returns an error if the run no longer waits for the decision.
    pub async fn edit(&self, ask: &Ask, args: Value) -> Result<(), ControlError> {
        self.control.edit(ask, args).await
    }

    /// Denies the call of a question; the model gets the reason.
    ///
    /// # Errors
    /// Returns an error if the run no longer waits for the decision.
    pub async fn deny(&self, ask: &Ask, reason: impl Into<String>) -> Result<(), ControlError> {
        self.control.deny(ask, reason).await
    }

    /// Answers a question of the model, or gives it this text in place of the result of a call.
    ///
    /// # Errors
    /// Returns an error if the run no longer waits for the decision.
    pub async fn answer(&self, ask: &Ask, text: impl Into<String>) -> Result<(), ControlError> {
        self.control.answer(ask, text).await
    }
}

// No field is structurally pinned: everything that is polled is boxed.
impl<W: Runnable> Unpin for RunHandle<W> {}

impl<W: Runnable> RunHandle<W> {
    /// Waits for the run, and distinguishes a run that ended from one that could not be driven to
    /// its end.
    ///
    /// ```
    /// use levity_runtime::{End, RunHandle, Runnable};
    ///
    /// /// Returns `true` if resuming the run could still change its result.
    /// async fn is_open<W: Runnable>(handle: RunHandle<W>) -> bool {
    ///     matches!(handle.end().await, End::Stopped(_))
    /// }
    /// ```
    pub async fn end(mut self) -> End<W::Output> {
        std::future::poll_fn(|cx| self.poll_end(cx)).await
    }

    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<End<W::Output>> {
        loop {
            let state = self.state_mut();
            match state {
                State::Driven {
                    handle,
                    what,
                    after,
                } => {
                    let ended = ready!(Pin::new(handle).poll(cx));
                    let rest = finish(what.clone(), ended, after.take());
                    *state = State::Ended(Box::pin(rest));
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

/// The text of a run's replies as it is streamed; see [`RunHandle::text`].
///
/// Text of a reply that a wrapper discarded and requested again is among the pieces; [`Events`]
/// also reports the restart.
///
/// ```
/// use levity_core::Error;
/// use levity_runtime::{Run, Runnable};
///
/// /// Prints the text of a run as it arrives.
/// async fn show<W: Runnable>(run: Run<W>) -> Result<W::Output, Error> {
///     let mut handle = run.start();
///     let mut text = handle.text();
///     while let Some(piece) = text.next().await {
///         print!("{piece}");
///     }
///     handle.await
/// }
/// ```
#[derive(Debug)]
pub struct ReplyText {
    run: RunId,
    events: Events,
}

impl ReplyText {
    /// Returns the next piece, or `None` after the last one.
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
