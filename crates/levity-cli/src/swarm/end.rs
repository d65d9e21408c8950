//! What is printed when a run has ended.

use std::io::{self, BufWriter, Write as _};
use std::path::Path;
use std::process::ExitCode;

use levity::core::{RunId, Status};
use levity::swarm::{Error, Result, SwarmAnswer, WorkerReport};
use levity_system::files::{open_named, options};
use serde_json::{Value, json};

use crate::drive::Driven;
use crate::follow::WAITS;
use crate::terminal::{chain, complain, counted, note, say, say_json};

/// Some of it was done, but not all.
const PARTIAL: u8 = 4;
/// It was left by Ctrl-C.
const INTERRUPTED: u8 = 130;

/// The form in which the answer is printed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Printed {
    /// Its text.
    Text,
    /// One JSON object with all that came of it.
    Object,
    /// Not at all: the events were printed.
    Nothing,
}

/// The output and the files of a run that has ended.
pub(crate) struct Shown<'a> {
    pub(crate) answer: Printed,
    /// Nothing is said beside the answer.
    pub(crate) quiet: bool,
    /// True if the run is in a journal.
    pub(crate) kept: bool,
    /// The file for all that was said.
    pub(crate) bus: Option<&'a Path>,
}

/// Prints the answer and what went wrong, writes the bus, and gives the exit code.
pub(super) fn conclude(
    shown: &Shown<'_>,
    run: &RunId,
    driven: Driven<Result<SwarmAnswer>>,
) -> ExitCode {
    let Some(result) = driven.result else {
        return complain("left before it had ended", INTERRUPTED);
    };
    let reached = result
        .as_ref()
        .map_or_else(Error::partial_as, |answer| Some(answer.clone()));
    let reached = reached.as_ref();
    match reached {
        Some(finished) if shown.answer == Printed::Object => {
            say_json(&object(finished, result.as_ref().err()));
        }
        // Where there is no answer, what is not done comes after an empty line.
        Some(finished) if shown.answer == Printed::Text && !finished.text().is_empty() => {
            say(&format!("{}\n", finished.text().trim_start_matches('\n')));
        }
        _ => {}
    }
    let kept = reached.map_or(Ok(()), |finished| {
        shown.bus.map_or(Ok(()), |path| write_bus(finished, path))
    });
    if let Some(finished) = reached.filter(|_| !shown.quiet) {
        summary(shown, run, finished);
    }
    let code = match &result {
        Ok(finished) if finished.missing().next().is_some() => ExitCode::from(PARTIAL),
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => failed(error, driven.interrupted),
    };
    match kept {
        Ok(()) => code,
        Err(problem) => complain(&problem, 1),
    }
}

/// What came of it, for programs.
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

fn write_bus(finished: &SwarmAnswer, path: &Path) -> std::result::Result<(), String> {
    let write = || -> io::Result<()> {
        // What agents said is private, unless the file is there already.
        let file = open_named(path, options().write(true).create(true).truncate(true))?;
        let mut out = BufWriter::new(file);
        finished.bus().write_json_lines(&mut out)?;
        out.flush()
    };
    write().map_err(|error| format!("the bus cannot be written to `{}`: {error}", path.display()))
}

fn summary(shown: &Shown<'_>, run: &RunId, finished: &SwarmAnswer) {
    if let Status::BestEffort(_) = finished.status() {
        note(&finished.status().to_string());
    }
    if shown.kept {
        note(&format!("kept as run {run}"));
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
        counted(calls.into(), "model call"),
        counted(tools.into(), "tool call")
    ));
}

/// Says why there is no answer; a program that calls this goes by the code.
fn failed(error: &Error, interrupted: bool) -> ExitCode {
    let some = |finished: SwarmAnswer| finished.reports().iter().any(WorkerReport::is_done);
    match error {
        Error::Parked { run, .. } => {
            let text = format!(
                "run {run} waits; `levity runs show {id}` says for what, and `levity runs resume \
                    {id}` goes on, both with its `--journal`",
                id = crate::terminal::shell(run.as_str())
            );
            complain(&text, WAITS)
        }
        Error::Cancelled { .. } if interrupted => complain(&chain(error), INTERRUPTED),
        error if error.partial_as().is_some_and(some) => complain(&chain(error), PARTIAL),
        error => complain(&chain(error), 1),
    }
}
