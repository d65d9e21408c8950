//! Streams of events, from one run to any number of receivers.
//!
//! A run never waits for a receiver. Each receiver has its own bounded queue. A full queue first
//! loses transient events, because nothing else depends on them, and then its oldest durable ones.
//! The receiver learns the number of lost events by [`EventKind::Lagged`] and can replay the run to
//! get the durable ones back.

use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};

use futures_core::Stream;
use levity_core::{Event, EventKind};

/// A stream of the events in a run and its children, as they happen.
///
/// At most [`CAPACITY`](Self::CAPACITY) events wait for a slow receiver. Beyond that, transient
/// events are dropped first, then the oldest, and [`EventKind::Lagged`] reports their number: a
/// receiver never blocks a run.
///
/// It is also a [`Stream`](futures_core::Stream).
///
/// ```
/// use levity_core::EventKind;
/// use levity_runtime::Events;
///
/// /// Counts the tool calls of a run until it ends.
/// async fn tool_calls(mut events: Events) -> usize {
///     let mut calls = 0;
///     while let Some(event) = events.next().await {
///         calls += usize::from(matches!(event.kind, EventKind::ToolStarted { .. }));
///     }
///     calls
/// }
/// assert_eq!(Events::CAPACITY, 4_096);
/// ```
pub struct Events {
    queue: Arc<Queue>,
}

impl Events {
    /// The maximum number of events that wait for a slow receiver.
    pub const CAPACITY: usize = 4096;

    /// Returns the stream of a run that was not started.
    pub(crate) fn none() -> Self {
        let queue = Arc::new(Queue::default());
        queue.close();
        Self { queue }
    }

    /// Returns the next event, or `None` after the last one of the run.
    pub async fn next(&mut self) -> Option<Event> {
        poll_fn(|cx| self.queue.poll(cx)).await
    }
}

impl Stream for Events {
    type Item = Event;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Event>> {
        self.queue.poll(cx)
    }
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Events")
            .field("waiting", &self.queue.waiting().events.len())
            .finish()
    }
}

#[derive(Default)]
struct Queue {
    waiting: Mutex<Waiting>,
}

/// `fleeting` counts the transient events in the queue, so that a full queue knows without a search
/// if it can drop some.
#[derive(Default)]
struct Waiting {
    events: VecDeque<Event>,
    fleeting: usize,
    missed: u64,
    closed: bool,
    waker: Option<Waker>,
}

impl Waiting {
    /// Drops all transient events, or the oldest event if there are none. It drops all at once, so
    /// that an idle receiver costs no more than an active one.
    ///
    /// Dropping one at a time would search the whole queue for each new event.
    fn make_room(&mut self) {
        if self.fleeting == 0 {
            self.missed += u64::from(self.events.pop_front().is_some());
            return;
        }
        self.events.retain(|event| !event.kind.is_transient());
        self.missed += std::mem::take(&mut self.fleeting) as u64;
    }
}

impl Queue {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, event: Event) {
        let mut waiting = self.waiting();
        if waiting.events.len() >= Events::CAPACITY {
            if event.kind.is_transient() {
                waiting.missed += 1;
                return;
            }
            waiting.make_room();
        }
        waiting.fleeting += usize::from(event.kind.is_transient());
        waiting.events.push_back(event);
        let waker = waiting.waker.take();
        drop(waiting);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn close(&self) {
        let mut waiting = self.waiting();
        waiting.closed = true;
        if let Some(waker) = waiting.waker.take() {
            drop(waiting);
            waker.wake();
        }
    }

    /// A gap is reported before the first event that follows it, with that event's run, number and
    /// time.
    fn poll(&self, cx: &mut Context<'_>) -> Poll<Option<Event>> {
        let mut waiting = self.waiting();
        if waiting.missed > 0
            && let Some(next) = waiting.events.front()
        {
            let (run, seq, at) = (next.run.clone(), next.seq, next.at);
            let missed = std::mem::take(&mut waiting.missed);
            return Poll::Ready(Some(Event::new(run, seq, at, EventKind::Lagged { missed })));
        }
        if let Some(event) = waiting.events.pop_front() {
            waiting.fleeting -= usize::from(event.kind.is_transient());
            return Poll::Ready(Some(event));
        }
        if waiting.closed {
            return Poll::Ready(None);
        }
        waiting.waker = Some(cx.waker().clone());
        Poll::Pending
    }
}

