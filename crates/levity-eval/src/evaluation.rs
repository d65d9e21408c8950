//! The loop that asks a subject and stores its trials.
//!
//! The folder is the only state: a started evaluation computes the missing trials from it, whatever
//! happened before. Trials end in any order with several jobs, and are stored in that order.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use levity_core::World;
use levity_runtime::SystemWorld;

use crate::results::read_cases;
use crate::{
    Case, Check, Expectation, ExpectationCheck, Result, Results, Score, Subject, Transcript, Trial,
};

/// Runs a subject on the cases of a [`Results`] folder.
///
/// By default, it runs one repetition, one case at a time, with a time limit of 10 minutes per
/// case. Use the setters to change that.
///
/// ```
/// use levity_eval::{AgentSubject, Case, Evaluation, Expectation, Header, Results};
/// use levity_test::{ScriptedModel, Turn};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), levity_eval::Error> {
/// let cases = [Case::new("1", "Say hi.", Expectation::contains("hi"))];
/// # let dir = tempfile::tempdir().unwrap();
/// # let folder = dir.path();
/// let mut results = Results::create(folder, &Header::new("own", "levity"), &cases)?;
/// let subject = AgentSubject::new("levity", ScriptedModel::looping(Turn::new().text("hi")));
/// Evaluation::new().repetitions(3).jobs(2).run(&subject, &mut results, |_| {}).await?;
/// assert_eq!(results.trials().len(), 3);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Evaluation {
    repetitions: u32,
    jobs: usize,
    timeout: Duration,
    retry_errors: bool,
    check: Arc<dyn Check>,
    world: Arc<dyn World>,
}

/// The progress of an evaluation.
///
/// ```
/// # use levity_eval::{AgentSubject, Case, Evaluation, Expectation, Header, Results};
/// # use levity_test::ScriptedModel;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), levity_eval::Error> {
/// # let cases = [Case::new("1", "Say hi.", Expectation::contains("hi"))];
/// # let dir = tempfile::tempdir().unwrap();
/// # let mut results = Results::create(dir.path(), &Header::new("own", "levity"), &cases)?;
/// # let subject = AgentSubject::new("levity", ScriptedModel::new().reply("hi"));
/// let mut lines = Vec::new();
/// let watch = |progress: &levity_eval::EvalProgress<'_>| {
///     lines.push(format!("{}/{}: {}", progress.done, progress.total, progress.case.id));
/// };
/// Evaluation::new().run(&subject, &mut results, watch).await?;
/// assert_eq!(lines, ["1/1: 1"]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub struct EvalProgress<'a> {
    /// The number of complete trials, including those of earlier processes.
    pub done: usize,
    /// The total number of trials.
    pub total: usize,
    /// The number of trials that passed.
    pub passed: usize,
    /// The number of trials that only the judge of the suite can score; they do not count as
    /// passed.
    pub unjudged: usize,
    /// The number of trials with an error.
    pub errors: usize,
    /// The case of the trial that just ended.
    pub case: &'a Case,
    /// The trial that just ended.
    pub trial: &'a Trial,
    /// The score of that trial.
    pub score: &'a Score,
}

impl Evaluation {
    /// The default time limit of a case: 10 minutes.
    pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(600);

    /// Creates an evaluation with the default settings.
    pub fn new() -> Self {
        Self {
            repetitions: 1,
            jobs: 1,
            timeout: Self::DEFAULT_TIMEOUT,
            retry_errors: false,
            check: Arc::new(ExpectationCheck),
            world: Arc::new(SystemWorld),
        }
    }

    /// Sets the number of repetitions of each case; one by default.
    #[must_use]
    pub fn repetitions(mut self, repetitions: u32) -> Self {
        self.repetitions = repetitions.max(1);
        self
    }

    /// Sets the number of cases that are answered at once; one by default.
    #[must_use]
    pub fn jobs(mut self, jobs: usize) -> Self {
        self.jobs = jobs.max(1);
        self
    }

    /// Sets the time limit of a case; [`DEFAULT_TIMEOUT`](Self::DEFAULT_TIMEOUT) by default.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Repeats the trials that ended in an error.
    ///
    /// A repeated trial replaces the failed one in reports. The file keeps both lines.
    #[must_use]
    pub fn retry_errors(mut self) -> Self {
        self.retry_errors = true;
        self
    }

    /// Sets the check for [`EvalProgress`]; the expectation of the case by default.
    ///
    /// The check does not affect the stored trials; a report scores them anew.
    ///
    /// ```
    /// use levity_eval::{Case, Evaluation, Score, Transcript};
    ///
    /// let evaluation = Evaluation::new().check(|_: &Case, transcript: &Transcript| {
    ///     if transcript.text.is_empty() { Score::fail("no text") } else { Score::pass() }
    /// });
    /// # let _ = evaluation;
    /// ```
    #[must_use]
    pub fn check(mut self, check: impl Check + 'static) -> Self {
        self.check = Arc::new(check);
        self
    }

