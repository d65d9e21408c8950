use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Counts what was done, by name.
///
/// ```
/// # use levity_test::crash::CrashTally;
/// let tally = CrashTally::new();
/// tally.did("book");
/// tally.undid("book");
/// tally.did("book");
/// assert_eq!((tally.left("book"), tally.ever("book")), (1, 2));
/// ```
#[derive(Debug, Default)]
pub struct CrashTally(Mutex<BTreeMap<String, Count>>);

#[derive(Clone, Copy, Debug, Default)]
struct Count {
    left: usize,
    ever: usize,
}

impl CrashTally {
    /// Nothing was done yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Something was done.
    pub fn did(&self, what: impl Into<String>) {
        let mut counts = self.counts();
        let count = counts.entry(what.into()).or_default();
        count.left += 1;
        count.ever += 1;
    }

    /// Something was taken back, however often it was done; nothing is left of it.
    pub fn undid(&self, what: &str) {
        if let Some(count) = self.counts().get_mut(what) {
            count.left = 0;
        }
    }

    /// How often something was done, without what was taken back.
    pub fn left(&self, what: &str) -> usize {
        self.counts().get(what).map_or(0, |count| count.left)
    }

    /// How often something was done at all.
    pub fn ever(&self, what: &str) -> usize {
        self.counts().get(what).map_or(0, |count| count.ever)
    }

    /// All that was done and not taken back, and how often.
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
