//! The log of messages between the agents of a swarm.
//!
//! Messages are appended and never changed. An index by recipient makes the search for the messages
//! of one worker independent of the size of the log, because every task of a large swarm needs it.

mod clip;
mod index;
mod json_lines;
mod message;
pub(crate) mod stream;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use levity_core::text::head;
use levity_core::{RunId, Timestamp, estimate_tokens};

use self::clip::clipped;
use self::index::Index;
pub use self::json_lines::ReadError;
pub use self::message::{BusMessage, MessageKind, NewMessage, Recipient};
pub use self::stream::{Lagged, Messages};

/// The log of messages between the agents of a swarm, in the order in which they were posted.
///
/// It is a plain value without a lock, clock or channel. The machine of a swarm owns one and
/// rebuilds it when the run is resumed or replayed, so the journal determines the content of the
/// bus. To observe it from outside, use [`Messages`].
///
/// ```
/// # use levity_core::{RunId, Timestamp};
/// # use levity_swarm::{Bus, NewMessage, MessageKind, Recipient};
/// let (mut bus, run, now) = (Bus::new(), RunId::new("r1"), Timestamp::from_millis(0));
/// bus.post(NewMessage::new("router", "coder", MessageKind::Task, "Write the parser."), now, &run);
/// bus.post(
///     NewMessage::new(
///         "coder",
///         Recipient::All,
///         MessageKind::Note,
///         "It is in parse.rs.",
///     ),
///     now,
///     &run,
/// );
///
/// let known: Vec<_> = bus
///     .context_for("reviewer", 1_000)
///     .iter()
///     .map(|message| &*message.content)
///     .collect();
/// assert_eq!(known, ["It is in parse.rs."]);
/// ```
///
/// # Limits
/// When a limit is reached, the oldest messages are dropped, and [`dropped`](Self::dropped) counts
/// them.
///
/// | what | limit |
/// |---|---|
/// | messages | [`MAX_MESSAGES`](Self::MAX_MESSAGES), or as set |
/// | their content together | [`MAX_BYTES`](Self::MAX_BYTES), or as set |
/// | content of one message | [`MAX_CONTENT`]; longer content is cut and states its original size |
/// | a name | [`MAX_NAME`](Self::MAX_NAME); longer ones are cut |
///
/// [`MAX_CONTENT`]: Self::MAX_CONTENT
#[derive(Clone)]
pub struct Bus {
    log: VecDeque<StoredMessage>,
    index: Index,
    bytes: usize,
    max_messages: usize,
    max_bytes: usize,
}

/// A stored message, with its size in tokens.
#[derive(Clone)]
struct StoredMessage {
    message: BusMessage,
    tokens: u64,
}

impl Bus {
    /// The default maximum number of messages.
    pub const MAX_MESSAGES: usize = 10_000;
    /// The default maximum size of all contents together, in bytes.
    pub const MAX_BYTES: usize = 16 * 1024 * 1024;
    /// The maximum size of one message's content, in bytes.
    pub const MAX_CONTENT: usize = 64 * 1024;
    /// The maximum size of a name, in bytes.
    pub const MAX_NAME: usize = 256;
    /// The cost of a message in [`context_for`](Self::context_for) in addition to its content, in
    /// tokens: the sender and the recipient.
    pub const MESSAGE_TOKENS: usize = 8;

    /// Creates an empty bus with the default limits.
    pub fn new() -> Self {
        Self::with_limits(Self::MAX_MESSAGES, Self::MAX_BYTES)
    }

    /// Creates an empty bus with these limits on the number of messages (at least one) and on the
    /// total size of their contents.
    ///
    /// ```
    /// use levity_core::{RunId, Timestamp};
    /// use levity_swarm::{Bus, MessageKind, NewMessage};
    ///
    /// let (mut bus, run) = (Bus::with_limits(2, 1_000), RunId::new("r1"));
    /// for text in ["one", "two", "three"] {
    ///     let note = NewMessage::new("coder", "*", MessageKind::Note, text);
    ///     bus.post(note, Timestamp::from_millis(0), &run);
    /// }
    /// assert_eq!((bus.len(), bus.dropped(), bus.last_id()), (2, 1, 3));
    /// assert!(bus.get(1).is_none());
    /// ```
    pub fn with_limits(max_messages: usize, max_bytes: usize) -> Self {
        let (log, index) = (VecDeque::new(), Index::default());
        Self {
            log,
            index,
            bytes: 0,
            max_messages: max_messages.max(1),
            max_bytes,
        }
    }

