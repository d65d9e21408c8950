//! Conversations that become too long for the model.

use std::sync::{Arc, Mutex};

use levity::core::{
    Compacted, Event, EventKind, Hints, ModelCard, ModelErrorKind, Part, Request, Response, Role,
    ToolCall, ToolOutput,
};
use levity::memory::Window;
use levity::prelude::*;
use levity::test::{FunctionModel, RecordingTool, ScriptedModel, Turn};
use serde_json::json;

use crate::support::{assert_whole, runtime};

/// A tool that answers with so many words.
fn look(words: usize) -> RecordingTool {
    RecordingTool::new("look", move |_| Ok(ToolOutput::text("word ".repeat(words))))
        .with_hints(Hints::new().read_only())
}

fn card(window: u64) -> ModelCard {
    ModelCard::new("test", "small").with_window(window)
}

/// Tells what was compacted.
fn watch() -> (Arc<Mutex<Vec<Compacted>>>, impl Fn(&Event) + Send + Sync) {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let taken = seen.clone();
    let watcher = move |event: &Event| {
        if let EventKind::Compacted(compacted) = &event.kind {
            taken.lock().unwrap().push(compacted.clone());
        }
    };
    (seen, watcher)
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
async fn a_long_tool_loop_goes_on_within_its_window() {
    let model = Arc::new(calls(30).reply("Found it.").with_card(card(12_000)));
    let summariser = Arc::new(ScriptedModel::looping(
        Turn::new().text("It looked around."),
    ));
    let (seen, watcher) = watch();
    let agent = Agent::builder(model.clone())
        .model_for("summariser", summariser.clone())
        .tool(look(800))
        .max_turns(40)
        .audited()
        .build()
        .unwrap();
    let answer = agent.run("Find the key").on_event(watcher).await.unwrap();
    assert_eq!(answer.text(), "Found it.");
    assert_eq!(
        answer.history().calls().count(),
        30,
        "the history has everything"
    );
    assert_whole(answer.history());
    for request in model.requests() {
        assert!(tokens(&request) < 8_600, "{} tokens", tokens(&request));
        assert_whole(&request.history);
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
        "results are shortened first"
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
    // The second summary was made of the first and of what has left since.
    let second = &summariser.requests()[1].history.messages()[0]
        .text()
        .into_owned();
    assert!(
        second.contains("Summary so far:\nIt looked around."),
        "{second}"
    );
}

#[tokio::test]
async fn a_summariser_that_fails_does_not_end_the_run() {
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
    for (why, summariser) in failing {
        let model = Arc::new(calls(12).reply("Found it.").with_card(card(6_000)));
        let summariser = Arc::new(
            summariser()
                .reply("It looked around.")
                .reply("It looked around twice."),
        );
        let (seen, watcher) = watch();
        let agent = Agent::builder(model.clone())
            .model_for("summariser", summariser.clone())
            .tool(look(10))
            .max_turns(40)
            .build()
            .unwrap();
        let answer = agent.run("Find the key").on_event(watcher).await.unwrap();
        assert_eq!(answer.text(), "Found it.");
        let seen = seen.lock().unwrap();
        assert!(
            seen[0].fell_back.as_ref().unwrap().contains(why),
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
            "it is asked again"
        );
        // What no model has summed up yet is in what it is asked to sum up.
        let again = summariser.requests()[1].history.messages()[0]
            .text()
            .into_owned();
        assert!(
            again.contains("Summary so far:\n(none)") && again.contains("Find the key"),
            "{again}"
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
async fn without_a_summariser_what_has_left_is_listed() {
    let model = Arc::new(calls(12).reply("Found it.").with_card(card(6_000)));
    let agent = Agent::builder(model.clone())
        .tool(look(10))
        .max_turns(40)
        .without_summaries()
        .build()
        .unwrap();
    assert_eq!(agent.run("Find the key").await.unwrap().text(), "Found it.");
    assert_eq!(model.requests().len(), 13, "no other call was made");
    let last = model.requests().pop().unwrap();
    assert!(
        last.history.messages()[1]
            .text()
            .starts_with("Previous Summary: ")
    );
}

#[tokio::test]
async fn a_request_that_is_too_long_after_all_is_made_shorter() {
    // The model says nothing of its window, and counts more than anybody would think.
    let model = ScriptedModel::new()
        .call("look", json!({}))
        .call("look", json!({}))
        .fail(ModelErrorKind::ContextTooLong)
        .fail(ModelErrorKind::ContextTooLong)
        .reply("Found it.");
    let model = Arc::new(model);
    let agent = Agent::builder(model.clone())
        .tool(look(2_000))
        .without_summaries()
        .build()
        .unwrap();
    let answer = agent.run("Find the key").await;
    let sent: Vec<u64> = model.requests().iter().map(tokens).collect();
    assert_eq!(answer.unwrap().text(), "Found it.", "{sent:?}");
    assert!(sent.last().unwrap() * 2 < sent[2], "{sent:?}");
}

#[tokio::test]
async fn one_that_stays_too_long_fails_with_what_was_reached() {
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
async fn a_huge_goal_is_cut_and_the_rest_of_the_run_unharmed() {
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

/// Makes ten calls, the next one by what it is shown of the last; and what it was sent.
fn goes_by_what_it_sees() -> (FunctionModel, Arc<Mutex<Vec<Request>>>) {
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
async fn a_resumed_run_sees_the_same_window() {
    // Left after each record in turn, and gone on with: what is sent is the same.
    let (whole, journal) = runtime();
    let agent = |runtime: Runtime, model: FunctionModel| {
        let summariser = ScriptedModel::looping(Turn::new().text("It looked around."));
        let builder = Agent::builder(model)
            .model_for("summariser", summariser)
            .tool(look(10))
            .max_turns(40);
        builder.runtime(runtime).build().unwrap()
    };
    let (first, requests) = goes_by_what_it_sees();
    let answer = agent(whole.clone(), first.clone())
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
        let (model, requests) = goes_by_what_it_sees();
        let again = agent(runtime, model).resume("r").await.unwrap();
        assert_eq!(again.history(), answer.history(), "after {cut} records");
        let rest = requests.lock().unwrap().clone();
        assert_eq!(
            rest[..],
            sent[sent.len() - rest.len()..],
            "after {cut} records"
        );
    }
    agent(whole, first).replay(&"r".into()).await.unwrap();
}

#[tokio::test]
async fn counts_of_the_provider_are_gone_by() {
    // A provider that counts three times as many tokens: the window is half full by our count when
    // it is full by its.
    let mut model = ScriptedModel::new().with_card(card(20_000));
    for n in 0..14_u64 {
        let turn = Turn::new().call("look", json!({"at": n, "why": "x ".repeat(800)}));
        model = model.turn(turn.usage(1_500 * (n + 1), 10));
    }
    let model = Arc::new(model.reply("Found it."));
    let (seen, watcher) = watch();
    let agent = Agent::builder(model.clone())
        .tool(look(10))
        .max_turns(40)
        .without_summaries()
        .build()
        .unwrap();
    agent.run("Find the key").on_event(watcher).await.unwrap();
    let seen = seen.lock().unwrap();
    assert!(!seen.is_empty(), "by our own count it would have fitted");
    let most = model.requests().iter().map(tokens).max().unwrap();
    assert!(
        most < 8_000,
        "{most} of our tokens are more than there is room for by theirs"
    );
}

#[tokio::test]
async fn a_window_of_messages_leaves_the_present_run_alone() {
    let model = Arc::new(calls(8).reply("Found it."));
    let summariser = ScriptedModel::looping(Turn::new().text("Before."));
    let agent = Agent::builder(model.clone())
        .model_for("summariser", summariser)
        .tool(look(1))
        .max_turns(40);
    let agent = agent.window(Window::new().messages(4)).build().unwrap();
    let mut past = levity::core::History::new();
    for n in 0..20 {
        past.say(Message::user(format!("m{n}"))).unwrap();
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
        "what this run does is all there"
    );
}
