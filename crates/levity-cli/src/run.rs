use std::fs;
use std::path::PathBuf;
use std::pin::pin;
use std::process::ExitCode;

use clap::Args;
use levity::agent::AgentRun;
use levity::core::{Delta, Event, EventKind, JournalError, Status};
use levity::prelude::*;
use levity::test::ScriptedModel;
use serde_json::json;

use crate::terminal::{chain, complain, say, say_json};

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
    /// Keep the run in this folder; if it has a run of this id already, go on with it.
    #[arg(long, value_name = "FOLDER")]
    journal: Option<PathBuf>,
    /// The run's id; a random one by default.
    #[arg(long, value_name = "ID", requires = "journal")]
    id: Option<String>,
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
    let agent = match runtime(&args) {
        Ok(runtime) => Agent::builder(model)
            .instructions(args.instructions.as_str())
            .tool(add)
            .max_turns(args.max_turns)
            .runtime(runtime)
            .build(),
        Err(error) => return complain(&chain(&error), 2),
    };
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

fn runtime(args: &Run) -> Result<Runtime, JournalError> {
    Ok(match &args.journal {
        Some(folder) => Runtime::new().with_journal(FileJournal::new(folder)?),
        None => Runtime::new(),
    })
}

/// Begins the run, or goes on with it if the journal has it.
async fn begin(agent: &Agent, args: &Run) -> AgentRun {
    let run = agent.run(args.goal.as_str());
    let Some(id) = &args.id else { return run.start() };
    let known = agent.runtime().journal().read(&RunId::new(id.as_str())).await;
    if known.is_ok_and(|records| !records.is_empty()) {
        return agent.resume(id.as_str()).start();
    }
    run.id(id.as_str()).start()
}

async fn follow(agent: &Agent, args: &Run) -> levity::Result<Answer> {
    let mut run = begin(agent, args).await;
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
        return say_json(event);
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
    if args.journal.is_some() && !args.quiet {
        say(&format!("(kept as run {})\n", answer.run()));
    }
    if !args.quiet {
        let stats = answer.stats();
        say(&format!("({}, {} turns, {} tool calls)\n", answer.usage(), stats.turns, stats.tool_calls));
    }
    ExitCode::SUCCESS
}
