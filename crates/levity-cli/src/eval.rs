//! Evaluations of a model or a program on test cases.
//!
//! `run` lets a subject answer cases, `score` scores stored trials again, and `compare` puts two
//! subjects side by side on the cases that both answered. Scores, the report as JSON and JUnit XML
//! are stored next to the trials; `--fail-under` makes the exit code useful for CI.
//!
//! Results may come from a stranger: the path of the data that they name is not used, as the
//! checker in it is code that would run. Only `--data` or an installed package is.
//!
//! Exit codes: 0, 1 if the evaluation or the threshold fails, 2 for a wrong call.

mod run;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand, ValueEnum};
use levity::eval::{Case, EvalReport, Expectation, Results, Scores, SubjectComparison, bfcl};
use levity_system::files::{open_named, options};

use crate::terminal::{chain, note, print_text, report_error};

/// The arguments of `levity eval`.
#[derive(Args)]
pub(crate) struct Eval {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Have a model, or your own program, answer cases; a stopped evaluation continues.
    Run(Box<run::Run>),
    /// Score the trials of a folder again, without calling a model.
    Score(Score),
    /// Compare two subjects on the cases that both answered.
    Compare(Compare),
}

/// The judge of trials.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Judge {
    /// The suite's own checker if it can run, otherwise levity's checks.
    Auto,
    /// The checker of the Berkeley Function Calling Leaderboard, in Python.
    Bfcl,
    /// The checks of levity.
    Levity,
}

/// The options for scoring and for the report.
#[derive(Args)]
struct Scoring {
    /// Judge of the trials: `auto` is the suite's own checker if it can run, otherwise levity's
    /// checks.
    #[arg(long, value_enum, default_value = "auto", help_heading = "Scoring")]
    judge: Judge,
    /// Python interpreter for BFCL's checker, and for the tools of its multi-turn categories.
    #[arg(
        long,
        value_name = "PROGRAM",
        default_value = "python3",
        help_heading = "Scoring"
    )]
    python: PathBuf,
    /// Print the report as JSON.
    #[arg(long, help_heading = "Scoring")]
    json: bool,
    /// Also write the report as JUnit XML to this file.
    #[arg(long, value_name = "FILE", help_heading = "Scoring")]
    junit: Option<PathBuf>,
    /// Exit with code 1 if fewer than this percentage of trials pass.
    #[arg(long, value_name = "PERCENT", value_parser = percent, help_heading = "Scoring")]
    fail_under: Option<f64>,
}

/// Accepts `80`, `80%` and fractions.
fn percent(text: &str) -> Result<f64, String> {
    match text.trim_end_matches('%').parse() {
        Ok(percent) if (0.0..=100.0).contains(&percent) => Ok(percent),
        _ => Err("use a number from 0 to 100".to_owned()),
    }
}

#[derive(Args)]
struct Score {
    /// Folder that `levity eval run --out` wrote.
    folder: PathBuf,
    /// Data of the suite, next to its checker; by default, an installed checker. Its code runs with
    /// your permissions.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    #[command(flatten)]
    scoring: Scoring,
}

#[derive(Args)]
struct Compare {
    /// Results of the first subject.
    first: PathBuf,
    /// Results of the second subject.
    second: PathBuf,
    /// Compare only these categories, separated by commas.
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    categories: Vec<String>,
    /// Print the comparison as JSON.
    #[arg(long)]
    json: bool,
}

/// Evaluates, scores or compares: 0 if that succeeds, 1 if it fails or too few trials passed, 2 for
/// an invalid call.
pub(crate) async fn eval(args: Eval) -> ExitCode {
    let result = match args.command {
        Command::Run(args) => run::run(*args).await,
        Command::Score(args) => score(args).await,
        Command::Compare(args) => compare(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(Problem { text, code }) => report_error(&text, code),
    }
}

/// An error message and its exit code.
///
/// Most commands have one code for errors; evaluations distinguish a wrong call from a failure, so
/// the code travels with the text.
struct Problem {
    text: String,
    code: u8,
}

impl Problem {
    /// A wrong call has the exit code 2.
    fn call(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            code: 2,
        }
    }
}

impl From<levity::eval::Error> for Problem {
    /// A damaged suite and a folder of another evaluation are mistakes in the call; everything else
    /// is a failure.
    fn from(error: levity::eval::Error) -> Self {
        use levity::eval::Error;
        let code = if matches!(error, Error::Suite(_) | Error::OtherEvaluation { .. }) {
            2
        } else {
            1
        };
        Self {
            text: error.to_string(),
            code,
        }
    }
}

/// Calls no model, so trials can be scored by another judge later.
async fn score(args: Score) -> Result<(), Problem> {
    let results = open(&args.folder)?;
    args.scoring.report(&results, args.data.as_deref()).await
}

/// Opens results; the error suggests the command that creates them.
fn open(folder: &Path) -> Result<Results, Problem> {
    Results::open(folder).map_err(|error| {
        Problem::call(format!(
            "there are no results: {}; create them with `levity eval run --out`",
            chain(&error)
        ))
    })
}

