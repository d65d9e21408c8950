//! What rmcp's worker for streamable HTTP sends and receives by.

use std::collections::HashMap;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{Either, select};
use futures_util::stream::{BoxStream, StreamExt, once};
use http::{HeaderName, HeaderValue};
use levity_core::Timestamp;
use levity_rpc::mcp::http_client::{
    SseError, StreamableHttpClient, StreamableHttpError, StreamableHttpPostResponse,
};
use levity_rpc::mcp::{ClientJsonRpcMessage, ClientNotification, ClientRequest, RequestId};
use reqwest::Response;
use serde_json::Value;
use sse_stream::Sse;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::answer::{self, Taken};
use super::call::{Ask, Caller};
use super::events::Events;
use super::pace::Timer;
use super::reader::Reader;
use super::stream::{Resumes, Stream, error_event, unasked};
use super::typed::{Typed, Written};
use crate::{Error, ErrorKind};

// A map by header names does not find a name that is given as text.
const VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
/// A request whose answer brings changes for as long as the connection lives.
const LISTEN: &str = "subscriptions/listen";
/// How long an answer that comes as events is waited for before it is followed at leisure.
const AT_ONCE: Duration = Duration::from_millis(50);
/// How long the rest of a finished answer is read so that its connection can be used again.
const REST: Duration = Duration::from_millis(100);
/// A server that closes the stream of notifications as soon as it is open is asked again less and
/// less often.
const FRUITLESS: u32 = 6;

/// Why a request got no answer.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) error: Error,
    /// Whether the server may be one that speaks only the older HTTP with server-sent events.
    pub(crate) older: bool,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl std::error::Error for Failure {}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self {
            error,
            older: false,
        }
    }
}

pub(super) type PostError = StreamableHttpError<Failure>;

pub(super) fn failed(error: Error) -> PostError {
    StreamableHttpError::Client(error.into())
}

/// What is known of a message that is sent.
#[derive(Clone, Debug)]
pub(super) struct Asked<'a> {
    /// What a request asks.
    method: &'a str,
    /// The request's id; none when the message wants no answer.
    pub(super) id: Option<RequestId>,
    pub(super) step: Step,
    /// Equal for requests that take about the same time.
    kind: u64,
    repeatable: bool,
}

/// Where in the life of a connection a message belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Discover,
    Initialize,
    Initialized,
    Later,
}

impl<'a> Asked<'a> {
    fn of(message: &'a ClientJsonRpcMessage) -> Self {
        let mut asked = Self {
            method: "",
            id: None,
            step: Step::Later,
            kind: 0,
            repeatable: true,
        };
        match message {
            ClientJsonRpcMessage::Request(request) => {
                let method = request.request.method();
                asked.id = Some(request.id.clone());
                asked.method = method;
                asked.step = match method {
                    "initialize" => Step::Initialize,
                    "server/discover" => Step::Discover,
                    _ => Step::Later,
                };
                // A second call of a tool may do something a second time.
                asked.repeatable = method != "tools/call";
                asked.kind = kind_of(method, tool_of(&request.request));
            }
            ClientJsonRpcMessage::Notification(notification) => {
                if let ClientNotification::InitializedNotification(_) = notification.notification {
                    asked.step = Step::Initialized;
                }
            }
            _ => {}
        }
        asked
    }
}

fn kind_of(method: &str, tool: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    (method, tool).hash(&mut hasher);
    hasher.finish()
}

fn tool_of(request: &ClientRequest) -> &str {
    match request {
        ClientRequest::CallToolRequest(call) => &call.params.name,
        ClientRequest::CustomRequest(request) => {
            let name = request
                .params
                .as_ref()
                .and_then(|params| params.get("name"));
            name.and_then(Value::as_str).unwrap_or_default()
        }
        _ => "",
    }
}

/// One server's client; a copy is the same client.
#[derive(Clone)]
pub(crate) struct Client(Arc<Inner>);

struct Inner {
    caller: Arc<Caller>,
    resumes: Arc<Resumes>,
    written: Arc<Written>,
    /// Turns true when nobody waits for the first answers any more.
    closing: watch::Receiver<bool>,
    drains: Mutex<JoinSet<()>>,
    /// How often in a row the stream of notifications ended with nothing said.
    fruitless: Arc<Mutex<u32>>,
}

impl Client {
    pub(super) fn new(
        caller: Arc<Caller>,
        written: Arc<Written>,
        closing: watch::Receiver<bool>,
    ) -> Self {
        let (resumes, drains, fruitless) = (Arc::default(), Mutex::default(), Arc::default());
        Self(Arc::new(Inner {
            caller,
            resumes,
            written,
            closing,
            drains,
            fruitless,
        }))
    }

