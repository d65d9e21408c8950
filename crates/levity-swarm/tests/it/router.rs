//! A router and its workers.

use std::sync::{Arc, Mutex};

use levity_core::{Event, ModelCard, ModelErrorKind, Price, Status};
use levity_loop::Agent;
use levity_swarm::{
    Delegation, Error, FailureAction, MessageKind, PlannedBy, ReportStatus, Router, Swarm,
    SwarmAnswer, SwarmBuilder, SwarmInput, SwarmNotice, Worker,
};
use levity_test::ScriptedModel;

const PLAN: &str = r#"{"delegations": [
    {"id": "find", "worker": "researcher", "task": "Find the facts."},
    {"id": "write", "worker": "coder", "task": "Write it.", "depends_on": ["find"], "expected": "one function"},
    {"id": "look", "worker": "reviewer", "task": "Look it over.", "depends_on": ["write"]}]}"#;

fn agent(model: ScriptedModel) -> Agent {
    Agent::builder(model).build().unwrap()
}

fn worker(name: &str, model: ScriptedModel) -> Worker {
    Worker::new(name, format!("The {name}."), agent(model))
}

fn three(router: Router) -> SwarmBuilder {
    Swarm::builder(router)
        .worker(worker(
            "researcher",
            ScriptedModel::new().reply("Water boils at 100 degrees."),
        ))
        .worker(worker(
            "coder",
            ScriptedModel::new().reply("fn boils(t: u32) -> bool { t >= 100 }"),
        ))
        .worker(worker(
            "reviewer",
            ScriptedModel::new().reply("It is right."),
        ))
}

/// What a model was asked the nth time.
fn told(model: &ScriptedModel, nth: usize) -> String {
    model.requests()[nth]
        .history
        .messages()
        .last()
        .unwrap()
        .text()
        .into_owned()
}

/// What is told, in order.
#[derive(Clone, Default)]
struct Told(Arc<Mutex<Vec<SwarmNotice>>>);

impl Told {
    fn hear(&self) -> impl Fn(&Event) + Send + Sync + 'static {
        let told = self.0.clone();
        move |event| told.lock().unwrap().extend(SwarmNotice::of(&event.kind))
    }

    fn any(&self, is_it: impl Fn(&SwarmNotice) -> bool) -> bool {
        self.0.lock().unwrap().iter().any(is_it)
    }

    fn planned(&self) -> Vec<(PlannedBy, Vec<String>)> {
        let told = self.0.lock().unwrap();
        told.iter()
            .filter_map(|notice| match notice {
                SwarmNotice::Planned { by, plan, .. } => {
                    Some((*by, plan.iter().map(|one| one.worker.to_string()).collect()))
                }
                _ => None,
            })
            .collect()
    }
}

#[tokio::test]
async fn work_is_planned_done_and_put_together() {
    let router = ScriptedModel::new()
        .reply(PLAN)
        .reply("A function, and it is right, says the reviewer.");
    let swarm = three(Router::new(router.clone())).build().unwrap();
    let finished = swarm
        .run("Write a function that tells whether water boils")
        .await
        .unwrap();
    assert_eq!(
        finished.text(),
        "A function, and it is right, says the reviewer."
    );
    assert_eq!(finished.status(), &Status::Complete);
    assert!(
        finished
            .reports()
            .iter()
            .all(levity_swarm::WorkerReport::is_done)
    );
    let kinds: Vec<MessageKind> = finished
        .bus()
        .messages()
        .map(|message| message.kind)
        .collect();
    use MessageKind::{Answer, Result, Task};
    assert_eq!(kinds, [Task, Task, Task, Result, Result, Result, Answer]);
    let asked = told(&router, 1);
    for said in ["Water boils at 100 degrees.", "fn boils", "It is right."] {
        assert!(asked.contains(said), "{asked}");
    }
}

