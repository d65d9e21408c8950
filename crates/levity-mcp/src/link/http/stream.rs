//! The events that lead to the response to one request, in the form that rmcp's worker expects.
//!
//! The worker drops events that it cannot parse, and resumes ended streams without a limit. A
//! stream from this module always ends in a response: the server's, or an error with the reason.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::stream::{self, BoxStream, StreamExt};
use levity_rpc::mcp::http_client::SseError;
use levity_rpc::mcp::{RequestId, ServerJsonRpcMessage};
use sse_stream::Sse;

use super::call::Caller;
use super::events::Events;
use super::parse::Event;
use super::reader::{Reader, is_answer};
use super::reuse::Timer;
use crate::link::failure;
use crate::{Error, ErrorKind, Result};

/// The maximum number of consecutive resumptions of a response without new events.
const MAX_EMPTY_RESUMES: u32 = 4;
/// The maximum number of responses that wait to be resumed.
const MAX_WAITING: usize = 256;
/// The maximum delay in milliseconds that a server may request before a resumption.
const MAX_RETRY_MILLIS: u64 = 60_000;
/// The lifetime below which a stream without events counts as useless.
const SHORT_LIFETIME: Duration = Duration::from_secs(10);

/// The interrupted responses to resume, by the last event that was received.
#[derive(Debug, Default)]
pub(super) struct Resumes(Mutex<VecDeque<(String, Reader, u32)>>);

impl Resumes {
    /// Stores a response to resume. Returns `false` after too many attempts.
    pub(super) fn put(&self, last: &str, reader: Reader, attempts: u32) -> bool {
        if attempts >= MAX_EMPTY_RESUMES {
            return false;
        }
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.push_back((last.to_owned(), reader, attempts));
        if waiting.len() > MAX_WAITING {
            waiting.pop_front();
        }
        true
    }

    pub(super) fn take(&self, last: &str) -> Option<(Reader, u32)> {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let place = waiting.iter().position(|(known, ..)| known == last)?;
        waiting
            .remove(place)
            .map(|(_, reader, attempts)| (reader, attempts))
    }
}

/// The events up to the response to one request.
#[derive(Debug)]
pub(super) struct Stream {
    caller: Arc<Caller>,
    resumes: Arc<Resumes>,
    events: Events,
    /// The reader of the messages; it moves away when the response is to be resumed.
    reader: Option<Reader>,
    id: RequestId,
    last: Option<String>,
    /// The number of consecutive resumptions without new events.
    attempts: u32,
    /// The events that were read but not yet passed on.
    buffered: VecDeque<Sse>,
    answered: bool,
    is_over: bool,
    failure: Option<Error>,
    timer: Option<Timer>,
}

/// The result of reading an event.
#[expect(
    clippy::large_enum_variant,
    reason = "the value is destructured at once and is nearly always the large variant"
)]
enum ReadOutcome {
    Answer(ServerJsonRpcMessage),
    Other(Sse),
    End,
}

impl Stream {
    pub(super) fn new(
        caller: Arc<Caller>,
        resumes: Arc<Resumes>,
        events: Events,
        reader: Reader,
    ) -> Self {
        let (last, attempts, buffered, id) = (None, 0, VecDeque::new(), reader.id());
        let reader = Some(reader);
        Self {
            caller,
            resumes,
            events,
            reader,
            id,
            last,
            attempts,
            buffered,
            answered: false,
            is_over: false,
            failure: None,
            timer: None,
        }
    }

    /// Continues the stream after this event.
    pub(super) fn resume_after(mut self, last: &str, attempts: u32) -> Self {
        self.last = Some(last.to_owned());
        self.attempts = attempts + 1;
        self
    }

    /// Measures the time to the response with `timer`.
    pub(super) fn with_timer(mut self, timer: Option<Timer>) -> Self {
        self.timer = timer;
        self
    }

    pub(super) fn into_events(self) -> Events {
        self.events
    }

    /// Returns the response, if it is the first message to arrive; other messages are buffered.
    /// Dropping the future loses nothing.
    pub(super) async fn first_answer(&mut self) -> Option<ServerJsonRpcMessage> {
        loop {
            match self.read().await {
                ReadOutcome::Answer(message) => return Some(message),
                ReadOutcome::Other(sse) => {
                    let is_message = sse.data.is_some();
                    self.buffered.push_back(sse);
                    if is_message {
                        return None;
                    }
                }
                ReadOutcome::End => return None,
            }
        }
    }

    /// Waits for the response and drops the messages before it, because no client is connected yet.
    pub(super) async fn read_answer(&mut self) -> Result<ServerJsonRpcMessage> {
        loop {
            let event = self.events.next().await?;
            let Some(event) = event else {
                return Err(self.ended());
            };
            if let (Some(data), Some(reader)) = (event.message(), &mut self.reader) {
                reader.push(data);
                if let Some(answer) = reader.answer() {
                    return Ok(answer);
                }
            }
        }
    }

