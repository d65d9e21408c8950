//! Calls that continue as tasks.

use std::sync::Arc;
use std::time::Duration;

use levity_core::{CancelToken, ToolError};
use levity_serve::mcp::{
    ElicitForm, ElicitReply, HandlerCall, HandlerReply, McpLimits, McpServer, RequestError,
    TaskSupport,
};
use levity_test::ManualWorld;
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::fixture::{Era, Peer, TestHandler, builder};

fn knows_tasks() -> Value {
    json!({"elicitation": {}, "extensions": {"io.modelcontextprotocol/tasks": {}}})
}

fn form() -> ElicitForm {
    let schema =
        json!({"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]});
    ElicitForm::new("Who?", schema)
}

async fn named(call: HandlerCall, name: &str) -> Result<String, RequestError> {
    match call.client.named(name).elicit(form()).await? {
        ElicitReply::Accept(said) => Ok(said["name"].as_str().unwrap().to_owned()),
        other => Ok(format!("{other:?}")),
    }
}

/// A tool that works until the test releases it.
fn waiting_tool(gate: &Arc<Notify>, tasks: TaskSupport) -> TestHandler {
    let gate = gate.clone();
    let work = move |_| {
        let gate = gate.clone();
        async move {
            gate.notified().await;
            Ok(HandlerReply::text("done"))
        }
    };
    TestHandler::new("wait", work).tasks(tasks)
}

async fn started(peer: &mut Peer, tool: &str) -> String {
    // A call that did not become a task would be answered when its work is done, possibly never.
    let answer = peer.ask("tools/call", json!({"name": tool, "arguments": {}}));
    let answer = tokio::time::timeout(Duration::from_secs(60), answer)
        .await
        .expect("it becomes a task");
    let result = &answer["result"];
    assert_eq!(result["resultType"], "task", "{answer}");
    assert!(
        result["ttlMs"].is_u64() && result["pollIntervalMs"].is_u64(),
        "{answer}"
    );
    assert!(
        result.get("result").is_none() && result.get("requestState").is_none(),
        "{answer}"
    );
    result["taskId"].as_str().unwrap().to_owned()
}

async fn state(peer: &mut Peer, task: &str) -> Value {
    peer.ask("tasks/get", json!({"taskId": task})).await["result"].clone()
}

/// Returns the state of a task once it differs from this one.
async fn after(peer: &mut Peer, task: &str, status: &str) -> Value {
    loop {
        let state = state(peer, task).await;
        if state["status"] != status {
            return state;
        }
        tokio::task::yield_now().await;
    }
}

async fn connect(server: &McpServer) -> Peer {
    Peer::connect(server, Era::New, knows_tasks()).await
}

#[tokio::test]
async fn task_outlives_its_connection_and_retains_its_result() {
    let gate = Arc::new(Notify::new());
    let server = builder()
        .handler(waiting_tool(&gate, TaskSupport::Optional))
        .build()
        .unwrap();
    let mut peer = connect(&server).await;
    let task = started(&mut peer, "wait").await;
    assert_eq!(state(&mut peer, &task).await["status"], "working");
    peer.close().await;
    gate.notify_one();
    let mut other = connect(&server).await;
    let ended = after(&mut other, &task, "working").await;
    assert_eq!(
        (&ended["status"], &ended["resultType"]),
        (&json!("completed"), &json!("complete"))
    );
    assert_eq!(ended["result"]["content"][0]["text"], "done");
    assert_eq!(
        state(&mut other, &task).await,
        ended,
        "the result is retained"
    );
}

#[tokio::test]
async fn tool_error_completes_task_and_protocol_error_fails_it() {
    let error = |_| async { Err(ToolError::failed("no luck").into()) };
    let fault = |_| async { Err(RequestError::failed("broke off")) };
    let panics = |_| async { panic!("on purpose") };
    let server = builder()
        .handler(TestHandler::new("error", error).tasks(TaskSupport::Optional))
        .handler(TestHandler::new("fault", fault).tasks(TaskSupport::Optional))
        .handler(TestHandler::new("panics", panics).tasks(TaskSupport::Optional))
        .build()
        .unwrap();
    let mut peer = connect(&server).await;
    for (tool, status, part) in [
        ("error", "completed", "no luck"),
        ("fault", "failed", "broke off"),
        ("panics", "completed", "panicked"),
    ] {
        let task = started(&mut peer, tool).await;
        let ended = after(&mut peer, &task, "working").await;
        assert_eq!(ended["status"], status, "{ended}");
        assert!(ended.to_string().contains(part), "{ended}");
        assert_eq!(
            ended["result"]["isError"] == true,
            status == "completed",
            "{ended}"
        );
        assert_eq!(
            ended["error"]["code"].is_i64(),
            status == "failed",
            "{ended}"
        );
    }
}

#[tokio::test]
async fn task_questions_are_answered_one_by_one() {
    let both = |call: HandlerCall| async move {
        let (one, two) = tokio::join!(named(call.clone(), "one"), named(call, "two"));
        Ok(HandlerReply::text(format!("{} and {}", one?, two?)))
    };
    let server = builder()
        .handler(TestHandler::new("both", both).tasks(TaskSupport::Optional))
        .build()
        .unwrap();
    let mut peer = connect(&server).await;
    let task = started(&mut peer, "both").await;
    let mut waiting = after(&mut peer, &task, "working").await;
    while waiting["inputRequests"].as_object().unwrap().len() < 2 {
        waiting = state(&mut peer, &task).await;
    }
    assert_eq!(waiting["status"], "input_required");
    let answer = |name: &str| json!({"action": "accept", "content": {"name": name}});
    let bad = peer
        .ask(
            "tasks/update",
            json!({"taskId": task, "inputResponses": {"one": 7}}),
        )
        .await;
    assert_eq!(bad["error"]["code"], -32602, "{bad}");
    let one = json!({"taskId": task, "inputResponses": {"one": answer("Ada"),
        "nobody": answer("asked")}});
    let ack = peer.ask("tasks/update", one).await;
    assert_eq!(ack["result"]["resultType"], "complete", "{ack}");
    let left = state(&mut peer, &task).await;
    assert_eq!(
        left["inputRequests"]
            .as_object()
            .unwrap()
            .keys()
            .collect::<Vec<_>>(),
        ["two"]
    );
    peer.ask(
        "tasks/update",
        json!({"taskId": task, "inputResponses": {"two": answer("Bob")}}),
    )
    .await;
    let ended = after(&mut peer, &task, "working").await;
    assert_eq!(
        ended["result"]["content"][0]["text"], "Ada and Bob",
        "{ended}"
    );
}

#[tokio::test]
async fn cancelled_task_stops_its_work_and_stays_cancelled() {
    let stopped = CancelToken::new();
    let seen = stopped.clone();
    let work = move |call: HandlerCall| {
        let guard = seen.clone().into_guard();
        async move {
            let _guard = guard;
            call.cancel.cancelled().await;
            std::future::pending().await
        }
    };
    let server = builder()
        .handler(TestHandler::new("endless", work).tasks(TaskSupport::Optional))
        .build()
        .unwrap();
    let mut peer = connect(&server).await;
    let task = started(&mut peer, "endless").await;
    for _ in 0..2 {
        let ack = peer.ask("tasks/cancel", json!({"taskId": task})).await;
        assert_eq!(ack["result"]["resultType"], "complete", "{ack}");
        assert_eq!(state(&mut peer, &task).await["status"], "cancelled");
    }
    stopped.cancelled().await;
}

#[tokio::test]
async fn client_without_tasks_waits_or_is_rejected() {
    let gate = Arc::new(Notify::new());
    for (tasks, refused) in [
        (TaskSupport::Optional, false),
        (TaskSupport::Required, true),
        (TaskSupport::Deferred, true),
    ] {
        let server = builder()
            .handler(waiting_tool(&gate, tasks))
            .build()
            .unwrap();
        let mut peer = Peer::connect(&server, Era::New, json!({})).await;
        gate.notify_one();
        let answer = peer
            .ask("tools/call", json!({"name": "wait", "arguments": {}}))
            .await;
        match refused {
            true => {
                assert_eq!(answer["error"]["code"], -32021, "{answer}");
                let needed = &answer["error"]["data"]["requiredCapabilities"]["extensions"];
                assert!(
                    needed.get("io.modelcontextprotocol/tasks").is_some(),
                    "{answer}"
                );
                gate.notified().await;
            }
            false => assert_eq!(answer["result"]["content"][0]["text"], "done", "{answer}"),
        }
        let gated = peer.ask("tasks/get", json!({"taskId": "x"})).await;
        assert_eq!(gated["error"]["code"], -32021, "{gated}");
        // Before 2026-07-28, every client waits.
        gate.notify_one();
        let mut older = Peer::connect(&server, Era::Old, json!({})).await;
        assert_eq!(older.text("wait", json!({})).await, "done");
    }
}

#[tokio::test]
async fn deferred_call_asks_first_and_then_becomes_a_task() {
    let work = |call: HandlerCall| async move {
        let name = named(call.clone(), "who").await?;
        call.client.become_task().await;
        call.client.become_task().await;
        let again = named(call, "again").await?;
        Ok(HandlerReply::text(format!("{name}, {again}")))
    };
    let server = builder()
        .handler(TestHandler::new("later", work).tasks(TaskSupport::Deferred))
        .build()
        .unwrap();
    let mut peer = connect(&server).await;
    let asked = peer
        .ask("tools/call", json!({"name": "later", "arguments": {}}))
        .await["result"]
        .clone();
    assert_eq!(
        (&asked["resultType"], asked.get("taskId")),
        (&json!("input_required"), None)
    );
    let answer =
        |key: &str, name: &str| json!({key: {"action": "accept", "content": {"name": name}}});
    let params = json!({
        "name": "later", "arguments": {}, "requestState": asked["requestState"],
        "inputResponses": answer("who", "Ada"),
    });
    let made = peer.ask("tools/call", params).await["result"].clone();
    assert_eq!(
        (&made["resultType"], made.get("requestState")),
        (&json!("task"), None),
        "{made}"
    );
    let task = made["taskId"].as_str().unwrap();
    assert_eq!(
        after(&mut peer, task, "working").await["status"],
        "input_required"
    );
    peer.ask(
        "tasks/update",
        json!({"taskId": task, "inputResponses": answer("again", "Bob")}),
    )
    .await;
    let ended = after(&mut peer, task, "working").await;
    assert_eq!(ended["result"]["content"][0]["text"], "Ada, Bob", "{ended}");
}

#[tokio::test]
async fn tasks_are_limited_in_number_and_lifetime() {
    let (gate, world) = (Arc::new(Notify::new()), Arc::new(ManualWorld::new()));
    let limits = McpLimits::default()
        .tasks(2)
        .task_life(Duration::from_secs(60));
    let server = builder()
        .handler(waiting_tool(&gate, TaskSupport::Optional))
        .limits(limits)
        .world(world.clone())
        .build()
        .unwrap();
    let mut peer = connect(&server).await;
    let first = started(&mut peer, "wait").await;
    let second = started(&mut peer, "wait").await;
    let third = peer
        .ask("tools/call", json!({"name": "wait", "arguments": {}}))
        .await;
    assert!(
        third["error"]["message"]
            .as_str()
            .unwrap()
            .contains("too many tasks"),
        "{third}"
    );
    for task in ["", "x", &first[1..], &format!("{first} ")] {
        let unknown = peer.ask("tasks/get", json!({"taskId": task})).await;
        assert_eq!(unknown["error"]["code"], -32602, "{unknown}");
    }
    while world.sleepers() < 2 {
        tokio::task::yield_now().await;
    }
    world.advance(Duration::from_secs(61));
    for task in [first, second] {
        while state(&mut peer, &task).await.is_object() {
            tokio::task::yield_now().await;
        }
    }
    started(&mut peer, "wait").await;
}
