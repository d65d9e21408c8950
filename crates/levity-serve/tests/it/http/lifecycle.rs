//! The whole life cycle of a run.

use levity_core::{Event, EventKind};
use levity_runtime::MemoryJournal;
use levity_serve::Runs;
use levity_test::{ScriptedModel, Turn};
use serde_json::{Value, json};

use super::client::{Client, Sse};
use super::support::{Server, agent};

fn deletes(path: &str) -> Turn {
    Turn::new().call("delete", json!({"path": path}))
}

/// Starts a run, and returns its id.
async fn start(client: Client, goal: &str) -> String {
    let answer = client.post("/v1/runs", json!({"goal": goal})).await;
    let location = answer
        .head
        .lines()
        .find_map(|line| line.strip_prefix("location: "))
        .unwrap()
        .to_owned();
    let run = answer.is(201);
    let id = run["id"].as_str().unwrap().to_owned();
    assert_eq!(location, format!("/v1/runs/{id}"));
    assert_eq!(run["goal"], goal);
    id
}

/// Returns the id of the question in a stream.
fn question(events: &[Sse]) -> String {
    let event: Event = serde_json::from_value(events.last().unwrap().data.clone()).unwrap();
    let EventKind::Asked(ask) = &event.kind else {
        panic!("no question: {event:?}");
    };
    format!("{}:{}:{}", ask.run, ask.effect, ask.fingerprint(event.at))
}

#[tokio::test]
async fn run_can_be_started_followed_and_read() {
    let model = ScriptedModel::new()
        .call("look", json!({"path": "a"}))
        .reply("Seen.");
    let server = Server::new(Runs::new(agent(model, &MemoryJournal::new()))).await;
    let id = start(server.client, "Look.").await;
    let mut events = server
        .client
        .events(&format!("/v1/runs/{id}/events"), None)
        .await;
    let told = events.rest().await;
    let names: Vec<&str> = told.iter().map(|event| &*event.name).collect();
    assert_eq!(names.first(), Some(&"run_started"));
    assert_eq!(names[names.len() - 2..], ["run_ended", "end"]);
    assert_eq!(
        told.last().unwrap().data,
        json!({"run": id, "state": "answered", "status": "complete"})
    );
    let ids: Vec<usize> = told
        .iter()
        .filter_map(|event| event.id.as_ref()?.parse().ok())
        .collect();
    assert_eq!(ids, (1..=ids.len()).collect::<Vec<_>>());

    let run = server.client.get(&format!("/v1/runs/{id}")).await.is(200);
    assert_eq!(
        (&run["state"], &run["here"], &run["goal"]),
        (&json!("answered"), &json!(false), &json!("Look."))
    );
    assert_eq!(run["ending"]["text"], "Seen.");
    let stats = json!({"turns": 2, "model_calls": 2, "tool_calls": 1, "failed_calls": 0,
        "reasoning_steps": 0});
    assert_eq!(run["stats"], stats);
    assert!(run["usage"]["tokens"].as_u64().is_some() && run["opened"].as_u64().is_some());
    server.stop().await;
}

