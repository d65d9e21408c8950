//! Tests of runs that are stopped, resumed, parked, read and forked.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use levity_core::{
    Decision, Entry, Event, EventKind, Hints, Journal as _, Limit, Limits, Message, ModelError,
    ModelErrorKind, Part, Request, Response, Role, RunRequest, Status, ToolCall, ToolOutput,
};
use levity_loop::Agent;
use levity_observe::Lineage;
use levity_runtime::{MemoryJournal, RunHandle, Runtime};
use levity_swarm::{
    BusMessage, Delegation, Error, Router, Swarm, SwarmAnswer, SwarmBuilder, SwarmInput, Worker,
    WorkerMemory,
};
use levity_test::crash::{CrashTally, Crashes, Life};
use levity_test::{FunctionModel, RecordingTool, ScriptedModel};
use serde_json::json;
use tokio::time::timeout;

const PLAN: &str = r#"{"delegations": [
    {"id": "a", "worker": "scout", "task": "Look."},
    {"id": "b", "worker": "crew", "task": "Sail."},
    {"id": "c", "worker": "flaky", "task": "Try."},
    {"id": "d", "worker": "loser", "task": "Do.", "depends_on": ["a"]},
    {"id": "e", "worker": "scout", "task": "Look again.", "depends_on": ["b", "c"]}]}"#;

const AGAIN: &str = r#"[{"id": "d", "worker": "pilot", "task": "Do.", "depends_on": ["b"]}]"#;

fn calls(tool: &str) -> Response {
    let call = ToolCall::new("c1", tool, json!({}));
    Response::new(Message::new(Role::Assistant, [Part::ToolCall(call)]))
}

/// Returns the answer of a member, which depends only on its prompt.
fn answer(name: &str, request: &Request) -> Result<Response, ModelError> {
    let messages = request.history.messages();
    let prompt = messages.iter().rfind(|message| message.role == Role::User);
    let prompt = prompt
        .map(|message| message.text().into_owned())
        .unwrap_or_default();
    let acted = messages.iter().any(|message| message.role == Role::Tool);
    let size: usize = messages.iter().map(|message| message.text().len()).sum();
    let text = match name {
        "router" if prompt.contains("# What the workers have said") => "All is done.".to_owned(),
        "router" if prompt.contains("# What was done") => AGAIN.to_owned(),
        "router" if prompt.contains("`crew`") => PLAN.to_owned(),
        "router" => {
            r#"[{"worker": "pilot", "task": "Steer."}, {"worker": "watch", "task": "See."}]"#
                .to_owned()
        }
        "loser" => {
            return Err(ModelError::new(
                ModelErrorKind::BadRequest,
                "it cannot be done",
            ));
        }
        "flaky" if !prompt.contains("The attempt before") => {
            return Err(ModelError::new(ModelErrorKind::BadRequest, "not yet"));
        }
        "scout" if !acted => return Ok(calls("look")),
        "watch" if !acted => return Ok(calls("send")),
        // An unknown result after a crash makes no difference to the answer.
        "watch" => "A sail.".to_owned(),
        name => format!("{name} was told {size}"),
    };
    Ok(Response::new(Message::assistant(text)))
}

/// Returns a worker that records its calls and those of its tools.
fn worker(name: &'static str, world: &Arc<CrashTally>) -> Worker {
    Worker::new(name, format!("The {name}."), agent(name, world))
        .retries(u32::from(name == "flaky"))
}

fn model(name: &'static str, world: &Arc<CrashTally>) -> FunctionModel {
    let world = world.clone();
    FunctionModel::new(move |request| {
        world.record_action("model");
        answer(name, request)
    })
}

fn agent(name: &'static str, world: &Arc<CrashTally>) -> Agent {
    let tool = |name: &'static str, hints| {
        let world = world.clone();
        let tool = RecordingTool::new(name, move |_| {
            world.record_action(name);
            Ok(ToolOutput::text("so it is"))
        });
        tool.with_hints(hints)
    };
    let agent = Agent::builder(model(name, world)).tool(tool("look", Hints::new().idempotent()));
    agent
        .tool(tool("send", Hints::new().destructive()))
        .build()
        .unwrap()
}

