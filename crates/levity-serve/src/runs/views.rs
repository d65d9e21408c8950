//! Views of runs in memory and in the journal, forks, and changes of the states of runs.

use std::sync::Arc;

use levity_core::{Event, EventKind, RunId};
use levity_observe::RunView;
use levity_runtime::{ForkPreview, preview_fork};
use tokio::sync::watch;

use super::{LiveRun, RunOrigin, RunStatus, Runs};
use crate::access::{Caller, TokenScope};
use crate::error::{Error, Result};
use crate::feed::FeedEntry;
use crate::runner::{ForkSetup, Runner as _, read_error};

/// A view with the number of all durable events of its run.
pub(crate) struct StoredView {
    pub(crate) view: RunView,
    pub(crate) total: u64,
    /// The view of all events, if it is another one.
    pub(crate) whole: Option<RunView>,
}

/// A run to be forked; see [`Runs::fork`].
///
/// ```
/// use levity_serve::NewFork;
/// let fork = NewFork::new("monday").after(9).id("monday-again").message("Be brief.");
/// assert_eq!(fork.id.unwrap().as_str(), "monday-again");
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct NewFork {
    /// The run whose records the fork begins with.
    pub from: RunId,
    /// The number of the last record of that run; see [`ForkSetup::after`].
    pub after: Option<u64>,
    /// The id of the fork; random by default.
    pub id: Option<RunId>,
    /// A message that the fork receives at its start.
    pub message: Option<String>,
    /// The name of a model that [`Runs::offer_model`] offers; the model of the old run otherwise.
    pub model: Option<Arc<str>>,
}

impl NewFork {
    /// Creates a fork of this run.
    pub fn new(from: impl Into<RunId>) -> Self {
        Self {
            from: from.into(),
            after: None,
            id: None,
            message: None,
            model: None,
        }
    }

    /// Sets the number of the last record that the fork begins with.
    #[must_use]
    pub fn after(mut self, record: u64) -> Self {
        self.after = Some(record);
        self
    }

    /// Sets the id of the fork.
    #[must_use]
    pub fn id(mut self, id: impl Into<RunId>) -> Self {
        self.id = Some(id.into());
        self
    }

    /// Sets a message that the fork receives at its start.
    #[must_use]
    pub fn message(mut self, text: impl Into<String>) -> Self {
        self.message = Some(text.into());
        self
    }

    /// Chooses a model of [`Runs::models`] by its name.
    #[must_use]
    pub fn model(mut self, name: impl Into<Arc<str>>) -> Self {
        self.model = Some(name.into());
        self
    }
}

/// Returns `true` for events after which the list of runs or of questions may differ.
pub(super) fn changes_state(kind: &EventKind) -> bool {
    matches!(
        kind,
        EventKind::RunStarted { .. }
            | EventKind::Goal { .. }
            | EventKind::Asked(_)
            | EventKind::Decided { .. }
            | EventKind::WaitStarted { .. }
            | EventKind::Woken { .. }
            | EventKind::Paused
            | EventKind::Resumed
            | EventKind::RunEnded(_)
    )
}

impl Runs {
    /// Returns a receiver that changes when the state of a run in memory changes.
    pub(crate) fn watch_states(&self) -> watch::Receiver<u64> {
        self.inner.state_changes.subscribe()
    }

    pub(super) fn report_change(&self) {
        self.inner.state_changes.send_modify(|count| *count += 1);
    }

    /// Returns the view of a run, or of a child run, for a client. With `at`, it is the view after
    /// this many durable events.
    pub(crate) async fn view_for(
        &self,
        caller: &Caller,
        id: &RunId,
        root: &RunId,
        at: Option<u64>,
    ) -> Result<StoredView> {
        if let (Some(run), true, None) = (self.known_here(root), id == root, at) {
            let view = run.view();
            let (total, whole) = (view.len(), None);
            return Ok(StoredView { view, total, whole });
        }
        let all = self.all_events(caller, root).await?;
        let events: Vec<&Event> = all.iter().filter(|event| event.run.is_within(id)).collect();
        if events.is_empty() {
            return Err(Error::NoRun(id.clone()));
        }
        let total = events.len();
        let count = at.map_or(total, |at| usize::try_from(at).unwrap_or(total).min(total));
        let view = RunView::of(id.clone(), events[..count].iter().copied());
        let whole = (count < total).then(|| {
            let mut whole = view.clone();
            events[count..].iter().for_each(|event| whole.apply(event));
            whole
        });
        Ok(StoredView {
            view,
            total: total as u64,
            whole,
        })
    }

    /// Returns the durable events of a run and all runs below it.
    async fn all_events(&self, caller: &Caller, root: &RunId) -> Result<Arc<Vec<Event>>> {
        let live = self.known_here(root);
        if let Some(run) = live.as_ref().filter(|_| !self.runtime().journal().keeps()) {
            return Ok(Arc::new(buffered_events(run)?));
        }
        let (count, now) = (live.map(|run| run.event_count()), self.world().now());
        if let Some(events) = self.inner.viewed.get(root, count, now) {
            return Ok(events);
        }
        let (runner, run) = (self.inner.runner.clone(), root.clone());
        let read = async move { runner.history_with_children(&run).await };
        let events = Arc::new(self.with_journal(caller, read).await?);
        self.inner.viewed.add(root, &events, now);
        Ok(events)
    }

