//! A swarm for the crash tests, with every kind of event that a router and its workers can produce
//! in one run.

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

use crate::{AlwaysAllow, Tools, append_line, error_chain};

const PLAN: &str = r#"{"delegations": [
    {"id": "look", "worker": "scout", "task": "Look around."},
    {"id": "send", "worker": "clerk", "task": "Send it."},
    {"id": "try", "worker": "flaky", "task": "Try it."},
    {"id": "hand", "worker": "novice", "task": "Do it.", "depends_on": ["look"]},
    {"id": "lose", "worker": "loser", "task": "Do it."},
    {"id": "first", "worker": "keeper", "task": "Keep one."},
    {"id": "second", "worker": "keeper", "task": "Keep two."},
    {"id": "last", "worker": "clerk", "task": "Send that.", "depends_on": ["send", "try"]}]}"#;

const SECOND_PLAN: &str = r#"{"delegations": [
    {"id": "lose", "worker": "veteran", "task": "Do it.", "depends_on": ["look"]}]}"#;

/// A model that depends only on the request, and logs each call.
struct RoleModel {
    name: &'static str,
    calls: PathBuf,
    card: ModelCard,
}

impl RoleModel {
    /// Returns the text of the reply, or the tool calls.
    fn reply(&self, request: &Request) -> Result<Result<String, Vec<ToolCall>>, ModelError> {
        let messages = request.history.messages();
        let prompt = messages.iter().rfind(|message| message.role == Role::User);
        let prompt = prompt
            .map(|message| message.text().into_owned())
            .unwrap_or_default();
        let has_results = messages.iter().any(|message| message.role == Role::Tool);
        let _ = append_line(
            &self.calls,
            &format!(
                "{} {}",
                self.name,
                if has_results { "acted" } else { "begins" }
            ),
        );
        let size: usize = messages.iter().map(|message| message.text().len()).sum();
        let call = |name: &str, args| ToolCall::new("", name, args);
        let broken = || ModelError::new(ModelErrorKind::BadRequest, "the task fails");
        Ok(match self.name {
            "router" if prompt.contains("# What the workers have said") => {
                Ok("All is done.".to_owned())
            }
            "router" if prompt.contains("# What was done") => Ok(SECOND_PLAN.to_owned()),
            "router" => Ok(PLAN.to_owned()),
            "loser" | "novice" => return Err(broken()),
            "flaky" if !prompt.contains("The attempt before failed") => return Err(broken()),
            "clerk" if !has_results => Err(vec![call("send", json!({}))]),
            // The reply is the same when the outcome of the call is unknown after a crash.
            "clerk" => Ok("Sent.".to_owned()),
            "scout" if !has_results => {
                let message = json!({"to": "veteran", "content": "Mind the step."});
                Err(vec![call("set", json!({})), call("send_message", message)])
            }
            name => Ok(format!("{name} received {size} bytes.")),
        })
    }
}

#[async_trait]
impl Model for RoleModel {
    fn card(&self) -> &ModelCard {
        &self.card
    }

    async fn stream(&self, request: Request) -> Result<Deltas, ModelError> {
        let calls = match self.reply(&request)? {
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
    let role_model = |name| RoleModel {
        name,
        calls: folder.join("calls"),
        card: ModelCard::new("test", name),
    };
    let agent = |name| {
        Agent::builder(role_model(name))
            .tools(Tools(folder.join("done")))
            .approver(AlwaysAllow)
    };
    let plain_worker = |name| {
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
    let swarm = Swarm::builder(Router::new(role_model("router")))
        .worker(plain_worker("scout")?)
        .worker(plain_worker("clerk")?)
        .worker(plain_worker("flaky")?)
        .worker(plain_worker("novice")?.retries(0).fallback("veteran"))
        .worker(plain_worker("veteran")?.memory(WorkerMemory::Run))
        .worker(plain_worker("loser")?.retries(0))
        .worker(Worker::new("keeper", "Keeps.", keeper).memory(WorkerMemory::Conversation))
        .max_parallel(4)
        .worker_messages()
        .runtime(runtime);
    swarm.build().ok()
}

/// Starts or resumes the run, and prints its result.
pub async fn run_or_resume(folder: &Path, runtime: Runtime, known: bool, sqlite: bool) {
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
        Err(error) => println!("{}", json!({"error": error_chain(&error)})),
    }
}

/// Returns the messages of the bus, without timestamps.
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
