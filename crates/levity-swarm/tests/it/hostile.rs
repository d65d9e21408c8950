//! Tests of routers and workers that misbehave: the swarm still answers.

use std::sync::Arc;
use std::time::Duration;

use levity_core::{Limits, ModelCard, Price, Status};
use levity_loop::Agent;
use levity_runtime::Runtime;
use levity_swarm::{Delegation, ReportStatus, Router, Swarm, SwarmInput, Worker, WorkerReport};
use levity_test::{ManualWorld, ScriptedModel, Turn};

fn worker(name: &str, model: ScriptedModel) -> Worker {
    Worker::new(
        name,
        format!("The {name}."),
        Agent::builder(model).build().unwrap(),
    )
}

/// Returns a swarm with a plan for two workers, of which one misbehaves.
fn two(bad: Worker) -> Swarm {
    // The clock advances automatically whenever all tasks wait.
    two_in(bad, Runtime::new().with_world(ManualWorld::auto()))
}

fn two_in(bad: Worker, runtime: Runtime) -> Swarm {
    let plan = r#"{"delegations": [{"id": "bad", "worker": "bad", "task": "x"},
        {"id": "good", "worker": "good", "task": "y"}]}"#;
    let router = ScriptedModel::new()
        .reply(plan)
        .reply(r#"{"delegations": []}"#)
        .reply("This is what there is.");
    Swarm::builder(Router::new(router))
        .worker(bad)
        .worker(worker("good", ScriptedModel::new().reply("Good.")))
        .runtime(runtime)
        .build()
        .unwrap()
}

#[track_caller]
fn check(finished: &levity_swarm::SwarmAnswer, reason: &str) {
    assert!(
        finished
            .text()
            .starts_with("This is what there is.\n\nNot done:\n- bad (`bad`): "),
        "{}",
        finished.text()
    );
    assert!(finished.text().contains(reason), "{}", finished.text());
    assert_eq!(finished.report("bad").unwrap().status, ReportStatus::Failed);
    assert!(finished.report("good").unwrap().is_done());
}

#[tokio::test]
async fn worker_that_never_answers_times_out() {
    let bad = worker("bad", ScriptedModel::new().hang().hang()).timeout(Duration::from_secs(5));
    check(
        &two(bad).run("Go").await.unwrap(),
        "the limit on time was reached",
    );
}

#[tokio::test]
async fn worker_that_panics_fails_alone() {
    let bad = worker("bad", ScriptedModel::new().panic("boom").panic("boom"));
    check(&two(bad).run("Go").await.unwrap(), "panic");
}

#[tokio::test]
async fn worker_with_empty_answer_fails() {
    let bad = worker("bad", ScriptedModel::looping(Turn::new().text(""))).retries(0);
    check(
        &two_in(bad, Runtime::new()).run("Go").await.unwrap(),
        "empty",
    );
}

#[tokio::test]
async fn worker_answer_of_ten_megabytes_is_cut() {
    let long = "x".repeat(10 << 20);
    let plan = r#"{"delegations": [{"id": "a", "worker": "bad", "task": "x"},
        {"id": "b", "worker": "good", "task": "y", "depends_on": ["a"]}]}"#;
    let router = ScriptedModel::new().reply(plan).reply("Short.");
    let good = ScriptedModel::new().reply("Good.");
    let swarm = Swarm::builder(Router::new(router.clone()))
        .worker(worker("bad", ScriptedModel::new().reply(long)))
        .worker(worker("good", good.clone()))
        .build()
        .unwrap();
    let finished = swarm.run("Go").await.unwrap();
    assert_eq!(finished.text(), "Short.");
    let text = &finished.report("a").unwrap().text;
    assert!(
        text.len() < WorkerReport::MAX_TEXT + 100 && text.contains("[cut here: "),
        "{}",
        text.len()
    );
    assert!(
        finished.bus().bytes() < 100_000,
        "{}",
        finished.bus().bytes()
    );
    for model in [&router, &good] {
        let longest = model
            .requests()
            .iter()
            .map(|request| request.history.size())
            .max()
            .unwrap();
        assert!(longest < 500_000, "{longest}");
    }
}