    async fn post(
        &self,
        message: &ClientJsonRpcMessage,
        session: Option<&str>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<StreamableHttpPostResponse, PostError> {
        let (caller, asked) = (&self.0.caller, Asked::of(message));
        let end = (asked.method != LISTEN).then(|| caller.end_of_answer());
        caller
            .in_time(end, self.exchange(message, asked, end, session, headers))
            .await
            .map_err(failed)?
    }

    async fn exchange(
        &self,
        message: &ClientJsonRpcMessage,
        asked: Asked<'_>,
        end: Option<Timestamp>,
        session: Option<&str>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<StreamableHttpPostResponse, PostError> {
        let caller = &self.0.caller;
        let body = serde_json::to_vec(message)?;
        let mut ask = Ask::post(&caller.url, &body);
        let version = headers
            .get(&VERSION)
            .and_then(|version| version.to_str().ok());
        let typed = Typed::of(asked.method, version);
        ask.headers
            .extend(headers.into_iter().map(|(name, value)| (Some(name), value)));
        ask.repeatable = asked.repeatable;
        add_session(&mut ask, session)?;
        let is_call = asked.id.is_some() && asked.step == Step::Later;
        let timer = is_call.then(|| Timer::start(caller, asked.kind));
        ask.way = timer.map_or(ask.way, |timer| timer.way());
        let response = caller.send(&ask).await.map_err(failed)?;
        let mut reader = Reader::of(&caller.server, message, typed, &self.0.written, end);
        match answer::take(caller, response, &asked, reader.as_mut(), session.is_some()).await? {
            Taken::Answer(answer) => {
                if let Some(timer) = timer {
                    timer.stop(caller);
                }
                Ok(answer)
            }
            Taken::Events(response, session) => {
                self.follow(response, session, asked.step, reader, timer)
                    .await
            }
        }
    }

    /// Takes an answer from events: at once where it comes at once, else as a stream.
    async fn follow(
        &self,
        response: Response,
        session: Option<String>,
        step: Step,
        reader: Option<Reader>,
        timer: Option<Timer>,
    ) -> Result<StreamableHttpPostResponse, PostError> {
        let events = Events::new(self.0.caller.clone(), response);
        let Some(reader) = reader else {
            // Nobody asked, so there is nothing to wait for.
            self.drain(events);
            return Ok(StreamableHttpPostResponse::Accepted);
        };
        let at_leisure = step == Step::Later && !reader.is_understood();
        let mut stream = Stream::new(
            self.0.caller.clone(),
            self.0.resumes.clone(),
            events,
            reader,
        )
        .timed(timer);
        let answer = match at_leisure {
            true => {
                let wait = self.0.caller.world.sleep(AT_ONCE);
                match select(pin!(stream.first()), wait).await {
                    Either::Left((answer, _)) => answer,
                    Either::Right(_) => None,
                }
            }
            // The worker looks into some answers only when they come whole.
            false => Some(stream.only().await.map_err(failed)?),
        };
        match (answer, stream.failure()) {
            (Some(message), _) => {
                self.drain(stream.into_events());
                Ok(StreamableHttpPostResponse::Json(message, session))
            }
            (None, Some(error)) => Err(failed(error)),
            (None, None) => Ok(StreamableHttpPostResponse::Sse(stream.boxed(), session)),
        }
    }

    fn drain(&self, mut events: Events) {
        if events.drain().now_or_never().is_some() {
            return;
        }
        let world = self.0.caller.world.clone();
        let mut drains = self.0.drains.lock().unwrap_or_else(PoisonError::into_inner);
        while drains.try_join_next().is_some() {}
        drains.spawn(async move {
            select(pin!(events.drain()), world.sleep(REST)).await;
        });
    }

    async fn get(
        &self,
        session: Option<&str>,
        last: Option<&str>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<BoxStream<'static, Result<Sse, SseError>>, PostError> {
        let caller = &self.0.caller;
        let mut ask = Ask::get(&caller.url);
        ask.headers
            .extend(headers.into_iter().map(|(name, value)| (Some(name), value)));
        add_session(&mut ask, session)?;
        if let Some(last) = last.and_then(|last| HeaderValue::try_from(last).ok()) {
            ask.headers.insert("last-event-id", last);
        }
        match last.and_then(|last| self.0.resumes.take(last).map(|resume| (last, resume))) {
            Some((last, (reader, times))) => self.resume(&ask, last, reader, times).await,
            None => self.listen(&ask).await,
        }
    }

    /// Goes on with an answer whose stream ended before it was there.
    async fn resume(
        &self,
        ask: &Ask<'_>,
        last: &str,
        reader: Reader,
        times: u32,
    ) -> Result<BoxStream<'static, Result<Sse, SseError>>, PostError> {
        let caller = &self.0.caller;
        let sent = caller.in_time(reader.end(), caller.send(ask)).await;
        let error = match sent.and_then(|sent| sent) {
            Ok(response) if answer::is_events(&response) => {
                let events = Events::new(caller.clone(), response);
                let stream = Stream::new(caller.clone(), self.0.resumes.clone(), events, reader);
                return Ok(stream.resumed(last, times).boxed());
            }
            Ok(response) if response.status().is_client_error() => {
                let status = response.status().as_u16();
                caller.error(
                    ErrorKind::Closed,
                    format!(
                        "the connection ended before the answer came, and it cannot go on (HTTP \
                            {status})"
                    ),
                )
            }
            Ok(response) => caller.refused(&response),
            Err(error) => error,
        };
        let final_word = matches!(
            error.kind(),
            ErrorKind::Closed | ErrorKind::Auth | ErrorKind::Timeout
        );
        let id = reader.id();
        if !final_word && self.0.resumes.put(last, reader, times + 1) {
            return Err(failed(error));
        }
        Ok(once(std::future::ready(Ok(error_event(&error, id)))).boxed())
    }

    /// Opens the stream of what the server says unasked.
    async fn listen(
        &self,
        ask: &Ask<'_>,
    ) -> Result<BoxStream<'static, Result<Sse, SseError>>, PostError> {
        let caller = &self.0.caller;
        let fruitless = *self
            .0
            .fruitless
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if fruitless > 0 {
            caller
                .world
                .sleep(Duration::from_secs(1 << fruitless.min(FRUITLESS)))
                .await;
        }
        let response = caller.send(ask).await.map_err(|error| match error.kind() {
            // Asking again cannot help: the stream is done without.
            ErrorKind::Auth | ErrorKind::Protocol => StreamableHttpError::ServerDoesNotSupportSse,
            _ => failed(error),
        })?;
        if answer::is_events(&response) {
            let events = Events::new(caller.clone(), response);
            return Ok(unasked(caller.clone(), events, self.0.fruitless.clone()));
        }
        match response.status().is_server_error() || response.status().as_u16() == 429 {
            true => Err(failed(caller.refused(&response))),
            false => Err(StreamableHttpError::ServerDoesNotSupportSse),
        }
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("caller", &self.0.caller)
            .finish_non_exhaustive()
    }
}