/// Returns a swarm of two workers, one of which asks before it sends something.
fn nested_swarm(world: &Arc<CrashTally>) -> Swarm {
    let swarm = Swarm::builder(Router::new(model("router", world)));
    swarm
        .worker(worker("pilot", world))
        .worker(worker("watch", world))
        .build()
        .unwrap()
}

/// Returns a swarm with a nested swarm, in which a worker asks before it sends something.
fn builder(runtime: &Runtime, world: &Arc<CrashTally>) -> SwarmBuilder {
    let inner = nested_swarm(world);
    Swarm::builder(Router::new(model("router", world)))
        .worker(worker("scout", world).memory(WorkerMemory::Run))
        .worker(worker("flaky", world))
        .worker(worker("loser", world))
        .worker(worker("pilot", world))
        .worker(Worker::swarm("crew", "Sails.", inner))
        .max_parallel(3)
        .runtime(runtime.clone())
}

fn swarm(runtime: &Runtime, world: &Arc<CrashTally>) -> Swarm {
    builder(runtime, world).build().unwrap()
}

fn runtime() -> (Runtime, MemoryJournal) {
    let journal = MemoryJournal::new();
    (Runtime::new().with_journal(journal.clone()), journal)
}

/// Returns the answer, the log without the times, and the reports.
fn shown(finished: &SwarmAnswer) -> Vec<String> {
    let line = |message: &BusMessage| {
        format!(
            "{} {} {} {}: {}",
            message.id, message.from, message.kind, message.to, message.content
        )
    };
    let mut shown: Vec<String> = finished.bus().messages().map(line).collect();
    shown.extend(finished.reports().iter().map(|report| {
        format!(
            "{} {} {:?} {} {}",
            report.id, report.worker, report.status, report.attempts, report.text
        )
    }));
    shown.push(format!("{:?} {}", finished.status(), finished.text()));
    shown
}

/// Approves all questions.
async fn allow_all(mut handle: RunHandle<Swarm>) -> Result<SwarmAnswer, Error> {
    let (mut events, control) = (handle.events(), handle.control().clone());
    while let Some(event) = events.next().await {
        if let EventKind::Asked(ask) = event.kind {
            control.approve(&ask).await.unwrap();
        }
    }
    handle.await
}

async fn live(life: Life<Arc<CrashTally>>) -> Vec<String> {
    let runtime = Runtime::new().with_journal(life.journal.clone());
    let swarm = swarm(&runtime, &life.world);
    let run = match life.knows("r").await {
        true => swarm.resume("r"),
        false => swarm.run("Do it all.").id("r"),
    };
    shown(&allow_all(run.start()).await.unwrap())
}

#[tokio::test]
async fn nested_swarm_stopped_after_every_record_has_same_result() {
    let report = Crashes::new(MemoryJournal::new)
        .world(Arc::<CrashTally>::default)
        .run(live)
        .await;
    report.assert_same();
    assert!(report.stops.len() > 100, "{}", report.stops.len());
    let whole = report.whole.world.all();
    assert_eq!((whole["look"], whole["send"]), (2, 1));
    for end in &report.stops {
        assert!(end.world.ever("send") <= 1, "{end}");
        // At most the work that was running at the stop is repeated.
        assert!(
            end.world.ever("model") <= whole["model"] + 3,
            "{end}: {:?}",
            end.world.all()
        );
    }
}

