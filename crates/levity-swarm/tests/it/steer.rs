//! Tests of control by the host while a swarm is running.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use levity_core::{
    ControlError, Decision, EventKind, Hints, RunRequest, Tool, ToolCx, ToolError, ToolOutput,
    ToolSpec,
};
use levity_loop::Agent;
use levity_observe::Lineage;
use levity_runtime::{MemoryJournal, RunHandle, Runtime};
use levity_swarm::{
    Delegation, Error, Messages, ReportStatus, Router, Swarm, SwarmInput, SwarmNotice, Worker,
};
use levity_test::{ManualWorld, RecordingTool, ScriptedModel};
use serde_json::{Value, json};
use tokio::sync::Notify;

fn plan() -> [Delegation; 2] {
    [
        Delegation::new("a", "slow", "Wait."),
        Delegation::new("b", "quick", "Go."),
    ]
}

fn worker(name: &str, model: ScriptedModel) -> Worker {
    Worker::new(name, "Works.", Agent::builder(model).build().unwrap())
}

/// A tool that waits for a notification.
struct BlockingTool {
    spec: ToolSpec,
    open: Arc<Notify>,
}

impl BlockingTool {
    fn new(open: Arc<Notify>) -> Self {
        Self {
            spec: ToolSpec::new("look", "Looks."),
            open,
        }
    }
}

#[async_trait]
impl Tool for BlockingTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn call(&self, _: Value, _: &ToolCx) -> Result<ToolOutput, ToolError> {
        self.open.notified().await;
        Ok(ToolOutput::text("seen"))
    }
}

/// Waits until a worker is running.
async fn wait_until_running(handle: &mut RunHandle<Swarm>, worker: &str) {
    let (mut events, mut lineage) = (handle.events(), Lineage::new("swarm"));
    while let Some(event) = events.next().await {
        let origin = lineage.apply(&event);
        if matches!(&event.kind, EventKind::ModelStarted { .. }) && origin.worker() == Some(worker)
        {
            return;
        }
    }
    panic!("{worker} never ran");
}

#[tokio::test]
async fn one_worker_is_stopped_and_swarm_continues() {
    let swarm = Swarm::builder(Router::keywords())
        .worker(worker("slow", ScriptedModel::new().hang()).fallback("quick"))
        .worker(worker("quick", ScriptedModel::new().reply("Done.")))
        .build()
        .unwrap();
    let mut handle = swarm.run(SwarmInput::from("Go").plan(plan())).start();
    let slow = handle.agent("slow");
    wait_until_running(&mut handle, "slow").await;
    slow.cancel("it takes too long").await.unwrap();
    let finished = handle.await.unwrap();
    let report = finished.report("a").unwrap();
    assert_eq!(report.status, ReportStatus::Stopped);
    assert_eq!(
        report.error.as_deref(),
        Some("the work was stopped: it takes too long")
    );
    assert!(
        finished
            .text()
            .ends_with("Not done:\n- slow (`a`): the work was stopped: it takes too long"),
        "{}",
        finished.text()
    );
    let again = slow.cancel("again").await;
    assert!(matches!(again, Err(ControlError::AgentNotRunning(name)) if &*name == "slow"));
}

#[tokio::test]
async fn one_worker_receives_message_of_host() {
    let gate = Arc::new(Notify::new());
    let tool = BlockingTool::new(gate.clone());
    let slow = ScriptedModel::new().call("look", json!({})).reply("Heard.");
    let agent = Agent::builder(slow.clone()).tool(tool).build().unwrap();
    let swarm = Swarm::builder(Router::keywords())
        .worker(Worker::new("slow", "Works.", agent))
        .worker(worker("quick", ScriptedModel::new().reply("Done.")))
        .build()
        .unwrap();
    let mut handle = swarm.run(SwarmInput::from("Go").plan(plan())).start();
    wait_until_running(&mut handle, "slow").await;
    handle
        .agent("slow")
        .send_message("Mind the rain.")
        .await
        .unwrap();
    gate.notify_one();
    handle.await.unwrap();
    let received = slow.requests()[1]
        .history
        .messages()
        .last()
        .unwrap()
        .text()
        .into_owned();
    assert_eq!(received, "Mind the rain.");
}

#[tokio::test]
async fn host_broadcast_is_shown_to_later_workers() {
    let gate = Arc::new(Notify::new());
    let tool = BlockingTool::new(gate.clone());
    let agent = Agent::builder(ScriptedModel::new().call("look", json!({})).reply("Seen."))
        .tool(tool)
        .build()
        .unwrap();
    let later = ScriptedModel::new().reply("Done.");
    let swarm = Swarm::builder(Router::keywords())
        .worker(Worker::new("slow", "Works.", agent))
        .worker(worker("quick", later.clone()))
        .build()
        .unwrap();
    let plan = [
        Delegation::new("a", "slow", "Wait."),
        Delegation::new("b", "quick", "Go.").after(["a"]),
    ];
    let mut handle = swarm.run(SwarmInput::from("Go").plan(plan)).start();
    wait_until_running(&mut handle, "slow").await;
    handle
        .control()
        .send_message("Be quick about it.")
        .await
        .unwrap();
    gate.notify_one();
    let finished = handle.await.unwrap();
    let received = later.requests()[0].history.messages()[0]
        .text()
        .into_owned();
    assert!(
        received.contains("The user has added: Be quick about it."),
        "{received}"
    );
    assert!(
        finished
            .bus()
            .messages()
            .any(|message| &*message.from == "user" && &*message.content == "Be quick about it.")
    );
}

