use std::fmt::{self, Debug, Display};
use std::sync::Arc;

use levity_core::RunId;

use super::CrashTally;

/// How many differences are told.
const TOLD: usize = 5;

/// How a scenario ended, undisturbed and after each stop.
#[derive(Debug)]
#[non_exhaustive]
pub struct Report<T, W = CrashTally> {
    /// Undisturbed.
    pub whole: CrashEnd<T, W>,
    /// After each stop, in the order of the records.
    pub stops: Vec<CrashEnd<T, W>>,
}

impl<T, W> Report<T, W> {
    /// Checks that the scenario returned the same after every stop as undisturbed.
    ///
    /// # Panics
    /// When it did not; the message names the records, and what was returned.
    #[track_caller]
    pub fn assert_same(&self) -> &Self
    where
        T: PartialEq + Debug,
    {
        self.compare(|end| &end.value)
    }

    /// Checks that something about the end is the same after every stop as undisturbed.
    ///
    /// # Panics
    /// When it is not; the message names the records, and what was found.
    #[track_caller]
    pub fn assert_same_by<K: PartialEq + Debug>(
        &self,
        what: impl Fn(&CrashEnd<T, W>) -> K,
    ) -> &Self {
        self.compare(what)
    }

    #[track_caller]
    fn compare<'a, K: PartialEq + Debug>(
        &'a self,
        what: impl Fn(&'a CrashEnd<T, W>) -> K,
    ) -> &'a Self {
        let expected = what(&self.whole);
        let others: Vec<_> = self.stops.iter().map(|end| (end, what(end))).collect();
        let others: Vec<_> = others
            .into_iter()
            .filter(|(_, found)| *found != expected)
            .collect();
        let told: String = others
            .iter()
            .take(TOLD)
            .map(|(end, found)| format!("\n{end}:\n   found: {found:?}"))
            .collect();
        assert!(
            others.is_empty(),
            "crash: {} of {} stops end in another way{told}\nexpected: {expected:?}",
            others.len(),
            self.stops.len(),
        );
        self
    }
}

/// How a scenario ended. Shown as text, it says where it was stopped before.
#[derive(Debug)]
#[non_exhaustive]
pub struct CrashEnd<T, W = CrashTally> {
    /// Where it was stopped: not at all, once, or in each of its lives but the last.
    pub stopped: Vec<Point>,
    /// What it returned at last.
    pub value: T,
    /// What it did outside its runs.
    pub world: Arc<W>,
}

impl<T, W> Display for CrashEnd<T, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&told(&self.stopped))
    }
}

pub(super) fn told(points: &[Point]) -> String {
    if points.is_empty() {
        return "undisturbed".to_owned();
    }
    points
        .iter()
        .map(Point::to_string)
        .collect::<Vec<_>>()
        .join(", then ")
}

/// Where a life came to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Point {
    /// How many records this life had written, over its run and the children.
    pub records: usize,
    /// The last of them.
    pub last: Option<Written>,
    /// When after that.
    pub moment: Moment,
}

impl Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.moment {
            Moment::Ended => f.write_str("gone on with after it had ended")?,
            _ => write!(f, "stopped after record {}", self.records)?,
        }
        if let Some(last) = &self.last {
            write!(f, " ({last})")?;
        }
        match self.moment {
            Moment::Written => f.write_str(", as soon as it was written"),
            Moment::BeforeNext => f.write_str(", before the next was written"),
            Moment::Ended => Ok(()),
        }
    }
}

/// A moment after a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Moment {
    /// The record is written, and nothing that follows from it has begun.
    Written,
    /// All that follows from the record was done, and nothing of that is written.
    BeforeNext,
    /// The scenario has ended by itself.
    Ended,
}

/// A record that was written.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Written {
    /// The run it is of.
    pub run: RunId,
    /// Its number in that run, from 0.
    pub seq: u64,
    /// The kind of its entry, and what it is about: `started tool add`.
    pub entry: String,
}

impl Display for Written {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` of run `{}`", self.entry, self.run)
    }
}
