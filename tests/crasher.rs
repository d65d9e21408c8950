//! A program that the crash tests kill: `crasher FOLDER STOP [STORE]`.
//!
//! The program drives a run whose journal is in FOLDER, in files or, if STORE is `sqlite`, in
//! `runs.db`. With `run_conversation` or `talk-sqlite`, the run belongs to a conversation that is
//! stored there, too, and becomes too long for its model. With `swarm` or `swarm-sqlite`, it is the
//! run of a swarm.
//!
//! Before it writes the first record after STOP, the program prints `stopped` and waits for a kill
//! or for a line of input. It resumes the run if the journal contains one. Its tools append their
//! actions to `FOLDER/done`.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use levity::core::{
    Approver, Ask, ConversationChange, Delta, Deltas, Journal, JournalError, MemoryStore,
    ModelCard, ModelError, OpenRun, Record, Request, Role, RunId, RunLog, RunQuery, RunSummary,
};
use levity::memory::{FileMemory, SqliteMemory};
use levity::prelude::*;
use levity::runtime::{Durability, FileJournal, SqliteJournal};
use serde_json::{Value, json};

#[path = "crasher/swarm.rs"]
mod swarm;

/// A journal that pauses after a number of records.
struct PausingJournal {
    inner: Arc<dyn Journal>,
    remaining: Arc<AtomicUsize>,
}

struct PausingLog {
    inner: Box<dyn RunLog>,
    remaining: Arc<AtomicUsize>,
}

#[async_trait]
impl Journal for PausingJournal {
    async fn open(&self, run: &RunId) -> Result<OpenRun, JournalError> {
        let open = self.inner.open(run).await?;
        Ok(OpenRun::new(
            open.records,
            PausingLog {
                inner: open.log,
                remaining: self.remaining.clone(),
            },
        ))
    }

    async fn list(&self, query: &RunQuery) -> Result<Vec<RunSummary>, JournalError> {
        self.inner.list(query).await
    }
}

#[async_trait]
impl RunLog for PausingLog {
    async fn append(&mut self, records: &[Record]) -> Result<(), JournalError> {
        for record in records {
            let counted =
                self.remaining
                    .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |remaining| {
                        remaining.checked_sub(1)
                    });
            if counted.is_err() {
                println!("stopped");
                if std::io::stdin().lines().next().is_none() {
                    std::future::pending::<()>().await;
                }
            }
            self.inner.append(std::slice::from_ref(record)).await?;
        }
        Ok(())
    }
}

/// Tools that append their actions to a file, for the tests.
struct Tools(PathBuf);

#[tool]
impl Tools {
    /// Inspects something.
    #[tool(read_only)]
    async fn look(&self, cx: &ToolCx) -> String {
        self.record("look", cx)
    }

    /// Sets something. Repeating it changes nothing.
    #[tool(idempotent)]
    async fn set(&self, cx: &ToolCx) -> String {
        self.record("set", cx)
    }

    /// Books something. A booking can be undone.
    #[tool(undo = give_back)]
    async fn book(&self, cx: &ToolCx) -> String {
        self.record("book", cx)
    }

    async fn give_back(&self, cx: &ToolCx) {
        self.record("give_back", cx);
    }

    /// Sends something that must not be sent twice.
    #[tool(destructive)]
    async fn send(&self, cx: &ToolCx) -> String {
        self.record("send", cx)
    }
}

impl Tools {
    fn record(&self, action: &str, cx: &ToolCx) -> String {
        match append_line(&self.0, &format!("{action} {}", cx.key)) {
            Ok(()) => format!("{action} done"),
            Err(error) => format!("{action} not done: {error}"),
        }
    }
}

/// Appends a line in one write.
fn append_line(file: &std::path::Path, line: &str) -> std::io::Result<()> {
    let mut file = OpenOptions::new().create(true).append(true).open(file)?;
    file.write_all(format!("{line}\n").as_bytes())
}

