//! The folder of an evaluation: the files, their locks and their recovery after a kill.
//!
//! `trials.jsonl` only grows, and its lock is that of the whole folder. All other files are
//! replaced atomically. A header with other settings is rejected, since trials under different
//! settings cannot be counted together.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::{self, File, TryLockError};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use levity_system::Replace;
use levity_system::files::{MAX_SIZE, check_size, open, options, read_at_most};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{Case, Check, Error, ExpectationCheck, Result, Score, Trial};

const HEADER: &str = "evaluation.json";
const CASES: &str = "cases.jsonl";
const TRIALS: &str = "trials.jsonl";
const SCORES: &str = "scores.jsonl";

/// The description of the evaluation: suite, subject and settings.
///
/// ```
/// use levity_eval::Header;
///
/// let header = Header::new("own", "levity")
///     .with_setting("model", "gemini-flash")
///     .with_setting("temperature", 0.0)
///     .with_fact("data", "/data/own");
/// assert_eq!(header.settings["model"], "gemini-flash");
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Header {
    /// The suite of the cases.
    pub suite: String,
    /// The name of the subject.
    pub subject: String,
    /// The settings that make the trials comparable: model, temperature, version.
    #[serde(default)]
    pub settings: Map<String, Value>,
    /// Facts that may change before the evaluation is complete, such as the location of the data.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub facts: Map<String, Value>,
}

impl Header {
    /// Creates a header without settings.
    pub fn new(suite: impl Into<String>, subject: impl Into<String>) -> Self {
        Self {
            suite: suite.into(),
            subject: subject.into(),
            settings: Map::new(),
            facts: Map::new(),
        }
    }

    /// Adds a setting to the header.
    #[must_use]
    pub fn with_setting(mut self, name: impl Into<String>, value: impl Into<Value>) -> Self {
        self.settings.insert(name.into(), value.into());
        self
    }

    /// Adds a fact to the header.
    #[must_use]
    pub fn with_fact(mut self, name: impl Into<String>, value: impl Into<Value>) -> Self {
        self.facts.insert(name.into(), value.into());
        self
    }

    /// Describes the differences between two headers.
    fn difference(&self, other: &Self) -> Option<String> {
        let pair = |name: &str, one: &Value, two: &Value| {
            (one != two).then(|| format!("`{name}` is {one} in the folder and {two} now"))
        };
        let complete = |header: &Self| {
            let named = [("suite", &header.suite), ("subject", &header.subject)];
            let named = named.map(|(name, value)| (name.to_owned(), Value::from(&**value)));
            named
                .into_iter()
                .chain(header.settings.clone())
                .collect::<BTreeMap<_, _>>()
        };
        let (one, two) = (complete(self), complete(other));
        let names: BTreeMap<_, ()> = one
            .keys()
            .chain(two.keys())
            .map(|name| (name, ()))
            .collect();
        names.into_keys().find_map(|name| {
            pair(
                name,
                one.get(name).unwrap_or(&Value::Null),
                two.get(name).unwrap_or(&Value::Null),
            )
        })
    }
}

/// A folder with the trials of one subject on one suite.
///
/// | file | content |
/// |---|---|
/// | `evaluation.json` | the [`Header`] |
/// | `cases.jsonl` | the cases, so that trials can be scored without the suite |
/// | `trials.jsonl` | one [`Trial`] a line, in the order in which they ended |
/// | `scores.jsonl` | the [`Scores`] |
///
/// A trial is appended as soon as it is complete. If a kill cut the last line short, the line is
/// dropped when the folder is opened for writing. Only one process at a time can write to a folder.
///
/// ```
/// use levity_eval::{Case, Expectation, Header, Results, Transcript, Trial};
///
/// let case = Case::new("1", "Say hi.", Expectation::contains("hi"));
/// # let dir = tempfile::tempdir().unwrap();
/// # let folder = dir.path();
/// let mut results = Results::create(folder, &Header::new("own", "demo"), &[case.clone()])?;
/// results.append(Trial::new(&case, "demo", 0, Transcript::new().with_text("hi")))?;
/// drop(results);
///
/// let results = Results::open(folder)?;
/// assert_eq!((results.cases().len(), results.trials().len()), (1, 1));
/// # Ok::<(), levity_eval::Error>(())
/// ```
#[derive(Debug)]
pub struct Results {
    folder: PathBuf,
    header: Header,
    cases: Vec<Case>,
    /// The ids of the cases that were passed to [`create`](Self::create).
    requested: HashSet<String>,
    trials: Vec<Trial>,
    /// The file of the trials, open and locked, if the folder was opened for writing.
    file: Option<File>,
}

