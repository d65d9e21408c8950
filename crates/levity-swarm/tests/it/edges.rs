//! Tests of edge cases in settings and plans.

use std::sync::{Arc, Mutex};

use levity_core::{
    Effect, EffectId, Ending, Input, Limits, Machine, MachineOutput, ModelErrorKind, Outcome,
    RunId, Signal, Status,
};
use levity_loop::Agent;
use levity_swarm::{
    Debate, Delegation, Error, Handoff, Messages, PlannedBy, ReportStatus, Router, Swarm,
    SwarmInput, SwarmMachine, SwarmNotice, Worker,
};
use levity_test::ScriptedModel;
use serde_json::json;

fn agent(model: ScriptedModel) -> Agent {
    Agent::builder(model).build().unwrap()
}

fn worker(name: &str, model: ScriptedModel) -> Worker {
    Worker::new(name, "Works.", agent(model)).retries(0)
}

fn replies(text: &str) -> ScriptedModel {
    ScriptedModel::new().reply(text)
}

fn fails() -> ScriptedModel {
    ScriptedModel::new().fail(ModelErrorKind::Auth)
}

#[tokio::test]
async fn fallback_worker_has_its_own_limits() {
    let one_call = Limits::new().model_calls(1);
    let swarm = Swarm::builder(Router::keywords())
        .worker(worker("first", fails()).limits(one_call).fallback("second"))
        .worker(worker("second", replies("Done.")).limits(one_call))
        .build()
        .unwrap();
    let finished = swarm
        .run(SwarmInput::from("Go").plan([Delegation::new("a", "first", "Go.")]))
        .await
        .unwrap();
    let report = finished.report("a").unwrap();
    assert_eq!(
        (&*report.worker, &*report.text, report.attempts),
        ("second", "Done.", 2)
    );
}

/// Runs a swarm with these router answers, whose worker `weak` fails and `strong` succeeds.
async fn rounds(plans: &[&str]) -> (levity_swarm::SwarmAnswer, ScriptedModel) {
    let router = plans
        .iter()
        .fold(ScriptedModel::new(), |model, plan| model.reply(*plan))
        .reply("All in all.");
    let strong = (0..9).fold(ScriptedModel::new(), |model, _| model.reply("Done."));
    let weak = fails().fail(ModelErrorKind::Auth);
    let swarm = Swarm::builder(Router::new(router.clone()))
        .worker(worker("weak", weak))
        .worker(worker("strong", strong))
        .max_parallel(1)
        .build()
        .unwrap();
    (swarm.run("Go").await.unwrap(), router)
}

#[tokio::test]
async fn repeated_delegation_gets_free_id() {
    let both = |worker: &str| {
        format!(
            r#"[{{"id": "1", "worker": "{worker}", "task": "t"}},
                {{"id": "1.2", "worker": "{worker}", "task": "t"}},
                {{"id": "1.3", "worker": "strong", "task": "t", "depends_on": ["1", "1.2"]}}]"#
        )
    };
    let (finished, router) = rounds(&[&both("weak"), &both("strong")]).await;
    let reports: Vec<_> = finished.reports()[3..]
        .iter()
        .map(|one| (&*one.id, one.again.as_deref()))
        .collect();
    assert_eq!(
        reports,
        [
            ("1.4", Some("1")),
            ("1.2.2", Some("1.2")),
            ("1.3.2", Some("1.3"))
        ]
    );
    assert_eq!(
        (finished.missing().count(), router.requests().len()),
        (0, 3)
    );
    let needs = &finished.plan()[5].depends_on;
    assert_eq!(
        needs.iter().map(|id| &**id).collect::<Vec<_>>(),
        ["1.4", "1.2.2"]
    );
}

