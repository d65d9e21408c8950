//! Parked runs use only their place in the journal, and other processes can send them requests.

use std::time::Duration;

use levity::core::{
    ControlCommand, ControlError, Decision, Entry, Journal as _, RunId, RunQuery, RunRequest,
    RunState, Timestamp, World as _,
};
use levity::prelude::*;
use levity::runtime::{Delivery, MemoryJournal};
use levity::test::{ManualWorld, ScriptedModel, Turn};
use levity::tools::{Policy, Rule};
use serde_json::json;

use crate::support::{Counter, runtime};

/// A tool that sends letters and needs approval.
struct Letters(Counter);

#[tool]
impl Letters {
    /// Sends a letter.
    #[tool(destructive)]
    async fn send(&self) -> String {
        format!("letter {}", self.0.increment())
    }
}

fn sending_model() -> ScriptedModel {
    ScriptedModel::new().call("send", json!({})).reply("Sent.")
}

fn sender(model: ScriptedModel, sent: &Counter, runtime: Runtime) -> Agent {
    Agent::builder(model)
        .tools(Letters(sent.clone()))
        .runtime(runtime)
        .build()
        .unwrap()
}

async fn parked(run: impl IntoFuture<Output = levity::Result<Answer>>) -> RunId {
    match run.await {
        Err(levity::Error::Parked { run, .. }) => run,
        other => panic!("the run was not parked: {other:?}"),
    }
}

#[tokio::test]
async fn parked_run_resumes_with_decision() {
    let (runtime, journal) = runtime();
    let (model, sent) = (sending_model(), Counter::default());
    let agent = sender(model.clone(), &sent, runtime.clone());
    let run = parked(agent.run("Write").park()).await;
    assert_eq!(sent.get(), 0);
    let waiting = journal
        .list(&RunQuery::new().state(RunState::Waiting))
        .await
        .unwrap();
    assert_eq!(
        waiting
            .iter()
            .map(|summary| &summary.run)
            .collect::<Vec<_>>(),
        [&run]
    );
    // Nothing has changed for the run, so it is parked again.
    assert_eq!(parked(agent.resume(run.clone()).park()).await, run);
    let [ask] = &*agent.pending_asks(&run).await.unwrap() else {
        panic!("expected one question")
    };
    assert_eq!((ask.call.name.as_str(), &ask.run), ("send", &run));
    let allow = RunRequest::Decide {
        effect: ask.effect,
        decision: Decision::Allow,
    };
    assert_eq!(
        runtime.send_request(&run, allow.clone()).await.unwrap(),
        Delivery::Written
    );
    let second_error = runtime.send_request(&run, allow).await.unwrap_err();
    assert!(
        matches!(
            second_error,
            levity::core::RuntimeError::Control(ControlError::NotAsked { .. })
        ),
        "{second_error}"
    );
    assert_eq!(agent.resume(run.clone()).await.unwrap().text(), "Sent.");
    assert_eq!((sent.get(), model.requests().len()), (1, 2));
    let ended = runtime
        .send_request(&run, RunRequest::Command(ControlCommand::Pause))
        .await
        .unwrap_err();
    assert!(
        matches!(
            ended,
            levity::core::RuntimeError::Control(ControlError::NotRunning(_))
        ),
        "{ended}"
    );
    let missing = runtime
        .send_request(
            &RunId::new("nobody"),
            RunRequest::Command(ControlCommand::Pause),
        )
        .await
        .unwrap_err();
    assert!(
        matches!(missing, levity::core::RuntimeError::NotFound(_)),
        "{missing}"
    );
}

