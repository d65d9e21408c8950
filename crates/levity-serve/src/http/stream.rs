//! `GET /v1/stream`: one event stream for a page, with all runs, all questions and one run's view.
//!
//! Nothing is queued for a client: each event is computed when the client has read the previous
//! ones. A slow client therefore gets larger differences, or a new snapshot, and never a backlog.
//! Large events are shared between streams, so a client that does not read occupies little memory.
//! A client that reconnects gets a snapshot. Runs that other processes drive are polled from the
//! journal.

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use bytes::Bytes;
use futures_util::stream;
use http::Uri;
use levity_core::{RunId, RunQuery, RunSummary, Timestamp};
use levity_observe::ViewChanges;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{Interval, MissedTickBehavior, interval};

use super::Api;
use super::events::{PREAMBLE, event_response, take_reader};
use super::extract::own_run;
use super::inbox::{InboxEntry, inbox_json, live_asks, stored_asks};
use super::input::{query, root};
use super::problem::HandlerResult;
use super::run_view;
use super::snapshots::{RunPlace, UnsentEvent, event_bytes, hash};
use crate::access::Caller;
use crate::quota::Permit;
use crate::runs::{LiveRun, MAX_GOAL};

/// The minimum time between two events with changes of the view. The first change after a pause is
/// sent immediately. With 8 ms, a browser has the newest changes for each frame at 60 Hz.
const VIEW_PACE: Duration = Duration::from_millis(8);
/// The minimum time between two events with runs, or with questions. They are computed from all
/// runs in memory.
const LIST_PACE: Duration = Duration::from_millis(50);
/// The interval at which the journal is read.
const POLL: Duration = Duration::from_secs(5);
/// The number of runs that are read from the journal.
const RUNS: usize = 50;
/// The maximum number of bytes of the changes of a view. In place of more, a client gets a
/// snapshot, which streams share.
const MAX_CHANGES: usize = 256 << 10;

/// The parameter `run`: the run whose view is sent.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StreamQuery {
    run: Option<String>,
}

/// Returns the event stream. A run that does not exist is an error before the stream begins.
pub(super) async fn stream(State(api): State<Arc<Api>>, caller: Caller, uri: Uri) -> HandlerResult {
    let params: StreamQuery = query(&uri)?;
    let run = params
        .run
        .as_deref()
        .map(|run| own_run(&caller, run))
        .transpose()?;
    let run = run.map(|run| root(&run));
    let permit = take_reader(&api.readers, &caller)?;
    let mut page = PageStream::new(api, caller, run, permit);
    page.open().await?;
    let body = stream::unfold(page, PageStream::step);
    Ok(event_response(Body::from_stream(body)))
}

/// Returns a timer whose first tick is after the time.
fn every(time: Duration) -> Interval {
    let mut timer = interval(time.max(Duration::from_millis(1)));
    timer.set_missed_tick_behavior(MissedTickBehavior::Delay);
    timer.reset();
    timer
}

/// Waits for a change, and until the pace allows the next event. The change stays unseen, so
/// nothing is lost if the future is dropped in between.
async fn paced_change(changes: &mut watch::Receiver<u64>, pace: &mut Interval) {
    if changes.changed().await.is_err() {
        std::future::pending::<()>().await;
    }
    changes.mark_changed();
    pace.tick().await;
}

/// The event stream of one page.
struct PageStream {
    api: Arc<Api>,
    caller: Caller,
    run: Option<RunId>,
    view: Option<ViewSource>,
    states: watch::Receiver<u64>,
    /// The list entries that the client has.
    sent: BTreeMap<RunId, Value>,
    /// The hash of the questions that the client has.
    asks: Option<[u8; 32]>,
    /// The questions of runs that only the journal has.
    stored: Vec<InboxEntry>,
    /// Limits the number of `view` events per second.
    view_pace: Interval,
    /// Limits the number of `runs` and `asks` events per second.
    list_pace: Interval,
    poll: Interval,
    heartbeat: Interval,
    unsent: VecDeque<UnsentEvent>,
    _permit: Permit,
}

/// The source of the view, and the state that the client has.
enum ViewSource {
    Live {
        run: Arc<LiveRun>,
        changes: watch::Receiver<u64>,
        seen: u64,
    },
    Stored {
        updated: Option<Timestamp>,
    },
}

/// The reason for which a stream continues.
enum Wake {
    View,
    States,
    Poll,
    Heartbeat,
    Stop,
}

