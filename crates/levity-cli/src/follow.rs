//! Shows a single run in the terminal while it is in progress.
//!
//! The display for `run`, `chat` and resumed agents: one line for each important event on standard
//! output, then the answer. With `--quiet` only the answer is printed, with `--json` each event as
//! one object and no answer, since the last event has it.
//!
//! Questions are asked on the terminal, one at a time, while the run waits. Without a terminal a
//! call is denied, because a script must not hang and must not approve; `--park` leaves the
//! question in the journal instead. Only `y` allows a call, and a call longer than 8 KiB needs the
//! words `long call`, since its middle is not shown.
//!
//! The first Ctrl-C cancels the run and waits for its end; its reason distinguishes it from a
//! cancellation by another process. A second Ctrl-C does not wait.

use std::pin::pin;
use std::process::ExitCode;

use levity::core::{
    Ask, AskKind, Delta, Ending, Event, Failure, Record, RunId, RunSummary, RuntimeError, Status,
};
use levity::prelude::*;
use levity::runtime::{RunHandle, Runnable};

use crate::agent::AgentArgs;
use crate::input::Input;
use crate::recall::AnswerStore;
use crate::terminal::{
    advise, chain, counted, is_shown_in_full, omit_middle, print_json, print_text, report_error,
    shell_quote, shorten,
};

/// The exit code of a run that is waiting.
pub(crate) const WAITING: u8 = 3;

/// The exit code of a run that Ctrl-C cancelled.
const CANCELLED: u8 = 130;

/// The reason that is recorded when Ctrl-C cancels a run.
const INTERRUPTED: &str = "interrupted from the terminal";

/// Shows a run until it ends, and returns the exit code: 0 for an answer, 1 for none, 3 if the run
/// is waiting, 130 after Ctrl-C.
///
/// `stored` tells that a journal has the run, so its id is printed at the end.
/// An answer is added to the store of `recall`, under the goal.
pub(crate) async fn follow(
    run: RunHandle<Agent>,
    args: &AgentArgs,
    stored: bool,
    recall: Option<(&AnswerStore, &str)>,
) -> ExitCode {
    match watch(run, args, &mut Input::new(), |event| show(args, event)).await {
        Ok(answer) => {
            if let Some((recall, goal)) = recall {
                let source = format!("run {}", answer.run());
                recall.add(goal, answer.text(), &source).await;
            }
            conclude(args, &answer, stored)
        }
        Err(levity::Error::Parked { run, .. }) => report_error(
            &format!(
                "run {run} is waiting; `levity runs show {}` shows the reason",
                shell_quote(run.as_str())
            ),
            WAITING,
        ),
        Err(error) => failed(&error),
    }
}

/// Prints why there is no answer.
///
/// Prints the last text of the model first, if there is one, as it is often most of an answer. A
/// cancellation that came from this terminal returns 130, and every other failure 1.
pub(crate) fn failed(error: &levity::Error) -> ExitCode {
    if let Some(partial) = error.partial().filter(|partial| !partial.text().is_empty()) {
        report_error(
            &format!("the last text of the model: {}", partial.text()),
            1,
        );
    }
    match error {
        levity::Error::Cancelled { reason, .. } if reason == INTERRUPTED => {
            report_error(&chain(error), CANCELLED)
        }
        levity::Error::Blocked { .. } => {
            report_error(&advise(chain(error), "change the text or the guard"), 1)
        }
        _ => report_error(&chain(error), 1),
    }
}

/// Resumes a run that its records leave paused, because no other client can resume it here.
///
/// A pause is stored in the journal and survives a restart; resuming at a terminal is the wish to
/// go on.
pub(crate) async fn unpause<W: Runnable>(run: &RunHandle<W>, records: &[Record]) {
    if RunSummary::of(run.id(), records).is_some_and(|summary| summary.paused) {
        // A run that could not be opened reports its error.
        let _ = run.resume().await;
    }
}