impl Results {
    /// Opens a folder for writing, and creates it if necessary. New cases are added to those in the
    /// folder.
    ///
    /// ```
    /// use levity_eval::{Error, Header, Results};
    ///
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let folder = dir.path();
    /// let header = |model| Header::new("own", "demo").with_setting("model", model);
    /// drop(Results::create(folder, &header("a"), &[])?);
    /// let other = Results::create(folder, &header("b"), &[]);
    /// assert!(matches!(other, Err(Error::OtherEvaluation { .. })));
    /// # Ok::<(), levity_eval::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails if the folder contains results of another evaluation, if another process writes to it,
    /// or if it cannot be read and written.
    pub fn create(folder: impl Into<PathBuf>, header: &Header, cases: &[Case]) -> Result<Self> {
        let folder = folder.into();
        fs::create_dir_all(&folder).map_err(|error| Error::io(&folder, error))?;
        let path = folder.join(TRIALS);
        let open = open(&path, options().read(true).append(true).create(true));
        let mut file = open.map_err(|error| Error::io(&path, error))?;
        match lock(&file) {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(Error::InUse(folder)),
            Err(TryLockError::Error(error)) => return Err(Error::io(&path, error)),
        }
        drop_incomplete_line(&mut file).map_err(|error| Error::io(&path, error))?;
        let known = match folder.join(HEADER).exists() {
            true => {
                let found = Self::open(&folder)?;
                if let Some(difference) = found.header.difference(header) {
                    return Err(Error::OtherEvaluation {
                        path: folder,
                        difference,
                    });
                }
                found
            }
            false => {
                let (cases, trials, requested) = (Vec::new(), Vec::new(), HashSet::new());
                Self {
                    folder,
                    header: header.clone(),
                    cases,
                    requested,
                    trials,
                    file: None,
                }
            }
        };
        let requested = cases.iter().map(|case| case.id.clone()).collect();
        let cases = merge_cases(&known, cases)?;
        write_lines(&known.folder.join(CASES), &cases)?;
        let text = serde_json::to_string_pretty(header).unwrap_or_default() + "\n";
        write(&known.folder.join(HEADER), text.as_bytes())?;
        Ok(Self {
            header: header.clone(),
            cases,
            requested,
            file: Some(file),
            ..known
        })
    }

    /// Opens a folder for reading.
    ///
    /// # Errors
    /// Fails if it contains no results, or if they cannot be read.
    pub fn open(folder: impl Into<PathBuf>) -> Result<Self> {
        let folder = folder.into();
        let path = folder.join(HEADER);
        let bytes = read_at_most(&path, MAX_SIZE).map_err(|error| Error::io(&path, error))?;
        let header = serde_json::from_slice(&bytes).map_err(|error| Error::Line {
            path,
            line: error.line(),
            problem: problem(&error),
        })?;
        let cases: Vec<Case> = read_lines(&folder.join(CASES), IncompleteLine::Error)?;
        let all: Vec<Trial> = read_lines(&folder.join(TRIALS), IncompleteLine::Drop)?;
        let mut trials: Vec<Trial> = Vec::new();
        let mut places = HashMap::new();
        for trial in all {
            // A repeated trial counts once, with its last result.
            match places.get(&trial.key()) {
                Some(&index) => trials[index] = trial,
                None => {
                    places.insert(trial.key(), trials.len());
                    trials.push(trial);
                }
            }
        }
        Ok(Self {
            folder,
            header,
            cases,
            requested: HashSet::new(),
            trials,
            file: None,
        })
    }

