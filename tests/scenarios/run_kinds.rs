//! The conformance suite of runs, for every kind of run.

use std::sync::{Arc, Mutex};

use levity::core::{Event, Response, RunId};
use levity::dag::{Team, TeamInput};
use levity::prelude::*;
use levity::runtime::{MemoryJournal, Observer, Run, Runnable, replay_run};
use levity::swarm::{Router, Swarm, Worker};
use levity::test::{FunctionModel, ScriptedModel, conformance};
use serde_json::json;

#[allow(dead_code, reason = "the example has a `main`")]
#[path = "../../examples/map_reduce.rs"]
mod map_reduce;

/// Creates a model that computes its reply from the goal.
fn reply_model(reply: impl Fn(&str) -> String + Send + Sync + 'static) -> FunctionModel {
    FunctionModel::new(move |request| {
        let goal = request.history.messages()[0].text().into_owned();
        Ok(Response::new(Message::assistant(reply(&goal))))
    })
}

fn text_and_calls<D>(finished: &levity::core::RunOutput<D>) -> (String, u64) {
    (finished.text().to_owned(), finished.stats().model_calls)
}

fn agent(runtime: Runtime, model: impl Model + 'static) -> Agent {
    Agent::builder(model).runtime(runtime).build().unwrap()
}

/// Sends a letter.
#[tool(read_only)]
async fn send(
    /** the recipient */
    to: String,
) -> String {
    format!("sent to {to}")
}

#[tokio::test]
async fn agent_with_approval_passes_run_conformance() {
    let make = |runtime: Runtime| {
        let model = ScriptedModel::new()
            .call("send", json!({"to": "Ada"}))
            .call("send", json!({"to": "Bob"}))
            .reply("Both have it.")
            .by_history();
        let policy = levity::tools::Policy::new()
            .rule(levity::tools::Rule::tool("send").ask("it is a letter"));
        Agent::builder(model)
            .tool(send)
            .policy(policy)
            .runtime(runtime)
            .build()
            .unwrap()
    };
    conformance::runnable(make, || "Write to Ada and Bob.".into(), text_and_calls).await;
}

#[tokio::test]
async fn team_with_plan_approval_passes_run_conformance() {
    const PLAN: &str = r#"{"steps": [
        {"id": "tides", "agent": "finder", "prompt": "Find the tides.", "writes": ["tides"]},
        {"id": "winds", "agent": "finder", "prompt": "Find the winds.", "writes": ["winds"]},
        {"id": "choose", "agent": "finder", "prompt": "Choose a day.", "reads": ["tides", "winds"],
            "writes": ["day"]}
    ]}"#;
    let make = |runtime: Runtime| {
        let found = |_: &str| r#"{"tides": "low", "winds": "mild", "day": "Monday"}"#.to_owned();
        Team::builder()
            .agent(
                "Planner",
                "Makes plans.",
                agent(runtime.clone(), reply_model(|_| PLAN.to_owned())),
            )
            .agent(
                "finder",
                "Finds things out.",
                agent(runtime.clone(), reply_model(found)),
            )
            .approve_plans()
            .runtime(runtime)
            .build()
            .unwrap()
    };
    conformance::runnable(
        make,
        || TeamInput::from("When can we sail?"),
        text_and_calls,
    )
    .await;
}

#[tokio::test]
async fn swarm_of_two_workers_passes_run_conformance() {
    let make = |runtime: Runtime| {
        let plan = json!({"delegations": [
            {"id": "look", "worker": "pilot", "task": "Look out.", "depends_on": []},
            {"id": "steer", "worker": "mate", "task": "Steer.", "depends_on": ["look"]},
        ]});
        let router = FunctionModel::new(move |request| {
            // The first request asks for a plan, the second for a summary of the results.
            let planned = request
                .history
                .messages()
                .iter()
                .any(|message| message.text().contains("A rock."));
            let reply = if planned {
                "We steer around it.".to_owned()
            } else {
                plan.to_string()
            };
            Ok(Response::new(Message::assistant(reply)))
        });
        let worker = |name: &str, reply: &'static str| {
            Worker::new(
                name,
                "Works.",
                agent(runtime.clone(), reply_model(move |_| reply.to_owned())),
            )
        };
        Swarm::builder(Router::new(router))
            .worker(worker("pilot", "A rock."))
            .worker(worker("mate", "Steered."))
            .runtime(runtime.clone())
            .build()
            .unwrap()
    };
    conformance::runnable(make, || "Bring us in.".into(), text_and_calls).await;
}

