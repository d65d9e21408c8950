//! The transport for servers with streamable HTTP.
//!
//! rmcp handles sessions, versions and the resumption of streams. This module handles the requests
//! themselves and all their failures. If a server supports only the older HTTP with server-sent
//! events, the transport falls back to that.

mod answer;
pub(crate) mod call;
mod client;
pub(crate) mod events;
mod originals;
pub(crate) mod parse;
mod reader;
mod reuse;
mod stream;

#[cfg(test)]
mod tests;

use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, ready, select};
use levity_core::World;
use levity_rpc::mcp::http_client::{
    SseRetryPolicy, StreamableHttpClientTransport, StreamableHttpClientTransportConfig,
    StreamableHttpError,
};
use levity_rpc::mcp::{
    ClientJsonRpcMessage, ClientRequest, RoleClient, ServerJsonRpcMessage, Transport,
};
use tokio::sync::{mpsc, watch};

pub(crate) use self::answer::is_events;
use self::call::Caller;
use self::client::{Client, Failure};
use self::originals::OriginalResponses;
use super::authorize::Authorize;
use super::sse;
use crate::config::{self, ServerConfig};
use crate::{Error, ErrorKind, Result};

/// The timeout for closing a session gracefully.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);
/// The number of concurrent requests in addition to calls, such as pings.
const EXTRA_REQUESTS: usize = 16;

/// The additional time for a response beyond the timeout of its call. The caller's own timeout
/// fires first and has the better error.
const EXTRA_TIME: Duration = Duration::from_secs(5);

/// The limits of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// The timeout for connecting.
    pub(crate) connect: Duration,
    /// The timeout of a response, from the sending of the request to the last byte.
    pub(crate) answer: Duration,
    /// The maximum size of one message from the server.
    pub(crate) max_message: usize,
    /// The maximum number of concurrent calls.
    pub(crate) max_concurrent: usize,
}

impl Limits {
    /// Derives the limits from the settings: at most 10 s to connect, and for a response 5 s more
    /// than a call or a start may take.
    pub(crate) fn from_config(config: &ServerConfig) -> Self {
        let connect = config.start_timeout.min(Duration::from_secs(10));
        let answer = config
            .call_timeout
            .max(config.start_timeout)
            .saturating_add(EXTRA_TIME);
        let (max_message, max_concurrent) = (config.max_message, config.max_concurrent);
        Self {
            connect,
            answer,
            max_message,
            max_concurrent,
        }
    }
}

/// Opens a connection; nothing is sent before the first message.
pub(crate) fn open(
    server: Arc<str>,
    config: &config::Http,
    limits: Limits,
    authorize: Option<Arc<dyn Authorize>>,
    world: Arc<dyn World>,
) -> Result<Link> {
    let caller = Arc::new(Caller::new(server, config, limits, authorize, world)?);
    let mut settings = StreamableHttpClientTransportConfig::with_uri(caller.url.as_str())
        .max_concurrent_requests(limits.max_concurrent.saturating_add(EXTRA_REQUESTS))
        .max_sse_event_size(limits.max_message);
    settings.retry_config = Arc::new(Backoff);
    let (closing, closed) = watch::channel(false);
    let originals = Arc::<OriginalResponses>::default();
    let client = Client::new(caller.clone(), originals.clone(), closed);
    let http = StreamableHttpClientTransport::with_client(client, settings);
    Ok(Link {
        caller,
        closing,
        http: Some(http),
        originals,
        past_handshake: false,
        fallback: SseFallback::new(),
    })
}

/// A connection to a server.
pub(crate) struct Link {
    caller: Arc<Caller>,
    /// Signals that no caller waits for the first responses any more.
    closing: watch::Sender<bool>,
    http: Option<StreamableHttpClientTransport<Client>>,
    originals: Arc<OriginalResponses>,
    /// `true` after a message that follows the handshake was sent.
    past_handshake: bool,
    fallback: SseFallback,
}

/// The fallback connection with the older protocol, which the first message opens if necessary.
struct SseFallback {
    /// The sending side for the receiver; it moves away with `initialize`.
    receiver_sender: Option<mpsc::Sender<sse::Receiver>>,
    opened_receiver: mpsc::Receiver<sse::Receiver>,
    sender: Arc<OnceLock<sse::Sender>>,
    receiver: Option<sse::Receiver>,
}

impl SseFallback {
    fn new() -> Self {
        let (receiver_sender, opened_receiver) = mpsc::channel(1);
        Self {
            receiver_sender: Some(receiver_sender),
            opened_receiver,
            sender: Arc::default(),
            receiver: None,
        }
    }
}

