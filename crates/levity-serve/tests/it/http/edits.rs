//! Calls that a person allows with other arguments.

use levity_core::{ControlError, Decision, Hints, RunId, ToolOutput};
use levity_loop::Agent;
use levity_runtime::{MemoryJournal, Runtime};
use levity_serve::Runs;
use levity_swarm::{Router, Swarm, Worker};
use levity_test::{RecordingTool, ScriptedModel};
use serde_json::{Value, json};

use super::client::Client;
use super::support::{Server, agent};

fn model() -> ScriptedModel {
    ScriptedModel::new()
        .call("delete", json!({"path": "a"}))
        .reply("Done.")
}

/// Starts a run, waits for its question and returns the path of the question.
async fn ask(client: Client) -> String {
    let order = json!({"goal": "Tidy up.", "id": "r1"});
    client.post("/v1/runs", order).await.is(201);
    client
        .events("/v1/runs/r1/events", None)
        .await
        .until("asked")
        .await;
    let asks = client.get("/v1/runs/r1/asks").await.is(200);
    format!(
        "/v1/runs/r1/asks/{}",
        asks["asks"][0]["id"].as_str().unwrap()
    )
}

/// Sends invalid arguments, and checks that the question stays open.
async fn send_invalid(client: Client, path: &str, args: Value, at: &str) {
    let body = json!({"decision": "edit", "args": args});
    let refused = client.post(path, body).await;
    let problems = refused.json["error"]["problems"].clone();
    refused.assert_error(422, "invalid_arguments");
    assert_eq!(problems.as_array().unwrap().len(), 1, "{problems}");
    assert_eq!(problems[0]["path"], at);
    assert!(!problems[0]["message"].as_str().unwrap().is_empty());
    let asks = client.get("/v1/runs/r1/asks").await.is(200);
    assert_eq!(asks["asks"].as_array().unwrap().len(), 1, "{asks}");
}

#[tokio::test]
async fn edited_arguments_must_match_schema_in_live_run() {
    let runs = Runs::new(agent(model(), &MemoryJournal::new()));
    let server = Server::new(runs.clone()).await;
    let path = ask(server.client).await;
    send_invalid(server.client, &path, json!({"path": {}}), "/path").await;

    let run = runs.get(&RunId::new("r1")).unwrap();
    let open = run.asks().await.remove(0);
    let edit = Decision::edit(json!({"path": {}}));
    let refused = run.control().unwrap().decide(&open, edit).await;
    let Err(ControlError::InvalidArguments { problems, .. }) = refused else {
        panic!("{refused:?}");
    };
    assert_eq!(problems[0].path, "/path");

    let body = json!({"decision": "edit", "args": {"path": "b"}});
    server.client.post(&path, body).await.is(200);
    assert_eq!(run.outcome().await.ending().unwrap().text, "Done.");
    let view = server.client.get("/v1/runs/r1/view").await.is(200);
    let results = view["view"]["items"].to_string();
    assert!(results.contains(r#"{\"path\":\"b\"}"#), "{results}");
    server.stop().await;
}

#[tokio::test]
async fn edited_arguments_must_match_schema_in_stored_run() {
    let journal = MemoryJournal::new();
    let server = Server::new(Runs::new(agent(model(), &journal))).await;
    let path = ask(server.client).await;
    server.stop().await;

    let server = Server::new(Runs::new(agent(model(), &journal))).await;
    let client = server.client;
    send_invalid(client, &path, json!({"path": null}), "/path").await;
    let body = json!({"decision": "edit", "args": {"path": "b"}});
    let told = client.post(&path, body).await.is(202);
    assert_eq!(told["delivery"], "written");
    client.post("/v1/runs/r1/resume", json!({})).await.is(202);
    let last = client.events("/v1/runs/r1/events", None).await.rest().await;
    assert_eq!(last.last().unwrap().data["state"], "answered");
    server.stop().await;
}

#[tokio::test]
async fn edited_arguments_must_match_schema_in_child_run() {
    let journal = MemoryJournal::new();
    let runs = || {
        let send = RecordingTool::new("send", |_| Ok(ToolOutput::text("sent")))
            .with_hints(Hints::new().destructive())
            .with_input(json!({"type": "object", "required": ["to"]}));
        let model = ScriptedModel::new()
            .call("send", json!({"to": "Brest"}))
            .reply("Sent.")
            .by_history();
        let worker = Agent::builder(model).tool(send).build().unwrap();
        let plan = r#"{"delegations": [{"id": "a", "worker": "sender", "task": "Send a boat."}]}"#;
        let router = ScriptedModel::new().reply(plan).reply("Sent.").by_history();
        let swarm = Swarm::builder(Router::new(router))
            .worker(Worker::new("sender", "Sends.", worker))
            .runtime(Runtime::new().with_journal(journal.clone()));
        Runs::new(swarm.build().unwrap())
    };
    let server = Server::new(runs()).await;
    let path = ask(server.client).await;
    send_invalid(server.client, &path, json!({}), "").await;
    server.stop().await;

    let server = Server::new(runs()).await;
    send_invalid(server.client, &path, json!({}), "").await;
    server.stop().await;
}
