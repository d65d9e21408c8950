//! Reports on one subject, and comparisons of two.
//!
//! Reports count scores; they never score. So the same trials can be reported under several judges.

use std::collections::{BTreeMap, HashMap};

use levity_core::Usage;
use serde::Serialize;

use crate::junit;
use crate::table::{Table, on_one_line};
use crate::{Header, Interval, Results, Score, Scores, Trial, mcnemar, wilson};

/// The success of one subject, by category and in total.
///
/// ```
/// use levity_eval::{Case, EvalReport, Expectation, Header, Results, Transcript, Trial};
///
/// # let dir = tempfile::tempdir().unwrap();
/// # let folder = dir.path();
/// let case = Case::new("1", "Say hi.", Expectation::contains("hi")).with_category("manners");
/// let mut results = Results::create(folder, &Header::new("own", "demo"), &[case.clone()])?;
/// results.append(Trial::new(&case, "demo", 0, Transcript::new().with_text("hi")))?;
/// let report = EvalReport::new(&results, &results.check_all());
/// assert_eq!(report.categories["manners"].success, 1.0);
/// assert!(report.to_text().starts_with("subject demo, suite own, judged by levity"));
/// # Ok::<(), levity_eval::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct EvalReport {
    /// The description of the evaluation: suite, subject and settings.
    pub header: Header,
    /// The judge that scored the trials.
    pub judge: String,
    /// The counts of each category, by name.
    pub categories: BTreeMap<String, Tally>,
    /// The counts of all trials.
    pub total: Tally,
    #[serde(skip)]
    trials: Vec<(Trial, Score)>,
}

/// Counts over some trials.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Tally {
    /// The number of trials.
    pub trials: u64,
    /// The number of trials that passed.
    pub passed: u64,
    /// The share of trials that passed.
    pub success: f64,
    /// The 95% Wilson interval of that share.
    pub interval: Option<Interval>,
    /// The mean value of the scores.
    pub mean_value: f64,
    /// The number of trials in which a call reached a tool.
    pub called: u64,
    /// The number of trials that ended in an error.
    pub errors: u64,
    /// The tokens, as far as the subject reports them.
    pub usage: Usage,
    /// The total time of all trials, in milliseconds.
    pub millis: u64,
}

impl Tally {
    fn of<'a>(trials: impl Iterator<Item = (&'a Trial, &'a Score)>) -> Self {
        let mut tally = Self::default();
        for (trial, score) in trials {
            tally.trials += 1;
            tally.passed += u64::from(score.passed);
            tally.mean_value += score.value;
            tally.called += u64::from(!trial.transcript.calls.is_empty());
            tally.errors += u64::from(trial.error().is_some());
            tally.usage += trial.transcript.usage;
            tally.millis = tally.millis.saturating_add(trial.millis);
        }
        if tally.trials > 0 {
            tally.success = tally.passed as f64 / tally.trials as f64;
            tally.mean_value /= tally.trials as f64;
            tally.interval = Some(wilson(tally.passed, tally.trials));
        }
        tally
    }
}

impl EvalReport {
    /// Counts the trials of a folder by these scores. Trials without a score are omitted.
    pub fn new(results: &Results, scores: &Scores) -> Self {
        let by_key: HashMap<_, _> = scores
            .scores
            .iter()
            .map(|score| ((&*score.case, score.repetition), &score.score))
            .collect();
        let scored = results.trials().iter().filter_map(|trial| {
            let score = by_key.get(&(&*trial.case, trial.repetition))?;
            Some((trial.clone(), Score::clone(score)))
        });
        Self::of(
            results.header().clone(),
            scores.judge.clone(),
            scored.collect(),
        )
    }

