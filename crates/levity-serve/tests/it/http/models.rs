//! Models that clients choose.

use levity_core::{EventKind, RunId};
use levity_runtime::MemoryJournal;
use levity_serve::Runs;
use levity_test::ScriptedModel;
use serde_json::{Value, json};

use super::client::Client;
use super::support::{Server, agent};

fn model(text: &str) -> ScriptedModel {
    ScriptedModel::new()
        .call("delete", json!({"path": "a"}))
        .reply(text)
}

/// Returns runs with the models `small` and `large`.
fn runs(journal: &MemoryJournal) -> Runs {
    let default = agent(model("From small."), journal);
    let large = default
        .to_builder()
        .model(model("From large.").by_history());
    Runs::new(default)
        .default_model("small")
        .offer_model("large", large.build().unwrap())
}

async fn answer(client: Client, runs: &Runs, id: &str) -> String {
    let run = runs.get(&RunId::new(id)).unwrap();
    while run.asks().await.is_empty() {
        tokio::task::yield_now().await;
    }
    let asks = client.get(&format!("/v1/runs/{id}/asks")).await.is(200);
    let ask = asks["asks"][0]["id"].as_str().unwrap();
    let path = format!("/v1/runs/{id}/asks/{ask}");
    client
        .post(&path, json!({"decision": "allow"}))
        .await
        .is(200);
    run.outcome().await.ending().unwrap().text.clone()
}

async fn start(client: Client, id: &str, model: Option<&str>) {
    let mut order = json!({"goal": "Tidy up.", "id": id});
    if let Some(model) = model {
        order["model"] = model.into();
    }
    client.post("/v1/runs", order).await.is(201);
}

#[tokio::test]
async fn client_chooses_an_offered_model_and_no_other() {
    let server = Server::new(runs(&MemoryJournal::new())).await;
    let (client, runs) = (server.client, &server.runs);
    let models = client.get("/v1/models").await.is(200);
    let expected = json!([
        {"name": "small", "default": true},
        {"name": "large", "default": false},
    ]);
    assert_eq!(models["models"], expected);
    for (id, model, expected) in [
        ("r1", None, "From small."),
        ("r2", Some("small"), "From small."),
        ("r3", Some("large"), "From large."),
    ] {
        start(client, id, model).await;
        assert_eq!(answer(client, runs, id).await, expected, "{id}");
    }
    for model in ["huge", "", "compatible:x@http://192.0.2.1/v1", "large "] {
        let order = json!({"goal": "Tidy up.", "model": model});
        let refused = client.post("/v1/runs", order).await;
        let message = refused.json["error"]["message"]
            .as_str()
            .unwrap()
            .to_owned();
        refused.assert_error(422, "unknown_model");
        assert!(message.contains("`small`, `large`"), "{message}");
    }
    server.stop().await;
}

#[tokio::test]
async fn resumed_run_and_fork_continue_with_their_model() {
    let journal = MemoryJournal::new();
    let server = Server::new(runs(&journal)).await;
    start(server.client, "r1", Some("large")).await;
    let mut events = server.client.events("/v1/runs/r1/events", None).await;
    events.until("asked").await;
    server.stop().await;

    // A server that does not offer the model does not continue with another.
    let other = Server::new(Runs::new(agent(model("From small."), &journal))).await;
    let refused = other.client.post("/v1/runs/r1/resume", json!({})).await;
    refused.assert_error(409, "model_not_offered");
    let refused = other.client.post("/v1/runs/r1/fork", json!({})).await;
    refused.assert_error(409, "model_not_offered");
    other.stop().await;

    let server = Server::new(runs(&journal)).await;
    let (client, runs) = (server.client, &server.runs);
    client.post("/v1/runs/r1/resume", json!({})).await.is(202);
    assert_eq!(answer(client, runs, "r1").await, "From large.");

    let history = runs.history(&RunId::new("r1")).await.unwrap();
    let asked = history
        .iter()
        .find(|event| matches!(event.kind, EventKind::Asked(_)))
        .unwrap();
    for (id, model, expected) in [
        ("f1", Value::Null, "From large."),
        ("f2", json!("small"), "From small."),
        ("f3", json!("large"), "From large."),
    ] {
        let order = json!({"id": id, "after": asked.seq, "model": model});
        client.post("/v1/runs/r1/fork", order).await.is(201);
        assert_eq!(answer(client, runs, id).await, expected, "{id}");
    }
    server.stop().await;
}
