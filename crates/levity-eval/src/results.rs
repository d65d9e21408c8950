use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::{self, File, TryLockError};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use levity_system::Replace;
use levity_system::files::{LARGEST, check_size, open, options, read_at_most};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{Case, Check, Error, ExpectationCheck, Result, Score, Trial};

const HEADER: &str = "evaluation.json";
const CASES: &str = "cases.jsonl";
const TRIALS: &str = "trials.jsonl";
const SCORES: &str = "scores.jsonl";

/// The description of the evaluation: suite, subject and settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Header {
    /// The suite that the cases are from.
    pub suite: String,
    /// The name of the subject.
    pub subject: String,
    /// Settings that make the trials comparable: model, temperature, version.
    #[serde(default)]
    pub settings: Map<String, Value>,
    /// Facts that may change before the evaluation is complete, such as where the data are.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub facts: Map<String, Value>,
}

impl Header {
    /// A header without settings.
    pub fn new(suite: impl Into<String>, subject: impl Into<String>) -> Self {
        Self {
            suite: suite.into(),
            subject: subject.into(),
            settings: Map::new(),
            facts: Map::new(),
        }
    }

    /// Adds a setting.
    #[must_use]
    pub fn with_setting(mut self, name: impl Into<String>, value: impl Into<Value>) -> Self {
        self.settings.insert(name.into(), value.into());
        self
    }

    /// Adds a fact.
    #[must_use]
    pub fn with_fact(mut self, name: impl Into<String>, value: impl Into<Value>) -> Self {
        self.facts.insert(name.into(), value.into());
        self
    }

    /// Describes the differences between two headers.
    fn difference(&self, other: &Self) -> Option<String> {
        let pair = |name: &str, one: &Value, two: &Value| {
            (one != two).then(|| format!("`{name}` is {one} there and {two} here"))
        };
        let whole = |header: &Self| {
            let named = [("suite", &header.suite), ("subject", &header.subject)];
            let named = named.map(|(name, value)| (name.to_owned(), Value::from(&**value)));
            named
                .into_iter()
                .chain(header.settings.clone())
                .collect::<BTreeMap<_, _>>()
        };
        let (one, two) = (whole(self), whole(other));
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
/// A trial is appended as soon as it is there. A last line that a kill cut short is dropped when
/// the folder is opened for writing. Only one process at a time can write to a folder.
#[derive(Debug)]
pub struct Results {
    folder: PathBuf,
    header: Header,
    cases: Vec<Case>,
    /// The ids of the cases that [`create`](Self::create) was given.
    asked: HashSet<String>,
    trials: Vec<Trial>,
    /// Open and locked, in a folder that is written to.
    file: Option<File>,
}

impl Results {
    /// Opens a folder to write to it, and makes it if it is not there. Cases that are new are added
    /// to those it has.
    ///
    /// # Errors
    /// When the folder has results of another evaluation, another process writes to it, or it
    /// cannot be read and written.
    pub fn create(folder: impl Into<PathBuf>, header: &Header, cases: &[Case]) -> Result<Self> {
        let folder = folder.into();
        fs::create_dir_all(&folder).map_err(|error| Error::io(&folder, error))?;
        let path = folder.join(TRIALS);
        let open = open(&path, options().read(true).append(true).create(true));
        let mut file = open.map_err(|error| Error::io(&path, error))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(Error::InUse(folder)),
            Err(TryLockError::Error(error)) => return Err(Error::io(&path, error)),
        }
        drop_torn_line(&mut file).map_err(|error| Error::io(&path, error))?;
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
                let (cases, trials, asked) = (Vec::new(), Vec::new(), HashSet::new());
                Self {
                    folder,
                    header: header.clone(),
                    cases,
                    asked,
                    trials,
                    file: None,
                }
            }
        };
        let asked = cases.iter().map(|case| case.id.clone()).collect();
        let cases = merged(&known, cases)?;
        write_lines(&known.folder.join(CASES), &cases)?;
        let text = serde_json::to_string_pretty(header).unwrap_or_default() + "\n";
        write(&known.folder.join(HEADER), text.as_bytes())?;
        Ok(Self {
            header: header.clone(),
            cases,
            asked,
            file: Some(file),
            ..known
        })
    }

    /// Opens a folder to look at it.
    ///
    /// # Errors
    /// When it has no results, or they cannot be read.
    pub fn open(folder: impl Into<PathBuf>) -> Result<Self> {
        let folder = folder.into();
        let path = folder.join(HEADER);
        let bytes = read_at_most(&path, LARGEST).map_err(|error| Error::io(&path, error))?;
        let header = serde_json::from_slice(&bytes).map_err(|error| Error::Line {
            path,
            line: error.line(),
            problem: error.to_string(),
        })?;
        let cases: Vec<Case> = read_lines(&folder.join(CASES), Torn::Error)?;
        let all: Vec<Trial> = read_lines(&folder.join(TRIALS), Torn::Drop)?;
        let mut trials: Vec<Trial> = Vec::new();
        let mut places = HashMap::new();
        for trial in all {
            // A trial that was repeated counts once, as it was last.
            match places.get(&trial.key()) {
                Some(&place) => trials[place] = trial,
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
            asked: HashSet::new(),
            trials,
            file: None,
        })
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The description of the evaluation: suite, subject and settings.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The cases that [`create`](Self::create) was given. A folder may have others, of another call
    /// or of whoever made it.
    pub(crate) fn asked(&self) -> impl Iterator<Item = &Case> {
        self.cases
            .iter()
            .filter(|case| self.asked.contains(&case.id))
    }

    /// The cases.
    pub fn cases(&self) -> &[Case] {
        &self.cases
    }

    /// The case with this id.
    pub fn case(&self, id: &str) -> Option<&Case> {
        self.cases.iter().find(|case| case.id == id)
    }

    /// The trials, each once.
    pub fn trials(&self) -> &[Trial] {
        &self.trials
    }

    /// Appends a trial. One with the same case and repetition replaces the earlier one.
    ///
    /// # Errors
    /// When the folder was opened only to look at it, or cannot be written to.
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

    /// Scores all trials by what their cases expect.
    pub fn check_all(&self) -> Scores {
        self.check_by("levity", &ExpectationCheck)
    }

    /// Scores all trials by a check; `judge` names it.
    pub fn check_by(&self, judge: impl Into<String>, check: &dyn Check) -> Scores {
        let cases: HashMap<&str, &Case> = self.cases.iter().map(|case| (&*case.id, case)).collect();
        let score = |trial: &Trial| match cases.get(&*trial.case) {
            Some(case) => check.check(case, &trial.transcript),
            None => Score::fail("the folder does not have the case"),
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

    /// Writes scores beside the trials.
    ///
    /// # Errors
    /// When the folder cannot be written to.
    pub fn write_scores(&self, scores: &Scores) -> Result<()> {
        let lines = scores.scores.iter().map(|score| Line {
            judge: scores.judge.clone(),
            score: score.clone(),
        });
        write_lines(&self.folder.join(SCORES), &lines.collect::<Vec<_>>())
    }

    /// The scores that were written last; `None` when there are none, or trials came later.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn scores(&self) -> Result<Option<Scores>> {
        let path = self.folder.join(SCORES);
        if !path.exists() {
            return Ok(None);
        }
        let lines: Vec<Line> = read_lines(&path, Torn::Error)?;
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

    /// Writes a file beside the trials, such as a report.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write_file(&self, name: &str, text: &str) -> Result<()> {
        write(&self.folder.join(name), text.as_bytes())
    }
}

/// The scores of all trials of a folder, and who gave them.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Scores {
    /// The judge, with its version.
    pub judge: String,
    /// The scores, in the order of the trials.
    pub scores: Vec<TrialScore>,
}

