//! Tests of runs that earlier versions have written: they are read, resumed after every record, and
//! forked.
//!
//! A fixture contains the records of a run and its child runs in the order in which they were
//! written. So each prefix of it is a journal at the moment of a crash. After the records, it
//! contains the events of the run and its result. Fixtures are never rewritten after a release. For
//! a new pattern, `LEVITY_FIXTURES=DIR cargo test -p levity-swarm --test it upgrade` writes one to
//! DIR.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use levity_core::{
    Event, EventKind, Journal, JournalError, Message, ModelError, ModelErrorKind, OpenRun, Part,
    Record, Request, Response, Role, RunId, RunLog, RunQuery, RunSummary, ToolCall,
};
use levity_loop::Agent;
use levity_runtime::{MemoryJournal, Runtime};
use levity_swarm::{
    Blackboard, BusMessage, Debate, Handoff, MessageKind, Pattern, Router, Swarm, SwarmAnswer,
    SwarmBuilder, Worker, WorkerMemory,
};
use levity_test::{FunctionModel, ManualWorld};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

const PLAN: &str = r#"{"delegations": [
    {"id": "report", "worker": "scout", "task": "Report.", "depends_on": ["look", "sail"]},
    {"id": "look", "worker": "scout", "task": "Look."},
    {"id": "sail", "worker": "flaky", "task": "Sail.", "expected": "a course"},
    {"id": "mend", "worker": "loser", "task": "Mend.", "depends_on": ["look"]},
    {"id": "paint", "worker": "scout", "task": "Paint.", "depends_on": ["mend"]},
    {"id": "cook", "worker": "lame", "task": "Cook."},
    {"id": "wash", "worker": "pilot", "task": "Wash.", "depends_on": ["cook"]}]}"#;
const AGAIN: &str = r#"[{"id": "mend", "worker": "pilot", "task": "Mend.", "depends_on": ["sail"]},
    {"id": "paint", "worker": "scout", "task": "Paint.", "depends_on": ["mend"]}]"#;

/// A line of a fixture.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Line {
    Record(RunId, Box<Record>),
    Event(String),
    #[serde(rename = "came")]
    Result(String),
}

/// A journal that records the order of appended records.
#[derive(Clone, Default)]
struct Recording(MemoryJournal, Arc<Mutex<Vec<(RunId, Record)>>>);

struct Log(Box<dyn RunLog>, RunId, Recording);

#[async_trait]
impl Journal for Recording {
    async fn open(&self, run: &RunId) -> Result<OpenRun, JournalError> {
        let OpenRun { records, log, .. } = self.0.open(run).await?;
        Ok(OpenRun::new(records, Log(log, run.clone(), self.clone())))
    }

    async fn list(&self, query: &RunQuery) -> Result<Vec<RunSummary>, JournalError> {
        self.0.list(query).await
    }

    async fn read(&self, run: &RunId) -> Result<Vec<Record>, JournalError> {
        self.0.read(run).await
    }
}

#[async_trait]
impl RunLog for Log {
    async fn append(&mut self, records: &[Record]) -> Result<(), JournalError> {
        let own = records
            .iter()
            .map(|record| (self.1.clone(), record.clone()));
        self.2.1.lock().unwrap().extend(own);
        self.0.append(records).await
    }
}

fn calls(tool: &str, args: Value) -> Response {
    Response::new(Message::new(
        Role::Assistant,
        [Part::ToolCall(ToolCall::new("c1", tool, args))],
    ))
}

