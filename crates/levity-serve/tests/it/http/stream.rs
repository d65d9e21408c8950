//! Interrupted and resumed streams: no event is lost or repeated.

use levity_core::{Journal as _, RunId};
use levity_loop::Agent;
use levity_runtime::{MemoryJournal, Runtime};
use levity_serve::Runs;
use levity_test::{ScriptedModel, Turn};
use serde_json::{Value, json};

use super::client::{Client, Sse};
use super::support::{HeldTool, Server, agent};

/// Returns the durable events of a stream, without the final one.
fn durable(events: &[Sse]) -> Vec<Value> {
    events
        .iter()
        .filter(|event| event.id.is_some())
        .map(|event| event.data.clone())
        .collect()
}

/// Returns a script that calls a tool this many times.
fn calls(count: usize) -> ScriptedModel {
    let call = |model: ScriptedModel, n: usize| model.call("look", json!({"path": n.to_string()}));
    (0..count).fold(ScriptedModel::new(), call).reply("Done.")
}

async fn ended(server: &Server, goal: &str, id: &str) -> String {
    server
        .client
        .post("/v1/runs", json!({"goal": goal, "id": id}))
        .await
        .is(201);
    server.runs.get(&RunId::from(id)).unwrap().outcome().await;
    format!("/v1/runs/{id}/events")
}

#[tokio::test]
async fn stream_resumes_after_any_of_its_events() {
    let server = Server::new(Runs::new(agent(calls(3), &MemoryJournal::new()))).await;
    let path = ended(&server, "Look.", "r").await;
    let whole = server.client.events(&path, None).await.rest().await;
    for (place, event) in whole.iter().enumerate() {
        let Some(id) = &event.id else { continue };
        let rest = server.client.events(&path, Some(id)).await.rest().await;
        assert_eq!(rest, whole[place + 1..], "behind {id}");
        let rest = server
            .client
            .events(&format!("{path}?after={id}"), None)
            .await
            .rest()
            .await;
        assert_eq!(rest, whole[place + 1..], "behind {id}");
    }
    // The header takes precedence over the query.
    let last = whole.iter().rev().find_map(|event| event.id.as_deref());
    let rest = server
        .client
        .events(&format!("{path}?after=1"), last)
        .await
        .rest()
        .await;
    assert_eq!(
        rest.iter().map(|event| &*event.name).collect::<Vec<_>>(),
        ["end"]
    );
    for unknown in ["9999", "x", "1~other", "~", "-1", "1%20"] {
        let rest = server
            .client
            .events(&path, Some(unknown))
            .await
            .rest()
            .await;
        assert_eq!(
            (rest[0].name.as_str(), &rest[1..]),
            ("reset", &*whole),
            "{unknown}"
        );
    }
    server.stop().await;
}

#[tokio::test]
async fn ended_run_is_streamed_by_the_next_process() {
    let journal = MemoryJournal::new();
    let server = Server::new(Runs::new(agent(calls(2), &journal))).await;
    let path = ended(&server, "Look.", "r").await;
    let whole = server
        .client
        .events(&format!("{path}?transient=0"), None)
        .await
        .rest()
        .await;
    server.stop().await;
    let server = Server::new(Runs::new(agent(calls(2), &journal))).await;
    assert_eq!(server.client.events(&path, None).await.rest().await, whole);
    let rest = server
        .client
        .events(&path, whole[4].id.as_deref())
        .await
        .rest()
        .await;
    assert_eq!(rest, whole[5..]);
    server
        .client
        .get("/v1/runs/nobody/events")
        .await
        .assert_error(404, "no_run");
    server.stop().await;
}