    /// Returns the path of the folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the description of the evaluation: suite, subject and settings.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Iterates over the cases that were passed to [`create`](Self::create). The folder may contain
    /// others, from another call or another author.
    pub(crate) fn requested(&self) -> impl Iterator<Item = &Case> {
        self.cases
            .iter()
            .filter(|case| self.requested.contains(&case.id))
    }

    /// Returns all cases of the folder.
    pub fn cases(&self) -> &[Case] {
        &self.cases
    }

    /// Returns the case with this id.
    ///
    /// ```
    /// use levity_eval::{Case, Expectation, Header, Results};
    ///
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let folder = dir.path();
    /// let case = Case::new("1", "Say hi.", Expectation::contains("hi"));
    /// let results = Results::create(folder, &Header::new("own", "demo"), &[case.clone()])?;
    /// assert_eq!(results.case("1"), Some(&case));
    /// assert_eq!(results.case("2"), None);
    /// # Ok::<(), levity_eval::Error>(())
    /// ```
    pub fn case(&self, id: &str) -> Option<&Case> {
        self.cases.iter().find(|case| case.id == id)
    }

    /// Returns the trials, each once.
    pub fn trials(&self) -> &[Trial] {
        &self.trials
    }

    /// Appends a trial. It replaces an earlier one with the same case and repetition.
    ///
    /// The line is handed to the operating system before the call returns, so it survives a kill of
    /// the process. It is not synced to the disk.
    ///
    /// # Errors
    /// Fails if the folder was opened for reading, or if it cannot be written.
    pub fn append(&mut self, trial: Trial) -> Result<()> {
        let path = self.folder.join(TRIALS);
        let Some(file) = &mut self.file else {
            return Err(Error::io(
                path,
                std::io::Error::other("the folder was opened for reading"),
            ));
        };
        let mut line =
            serde_json::to_vec(&trial).map_err(|error| Error::io(&path, error.into()))?;
        line.push(b'\n');
        file.write_all(&line)
            .map_err(|error| Error::io(&path, error))?;
        match self
            .trials
            .iter_mut()
            .find(|known| (&known.case, known.repetition) == (&trial.case, trial.repetition))
        {
            Some(known) => *known = trial,
            None => self.trials.push(trial),
        }
        Ok(())
    }

    /// Scores all trials by the expectations of their cases.
    pub fn check_all(&self) -> Scores {
        self.check_by("levity", &ExpectationCheck)
    }

    /// Scores all trials by a check; `judge` names it.
    ///
    /// ```
    /// use levity_eval::{Case, Expectation, Header, Results, Score, Transcript, Trial};
    ///
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let case = Case::new("1", "Say hi.", Expectation::contains("hi"));
    /// # let header = Header::new("own", "demo");
    /// # let mut results = Results::create(dir.path(), &header, &[case.clone()])?;
    /// # results.append(Trial::new(&case, "demo", 0, Transcript::new().with_text("hi")))?;
    /// let brief = |_: &Case, transcript: &Transcript| match transcript.text.len() {
    ///     0..=10 => Score::pass(),
    ///     _ => Score::fail("too long"),
    /// };
    /// let scores = results.check_by("brevity", &brief);
    /// assert_eq!((scores.judge.as_str(), scores.scores[0].score.passed), ("brevity", true));
    /// # Ok::<(), levity_eval::Error>(())
    /// ```
    pub fn check_by(&self, judge: impl Into<String>, check: &dyn Check) -> Scores {
        let cases: HashMap<&str, &Case> = self.cases.iter().map(|case| (&*case.id, case)).collect();
        let score = |trial: &Trial| match cases.get(&*trial.case) {
            Some(case) => check.check(case, &trial.transcript),
            None => Score::fail("the folder does not contain the case"),
        };
        let scores = self
            .trials
            .iter()
            .map(|trial| TrialScore::new(trial, score(trial)));
        Scores {
            judge: judge.into(),
            scores: scores.collect(),
        }
    }

