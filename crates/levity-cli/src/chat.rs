//! An interactive conversation in the terminal.
//!
//! Each line of input is one run in the same conversation, so the model sees all earlier lines.
//! Images and files of `--image` and `--file` belong to the first line.
//! With `--memory` the conversation is stored and continues at the next call; without, it lives
//! until the program ends. Text of the model is printed as it arrives; tool calls and notes appear
//! on lines of their own.
//!
//! A failed line does not end the conversation. Exit codes: 0 if all lines were answered, 1 if one
//! was not, 2 for a wrong call, 130 for Ctrl-C at the prompt; Ctrl-C during an answer cancels only
//! that answer.

use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use levity::core::text::is_blank;
use levity::core::{ConversationId, Delta, Event, Status};
use levity::memory::InMemory;
use levity::prelude::*;

use crate::agent::AgentArgs;
use crate::follow::{failed, line, watch};
use crate::given::{Given, GivenArgs};
use crate::input::Input;
use crate::logs::Logs;
use crate::mcp::McpServers;
use crate::memory;
use crate::recall::AnswerStore;
use crate::terminal::{note, print_json, print_text, report_error};

/// The exit code of a conversation that Ctrl-C ended.
const INTERRUPTED: u8 = 130;

/// The arguments of `levity chat`.
#[derive(Args)]
#[command(mut_arg("park", |park| park.hide(true)), after_help = crate::EXIT_CODES)]
pub(crate) struct Chat {
    /// Conversation to continue, or to start under this name; a new one by default.
    #[arg(long, value_name = "ID", requires = "memory", value_parser = memory::parse_name)]
    conversation: Option<String>,
    #[command(flatten)]
    given: GivenArgs,
    #[command(flatten)]
    agent: AgentArgs,
}

/// Answers line by line until the input ends. Returns 0 if all lines were answered, 1 if one was
/// not, 2 for an invalid call, 130 after Ctrl-C at the prompt.
///
/// `--park` comes with the shared options and is hidden and refused here: a parked question would
/// leave the conversation waiting without a prompt.
pub(crate) async fn chat(args: Chat) -> ExitCode {
    if args.agent.park {
        return report_error(
            "`--park` does not apply to a conversation; use `levity run --park`",
            2,
        );
    }
    match Conversation::open(&args).await {
        Ok((conversation, mcp_servers)) => {
            mcp_servers
                .end(conversation.answer_lines(&args.agent).await)
                .await
        }
        Err(problem) => report_error(&problem, 2),
    }
}

/// An open conversation with an agent.
struct Conversation {
    agent: Agent,
    id: ConversationId,
    logs: Logs,
    recall: Option<AnswerStore>,
    /// The images and files of the first line.
    given: Option<Given>,
}

impl Conversation {
    /// The id of a new stored conversation is printed, since the user needs it to continue.
    async fn open(args: &Chat) -> Result<(Self, McpServers), String> {
        let extras = args.agent.extras(args.given.open()?)?;
        let logs = args.agent.shape.common.logs.open()?;
        let (runtime, memory_path) = (Runtime::new(), args.agent.shape.memory.as_deref());
        let (mut agent, mcp_servers) = args.agent.builder(runtime.clone(), &extras).await?;
        if memory_path.is_none() {
            // The conversation is stored in memory until the program ends.
            agent = agent.conversations(memory::conversations(Arc::new(InMemory::new()), &runtime));
        }
        let (agent, mcp_servers) = mcp_servers.beside(extras.finish(agent)).await?;
        let id = memory::conversation(memory_path, args.conversation.as_deref(), &agent);
        if memory_path.is_some() && args.conversation.is_none() {
            note(&format!("conversation {id}"));
        }
        let conversation = Self {
            agent,
            id,
            logs,
            recall: extras.recall,
            given: Some(extras.given),
        };
        Ok((conversation, mcp_servers))
    }

    /// Blank lines are skipped without asking the model. The same input answers questions of runs,
    /// so the loop lends it to each of them.
    async fn answer_lines(mut self, args: &AgentArgs) -> ExitCode {
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
                    return report_error(&format!("cannot read the standard input: {error}"), 1);
                }
            }
        }
    }

    /// Answers one line, and returns `true` if there was an answer.
    ///
    /// An answer that could not be stored is printed all the same, with the error after it; the
    /// line counts as failed, because the next one will not know about it.
    async fn answer(&mut self, line: &str, args: &AgentArgs, input: &mut Input) -> bool {
        let goal = match self.given.take() {
            Some(given) => given.message(line),
            None => line.into(),
        };
        let mut printed = PrintedReply::default();
        let logged = self.logs.watcher(Some(self.id.as_str()));
        let run = self
            .agent
            .run(goal)
            .conversation(self.id.clone())
            .on_event(logged)
            .start();
        match watch(run, args, input, |event| printed.event(args, event)).await {
            Ok(answer) => {
                if let Some(recall) = &self.recall {
                    let source = format!("conversation {}", self.id);
                    recall.add(line, answer.text(), &source).await;
                }
                printed.conclude(args, &answer);
                true
            }
            Err(error) => {
                // The answer may exist even though it could not be stored.
                match (&error, error.partial_as()) {
                    (levity::Error::Memory { .. }, Some(answer)) => printed.conclude(args, &answer),
                    _ => printed.end_line(),
                }
                failed(&error);
                false
            }
        }
    }
}

/// The part of a reply that is already printed.
///
/// The final answer is printed only if it differs from the text that was streamed, for example
/// after a guard changed it.
#[derive(Default)]
struct PrintedReply {
    /// The text of the model since its last call.
    text: String,
    /// `true` if the cursor is at the end of an unfinished line.
    in_line: bool,
}

impl PrintedReply {
    /// Text before a tool call is not the answer, so the collected text is cleared when the model
    /// is called again or restarts.
    fn event(&mut self, args: &AgentArgs, event: &Event) {
        if args.json {
            return print_json(event);
        }
        if args.quiet {
            return;
        }
        match &event.kind {
            // A child run reports to its parent, so its text is not part of the reply.
            _ if event.run.parent().is_some() => self.line(event),
            EventKind::Delta {
                delta: Delta::Text(text),
                ..
            } => {
                print_text(text);
                self.text.push_str(text);
                self.in_line = !self.text.is_empty();
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

    /// Ends an unfinished line of streamed text first.
    fn line(&mut self, event: &Event) {
        if let Some(line) = line(event) {
            self.end_line();
            print_text(&line);
        }
    }

    /// Prints the answer, unless it is already printed.
    ///
    /// A best-effort answer is named on standard error.
    fn conclude(&mut self, args: &AgentArgs, answer: &Answer) {
        if args.json {
            return;
        }
        self.end_line();
        if self.text != answer.text() {
            print_text(&format!("{answer}\n"));
        }
        if let Status::BestEffort(_) = answer.status() {
            report_error(&answer.status().to_string(), 0);
        }
    }

    /// Ends an unfinished line, so that the next output starts in the first column.
    fn end_line(&mut self) {
        if std::mem::take(&mut self.in_line) && !self.text.ends_with('\n') {
            print_text("\n");
        }
    }
}