impl Scoring {
    /// Scores the trials, stores the scores and the report next to them, and prints the report.
    ///
    /// The report is printed also if the threshold fails. The file of `--junit` is written in
    /// addition to the one in the folder.
    async fn report(&self, results: &Results, data: Option<&Path>) -> Result<(), Problem> {
        let scores = self.scores(results, data).await?;
        let report = EvalReport::new(results, &scores);
        results.write_scores(&scores)?;
        results.write_file("report.json", &report.to_json())?;
        results.write_file("junit.xml", &report.to_junit())?;
        if let Some(path) = &self.junit {
            open_named(path, options().write(true).create(true).truncate(true))
                .and_then(|mut file| file.write_all(report.to_junit().as_bytes()))
                .map_err(|error| Problem::call(format!("`{}`: {error}", path.display())))?;
        }
        print_text(&if self.json {
            report.to_json()
        } else {
            report.to_text()
        });
        match self.fail_under {
            // Products of integers are exact, while a percentage may be rounded down.
            Some(minimum)
                if ((report.total.passed * 100) as f64) < minimum * report.total.trials as f64 =>
            {
                let success = report.total.success * 100.0;
                Err(Problem {
                    text: format!("success is {success:.1}%, below {minimum}%"),
                    code: 1,
                })
            }
            _ => Ok(()),
        }
    }

    /// BFCL's checker is preferred for its suite, since published numbers use it. If it cannot run,
    /// levity's checks replace it with a note, unless it was requested explicitly or a case has no
    /// check of levity.
    async fn scores(&self, results: &Results, data: Option<&Path>) -> Result<Scores, Problem> {
        let is_bfcl = results.header().suite == run::BFCL;
        match self.judge {
            Judge::Levity => return own_scores(results),
            Judge::Auto if !is_bfcl => return own_scores(results),
            Judge::Bfcl if !is_bfcl => {
                return Err(Problem::call(
                    "`--judge bfcl` scores only results of `--suite bfcl`",
                ));
            }
            Judge::Auto | Judge::Bfcl => {}
        }
        // The folder that the results name is not used, because their author would choose the code
        // that runs.
        match bfcl::judge(&self.python, data).score(results).await {
            Ok(scores) => Ok(scores),
            Err(error) if self.judge == Judge::Bfcl => Err(error.into()),
            Err(error) if results.cases().iter().any(is_judged) => Err(Problem {
                text: format!(
                    "BFCL's own checker did not score: {error}; levity has no checks for \
                        multi-turn categories; run `pip install bfcl-eval mpmath`, or name its \
                        folder with `levity eval score \
                     --data`"
                ),
                code: 1,
            }),
            Err(error) => {
                note(&format!(
                    "BFCL's own checker did not score: {error}; these are levity's checks, which \
                        may differ from it; run `pip install bfcl-eval`, or name its folder with \
                        `levity eval score --data`"
                ));
                Ok(results.check_all())
            }
        }
    }
}

/// Returns `true` if levity has no check for a case.
fn is_judged(case: &Case) -> bool {
    case.expect == Expectation::JudgeOnly
}

/// Scores by levity's checks, if it has one for each case.
///
/// # Errors
/// Returns an error that names the first case for which levity has no check.
fn own_scores(results: &Results) -> Result<Scores, Problem> {
    match results.cases().iter().find(|case| is_judged(case)) {
        Some(case) => Err(Problem::call(format!(
            "only the judge of the suite can score case `{}`; run it with `levity eval score`",
            case.id
        ))),
        None => Ok(results.check_all()),
    }
}

/// Different judges are a warning and no error; the numbers may still be of interest.
fn compare(args: &Compare) -> Result<(), Problem> {
    let (mut first, mut second) = (report(&args.first)?, report(&args.second)?);
    if !args.categories.is_empty() {
        (first, second) = (first.only(&args.categories), second.only(&args.categories));
    }
    let comparison = SubjectComparison::new(&first, &second);
    if comparison.pairs == 0 {
        return Err(Problem::call("the two subjects have no case in common"));
    }
    if !comparison.is_same_judge() {
        let (one, two) = (&comparison.first.judge, &comparison.second.judge);
        note(&format!(
            "the judges differ: `{one}` and `{two}`; score both folders with the same judge"
        ));
    }
    match args.json {
        true => crate::terminal::print_json(&comparison),
        false => print_text(&comparison.to_text()),
    }
    Ok(())
}

/// Returns the report on a folder, by the scores that are stored there.
///
/// Trials without stored scores are scored by levity's checks, and a note says so.
fn report(folder: &Path) -> Result<EvalReport, Problem> {
    let results = open(folder)?;
    let scores = match results.scores()? {
        Some(scores) => scores,
        None => {
            note(&format!(
                "`{}` has trials without a score, so levity's checks score it; run the suite's \
                    judge with `levity eval score`",
                folder.display()
            ));
            own_scores(&results)?
        }
    };
    Ok(EvalReport::new(&results, &scores))
}
