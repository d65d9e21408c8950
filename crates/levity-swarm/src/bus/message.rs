//! Messages, their recipients and their kinds.

use std::fmt;
use std::sync::Arc;

use levity_core::{RunId, Timestamp};
use serde::{Deserialize, Serialize};

/// A message on a [`Bus`](crate::Bus). A clone shares its texts.
///
/// In JSON, the fields `kind` and `at` are called `type` and `timestamp`, the latter in
/// milliseconds.
///
/// ```
/// use levity_swarm::{BusMessage, MessageKind, Recipient};
///
/// let message: BusMessage = serde_json::from_str(
///     r#"{"id": 1, "from": "coder", "to": "*", "type": "note", "content": "Done.",
///         "timestamp": 5, "run": "r1"}"#,
/// )?;
/// assert_eq!((message.kind, message.to), (MessageKind::Note, Recipient::All));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct BusMessage {
    /// The id of the message on the bus, from 1.
    pub id: u64,
    /// The sender: a worker, or a part of the swarm such as its router.
    pub from: Arc<str>,
    /// The recipient of the message.
    pub to: Recipient,
    /// The kind of message.
    #[serde(rename = "type")]
    pub kind: MessageKind,
    /// The text of the message.
    pub content: Arc<str>,
    /// The time of the message; never before that of the preceding message.
    #[serde(rename = "timestamp")]
    pub at: Timestamp,
    /// The run that the message belongs to.
    pub run: RunId,
}

/// The recipient of a message.
///
/// It serializes as a string: the name, or `*` for all workers.
///
/// ```
/// # use levity_swarm::Recipient;
/// assert_eq!(Recipient::from("coder"), Recipient::One("coder".into()));
/// assert_eq!(Recipient::from("*"), Recipient::All);
/// assert_eq!(Recipient::All.to_string(), "*");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(from = "Arc<str>", into = "Arc<str>")]
pub enum Recipient {
    /// All workers except the sender.
    #[serde(rename = "Everybody")]
    All,
    /// The worker with this name.
    One(Arc<str>),
}

impl Recipient {
    /// The text form of a broadcast.
    pub const EVERYBODY: &'static str = "*";

    /// Returns `true` if the message is for this worker alone.
    ///
    /// ```
    /// use levity_swarm::Recipient;
    ///
    /// assert!(Recipient::from("coder").is_for("coder"));
    /// // A broadcast is for nobody alone.
    /// assert!(!Recipient::All.is_for("coder"));
    /// ```
    pub fn is_for(&self, name: &str) -> bool {
        matches!(self, Self::One(one) if **one == *name)
    }

    /// Returns the name, or `*`.
    pub fn as_str(&self) -> &str {
        match self {
            Self::All => Self::EVERYBODY,
            Self::One(name) => name,
        }
    }
}

impl From<Arc<str>> for Recipient {
    fn from(name: Arc<str>) -> Self {
        if &*name == Self::EVERYBODY {
            Self::All
        } else {
            Self::One(name)
        }
    }
}

impl From<&Arc<str>> for Recipient {
    fn from(name: &Arc<str>) -> Self {
        Self::from(name.clone())
    }
}

impl From<&str> for Recipient {
    fn from(name: &str) -> Self {
        if name == Self::EVERYBODY {
            Self::All
        } else {
            Self::One(name.into())
        }
    }
}

impl From<Recipient> for Arc<str> {
    fn from(recipient: Recipient) -> Self {
        match recipient {
            Recipient::All => Recipient::EVERYBODY.into(),
            Recipient::One(name) => name,
        }
    }
}

impl fmt::Display for Recipient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The kinds of messages on a bus.
///
/// ```
/// use levity_swarm::MessageKind;
///
/// assert_eq!(MessageKind::HostMessage.as_str(), "said");
/// assert_eq!(serde_json::to_string(&MessageKind::Task)?, r#""task""#);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum MessageKind {
    /// A task for a worker.
    Task,
    /// The result of a worker's task.
    Result,
    /// The error of a worker's task.
    Failure,
    /// A free message of a worker to others.
    Note,
    /// The decision of a router.
    Plan,
    /// A handoff of the conversation by a worker.
    Handoff,
    /// A turn in a debate.
    Turn,
    /// The verdict of a judge.
    Verdict,
    /// A new entry on the blackboard.
    Entry,
    /// A message of the host.
    #[serde(rename = "said")]
    HostMessage,
    /// The answer of the swarm.
    Answer,
}

impl MessageKind {
    /// Returns the kind as text, as JSON contains it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Task => "task",
            Self::Result => "result",
            Self::Failure => "failure",
            Self::Note => "note",
            Self::Plan => "plan",
            Self::Handoff => "handoff",
            Self::Turn => "turn",
            Self::Verdict => "verdict",
            Self::Entry => "entry",
            Self::HostMessage => "said",
            Self::Answer => "answer",
        }
    }
}

impl fmt::Display for MessageKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A message to post on a [`Bus`](crate::Bus).
///
/// The bus adds the id, the time and the run when the message is posted.
///
/// ```
/// use levity_swarm::{MessageKind, NewMessage, Recipient};
///
/// let note = NewMessage::new("coder", "*", MessageKind::Note, "It is in parse.rs.");
/// assert_eq!(note.to, Recipient::All);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct NewMessage {
    /// The sender of the message.
    pub from: Arc<str>,
    /// The recipient of the message.
    pub to: Recipient,
    /// The kind of message.
    pub kind: MessageKind,
    /// The text of the message.
    pub content: Arc<str>,
}

impl NewMessage {
    /// Creates a message that is not posted yet.
    pub fn new(
        from: impl Into<Arc<str>>,
        to: impl Into<Recipient>,
        kind: MessageKind,
        content: impl Into<Arc<str>>,
    ) -> Self {
        Self {
            from: from.into(),
            to: to.into(),
            kind,
            content: content.into(),
        }
    }
}
