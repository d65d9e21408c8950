//! Runs that are driven for clients.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use levity_core::{
    Ask, Decision, Event, Hints, RunId, RunQuery, RunState, Status, Tool, ToolCx, ToolError,
    ToolOutput, ToolSpec,
};
use levity_loop::Agent;
use levity_runtime::{FileJournal, MemoryJournal, Runtime, Watcher};
use levity_serve::{
    Error, EventReader, FeedItem, LiveRun, NewRun, RunOutcome, RunSetup, Runner, Runs, StartedRun,
};
use levity_test::{RecordingTool, ScriptedModel};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

fn agent(model: ScriptedModel, runtime: Runtime) -> Agent {
    let send = RecordingTool::new("send", |_| Ok(ToolOutput::text("sent")))
        .with_hints(Hints::new().destructive());
    Agent::builder(model)
        .tool(send)
        .runtime(runtime)
        .build()
        .unwrap()
}

fn in_memory() -> Runtime {
    Runtime::new().with_journal(MemoryJournal::new())
}

async fn rest(reader: &mut EventReader) -> Vec<(Option<String>, Value)> {
    let mut told = Vec::new();
    while let Some(item) = reader.next().await {
        match item {
            FeedItem::Event { id, json } => told.push((id, serde_json::from_slice(&json).unwrap())),
            other => panic!("{other:?}"),
        }
    }
    told
}

async fn text(run: &LiveRun) -> String {
    match run.outcome().await {
        RunOutcome::Ended(ending) => ending.text.clone(),
        other => panic!("{other:?}"),
    }
}

/// Waits for a question, and answers it.
async fn decide(run: &LiveRun, decision: Decision) {
    let mut events = run.events(None);
    loop {
        if let Some(ask) = run.asks().await.first() {
            return run.control().unwrap().decide(ask, decision).await.unwrap();
        }
        assert!(
            events.next().await.is_some(),
            "it has ended without a question"
        );
    }
}

#[tokio::test]
async fn run_continues_without_a_waiting_client() {
    let seen = Arc::new(AtomicUsize::new(0));
    let count = seen.clone();
    let runs =
        Runs::new(agent(ScriptedModel::new().reply("Paris."), in_memory())).on_event(move |_| {
            count.fetch_add(1, Ordering::Relaxed);
        });
    let run = runs
        .start(NewRun::new("The capital of France?").id("r"))
        .unwrap();
    let mut late = run.events(None);
    run.opened().await.unwrap();
    assert_eq!(text(&run).await, "Paris.");
    let told = rest(&mut late).await;
    assert!(told.len() > 4 && told.len() == seen.load(Ordering::Relaxed));
    assert_eq!(
        told.last().unwrap().1["kind"]["run_ended"]["text"],
        "Paris."
    );
    // The run is found again by its id, and so are all its events.
    let after = told[1].0.clone().unwrap();
    let mut again = runs.events(run.id(), Some(&after)).await.unwrap();
    assert_eq!(rest(&mut again).await, told[2..]);
    assert!(matches!(run.control(), Err(Error::NotRunning(_))));
}

#[tokio::test]
async fn evicted_run_is_read_from_the_journal() {
    let runtime = in_memory();
    let runs = Runs::new(agent(ScriptedModel::new().reply("Yes."), runtime.clone()));
    let run = runs.start(NewRun::new("Is it?").id("r")).unwrap();
    let mut events = run.events(None);
    run.outcome().await;
    let lasting = |told: Vec<(Option<String>, Value)>| -> Vec<_> {
        told.into_iter().filter(|(id, _)| id.is_some()).collect()
    };
    let told = lasting(rest(&mut events).await);
    let later = Runs::new(agent(ScriptedModel::new(), runtime));
    assert!(later.get(run.id()).is_none());
    let mut again = later.events(run.id(), None).await.unwrap();
    assert_eq!(
        rest(&mut again).await,
        told,
        "ids are the same in another process"
    );
    let mut behind = later.events(run.id(), Some("2")).await.unwrap();
    assert_eq!(rest(&mut behind).await, told[2..]);
    assert_eq!(later.ending(run.id()).await.unwrap().unwrap().text, "Yes.");
    assert!(matches!(
        later.events(&"other".into(), None).await,
        Err(Error::NoRun(_))
    ));
    assert!(matches!(
        later.resume(run.id()).await,
        Err(Error::NotRunning(_))
    ));
}

