//! `levity eval run`: the subject answers cases.
//!
//! A suite is a list of cases: BFCL's own files, or a file with one case as JSON per line. The
//! subject is a levity agent around a model, or a program that speaks one line of JSON per case or
//! turn, so other frameworks can be compared under the same conditions.
//!
//! Results go to a folder after each trial. A stopped evaluation continues there and repeats
//! nothing; its header (suite, model, settings) must be equal, or the call is refused, because
//! mixed settings would make the scores meaningless. The runs of an agent are stored below `runs`,
//! the output of a program in `subject.log`.
//!
//! Checks come first: cases, model and the tools of BFCL are verified before the folder is created.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use levity::core::text::{bare_model_name, one_line};
use levity::core::{Model, Options};
use levity::eval::{
    AgentSubject, Case, CommandSubject, EvalProgress, Evaluation, Header, Results, Selection,
    Subject, ToolHost, bfcl,
};
use levity::llm::{ModelExt as _, Models};
use levity::prelude::*;
use levity::runtime::FileJournal;
use levity_system::files::refuse_link;

use super::{Problem, Scoring, is_judged};
use crate::agent::{warn, with_retries};
use crate::terminal::{chain, note};

/// The name of the suite that levity can read.
pub(super) const BFCL: &str = "bfcl";

#[derive(Args)]
pub(super) struct Run {
    /// Suite of cases: `bfcl` for the Berkeley Function Calling Leaderboard, or a file with one
    /// case as JSON on each line.
    #[arg(long, value_name = "NAME|FILE")]
    suite: String,
    /// Folder `bfcl_eval/data` of the Python package `bfcl-eval`.
    #[arg(long, value_name = "DIR", required_if_eq("suite", BFCL))]
    data: Option<PathBuf>,
    /// Categories of the suite, separated by commas. By default, all; for BFCL, all single-turn
    /// categories.
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    categories: Vec<String>,
    /// Maximum number of cases of each category.
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// Number of cases of each category to skip.
    #[arg(long, value_name = "N", default_value_t = 0)]
    offset: usize,
    /// Use only cases whose index, from 0, is odd.
    #[arg(long, conflicts_with = "even")]
    odd: bool,
    /// Use only cases whose index, from 0, is even.
    #[arg(long)]
    even: bool,
    /// Folder for the results. A stopped evaluation continues there.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Model of a levity agent, as `provider:model`, `provider:model@URL` or a profile.
    #[arg(
        long,
        value_name = "SPEC",
        required_unless_present = "command",
        conflicts_with = "command"
    )]
    model: Option<String>,
    /// Name of the subject in reports.
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    #[command(flatten)]
    options: ModelOptions,
    /// Maximum number of turns that the agent may take to answer a user message.
    #[arg(long, value_name = "N", default_value_t = 10)]
    max_turns: u64,
    /// Number of times to answer each case.
    #[arg(long, value_name = "N", default_value_t = 1)]
    repetitions: u32,
    /// Number of cases to answer at the same time.
    #[arg(long, value_name = "N", default_value_t = 1)]
    jobs: usize,
    /// Maximum number of seconds for each case.
    #[arg(long, value_name = "SECONDS", default_value_t = Evaluation::DEFAULT_TIMEOUT.as_secs())]
    timeout: u64,
    /// Repeat trials that ended in an error.
    #[arg(long)]
    retry_errors: bool,
    /// Show no progress while cases are answered.
    #[arg(long, short)]
    quiet: bool,
    #[command(flatten)]
    scoring: Scoring,
    /// Program that answers cases instead of a model: it reads one line of JSON for each case or
    /// turn, and writes one line of JSON.
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

#[derive(Args)]
struct ModelOptions {
    /// Temperature of the model; by default, the provider's.
    #[arg(
        long,
        value_name = "T",
        conflicts_with = "command",
        help_heading = "Models"
    )]
    temperature: Option<f64>,
    /// Maximum length of a reply, in tokens.
    #[arg(
        long,
        value_name = "N",
        conflicts_with = "command",
        help_heading = "Models"
    )]
    max_tokens: Option<u64>,
    /// Seed, if the provider accepts one.
    #[arg(
        long,
        value_name = "N",
        conflicts_with = "command",
        help_heading = "Models"
    )]
    seed: Option<u64>,
    /// Describe the tools in the prompt, and read the calls from the text of the replies; for
    /// models and servers without tool calls of their own.
    #[arg(long, conflicts_with = "command", help_heading = "Models")]
    text_tools: bool,
}

