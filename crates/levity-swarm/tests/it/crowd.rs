//! Tests with a thousand workers, and of the memory of workers.

use levity_core::{Limits, Status};
use levity_loop::Agent;
use levity_memory::InMemory;
use levity_runtime::{MemoryJournal, Runtime};
use levity_swarm::{Delegation, Router, Swarm, SwarmInput, Worker, WorkerMemory};
use levity_test::{ScriptedModel, Turn};

#[tokio::test]
async fn thousand_workers_complete_in_one_swarm() {
    let agent = Agent::builder(ScriptedModel::looping(Turn::new().text("Done.")))
        .build()
        .unwrap();
    let names: Vec<String> = (0..1_000).map(|at| format!("worker{at}")).collect();
    let workers = names
        .iter()
        .map(|name| Worker::new(&**name, "Works.", agent.clone()));
    let swarm = Swarm::builder(Router::new(ScriptedModel::new().reply("All done.")))
        .workers(workers)
        .max_parallel(1_000)
        .runtime(Runtime::new().with_journal(MemoryJournal::new()))
        .build()
        .unwrap();
    let plan = names
        .iter()
        .map(|name| Delegation::new(&**name, &**name, "Work."));
    let finished = swarm.run(SwarmInput::from("Go").plan(plan)).await.unwrap();
    assert_eq!(
        (finished.text(), finished.status()),
        ("All done.", &Status::Complete)
    );
    assert_eq!(
        finished
            .reports()
            .iter()
            .filter(|report| report.is_done())
            .count(),
        1_000
    );
    assert_eq!(finished.bus().len(), 2_001);
    assert_eq!(finished.stats().model_calls, 1_001);
}

#[tokio::test]
async fn model_call_limit_stops_half_of_thousand_workers() {
    let agent = Agent::builder(ScriptedModel::looping(Turn::new().text("Done.")))
        .build()
        .unwrap();
    let names: Vec<String> = (0..1_000).map(|at| format!("worker{at}")).collect();
    let workers = names
        .iter()
        .map(|name| Worker::new(&**name, "Works.", agent.clone()));
    let swarm = Swarm::builder(Router::new(
        ScriptedModel::new().reply("Half done.").reply("x"),
    ))
    .workers(workers)
    .limits(Limits::new().model_calls(500))
    .build()
    .unwrap();
    let plan = names
        .iter()
        .map(|name| Delegation::new(&**name, &**name, "Work."));
    let (text, calls) = match swarm.run(SwarmInput::from("Go").plan(plan)).await {
        Ok(finished) => (finished.text().to_owned(), finished.stats().model_calls),
        Err(error) => (
            error.to_string(),
            error.partial().unwrap().stats().model_calls,
        ),
    };
    assert!(calls <= 500, "{calls}");
    assert!(
        text.starts_with("Half done.\n\nNot done:\n") && text.contains("more"),
        "{text}"
    );
}

#[tokio::test]
async fn router_prompt_for_thousand_workers_is_bounded() {
    let router = ScriptedModel::new().reply(r#"{"answer": "Nothing."}"#);
    let agent = Agent::builder(ScriptedModel::new()).build().unwrap();
    let worker = |at| {
        Worker::new(
            format!("worker{at}"),
            "Works hard. ".repeat(1_000),
            agent.clone(),
        )
    };
    let swarm = Swarm::builder(Router::new(router.clone()))
        .workers((0..1_000).map(worker))
        .build()
        .unwrap();
    swarm.run("Go").await.unwrap();
    let asked = router.requests()[0].history.size();
    assert!(asked < 100_000, "{asked}");
}

/// Runs a worker with this memory twice in one run and once in another; returns the history
/// lengths.
async fn seen(scope: WorkerMemory) -> Vec<usize> {
    let model = ScriptedModel::looping(Turn::new().text("Noted."));
    let agent = Agent::builder(model.clone())
        .memory(InMemory::new())
        .build()
        .unwrap();
    let swarm = Swarm::builder(Router::keywords())
        .worker(Worker::new("clerk", "Writes.", agent).memory(scope))
        .build()
        .unwrap();
    let plan = || {
        [
            Delegation::new("a", "clerk", "First."),
            Delegation::new("b", "clerk", "Second.").after(["a"]),
        ]
    };
    swarm
        .run(SwarmInput::from("Go").plan(plan()))
        .conversation("talk")
        .await
        .unwrap();
    swarm
        .run(SwarmInput::from("Go").plan([Delegation::new("c", "clerk", "Third.")]))
        .conversation("talk")
        .await
        .unwrap();
    model
        .requests()
        .iter()
        .map(|request| request.history.len())
        .collect()
}

#[tokio::test]
async fn worker_memory_has_configured_scope() {
    assert_eq!(seen(WorkerMemory::Task).await, [1, 1, 1]);
    assert_eq!(seen(WorkerMemory::Run).await, [1, 3, 1]);
    assert_eq!(seen(WorkerMemory::Conversation).await, [1, 3, 5]);
    assert_eq!(seen(WorkerMemory::Named("clerk".into())).await, [1, 3, 5]);
}

#[tokio::test]
async fn worker_with_conversation_runs_its_tasks_sequentially() {
    let model = ScriptedModel::looping(Turn::new().text("Noted."));
    let agent = Agent::builder(model.clone())
        .memory(InMemory::new())
        .build()
        .unwrap();
    let swarm = Swarm::builder(Router::keywords())
        .worker(Worker::new("clerk", "Writes.", agent).memory(WorkerMemory::Conversation))
        .build()
        .unwrap();
    let plan = (0..5).map(|at| Delegation::new(format!("d{at}"), "clerk", format!("Task {at}.")));
    let finished = swarm
        .run(SwarmInput::from("Go").plan(plan))
        .conversation("talk")
        .await
        .unwrap();
    assert_eq!(finished.failures().count(), 0);
    let seen: Vec<usize> = model
        .requests()
        .iter()
        .map(|request| request.history.len())
        .collect();
    assert_eq!(seen, [1, 3, 5, 7, 9]);
}

#[tokio::test]
async fn sufficient_limit_makes_no_difference() {
    let agent = || {
        Agent::builder(ScriptedModel::looping(Turn::new().text("Done.")))
            .build()
            .unwrap()
    };
    let swarm = Swarm::builder(Router::new(ScriptedModel::looping(
        Turn::new().text("All done."),
    )))
    .workers(["a", "b"].map(|name| Worker::new(name, "Works.", agent())))
    .build()
    .unwrap();
    let plan = || ["a", "b"].map(|name| Delegation::new(name, name, "Work."));
    let finished = swarm
        .run(SwarmInput::from("Go").plan(plan()))
        .limits(Limits::new().model_calls(3))
        .await
        .unwrap();
    assert_eq!(
        (finished.text(), finished.status()),
        ("All done.", &Status::Complete)
    );
    let finished = swarm
        .run(SwarmInput::from("Go").plan(plan()))
        .limits(Limits::new().model_calls(2))
        .await
        .unwrap();
    assert!(
        finished
            .text()
            .starts_with("All done.\n\nNot done:\n- b (`b`): "),
        "{}",
        finished.text()
    );
    assert!(matches!(finished.status(), Status::BestEffort(_)));
}
