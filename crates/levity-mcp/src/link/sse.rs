//! The transport for servers with the older HTTP with server-sent events, of protocol version
//! 2024-11-05.
//!
//! One long response carries all messages of the server. The client posts its messages to a URL
//! that the first event of that response names. The connection ends with the long response.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use levity_core::World;
use levity_rpc::mcp::{ClientJsonRpcMessage, RoleClient, ServerJsonRpcMessage, Transport};
use url::Url;

use super::authorize::Authorize;
use super::decode::{Queue, decode};
use super::failure;
use super::http::call::{Caller, HttpRequest};
use super::http::events::{self, Events};
use super::http::{Limits, is_events};
use super::pending::{Pending, record};
use crate::{Error, ErrorKind, Result, config};

/// The maximum length of the response to a message that is read.
const MAX_RESPONSE: usize = 64 * 1024;
/// The timeout for reading that response.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(100);

/// Opens a connection to a server.
pub(crate) async fn open(
    server: Arc<str>,
    config: &config::Http,
    limits: Limits,
    authorize: Option<Arc<dyn Authorize>>,
    world: Arc<dyn World>,
) -> Result<Link> {
    let caller = Caller::new(server, config, limits, authorize, world)?;
    let (sender, receiver) = connect(Arc::new(caller)).await?;
    Ok(Link {
        sender,
        receiver: Some(receiver),
    })
}

/// Opens a connection and waits until the server has named its endpoint for messages.
pub(crate) async fn connect(caller: Arc<Caller>) -> Result<(Sender, Receiver)> {
    let response = caller.send(&HttpRequest::get(&caller.url)).await?;
    if !is_events(&response) {
        return Err(match response.status().is_success() {
            true => caller.error(
                ErrorKind::Protocol,
                "its response has no events; check its URL",
            ),
            false => caller.status_error(&response),
        });
    }
    // A redirect within the origin may have led to another path.
    let base = response.url().clone();
    let mut events = Events::new(caller.clone(), response);
    let endpoint = loop {
        let Some(event) = events.next().await? else {
            return Err(caller.error(
                ErrorKind::Closed,
                "the connection ended before it named an endpoint",
            ));
        };
        if event.name.as_deref() == Some("endpoint") {
            break endpoint(&caller, &base, &event.data.unwrap_or_default())?;
        }
    };
    let (endpoint, pending) = (Arc::new(endpoint), Arc::<Pending>::default());
    let receiver = Receiver {
        caller: caller.clone(),
        events,
        pending: pending.clone(),
        queue: Queue::new(),
        ended: None,
    };
    Ok((
        Sender {
            caller,
            endpoint,
            pending,
        },
        receiver,
    ))
}

/// Returns the URL for messages. Another origin than that of the connection would receive the
/// login.
fn endpoint(caller: &Caller, base: &Url, data: &[u8]) -> Result<Url> {
    let invalid = |problem: &str| {
        caller.error(
            ErrorKind::Protocol,
            format!("the endpoint it names {problem}"),
        )
    };
    let text = std::str::from_utf8(data).map_err(|_| invalid("is not text"))?;
    let endpoint = base
        .join(text.trim())
        .map_err(|_| invalid("is not a valid URL"))?;
    match endpoint.origin() == base.origin() {
        true => Ok(endpoint),
        false => Err(invalid(&format!(
            "has another origin, `{}`",
            endpoint.origin().ascii_serialization()
        ))),
    }
}

/// The sender of messages to the server; all clones share the same connection.
#[derive(Clone, Debug)]
pub(crate) struct Sender {
    caller: Arc<Caller>,
    endpoint: Arc<Url>,
    pending: Arc<Pending>,
}

impl Sender {
    pub(crate) async fn send(self, message: ClientJsonRpcMessage) -> Result<()> {
        let unserializable = |_| {
            self.caller.error(
                ErrorKind::Protocol,
                "the message cannot be serialized as JSON",
            )
        };
        let body = serde_json::to_vec(&message).map_err(unserializable)?;
        record(&self.pending, &message);
        let _unwritten = self.caller.unanswered.record_sent(&message);
        let sent = self.post(&body).await;
        if let (Err(_), ClientJsonRpcMessage::Request(request)) = (&sent, &message) {
            self.pending.remove(&request.id);
        }
        sent
    }

    /// Posts one message and reads a short response, so that its connection can be reused.
    async fn post(&self, body: &[u8]) -> Result<()> {
        let (caller, request) = (&self.caller, HttpRequest::post(&self.endpoint, body));
        let response = caller
            .in_time(Some(caller.response_deadline()), caller.send(&request))
            .await??;
        if !response.status().is_success() {
            return Err(self.caller.status_error(&response));
        }
        // If the response is read to its end, the connection can be reused. The message was
        // accepted, so this wait is short.
        let rest = events::body(caller, response, MAX_RESPONSE);
        let _ = caller
            .in_time(Some(caller.world.now().after(DRAIN_TIMEOUT)), rest)
            .await;
        Ok(())
    }
}

/// The receiver of messages from the server.
#[derive(Debug)]
pub(crate) struct Receiver {
    caller: Arc<Caller>,
    events: Events,
    pending: Arc<Pending>,
    queue: Queue,
    ended: Option<Error>,
}

impl Receiver {
    /// Waits for the next message. After the end, each pending request gets an error with the
    /// reason, and then the result is `None`.
    pub(crate) async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        loop {
            if let Some(message) = self.queue.front() {
                let unanswered = &self.caller.unanswered;
                unanswered.room(message).await;
                unanswered.record_received(message);
                return self.queue.pop_front();
            }
            if let Some(error) = &self.ended {
                // Requests that stay open by design are taken last.
                self.queue.extend(failure::answers(error, &self.pending));
                if self.queue.is_empty() {
                    return None;
                }
                continue;
            }
            self.read().await;
        }
    }

    /// Reads one event. Dropping the future loses nothing.
    async fn read(&mut self) {
        match self.events.next().await {
            Ok(Some(event)) => {
                if let Some(data) = event.message() {
                    decode(data, &self.caller.server, &self.pending, &mut self.queue);
                }
            }
            Ok(None) => {
                let message = "the connection ended before the response arrived";
                self.ended = Some(self.caller.error(ErrorKind::Closed, message));
            }
            Err(error) => self.ended = Some(error),
        }
    }
}

/// A connection to a server.
#[derive(Debug)]
pub(crate) struct Link {
    sender: Sender,
    receiver: Option<Receiver>,
}

impl Transport<RoleClient> for Link {
    type Error = Error;

    fn send(
        &mut self,
        message: ClientJsonRpcMessage,
    ) -> impl Future<Output = Result<()>> + Send + 'static {
        self.sender.clone().send(message)
    }

    async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        self.receiver.as_mut()?.receive().await
    }

    async fn close(&mut self) -> Result<()> {
        self.receiver = None;
        Ok(())
    }
}
