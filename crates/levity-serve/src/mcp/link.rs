//! What goes in and out of one session over HTTP.
//!
//! The library has this too, with four queues of whole messages for each session, which are most of
//! the memory of one that only waits. It forgets an answer with which its client was cut off, and
//! gives the last event that a client had once more.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use levity_core::{Timestamp, World};
use levity_rpc::mcp::{
    ClientJsonRpcMessage, RoleServer, ServerJsonRpcMessage, Transport, cancelled_id,
};
use tokio::sync::{mpsc, oneshot};

use super::strand::{Reader, Room};

mod routes;

use routes::Routes;

/// How many messages of the client wait for the session; more make their requests wait.
const INBOX: usize = 16;

/// Between the session, which works on messages, and the HTTP requests that bring and fetch them.
pub(super) struct Link {
    world: Arc<dyn World>,
    state: Mutex<Routes>,
}

/// Why a session cannot do what a request wants of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Gone {
    #[error("there is no such session; begin one with `initialize`")]
    Session,
    #[error("too many sessions are open; close one, or try again later")]
    Full,
    #[error("there is nothing more of that stream")]
    Stream,
}

impl Link {
    /// A session's two ends.
    pub(super) fn new(world: Arc<dyn World>) -> (Arc<Self>, Wire) {
        let (inbox, messages) = mpsc::channel(INBOX);
        let state = Routes::new(inbox);
        let link = Arc::new(Self {
            world,
            state: Mutex::new(state),
        });
        (link.clone(), Wire { link, messages })
    }

    /// Ends the session, and all that is read of it.
    pub(super) fn close(&self) {
        let mut state = self.state();
        state.inbox = None;
        state.first = None;
        state.common.end(Timestamp::default());
        state.strands.clear();
    }

    /// Hands over the first request, and waits for its answer.
    pub(super) async fn initialize(
        &self,
        message: ClientJsonRpcMessage,
    ) -> Result<ServerJsonRpcMessage, Gone> {
        let (first, answer) = oneshot::channel();
        self.state().first = Some(first);
        self.push(message).await?;
        answer.await.map_err(|_| Gone::Session)
    }

    /// Hands over a message that is answered by nothing.
    pub(super) async fn push(&self, message: ClientJsonRpcMessage) -> Result<(), Gone> {
        let place = self.place().await?;
        if let Some(id) = cancelled_id(&message) {
            // It is not answered any more.
            self.state().end(id, self.world.now());
        }
        place.send(Box::new(message));
        Ok(())
    }

    /// A place for one message of the client.
    async fn place(&self) -> Result<mpsc::OwnedPermit<Box<ClientJsonRpcMessage>>, Gone> {
        let inbox = self.state().inbox.clone().ok_or(Gone::Session)?;
        inbox.reserve_owned().await.map_err(|_| Gone::Session)
    }

    /// Hands over a request, and reads what belongs to it.
    pub(super) async fn request(&self, message: ClientJsonRpcMessage) -> Result<Reader, Gone> {
        // Whoever leaves before there is a place has not begun anything.
        let place = self.place().await?;
        let mut state = self.state();
        if state.inbox.is_none() {
            return Err(Gone::Session);
        }
        let reader = state.begin(&message, self.world.now());
        place.send(Box::new(message));
        Ok(reader)
    }

    /// Reads what belongs to no request.
    pub(super) fn common(&self) -> Result<Reader, Gone> {
        let mut state = self.state();
        if state.inbox.is_none() {
            return Err(Gone::Session);
        }
        Ok(state.common.read_new())
    }

    /// Goes on reading behind the event with this id.
    pub(super) fn resume(&self, event: &str) -> Result<Reader, Gone> {
        let mut state = self.state();
        state.forget(self.world.now());
        let (strand, index) = state.find(event)?;
        Ok(strand.read_again(index))
    }

    /// Whether anything comes behind the event with this id.
    pub(super) fn has_more(&self, event: &str) -> bool {
        let mut state = self.state();
        state.forget(self.world.now());
        state
            .find(event)
            .is_ok_and(|(strand, index)| strand.has_more(index))
    }

    /// Forgets what nobody comes back for.
    pub(super) fn forget(&self) {
        self.state().forget(self.world.now());
    }

    /// Puts a message where it belongs; gives what its sender waits for.
    fn send(&self, message: ServerJsonRpcMessage) -> Option<Room> {
        self.state().send(message, self.world.now())
    }

    fn state(&self) -> MutexGuard<'_, Routes> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The session's own end.
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
        // It has its place from now on; whoever sent it waits while too much is not fetched.
        let (room, world) = (self.link.send(message), self.link.world.clone());
        async move {
            if let Some(room) = room {
                room.wait(world).await;
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
