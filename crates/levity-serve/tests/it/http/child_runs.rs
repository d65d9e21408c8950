//! Runs with child runs: a swarm and a team.

use std::sync::Arc;
use std::time::Duration;

use levity_core::{
    Hints, Journal, JournalError, OpenRun, Record, RunId, RunQuery, RunRequest, RunState,
    RunSummary, ToolError, ToolOutput,
};
use levity_dag::{Plan, PlannerInput, Step, Team, TeamPlanner};
use levity_loop::Agent;
use levity_runtime::{MemoryJournal, Runtime, SqliteJournal};
use levity_serve::Runs;
use levity_swarm::{Router, Swarm, Worker};
use levity_test::{RecordingTool, ScriptedModel};
use serde_json::{Value, json};
use tokio::sync::{Notify, Semaphore};

use super::client::{Client, Events, Sse};
use super::pending_commands::HeldJournal;
use super::support::{HeldTool, Server};

/// Returns a model that calls a blocking tool, and then reports that the drawing is done.
fn artist(held: HeldTool) -> Agent {
    let model = ScriptedModel::new()
        .call("hold", json!({}))
        .reply(r#"{"boat": "drawn"}"#)
        .by_history();
    Agent::builder(model).tool(held).build().unwrap()
}

fn swarm(journal: impl Journal + 'static) -> (Runs, Arc<Semaphore>) {
    let (held, permits) = HeldTool::new();
    let plan = r#"{"delegations": [{"id": "draw", "worker": "artist", "task": "Draw a boat."}]}"#;
    let router = ScriptedModel::new()
        .reply(plan)
        .reply("There it is.")
        .by_history();
    let swarm =
        Swarm::builder(Router::new(router)).worker(Worker::new("artist", "Draws.", artist(held)));
    (
        Runs::new(
            swarm
                .runtime(Runtime::new().with_journal(journal))
                .build()
                .unwrap(),
        ),
        permits,
    )
}

struct DrawingPlanner;

#[async_trait::async_trait]
impl TeamPlanner for DrawingPlanner {
    async fn plan(&self, _: &PlannerInput) -> Result<Value, ToolError> {
        let plan = Plan::new().step(
            Step::new("draw", "Artist")
                .prompt("Draw a boat.")
                .writes(["boat"]),
        );
        serde_json::to_value(plan).map_err(|error| ToolError::failed(error.to_string()))
    }
}

fn team(journal: impl Journal + 'static) -> (Runs, Arc<Semaphore>) {
    let (held, permits) = HeldTool::new();
    let team = Team::builder()
        .agent("Artist", "draws", artist(held))
        .planner(DrawingPlanner);
    (
        Runs::new(
            team.runtime(Runtime::new().with_journal(journal))
                .build()
                .unwrap(),
        ),
        permits,
    )
}

/// Starts a run, and follows it until its child run works. Returns the id of the child.
async fn at_work(client: Client) -> (Events, String) {
    client
        .post("/v1/runs", json!({"goal": "I need a boat.", "id": "r"}))
        .await
        .is(201);
    let mut events = client.events("/v1/runs/r/events?transient=0", None).await;
    loop {
        // A team's planner works first, in the run itself.
        let told = events.until("tool_started").await;
        let at_work = told.last().unwrap().data["run"].as_str().unwrap();
        if at_work != "r" {
            return (events, at_work.to_owned());
        }
    }
}

/// Returns the runs that emitted events of this name.
fn runs_with_event<'a>(told: &'a [Sse], name: &str) -> Vec<&'a str> {
    let named = told.iter().filter(|event| event.name == name);
    named
        .filter_map(|event| event.data["run"].as_str())
        .collect()
}

