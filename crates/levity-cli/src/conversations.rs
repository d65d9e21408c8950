//! Looking at conversations that were kept.

use std::process::ExitCode;
use std::sync::Arc;

use clap::{Args, Subcommand};
use levity::core::{ConversationId, ConversationInfo, ConversationQuery, Message, Part, Role};

use crate::memory::Where;
use crate::terminal::{brief, chain, complain, say, say_json};

/// How many conversations, or messages, are read at a time.
const PAGE: usize = 256;

/// How `levity conversations` is called.
#[derive(Args)]
pub(crate) struct Conversations {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// List conversations; those that were changed longest ago come first.
    List(List),
    /// Print a conversation.
    Show(Show),
    /// Remove conversations for good.
    Forget(Forget),
}

#[derive(Args)]
struct List {
    #[command(flatten)]
    place: Where,
    /// Print one JSON object a line.
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
struct Show {
    /// The conversation's id.
    conversation: String,
    #[command(flatten)]
    place: Where,
    /// Print the messages, one JSON object a line.
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
struct Forget {
    /// The ids of the conversations.
    #[arg(required = true)]
    conversations: Vec<String>,
    #[command(flatten)]
    place: Where,
}

/// What a command came to: an exit code, or what is wrong.
type Done = Result<ExitCode, String>;

/// Does what was asked for: 0 when it was done, 1 when not.
pub(crate) async fn conversations(args: Conversations) -> ExitCode {
    let done = match args.what {
        What::List(list) => list.list().await,
        What::Show(show) => show.show().await,
        What::Forget(forget) => forget.forget().await,
    };
    done.unwrap_or_else(|problem| complain(&problem, 1))
}

impl List {
    async fn list(self) -> Done {
        let store = self.place.open()?;
        let mut query = ConversationQuery::new().limit(PAGE);
        loop {
            let page = store.list(&query).await.map_err(|error| chain(&error))?;
            for known in &page {
                if self.json {
                    say_json(known);
                } else {
                    say(&line(known));
                }
            }
            match page.last().filter(|_| page.len() == PAGE) {
                Some(last) => query = query.after(last),
                None => return Ok(ExitCode::SUCCESS),
            }
        }
    }
}

fn line(known: &ConversationInfo) -> String {
    let trimmed = match known.first {
        0 => String::new(),
        first => format!(", the first {first} no longer there"),
    };
    // A name may have several lines.
    let id = known.id.as_str().replace('\n', "\u{fffd}");
    format!("{}  {id}  {} messages{trimmed}\n", known.changed, known.end)
}

impl Show {
    async fn show(self) -> Done {
        let store = self.place.open()?;
        let id = ConversationId::from(self.conversation.as_str());
        let known = store.load(&id, 0).await.map_err(|error| chain(&error))?;
        if known.end == 0 && known.summary.is_none() {
            return Err(unknown(&id));
        }
        if let Some(summary) = known.summary.filter(|_| !self.json) {
            let of = match summary.upto {
                0 => "what came before".to_owned(),
                upto => format!("the first {upto} messages"),
            };
            say(&format!("(a summary of {of}: {})\n", summary.text));
        }
        let mut from = 0;
        loop {
            let page = store
                .read(&id, from, PAGE)
                .await
                .map_err(|error| chain(&error))?;
            for (at, message) in &page {
                if self.json {
                    say_json(&Placed { at: *at, message });
                } else {
                    say(&spoken(*at, message));
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
#[derive(serde::Serialize)]
struct Placed<'a> {
    at: u64,
    message: &'a Arc<Message>,
}

/// A message in lines: who speaks, and what is said, called and returned.
fn spoken(at: u64, message: &Message) -> String {
    let who = match message.role {
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
            brief(call.args.to_string())
        )),
        Part::ToolResult(result) => Some(format!(
            "{} gave {}",
            result.name,
            brief(result.text().into_owned())
        )),
        _ => None,
    });
    lines
        .map(|line| format!("{at:>4}  {who:<5}  {line}\n"))
        .collect()
}

impl Forget {
    async fn forget(self) -> Done {
        let store = self.place.open()?;
        let mut code = ExitCode::SUCCESS;
        for id in self
            .conversations
            .iter()
            .map(|id| ConversationId::from(id.as_str()))
        {
            match store.forget(&id).await {
                Ok(true) => say(&format!("forgot {id}\n")),
                Ok(false) => code = complain(&unknown(&id), 1),
                Err(error) => code = complain(&chain(&error), 1),
            }
        }
        Ok(code)
    }
}

fn unknown(id: &ConversationId) -> String {
    format!("there is no conversation `{id}`; `levity conversations list` shows those there are")
}
