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

/// Has a subject answer the cases of a [`Results`] folder.
///
/// It makes one repetition, one case at a time, and gives each 10 minutes; setters change that.
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
#[derive(Debug)]
#[non_exhaustive]
pub struct EvalProgress<'a> {
    /// The trials that are there, those of earlier processes included.
    pub done: usize,
    /// The trials that there will be.
    pub of: usize,
    /// The trials that passed.
    pub passed: usize,
    /// The trials that only the judge of the suite can score; they are not among those that passed.
    pub unjudged: usize,
    /// The trials with an error.
    pub errors: usize,
    /// The case of the trial that ended now.
    pub case: &'a Case,
    /// The trial that ended now.
    pub trial: &'a Trial,
    /// Its score.
    pub score: &'a Score,
}

impl Evaluation {
    /// The default time limit of a case: 10 minutes.
    pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(600);

    /// An evaluation with the defaults.
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

    /// Makes trials again that ended in an error.
    #[must_use]
    pub fn retry_errors(mut self) -> Self {
        self.retry_errors = true;
        self
    }

    /// The check that [`EvalProgress`] is counted by; what the case expects, by default.
    #[must_use]
    pub fn check(mut self, check: impl Check + 'static) -> Self {
        self.check = Arc::new(check);
        self
    }

    /// The clock; the system's by default.
    #[must_use]
    pub fn world(mut self, world: Arc<dyn World>) -> Self {
        self.world = world;
        self
    }

    /// Makes the trials that the folder does not have yet, of the cases that [`Results::create`]
    /// was given, and appends each as soon as it is there. `watch` is told of each. Dropping the
    /// future stops the work; what was appended stays.
    ///
    /// # Errors
    /// When the folder cannot be written to. What a subject cannot answer is a trial with an error.
    pub async fn run(
        &self,
        subject: &dyn Subject,
        results: &mut Results,
        mut watch: impl FnMut(&EvalProgress<'_>),
    ) -> Result<()> {
        let cases: HashMap<String, Case> = results
            .asked()
            .map(|case| (case.id.clone(), case.clone()))
            .collect();
        let known = results.trials().iter();
        let known: HashMap<_, _> = known
            .map(|trial| (trial.key(), trial.error().is_some()))
            .collect();
        let wanted = (0..self.repetitions).flat_map(|repetition| {
            results
                .asked()
                .map(move |case| (case.id.clone(), repetition))
        });
        let (mut missing, mut of) = (Vec::new(), 0);
        for key in wanted {
            of += 1;
            match known.get(&key) {
                Some(failed) if !(*failed && self.retry_errors) => {}
                _ => missing.push(key),
            }
        }
        let mut tally = Tallied::default();
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
            let Tallied {
                done,
                passed,
                unjudged,
                errors,
            } = tally;
            watch(&EvalProgress {
                done,
                of,
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

    /// Reads cases of your own from a file: one [`Case`] as JSON on each line.
    ///
    /// ```
    /// # let folder = tempfile::tempdir()?;
    /// # let path = folder.path().join("cases.jsonl");
    /// # std::fs::write(&path, r#"{"id": "1", "messages": [{"role": "user", "content": "2 + 5?"}], "expect": {"kind": "contains", "text": "7"}}"#)?;
    /// let cases = levity_eval::Evaluation::read_cases(&path)?;
    /// assert_eq!(cases[0].messages[0].content, "2 + 5?");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// When the file cannot be read, or a line is no case.
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

#[derive(Clone, Copy, Default)]
struct Tallied {
    done: usize,
    passed: usize,
    unjudged: usize,
    errors: usize,
}

impl Tallied {
    fn add(&mut self, case: &Case, trial: &Trial, score: &Score) {
        self.done += 1;
        self.passed += usize::from(score.passed);
        self.unjudged += usize::from(
            case.expect == Expectation::Judged && !score.passed && trial.error().is_none(),
        );
        self.errors += usize::from(trial.error().is_some());
    }
}