async fn child_run_is_visible_and_resumes_with_its_parent((runs, permits): (Runs, Arc<Semaphore>)) {
    let server = Server::new(runs).await;
    let client = server.client;
    let (mut events, child) = at_work(client).await;
    let roots = client.get("/v1/runs").await.is(200);
    assert_eq!(
        (
            roots["runs"].as_array().unwrap().len(),
            &roots["runs"][0]["id"]
        ),
        (1, &json!("r"))
    );
    let all = client.get("/v1/runs?roots=0").await.is(200);
    let below = all["runs"]
        .as_array()
        .unwrap()
        .iter()
        .find(|run| run["id"] == child.as_str())
        .unwrap();
    assert_eq!(
        (&below["child"], &below["state"]),
        (&json!(true), &json!("open"))
    );
    let shown = client.get(&format!("/v1/runs/{child}")).await.is(200);
    assert_eq!(
        (&shown["child"], &shown["model_calls"]),
        (&json!(true), &json!(1))
    );
    client
        .post(
            &format!("/v1/runs/{child}/message"),
            json!({"text": "A red one."}),
        )
        .await
        .is(200);
    client.post("/v1/runs/r/pause", json!({})).await.is(200);
    assert_eq!(
        client.get(&format!("/v1/runs/{child}")).await.is(200)["paused"],
        true
    );
    client.post("/v1/runs/r/resume", json!({})).await.is(200);
    permits.add_permits(1);
    let told = events.rest().await;
    assert_eq!(runs_with_event(&told, "said"), [&*child]);
    for name in ["paused", "resumed"] {
        assert_eq!(runs_with_event(&told, name), ["r", &*child], "{name}");
    }
    assert_eq!(told.last().unwrap().data["state"], "answered");
    let own = client
        .events(&format!("/v1/runs/{child}/events"), None)
        .await
        .rest()
        .await;
    assert_eq!(runs_with_event(&own, "run_ended"), [&*child]);
    assert!(
        own.iter()
            .all(|event| event.name == "end" || event.data["run"] == child.as_str())
    );
    let usage = client.get("/v1/runs/r").await.is(200)["stats"].clone();
    assert!(usage["model_calls"].as_u64().is_some(), "{usage}");
    server.stop().await;
}

async fn child_run_ends_with_its_parent((runs, _permits): (Runs, Arc<Semaphore>)) {
    let server = Server::new(runs).await;
    let client = server.client;
    let (mut events, child) = at_work(client).await;
    client
        .post("/v1/runs/r/cancel", json!({"reason": "no boat"}))
        .await
        .is(200);
    let told = events.rest().await;
    assert_eq!(runs_with_event(&told, "run_ended"), [&*child, "r"]);
    assert_eq!(
        told.last().unwrap().data["status"],
        json!({"cancelled": {"reason": "no boat"}})
    );
    let shown = client.get(&format!("/v1/runs/{child}")).await.is(200);
    assert_eq!(shown["state"], json!(RunState::Failed));
    client
        .post(&format!("/v1/runs/{child}/pause"), json!({}))
        .await
        .assert_error(409, "not_running");
    assert_eq!(
        client.get("/v1/runs?roots=0&state=open").await.is(200)["runs"],
        json!([])
    );
    server.stop().await;
}

/// The client that pauses the run does not wait until the child has received it, and the child
/// receives it nevertheless.
async fn check_pause_reaches_child_without_waiting_client(
    journal: HeldJournal,
    (runs, permits): (Runs, Arc<Semaphore>),
) {
    let server = Server::with(runs, |api| api.command_timeout(Duration::from_millis(100))).await;
    let (mut events, child) = at_work(server.client).await;
    let stuck = journal.hold().await;
    assert_eq!(
        server
            .client
            .post("/v1/runs/r/pause", json!({}))
            .await
            .is(202)["delivery"],
        "waiting"
    );
    drop(stuck);
    let mut told = events.until("paused").await;
    told.extend(events.until("paused").await);
    assert_eq!(runs_with_event(&told, "paused"), ["r", &*child]);
    server.client.post("/v1/runs/r/resume", json!({})).await;
    permits.add_permits(1);
    assert_eq!(
        events.rest().await.last().unwrap().data["state"],
        "answered"
    );
    server.stop().await;
}

#[tokio::test]
async fn pause_reaches_swarm_child_without_waiting_client() {
    child_run_is_visible_and_resumes_with_its_parent(swarm(MemoryJournal::new())).await;
    child_run_ends_with_its_parent(swarm(MemoryJournal::new())).await;
    let journal = HeldJournal::default();
    check_pause_reaches_child_without_waiting_client(journal.clone(), swarm(journal)).await;
}

#[tokio::test]
async fn pause_reaches_team_child_without_waiting_client() {
    child_run_is_visible_and_resumes_with_its_parent(team(MemoryJournal::new())).await;
    child_run_ends_with_its_parent(team(MemoryJournal::new())).await;
    let journal = HeldJournal::default();
    check_pause_reaches_child_without_waiting_client(journal.clone(), team(journal)).await;
}

