//! The options for logs of runs, and the command that deletes old logs.
//!
//! Three independent outputs exist: files in a folder (`--logs`), lines on standard error
//! (`LEVITY_LOG`), and spans and metrics for a collector (`OTEL_EXPORTER_OTLP_ENDPOINT`). None is
//! active by default. Known keys of the environment and of `.env` are replaced in all lines.
//!
//! `levity logs clean` deletes old logs by age or size, and prints a count; exit code 2 if the
//! folder is not usable.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use levity::core::{Event, Secrets, World as _};
use levity::llm::Models;
use levity::log::{LineLayer, LogFiles, Otlp, Retention, clean};
use levity::runtime::SystemWorld;
use tracing_subscriber::Layer as _;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::terminal::{chain, note, print_text, report_error};

/// The variable that filters logs on the standard error, such as `levity=debug,warn`.
const FILTER: &str = "LEVITY_LOG";
/// The variable that names the collector for spans and metrics.
const COLLECTOR: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";

/// The option for log files.
#[derive(Args)]
pub(crate) struct LogArgs {
    /// Write logs to this folder: `general.log`, and `reasoning.log` if a model thinks, in a folder
    /// for each conversation or run.
    #[arg(long, value_name = "DIR")]
    logs: Option<PathBuf>,
}

/// The open logs, if there are any. Dropping them writes all pending entries.
pub(crate) struct Logs {
    files: Option<LogFiles>,
    otlp: Option<Otlp>,
}

/// The time that a collector may take to answer at the end.
///
/// A collector that does not respond must not hold up the end of a command.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);

impl Drop for Logs {
    fn drop(&mut self) {
        if self
            .otlp
            .as_ref()
            .is_some_and(|otlp| !otlp.flush(FLUSH_TIMEOUT))
        {
            note(&format!(
                "the collector in `{COLLECTOR}` did not accept all traces and metrics; is it \
                    running?"
            ));
        }
    }
}

impl LogArgs {
    /// Opens the logs, and sends traces and log lines where the environment says. Logs that are not
    /// requested cost nothing.
    ///
    /// # Errors
    /// The folder cannot be created, the filter has a wrong form, or the settings of the collector
    /// are invalid. Commands report these as wrong calls before a run starts.
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
        let lines =
            filter()?.map(|only| LineLayer::new(std::io::stderr(), secrets).with_filter(only));
        if files.is_some() || otlp.is_some() || lines.is_some() {
            let all = tracing_subscriber::registry().with(files.as_ref().map(LogFiles::layer));
            // Only another program can already have a subscriber, so an error is impossible here.
            let _ = all
                .with(otlp.as_ref().map(Otlp::layer))
                .with(lines)
                .try_init();
        }
        Ok(Logs { files, otlp })
    }
}

impl Logs {
    /// Returns a callback that logs the events of a conversation, or of each run separately.
    ///
    /// A conversation logs all of its runs into one folder; without one, each run has its own.
    pub(crate) fn watcher(&self, conversation: Option<&str>) -> Box<dyn Fn(&Event) + Send + Sync> {
        match (&self.files, conversation) {
            (Some(files), Some(id)) => Box::new(files.session(id)),
            (Some(files), None) => Box::new(files.runs()),
            (None, _) => Box::new(|_| {}),
        }
    }

    /// Returns a callback that logs events and passes them on to `watcher`.
    ///
    /// The log comes first, so an event is logged even if the display panics.
    pub(crate) fn watcher_with(
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

/// An unset variable returns `None`; an invalid one is an error, as logs that are silently missing
/// would be noticed too late.
fn filter() -> Result<Option<Targets>, String> {
    let Ok(text) = std::env::var(FILTER) else {
        return Ok(None);
    };
    let invalid = |_| format!("`{FILTER}` is not a valid filter; use this form: levity=debug,warn");
    text.parse().map(Some).map_err(invalid)
}

/// Returns the keys in the environment and in `.env`, which logs must not contain. Names and values
/// that are not Unicode cannot occur in a text.
///
/// Guards for secrets use the same list.
pub(crate) fn secrets() -> Secrets {
    let variables = std::env::vars_os();
    let variables = variables
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    // Opening the models reports errors in these files.
    Models::from_env().map_or_else(
        |_| Secrets::new().variables(variables),
        |models| models.secrets(),
    )
}

/// The arguments of `levity logs`.
#[derive(Args)]
pub(crate) struct LogsArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Delete old logs, by age or by total size.
    Clean(Clean),
}

#[derive(Args)]
struct Clean {
    /// Folder of the logs.
    folder: PathBuf,
    /// Delete sessions without a new log line for this long: `30d`, `12h`, `45m`, `90s`.
    #[arg(long, value_name = "AGE", value_parser = age, required_unless_present = "max_size")]
    older_than: Option<Duration>,
    /// Delete the oldest sessions until the rest is no larger than this: `500K`, `100M`, `2G`.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    max_size: Option<u64>,
}

/// Deletes old logs: 0 if that succeeds, 2 for an invalid call.
///
/// The result is one line: removed sessions, their bytes, and remaining sessions.
pub(crate) fn logs(args: &LogsArgs) -> ExitCode {
    let Command::Clean(args) = &args.command;
    let mut retention = Retention::new();
    (retention.older_than, retention.max_bytes) = (args.older_than, args.max_size);
    match clean(&args.folder, &retention, SystemWorld.now()) {
        Ok(cleaned) => {
            let (removed, bytes, remaining) = (cleaned.sessions, cleaned.bytes, cleaned.remaining);
            print_text(&format!(
                "{removed} removed ({bytes} bytes), {remaining} remaining\n"
            ));
            ExitCode::SUCCESS
        }
        Err(error) => report_error(&chain(&error), 2),
    }
}

/// Parses a whole number with one of the units d, h, m or s.
fn age(text: &str) -> Result<Duration, String> {
    let units = [('d', 86_400), ('h', 3_600), ('m', 60), ('s', 1)];
    measure(text, &units)
        .map(Duration::from_secs)
        .ok_or_else(|| "use a duration such as `30d`, `12h` or `45m`".to_owned())
}

/// Units are binary: `1K` is 1024 bytes. A number without a unit is in bytes.
fn size(text: &str) -> Result<u64, String> {
    let units = [('K', 1 << 10), ('M', 1 << 20), ('G', 1 << 30)];
    let plain = || text.parse().ok();
    measure(text, &units)
        .or_else(plain)
        .ok_or_else(|| "use a size such as `500K`, `100M` or `2G`".to_owned())
}

/// Returns `None` for an unknown unit, a number that is not whole, or an overflow.
fn measure(text: &str, units: &[(char, u64)]) -> Option<u64> {
    let (_, unit) = units.iter().find(|(letter, _)| text.ends_with(*letter))?;
    text.get(..text.len() - 1)?
        .parse::<u64>()
        .ok()?
        .checked_mul(*unit)
}
