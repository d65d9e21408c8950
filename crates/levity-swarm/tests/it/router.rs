//! Tests of a router and its workers.

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
    {"id": "write", "worker": "coder", "task": "Write it.", "depends_on": ["find"],
        "expected": "one function"},
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

/// Returns the last message of the nth request to a model.
fn last_message(model: &ScriptedModel, nth: usize) -> String {
    model.requests()[nth]
        .history
        .messages()
        .last()
        .unwrap()
        .text()
        .into_owned()
}

/// The notices of a run, in order.
#[derive(Clone, Default)]
struct NoticeLog(Arc<Mutex<Vec<SwarmNotice>>>);

impl NoticeLog {
    fn recorder(&self) -> impl Fn(&Event) + Send + Sync + 'static {
        let notices = self.0.clone();
        move |event| notices.lock().unwrap().extend(SwarmNotice::of(&event.kind))
    }

    fn any(&self, is_it: impl Fn(&SwarmNotice) -> bool) -> bool {
        self.0.lock().unwrap().iter().any(is_it)
    }

    fn planned(&self) -> Vec<(PlannedBy, Vec<String>)> {
        let notices = self.0.lock().unwrap();
        notices
            .iter()
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
async fn work_is_planned_done_and_combined() {
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
    let prompt = last_message(&router, 1);
    for said in ["Water boils at 100 degrees.", "fn boils", "It is right."] {
        assert!(prompt.contains(said), "{prompt}");
    }
}

#[tokio::test]
async fn worker_sees_only_results_of_its_dependencies() {
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
    let task = last_message(&coder, 0);
    assert!(
        task.starts_with("# Your task\nWrite it.\n\nWhat is expected of you: one function\n"),
        "{task}"
    );
    assert!(
        task.contains("## `find` by researcher\n```\nWater boils at 100 degrees.\n```"),
        "{task}"
    );
    let task = last_message(&reviewer, 0);
    assert!(
        task.contains("fn f() {}") && !task.contains("Water boils"),
        "{task}"
    );
}

#[tokio::test]
async fn router_prompt_contains_worker_descriptions() {
    let router = ScriptedModel::new().reply(r#"{"answer": "Nothing to do."}"#);
    let swarm = three(Router::new(router.clone())).build().unwrap();
    assert_eq!(swarm.run("Hello").await.unwrap().text(), "Nothing to do.");
    let prompt = last_message(&router, 0);
    assert!(
        prompt.contains("- `coder`: The coder.\n- `reviewer`: The reviewer.\n"),
        "{prompt}"
    );
}

#[tokio::test]
async fn malformed_plan_is_repaired_and_reported() {
    let broken = PLAN
        .replace("]}]}", "],}")
        .replace("[\n", "[ // who does what\n");
    let router = ScriptedModel::new()
        .reply(format!("Here you go:\n```json\n{broken}\n```"))
        .reply("Done.");
    let notices = NoticeLog::default();
    let swarm = three(Router::new(router)).build().unwrap();
    swarm
        .run("Boil water")
        .on_event(notices.recorder())
        .await
        .unwrap();
    assert!(notices.any(|notice| matches!(notice, SwarmNotice::PlanRepaired { .. })));
    assert_eq!(
        notices.planned(),
        [(
            PlannedBy::Router,
            ["researcher", "coder", "reviewer"].map(Into::into).to_vec()
        )]
    );
}

#[tokio::test]
async fn invalid_plan_is_requested_once_more() {
    let router = ScriptedModel::new()
        .reply(PLAN.replace("coder", "codr"))
        .reply(PLAN)
        .reply("Done.");
    let notices = NoticeLog::default();
    let swarm = three(Router::new(router.clone())).build().unwrap();
    swarm
        .run("Boil water")
        .on_event(notices.recorder())
        .await
        .unwrap();
    let prompt = last_message(&router, 1);
    assert!(
        prompt.contains("`write` is for `codr`, who is not there; did you mean `coder`?"),
        "{prompt}"
    );
    assert!(notices.any(|notice| matches!(notice, SwarmNotice::PlanRejected { attempt: 1, .. })));
    assert!(!notices.any(|notice| matches!(notice, SwarmNotice::FellBack { .. })));
}

#[tokio::test]
async fn keywords_select_workers_when_router_fails() {
    let router = ScriptedModel::new()
        .reply("I would ask the coder.")
        .reply("Really, the coder.")
        .reply("Done.");
    let notices = NoticeLog::default();
    let swarm = three(Router::new(router)).build().unwrap();
    let finished = swarm
        .run("Research it, and review the code")
        .on_event(notices.recorder())
        .await
        .unwrap();
    assert_eq!(finished.text(), "Done.");
    assert!(notices.any(|notice| matches!(notice, SwarmNotice::PlanRejected { attempt: 2, .. })));
    assert!(notices.any(|notice| matches!(notice, SwarmNotice::FellBack { .. })));
    assert_eq!(
        notices.planned(),
        [(
            PlannedBy::Keywords,
            ["researcher", "coder", "reviewer"].map(Into::into).to_vec()
        )]
    );
}

#[tokio::test]
async fn first_worker_gets_goal_without_keyword_match() {
    let swarm = three(Router::keywords()).build().unwrap();
    let finished = swarm.run("Good morning").await.unwrap();
    assert_eq!(finished.text(), "Water boils at 100 degrees.");
    assert_eq!(finished.reports().len(), 1);
}

#[tokio::test]
async fn failed_worker_retries_with_error_in_prompt() {
    let coder = ScriptedModel::new()
        .fail(ModelErrorKind::Overloaded)
        .reply("fn f() {}");
    let notices = NoticeLog::default();
    let swarm = Swarm::builder(Router::keywords())
        .worker(worker("coder", coder.clone()))
        .build()
        .unwrap();
    let finished = swarm
        .run("Write code")
        .on_event(notices.recorder())
        .await
        .unwrap();
    assert_eq!(
        (finished.text(), finished.reports()[0].attempts),
        ("fn f() {}", 2)
    );
    assert!(
        last_message(&coder, 1).contains("# The attempt before failed"),
        "{}",
        last_message(&coder, 1)
    );
    assert!(notices.any(|notice| matches!(
        notice,
        SwarmNotice::Failed {
            then: FailureAction::Retry,
            ..
        }
    )));
}

#[tokio::test]
async fn fallback_worker_takes_over_failed_task() {
    let bad = ScriptedModel::new()
        .fail(ModelErrorKind::Auth)
        .fail(ModelErrorKind::Auth);
    let swarm = Swarm::builder(Router::keywords())
        .worker(worker("coder", bad).fallback("helper"))
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
async fn router_reassigns_failed_delegation() {
    let plan = r#"{"delegations": [{"id": "a", "worker": "coder", "task": "Write."},
        {"id": "b", "worker": "researcher", "task": "Find."},
        {"id": "c", "worker": "reviewer", "task": "Look.", "depends_on": ["a"]}]}"#;
    let again = r#"{"delegations": [{"id": "a", "worker": "researcher", "task": "Write it.",
        "depends_on": ["b"]},
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
    let prompt = last_message(&router, 1);
    assert!(
        prompt.contains("## `a` by coder: failed\nIts task: Write."),
        "{prompt}"
    );
    assert!(
        prompt.contains("## `b` by researcher: done")
            && prompt.contains("## `c` by reviewer: not begun"),
        "{prompt}"
    );
    assert!(
        last_message(&researcher, 1).contains("## `b` by researcher\n```\nFacts.\n```"),
        "{}",
        last_message(&researcher, 1)
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
async fn failed_work_is_named_below_answer() {
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
async fn results_are_listed_when_synthesis_fails() {
    let router = ScriptedModel::new()
        .reply(PLAN)
        .fail(ModelErrorKind::Overloaded);
    let notices = NoticeLog::default();
    let swarm = three(Router::new(router)).build().unwrap();
    let finished = swarm
        .run("Boil water")
        .on_event(notices.recorder())
        .await
        .unwrap();
    assert!(
        finished
            .text()
            .starts_with("## researcher (`find`)\nWater boils"),
        "{}",
        finished.text()
    );
    assert!(notices.any(|notice| matches!(notice, SwarmNotice::Listed { .. })));
}

#[tokio::test]
async fn run_without_results_fails_with_reason() {
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
async fn host_plan_is_validated_before_start() {
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
            `z`, which does not exist; \
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
async fn router_prompt_contains_worker_prices() {
    let router = ScriptedModel::new().reply(r#"{"answer": "Nothing to do."}"#);
    let card = ModelCard::new("test", "dear").with_price(Price::new(3.0, 15.0));
    let dear = worker("dear", ScriptedModel::new().with_card(card));
    let swarm = Swarm::builder(Router::new(router.clone()))
        .worker(dear)
        .worker(worker("free", ScriptedModel::new()))
        .build();
    swarm.unwrap().run("Hello").await.unwrap();
    let prompt = last_message(&router, 0);
    let expected = "- `dear`: The dear. (costs $3.00 and $15.00 per million tokens in and out)\n- \
        `free`: The free.\n";
    assert!(prompt.contains(expected), "{prompt}");
}

#[tokio::test]
async fn generated_ids_do_not_repeat_in_later_rounds() {
    let plan = r#"{"delegations": [{"worker": "coder", "task": "Write."},
        {"worker": "researcher", "task": "Find."}]}"#;
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
