//! Which message is about which request.

use std::collections::{HashMap, VecDeque};

use levity_core::Timestamp;
use levity_rpc::mcp::{
    ClientJsonRpcMessage, GetExtensions as _, GetMeta as _, OriginatingRequestId, ProgressToken,
    RequestId, ServerJsonRpcMessage, ServerNotification, answered_id,
};
use tokio::sync::{mpsc, oneshot};

use super::Gone;
use crate::mcp::strand::{Reader, Room, Strand};

/// How many requests are remembered that were answered, and how many bytes their events may have;
/// the last one always is. Nobody knows whether the client had the answer before it was cut off.
pub(super) const ENDED: (usize, usize) = (16, 1 << 20);

/// Where each message of a session belongs.
pub(super) struct Routes {
    /// Nothing when the session has ended.
    pub(super) inbox: Option<mpsc::Sender<Box<ClientJsonRpcMessage>>>,
    /// Whoever waits for the answer to the first request, which is no stream.
    pub(super) first: Option<oneshot::Sender<ServerJsonRpcMessage>>,
    /// What belongs to no request.
    pub(super) common: Strand,
    /// What belongs to one request, by its number.
    pub(super) strands: HashMap<u64, Strand>,
    /// Those to which nothing more comes, in the order in which they ended.
    pub(super) ended: VecDeque<u64>,
    pub(super) requests: HashMap<RequestId, u64>,
    pub(super) progress: HashMap<ProgressToken, u64>,
    next: u64,
}

impl Routes {
    pub(super) fn new(inbox: mpsc::Sender<Box<ClientJsonRpcMessage>>) -> Self {
        Self {
            inbox: Some(inbox),
            first: None,
            common: Strand::new(None),
            strands: HashMap::new(),
            ended: VecDeque::new(),
            requests: HashMap::new(),
            progress: HashMap::new(),
            next: 0,
        }
    }

    /// The row that an event is of, and its place there.
    pub(super) fn find(&mut self, event: &str) -> Result<(&mut Strand, u64), Gone> {
        let number = |text: &str| text.parse::<u64>().map_err(|_| Gone::Stream);
        let Some((index, strand)) = event.split_once('/') else {
            return Ok((&mut self.common, number(event)?));
        };
        let (index, strand) = (number(index)?, number(strand)?);
        Ok((self.strands.get_mut(&strand).ok_or(Gone::Stream)?, index))
    }

    pub(super) fn begin(&mut self, message: &ClientJsonRpcMessage, now: Timestamp) -> Reader {
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

    pub(super) fn send(&mut self, message: ServerJsonRpcMessage, now: Timestamp) -> Option<Room> {
        let answers = answered_id(&message).cloned();
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
                ServerNotification::CancelledNotification(cancelled) => self
                    .requests
                    .get(cancelled.params.request_id.as_ref()?)
                    .copied(),
                _ => None,
            },
            _ => None,
        }
    }

    /// Nothing more comes for a request.
    pub(super) fn end(&mut self, id: &RequestId, now: Timestamp) {
        let Some(number) = self.requests.remove(id) else {
            return;
        };
        self.progress.retain(|_, strand| *strand != number);
        if let Some(strand) = self.strands.get_mut(&number) {
            strand.end(now);
            self.ended.push_back(number);
        }
        self.forget(now);
    }

    /// Forgets requests that ended long ago, and the oldest of too many.
    pub(super) fn forget(&mut self, now: Timestamp) {
        self.strands.retain(|_, strand| !strand.is_over(now));
        let (strands, mut count, mut bytes) = (&mut self.strands, 0, 0);
        for number in self.ended.iter().rev() {
            let Some(strand) = strands.get(number) else {
                continue;
            };
            (count, bytes) = (count + 1, bytes + strand.bytes());
            if count > ENDED.0 || (count > 1 && bytes > ENDED.1) {
                strands.remove(number);
            }
        }
        self.ended.retain(|number| strands.contains_key(number));
    }
}
