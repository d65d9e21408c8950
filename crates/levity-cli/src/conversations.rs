//! Commands for stored conversations.
//!
//! `list`, `show` and `forget` work on a store of conversations directly, without an agent or a
//! model. Stores are read in pages of 256 entries, so a large one needs little memory. Texts are
//! untrusted and printed sanitized; calls and results are cut to 500 characters unless `--json` is
//! given.
//!
//! Exit codes: 0, or 1 if the store cannot be read or a conversation does not exist.

use std::process::ExitCode;
use std::sync::Arc;

use clap::{Args, Subcommand};
use levity::core::{ConversationId, ConversationInfo, ConversationQuery, Message, Part, Role};

use crate::memory::MemoryArg;
use crate::terminal::{chain, print_json, print_text, report_error, shorten};

/// The number of conversations or messages per page.
///
/// Also the number of messages that are held in memory at once.
const PAGE: usize = 256;

/// The arguments of `levity conversations`.
#[derive(Args)]
pub(crate) struct Conversations {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// List conversations, least recently changed first.
    List(List),
    /// Print the messages of a conversation.
    Show(Show),
    /// Delete conversations from the store permanently.
    Forget(Forget),
}

#[derive(Args)]
struct List {
    #[command(flatten)]
    place: MemoryArg,
    /// Print one JSON object per line.
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
struct Show {
    /// Id of the conversation.
    conversation: String,
    #[command(flatten)]
    place: MemoryArg,
    /// Print the messages, one JSON object per line.
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
struct Forget {
    /// Ids of the conversations.
    #[arg(required = true)]
    conversations: Vec<String>,
    #[command(flatten)]
    place: MemoryArg,
}

/// The result of a command: an exit code, or an error message.
type CommandResult = Result<ExitCode, String>;

/// Runs the subcommand and returns 0 if it succeeds, else 1.
pub(crate) async fn conversations(args: Conversations) -> ExitCode {
    let result = match args.action {
        Action::List(list) => list.list().await,
        Action::Show(show) => show.show().await,
        Action::Forget(forget) => forget.forget().await,
    };
    result.unwrap_or_else(|problem| report_error(&problem, 1))
}

impl List {
    /// A page that is not full is the last one.
    async fn list(self) -> CommandResult {
        let store = self.place.open()?;
        let mut query = ConversationQuery::new().limit(PAGE);
        loop {
            let page = store.list(&query).await.map_err(|error| chain(&error))?;
            for info in &page {
                if self.json {
                    print_json(info);
                } else {
                    print_text(&line(info));
                }
            }
            match page.last().filter(|_| page.len() == PAGE) {
                Some(last) => query = query.after(last),
                None => return Ok(ExitCode::SUCCESS),
            }
        }
    }
}

/// Counts all messages that ever were in the conversation, and says how many of the first were
/// deleted.
fn line(info: &ConversationInfo) -> String {
    let trimmed = match info.first {
        0 => String::new(),
        first => format!(", the first {first} deleted"),
    };
    // An id may have several lines.
    let id = info.id.as_str().replace('\n', "\u{fffd}");
    format!("{}  {id}  {} messages{trimmed}\n", info.changed, info.end)
}

impl Show {
    /// A conversation without messages and without a summary does not exist: stores do not
    /// distinguish the two. The summary of earlier messages precedes the messages, except with
    /// `--json`.
    async fn show(self) -> CommandResult {
        let store = self.place.open()?;
        let id = ConversationId::from(self.conversation.as_str());
        let info = store.load(&id, 0).await.map_err(|error| chain(&error))?;
        if info.end == 0 && info.summary.is_none() {
            return Err(unknown_conversation(&id));
        }
        if let Some(summary) = info.summary.filter(|_| !self.json) {
            let of = match summary.upto {
                0 => "earlier messages".to_owned(),
                upto => format!("the first {upto} messages"),
            };
            print_text(&format!("(a summary of {of}: {})\n", summary.text));
        }
        let mut from = 0;
        loop {
            let page = store
                .read(&id, from, PAGE)
                .await
                .map_err(|error| chain(&error))?;
            for (at, message) in &page {
                if self.json {
                    print_json(&PositionedMessage { at: *at, message });
                } else {
                    print_text(&message_lines(*at, message));
                }
            }
            match page.last() {
                Some((last, _)) => from = last.saturating_add(1),
                None => return Ok(ExitCode::SUCCESS),
            }
        }
    }
}

/// A message with its position, as JSON.
///
/// The position counts from the first message ever stored, also after the first ones were deleted.
#[derive(serde::Serialize)]
struct PositionedMessage<'a> {
    at: u64,
    message: &'a Arc<Message>,
}

/// Formats a message as lines: its role, and its text, calls and results.
///
/// Thinking and other internal parts are left out. A text of several lines has its role only on the
/// first one.
fn message_lines(at: u64, message: &Message) -> String {
    let role = match message.role {
        Role::System => "note",
        Role::User => "user",
        Role::Assistant => "model",
        Role::Tool => "tool",
    };
    let lines = message.parts.iter().filter_map(|part| match part {
        Part::Text(text) => Some(text.text.to_string()),
        Part::Media(media) => Some(format!("({})", media.mime)),
        Part::ToolCall(call) => Some(format!(
            "calls {} {}",
            call.name,
            shorten(call.args.to_string())
        )),
        Part::ToolResult(result) => Some(format!(
            "{} returned {}",
            result.name,
            shorten(result.text().into_owned())
        )),
        _ => None,
    });
    lines
        .map(|line| format!("{at:>4}  {role:<5}  {line}\n"))
        .collect()
}

impl Forget {
    /// Goes on after a failure, and returns 1 at the end if one conversation could not be deleted.
    async fn forget(self) -> CommandResult {
        let store = self.place.open()?;
        let mut code = ExitCode::SUCCESS;
        for id in self
            .conversations
            .iter()
            .map(|id| ConversationId::from(id.as_str()))
        {
            match store.forget(&id).await {
                Ok(true) => print_text(&format!("deleted {id}\n")),
                Ok(false) => code = report_error(&unknown_conversation(&id), 1),
                Err(error) => code = report_error(&chain(&error), 1),
            }
        }
        Ok(code)
    }
}

/// The same message for all commands, with the command that lists the ids.
fn unknown_conversation(id: &ConversationId) -> String {
    format!("there is no conversation `{id}`; `levity conversations list` shows all ids")
}