#[tokio::test]
async fn start_beyond_the_limit_returns_full() {
    let model = ScriptedModel::new().hang().reply("One.");
    let runs = Runs::new(agent(model, in_memory())).max_runs(1);
    let first = runs.start(NewRun::new("1")).unwrap();
    first.opened().await.unwrap();
    let error = runs.start(NewRun::new("2")).unwrap_err();
    assert!(matches!(error, Error::Full { limit: 1 }) && error.is_retryable());
    first.control().unwrap().cancel("enough").await.unwrap();
    assert!(matches!(
        first.outcome().await.ending().unwrap().status,
        Status::Cancelled { .. }
    ));
    while runs.running() > 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(text(&runs.start(NewRun::new("3")).unwrap()).await, "One.");
}

#[tokio::test]
async fn start_rejects_existing_and_dotted_ids() {
    let runs = Runs::new(agent(ScriptedModel::new().hang(), in_memory()));
    let run = runs.start(NewRun::new("1").id("r")).unwrap();
    run.opened().await.unwrap();
    assert!(matches!(
        runs.start(NewRun::new("2").id("r")),
        Err(Error::Run { .. })
    ));
    assert!(matches!(
        runs.start(NewRun::new("2").id("r.0")),
        Err(Error::Setting { .. })
    ));
    run.control().unwrap().cancel("").await.unwrap();
    run.outcome().await;
    while runs.running() > 0 {
        tokio::task::yield_now().await;
    }
    let again = runs.start(NewRun::new("2").id("r")).unwrap();
    assert!(
        again.opened().await.is_err(),
        "the journal has a run of that id"
    );
}

#[tokio::test]
async fn runs_of_an_earlier_process_are_resumed() {
    let folder = tempfile::tempdir().unwrap();
    let runtime = || Runtime::new().with_journal(FileJournal::new(folder.path()).unwrap());
    let script = || {
        ScriptedModel::new()
            .call("send", json!({}))
            .reply("Sent.")
            .by_history()
    };
    let before = Runs::new(agent(script(), runtime()));
    let asks = before.start(NewRun::new("Send it").id("asks")).unwrap();
    let mut events = asks.events(None);
    while asks.asks().await.is_empty() {
        events.next().await.unwrap();
    }
    let done = before.start(NewRun::new("Send it").id("done")).unwrap();
    decide(&done, Decision::Allow).await;
    assert_eq!(text(&done).await, "Sent.");
    let last = last_available_id(&mut events).await;
    drop((before, asks, done, events));

    let after = Runs::new(agent(script(), runtime()));
    // The tasks of the first set end once it has been dropped.
    while !after.resume_all().await.unwrap().is_empty() || after.get(&"asks".into()).is_none() {
        tokio::task::yield_now().await;
    }
    let asks = after.get(&"asks".into()).unwrap();
    let mut reader = asks.events(last.as_deref());
    decide(&asks, Decision::Allow).await;
    assert_eq!(text(&asks).await, "Sent.");
    let told = rest(&mut reader).await;
    assert!(
        told.iter()
            .any(|(_, event)| event["kind"].get("decided").is_some()),
        "the run resumes where it stopped"
    );
    assert!(
        told.iter()
            .all(|(_, event)| event["kind"].get("run_started").is_none()),
        "no event is repeated"
    );
    let waiting = RunQuery::new().state(RunState::Waiting);
    assert!(after.list(&waiting).await.unwrap().is_empty());
}

/// Reads the available events, and returns the last id.
async fn last_available_id(events: &mut EventReader) -> Option<String> {
    let mut last = None;
    let soon = std::time::Duration::from_millis(50);
    while let Ok(Some(item)) = tokio::time::timeout(soon, events.next()).await {
        if let FeedItem::Event { id: Some(id), .. } = item {
            last = Some(id);
        }
    }
    last
}

