//! The notable events of a run, for a scrubber.

use levity_core::{EventKind, Timestamp};

/// The maximum number of marks.
const MAX_MARKS: usize = 500;

/// Up to 500 marks. When there are more, every second of the frequent ones is dropped.
#[derive(Clone, Debug, Default)]
pub(super) struct Marks(Vec<Mark>);

#[derive(Clone, Debug)]
struct Mark {
    number: u64,
    at: Timestamp,
    name: &'static str,
    /// `true` for calls, which are the first to be dropped.
    frequent: bool,
}

impl Marks {
    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, Timestamp, &'static str)> {
        self.0.iter().map(|mark| (mark.number, mark.at, mark.name))
    }

    /// Adds a mark for an event, if it is notable.
    pub(super) fn add(&mut self, number: u64, at: Timestamp, kind: &EventKind) {
        use EventKind::{
            Asked, ChildStarted, Compacted, Decided, Goal, LimitNear, LimitPassed, MessageReceived,
            ModelFailed, ModelFinished, OutcomeUnknown, Paused, Resumed, RunEnded, ToolFinished,
        };
        let frequent = match kind {
            ModelFinished { .. } | ToolFinished { .. } | ChildStarted { .. } => true,
            Goal { .. } | Asked(_) | Decided { .. } | MessageReceived { .. } | Paused | Resumed => {
                false
            }
            ModelFailed { .. } | OutcomeUnknown { .. } | Compacted(_) => false,
            LimitNear(_) | LimitPassed(_) | RunEnded(_) => false,
            _ => return,
        };
        let name = kind.name();
        self.0.push(Mark {
            number,
            at,
            name,
            frequent,
        });
        if self.0.len() > MAX_MARKS {
            self.thin();
        }
    }

    /// Drops every second frequent mark. If there is none, drops every second mark of all.
    fn thin(&mut self) {
        let mut count = 0_usize;
        let before = self.0.len();
        self.0.retain(|mark| {
            count += usize::from(mark.frequent);
            !mark.frequent || count.is_multiple_of(2)
        });
        if self.0.len() == before {
            let mut at = 0_usize;
            self.0.retain(|_| {
                at += 1;
                at.is_multiple_of(2)
            });
        }
    }
}
