//! What is printed when a run has ended.

use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::ValueEnum;
use levity::core::Status;
use levity::dag::{Error, Faults, StepStatus, TeamAnswer};
use levity::observe::{PlanView, TreeOptions};

use super::drive::Driven;
use crate::follow::WAITS;
use crate::terminal::{chain, complain, harmless, note, say};

/// Some of it was done, but not all.
const PARTIAL: u8 = 4;
/// It was left by Ctrl-C.
const INTERRUPTED: u8 = 130;

/// How a graph is drawn.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Drawing {
    /// A flowchart for Mermaid.
    Mermaid,
    /// For Graphviz.
    Dot,
    /// A tree of text.
    Tree,
}

/// Prints the answer, and beside it what each step took and what went wrong; gives the exit code.
pub(super) fn say_answer(driven: &Driven, json: bool, quiet: bool) -> ExitCode {
    let Some(result) = &driven.result else {
        return complain("left before it had ended", INTERRUPTED);
    };
    let reached = result
        .as_ref()
        .map_or_else(Error::partial_as, |answer| Some(answer.clone()));
    if let Some(text) = reached
        .as_ref()
        .map(TeamAnswer::text)
        .filter(|text| !json && !text.is_empty())
    {
        say(&format!("{text}\n"));
    }
    if !quiet {
        summary(&driven.view);
    }
    match result {
        Ok(finished) => {
            if let Status::BestEffort(_) = finished.status() {
                note(&finished.status().to_string());
            }
            ExitCode::SUCCESS
        }
        Err(Error::Parked { run, .. }) => {
            let id = crate::terminal::shell(run.as_str());
            let text = format!(
                "run {run} waits; `levity plan --resume {id}` with the same `--sessions`, or \
                    `levity runs resume {id}` with its `--journal`, goes on"
            );
            complain(&text, WAITS)
        }
        Err(error) => complain(&chain(error), code(error, driven.interrupted)),
    }
}

/// How it is told what an error means: a program that calls this goes by it.
fn code(error: &Error, interrupted: bool) -> u8 {
    let some = |finished: TeamAnswer| {
        finished
            .steps()
            .iter()
            .any(|step| step.status == StepStatus::Completed)
    };
    match error {
        Error::Cancelled { .. } if interrupted => INTERRUPTED,
        error if error.downcast_ref::<Faults>().is_some() => 2,
        error if error.partial_as().is_some_and(some) => PARTIAL,
        _ => 1,
    }
}

/// The tree and the table, on the standard error.
fn summary(view: &PlanView) {
    let text = format!("\n{}\n{}", view.tree(TreeOptions::new()), view.summary());
    let _ = io::stderr().write_all(harmless(&text).as_bytes());
}

/// Prints the graph.
pub(crate) fn export(view: &PlanView, drawing: Drawing) {
    say(&match drawing {
        Drawing::Mermaid => view.mermaid(),
        Drawing::Dot => view.dot(),
        Drawing::Tree => view.tree(TreeOptions::new()),
    });
}
