//! Servers that speak the older HTTP with server-sent events, of protocol version 2024-11-05.
//!
//! One long answer brings everything that the server says; what we say is posted to an address that
//! the first event of that answer names. When the long answer ends, the connection has ended.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use levity_core::World;
use levity_rpc::mcp::{ClientJsonRpcMessage, RoleClient, ServerJsonRpcMessage, Transport};
use url::Url;

use super::authorize::Authorize;
use super::decode::{Queue, decode};
use super::failure;
use super::http::call::{Ask, Caller};
use super::http::events::{self, Events};
use super::http::{Limits, is_events};
use super::pending::{Pending, note};
use crate::{Error, ErrorKind, Result, config};

/// How much of the answer to a message is read.
const ANSWER: usize = 64 * 1024;
/// How long that may take.
const REST: Duration = Duration::from_millis(100);

/// Opens a connection.
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

/// Opens a connection and waits until the server has said where messages go.
pub(crate) async fn connect(caller: Arc<Caller>) -> Result<(Sender, Receiver)> {
    let response = caller.send(&Ask::get(&caller.url)).await?;
    if !is_events(&response) {
        return Err(match response.status().is_success() {
            true => caller.error(
                ErrorKind::Protocol,
                "it answered without events; check its URL",
            ),
            false => caller.refused(&response),
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

/// Where messages go; elsewhere than where the connection goes would give the login away.
fn endpoint(caller: &Caller, base: &Url, data: &[u8]) -> Result<Url> {
    let wrong =
        |why: &str| caller.error(ErrorKind::Protocol, format!("the endpoint it names {why}"));
    let text = std::str::from_utf8(data).map_err(|_| wrong("is no text"))?;
    let endpoint = base.join(text.trim()).map_err(|_| wrong("is no URL"))?;
    match endpoint.origin() == base.origin() {
        true => Ok(endpoint),
        false => Err(wrong(&format!(
            "is at another place, `{}`",
            endpoint.origin().ascii_serialization()
        ))),
    }
}

/// Says things to the server; a copy says them to the same.
#[derive(Clone, Debug)]
pub(crate) struct Sender {
    caller: Arc<Caller>,
    endpoint: Arc<Url>,
    pending: Arc<Pending>,
}

impl Sender {
    pub(crate) async fn send(self, message: ClientJsonRpcMessage) -> Result<()> {
        let unfit = |_| {
            self.caller
                .error(ErrorKind::Protocol, "the message cannot be written as JSON")
        };
        let body = serde_json::to_vec(&message).map_err(unfit)?;
        note(&self.pending, &message);
        let sent = self.post(&body).await;
        if let (Err(_), ClientJsonRpcMessage::Request(request)) = (&sent, &message) {
            self.pending.remove(&request.id);
        }
        sent
    }

    async fn post(&self, body: &[u8]) -> Result<()> {
        let (caller, ask) = (&self.caller, Ask::post(&self.endpoint, body));
        let response = caller
            .in_time(Some(caller.end_of_answer()), caller.send(&ask))
            .await??;
        if !response.status().is_success() {
            return Err(self.caller.refused(&response));
        }
        // Read to its end, the connection can be used again. The message was taken, so nobody waits
        // long for that.
        let rest = events::body(caller, response, ANSWER);
        let _ = caller
            .in_time(Some(caller.world.now().after(REST)), rest)
            .await;
        Ok(())
    }
}

/// What the server says.
#[derive(Debug)]
pub(crate) struct Receiver {
    caller: Arc<Caller>,
    events: Events,
    pending: Arc<Pending>,
    queue: Queue,
    ended: Option<Error>,
}

impl Receiver {
    /// The next message. After the end, each request that still waits gets an error that says why,
    /// and then there is none.
    pub(crate) async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        loop {
            if let Some(message) = self.queue.pop_front() {
                return Some(message);
            }
            if let Some(error) = &self.ended {
                // What stays open by design is taken only once nothing else is left.
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
                let words = "the connection ended before the answer came";
                self.ended = Some(self.caller.error(ErrorKind::Closed, words));
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
