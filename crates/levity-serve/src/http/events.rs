//! What a run tells, as server-sent events.

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
use super::answer::{Answered, Problem, told_cause};
use super::input::{header, query, root, yes};
use super::target::RunPath;
use crate::access::Caller;
use crate::feed::{Given, Reader, Told};
use crate::quota::{Permit, Quota, QuotaFull};
use crate::runs::{RunOutcome, RunStatus};

/// How many bytes of events are put together before they are sent.
const PIECE: usize = 16 << 10;
/// From how many bytes on an event is sent as it is, shared by all who read it.
const LARGE: usize = 4 << 10;
/// What a browser waits before it comes again, and what has the head of the answer sent at once.
const HELLO: &str = "retry: 1000\n\n";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct How {
    after: Option<String>,
    below: Option<String>,
    fleeting: Option<String>,
}

pub(super) async fn events(
    State(api): State<Arc<Api>>,
    caller: Caller,
    RunPath(id): RunPath,
    uri: Uri,
    headers: HeaderMap,
) -> Answered {
    let how: How = query(&uri)?;
    let below = yes("below", how.below.as_deref(), true)?;
    let fleeting = yes("fleeting", how.fleeting.as_deref(), true)?;
    let known = header(&headers, &HeaderName::from_static("last-event-id"))?;
    // Whoever comes again has a newer place than the address that it came to at first.
    let after = known.filter(|id| !id.is_empty()).or(how.after.as_deref());
    let permits = permits(&api, &caller, &id)?;
    let (reader, standing) = api.runs.events_for(&caller, &root(&id), after).await?;
    let stream = Stream {
        api,
        caller,
        id,
        reader,
        standing,
        below,
        fleeting,
        pieces: VecDeque::new(),
        stage: Stage::Hello,
        _permits: permits,
    };
    Ok(answer(stream))
}

fn answer(stream: Stream) -> Response {
    let body = Body::from_stream(stream::unfold(stream, Stream::step));
    // A proxy in between is not to gather events.
    let headers = [
        (CONTENT_TYPE, "text/event-stream"),
        (HeaderName::from_static("x-accel-buffering"), "no"),
    ];
    (headers, body).into_response()
}

/// A place among those who may read, and another one for runs that are read from the journal.
fn permits(api: &Api, caller: &Caller, id: &RunId) -> Answered<Vec<Permit>> {
    let full = |full: QuotaFull| {
        let message = format!(
            "{} readers follow events, and no more may; come again later",
            full.most
        );
        Problem::unavailable("too_many_readers", message)
    };
    let take = |room: &Arc<Quota>| room.take(caller).map_err(full);
    let mut permits = vec![take(&api.readers)?];
    if api.runs.known_here(&root(id)).is_none() {
        permits.push(take(&api.old_readers)?);
    }
    Ok(permits)
}

/// One who reads. What has been put together and not been taken yet is all that it holds.
struct Stream {
    api: Arc<Api>,
    caller: Caller,
    id: RunId,
    reader: Reader,
    /// How the run stood when it was read from the journal.
    standing: Option<RunStatus>,
    below: bool,
    fleeting: bool,
    pieces: VecDeque<Bytes>,
    stage: Stage,
    _permits: Vec<Permit>,
}

#[derive(PartialEq)]
enum Stage {
    Hello,
    Events,
    Over,
}

impl Stream {
    /// The next piece of the answer.
    async fn step(mut self) -> Option<(Result<Bytes, Infallible>, Self)> {
        if self.stage == Stage::Hello {
            self.stage = Stage::Events;
            return Some((Ok(Bytes::from_static(HELLO.as_bytes())), self));
        }
        while self.pieces.is_empty() {
            if self.stage == Stage::Over {
                return None;
            }
            self.gather().await;
        }
        self.pieces.pop_front().map(|piece| (Ok(piece), self))
    }

    /// Waits for something to send, and takes what else there is by then.
    async fn gather(&mut self) {
        let stop = self.api.stop.clone();
        let next = timeout(self.api.settings.heartbeat, self.reader.given());
        let given = tokio::select! {
            given = next => given,
            // The server ends, and not the run: whoever comes again reads on.
            () = stop.cancelled() => {
                self.stage = Stage::Over;
                return;
            }
        };
        let mut text = Vec::new();
        match given {
            Err(_) => text.extend_from_slice(b":\n\n"),
            Ok(None) => self.end(&mut text).await,
            Ok(Some(given)) => {
                self.add(given, &mut text);
                while text.len() < PIECE
                    && let Some(given) = self.reader.given_by_now()
                {
                    self.add(given, &mut text);
                }
            }
        }
        self.flush(&mut text);
    }

    fn add(&mut self, given: Given, text: &mut Vec<u8>) {
        match given {
            Given::Event { id, told } if self.wants(&told, id.is_some()) => {
                if let Some(id) = id {
                    text.extend_from_slice(format!("id: {id}\n").as_bytes());
                }
                text.extend_from_slice(format!("event: {}\ndata: ", told.name).as_bytes());
                if told.json.len() < LARGE {
                    text.extend_from_slice(&told.json);
                } else {
                    self.flush(text);
                    self.pieces.push_back(told.json);
                }
                text.extend_from_slice(b"\n\n");
            }
            Given::Event { .. } => {}
            Given::Missed { count, lasting } => match if self.fleeting { count } else { lasting } {
                0 => {}
                count => put(text, "missed", &json!({"count": count})),
            },
            Given::Reset => put(text, "reset", &json!({})),
        }
    }

    fn flush(&mut self, text: &mut Vec<u8>) {
        if !text.is_empty() {
            self.pieces.push_back(Bytes::from(std::mem::take(text)));
        }
    }

    fn wants(&self, told: &Told, lasting: bool) -> bool {
        let runs = if self.below {
            told.run.is_within(&self.id)
        } else {
            told.run == self.id
        };
        runs && (lasting || self.fleeting)
    }

    /// Says that there is nothing more, and how the run stands.
    async fn end(&mut self, text: &mut Vec<u8>) {
        self.stage = Stage::Over;
        let run = self.api.runs.get(&root(&self.id));
        let standing = match (self.standing.take(), &run) {
            (Some(standing), _) => standing,
            (None, Some(run)) => run.standing(),
            // It has ended and been forgotten here since.
            (None, None) => {
                let standing = self
                    .api
                    .runs
                    .standing_for(&self.caller, &root(&self.id))
                    .await;
                standing.unwrap_or_else(|_| RunStatus::default())
            }
        };
        let mut end = json!({
            "run": root(&self.id),
            "state": standing.state(),
            "status": standing.ending.as_ref().map(|ending| &ending.status),
        });
        if let Some(RunOutcome::Stopped(cause)) = run.and_then(|run| run.ended()) {
            end["stopped"] = told_cause(&cause).into();
        }
        put(text, "end", &end);
    }
}

fn put(text: &mut Vec<u8>, name: &str, data: &serde_json::Value) {
    text.extend_from_slice(format!("event: {name}\ndata: {data}\n\n").as_bytes());
}