fn add_session(ask: &mut Ask<'_>, session: Option<&str>) -> Result<(), PostError> {
    if let Some(session) = session {
        let wrong = |_| {
            StreamableHttpError::UnexpectedServerResponse("a session id that is no header".into())
        };
        ask.headers.insert(
            "mcp-session-id",
            HeaderValue::try_from(session).map_err(wrong)?,
        );
    }
    Ok(())
}

impl StreamableHttpClient for Client {
    type Error = Failure;

    async fn post_message(
        &self,
        _uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        _login: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<StreamableHttpPostResponse, StreamableHttpError<Failure>> {
        let begins = Asked::of(&message).step != Step::Later;
        let post = self.post(&message, session.as_deref(), headers);
        if !begins {
            return post.await;
        }
        // The worker waits for the first answers without looking up.
        let mut closing = self.0.closing.clone();
        let closed = async move {
            let _ = closing.wait_for(|closing| *closing).await;
        };
        match select(pin!(post), pin!(closed)).await {
            Either::Left((answer, _)) => answer,
            Either::Right(_) => Err(StreamableHttpError::TransportChannelClosed),
        }
    }

    async fn delete_session(
        &self,
        _uri: Arc<str>,
        session: Arc<str>,
        _login: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<(), StreamableHttpError<Failure>> {
        let mut ask = Ask::delete(&self.0.caller.url);
        ask.headers
            .extend(headers.into_iter().map(|(name, value)| (Some(name), value)));
        add_session(&mut ask, Some(&session))?;
        self.0.caller.send(&ask).await.map_err(failed)?;
        Ok(())
    }

    async fn get_stream(
        &self,
        _uri: Arc<str>,
        session: Option<Arc<str>>,
        last_event_id: Option<String>,
        _login: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<BoxStream<'static, Result<Sse, SseError>>, StreamableHttpError<Failure>> {
        self.get(session.as_deref(), last_event_id.as_deref(), headers)
            .await
    }
}
