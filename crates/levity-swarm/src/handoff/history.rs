//! The part of a conversation that the next worker sees.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use levity_core::{Message, Role};

use super::record::text_only;
use super::transfer::TRANSFER;

type Filter = dyn Fn(&[Arc<Message>]) -> Vec<Arc<Message>> + Send + Sync;

/// The part of the conversation that a handoff includes. The note and the user's new messages are
/// always included.
///
/// The result is always a valid conversation: a call without its result is removed, and so is a
/// result without its call.
///
/// ```
/// use levity_swarm::{Handoff, HandoffHistory};
///
/// // Workers see the text only, and the archivist sees nothing but the note.
/// let handoff = Handoff::starting_with("desk")
///     .history(HandoffHistory::TextOnly)
///     .history_for("archivist", HandoffHistory::Note);
/// # let _ = handoff;
/// ```
#[derive(Clone, Default)]
#[non_exhaustive]
pub enum HandoffHistory {
    /// The complete conversation, with tool calls and their results.
    #[default]
    Everything,
    /// The text messages, without tool calls, their results, and reasoning.
    TextOnly,
    /// The last messages before the handoff, up to this number. A call and its results are not
    /// separated, so there may be one more.
    Last(usize),
    /// Only the goal and the note.
    Note,
    /// The result of a filter function; see [`by`](Self::by).
    Filter(Arc<Filter>),
}

impl HandoffHistory {
    /// Filters the conversation with a function. It may remove, change and add messages.
    ///
    /// The function must be deterministic: it is called again when a run is resumed or replayed,
    /// and must return the same result. If it panics, the handoff includes the [text
    /// messages](Self::TextOnly). [`SwarmNotice::FilterFailed`](crate::SwarmNotice::FilterFailed)
    /// reports that.
    ///
    /// ```
    /// use levity_core::Role;
    /// use levity_swarm::HandoffHistory;
    ///
    /// let users_words = HandoffHistory::by(|messages| {
    ///     messages.iter().filter(|message| message.role == Role::User).cloned().collect()
    /// });
    /// # let _ = users_words;
    /// ```
    pub fn by(
        filter: impl Fn(&[Arc<Message>]) -> Vec<Arc<Message>> + Send + Sync + 'static,
    ) -> Self {
        Self::Filter(Arc::new(filter))
    }

    /// Returns the included messages, and `true` if the filter function failed. The result may not
    /// be a valid history; a [`Record`](super::record::Record) of it is.
    pub(super) fn of(&self, all: &[Arc<Message>], goal: &str) -> (Vec<Arc<Message>>, bool) {
        let said = || all.iter().filter_map(text_only).collect();
        let shown = match self {
            Self::Everything => all.to_vec(),
            Self::TextOnly => said(),
            Self::Last(count) => last(all, *count).to_vec(),
            Self::Note => vec![Arc::new(Message::user(goal))],
            Self::Filter(filter) => match catch_unwind(AssertUnwindSafe(|| filter(all))) {
                Ok(shown) => shown,
                Err(_) => return (said(), true),
            },
        };
        (shown, false)
    }
}

/// Returns the last messages. The transfer call is always included and does not count.
fn last(all: &[Arc<Message>], count: usize) -> &[Arc<Message>] {
    let passes = match all {
        [.., call, answer] => {
            answer.role == Role::Tool && call.calls().any(|call| call.name == TRANSFER)
        }
        _ => false,
    };
    let end = if passes { all.len() - 2 } else { all.len() };
    let mut start = end.saturating_sub(count);
    if start < end && all[start].role == Role::Tool {
        start = start.saturating_sub(1);
    }
    &all[start..]
}

impl fmt::Debug for HandoffHistory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Everything => f.write_str("Everything"),
            Self::TextOnly => f.write_str("TextOnly"),
            Self::Last(count) => f.debug_tuple("Last").field(count).finish(),
            Self::Note => f.write_str("Note"),
            Self::Filter(_) => f.write_str("Filter(..)"),
        }
    }
}