#[tokio::test]
async fn questions_belong_to_their_worker() {
    let send = || {
        let tool = RecordingTool::new("send", |_| Ok(ToolOutput::text("sent")));
        tool.with_hints(Hints::new().destructive())
    };
    let asking = |name: &str| {
        let model = ScriptedModel::new()
            .call("send", json!({"by": name}))
            .reply("Over.");
        Worker::new(
            name,
            "Works.",
            Agent::builder(model).tool(send()).build().unwrap(),
        )
    };
    let swarm = Swarm::builder(Router::keywords())
        .worker(asking("slow"))
        .worker(asking("quick"))
        .build()
        .unwrap();
    let mut handle = swarm.run(SwarmInput::from("Go").plan(plan())).start();
    let (mut events, mut lineage, mut open) = (handle.events(), Lineage::new("swarm"), 2);
    while let Some(event) = events.next().await {
        let origin = lineage.apply(&event);
        if let EventKind::Asked(ask) = &event.kind {
            let worker = origin.worker().unwrap().to_owned();
            assert_eq!(ask.call.args, json!({"by": worker}));
            assert_eq!(handle.agent(&worker).pending_asks().await.unwrap().len(), 1);
            match &*worker {
                "slow" => handle.deny(ask, "not this one").await.unwrap(),
                _ => handle.approve(ask).await.unwrap(),
            }
            open -= 1;
        }
    }
    assert_eq!(open, 0);
    let finished = handle.await.unwrap();
    let failed = |id: &str| finished.report(id).unwrap().stats.failed_calls;
    assert_eq!((failed("a"), failed("b")), (1, 0));
}

#[tokio::test]
async fn event_origin_names_nested_worker() {
    let tool = RecordingTool::new("look", |_| Ok(ToolOutput::text("seen")));
    let agent = Agent::builder(ScriptedModel::new().call("look", json!({})).reply("Done."))
        .tool(tool)
        .build()
        .unwrap();
    let inner = Swarm::builder(Router::keywords())
        .worker(Worker::new("pilot", "Works.", agent))
        .build()
        .unwrap();
    let swarm = Swarm::builder(Router::keywords())
        .worker(Worker::swarm("crew", "Sails.", inner))
        .runtime(Runtime::new().with_journal(MemoryJournal::new()))
        .build()
        .unwrap();
    let mut handle = swarm.run("Sail").start();
    let (mut events, mut lineage, mut seen) = (handle.events(), Lineage::new("swarm"), Vec::new());
    while let Some(event) = events.next().await {
        let origin = lineage.apply(&event).to_string();
        if let EventKind::ToolStarted { .. } = event.kind {
            seen.push(origin);
        }
    }
    assert_eq!(seen, ["swarm › crew › pilot › look"]);
    assert_eq!(handle.await.unwrap().text(), "Done.");
}

#[tokio::test]
async fn messages_are_streamed_as_posted() {
    let swarm = Swarm::builder(Router::keywords())
        .worker(worker("slow", ScriptedModel::new().reply("One.")))
        .worker(worker("quick", ScriptedModel::new().reply("Two.")))
        .build()
        .unwrap();
    let mut handle = swarm.run(SwarmInput::from("Go").plan(plan())).start();
    let mut messages = Messages::of(&mut handle);
    let mut received = Vec::new();
    while let Some(message) = messages.next().await {
        received.push(message.unwrap());
    }
    let finished = handle.await.unwrap();
    assert_eq!(
        received,
        finished.bus().messages().cloned().collect::<Vec<_>>()
    );
    assert_eq!(received.len(), 5);
}

#[tokio::test]
async fn cancelled_run_keeps_partial_results() {
    let swarm = Swarm::builder(Router::keywords())
        .worker(worker("slow", ScriptedModel::new().hang()).timeout(Duration::from_secs(3_600)))
        .worker(worker("quick", ScriptedModel::new().reply("Done.")))
        .build()
        .unwrap();
    let mut handle = swarm.run(SwarmInput::from("Go").plan(plan())).start();
    let mut events = handle.events();
    while let Some(event) = events.next().await {
        if let Some(SwarmNotice::Done { .. }) = SwarmNotice::of(&event.kind) {
            handle.control().cancel("enough").await.unwrap();
        }
    }
    let error = handle.await.unwrap_err();
    let Error::Cancelled { reason, partial } = &error else {
        panic!("{error}")
    };
    assert_eq!(reason, "enough");
    assert!(
        partial.text().starts_with("## quick (`b`)\nDone."),
        "{}",
        partial.text()
    );
}

#[tokio::test]
async fn question_may_be_answered_days_later() {
    let world = ManualWorld::new();
    let runtime = Runtime::new()
        .with_journal(MemoryJournal::new())
        .with_world(world.clone());
    let send = RecordingTool::new("send", |_| Ok(ToolOutput::text("sent")))
        .with_hints(Hints::new().destructive());
    let model = ScriptedModel::new().call("send", json!({})).reply("Sent.");
    let agent = Agent::builder(model)
        .tool(send)
        .runtime(runtime.clone())
        .build()
        .unwrap();
    let swarm = Swarm::builder(Router::keywords())
        .worker(Worker::new("clerk", "Sends.", agent))
        .runtime(runtime.clone())
        .build()
        .unwrap();
    let Err(Error::Parked { run, .. }) = swarm.run("Send it").park().await else {
        panic!("the run must be parked")
    };
    world.advance(Duration::from_secs(3 * 24 * 3_600));
    let asks = swarm.asks(&run).await.unwrap();
    let post = RunRequest::Decide {
        effect: asks[0].effect,
        decision: Decision::Allow,
    };
    runtime.send_request(&asks[0].run, post).await.unwrap();
    assert_eq!(swarm.resume(run).await.unwrap().text(), "Sent.");
}
