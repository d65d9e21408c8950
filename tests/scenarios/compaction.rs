//! Conversations that become too long for the model.

use std::sync::{Arc, Mutex};

use levity::core::{
    CompactionReport, Event, EventKind, Hints, ModelCard, ModelErrorKind, Part, Request, Response,
    Role, ToolCall, ToolOutput,
};
use levity::memory::Window;
use levity::prelude::*;
use levity::test::{FunctionModel, RecordingTool, ScriptedModel, Turn};
use serde_json::json;

use crate::support::{assert_complete, runtime};

/// Creates a tool that answers with this number of words.
fn word_tool(words: usize) -> RecordingTool {
    RecordingTool::new("look", move |_| Ok(ToolOutput::text("word ".repeat(words))))
        .with_hints(Hints::new().read_only())
}

fn card(window: u64) -> ModelCard {
    ModelCard::new("test", "small").with_window(window)
}

/// Returns a list of compactions and the observer that fills it.
fn compaction_observer() -> (
    Arc<Mutex<Vec<CompactionReport>>>,
    impl Fn(&Event) + Send + Sync,
) {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let collected = seen.clone();
    let observer = move |event: &Event| {
        if let EventKind::Compacted(compacted) = &event.kind {
            collected.lock().unwrap().push(compacted.clone());
        }
    };
    (seen, observer)
}

fn calls(count: usize) -> ScriptedModel {
    (0..count).fold(ScriptedModel::new(), |model, n| {
        model.call("look", json!({"at": n, "why": "x ".repeat(1_500)}))
    })
}

fn tokens(request: &Request) -> u64 {
    request.history.tokens()
}

#[tokio::test]
async fn long_tool_loop_stays_within_window() {
    let model = Arc::new(calls(30).reply("Found it.").with_card(card(12_000)));
    let summariser = Arc::new(ScriptedModel::looping(
        Turn::new().text("It looked around."),
    ));
    let (seen, observer) = compaction_observer();
    let agent = Agent::builder(model.clone())
        .model_for("summariser", summariser.clone())
        .tool(word_tool(800))
        .max_turns(40)
        .verify_replay()
        .build()
        .unwrap();
    let answer = agent.run("Find the key").on_event(observer).await.unwrap();
    assert_eq!(answer.text(), "Found it.");
    assert_eq!(
        answer.history().calls().count(),
        30,
        "the history must be complete"
    );
    assert_complete(answer.history());
    for request in model.requests() {
        assert!(tokens(&request) < 8_600, "{} tokens", tokens(&request));
        assert_complete(&request.history);
        assert!(
            request
                .history
                .messages()
                .iter()
                .any(|message| message.text() == "Find the key")
        );
    }
    let last = model.requests().pop().unwrap();
    let summaries = last
        .history
        .messages()
        .iter()
        .filter(|m| m.text() == "Previous Summary: It looked around.");
    assert_eq!(summaries.count(), 1);
    let seen = seen.lock().unwrap();
    assert!(
        seen.iter()
            .any(|compacted| compacted.shortened > 0 && compacted.folded == 0),
        "results must be shortened first"
    );
    assert!(
        seen.iter()
            .any(|compacted| compacted.folded > 0 && compacted.fell_back.is_none())
    );
    assert!(
        seen.iter()
            .all(|compacted| compacted.after < compacted.before)
    );
    assert!(
        summariser.requests().len() < 8,
        "{} summaries",
        summariser.requests().len()
    );
    // The second summary is based on the first one and the messages that left the window since.
    let second = &summariser.requests()[1].history.messages()[0]
        .text()
        .into_owned();
    assert!(
        second.contains("Summary so far:\nIt looked around."),
        "{second}"
    );
}