/// Shows events until the run ends, and asks the user at the terminal its questions.
///
/// The closure shows events, so `chat` prints deltas of text while `run` prints lines. Dropping the
/// future stops the run.
pub(crate) async fn watch(
    mut run: RunHandle<Agent>,
    args: &AgentArgs,
    input: &mut Input,
    mut show: impl FnMut(&Event),
) -> levity::Result<Answer> {
    let mut events = run.events();
    let mut interrupted = pin!(tokio::signal::ctrl_c());
    let mut cancelled = false;
    loop {
        let is_interrupted = tokio::select! {
            event = events.next() => {
                let Some(event) = event else { break };
                show(&event);
                match &event.kind {
                    EventKind::Asked(ask) if !args.park && !cancelled => tokio::select! {
                        // A run that has already ended needs no answer.
                        decision = decide(ask, input) => {
                            drop(run.control().decide(ask, decision).await);
                            false
                        }
                        _ = &mut interrupted => true,
                    },
                    _ => false,
                }
            }
            _ = &mut interrupted => true,
        };
        if is_interrupted {
            if cancelled {
                return Err(interruption(run.id()));
            }
            cancelled = true;
            interrupted.set(tokio::signal::ctrl_c());
            tokio::select! {
                // A run that has already ended needs no cancellation.
                _ = run.cancel(INTERRUPTED) => {}
                _ = &mut interrupted => return Err(interruption(run.id())),
            }
        }
    }
    let id = run.id().clone();
    tokio::select! {
        result = run => result,
        _ = &mut interrupted, if cancelled => Err(interruption(&id)),
    }
}

/// Returns the error for a run that the user did not wait for. Dropping its handle stops it.
fn interruption(run: &RunId) -> levity::Error {
    let (run, reason) = (run.clone(), INTERRUPTED.to_owned());
    RuntimeError::Cancelled { run, reason }.into()
}

/// Asks the user at the terminal for a decision.
///
/// The end of the input (Ctrl-D) and a failed read deny the call.
async fn decide(ask: &Ask, input: &mut Input) -> Decision {
    if !Input::is_terminal() {
        return Decision::deny(
            "there is no terminal to ask for approval; `levity run --park` saves the question for \
                later",
        );
    }
    // Text that was typed before the question appeared is not an answer to it.
    input.discard_typed();
    match input.line(&question(ask)).await {
        Ok(Some(line)) => decision(ask, line.trim()),
        _ => Decision::deny("the user denied the call"),
    }
}

/// Returns the question for the user at the terminal.
///
/// The arguments are shown in full up to 8 KiB, and never shortened like those of other events: the
/// user decides about them.
pub(crate) fn question(ask: &Ask) -> String {
    match ask.wanted {
        AskKind::Answer => format!("  the agent asks: {}\n  > ", ask.reason),
        _ if !is_complete(ask) => format!(
            "  allow the call {}? ({})\n  The call is too long to be shown in full; type \
                `{LONG_CALL}` to allow it. [N] ",
            omit_middle(&call_text(ask)),
            ask.reason
        ),
        _ => format!(
            "  allow the call {}? ({}) [y/N] ",
            call_text(ask),
            ask.reason
        ),
    }
}

/// The answer that allows a call that is too long to be shown in full.
///
/// Two words, so that nobody types them out of habit.
pub(crate) const LONG_CALL: &str = "long call";

/// Returns the call as the user sees it: the name and all arguments.
fn call_text(ask: &Ask) -> String {
    format!("{} {}", ask.call.name, ask.call.args)
}

/// The question and the decision use the same test, so a call that was cut cannot be allowed by
/// `y`.
fn is_complete(ask: &Ask) -> bool {
    is_shown_in_full(&call_text(ask))
}

/// Converts a line into the decision on a question.
///
/// Everything but a clear yes denies. A question of the model takes the line as its answer, also
/// `y`.
pub(crate) fn decision(ask: &Ask, line: &str) -> Decision {
    match (ask.wanted, line) {
        (AskKind::Answer, "") => Decision::deny("the user did not answer"),
        (AskKind::Answer, answer) => Decision::answer(answer),
        (_, "y" | "Y" | "yes") if is_complete(ask) => Decision::Allow,
        (_, LONG_CALL) if !is_complete(ask) => Decision::Allow,
        _ => Decision::deny("the user denied the call"),
    }
}

/// Shows an event in the format that the options request.
///
/// JSON has precedence over quiet.
fn show(args: &AgentArgs, event: &Event) {
    if args.json {
        return print_json(event);
    }
    if let Some(line) = line(event).filter(|_| !args.quiet) {
        print_text(&line);
    }
}

