use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use levity_core::{Event, EventKind, RunId};
use tokio::sync::watch;

/// The events of one run and the runs below it, written down once for however many readers.
///
/// Nobody is waited for: a reader that is slower than the run misses something, and is told how
/// much.
pub(crate) struct Feed {
    run: RunId,
    /// What tells the order of events in this process from that in another, where runs below took
    /// part.
    boot: Arc<str>,
    /// How many events may wait, and how many bytes of them.
    most: (usize, usize),
    state: Mutex<State>,
    newest: watch::Sender<u64>,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Told>,
    bytes: usize,
    fleeting: usize,
    /// The number of the next event, all counted.
    next: u64,
    /// How many events that last there were.
    lasting: u64,
    /// Whether runs below this one have told something: their order is that of this process alone.
    mixed: bool,
    closed: bool,
}

/// An event as readers get it.
#[derive(Clone, Debug)]
pub(crate) struct Told {
    ordinal: u64,
    /// How many events that last there were, this one included.
    number: u64,
    lasting: bool,
    mixed: bool,
    pub(crate) run: RunId,
    /// What the event is called.
    pub(crate) name: &'static str,
    pub(crate) json: Bytes,
}

/// What a reader within this crate gets: an event with what is known about it without reading it.
#[derive(Debug)]
pub(crate) enum Given {
    Event {
        id: Option<String>,
        told: Told,
    },
    /// So many events, and so many among them that last.
    Missed {
        count: u64,
        lasting: u64,
    },
    Reset,
}

/// What a reader gets.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Item {
    /// An event, as JSON.
    Event {
        /// By which a reader can go on from here; what is fleeting has none.
        id: Option<String>,
        /// The event.
        json: Bytes,
    },
    /// This reader was too slow, and missed something.
    Missed(u64),
    /// The id that the reader went on from is not known any more: what follows is told from the
    /// beginning, or from the first that is still known.
    Reset,
}

impl Feed {
    /// How many events wait for readers.
    pub(crate) const EVENTS: usize = 4096;
    /// How many bytes of them.
    pub(crate) const BYTES: usize = 4 << 20;
    /// Stands for a process where events are told from the journal.
    const KEPT: &str = "journal";

    pub(crate) fn new(run: RunId, boot: Arc<str>) -> Self {
        let most = (Self::EVENTS, Self::BYTES);
        Self {
            run,
            boot,
            most,
            state: Mutex::default(),
            newest: watch::Sender::new(0),
        }
    }

    /// All that the journal has of a run. It is there already, so nothing of it leaves, and its
    /// order is the same in every process.
    pub(crate) fn kept(run: RunId, events: &[Event]) -> Self {
        let feed = Self {
            most: (usize::MAX, usize::MAX),
            ..Self::new(run, Self::KEPT.into())
        };
        events.iter().for_each(|event| feed.push(event));
        feed.close();
        feed
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn push(&self, event: &Event) {
        let lasting = !event.kind.is_fleeting();
        if !lasting && self.newest.receiver_count() == 0 {
            return;
        }
        let Ok(json) = serde_json::to_vec(event) else {
            return;
        };
        let mut state = self.state();
        state.mixed |=
            event.run != self.run || matches!(event.kind, EventKind::ChildStarted { .. });
        state.lasting += u64::from(lasting);
        let (ordinal, number, mixed) = (state.next, state.lasting, state.mixed);
        state.next += 1;
        let (run, name, json) = (event.run.clone(), event.kind.name(), json.into());
        state.add(
            Told {
                ordinal,
                number,
                lasting,
                mixed,
                run,
                name,
                json,
            },
            self.most,
        );
        let next = state.next;
        drop(state);
        self.newest.send_replace(next);
    }

    /// How many bytes of events are kept.
    pub(crate) fn bytes(&self) -> usize {
        self.state().bytes
    }

    /// Nothing more is told.
    pub(crate) fn close(&self) {
        self.state().closed = true;
        self.newest.send_modify(|_| {});
    }

    /// Reads on behind an id, or from the beginning.
    pub(crate) fn reader(self: &Arc<Self>, after: Option<&str>) -> Reader {
        let newest = self.newest.subscribe();
        let began = self.state().next;
        let ((next, seen), reset) = match after {
            None => ((0, 0), false),
            Some(id) => self
                .place(id)
                .map_or(((0, 0), true), |place| (place, false)),
        };
        Reader {
            feed: self.clone(),
            newest,
            next,
            seen,
            began,
            reset,
        }
    }

    /// The number of the event behind the one of this id, and how many that last are before it.
    fn place(&self, id: &str) -> Option<(u64, u64)> {
        let (number, boot) = match id.split_once('~') {
            Some((number, boot)) => (number, Some(boot)),
            None => (id, None),
        };
        let number: u64 = number.parse().ok()?;
        if boot.is_some_and(|boot| *boot != *self.boot) {
            return None;
        }
        let state = self.state();
        if number > state.lasting {
            return None;
        }
        let is_behind =
            |told: &&Told| told.number > number || (told.number == number && !told.lasting);
        let first = state.waiting.front().map_or(state.lasting, |told| {
            told.number.saturating_sub(u64::from(told.lasting))
        });
        // What was in between has left.
        if number < first {
            return None;
        }
        Some((
            state
                .waiting
                .iter()
                .find(is_behind)
                .map_or(state.next, |told| told.ordinal),
            number,
        ))
    }

    fn id(&self, told: &Told) -> Option<String> {
        told.lasting.then(|| match told.mixed {
            true => format!("{}~{}", told.number, self.boot),
            false => told.number.to_string(),
        })
    }
}

impl State {
    fn add(&mut self, told: Told, (events, bytes): (usize, usize)) {
        self.bytes += told.json.len();
        self.fleeting += usize::from(!told.lasting);
        self.waiting.push_back(told);
        while self.waiting.len() > events || (self.bytes > bytes && self.waiting.len() > 1) {
            self.make_room();
        }
    }