#[tokio::test]
async fn stream_resumes_after_a_restart() {
    let journal = MemoryJournal::new();
    let build = |held: HeldTool| {
        let model = ScriptedModel::new()
            .call("look", json!({}))
            .call("hold", json!({}))
            .reply("Done.");
        Runs::new(
            agent(model, &journal)
                .to_builder()
                .tool(held)
                .build()
                .unwrap(),
        )
    };
    let (held, _never) = HeldTool::new();
    let server = Server::new(build(held)).await;
    server
        .client
        .post("/v1/runs", json!({"goal": "Hold.", "id": "r"}))
        .await
        .is(201);
    let mut events = server
        .client
        .events("/v1/runs/r/events?transient=0", None)
        .await;
    let mut told = Vec::new();
    while told
        .iter()
        .filter(|event: &&Sse| event.name == "tool_started")
        .count()
        < 2
    {
        told.push(events.next().await.unwrap());
    }
    server.stop().await;
    assert_eq!(events.rest().await, []);
    // The server represents a process: nothing of it remains.
    while journal.open(&RunId::from("r")).await.is_err() {
        tokio::task::yield_now().await;
    }

    let (held, permits) = HeldTool::new();
    let runs = build(held);
    assert!(runs.resume_all().await.unwrap().is_empty());
    let server = Server::new(runs).await;
    let mut events = server
        .client
        .events(
            "/v1/runs/r/events?transient=0",
            told.last().unwrap().id.as_deref(),
        )
        .await;
    permits.add_permits(1);
    let rest = events.rest().await;
    assert!(rest.iter().all(|event| event.name != "reset"), "{rest:?}");
    told.extend(rest);
    let whole = server
        .client
        .events("/v1/runs/r/events?transient=0", None)
        .await
        .rest()
        .await;
    assert_eq!(told, whole);
    assert_eq!(
        whole
            .iter()
            .filter(|event| event.name == "run_ended")
            .count(),
        1
    );
    server.stop().await;
}

/// Returns an agent that delegates work to another one.
fn lead(journal: &MemoryJournal) -> Agent {
    let helper = Agent::builder(ScriptedModel::new().reply("helped").by_history())
        .build()
        .unwrap();
    Agent::builder(
        ScriptedModel::new()
            .call("helper", json!({"task": "help"}))
            .reply("Done.")
            .by_history(),
    )
    .agent("helper", "Helps.", helper)
    .runtime(Runtime::new().with_journal(journal.clone()))
    .build()
    .unwrap()
}