    /// Returns the report for the trials of some categories only.
    ///
    /// ```
    /// # use levity_eval::{Case, EvalReport, Expectation, Header, Results, Transcript, Trial};
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let folder = dir.path();
    /// let hi = || Expectation::contains("hi");
    /// let case = |id: &str| Case::new(id, "Say hi.", hi()).with_category(id);
    /// let cases = [case("a"), case("b")];
    /// let mut results = Results::create(folder, &Header::new("own", "demo"), &cases)?;
    /// for case in &cases {
    ///     results.append(Trial::new(case, "demo", 0, Transcript::new().with_text("hi")))?;
    /// }
    /// let report = EvalReport::new(&results, &results.check_all());
    /// assert_eq!((report.total.trials, report.only(&["a"]).total.trials), (2, 1));
    /// # Ok::<(), levity_eval::Error>(())
    /// ```
    #[must_use]
    pub fn only(self, categories: &[impl AsRef<str>]) -> Self {
        let is_selected = |trial: &Trial| {
            categories
                .iter()
                .any(|category| category.as_ref() == trial.category)
        };
        let trials = self
            .trials
            .into_iter()
            .filter(|(trial, _)| is_selected(trial))
            .collect();
        Self::of(self.header, self.judge, trials)
    }

    fn of(header: Header, judge: String, trials: Vec<(Trial, Score)>) -> Self {
        let mut groups: BTreeMap<String, Vec<(&Trial, &Score)>> = BTreeMap::new();
        for (trial, score) in &trials {
            groups
                .entry(trial.category.clone())
                .or_default()
                .push((trial, score));
        }
        let categories = groups
            .into_iter()
            .map(|(name, group)| (name, Tally::of(group.into_iter())))
            .collect();
        let total = Tally::of(trials.iter().map(|(trial, score)| (trial, score)));
        Self {
            header,
            judge,
            categories,
            total,
            trials,
        }
    }

    /// Iterates over the trials and their scores.
    pub fn trials(&self) -> impl Iterator<Item = (&Trial, &Score)> {
        self.trials.iter().map(|(trial, score)| (trial, score))
    }

    /// Formats the report as a text table.
    pub fn to_text(&self) -> String {
        let mut table = Table::new([
            "category",
            "trials",
            "passed",
            "success",
            "95% interval",
            "with calls",
            "errors",
            "tokens in",
            "out",
            "s/trial",
        ]);
        for (name, tally) in &self.categories {
            table.row(row(if name.is_empty() { "-" } else { name }, tally));
        }
        table.row(row("all", &self.total));
        let Header { suite, subject, .. } = &self.header;
        format!(
            "subject {}, suite {}, judged by {}\n\n{}",
            on_one_line(subject),
            on_one_line(suite),
            on_one_line(&self.judge),
            table.to_text()
        )
    }

    /// Formats the report as JSON.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).unwrap_or_default() + "\n"
    }

    /// Formats the trials as JUnit XML, with one test suite for each category.
    ///
    /// ```
    /// # use levity_eval::{Case, EvalReport, Expectation, Header, Results, Transcript, Trial};
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let case = Case::new("1", "Say hi.", Expectation::contains("hi"));
    /// # let header = Header::new("own", "demo");
    /// # let mut results = Results::create(dir.path(), &header, &[case.clone()])?;
    /// # results.append(Trial::new(&case, "demo", 0, Transcript::new().with_text("no")))?;
    /// let report = EvalReport::new(&results, &results.check_all());
    /// let failure = "<failure message=\"the answer does not contain `hi`\"/>";
    /// assert!(report.to_junit().contains(failure));
    /// # Ok::<(), levity_eval::Error>(())
    /// ```
    pub fn to_junit(&self) -> String {
        junit::xml(self)
    }
}

fn row(name: &str, tally: &Tally) -> [String; 10] {
    let count =
        |count: Option<u64>| count.map_or_else(|| "?".to_owned(), |count| count.to_string());
    let seconds = tally.millis as f64 / 1000.0 / tally.trials.max(1) as f64;
    [
        name.to_owned(),
        tally.trials.to_string(),
        tally.passed.to_string(),
        percent(tally.success),
        tally.interval.map_or_else(String::new, range),
        tally.called.to_string(),
        tally.errors.to_string(),
        count(tally.usage.input),
        count(tally.usage.output),
        format!("{seconds:.1}"),
    ]
}