    /// Creates a bus with these messages, within its limits, or returns `None` if their ids are not
    /// in order.
    pub(crate) fn restored(
        (messages, bytes): (usize, usize),
        log: Vec<BusMessage>,
    ) -> Option<Self> {
        let mut bus = Self::with_limits(messages, bytes);
        for message in log {
            if message.id <= bus.last_id() || message.id > json_lines::MAX_ID {
                return None;
            }
            bus.push(message);
        }
        Some(bus)
    }

    /// Adds a message and gives it the next id. If `at` is before the time of the last message, it
    /// is set to that time. The cost does not depend on the number of messages.
    ///
    /// ```
    /// use levity_core::{RunId, Timestamp};
    /// use levity_swarm::{Bus, MessageKind, NewMessage};
    ///
    /// let (mut bus, run) = (Bus::new(), RunId::new("r1"));
    /// let task = NewMessage::new("router", "coder", MessageKind::Task, "Write it.");
    /// bus.post(task.clone(), Timestamp::from_millis(9), &run);
    /// // The clock was set back, but time on the bus never decreases.
    /// let message = bus.post(task, Timestamp::from_millis(3), &run);
    /// assert_eq!((message.id, message.at), (2, Timestamp::from_millis(9)));
    /// ```
    pub fn post(&mut self, draft: NewMessage, at: Timestamp, run: &RunId) -> &BusMessage {
        let NewMessage {
            from,
            to,
            kind,
            content,
        } = draft;
        let id = self.last_id().saturating_add(1);
        let message = BusMessage {
            id,
            from,
            to,
            kind,
            content,
            at,
            run: run.clone(),
        };
        self.push(message)
    }

    /// Adds a message whose id is higher than all others.
    fn push(&mut self, message: BusMessage) -> &BusMessage {
        let message = self.within_limits(message);
        self.make_room(message.content.len());
        self.bytes += message.content.len();
        let tokens = estimate_tokens(&message.content).saturating_add(Self::MESSAGE_TOKENS as u64);
        self.index.add(&message);
        self.log.push_back(StoredMessage { message, tokens });
        &self.log[self.log.len() - 1].message
    }

    fn within_limits(&self, message: BusMessage) -> BusMessage {
        let last = self.log.back().map_or(message.at, |last| last.message.at);
        let to = match message.to {
            Recipient::One(to) => Recipient::from(short_name(to)),
            Recipient::All => Recipient::All,
        };
        let content = clipped(message.content, Self::MAX_CONTENT.min(self.max_bytes));
        BusMessage {
            from: short_name(message.from),
            to,
            content,
            at: message.at.max(last),
            ..message
        }
    }

    /// Drops the oldest messages until there is room for one more.
    fn make_room(&mut self, bytes: usize) {
        while self.log.len() >= self.max_messages
            || self.bytes.saturating_add(bytes) > self.max_bytes
        {
            let Some(oldest) = self.log.pop_front() else {
                return;
            };
            self.bytes -= oldest.message.content.len();
            self.index.drop_oldest(&oldest.message);
        }
    }

    /// Returns the stored messages, oldest first.
    pub fn messages(&self) -> impl DoubleEndedIterator<Item = &BusMessage> + ExactSizeIterator {
        self.log.iter().map(|stored| &stored.message)
    }

    /// Returns the messages after the one with this id, oldest first. The search does not scan the
    /// others.
    ///
    /// ```
    /// use levity_core::{RunId, Timestamp};
    /// use levity_swarm::{Bus, MessageKind, NewMessage};
    ///
    /// let (mut bus, run) = (Bus::new(), RunId::new("r1"));
    /// for text in ["one", "two", "three"] {
    ///     let note = NewMessage::new("coder", "*", MessageKind::Note, text);
    ///     bus.post(note, Timestamp::from_millis(0), &run);
    /// }
    /// let new: Vec<_> = bus.since(1).map(|message| &*message.content).collect();
    /// assert_eq!(new, ["two", "three"]);
    /// ```
    pub fn since(
        &self,
        id: u64,
    ) -> impl DoubleEndedIterator<Item = &BusMessage> + ExactSizeIterator {
        let start = self.log.partition_point(|stored| stored.message.id <= id);
        self.log.range(start..).map(|stored| &stored.message)
    }

    /// Returns the message with this id, if it is still stored.
    pub fn get(&self, id: u64) -> Option<&BusMessage> {
        self.stored(id).map(|stored| &stored.message)
    }

    fn stored(&self, id: u64) -> Option<&StoredMessage> {
        self.log.get(self.position(id)?)
    }