    /// Leaves out all that is fleeting, or else the oldest event.
    fn make_room(&mut self) {
        if self.fleeting == 0 {
            self.bytes -= self.waiting.pop_front().map_or(0, |told| told.json.len());
            return;
        }
        self.fleeting = 0;
        self.waiting.retain(|told| told.lasting);
        self.bytes = self.waiting.iter().map(|told| told.json.len()).sum();
    }

    /// The first event from `ordinal` on that is still there.
    fn from(&self, ordinal: u64) -> Option<&Told> {
        let at = self.waiting.partition_point(|told| told.ordinal < ordinal);
        self.waiting.get(at)
    }
}

/// Reads the events of a run. It never holds the run up.
pub struct Reader {
    feed: Arc<Feed>,
    newest: watch::Receiver<u64>,
    next: u64,
    /// How many events that last are before the next one.
    seen: u64,
    /// The number of the first event that was told since it reads. What was fleeting before, it was
    /// never to get.
    began: u64,
    reset: bool,
}

impl Reader {
    /// The next event, or `None` after the last one. Dropping the future loses nothing.
    pub async fn next(&mut self) -> Option<Item> {
        Some(match self.given().await? {
            Given::Event { id, told } => Item::Event {
                id,
                json: told.json,
            },
            Given::Missed { count, .. } => Item::Missed(count),
            Given::Reset => Item::Reset,
        })
    }

    /// The same, with what is known about the event.
    pub(crate) async fn given(&mut self) -> Option<Given> {
        loop {
            self.newest.borrow_and_update();
            match self.step() {
                Step::Given(given) => return Some(given),
                Step::End => return None,
                Step::Wait => self.newest.changed().await.ok()?,
            }
        }
    }

    /// What there is by now, if there is something.
    pub(crate) fn given_by_now(&mut self) -> Option<Given> {
        match self.step() {
            Step::Given(given) => Some(given),
            Step::End | Step::Wait => None,
        }
    }

    fn step(&mut self) -> Step {
        if std::mem::take(&mut self.reset) {
            return Step::Given(Given::Reset);
        }
        let state = self.feed.state();
        let Some(told) = state.from(self.next).cloned() else {
            return if state.closed { Step::End } else { Step::Wait };
        };
        drop(state);
        let before = told.number - u64::from(told.lasting);
        let lasting = before.saturating_sub(self.seen);
        let count = told
            .ordinal
            .saturating_sub(self.next.max(self.began))
            .max(lasting);
        (self.next, self.seen) = (told.ordinal, before);
        if count > 0 {
            return Step::Given(Given::Missed { count, lasting });
        }
        (self.next, self.seen) = (told.ordinal + 1, told.number);
        let id = self.feed.id(&told);
        Step::Given(Given::Event { id, told })
    }
}

enum Step {
    Given(Given),
    Wait,
    End,
}

impl std::fmt::Debug for Reader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reader")
            .field("run", &self.feed.run)
            .field("next", &self.next)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
