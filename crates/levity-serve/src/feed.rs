//! The events of a run, buffered once and read by any number of clients.
//!
//! Each event is serialized once, and all readers share its bytes. A feed holds at most 4,096
//! events and 4 MiB; when it is full, it drops transient events first and then the oldest ones.
//! Readers notice the gap by the ordinals and report it as [`FeedItem::Missed`].
//!
//! An event id is the number of durable events up to it, such as `17`. It is the same in every
//! process, because the journal determines it. Once child runs have emitted events, the order is
//! specific to one feed, so the id also names the feed: `17~3fa80b210`.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use levity_core::{Event, EventKind, RunId};
use tokio::sync::watch;

/// The events of one run and its child runs, serialized once for any number of readers.
///
/// The feed waits for no reader: a reader that is slower than the run misses events and learns how
/// many.
///
/// Pushing never waits: it takes a lock, appends and wakes the readers. The lock is held only for
/// bookkeeping, never while JSON is written.
pub(crate) struct Feed {
    run: RunId,
    /// Identifies this process in event ids, because the order of events of child runs differs
    /// between processes.
    boot: Arc<str>,
    /// The maximum number of buffered events, and of their bytes.
    limits: (usize, usize),
    state: Mutex<State>,
    newest: watch::Sender<u64>,
}

/// The buffer and its counters. `next` and `durable` count all events that were ever pushed, also
/// those that were dropped.
#[derive(Default)]
struct State {
    waiting: VecDeque<FeedEvent>,
    bytes: usize,
    transient: usize,
    /// The ordinal of the next event, counting all events.
    next: u64,
    /// The number of durable events that were pushed.
    durable: u64,
    /// `true` once child runs have emitted events: from then on, the order is specific to this
    /// process.
    mixed: bool,
    closed: bool,
}

/// A serialized event in the feed.
#[derive(Clone, Debug)]
pub(crate) struct FeedEvent {
    ordinal: u64,
    /// The number of durable events up to and including this one.
    number: u64,
    durable: bool,
    mixed: bool,
    pub(crate) run: RunId,
    /// The name of the event's kind.
    pub(crate) name: &'static str,
    pub(crate) json: Bytes,
}

/// An item for readers within this crate: an event with the metadata that needs no parsing.
#[derive(Debug)]
pub(crate) enum FeedEntry {
    Event {
        id: Option<String>,
        event: FeedEvent,
    },
    /// The number of missed events, and of durable ones among them.
    Missed {
        count: u64,
        durable: u64,
    },
    Reset,
}

/// An item that an [`EventReader`] returns.
///
/// ```
/// use levity_loop::Agent;
/// use levity_serve::{FeedItem, NewRun, Runs};
/// use levity_test::ScriptedModel;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let agent = Agent::builder(ScriptedModel::new().reply("Yes.")).build()?;
/// let runs = Runs::new(agent);
/// let run = runs.start(NewRun::new("Is it?"))?;
/// let mut events = run.events(None);
/// let Some(FeedItem::Event { id, json }) = events.next().await else { panic!("no event") };
/// assert_eq!(id.as_deref(), Some("1"));
/// assert!(serde_json::from_slice::<serde_json::Value>(&json)?.is_object());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum FeedItem {
    /// An event of the run, as JSON.
    Event {
        /// The id from which a reader can resume; `None` for transient events.
        id: Option<String>,
        /// The event as JSON.
        json: Bytes,
    },
    /// The reader was too slow and missed this many events.
    Missed(u64),
    /// The id that the reader resumed from is no longer known. The following items start at the
    /// beginning, or at the first event that is still available.
    Reset,
}

impl Feed {
    /// The maximum number of buffered events.
    pub(crate) const EVENTS: usize = 4096;
    /// The maximum number of bytes of buffered events.
    pub(crate) const BYTES: usize = 4 << 20;
    /// Takes the position of the process id where events are read from the journal.
    const JOURNAL_BOOT: &str = "journal";

    pub(crate) fn new(run: RunId, boot: Arc<str>) -> Self {
        let limits = (Self::EVENTS, Self::BYTES);
        Self {
            run,
            boot,
            limits,
            state: Mutex::default(),
            newest: watch::Sender::new(0),
        }
    }

