use std::fs;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::pin::pin;
use std::process::ExitCode;

use clap::Args;
use levity::core::{Delta, Event, EventKind, Status};
use levity::prelude::*;
use levity::test::ScriptedModel;
use serde_json::json;

/// How `levity run` is called.
#[derive(Args)]
pub(crate) struct Run {
    /// What to do, in words.
    goal: String,
    /// What the model is told before everything else.
    #[arg(long, default_value = "Be brief.")]
    instructions: String,
    /// A JSON file of replies that a scripted model gives; without it, a short demonstration stands in.
    #[arg(long, value_name = "FILE")]
    script: Option<PathBuf>,
    /// How many turns the run may take.
    #[arg(long, value_name = "N", default_value_t = 10)]
    max_turns: u64,
    /// Print every event as one JSON object on a line of its own, and nothing else.
    #[arg(long)]
    json: bool,
    /// Print the answer alone.
    #[arg(long, short, conflicts_with = "json")]
    quiet: bool,
}

/// Adds two numbers.
#[tool(read_only)]
async fn add(
    /** left */
    a: f64,
    /** right */
    b: f64,
) -> f64 {
    a + b
}

/// Runs an agent and says how it went: 0 for an answer, 1 for none, 2 for a wrong call.
pub(crate) async fn run(args: Run) -> ExitCode {
    let model = match model(&args) {
        Ok(model) => model,
        Err(problem) => return complain(&problem, 2),
    };
    let agent = Agent::builder(model)
        .instructions(args.instructions.as_str())
        .tool(add)
        .max_turns(args.max_turns)
        .build();
    let agent = match agent {
        Ok(agent) => agent,
        Err(error) => return complain(&chain(&error), 2),
    };
    match follow(&agent, &args).await {
        Ok(answer) => conclude(&args, &answer),
        Err(error) => {
            if let Some(partial) = error.partial().filter(|partial| !partial.text().is_empty()) {
                complain(&format!("the last words were: {partial}"), 1);
            }
            complain(&chain(&error), 1)
        }
    }
}

fn model(args: &Run) -> Result<ScriptedModel, String> {
    let Some(path) = &args.script else {
        if !args.quiet && !args.json {
            say("(no model is configured: a scripted stand-in gives a demonstration)\n");
        }
        let model = ScriptedModel::new().call("add", json!({"a": 2, "b": 5}));
        return Ok(
            model.reply("A scripted stand-in cannot know. It only called `add` to show how that looks.")
        );
    };
    let text =
        fs::read_to_string(path).map_err(|error| format!("`{}` cannot be read: {error}", path.display()))?;
    ScriptedModel::from_json(&text).map_err(|error| format!("`{}`: {}", path.display(), chain(&error)))
}

async fn follow(agent: &Agent, args: &Run) -> levity::Result<Answer> {
    let mut run = agent.start(args.goal.as_str());
    let mut events = run.events();
    let mut interrupted = pin!(tokio::signal::ctrl_c());
    let mut cancelled = false;
    loop {
        tokio::select! {
            event = events.next() => match event {
                Some(event) => show(args, &event),
                None => return run.await,
            },
            _ = &mut interrupted, if !cancelled => {
                cancelled = true;
                // A run that has ended meanwhile needs no cancelling.
                let _ = run.cancel("interrupted from the terminal").await;
            }
        }
    }
}

fn show(args: &Run, event: &Event) {
    if args.json {
        if let Ok(line) = serde_json::to_string(event) {
            say(&line);
            say("\n");
        }
        return;
    }
    if args.quiet {
        return;
    }
    match &event.kind {
        EventKind::TurnStarted { turn, .. } => say(&format!("turn {turn}\n")),
        EventKind::Delta { delta: Delta::Thinking(text), .. } => say(&format!("  thinks {text}\n")),
        EventKind::ToolStarted { call, .. } => say(&format!("  calls  {} {}\n", call.name, call.args)),
        EventKind::ToolFinished { result, .. } => say(&format!("  gets   {}\n", result.text())),
        EventKind::Note { text } => say(&format!("  note   {text}\n")),
        _ => {}
    }
}

fn conclude(args: &Run, answer: &Answer) -> ExitCode {
    if args.json {
        return ExitCode::SUCCESS;
    }
    say(&format!("{answer}\n"));
    if let Status::BestEffort(_) = answer.status() {
        complain(&answer.status().to_string(), 0);
    }
    if !args.quiet {
        let stats = answer.stats();
        say(&format!("({}, {} turns, {} tool calls)\n", answer.usage(), stats.turns, stats.tool_calls));
    }
    ExitCode::SUCCESS
}

/// Prints, and does not mind a reader who has gone away.
fn say(text: &str) {
    let mut out = io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

fn complain(problem: &str, code: u8) -> ExitCode {
    let _ = writeln!(io::stderr(), "levity: {problem}");
    ExitCode::from(code)
}

/// An error and all it came from, on one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        next = cause.source();
    }
    text
}
