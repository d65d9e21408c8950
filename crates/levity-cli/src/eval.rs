//! Evaluations: a model or a program on cases.

mod run;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand, ValueEnum};
use levity::eval::{Case, EvalReport, Expectation, Results, Scores, SubjectComparison, bfcl};
use levity_system::files::{open_named, options};

use crate::terminal::{chain, complain, note, say};

/// The arguments of `levity eval`.
#[derive(Args)]
pub(crate) struct Eval {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Have a model, or a program of your own, answer cases; an evaluation that was stopped
    /// continues.
    Run(Box<run::Run>),
    /// Score the trials of a folder again, without a call of a model.
    Score(Score),
    /// Compare two subjects on the cases that both answered.
    Compare(Compare),
}

/// The judge of trials.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Judge {
    /// The suite's own checker where it can run, otherwise levity's checks.
    Auto,
    /// The checker of the Berkeley Function Calling Leaderboard, in Python.
    Bfcl,
    /// levity's checks.
    Levity,
}

/// Options for scoring and for the report.
#[derive(Args)]
struct Scoring {
    /// The judge: `auto` is the suite's own checker where it can run, otherwise levity's checks.
    #[arg(long, value_enum, default_value = "auto", help_heading = "Scoring")]
    judge: Judge,
    /// The Python that runs BFCL's checker, and the tools of its categories of several turns.
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
    /// Exit with code 1 when fewer trials pass than this many in 100.
    #[arg(long, value_name = "PERCENT", value_parser = percent, help_heading = "Scoring")]
    fail_under: Option<f64>,
}

fn percent(text: &str) -> Result<f64, String> {
    match text.trim_end_matches('%').parse() {
        Ok(percent) if (0.0..=100.0).contains(&percent) => Ok(percent),
        _ => Err("a number from 0 to 100 is expected".to_owned()),
    }
}

#[derive(Args)]
struct Score {
    /// The folder that `levity eval run --out` wrote.
    folder: PathBuf,
    /// The data of the suite, beside which its checker is; an installed checker otherwise. Its code
    /// runs as you.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    #[command(flatten)]
    scoring: Scoring,
}

#[derive(Args)]
struct Compare {
    /// The results of the first subject.
    first: PathBuf,
    /// The results of the second subject.
    second: PathBuf,
    /// Compare only these categories, with commas between them.
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    categories: Vec<String>,
    /// Print the comparison as JSON.
    #[arg(long)]
    json: bool,
}

/// Evaluates, scores or compares: 0 when it is done, 1 when it failed or too few trials passed, 2
/// for a wrong call.
pub(crate) async fn eval(args: Eval) -> ExitCode {
    let done = match args.command {
        Command::Run(args) => run::run(*args).await,
        Command::Score(args) => score(args).await,
        Command::Compare(args) => compare(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(Problem { text, code }) => complain(&text, code),
    }
}

/// An error message and its exit code.
struct Problem {
    text: String,
    code: u8,
}

impl Problem {
    fn call(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            code: 2,
        }
    }
}

impl From<levity::eval::Error> for Problem {
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

async fn score(args: Score) -> Result<(), Problem> {
    let results = open(&args.folder)?;
    args.scoring.report(&results, args.data.as_deref()).await
}

fn open(folder: &Path) -> Result<Results, Problem> {
    Results::open(folder).map_err(|error| {
        Problem::call(format!(
            "there are no results: {}; `levity eval run --out` makes them",
            chain(&error)
        ))
    })
}

impl Scoring {
    /// Scores the trials, keeps the scores and the report beside them, and prints the report.
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
        say(&if self.json {
            report.to_json()
        } else {
            report.to_text()
        });
        match self.fail_under {
            // Products of whole numbers are exact, where a share in percent may be a little too
            // small.
            Some(least)
                if ((report.total.passed * 100) as f64) < least * report.total.trials as f64 =>
            {
                let success = report.total.success * 100.0;
                Err(Problem {
                    text: format!("success is {success:.1}%, below {least}%"),
                    code: 1,
                })
            }
            _ => Ok(()),
        }
    }

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
        // The folder that the results name is not used: whoever wrote them would choose the code
        // that runs.
        match bfcl::judge(&self.python, data).score(results).await {
            Ok(scores) => Ok(scores),
            Err(error) if self.judge == Judge::Bfcl => Err(error.into()),
            Err(error) if results.cases().iter().any(is_judged) => Err(Problem {
                text: format!(
                    "BFCL's own checker did not score: {error}; levity has no checks for \
                        categories of several turns. \
                     `pip install bfcl-eval mpmath`, or name its folder with `levity eval score \
                     --data`"
                ),
                code: 1,
            }),
            Err(error) => {
                note(&format!(
                    "BFCL's own checker did not score: {error}; these are levity's checks, which \
                        may differ from it. \
                     `pip install bfcl-eval`, or name its folder with `levity eval score --data`"
                ));
                Ok(results.check_all())
            }
        }
    }
}

/// True if levity has no check for a case.
fn is_judged(case: &Case) -> bool {
    case.expect == Expectation::Judged
}

/// The scores by levity's checks, where it has one for each case.
fn own_scores(results: &Results) -> Result<Scores, Problem> {
    match results.cases().iter().find(|case| is_judged(case)) {
        Some(case) => Err(Problem::call(format!(
            "only the judge of the suite can score case `{}`; `levity eval score` has it do that",
            case.id
        ))),
        None => Ok(results.check_all()),
    }
}

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
            "the judges differ: `{one}` and `{two}`; score both folders by the same one"
        ));
    }
    match args.json {
        true => crate::terminal::say_json(&comparison),
        false => say(&comparison.to_text()),
    }
    Ok(())
}

/// The report on a folder, by the scores that are kept there.
fn report(folder: &Path) -> Result<EvalReport, Problem> {
    let results = open(folder)?;
    let scores = match results.scores()? {
        Some(scores) => scores,
        None => {
            note(&format!(
                "`{}` has trials without a score, so levity's checks score it; `levity eval score` \
                    has the suite's judge do it",
                folder.display()
            ));
            own_scores(&results)?
        }
    };
    Ok(EvalReport::new(&results, &scores))
}
