//! Servers that speak the older HTTP with server-sent events, of protocol version 2024-11-05.
//!
//! One long answer brings everything that the server says; what we say is posted to an address that the first event of that
//! answer names. When the long answer ends, the connection has ended.

use std::collections::VecDeque;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};

use levity_core::World;
use rmcp::RoleClient;
use rmcp::model::{ClientJsonRpcMessage, ClientNotification, RequestId, ServerJsonRpcMessage};
use rmcp::transport::Transport;
use url::Url;

use super::authorize::Authorize;
use super::failure;
use super::http::call::{Ask, Caller};
use super::http::events::{self, Events};
use super::http::{Limits, decode, is_answer, is_events};
use crate::{Error, ErrorKind, Result, config};

/// Requests whose answers are waited for; of more than this, the first are forgotten.
const WAITING: usize = 4096;
/// How much of the answer to a message is read.
const ANSWER: usize = 64 * 1024;

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
    Ok(Link { sender, receiver: Some(receiver) })
}

/// Opens a connection and waits until the server has said where messages go.
pub(crate) async fn connect(caller: Arc<Caller>) -> Result<(Sender, Receiver)> {
    let response = caller.send(&Ask::get(&caller.url)).await?;
    if !is_events(&response) {
        return Err(match response.status().is_success() {
            true => caller.error(ErrorKind::Protocol, "it answered without events; check its URL"),
            false => caller.refused(&response),
        });
    }
    // A redirect within the origin may have led to another path.
    let base = response.url().clone();
    let mut events = Events::new(caller.clone(), response);
    let endpoint = loop {
        let Some(event) = events.next().await? else {
            return Err(caller.error(ErrorKind::Closed, "the connection ended before it named an endpoint"));
        };
        if event.name.as_deref() == Some("endpoint") {
            break endpoint(&caller, &base, &event.data.unwrap_or_default())?;
        }
    };
    let (endpoint, waiting) = (Arc::new(endpoint), Arc::<Waiting>::default());
    let receiver = Receiver { caller: caller.clone(), events, waiting: waiting.clone(), ended: None };
    Ok((Sender { caller, endpoint, waiting }, receiver))
}

/// Where messages go; elsewhere than where the connection goes would give the login away.
fn endpoint(caller: &Caller, base: &Url, data: &[u8]) -> Result<Url> {
    let wrong = |why: &str| caller.error(ErrorKind::Protocol, format!("the endpoint it names {why}"));
    let text = std::str::from_utf8(data).map_err(|_| wrong("is no text"))?;
    let endpoint = base.join(text.trim()).map_err(|_| wrong("is no URL"))?;
    match endpoint.origin() == base.origin() {
        true => Ok(endpoint),
        false => Err(wrong(&format!("is at another place, `{}`", endpoint.origin().ascii_serialization()))),
    }
}

/// The requests whose answers are waited for.
#[derive(Debug, Default)]
struct Waiting(Mutex<VecDeque<RequestId>>);

impl Waiting {
    fn note(&self, message: &ClientJsonRpcMessage) {
        let mut ids = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match message {
            ClientJsonRpcMessage::Request(request) => {
                ids.push_back(request.id.clone());
                if ids.len() > WAITING {
                    ids.pop_front();
                }
            }
            ClientJsonRpcMessage::Notification(notification) => {
                if let ClientNotification::CancelledNotification(cancelled) = &notification.notification {
                    ids.retain(|id| Some(id) != cancelled.params.request_id.as_ref());
                }
            }
            _ => {}
        }
    }

    fn pop(&self) -> Option<RequestId> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }

    /// Takes in a message; says no to an error that belongs to nobody knows which request.
    fn answered(&self, message: &mut ServerJsonRpcMessage) -> bool {
        let mut ids = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let ServerJsonRpcMessage::Error(error) = message
            && error.id.is_none()
        {
            if ids.len() != 1 {
                return false;
            }
            error.id = ids.pop_front();
            return true;
        }
        ids.retain(|id| !is_answer(message, id));
        true
    }
}

/// Says things to the server; a copy says them to the same.
#[derive(Clone, Debug)]
pub(crate) struct Sender {
    caller: Arc<Caller>,
    endpoint: Arc<Url>,
    waiting: Arc<Waiting>,
}

impl Sender {
    pub(crate) async fn send(self, message: ClientJsonRpcMessage) -> Result<()> {
        let unfit = |_| self.caller.error(ErrorKind::Protocol, "the message cannot be written as JSON");
        let body = serde_json::to_vec(&message).map_err(unfit)?;
        self.waiting.note(&message);
        let response = self.caller.send(&Ask::post(&self.endpoint, &body)).await?;
        match response.status().is_success() {
            true => {
                // Read to its end, the connection can be used again.
                let _ = events::body(&self.caller, response, ANSWER).await;
                Ok(())
            }
            false => Err(self.caller.refused(&response)),
        }
    }
}

/// What the server says.
#[derive(Debug)]
pub(crate) struct Receiver {
    caller: Arc<Caller>,
    events: Events,
    waiting: Arc<Waiting>,
    ended: Option<Error>,
}

impl Receiver {
    /// The next message. After the end, each request that still waits gets an error that says why, and then there is none.
    pub(crate) async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        loop {
            if let Some(error) = &self.ended {
                return self.waiting.pop().map(|id| failure::answer(error, id));
            }
            match self.events.next().await {
                Ok(Some(event)) => {
                    let Some(mut message) = event.message().and_then(decode) else { continue };
                    if self.waiting.answered(&mut message) {
                        return Some(message);
                    }
                    self.end("it answered with an error that names no request");
                }
                Ok(None) => self.end("the connection ended before the answer came"),
                Err(error) => self.ended = Some(error),
            }
        }
    }

    fn end(&mut self, why: &str) {
        self.ended = Some(self.caller.error(ErrorKind::Closed, why));
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

    fn send(&mut self, message: ClientJsonRpcMessage) -> impl Future<Output = Result<()>> + Send + 'static {
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
