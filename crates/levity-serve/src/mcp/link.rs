//! What goes in and out of one session over HTTP.
//!
//! The library has this too, with four queues of whole messages for each session, which are most of the memory of one that only
//! waits. It forgets an answer with which its client was cut off, and gives the last event that a client had once more.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use levity_core::{Timestamp, World};
use rmcp::RoleServer;
use rmcp::model::{
    ClientJsonRpcMessage, ClientNotification, GetExtensions as _, GetMeta as _, ProgressToken, RequestId,
    ServerJsonRpcMessage, ServerNotification,
};
use rmcp::service::OriginatingRequestId;
use rmcp::transport::Transport;
use tokio::sync::{mpsc, oneshot};

use super::strand::{Reader, Room, Strand};

/// How many messages of the client wait for the session; more make their requests wait.
const INBOX: usize = 16;

/// How many requests are remembered that were answered, and how many bytes their events may have; the last one always is. Nobody
/// knows whether the client had the answer before it was cut off.
const ENDED: (usize, usize) = (16, 1 << 20);

/// Between the session, which works on messages, and the HTTP requests that bring and fetch them.
pub(super) struct Link {
    world: Arc<dyn World>,
    state: Mutex<State>,
}

struct State {
    /// Nothing when the session has ended.
    inbox: Option<mpsc::Sender<Box<ClientJsonRpcMessage>>>,
    /// Whoever waits for the answer to the first request, which is no stream.
    first: Option<oneshot::Sender<ServerJsonRpcMessage>>,
    /// What belongs to no request.
    common: Strand,
    /// What belongs to one request, by its number.
    strands: HashMap<u64, Strand>,
    /// Those to which nothing more comes, in the order in which they ended.
    ended: VecDeque<u64>,
    requests: HashMap<RequestId, u64>,
    progress: HashMap<ProgressToken, u64>,
    next: u64,
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
        let state = State {
            inbox: Some(inbox),
            first: None,
            common: Strand::new(None),
            strands: HashMap::new(),
            ended: VecDeque::new(),
            requests: HashMap::new(),
            progress: HashMap::new(),
            next: 0,
        };
        let link = Arc::new(Self { world, state: Mutex::new(state) });
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
        if let ClientJsonRpcMessage::Notification(notification) = &message
            && let ClientNotification::CancelledNotification(cancelled) = &notification.notification
            && let Some(id) = &cancelled.params.request_id
        {
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
        state.find(event).is_ok_and(|(strand, index)| strand.has_more(index))
    }

    /// Forgets what nobody comes back for.
    pub(super) fn forget(&self) {
        self.state().forget(self.world.now());
    }

    /// Puts a message where it belongs; gives what its sender waits for.
    fn send(&self, message: ServerJsonRpcMessage) -> Option<Room> {
        self.state().send(message, self.world.now())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// The row that an event is of, and its place there.
    fn find(&mut self, event: &str) -> Result<(&mut Strand, u64), Gone> {
        let number = |text: &str| text.parse::<u64>().map_err(|_| Gone::Stream);
        let Some((index, strand)) = event.split_once('/') else {
            return Ok((&mut self.common, number(event)?));
        };
        let (index, strand) = (number(index)?, number(strand)?);
        Ok((self.strands.get_mut(&strand).ok_or(Gone::Stream)?, index))
    }

    fn begin(&mut self, message: &ClientJsonRpcMessage, now: Timestamp) -> Reader {
        let number = self.next;
        self.next += 1;
        let mut strand = Strand::new(Some(number));
        let reader = strand.read_new();
        self.strands.insert(number, strand);
        if let ClientJsonRpcMessage::Request(request) = message {
            // An id that is used anew means the new request.
            self.end(&request.id, now);
            self.requests.insert(request.id.clone(), number);
            if let Some(token) = request.request.get_meta().get_progress_token() {
                self.progress.insert(token, number);
            }
        }
        reader
    }

    fn send(&mut self, message: ServerJsonRpcMessage, now: Timestamp) -> Option<Room> {
        let answers = match &message {
            ServerJsonRpcMessage::Response(response) => Some(response.id.clone()),
            ServerJsonRpcMessage::Error(error) => error.id.clone(),
            _ => None,
        };
        if answers.is_some()
            && let Some(first) = self.first.take()
        {
            if first.send(message).is_err() {
                // Whoever asked has left. Nobody else knows of the session.
                self.inbox = None;
            }
            return None;
        }
        let strand = match &answers {
            // Nobody waits for the answer to a request that was cancelled.
            Some(id) => self.strands.get_mut(self.requests.get(id)?)?,
            None => match self.strand_of(&message) {
                Some(number) => self.strands.get_mut(&number)?,
                None => &mut self.common,
            },
        };
        let room = strand.send(message);
        if let Some(id) = answers {
            self.end(&id, now);
        }
        room
    }

    /// The request that a message is about.
    fn strand_of(&self, message: &ServerJsonRpcMessage) -> Option<u64> {
        match message {
            ServerJsonRpcMessage::Request(asks) => {
                let about = asks.request.extensions().get::<OriginatingRequestId>()?;
                self.requests.get(&about.0).copied()
            }
            ServerJsonRpcMessage::Notification(notice) => match &notice.notification {
                ServerNotification::ProgressNotification(progress) => {
                    self.progress.get(&progress.params.progress_token).copied()
                }
                ServerNotification::CancelledNotification(cancelled) => {
                    self.requests.get(cancelled.params.request_id.as_ref()?).copied()
                }
                _ => None,
            },
            _ => None,
        }
    }

    /// Nothing more comes for a request.
    fn end(&mut self, id: &RequestId, now: Timestamp) {
        let Some(number) = self.requests.remove(id) else { return };
        self.progress.retain(|_, strand| *strand != number);
        if let Some(strand) = self.strands.get_mut(&number) {
            strand.end(now);
            self.ended.push_back(number);
        }
        self.forget(now);
    }

    /// Forgets requests that ended long ago, and the oldest of too many.
    fn forget(&mut self, now: Timestamp) {
        self.strands.retain(|_, strand| !strand.is_over(now));
        let (strands, mut count, mut bytes) = (&mut self.strands, 0, 0);
        for number in self.ended.iter().rev() {
            let Some(strand) = strands.get(number) else { continue };
            (count, bytes) = (count + 1, bytes + strand.bytes());
            if count > ENDED.0 || (count > 1 && bytes > ENDED.1) {
                strands.remove(number);
            }
        }
        self.ended.retain(|number| strands.contains_key(number));
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
