//! Guards through the facade. Secrets enter at every place, and must not appear in any output.

use std::fs;
use std::path::{Path, PathBuf};

use levity::agent::SecretGuard;
use levity::core::{
    Hints, Journal as _, ModelError, ModelErrorKind, RunId, RunRequest, Secrets, Stage,
};
use levity::llm::{AnthropicModel, Models, OpenAiModel};
use levity::memory::FileMemory;
use levity::prelude::*;
use levity::runtime::{FileJournal, SqliteJournal};
use levity::test::{RecordingTool, ScriptedModel, Turn};
use serde_json::json;

use crate::support::{assert_complete, collect_events, runtime};

/// A secret without a recognizable format, which the host declares. The others are named after the
/// place where they enter.
const KNOWN: &str = "correct horse battery";
const PROMPT: &str = "sk-proj-canary0PROMPT1abcdefgh";
const CALL: &str = "ghp_canary0CALL1abcdefghijklmnopqrstuvwx";
const RESULT: &str = "AKIACANARY0RESULT123";
const ANSWER: &str = "sk-ant-api03-canary0ANSWER1abcdef";
const THINKING: &str = "gsk_canary0THOUGHT1abcdefghijkl";
const ERROR: &str = "xoxb-canary0ERROR1-abcdefghijkl";
const MESSAGE: &str = "hf_canary0SAID1abcdefghijklmnopqrstuvwx";

const ALL: [&str; 8] = [
    KNOWN, PROMPT, CALL, RESULT, ANSWER, THINKING, ERROR, MESSAGE,
];

#[track_caller]
fn assert_clean(place: &str, text: &str) {
    for secret in ALL {
        // A part of a secret would be a leak, too.
        assert!(
            !text.contains(&secret[..secret.len() - 4]),
            "{secret} is in {place}: {text}"
        );
    }
}