#[tokio::test]
async fn a_worker_is_shown_what_it_depends_on_and_nothing_beside() {
    let coder = ScriptedModel::new().reply("fn f() {}");
    let reviewer = ScriptedModel::new().reply("Fine.");
    let router = ScriptedModel::new().reply(PLAN).reply("Done.");
    let swarm = Swarm::builder(Router::new(router))
        .worker(worker(
            "researcher",
            ScriptedModel::new().reply("Water boils at 100 degrees."),
        ))
        .worker(worker("coder", coder.clone()))
        .worker(worker("reviewer", reviewer.clone()))
        .build()
        .unwrap();
    swarm.run("Boil water").await.unwrap();
    let task = told(&coder, 0);
    assert!(
        task.starts_with("# Your task\nWrite it.\n\nWhat is expected of you: one function\n"),
        "{task}"
    );
    assert!(
        task.contains("## `find` by researcher\n```\nWater boils at 100 degrees.\n```"),
        "{task}"
    );
    let task = told(&reviewer, 0);
    assert!(
        task.contains("fn f() {}") && !task.contains("Water boils"),
        "{task}"
    );
}

#[tokio::test]
async fn the_router_knows_the_workers_by_their_descriptions() {
    let router = ScriptedModel::new().reply(r#"{"answer": "Nothing to do."}"#);
    let swarm = three(Router::new(router.clone())).build().unwrap();
    assert_eq!(swarm.run("Hello").await.unwrap().text(), "Nothing to do.");
    let asked = told(&router, 0);
    assert!(
        asked.contains("- `coder`: The coder.\n- `reviewer`: The reviewer.\n"),
        "{asked}"
    );
}

#[tokio::test]
async fn json_that_is_broken_is_mended_and_that_is_told() {
    let broken = PLAN
        .replace("]}]}", "],}")
        .replace("[\n", "[ // who does what\n");
    let router = ScriptedModel::new()
        .reply(format!("Here you go:\n```json\n{broken}\n```"))
        .reply("Done.");
    let told = Told::default();
    let swarm = three(Router::new(router)).build().unwrap();
    swarm.run("Boil water").on_event(told.hear()).await.unwrap();
    assert!(told.any(|notice| matches!(notice, SwarmNotice::PlanRepaired { .. })));
    assert_eq!(
        told.planned(),
        [(
            PlannedBy::Router,
            ["researcher", "coder", "reviewer"].map(Into::into).to_vec()
        )]
    );
}

#[tokio::test]
async fn a_plan_that_cannot_be_carried_out_is_asked_for_once_more() {
    let router = ScriptedModel::new()
        .reply(PLAN.replace("coder", "codr"))
        .reply(PLAN)
        .reply("Done.");
    let heard = Told::default();
    let swarm = three(Router::new(router.clone())).build().unwrap();
    swarm
        .run("Boil water")
        .on_event(heard.hear())
        .await
        .unwrap();
    let asked = told(&router, 1);
    assert!(
        asked.contains("`write` is for `codr`, who is not there; did you mean `coder`?"),
        "{asked}"
    );
    assert!(heard.any(|notice| matches!(notice, SwarmNotice::PlanRejected { attempt: 1, .. })));
    assert!(!heard.any(|notice| matches!(notice, SwarmNotice::FellBack { .. })));
}

#[tokio::test]
async fn words_decide_when_the_router_cannot() {
    let router = ScriptedModel::new()
        .reply("I would ask the coder.")
        .reply("Really, the coder.")
        .reply("Done.");
    let heard = Told::default();
    let swarm = three(Router::new(router)).build().unwrap();
    let finished = swarm
        .run("Research it, and review the code")
        .on_event(heard.hear())
        .await
        .unwrap();
    assert_eq!(finished.text(), "Done.");
    assert!(heard.any(|notice| matches!(notice, SwarmNotice::PlanRejected { attempt: 2, .. })));
    assert!(heard.any(|notice| matches!(notice, SwarmNotice::FellBack { .. })));
    assert_eq!(
        heard.planned(),
        [(
            PlannedBy::Keywords,
            ["researcher", "coder", "reviewer"].map(Into::into).to_vec()
        )]
    );
}

#[tokio::test]
async fn without_a_word_that_fits_the_first_worker_has_it() {
    let swarm = three(Router::keywords()).build().unwrap();
    let finished = swarm.run("Good morning").await.unwrap();
    assert_eq!(finished.text(), "Water boils at 100 degrees.");
    assert_eq!(finished.reports().len(), 1);
}

#[tokio::test]
async fn who_fails_tries_again_and_is_told_why() {
    let coder = ScriptedModel::new()
        .fail(ModelErrorKind::Overloaded)
        .reply("fn f() {}");
    let heard = Told::default();
    let swarm = Swarm::builder(Router::keywords())
        .worker(worker("coder", coder.clone()))
        .build()
        .unwrap();
    let finished = swarm
        .run("Write code")
        .on_event(heard.hear())
        .await
        .unwrap();
    assert_eq!(
        (finished.text(), finished.reports()[0].attempts),
        ("fn f() {}", 2)
    );
    assert!(
        told(&coder, 1).contains("# The attempt before failed"),
        "{}",
        told(&coder, 1)
    );
    assert!(heard.any(|notice| matches!(
        notice,
        SwarmNotice::Failed {
            then: FailureAction::Retry,
            ..
        }
    )));
}

#[tokio::test]
async fn another_stands_in_for_who_cannot() {
    let bad = ScriptedModel::new()
        .fail(ModelErrorKind::Auth)
        .fail(ModelErrorKind::Auth);
    let swarm = Swarm::builder(Router::keywords())
        .worker(worker("coder", bad).stand_in("helper"))
        .worker(worker("helper", ScriptedModel::new().reply("I did it.")))
        .build()
        .unwrap();
    let finished = swarm.run("Write code").await.unwrap();
    assert_eq!(finished.text(), "I did it.");
    let report = &finished.reports()[0];
    assert_eq!(
        (&*report.worker, report.attempts, report.status),
        ("helper", 3, ReportStatus::Done)
    );
    let said: Vec<String> = finished
        .bus()
        .messages()
        .map(|m| format!("{} {} {}", m.from, m.kind, m.to))
        .collect();
    let expected = [
        "router task coder",
        "coder failure router",
        "coder failure router",
        "router task helper",
        "helper result router",
        "router answer user",
    ];
    assert_eq!(said, expected);
}

#[tokio::test]
async fn the_router_gives_to_another_what_failed() {
    let plan = r#"{"delegations": [{"id": "a", "worker": "coder", "task": "Write."},
        {"id": "b", "worker": "researcher", "task": "Find."},
        {"id": "c", "worker": "reviewer", "task": "Look.", "depends_on": ["a"]}]}"#;
    let again = r#"{"delegations": [{"id": "a", "worker": "researcher", "task": "Write it.", "depends_on": ["b"]},
        {"id": "c", "worker": "reviewer", "task": "Look.", "depends_on": ["a"]}]}"#;
    let router = ScriptedModel::new()
        .reply(plan)
        .reply(again)
        .reply("All done.");
    let researcher = ScriptedModel::new().reply("Facts.").reply("Code.");
    let swarm = Swarm::builder(Router::new(router.clone()))
        .worker(worker("coder", ScriptedModel::new().fail(ModelErrorKind::Auth)).retries(0))
        .worker(worker("researcher", researcher.clone()))
        .worker(worker("reviewer", ScriptedModel::new().reply("Good.")))
        .build()
        .unwrap();
    let finished = swarm.run("Write code").await.unwrap();
    assert_eq!(finished.text(), "All done.");
    let asked = told(&router, 1);
    assert!(
        asked.contains("## `a` by coder: failed\nIts task: Write."),
        "{asked}"
    );
    assert!(
        asked.contains("## `b` by researcher: done")
            && asked.contains("## `c` by reviewer: not begun"),
        "{asked}"
    );
    assert!(
        told(&researcher, 1).contains("## `b` by researcher\n```\nFacts.\n```"),
        "{}",
        told(&researcher, 1)
    );
    let ids: Vec<_> = finished
        .reports()
        .iter()
        .map(|report| (&*report.id, report.is_done()))
        .collect();
    assert_eq!(
        ids,
        [
            ("a", false),
            ("b", true),
            ("c", false),
            ("a.2", true),
            ("c.2", true)
        ]
    );
}

