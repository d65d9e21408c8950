//! Conformance of every layer to the contract of a model.

use levity_core::{Message, Model, Request};
use levity_llm::ModelExt;
use levity_llm::layers::{Cache, Rate, Replay, Route};
use levity_test::{ScriptedModel, Turn, conformance};
use serde_json::json;

use super::support::{Folder, auto};

/// Creates a model whose reply has every kind of part.
fn model() -> ScriptedModel {
    let turn = Turn::new()
        .thinking("Two numbers.")
        .text("Let me see.")
        .call("add", json!({"a": 2}));
    ScriptedModel::looping(turn.usage(10, 3).pieces(3))
}

#[tokio::test]
async fn retry_conforms() {
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
async fn rate_limit_conforms() {
    conformance::model(|| {
        model()
            .rate_limit(Rate::gemini_free().tokens(1))
            .key("suite")
            .with_world(auto().1)
    })
    .await;
}

#[tokio::test]
async fn fallback_and_route_conform() {
    conformance::model(|| model().fallback(model())).await;
    conformance::model(|| Route::new(model()).or(model())).await;
    conformance::model(|| Route::new(model()).or(model()).by_difficulty()).await;
    conformance::model(|| Route::new(model()).or(model()).by_rule(|_, _| 7)).await;
}

#[tokio::test]
async fn cached_conforms() {
    let folder = Folder::new();
    conformance::model(|| model().cached(Cache::new())).await;
    // A shared folder would make the second reply differ from the first: it costs nothing.
    conformance::model(|| {
        model().cached(
            Cache::new()
                .entries(0)
                .folder_with_limit(folder.path().join("x"), 0),
        )
    })
    .await;
}

#[tokio::test]
async fn record_and_replay_conform() {
    let folder = Folder::new();
    let path = folder.path().join("calls.jsonl");
    conformance::model(|| model().record(folder.path().join("suite.jsonl")).unwrap()).await;
    // The requests of the suite, which a replay must answer.
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
async fn debug_log_conforms() {
    let folder = Folder::new();
    conformance::model(|| model().debug_log(folder.path()).with_world(auto().1)).await;
}

#[tokio::test]
async fn text_tools_conforms() {
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
async fn adapt_tools_conforms() {
    conformance::model(|| model().adapt_tools()).await;
}

#[tokio::test]
async fn auto_thinking_conforms() {
    conformance::model(|| model().auto_thinking()).await;
}
