//! The events that lead to the answer of one request, as rmcp's worker takes them.
//!
//! The worker drops events that it cannot read and goes on by itself when a stream ends, for as
//! long as it takes. What it gets from here ends in an answer: the server's, or an error that says
//! why there is none.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::stream::{self, BoxStream, StreamExt};
use levity_rpc::mcp::http_client::SseError;
use levity_rpc::mcp::{RequestId, ServerJsonRpcMessage};
use sse_stream::Sse;

use super::call::Caller;
use super::events::Events;
use super::pace::Timer;
use super::parse::Event;
use super::reader::{Reader, is_answer};
use crate::link::failure;
use crate::{Error, ErrorKind, Result};

/// How often in a row an answer may be picked up again without anything new coming.
const FRUITLESS: u32 = 4;
/// Answers that wait to be picked up.
const WAITING: usize = 256;
/// The longest time that a server may ask us to wait before an answer is picked up again.
const LONGEST_RETRY: u64 = 60_000;
/// A stream that says nothing and ends within this time is of no use.
const SHORT: Duration = Duration::from_secs(10);

/// Answers whose stream ended and which will be picked up, by the last event that was seen of them.
#[derive(Debug, Default)]
pub(super) struct Resumes(Mutex<VecDeque<(String, Reader, u32)>>);

impl Resumes {
    /// Keeps an answer to be picked up; says no when it was tried too often.
    pub(super) fn put(&self, last: &str, reader: Reader, times: u32) -> bool {
        if times >= FRUITLESS {
            return false;
        }
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.push_back((last.to_owned(), reader, times));
        if waiting.len() > WAITING {
            waiting.pop_front();
        }
        true
    }

    pub(super) fn take(&self, last: &str) -> Option<(Reader, u32)> {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let place = waiting.iter().position(|(known, ..)| known == last)?;
        waiting
            .remove(place)
            .map(|(_, reader, times)| (reader, times))
    }
}

/// The events up to the answer of one request.
#[derive(Debug)]
pub(super) struct Stream {
    caller: Arc<Caller>,
    resumes: Arc<Resumes>,
    events: Events,
    /// What reads the messages; it is handed on when the answer is to be picked up.
    reader: Option<Reader>,
    id: RequestId,
    last: Option<String>,
    /// How often in a row it was picked up without anything new.
    times: u32,
    /// What was read and not yet handed on.
    ahead: VecDeque<Sse>,
    answered: bool,
    over: bool,
    failure: Option<Error>,
    timer: Option<Timer>,
}

