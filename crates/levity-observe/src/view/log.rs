use levity_core::Timestamp;
use levity_dag::StepId;

use super::PlanView;
use super::text::one_line;

/// How many lines are kept.
const MOST: usize = 1_000;
/// How many characters a line has at most.
const LONGEST: usize = 240;

/// A line about something that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LogLine {
    /// When.
    pub at: Timestamp,
    /// In which step, if in one.
    pub step: Option<StepId>,
    /// What, in words: one line, and nothing in it that a terminal would act on.
    pub text: String,
}

impl PlanView {
    /// 1,000 lines are kept.
    pub const MAX_LOG: usize = MOST;

    /// The last lines about what happened, the oldest first.
    pub fn log(&self) -> impl DoubleEndedIterator<Item = &LogLine> + ExactSizeIterator {
        self.log.iter()
    }

    /// How many lines there have ever been.
    pub fn log_count(&self) -> u64 {
        self.logged
    }

    /// The lines after the first `count` that there have ever been, as far as they are still there:
    /// for those who print each line once.
    pub fn log_after(
        &self,
        count: u64,
    ) -> impl DoubleEndedIterator<Item = &LogLine> + ExactSizeIterator {
        let gone = self.logged - self.log.len() as u64;
        let skip = usize::try_from(count.saturating_sub(gone)).unwrap_or(usize::MAX);
        self.log.range(skip.min(self.log.len())..)
    }

    pub(super) fn note(&mut self, at: Timestamp, step: Option<&StepId>, text: &str) {
        if self.log.len() >= MOST {
            self.log.pop_front();
        }
        self.log.push_back(LogLine {
            at,
            step: step.cloned(),
            text: one_line(text, LONGEST),
        });
        self.logged += 1;
    }
}