#[tokio::test]
async fn child_run_is_parked_with_its_parent() {
    let (runtime, journal) = runtime();
    let sent = Counter::default();
    let lead = |helper| {
        let model = ScriptedModel::new()
            .call("helper", json!({"task": "Write"}))
            .reply("Done.");
        let helper = sender(helper, &sent, Runtime::new());
        Agent::builder(model)
            .agent("helper", "Writes.", helper)
            .runtime(runtime.clone())
            .build()
            .unwrap()
    };
    let agent = lead(sending_model());
    let run = parked(agent.run("Have it written").park()).await;
    let [ask] = &*agent.pending_asks(&run).await.unwrap() else {
        panic!("expected one question")
    };
    assert_ne!(ask.run, run);
    runtime
        .send_request(
            &ask.run,
            RunRequest::Decide {
                effect: ask.effect,
                decision: Decision::Allow,
            },
        )
        .await
        .unwrap();
    assert_eq!(
        agent.resume(run.clone()).park().await.unwrap().text(),
        "Done."
    );
    assert_eq!(sent.get(), 1);
    assert!(
        journal
            .list(&RunQuery::new())
            .await
            .unwrap()
            .iter()
            .all(|summary| summary.state().is_end())
    );
}

#[tokio::test]
async fn run_cancelled_while_parked_ends_on_resume() {
    let (runtime, journal) = runtime();
    let (model, sent) = (sending_model(), Counter::default());
    let agent = sender(model.clone(), &sent, runtime.clone());
    let run = parked(agent.run("Write").park()).await;
    let reason = "never mind".to_owned();
    runtime
        .send_request(&run, RunRequest::Command(ControlCommand::Cancel { reason }))
        .await
        .unwrap();
    let error = agent.resume(run.clone()).await.unwrap_err();
    assert!(
        matches!(&error, levity::Error::Cancelled { reason, .. } if reason == "never mind"),
        "{error}"
    );
    assert_eq!((sent.get(), model.requests().len()), (0, 1));
    assert!(matches!(
        journal.records(&run).last().unwrap().entry,
        levity::core::Entry::Ended(_)
    ));
}

#[tokio::test]
async fn parked_children_end_with_cancelled_run() {
    let (runtime, journal) = runtime();
    let sent = Counter::default();
    let model = ScriptedModel::new()
        .call("helper", json!({"task": "Write"}))
        .reply("Done.");
    let helper = sender(sending_model(), &sent, Runtime::new());
    let agent = Agent::builder(model)
        .agent("helper", "Writes.", helper)
        .runtime(runtime.clone())
        .build()
        .unwrap();
    let run = parked(agent.run("Have it written").park()).await;
    let reason = "never mind".to_owned();
    runtime
        .send_request(&run, RunRequest::Command(ControlCommand::Cancel { reason }))
        .await
        .unwrap();
    agent.resume(run).await.unwrap_err();
    let runs = journal.list(&RunQuery::new()).await.unwrap();
    assert_eq!(runs.len(), 2);
    assert!(
        runs.iter()
            .all(|summary| summary.state() == RunState::Failed),
        "{runs:?}"
    );
}

#[tokio::test]
async fn wait_of_two_days_survives_parking() {
    let journal = MemoryJournal::new();
    let world = ManualWorld::new();
    let runtime = Runtime::new()
        .with_journal(journal.clone())
        .with_world(world.clone());
    let model = ScriptedModel::new()
        .call("wait", json!({"seconds": 172_800}))
        .reply("It is Monday.");
    let agent = Agent::builder(model)
        .allow_wait(Duration::from_secs(7 * 86_400))
        .runtime(runtime)
        .build()
        .unwrap();
    let run = parked(agent.run("Wait until Monday").id("weekend").park()).await;
    let due = async |at: Timestamp| journal.list(&RunQuery::new().due(at)).await;
    let [summary] = &*journal.list(&RunQuery::new()).await.unwrap() else {
        panic!("expected one run")
    };
    let wakes = summary.next_wake().unwrap();
    assert_eq!(wakes, world.now().after(Duration::from_secs(172_800)));
    assert!(due(world.now()).await.unwrap().is_empty());
    // A day later, the run still waits for the same time.
    world.advance(Duration::from_secs(86_400));
    assert_eq!(parked(agent.resume(run.clone()).park()).await, run);
    world.advance(Duration::from_secs(86_400));
    assert_eq!(due(world.now()).await.unwrap().len(), 1);
    let resumed = agent.resume(run).start();
    assert_eq!(resumed.await.unwrap().text(), "It is Monday.");
    assert!(due(world.now()).await.unwrap().is_empty());
}

