use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use levity_core::{Message, Role};

use super::record::words;
use super::transfer::TRANSFER;

type Filter = dyn Fn(&[Arc<Message>]) -> Vec<Arc<Message>> + Send + Sync;

/// What of the conversation goes along when it is passed on. The note, and what the user has said
/// meanwhile, always do.
///
/// Whatever it is, it makes a conversation that can be sent to a model: a call whose result does
/// not go along is left out, and so is a result without its call.
#[derive(Clone, Default)]
#[non_exhaustive]
pub enum HandoffHistory {
    /// All of it.
    #[default]
    Everything,
    /// What was said in words, without calls of tools, their results, and reasoning.
    Words,
    /// The last so many messages before it was passed on. A call and its results are not parted, so
    /// it may be one more.
    Last(usize),
    /// Only the goal, and the note.
    Note,
    /// What a function of the program makes of it; see [`by`](Self::by).
    By(Arc<Filter>),
}

impl HandoffHistory {
    /// What a function makes of the conversation. It may leave messages out, change them and add
    /// some.
    ///
    /// The function must be deterministic: it is called again when a run is resumed or replayed,
    /// and what it returns then must be the same. When it panics, the [words](Self::Words) go
    /// along, and that is told as [`SwarmNotice::FilterFailed`](crate::SwarmNotice::FilterFailed).
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
        Self::By(Arc::new(filter))
    }

    /// What goes along of these messages, and whether the program's function has failed. It may
    /// still be that it makes no history; a [`Record`](super::record::Record) of it does.
    pub(super) fn of(&self, all: &[Arc<Message>], goal: &str) -> (Vec<Arc<Message>>, bool) {
        let said = || all.iter().filter_map(words).collect();
        let shown = match self {
            Self::Everything => all.to_vec(),
            Self::Words => said(),
            Self::Last(count) => last(all, *count).to_vec(),
            Self::Note => vec![Arc::new(Message::user(goal))],
            Self::By(filter) => match catch_unwind(AssertUnwindSafe(|| filter(all))) {
                Ok(shown) => shown,
                Err(_) => return (said(), true),
            },
        };
        (shown, false)
    }
}

/// The last messages. The call that passes the conversation on stays, and does not count.
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
            Self::Words => f.write_str("Words"),
            Self::Last(count) => f.debug_tuple("Last").field(count).finish(),
            Self::Note => f.write_str("Note"),
            Self::By(_) => f.write_str("By(..)"),
        }
    }
}
