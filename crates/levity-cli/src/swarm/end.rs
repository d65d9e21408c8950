//! The output at the end of a run of a swarm.
//!
//! Standard output receives the answer (or one JSON object), standard error the summary and the
//! errors, so that `levity swarm .. > answer.txt` stores the answer alone.
//!
//! | exit code | meaning |
//! |---|---|
//! | 0 | all delegations are done |
//! | 1 | there is no answer, or the file of `--bus` cannot be written |
//! | 3 | the run is parked and waits for a person or a time |
//! | 4 | there is an answer, and part of the work is missing |
//! | 130 | Ctrl-C ended the run |
//!
//! A failed run prints the partial result that it reached, because finished work of workers was
//! paid for.

use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use levity::core::{RunId, Status};
use levity::swarm::{Error, Result, SwarmAnswer, WorkerReport};
use levity_system::files::{open_named, options};
use serde_json::{Value, json};

use crate::drive::DriveOutcome;
use crate::follow::WAITING;
use crate::terminal::{chain, counted, note, print_json, print_text, report_error};

/// The exit code if only part of the work is done.
const PARTIAL: u8 = 4;
/// The exit code after Ctrl-C.
const INTERRUPTED: u8 = 130;

/// The form in which the answer is printed.
///
/// `Nothing` is used when `--json` of another command already printed each event with the answer in
/// it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum AnswerFormat {
    /// The text of the answer.
    Text,
    /// One JSON object with the whole result.
    Object,
    /// No answer, because the events were printed.
    Nothing,
}

/// The output and the files of a run that has ended.
pub(crate) struct OutputOptions {
    pub(crate) answer: AnswerFormat,
    /// `true` if only the answer is printed.
    pub(crate) quiet: bool,
    /// `true` if the run is in a journal.
    pub(crate) in_journal: bool,
    /// The file for all messages of the workers.
    pub(crate) bus: Option<BusFile>,
}

/// The file of `--bus`, which receives one JSON object for each message.
///
/// The file is opened before the first command can run: a command that replaces a folder on its way
/// afterwards has no effect. A new file is readable by its owner only, because the messages of
/// agents are private.
pub(crate) struct BusFile {
    path: PathBuf,
    file: File,
}

impl BusFile {
    /// Opens or creates the file, and leaves its content unchanged.
    pub(super) fn open(path: &Path) -> std::result::Result<Self, String> {
        let file = open_named(path, options().write(true).create(true));
        let path = path.to_owned();
        match file {
            Ok(file) => Ok(Self { path, file }),
            Err(error) => {
                let path = path.display();
                Err(format!("cannot open `{path}` for the messages: {error}"))
            }
        }
    }

    /// Replaces the content with the messages of the run.
    fn write(&self, finished: &SwarmAnswer) -> std::result::Result<(), String> {
        let write = || -> io::Result<()> {
            if self.file.metadata()?.is_file() && !self.path.starts_with("/dev") {
                self.file.set_len(0)?;
            }
            let mut out = BufWriter::new(&self.file);
            finished.bus().write_json_lines(&mut out)?;
            out.flush()
        };
        write().map_err(|error| {
            let path = self.path.display();
            format!("cannot write the messages to `{path}`: {error}")
        })
    }
}

/// Prints the answer and the errors, writes the messages, and returns the exit code.
///
/// The messages are written also for a partial result. A file that cannot be written turns the exit
/// code into 1, even after an answer: a script that requested the file must learn that it is
/// missing.
pub(super) fn conclude(
    options: &OutputOptions,
    run: &RunId,
    driven: DriveOutcome<Result<SwarmAnswer>>,
) -> ExitCode {
    let Some(result) = driven.result else {
        return report_error(
            "the command was interrupted before the run ended",
            INTERRUPTED,
        );
    };
    let reached = result
        .as_ref()
        .map_or_else(Error::partial_as, |answer| Some(answer.clone()));
    let reached = reached.as_ref();
    match reached {
        Some(finished) if options.answer == AnswerFormat::Object => {
            print_json(&object(finished, result.as_ref().err()));
        }
        // Without an answer, the text is a list of missing work after an empty line.
        Some(finished) if options.answer == AnswerFormat::Text && !finished.text().is_empty() => {
            print_text(&format!("{}\n", finished.text().trim_start_matches('\n')));
        }
        _ => {}
    }
    let written = reached.map_or(Ok(()), |finished| {
        let bus = options.bus.as_ref();
        bus.map_or(Ok(()), |bus| bus.write(finished))
    });
    if let Some(finished) = reached.filter(|_| !options.quiet) {
        summary(options, run, finished);
    }
    let code = match &result {
        Ok(finished) if finished.missing().next().is_some() => ExitCode::from(PARTIAL),
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => failed(error, driven.interrupted),
    };
    match written {
        Ok(()) => code,
        Err(problem) => report_error(&problem, 1),
    }
}

/// Returns the result as JSON, for programs.
///
/// The names of the fields are an interface for programs. `error` is `null` after a success, and
/// `status` and `text` are present in both cases.
fn object(finished: &SwarmAnswer, error: Option<&Error>) -> Value {
    json!({
        "run": finished.run(),
        "status": finished.status(),
        "text": finished.text(),
        "error": error.map(|error| chain(error)),
        "plan": finished.plan(),
        "reports": finished.reports(),
        "usage": finished.usage(),
        "stats": finished.stats(),
    })
}

/// Prints the summary, for example `2 of 3 done (.., 7 model calls, 1 tool call)`, with the id of
/// the run if a journal has it. A best-effort answer is named as such first.
fn summary(options: &OutputOptions, run: &RunId, finished: &SwarmAnswer) {
    if let Status::BestEffort(_) = finished.status() {
        note(&finished.status().to_string());
    }
    if options.in_journal {
        note(&format!("stored as run {run}"));
    }
    let done = finished
        .reports()
        .iter()
        .filter(|report| report.is_done())
        .count();
    let stats = finished.stats();
    let (all, calls, tools) = (
        finished.reports().len(),
        stats.model_calls,
        stats.tool_calls,
    );
    note(&format!(
        "{done} of {all} done ({}, {}, {})",
        finished.usage(),
        counted(calls, "model call"),
        counted(tools, "tool call")
    ));
}

/// Prints why there is no answer, and returns an exit code for programs.
///
/// A cancelled run counts as interrupted only if this process received Ctrl-C; a run that another
/// process cancelled returns 1, or 4 if some work is done.
fn failed(error: &Error, interrupted: bool) -> ExitCode {
    let some = |finished: SwarmAnswer| finished.reports().iter().any(WorkerReport::is_done);
    match error {
        Error::Parked { run, .. } => {
            let text = format!(
                "run {run} is waiting; `levity runs show {id}` shows the reason, and `levity runs \
                    resume {id}` resumes it, both with its `--journal`",
                id = crate::terminal::shell_quote(run.as_str())
            );
            report_error(&text, WAITING)
        }
        Error::Cancelled { .. } if interrupted => report_error(&chain(error), INTERRUPTED),
        error if error.partial_as().is_some_and(some) => report_error(&chain(error), PARTIAL),
        error => report_error(&chain(error), 1),
    }
}
