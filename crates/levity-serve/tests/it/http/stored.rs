//! Stored data: conversations, plans, and runs that other processes drive.

use levity_core::{ConversationChange, ConversationId, Message, RunId, Timestamp};
use levity_loop::{Agent, SecretGuard};
use levity_memory::{Conversations, InMemory};
use levity_runtime::{MemoryJournal, Runtime};
use levity_serve::Runs;
use levity_test::ScriptedModel;
use serde_json::{Value, json};

use super::support::{HeldTool, Server, agent};

#[tokio::test]
async fn conversations_can_be_listed_read_and_deleted() {
    let conversations = Conversations::new(InMemory::new()).never_expire();
    let journal = MemoryJournal::new();
    let agent = agent(
        ScriptedModel::new().reply("Hello.").reply("Again."),
        &journal,
    );
    let agent = agent
        .to_builder()
        .conversations(conversations.clone())
        .build()
        .unwrap();
    let server = Server::with(Runs::new(agent), |api| {
        api.conversations(conversations.clone())
    })
    .await;
    let client = server.client;
    for goal in ["Good morning", "Good evening"] {
        let run = client
            .post("/v1/runs", json!({"goal": goal, "conversation": "a/b c"}))
            .await
            .is(201);
        server
            .runs
            .get(&run["id"].as_str().unwrap().into())
            .unwrap()
            .outcome()
            .await;
    }
    for n in 0..5 {
        let change = ConversationChange::at(0)
            .with_messages([Message::user("x")])
            .when(Timestamp::from_millis(n));
        conversations
            .store()
            .save(&ConversationId::new(format!("c{n}")), &change)
            .await
            .unwrap();
    }
    let (mut found, mut path) = (Vec::new(), "/v1/sessions?limit=2".to_owned());
    loop {
        let page = client.get(&path).await.is(200);
        found.extend(
            page["sessions"]
                .as_array()
                .unwrap()
                .iter()
                .map(|one| one["id"].clone()),
        );
        let Value::String(next) = &page["next"] else {
            break;
        };
        path = format!(
            "/v1/sessions?limit=2&cursor={}",
            next.replace('~', "%7E")
                .replace(' ', "%20")
                .replace('/', "%2F")
        );
    }
    assert_eq!(found, ["a/b c", "c4", "c3", "c2", "c1", "c0"]);
    let shown = client.get("/v1/sessions/a%2Fb%20c").await.is(200);
    let texts: Vec<String> = shown["messages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["message"].to_string())
        .collect();
    assert_eq!((texts.len(), &shown["end"]), (4, &json!(4)));
    assert!(
        texts[0].contains("Good morning") && texts[3].contains("Again."),
        "{texts:?}"
    );
    let part = client
        .get("/v1/sessions/a%2Fb%20c?from=1&limit=1")
        .await
        .is(200);
    assert_eq!(part["messages"][0]["at"], 1);
    client
        .get("/v1/sessions/nobody")
        .await
        .assert_error(404, "no_session");
    client
        .get("/v1/sessions/x?kind=odd")
        .await
        .assert_error(400, "bad_query");

    let open = conversations
        .open(&ConversationId::new("c1"), 1)
        .await
        .unwrap();
    client
        .delete("/v1/sessions/c1")
        .await
        .assert_error(409, "session_busy");
    drop(open);
    client.delete("/v1/sessions/c1").await.is(204);
    client
        .delete("/v1/sessions/c1")
        .await
        .assert_error(404, "no_session");
    server.stop().await;
}

#[tokio::test]
async fn page_of_messages_is_limited_and_has_a_next_position() {
    let conversations = Conversations::new(InMemory::new()).never_expire();
    let runs = Runs::new(agent(
        ScriptedModel::new().reply("1"),
        &MemoryJournal::new(),
    ));
    let server = Server::with(runs, |api| api.conversations(conversations.clone())).await;
    let id = ConversationId::new("c");
    // The last message is larger than a page.
    let sizes = [vec![300 << 10; 10], vec![2 << 20]].concat();
    let messages = sizes.iter().map(|size| Message::user("x".repeat(*size)));
    let change = ConversationChange::at(0)
        .with_messages(messages)
        .when(Timestamp::from_millis(1));
    conversations.store().save(&id, &change).await.unwrap();
    let (mut found, mut from, mut pages) = (Vec::new(), 0, Vec::new());
    loop {
        let page = server
            .client
            .get(&format!("/v1/sessions/c?limit=500&from={from}"))
            .await
            .is(200);
        let messages = page["messages"].as_array().unwrap();
        pages.push(messages.len());
        assert!(messages.len() == 1 || page.to_string().len() < (1 << 20) + 1000);
        found.extend(messages.iter().map(|one| one["at"].as_u64().unwrap()));
        let Some(next) = page["next"].as_u64() else {
            break;
        };
        from = next;
    }
    assert_eq!((found, pages), ((0..11).collect(), vec![3, 3, 3, 1, 1]));
    let page = server
        .client
        .get("/v1/sessions/c?limit=2&from=0")
        .await
        .is(200);
    assert_eq!(
        (page["messages"].as_array().unwrap().len(), &page["next"]),
        (2, &json!(2))
    );
    let last = server.client.get("/v1/sessions/c?limit=1").await.is(200);
    assert_eq!(
        (&last["messages"][0]["at"], &last["next"]),
        (&json!(10), &Value::Null)
    );
    server.stop().await;
}

#[tokio::test]
async fn run_in_conversation_without_store_is_rejected() {
    let server = Server::new(Runs::new(agent(
        ScriptedModel::new().reply("1"),
        &MemoryJournal::new(),
    )))
    .await;
    let answer = server
        .client
        .post("/v1/runs", json!({"goal": "x", "conversation": "c"}))
        .await;
    answer.assert_error(422, "refused");
    server.stop().await;
}

#[cfg(feature = "dag")]
#[tokio::test]
async fn stored_plans_can_be_read() {
    let folder = tempfile::tempdir().unwrap();
    let day = folder.path().join("2025/01/02");
    std::fs::create_dir_all(&day).unwrap();
    let plan = r#"{"directed": true, "multigraph": false,
        "graph": {"session_id": "s1", "original_query": "tides",
        "created_at": "2025-01-02T03:04:05", "status": "running"},
        "nodes": [{"id": "ROOT"},
            {"id": "a", "agent": "Retriever", "writes": ["page"], "status": "completed",
                "output": {"page": "full moon"}},
            {"id": "b", "agent": "Summarizer", "reads": ["page"], "status": "pending"}],
        "links": [{"source": "ROOT", "target": "a"}, {"source": "a", "target": "b"}]}"#;
    std::fs::write(day.join("session_s1.json"), plan).unwrap();
    let runs = Runs::new(agent(
        ScriptedModel::new().reply("1"),
        &MemoryJournal::new(),
    ));
    let plans = levity_observe::SessionFolder::open(folder.path());
    let server = Server::with(runs, |api| api.plans(plans)).await;
    let list = server.client.get("/v1/sessions?kind=plan").await.is(200);
    assert_eq!(
        (&list["sessions"][0]["id"], &list["sessions"][0]["goal"]),
        (&json!("s1"), &json!("tides"))
    );
    let shown = server.client.get("/v1/sessions/s1?kind=plan").await.is(200);
    assert_eq!(
        (&shown["steps"][0]["status"], &shown["steps"][1]["id"]),
        (&json!("completed"), &json!("b"))
    );
    server
        .client
        .get("/v1/sessions/s2?kind=plan")
        .await
        .assert_error(404, "no_session");
    server
        .client
        .get("/v1/sessions/..%2fx?kind=plan")
        .await
        .assert_error(400, "bad_id");
    server
        .client
        .get("/v1/sessions")
        .await
        .assert_error(404, "no_sessions");
    server.stop().await;
}