/// Ends with the same report that `levity eval score` prints. Errors of single trials are counted
/// and do not end the evaluation.
pub(super) async fn run(args: Run) -> Result<(), Problem> {
    let cases = args.cases()?;
    if cases.is_empty() {
        return Err(Problem::call(
            "no case is selected; check `--limit`, `--offset` and `--categories`",
        ));
    }
    args.check_model()?;
    let host = bfcl::tool_host(&args.scoring.python, args.data.as_deref());
    bfcl::require_tools(&host, &cases)
        .await
        .map_err(|error| Problem {
            text: format!(
                "{error}; run `pip install bfcl-eval mpmath`, and name that Python with `--python`"
            ),
            code: 1,
        })?;
    let mut results = Results::create(&args.out, &args.header(), &cases)?;
    let subject = args.subject(&results, host)?;
    let mut evaluation = Evaluation::new()
        .repetitions(args.repetitions)
        .jobs(args.jobs)
        .timeout(Duration::from_secs(args.timeout));
    if args.retry_errors {
        evaluation = evaluation.retry_errors();
    }
    let existing = results.trials().len();
    if existing > 0 && !args.quiet {
        note(&format!(
            "`{}` already has {existing} trials; the evaluation continues",
            args.out.display()
        ));
    }
    let quiet = args.quiet;
    evaluation
        .run(&*subject, &mut results, |progress| {
            if !quiet {
                note(&line(progress));
            }
        })
        .await?;
    args.scoring.report(&results, args.data.as_deref()).await
}

/// Formats one line for each trial.
///
/// For example `12 of 40 (9 passed, 75%): simple_11 in 1.2 s: pass`. Cases that only the suite's
/// judge can score are counted apart until the end.
fn line(progress: &EvalProgress<'_>) -> String {
    let EvalProgress {
        done,
        total: of,
        passed,
        unjudged,
        errors,
        case,
        trial,
        score,
        ..
    } = progress;
    let verdict = match (trial.error(), score.passed) {
        (Some(error), _) => format!("error: {}", one_line(error, 160)),
        (None, true) => "pass".to_owned(),
        (None, false) if is_judged(case) => "answered; judged at the end".to_owned(),
        (None, false) => format!("fail: {}", one_line(&score.reason, 160)),
    };
    let errors = if *errors > 0 {
        format!(", {errors} errors")
    } else {
        String::new()
    };
    let judged = done - unjudged;
    let counts = match unjudged {
        0 => format!(
            "{passed} passed, {:.0}%",
            100.0 * *passed as f64 / judged.max(1) as f64
        ),
        _ if judged == 0 => "not judged yet".to_owned(),
        _ => format!("{passed} of {judged} passed, {unjudged} not judged yet"),
    };
    let seconds = trial.millis as f64 / 1000.0;
    format!(
        "{done} of {of} ({counts}{errors}): {} in {seconds:.1} s: {verdict}",
        trial.case
    )
}

impl Run {
    /// # Errors
    /// The suite cannot be read, it lacks a named category, or a case of a file needs an
    /// environment or a judge that the command line does not offer.
    fn cases(&self) -> Result<Vec<Case>, Problem> {
        let mut selection = Selection::new();
        selection.odd = if self.odd {
            Some(true)
        } else {
            self.even.then_some(false)
        };
        (selection.offset, selection.limit) = (self.offset, self.limit);
        if self.suite == BFCL {
            let data = self.data.as_deref().unwrap_or(Path::new("."));
            return Ok(match self.categories.is_empty() {
                true => bfcl::cases(data, &bfcl::CATEGORIES, selection)?,
                false => bfcl::cases(data, &self.categories, selection)?,
            });
        }
        let all = Evaluation::read_cases(&self.suite).map_err(|error| {
            Problem::call(format!(
                "{}; a suite is `{BFCL}` or a file with one case on each line",
                chain(&error)
            ))
        })?;
        if let Some(unknown) = self
            .categories
            .iter()
            .find(|name| all.iter().all(|case| case.category != **name))
        {
            return Err(Problem::call(format!(
                "`{}` has no category `{unknown}`; check `--categories`",
                self.suite
            )));
        }
        if let Some(case) = all
            .iter()
            .find(|case| is_judged(case) || case.environment.is_some())
        {
            return Err(Problem::call(format!(
                "case `{}` has an `environment` or is `judged`, which this command supports only \
                    for `--suite {BFCL}`; a Rust program can run and judge it with \
                    `levity_eval::ToolHost` and `Judge`",
                case.id
            )));
        }
        Ok(selection.of(all, &self.categories))
    }