impl Scores {
    /// Scores of a judge.
    pub fn new(judge: impl Into<String>, scores: Vec<TrialScore>) -> Self {
        Self {
            judge: judge.into(),
            scores,
        }
    }
}

/// The score of one trial.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TrialScore {
    /// The id of the case.
    pub case: String,
    /// The repetition, from 0.
    #[serde(default)]
    pub repetition: u32,
    /// The start of the trial, which tells it from one that was made again.
    #[serde(default)]
    pub at: levity_core::Timestamp,
    /// The score.
    #[serde(flatten)]
    pub score: Score,
}

impl TrialScore {
    /// The score of a trial.
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

/// The treatment of a last line without its end.
#[derive(Clone, Copy)]
enum Torn {
    Drop,
    Error,
}

/// Reads one value from each line of a file.
fn read_lines<T: DeserializeOwned>(path: &Path, torn: Torn) -> Result<Vec<T>> {
    let bytes = read_at_most(path, LARGEST).map_err(|error| Error::io(path, error))?;
    let whole = match torn {
        Torn::Drop => bytes
            .iter()
            .rposition(|byte| *byte == b'\n')
            .map_or(0, |end| end + 1),
        Torn::Error => bytes.len(),
    };
    let lines = bytes[..whole].split(|byte| *byte == b'\n').enumerate();
    let lines = lines.filter(|(_, line)| !line.trim_ascii().is_empty());
    lines
        .map(|(at, line)| {
            serde_json::from_slice(line).map_err(|error| Error::Line {
                path: path.to_owned(),
                line: at + 1,
                problem: error.to_string(),
            })
        })
        .collect()
}

/// Reads cases, one on each line of a file.
pub(crate) fn read_cases(path: &Path) -> Result<Vec<Case>> {
    read_lines(path, Torn::Error)
}

fn write_lines<T: Serialize>(path: &Path, values: &[T]) -> Result<()> {
    let mut bytes = Vec::new();
    for value in values {
        serde_json::to_writer(&mut bytes, value).map_err(|error| Error::io(path, error.into()))?;
        bytes.push(b'\n');
    }
    write(path, &bytes)
}

/// Replaces a file as a whole, so that a kill leaves the old one or the new one.
fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    Replace::new(path)
        .write(bytes)
        .map_err(|error| Error::io(path, error))
}

fn drop_torn_line(file: &mut File) -> std::io::Result<()> {
    let mut bytes = Vec::new();
    check_size(file, LARGEST)?;
    file.seek(SeekFrom::Start(0))?;
    file.read_to_end(&mut bytes)?;
    let whole = bytes
        .iter()
        .rposition(|byte| *byte == b'\n')
        .map_or(0, |end| end + 1);
    if whole < bytes.len() {
        file.set_len(whole as u64)
    } else {
        Ok(())
    }
}

/// The cases of a folder and those that are new to it.
fn merged(known: &Results, new: &[Case]) -> Result<Vec<Case>> {
    let mut cases = known.cases.clone();
    let mut places: HashMap<String, usize> = cases
        .iter()
        .enumerate()
        .map(|(place, case)| (case.id.clone(), place))
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
            Some(&place) if cases[place] != *case => {
                let difference = format!("its case `{}` is another one", case.id);
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