    /// Sets the clock; the system's clock by default.
    #[must_use]
    pub fn world(mut self, world: Arc<dyn World>) -> Self {
        self.world = world;
        self
    }

    /// Runs the missing trials of the cases that were passed to [`Results::create`], and appends
    /// each as soon as it is complete. Calls `watch` for each. Dropping the future stops the work;
    /// appended trials remain.
    ///
    /// # Errors
    /// Fails if the folder cannot be written. An error of the subject is a trial with an error.
    pub async fn run(
        &self,
        subject: &dyn Subject,
        results: &mut Results,
        mut watch: impl FnMut(&EvalProgress<'_>),
    ) -> Result<()> {
        let cases: HashMap<String, Case> = results
            .requested()
            .map(|case| (case.id.clone(), case.clone()))
            .collect();
        let known = results.trials().iter();
        let known: HashMap<_, _> = known
            .map(|trial| (trial.key(), trial.error().is_some()))
            .collect();
        let keys = (0..self.repetitions).flat_map(|repetition| {
            results
                .requested()
                .map(move |case| (case.id.clone(), repetition))
        });
        let (mut missing, mut of) = (Vec::new(), 0);
        for key in keys {
            of += 1;
            match known.get(&key) {
                Some(failed) if !(*failed && self.retry_errors) => {}
                _ => missing.push(key),
            }
        }
        let mut tally = ProgressCounts::default();
        let again: HashSet<_> = missing.iter().cloned().collect();
        for trial in results
            .trials()
            .iter()
            .filter(|trial| !again.contains(&trial.key()))
        {
            if let Some(case) = cases.get(&trial.case) {
                tally.add(case, trial, &self.check.check(case, &trial.transcript));
            }
        }
        let trials = missing
            .into_iter()
            .filter_map(|(id, repetition)| Some((cases.get(&id)?, repetition)));
        let trials = futures_util::stream::iter(
            trials.map(|(case, repetition)| self.trial(subject, case, repetition)),
        );
        let mut trials = std::pin::pin!(trials.buffer_unordered(self.jobs));
        while let Some(trial) = trials.next().await {
            let Some(case) = cases.get(&trial.case) else {
                continue;
            };
            let score = self.check.check(case, &trial.transcript);
            tally.add(case, &trial, &score);
            results.append(trial.clone())?;
            let ProgressCounts {
                done,
                passed,
                unjudged,
                errors,
            } = tally;
            watch(&EvalProgress {
                done,
                total: of,
                passed,
                unjudged,
                errors,
                case,
                trial: &trial,
                score: &score,
            });
        }
        Ok(())
    }

    async fn trial(&self, subject: &dyn Subject, case: &Case, repetition: u32) -> Trial {
        let at = self.world.now();
        let transcript = match tokio::time::timeout(self.timeout, subject.answer(case)).await {
            Ok(transcript) => transcript,
            Err(_) => Transcript::failed(format!(
                "no answer within {} seconds",
                self.timeout.as_secs()
            )),
        };
        let millis = u64::try_from(self.world.now().since(at).as_millis()).unwrap_or(u64::MAX);
        Trial {
            at,
            millis,
            ..Trial::new(case, subject.name(), repetition, transcript)
        }
    }

    /// Reads your own cases from a file: one [`Case`] as JSON on each line.
    ///
    /// ```
    /// # let folder = tempfile::tempdir()?;
    /// # let path = folder.path().join("cases.jsonl");
    /// # let line = concat!(
    /// #     r#"{"id": "1", "messages": [{"role": "user", "content": "2 + 5?"}], "#,
    /// #     r#""expect": {"kind": "contains", "text": "7"}}"#,
    /// # );
    /// # std::fs::write(&path, line)?;
    /// let cases = levity_eval::Evaluation::read_cases(&path)?;
    /// assert_eq!(cases[0].messages[0].content, "2 + 5?");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Fails if the file cannot be read, or if a line is not a case.
    pub fn read_cases(path: impl AsRef<Path>) -> Result<Vec<Case>> {
        read_cases(path.as_ref())
    }
}

impl Default for Evaluation {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Evaluation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut f = f.debug_struct("Evaluation");
        f.field("repetitions", &self.repetitions)
            .field("jobs", &self.jobs)
            .finish_non_exhaustive()
    }
}

/// The counts for progress, over earlier and new trials.
#[derive(Clone, Copy, Default)]
struct ProgressCounts {
    done: usize,
    passed: usize,
    unjudged: usize,
    errors: usize,
}

impl ProgressCounts {
    fn add(&mut self, case: &Case, trial: &Trial, score: &Score) {
        self.done += 1;
        self.passed += usize::from(score.passed);
        self.unjudged += usize::from(
            case.expect == Expectation::JudgeOnly && !score.passed && trial.error().is_none(),
        );
        self.errors += usize::from(trial.error().is_some());
    }
}
