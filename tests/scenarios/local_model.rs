//! Whole runs with a real model on a real server, over every protocol of the server.
//!
//! Set `LEVITY_TEST_BASE_URL` to a llama.cpp server, or another one with chat completions,
//! Responses and Messages. Set `LEVITY_TEST_MODEL` to its model.

use std::sync::{Arc, Mutex};

use levity::agent::AgentBuilder;
use levity::agents::{AgentParts, Catalogue};
use levity::core::{Delta, EventKind, MemoryStore as _, Options, Status, ToolChoice};
use levity::dag::{Plan, Step, StepStatus, Team};
use levity::llm::{ModelExt as _, Models};
use levity::memory::{InMemory, Window};
use levity::prelude::*;
use levity::swarm::{PlannedBy, Router, Swarm, SwarmNotice, Worker, WorkerReport};

/// Instructions that a small model needs.
const INSTRUCTIONS: &str = "You are a helpful assistant with tools. Call a tool first, then \
    answer.\n\
    Examples of calls:\n\
    What is 5-3? -> {\"name\": \"calculator\", \"arguments\": {\"expression\": \"5-3\"}}\n\
    What is in a.txt? -> {\"name\": \"read_file\", \"arguments\": {\"path\": \"a.txt\"}}";

/// Works out sums such as `12*7`.
#[tool(read_only)]
async fn calculator(
    /** the sum to work out */
    expression: String,
) -> Result<i64, ToolError> {
    let terms = expression.replace(' ', "");
    let (first, second) = terms
        .split_once('*')
        .ok_or_else(|| ToolError::failed("only `a*b` is supported"))?;
    let number = |text: &str| {
        text.parse::<i64>()
            .map_err(|_| ToolError::failed(format!("`{text}` is not a number")))
    };
    Ok(number(first)? * number(second)?)
}

/// Reads a text file.
#[tool(read_only)]
async fn read_file(
    /** the file's path */
    path: String,
) -> Result<String, ToolError> {
    match &*path {
        "secret.txt" => Ok("The password is tangerine-42.".to_owned()),
        path => Err(ToolError::failed(format!("there is no file `{path}`"))),
    }
}

/// Returns the URL and the model of the server, or prints that the test is skipped.
fn server() -> Option<(String, String)> {
    let Ok(url) = std::env::var("LEVITY_TEST_BASE_URL") else {
        // Written directly to standard error, because the test harness captures `eprintln!`.
        let _ = std::io::Write::write_all(
            &mut std::io::stderr(),
            b"SKIPPED: no real model; LEVITY_TEST_BASE_URL names no server\n",
        );
        return None;
    };
    let model = std::env::var("LEVITY_TEST_MODEL").unwrap_or_else(|_| "qwen".to_owned());
    Some((url.trim_end_matches('/').to_owned(), model))
}

fn names(url: &str, model: &str) -> [String; 3] {
    [
        format!("compatible:{model}@{url}/v1"),
        format!("openai:{model}@{url}/v1"),
        format!("anthropic:{model}@{url}"),
    ]
}

/// Runs one goal and checks the whole trace.
async fn ask(agent: AgentBuilder, goal: &str, tool: &str, answer: &str) {
    let mut options = Options::new();
    options.temperature = Some(0.0);
    options.max_tokens = Some(200);
    let agent = agent
        .instructions(INSTRUCTIONS)
        .tool(calculator)
        .tool(read_file)
        .tool_choice(ToolChoice::Required)
        .options(options)
        .build()
        .unwrap();
    let mut run = agent.run(goal).start();
    let mut events = run.events();
    let mut pieces = 0;
    while let Some(event) = events.next().await {
        pieces += usize::from(matches!(
            event.kind,
            EventKind::Delta {
                delta: Delta::Text(_),
                ..
            }
        ));
    }
    let result = run
        .await
        .unwrap_or_else(|error| panic!("{goal}: {error:?}"));
    let calls: Vec<_> = result
        .history()
        .calls()
        .map(|(call, result)| (&*call.name, result.text().into_owned()))
        .collect();
    assert_eq!(calls.len(), 1, "{calls:?}");
    assert_eq!(calls[0].0, tool, "{calls:?}");
    assert!(calls[0].1.contains(answer), "{calls:?}");
    assert_eq!(*result.status(), Status::Complete);
    assert!(result.text().contains(answer), "{}", result.text());
    assert!(pieces > 1, "the answer arrived in {pieces} pieces");
    assert!(
        result.usage().input.is_some_and(|tokens| tokens > 0),
        "{:?}",
        result.usage()
    );
}

#[tokio::test]
async fn real_model_calls_tool_over_every_protocol() {
    let Some((url, model)) = server() else { return };
    for name in names(&url, &model) {
        let model = Models::new().model(&name).unwrap();
        let agent = || Agent::builder(model.clone());
        ask(agent(), "What is 12*7?", "calculator", "84").await;
        ask(
            agent(),
            "Read secret.txt and tell me the password.",
            "read_file",
            "tangerine-42",
        )
        .await;
    }
}

#[tokio::test]
async fn real_model_calls_tool_by_schema_alone() {
    let Some((url, model)) = server() else { return };
    let [name, ..] = names(&url, &model);
    let model = Models::new()
        .model(&name)
        .unwrap()
        .text_tools()
        .structured();
    ask(
        Agent::builder(model).single_tool(),
        "What is 12*7?",
        "calculator",
        "84",
    )
    .await;
}