#[tokio::test]
async fn dropping_runs_stops_those_in_progress() {
    let folder = tempfile::tempdir().unwrap();
    let journal = FileJournal::new(folder.path()).unwrap();
    let runs = Runs::new(agent(
        ScriptedModel::new().hang(),
        Runtime::new().with_journal(journal),
    ));
    let run = runs.start(NewRun::new("1").id("r")).unwrap();
    run.opened().await.unwrap();
    drop(runs);
    let other = FileJournal::new(folder.path()).unwrap();
    loop {
        match levity_core::Journal::open(&other, &"r".into()).await {
            Ok(open) => break assert!(!open.records.is_empty()),
            Err(_) => tokio::task::yield_now().await,
        }
    }
}

#[tokio::test]
async fn outcome_of_abandoned_run_resolves() {
    let soon = std::time::Duration::from_secs(5);
    let runs = Runs::new(agent(ScriptedModel::new().hang(), in_memory()));
    let run = runs.start(NewRun::new("1").id("r")).unwrap();
    run.opened().await.unwrap();
    let mut events = run.events(None);
    drop(runs);
    let outcome = tokio::time::timeout(soon, run.outcome())
        .await
        .expect("it is over");
    assert!(outcome.ending().is_none(), "{outcome:?}");
    let read = tokio::time::timeout(soon, async { while events.next().await.is_some() {} }).await;
    read.expect("the stream ends");
}

#[tokio::test]
async fn failed_start_does_not_hide_existing_run() {
    let runs = Runs::new(agent(ScriptedModel::new().reply("One."), in_memory()));
    assert_eq!(
        text(&runs.start(NewRun::new("1").id("r")).unwrap()).await,
        "One."
    );
    while runs.running() > 0 {
        tokio::task::yield_now().await;
    }
    let second = runs.start(NewRun::new("2").id("r")).unwrap();
    assert!(second.opened().await.is_err());
    while runs.running() > 0 {
        tokio::task::yield_now().await;
    }
    let id = "r".into();
    assert_eq!(
        runs.ending(&id)
            .await
            .unwrap()
            .expect("the first has ended")
            .text,
        "One."
    );
    let told = rest(&mut runs.events(&id, None).await.unwrap()).await;
    assert_eq!(told.last().unwrap().1["kind"]["run_ended"]["text"], "One.");
}

/// An agent that resumes one run for each permit.
struct HeldResume(Agent, Arc<Semaphore>);

#[async_trait::async_trait]
impl Runner for HeldResume {
    fn runtime(&self) -> &Runtime {
        self.0.runtime()
    }

    fn supports_conversations(&self) -> bool {
        false
    }

    fn start(&self, goal: &str, setup: RunSetup) -> levity_serve::Result<StartedRun> {
        Runner::start(&self.0, goal, setup)
    }

    async fn resume(&self, run: &RunId, watcher: Watcher) -> levity_serve::Result<StartedRun> {
        self.1.acquire().await.unwrap().forget();
        Runner::resume(&self.0, run, watcher).await
    }

    async fn history(&self, run: &RunId) -> levity_serve::Result<Vec<Event>> {
        Runner::history(&self.0, run).await
    }

    async fn asks(&self, run: &RunId) -> levity_serve::Result<Vec<Ask>> {
        Runner::asks(&self.0, run).await
    }
}

#[tokio::test]
async fn dropped_resume_releases_its_slot() {
    let runtime = in_memory();
    let before = Runs::new(agent(ScriptedModel::new().hang(), runtime.clone()));
    before
        .start(NewRun::new("1").id("r"))
        .unwrap()
        .opened()
        .await
        .unwrap();
    drop(before);
    let never = Arc::new(Semaphore::new(0));
    let runs = Runs::new(HeldResume(agent(ScriptedModel::new(), runtime), never));
    let id = "r".into();
    let left = tokio::time::timeout(std::time::Duration::from_millis(50), runs.resume(&id)).await;
    assert!(left.is_err(), "{left:?}");
    assert_eq!(runs.running(), 0);
    assert!(runs.get(&id).is_none());
}