#[tokio::test]
async fn router_with_invalid_plans_falls_back_to_keywords() {
    let many: Vec<String> = (0..500)
        .map(|at| format!(r#"{{"id":"d{at}","worker":"coder","task":"t"}}"#))
        .collect();
    let plans = [
        "Let me think about this.".to_owned(),
        String::from("{{{{{{{{"),
        "[".repeat(100_000),
        r#"{"delegations": [{"id": "a", "worker": "nobody", "task": "t"}]}"#.into(),
        r#"{"delegations": [{"id": "a", "worker": "router", "task": "t"}]}"#.into(),
        r#"{"delegations": [{"id": "a", "worker": "coder", "task": "t", "depends_on": ["b"]},
            {"id": "b", "worker": "coder", "task": "t", "depends_on": ["a"]}]}"#
            .into(),
        format!(r#"{{"delegations": [{}]}}"#, many.join(",")),
        format!(
            r#"{{"delegations": [{{"id": "{0}", "worker": "{0}", "task": "{0}"}}]}}"#,
            "x".repeat(1 << 20)
        ),
    ];
    for plan in plans {
        let router = ScriptedModel::new()
            .reply(&*plan)
            .reply(&*plan)
            .reply("Put together.");
        let coder = ScriptedModel::new().reply("Done.");
        let swarm = Swarm::builder(Router::new(router.clone()))
            .worker(worker("coder", coder))
            .build()
            .unwrap();
        let finished = swarm.run("Write code").await.unwrap();
        assert_eq!(finished.text(), "Done.", "{:.80}", plan);
        let asked = router.requests()[1].history.size();
        assert!(asked < 60_000, "{asked} for {plan:.80}");
    }
}

#[tokio::test]
async fn router_that_panics_or_hangs_falls_back_to_keywords() {
    for router in [
        ScriptedModel::new().panic("boom").panic("boom"),
        ScriptedModel::new().hang().hang(),
    ] {
        let world = ManualWorld::auto();
        let router = router.with_world(Arc::new(world.clone()));
        let swarm = Swarm::builder(Router::new(router))
            .worker(worker("coder", ScriptedModel::new().reply("Done.")))
            .runtime(Runtime::new().with_world(world))
            .build()
            .unwrap();
        assert_eq!(swarm.run("Write code").await.unwrap().text(), "Done.");
    }
}

fn card() -> ModelCard {
    ModelCard::new("test", "costly")
        .with_window(4_000)
        .with_max_output(500)
        .with_price(Price::new(5.0, 10.0))
}

/// A model whose calls each use 1,000 tokens and cost a cent.
fn costly(text: &str) -> ScriptedModel {
    ScriptedModel::looping(Turn::new().text(text).usage(500, 500)).with_card(card())
}

#[tokio::test]
async fn total_budget_is_never_exceeded() {
    for tokens in [0, 100, 2_000, 5_000, 10_000, 30_000] {
        let agents = |name: &str| {
            Worker::new(
                name,
                "Works.",
                Agent::builder(costly("Done.")).build().unwrap(),
            )
        };
        let swarm = Swarm::builder(Router::agent(
            Agent::builder(costly("Done.")).build().unwrap(),
        ))
        .workers(["a", "b", "c", "d"].map(agents))
        .limits(Limits::new().tokens(tokens))
        .build()
        .unwrap();
        let plan = ["a", "b", "c", "d"].map(|name| Delegation::new(name, name, "Work."));
        let usage = match swarm.run(SwarmInput::from("Go").plan(plan)).await {
            Ok(finished) => finished.usage(),
            Err(error) => error.partial().unwrap().usage(),
        };
        assert!(usage.total() <= tokens, "{} of {tokens}", usage.total());
    }
}

#[tokio::test]
async fn greedy_worker_leaves_share_for_others() {
    let greedy = ScriptedModel::looping(
        Turn::new()
            .call("again", serde_json::json!({}))
            .usage(500, 500),
    );
    let again =
        levity_test::RecordingTool::new("again", |_| Ok(levity_core::ToolOutput::text("more")));
    let greedy = Agent::builder(greedy.with_card(card()))
        .tool(again)
        .max_turns(1_000)
        .build()
        .unwrap();
    let modest = Agent::builder(costly("Done.")).build().unwrap();
    let swarm = Swarm::builder(Router::keywords())
        .worker(Worker::new("greedy", "Works.", greedy))
        .worker(Worker::new("modest", "Works.", modest))
        .limits(Limits::new().tokens(30_000))
        .max_parallel(1)
        .build()
        .unwrap();
    let plan = ["greedy", "modest"].map(|name| Delegation::new(name, name, "Work."));
    let finished = swarm.run(SwarmInput::from("Go").plan(plan)).await.unwrap();
    assert!(
        finished.report("modest").unwrap().is_done(),
        "{:?}",
        finished.reports()
    );
    assert!(finished.report("greedy").unwrap().usage.total() <= 10_000);
    assert!(matches!(
        finished.status(),
        Status::Complete | Status::BestEffort(_)
    ));
}