#[tokio::test]
async fn later_plan_that_needs_failed_work_is_requested_again() {
    let first = r#"[{"id": "a", "worker": "weak", "task": "t"}]"#;
    let second = r#"[{"id": "x", "worker": "strong", "task": "t"},
        {"id": "b", "worker": "strong", "task": "t", "depends_on": ["x", "a"]}]"#;
    let third = second.replace(r#", "a""#, "");
    let (finished, router) = rounds(&[first, second, &third]).await;
    let asked = router.requests()[2]
        .history
        .messages()
        .last()
        .unwrap()
        .text()
        .into_owned();
    assert!(
        asked.contains("- `b` depends on `a`, which did not complete"),
        "{asked}"
    );
    assert!(finished.report("b").unwrap().is_done());
}

#[tokio::test]
async fn router_without_attempts_is_not_asked_for_later_plan() {
    let notices = Arc::new(Mutex::new(Vec::new()));
    let sink = notices.clone();
    let swarm = Swarm::builder(Router::new(replies("All in all.")).max_attempts(0))
        .worker(worker("weak", fails()))
        .worker(worker("strong", replies("Done.")))
        .build()
        .unwrap();
    let plan = [
        Delegation::new("a", "weak", "Go."),
        Delegation::new("b", "strong", "Go."),
    ];
    let finished = swarm
        .run(SwarmInput::from("Go").plan(plan))
        .on_event(move |event| sink.lock().unwrap().extend(SwarmNotice::of(&event.kind)))
        .await
        .unwrap();
    let notices = notices.lock().unwrap();
    let planned = notices.iter().filter_map(|notice| match notice {
        SwarmNotice::Planned { by, .. } => Some(*by),
        _ => None,
    });
    assert_eq!(planned.collect::<Vec<_>>(), [PlannedBy::Host]);
    assert_eq!(finished.report("a").unwrap().status, ReportStatus::Failed);
}

/// Finishes an effect of a machine and returns the new requests.
fn finish(machine: &mut SwarmMachine, effect: u64, outcome: Outcome) -> Vec<(EffectId, Effect)> {
    let mut step = MachineOutput::new();
    machine.apply(
        Input::Finished {
            effect: EffectId::new(effect),
            outcome,
        },
        &mut step,
    );
    step.effects
}

fn ended(text: &str) -> Ending {
    let mut ending = Ending::new(Status::Complete);
    ending.text = text.to_owned();
    ending
}

fn child(ending: Ending) -> Outcome {
    Outcome::Child(Box::new(ending))
}

/// Returns the task of the last worker of a second round, if the two before it end in this order.
fn last_task(order: [u64; 2]) -> String {
    let swarm = Swarm::builder(Router::agent(agent(ScriptedModel::new())))
        .workers(["w1", "w2", "w3"].map(|name| worker(name, ScriptedModel::new())))
        .worker_messages()
        .bus_limits(6, 10_000)
        .build()
        .unwrap();
    let mut machine = swarm.machine("Go");
    machine.apply(
        Input::Begin {
            run: RunId::new("r"),
            wrap: None,
        },
        &mut MachineOutput::new(),
    );
    let plan =
        r#"[{"id": "a", "worker": "w1", "task": "t"}, {"id": "b", "worker": "w2", "task": "t"}]"#;
    finish(&mut machine, 0, child(ended(plan)));
    let mut noted = ended("Done.");
    noted.signals.push(Signal::new(
        "send_message",
        json!({"to": "w3", "content": "Mind the step."}),
    ));
    finish(&mut machine, 1, child(noted));
    let mut failed = ended("");
    failed.status = Status::Failed(levity_core::Failure::Internal("no".into()));
    finish(&mut machine, 2, child(failed));
    let plan = r#"[{"id": "c", "worker": "w1", "task": "t"},
        {"id": "d", "worker": "w2", "task": "t"},
        {"id": "e", "worker": "w3", "task": "t", "depends_on": ["d"]}]"#;
    finish(&mut machine, 3, child(ended(plan)));
    let wanted = order.map(|effect| finish(&mut machine, effect, child(ended("Done."))));
    let mut wanted = wanted.into_iter().flatten();
    let (_, Effect::Child(run)) = wanted.next().unwrap() else {
        panic!("no child")
    };
    assert_eq!((&*run.agent, wanted.count()), ("w3", 0));
    run.input["task"].as_str().unwrap().to_owned()
}

