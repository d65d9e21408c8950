//! A conversation in the terminal.

use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use levity::core::text::is_blank;
use levity::core::{ConversationId, Delta, Event, Status};
use levity::memory::InMemory;
use levity::prelude::*;

use crate::agent::AgentArgs;
use crate::follow::{failed, line, watch};
use crate::input::Input;
use crate::logs::Logs;
use crate::mcp::Offered;
use crate::memory;
use crate::terminal::{chain, complain, note, say, say_json};

/// How a conversation that was broken off by Ctrl-C ends.
const INTERRUPTED: u8 = 130;

/// How `levity chat` is called.
#[derive(Args)]
#[command(mut_arg("park", |park| park.hide(true)), after_help = crate::EXIT_CODES)]
pub(crate) struct Chat {
    /// The conversation to go on with, or to begin by this name; a new one by default.
    #[arg(long, value_name = "ID", requires = "memory", value_parser = memory::named)]
    conversation: Option<String>,
    #[command(flatten)]
    agent: AgentArgs,
}

/// Answers line by line until the input ends: 0 when all were answered, 1 when one was not, 2 for a
/// wrong call.
pub(crate) async fn chat(args: Chat) -> ExitCode {
    if args.agent.park {
        return complain("a conversation does not wait; use `levity run --park`", 2);
    }
    match Talk::open(&args).await {
        Ok((talk, offered)) => offered.end(talk.go_on(&args.agent).await).await,
        Err(problem) => complain(&problem, 2),
    }
}

/// A conversation under way.
struct Talk {
    agent: Agent,
    id: ConversationId,
    logs: Logs,
}

impl Talk {
    async fn open(args: &Chat) -> Result<(Self, Offered), String> {
        let logs = args.agent.made.common.logs.open()?;
        let (runtime, kept) = (Runtime::new(), args.agent.made.memory.as_deref());
        let (mut agent, offered) = args.agent.builder(runtime.clone()).await?;
        if kept.is_none() {
            // What is said is known until the program ends.
            agent = agent.conversations(memory::conversations(Arc::new(InMemory::new()), &runtime));
        }
        let agent = agent.build().map_err(|error| chain(&error))?;
        let id = memory::conversation(kept, args.conversation.as_deref(), &agent);
        if kept.is_some() && args.conversation.is_none() {
            note(&format!("conversation {id}"));
        }
        Ok((Self { agent, id, logs }, offered))
    }

    async fn go_on(mut self, args: &AgentArgs) -> ExitCode {
        let (mut input, mut code) = (Input::new(), ExitCode::SUCCESS);
        loop {
            let line = tokio::select! {
                line = input.line("> ") => line,
                _ = tokio::signal::ctrl_c() => return ExitCode::from(INTERRUPTED),
            };
            match line {
                Ok(Some(line)) if is_blank(&line) => {}
                Ok(Some(line)) => {
                    if !self.answer(&line, args, &mut input).await {
                        code = ExitCode::FAILURE;
                    }
                }
                Ok(None) => return code,
                Err(error) => {
                    return complain(&format!("the standard input cannot be read: {error}"), 1);
                }
            }
        }
    }

    /// Answers one line, and says whether there was an answer.
    async fn answer(&mut self, line: &str, args: &AgentArgs, input: &mut Input) -> bool {
        let mut shown = Shown::default();
        let logged = self.logs.watcher(Some(self.id.as_str()));
        let run = self
            .agent
            .run(line)
            .conversation(self.id.clone())
            .on_event(logged)
            .start();
        match watch(run, args, input, |event| shown.event(args, event)).await {
            Ok(answer) => {
                shown.conclude(args, &answer);
                true
            }
            Err(error) => {
                // The answer may be there, and only not kept.
                match (&error, error.partial_as()) {
                    (levity::Error::Memory { .. }, Some(answer)) => shown.conclude(args, &answer),
                    _ => shown.end_line(),
                }
                failed(&error);
                false
            }
        }
    }
}

/// What of a reply was printed as it came.
#[derive(Default)]
struct Shown {
    /// What the model has said since it was last called.
    text: String,
    /// Whether the cursor stands behind it.
    within: bool,
}

impl Shown {
    fn event(&mut self, args: &AgentArgs, event: &Event) {
        if args.json {
            return say_json(event);
        }
        if args.quiet {
            return;
        }
        match &event.kind {
            // A run below speaks to the one above it.
            _ if event.run.parent().is_some() => self.line(event),
            EventKind::Delta {
                delta: Delta::Text(text),
                ..
            } => {
                say(text);
                self.text.push_str(text);
                self.within = !self.text.is_empty();
            }
            EventKind::Delta {
                delta: Delta::Thinking(_),
                ..
            }
            | EventKind::TurnStarted { .. } => {}
            EventKind::ModelStarted { .. } => self.text.clear(),
            EventKind::Delta {
                delta: Delta::Restart { .. },
                ..
            } => {
                self.line(event);
                self.text.clear();
            }
            _ => self.line(event),
        }
    }

    fn line(&mut self, event: &Event) {
        if let Some(line) = line(event) {
            self.end_line();
            say(&line);
        }
    }

    /// Prints the answer, as far as it was not printed yet.
    fn conclude(&mut self, args: &AgentArgs, answer: &Answer) {
        if args.json {
            return;
        }
        self.end_line();
        if self.text != answer.text() {
            say(&format!("{answer}\n"));
        }
        if let Status::BestEffort(_) = answer.status() {
            complain(&answer.status().to_string(), 0);
        }
    }

    fn end_line(&mut self) {
        if std::mem::take(&mut self.within) && !self.text.ends_with('\n') {
            say("\n");
        }
    }
}
