//! A swarm to be killed: all that a router and its workers can come to in one run.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use levity::core::{
    Delta, Deltas, MemoryStore, ModelCard, ModelError, ModelErrorKind, Request, Role, ToolCall,
};
use levity::memory::{FileMemory, SqliteMemory};
use levity::prelude::*;
use levity::swarm::{Router, Swarm, SwarmAnswer, Worker, WorkerMemory};
use serde_json::{Value, json};

use crate::{Tools, Yes, causes, note};

const PLAN: &str = r#"{"delegations": [
    {"id": "look", "worker": "scout", "task": "Look around."},
    {"id": "send", "worker": "clerk", "task": "Send it."},
    {"id": "try", "worker": "flaky", "task": "Try it."},
    {"id": "hand", "worker": "novice", "task": "Do it.", "depends_on": ["look"]},
    {"id": "lose", "worker": "loser", "task": "Do it."},
    {"id": "first", "worker": "keeper", "task": "Keep one."},
    {"id": "second", "worker": "keeper", "task": "Keep two."},
    {"id": "last", "worker": "clerk", "task": "Send that.", "depends_on": ["send", "try"]}]}"#;

const AGAIN: &str = r#"{"delegations": [
    {"id": "lose", "worker": "veteran", "task": "Do it.", "depends_on": ["look"]}]}"#;

/// A model that goes by what it is told, and writes down that it was called.
struct Cast {
    name: &'static str,
    calls: PathBuf,
    card: ModelCard,
}

impl Cast {
    /// What it says, or the tools that it calls.
    fn part(&self, request: &Request) -> Result<Result<String, Vec<ToolCall>>, ModelError> {
        let messages = request.history.messages();
        let told = messages.iter().rfind(|message| message.role == Role::User);
        let told = told
            .map(|message| message.text().into_owned())
            .unwrap_or_default();
        let acted = messages.iter().any(|message| message.role == Role::Tool);
        let _ = note(
            &self.calls,
            &format!("{} {}", self.name, if acted { "acted" } else { "begins" }),
        );
        let size: usize = messages.iter().map(|message| message.text().len()).sum();
        let call = |name: &str, args| ToolCall::new("", name, args);
        let broken = || ModelError::new(ModelErrorKind::BadRequest, "it cannot be done");
        Ok(match self.name {
            "router" if told.contains("# What the workers have said") => {
                Ok("All is done.".to_owned())
            }
            "router" if told.contains("# What was done") => Ok(AGAIN.to_owned()),
            "router" => Ok(PLAN.to_owned()),
            "loser" | "novice" => return Err(broken()),
            "flaky" if !told.contains("The attempt before failed") => return Err(broken()),
            "clerk" if !acted => Err(vec![call("send", json!({}))]),
            // What is not known after a crash makes no difference to what it says.
            "clerk" => Ok("Sent.".to_owned()),
            "scout" if !acted => {
                let told = json!({"to": "veteran", "content": "Mind the step."});
                Err(vec![call("set", json!({})), call("send_message", told)])
            }
            name => Ok(format!("{name} was told {size} bytes.")),
        })
    }
}

#[async_trait]
impl Model for Cast {
    fn card(&self) -> &ModelCard {
        &self.card
    }

    async fn stream(&self, request: Request) -> Result<Deltas, ModelError> {
        let calls = match self.part(&request)? {
            Ok(text) => return Ok(Deltas::ready([Delta::Text(text)])),
            Err(calls) => calls,
        };
        let call = |(index, call): (usize, ToolCall)| {
            let index = index as u32;
            let start = Delta::CallStart {
                index,
                id: "".into(),
                name: call.name,
            };
            [
                start,
                Delta::CallArgs {
                    index,
                    text: call.args.to_string(),
                },
            ]
        };
        Ok(Deltas::ready(
            calls
                .into_iter()
                .enumerate()
                .flat_map(call)
                .collect::<Vec<_>>(),
        ))
    }
}

fn swarm(folder: &Path, runtime: Runtime, sqlite: bool) -> Option<Swarm> {
    let cast = |name| Cast {
        name,
        calls: folder.join("calls"),
        card: ModelCard::new("test", name),
    };
    let agent = |name| {
        Agent::builder(cast(name))
            .tools(Tools(folder.join("done")))
            .approver(Yes)
    };
    let plain = |name| {
        Some(Worker::new(
            name,
            format!("The {name}."),
            agent(name).build().ok()?,
        ))
    };
    let memory: Arc<dyn MemoryStore> = match sqlite {
        true => Arc::new(SqliteMemory::new(folder.join("talk.db")).ok()?),
        false => Arc::new(FileMemory::new(folder.join("talk")).ok()?),
    };
    let keeper = agent("keeper").memory(memory).build().ok()?;
    let swarm = Swarm::builder(Router::new(cast("router")))
        .worker(plain("scout")?)
        .worker(plain("clerk")?)
        .worker(plain("flaky")?)
        .worker(plain("novice")?.retries(0).stand_in("veteran"))
        .worker(plain("veteran")?.memory(WorkerMemory::Run))
        .worker(plain("loser")?.retries(0))
        .worker(Worker::new("keeper", "Keeps.", keeper).memory(WorkerMemory::Conversation))
        .max_parallel(4)
        .talk()
        .runtime(runtime);
    swarm.build().ok()
}

/// Begins the run or goes on with it, and says what it came to.
pub async fn work(folder: &Path, runtime: Runtime, known: bool, sqlite: bool) {
    let Some(swarm) = swarm(folder, runtime, sqlite) else {
        return;
    };
    let finished = match known {
        true => swarm.resume("r").await,
        false => swarm.run("Do it all.").conversation("c").id("r").await,
    };
    match finished {
        Ok(finished) => println!(
            "{}",
            json!({"answer": finished.text(), "bus": log(&finished)})
        ),
        Err(error) => println!("{}", json!({"error": causes(&error)})),
    }
}

/// What is on the bus, without the times.
fn log(finished: &SwarmAnswer) -> Value {
    let line = |message: &levity::swarm::BusMessage| {
        json!([
            message.id,
            message.from,
            message.to,
            message.kind,
            message.content
        ])
    };
    finished.bus().messages().map(line).collect()
}