/// If another process drives them, the command is posted to the run and its child runs.
#[tokio::test]
async fn pause_reaches_child_of_another_process() {
    let folder = tempfile::tempdir().unwrap();
    let open = || SqliteJournal::new(folder.path().join("runs.db")).unwrap();
    let (there, permits) = swarm(open());
    let driving = Server::new(there).await;
    let (mut events, child) = at_work(driving.client).await;
    let server = Server::new(swarm(open()).0).await;
    for (command, name) in [("pause", "paused"), ("resume", "resumed")] {
        let told = server
            .client
            .post(&format!("/v1/runs/r/{command}"), json!({}))
            .await
            .is(202);
        assert_eq!(told["delivery"], "posted");
        let mut told = events.until(name).await;
        told.extend(events.until(name).await);
        let mut runs = runs_with_event(&told, name);
        runs.sort_unstable();
        assert_eq!(runs, ["r", &*child], "{name}");
    }
    permits.add_permits(1);
    assert_eq!(
        events.rest().await.last().unwrap().data["state"],
        "answered"
    );
    server.stop().await;
    driving.stop().await;
}

/// A journal that accepts posts only when the test allows it.
struct SlowPosts {
    inner: SqliteJournal,
    started: Arc<Notify>,
    gate: Arc<Semaphore>,
}

#[async_trait::async_trait]
impl Journal for SlowPosts {
    async fn open(&self, run: &RunId) -> Result<OpenRun, JournalError> {
        self.inner.open(run).await
    }

    async fn list(&self, query: &RunQuery) -> Result<Vec<RunSummary>, JournalError> {
        self.inner.list(query).await
    }

    async fn read(&self, run: &RunId) -> Result<Vec<Record>, JournalError> {
        self.inner.read(run).await
    }

    async fn post(&self, run: &RunId, post: &RunRequest) -> Result<(), JournalError> {
        self.started.notify_one();
        let _open = self.gate.acquire().await.unwrap();
        self.inner.post(run, post).await
    }
}

/// All runs receive the command, although the client has disconnected in between.
#[tokio::test]
async fn pause_continues_when_its_client_disconnects() {
    let folder = tempfile::tempdir().unwrap();
    let open = || SqliteJournal::new(folder.path().join("runs.db")).unwrap();
    let (there, permits) = swarm(open());
    let driving = Server::new(there).await;
    let (mut events, child) = at_work(driving.client).await;
    let (started, gate) = (Arc::new(Notify::new()), Arc::new(Semaphore::new(0)));
    let slow = SlowPosts {
        inner: open(),
        started: started.clone(),
        gate: gate.clone(),
    };
    let server = Server::new(swarm(slow).0).await;
    tokio::select! {
        answer = server.client.post("/v1/runs/r/pause", json!({})) => panic!("{answer:?}"),
        () = started.notified() => {}
    }
    // By now the server has noticed that the client disconnected.
    for _ in 0..20 {
        server.client.get("/v1/runs/r").await.is(200);
    }
    gate.add_permits(1);
    let paused = async {
        let mut told = events.until("paused").await;
        told.extend(events.until("paused").await);
        let mut runs: Vec<_> = runs_with_event(&told, "paused")
            .into_iter()
            .map(str::to_owned)
            .collect();
        runs.sort_unstable();
        runs
    };
    let paused = tokio::time::timeout(Duration::from_secs(20), paused)
        .await
        .expect("no run received the command");
    assert_eq!(paused, ["r", &*child]);
    server
        .client
        .post("/v1/runs/r/resume", json!({}))
        .await
        .is(202);
    permits.add_permits(1);
    assert_eq!(
        events.rest().await.last().unwrap().data["state"],
        "answered"
    );
    server.stop().await;
    driving.stop().await;
}

