//! Assigns messages to requests.
//!
//! A response belongs to the request with its id, progress to the request with its token, and a
//! question to the request that caused it. Everything else goes to the common stream. Up to 16
//! answered requests stay readable for a client that lost its connection, within 1 MiB.

use std::collections::{HashMap, VecDeque};

use levity_core::Timestamp;
use levity_rpc::mcp::{
    ClientJsonRpcMessage, GetExtensions as _, GetMeta as _, OriginatingRequestId, ProgressToken,
    RequestId, ServerJsonRpcMessage, ServerNotification, answered_id,
};
use tokio::sync::{mpsc, oneshot};

use super::SessionError;
use crate::mcp::event_stream::{Capacity, EventStream, Reader};

/// The maximum number of answered requests that are remembered, and of the bytes of their events;
/// the latest one always is. The server cannot know if a client received the response before a
/// disconnect.
pub(super) const ENDED: (usize, usize) = (16, 1 << 20);

/// The streams of a session, by request.
pub(super) struct Routes {
    /// The queue of client messages; `None` when the session has ended.
    pub(super) inbox: Option<mpsc::Sender<Box<ClientJsonRpcMessage>>>,
    /// Receives the response to the first request, which has no stream.
    pub(super) first: Option<oneshot::Sender<ServerJsonRpcMessage>>,
    /// The messages that belong to no request.
    pub(super) common: EventStream,
    /// The messages of one request, by its number.
    pub(super) streams: HashMap<u64, EventStream>,
    /// The ended streams, in the order in which they ended.
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
            common: EventStream::new(None),
            streams: HashMap::new(),
            ended: VecDeque::new(),
            requests: HashMap::new(),
            progress: HashMap::new(),
            next: 0,
        }
    }

    /// Returns the stream of an event, and the position of the event in it.
    pub(super) fn find(&mut self, event: &str) -> Result<(&mut EventStream, u64), SessionError> {
        let number = |text: &str| text.parse::<u64>().map_err(|_| SessionError::Stream);
        let Some((index, stream)) = event.split_once('/') else {
            return Ok((&mut self.common, number(event)?));
        };
        let (index, stream) = (number(index)?, number(stream)?);
        Ok((
            self.streams.get_mut(&stream).ok_or(SessionError::Stream)?,
            index,
        ))
    }

    /// Opens the stream of a request and returns its reader. Streams have their own numbers,
    /// because clients may reuse request ids.
    pub(super) fn begin(&mut self, message: &ClientJsonRpcMessage, now: Timestamp) -> Reader {
        let number = self.next;
        self.next += 1;
        let mut stream = EventStream::new(Some(number));
        let reader = stream.read_new();
        self.streams.insert(number, stream);
        if let ClientJsonRpcMessage::Request(request) = message {
            // A reused id refers to the new request.
            self.end(&request.id, now);
            self.requests.insert(request.id.clone(), number);
            if let Some(token) = request.request.get_meta().get_progress_token() {
                self.progress.insert(token, number);
            }
        }
        reader
    }

    /// Puts a message into its stream. The response of a request ends its stream; the response to a
    /// cancelled request is dropped.
    pub(super) fn send(
        &mut self,
        message: ServerJsonRpcMessage,
        now: Timestamp,
    ) -> Option<Capacity> {
        let answers = answered_id(&message).cloned();
        if answers.is_some()
            && let Some(first) = self.first.take()
        {
            if first.send(message).is_err() {
                // The client has disconnected, and no other client can use the session.
                self.inbox = None;
            }
            return None;
        }
        let stream = match &answers {
            // A cancelled request gets no response.
            Some(id) => self.streams.get_mut(self.requests.get(id)?)?,
            None => match self.stream_of(&message) {
                Some(number) => self.streams.get_mut(&number)?,
                None => &mut self.common,
            },
        };
        let capacity = stream.send(message);
        if let Some(id) = answers {
            self.end(&id, now);
        }
        capacity
    }

    /// Returns the request that a message belongs to.
    fn stream_of(&self, message: &ServerJsonRpcMessage) -> Option<u64> {
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

    /// Ends the stream of a request.
    pub(super) fn end(&mut self, id: &RequestId, now: Timestamp) {
        let Some(number) = self.requests.remove(id) else {
            return;
        };
        self.progress.retain(|_, stream| *stream != number);
        if let Some(stream) = self.streams.get_mut(&number) {
            stream.end(now);
            self.ended.push_back(number);
        }
        self.remove_expired(now);
    }

    /// Removes requests that ended long ago, and the oldest of too many.
    pub(super) fn remove_expired(&mut self, now: Timestamp) {
        self.streams.retain(|_, stream| !stream.is_expired(now));
        let (streams, mut count, mut bytes) = (&mut self.streams, 0, 0);
        for number in self.ended.iter().rev() {
            let Some(stream) = streams.get(number) else {
                continue;
            };
            (count, bytes) = (count + 1, bytes + stream.bytes());
            if count > ENDED.0 || (count > 1 && bytes > ENDED.1) {
                streams.remove(number);
            }
        }
        self.ended.retain(|number| streams.contains_key(number));
    }
}
