//! The events of a run as server-sent events.
//!
//! The stream begins with `retry: 1000`, so that clients reconnect after a second. Each durable
//! event has an `id`, which a client that reconnects sends as `Last-Event-ID`. A page in a browser
//! reads the stream with `fetch` and does both itself, because `EventSource` cannot send a token.
//! Besides the events of the run, `missed`, `reset` and `end` can occur, and comments as
//! heartbeats. After `end` the stream is closed, and the client need not reconnect.
//!
//! Small events are copied into pieces of up to 16 KiB, which saves system calls. Events of 4 KiB
//! or more are sent from the buffer that all readers share.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use futures_util::stream;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, Uri};
use levity_core::RunId;
use serde::Deserialize;
use serde_json::json;
use tokio::time::timeout;

use super::Api;
use super::extract::RunPath;
use super::input::{bool_param, header, query, root};
use super::problem::{HandlerResult, Problem, cause_text};
use crate::access::Caller;
use crate::feed::{EventReader, FeedEntry, FeedEvent};
use crate::quota::{Permit, Quota, QuotaFull};
use crate::runs::{RunOutcome, RunStatus};

/// The number of bytes of events that are collected before they are sent.
const PIECE: usize = 16 << 10;
/// The size in bytes from which an event is sent as is, shared by all readers.
const LARGE: usize = 4 << 10;
/// The reconnection delay for clients, which also makes the server send the response head at once.
pub(super) const PREAMBLE: &str = "retry: 1000\n\n";

/// The parameters `after`, `children` and `transient`. The last two are true by default.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EventsQuery {
    after: Option<String>,
    children: Option<String>,
    transient: Option<String>,
}

/// `GET /v1/runs/ID/events`: the events of a run, from the beginning or after an id.
pub(super) async fn events(
    State(api): State<Arc<Api>>,
    caller: Caller,
    RunPath(id): RunPath,
    uri: Uri,
    headers: HeaderMap,
) -> HandlerResult {
    let params: EventsQuery = query(&uri)?;
    let children = bool_param("children", params.children.as_deref(), true)?;
    let transient = bool_param("transient", params.transient.as_deref(), true)?;
    let known = header(&headers, &HeaderName::from_static("last-event-id"))?;
    // The position of a reconnecting client is newer than that in its URL.
    let after = known
        .filter(|id| !id.is_empty())
        .or(params.after.as_deref());
    let permits = permits(&api, &caller, &id)?;
    let (reader, run_status) = api.runs.events_for(&caller, &root(&id), after).await?;
    let stream = Stream {
        api,
        caller,
        id,
        reader,
        run_status,
        children,
        transient,
        pieces: VecDeque::new(),
        stage: Stage::Preamble,
        _permits: permits,
    };
    Ok(answer(stream))
}

/// Returns the response whose body is the stream. Dropping the body, when the client disconnects,
/// drops the permits.
fn answer(stream: Stream) -> Response {
    event_response(Body::from_stream(stream::unfold(stream, Stream::step)))
}

/// Returns the response of an event stream.
pub(super) fn event_response(body: Body) -> Response {
    // Prevents proxies from buffering events.
    let headers = [
        (CONTENT_TYPE, "text/event-stream"),
        (HeaderName::from_static("x-accel-buffering"), "no"),
    ];
    (headers, body).into_response()
}

/// Takes a permit for an event stream, and a second one for a run that is read from the journal.
fn permits(api: &Api, caller: &Caller, id: &RunId) -> HandlerResult<Vec<Permit>> {
    let take = |room: &Arc<Quota>| take_reader(room, caller);
    let mut permits = vec![take(&api.readers)?];
    if api.runs.known_here(&root(id)).is_none() {
        permits.push(take(&api.old_readers)?);
    }
    Ok(permits)
}

/// Takes a permit for an event stream.
pub(super) fn take_reader(quota: &Arc<Quota>, caller: &Caller) -> HandlerResult<Permit> {
    quota.take(caller).map_err(|full: QuotaFull| {
        let message = format!(
            "{} clients follow events, which is the limit; try again later",
            full.limit
        );
        Problem::unavailable("too_many_readers", message)
    })
}

/// An event stream of one client. It holds only the pieces that are collected but not yet sent.
struct Stream {
    api: Arc<Api>,
    caller: Caller,
    id: RunId,
    reader: EventReader,
    /// The status of the run, if it was read from the journal.
    run_status: Option<RunStatus>,
    children: bool,
    transient: bool,
    pieces: VecDeque<Bytes>,
    stage: Stage,
    _permits: Vec<Permit>,
}

