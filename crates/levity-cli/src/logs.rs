//! Logs of what runs do.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use levity::core::{Event, Secrets, World as _};
use levity::llm::Models;
use levity::log::{Lines, LogFiles, Otlp, Retention, clean};
use levity::runtime::SystemWorld;
use tracing_subscriber::Layer as _;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::terminal::{chain, complain, note, say};

/// Says what goes to the standard error, such as `levity=debug,warn`.
const FILTER: &str = "LEVITY_LOG";
/// Says where spans and metrics go.
const COLLECTOR: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";

/// Where logs are kept.
#[derive(Args)]
pub(crate) struct LogArgs {
    /// Keep logs in this folder: `general.log`, and `reasoning.log` where a model thinks, in a
    /// folder for each conversation or run.
    #[arg(long, value_name = "DIR")]
    logs: Option<PathBuf>,
}

/// Logs that are kept, if any are. What waits is written when it is dropped.
pub(crate) struct Logs {
    files: Option<LogFiles>,
    otlp: Option<Otlp>,
}

/// How long a collector may take to answer at the end.
const PATIENCE: Duration = Duration::from_secs(2);

impl Drop for Logs {
    fn drop(&mut self) {
        if self.otlp.as_ref().is_some_and(|otlp| !otlp.flush(PATIENCE)) {
            note(&format!(
                "the collector that `{COLLECTOR}` names did not take all traces and metrics; is it \
                    there?"
            ));
        }
    }
}

impl LogArgs {
    /// Opens the logs, and has what is logged on the way go where the environment says. Nothing of
    /// it costs anything when nobody asked for it.
    pub(crate) fn open(&self) -> Result<Logs, String> {
        let secrets = secrets();
        let files = self
            .logs
            .as_ref()
            .map(|folder| LogFiles::builder(folder).secrets(secrets.clone()).open());
        let files = files.transpose().map_err(|error| chain(&error))?;
        let otlp = match std::env::var_os(COLLECTOR) {
            Some(_) => Otlp::from_env().map_err(|error| chain(&error))?,
            None => None,
        };
        let shown = filter()?.map(|only| Lines::new(std::io::stderr(), secrets).with_filter(only));
        if files.is_some() || otlp.is_some() || shown.is_some() {
            let all = tracing_subscriber::registry().with(files.as_ref().map(LogFiles::layer));
            // Another one can only be there already in a program that is not this one.
            let _ = all
                .with(otlp.as_ref().map(Otlp::layer))
                .with(shown)
                .try_init();
        }
        Ok(Logs { files, otlp })
    }
}

impl Logs {
    /// Logs events of runs of a conversation, or each run by itself.
    pub(crate) fn watcher(&self, conversation: Option<&str>) -> Box<dyn Fn(&Event) + Send + Sync> {
        match (&self.files, conversation) {
            (Some(files), Some(id)) => Box::new(files.session(id)),
            (Some(files), None) => Box::new(files.runs()),
            (None, _) => Box::new(|_| {}),
        }
    }

    /// Logs events of runs, and hands them on.
    pub(crate) fn beside(
        &self,
        watcher: impl Fn(&Event) + Send + Sync + 'static,
    ) -> Box<dyn Fn(&Event) + Send + Sync> {
        let log = self.watcher(None);
        Box::new(move |event| {
            log(event);
            watcher(event);
        })
    }
}

fn filter() -> Result<Option<Targets>, String> {
    let Ok(text) = std::env::var(FILTER) else {
        return Ok(None);
    };
    let wrong = |_| format!("`{FILTER}` is no filter; one looks like this: levity=debug,warn");
    text.parse().map(Some).map_err(wrong)
}

/// Keys in the environment and in the `.env`, which are in no log. A name or a value that is no
/// Unicode is in no text.
pub(crate) fn secrets() -> Secrets {
    let variables = std::env::vars_os();
    let variables = variables
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    // Whoever makes a model says what is wrong with the files.
    Models::from_env().map_or_else(
        |_| Secrets::new().variables(variables),
        |models| models.secrets(),
    )
}

/// How `levity logs` is called.
#[derive(Args)]
pub(crate) struct LogsArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Remove logs that are kept no longer.
    Clean(Clean),
}

#[derive(Args)]
struct Clean {
    /// The folder of the logs.
    folder: PathBuf,
    /// Remove sessions in which nothing was logged for so long: `30d`, `12h`, `45m`, `90s`.
    #[arg(long, value_name = "AGE", value_parser = age, required_unless_present = "max_size")]
    older_than: Option<Duration>,
    /// Remove the oldest sessions until the rest has no more than this: `500K`, `100M`, `2G`.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    max_size: Option<u64>,
}

/// Cleans up: 0 when that could be done, 2 for a wrong call.
pub(crate) fn logs(args: &LogsArgs) -> ExitCode {
    let Command::Clean(args) = &args.command;
    let mut retention = Retention::new();
    (retention.older_than, retention.max_bytes) = (args.older_than, args.max_size);
    match clean(&args.folder, &retention, SystemWorld.now()) {
        Ok(cleaned) => {
            let (gone, bytes, left) = (cleaned.sessions, cleaned.bytes, cleaned.left);
            say(&format!("{gone} removed ({bytes} bytes), {left} left\n"));
            ExitCode::SUCCESS
        }
        Err(error) => complain(&chain(&error), 2),
    }
}

fn age(text: &str) -> Result<Duration, String> {
    let units = [('d', 86_400), ('h', 3_600), ('m', 60), ('s', 1)];
    measure(text, &units)
        .map(Duration::from_secs)
        .ok_or_else(|| "it is a time like `30d`, `12h` or `45m`".to_owned())
}

fn size(text: &str) -> Result<u64, String> {
    let units = [('K', 1 << 10), ('M', 1 << 20), ('G', 1 << 30)];
    let plain = || text.parse().ok();
    measure(text, &units)
        .or_else(plain)
        .ok_or_else(|| "it is a size like `500K`, `100M` or `2G`".to_owned())
}

fn measure(text: &str, units: &[(char, u64)]) -> Option<u64> {
    let (_, unit) = units.iter().find(|(letter, _)| text.ends_with(*letter))?;
    text.get(..text.len() - 1)?
        .parse::<u64>()
        .ok()?
        .checked_mul(*unit)
}
