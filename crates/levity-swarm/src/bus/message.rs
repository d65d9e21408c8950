use std::fmt;
use std::sync::Arc;

use levity_core::{RunId, Timestamp};
use serde::{Deserialize, Serialize};

/// What somebody said on a [`Bus`](crate::Bus). A clone shares its texts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct BusMessage {
    /// Its number on the bus, from 1.
    pub id: u64,
    /// Who says it: a worker, or a part of the swarm such as its router.
    pub from: Arc<str>,
    /// To whom.
    pub to: Recipient,
    /// What sort of message it is.
    #[serde(rename = "type")]
    pub kind: MessageKind,
    /// The words.
    pub content: Arc<str>,
    /// When it was said; never before the message that precedes it.
    #[serde(rename = "timestamp")]
    pub at: Timestamp,
    /// The run it belongs to.
    pub run: RunId,
}

/// Whom a message is for.
///
/// In JSON it is a string: the name, or `*` for everybody.
///
/// ```
/// # use levity_swarm::Recipient;
/// assert_eq!(Recipient::from("coder"), Recipient::One("coder".into()));
/// assert_eq!(Recipient::from("*"), Recipient::Everybody);
/// assert_eq!(Recipient::Everybody.to_string(), "*");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(from = "Arc<str>", into = "Arc<str>")]
pub enum Recipient {
    /// All workers but the one that says it.
    Everybody,
    /// The worker of this name.
    One(Arc<str>),
}

impl Recipient {
    /// What stands for everybody in text.
    pub const EVERYBODY: &'static str = "*";

    /// Whether it is for this one alone.
    pub fn is_for(&self, name: &str) -> bool {
        matches!(self, Self::One(one) if **one == *name)
    }

    /// The name, or `*`.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Everybody => Self::EVERYBODY,
            Self::One(name) => name,
        }
    }
}

impl From<Arc<str>> for Recipient {
    fn from(name: Arc<str>) -> Self {
        if &*name == Self::EVERYBODY {
            Self::Everybody
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
            Self::Everybody
        } else {
            Self::One(name.into())
        }
    }
}

impl From<Recipient> for Arc<str> {
    fn from(recipient: Recipient) -> Self {
        match recipient {
            Recipient::Everybody => Recipient::EVERYBODY.into(),
            Recipient::One(name) => name,
        }
    }
}

impl fmt::Display for Recipient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What sort of message it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum MessageKind {
    /// A worker is to do this.
    Task,
    /// A worker has done it, and this is what came of it.
    Result,
    /// A worker could not do it, and this is why.
    Failure,
    /// A worker's free words to others.
    Note,
    /// What the router has decided on.
    Plan,
    /// A worker passes the conversation on.
    Handoff,
    /// A turn in a debate.
    Turn,
    /// What the judge of a debate found.
    Verdict,
    /// Something was written on the blackboard.
    Entry,
    /// The host spoke.
    Said,
    /// The swarm's answer.
    Answer,
}

impl MessageKind {
    /// The kind as text, as it stands in JSON.
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
            Self::Said => "said",
            Self::Answer => "answer",
        }
    }
}

impl fmt::Display for MessageKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What is to be posted on a [`Bus`](crate::Bus).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct NewMessage {
    /// Who says it.
    pub from: Arc<str>,
    /// To whom.
    pub to: Recipient,
    /// What sort of message it is.
    pub kind: MessageKind,
    /// The words.
    pub content: Arc<str>,
}

impl NewMessage {
    /// A message that is not posted yet.
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