#[tokio::test]
async fn what_is_not_done_is_named_below_the_answer() {
    let plan = r#"{"delegations": [{"id": "a", "worker": "coder", "task": "Write."},
        {"id": "b", "worker": "researcher", "task": "Find."}]}"#;
    let router = ScriptedModel::new()
        .reply(plan)
        .reply(r#"{"delegations": []}"#)
        .reply("All is well!");
    let swarm = Swarm::builder(Router::new(router))
        .worker(worker("coder", ScriptedModel::new().fail(ModelErrorKind::Auth)).retries(0))
        .worker(worker("researcher", ScriptedModel::new().reply("Facts.")))
        .build()
        .unwrap();
    let finished = swarm.run("Write code").await.unwrap();
    assert!(
        finished
            .text()
            .starts_with("All is well!\n\nNot done:\n- coder (`a`): the model gave no reply")
    );
    assert_eq!(finished.failures().count(), 1);
}

#[tokio::test]
async fn results_are_listed_when_nobody_puts_them_together() {
    let router = ScriptedModel::new()
        .reply(PLAN)
        .fail(ModelErrorKind::Overloaded);
    let heard = Told::default();
    let swarm = three(Router::new(router)).build().unwrap();
    let finished = swarm
        .run("Boil water")
        .on_event(heard.hear())
        .await
        .unwrap();
    assert!(
        finished
            .text()
            .starts_with("## researcher (`find`)\nWater boils"),
        "{}",
        finished.text()
    );
    assert!(heard.any(|notice| matches!(notice, SwarmNotice::Listed { .. })));
}

