//! One row of events to a client over HTTP, which may be cut off and come back for the rest.

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

/// How many events are kept for a client that was cut off, and how many wait for one that is there
/// before senders wait too.
const KEPT: usize = 16;

/// How many read what belongs to no request. Only the first has it; the others take its place when
/// it leaves. Whoever comes back is the first.
const READERS: usize = 32;

/// How long what belonged to a request is kept after its end.
const LASTS: Duration = Duration::from_secs(60);

/// How soon a client that was cut off comes back.
const RETRY: Duration = Duration::from_secs(3);

/// How long senders of what belongs to no request wait for somebody who reads nothing of it. What
/// they send comes from calls, whose answers must not wait behind a stream that may be dead.
pub(super) const STALLED: Duration = Duration::from_secs(10);

/// Events in a row, numbered from 1; 0 is before the first.
pub(super) struct Strand {
    /// Its number among those of requests.
    number: Option<u64>,
    /// The last events.
    kept: VecDeque<(u64, ServerSseMessage)>,
    last: u64,
    /// The last that somebody was there for.
    handed: u64,
    outlets: Vec<Outlet>,
    /// When it ended, and how many bytes are kept of it.
    ended: Option<(Timestamp, usize)>,
}

struct Outlet {
    events: mpsc::UnboundedSender<ServerSseMessage>,
    room: Arc<Semaphore>,
}

impl Drop for Outlet {
    /// Nothing more goes this way, so nobody waits for room in it.
    fn drop(&mut self) {
        self.room.close();
    }
}

/// What a sender waits for.
pub(super) struct Room {
    room: Arc<Semaphore>,
    most: Option<Duration>,
}

impl Room {
    /// Waits until there is room for what was sent. Whoever makes none for too long has its stream
    /// ended; it comes back for the rest.
    pub(super) async fn wait(self, world: Arc<dyn World>) {
        let Self { room, most } = self;
        let taken = async {
            if let Ok(place) = room.acquire().await {
                place.forget();
            }
        };
        let Some(most) = most.filter(|_| room.available_permits() == 0) else {
            return taken.await;
        };
        tokio::select! {
            biased;
            () = taken => {}
            () = world.sleep(most) => room.close(),
        }
    }
}

fn pair() -> (Outlet, Reader) {
    let (events, messages) = mpsc::unbounded_channel();
    let room = Arc::new(Semaphore::new(KEPT));
    (
        Outlet {
            events,
            room: room.clone(),
        },
        Reader { messages, room },
    )
}

impl Strand {
    pub(super) fn new(number: Option<u64>) -> Self {
        Self {
            number,
            kept: VecDeque::new(),
            last: 0,
            handed: 0,
            outlets: Vec::new(),
            ended: None,
        }
    }

    /// Reads what nobody was there for, and what comes then; whoever reads it already has it until
    /// they leave. The reader is told at once how to come back.
    pub(super) fn read_new(&mut self) -> Reader {
        let (outlet, reader) = pair();
        let _ = outlet
            .events
            .send(ServerSseMessage::priming(self.id(self.handed), RETRY));
        if self.active().is_none() {
            self.replay(&outlet, self.handed);
        }
        if self.ended.is_none() {
            self.outlets.truncate(READERS - 1);
            self.outlets.push(outlet);
        }
        reader
    }

    /// Goes on behind an event. Whoever comes back has lost what it read before, though that may
    /// not be known here yet: it has everything from now on. What belongs to a request has one
    /// reader only. Of the others, those who are there merely wait, so that two clients do not
    /// drive each other away.
    pub(super) fn read_again(&mut self, after: u64) -> Reader {
        let (outlet, reader) = pair();
        self.replay(&outlet, after);
        if self.number.is_some() {
            self.outlets.clear();
        } else if let Some(before) = self.active() {
            // Nobody waits until it has read what is given to its successor as well.
            before.room.close();
        }
        if self.ended.is_none() {
            self.outlets.truncate(READERS - 1);
            self.outlets.insert(0, outlet);
        }
        reader
    }

    /// Whether there is anything behind an event, or will be.
    pub(super) fn has_more(&self, after: u64) -> bool {
        self.ended.is_none() || self.last > after
    }

    fn replay(&mut self, outlet: &Outlet, after: u64) {
        for (_, event) in self.kept.iter().filter(|(index, _)| *index > after) {
            let _ = outlet.events.send(event.clone());
        }
        self.handed = self.last;
    }

    /// Who is given events now.
    fn active(&mut self) -> Option<&Outlet> {
        self.outlets.retain(|outlet| !outlet.events.is_closed());
        // One that had to give up its place does not know what came meanwhile. It ends, and its
        // client comes back for that.
        while self
            .outlets
            .first()
            .is_some_and(|outlet| outlet.room.is_closed())
        {
            self.outlets.remove(0);
        }
        self.outlets.first()
    }

    /// Adds an event; gives what its sender waits for.
    pub(super) fn send(&mut self, message: ServerJsonRpcMessage) -> Option<Room> {
        self.last += 1;
        let event = ServerSseMessage::new(self.id(self.last), message);
        if self.kept.len() == KEPT {
            self.kept.pop_front();
        }
        self.kept.push_back((self.last, event.clone()));
        let last = self.last;
        let outlet = self.active()?;
        let _ = outlet.events.send(event);
        let room = outlet.room.clone();
        self.handed = last;
        Some(Room {
            room,
            most: self.number.is_none().then_some(STALLED),
        })
    }

    /// Nothing more is added.
    pub(super) fn end(&mut self, now: Timestamp) {
        if self.ended.is_none() {
            self.ended = Some((now, self.kept.iter().map(|(_, event)| size(event)).sum()));
        }
        self.outlets.clear();
    }

    /// Whether it ended so long ago that nobody comes back for it.
    pub(super) fn is_over(&self, now: Timestamp) -> bool {
        self.ended
            .is_some_and(|(ended, _)| now.since(ended) >= LASTS)
    }

    /// How many bytes are kept of it, once it has ended.
    pub(super) fn bytes(&self) -> usize {
        self.ended.map_or(0, |(_, bytes)| bytes)
    }

    fn id(&self, index: u64) -> String {
        match self.number {
            Some(number) => format!("{index}/{number}"),
            None => index.to_string(),
        }
    }
}

/// How long an event is when it is written out.
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
    // What cannot be written out was not kept by anybody.
    let _ = event
        .message
        .as_deref()
        .map(|message| serde_json::to_writer(&mut count, message));
    count.0
}

/// What a client reads of a strand.
pub(super) struct Reader {
    messages: mpsc::UnboundedReceiver<ServerSseMessage>,
    room: Arc<Semaphore>,
}

impl Stream for Reader {
    type Item = ServerSseMessage;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<ServerSseMessage>> {
        let event = ready!(self.messages.poll_recv(cx));
        if event.is_some() {
            self.room.add_permits(1);
        }
        Poll::Ready(event)
    }
}

impl Drop for Reader {
    /// Nobody waits for a reader who has left.
    fn drop(&mut self) {
        self.room.close();
    }
}
