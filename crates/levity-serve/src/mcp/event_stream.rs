//! A stream of events to a client over HTTP, which the client can resume after a disconnect.
//!
//! Each request has one stream, and each session has one more for messages without a request. The
//! last 16 events stay in memory, so that a client that reconnects continues where it was; the
//! stream of an answered request stays for one minute. Senders wait when 16 events are unread: a
//! client that does not read slows down its own calls and fills no memory.
//!
//! Event ids are `INDEX/REQUEST` for a request and `INDEX` for the common stream.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_core::Stream;
use levity_core::{Timestamp, World};
use levity_rpc::mcp::ServerJsonRpcMessage;
use levity_rpc::mcp::http_server::ServerSseMessage;
use tokio::sync::{Semaphore, mpsc};

/// The number of events that are retained for a disconnected client. Also the number of unread
/// events after which senders wait.
const RETAINED: usize = 16;

/// The maximum number of readers of messages that belong to no request. Only the first one receives
/// them; the others follow when it disconnects. A resuming client becomes the first.
const MAX_READERS: usize = 32;

/// The time for which the events of a request are retained after its end.
const RETENTION: Duration = Duration::from_secs(60);

/// The reconnection delay of clients.
const RETRY_DELAY: Duration = Duration::from_secs(3);

/// The maximum time for which senders of messages without a request wait for a reader. The messages
/// come from calls, whose responses must not wait behind a dead stream.
pub(super) const MAX_STALL: Duration = Duration::from_secs(10);

/// A sequence of events, numbered from 1; 0 is before the first.
pub(super) struct EventStream {
    /// The number of its request; `None` for messages that belong to no request.
    number: Option<u64>,
    /// The events that are retained for a disconnected client, with their numbers.
    retained: VecDeque<(u64, ServerSseMessage)>,
    last: u64,
    /// The last event that was sent to a reader.
    delivered: u64,
    outlets: Vec<Outlet>,
    /// The time of the end, and the number of retained bytes.
    ended: Option<(Timestamp, usize)>,
}

/// The sending side of one reader. The channel has no limit of its own; the semaphore counts the
/// unread events.
struct Outlet {
    events: mpsc::UnboundedSender<ServerSseMessage>,
    capacity: Arc<Semaphore>,
}

impl Drop for Outlet {
    /// No event is sent any more, so no sender waits for capacity.
    fn drop(&mut self) {
        self.capacity.close();
    }
}

/// The capacity that a sender waits for.
pub(super) struct Capacity {
    capacity: Arc<Semaphore>,
    max_wait: Option<Duration>,
}

impl Capacity {
    /// Waits until there is capacity for the message. If the reader takes too long, its stream
    /// ends, and the client resumes it.
    pub(super) async fn wait(self, world: Arc<dyn World>) {
        let Self { capacity, max_wait } = self;
        let taken = async {
            if let Ok(permit) = capacity.acquire().await {
                permit.forget();
            }
        };
        let Some(max_wait) = max_wait.filter(|_| capacity.available_permits() == 0) else {
            return taken.await;
        };
        tokio::select! {
            biased;
            () = taken => {}
            () = world.sleep(max_wait) => capacity.close(),
        }
    }
}

/// Creates both sides of a reader, with capacity for 16 unread events.
fn pair() -> (Outlet, Reader) {
    let (events, messages) = mpsc::unbounded_channel();
    let capacity = Arc::new(Semaphore::new(RETAINED));
    (
        Outlet {
            events,
            capacity: capacity.clone(),
        },
        Reader { messages, capacity },
    )
}

impl EventStream {
    pub(super) fn new(number: Option<u64>) -> Self {
        Self {
            number,
            retained: VecDeque::new(),
            last: 0,
            delivered: 0,
            outlets: Vec::new(),
            ended: None,
        }
    }

    /// Returns a reader of the unsent events and all later ones, unless another reader is active.
    /// The first message tells the client how to resume.
    pub(super) fn read_new(&mut self) -> Reader {
        let (outlet, reader) = pair();
        let _ = outlet.events.send(ServerSseMessage::priming(
            self.id(self.delivered),
            RETRY_DELAY,
        ));
        if self.active().is_none() {
            self.replay(&outlet, self.delivered);
        }
        if self.ended.is_none() {
            self.outlets.truncate(MAX_READERS - 1);
            self.outlets.push(outlet);
        }
        reader
    }