/// Formats an event as a line, if it is important enough.
///
/// The swarm's display reuses these lines for events that it does not format itself. Arguments and
/// results are cut to 500 characters, except in questions.
pub(crate) fn line(event: &Event) -> Option<String> {
    Some(match &event.kind {
        EventKind::TurnStarted { turn, .. } => format!("turn {turn}\n"),
        EventKind::Delta {
            delta: Delta::Thinking(text),
            ..
        } => format!("  thinks {text}\n"),
        EventKind::Delta {
            delta: Delta::Waiting { time, reason },
            ..
        } => {
            format!("  waits  {time:.1?}: {reason}\n")
        }
        EventKind::Delta {
            delta: Delta::Notice { text },
            ..
        } => format!("  notice {text}\n"),
        EventKind::Delta {
            delta: Delta::Restart { reason },
            ..
        } => format!("  retry  {reason}\n"),
        EventKind::ToolStarted { call, .. } => {
            format!(
                "  calls  {} {}\n",
                call.name,
                shorten(call.args.to_string())
            )
        }
        EventKind::ToolFinished { result, .. } => {
            format!("  gets   {}\n", shorten(result.text().into_owned()))
        }
        EventKind::ChildStarted { agent, .. } => format!("  starts {agent}\n"),
        EventKind::ChildFinished { ending, .. } => {
            format!("  gets   {}\n", shorten(ending_text(ending)))
        }
        EventKind::Asked(ask) if ask.wanted == AskKind::Answer => {
            format!("  asks   {}\n", ask.reason)
        }
        EventKind::Asked(ask) => {
            let args = ask.call.args.to_string();
            format!(
                "  asks   {} {}: {}\n",
                ask.call.name,
                omit_middle(&args),
                ask.reason
            )
        }
        EventKind::Decided { decision, .. } => format!("  answer {}\n", decision_text(decision)),
        EventKind::Denied { reason, .. } => format!("  denied {reason}\n"),
        EventKind::Guarded { intervention, .. } => format!("  guard  {intervention}\n"),
        EventKind::Progress { text, .. } => format!("  status {}\n", text.trim_end()),
        EventKind::FileChanged { change, .. } => format!("  {:<6} {}\n", change.kind, change.path),
        EventKind::Note { text } => format!("  note   {text}\n"),
        EventKind::WaitStarted { until, .. } => format!("  waits  until {until}\n"),
        _ => return None,
    })
}

/// Returns the result of a child run as text.
///
/// A child's value has precedence over its text, because the parent receives the value.
fn ending_text(ending: &Ending) -> String {
    match (&ending.status, &ending.value) {
        (Status::Complete | Status::BestEffort(_), Some(value)) => value.to_string(),
        (Status::Complete | Status::BestEffort(_), None) => ending.text.clone(),
        (Status::Failed(Failure::Program(error)), _) => error.to_string(),
        (status, _) => status.to_string(),
    }
}

/// Formats a decision that was made here or by another process.
fn decision_text(decision: &Decision) -> String {
    match decision {
        Decision::Allow => "yes".to_owned(),
        Decision::Edit { args } => format!("yes, with {}", shorten(args.to_string())),
        Decision::Answer { text } => text.clone(),
        Decision::Deny { reason } => format!("no: {reason}"),
        _ => "unknown decision".to_owned(),
    }
}

/// Prints the answer, the id of a stored run and the usage. A best-effort answer is named on
/// standard error and still succeeds with 0.
fn conclude(args: &AgentArgs, answer: &Answer, stored: bool) -> ExitCode {
    if args.json {
        return ExitCode::SUCCESS;
    }
    print_text(&format!("{answer}\n"));
    if let Status::BestEffort(_) = answer.status() {
        report_error(&answer.status().to_string(), 0);
    }
    if stored && !args.quiet {
        print_text(&format!("(stored as run {})\n", answer.run()));
    }
    if !args.quiet {
        let stats = answer.stats();
        print_text(&format!(
            "({}, {}, {})\n",
            answer.usage(),
            counted(stats.turns, "turn"),
            counted(stats.tool_calls, "tool call")
        ));
    }
    ExitCode::SUCCESS
}

#[cfg(test)]
mod tests {
    use levity::core::{EffectId, RunId, ToolCall};
    use serde_json::json;

    use super::*;

    #[test]
    fn plain_yes_does_not_allow_call_too_long_to_show() {
        let ask = |size: usize| {
            let call = ToolCall::new("c", "run", json!({"command": "x".repeat(size)}));
            Ask::new(RunId::new("r"), EffectId::new(1), call, "it may write")
        };
        let (short, long) = (ask(10), ask(60_000));
        assert_eq!(decision(&short, "y"), Decision::Allow);
        assert_eq!(decision(&short, "yes"), Decision::Allow);
        assert_ne!(decision(&short, LONG_CALL), Decision::Allow);
        assert_ne!(decision(&long, "y"), Decision::Allow);
        assert_eq!(decision(&long, LONG_CALL), Decision::Allow);
        assert!(question(&long).len() < 10_000 && question(&long).contains("bytes are not shown"));
    }
}
