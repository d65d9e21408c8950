//! A program that the crash tests kill: `crasher FOLDER STOP [STORE]` works on a run whose journal
//! is in FOLDER, in files or, if STORE is `sqlite`, in `runs.db`. With `talk` or `talk-sqlite` the
//! run is part of a conversation that is kept there, too, and becomes too long for its model. With
//! `swarm` or `swarm-sqlite` it is the run of a swarm.
//!
//! With the first record after STOP it says `stopped` and waits to be killed, or for a line to
//! read; nothing of that record is written before. It goes on with the run if it finds one. What
//! its tools do is written to `FOLDER/done`.

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

/// A journal that stands still once it has taken so many records.
struct Standstill {
    inner: Arc<dyn Journal>,
    left: Arc<AtomicUsize>,
}

struct StandstillLog {
    inner: Box<dyn RunLog>,
    left: Arc<AtomicUsize>,
}

#[async_trait]
impl Journal for Standstill {
    async fn open(&self, run: &RunId) -> Result<OpenRun, JournalError> {
        let open = self.inner.open(run).await?;
        Ok(OpenRun::new(
            open.records,
            StandstillLog {
                inner: open.log,
                left: self.left.clone(),
            },
        ))
    }

    async fn list(&self, query: &RunQuery) -> Result<Vec<RunSummary>, JournalError> {
        self.inner.list(query).await
    }
}

#[async_trait]
impl RunLog for StandstillLog {
    async fn append(&mut self, records: &[Record]) -> Result<(), JournalError> {
        for record in records {
            let taken = self
                .left
                .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| {
                    left.checked_sub(1)
                });
            if taken.is_err() {
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

/// What the tools do, for the test to see.
struct Tools(PathBuf);

#[tool]
impl Tools {
    /// Looks at something.
    #[tool(read_only)]
    async fn look(&self, cx: &ToolCx) -> String {
        self.did("look", cx)
    }

    /// Sets something; doing so again changes nothing.
    #[tool(idempotent)]
    async fn set(&self, cx: &ToolCx) -> String {
        self.did("set", cx)
    }

    /// Books something; what is booked can be given back.
    #[tool(undo = give_back)]
    async fn book(&self, cx: &ToolCx) -> String {
        self.did("book", cx)
    }

    async fn give_back(&self, cx: &ToolCx) {
        self.did("give_back", cx);
    }

    /// Sends something that must not be sent twice.
    #[tool(destructive)]
    async fn send(&self, cx: &ToolCx) -> String {
        self.did("send", cx)
    }
}

impl Tools {
    fn did(&self, what: &str, cx: &ToolCx) -> String {
        match note(&self.0, &format!("{what} {}", cx.key)) {
            Ok(()) => format!("{what} done"),
            Err(error) => format!("{what} not done: {error}"),
        }
    }
}

/// One line, in one write.
fn note(file: &std::path::Path, line: &str) -> std::io::Result<()> {
    let mut file = OpenOptions::new().create(true).append(true).open(file)?;
    file.write_all(format!("{line}\n").as_bytes())
}

/// A model that goes by what it has been told, so that any process can play its part.
struct Player(ModelCard, &'static [&'static [&'static str]]);

#[async_trait]
impl Model for Player {
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

/// A model with a small window that looks six times, the next by what it is shown of the last.
struct Talker(ModelCard);

#[async_trait]
impl Model for Talker {
    fn card(&self) -> &ModelCard {
        &self.0
    }

    async fn stream(&self, request: Request) -> Result<Deltas, ModelError> {
        if request
            .system
            .is_some_and(|system| system.starts_with("You keep the memory"))
        {
            return Ok(Deltas::ready([Delta::Text(
                "Much was said and looked at.".into(),
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

/// Looks at something, as often as it is asked to.
#[tool(read_only)]
async fn look(
    /** where */
    at: u64,
    /** what for */
    why: String,
) -> String {
    format!("{at}, {} bytes of reasons", why.len())
}

/// A run in a conversation that has begun before, and becomes too long.
async fn talk(
    folder: &std::path::Path,
    runtime: Runtime,
    known: bool,
    sqlite: bool,
) -> levity::Result<()> {
    let Some(memory) = talk_store(folder, sqlite) else {
        return Ok(());
    };
    let before = (0..14).map(|n| Message::user(format!("This was said before: {n}")));
    // Whoever finds it there already has lost nothing.
    let _ = memory
        .save(
            &"c".into(),
            &ConversationChange::at(0).with_messages(before),
        )
        .await;
    let card = ModelCard::new("test", "talker").with_window(4_000);
    let agent = Agent::builder(Talker(card))
        .tool(look)
        .memory(memory)
        .runtime(runtime)
        .build()?;
    let answer = match known {
        true => agent.resume("r").await,
        false => agent.run("Look around.").conversation("c").id("r").await,
    };
    let answer = answer.inspect_err(|error| println!("{}", json!({"error": causes(error)})))?;
    println!(
        "{}",
        json!({"answer": answer.text(), "calls": calls(&answer)})
    );
    Ok(())
}

fn talk_store(folder: &std::path::Path, sqlite: bool) -> Option<Arc<dyn MemoryStore>> {
    Some(match sqlite {
        true => Arc::new(SqliteMemory::new(folder.join("talk.db")).ok()?),
        false => Arc::new(FileMemory::new(folder.join("talk")).ok()?),
    })
}

struct Yes;

#[async_trait]
impl Approver for Yes {
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
    let journal = Standstill {
        inner: inner.clone(),
        left: Arc::new(AtomicUsize::new(stop)),
    };
    let runtime = Runtime::new().with_journal(journal);
    let known = inner.list(&RunQuery::new()).await.unwrap_or_default();
    let known = known.iter().any(|summary| summary.run.as_str() == "r");
    if let Some(how) = name.as_deref().and_then(|name| name.strip_prefix("talk")) {
        return talk(&folder, runtime, known, how == "-sqlite").await;
    }
    if let Some(how) = name.as_deref().and_then(|name| name.strip_prefix("swarm")) {
        swarm::work(&folder, runtime, known, how == "-sqlite").await;
        return Ok(());
    }
    let tools = || Tools(folder.join("done"));

    let help: &[&[&str]] = &[&["look"], &["book"], &["send"]];
    let helper = Agent::builder(Player(ModelCard::new("test", "helper"), help))
        .tools(tools())
        .approver(Yes);
    let lead: &[&[&str]] = &[&["look", "look", "set"], &["book"], &["send"], &["helper"]];
    let agent = Agent::builder(Player(ModelCard::new("test", "lead"), lead))
        .tools(tools())
        .agent("helper", "Helps.", helper.build()?)
        .approver(Yes)
        .runtime(runtime)
        .build()?;

    let answer = match known {
        true => agent.resume("r").await,
        false => agent.run("Do it all.").id("r").await,
    };
    let answer = answer.inspect_err(|error| println!("{}", json!({"error": causes(error)})))?;
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

fn causes(error: &dyn std::error::Error) -> String {
    error.source().map_or_else(
        || error.to_string(),
        |cause| format!("{error}: {}", causes(cause)),
    )
}

fn calls(answer: &Answer) -> Value {
    answer
        .history()
        .calls()
        .map(|(call, _)| Value::from(call.name.clone()))
        .collect()
}