    /// Writes scores next to the trials.
    ///
    /// ```
    /// # use levity_eval::{Case, Expectation, Header, Results, Transcript, Trial};
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let case = Case::new("1", "Say hi.", Expectation::contains("hi"));
    /// # let header = Header::new("own", "demo");
    /// # let mut results = Results::create(dir.path(), &header, &[case.clone()])?;
    /// # results.append(Trial::new(&case, "demo", 0, Transcript::new().with_text("hi")))?;
    /// let scores = results.check_all();
    /// results.write_scores(&scores)?;
    /// assert_eq!(results.scores()?, Some(scores));
    ///
    /// results.append(Trial::new(&case, "demo", 1, Transcript::new()))?;
    /// assert_eq!(results.scores()?, None); // a trial has no score yet
    /// # Ok::<(), levity_eval::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails if the folder cannot be written.
    pub fn write_scores(&self, scores: &Scores) -> Result<()> {
        let lines = scores.scores.iter().map(|score| Line {
            judge: scores.judge.clone(),
            score: score.clone(),
        });
        write_lines(&self.folder.join(SCORES), &lines.collect::<Vec<_>>())
    }

    /// Returns the last written scores; `None` if there are none, or if trials were added later.
    ///
    /// # Errors
    /// Fails if the scores cannot be read.
    pub fn scores(&self) -> Result<Option<Scores>> {
        let path = self.folder.join(SCORES);
        if !path.exists() {
            return Ok(None);
        }
        let lines: Vec<Line> = read_lines(&path, IncompleteLine::Error)?;
        let judge = lines
            .first()
            .map(|line| line.judge.clone())
            .unwrap_or_default();
        let scores: Vec<TrialScore> = lines.into_iter().map(|line| line.score).collect();
        let scored: HashSet<_> = scores
            .iter()
            .map(|score| (&score.case, score.repetition, score.at))
            .collect();
        let current = self
            .trials
            .iter()
            .all(|trial| scored.contains(&(&trial.case, trial.repetition, trial.at)));
        Ok(current.then_some(Scores { judge, scores }))
    }

    /// Writes a file next to the trials, such as a report.
    ///
    /// # Errors
    /// Fails if the file cannot be written.
    pub fn write_file(&self, name: &str, text: &str) -> Result<()> {
        write(&self.folder.join(name), text.as_bytes())
    }
}

/// The scores of all trials of a folder, with the name of the judge.
///
/// ```
/// use levity_eval::{Case, Expectation, Score, Scores, Transcript, Trial, TrialScore};
///
/// let case = Case::new("1", "Say hi.", Expectation::JudgeOnly);
/// let trial = Trial::new(&case, "demo", 0, Transcript::new());
/// let scores = Scores::new("ada", vec![TrialScore::new(&trial, Score::fail("silent"))]);
/// assert_eq!(scores.scores[0].case, "1");
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Scores {
    /// The judge, with its version.
    pub judge: String,
    /// The scores, in the order of the trials.
    pub scores: Vec<TrialScore>,
}

impl Scores {
    /// Creates the scores of a judge.
    pub fn new(judge: impl Into<String>, scores: Vec<TrialScore>) -> Self {
        Self {
            judge: judge.into(),
            scores,
        }
    }
}

/// The score of one trial.
///
/// ```
/// use levity_eval::{Case, Expectation, Score, Transcript, Trial, TrialScore};
///
/// let case = Case::new("1", "Say hi.", Expectation::contains("hi"));
/// let trial = Trial::new(&case, "demo", 2, Transcript::new().with_text("hi"));
/// let score = TrialScore::new(&trial, Score::pass());
/// assert_eq!((score.case.as_str(), score.repetition), ("1", 2));
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TrialScore {
    /// The id of the case.
    pub case: String,
    /// The repetition, from 0.
    #[serde(default)]
    pub repetition: u32,
    /// The start of the trial, which distinguishes it from a repeated one.
    #[serde(default)]
    pub at: levity_core::Timestamp,
    /// The score of the trial.
    #[serde(flatten)]
    pub score: Score,
}

impl TrialScore {
    /// Creates the score of a trial.
    pub fn new(trial: &Trial, score: Score) -> Self {
        Self {
            case: trial.case.clone(),
            repetition: trial.repetition,
            at: trial.at,
            score,
        }
    }
}

