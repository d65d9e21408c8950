//! A run under way, as the terminal shows it.

use std::pin::pin;
use std::process::ExitCode;

use levity::core::{Ask, Delta, Ending, Event, Failure, Record, RunSummary, Status, Wanted};
use levity::prelude::*;
use levity::runtime::{RunHandle, Runnable};

use crate::agent::AgentArgs;
use crate::input::Input;
use crate::terminal::{
    brief, chain, complain, counted, is_shown_whole, say, say_json, shell, whole,
};

/// How a run that waits is told from one that ended.
pub(crate) const WAITS: u8 = 3;

/// The exit code of a run that Ctrl-C cancelled.
const CANCELLED: u8 = 130;

/// Why a run is cancelled by Ctrl-C.
const INTERRUPTED: &str = "interrupted from the terminal";

/// Shows a run until it ends, and says how it went: 0 for an answer, 1 for none, 3 when it waits,
/// 130 after Ctrl-C.
pub(crate) async fn follow(run: RunHandle<Agent>, args: &AgentArgs, kept: bool) -> ExitCode {
    match watch(run, args, &mut Input::new(), |event| show(args, event)).await {
        Ok(answer) => conclude(args, &answer, kept),
        Err(levity::Error::Parked { run, .. }) => complain(
            &format!(
                "run {run} waits; `levity runs show {}` says for what",
                shell(run.as_str())
            ),
            WAITS,
        ),
        Err(error) => failed(&error),
    }
}

/// Says why there is no answer.
pub(crate) fn failed(error: &levity::Error) -> ExitCode {
    if let Some(partial) = error.partial().filter(|partial| !partial.text().is_empty()) {
        complain(&format!("the last words were: {}", partial.text()), 1);
    }
    match error {
        levity::Error::Cancelled { reason, .. } if reason == INTERRUPTED => {
            complain(&chain(error), CANCELLED)
        }
        _ => complain(&chain(error), 1),
    }
}

/// Lets a run go on whose records leave it paused: nobody else could say so here.
pub(crate) async fn go_on<W: Runnable>(run: &RunHandle<W>, records: &[Record]) {
    if RunSummary::of(run.id(), records).is_some_and(|summary| summary.paused) {
        // A run that could not be opened says so itself.
        let _ = run.resume().await;
    }
}

/// Shows what happens until the run ends. What it asks is asked of whoever sits at the terminal.
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
        tokio::select! {
            event = events.next() => match event {
                Some(event) => {
                    show(&event);
                    if let EventKind::Asked(ask) = &event.kind && !args.park {
                        tokio::select! {
                            // A run that has ended meanwhile needs no answer.
                            decision = decide(ask, input) => drop(run.control().decide(ask, decision).await),
                            _ = &mut interrupted, if !cancelled => {
                                cancelled = true;
                                drop(run.cancel(INTERRUPTED).await);
                            }
                        }
                    }
                }
                None => return run.await,
            },
            _ = &mut interrupted, if !cancelled => {
                cancelled = true;
                // A run that has ended meanwhile needs no cancelling.
                let _ = run.cancel(INTERRUPTED).await;
            }
        }
    }
}

/// Asks whoever sits at the terminal.
async fn decide(ask: &Ask, input: &mut Input) -> Decision {
    if !Input::is_terminal() {
        return Decision::deny(
            "nobody sits at the terminal; `levity run --park` keeps a question for later",
        );
    }
    // What was typed before the question was there is no answer to it.
    input.forget();
    match input.line(&question(ask)).await {
        Ok(Some(line)) => decision(ask, line.trim()),
        _ => Decision::deny("the user says no"),
    }
}

/// What whoever sits at the terminal is asked.
pub(crate) fn question(ask: &Ask) -> String {
    match ask.wanted {
        Wanted::Answer => format!("  it asks: {}\n  > ", ask.reason),
        _ if !is_whole(ask) => format!(
            "  may it call {}? ({})\n  The call is too long to be shown whole; `{LONG_CALL}` \
                allows it. [N] ",
            whole(&words(ask)),
            ask.reason
        ),
        _ => format!("  may it call {}? ({}) [y/N] ", words(ask), ask.reason),
    }
}

/// The answer that allows a call which is not shown whole.
pub(crate) const LONG_CALL: &str = "long call";

fn words(ask: &Ask) -> String {
    format!("{} {}", ask.call.name, ask.call.args)
}

fn is_whole(ask: &Ask) -> bool {
    is_shown_whole(&words(ask))
}

