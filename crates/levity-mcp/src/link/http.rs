//! Servers that speak streamable HTTP.
//!
//! Sessions, versions and the picking up of streams are rmcp's; the requests themselves, and
//! everything that can go wrong with them, are handled here. A server that turns out to speak only
//! the older HTTP with server-sent events is spoken to in that.

mod answer;
pub(crate) mod call;
mod client;
pub(crate) mod events;
mod pace;
pub(crate) mod parse;
mod reader;
mod stream;
mod typed;

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
use self::typed::Written;
use super::authorize::Authorize;
use super::sse;
use crate::config::{self, ServerConfig};
use crate::{Error, ErrorKind, Result};

/// How long a session may take to end in good order.
const CLOSE: Duration = Duration::from_secs(5);
/// Requests that are sent at once beside the calls, such as pings.
const BESIDE_CALLS: usize = 16;

/// How much longer an answer may take than its call: whoever waits ends the call, and knows best
/// why.
const LATER_THAN_CALLS: Duration = Duration::from_secs(5);

/// The limits of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// How long it may take to connect.
    pub(crate) connect: Duration,
    /// How long an answer may take, from the moment that its request is sent to its last byte.
    pub(crate) answer: Duration,
    /// How large one message of the server may be.
    pub(crate) max_message: usize,
    /// How many calls may be under way at once.
    pub(crate) max_concurrent: usize,
}

impl Limits {
    pub(crate) fn of(config: &ServerConfig) -> Self {
        let connect = config.start_limit.min(Duration::from_secs(10));
        let answer = config
            .call_limit
            .max(config.start_limit)
            .saturating_add(LATER_THAN_CALLS);
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
        .max_concurrent_requests(limits.max_concurrent.saturating_add(BESIDE_CALLS))
        .max_sse_event_size(limits.max_message);
    settings.retry_config = Arc::new(Backoff);
    let (closing, closed) = watch::channel(false);
    let written = Arc::<Written>::default();
    let client = Client::new(caller.clone(), written.clone(), closed);
    let http = StreamableHttpClientTransport::with_client(client, settings);
    Ok(Link {
        caller,
        closing,
        http: Some(http),
        written,
        began: false,
        older: Older::new(),
    })
}

/// A connection to a server.
pub(crate) struct Link {
    caller: Arc<Caller>,
    /// Tells what waits for the first answers that nobody does any more.
    closing: watch::Sender<bool>,
    http: Option<StreamableHttpClientTransport<Client>>,
    written: Arc<Written>,
    /// Whether anything was sent that belongs after the handshake.
    began: bool,
    older: Older,
}

/// The older kind of connection, which the first message opens when it has to be that.
struct Older {
    /// Where it comes from; it leaves with `initialize`.
    opens: Option<mpsc::Sender<sse::Receiver>>,
    opened: mpsc::Receiver<sse::Receiver>,
    sender: Arc<OnceLock<sse::Sender>>,
    receiver: Option<sse::Receiver>,
}

impl Older {
    fn new() -> Self {
        let (opens, opened) = mpsc::channel(1);
        Self {
            opens: Some(opens),
            opened,
            sender: Arc::default(),
            receiver: None,
        }
    }
}

impl Link {
    /// Sends `initialize`, and opens the older kind of connection where the answer says that it may
    /// be that.
    fn begin(
        &mut self,
        message: ClientJsonRpcMessage,
        sent: impl Future<Output = Result<(), StreamableHttpError<Failure>>> + Send + 'static,
    ) -> BoxFuture<'static, Result<()>> {
        let (caller, way, opens) = (
            self.caller.clone(),
            self.older.sender.clone(),
            self.older.opens.take(),
        );
        Box::pin(async move {
            let first = match sent.await {
                Err(StreamableHttpError::Client(Failure { error, older: true })) => error,
                other => return other.map_err(|error| plain(&caller, error)),
            };
            let Some(opens) = opens else {
                return Err(first);
            };
            let opened = sse::connect(caller).await;
            let (sender, receiver) = opened.map_err(|second| match second.kind() {
                ErrorKind::Auth => second,
                _ => both(&first, &second),
            })?;
            let sender = way.get_or_init(|| sender).clone();
            let _ = opens.send(receiver).await;
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
        if let Some(older) = self.older.sender.get() {
            return older.clone().send(message).boxed();
        }
        let caller = self.caller.clone();
        let Some(http) = &mut self.http else {
            return ready(Err(plain(
                &caller,
                StreamableHttpError::TransportChannelClosed,
            )))
            .boxed();
        };
        let sent = http.send(message.clone());
        match &message {
            ClientJsonRpcMessage::Request(request) => match request.request {
                ClientRequest::InitializeRequest(_) => return self.begin(message, sent),
                ClientRequest::DiscoverRequest(_) => {}
                _ => self.began = true,
            },
            _ => self.began = true,
        }
        sent.map(move |sent| sent.map_err(|error| plain(&caller, error)))
            .boxed()
    }

    async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        if self.older.receiver.is_none() {
            let http = self.http.as_mut()?;
            let on_its_way = self.older.opens.is_none();
            let opened = tokio::select! {
                biased;
                Some(opened) = self.older.opened.recv(), if on_its_way => Some(opened),
                message = http.receive() => match message {
                    Some(message) => return Some(self.written.restore(message)),
                    // A worker that could not begin ends.
                    None if on_its_way => self.older.opened.recv().await,
                    None => None,
                }
            };
            self.older.receiver = Some(opened?);
            self.http = None;
        }
        self.older.receiver.as_mut()?.receive().await
    }

    async fn close(&mut self) -> Result<()> {
        self.closing.send_replace(true);
        self.older.receiver = None;
        if let Some(mut http) = self.http.take().filter(|_| self.began) {
            select(pin!(http.close()), self.caller.world.sleep(CLOSE)).await;
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

/// How long to wait before a stream is opened again. What has to end after some tries is ended by
/// the streams themselves.
#[derive(Debug)]
struct Backoff;

impl SseRetryPolicy for Backoff {
    fn retry(&self, times: usize) -> Option<Duration> {
        Some(Duration::from_millis(100 << times.min(8)))
    }
}

fn both(first: &Error, second: &Error) -> Error {
    let message = format!(
        "{}; taken for a server of the older kind: {}",
        first.message(),
        second.message()
    );
    Error::new(first.kind(), first.server(), message)
}

fn plain(caller: &Caller, error: StreamableHttpError<Failure>) -> Error {
    match error {
        StreamableHttpError::Client(failure) => failure.error,
        StreamableHttpError::TransportChannelClosed => {
            caller.error(ErrorKind::Closed, "the connection is closed")
        }
        StreamableHttpError::SessionExpired => caller.error(
            ErrorKind::Closed,
            "it no longer knows the session, and did not begin another",
        ),
        StreamableHttpError::SessionRecoveryTimeout => {
            caller.error(ErrorKind::Timeout, "it began no other session in time")
        }
        StreamableHttpError::ControlRequestTimeout => {
            caller.error(ErrorKind::Timeout, "it took no message in time")
        }
        StreamableHttpError::ReinitializationFailed(error) => caller.error(
            ErrorKind::Refused(error.code.0),
            format!("it refuses another session: {}", error.message),
        ),
        other => caller.error(ErrorKind::Protocol, other.to_string()),
    }
}