fn percent(share: f64) -> String {
    format!("{:.1}%", share * 100.0)
}

fn range(interval: Interval) -> String {
    format!("{:.1}-{:.1}%", interval.low * 100.0, interval.high * 100.0)
}

/// A comparison of two subjects on the cases that both answered.
///
/// Only pairs count, so a subject gains nothing from cases that the other one did not answer.
///
/// ```
/// use levity_eval::{Case, EvalReport, Expectation, Header, Results, Transcript, Trial};
/// use levity_eval::SubjectComparison;
///
/// # let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
/// let report = |folder, subject: &str, text: &str| {
///     let case = Case::new("1", "Say hi.", Expectation::contains("hi"));
///     let mut results = Results::create(folder, &Header::new("own", subject), &[case.clone()])?;
///     results.append(Trial::new(&case, subject, 0, Transcript::new().with_text(text)))?;
///     Ok::<_, levity_eval::Error>(EvalReport::new(&results, &results.check_all()))
/// };
/// let (first, second) = (report(one.path(), "a", "hi")?, report(two.path(), "b", "no")?);
/// let comparison = SubjectComparison::new(&first, &second);
/// assert_eq!((comparison.pairs, comparison.only_first.len()), (1, 1));
/// assert_eq!(comparison.p_value, 1.0); // one case proves nothing
/// # Ok::<(), levity_eval::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct SubjectComparison {
    /// The first subject and its results.
    pub first: ComparisonSide,
    /// The second subject and its results.
    pub second: ComparisonSide,
    /// The number of trials that both subjects have.
    pub pairs: u64,
    /// The number of trials that both passed.
    pub both: u64,
    /// The trials that only the first subject passed.
    pub only_first: Vec<String>,
    /// The trials that only the second subject passed.
    pub only_second: Vec<String>,
    /// The two-sided p-value of McNemar's exact test.
    pub p_value: f64,
}

/// One subject of a comparison.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ComparisonSide {
    /// The name of the subject.
    pub subject: String,
    /// The judge that scored its trials.
    pub judge: String,
    /// The number of its trials that the other subject does not have.
    pub unpaired: u64,
    /// The counts over the pairs.
    pub tally: Tally,
    /// The counts over the pairs, for each category.
    pub categories: BTreeMap<String, Tally>,
}

impl SubjectComparison {
    /// Pairs the trials of two reports by case and repetition.
    pub fn new(first: &EvalReport, second: &EvalReport) -> Self {
        let by_key = |report: &EvalReport| -> BTreeMap<(String, u32), (Trial, Score)> {
            report
                .trials
                .iter()
                .map(|pair| (pair.0.key(), pair.clone()))
                .collect()
        };
        let (mut one, mut two) = (by_key(first), by_key(second));
        let (all_one, all_two) = (one.len(), two.len());
        one.retain(|key, _| two.contains_key(key));
        two.retain(|key, _| one.contains_key(key));
        let (mut both, mut only_first, mut only_second) = (0, Vec::new(), Vec::new());
        for (key, (_, score)) in &one {
            let other = two.get(key).is_some_and(|(_, score)| score.passed);
            let name = if key.1 == 0 {
                key.0.clone()
            } else {
                format!("{}#{}", key.0, key.1)
            };
            match (score.passed, other) {
                (true, true) => both += 1,
                (true, false) => only_first.push(name),
                (false, true) => only_second.push(name),
                (false, false) => {}
            }
        }
        let p_value = mcnemar(only_first.len() as u64, only_second.len() as u64);
        let pairs = one.len() as u64;
        let first = ComparisonSide::new(first, &one, all_one);
        let second = ComparisonSide::new(second, &two, all_two);
        Self {
            first,
            second,
            pairs,
            both,
            only_first,
            only_second,
            p_value,
        }
    }

