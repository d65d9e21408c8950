use std::fmt::{self, Debug, Display};
use std::sync::Arc;

use levity_core::RunId;

use super::CrashTally;

/// The maximum number of differences in a message.
const MAX_SHOWN: usize = 5;

/// The results of a scenario, undisturbed and after each stop.
#[derive(Debug)]
#[non_exhaustive]
pub struct Report<T, W = CrashTally> {
    /// The result of the undisturbed scenario.
    pub whole: CrashEnd<T, W>,
    /// The results after each stop, in the order of the records.
    pub stops: Vec<CrashEnd<T, W>>,
}

impl<T, W> Report<T, W> {
    /// Checks that the scenario returned the same after every stop as undisturbed.
    ///
    /// # Panics
    /// Panics if it did not; the message names the records, and the returned values.
    #[track_caller]
    pub fn assert_same(&self) -> &Self
    where
        T: PartialEq + Debug,
    {
        self.compare(|end| &end.value)
    }

    /// Checks that a part of the result is the same after every stop as undisturbed.
    ///
    /// # Panics
    /// Panics if it is not; the message names the records, and the found values.
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
        let differences: String = others
            .iter()
            .take(MAX_SHOWN)
            .map(|(end, found)| format!("\n{end}:\n   found: {found:?}"))
            .collect();
        assert!(
            others.is_empty(),
            "crash: {} of {} stops end differently{differences}\nexpected: {expected:?}",
            others.len(),
            self.stops.len(),
        );
        self
    }
}

/// The result of a scenario. Its `Display` shows where it was stopped before.
#[derive(Debug)]
#[non_exhaustive]
pub struct CrashEnd<T, W = CrashTally> {
    /// The points at which it was stopped: none, one, or one in each of its lives but the last.
    pub stopped: Vec<Point>,
    /// The value that it returned in the end.
    pub value: T,
    /// Its effects outside its runs.
    pub world: Arc<W>,
}

impl<T, W> Display for CrashEnd<T, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&describe_points(&self.stopped))
    }
}

pub(super) fn describe_points(points: &[Point]) -> String {
    if points.is_empty() {
        return "undisturbed".to_owned();
    }
    points
        .iter()
        .map(Point::to_string)
        .collect::<Vec<_>>()
        .join(", then ")
}

/// The point at which a life ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Point {
    /// The number of records that this life had written, over its run and the children.
    pub records: usize,
    /// The last record that it had written.
    pub last: Option<WrittenRecord>,
    /// The moment after that record.
    pub moment: Moment,
}

impl Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.moment {
            Moment::Ended => f.write_str("resumed after it had ended")?,
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
    /// The record is written, and nothing that follows from it has started.
    Written,
    /// Everything that follows from the record was done, and none of it is recorded.
    BeforeNext,
    /// The scenario has ended normally.
    Ended,
}

/// A record that was written.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WrittenRecord {
    /// The run of the record.
    pub run: RunId,
    /// The number of the record in that run, from 0.
    pub seq: u64,
    /// The kind of its entry, and its subject: `started tool add`.
    pub entry: String,
}

impl Display for WrittenRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` of run `{}`", self.entry, self.run)
    }
}