#[tokio::test]
async fn failing_summariser_does_not_end_run() {
    type Broken = (&'static str, fn() -> ScriptedModel);
    let failing: [Broken; 4] = [
        ("gave no reply", || {
            ScriptedModel::new().fail(ModelErrorKind::Server)
        }),
        ("empty", || ScriptedModel::new().reply("  \n")),
        ("longer than", || {
            ScriptedModel::new().reply("much ".repeat(20_000))
        }),
        ("panicked", || ScriptedModel::new().panic("a fault")),
    ];
    for (reason, summariser) in failing {
        let model = Arc::new(calls(12).reply("Found it.").with_card(card(6_000)));
        let summariser = Arc::new(
            summariser()
                .reply("It looked around.")
                .reply("It looked around twice."),
        );
        let (seen, observer) = compaction_observer();
        let agent = Agent::builder(model.clone())
            .model_for("summariser", summariser.clone())
            .tool(word_tool(10))
            .max_turns(40)
            .build()
            .unwrap();
        let answer = agent.run("Find the key").on_event(observer).await.unwrap();
        assert_eq!(answer.text(), "Found it.");
        let seen = seen.lock().unwrap();
        assert!(
            seen[0].fell_back.as_ref().unwrap().contains(reason),
            "{:?}",
            seen[0].fell_back
        );
        assert!(
            seen[0].summary.as_ref().unwrap().contains("Called look."),
            "{:?}",
            seen[0].summary
        );
        assert!(
            seen.iter()
                .any(|later| later.summary.as_deref() == Some("It looked around.")),
            "the summariser must be called again"
        );
        // The second request contains the messages that are not summarized yet.
        let repeated = summariser.requests()[1].history.messages()[0]
            .text()
            .into_owned();
        assert!(
            repeated.contains("Summary so far:\n(none)") && repeated.contains("Find the key"),
            "{repeated}"
        );
        assert!(
            model
                .requests()
                .iter()
                .all(|request| tokens(request) < 4_500)
        );
    }
}

#[tokio::test]
async fn compaction_without_summariser_lists_removed_calls() {
    let model = Arc::new(calls(12).reply("Found it.").with_card(card(6_000)));
    let agent = Agent::builder(model.clone())
        .tool(word_tool(10))
        .max_turns(40)
        .without_summaries()
        .build()
        .unwrap();
    assert_eq!(agent.run("Find the key").await.unwrap().text(), "Found it.");
    assert_eq!(model.requests().len(), 13, "no other call may be made");
    let last = model.requests().pop().unwrap();
    assert!(
        last.history.messages()[1]
            .text()
            .starts_with("Previous Summary: ")
    );
}

#[tokio::test]
async fn request_rejected_as_too_long_is_shortened_and_resent() {
    // The model does not state its window, and counts more tokens than levity estimates.
    let model = ScriptedModel::new()
        .call("look", json!({}))
        .call("look", json!({}))
        .fail(ModelErrorKind::ContextTooLong)
        .fail(ModelErrorKind::ContextTooLong)
        .reply("Found it.");
    let model = Arc::new(model);
    let agent = Agent::builder(model.clone())
        .tool(word_tool(2_000))
        .without_summaries()
        .build()
        .unwrap();
    let answer = agent.run("Find the key").await;
    let sent: Vec<u64> = model.requests().iter().map(tokens).collect();
    assert_eq!(answer.unwrap().text(), "Found it.", "{sent:?}");
    assert!(sent.last().unwrap() * 2 < sent[2], "{sent:?}");
}

#[tokio::test]
async fn request_that_stays_too_long_fails_with_partial_result() {
    let model = ScriptedModel::looping(Turn::new().break_off(levity::core::ModelError::new(
        ModelErrorKind::ContextTooLong,
        "too long",
    )));
    let error = Agent::builder(model)
        .build()
        .unwrap()
        .run("x".repeat(100_000))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), levity::ErrorKind::Model);
    assert_eq!(error.partial().unwrap().stats().model_calls, 4);
}

#[tokio::test]
async fn huge_goal_is_truncated_and_run_completes() {
    let model = Arc::new(
        ScriptedModel::new()
            .reply("Quite long.")
            .with_card(card(4_000)),
    );
    let answer = Agent::builder(model.clone())
        .build()
        .unwrap()
        .run("word ".repeat(2_000_000))
        .await
        .unwrap();
    assert_eq!(answer.text(), "Quite long.");
    let sent = &model.requests()[0];
    assert!(
        tokens(sent) < 3_000
            && sent.history.messages()[0]
                .text()
                .contains("bytes are left out here")
    );
    assert_eq!(answer.history().messages()[0].text().len(), 10_000_000);
}

