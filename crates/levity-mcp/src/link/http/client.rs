//! The HTTP client of rmcp's worker for streamable HTTP.
//!
//! The worker handles sessions and protocol versions. This client performs its requests and
//! guarantees that each one ends: in a response, or in an error with a reason. A response that
//! arrives as events within 50 ms is passed on as a whole, which saves the worker a stream; a
//! slower one becomes a stream that can be resumed.

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

use super::answer::{self, PostOutcome};
use super::call::{Caller, HttpRequest};
use super::events::Events;
use super::originals::{OriginalResponses, ResultType};
use super::reader::Reader;
use super::reuse::Timer;
use super::stream::{Resumes, Stream, error_event, notification_stream};
use crate::{Error, ErrorKind};

// A map with header names as keys does not find a name that is given as text.
const VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
/// The request whose response contains changes for the lifetime of the connection.
const LISTEN: &str = "subscriptions/listen";
/// The maximum wait for a response that arrives as events, before it is passed on as a stream.
const INLINE_WAIT: Duration = Duration::from_millis(50);
/// The timeout for reading the rest of a finished response, so that its connection can be reused.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(100);
/// The limit of the growing delay for a server that closes the stream of notifications immediately.
const MAX_DELAY_SHIFT: u32 = 6;

/// The reason why a request got no response.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) error: Error,
    /// `true` if the server may support only the older HTTP with server-sent events.
    pub(crate) try_sse: bool,
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
            try_sse: false,
        }
    }
}

pub(super) type PostError = StreamableHttpError<Failure>;

/// Wraps levity's error for the worker.
pub(super) fn client_error(error: Error) -> PostError {
    StreamableHttpError::Client(error.into())
}

/// The properties of an outgoing message.
#[derive(Clone, Debug)]
pub(super) struct OutgoingMessage<'a> {
    /// The method of the request.
    method: &'a str,
    /// The id of the request; `None` if the message expects no response.
    pub(super) id: Option<RequestId>,
    pub(super) step: Step,
    /// Equal for requests that take about the same time.
    kind: u64,
    repeatable: bool,
}

/// The phase of a connection that a message belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Discover,
    Initialize,
    Initialized,
    Later,
}

impl<'a> OutgoingMessage<'a> {
    fn of(message: &'a ClientJsonRpcMessage) -> Self {
        let mut outgoing = Self {
            method: "",
            id: None,
            step: Step::Later,
            kind: 0,
            repeatable: true,
        };
        match message {
            ClientJsonRpcMessage::Request(request) => {
                let method = request.request.method();
                outgoing.id = Some(request.id.clone());
                outgoing.method = method;
                outgoing.step = match method {
                    "initialize" => Step::Initialize,
                    "server/discover" => Step::Discover,
                    _ => Step::Later,
                };
                // A second call of a tool may repeat its effects.
                outgoing.repeatable = method != "tools/call";
                outgoing.kind = kind_of(method, tool_of(&request.request));
            }
            ClientJsonRpcMessage::Notification(notification) => {
                if let ClientNotification::InitializedNotification(_) = notification.notification {
                    outgoing.step = Step::Initialized;
                }
            }
            _ => {}
        }
        outgoing
    }
}

/// Returns a number for requests that take about the same time: the same method and tool.
fn kind_of(method: &str, tool: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    (method, tool).hash(&mut hasher);
    hasher.finish()
}

/// Returns the name of the tool that a request calls; empty for other requests.
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

/// The client of one server; all clones share the same state.
#[derive(Clone)]
pub(crate) struct Client(Arc<Inner>);

struct Inner {
    caller: Arc<Caller>,
    resumes: Arc<Resumes>,
    originals: Arc<OriginalResponses>,
    /// Becomes `true` when no caller waits for the first responses any more.
    closing: watch::Receiver<bool>,
    drains: Mutex<JoinSet<()>>,
    /// The number of consecutive streams of notifications that ended without an event.
    empty_streams: Arc<Mutex<u32>>,
}

impl Client {
    pub(super) fn new(
        caller: Arc<Caller>,
        originals: Arc<OriginalResponses>,
        closing: watch::Receiver<bool>,
    ) -> Self {
        let (resumes, drains, empty_streams) = (Arc::default(), Mutex::default(), Arc::default());
        Self(Arc::new(Inner {
            caller,
            resumes,
            originals,
            closing,
            drains,
            empty_streams,
        }))
    }