    fn position(&self, id: u64) -> Option<usize> {
        let first = self.log.front()?.message.id;
        // Ids increase by one, except in a log that was read from a file and has gaps.
        let guess = usize::try_from(id.checked_sub(first)?).ok()?;
        if self
            .log
            .get(guess)
            .is_some_and(|stored| stored.message.id == id)
        {
            return Some(guess);
        }
        self.log
            .binary_search_by_key(&id, |stored| stored.message.id)
            .ok()
    }

    /// Returns the number of stored messages.
    pub fn len(&self) -> usize {
        self.log.len()
    }

    /// Returns `true` if no messages are stored.
    pub fn is_empty(&self) -> bool {
        self.log.is_empty()
    }

    /// Returns the total size of the contents, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the number of messages that were dropped because of a limit.
    pub fn dropped(&self) -> u64 {
        self.last_id().saturating_sub(self.log.len() as u64)
    }

    /// Returns the id of the newest message; 0 if there is none.
    pub fn last_id(&self) -> u64 {
        self.log.back().map_or(0, |last| last.message.id)
    }

    /// Returns the messages that `worker` should know, within this number of tokens.
    ///
    /// Messages to the worker alone are first, then broadcasts of others, each from the oldest to
    /// the newest. If not all fit, the newest messages to the worker alone have priority, then the
    /// newest broadcasts. Each group ends at the first message that does not fit. The cost depends
    /// on the number of returned messages, not on the size of the bus.
    ///
    /// ```
    /// use levity_core::{RunId, Timestamp};
    /// use levity_swarm::{Bus, MessageKind, NewMessage};
    ///
    /// let (mut bus, run, now) = (Bus::new(), RunId::new("r1"), Timestamp::from_millis(0));
    /// bus.post(NewMessage::new("coder", "*", MessageKind::Note, "For all."), now, &run);
    /// bus.post(NewMessage::new("coder", "qa", MessageKind::Note, "For qa."), now, &run);
    /// let texts = |worker| -> Vec<&str> {
    ///     bus.context_for(worker, 1_000).iter().map(|message| &*message.content).collect()
    /// };
    /// assert_eq!(texts("qa"), ["For qa.", "For all."]);
    /// // A worker does not get its own broadcasts.
    /// assert!(texts("coder").is_empty());
    /// ```
    pub fn context_for(&self, worker: &str, tokens: usize) -> Vec<&BusMessage> {
        self.context_before(worker, tokens, u64::MAX)
    }

    /// Returns the messages that `worker` should have known before the message `upto`; otherwise
    /// like [`context_for`](Self::context_for).
    ///
    /// ```
    /// use levity_core::{RunId, Timestamp};
    /// use levity_swarm::{Bus, MessageKind, NewMessage};
    ///
    /// let (mut bus, run, now) = (Bus::new(), RunId::new("r1"), Timestamp::from_millis(0));
    /// for text in ["early", "late"] {
    ///     bus.post(NewMessage::new("coder", "qa", MessageKind::Note, text), now, &run);
    /// }
    /// // Only the first message was posted before the second.
    /// let known = bus.context_before("qa", 1_000, 2);
    /// assert_eq!((known.len(), &*known[0].content), (1, "early"));
    /// ```
    pub fn context_before(&self, worker: &str, tokens: usize, upto: u64) -> Vec<&BusMessage> {
        let worker = head(worker, Self::MAX_NAME);
        let mut remaining = tokens as u64;
        let mut known = self.newest_within(self.index.direct(worker, upto), &mut remaining);
        known.extend(self.newest_within(self.index.broadcasts(worker, upto), &mut remaining));
        known
    }

    /// Returns as many of these messages as fit, taking the last ids first.
    fn newest_within(
        &self,
        ids: impl Iterator<Item = u64>,
        remaining: &mut u64,
    ) -> Vec<&BusMessage> {
        let fitting = ids.map_while(|id| {
            let stored = self.stored(id)?;
            *remaining = remaining.checked_sub(stored.tokens)?;
            Some(&stored.message)
        });
        let mut found: Vec<_> = fitting.collect();
        found.reverse();
        found
    }
}

fn short_name(name: Arc<str>) -> Arc<str> {
    if name.len() <= Bus::MAX_NAME {
        name
    } else {
        head(&name, Bus::MAX_NAME).into()
    }
}

impl Default for Bus {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Bus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bus")
            .field("messages", &self.log.len())
            .field("bytes", &self.bytes)
            .field("dropped", &self.dropped())
            .finish()
    }
}
