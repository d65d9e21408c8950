use levity_core::Timestamp;
use levity_dag::StepId;

use super::PlanView;
use super::text::one_line;

/// The maximum number of lines.
const MAX_LINES: usize = 1_000;
/// The maximum number of characters in a line.
const MAX_LINE_CHARS: usize = 240;

/// A log line about one event.
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
