//! The messages in and out of one session over HTTP.
//!
//! The library has this as well, but with four queues of whole messages per session, which make up
//! most of the memory of an idle session. It also loses a response whose client was disconnected,
//! and repeats the last event that a client received.
//!
//! Two sides meet here: the session reads client messages from [`Wire`] and writes its own into it,
//! and HTTP requests deliver messages to [`Link`] and read streams from it. The state is behind one
//! mutex that is never held across an `await`. Closing either side ends the other.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use levity_core::{Timestamp, World};
use levity_rpc::mcp::{
    ClientJsonRpcMessage, RoleServer, ServerJsonRpcMessage, Transport, cancelled_id,
};
use tokio::sync::{mpsc, oneshot};

use super::event_stream::{Capacity, Reader};

mod routes;

use routes::Routes;

/// The maximum number of client messages that wait for the session; further ones make their
/// requests wait.
const INBOX: usize = 16;

/// The connection between a session, which handles messages, and the HTTP requests that deliver and
/// fetch them.
pub(super) struct Link {
    world: Arc<dyn World>,
    state: Mutex<Routes>,
}

/// The reason for which a session cannot handle a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum SessionError {
    #[error("no such session; start one with `initialize`")]
    Session,
    #[error("too many sessions are open; close one, or try again later")]
    Full,
    #[error("that stream has ended or is unknown; send a new request")]
    Stream,
}

impl Link {
    /// Creates both ends of a session.
    pub(super) fn new(world: Arc<dyn World>) -> (Arc<Self>, Wire) {
        let (inbox, messages) = mpsc::channel(INBOX);
        let state = Routes::new(inbox);
        let link = Arc::new(Self {
            world,
            state: Mutex::new(state),
        });
        (link.clone(), Wire { link, messages })
    }

    /// Ends the session, and all readers of it.
    pub(super) fn close(&self) {
        let mut state = self.state();
        state.inbox = None;
        state.first = None;
        state.common.end(Timestamp::default());
        state.streams.clear();
    }

    /// Delivers the first request, and waits for its response.
    pub(super) async fn initialize(
        &self,
        message: ClientJsonRpcMessage,
    ) -> Result<ServerJsonRpcMessage, SessionError> {
        let (first, answer) = oneshot::channel();
        self.state().first = Some(first);
        self.push(message).await?;
        answer.await.map_err(|_| SessionError::Session)
    }

    /// Delivers a message that has no response.
    pub(super) async fn push(&self, message: ClientJsonRpcMessage) -> Result<(), SessionError> {
        let slot = self.slot().await?;
        if let Some(id) = cancelled_id(&message) {
            // A cancelled request gets no response.
            self.state().end(id, self.world.now());
        }
        slot.send(Box::new(message));
        Ok(())
    }

    /// Waits for a slot for one message of the client.
    async fn slot(&self) -> Result<mpsc::OwnedPermit<Box<ClientJsonRpcMessage>>, SessionError> {
        let inbox = self.state().inbox.clone().ok_or(SessionError::Session)?;
        inbox
            .reserve_owned()
            .await
            .map_err(|_| SessionError::Session)
    }

    /// Delivers a request, and returns a reader of its messages.
    pub(super) async fn request(
        &self,
        message: ClientJsonRpcMessage,
    ) -> Result<Reader, SessionError> {
        // A client that disconnects before there is a slot has not started anything.
        let slot = self.slot().await?;
        let mut state = self.state();
        if state.inbox.is_none() {
            return Err(SessionError::Session);
        }
        let reader = state.begin(&message, self.world.now());
        slot.send(Box::new(message));
        Ok(reader)
    }

    /// Returns a reader of the messages that belong to no request.
    pub(super) fn common(&self) -> Result<Reader, SessionError> {
        let mut state = self.state();
        if state.inbox.is_none() {
            return Err(SessionError::Session);
        }
        Ok(state.common.read_new())
    }

    /// Resumes reading after the event with this id.
    pub(super) fn resume(&self, event: &str) -> Result<Reader, SessionError> {
        let mut state = self.state();
        state.remove_expired(self.world.now());
        let (stream, index) = state.find(event)?;
        Ok(stream.resume(index))
    }

    /// Returns `true` if events follow the one with this id, now or later.
    pub(super) fn has_more(&self, event: &str) -> bool {
        let mut state = self.state();
        state.remove_expired(self.world.now());
        state
            .find(event)
            .is_ok_and(|(stream, index)| stream.has_more(index))
    }

    /// Removes ended streams that no client resumes.
    pub(super) fn remove_expired(&self) {
        self.state().remove_expired(self.world.now());
    }

    /// Sends a message to its stream, and returns the capacity that the sender waits for.
    fn send(&self, message: ServerJsonRpcMessage) -> Option<Capacity> {
        self.state().send(message, self.world.now())
    }

    fn state(&self) -> MutexGuard<'_, Routes> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The session's end of the connection.
pub(super) struct Wire {
    link: Arc<Link>,
    messages: mpsc::Receiver<Box<ClientJsonRpcMessage>>,
}

impl Transport<RoleServer> for Wire {
    type Error = io::Error;

    fn send(
        &mut self,
        message: ServerJsonRpcMessage,
    ) -> impl Future<Output = io::Result<()>> + Send + 'static {
        // The message is placed now; the sender waits while too much is unread.
        let (capacity, world) = (self.link.send(message), self.link.world.clone());
        async move {
            if let Some(capacity) = capacity {
                capacity.wait(world).await;
            }
            Ok(())
        }
    }

    async fn receive(&mut self) -> Option<ClientJsonRpcMessage> {
        self.messages.recv().await.map(|message| *message)
    }

    async fn close(&mut self) -> io::Result<()> {
        self.link.close();
        Ok(())
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.link.close();
    }
}

#[cfg(test)]
mod tests;
