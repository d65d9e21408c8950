use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use levity_core::{Ask, Event, Message, RunId};
use levity_runtime::{Control, ControlError, Events, RunHandle};

use crate::bus::Messages;
use crate::error::{Error, Result};
use crate::finished::{Finished, conclude};
use crate::lineage::{Lineage, Origin};
use crate::machine::SwarmMachine;

/// A run under way. Awaiting it gives what it comes to; dropping it stops it.
#[must_use = "dropping the handle stops the run"]
pub struct SwarmHandle {
    handle: RunHandle<SwarmMachine>,
    watch: Arc<Watch>,
}

/// Knows who is at work.
pub(crate) struct Watch(Mutex<Lineage>);

impl Watch {
    pub(crate) fn new(run: RunId) -> Self {
        Self(Mutex::new(Lineage::of_run("swarm", run)))
    }

    pub(crate) fn note(&self, event: &Event) {
        if !event.kind.is_fleeting() {
            self.lineage().apply(event);
        }
    }

    fn lineage(&self) -> MutexGuard<'_, Lineage> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SwarmHandle {
    pub(crate) fn new(handle: RunHandle<SwarmMachine>, watch: Arc<Watch>) -> Self {
        Self { handle, watch }
    }

    /// The run's id.
    pub fn id(&self) -> &RunId {
        self.handle.id()
    }

    /// What happens in the run and in those of all workers: at the first call from the start, later from now on. A
    /// [`Lineage`](crate::Lineage) says who each event comes from; those that are a [`Notice`](crate::Notice) tell how the swarm
    /// goes.
    pub fn events(&mut self) -> Events {
        self.handle.events()
    }

    /// What is said on the bus, out of [`events`](Self::events); a worker that is a swarm has a bus of its own.
    pub fn messages(&mut self) -> Messages {
        Messages::new(self.events()).of_run(self.id().clone())
    }

    /// Tells the whole swarm what to do: pause, go on, cancel, say something to those who begin later. It can be cloned and sent
    /// away; so can [`steering`](Self::steering).
    pub fn control(&self) -> &Control {
        self.handle.control()
    }

    /// Speaks to single workers. It can be cloned and sent away.
    pub fn steering(&self) -> Steering {
        Steering { control: self.handle.control().clone(), watch: self.watch.clone() }
    }

    /// Stops the run where it is, as dropping the handle does, and waits until nothing of it is left.
    pub async fn stop(self) {
        self.handle.stop().await;
    }
}

/// Speaks to single workers of a run. Clones speak to the same run.
#[derive(Clone)]
pub struct Steering {
    control: Control,
    watch: Arc<Watch>,
}

impl Steering {
    /// Who comes before a run below the swarm's: whose it is. Nothing once it has ended.
    pub fn who(&self, run: &RunId) -> Option<Origin> {
        self.watch.lineage().who(run)
    }

    /// The runs of a worker that are under way.
    pub fn runs_of(&self, worker: &str) -> Vec<RunId> {
        self.watch.lineage().runs_of(worker)
    }

    /// Says something to a worker, to be taken in before the next call of its model. With several tasks under way, all of them
    /// hear it.
    ///
    /// # Errors
    /// [`Error::NotAtWork`] when the worker has nothing to do now.
    pub async fn say(&self, worker: &str, message: impl Into<Message>) -> Result<()> {
        let message = message.into();
        self.tell(worker, |control| {
            let message = message.clone();
            async move { control.say(message).await }
        })
        .await
    }

    /// Stops what a worker does now. Its task is not tried again and not given to another; the swarm goes on without it.
    ///
    /// # Errors
    /// [`Error::NotAtWork`] when the worker has nothing to do now.
    pub async fn stop(&self, worker: &str, reason: impl Into<String>) -> Result<()> {
        let reason = reason.into();
        self.tell(worker, |control| {
            let reason = reason.clone();
            async move { control.cancel(reason).await }
        })
        .await
    }

    /// Holds a worker up: it begins nothing new until [`go_on`](Self::go_on).
    ///
    /// # Errors
    /// [`Error::NotAtWork`] when the worker has nothing to do now.
    pub async fn pause(&self, worker: &str) -> Result<()> {
        self.tell(worker, |control| async move { control.pause().await }).await
    }

    /// Lets a worker go on.
    ///
    /// # Errors
    /// [`Error::NotAtWork`] when the worker has nothing to do now.
    pub async fn go_on(&self, worker: &str) -> Result<()> {
        self.tell(worker, |control| async move { control.resume().await }).await
    }

    /// The questions of a worker that wait for a decision; answer them by [`Control`].
    ///
    /// # Errors
    /// When the run is not running.
    pub async fn asks(&self, worker: &str) -> Result<Vec<Ask>> {
        let mut asks = Vec::new();
        for run in self.runs_of(worker) {
            match self.control.child(&run).asks().await {
                Ok(more) => asks.extend(more),
                Err(ControlError::NotRunning(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(asks)
    }

    /// Tells the whole swarm what to do, and answers questions.
    pub fn control(&self) -> &Control {
        &self.control
    }

    /// Tells all runs of a worker something; one that has ended meanwhile needs no telling.
    async fn tell<F: Future<Output = Result<(), ControlError>>>(
        &self,
        worker: &str,
        order: impl Fn(Control) -> F,
    ) -> Result<()> {
        let mut told = false;
        for run in self.runs_of(worker) {
            match order(self.control.child(&run)).await {
                Ok(()) => told = true,
                Err(ControlError::NotRunning(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        if told { Ok(()) } else { Err(Error::NotAtWork(crate::names::short(worker).into_owned())) }
    }
}

impl fmt::Debug for Steering {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Steering").field(&self.control).finish()
    }
}

impl Future for SwarmHandle {
    type Output = Result<Finished>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.handle).poll(cx).map(conclude)
    }
}

impl fmt::Debug for SwarmHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SwarmHandle").field(self.id()).finish()
    }
}
