//! Tool routes, and responses to invalid paths.

use levity_runtime::MemoryJournal;
use levity_serve::Runs;
use levity_test::ScriptedModel;
use serde_json::json;

use super::support::{HeldTool, Server, agent};

#[tokio::test]
async fn tools_can_be_listed_and_called_under_policy() {
    let (held, permits) = HeldTool::new();
    let agent = agent(ScriptedModel::new(), &MemoryJournal::new())
        .to_builder()
        .tool(held)
        .build()
        .unwrap();
    let tools = agent.dispatcher().clone();
    let runs = Runs::new(agent);
    let server = Server::with(runs, |api| api.tools(tools).tool_calls(1)).await;
    let client = server.client;
    let listed = client.get("/v1/tools").await.is(200);
    let names: Vec<_> = listed["tools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| tool["name"].as_str().unwrap())
        .collect();
    assert!(
        names.contains(&"look") && names.contains(&"delete"),
        "{names:?}"
    );
    let look = listed["tools"]
        .as_array()
        .unwrap()
        .iter()
        .find(|tool| tool["name"] == "look")
        .unwrap();
    assert!(look["read_only"] == true && look["input"]["properties"]["path"]["type"] == "string");
    let answer = client
        .post("/v1/tools/look", json!({"args": {"path": "x"}}))
        .await
        .is(200);
    assert_eq!(
        (&answer["failed"], &answer["text"]),
        (&json!(false), &json!(r#"{"path":"x"}"#))
    );
    client
        .ask("POST", "/v1/tools/look", &[], None)
        .await
        .is(200);
    client
        .post("/v1/tools/delete", json!({"args": {"path": "x"}}))
        .await
        .assert_error(409, "needs_approval");
    let done = client
        .post(
            "/v1/tools/delete",
            json!({"args": {"path": "x"}, "approved": true}),
        )
        .await
        .is(200);
    assert_eq!(done["failed"], false);
    let wrong = client
        .post("/v1/tools/look", json!({"args": {"path": [1]}}))
        .await
        .is(200);
    assert_eq!(wrong["failed"], true);
    client
        .post("/v1/tools/none", json!({}))
        .await
        .assert_error(404, "no_tool");
    client
        .post("/v1/tools/look", json!({"args": []}))
        .await
        .assert_error(422, "invalid");
    client
        .post("/v1/tools/look", json!({"more": 1}))
        .await
        .assert_error(422, "invalid");
    client
        .get("/v1/tools/look")
        .await
        .assert_error(405, "no_method");
    let mut holding = tokio::task::JoinSet::new();
    holding.spawn(async move { client.post("/v1/tools/hold", json!({})).await });
    while client.post("/v1/tools/look", json!({})).await.status != 429 {
        tokio::task::yield_now().await;
    }
    client
        .post("/v1/tools/look", json!({}))
        .await
        .assert_error(429, "full");
    permits.add_permits(1);
    assert_eq!(
        holding.join_next().await.unwrap().unwrap().is(200)["text"],
        "held"
    );
    server.stop().await;
}

#[tokio::test]
async fn tool_routes_without_tools_return_not_found() {
    let server = Server::new(Runs::new(agent(
        ScriptedModel::new(),
        &MemoryJournal::new(),
    )))
    .await;
    server
        .client
        .get("/v1/tools")
        .await
        .assert_error(404, "no_tools");
    server
        .client
        .post("/v1/tools/look", json!({}))
        .await
        .assert_error(404, "no_tools");
    server.stop().await;
}

#[tokio::test]
async fn errors_for_wrong_paths_have_the_api_format() {
    let server = Server::new(Runs::new(agent(
        ScriptedModel::new(),
        &MemoryJournal::new(),
    )))
    .await;
    let client = server.client;
    for (method, path, status, code) in [
        ("GET", "/v1/runs/%ff", 400, "bad_path"),
        ("DELETE", "/v1/runs/%ff", 400, "bad_path"),
        ("GET", "/v1/runs/%ff/events", 400, "bad_path"),
        ("GET", "/v1/runs/%c3%28/asks", 400, "bad_path"),
        ("POST", "/v1/runs/%ff/pause", 400, "bad_path"),
        ("POST", "/v1/runs/%ff/resume", 400, "bad_path"),
        ("POST", "/v1/runs/%ff/cancel", 400, "bad_path"),
        ("POST", "/v1/runs/%ff/message", 400, "bad_path"),
        ("POST", "/v1/runs/x/asks/%ff", 400, "bad_path"),
        ("POST", "/v1/runs/%ff/asks/1", 400, "bad_path"),
        ("GET", "/v1/sessions/%ff", 400, "bad_path"),
        ("DELETE", "/v1/sessions/%ff", 400, "bad_path"),
        ("POST", "/v1/tools/%ff", 400, "bad_path"),
        ("GET", "/v1/runs/%", 400, "bad_id"),
        ("GET", "/v1/runs/%00", 400, "bad_id"),
        ("GET", "/v1/%ff", 404, "no_route"),
        ("GET", "/", 404, "no_route"),
        ("GET", "//", 404, "no_route"),
        ("GET", "/v1/runs/", 404, "no_route"),
        ("GET", "/v2/runs", 404, "no_route"),
        ("PUT", "/v1/runs", 405, "no_method"),
        ("POST", "/v1/health", 405, "no_method"),
        ("BREW", "/v1/runs/x", 405, "no_method"),
        ("OPTIONS", "*", 404, "no_route"),
    ] {
        let answer = client.ask(method, path, &[], None).await;
        assert!(
            answer.has("content-type: application/json"),
            "{method} {path}: {answer:?}"
        );
        answer.assert_error(status, code);
    }
    server.stop().await;
}

#[tokio::test]
async fn invalid_conversation_ids_are_rejected_by_the_api() {
    use levity_memory::{Conversations, FileMemory};
    let folder = tempfile::tempdir().unwrap();
    let conversations = Conversations::new(FileMemory::new(folder.path()).unwrap());
    let agent = agent(ScriptedModel::new().reply("1"), &MemoryJournal::new());
    let agent = agent
        .to_builder()
        .conversations(conversations.clone())
        .build()
        .unwrap();
    let server = Server::with(Runs::new(agent), |api| api.conversations(conversations)).await;
    let client = server.client;
    for (id, fits) in [
        ("a".repeat(200), true),
        ("A".repeat(66), true),
        ("é".repeat(33), true),
        ("a".repeat(201), false),
        ("a".repeat(256), false),
        ("A".repeat(67), false),
        ("é".repeat(34), false),
        ("con".to_owned(), true),
        (String::new(), false),
        ("a\nb".to_owned(), false),
    ] {
        let answer = client
            .post("/v1/runs", json!({"goal": "Go", "conversation": id}))
            .await;
        if fits {
            let run = answer.is(201)["id"].as_str().unwrap().to_owned();
            let ended = server
                .runs
                .get(&run.as_str().into())
                .unwrap()
                .outcome()
                .await;
            assert_eq!(ended.ending().unwrap().text, "1", "{id}");
        } else {
            answer.assert_error(422, "bad_id");
        }
    }
    server.stop().await;
}