    /// Returns a reader that resumes after an event. A resuming client has lost its connection,
    /// even if that is not detected yet, so it receives everything from now on. A request's stream
    /// has only one reader. On the common stream, earlier readers wait, so that two clients do not
    /// displace each other.
    pub(super) fn resume(&mut self, after: u64) -> Reader {
        let (outlet, reader) = pair();
        self.replay(&outlet, after);
        if self.number.is_some() {
            self.outlets.clear();
        } else if let Some(before) = self.active() {
            // Senders must not wait for events that the successor receives as well.
            before.capacity.close();
        }
        if self.ended.is_none() {
            self.outlets.truncate(MAX_READERS - 1);
            self.outlets.insert(0, outlet);
        }
        reader
    }

    /// Returns `true` if events follow the given one, now or later.
    pub(super) fn has_more(&self, after: u64) -> bool {
        self.ended.is_none() || self.last > after
    }

    /// Sends the retained events after an index to a reader. Events that are no longer retained are
    /// lost.
    fn replay(&mut self, outlet: &Outlet, after: u64) {
        for (_, event) in self.retained.iter().filter(|(index, _)| *index > after) {
            let _ = outlet.events.send(event.clone());
        }
        self.delivered = self.last;
    }

    /// Returns the reader that currently receives events.
    fn active(&mut self) -> Option<&Outlet> {
        self.outlets.retain(|outlet| !outlet.events.is_closed());
        // A displaced reader has missed events. It ends, and its client resumes the stream.
        while self
            .outlets
            .first()
            .is_some_and(|outlet| outlet.capacity.is_closed())
        {
            self.outlets.remove(0);
        }
        self.outlets.first()
    }

    /// Adds an event, and returns the capacity that its sender waits for.
    pub(super) fn send(&mut self, message: ServerJsonRpcMessage) -> Option<Capacity> {
        self.last += 1;
        let event = ServerSseMessage::new(self.id(self.last), message);
        if self.retained.len() == RETAINED {
            self.retained.pop_front();
        }
        self.retained.push_back((self.last, event.clone()));
        let last = self.last;
        let outlet = self.active()?;
        let _ = outlet.events.send(event);
        let capacity = outlet.capacity.clone();
        self.delivered = last;
        Some(Capacity {
            capacity,
            max_wait: self.number.is_none().then_some(MAX_STALL),
        })
    }

    /// Ends the stream. No more events are added.
    pub(super) fn end(&mut self, now: Timestamp) {
        if self.ended.is_none() {
            self.ended = Some((
                now,
                self.retained.iter().map(|(_, event)| size(event)).sum(),
            ));
        }
        self.outlets.clear();
    }

    /// Returns `true` if the stream ended so long ago that no client resumes it.
    pub(super) fn is_expired(&self, now: Timestamp) -> bool {
        self.ended
            .is_some_and(|(ended, _)| now.since(ended) >= RETENTION)
    }

    /// Returns the number of retained bytes, once the stream has ended.
    pub(super) fn bytes(&self) -> usize {
        self.ended.map_or(0, |(_, bytes)| bytes)
    }

    /// Returns the id that clients send back to resume.
    fn id(&self, index: u64) -> String {
        match self.number {
            Some(number) => format!("{index}/{number}"),
            None => index.to_string(),
        }
    }
}

/// Returns the serialized size of an event.
fn size(event: &ServerSseMessage) -> usize {
    struct Count(usize);

    impl io::Write for Count {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    let mut count = Count(0);
    // An event that cannot be serialized was never retained.
    let _ = event
        .message
        .as_deref()
        .map(|message| serde_json::to_writer(&mut count, message));
    count.0
}

/// A reader of an event stream.
pub(super) struct Reader {
    messages: mpsc::UnboundedReceiver<ServerSseMessage>,
    capacity: Arc<Semaphore>,
}

impl Stream for Reader {
    type Item = ServerSseMessage;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<ServerSseMessage>> {
        let event = ready!(self.messages.poll_recv(cx));
        if event.is_some() {
            self.capacity.add_permits(1);
        }
        Poll::Ready(event)
    }
}

impl Drop for Reader {
    /// Senders do not wait for a dropped reader.
    fn drop(&mut self) {
        self.capacity.close();
    }
}