#[tokio::test]
async fn invalid_wait_returns_error_to_model() {
    let (runtime, _) = runtime();
    for seconds in [
        json!(-1),
        json!(1e300),
        json!("soon"),
        json!(null),
        json!(3601),
    ] {
        let model = ScriptedModel::new()
            .call("wait", json!({ "seconds": seconds }))
            .reply("Well.");
        let agent = Agent::builder(model)
            .allow_wait(Duration::from_secs(3600))
            .runtime(runtime.clone());
        let answer = agent.build().unwrap().run("Wait").await.unwrap();
        let (_, result) = answer.history().calls().next().unwrap();
        assert!(
            result.text().contains("from 0 to 3600"),
            "{}",
            result.text()
        );
    }
}

#[tokio::test]
async fn parked_children_end_when_cancelled_run_may_park() {
    let (runtime, journal) = runtime();
    let sent = Counter::default();
    let model = ScriptedModel::new()
        .call("helper", json!({"task": "Write"}))
        .reply("Done.");
    let helper = sender(sending_model(), &sent, Runtime::new());
    let agent = Agent::builder(model)
        .agent("helper", "Writes.", helper)
        .runtime(runtime.clone())
        .build()
        .unwrap();
    let run = parked(agent.run("Have it written").park()).await;
    let reason = "never mind".to_owned();
    runtime
        .send_request(&run, RunRequest::Command(ControlCommand::Cancel { reason }))
        .await
        .unwrap();
    agent.resume(run).park().await.unwrap_err();
    let runs = journal.list(&RunQuery::new()).await.unwrap();
    assert!(
        runs.iter()
            .all(|summary| summary.state() == RunState::Failed),
        "{runs:?}"
    );
}

/// A tool that runs until it is notified.
struct SlowTool(std::sync::Arc<tokio::sync::Notify>);

#[tool]
impl SlowTool {
    /// Takes a long time.
    #[tool(read_only)]
    async fn slow(&self) -> String {
        self.0.notified().await;
        "at last".to_owned()
    }
}

/// Builds an agent that delegates a letter and calls a slow tool in parallel.
fn agent_with_letter_and_slow_tool(slow: &SlowTool, sent: &Counter, runtime: Runtime) -> Agent {
    let turn = Turn::new()
        .call("helper", json!({"task": "Write"}))
        .call("slow", json!({}));
    let model = ScriptedModel::new().turn(turn).reply("Done.");
    let helper = sender(sending_model(), sent, Runtime::new());
    let agent = Agent::builder(model)
        .agent("helper", "Writes.", helper)
        .tools(SlowTool(slow.0.clone()));
    agent
        .tool_timeout(Duration::from_secs(3600))
        .runtime(runtime)
        .build()
        .unwrap()
}

#[tokio::test]
async fn question_of_child_can_be_answered_while_parent_works() {
    let runtime = Runtime::new().with_journal(MemoryJournal::new());
    let (slow, sent) = (SlowTool(Default::default()), Counter::default());
    let agent = agent_with_letter_and_slow_tool(&slow, &sent, runtime);
    let mut run = agent.run("Two things").park().start();
    let mut events = run.events();
    let mut slow_started = false;
    let ask = loop {
        match events.next().await.expect("the run asks a question").kind {
            EventKind::Asked(ask) if slow_started => break ask,
            EventKind::Asked(ask) => {
                tokio::task::yield_now().await;
                break ask;
            }
            EventKind::ToolStarted { call, .. } => slow_started |= call.name == "slow",
            _ => {}
        }
    };
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
    run.approve(&ask)
        .await
        .expect("the question can be answered");
    while sent.get() == 0 {
        events.next().await.expect("the letter is sent");
    }
    slow.0.notify_one();
    assert_eq!(run.await.unwrap().text(), "Done.");
}