/// Leaves a run in the journal that waits for a decision and that no process drives.
async fn leave_waiting_run(journal: &MemoryJournal) {
    let model = ScriptedModel::new()
        .call("delete", json!({"path": "a"}))
        .reply("Done.");
    let runs = Runs::new(agent(model, journal));
    let run = runs
        .start(levity_serve::NewRun::new("Tidy up.").id("r"))
        .unwrap();
    let mut events = run.events(None);
    while let Some(levity_serve::FeedItem::Event { json, .. }) = events.next().await {
        if json.windows(7).any(|part| part == b"\"asked\"") {
            break;
        }
    }
    drop((run, runs));
    while levity_core::Journal::open(journal, &RunId::from("r"))
        .await
        .is_err()
    {
        tokio::task::yield_now().await;
    }
}

fn script() -> ScriptedModel {
    ScriptedModel::new()
        .call("delete", json!({"path": "a"}))
        .reply("Done.")
}

#[tokio::test]
async fn undriven_run_gets_commands_by_journal_and_is_resumed() {
    let journal = MemoryJournal::new();
    leave_waiting_run(&journal).await;
    let server = Server::new(Runs::new(agent(script(), &journal))).await;
    let client = server.client;
    let run = client.get("/v1/runs/r").await.is(200);
    assert_eq!(
        (&run["state"], &run["here"]),
        (&json!("waiting"), &json!(false))
    );
    let ask = run["asks"][0]["id"].as_str().unwrap().to_owned();
    assert_eq!(
        client.get("/v1/runs?state=waiting").await.is(200)["runs"][0]["id"],
        "r"
    );
    assert_eq!(
        client.post("/v1/runs/r/pause", json!({})).await.is(202)["delivery"],
        "written"
    );
    assert_eq!(client.get("/v1/runs/r").await.is(200)["paused"], true);
    let decided = client
        .post(
            &format!("/v1/runs/r/asks/{ask}"),
            json!({"decision": "allow"}),
        )
        .await;
    assert_eq!(decided.is(202)["delivery"], "written");
    assert_eq!(
        client.post("/v1/runs/r/resume", json!({})).await.is(200)["delivery"],
        "delivered"
    );
    let told = client.events("/v1/runs/r/events", None).await.rest().await;
    assert_eq!(told.last().unwrap().data["state"], "answered");
    client
        .post("/v1/runs/r/resume", json!({}))
        .await
        .assert_error(409, "not_running");
    server.stop().await;
}