#[tokio::test]
async fn questions_can_be_decided() {
    let model = ScriptedModel::new()
        .turn(deletes("a"))
        .turn(deletes("b"))
        .turn(deletes("c"))
        .call("ask_user", json!({"question": "Which?"}))
        .reply("Done.");
    let journal = MemoryJournal::new();
    let server = Server::new(Runs::new(agent(model, &journal))).await;
    let client = server.client;
    let id = start(client, "Tidy up.").await;
    let mut events = client
        .events(&format!("/v1/runs/{id}/events?transient=0"), None)
        .await;
    let decisions = [
        json!({"decision": "allow"}),
        json!({"decision": "deny", "reason": "keep it"}),
        json!({"decision": "edit", "args": {"path": "d"}}),
        json!({"decision": "answer", "text": "the blue one"}),
    ];
    for decision in decisions {
        let ask = question(&events.until("asked").await);
        let run = client.get(&format!("/v1/runs/{id}")).await.is(200);
        assert_eq!(
            (&run["state"], &run["asks"][0]["id"]),
            (&json!("waiting"), &json!(ask))
        );
        let asks = client.get(&format!("/v1/runs/{id}/asks")).await.is(200);
        assert_eq!(asks["asks"], run["asks"]);
        let path = format!("/v1/runs/{id}/asks/{ask}");
        if decision["decision"] == "answer" {
            client
                .post(&path, json!({"decision": "allow"}))
                .await
                .assert_error(422, "wants_answer");
        }
        let told = client.post(&path, decision.clone()).await.is(200);
        assert_eq!(told, json!({"id": id, "delivery": "delivered"}));
        client
            .post(&path, decision)
            .await
            .assert_error(409, "not_asked");
    }
    let told = events.rest().await;
    assert_eq!(told.last().unwrap().name, "end");
    let mut replay = client.events(&format!("/v1/runs/{id}/events"), None).await;
    let results: Vec<String> = replay
        .rest()
        .await
        .iter()
        .filter(|event| event.name == "tool_finished")
        .map(|event| event.data["kind"]["tool_finished"]["result"].to_string())
        .collect();
    for (result, part) in results
        .iter()
        .zip([r#"{\"path\":\"a\"}"#, r#"{\"path\":\"d\"}"#])
    {
        assert!(result.contains(part), "{results:?}");
    }
    let run = client.get(&format!("/v1/runs/{id}")).await.is(200);
    assert_eq!(
        (&run["ending"]["text"], &run["asks"]),
        (&json!("Done."), &json!([]))
    );
    server.stop().await;
}

#[tokio::test]
async fn invalid_decisions_are_rejected() {
    let journal = MemoryJournal::new();
    let server = Server::new(Runs::new(agent(
        ScriptedModel::new().turn(deletes("a")).reply("."),
        &journal,
    )))
    .await;
    let client = server.client;
    let id = start(client, "Tidy up.").await;
    let ask = question(
        &client
            .events(&format!("/v1/runs/{id}/events"), None)
            .await
            .until("asked")
            .await,
    );
    let path = format!("/v1/runs/{id}/asks/{ask}");
    let wrong = [
        json!({}),
        json!({"decision": "maybe"}),
        json!({"decision": "allow", "args": {}}),
        json!({"decision": "edit"}),
        json!({"decision": "edit", "args": [1]}),
        json!({"decision": "answer"}),
        json!({"decision": "deny", "text": "x"}),
        json!({"decision": "allow", "more": 1}),
        json!("allow"),
    ];
    for wrong in wrong {
        client.post(&path, wrong).await.assert_error(422, "invalid");
    }
    // Without the fingerprint, the decision could reach another call.
    let (effect, fingerprint) = ask.rsplit_once(':').unwrap();
    let number = effect.rsplit_once(':').unwrap().1;
    for id_of_ask in ["x:y", "x:y:z", "777", effect, number] {
        client
            .post(
                &format!("/v1/runs/{id}/asks/{id_of_ask}"),
                json!({"decision": "allow"}),
            )
            .await
            .assert_error(400, "bad_id");
    }
    let other = fingerprint.chars().rev().collect::<String>();
    for id_of_ask in [
        format!("{id}:777:{fingerprint}"),
        format!("{effect}:{other}"),
        format!("{effect}:"),
    ] {
        client
            .post(
                &format!("/v1/runs/{id}/asks/{id_of_ask}"),
                json!({"decision": "allow"}),
            )
            .await
            .assert_error(409, "not_asked");
    }
    client
        .post(&path, json!({"decision": "allow"}))
        .await
        .is(200);
    server
        .runs
        .get(&id.as_str().into())
        .unwrap()
        .outcome()
        .await;
    server.stop().await;
}

/// Starts run `job`, which asks for a deletion, and returns the id of its question.
async fn ask_to_delete(client: Client) -> String {
    let order = json!({"goal": "Tidy up.", "id": "job"});
    client.post("/v1/runs", order).await.is(201);
    loop {
        let asks = client.get("/v1/asks").await.is(200);
        match asks["asks"][0]["id"].as_str() {
            Some(id) => break id.to_owned(),
            None => tokio::task::yield_now().await,
        }
    }
}

#[tokio::test]
async fn decision_does_not_reach_later_run_with_same_id() {
    let journal = MemoryJournal::new();
    let model = ScriptedModel::new().turn(deletes("draft")).reply("Done.");
    let server = Server::new(Runs::new(agent(model, &journal))).await;
    let client = server.client;
    let seen = ask_to_delete(client).await;
    let run = server.runs.get(&"job".into()).unwrap();
    client.post("/v1/runs/job/cancel", json!({})).await.is(200);
    run.outcome().await;
    assert_eq!(client.delete("/v1/runs/job").await.status, 204);

    let current = ask_to_delete(client).await;
    let effect = |id: &str| id.rsplit_once(':').unwrap().0.to_owned();
    assert_eq!(effect(&seen), effect(&current));
    for decision in ["allow", "deny"] {
        let path = format!("/v1/runs/job/asks/{seen}");
        let late = client.post(&path, json!({"decision": decision})).await;
        late.assert_error(409, "not_asked");
    }
    let status = client.get("/v1/runs/job").await.is(200);
    assert_eq!(
        (&status["state"], &status["asks"][0]["id"]),
        (&json!("waiting"), &json!(current))
    );
    let path = format!("/v1/runs/job/asks/{current}");
    client
        .post(&path, json!({"decision": "allow"}))
        .await
        .is(200);
    let run = server.runs.get(&"job".into()).unwrap();
    assert_eq!(run.outcome().await.ending().unwrap().text, "Done.");
    server.stop().await;
}

#[tokio::test]
async fn long_and_large_arguments_are_marked_in_lists_and_complete_for_their_run() {
    let (long, number) = ("a".repeat(70_000), 9_007_199_254_740_993_u64);
    let args = json!({"path": long, "account": number});
    let model = ScriptedModel::new()
        .call("delete", args.clone())
        .reply("Done.");
    let server = Server::new(Runs::new(agent(model, &MemoryJournal::new()))).await;
    let client = server.client;
    let id = ask_to_delete(client).await;
    let listed = client.get("/v1/asks").await.is(200)["asks"][0].clone();
    assert_eq!(listed["truncated"], true);
    assert!(listed["call"]["args"].as_str().unwrap().len() <= 64 << 10);
    let complete = client.get("/v1/runs/job/asks").await.is(200)["asks"][0].clone();
    assert_eq!((&complete["id"], &listed["id"]), (&json!(id), &json!(id)));
    assert_eq!(complete["call"]["args"], args);
    assert_eq!(complete["truncated"], Value::Null);
    let text = complete["args_text"].as_str().unwrap();
    assert!(text.contains("9007199254740993"), "{}", &text[..100]);
    server.stop().await;
}

#[tokio::test]
async fn run_can_be_paused_messaged_resumed_and_cancelled() {
    let (held, permits) = super::support::HeldTool::new();
    let journal = MemoryJournal::new();
    let model = ScriptedModel::new()
        .call("hold", json!({}))
        .call("hold", json!({}))
        .reply("Done.");
    let agent = agent(model, &journal)
        .to_builder()
        .tool(held)
        .build()
        .unwrap();
    let server = Server::new(Runs::new(agent)).await;
    let client = server.client;
    let id = start(client, "Hold.").await;
    let run = format!("/v1/runs/{id}");
    let mut events = client.events(&format!("{run}/events"), None).await;
    events.until("tool_started").await;
    client
        .post(&format!("{run}/pause"), json!({}))
        .await
        .is(200);
    assert_eq!(client.get(&run).await.is(200)["paused"], true);
    client
        .post(&format!("{run}/message"), json!({"text": "Hurry."}))
        .await
        .is(200);
    permits.add_permits(1);
    let told = events.until("tool_finished").await;
    let names: Vec<&str> = told
        .iter()
        .map(|event| &*event.name)
        .filter(|name| *name != "phase")
        .collect();
    assert_eq!(names, ["paused", "said", "tool_finished"]);
    client
        .ask("POST", &format!("{run}/resume"), &[], None)
        .await
        .is(200);
    assert_eq!(client.get(&run).await.is(200)["paused"], false);
    events.until("tool_started").await;
    client
        .post(&format!("{run}/cancel"), json!({"reason": "enough"}))
        .await
        .is(200);
    let told = events.rest().await;
    assert_eq!(
        told.last().unwrap().data["status"],
        json!({"cancelled": {"reason": "enough"}})
    );
    for command in ["pause", "resume", "cancel"] {
        client
            .post(&format!("{run}/{command}"), json!({}))
            .await
            .assert_error(409, "not_running");
    }
    client
        .post(&format!("{run}/message"), json!({"text": "x"}))
        .await
        .assert_error(409, "not_running");
    assert_eq!(
        client.get(&run).await.is(200)["ending"]["why"],
        "cancelled: enough"
    );
    server.stop().await;
}

#[tokio::test]
async fn repeated_start_request_starts_one_run() {
    let journal = MemoryJournal::new();
    let server = Server::new(Runs::new(agent(ScriptedModel::new().reply("1"), &journal))).await;
    let client = server.client;
    let order = json!({"goal": "Count.", "id": "monday"});
    assert_eq!(
        client.post("/v1/runs", order.clone()).await.is(201)["id"],
        "monday"
    );
    assert_eq!(
        client.post("/v1/runs", order.clone()).await.is(200)["id"],
        "monday"
    );
    client
        .post("/v1/runs", json!({"goal": "Other.", "id": "monday"}))
        .await
        .assert_error(409, "run_exists");
    let by_key = async |client: Client, goal: &str, key: &str| {
        let body = json!({"goal": goal}).to_string();
        client
            .ask("POST", "/v1/runs", &[("Idempotency-Key", key)], Some(&body))
            .await
    };
    let first = by_key(client, "Count.", "abc").await.is(201);
    assert_eq!(
        by_key(client, "Count.", "abc").await.is(200)["id"],
        first["id"]
    );
    assert_ne!(
        by_key(client, "Count.", "abd").await.is(201)["id"],
        first["id"]
    );
    by_key(client, "Other.", "abc")
        .await
        .assert_error(409, "run_exists");
    let both = client
        .ask(
            "POST",
            "/v1/runs",
            &[("Idempotency-Key", "k")],
            Some(&order.to_string()),
        )
        .await;
    both.assert_error(400, "two_ids");
    server.stop().await;

    // Another process reads the runs from the journal.
    let server = Server::new(Runs::new(agent(ScriptedModel::new().reply("1"), &journal))).await;
    assert_eq!(
        by_key(server.client, "Count.", "abc").await.is(200)["id"],
        first["id"]
    );
    by_key(server.client, "Other.", "abc")
        .await
        .assert_error(409, "run_exists");
    assert_eq!(
        server.client.post("/v1/runs", order).await.is(200)["state"],
        "answered"
    );
    server.stop().await;
}

#[tokio::test]
async fn concurrent_requests_with_one_key_start_one_run() {
    let server = Server::new(Runs::new(agent(
        ScriptedModel::new().reply("1"),
        &MemoryJournal::new(),
    )))
    .await;
    let mut asked = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let client = server.client;
        asked.spawn(async move {
            client
                .post("/v1/runs", json!({"goal": "Count.", "id": "one"}))
                .await
        });
    }
    let mut statuses: Vec<u16> = asked
        .join_all()
        .await
        .into_iter()
        .map(|answer| answer.status)
        .collect();
    statuses.sort_unstable();
    assert_eq!(
        (
            statuses.iter().filter(|status| **status == 201).count(),
            statuses.last()
        ),
        (1, Some(&201))
    );
    assert_eq!(statuses[0], 200);
    let runs = server.client.get("/v1/runs").await.is(200);
    assert_eq!(runs["runs"].as_array().map(Vec::len), Some(1));
    server.stop().await;
}

#[tokio::test]
async fn runs_can_be_listed_by_page_and_removed() {
    for keeps in [true, false] {
        let journal = MemoryJournal::new();
        let mut agent = agent(ScriptedModel::new().reply("1"), &journal);
        if !keeps {
            agent = agent
                .to_builder()
                .runtime(levity_runtime::Runtime::new())
                .build()
                .unwrap();
        }
        let server = Server::new(Runs::new(agent)).await;
        let client = server.client;
        for number in 0..7 {
            let run = client
                .post(
                    "/v1/runs",
                    json!({"goal": "Count.", "id": format!("r{number}")}),
                )
                .await
                .is(201);
            server
                .runs
                .get(&run["id"].as_str().unwrap().into())
                .unwrap()
                .outcome()
                .await;
        }
        let (mut found, mut path) = (Vec::new(), "/v1/runs?limit=2".to_owned());
        loop {
            let page = client.get(&path).await.is(200);
            found.extend(
                page["runs"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .map(|run| run["id"].as_str().unwrap().to_owned()),
            );
            let Value::String(next) = &page["next"] else {
                break;
            };
            path = format!("/v1/runs?limit=2&cursor={next}");
        }
        found.sort();
        assert_eq!(
            found,
            (0..7)
                .map(|number| format!("r{number}"))
                .collect::<Vec<_>>()
        );
        assert_eq!(
            client.get("/v1/runs?state=open").await.is(200)["runs"],
            json!([])
        );
        let all = client
            .get("/v1/runs?state=answered&roots=0&since=0")
            .await
            .is(200);
        assert_eq!(all["runs"].as_array().map(Vec::len), Some(7));
        assert_eq!(
            client.get("/v1/runs?before=1").await.is(200)["runs"],
            json!([])
        );
        for wrong in [
            "limit=0",
            "limit=501",
            "limit=x",
            "cursor=x",
            "state=odd",
            "roots=2",
            "odd=1",
            "limit=1&limit=2",
        ] {
            client
                .get(&format!("/v1/runs?{wrong}"))
                .await
                .assert_error(400, "bad_query");
        }
        // If every run is audited, the run is retained in any case.
        match server.runs.runtime().journal().keeps() {
            true => {
                client.delete("/v1/runs/r3").await.is(204);
                client.get("/v1/runs/r3").await.assert_error(404, "no_run");
                client
                    .delete("/v1/runs/r3")
                    .await
                    .assert_error(404, "no_run");
            }
            false => client
                .delete("/v1/runs/r3")
                .await
                .assert_error(409, "not_kept"),
        }
        server.stop().await;
    }
}

#[tokio::test]
async fn start_without_waiting_respects_the_run_limit() {
    let (held, permits) = super::support::HeldTool::new();
    let model = ScriptedModel::new().call("hold", json!({})).reply("Done.");
    let agent = agent(model, &MemoryJournal::new())
        .to_builder()
        .tool(held)
        .build()
        .unwrap();
    let server = Server::new(Runs::new(agent).max_runs(2)).await;
    let client = server.client;
    let first = client
        .post("/v1/runs?wait=0", json!({"goal": "Hold."}))
        .await
        .is(202);
    client
        .post("/v1/runs?wait=1", json!({"goal": "Hold."}))
        .await
        .is(201);
    let full = client.post("/v1/runs", json!({"goal": "Hold."})).await;
    assert!(full.has("retry-after: 1"));
    full.assert_error(429, "full");
    let id = first["id"].as_str().unwrap();
    client
        .delete(&format!("/v1/runs/{id}"))
        .await
        .assert_error(409, "not_ended");
    permits.add_permits(2);
    for run in server.runs.in_memory() {
        run.outcome().await;
    }
    client
        .post("/v1/runs?wait=0", json!({"goal": "Hold."}))
        .await
        .is(202);
    server.stop().await;
}