#[tokio::test]
async fn question_is_found_while_its_run_is_resumed() {
    let runtime = in_memory();
    let script = || ScriptedModel::new().call("send", json!({})).by_history();
    let before = Runs::new(agent(script(), runtime.clone()));
    let run = before.start(NewRun::new("Send it").id("r")).unwrap();
    let mut events = run.events(None);
    while run.asks().await.is_empty() {
        events.next().await.unwrap();
    }
    drop((before, run, events));

    let gate = Arc::new(Semaphore::new(0));
    let runs = Runs::new(HeldResume(agent(script(), runtime), gate.clone()));
    let id: RunId = "r".into();
    let asked = async {
        while runs.get(&id).is_none() {
            tokio::task::yield_now().await;
        }
        let release = async {
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
            gate.add_permits(1);
        };
        tokio::join!(runs.asks(&id), release).0.unwrap().len()
    };
    let (resumed, asked) = tokio::join!(runs.resume(&id), asked);
    assert_eq!(asked, 1);
    resumed.unwrap();
}

/// Returns a run that holds its slot until the test releases it.
fn holding(runtime: Runtime) -> (Agent, Arc<Semaphore>) {
    let (permits, spec) = (Arc::new(Semaphore::new(0)), ToolSpec::new("hold", "Waits."));
    let model = ScriptedModel::new()
        .call("hold", json!({}))
        .reply("Done.")
        .by_history();
    let held = HeldTool(spec.with_hints(Hints::new().read_only()), permits.clone());
    (
        Agent::builder(model)
            .tool(held)
            .runtime(runtime)
            .build()
            .unwrap(),
        permits,
    )
}

struct HeldTool(ToolSpec, Arc<Semaphore>);

#[async_trait::async_trait]
impl Tool for HeldTool {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    async fn call(&self, _: Value, _: &ToolCx) -> Result<ToolOutput, ToolError> {
        self.1.acquire().await.unwrap().forget();
        Ok(ToolOutput::text("held"))
    }
}

/// Leaves this many unfinished runs in a journal.
async fn leave_runs(runtime: &Runtime, many: usize) {
    let runs = Runs::new(holding(runtime.clone()).0);
    for number in 0..many {
        runs.start(NewRun::new("Hold.").id(format!("r{number}")))
            .unwrap()
            .opened()
            .await
            .unwrap();
    }
    drop(runs);
    for number in 0..many {
        while runtime
            .journal()
            .open(&format!("r{number}").into())
            .await
            .is_err()
        {
            tokio::task::yield_now().await;
        }
    }
}