#[derive(Serialize, Deserialize)]
struct Line {
    judge: String,
    #[serde(flatten)]
    score: TrialScore,
}

/// The treatment of an incomplete last line.
#[derive(Clone, Copy)]
enum IncompleteLine {
    Drop,
    Error,
}

/// Returns the problem of a line and its column; the caller knows the line.
fn problem(error: &serde_json::Error) -> String {
    let problem = levity_core::text::json_problem(error);
    let (problem, _) = problem.rsplit_once(" at line ").unwrap_or((&problem, ""));
    format!("column {}: {problem}", error.column())
}

/// Reads one value from each line of a file.
fn read_lines<T: DeserializeOwned>(path: &Path, incomplete: IncompleteLine) -> Result<Vec<T>> {
    let bytes = read_at_most(path, MAX_SIZE).map_err(|error| Error::io(path, error))?;
    let complete = match incomplete {
        IncompleteLine::Drop => bytes
            .iter()
            .rposition(|byte| *byte == b'\n')
            .map_or(0, |end| end + 1),
        IncompleteLine::Error => bytes.len(),
    };
    let lines = bytes[..complete].split(|byte| *byte == b'\n').enumerate();
    let lines = lines.filter(|(_, line)| !line.trim_ascii().is_empty());
    lines
        .map(|(at, line)| {
            serde_json::from_slice(line).map_err(|error| Error::Line {
                path: path.to_owned(),
                line: at + 1,
                problem: problem(&error),
            })
        })
        .collect()
}

/// Reads cases, one from each line of a file.
pub(crate) fn read_cases(path: &Path) -> Result<Vec<Case>> {
    read_lines(path, IncompleteLine::Error)
}

fn write_lines<T: Serialize>(path: &Path, values: &[T]) -> Result<()> {
    let mut bytes = Vec::new();
    for value in values {
        serde_json::to_writer(&mut bytes, value).map_err(|error| Error::io(path, error.into()))?;
        bytes.push(b'\n');
    }
    write(path, &bytes)
}

/// Replaces a file atomically, so that a kill leaves the old or the new file.
fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    Replace::new(path)
        .write(bytes)
        .map_err(|error| Error::io(path, error))
}

/// Locks a file for this process.
///
/// A program that another thread is starting has a copy of each open file for a moment, and with it
/// the lock of a file that is already closed here. So this function waits up to 200 ms.
fn lock(file: &File) -> std::result::Result<(), TryLockError> {
    for _ in 0..20 {
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(10)),
            ended => return ended,
        }
    }
    file.try_lock()
}

/// Truncates the file after its last complete line, which is all that a kill during an append can
/// damage.
fn drop_incomplete_line(file: &mut File) -> std::io::Result<()> {
    let mut bytes = Vec::new();
    check_size(file, MAX_SIZE)?;
    file.seek(SeekFrom::Start(0))?;
    file.read_to_end(&mut bytes)?;
    let complete = bytes
        .iter()
        .rposition(|byte| *byte == b'\n')
        .map_or(0, |end| end + 1);
    if complete < bytes.len() {
        file.set_len(complete as u64)
    } else {
        Ok(())
    }
}

/// Merges the cases of a folder with new ones.
fn merge_cases(known: &Results, new: &[Case]) -> Result<Vec<Case>> {
    let mut cases = known.cases.clone();
    let mut places: HashMap<String, usize> = cases
        .iter()
        .enumerate()
        .map(|(index, case)| (case.id.clone(), index))
        .collect();
    let mut seen = HashSet::new();
    for case in new {
        if !seen.insert(&case.id) {
            return Err(Error::Suite(format!(
                "two cases have the id `{}`; rename one",
                case.id
            )));
        }
        match places.get(&case.id) {
            Some(&index) if cases[index] != *case => {
                let difference = format!("its case `{}` differs", case.id);
                return Err(Error::OtherEvaluation {
                    path: known.folder.clone(),
                    difference,
                });
            }
            Some(_) => {}
            None => {
                places.insert(case.id.clone(), cases.len());
                cases.push(case.clone());
            }
        }
    }
    Ok(cases)
}