#[tokio::test]
async fn when_nothing_is_done_there_is_no_answer_but_a_reason() {
    let failing = || {
        ScriptedModel::new()
            .fail(ModelErrorKind::Auth)
            .fail(ModelErrorKind::Auth)
    };
    let swarm = Swarm::builder(Router::keywords())
        .worker(worker("coder", failing()))
        .build()
        .unwrap();
    let error = swarm.run("Write code").await.unwrap_err();
    let Error::Unreached { why, partial } = &error else {
        panic!("{error}")
    };
    assert!(
        why.contains("coder (`d1`): the model gave no reply"),
        "{why}"
    );
    let partial: SwarmAnswer = partial.downcast().unwrap();
    assert_eq!(partial.reports()[0].status, ReportStatus::Failed);
}

#[tokio::test]
async fn a_plan_of_the_hosts_is_checked_before_anything_begins() {
    let swarm = three(Router::new(ScriptedModel::new().reply("Put together.")))
        .build()
        .unwrap();
    let plan = [
        Delegation::new("a", "coder", "Write."),
        Delegation::new("b", "nobody", "x").after(["z"]),
    ];
    let error = swarm
        .run(SwarmInput::from("Go").plan(plan))
        .await
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "the plan cannot be carried out: `b` is for `nobody`, who is not there; `b` depends on \
            `z`, which is not there; \
         did you mean `a`?"
    );
    let plan = [
        Delegation::new("a", "coder", "Write."),
        Delegation::new("b", "reviewer", "Look.").after(["a"]),
    ];
    assert_eq!(
        swarm
            .run(SwarmInput::from("Go").plan(plan))
            .await
            .unwrap()
            .text(),
        "Put together."
    );
}

#[tokio::test]
async fn the_router_knows_what_the_workers_cost() {
    let router = ScriptedModel::new().reply(r#"{"answer": "Nothing to do."}"#);
    let card = ModelCard::new("test", "dear").with_price(Price::new(3.0, 15.0));
    let dear = worker("dear", ScriptedModel::new().with_card(card));
    let swarm = Swarm::builder(Router::new(router.clone()))
        .worker(dear)
        .worker(worker("free", ScriptedModel::new()))
        .build();
    swarm.unwrap().run("Hello").await.unwrap();
    let asked = told(&router, 0);
    let expected = "- `dear`: The dear. (costs $3.00 and $15.00 per million tokens in and out)\n- \
        `free`: The free.\n";
    assert!(asked.contains(expected), "{asked}");
}

#[tokio::test]
async fn what_has_no_id_does_not_pass_for_what_failed() {
    let plan = r#"{"delegations": [{"worker": "coder", "task": "Write."}, {"worker": "researcher", "task": "Find."}]}"#;
    let again = r#"{"delegations": [{"worker": "researcher", "task": "Find something else."}]}"#;
    let router = ScriptedModel::new()
        .reply(plan)
        .reply(again)
        .reply("Put together.");
    let swarm = Swarm::builder(Router::new(router))
        .worker(worker("coder", ScriptedModel::new().fail(ModelErrorKind::Auth)).retries(0))
        .worker(worker(
            "researcher",
            ScriptedModel::new().reply("Facts.").reply("More."),
        ))
        .build()
        .unwrap();
    let finished = swarm.run("Write code").await.unwrap();
    let ids: Vec<_> = finished
        .reports()
        .iter()
        .map(|report| &*report.id)
        .collect();
    assert_eq!(ids, ["d1", "d2", "d3"]);
    assert!(
        finished.text().contains("Not done:\n- coder (`d1`)"),
        "{}",
        finished.text()
    );
}