#[tokio::test]
async fn history_repeats_events_of_live_run() {
    let ((runtime, journal), world) = (runtime(), Arc::default());
    let swarm = swarm(&runtime, &world);
    let events = Arc::new(Mutex::new(Vec::new()));
    let sink = events.clone();
    let run = swarm.run("Do it all.").id("r").on_event(move |event| {
        if event.run.as_str() == "r" && !event.kind.is_transient() {
            sink.lock().unwrap().push(event.clone());
        }
    });
    let finished = allow_all(run.start()).await.unwrap();
    let line = |event: &Event| {
        format!(
            "{} {}",
            event.at.as_millis(),
            serde_json::to_string(&event.kind).unwrap()
        )
    };
    let live: Vec<String> = events.lock().unwrap().iter().map(line).collect();
    let replayed: Vec<String> = swarm
        .history(&"r".into())
        .await
        .unwrap()
        .iter()
        .map(line)
        .collect();
    assert_eq!(live, replayed);
    assert!(live.len() > 40, "{}", live.len());
    // A run that has ended is only read.
    let calls = world.ever("model");
    let again = swarm.resume("r").await.unwrap();
    assert_eq!(
        (shown(&again), again.usage()),
        (shown(&finished), finished.usage())
    );
    assert_eq!(world.ever("model"), calls);
    let times = |finished: &SwarmAnswer| {
        finished
            .bus()
            .messages()
            .map(|message| message.at)
            .collect::<Vec<_>>()
    };
    assert_eq!(times(&again), times(&finished));
    assert!(journal.read(&"r".into()).await.is_ok());
}

#[tokio::test]
async fn fork_after_every_record_leaves_original_run_unchanged() {
    let ((runtime, journal), world) = (runtime(), Arc::default());
    let swarm = swarm(&runtime, &world);
    let finished = allow_all(swarm.run("Do it all.").id("r").start())
        .await
        .unwrap();
    let before = journal.read(&"r".into()).await.unwrap();
    let whole = world.ever("model");
    for after in 0..before.len() as u64 - 1 {
        let made = world.ever("model");
        let fork = swarm
            .fork("r")
            .after(after)
            .id(format!("fork{after}"))
            .start();
        let forked = allow_all(fork).await.unwrap();
        assert_eq!(shown(&forked), shown(&finished), "forked after {after}");
        let again = world.ever("model") - made;
        // A worker that had ended is not asked again.
        let remaining = before[after as usize + 1..].iter();
        let remaining = remaining
            .filter(|record| matches!(record.entry, Entry::Finished { .. }))
            .count();
        assert!(
            again <= whole && (remaining > 0 || again == 0),
            "forked after {after}: {again} of {whole}"
        );
    }
    assert_eq!(journal.read(&"r".into()).await.unwrap(), before);
}

#[tokio::test]
async fn swarm_is_parked_while_worker_of_nested_swarm_asks() {
    let ((runtime, _), world) = (runtime(), Arc::default());
    let make = || swarm(&runtime, &world);
    let Err(Error::Parked { run, .. }) = make().run("Do it all.").id("r").park().await else {
        panic!("the run must be parked")
    };
    let asks = make().asks(&run).await.unwrap();
    let [ask] = &*asks else { panic!("{asks:?}") };
    assert_eq!(ask.call.name, "send");
    let above = ask.run.parent().and_then(|crew| crew.parent());
    assert_eq!(
        above.as_ref(),
        Some(&run),
        "the asking run is a worker of the crew: {}",
        ask.run
    );
    let Err(Error::Parked { .. }) = make().resume(run.clone()).park().await else {
        panic!("the question is still pending")
    };
    assert_eq!(world.ever("send"), 0);
    let post = RunRequest::Decide {
        effect: ask.effect,
        decision: Decision::Allow,
    };
    make().runtime().send_request(&ask.run, post).await.unwrap();
    let finished = make().resume(run.clone()).park().await.unwrap();
    assert_eq!(finished.text(), "All is done.");
    assert_eq!(world.ever("send"), 1);
    assert!(make().asks(&run).await.unwrap().is_empty());
}