    /// Creates a feed of all events that the journal has of a run. No event is dropped, and the
    /// order is the same in every process.
    pub(crate) fn from_journal(run: RunId, events: &[Event]) -> Self {
        let feed = Self {
            limits: (usize::MAX, usize::MAX),
            ..Self::new(run, Self::JOURNAL_BOOT.into())
        };
        events.iter().for_each(|event| feed.push(event));
        feed.close();
        feed
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Transient events are not even serialized while nobody reads. An event that cannot be
    /// serialized is skipped; it takes no number.
    pub(crate) fn push(&self, event: &Event) {
        let durable = !event.kind.is_transient();
        if !durable && self.newest.receiver_count() == 0 {
            return;
        }
        let Ok(json) = serde_json::to_vec(event) else {
            return;
        };
        let mut state = self.state();
        state.mixed |=
            event.run != self.run || matches!(event.kind, EventKind::ChildStarted { .. });
        state.durable += u64::from(durable);
        let (ordinal, number, mixed) = (state.next, state.durable, state.mixed);
        state.next += 1;
        let (run, name, json) = (event.run.clone(), event.kind.name(), json.into());
        state.add(
            FeedEvent {
                ordinal,
                number,
                durable,
                mixed,
                run,
                name,
                json,
            },
            self.limits,
        );
        let next = state.next;
        drop(state);
        self.newest.send_replace(next);
    }

    /// Returns the number of bytes of buffered events.
    pub(crate) fn bytes(&self) -> usize {
        self.state().bytes
    }

    /// Closes the feed. No further events are pushed.
    pub(crate) fn close(&self) {
        self.state().closed = true;
        self.newest.send_modify(|_| {});
    }

    /// Returns a reader that starts after an id, or at the beginning.
    pub(crate) fn reader(self: &Arc<Self>, after: Option<&str>) -> EventReader {
        let newest = self.newest.subscribe();
        let start = self.state().next;
        let ((next, seen), reset) = match after {
            None => ((0, 0), false),
            Some(id) => self
                .position(id)
                .map_or(((0, 0), true), |position| (position, false)),
        };
        EventReader {
            feed: self.clone(),
            newest,
            next,
            seen,
            start,
            reset,
        }
    }

    /// Returns the ordinal of the event after the one with this id, and the number of durable
    /// events before it.
    ///
    /// Returns `None` if the id is malformed, comes from another feed, lies in the future, or if
    /// events after it were dropped. The reader then starts with a [`FeedItem::Reset`].
    fn position(&self, id: &str) -> Option<(u64, u64)> {
        let (number, boot) = match id.split_once('~') {
            Some((number, boot)) => (number, Some(boot)),
            None => (id, None),
        };
        let number: u64 = number.parse().ok()?;
        if boot.is_some_and(|boot| *boot != *self.boot) {
            return None;
        }
        let state = self.state();
        if number > state.durable {
            return None;
        }
        let is_behind = |event: &&FeedEvent| {
            event.number > number || (event.number == number && !event.durable)
        };
        let first = state.waiting.front().map_or(state.durable, |event| {
            event.number.saturating_sub(u64::from(event.durable))
        });
        // Events between the id and the first buffered one were dropped.
        if number < first {
            return None;
        }
        Some((
            state
                .waiting
                .iter()
                .find(is_behind)
                .map_or(state.next, |event| event.ordinal),
            number,
        ))
    }

    /// Returns the id from which a reader can resume; transient events have none.
    fn id(&self, event: &FeedEvent) -> Option<String> {
        event.durable.then(|| match event.mixed {
            true => format!("{}~{}", event.number, self.boot),
            false => event.number.to_string(),
        })
    }
}

impl State {
    /// Appends an event and drops others until both limits are met. The newest event always stays,
    /// even if it alone exceeds the bytes.
    fn add(&mut self, event: FeedEvent, (events, bytes): (usize, usize)) {
        self.bytes += event.json.len();
        self.transient += usize::from(!event.durable);
        self.waiting.push_back(event);
        while self.waiting.len() > events || (self.bytes > bytes && self.waiting.len() > 1) {
            self.make_room();
        }
    }

    /// Drops all transient events, or else the oldest event.
    fn make_room(&mut self) {
        if self.transient == 0 {
            self.bytes -= self.waiting.pop_front().map_or(0, |event| event.json.len());
            return;
        }
        self.transient = 0;
        self.waiting.retain(|event| event.durable);
        self.bytes = self.waiting.iter().map(|event| event.json.len()).sum();
    }