#[tokio::test]
async fn custom_run_kind_passes_run_conformance() {
    let make = |runtime: Runtime| {
        let reader = agent(
            runtime.clone(),
            reply_model(|document| format!("{} letters", document.len())),
        );
        let writer = agent(
            runtime.clone(),
            reply_model(|notes| notes.replace('\n', ", ")),
        );
        map_reduce::MapReduce::new(runtime, reader, writer)
    };
    let input = || {
        ["The tide is out.", "The harbour is empty."]
            .map(str::to_owned)
            .to_vec()
    };
    conformance::runnable(make, input, |finished| {
        assert_eq!(
            (finished.text(), finished.stats().model_calls),
            ("16 letters, 21 letters", 3)
        );
        text_and_calls(finished)
    })
    .await;
    conformance::runnable(make, Vec::new, text_and_calls).await;
}

/// Observes a run, and returns the durable events of the run itself as text, including earlier
/// ones.
async fn observed_events<W: Runnable>(run: Run<W>, id: &str) -> Vec<String> {
    let (seen, id) = (Arc::new(Mutex::new(Vec::new())), RunId::new(id));
    let observe = {
        let (seen, id) = (seen.clone(), id.clone());
        move |run: &RunId| {
            assert_eq!(*run, id);
            let (before, now, after) = (seen.clone(), seen.clone(), seen.clone());
            Observer::new(move |event| now.lock().unwrap().push(event.clone()))
                .on_earlier_events(move |events| before.lock().unwrap().extend_from_slice(events))
                .after(async move { assert!(!after.lock().unwrap().is_empty()) })
        }
    };
    run.id(id.clone())
        .observe(observe)
        .await
        .unwrap_or_else(|error| panic!("{error}"));
    let seen = std::mem::take(&mut *seen.lock().unwrap());
    seen.iter()
        .filter(|event| event.run == id && !event.kind.is_transient())
        .map(as_text)
        .collect()
}

fn as_text(event: &Event) -> String {
    format!("{} {:?}", event.seq, event.kind)
}

async fn check_observer_events<W: Runnable>(runnable: W, input: W::Input) {
    let events_of = |run: &'static str| {
        let runnable = runnable.clone();
        async move {
            replay_run(&runnable, &RunId::new(run))
                .await
                .unwrap()
                .events
                .iter()
                .map(as_text)
                .collect::<Vec<_>>()
        }
    };
    assert_eq!(
        observed_events(Run::new(runnable.clone(), input), "new").await,
        events_of("new").await
    );
    assert_eq!(
        observed_events(Run::fork(runnable.clone(), "new"), "fork").await,
        events_of("fork").await
    );
    assert_eq!(
        observed_events(Run::resume(runnable.clone(), "new"), "new").await,
        events_of("new").await
    );
}

#[tokio::test]
async fn observer_receives_every_event_of_new_forked_and_resumed_runs() {
    let runtime = Runtime::new().with_journal(MemoryJournal::new());
    let model = ScriptedModel::new()
        .call("send", json!({"to": "Ada"}))
        .reply("She has it.")
        .by_history();
    let agent = Agent::builder(model)
        .tool(send)
        .runtime(runtime)
        .build()
        .unwrap();
    check_observer_events(agent, "Write to Ada.".into()).await;
    let team = Team::builder()
        .function("one", |_: levity::dag::StepInput| async { Ok(json!(1)) })
        .runtime(Runtime::new().with_journal(MemoryJournal::new()))
        .build()
        .unwrap();
    let plan = levity::dag::Plan::new().step(levity::dag::Step::new("one", "one").writes(["one"]));
    check_observer_events(team, plan.into()).await;
}
