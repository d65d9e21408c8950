//! Judges: programs that score a whole folder of trials at once.
//!
//! One process scores all trials, because checkers take long to start. Its output is bounded by 256
//! MiB, and its verdicts must match the trials one to one. Its input is built line by line: each
//! line repeats the case, and many trials of a long case would not fit in memory.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::process::Stdio;
use std::time::Duration;

use levity_core::text::one_line;
use serde::Deserialize;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::process::Command;

use crate::python::Script;
use crate::{Case, Error, Result, Results, Score, Scores, TrialScore};

/// The default time of a judge for a folder, and for each trial in it.
const TIME: Duration = Duration::from_secs(120);
const TIME_FOR_TRIAL: Duration = Duration::from_secs(5);

/// The maximum output of a judge, in bytes.
const MAX_OUTPUT: u64 = 256 << 20;

/// A program that scores trials, such as the checker of a benchmark.
///
/// It reads one line of JSON for each trial, `{"case": {..}, "trial": {..}}`. It first writes
/// `{"judge": "name and version"}` and then one line for each trial, in that order:
/// `{"passed": true, "reason": ""}`.
///
/// ```
/// # #[cfg(unix)]
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> levity_eval::Result<()> {
/// # use levity_eval::{Case, Expectation, Header, Results, Transcript, Trial};
/// use levity_eval::Judge;
///
/// # let dir = tempfile::tempdir().unwrap();
/// # let case = Case::new("1", "Say hi.", Expectation::JudgeOnly);
/// # let mut results = Results::create(dir.path(), &Header::new("own", "demo"), &[case.clone()])?;
/// # results.append(Trial::new(&case, "demo", 0, Transcript::new().with_text("hi")))?;
/// let script = r#"
///     echo '{"judge": "kind 1.0"}'
///     while read trial; do echo '{"passed": true}'; done
/// "#;
/// let scores = Judge::new("sh").args(["-c", script]).score(&results).await?;
/// assert_eq!((scores.judge.as_str(), scores.scores[0].score.passed), ("kind 1.0", true));
/// # Ok(())
/// # }
/// # #[cfg(not(unix))]
/// # fn main() {}
/// ```
#[derive(Clone, Debug)]
pub struct Judge {
    program: OsString,
    args: Vec<OsString>,
    script: Option<Script>,
    timeout: Option<Duration>,
}

#[derive(Deserialize)]
struct First {
    judge: String,
}

#[derive(Deserialize)]
struct Verdict {
    passed: bool,
    #[serde(default)]
    reason: String,
}

impl Judge {
    /// Creates a judge from a program without arguments.
    pub fn new(program: impl Into<OsString>) -> Self {
        Self {
            program: program.into(),
            args: Vec::new(),
            script: None,
            timeout: None,
        }
    }

    /// Creates a judge from a script of this crate, in an isolated Python.
    pub(crate) fn script(program: impl Into<OsString>, script: Script) -> Self {
        Self {
            script: Some(script),
            ..Self::new(program)
        }
    }

    /// Adds arguments for the program.
    #[must_use]
    pub fn args(mut self, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Self {
        self.args
            .extend(args.into_iter().map(|arg| arg.as_ref().to_owned()));
        self
    }

    /// Sets the time after which the program is killed; by default two minutes, plus five seconds
    /// for each trial.
    #[must_use]
    pub fn timeout(mut self, time: Duration) -> Self {
        self.timeout = Some(time);
        self
    }

    /// Scores all trials of a folder. A trial with an error fails without being judged.
    ///
    /// # Errors
    /// Fails if the program cannot be started, fails, times out, or does not return one score for
    /// each trial.
    pub async fn score(&self, results: &Results) -> Result<Scores> {
        let cases: HashMap<&str, &Case> = results
            .cases()
            .iter()
            .map(|case| (&*case.id, case))
            .collect();
        let judged: Vec<_> = results
            .trials()
            .iter()
            .filter(|trial| trial.error().is_none())
            .collect();
        let lines = judged.iter().map(|trial| {
            let line = json!({"case": cases.get(&*trial.case), "trial": trial});
            format!("{line}\n")
        });
        let trials = u32::try_from(judged.len()).unwrap_or(u32::MAX);
        let time = self
            .timeout
            .unwrap_or_else(|| TIME.saturating_add(TIME_FOR_TRIAL.saturating_mul(trials)));
        let output = tokio::time::timeout(time, self.exchange(lines))
            .await
            .map_err(|_| {
                let (program, seconds) = (self.program.display(), time.as_secs_f64());
                Error::Judge(format!(
                    "`{program}` was killed: it did not score {trials} trials within {seconds} s"
                ))
            })??;
        let mut output = output.lines().filter(|line| !line.trim().is_empty());
        let First { judge } = parse(output.next().unwrap_or_default())?;
        let verdicts = output.map(parse).collect::<Result<Vec<Verdict>>>()?;
        if verdicts.len() != judged.len() {
            let problem = format!(
                "returned {} scores for {} trials",
                verdicts.len(),
                judged.len()
            );
            return Err(Error::Judge(problem));
        }
        let mut verdicts = verdicts.into_iter();
        let scores = results.trials().iter().map(|trial| {
            let score = match trial.error() {
                Some(error) => Score::fail(format!("the subject failed: {error}")),
                None => match verdicts.next() {
                    Some(Verdict { passed: true, .. }) => Score::pass(),
                    Some(Verdict { reason, .. }) => Score::fail(reason),
                    None => Score::fail("not judged"),
                },
            };
            TrialScore::new(trial, score)
        });
        Ok(Scores::new(judge, scores.collect()))
    }

    async fn exchange(&self, lines: impl Iterator<Item = String>) -> Result<String> {
        let failed = |error: std::io::Error| {
            Error::Judge(format!(
                "`{}` cannot be run: {error}",
                self.program.display()
            ))
        };
        let mut command = match &self.script {
            Some(script) => script.command(&self.program),
            None => Command::new(&self.program),
        };
        command
            .args(&self.args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.kill_on_drop(true).spawn().map_err(failed)?;
        let (mut input, output, problems) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (mut output_text, mut error_text) = (String::new(), String::new());
        let write = async {
            if let Some(input) = input.take() {
                // The exit code reports a judge that ends early.
                let _ = write_lines(input, lines).await;
            }
        };
        let read = async {
            match output {
                Some(output) => {
                    output
                        .take(MAX_OUTPUT)
                        .read_to_string(&mut output_text)
                        .await
                }
                None => Ok(0),
            }
        };
        let listen = async {
            match problems {
                Some(problems) => {
                    problems
                        .take(MAX_OUTPUT)
                        .read_to_string(&mut error_text)
                        .await
                }
                None => Ok(0),
            }
        };
        let ((), read, _) = futures_util::future::join3(write, read, listen).await;
        read.map_err(failed)?;
        let status = child.wait().await.map_err(failed)?;
        if !status.success() {
            let last = error_text
                .trim()
                .lines()
                .last()
                .unwrap_or("no output on standard error");
            return Err(Error::Judge(format!(
                "failed ({status}): {}",
                one_line(last, 500)
            )));
        }
        Ok(output_text)
    }
}

/// Writes lines one at a time, and stops at the first that cannot be written.
async fn write_lines(
    mut input: impl AsyncWrite + Unpin,
    lines: impl Iterator<Item = String>,
) -> std::io::Result<()> {
    for line in lines {
        input.write_all(line.as_bytes()).await?;
    }
    input.flush().await
}

fn parse<'a, T: Deserialize<'a>>(line: &'a str) -> Result<T> {
    serde_json::from_str(line).map_err(|error| {
        Error::Judge(format!(
            "wrote a line that is not a score: {error}: {}",
            one_line(line, 200)
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn write_lines_builds_no_line_after_one_that_cannot_be_written() {
        let (input, judge) = tokio::io::duplex(8);
        drop(judge);
        let mut built = 0;
        let lines = std::iter::repeat_with(|| {
            built += 1;
            "a line\n".to_owned()
        });
        assert!(write_lines(input, lines.take(100)).await.is_err());
        assert_eq!(built, 1);
    }
}