#[tokio::test]
async fn agent_with_swarm_as_tool_resumes_it() {
    let life = async |life: Life<Arc<CrashTally>>| {
        let runtime = Runtime::new().with_journal(life.journal.clone());
        let lead = ScriptedModel::new()
            .call("ask_crew", json!({"task": "Do it all."}))
            .reply("So it is.")
            .by_history();
        let tool = nested_swarm(&life.world).as_tool("ask_crew", "Asks the crew.");
        let agent = Agent::builder(lead)
            .program(tool)
            .runtime(runtime)
            .build()
            .unwrap();
        let mut run = match life.knows("r").await {
            true => agent.resume("r").start(),
            false => agent.run("Go.").id("r").start(),
        };
        let mut events = run.events();
        while let Some(event) = events.next().await {
            if let EventKind::Asked(ask) = event.kind {
                run.approve(&ask).await.unwrap();
            }
        }
        let answer = run.await.unwrap();
        let results: Vec<String> = answer
            .history()
            .calls()
            .map(|(_, result)| result.text().into_owned())
            .collect();
        (answer.text().to_owned(), results)
    };
    let report = Crashes::new(MemoryJournal::new)
        .world(Arc::<CrashTally>::default)
        .run(life)
        .await;
    report.assert_same();
    assert_eq!(report.whole.value.1, ["All is done."]);
    assert!(report.stops.iter().all(|end| end.world.ever("send") <= 1));
}

#[tokio::test]
async fn run_resumes_with_other_limits() {
    let ((runtime, _), world) = (runtime(), Arc::default());
    let swarm = swarm(&runtime, &world);
    let Err(Error::Parked { run, .. }) = swarm.run("Do it all.").id("r").park().await else {
        panic!()
    };
    let ask = swarm.asks(&run).await.unwrap().remove(0);
    swarm
        .runtime()
        .send_request(
            &ask.run,
            RunRequest::Decide {
                effect: ask.effect,
                decision: Decision::Allow,
            },
        )
        .await
        .unwrap();
    let made = world.ever("model") as u64;
    let limits = Limits::new().model_calls(made);
    let finished = swarm.resume(run).limits(limits).await.unwrap();
    assert_eq!(world.ever("model") as u64, made, "earlier usage counts");
    assert_eq!(finished.status(), &Status::BestEffort(Limit::ModelCalls));
    assert!(finished.report("a").unwrap().is_done());
    let not_done = finished.text().split_once("Not done:").unwrap().1;
    assert!(
        not_done.contains("- scout (`e`)") && !not_done.contains("(`a`)"),
        "{}",
        finished.text()
    );
}

#[tokio::test]
async fn running_worker_is_reachable_after_resume() {
    let (runtime, _) = runtime();
    let make = |slow: ScriptedModel| {
        let agent = |model| Agent::builder(model).build().unwrap();
        Swarm::builder(Router::keywords())
            .worker(Worker::new("slow", "Works.", agent(slow)))
            .worker(Worker::new(
                "quick",
                "Works.",
                agent(ScriptedModel::new().reply("Done.")),
            ))
            .runtime(runtime.clone())
            .build()
            .unwrap()
    };
    let plan = [
        Delegation::new("a", "slow", "Wait."),
        Delegation::new("b", "quick", "Go."),
    ];
    let mut handle = make(ScriptedModel::new().hang())
        .run(SwarmInput::from("Go").plan(plan))
        .id("r")
        .start();
    wait_until_running(&mut handle, "slow").await;
    handle.stop().await;

    let mut handle = make(ScriptedModel::new().hang()).resume("r").start();
    let slow = handle.agent("slow");
    wait_until_running(&mut handle, "slow").await;
    slow.send_message("Be quick.").await.unwrap();
    slow.cancel("it takes too long").await.unwrap();
    let finished = handle.await.unwrap();
    assert_eq!(
        finished.report("a").unwrap().error.as_deref(),
        Some("the work was stopped: it takes too long")
    );
    assert!(finished.report("b").unwrap().is_done());
}

/// Waits until a worker is running.
async fn wait_until_running(handle: &mut RunHandle<Swarm>, worker: &str) {
    let (mut events, mut lineage) = (
        handle.events(),
        Lineage::with_root("swarm", handle.id().clone()),
    );
    let patience = Duration::from_secs(30);
    while let Some(event) = timeout(patience, events.next())
        .await
        .expect("no event arrived in time")
    {
        let origin = lineage.apply(&event);
        let works = matches!(&event.kind, EventKind::ModelStarted { .. });
        if works && origin.worker() == Some(worker) {
            return;
        }
    }
    panic!("{worker} never ran");
}