#[tokio::test]
async fn events_of_child_runs_are_included_on_request() {
    let journal = MemoryJournal::new();
    let server = Server::new(Runs::new(lead(&journal))).await;
    let path = ended(&server, "Lead.", "r").await;
    let whole = server.client.events(&path, None).await.rest().await;
    let below = |event: &&Sse| {
        event.data["run"]
            .as_str()
            .is_some_and(|run| run.starts_with("r."))
    };
    let child = whole.iter().find(below).unwrap().data["run"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(
        whole
            .iter()
            .filter(below)
            .any(|event| event.name == "run_ended")
    );
    let own = server
        .client
        .events(&format!("{path}?children=0"), None)
        .await
        .rest()
        .await;
    assert_eq!(
        own,
        whole
            .iter()
            .filter(|event| !below(event))
            .cloned()
            .collect::<Vec<_>>()
    );
    let told = server
        .client
        .events(&format!("/v1/runs/{child}/events"), None)
        .await
        .rest()
        .await;
    assert_eq!(
        told[..told.len() - 1],
        whole.iter().filter(below).cloned().collect::<Vec<_>>()
    );
    let shown = server
        .client
        .get(&format!("/v1/runs/{child}"))
        .await
        .is(200);
    assert_eq!(
        (&shown["child"], &shown["state"], &shown["answer"]),
        (&json!(true), &json!("answered"), &json!("helped"))
    );
    let all = server.client.get("/v1/runs?roots=0").await.is(200);
    assert_eq!(all["runs"].as_array().map(Vec::len), Some(2));
    server
        .client
        .delete(&format!("/v1/runs/{child}"))
        .await
        .assert_error(409, "child");
    server.stop().await;

    // The order among runs is specific to the first process, so ids after a child event are reset
    // in the second.
    let server = Server::new(Runs::new(lead(&journal))).await;
    let mixed = whole
        .iter()
        .rev()
        .find_map(|event| event.id.as_deref())
        .unwrap();
    assert!(mixed.contains('~'));
    let again = server.client.events(&path, Some(mixed)).await.rest().await;
    assert_eq!(again[0].name, "reset");
    assert_eq!(durable(&again), durable(&own));
    // Before the child event, ids are the same in every process.
    let rest = server.client.events(&path, Some("2")).await.rest().await;
    assert_eq!(durable(&rest), durable(&own)[2..]);
    // Ids from the journal are valid in every process.
    let kept = again
        .iter()
        .rev()
        .find_map(|event| event.id.as_deref())
        .unwrap();
    let rest = server.client.events(&path, Some(kept)).await.rest().await;
    assert_eq!(
        rest.iter().map(|event| &*event.name).collect::<Vec<_>>(),
        ["end"]
    );
    server.client.delete("/v1/runs/r").await.is(204);
    assert_eq!(
        server.client.get("/v1/runs?roots=0").await.is(200)["runs"],
        json!([])
    );
    server.stop().await;
}

/// Reads a run over many short connections. Each of them breaks somewhere, and resumes after the
/// last received event.
async fn by_pieces(client: Client, path: String, mut seed: u64) -> Vec<Sse> {
    let mut told: Vec<Sse> = Vec::new();
    loop {
        let last = told.iter().rev().find_map(|event| event.id.clone());
        let mut events = client.events(&path, last.as_deref()).await;
        // A linear congruential generator is random enough, and makes the test repeatable.
        seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        for _ in 0..=(seed >> 33) % 23 {
            match events.next().await {
                Some(event) if event.name == "end" => return told,
                Some(event) => told.push(event),
                None => break,
            }
        }
    }
}

#[tokio::test]
async fn interrupted_reader_gets_each_event_exactly_once() {
    for seed in 0..8 {
        let (held, permits) = HeldTool::new();
        let hold = |model: ScriptedModel, n: usize| match n % 10 {
            9 => model.call("hold", json!({})),
            _ => model.turn(
                Turn::new()
                    .call("look", json!({"n": n}))
                    .call("look", json!({"n": n})),
            ),
        };
        let model = (0..60).fold(ScriptedModel::new(), hold).reply("Done.");
        let agent = agent(model, &MemoryJournal::new())
            .to_builder()
            .tool(held)
            .build()
            .unwrap();
        let server = Server::new(Runs::new(agent)).await;
        server
            .client
            .post("/v1/runs", json!({"goal": "Go.", "id": "r"}))
            .await
            .is(201);
        let path = "/v1/runs/r/events?transient=0".to_owned();
        let mut readers = tokio::task::JoinSet::new();
        for reader in 0..4 {
            readers.spawn(by_pieces(server.client, path.clone(), seed * 31 + reader));
        }
        let mut watch = server.client.events(&path, None).await;
        // The run pauses now and then, so that readers also wait at its end.
        for _ in 0..6 {
            loop {
                let events = watch.until("tool_started").await;
                let call = &events.last().unwrap().data["kind"]["tool_started"]["call"];
                if call["name"] == "hold" {
                    break;
                }
            }
            permits.add_permits(1);
        }
        let told = readers.join_all().await;
        let whole = server.client.events(&path, None).await.rest().await;
        assert!(whole.len() > 300);
        for events in told {
            assert_eq!(events, whole[..whole.len() - 1], "seed {seed}");
        }
        server.stop().await;
    }
}

#[tokio::test]
async fn waiting_reader_gets_heartbeats_until_the_server_stops() {
    let (held, _permits) = HeldTool::new();
    let model = ScriptedModel::new().call("hold", json!({})).reply("Done.");
    let agent = agent(model, &MemoryJournal::new())
        .to_builder()
        .tool(held)
        .build()
        .unwrap();
    let beat = std::time::Duration::from_millis(20);
    let server = Server::with(Runs::new(agent), |api| api.heartbeat(beat).readers(1)).await;
    server
        .client
        .post("/v1/runs", json!({"goal": "Hold.", "id": "r"}))
        .await
        .is(201);
    let mut events = server.client.events("/v1/runs/r/events", None).await;
    events.until("tool_started").await;
    assert!(events.comment().await);
    let full = server.client.get("/v1/runs/r/events").await;
    assert!(full.has("retry-after: 1"));
    full.assert_error(503, "too_many_readers");
    // A reader does not delay the shutdown of the server, and gets no end of the run.
    server.stop().await;
    assert_eq!(events.rest().await, []);
}
