//! Every layer is a model that keeps the contract of one.

use levity_core::{Message, Model, Request};
use levity_llm::ModelExt;
use levity_llm::layers::{Cache, Rate, Replay, Route};
use levity_test::{ScriptedModel, Turn, conformance};
use serde_json::json;

use super::support::{Folder, auto};

/// A reply with something of everything.
fn model() -> ScriptedModel {
    let turn = Turn::new()
        .thinking("Two numbers.")
        .text("Let me see.")
        .call("add", json!({"a": 2}));
    ScriptedModel::looping(turn.usage(10, 3).pieces(3))
}

#[tokio::test]
async fn retry() {
    conformance::model(|| model().retry().with_world(auto().1)).await;
    conformance::model(|| {
        model()
            .retry()
            .restart_after_first_delta()
            .with_world(auto().1)
    })
    .await;
}

#[tokio::test]
async fn rate_limit() {
    conformance::model(|| {
        model()
            .rate_limit(Rate::gemini_free().tokens(1))
            .key("suite")
            .with_world(auto().1)
    })
    .await;
}

#[tokio::test]
async fn fallback_and_route() {
    conformance::model(|| model().fallback(model())).await;
    conformance::model(|| Route::new(model()).or(model())).await;
    conformance::model(|| Route::new(model()).or(model()).by_difficulty()).await;
    conformance::model(|| Route::new(model()).or(model()).by(|_, _| 7)).await;
}

#[tokio::test]
async fn cached() {
    let folder = Folder::new();
    conformance::model(|| model().cached(Cache::new())).await;
    // A shared folder would make the second reply another than the first: it costs nothing.
    conformance::model(|| {
        model().cached(
            Cache::new()
                .entries(0)
                .folder_of(folder.path().join("x"), 0),
        )
    })
    .await;
}

#[tokio::test]
async fn record_and_replay() {
    let folder = Folder::new();
    let path = folder.path().join("calls.jsonl");
    conformance::model(|| model().record(folder.path().join("suite.jsonl")).unwrap()).await;
    // What the suite asks of a model that must answer.
    let plain = Request::new()
        .with_system("Be brief.")
        .with_message(Message::user("What is 2 + 5?"));
    model()
        .record(&path)
        .unwrap()
        .complete(plain)
        .await
        .unwrap();
    conformance::model(|| Replay::open(&path).unwrap()).await;
}

#[tokio::test]
async fn debug_log() {
    let folder = Folder::new();
    conformance::model(|| model().debug_log(folder.path()).with_world(auto().1)).await;
}

#[tokio::test]
async fn text_tools() {
    let text = || {
        let turn = Turn::new()
            .text("[Thinking: hm] See:\nTOOL_CALL: add\nARGUMENTS: {\"a\": 2}\n{\"action\": 1");
        ScriptedModel::looping(turn.usage(10, 3).pieces(7))
    };
    conformance::model(|| model().text_tools()).await;
    conformance::model(|| text().text_tools()).await;
    conformance::model(|| text().text_tools().structured()).await;
}

#[tokio::test]
async fn adapt_tools() {
    conformance::model(|| model().adapt_tools()).await;
}

#[tokio::test]
async fn auto_thinking() {
    conformance::model(|| model().auto_thinking()).await;
}
