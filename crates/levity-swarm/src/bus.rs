//! The log of what the agents of a swarm say to each other.

mod clip;
mod index;
mod lines;
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
pub use self::lines::ReadError;
pub use self::message::{BusMessage, MessageKind, NewMessage, Recipient};
pub use self::stream::{Lagged, Messages};

/// The log of what the agents of a swarm say to each other, in the order in which it was said.
///
/// It is a plain value: no lock, no clock, no channel. The machine of a swarm owns one and folds it
/// again when the run is resumed or replayed, so what is on the bus follows from the journal.
/// Whoever watches from outside listens to [`Messages`].
///
/// ```
/// # use levity_core::{RunId, Timestamp};
/// # use levity_swarm::{Bus, NewMessage, MessageKind, Recipient};
/// let (mut bus, run, now) = (Bus::new(), RunId::new("r1"), Timestamp::from_millis(0));
/// bus.post(NewMessage::new("router", "coder", MessageKind::Task, "Write the parser."), now, &run);
/// bus.post(NewMessage::new("coder", Recipient::Everybody, MessageKind::Note, "It is in parse.rs."), now, &run);
///
/// let known: Vec<_> = bus.context_for("reviewer", 1_000).iter().map(|message| &*message.content).collect();
/// assert_eq!(known, ["It is in parse.rs."]);
/// ```
///
/// # Limits
/// When a limit is reached, the oldest messages leave, and [`dropped`](Self::dropped) counts them.
///
/// | what | limit |
/// |---|---|
/// | messages | [`MAX_MESSAGES`](Self::MAX_MESSAGES), or as set |
/// | their content together | [`MAX_BYTES`](Self::MAX_BYTES), or as set |
/// | content of one message | [`MAX_CONTENT`](Self::MAX_CONTENT); longer content is cut and says how long it was |
/// | a name | [`MAX_NAME`](Self::MAX_NAME); longer ones are cut |
#[derive(Clone)]
pub struct Bus {
    log: VecDeque<Kept>,
    index: Index,
    bytes: usize,
    max_messages: usize,
    max_bytes: usize,
}

/// A message, and what it costs to show it.
#[derive(Clone)]
struct Kept {
    message: BusMessage,
    tokens: u64,
}

impl Bus {
    /// How many messages there are at most, unless set otherwise.
    pub const MAX_MESSAGES: usize = 10_000;
    /// How many bytes the content of all messages has at most, unless set otherwise.
    pub const MAX_BYTES: usize = 16 * 1024 * 1024;
    /// How many bytes the content of one message has at most.
    pub const MAX_CONTENT: usize = 64 * 1024;
    /// How many bytes a name has at most.
    pub const MAX_NAME: usize = 256;
    /// What a message costs in [`context_for`](Self::context_for) beside its content, in tokens:
    /// who says it to whom.
    pub const MESSAGE_TOKENS: usize = 8;

    /// An empty bus with the usual limits.
    pub fn new() -> Self {
        Self::with_limits(Self::MAX_MESSAGES, Self::MAX_BYTES)
    }

    /// An empty bus that keeps at most so many messages, at least one, with so many bytes of
    /// content together.
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

    /// A bus with these messages, as far as its limits allow; nothing when they are not in the
    /// order of their numbers.
    pub(crate) fn restored(
        (messages, bytes): (usize, usize),
        log: Vec<BusMessage>,
    ) -> Option<Self> {
        let mut bus = Self::with_limits(messages, bytes);
        for message in log {
            if message.id <= bus.last_id() || message.id > lines::MAX_ID {
                return None;
            }
            bus.push(message);
        }
        Some(bus)
    }

    /// Takes a message in and gives it the next number. An `at` before that of the last message
    /// becomes the last message's. It costs the same however many messages there are.
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
        self.log.push_back(Kept { message, tokens });
        &self.log[self.log.len() - 1].message
    }

    fn within_limits(&self, message: BusMessage) -> BusMessage {
        let last = self.log.back().map_or(message.at, |last| last.message.at);
        let to = match message.to {
            Recipient::One(to) => Recipient::from(short_name(to)),
            Recipient::Everybody => Recipient::Everybody,
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

    /// Lets the oldest messages go until one more has room.
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

    /// The messages that are there, oldest first.
    pub fn messages(&self) -> impl DoubleEndedIterator<Item = &BusMessage> + ExactSizeIterator {
        self.log.iter().map(|kept| &kept.message)
    }

    /// The messages after the one of this id, oldest first. They are found without looking at the
    /// others.
    pub fn since(
        &self,
        id: u64,
    ) -> impl DoubleEndedIterator<Item = &BusMessage> + ExactSizeIterator {
        let start = self.log.partition_point(|kept| kept.message.id <= id);
        self.log.range(start..).map(|kept| &kept.message)
    }

    /// The message of this id, if it is still there.
    pub fn get(&self, id: u64) -> Option<&BusMessage> {
        self.kept(id).map(|kept| &kept.message)
    }

    fn kept(&self, id: u64) -> Option<&Kept> {
        self.log.get(self.position(id)?)
    }

    fn position(&self, id: u64) -> Option<usize> {
        let first = self.log.front()?.message.id;
        // Ids count up by one, save in a log that was read from a file and has gaps.
        let guess = usize::try_from(id.checked_sub(first)?).ok()?;
        if self
            .log
            .get(guess)
            .is_some_and(|kept| kept.message.id == id)
        {
            return Some(guess);
        }
        self.log
            .binary_search_by_key(&id, |kept| kept.message.id)
            .ok()
    }

    /// How many messages are there.
    pub fn len(&self) -> usize {
        self.log.len()
    }

    /// Whether nothing was said yet.
    pub fn is_empty(&self) -> bool {
        self.log.is_empty()
    }

    /// How many bytes the content of the messages has together.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// How many messages have left, since a limit was reached.
    pub fn dropped(&self) -> u64 {
        self.last_id().saturating_sub(self.log.len() as u64)
    }

    /// The id of the newest message; 0 when there is none.
    pub fn last_id(&self) -> u64 {
        self.log.back().map_or(0, |last| last.message.id)
    }

    /// What `worker` should know, in at most so many tokens.
    ///
    /// First what was said to it alone, then what others said to everybody, each from the oldest to
    /// the newest. When not all has room, the newest of what was said to it alone come first, then
    /// the newest of the rest; at the first one that has no room its row ends. It costs as much as
    /// it returns, not as much as there is.
    pub fn context_for(&self, worker: &str, tokens: usize) -> Vec<&BusMessage> {
        self.context_before(worker, tokens, u64::MAX)
    }

    /// What `worker` should have known when the message `upto` was said: as
    /// [`context_for`](Self::context_for), over the messages before it.
    pub fn context_before(&self, worker: &str, tokens: usize, upto: u64) -> Vec<&BusMessage> {
        let worker = head(worker, Self::MAX_NAME);
        let mut left = tokens as u64;
        let mut known = self.newest_within(self.index.direct(worker, upto), &mut left);
        known.extend(self.newest_within(self.index.broadcasts(worker, upto), &mut left));
        known
    }

    /// As many of these as have room, the last of them first.
    fn newest_within(&self, ids: impl Iterator<Item = u64>, left: &mut u64) -> Vec<&BusMessage> {
        let fitting = ids.map_while(|id| {
            let kept = self.kept(id)?;
            *left = left.checked_sub(kept.tokens)?;
            Some(&kept.message)
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
