//! The log of a view: the last 1,000 lines, each at most 240 characters.

use levity_core::Timestamp;
use levity_dag::StepId;

use super::PlanView;
use super::text::one_line;

/// The maximum number of lines.
const MAX_LINES: usize = 1_000;
/// The maximum number of characters in a line.
const MAX_LINE_CHARS: usize = 240;

/// A log line about one event.
///
/// Pieces of streamed text cause no lines; the log is for people who follow a run.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LogLine {
    /// The time of the event.
    pub at: Timestamp,
    /// The step of the event, if any.
    pub step: Option<StepId>,
    /// The text: one line, without terminal control characters.
    pub text: String,
}

impl PlanView {
    /// The maximum number of retained lines: 1,000.
    pub const MAX_LOG: usize = MAX_LINES;

    /// Returns the retained lines, oldest first.
    pub fn log(&self) -> impl DoubleEndedIterator<Item = &LogLine> + ExactSizeIterator {
        self.log.iter()
    }

    /// Returns the total number of lines ever logged.
    pub fn log_count(&self) -> u64 {
        self.logged
    }

    /// Returns the retained lines after the first `count` lines ever logged. Use it to print each
    /// line once.
    ///
    /// ```
    /// use levity_core::{Event, EventKind, Timestamp};
    /// use levity_observe::PlanView;
    ///
    /// let mut view = PlanView::of_run("r".into());
    /// let mut printed = 0;
    /// for kind in [EventKind::Paused, EventKind::Resumed] {
    ///     view.apply(&Event::new("r".into(), 1, Timestamp::from_millis(0), kind));
    ///     let new: Vec<_> = view.log_after(printed).map(|line| line.text.clone()).collect();
    ///     assert_eq!(new.len(), 1);
    ///     printed = view.log_count();
    /// }
    /// assert_eq!(view.log().next_back().unwrap().text, "resumed");
    /// ```
    pub fn log_after(
        &self,
        count: u64,
    ) -> impl DoubleEndedIterator<Item = &LogLine> + ExactSizeIterator {
        let dropped = self.logged - self.log.len() as u64;
        let skip = usize::try_from(count.saturating_sub(dropped)).unwrap_or(usize::MAX);
        self.log.range(skip.min(self.log.len())..)
    }

    pub(super) fn log_line(&mut self, at: Timestamp, step: Option<&StepId>, text: &str) {
        if self.log.len() >= MAX_LINES {
            self.log.pop_front();
        }
        self.log.push_back(LogLine {
            at,
            step: step.cloned(),
            text: one_line(text, MAX_LINE_CHARS),
        });
        self.logged += 1;
    }
}