impl PageStream {
    fn new(api: Arc<Api>, caller: Caller, run: Option<RunId>, permit: Permit) -> Self {
        let states = api.runs.watch_states();
        let heartbeat = every(api.settings.heartbeat);
        let preamble = api.shared.share(PREAMBLE.as_bytes().to_vec());
        Self {
            api,
            caller,
            run,
            view: None,
            states,
            sent: BTreeMap::new(),
            asks: None,
            stored: Vec::new(),
            view_pace: every(VIEW_PACE),
            list_pace: every(LIST_PACE),
            poll: every(POLL),
            heartbeat,
            unsent: VecDeque::from([UnsentEvent::new(preamble)]),
            _permit: permit,
        }
    }

    /// Adds the first events: all runs, all questions and a snapshot of the view.
    async fn open(&mut self) -> HandlerResult<()> {
        self.states.borrow_and_update();
        self.add_snapshot().await?;
        let stored = self.stored_runs().await?;
        self.add_runs(&stored, true);
        self.stored = stored_asks(&self.api, &self.caller, &self.stored).await?;
        self.add_asks();
        Ok(())
    }

    /// Returns the next piece of the response.
    async fn step(mut self) -> Option<(Result<Bytes, Infallible>, Self)> {
        let piece = loop {
            if let Some(piece) = self.next_piece() {
                break piece;
            }
            match self.wait().await {
                Wake::Stop => return None,
                Wake::Heartbeat => self.send(b":\n\n".to_vec()),
                Wake::View => self.add_changes(),
                Wake::States => {
                    self.states.borrow_and_update();
                    self.add_runs(&[], false);
                    self.add_asks();
                    self.follow_live().await;
                }
                Wake::Poll => self.read_journal().await,
            }
        };
        self.heartbeat.reset();
        Some((Ok(piece), self))
    }

    /// Returns the next piece of the events that were added.
    fn next_piece(&mut self) -> Option<Bytes> {
        loop {
            if let Some(piece) = self.unsent.front_mut()?.next_piece() {
                return Some(piece);
            }
            self.unsent.pop_front();
        }
    }

    /// Adds the bytes of an event.
    fn send(&mut self, bytes: Vec<u8>) {
        self.unsent
            .push_back(UnsentEvent::new(self.api.shared.share(bytes)));
    }

    /// Waits for a change that may be sent now.
    async fn wait(&mut self) -> Wake {
        let polls = self.api.runs.runtime().journal().keeps();
        let view = async {
            match &mut self.view {
                Some(ViewSource::Live { changes, .. }) => {
                    paced_change(changes, &mut self.view_pace).await;
                }
                _ => std::future::pending().await,
            }
        };
        tokio::select! {
            () = self.api.stop.cancelled() => Wake::Stop,
            () = view => Wake::View,
            () = paced_change(&mut self.states, &mut self.list_pace) => Wake::States,
            _ = self.poll.tick(), if polls => Wake::Poll,
            _ = self.heartbeat.tick() => Wake::Heartbeat,
        }
    }

    /// Adds a snapshot of the view, from memory or from the journal.
    async fn add_snapshot(&mut self) -> HandlerResult<()> {
        let Some(id) = self.run.clone() else {
            return Ok(());
        };
        if let Some(run) = self.api.runs.known_here(&id) {
            self.add_live_snapshot(run, None);
            return Ok(());
        }
        // If the run changes in between, the next poll finds another time.
        let summary = self.api.runs.summary(&self.caller, &id).await?;
        let updated = summary.map(|summary| summary.updated);
        let stored = self.api.runs.view_for(&self.caller, &id, &id, None).await?;
        let place = RunPlace::of(self.api.runs.get(&id).as_deref());
        let event = self.api.shared.stored(&id, &stored.view, place, updated);
        self.unsent.push_back(UnsentEvent::new(event));
        self.view = Some(ViewSource::Stored { updated });
        Ok(())
    }

    /// Adds a snapshot that is newer than revision `after`. The changes since the snapshot follow,
    /// because the receiver counts as changed.
    fn add_live_snapshot(&mut self, run: Arc<LiveRun>, after: Option<u64>) {
        let mut changes = run.watch_view();
        let event = self.api.shared.live(&run, after);
        let seen = event.revision;
        self.unsent.push_back(UnsentEvent::new(event));
        changes.mark_changed();
        self.view = Some(ViewSource::Live { run, changes, seen });
    }

