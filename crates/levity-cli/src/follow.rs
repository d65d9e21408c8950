//! A run under way, as the terminal shows it.

use std::io::{self, BufRead as _, IsTerminal as _, Write as _};
use std::pin::pin;
use std::process::ExitCode;

use levity::agent::AgentRun;
use levity::core::{Delta, Record, RunSummary, Status, Wanted};
use levity::prelude::*;

use crate::agent::AgentArgs;
use crate::terminal::{brief, chain, complain, harmless, say, say_json};

/// How a run that waits is told from one that ended.
pub(crate) const WAITS: u8 = 3;

/// Why a run is cancelled by Ctrl-C.
const INTERRUPTED: &str = "interrupted from the terminal";

/// Shows a run until it ends, and says how it went: 0 for an answer, 1 for none, 3 when it waits.
pub(crate) async fn follow(run: AgentRun, args: &AgentArgs, kept: bool) -> ExitCode {
    match watch(run, args).await {
        Ok(answer) => conclude(args, &answer, kept),
        Err(levity::Error::Parked { run, .. }) => {
            complain(&format!("run {run} waits; `levity runs show {run}` says for what"), WAITS)
        }
        Err(error) => {
            if let Some(partial) = error.partial().filter(|partial| !partial.text().is_empty()) {
                complain(&format!("the last words were: {partial}"), 1);
            }
            complain(&chain(&error), 1)
        }
    }
}

/// Lets a run go on whose records leave it paused: nobody else could say so here.
pub(crate) async fn go_on(run: &AgentRun, records: &[Record]) {
    if RunSummary::of(run.id(), records).is_some_and(|summary| summary.paused) {
        // A run that could not be opened says so itself.
        let _ = run.resume().await;
    }
}

async fn watch(mut run: AgentRun, args: &AgentArgs) -> levity::Result<Answer> {
    let mut events = run.events();
    let mut interrupted = pin!(tokio::signal::ctrl_c());
    let mut cancelled = false;
    loop {
        tokio::select! {
            event = events.next() => match event {
                Some(event) => {
                    show(args, &event);
                    if let EventKind::Asked(ask) = &event.kind && !args.park {
                        tokio::select! {
                            // A run that has ended meanwhile needs no answer.
                            decision = decide(ask) => drop(run.control().decide(ask, decision).await),
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
async fn decide(ask: &Ask) -> Decision {
    if !io::stdin().is_terminal() {
        return Decision::deny("nobody sits at the terminal; `--park` keeps the question for later");
    }
    let question = match ask.wanted {
        Wanted::Answer => format!("  it asks: {}\n  > ", ask.reason),
        _ => format!("  may it call {} {}? ({}) [y/N] ", ask.call.name, ask.call.args, ask.reason),
    };
    // Not where the events go.
    let _ = write!(io::stderr(), "{}", harmless(&question));
    let (sender, line) = tokio::sync::oneshot::channel();
    // A thread that the end of the program does not wait for: nobody may ever press return.
    std::thread::spawn(move || {
        let mut line = String::new();
        let _ = sender.send(io::stdin().lock().read_line(&mut line).map(|_| line));
    });
    match line.await {
        Ok(Ok(line)) if ask.wanted == Wanted::Answer => match line.trim() {
            "" => Decision::deny("the user did not answer"),
            answer => Decision::answer(answer),
        },
        Ok(Ok(line)) if line.trim().eq_ignore_ascii_case("y") => Decision::Allow,
        _ => Decision::deny("the user says no"),
    }
}

fn show(args: &AgentArgs, event: &Event) {
    if args.json {
        return say_json(event);
    }
    if args.quiet {
        return;
    }
    match &event.kind {
        EventKind::TurnStarted { turn, .. } => say(&format!("turn {turn}\n")),
        EventKind::Delta { delta: Delta::Thinking(text), .. } => say(&format!("  thinks {text}\n")),
        EventKind::Delta { delta: Delta::Waiting { time, reason }, .. } => {
            say(&format!("  waits  {time:.1?}: {reason}\n"));
        }
        EventKind::Delta { delta: Delta::Restart { reason }, .. } => say(&format!("  anew   {reason}\n")),
        EventKind::ToolStarted { call, .. } => {
            say(&format!("  calls  {} {}\n", call.name, brief(call.args.to_string())));
        }
        EventKind::ToolFinished { result, .. } => say(&format!("  gets   {}\n", result.text())),
        EventKind::Progress { text, .. } => say(&format!("  says   {}\n", text.trim_end())),
        EventKind::FileChanged { change, .. } => say(&format!("  {:<6} {}\n", change.kind, change.path)),
        EventKind::Note { text } => say(&format!("  note   {text}\n")),
        EventKind::WaitStarted { until, .. } => say(&format!("  waits  until {until}\n")),
        _ => {}
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
        say(&format!("({}, {} turns, {} tool calls)\n", answer.usage(), stats.turns, stats.tool_calls));
    }
    ExitCode::SUCCESS
}