    pub(super) fn boxed(self) -> BoxStream<'static, Result<Sse, SseError>> {
        stream::unfold(self, |mut stream| async move {
            let sse = stream.next().await?;
            Some((Ok(sse), stream))
        })
        .boxed()
    }

    /// Returns the next event for the worker.
    async fn next(&mut self) -> Option<Sse> {
        if let Some(sse) = self.buffered.pop_front() {
            return Some(sse);
        }
        if self.is_over {
            // The worker would resume a stream that ends here, although nothing more is expected.
            return match self.answered && self.last.is_some() {
                true => std::future::pending().await,
                false => None,
            };
        }
        match self.read().await {
            ReadOutcome::Answer(message) => {
                let message = match &self.reader {
                    Some(reader) => reader.replace_with_empty(message),
                    None => message,
                };
                Some(event_of(&message))
            }
            ReadOutcome::Other(sse) => Some(sse),
            ReadOutcome::End => self
                .failure()
                .map(|error| error_event(&error, self.id.clone())),
        }
    }

    /// Reads until the next message or control event, within the deadline of the response.
    async fn read(&mut self) -> ReadOutcome {
        loop {
            let end = self.reader.as_ref().and_then(Reader::deadline);
            if let Some(message) = self.reader.as_ref().and_then(Reader::peek)
                && !self.caller.unanswered.has_room(message)
            {
                let room = self.caller.unanswered.room(message);
                if let Err(error) = self.caller.in_time(end, room).await {
                    return self.end(Some(error));
                }
            }
            if let Some(message) = self.reader.as_mut().and_then(Reader::pop) {
                return self.classify(message);
            }
            let next = self.caller.in_time(end, self.events.next()).await;
            match next.and_then(|next| next) {
                Ok(Some(event)) => {
                    if let Some(control) = self.record_event(event) {
                        return ReadOutcome::Other(control);
                    }
                }
                Ok(None) => return self.end(None),
                Err(error) => return self.end(Some(error)),
            }
        }
    }

    /// Processes an event; returns its control fields, which are passed on.
    fn record_event(&mut self, event: Event) -> Option<Sse> {
        if let (Some(data), Some(reader)) = (event.message(), &mut self.reader) {
            reader.push(data);
        }
        if let Some(id) = &event.id {
            self.last = Some(id.clone());
            self.attempts = 0;
        }
        (event.id.is_some() || event.retry.is_some()).then(|| control(event))
    }

    /// Decides if a message is the response, and stops the measurement if so.
    fn classify(&mut self, message: ServerJsonRpcMessage) -> ReadOutcome {
        if !is_answer(&message) {
            return ReadOutcome::Other(event_of(&message));
        }
        self.answered = true;
        if let Some(timer) = self.timer.take() {
            timer.stop(&self.caller);
        }
        ReadOutcome::Answer(message)
    }

    /// Handles the end of the stream: after the response, before a later resumption, or with a
    /// final error.
    fn end(&mut self, error: Option<Error>) -> ReadOutcome {
        self.is_over = true;
        if self.answered {
            return ReadOutcome::End;
        }
        let is_final = error
            .as_ref()
            .is_some_and(|error| matches!(error.kind(), ErrorKind::TooLarge | ErrorKind::Timeout));
        if let Some(last) = self.last.as_ref().filter(|_| !is_final)
            && let Some(reader) = self.reader.take()
            && self.resumes.put(last, reader, self.attempts)
        {
            return ReadOutcome::End;
        }
        let error = error.unwrap_or_else(|| self.ended());
        self.answered = true;
        self.failure = Some(error);
        ReadOutcome::End
    }

    /// Returns the reason why there is no response, if it is known.
    pub(super) fn failure(&mut self) -> Option<Error> {
        self.failure.take()
    }

    fn ended(&self) -> Error {
        self.caller.error(
            ErrorKind::Closed,
            "the connection ended before the response arrived",
        )
    }
}

/// Returns the stream of messages that the server sends on its own initiative. Counts consecutive
/// streams that end soon without an event.
pub(super) fn notification_stream(
    caller: Arc<Caller>,
    events: Events,
    empty_streams: Arc<Mutex<u32>>,
) -> BoxStream<'static, Result<Sse, SseError>> {
    let opened = caller.world.now();
    stream::unfold((events, false), move |(mut events, had_event)| {
        let (caller, empty_streams) = (caller.clone(), empty_streams.clone());
        async move {
            let Some(event) = events.next().await.ok().flatten() else {
                let short = !had_event && caller.world.now().since(opened) < SHORT_LIFETIME;
                let mut count = empty_streams.lock().unwrap_or_else(PoisonError::into_inner);
                *count = if short { count.saturating_add(1) } else { 0 };
                return None;
            };
            // A response on this stream belongs to the request with its id, which is unknown here.
            let message: Option<ServerJsonRpcMessage> = event
                .message()
                .and_then(|data| serde_json::from_slice(data).ok());
            let mut sse = control(event);
            if let Some(message) = message {
                caller.unanswered.room(&message).await;
                sse.data = serde_json::to_string(&message).ok();
            }
            Some((Ok(sse), (events, true)))
        }
    })
    .boxed()
}

pub(super) fn error_event(error: &Error, id: RequestId) -> Sse {
    event_of(&failure::answer(error, id))
}

fn event_of(message: &ServerJsonRpcMessage) -> Sse {
    Sse {
        data: serde_json::to_string(message).ok(),
        ..Sse::default()
    }
}

/// Returns an event without its data, which still has the position for a resumption.
fn control(event: Event) -> Sse {
    let mut sse = Sse::default();
    (sse.id, sse.retry) = (event.id, event.retry.map(|time| time.min(MAX_RETRY_MILLIS)));
    sse
}