/// What an event was.
#[expect(
    clippy::large_enum_variant,
    reason = "it is taken apart at once, and nearly always is the large one"
)]
enum Read {
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
        let (last, times, ahead, id) = (None, 0, VecDeque::new(), reader.id());
        let reader = Some(reader);
        Self {
            caller,
            resumes,
            events,
            reader,
            id,
            last,
            times,
            ahead,
            answered: false,
            over: false,
            failure: None,
            timer: None,
        }
    }

    /// It goes on after this event.
    pub(super) fn resumed(mut self, last: &str, times: u32) -> Self {
        self.last = Some(last.to_owned());
        self.times = times + 1;
        self
    }

    /// The time to its answer is wanted.
    pub(super) fn timed(mut self, timer: Option<Timer>) -> Self {
        self.timer = timer;
        self
    }

    pub(super) fn into_events(self) -> Events {
        self.events
    }

    /// The answer, if it is the first message to come; anything else is kept for later. Dropping
    /// the future loses nothing.
    pub(super) async fn first(&mut self) -> Option<ServerJsonRpcMessage> {
        loop {
            match self.read().await {
                Read::Answer(message) => return Some(message),
                Read::Other(sse) => {
                    let is_message = sse.data.is_some();
                    self.ahead.push_back(sse);
                    if is_message {
                        return None;
                    }
                }
                Read::End => return None,
            }
        }
    }

    /// The answer; what comes before it is not for anybody, since nobody is connected yet.
    pub(super) async fn only(&mut self) -> Result<ServerJsonRpcMessage> {
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

    async fn next(&mut self) -> Option<Sse> {
        if let Some(sse) = self.ahead.pop_front() {
            return Some(sse);
        }
        if self.over {
            // The worker would pick up a stream that ends here, though nothing more is due.
            return match self.answered && self.last.is_some() {
                true => std::future::pending().await,
                false => None,
            };
        }
        match self.read().await {
            Read::Answer(message) => {
                let message = match &self.reader {
                    Some(reader) => reader.empty(message),
                    None => message,
                };
                Some(event_of(&message))
            }
            Read::Other(sse) => Some(sse),
            Read::End => self
                .failure()
                .map(|error| error_event(&error, self.id.clone())),
        }
    }

    async fn read(&mut self) -> Read {
        loop {
            if let Some(message) = self.reader.as_mut().and_then(Reader::pop) {
                return self.take(message);
            }
            let end = self.reader.as_ref().and_then(Reader::end);
            let next = self.caller.in_time(end, self.events.next()).await;
            match next.and_then(|next| next) {
                Ok(Some(event)) => {
                    if let Some(control) = self.note(event) {
                        return Read::Other(control);
                    }
                }
                Ok(None) => return self.end(None),
                Err(error) => return self.end(Some(error)),
            }
        }
    }

    /// Reads an event; what it says about the stream itself is handed on.
    fn note(&mut self, event: Event) -> Option<Sse> {
        if let (Some(data), Some(reader)) = (event.message(), &mut self.reader) {
            reader.push(data);
        }
        if let Some(id) = &event.id {
            self.last = Some(id.clone());
            self.times = 0;
        }
        (event.id.is_some() || event.retry.is_some()).then(|| control(event))
    }

    fn take(&mut self, message: ServerJsonRpcMessage) -> Read {
        if !is_answer(&message) {
            return Read::Other(event_of(&message));
        }
        self.answered = true;
        if let Some(timer) = self.timer.take() {
            timer.stop(&self.caller);
        }
        Read::Answer(message)
    }

    /// The stream ended: with the answer, to be picked up later, or for good, which is an answer
    /// too.
    fn end(&mut self, error: Option<Error>) -> Read {
        self.over = true;
        if self.answered {
            return Read::End;
        }
        let final_word = error
            .as_ref()
            .is_some_and(|error| matches!(error.kind(), ErrorKind::TooLarge | ErrorKind::Timeout));
        if let Some(last) = self.last.as_ref().filter(|_| !final_word)
            && let Some(reader) = self.reader.take()
            && self.resumes.put(last, reader, self.times)
        {
            return Read::End;
        }
        let error = error.unwrap_or_else(|| self.ended());
        self.answered = true;
        self.failure = Some(error);
        Read::End
    }

    /// Why there will be no answer, once that is known.
    pub(super) fn failure(&mut self) -> Option<Error> {
        self.failure.take()
    }

    fn ended(&self) -> Error {
        self.caller.error(
            ErrorKind::Closed,
            "the connection ended before the answer came",
        )
    }
}

/// What the server says unasked. How often in a row it soon ends with nothing said is counted.
pub(super) fn unasked(
    caller: Arc<Caller>,
    events: Events,
    fruitless: Arc<Mutex<u32>>,
) -> BoxStream<'static, Result<Sse, SseError>> {
    let opened = caller.world.now();
    stream::unfold((events, false), move |(mut events, said)| {
        let (caller, fruitless) = (caller.clone(), fruitless.clone());
        async move {
            let Some(event) = events.next().await.ok().flatten() else {
                let short = !said && caller.world.now().since(opened) < SHORT;
                let mut count = fruitless.lock().unwrap_or_else(PoisonError::into_inner);
                *count = if short { count.saturating_add(1) } else { 0 };
                return None;
            };
            // An answer that comes this way belongs to whatever request has its id, so nothing is
            // known of it here.
            let message = event
                .message()
                .and_then(|data| serde_json::from_slice(data).ok());
            let mut sse = control(event);
            sse.data = message
                .and_then(|message: ServerJsonRpcMessage| serde_json::to_string(&message).ok());
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

/// An event without what it says, which still tells where to go on.
fn control(event: Event) -> Sse {
    let mut sse = Sse::default();
    (sse.id, sse.retry) = (event.id, event.retry.map(|time| time.min(LONGEST_RETRY)));
    sse
}