/// Returns the answer of a member, which depends only on its prompt.
fn answer(name: &str, request: &Request) -> Result<Response, ModelError> {
    let messages = request.history.messages();
    let prompt = messages.iter().rfind(|message| message.role == Role::User);
    let prompt = prompt
        .map(|message| message.text().into_owned())
        .unwrap_or_default();
    let acted = messages
        .last()
        .is_some_and(|message| message.role == Role::Tool);
    let reached = messages
        .iter()
        .map(|message| message.text().matches("did it").count())
        .sum::<usize>();
    let has = |tool: &str| request.tools.iter().any(|spec| spec.name == tool);
    let again = prompt.contains("The attempt before");
    let text = match name {
        "router" if prompt.contains("# What the workers have said") => "All is done.".to_owned(),
        "router" if prompt.contains("# What was done") => AGAIN.to_owned(),
        "router" if prompt.contains("# What is wrong with it") => PLAN.to_owned(),
        "router" => r#"{"delegations": [{"worker": "cat", "task": "Purr."}]}"#.to_owned(),
        "judge" if reached > 8 => {
            r#"{"done": true, "answer": "So be it.", "reason": "It is good."}"#.to_owned()
        }
        "judge" => r#"{"done": false, "answer": "Perhaps.", "reason": "Not yet."}"#.to_owned(),
        "lame" | "loser" => {
            return Err(ModelError::new(
                ModelErrorKind::BadRequest,
                "it cannot be done",
            ));
        }
        "flaky" if !again => return Err(ModelError::new(ModelErrorKind::BadRequest, "not yet")),
        _ if acted => format!("{name} did it"),
        "scout" if has("transfer_to") => {
            return Ok(calls("transfer_to", json!({"to": "lame", "note": "Go."})));
        }
        "scout" if has("send_message") => {
            return Ok(calls(
                "send_message",
                json!({"to": "pilot", "content": "Mind the rocks."}),
            ));
        }
        "pilot" if has("write_board") => {
            return Ok(calls(
                "write_board",
                json!({"key": format!("k{}", reached % 3), "content": "the pilot did it"}),
            ));
        }
        name => format!("{name} did it"),
    };
    Ok(Response::new(Message::assistant(text)))
}

fn model(name: &'static str) -> FunctionModel {
    FunctionModel::new(move |request| answer(name, request))
}

fn worker(name: &'static str) -> Worker {
    Worker::new(
        name,
        format!("The {name}."),
        Agent::builder(model(name)).build().unwrap(),
    )
}

/// Returns workers, some of which fail, are fallbacks for others or have a memory.
fn builder(pattern: Pattern) -> SwarmBuilder {
    Swarm::builder(pattern)
        .worker(worker("scout").memory(WorkerMemory::Run))
        .worker(worker("flaky"))
        .worker(worker("loser").retries(0))
        .worker(worker("lame").retries(0).fallback("pilot"))
        .worker(worker("pilot"))
        .max_parallel(2)
        .worker_messages()
}

fn pattern(name: &str) -> Pattern {
    match name {
        "router" => Router::new(model("router")).into(),
        "handoff" => Handoff::starting_with("scout").into(),
        "debate" => Debate::new(model("judge"))
            .rounds(3)
            .judge_each_round()
            .open_together()
            .into(),
        _ => Blackboard::new(model("judge"))
            .rounds(3)
            .judge_each_round()
            .into(),
    }
}

fn swarm(name: &str, journal: impl Journal + 'static) -> Swarm {
    let runtime = Runtime::new()
        .with_journal(journal)
        .with_world(ManualWorld::new());
    builder(pattern(name)).runtime(runtime).build().unwrap()
}

/// Returns the log, the reports and the answer, without error texts, which may be improved.
fn result_lines(finished: &SwarmAnswer) -> Vec<String> {
    let message = |message: &BusMessage| {
        let content = if message.kind == MessageKind::Failure {
            ""
        } else {
            &*message.content
        };
        format!(
            "{} {} {} {}: {content}",
            message.id, message.from, message.kind, message.to
        )
    };
    let mut lines: Vec<String> = finished.bus().messages().map(message).collect();
    lines.extend(finished.reports().iter().map(|report| {
        let (id, worker, status) = (&report.id, &report.worker, report.status);
        format!(
            "{id} {worker} {status:?} {} {} {}",
            report.attempts,
            report.error.is_some(),
            report.text
        )
    }));
    let answer = finished.text().lines().next().unwrap_or_default();
    lines.push(format!("{:?} {answer}", finished.status()));
    lines
}

