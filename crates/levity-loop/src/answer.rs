use std::fmt;

use levity_core::{Context, Ending, History, RunId, Stats, Status, Usage};
use serde_json::Value;

/// What an agent answered, with the conversation that led there.
///
/// It is shown as its text.
#[derive(Clone, Debug)]
pub struct Answer {
    run: RunId,
    ending: Ending,
    history: History,
    context: Context,
}

impl Answer {
    pub(crate) fn new(run: RunId, ending: Ending, history: History, context: Context) -> Self {
        Self { run, ending, history, context }
    }

    /// The answer in words.
    pub fn text(&self) -> &str {
        &self.ending.text
    }

    /// The answer as a value, when a shape was wanted.
    pub fn value(&self) -> Option<&Value> {
        self.ending.value.as_ref()
    }

    /// How the run ended.
    pub fn status(&self) -> &Status {
        &self.ending.status
    }

    /// Whether a limit made the agent answer before it was done.
    pub fn is_best_effort(&self) -> bool {
        matches!(self.ending.status, Status::BestEffort(_))
    }

    /// The tokens it took, those of child runs included.
    pub fn usage(&self) -> Usage {
        self.ending.usage
    }

    /// What was done.
    pub fn stats(&self) -> Stats {
        self.ending.stats
    }

    /// The whole conversation; give it to the next run to go on from here.
    pub fn history(&self) -> &History {
        &self.history
    }

    /// Intent, workspace, steps and memory as one value.
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// The run that gave it.
    pub fn run(&self) -> &RunId {
        &self.run
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}