fn folder(name: &str) -> PathBuf {
    let folder =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("guard-{}-{name}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// Returns the content of all files in a folder.
fn bytes(folder: &Path) -> String {
    let mut all = String::new();
    for entry in fs::read_dir(folder).unwrap().flatten() {
        match entry.file_type().unwrap().is_dir() {
            true => all += &bytes(&entry.path()),
            false => all += &String::from_utf8_lossy(&fs::read(entry.path()).unwrap()),
        }
    }
    all
}

fn guard() -> SecretGuard {
    SecretGuard::new().secrets(Secrets::new().variables([("MY_API_KEY", KNOWN)]))
}

fn tool() -> RecordingTool {
    RecordingTool::new("look_up", |_| {
        let text = format!("{RESULT} and {KNOWN}");
        Ok(ToolOutput::value(
            json!({"text": text, "password": "canary"}),
        ))
    })
    .with_hints(Hints::new().read_only())
}

#[tokio::test]
async fn secret_guard_removes_secrets_from_every_output() {
    let folder = folder("canary");
    let journal = FileJournal::new(folder.join("runs")).unwrap();
    let turn = Turn::new()
        .thinking(format!("I have {THINKING}"))
        .text(format!("I use {ANSWER}"))
        .call("look_up", json!({"key": CALL, "list": [KNOWN], CALL: 1}))
        .pieces(5);
    let model = ScriptedModel::new()
        .call("ask_user", json!({"question": "Which?"}))
        .turn(turn)
        .turn(
            Turn::new()
                .text(format!("It is {ANSWER}, {RESULT} or {KNOWN}."))
                .pieces(7),
        );
    let below = Agent::builder(ScriptedModel::new())
        .guard(guard())
        .build()
        .unwrap();
    let agent = Agent::builder(model.clone())
        .tool(tool())
        .ask_user()
        .agent("helper", "Helps.", below)
        .guard(guard())
        .memory(FileMemory::new(folder.join("memory")).unwrap())
        .runtime(Runtime::new().with_journal(journal))
        .build()
        .unwrap();
    let mut run = agent
        .run(format!("My key is {PROMPT}, and the word is {KNOWN}."))
        .conversation("c")
        .start();
    let (mut stream, mut events) = (run.events(), Vec::new());
    while let Some(event) = stream.next().await {
        if let EventKind::Asked(ask) = &event.kind {
            run.send_message(format!("and {MESSAGE}")).await.unwrap();
            run.answer(ask, format!("take {MESSAGE}")).await.unwrap();
        }
        events.push(event);
    }
    let answer = run.await.unwrap();
    assert_clean("the answer", answer.text());
    assert!(
        answer
            .text()
            .contains("[secret: api key], [secret: api key] or [secret: known]"),
        "{}",
        answer.text()
    );
    assert_clean("the events", &serde_json::to_string(&events).unwrap());
    assert_clean("the debug output of the events", &format!("{events:?}"));
    assert_clean(
        "the debug output of the answer",
        &format!("{answer:?} {:?} {:?}", answer.history(), answer.context()),
    );
    assert_clean(
        "the requests to the model",
        &format!("{:?}", model.requests()),
    );
    assert_clean("the files", &bytes(&folder));
    assert!(
        bytes(&folder).contains("[secret: known]"),
        "the files must exist"
    );
    assert_clean(
        "the debug output of the agent",
        &format!("{agent:?} {:?} {:?}", agent.to_builder(), guard()),
    );
    assert_complete(answer.history());
    let stages: Vec<_> = events
        .iter()
        .filter_map(|event| match &event.kind {
            EventKind::Guarded { intervention, .. } => Some(intervention.stage),
            _ => None,
        })
        .collect();
    for stage in [Stage::Input, Stage::Call, Stage::Result, Stage::Answer] {
        assert!(stages.contains(&stage), "{stage}: {stages:?}");
    }
    // Without the guard, the secrets appear, so the test can fail.
    let model = ScriptedModel::new()
        .call("look_up", json!({"key": CALL}))
        .reply(ANSWER);
    let (runtime, journal) = runtime();
    let bare = Agent::builder(model)
        .tool(tool())
        .runtime(runtime)
        .build()
        .unwrap();
    let answer = bare.run(PROMPT).await.unwrap();
    let stored = serde_json::to_string(&journal.records(answer.run())).unwrap();
    for secret in [PROMPT, CALL, RESULT, ANSWER] {
        assert!(stored.contains(secret));
    }
}

#[tokio::test]
async fn secret_guard_removes_secrets_from_errors() {
    let chain = |error: &dyn std::error::Error| {
        let mut output = format!("{error} {error:?}");
        let mut next = error.source();
        while let Some(error) = next {
            output += &format!(" {error} {error:?}");
            next = error.source();
        }
        output
    };
    let refused = ModelError::new(ModelErrorKind::Auth, format!("the key {ERROR} is wrong"))
        .with_source(format!("401: {ERROR}"))
        .with_request_id("r1");
    let (runtime, journal) = runtime();
    let model = ScriptedModel::new().fail_with(refused);
    let agent = Agent::builder(model)
        .guard(guard())
        .runtime(runtime)
        .build()
        .unwrap();
    let (events, ended) = collect_events(agent.run("Go").id("r").start()).await;
    let output = chain(&ended.unwrap_err());
    assert_clean("the error", &output);
    assert!(
        output.contains("the key [secret: api key] is wrong"),
        "{output}"
    );
    assert_clean("the events", &serde_json::to_string(&events).unwrap());
    assert_clean(
        "the journal",
        &serde_json::to_string(&journal.records(&"r".into())).unwrap(),
    );

    let failing = RecordingTool::new("look_up", |_| {
        Err(ToolError::failed(format!("{RESULT} is not known")))
    });
    let model = ScriptedModel::new().call("look_up", json!({})).reply("No.");
    let agent = Agent::builder(model.clone())
        .tool(failing)
        .guard(guard())
        .build()
        .unwrap();
    agent.run("Go").await.unwrap();
    assert_clean("a tool's error", &format!("{:?}", model.requests()));

    let model = ScriptedModel::new().reply(ANSWER);
    let agent = Agent::builder(model)
        .guard(guard().blocking())
        .build()
        .unwrap();
    assert_clean(
        "what was blocked",
        &chain(&agent.run("Go").await.unwrap_err()),
    );
}

#[tokio::test]
async fn debug_output_of_configuration_omits_keys() {
    let models = Models::new()
        .with_variable("OPENAI_API_KEY", PROMPT)
        .with_variable("ANTHROPIC_API_KEY", ANSWER);
    let model = models.model("openai:gpt-4o").unwrap();
    let openai = OpenAiModel::new(PROMPT, "gpt-4o");
    let anthropic = AnthropicModel::new(ANSWER, "claude-sonnet-4-5");
    let agent = Agent::builder(openai.clone())
        .guard(guard())
        .build()
        .unwrap();
    let output = format!(
        "{models:?} {:?} {openai:?} {anthropic:?} {agent:?} {:?}",
        model.card(),
        agent.run("x")
    );
    assert_clean("the debug output of the configuration", &output);
}

#[tokio::test]
async fn guards_check_messages_sent_by_other_processes() {
    let folder = folder("post");
    let journal = || SqliteJournal::new(folder.join("runs.db")).unwrap();
    let model = ScriptedModel::new()
        .call("ask_user", json!({"question": "Which?"}))
        .reply("Done.");
    let builder = Agent::builder(model.clone()).ask_user().guard(guard());
    let agent = builder
        .runtime(Runtime::new().with_journal(journal()))
        .build()
        .unwrap();
    let mut run = agent.run("Go").id("r").start();
    let mut events = run.events();
    let other = Runtime::new().with_journal(journal());
    while let Some(event) = events.next().await {
        if let EventKind::Asked(ask) = event.kind {
            let decision = Decision::answer(format!("it is {MESSAGE}"));
            other
                .send_request(
                    &ask.run,
                    RunRequest::Decide {
                        effect: ask.effect,
                        decision,
                    },
                )
                .await
                .unwrap();
        }
    }
    run.await.unwrap();
    // The pending message is in the file until the run reads it, which removes it.
    let stored = serde_json::to_string(&journal().read(&"r".into()).await.unwrap()).unwrap();
    let output = format!("{:?} {stored}", model.requests());
    assert!(output.contains("it is [secret: api key]"), "{output}");
    assert_clean("what was left", &output);
}

#[tokio::test]
async fn guards_check_pending_messages_when_run_resumes() {
    let folder = folder("left");
    let journal = SqliteJournal::new(folder.join("runs.db")).unwrap();
    let runtime = Runtime::new().with_journal(journal.clone());
    let model = ScriptedModel::new()
        .call("ask_user", json!({"question": "Which?"}))
        .reply("Done.");
    let builder = Agent::builder(model.clone()).ask_user().guard(guard());
    let agent = builder.runtime(runtime.clone()).build().unwrap();
    let run = RunId::new("r");
    agent.run("Go").id("r").park().await.unwrap_err();
    let ask = agent.pending_asks(&run).await.unwrap().remove(0);
    let message = std::sync::Arc::new(Message::user(format!("also {MESSAGE}")));
    let request = RunRequest::Command(levity::core::ControlCommand::Say { message });
    let decision = Decision::answer(format!("it is {MESSAGE}"));
    for post in [
        request,
        RunRequest::Decide {
            effect: ask.effect,
            decision,
        },
    ] {
        assert_eq!(
            runtime.send_request(&run, post).await.unwrap(),
            levity::runtime::Delivery::Posted
        );
    }
    let stored = async || serde_json::to_string(&journal.read(&run).await.unwrap()).unwrap();
    assert_clean("the journal", &stored().await);
    // No approver exists, and the run reads the answer before it reports that.
    agent.resume("r").await.unwrap();
    let output = format!("{:?} {}", model.requests(), stored().await);
    for message in ["it is [secret: api key]", "also [secret: api key]"] {
        assert!(output.contains(message), "{output}");
    }
    assert_clean("what was left", &output);
}

#[tokio::test]
async fn guards_of_agent_apply_in_swarm() {
    use levity::swarm::{Handoff, Swarm, Worker};
    let first = ScriptedModel::new().call(
        "transfer_to",
        json!({"to": "b", "note": format!("it is {CALL}")}),
    );
    let last = ScriptedModel::new().reply(format!("It is {ANSWER}."));
    let agent = |model: ScriptedModel| Agent::builder(model).guard(guard()).build().unwrap();
    let swarm = Swarm::builder(Handoff::starting_with("a"))
        .worker(Worker::new("a", "Begins.", agent(first)))
        .worker(Worker::new("b", "Ends.", agent(last)))
        .build()
        .unwrap();
    let output = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let hears = output.clone();
    let answer = swarm
        .run("Go")
        .on_event(move |event| hears.lock().unwrap().push(event.clone()))
        .await
        .unwrap();
    assert_eq!(answer.text(), "It is [secret: api key].");
    assert_clean(
        "the events of a swarm",
        &serde_json::to_string(&*output.lock().unwrap()).unwrap(),
    );
}