#[tokio::test]
async fn message_to_undriven_run_with_guards_is_rejected() {
    let journal = MemoryJournal::new();
    let model = ScriptedModel::new()
        .call("ask_user", json!({"question": "Which?"}))
        .reply("Done.");
    let guarded = agent(model, &journal)
        .to_builder()
        .guard(SecretGuard::new())
        .build()
        .unwrap();
    guarded.run("Ask.").id("r").park().await.unwrap_err();
    let server = Server::new(Runs::new(guarded)).await;
    let client = server.client;
    let said = json!({"text": "password=hunter2"});
    client
        .post("/v1/runs/r/message", said.clone())
        .await
        .assert_error(409, "not_driven");
    client.post("/v1/runs/r/resume", json!({})).await.is(202);
    client.post("/v1/runs/r/message", said).await.is(200);
    let kept = serde_json::to_string(&journal.records(&RunId::new("r"))).unwrap();
    assert!(
        kept.contains("[secret: password]") && !kept.contains("hunter2"),
        "{kept}"
    );
    server.stop().await;
}

#[tokio::test]
async fn repeated_start_request_resumes_abandoned_run() {
    let journal = MemoryJournal::new();
    leave_waiting_run(&journal).await;
    let server = Server::new(Runs::new(agent(script(), &journal))).await;
    let run = server
        .client
        .post("/v1/runs", json!({"goal": "Tidy up.", "id": "r"}))
        .await
        .is(200);
    assert_eq!(
        (&run["here"], &run["state"]),
        (&json!(true), &json!("waiting"))
    );
    server.stop().await;
}