#[derive(PartialEq)]
enum Stage {
    Preamble,
    Events,
    Finished,
}

impl Stream {
    /// Returns the next piece of the response.
    async fn step(mut self) -> Option<(Result<Bytes, Infallible>, Self)> {
        if self.stage == Stage::Preamble {
            self.stage = Stage::Events;
            return Some((Ok(Bytes::from_static(PREAMBLE.as_bytes())), self));
        }
        while self.pieces.is_empty() {
            if self.stage == Stage::Finished {
                return None;
            }
            self.gather().await;
        }
        self.pieces.pop_front().map(|piece| (Ok(piece), self))
    }

    /// Waits for something to send, and adds all items that are available by then.
    async fn gather(&mut self) {
        let stop = self.api.stop.clone();
        let next = timeout(self.api.settings.heartbeat, self.reader.next_item());
        let item = tokio::select! {
            item = next => item,
            // The server stops, not the run: a reconnecting client resumes.
            () = stop.cancelled() => {
                self.stage = Stage::Finished;
                return;
            }
        };
        let mut text = Vec::new();
        match item {
            Err(_) => text.extend_from_slice(b":\n\n"),
            Ok(None) => self.end(&mut text).await,
            Ok(Some(item)) => {
                self.add(item, &mut text);
                while text.len() < PIECE
                    && let Some(item) = self.reader.try_next_item()
                {
                    self.add(item, &mut text);
                }
            }
        }
        self.flush(&mut text);
    }

    /// Appends an item to the text that is sent next. The JSON of an event has no line breaks, so
    /// one `data:` line is enough.
    fn add(&mut self, item: FeedEntry, text: &mut Vec<u8>) {
        match item {
            FeedEntry::Event { id, event } if self.is_wanted(&event, id.is_some()) => {
                if let Some(id) = id {
                    text.extend_from_slice(format!("id: {id}\n").as_bytes());
                }
                text.extend_from_slice(format!("event: {}\ndata: ", event.name).as_bytes());
                if event.json.len() < LARGE {
                    text.extend_from_slice(&event.json);
                } else {
                    self.flush(text);
                    self.pieces.push_back(event.json);
                }
                text.extend_from_slice(b"\n\n");
            }
            FeedEntry::Event { .. } => {}
            FeedEntry::Missed { count, durable } => {
                match if self.transient { count } else { durable } {
                    0 => {}
                    count => write_event(text, "missed", &json!({"count": count})),
                }
            }
            FeedEntry::Reset => write_event(text, "reset", &json!({})),
        }
    }

    fn flush(&mut self, text: &mut Vec<u8>) {
        if !text.is_empty() {
            self.pieces.push_back(Bytes::from(std::mem::take(text)));
        }
    }

    /// Returns `true` if the client asked for the event. A stream of a child run reads the feed of
    /// its root run and skips everything else.
    fn is_wanted(&self, event: &FeedEvent, durable: bool) -> bool {
        let runs = if self.children {
            event.run.is_within(&self.id)
        } else {
            event.run == self.id
        };
        runs && (durable || self.transient)
    }

    /// Writes the final event with the status of the run.
    async fn end(&mut self, text: &mut Vec<u8>) {
        self.stage = Stage::Finished;
        let run = self.api.runs.get(&root(&self.id));
        let run_status = match (self.run_status.take(), &run) {
            (Some(run_status), _) => run_status,
            (None, Some(run)) => run.status(),
            // The run has ended and was removed from memory since.
            (None, None) => {
                let run_status = self
                    .api
                    .runs
                    .status_for(&self.caller, &root(&self.id))
                    .await;
                run_status.unwrap_or_else(|_| RunStatus::default())
            }
        };
        let mut end = json!({
            "run": root(&self.id),
            "state": run_status.state(),
            "status": run_status.ending.as_ref().map(|ending| &ending.status),
        });
        if let Some(RunOutcome::Stopped(cause)) = run.and_then(|run| run.ended()) {
            end["stopped"] = cause_text(&cause).into();
        }
        write_event(text, "end", &end);
    }
}

pub(super) fn write_event(text: &mut Vec<u8>, name: &str, data: &serde_json::Value) {
    text.extend_from_slice(format!("event: {name}\ndata: {data}\n\n").as_bytes());
}