    /// Returns the first buffered event at or after `ordinal`.
    fn from(&self, ordinal: u64) -> Option<&FeedEvent> {
        let at = self
            .waiting
            .partition_point(|event| event.ordinal < ordinal);
        self.waiting.get(at)
    }
}

/// A reader of a run's events. It never delays the run.
///
/// Readers start at the beginning or after an event id, and any number of them can read the same
/// run. A reader of a run that has ended gets all its events and then `None`.
///
/// ```
/// use levity_loop::Agent;
/// use levity_serve::{FeedItem, NewRun, Runs};
/// use levity_test::ScriptedModel;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let agent = Agent::builder(ScriptedModel::new().reply("Yes.")).build()?;
/// let runs = Runs::new(agent);
/// let run = runs.start(NewRun::new("Is it?"))?;
/// let (mut events, mut last) = (run.events(None), None);
/// while let Some(item) = events.next().await {
///     if let FeedItem::Event { id: Some(id), .. } = item {
///         last = Some(id); // a reader that reconnects passes the last id
///     }
/// }
/// assert!(run.events(last.as_deref()).next().await.is_none(), "nothing follows the end");
/// # Ok(())
/// # }
/// ```
pub struct EventReader {
    feed: Arc<Feed>,
    newest: watch::Receiver<u64>,
    next: u64,
    /// The number of durable events before the next one.
    seen: u64,
    /// The ordinal of the next event at the time when the reader was created. Transient events
    /// before it do not count as missed.
    start: u64,
    reset: bool,
}

impl EventReader {
    /// Waits for the next item; `None` after the last one. Dropping the future loses nothing.
    ///
    /// ```
    /// use levity_loop::Agent;
    /// use levity_serve::{NewRun, Runs};
    /// use levity_test::ScriptedModel;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let agent = Agent::builder(ScriptedModel::new().reply("Yes.")).build()?;
    /// let runs = Runs::new(agent);
    /// let run = runs.start(NewRun::new("Is it?"))?;
    /// let (mut events, mut count) = (run.events(None), 0);
    /// while events.next().await.is_some() {
    ///     count += 1;
    /// }
    /// assert!(count > 0);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn next(&mut self) -> Option<FeedItem> {
        Some(match self.next_item().await? {
            FeedEntry::Event { id, event } => FeedItem::Event {
                id,
                json: event.json,
            },
            FeedEntry::Missed { count, .. } => FeedItem::Missed(count),
            FeedEntry::Reset => FeedItem::Reset,
        })
    }

    /// Same as [`next`](Self::next), with the metadata of the event.
    pub(crate) async fn next_item(&mut self) -> Option<FeedEntry> {
        loop {
            self.newest.borrow_and_update();
            match self.step() {
                Step::Item(item) => return Some(item),
                Step::End => return None,
                Step::Wait => self.newest.changed().await.ok()?,
            }
        }
    }

    /// Returns the next item if one is available without waiting.
    pub(crate) fn try_next_item(&mut self) -> Option<FeedEntry> {
        match self.step() {
            Step::Item(item) => Some(item),
            Step::End | Step::Wait => None,
        }
    }

    /// Decides on the next item without waiting. A gap is reported before the event that follows
    /// it, and the position moves with each report, so that a gap is reported once.
    fn step(&mut self) -> Step {
        if std::mem::take(&mut self.reset) {
            return Step::Item(FeedEntry::Reset);
        }
        let state = self.feed.state();
        let Some(event) = state.from(self.next).cloned() else {
            return if state.closed { Step::End } else { Step::Wait };
        };
        drop(state);
        let before = event.number - u64::from(event.durable);
        let durable = before.saturating_sub(self.seen);
        let count = event
            .ordinal
            .saturating_sub(self.next.max(self.start))
            .max(durable);
        (self.next, self.seen) = (event.ordinal, before);
        if count > 0 {
            return Step::Item(FeedEntry::Missed { count, durable });
        }
        (self.next, self.seen) = (event.ordinal + 1, event.number);
        let id = self.feed.id(&event);
        Step::Item(FeedEntry::Event { id, event })
    }
}

/// The result of one step: an item, nothing yet, or the end of a closed feed.
enum Step {
    Item(FeedEntry),
    Wait,
    End,
}

impl std::fmt::Debug for EventReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EventReader")
            .field("run", &self.feed.run)
            .field("next", &self.next)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