#[tokio::test]
async fn real_model_summarizes_messages_outside_window() {
    let Some((url, model)) = server() else { return };
    let [name, ..] = names(&url, &model);
    let mut options = Options::new();
    (options.temperature, options.max_tokens) = (Some(0.0), Some(60));
    let store = Arc::new(InMemory::new());
    let agent = Agent::builder(Models::new().model(&name).unwrap())
        .instructions("Answer in one short sentence.")
        .options(options)
        .memory(store.clone())
        .window(Window::new().messages(4))
        .build()
        .unwrap();
    let compacted = Arc::new(Mutex::new(Vec::new()));
    for goal in [
        "My boat is called Kestrel.",
        "It is green.",
        "It is nine metres long.",
        "What is a harbour?",
    ] {
        let seen = compacted.clone();
        let run = agent.run(goal).conversation("c").on_event(move |event| {
            if let EventKind::Compacted(done) = &event.kind {
                seen.lock().unwrap().push(done.clone());
            }
        });
        let answer = run
            .await
            .unwrap_or_else(|error| panic!("{goal}: {error:?}"));
        assert!(!answer.text().is_empty());
    }
    let compacted = compacted.lock().unwrap().clone();
    assert!(
        !compacted.is_empty() && compacted.iter().all(|done| done.fell_back.is_none()),
        "{compacted:?}"
    );
    let stored = store.load(&"c".into(), 100).await.unwrap();
    let summary = stored.summary.unwrap();
    assert!(
        (3..=120).contains(&summary.text.split_whitespace().count()),
        "{summary:?}"
    );
    assert!(
        stored.end == 8 && stored.messages.len() as u64 == 8 - summary.upto,
        "{}",
        summary.upto
    );
}

fn team(url: &str, model: &str) -> Team {
    let [name, ..] = names(url, model);
    let model = Models::new().model(&name).unwrap();
    let parts = AgentParts::new(model).customize(|_, agent| {
        let mut options = Options::new();
        (options.temperature, options.max_tokens) = (Some(0.0), Some(700));
        agent.options(options)
    });
    Catalogue::defaults().team(parts).unwrap().build().unwrap()
}

/// The quality of the answers depends on the model. The test checks that the values are typed and
/// have their names.
#[tokio::test]
async fn real_model_executes_plan() {
    let Some((url, model)) = server() else { return };
    let notes = "Heron is a red boat and 9 metres long. Kestrel is a green boat and 7 metres long.";
    let plan = Plan::new()
        .given("notes", notes)
        .step(
            Step::new("read", "Thinker")
                .prompt("Which boat is longer, and how long is it, in metres?")
                .reads(["notes"])
                .writes(["boat", "metres"]),
        )
        .step(
            Step::new("format", "Formatter")
                .prompt("Write one sentence that names the boat and its length.")
                .reads(["boat", "metres"])
                .writes(["report"]),
        );
    let finished = team(&url, &model)
        .run(plan)
        .await
        .unwrap_or_else(|error| panic!("{error:?}"));
    for step in finished.steps() {
        assert_eq!(step.status, StepStatus::Completed, "{finished:?}");
    }
    for name in ["boat", "metres", "report"] {
        let value = finished
            .variable(name)
            .unwrap_or_else(|| panic!("{name} in {finished:?}"));
        assert!(!value.is_null() && value != "", "{name}: {value}");
    }
    assert!(
        finished.usage().total() > 0 && finished.stats().model_calls >= 2,
        "{:?}",
        finished.stats()
    );
}

/// The delegations depend on the model. The test checks that the plan can be executed, and that
/// each worker has its tools.
#[tokio::test]
async fn real_model_routes_swarm() {
    let Some((url, model)) = server() else { return };
    let [name, ..] = names(&url, &model);
    let model = Models::new().model(&name).unwrap();
    let agent = || {
        let mut options = Options::new();
        (options.temperature, options.max_tokens) = (Some(0.0), Some(300));
        Agent::builder(model.clone()).options(options)
    };
    let tooled = || {
        agent()
            .instructions(INSTRUCTIONS)
            .tool_choice(ToolChoice::Required)
    };
    let swarm = Swarm::builder(Router::agent(agent().build().unwrap()).without_synthesis())
        .worker(Worker::new(
            "reckoner",
            "Works out sums.",
            tooled().tool(calculator).build().unwrap(),
        ))
        .worker(Worker::new(
            "reader",
            "Reads files.",
            tooled().tool(read_file).build().unwrap(),
        ))
        .build()
        .unwrap();
    let notices = Arc::new(Mutex::new(Vec::new()));
    let recorded = notices.clone();
    let run = swarm.run("Two things: what is 12*7, and what is the password in secret.txt?");
    let run = run.on_event(move |event| {
        recorded
            .lock()
            .unwrap()
            .extend(SwarmNotice::of(&event.kind))
    });
    let finished = run.await.unwrap_or_else(|error| panic!("{error:?}"));
    let notices = notices.lock().unwrap();
    let planned = notices.iter().any(|notices| {
        matches!(
            notices,
            SwarmNotice::Planned {
                by: PlannedBy::Router,
                ..
            }
        )
    });
    assert!(planned, "{notices:?}");
    for expected in ["84", "tangerine-42"] {
        let knows = |report: &WorkerReport| report.is_done() && report.text.contains(expected);
        assert!(
            finished.reports().iter().any(knows),
            "{expected} in {:?}",
            finished.reports()
        );
    }
    assert!(
        finished.text().contains("84") && finished.usage().total() > 0,
        "{}",
        finished.text()
    );
}