/// What a line says in answer to a question.
pub(crate) fn decision(ask: &Ask, line: &str) -> Decision {
    match (ask.wanted, line) {
        (Wanted::Answer, "") => Decision::deny("the user did not answer"),
        (Wanted::Answer, answer) => Decision::answer(answer),
        (_, "y" | "Y") if is_whole(ask) => Decision::Allow,
        (_, LONG_CALL) if !is_whole(ask) => Decision::Allow,
        _ => Decision::deny("the user says no"),
    }
}

/// Shows an event as the terminal is to show it.
fn show(args: &AgentArgs, event: &Event) {
    if args.json {
        return say_json(event);
    }
    if let Some(line) = line(event).filter(|_| !args.quiet) {
        say(&line);
    }
}

/// An event as a line, if it is worth one.
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
        } => format!("  anew   {reason}\n"),
        EventKind::ToolStarted { call, .. } => {
            format!("  calls  {} {}\n", call.name, brief(call.args.to_string()))
        }
        EventKind::ToolFinished { result, .. } => {
            format!("  gets   {}\n", brief(result.text().into_owned()))
        }
        EventKind::ChildStarted { agent, .. } => format!("  begins {agent}\n"),
        EventKind::ChildFinished { ending, .. } => format!("  gets   {}\n", brief(ended(ending))),
        EventKind::Asked(ask) if ask.wanted == Wanted::Answer => {
            format!("  asks   {}\n", ask.reason)
        }
        EventKind::Asked(ask) => {
            let args = ask.call.args.to_string();
            format!(
                "  asks   {} {}: {}\n",
                ask.call.name,
                whole(&args),
                ask.reason
            )
        }
        EventKind::Decided { decision, .. } => format!("  hears  {}\n", heard(decision)),
        EventKind::Denied { reason, .. } => format!("  denied {reason}\n"),
        EventKind::Guarded { intervention, .. } => format!("  guard  {intervention}\n"),
        EventKind::Progress { text, .. } => format!("  says   {}\n", text.trim_end()),
        EventKind::FileChanged { change, .. } => format!("  {:<6} {}\n", change.kind, change.path),
        EventKind::Note { text } => format!("  note   {text}\n"),
        EventKind::WaitStarted { until, .. } => format!("  waits  until {until}\n"),
        _ => return None,
    })
}

/// What a run below came to.
fn ended(ending: &Ending) -> String {
    match (&ending.status, &ending.value) {
        (Status::Complete | Status::BestEffort(_), Some(value)) => value.to_string(),
        (Status::Complete | Status::BestEffort(_), None) => ending.text.clone(),
        (Status::Failed(Failure::Program(error)), _) => error.to_string(),
        (status, _) => status.to_string(),
    }
}

fn heard(decision: &Decision) -> String {
    match decision {
        Decision::Allow => "yes".to_owned(),
        Decision::Edit { args } => format!("yes, with {}", brief(args.to_string())),
        Decision::Answer { text } => text.clone(),
        Decision::Deny { reason } => format!("no: {reason}"),
        _ => "something new".to_owned(),
    }
}

fn conclude(args: &AgentArgs, answer: &Answer, kept: bool) -> ExitCode {
    if args.json {
        return ExitCode::SUCCESS;
    }
    say(&format!("{answer}\n"));
    if let Status::BestEffort(_) = answer.status() {
        complain(&answer.status().to_string(), 0);
    }
    if kept && !args.quiet {
        say(&format!("(kept as run {})\n", answer.run()));
    }
    if !args.quiet {
        let stats = answer.stats();
        say(&format!(
            "({}, {}, {})\n",
            answer.usage(),
            counted(stats.turns.into(), "turn"),
            counted(stats.tool_calls.into(), "tool call")
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
    fn call_that_is_not_shown_whole_is_not_allowed_by_a_plain_yes() {
        let ask = |size: usize| {
            let call = ToolCall::new("c", "run", json!({"command": "x".repeat(size)}));
            Ask::new(RunId::new("r"), EffectId::new(1), call, "it may write")
        };
        let (short, long) = (ask(10), ask(60_000));
        assert_eq!(decision(&short, "y"), Decision::Allow);
        assert_ne!(decision(&short, LONG_CALL), Decision::Allow);
        assert_ne!(decision(&long, "y"), Decision::Allow);
        assert_eq!(decision(&long, LONG_CALL), Decision::Allow);
        assert!(question(&long).len() < 10_000 && question(&long).contains("bytes are not shown"));
    }
}