/// A callback for each event, in order; it must not block. Progress of a blocking tool is reported
/// from that tool's thread, everything else from the task that drives the run.
///
/// ```
/// use std::sync::Arc;
///
/// use levity_core::Event;
/// use levity_runtime::Watcher;
///
/// let watcher: Watcher = Arc::new(|event: &Event| println!("{}", event.kind.name()));
/// ```
pub type Watcher = Arc<dyn Fn(&Event) + Send + Sync>;

/// Forwards the events of a run and its children to all receivers.
///
/// `watched` is `false` while nobody listens, and then the machine creates no events at all. Queues
/// are weak references: a receiver that is dropped is forgotten at the next event.
#[derive(Default)]
pub(crate) struct Hub {
    queues: Mutex<Vec<Weak<Queue>>>,
    watcher: Option<Watcher>,
    watched: AtomicBool,
    closed: AtomicBool,
}

impl Hub {
    pub(crate) fn new(watcher: Option<Watcher>) -> Self {
        let watched = AtomicBool::new(watcher.is_some());
        Self {
            watcher,
            watched,
            ..Self::default()
        }
    }

    /// A subscription to a run that has ended is closed at once.
    pub(crate) fn subscribe(&self) -> Events {
        let queue = Arc::new(Queue::default());
        let mut queues = self.queues();
        if self.closed.load(Ordering::Acquire) {
            queue.close();
        } else {
            queues.push(Arc::downgrade(&queue));
            self.watched.store(true, Ordering::Release);
        }
        Events { queue }
    }

    pub(crate) fn is_watched(&self) -> bool {
        self.watched.load(Ordering::Acquire)
    }

    pub(crate) fn publish(&self, event: Event) {
        if let Some(watcher) = &self.watcher {
            watcher(&event);
        }
        let mut queues = self.queues();
        queues.retain(|queue| queue.strong_count() > 0);
        if queues.is_empty() {
            self.watched
                .store(self.watcher.is_some(), Ordering::Release);
            return;
        }
        for queue in queues.iter().skip(1).filter_map(Weak::upgrade) {
            queue.push(event.clone());
        }
        if let Some(queue) = queues.first().and_then(Weak::upgrade) {
            queue.push(event);
        }
    }

    /// Closes the streams: receivers get their pending events, and then the end.
    pub(crate) fn close(&self) {
        let queues = std::mem::take(&mut *self.queues());
        self.closed.store(true, Ordering::Release);
        queues
            .iter()
            .filter_map(Weak::upgrade)
            .for_each(|queue| queue.close());
    }

    fn queues(&self) -> MutexGuard<'_, Vec<Weak<Queue>>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ends the receivers' streams however the run ends, even by an abort.
pub(crate) struct CloseOnDrop(pub(crate) Arc<Hub>);

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        self.0.close();
    }
}

#[cfg(test)]
mod tests {
    use levity_core::{CallId, EffectId, RunId, Timestamp};

    use super::*;

    fn event(kind: EventKind) -> Event {
        Event::new(RunId::new("r"), 0, Timestamp::default(), kind)
    }

    fn fleeting() -> Event {
        let (effect, call) = (EffectId::new(0), CallId::new("c"));
        event(EventKind::Progress {
            effect,
            call,
            text: String::new(),
        })
    }

    #[tokio::test]
    async fn transient_events_are_dropped_before_durable_ones() {
        let hub = Hub::new(None);
        let mut events = hub.subscribe();
        hub.publish(event(EventKind::Paused));
        (1..Events::CAPACITY).for_each(|_| hub.publish(fleeting()));
        (0..10).for_each(|_| hub.publish(event(EventKind::Resumed)));
        hub.publish(fleeting());
        hub.close();
        let mut kinds = Vec::new();
        while let Some(event) = events.next().await {
            kinds.push(event.kind);
        }
        assert_eq!(
            kinds[0],
            EventKind::Lagged {
                missed: Events::CAPACITY as u64 - 1
            }
        );
        assert_eq!(
            kinds[1],
            EventKind::Paused,
            "the oldest durable event is still there"
        );
        assert_eq!(kinds[2..12], [const { EventKind::Resumed }; 10]);
        assert_eq!(kinds.len(), 13);
    }
}
