//! Views of runs, the inbox, the stream of a page, and forks.

use std::collections::BTreeSet;

use levity_core::{EventKind, RunId};
use levity_observe::RunView;
use levity_runtime::MemoryJournal;
use levity_serve::Runs;
use levity_serve::http::HttpApi;
use levity_test::ScriptedModel;
use serde_json::{Value, json};

use super::client::{Client, Events, Sse};
use super::support::{Server, agent};

fn model() -> ScriptedModel {
    ScriptedModel::new()
        .call("look", json!({"path": "a"}))
        .call("delete", json!({"path": "b"}))
        .reply("Done.")
}

async fn start(client: Client, id: &str) {
    let order = json!({"goal": "Tidy up.", "id": id});
    client.post("/v1/runs", order).await.is(201);
}

/// Reads a stream until an event fulfils a condition.
async fn until(events: &mut Events, wanted: impl Fn(&Sse) -> bool) -> Sse {
    loop {
        let event = events.next().await.expect("the stream goes on");
        if wanted(&event) {
            return event;
        }
    }
}

/// A page that follows a stream.
#[derive(Default)]
struct Page {
    view: Value,
    snapshots: usize,
}

impl Page {
    /// Applies an event in the way that the documentation describes.
    fn apply(&mut self, event: &Sse) {
        if event.name != "view" {
            return;
        }
        if let Some(view) = event.data.get("view") {
            self.view = view.clone();
            self.snapshots += 1;
            return;
        }
        let changes = &event.data["changes"];
        for (name, value) in changes["fields"].as_object().unwrap() {
            self.view[name] = value.clone();
        }
        let items = self.view["items"].as_array_mut().unwrap();
        let removed = changes["removed_items"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        items.retain(|item| !removed.contains(&item["id"]));
        for change in changes["items"].as_array().into_iter().flatten() {
            let id = change.get("id").unwrap_or(&change["item"]["id"]);
            let place = items.iter().position(|item| item["id"] == *id);
            match (change.get("append"), change["index"].as_u64(), place) {
                (Some(more), _, Some(at)) => {
                    let text = items[at]["text"].as_str().unwrap().to_owned();
                    items[at]["text"] = (text + more.as_str().unwrap()).into();
                }
                (None, Some(index), None) => items.insert(index as usize, change["item"].clone()),
                (None, None, Some(at)) => items[at] = change["item"].clone(),
                other => panic!("{other:?}"),
            }
        }
        let nodes = self.view["nodes"].as_array_mut().unwrap();
        for node in changes["nodes"].as_array().into_iter().flatten() {
            match nodes.iter().position(|known| known["id"] == node["id"]) {
                Some(at) => nodes[at] = node.clone(),
                None => nodes.push(node.clone()),
            }
        }
    }
}

fn kinds(view: &Value) -> Vec<&str> {
    let items = view["items"].as_array().unwrap();
    items
        .iter()
        .map(|item| item["kind"].as_str().unwrap())
        .collect()
}

#[tokio::test]
async fn view_is_the_same_live_and_from_the_journal() {
    let journal = MemoryJournal::new();
    let server = Server::new(Runs::new(agent(model(), &journal))).await;
    start(server.client, "r1").await;
    let mut events = server.client.events("/v1/runs/r1/events", None).await;
    events.until("asked").await;

    let waiting = server.client.get("/v1/runs/r1/view").await.is(200);
    assert_eq!(
        (&waiting["here"], &waiting["view"]["state"]),
        (&json!(true), &json!("waiting"))
    );
    let ask = &waiting["view"]["asks"][0];
    assert_eq!(ask["call"]["name"], "delete");
    let item = &waiting["view"]["items"].as_array().unwrap().last().unwrap()["id"];
    let prefix = format!("{}:", item.as_str().unwrap());
    assert!(ask["id"].as_str().unwrap().starts_with(&prefix), "{ask}");
    let path = format!("/v1/runs/r1/asks/{}", ask["id"].as_str().unwrap());
    server
        .client
        .post(&path, json!({"decision": "allow"}))
        .await
        .is(200);
    events.rest().await;

    let live = server.client.get("/v1/runs/r1/view").await.is(200);
    assert_eq!(
        kinds(&live["view"]),
        ["user", "call", "ask", "call", "answer"]
    );
    assert_eq!(
        (&live["here"], &live["view"]["seq"]),
        (&json!(false), &live["total"])
    );
    server.stop().await;
    let server = Server::new(Runs::new(agent(model(), &journal))).await;
    let stored = server.client.get("/v1/runs/r1/view").await.is(200);
    assert_eq!(stored, live);
    server.stop().await;
}

#[tokio::test]
async fn view_at_an_event_is_the_fold_of_the_first_events() {
    let journal = MemoryJournal::new();
    let runs = Runs::new(agent(model(), &journal));
    let server = Server::new(runs.clone()).await;
    start(server.client, "r1").await;
    let mut events = server.client.events("/v1/runs/r1/events", None).await;
    events.until("asked").await;
    let history = runs.history(&RunId::new("r1")).await.unwrap();
    for at in 0..=history.len() {
        let answer = server
            .client
            .get(&format!("/v1/runs/r1/view?at={at}"))
            .await
            .is(200);
        let expected = RunView::of(RunId::new("r1"), &history[..at]);
        assert_eq!(answer["view"], json!(expected), "{at}");
        assert_eq!(answer["total"], history.len());
    }
    let beyond = server.client.get("/v1/runs/r1/view?at=9999").await.is(200);
    assert_eq!(beyond["view"]["seq"], history.len());
    let asked = |event: &levity_core::Event| matches!(event.kind, EventKind::Asked(_));
    let place = history.iter().position(asked).unwrap() + 1;
    let marks = beyond["marks"].as_array().unwrap();
    assert!(
        marks
            .iter()
            .any(|mark| mark[0] == place && mark[2] == "asked"),
        "{marks:?}"
    );
    for bad in ["at=x", "at=-1", "other=1", "at=1&at=2"] {
        let path = format!("/v1/runs/r1/view?{bad}");
        server
            .client
            .get(&path)
            .await
            .assert_error(400, "bad_query");
    }
    server
        .client
        .get("/v1/runs/none/view")
        .await
        .assert_error(404, "no_run");
    server.stop().await;
}

#[tokio::test]
async fn inbox_contains_the_questions_of_all_runs() {
    let journal = MemoryJournal::new();
    let server = Server::new(Runs::new(agent(model(), &journal))).await;
    assert_eq!(
        server.client.get("/v1/asks").await.is(200),
        json!({"asks": [], "count": 0})
    );
    for id in ["r1", "r2"] {
        start(server.client, id).await;
        let path = format!("/v1/runs/{id}/events");
        server.client.events(&path, None).await.until("asked").await;
    }
    let inbox = server.client.get("/v1/asks").await.is(200);
    assert_eq!(inbox["count"], 2);
    let roots: Vec<_> = inbox["asks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|ask| &ask["root"])
        .collect();
    assert!(
        roots.contains(&&json!("r1")) && roots.contains(&&json!("r2")),
        "{roots:?}"
    );
    assert_eq!(inbox["asks"][0]["goal"], "Tidy up.");
    server.stop().await;

    // Another process finds the questions in the journal.
    let server = Server::new(Runs::new(agent(model(), &journal))).await;
    let stored = server.client.get("/v1/asks").await.is(200);
    assert_eq!(stored["count"], 2);
    assert_eq!(stored["asks"][0]["goal"], "Tidy up.");
    // A question keeps its id.
    let ids = |inbox: &Value| {
        let asks = inbox["asks"].as_array().unwrap().clone();
        let ids = asks.iter().map(|ask| ask["id"].to_string());
        ids.collect::<BTreeSet<_>>()
    };
    assert_eq!(ids(&stored), ids(&inbox));
    server.stop().await;
}

#[tokio::test]
async fn stream_sends_a_snapshot_and_then_changes() {
    let journal = MemoryJournal::new();
    let server = Server::new(Runs::new(agent(model(), &journal))).await;
    let client = server.client;
    start(client, "r1").await;
    let mut stream = client.events("/v1/stream?run=r1", None).await;
    let mut page = Page::default();
    let mut names = Vec::new();
    let ask = loop {
        let event = stream.next().await.unwrap();
        page.apply(&event);
        names.push(event.name.clone());
        if event.name == "asks" && event.data["count"] == 1 {
            break event.data["asks"][0].clone();
        }
    };
    assert_eq!(names[..2], ["view", "runs"], "{names:?}");
    let path = format!("/v1/runs/r1/asks/{}", ask["id"].as_str().unwrap());
    client
        .post(&path, json!({"decision": "allow"}))
        .await
        .is(200);
    let (mut answered, mut cleared) = (false, false);
    while !(answered && cleared && page.view["state"] == "ended") {
        let event = stream.next().await.unwrap();
        page.apply(&event);
        cleared |= event.name == "asks" && event.data["count"] == 0;
        let runs = event.data["runs"].as_array().cloned().unwrap_or_default();
        answered |= runs
            .iter()
            .any(|run| run["id"] == "r1" && run["state"] == "answered");
    }
    assert_eq!(page.snapshots, 1);
    assert_eq!(
        page.view,
        client.get("/v1/runs/r1/view").await.is(200)["view"]
    );

    // A page that reconnects gets the same view, and a page without a run gets the lists.
    let mut again = client.events("/v1/stream?run=r1", None).await;
    let snapshot = until(&mut again, |event| event.name == "view").await;
    assert_eq!(snapshot.data["view"], page.view);
    let mut lists = client.events("/v1/stream", None).await;
    let runs = until(&mut lists, |event| event.name == "runs").await;
    assert_eq!(
        (&runs.data["reset"], &runs.data["runs"][0]["id"]),
        (&json!(true), &json!("r1"))
    );
    start(client, "r2").await;
    let new = until(&mut lists, |event| event.name == "runs").await;
    assert_eq!(
        (&new.data["reset"], &new.data["runs"][0]["id"]),
        (&json!(false), &json!("r2"))
    );
    server.stop().await;
}

#[tokio::test]
async fn stream_counts_as_a_reader_and_checks_its_run() {
    let journal = MemoryJournal::new();
    let runs = Runs::new(agent(model(), &journal));
    let server = Server::with(runs, |api: HttpApi| api.readers(1)).await;
    let client = server.client;
    client
        .get("/v1/stream?run=none")
        .await
        .assert_error(404, "no_run");
    client
        .get("/v1/stream?other=1")
        .await
        .assert_error(400, "bad_query");
    let mut first = client.events("/v1/stream", None).await;
    until(&mut first, |event| event.name == "runs").await;
    client
        .get("/v1/stream")
        .await
        .assert_error(503, "too_many_readers");
    server.stop().await;
}

#[tokio::test]
async fn stream_follows_a_run_that_is_resumed() {
    let journal = MemoryJournal::new();
    let server = Server::new(Runs::new(agent(model(), &journal))).await;
    start(server.client, "r1").await;
    server
        .client
        .events("/v1/runs/r1/events", None)
        .await
        .until("asked")
        .await;
    server.stop().await;

    let runs = Runs::new(agent(model(), &journal));
    let server = Server::new(runs.clone()).await;
    let client = server.client;
    let mut stream = client.events("/v1/stream?run=r1", None).await;
    let mut page = Page::default();
    let mut stored = until(&mut stream, |event| event.name == "view").await;
    page.apply(&stored);
    assert_eq!(
        (&stored.data["here"], &page.view["state"]),
        (&json!(false), &json!("waiting"))
    );
    let ask = page.view["asks"][0]["id"].as_str().unwrap().to_owned();
    client.post("/v1/runs/r1/resume", json!({})).await.is(202);
    client
        .post(
            &format!("/v1/runs/r1/asks/{ask}"),
            json!({"decision": "allow"}),
        )
        .await
        .is(200);
    while page.view["state"] != "ended" {
        stored = stream.next().await.unwrap();
        page.apply(&stored);
    }
    assert_eq!(page.snapshots, 2);
    let whole = RunView::of(
        RunId::new("r1"),
        &runs.history(&RunId::new("r1")).await.unwrap(),
    );
    assert_eq!(kinds(&page.view), kinds(&json!(whole)));
    server.stop().await;
}

#[tokio::test]
async fn run_can_be_forked_after_a_record() {
    let journal = MemoryJournal::new();
    let script = ScriptedModel::new()
        .call("look", json!({"path": "a"}))
        .reply("Seen.");
    let runs = Runs::new(agent(script, &journal));
    let server = Server::new(runs.clone()).await;
    let client = server.client;
    start(client, "r1").await;
    client.events("/v1/runs/r1/events", None).await.rest().await;

    let fork = client
        .post("/v1/runs/r1/fork", json!({"id": "f1"}))
        .await
        .is(201);
    assert_eq!(
        (&fork["id"], &fork["goal"]),
        (&json!("f1"), &json!("Tidy up."))
    );
    client.events("/v1/runs/f1/events", None).await.rest().await;
    let view = client.get("/v1/runs/f1/view").await.is(200);
    assert_eq!(kinds(&view["view"]), ["user", "call", "answer"]);
    assert_eq!(view["view"]["run"], "f1");

    let history = runs.history(&RunId::new("r1")).await.unwrap();
    let goal = history
        .iter()
        .find(|event| event.kind.name() == "goal")
        .unwrap();
    let order = json!({"id": "f2", "after": goal.seq, "message": "Be brief."});
    client.post("/v1/runs/r1/fork", order).await.is(201);
    client.events("/v1/runs/f2/events", None).await.rest().await;
    let view = client.get("/v1/runs/f2/view").await.is(200);
    assert!(
        kinds(&view["view"])
            .iter()
            .filter(|kind| **kind == "user")
            .count()
            == 2,
        "{view}"
    );

    for (order, status, code) in [
        (json!({"id": "f1"}), 409, "run_exists"),
        (json!({"model": "other"}), 422, "unknown_model"),
        (json!({"id": "a.b"}), 422, "bad_id"),
        (json!({"other": 1}), 422, "invalid"),
        (json!({"after": 9999}), 409, "cannot_fork"),
    ] {
        client
            .post("/v1/runs/r1/fork", order)
            .await
            .assert_error(status, code);
    }
    client
        .post("/v1/runs/none/fork", json!({}))
        .await
        .assert_error(404, "no_run");
    server.stop().await;
}

#[tokio::test]
async fn artifacts_and_costs_of_stored_runs_can_be_read() {
    let journal = MemoryJournal::new();
    let server = Server::new(Runs::new(agent(
        ScriptedModel::new().reply("Done."),
        &journal,
    )))
    .await;
    let client = server.client;
    start(client, "r1").await;
    client.events("/v1/runs/r1/events", None).await.rest().await;
    let files = client.get("/v1/runs/r1/artifacts").await.is(200);
    assert_eq!(files, json!({"artifacts": []}));
    client
        .get("/v1/runs/none/artifacts")
        .await
        .assert_error(404, "no_run");

    for by in ["", "?by=day", "?by=model", "?by=agent&since=0"] {
        let costs = client.get(&format!("/v1/costs{by}")).await.is(200);
        assert_eq!(costs["costs"].as_array().unwrap().len(), 1, "{by}");
        assert_eq!(
            (&costs["total"]["model_calls"], &costs["truncated"]),
            (&json!(1), &json!(false))
        );
        assert!(
            costs["total"]["usage"]["tokens"].as_u64().unwrap() > 0,
            "{costs}"
        );
    }
    let by_agent = client.get("/v1/costs?by=agent").await.is(200);
    assert_eq!(by_agent["costs"][0]["group"], "agent");
    let none = client.get("/v1/costs?before=1").await.is(200);
    assert_eq!(none["costs"], json!([]));
    client
        .get("/v1/costs?by=week")
        .await
        .assert_error(400, "bad_query");
    server.stop().await;
}

#[tokio::test]
async fn stream_without_changes_gets_heartbeats() {
    let runs = Runs::new(agent(model(), &MemoryJournal::new()));
    let time = std::time::Duration::from_millis(20);
    let server = Server::with(runs, |api: HttpApi| api.heartbeat(time)).await;
    let mut stream = server.client.events("/v1/stream", None).await;
    stream.until("asks").await;
    for _ in 0..2 {
        let mut line = String::new();
        while line != ":" {
            line = stream.line().await.unwrap();
        }
    }
    server.stop().await;
}