impl Link {
    /// Sends `initialize`, and opens the fallback connection if the response suggests an older
    /// server.
    fn send_initialize(
        &mut self,
        message: ClientJsonRpcMessage,
        sent: impl Future<Output = Result<(), StreamableHttpError<Failure>>> + Send + 'static,
    ) -> BoxFuture<'static, Result<()>> {
        let (caller, sender_slot, receiver_sender) = (
            self.caller.clone(),
            self.fallback.sender.clone(),
            self.fallback.receiver_sender.take(),
        );
        Box::pin(async move {
            let first = match sent.await {
                Err(StreamableHttpError::Client(Failure {
                    error,
                    try_sse: true,
                })) => error,
                other => return other.map_err(|error| convert_error(&caller, error)),
            };
            let Some(receiver_sender) = receiver_sender else {
                return Err(first);
            };
            let opened = sse::connect(caller).await;
            let (sender, receiver) = opened.map_err(|second| match second.kind() {
                ErrorKind::Auth => second,
                _ => combine_errors(&first, &second),
            })?;
            let sender = sender_slot.get_or_init(|| sender).clone();
            let _ = receiver_sender.send(receiver).await;
            sender.send(message).await
        })
    }
}

impl Transport<RoleClient> for Link {
    type Error = Error;

    fn send(
        &mut self,
        message: ClientJsonRpcMessage,
    ) -> impl Future<Output = Result<()>> + Send + 'static {
        if let Some(fallback) = self.fallback.sender.get() {
            return fallback.clone().send(message).boxed();
        }
        let caller = self.caller.clone();
        let Some(http) = &mut self.http else {
            return ready(Err(convert_error(
                &caller,
                StreamableHttpError::TransportChannelClosed,
            )))
            .boxed();
        };
        let unwritten = caller.unanswered.record_sent(&message);
        let sent = http.send(message.clone());
        match &message {
            ClientJsonRpcMessage::Request(request) => match request.request {
                ClientRequest::InitializeRequest(_) => return self.send_initialize(message, sent),
                ClientRequest::DiscoverRequest(_) => {}
                _ => self.past_handshake = true,
            },
            _ => self.past_handshake = true,
        }
        async move {
            let _unwritten = unwritten;
            sent.await.map_err(|error| convert_error(&caller, error))
        }
        .boxed()
    }

    async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        if self.fallback.receiver.is_none() {
            let http = self.http.as_mut()?;
            let is_opening = self.fallback.receiver_sender.is_none();
            let opened = tokio::select! {
                biased;
                Some(opened) = self.fallback.opened_receiver.recv(), if is_opening => Some(opened),
                message = http.receive() => match message {
                    Some(message) => {
                        self.caller.unanswered.record_received(&message);
                        return Some(self.originals.restore(message));
                    }
                    // The worker ends if it could not start.
                    None if is_opening => self.fallback.opened_receiver.recv().await,
                    None => None,
                }
            };
            self.fallback.receiver = Some(opened?);
            self.http = None;
        }
        self.fallback.receiver.as_mut()?.receive().await
    }

    async fn close(&mut self) -> Result<()> {
        self.closing.send_replace(true);
        self.fallback.receiver = None;
        if let Some(mut http) = self.http.take().filter(|_| self.past_handshake) {
            select(pin!(http.close()), self.caller.world.sleep(CLOSE_TIMEOUT)).await;
        }
        Ok(())
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link")
            .field("caller", &self.caller)
            .finish_non_exhaustive()
    }
}

/// The delay before a stream is opened again. The streams themselves limit the number of attempts.
#[derive(Debug)]
struct Backoff;

impl SseRetryPolicy for Backoff {
    fn retry(&self, times: usize) -> Option<Duration> {
        Some(Duration::from_millis(100 << times.min(8)))
    }
}

/// Combines the errors of both transports; the kind is that of the first.
fn combine_errors(first: &Error, second: &Error) -> Error {
    let message = format!(
        "{}; the fallback to the older HTTP with server-sent events failed too: {}",
        first.message(),
        second.message()
    );
    Error::new(first.kind(), first.server(), message)
}

/// Converts an error of rmcp's worker.
fn convert_error(caller: &Caller, error: StreamableHttpError<Failure>) -> Error {
    match error {
        StreamableHttpError::Client(failure) => failure.error,
        StreamableHttpError::TransportChannelClosed => {
            caller.error(ErrorKind::Closed, "the connection is closed")
        }
        StreamableHttpError::SessionExpired => caller.error(
            ErrorKind::Closed,
            "the session expired, and the server did not start another one",
        ),
        StreamableHttpError::SessionRecoveryTimeout => caller.error(
            ErrorKind::Timeout,
            "it did not start another session in time",
        ),
        StreamableHttpError::ControlRequestTimeout => {
            caller.error(ErrorKind::Timeout, "it did not accept a message in time")
        }
        StreamableHttpError::ReinitializationFailed(error) => caller.error(
            ErrorKind::Rejected(error.code.0),
            format!("it rejects another session: {}", error.message),
        ),
        other => caller.error(ErrorKind::Protocol, other.to_string()),
    }
}