#[tokio::test]
async fn pending_request_is_read_before_run_parks_again() {
    let folder = std::env::temp_dir().join(format!("levity-left-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let journal = levity::runtime::SqliteJournal::new(folder.join("runs.db")).unwrap();
    let runtime = Runtime::new().with_journal(journal.clone());
    let sent = Counter::default();
    let agent = sender(sending_model(), &sent, runtime.clone());
    let run = parked(agent.run("Write").park()).await;
    let [ask] = &*agent.pending_asks(&run).await.unwrap() else {
        panic!("expected one question")
    };
    let allow = RunRequest::Decide {
        effect: ask.effect,
        decision: Decision::Allow,
    };
    journal.post(&run, &allow).await.unwrap();
    assert_eq!(agent.resume(run).park().await.unwrap().text(), "Sent.");
    drop((agent, runtime, journal));
    let _ = std::fs::remove_dir_all(folder);
}

#[tokio::test]
async fn cancelled_parked_run_has_no_questions() {
    let (runtime, journal) = runtime();
    let agent = sender(sending_model(), &Counter::default(), runtime.clone());
    let run = parked(agent.run("Write").park()).await;
    let reason = "never mind".to_owned();
    runtime
        .send_request(&run, RunRequest::Command(ControlCommand::Cancel { reason }))
        .await
        .unwrap();
    let waiting = journal
        .list(&RunQuery::new().state(RunState::Waiting))
        .await
        .unwrap();
    assert!(waiting.is_empty(), "{waiting:?}");
    assert!(agent.pending_asks(&run).await.unwrap().is_empty());
}

#[tokio::test]
async fn child_run_cannot_be_resumed_without_its_parent() {
    let (runtime, _) = runtime();
    let sent = Counter::default();
    let model = ScriptedModel::new()
        .call("helper", json!({"task": "Write"}))
        .reply("Done.");
    let helper = sender(sending_model(), &sent, Runtime::new());
    let agent = Agent::builder(model)
        .agent("helper", "Writes.", helper)
        .tools(Letters(sent.clone()));
    let agent = agent.runtime(runtime.clone()).build().unwrap();
    let run = parked(agent.run("Have it written").park()).await;
    let [ask] = &*agent.pending_asks(&run).await.unwrap() else {
        panic!("expected one question")
    };
    let error = agent.resume(ask.run.clone()).park().await.unwrap_err();
    let source = std::error::Error::source(&error)
        .map(ToString::to_string)
        .unwrap_or_default();
    assert!(
        source.contains(&format!("it is a child of run `{run}`")),
        "{error}: {source}"
    );
}

#[tokio::test]
async fn clock_set_back_does_not_extend_wait() {
    let journal = MemoryJournal::new();
    let late = ManualWorld::new();
    late.advance(Duration::from_secs(10 * 365 * 86_400));
    let agent = |world: ManualWorld| {
        let model = ScriptedModel::new()
            .call("wait", json!({"seconds": 60}))
            .reply("Good.")
            .by_history();
        let runtime = Runtime::new()
            .with_journal(journal.clone())
            .with_world(world);
        Agent::builder(model)
            .allow_wait(Duration::from_secs(3600))
            .runtime(runtime)
            .build()
            .unwrap()
    };
    let run = parked(agent(late).run("Wait").park()).await;
    let world = ManualWorld::new();
    let mut resumed = agent(world.clone()).resume(run).start();
    let mut events = resumed.events();
    while !matches!(
        events.next().await.unwrap().kind,
        EventKind::WaitStarted { .. }
    ) {}
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
    world.advance(Duration::from_secs(61));
    let answer = tokio::time::timeout(Duration::from_secs(5), resumed).await;
    assert_eq!(
        answer.expect("the run waits for years").unwrap().text(),
        "Good."
    );
}

#[tokio::test]
async fn asks_skips_child_that_never_started() {
    let (runtime, journal) = runtime();
    let sent = Counter::default();
    let model = ScriptedModel::new()
        .call("helper", json!({"task": "Write"}))
        .reply("Done.");
    let helper = sender(sending_model(), &sent, Runtime::new());
    let agent = Agent::builder(model)
        .agent("helper", "Writes.", helper)
        .runtime(runtime)
        .build()
        .unwrap();
    let run = parked(agent.run("Have it written").park()).await;
    let [child] = &*journal
        .list(&RunQuery::new())
        .await
        .unwrap()
        .into_iter()
        .filter(|s| s.child)
        .collect::<Vec<_>>()
    else {
        panic!("expected one child run")
    };
    // Simulates a crash right after the parent recorded the start of the child.
    journal.remove(&child.run).await.unwrap();
    assert!(matches!(
        journal.records(&run).last().unwrap().entry,
        Entry::Started { .. }
    ));
    assert!(agent.pending_asks(&run).await.unwrap().is_empty());
}

#[tokio::test]
async fn due_run_resumes_even_if_it_may_park() {
    let (journal, world) = (MemoryJournal::new(), ManualWorld::new());
    let runtime = Runtime::new()
        .with_journal(journal.clone())
        .with_world(world.clone());
    let model = ScriptedModel::new()
        .call("wait", json!({"seconds": 60}))
        .reply("Good.");
    let agent = Agent::builder(model)
        .allow_wait(Duration::from_secs(3600))
        .runtime(runtime)
        .build()
        .unwrap();
    let run = parked(agent.run("Wait").park()).await;
    world.advance(Duration::from_secs(60));
    assert_eq!(
        journal
            .list(&RunQuery::new().due(world.now()))
            .await
            .unwrap()
            .len(),
        1
    );
    assert_eq!(agent.resume(run).park().await.unwrap().text(), "Good.");
}

#[tokio::test]
async fn policy_applies_to_wait_tool() {
    let (runtime, _) = runtime();
    let agent = |rule: Rule| {
        let model = ScriptedModel::new()
            .call("wait", json!({"seconds": 60}))
            .reply("Well.");
        let agent = Agent::builder(model)
            .allow_wait(Duration::from_secs(3600))
            .policy(Policy::new().rule(rule));
        agent.runtime(runtime.clone()).build().unwrap()
    };
    let answer = agent(Rule::tool("wait").deny("no time"))
        .run("Wait")
        .await
        .unwrap();
    let (_, result) = answer.history().calls().next().unwrap();
    assert!(result.text().contains("no time"), "{}", result.text());
    let asks = agent(Rule::tool("wait").ask("is there time?"));
    let run = parked(asks.run("Wait").park()).await;
    let [ask] = &*asks.pending_asks(&run).await.unwrap() else {
        panic!("expected one question")
    };
    let allow = RunRequest::Decide {
        effect: ask.effect,
        decision: Decision::Allow,
    };
    asks.runtime().send_request(&run, allow).await.unwrap();
    let answer = asks.resume(run.clone()).await.unwrap();
    let (_, result) = answer.history().calls().next().unwrap();
    assert_eq!(result.text(), "the time has passed");
    asks.replay(&run).await.unwrap();
}

#[tokio::test]
async fn fork_can_be_parked() {
    let (runtime, _) = runtime();
    let sent = Counter::default();
    let agent = sender(sending_model().by_history(), &sent, runtime.clone());
    let run = parked(agent.run("Write").park()).await;
    let fork = parked(agent.fork(run).id("fork").park()).await;
    assert_eq!(agent.pending_asks(&fork).await.unwrap().len(), 1);
}