#[tokio::test]
async fn run_of_another_process_is_visible_and_not_resumed() {
    let journal = MemoryJournal::new();
    let (held, _permits) = HeldTool::new();
    let model = ScriptedModel::new().call("hold", json!({})).reply("Done.");
    let there = agent(model.clone(), &journal)
        .to_builder()
        .tool(held)
        .build()
        .unwrap();
    let there = Runs::new(there);
    let run = there
        .start(levity_serve::NewRun::new("Hold.").id("r"))
        .unwrap();
    run.opened().await.unwrap();
    let (held, _other) = HeldTool::new();
    let here = agent(model, &journal)
        .to_builder()
        .tool(held)
        .build()
        .unwrap();
    let server = Server::new(Runs::new(here)).await;
    let client = server.client;
    let shown = client.get("/v1/runs/r").await.is(200);
    assert_eq!(
        (&shown["here"], &shown["goal"]),
        (&json!(false), &json!("Hold."))
    );
    // This journal accepts no posts for other processes; SQLite does.
    for command in ["pause", "resume", "cancel"] {
        client
            .post(&format!("/v1/runs/r/{command}"), json!({}))
            .await
            .assert_error(409, "driven_elsewhere");
    }
    client
        .delete("/v1/runs/r")
        .await
        .assert_error(409, "not_ended");
    // A failed attempt to resume leaves no trace.
    server.runs.resume_all().await.unwrap();
    while server.runs.running() > 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(client.get("/v1/runs/r").await.is(200).get("stopped"), None);
    drop(run);
    server.stop().await;
}

/// Returns a store that two servers share.
fn sqlite(path: &std::path::Path, held: HeldTool) -> Agent {
    let model = ScriptedModel::new()
        .call("hold", json!({}))
        .reply("Done.")
        .by_history();
    let runtime = Runtime::new().with_journal(levity_runtime::SqliteJournal::new(path).unwrap());
    Agent::builder(model)
        .tool(held)
        .runtime(runtime)
        .build()
        .unwrap()
}

#[tokio::test]
async fn command_is_posted_to_the_process_that_drives_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("runs.db");
    let (held, _permits) = HeldTool::new();
    let there = Runs::new(sqlite(&path, held));
    let run = there
        .start(levity_serve::NewRun::new("Hold.").id("r"))
        .unwrap();
    run.opened().await.unwrap();
    let (held, _other) = HeldTool::new();
    let server = Server::new(Runs::new(sqlite(&path, held))).await;
    let told = server
        .client
        .post("/v1/runs/r/cancel", json!({"reason": "enough"}))
        .await
        .is(202);
    assert_eq!(told["delivery"], "posted");
    let ending = run.outcome().await;
    assert_eq!(
        ending.ending().unwrap().status.to_string(),
        "cancelled: enough"
    );
    let shown = server.client.get("/v1/runs/r").await.is(200);
    assert_eq!(shown["ending"]["why"], "cancelled: enough");
    server.stop().await;
}

/// Returns the list entry of a run.
fn entry<'a>(list: &'a Value, id: &str) -> &'a Value {
    let runs = list["runs"].as_array().unwrap();
    runs.iter().find(|run| run["id"] == id).unwrap()
}

#[tokio::test]
async fn list_contains_bounded_goals_and_usage_of_stored_runs() {
    let journal = MemoryJournal::new();
    let earlier = Runs::new(agent(ScriptedModel::new().reply("Done."), &journal));
    let long = "é".repeat(1_000);
    for (id, goal) in [("short", "Sum up."), ("long", &*long)] {
        let run = levity_serve::NewRun::new(goal).id(id);
        earlier.start(run).unwrap().outcome().await;
    }
    leave_waiting_run(&journal).await;

    // Another process has the runs only in the journal, and lists the goals that `show` returns.
    let server = Server::new(Runs::new(agent(script(), &journal))).await;
    for _ in 0..2 {
        let list = server.client.get("/v1/runs").await.is(200);
        for id in ["short", "r"] {
            let shown = server.client.get(&format!("/v1/runs/{id}")).await.is(200);
            assert_eq!(entry(&list, id)["goal"], shown["goal"], "{id}");
        }
        let shown = server.client.get("/v1/runs/short").await.is(200);
        assert_eq!(entry(&list, "short")["usage"], shown["usage"]);
        assert_eq!(entry(&list, "r").get("usage"), None, "it has not ended");
        assert_eq!(entry(&list, "long")["goal"], long[..1_024]);
    }

    // A new run with the id of a removed one has its own goal.
    server.client.delete("/v1/runs/short").await.is(204);
    let later = Runs::new(agent(ScriptedModel::new().reply("Done."), &journal));
    let again = levity_serve::NewRun::new("Another.").id("short");
    later.start(again).unwrap().outcome().await;
    let list = server.client.get("/v1/runs").await.is(200);
    assert_eq!(entry(&list, "short")["goal"], "Another.");
    server.stop().await;
}