/// A model that depends only on the history, so that any process can continue with it.
struct HistoryModel(ModelCard, &'static [&'static [&'static str]]);

#[async_trait]
impl Model for HistoryModel {
    fn card(&self) -> &ModelCard {
        &self.0
    }

    async fn stream(&self, request: Request) -> Result<Deltas, ModelError> {
        let messages = request.history.messages();
        let turn = messages
            .iter()
            .filter(|message| message.role == Role::Tool)
            .count();
        let Some(calls) = self.1.get(turn) else {
            return Ok(Deltas::ready([Delta::Text("All is done.".into())]));
        };
        let call = |(index, name): (usize, &&str)| {
            let start = Delta::CallStart {
                index: index as u32,
                id: "".into(),
                name: (*name).into(),
            };
            let args = if *name == "helper" {
                json!({"task": "help"})
            } else {
                json!({})
            };
            [
                start,
                Delta::CallArgs {
                    index: index as u32,
                    text: args.to_string(),
                },
            ]
        };
        Ok(Deltas::ready(calls.iter().enumerate().flat_map(call)))
    }
}

/// A model with a small window that calls `look` six times. Each call depends on the last one in
/// the request.
struct SmallWindowModel(ModelCard);

#[async_trait]
impl Model for SmallWindowModel {
    fn card(&self) -> &ModelCard {
        &self.0
    }

    async fn stream(&self, request: Request) -> Result<Deltas, ModelError> {
        if request
            .system
            .is_some_and(|system| system.starts_with("You keep the memory"))
        {
            return Ok(Deltas::ready([Delta::Text(
                "A summary of the conversation.".into(),
            )]));
        }
        let last = request
            .history
            .calls()
            .last()
            .and_then(|(call, _)| call.args["at"].as_u64());
        let next = last.map_or(0, |at| at + 1);
        if next == 6 {
            return Ok(Deltas::ready([Delta::Text("All is done.".into())]));
        }
        let start = Delta::CallStart {
            index: 0,
            id: "".into(),
            name: "look".into(),
        };
        let text = json!({"at": next, "why": "so ".repeat(1_000)}).to_string();
        Ok(Deltas::ready([start, Delta::CallArgs { index: 0, text }]))
    }
}

/// Inspects something.
#[tool(read_only)]
async fn look(
    /** the number of the call */
    at: u64,
    /** the reason, to fill the window */
    why: String,
) -> String {
    format!("{at}, {} bytes of reasons", why.len())
}

/// Drives a run in a conversation with earlier messages, which becomes too long.
async fn run_conversation(
    folder: &std::path::Path,
    runtime: Runtime,
    known: bool,
    sqlite: bool,
) -> levity::Result<()> {
    let Some(memory) = conversation_store(folder, sqlite) else {
        return Ok(());
    };
    let before = (0..14).map(|n| Message::user(format!("An earlier message: {n}")));
    // The save fails if an earlier process already stored the messages, which is fine.
    let _ = memory
        .save(
            &"c".into(),
            &ConversationChange::at(0).with_messages(before),
        )
        .await;
    let card = ModelCard::new("test", "talker").with_window(4_000);
    let agent = Agent::builder(SmallWindowModel(card))
        .tool(look)
        .memory(memory)
        .runtime(runtime)
        .build()?;
    let answer = match known {
        true => agent.resume("r").await,
        false => agent.run("Look around.").conversation("c").id("r").await,
    };
    let answer =
        answer.inspect_err(|error| println!("{}", json!({"error": error_chain(error)})))?;
    println!(
        "{}",
        json!({"answer": answer.text(), "calls": calls(&answer)})
    );
    Ok(())
}

fn conversation_store(folder: &std::path::Path, sqlite: bool) -> Option<Arc<dyn MemoryStore>> {
    Some(match sqlite {
        true => Arc::new(SqliteMemory::new(folder.join("talk.db")).ok()?),
        false => Arc::new(FileMemory::new(folder.join("talk")).ok()?),
    })
}

struct AlwaysAllow;

#[async_trait]
impl Approver for AlwaysAllow {
    async fn decide(&self, _: &Ask) -> Decision {
        Decision::Allow
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> levity::Result<()> {
    let mut args = std::env::args().skip(1);
    let folder = PathBuf::from(args.next().unwrap_or_default());
    let stop = args
        .next()
        .and_then(|stop| stop.parse().ok())
        .unwrap_or(usize::MAX);
    let name = args.next();
    let Some(inner) = store(&folder, name.as_deref()) else {
        return Ok(());
    };
    let journal = PausingJournal {
        inner: inner.clone(),
        remaining: Arc::new(AtomicUsize::new(stop)),
    };
    let runtime = Runtime::new().with_journal(journal);
    let known = inner.list(&RunQuery::new()).await.unwrap_or_default();
    let known = known.iter().any(|summary| summary.run.as_str() == "r");
    if let Some(suffix) = name.as_deref().and_then(|name| name.strip_prefix("talk")) {
        return run_conversation(&folder, runtime, known, suffix == "-sqlite").await;
    }
    if let Some(suffix) = name.as_deref().and_then(|name| name.strip_prefix("swarm")) {
        swarm::run_or_resume(&folder, runtime, known, suffix == "-sqlite").await;
        return Ok(());
    }
    let tools = || Tools(folder.join("done"));

    let helper_turns: &[&[&str]] = &[&["look"], &["book"], &["send"]];
    let helper = Agent::builder(HistoryModel(ModelCard::new("test", "helper"), helper_turns))
        .tools(tools())
        .approver(AlwaysAllow);
    let lead_turns: &[&[&str]] = &[&["look", "look", "set"], &["book"], &["send"], &["helper"]];
    let agent = Agent::builder(HistoryModel(ModelCard::new("test", "lead"), lead_turns))
        .tools(tools())
        .agent("helper", "Helps.", helper.build()?)
        .approver(AlwaysAllow)
        .runtime(runtime)
        .build()?;

    let answer = match known {
        true => agent.resume("r").await,
        false => agent.run("Do it all.").id("r").await,
    };
    let answer =
        answer.inspect_err(|error| println!("{}", json!({"error": error_chain(error)})))?;
    let unknown = answer
        .history()
        .calls()
        .filter(|(_, result)| result.text().contains("not known"))
        .count();
    println!(
        "{}",
        json!({"answer": answer.text(), "unknown": unknown, "calls": calls(&answer)})
    );
    Ok(())
}

fn store(folder: &PathBuf, name: Option<&str>) -> Option<Arc<dyn Journal>> {
    if !name.is_some_and(|name| name.ends_with("sqlite")) {
        return Some(Arc::new(
            FileJournal::new(folder)
                .ok()?
                .with_durability(Durability::Buffered),
        ));
    }
    std::fs::create_dir_all(folder).ok()?;
    let journal = SqliteJournal::new(folder.join("runs.db"))
        .ok()?
        .with_durability(Durability::Buffered);
    Some(Arc::new(journal.with_lease(Duration::from_millis(300))))
}

fn error_chain(error: &dyn std::error::Error) -> String {
    error.source().map_or_else(
        || error.to_string(),
        |cause| format!("{error}: {}", error_chain(cause)),
    )
}

fn calls(answer: &Answer) -> Value {
    answer
        .history()
        .calls()
        .map(|(call, _)| Value::from(call.name.clone()))
        .collect()
}