    /// Adds the changes of the view since the last event.
    fn add_changes(&mut self) {
        let Some(ViewSource::Live { run, changes, seen }) = &mut self.view else {
            return;
        };
        changes.borrow_and_update();
        let (found, revision) = run.view_changes(*seen);
        let changes = match found {
            Some(found) if found.is_empty() => return *seen = revision,
            Some(changes) => {
                let run = run.id();
                Some(event_bytes("view", &ViewChange { run, changes }))
            }
            None => None,
        };
        if let Some(bytes) = changes.filter(|bytes| bytes.len() <= MAX_CHANGES) {
            *seen = revision;
            return self.send(bytes);
        }
        let (run, after) = (run.clone(), *seen);
        self.add_live_snapshot(run, Some(after));
    }

    /// Switches to the view in memory once the run is resumed in this process.
    async fn follow_live(&mut self) {
        let Some(id) = &self.run else {
            return;
        };
        let known = self.api.runs.known_here(id);
        let is_new = match (&self.view, &known) {
            (Some(ViewSource::Live { run, .. }), Some(known)) => !Arc::ptr_eq(run, known),
            (_, known) => known.is_some(),
        };
        if is_new {
            drop(self.add_snapshot().await);
        }
    }

    /// Reads the journal, which other processes may have changed. An error is temporary, so the
    /// stream continues.
    async fn read_journal(&mut self) {
        let Ok(stored) = self.stored_runs().await else {
            return;
        };
        self.add_runs(&stored, false);
        if let Ok(asks) = stored_asks(&self.api, &self.caller, &self.stored).await {
            self.stored = asks;
        }
        self.add_asks();
        let now = |id: &RunId| {
            stored
                .iter()
                .find(|run| run.run == *id)
                .map(|run| run.updated)
        };
        if let (Some(id), Some(ViewSource::Stored { updated })) = (&self.run, &self.view)
            && now(id).is_some_and(|now| Some(now) != *updated)
        {
            drop(self.add_snapshot().await);
        }
    }

    async fn stored_runs(&self) -> HandlerResult<Vec<RunSummary>> {
        let owner = self.caller.clone();
        let query = RunQuery::new().newest_first().roots();
        let is_wanted = move |run: &RunSummary| owner.owns(run.run.as_str());
        Ok(self
            .api
            .runs
            .newest(&self.caller, query, RUNS, is_wanted)
            .await?)
    }

    /// Adds the list entries of new and changed runs.
    fn add_runs(&mut self, stored: &[RunSummary], reset: bool) {
        let api = &self.api;
        let mut now: BTreeMap<RunId, Value> = stored
            .iter()
            .map(|run| {
                (
                    run.run.clone(),
                    Value::Object(super::list::summary_json(api, run)),
                )
            })
            .collect();
        for run in api.runs.in_memory() {
            if self.caller.owns(run.id().as_str()) {
                now.insert(run.id().clone(), live_entry(&run));
            }
        }
        let mut changed: Vec<Value> = Vec::new();
        for (id, entry) in now {
            let known = self.sent.get(&id);
            if known.is_none_or(|known| is_other(known, &entry)) {
                changed.push(entry.clone());
                self.sent.insert(id, entry);
            }
        }
        // The client drops old runs from its list as well.
        while self.sent.len() > 4 * RUNS + 256 {
            self.sent.pop_first();
        }
        if reset || !changed.is_empty() {
            changed.sort_by_key(|entry| std::cmp::Reverse(entry["opened"].as_u64()));
            let json = json!({"runs": changed, "reset": reset});
            self.send(event_bytes("runs", &json));
        }
    }

    /// Adds the questions, if they have changed.
    fn add_asks(&mut self) {
        let (api, live) = (&self.api, live_asks(&self.api, &self.caller));
        self.stored
            .retain(|entry| api.runs.known_here(&entry.root).is_none());
        let bytes = event_bytes("asks", &inbox_json(live, &self.stored));
        let asks = Some(hash(&bytes));
        if asks != self.asks {
            self.send(bytes);
            self.asks = asks;
        }
    }
}

/// The data of a `view` event with changes.
#[derive(Serialize)]
struct ViewChange<'a> {
    run: &'a RunId,
    changes: ViewChanges,
}

/// Returns the list entry of a run in memory, with the beginning of its goal.
fn live_entry(run: &LiveRun) -> Value {
    let here = run.ended().is_none();
    Value::Object(run_view::summary_json(run.id(), &run.brief(MAX_GOAL), here))
}

/// Returns `true` if an entry differs in more than the time of the last event.
fn is_other(known: &Value, entry: &Value) -> bool {
    ["state", "here", "goal", "paused", "status", "opened"]
        .iter()
        .any(|field| known[*field] != entry[*field])
}
