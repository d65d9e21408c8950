//! Tests of guards for a whole swarm.

use std::sync::{Arc, Mutex};

use levity_core::{EventKind, Secrets};
use levity_loop::{Agent, SecretGuard, SizeGuard};
use levity_swarm::{Debate, Router, Swarm, Worker};
use levity_test::ScriptedModel;

const WORD: &str = "correct horse";

fn secrets() -> SecretGuard {
    SecretGuard::new().secrets(Secrets::new().known(WORD))
}

fn worker(name: &str, model: &ScriptedModel) -> Worker {
    Worker::new(
        name,
        "Works.",
        Agent::builder(model.clone()).build().unwrap(),
    )
}

#[tokio::test]
async fn guards_inspect_all_members() {
    let plan = r#"{"delegations": [{"id": "a", "worker": "one", "task": "Find it."}]}"#;
    let router = ScriptedModel::new().reply(plan);
    let one = ScriptedModel::new().reply(format!("{WORD}, I found."));
    let builder = Swarm::builder(Router::new(router.clone())).worker(worker("one", &one));
    let swarm = builder.guard(secrets()).build().unwrap();
    let events = Arc::new(Mutex::new(Vec::new()));
    let sink = events.clone();
    let run = swarm
        .run(format!("Find {WORD}."))
        .on_event(move |event| sink.lock().unwrap().push(event.clone()));
    let done = run.await.unwrap();
    assert_eq!(done.text(), "[secret: known], I found.");
    let events = events.lock().unwrap();
    let guarded = |kind: &EventKind| matches!(kind, EventKind::Guarded { .. });
    assert!(
        events.iter().filter(|event| guarded(&event.kind)).count() >= 2,
        "the goal and the answer"
    );
    for request in router.requests().iter().chain(&one.requests()) {
        assert!(!format!("{request:?}").contains(WORD), "{request:?}");
    }
}

#[tokio::test]
async fn answer_blocked_by_guard_is_not_used() {
    let models = [
        ScriptedModel::new().reply("Yes."),
        ScriptedModel::new().reply("No, for many reasons."),
    ];
    let judge = ScriptedModel::new().reply("It is settled for good.");
    let workers = [worker("one", &models[0]), worker("two", &models[1])];
    let builder = Swarm::builder(Debate::new(judge).rounds(1)).workers(workers);
    let swarm = builder.guard(SizeGuard::new().answer(10)).build().unwrap();
    let done = swarm.run("Is it?").await;
    let events = format!("{done:?}");
    assert!(
        !events.contains("many reasons") && !events.contains("settled"),
        "{events}"
    );
}
