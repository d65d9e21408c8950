use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Counts actions by name.
///
/// ```
/// # use levity_test::crash::CrashTally;
/// let tally = CrashTally::new();
/// tally.record_action("book");
/// tally.record_undo("book");
/// tally.record_action("book");
/// assert_eq!((tally.remaining("book"), tally.ever("book")), (1, 2));
/// ```
#[derive(Debug, Default)]
pub struct CrashTally(Mutex<BTreeMap<String, Count>>);

#[derive(Clone, Copy, Debug, Default)]
struct Count {
    left: usize,
    ever: usize,
}

impl CrashTally {
    /// Creates an empty tally.
    pub fn new() -> Self {
        Self::default()
    }

    /// Counts an action as done.
    pub fn record_action(&self, what: impl Into<String>) {
        let mut counts = self.counts();
        let count = counts.entry(what.into()).or_default();
        count.left += 1;
        count.ever += 1;
    }

    /// Counts an action as undone, however often it was done; nothing remains of it.
    pub fn record_undo(&self, what: &str) {
        if let Some(count) = self.counts().get_mut(what) {
            count.left = 0;
        }
    }

    /// Returns how often an action was done and not undone.
    pub fn remaining(&self, what: &str) -> usize {
        self.counts().get(what).map_or(0, |count| count.left)
    }

    /// Returns how often an action was ever done.
    pub fn ever(&self, what: &str) -> usize {
        self.counts().get(what).map_or(0, |count| count.ever)
    }

    /// Returns all actions that were done and not undone, with their counts.
    pub fn all(&self) -> BTreeMap<String, usize> {
        let counts = self.counts();
        let left = counts.iter().filter(|(_, count)| count.left > 0);
        left.map(|(what, count)| (what.clone(), count.left))
            .collect()
    }

    fn counts(&self) -> MutexGuard<'_, BTreeMap<String, Count>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