    /// Returns the name of the suite; for a file, without its folder, which may differ on another
    /// machine.
    ///
    /// Two machines can then continue the same results, although their folders differ.
    fn suite(&self) -> String {
        let name = Path::new(&self.suite)
            .file_name()
            .map(|name| name.to_string_lossy().into_owned());
        name.unwrap_or_else(|| self.suite.clone())
    }

    /// Settings must be equal to continue; a fact such as the folder of the data may differ. A
    /// password or key within the model's address is left out.
    fn header(&self) -> Header {
        let ModelOptions {
            temperature,
            max_tokens,
            seed,
            text_tools,
        } = &self.options;
        let mut header = Header::new(self.suite(), self.name())
            .with_setting("levity", env!("CARGO_PKG_VERSION"));
        match &self.model {
            Some(model) => {
                header = header
                    .with_setting("model", bare_model_name(model))
                    .with_setting("max_turns", self.max_turns);
            }
            None => header = header.with_setting("command", self.command.clone()),
        }
        if let Some(temperature) = temperature {
            header = header.with_setting("temperature", *temperature);
        }
        if let Some(tokens) = max_tokens {
            header = header.with_setting("max_tokens", *tokens);
        }
        if let Some(seed) = seed {
            header = header.with_setting("seed", *seed);
        }
        if *text_tools {
            header = header.with_setting("text_tools", true);
        }
        let data = self
            .data
            .as_deref()
            .and_then(|data| std::fs::canonicalize(data).ok());
        match data {
            Some(data) => header.with_fact("data", data.to_string_lossy()),
            None => header,
        }
    }

    /// The default name is `levity` and the model without its address, or the command line of the
    /// program.
    fn name(&self) -> String {
        match (&self.name, &self.model) {
            (Some(name), _) => name.clone(),
            (None, Some(model)) => {
                let bare = bare_model_name(model);
                let end = bare
                    .to_ascii_lowercase()
                    .find("@http")
                    .unwrap_or(bare.len());
                format!("levity {}", &bare[..end])
            }
            (None, None) => self.command.join(" "),
        }
    }

    /// Creates the model once before anything is written, so that no results with an invalid name
    /// are stored.
    fn check_model(&self) -> Result<(), Problem> {
        let Some(spec) = &self.model else {
            return Ok(());
        };
        let models = Models::from_env().map_err(|error| Problem::call(chain(&error)))?;
        models
            .model(spec)
            .map(drop)
            .map_err(|error| Problem::call(chain(&error)))
    }

    /// The folder `runs` must not be a link, because the folder of results may come from somebody
    /// else and levity would write outside of it.
    fn subject(&self, results: &Results, host: ToolHost) -> Result<Box<dyn Subject>, Problem> {
        let Some(spec) = &self.model else {
            let (program, args) = self
                .command
                .split_first()
                .ok_or_else(|| Problem::call("there is no command; add one after `--`"))?;
            let log = results.folder().join("subject.log");
            let subject = CommandSubject::new(self.name(), program)
                .args(args)
                .log(log);
            return Ok(Box::new(subject.tool_host(host)));
        };
        let models = Models::from_env().map_err(|error| Problem::call(chain(&error)))?;
        let model = models
            .model(spec)
            .map(with_retries)
            .map_err(|error| Problem::call(chain(&error)))?;
        let model = match self.options.text_tools {
            true => Arc::new(model.text_tools()) as Arc<dyn Model>,
            false => model,
        };
        warn(models.address_from_file(spec).as_deref());
        let runs = results.folder().join("runs");
        refuse_link(&runs).map_err(|error| Problem::call(error.to_string()))?;
        let journal = FileJournal::new(runs).map_err(|error| Problem::call(chain(&error)))?;
        let runtime = Runtime::new().with_journal(journal);
        let mut options = Options::new();
        (options.temperature, options.max_tokens, options.seed) = (
            self.options.temperature,
            self.options.max_tokens,
            self.options.seed,
        );
        let turns = self.max_turns;
        let subject = AgentSubject::new(self.name(), model).tool_host(host);
        Ok(Box::new(subject.configure(move |agent| {
            agent
                .max_turns(turns)
                .options(options.clone())
                .runtime(runtime.clone())
        })))
    }
}