    /// Sends a message and reads its response, with one deadline for both. The stream of changes
    /// has none.
    async fn post(
        &self,
        message: &ClientJsonRpcMessage,
        session: Option<&str>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<StreamableHttpPostResponse, PostError> {
        let (caller, outgoing) = (&self.0.caller, OutgoingMessage::of(message));
        let deadline = (outgoing.method != LISTEN).then(|| caller.response_deadline());
        caller
            .in_time(
                deadline,
                self.exchange(message, outgoing, deadline, session, headers),
            )
            .await
            .map_err(client_error)?
    }

    async fn exchange(
        &self,
        message: &ClientJsonRpcMessage,
        outgoing: OutgoingMessage<'_>,
        deadline: Option<Timestamp>,
        session: Option<&str>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<StreamableHttpPostResponse, PostError> {
        let caller = &self.0.caller;
        let body = serde_json::to_vec(message)?;
        let mut request = HttpRequest::post(&caller.url, &body);
        let version = headers
            .get(&VERSION)
            .and_then(|version| version.to_str().ok());
        let result_type = ResultType::of(outgoing.method, version);
        request
            .headers
            .extend(headers.into_iter().map(|(name, value)| (Some(name), value)));
        request.repeatable = outgoing.repeatable;
        add_session(&mut request, session)?;
        let is_call = outgoing.id.is_some() && outgoing.step == Step::Later;
        let timer = is_call.then(|| Timer::start(caller, outgoing.kind));
        request.mode = timer.map_or(request.mode, |timer| timer.mode());
        let response = caller.send(&request).await.map_err(client_error)?;
        let mut reader = Reader::of(
            &caller.server,
            message,
            result_type,
            &self.0.originals,
            deadline,
        );
        match answer::read_response(
            caller,
            response,
            &outgoing,
            reader.as_mut(),
            session.is_some(),
        )
        .await?
        {
            PostOutcome::Answer(answer) => {
                if let Some(timer) = timer {
                    timer.stop(caller);
                }
                Ok(answer)
            }
            PostOutcome::Events(response, session) => {
                self.read_events(response, session, outgoing.step, reader, timer)
                    .await
            }
        }
    }

    /// Reads a response from events: immediately if it arrives at once, and otherwise as a stream.
    async fn read_events(
        &self,
        response: Response,
        session: Option<String>,
        step: Step,
        reader: Option<Reader>,
        timer: Option<Timer>,
    ) -> Result<StreamableHttpPostResponse, PostError> {
        let events = Events::new(self.0.caller.clone(), response);
        let Some(reader) = reader else {
            // The message expects no response, so there is nothing to wait for.
            self.drain(events);
            return Ok(StreamableHttpPostResponse::Accepted);
        };
        let may_stream = step == Step::Later && !reader.needs_typed_result();
        let mut stream = Stream::new(
            self.0.caller.clone(),
            self.0.resumes.clone(),
            events,
            reader,
        )
        .with_timer(timer);
        let answer = match may_stream {
            true => {
                let wait = self.0.caller.world.sleep(INLINE_WAIT);
                match select(pin!(stream.first_answer()), wait).await {
                    Either::Left((answer, _)) => answer,
                    Either::Right(_) => None,
                }
            }
            // The worker inspects some responses only if they arrive as a whole.
            false => Some(stream.read_answer().await.map_err(client_error)?),
        };
        match (answer, stream.failure()) {
            (Some(message), _) => {
                self.drain(stream.into_events());
                Ok(StreamableHttpPostResponse::Json(message, session))
            }
            (None, Some(error)) => Err(client_error(error)),
            (None, None) => Ok(StreamableHttpPostResponse::Sse(stream.boxed(), session)),
        }
    }

    /// Reads the rest of a finished response in the background for at most 100 ms.
    fn drain(&self, mut events: Events) {
        if events.drain().now_or_never().is_some() {
            return;
        }
        let world = self.0.caller.world.clone();
        let mut drains = self.0.drains.lock().unwrap_or_else(PoisonError::into_inner);
        while drains.try_join_next().is_some() {}
        drains.spawn(async move {
            select(pin!(events.drain()), world.sleep(DRAIN_TIMEOUT)).await;
        });
    }

    /// Opens a stream: to resume a response after its last event, or for notifications.
    async fn get(
        &self,
        session: Option<&str>,
        last: Option<&str>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<BoxStream<'static, Result<Sse, SseError>>, PostError> {
        let caller = &self.0.caller;
        let mut request = HttpRequest::get(&caller.url);
        request
            .headers
            .extend(headers.into_iter().map(|(name, value)| (Some(name), value)));
        add_session(&mut request, session)?;
        if let Some(last) = last.and_then(|last| HeaderValue::try_from(last).ok()) {
            request.headers.insert("last-event-id", last);
        }
        match last.and_then(|last| self.0.resumes.take(last).map(|resume| (last, resume))) {
            Some((last, (reader, attempts))) => self.resume(&request, last, reader, attempts).await,
            None => self.listen(&request).await,
        }
    }

    /// Resumes a response whose stream ended before it was complete.
    async fn resume(
        &self,
        request: &HttpRequest<'_>,
        last: &str,
        reader: Reader,
        attempts: u32,
    ) -> Result<BoxStream<'static, Result<Sse, SseError>>, PostError> {
        let caller = &self.0.caller;
        let sent = caller
            .in_time(reader.deadline(), caller.send(request))
            .await;
        let error = match sent.and_then(|sent| sent) {
            Ok(response) if answer::is_events(&response) => {
                let events = Events::new(caller.clone(), response);
                let stream = Stream::new(caller.clone(), self.0.resumes.clone(), events, reader);
                return Ok(stream.resume_after(last, attempts).boxed());
            }
            Ok(response) if response.status().is_client_error() => {
                let status = response.status().as_u16();
                caller.error(
                    ErrorKind::Closed,
                    format!(
                        "the connection ended before the response arrived, and it cannot resume \
                            (HTTP \
                            {status})"
                    ),
                )
            }
            Ok(response) => caller.status_error(&response),
            Err(error) => error,
        };
        let is_final = matches!(
            error.kind(),
            ErrorKind::Closed | ErrorKind::Auth | ErrorKind::Timeout
        );
        let id = reader.id();
        if !is_final && self.0.resumes.put(last, reader, attempts + 1) {
            return Err(client_error(error));
        }
        Ok(once(std::future::ready(Ok(error_event(&error, id)))).boxed())
    }

    /// Opens the stream of messages that the server sends on its own initiative.
    async fn listen(
        &self,
        request: &HttpRequest<'_>,
    ) -> Result<BoxStream<'static, Result<Sse, SseError>>, PostError> {
        let caller = &self.0.caller;
        let empty_streams = *self
            .0
            .empty_streams
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if empty_streams > 0 {
            caller
                .world
                .sleep(Duration::from_secs(1 << empty_streams.min(MAX_DELAY_SHIFT)))
                .await;
        }
        let response = caller
            .send(request)
            .await
            .map_err(|error| match error.kind() {
                // A retry cannot help, so the connection works without the stream.
                ErrorKind::Auth | ErrorKind::Protocol => {
                    StreamableHttpError::ServerDoesNotSupportSse
                }
                _ => client_error(error),
            })?;
        if answer::is_events(&response) {
            let events = Events::new(caller.clone(), response);
            return Ok(notification_stream(
                caller.clone(),
                events,
                self.0.empty_streams.clone(),
            ));
        }
        match response.status().is_server_error() || response.status().as_u16() == 429 {
            true => Err(client_error(caller.status_error(&response))),
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

/// Adds the session id to a request.
fn add_session(request: &mut HttpRequest<'_>, session: Option<&str>) -> Result<(), PostError> {
    if let Some(session) = session {
        let invalid = |_| {
            StreamableHttpError::UnexpectedServerResponse(
                "a session id that is not a valid header value".into(),
            )
        };
        request.headers.insert(
            "mcp-session-id",
            HeaderValue::try_from(session).map_err(invalid)?,
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
        let is_handshake = OutgoingMessage::of(&message).step != Step::Later;
        let post = self.post(&message, session.as_deref(), headers);
        if !is_handshake {
            return post.await;
        }
        // The worker waits for the first responses and does not react to a close.
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
        let mut request = HttpRequest::delete(&self.0.caller.url);
        request
            .headers
            .extend(headers.into_iter().map(|(name, value)| (Some(name), value)));
        add_session(&mut request, Some(&session))?;
        self.0.caller.send(&request).await.map_err(client_error)?;
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