/// Creates a model that makes ten calls, each depending on the last one in the request, and the
/// list of its requests.
fn model_with_dependent_calls() -> (FunctionModel, Arc<Mutex<Vec<Request>>>) {
    let requests = Arc::new(Mutex::new(Vec::new()));
    let seen = requests.clone();
    let model = FunctionModel::new(move |request: &Request| {
        seen.lock().unwrap().push(request.clone());
        let last = request
            .history
            .calls()
            .last()
            .and_then(|(call, _)| call.args["at"].as_u64());
        let next = last.map_or(0, |at| at + 1);
        if next == 10 {
            return Ok(Response::new(Message::assistant("Found it.")));
        }
        let call = ToolCall::new(
            format!("c{next}"),
            "look",
            json!({"at": next, "why": "x ".repeat(1_500)}),
        );
        Ok(Response::new(Message::new(
            Role::Assistant,
            [Part::ToolCall(call)],
        )))
    });
    (model.with_card(card(6_000)), requests)
}

#[tokio::test]
async fn resumed_run_sends_same_window() {
    // A run that stops after any record and resumes sends the same requests.
    let (complete_runtime, journal) = runtime();
    let agent = |runtime: Runtime, model: FunctionModel| {
        let summariser = ScriptedModel::looping(Turn::new().text("It looked around."));
        let builder = Agent::builder(model)
            .model_for("summariser", summariser)
            .tool(word_tool(10))
            .max_turns(40);
        builder.runtime(runtime).build().unwrap()
    };
    let (first, requests) = model_with_dependent_calls();
    let answer = agent(complete_runtime.clone(), first.clone())
        .run("Find the key")
        .id("r")
        .await
        .unwrap();
    let sent: Vec<Request> = requests.lock().unwrap().clone();
    assert!(sent.iter().any(|request| {
        request
            .history
            .messages()
            .iter()
            .any(|m| m.text().starts_with("Previous Sum"))
    }));
    let records = levity::core::Journal::read(&journal, &"r".into())
        .await
        .unwrap();
    for cut in 1..records.len() {
        let (runtime, journal) = runtime();
        let mut open = levity::core::Journal::open(&journal, &"r".into())
            .await
            .unwrap();
        open.log.append(&records[..cut]).await.unwrap();
        drop(open);
        let (model, requests) = model_with_dependent_calls();
        let repeated = agent(runtime, model).resume("r").await.unwrap();
        assert_eq!(repeated.history(), answer.history(), "after {cut} records");
        let rest = requests.lock().unwrap().clone();
        assert_eq!(
            rest[..],
            sent[sent.len() - rest.len()..],
            "after {cut} records"
        );
    }
    agent(complete_runtime, first)
        .replay(&"r".into())
        .await
        .unwrap();
}

#[tokio::test]
async fn window_uses_token_counts_of_provider() {
    // The provider counts three times as many tokens as levity, so its window is full earlier.
    let mut model = ScriptedModel::new().with_card(card(20_000));
    for n in 0..14_u64 {
        let turn = Turn::new().call("look", json!({"at": n, "why": "x ".repeat(800)}));
        model = model.turn(turn.usage(1_500 * (n + 1), 10));
    }
    let model = Arc::new(model.reply("Found it."));
    let (seen, observer) = compaction_observer();
    let agent = Agent::builder(model.clone())
        .tool(word_tool(10))
        .max_turns(40)
        .without_summaries()
        .build()
        .unwrap();
    agent.run("Find the key").on_event(observer).await.unwrap();
    let seen = seen.lock().unwrap();
    assert!(
        !seen.is_empty(),
        "by the estimate of levity, the request would fit"
    );
    let max_tokens = model.requests().iter().map(tokens).max().unwrap();
    assert!(
        max_tokens < 8_000,
        "{max_tokens} estimated tokens exceed the window as the provider counts"
    );
}

#[tokio::test]
async fn message_window_keeps_all_messages_of_current_run() {
    let model = Arc::new(calls(8).reply("Found it."));
    let summariser = ScriptedModel::looping(Turn::new().text("Before."));
    let agent = Agent::builder(model.clone())
        .model_for("summariser", summariser)
        .tool(word_tool(1))
        .max_turns(40);
    let agent = agent.window(Window::new().messages(4)).build().unwrap();
    let mut past = levity::core::History::new();
    for n in 0..20 {
        past.push(Message::user(format!("m{n}"))).unwrap();
    }
    agent.run("Find the key").history(past).await.unwrap();
    let last = model.requests().pop().unwrap();
    let texts: Vec<_> = last
        .history
        .messages()
        .iter()
        .filter(|m| m.role == Role::User)
        .map(|m| m.text())
        .collect();
    assert_eq!(
        texts,
        ["Previous Summary: Before.", "m18", "m19", "Find the key"]
    );
    assert_eq!(
        last.history.calls().count(),
        8,
        "all messages of this run must be in the request"
    );
}