#[tokio::test]
async fn queued_runs_resume_as_slots_become_free() {
    let runtime = in_memory();
    leave_runs(&runtime, 7).await;
    let (agent, permits) = holding(runtime.clone());
    let runs = Runs::new(agent).max_runs(2);
    assert!(runs.resume_all().await.unwrap().is_empty());
    assert_eq!((runs.running(), runs.queued()), (2, 5));
    assert!(matches!(
        runs.start(NewRun::new("New.")),
        Err(Error::Full { .. })
    ));
    // A run that is cancelled while it waits for its slot is not started.
    let reason = "too late".to_owned();
    let post = levity_core::RunRequest::Command(levity_core::ControlCommand::Cancel { reason });
    runtime.send_request(&"r5".into(), post).await.unwrap();
    permits.add_permits(6);
    let all: Vec<_> = (0..7)
        .map(|number| RunId::from(format!("r{number}")))
        .collect();
    let ended = async {
        for id in &all {
            while runs.ending(id).await.unwrap().is_none() {
                assert!(runs.running() <= 2);
                tokio::task::yield_now().await;
            }
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(30), ended)
        .await
        .expect("some were forgotten");
    for id in &all {
        let text = runs.ending(id).await.unwrap().unwrap().text;
        assert_eq!(text == "Done.", id.as_str() != "r5", "{id}: {text}");
    }
    assert_eq!(runs.queued(), 0);
}

#[tokio::test]
async fn cancel_all_ends_queued_runs_without_work() {
    let runtime = in_memory();
    leave_runs(&runtime, 7).await;
    let driven = runtime.journal().open(&"r3".into()).await.unwrap();
    let (agent, permits) = holding(runtime.clone());
    permits.add_permits(7);
    let runs = Runs::new(agent).max_runs(2);
    assert!(runs.cancel_all("no client").await.unwrap().is_empty());
    let left = [0, 1, 2, 4, 5, 6].map(|number| RunId::from(format!("r{number}")));
    let ended = async {
        for id in &left {
            while runs.ending(id).await.unwrap().is_none() {
                assert!(runs.running() <= 2);
                tokio::task::yield_now().await;
            }
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(30), ended)
        .await
        .expect("some were forgotten");
    for id in &left {
        let status = runs.ending(id).await.unwrap().unwrap().status;
        assert!(matches!(status, Status::Cancelled { .. }), "{id}: {status}");
    }
    assert_eq!(permits.available_permits(), 7, "no tool was called");
    assert_eq!((runs.queued(), runs.running()), (0, 0));
    // A run that another process drives is not cancelled.
    drop(driven);
    let run = runs.resume(&"r3".into()).await.unwrap();
    assert_eq!(text(&run).await, "Done.");
}

#[tokio::test]
async fn skipped_runs_are_neither_resumed_nor_cancelled() {
    let runtime = in_memory();
    leave_runs(&runtime, 2).await;
    let (agent, permits) = holding(runtime);
    permits.add_permits(2);
    let runs = Runs::new(agent).skip_at_start(|run| run.as_str() == "r1");
    assert!(runs.cancel_all("no client").await.unwrap().is_empty());
    assert!(runs.resume_all().await.unwrap().is_empty());
    let skipped = RunId::from("r1");
    assert!(runs.get(&skipped).is_none());
    // A client that asks for it resumes it.
    let run = runs.resume(&skipped).await.unwrap();
    assert_eq!(text(&run).await, "Done.");
}

#[tokio::test]
async fn queued_run_resumes_once_also_on_request() {
    let runtime = in_memory();
    leave_runs(&runtime, 3).await;
    let (agent, permits) = holding(runtime);
    let runs = Runs::new(agent).max_runs(1);
    runs.resume_all().await.unwrap();
    let queued: Vec<RunId> = (0..3)
        .map(|number| RunId::from(format!("r{number}")))
        .filter(|id| runs.get(id).is_none())
        .collect();
    assert!(
        matches!(runs.resume(&queued[1]).await, Err(Error::Full { .. })),
        "no slot is free yet"
    );
    permits.add_permits(3);
    let ended = async {
        for id in &queued {
            while runs.ending(id).await.unwrap().is_none() {
                tokio::task::yield_now().await;
            }
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(30), ended)
        .await
        .expect("some were forgotten");
    assert_eq!(permits.available_permits(), 0, "each was worked on once");
}

/// An agent that can resume one run, and then temporarily none.
struct Flaky(Agent, Arc<AtomicUsize>);

#[async_trait::async_trait]
impl Runner for Flaky {
    fn runtime(&self) -> &Runtime {
        self.0.runtime()
    }

    fn supports_conversations(&self) -> bool {
        false
    }

    fn start(&self, goal: &str, setup: RunSetup) -> levity_serve::Result<StartedRun> {
        Runner::start(&self.0, goal, setup)
    }

    async fn resume(&self, run: &RunId, watcher: Watcher) -> levity_serve::Result<StartedRun> {
        match self.1.fetch_add(1, Ordering::Relaxed) {
            0 => Runner::resume(&self.0, run, watcher).await,
            _ => Err(Error::Io {
                what: "the disk is slow".to_owned(),
                source: std::io::ErrorKind::Other.into(),
            }),
        }
    }

    async fn history(&self, run: &RunId) -> levity_serve::Result<Vec<Event>> {
        Runner::history(&self.0, run).await
    }

    async fn asks(&self, run: &RunId) -> levity_serve::Result<Vec<Ask>> {
        Runner::asks(&self.0, run).await
    }
}

#[tokio::test]
async fn failing_queued_run_is_retried_once_per_free_slot() {
    let runtime = in_memory();
    leave_runs(&runtime, 4).await;
    let (agent, permits) = holding(runtime);
    let tried = Arc::new(AtomicUsize::new(0));
    let runs = Runs::new(Flaky(agent, tried.clone())).max_runs(1);
    assert!(runs.resume_all().await.unwrap().is_empty());
    assert_eq!((tried.load(Ordering::Relaxed), runs.queued()), (1, 3));
    permits.add_permits(1);
    let settled = async {
        while tried.load(Ordering::Relaxed) < 4 || runs.queued() < 3 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(30), settled)
        .await
        .expect("all are tried");
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
    assert_eq!(
        (tried.load(Ordering::Relaxed), runs.queued(), runs.running()),
        (4, 3, 0)
    );
}