/// The question of a child run is still known after its parent was resumed.
#[tokio::test]
async fn question_of_child_run_survives_restart() {
    let journal = MemoryJournal::new();
    let runs = || {
        let send = RecordingTool::new("send", |_| Ok(ToolOutput::text("sent")))
            .with_hints(Hints::new().destructive());
        let model = ScriptedModel::new()
            .call("send", json!({}))
            .reply(r#"{"boat": "sent"}"#)
            .by_history();
        let worker = Agent::builder(model).tool(send).build().unwrap();
        let plan = r#"{"delegations": [{"id": "a", "worker": "sender", "task": "Send a boat."}]}"#;
        let router = ScriptedModel::new().reply(plan).reply("Sent.").by_history();
        let swarm = Swarm::builder(Router::new(router))
            .worker(Worker::new("sender", "Sends.", worker))
            .runtime(Runtime::new().with_journal(journal.clone()));
        Runs::new(swarm.build().unwrap())
    };
    // The limit on the length of ids applies to the root run, not to its child run.
    let id = "r".repeat(128);
    let server = Server::new(runs()).await;
    server
        .client
        .post("/v1/runs", json!({"goal": "I need a boat.", "id": id}))
        .await
        .is(201);
    let mut events = server
        .client
        .events(&format!("/v1/runs/{id}/events"), None)
        .await;
    events.until("asked").await;
    server.stop().await;

    let server = Server::new(runs()).await;
    let client = server.client;
    client
        .post(&format!("/v1/runs/{id}/resume"), json!({}))
        .await
        .is(202);
    let asks = client.get(&format!("/v1/runs/{id}/asks")).await.is(200);
    let ask = &asks["asks"][0];
    let (child, question) = (ask["run"].as_str().unwrap(), ask["id"].as_str().unwrap());
    assert!(child.len() > 128, "{child}");
    let path = format!("/v1/runs/{child}/asks/{question}");
    client
        .post(&path, json!({"decision": "allow"}))
        .await
        .is(200);
    let events = client
        .events(&format!("/v1/runs/{id}/events"), None)
        .await
        .rest()
        .await;
    assert_eq!(events.last().unwrap().data["state"], "answered");
    server.stop().await;
}

/// The view of a finished run is the same in the process that drove it and from the journal, and
/// the views of child runs can be read as well.
async fn check_views_agree(
    build: impl Fn(MemoryJournal) -> (Runs, Arc<Semaphore>),
    (kind, node): (&str, &str),
) {
    let journal = MemoryJournal::new();
    let (runs, permits) = build(journal.clone());
    let server = Server::new(runs).await;
    let (mut events, child) = at_work(server.client).await;
    let working = server.client.get("/v1/runs/r/view").await.is(200)["view"].clone();
    let find = |view: &Value, id: &str| {
        let nodes = view["nodes"].as_array().unwrap().iter();
        nodes
            .into_iter()
            .find(|node| node["id"] == id)
            .cloned()
            .unwrap_or_default()
    };
    assert_eq!(find(&working, "r")["kind"], kind);
    let step = find(&working, node);
    assert_eq!(
        (&step["status"], &step["run"]),
        (&json!("running"), &json!(child)),
        "{working}"
    );
    assert_eq!(step["activity"], "calls hold");
    permits.add_permits(1);
    events.rest().await;

    let live = server.client.get("/v1/runs/r/view").await.is(200);
    assert_eq!(find(&live["view"], node)["status"], "completed");
    let total = &live["total"];
    for at in 0..total.as_u64().unwrap() {
        let path = format!("/v1/runs/r/view?at={at}");
        assert_eq!(server.client.get(&path).await.is(200)["view"]["seq"], at);
    }
    let whole = server.client.get("/v1/runs/r/view?at=9999").await.is(200);
    assert_eq!((&whole["view"], &whole["total"]), (&live["view"], total));
    let path = format!("/v1/runs/{child}/view");
    let below = server.client.get(&path).await.is(200)["view"].clone();
    assert_eq!(
        (&below["run"], &below["state"]),
        (&json!(child), &json!("ended"))
    );
    server.stop().await;

    let server = Server::new(build(journal).0).await;
    let stored = server.client.get("/v1/runs/r/view").await.is(200);
    assert_eq!(stored["view"], live["view"]);
    assert_eq!(server.client.get(&path).await.is(200)["view"], below);
    server.stop().await;
}

#[tokio::test]
async fn view_of_team_is_the_same_live_and_from_the_journal() {
    check_views_agree(team, ("team", "r/draw")).await;
}

#[tokio::test]
async fn view_of_swarm_is_the_same_live_and_from_the_journal() {
    check_views_agree(swarm, ("swarm", "r/draw")).await;
}