#[test]
fn full_bus_does_not_change_task_of_worker() {
    let task = last_task([5, 4]);
    assert!(
        task.contains("w1 says:\n```\nMind the step.\n```"),
        "{task}"
    );
    assert_eq!(task, last_task([4, 5]));
}

#[test]
fn invalid_worker_names_are_rejected() {
    let long = "x".repeat(300);
    for name in [
        "",
        " ",
        "router",
        "*",
        " coder",
        "coder\n",
        "co\u{7}der",
        &long,
    ] {
        let built = Swarm::builder(Router::keywords())
            .worker(worker(name, ScriptedModel::new()))
            .build();
        assert!(
            matches!(
                built,
                Err(Error::Setting {
                    setting: "worker",
                    ..
                })
            ),
            "{name:?}"
        );
    }
    for name in ["Zoë the 2nd", "read_file", "a/b", "名前"] {
        Swarm::builder(Router::keywords())
            .worker(worker(name, ScriptedModel::new()))
            .build()
            .unwrap();
    }
}

#[tokio::test]
async fn only_handoff_accepts_earlier_conversation() {
    let handoff = Swarm::builder(Handoff::starting_with("desk"))
        .worker(worker("desk", replies("Hello.")))
        .build()
        .unwrap();
    let earlier = handoff.run("Hi").await.unwrap();
    for swarm in [
        Swarm::builder(Router::keywords()),
        Swarm::builder(Debate::unjudged()),
    ] {
        let swarm = swarm
            .worker(worker("desk", replies("x")))
            .worker(worker("other", replies("x")))
            .build()
            .unwrap();
        let refused = swarm.run(SwarmInput::from("Go").after(&earlier)).await;
        assert!(
            matches!(
                refused,
                Err(Error::Setting {
                    setting: "after",
                    ..
                })
            ),
            "{refused:?}"
        );
    }
}

#[tokio::test]
async fn messages_exclude_nested_swarms() {
    let inner = Swarm::builder(Router::keywords())
        .worker(worker("deep", replies("Deep.")))
        .build()
        .unwrap();
    let swarm = Swarm::builder(Router::keywords())
        .worker(Worker::swarm("team", "Works.", inner))
        .build()
        .unwrap();
    let mut handle = swarm.run("Go").start();
    let mut messages = Messages::of(&mut handle);
    let finished = handle.await.unwrap();
    let mut received = Vec::new();
    while let Some(message) = messages.next().await {
        received.push(message.unwrap());
    }
    assert!(finished.bus().messages().eq(&received), "{received:?}");
}

#[tokio::test]
async fn blank_goal_is_rejected_unless_plan_is_given() {
    let model = replies("Done.");
    let router = Swarm::builder(Router::keywords())
        .worker(worker("first", model.clone()))
        .build()
        .unwrap();
    let debate = Swarm::builder(Debate::unjudged().rounds(1))
        .worker(worker("yes", replies("yes")))
        .worker(worker("no", replies("no")))
        .build()
        .unwrap();
    for swarm in [&router, &debate] {
        for goal in [
            "",
            " ",
            "\n\t",
            "\u{200b}",
            "\0",
            "\u{feff} \u{2060}\u{3164}\0\u{e0020}",
            "\u{200d}\u{ad}",
        ] {
            assert!(
                matches!(swarm.run(goal).await, Err(Error::EmptyPrompt)),
                "{goal:?}"
            );
            assert!(
                matches!(swarm.run(goal).try_start(), Err(Error::EmptyPrompt)),
                "{goal:?}"
            );
        }
    }
    assert!(model.requests().is_empty());
    router
        .run(SwarmInput::from("").plan([Delegation::new("a", "first", "Go.")]))
        .await
        .unwrap();
}