    /// Returns `true` if the same judge scored both subjects.
    ///
    /// Scores of different judges should not be compared: one may be stricter than the other.
    pub fn is_same_judge(&self) -> bool {
        self.first.judge == self.second.judge
    }

    /// Formats the comparison as text tables.
    pub fn to_text(&self) -> String {
        let names: BTreeMap<&String, ()> = self
            .first
            .categories
            .keys()
            .map(|name| (name, ()))
            .collect();
        let mut table = Table::new([
            "category",
            "pairs",
            "first",
            "95% interval",
            "second",
            "95% interval",
            "difference",
        ]);
        let none = Tally::default();
        let cell = |tally: &Tally| {
            (
                percent(tally.success),
                tally.interval.map_or_else(String::new, range),
            )
        };
        let mut row = |name: &str, one: &Tally, two: &Tally| {
            let ((a, a_range), (b, b_range)) = (cell(one), cell(two));
            let difference = format!("{:+.1}", (one.success - two.success) * 100.0);
            table.row([
                name.to_owned(),
                one.trials.to_string(),
                a,
                a_range,
                b,
                b_range,
                difference,
            ]);
        };
        for name in names.into_keys() {
            let tally = |side: &'_ ComparisonSide| {
                side.categories
                    .get(name)
                    .cloned()
                    .unwrap_or_else(|| none.clone())
            };
            row(
                if name.is_empty() { "-" } else { name },
                &tally(&self.first),
                &tally(&self.second),
            );
        }
        row("all", &self.first.tally, &self.second.tally);
        let mut text = format!(
            "first  {}\nsecond {}\n\n{}",
            on_one_line(&self.first.subject),
            on_one_line(&self.second.subject),
            table.to_text()
        );
        let (one, two) = (&self.first.tally, &self.second.tally);
        let count =
            |count: Option<u64>| count.map_or_else(|| "?".to_owned(), |count| count.to_string());
        text += &format!(
            "\nonly the first passed {}, only the second {}, both {}, neither {}; McNemar's exact \
                test: p = {}\n",
            self.only_first.len(),
            self.only_second.len(),
            self.both,
            self.pairs - self.both - (self.only_first.len() + self.only_second.len()) as u64,
            p_text(self.p_value),
        );
        text += &format!(
            "trials with calls {} and {}, errors {} and {}, ",
            one.called, two.called, one.errors, two.errors
        );
        text += &format!(
            "tokens {} in, {} out and {} in, {} out\n",
            count(one.usage.input),
            count(one.usage.output),
            count(two.usage.input),
            count(two.usage.output)
        );
        if self.first.unpaired + self.second.unpaired > 0 {
            text += &format!(
                "omitted, because the other subject has no such trial: {} of the first, {} of the \
                    second\n",
                self.first.unpaired, self.second.unpaired
            );
        }
        text
    }
}

fn p_text(p: f64) -> String {
    if p < 0.0001 {
        format!("{p:.1e}")
    } else {
        format!("{p:.4}")
    }
}

impl ComparisonSide {
    fn new(
        report: &EvalReport,
        pairs: &BTreeMap<(String, u32), (Trial, Score)>,
        all: usize,
    ) -> Self {
        let mut groups: BTreeMap<String, Vec<(&Trial, &Score)>> = BTreeMap::new();
        for (trial, score) in pairs.values() {
            groups
                .entry(trial.category.clone())
                .or_default()
                .push((trial, score));
        }
        Self {
            subject: report.header.subject.clone(),
            judge: report.judge.clone(),
            unpaired: (all - pairs.len()) as u64,
            tally: Tally::of(pairs.values().map(|(trial, score)| (trial, score))),
            categories: groups
                .into_iter()
                .map(|(name, group)| (name, Tally::of(group.into_iter())))
                .collect(),
        }
    }
}