/// Returns the events in order, without texts.
fn event_lines(events: &[Event]) -> Vec<String> {
    let part = |data: &Value, key| {
        data.get(key)
            .map_or_else(String::new, |part| format!(" {key} {part}"))
    };
    let line = |event: &Event| match &event.kind {
        EventKind::Custom {
            data: Value::Object(notice),
            ..
        } => {
            let (name, data) = notice.iter().next().unwrap();
            let keys = [
                "id", "worker", "effect", "attempt", "round", "from", "to", "type", "key", "then",
            ];
            format!("{name}{}", keys.map(|key| part(data, key)).concat())
        }
        kind => kind.name().to_owned(),
    };
    events.iter().map(line).collect()
}

/// Returns a run as this version writes it.
async fn record_run(name: &str) -> Vec<Line> {
    let journal = Recording::default();
    let swarm = swarm(name, journal.clone());
    let finished = swarm.run("Do it all.").id("r").await.unwrap();
    let records = journal.1.lock().unwrap().clone();
    let mut lines: Vec<Line> = records
        .into_iter()
        .map(|(run, record)| Line::Record(run, Box::new(record)))
        .collect();
    let events = swarm.history(&"r".into()).await.unwrap();
    lines.extend(event_lines(&events).into_iter().map(Line::Event));
    lines.extend(result_lines(&finished).into_iter().map(Line::Result));
    lines
}

fn path(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}.jsonl"))
}

fn read(name: &str) -> Vec<Line> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let text = std::fs::read_to_string(path(&folder, name)).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// Returns a journal with these records.
async fn journal(records: &[(RunId, Record)]) -> MemoryJournal {
    let journal = MemoryJournal::new();
    for (run, record) in records {
        journal
            .open(run)
            .await
            .unwrap()
            .log
            .append(std::slice::from_ref(record))
            .await
            .unwrap();
    }
    journal
}

async fn check(name: &str) {
    let (mut records, mut events, mut expected) = (Vec::new(), Vec::new(), Vec::new());
    for line in read(name) {
        match line {
            Line::Record(run, record) => records.push((run, *record)),
            Line::Event(event) => events.push(event),
            Line::Result(line) => expected.push(line),
        }
    }
    let whole = swarm(name, journal(&records).await);
    assert_eq!(
        event_lines(&whole.history(&"r".into()).await.unwrap()),
        events,
        "{name}"
    );
    assert_eq!(
        result_lines(&whole.resume("r").await.unwrap()),
        expected,
        "{name}"
    );
    let own = records
        .iter()
        .filter(|(run, _)| run.as_str() == "r")
        .count() as u64;
    for after in 0..own - 1 {
        let fork = whole.fork("r").after(after).id(format!("fork{after}"));
        let forked = result_lines(&fork.await.unwrap()).last().cloned();
        assert_eq!(
            forked.as_ref(),
            expected.last(),
            "{name}, forked after {after}"
        );
    }
    let first = records
        .iter()
        .position(|(run, _)| run.as_str() == "r")
        .unwrap();
    for count in (first + 1..records.len()).step_by(1 + records.len() / 100) {
        let journal = journal(&records[..count]).await;
        let finished = swarm(name, journal).resume("r").await.unwrap();
        assert_eq!(
            result_lines(&finished),
            expected,
            "{name}, resumed after {count} records"
        );
    }
    assert!(records.len() >= 20, "{name} has {} records", records.len());
}

#[tokio::test]
async fn swarm_of_earlier_version_resumes_replays_and_forks() {
    for name in ["router", "handoff", "debate", "blackboard"] {
        if let Some(folder) = std::env::var_os("LEVITY_FIXTURES") {
            let lines = record_run(name).await;
            let text: String = lines
                .iter()
                .map(|line| serde_json::to_string(line).unwrap() + "\n")
                .collect();
            std::fs::write(path(Path::new(&folder), name), text).unwrap();
        }
        check(name).await;
    }
}