    /// Starts a new run that begins with the records of an old one, and diverges from there.
    ///
    /// ```
    /// use levity_loop::Agent;
    /// use levity_runtime::{MemoryJournal, Runtime};
    /// use levity_serve::{NewFork, NewRun, Runs};
    /// use levity_test::ScriptedModel;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let runtime = Runtime::new().with_journal(MemoryJournal::new());
    /// let model = ScriptedModel::new().reply("Yes.").reply("No.");
    /// let runs = Runs::new(Agent::builder(model).runtime(runtime).build()?);
    /// runs.start(NewRun::new("Is it?").id("monday"))?.outcome().await;
    /// let fork = runs.fork(NewFork::new("monday").id("tuesday")).await?;
    /// assert_eq!(fork.outcome().await.ending().unwrap().text, "No.");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails if there is no such run, if the fork cannot begin after the given record, or if too
    /// many runs are in progress.
    pub async fn fork(&self, fork: NewFork) -> Result<Arc<LiveRun>> {
        self.fork_for(&Caller::owner(), fork).await
    }

    /// Same as [`fork`](Self::fork), for a caller that may use only its share of the runs.
    pub(crate) async fn fork_for(&self, caller: &Caller, fork: NewFork) -> Result<Arc<LiveRun>> {
        let id = fork.id.unwrap_or_else(|| RunId::random(self.world()));
        if id.parent().is_some() || fork.from.parent().is_some() {
            let problem =
                "contains a dot; a child run cannot be forked, and a fork is no child run";
            return Err(Error::setting("id", problem));
        }
        if let Some(text) = &fork.message {
            self.check_prompt(text)?;
        }
        self.inner.runner.check(fork.model.as_deref())?;
        let (runner, from, after) = (self.inner.runner.clone(), fork.from.clone(), fork.after);
        // The fork begins with the records that are examined here, even if the run writes more.
        let read = async move {
            let preview = preview_fork(&**runner.runtime().journal(), &from, after).await;
            let preview = preview.map_err(|error| read_error(&from, error))?;
            Ok((preview, runner.history_with_children(&from).await?))
        };
        let (preview, events) = self.with_journal(caller, read).await?;
        self.check_resumable(&fork.from)?;
        check_approvals(caller, &fork.from, &preview)?;
        let earlier = events_before(events, &fork.from, preview.after, &id);
        let own: Vec<Event> = earlier
            .iter()
            .filter(|event| event.run == id)
            .cloned()
            .collect();
        let (feed, status) = (self.feed(&id), RunStatus::of(&id, &own));
        own.iter().for_each(|event| feed.push(event));
        let view = RunView::of(id.clone(), &earlier);
        let slot = self.admit(&id, feed, status, view, &RunOrigin::Caller(caller))?;
        let mut setup = ForkSetup::new(fork.from, id, self.watcher(&slot.run, None));
        (setup.after, setup.message) = (Some(preview.after), fork.message);
        setup.model = fork.model;
        let started = self.inner.runner.fork(setup).await?;
        Ok(self.drive(slot, started))
    }
}

/// Fails if a fork makes a call that was approved for the old run, and the caller could not approve
/// the call itself.
fn check_approvals(caller: &Caller, from: &RunId, preview: &ForkPreview) -> Result<()> {
    let (scope, approved) = (TokenScope::Approve, &preview.approved);
    let Some(effect) = approved.first().filter(|_| !caller.has_scope(scope)) else {
        return Ok(());
    };
    let problem = format!(
        "a fork after record {} of run `{from}` repeats a call that was approved for this run \
            (question {effect}): {}; or fork it before the approval, or after the end of the call",
        preview.after,
        caller.missing(scope),
    );
    Err(Error::Scope { scope, problem })
}

/// Returns the events of an old run that a fork begins with, with the ids of the fork.
///
/// The events of child runs are included if they happened before.
fn events_before(mut events: Vec<Event>, from: &RunId, after: u64, id: &RunId) -> Vec<Event> {
    let own = |event: &Event| event.run == *from;
    let end = events
        .iter()
        .position(|event| own(event) && event.seq > after);
    events.truncate(end.unwrap_or(events.len()));
    events.retain(|event| !(own(event) && matches!(event.kind, EventKind::RunEnded(_))));
    for event in &mut events {
        let below = event.run.as_str().strip_prefix(from.as_str());
        event.run = RunId::from(format!("{id}{}", below.unwrap_or_default()));
        if let EventKind::ChildStarted { child, effect, .. } = &mut event.kind {
            *child = event.run.child(*effect);
        }
    }
    events
}

/// Returns the events of a run without a journal, if all of them are still buffered.
fn buffered_events(run: &LiveRun) -> Result<Vec<Event>> {
    let mut reader = run.events(None);
    let mut events = Vec::new();
    while let Some(entry) = reader.try_next_item() {
        match entry {
            FeedEntry::Event { id: Some(_), event } => {
                events.extend(serde_json::from_slice::<Event>(&event.json));
            }
            FeedEntry::Missed { durable, .. } if durable > 0 => {
                let why = "the first events of this run are no longer in memory, and the server \
                    has no journal";
                return Err(Error::Unsupported(why));
            }
            _ => {}
        }
    }
    Ok(events)
}
