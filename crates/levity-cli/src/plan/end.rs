//! The output at the end of a plan.
//!
//! | exit code | meaning |
//! |---|---|
//! | 0 | the goal was reached, possibly as best effort |
//! | 1 | nothing was done |
//! | 2 | the given plan is invalid |
//! | 3 | the run is parked and waits |
//! | 4 | some steps are completed |
//! | 130 | Ctrl-C ended the run |
//!
//! Only the answer goes to standard output. The tree, the table of costs and the errors go to
//! standard error, so a pipe receives the answer alone. A failed plan prints the part of the answer
//! that it reached.

use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::ValueEnum;
use levity::core::Status;
use levity::dag::{Error, Faults, StepStatus, TeamAnswer};
use levity::observe::{PlanView, TreeOptions};
use serde_json::{Value, json};

use super::drive::PlanOutcome;
use crate::follow::WAITING;
use crate::terminal::{chain, note, print_json, print_text, report_error, sanitize};

/// The exit code if only part of the work is done.
const PARTIAL: u8 = 4;
/// The exit code after Ctrl-C.
const INTERRUPTED: u8 = 130;

/// The format of a printed graph.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Drawing {
    /// A flowchart in the Mermaid language.
    Mermaid,
    /// A graph in the DOT language of Graphviz.
    Dot,
    /// An image in the format SVG.
    Svg,
    /// A tree of indented text lines.
    Tree,
}

/// The form of the answer on standard output.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum AnswerForm {
    /// Text for people, with the sources.
    Text,
    /// One JSON object with the variables and the steps.
    Object,
    /// Nothing: the last event contains the answer.
    InEvents,
}

/// Prints the answer to the standard output, and a summary and the errors to the standard error.
/// Returns the exit code.
///
/// A parked run names both ways of resuming it, with the id quoted for a shell.
pub(crate) fn print_answer(outcome: &PlanOutcome, form: AnswerForm, quiet: bool) -> ExitCode {
    let Some(result) = &outcome.result else {
        return report_error(
            "the command was interrupted before the plan ended",
            INTERRUPTED,
        );
    };
    let reached = result
        .as_ref()
        .map_or_else(Error::partial_as, |answer| Some(answer.clone()));
    match (form, &reached) {
        (AnswerForm::Text, Some(answer)) => {
            let text = answer.to_markdown();
            if !text.is_empty() {
                print_text(&format!("{text}\n"));
            }
        }
        (AnswerForm::Object, Some(answer)) => {
            print_json(&object(answer, result.as_ref().err()));
        }
        _ => {}
    }
    if !quiet {
        summary(&outcome.view);
    }
    match result {
        Ok(finished) => {
            if let Status::BestEffort(_) = finished.status() {
                note(&finished.status().to_string());
            }
            ExitCode::SUCCESS
        }
        Err(Error::Parked { run, .. }) => {
            let id = crate::terminal::shell_quote(run.as_str());
            let text = format!(
                "run {run} is waiting; resume it with `levity plan --resume {id}` and the same \
                    `--sessions`, or with `levity runs resume {id}` and its `--journal`"
            );
            report_error(&text, WAITING)
        }
        Err(error) => report_error(&chain(error), code(error, outcome.interrupted)),
    }
}

/// Returns the result as JSON, for programs.
///
/// The names of the fields are an interface for programs. `error` is `null` after a success, and
/// the other fields are present in both cases.
fn object(answer: &TeamAnswer, error: Option<&Error>) -> Value {
    let steps: Vec<_> = answer
        .steps()
        .into_iter()
        .map(|step| {
            json!({
                "step": step.step,
                "status": step.status,
                "error": step.error,
                "attempts": step.spent.attempts,
                "usage": step.spent.usage,
            })
        })
        .collect();
    json!({
        "run": answer.run(),
        "status": answer.status(),
        "text": answer.to_markdown(),
        "sources": answer.sources(),
        "error": error.map(|error| chain(error)),
        "variables": answer.variables(),
        "steps": steps,
        "plan": answer.plan(),
        "usage": answer.usage(),
        "stats": answer.stats(),
    })
}

/// Returns the exit code for an error, which calling programs rely on.
///
/// An invalid plan (`Faults`) counts as a wrong call. The check for Ctrl-C precedes the one for
/// partial work: a script that is interrupted must see 130.
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

/// Prints the tree and the table to the standard error.
///
/// Writes without the prefix `levity: `, as it is a table and no message.
fn summary(view: &PlanView) {
    let text = format!("\n{}\n{}", view.tree(TreeOptions::new()), view.summary());
    let _ = io::stderr().write_all(sanitize(&text).as_bytes());
}

/// Prints the graph in the given format.
///
/// Also used by `levity sessions export`, so both print the same graph.
pub(crate) fn export(view: &PlanView, drawing: Drawing) {
    print_text(&match drawing {
        Drawing::Mermaid => view.mermaid(),
        Drawing::Dot => view.dot(),
        Drawing::Svg => view.svg(),
        Drawing::Tree => view.tree(TreeOptions::new()),
    });
}
