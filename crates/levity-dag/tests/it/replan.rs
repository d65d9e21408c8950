//! Plans that are made and changed.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use levity_core::{Decision, EventKind, ToolError};
use levity_dag::{Brief, Error, Notice, Plan, Planner, Step, StepStatus, Team};
use levity_loop::Agent;
use levity_runtime::{MemoryJournal, Runtime};
use levity_test::ScriptedModel;
use serde_json::{Value, json};

use crate::support::{Log, collect, simple, within};

/// Gives these, one after the other, and keeps what it was asked.
#[derive(Clone, Default)]
struct Script(Arc<Mutex<(Vec<Value>, Vec<Brief>)>>);

impl Script {
    fn new(plans: impl IntoIterator<Item = Value>) -> Self {
        let mut plans: Vec<Value> = plans.into_iter().collect();
        plans.reverse();
        Self(Arc::new(Mutex::new((plans, Vec::new()))))
    }

    fn briefs(&self) -> Vec<Brief> {
        self.0.lock().unwrap().1.clone()
    }
}

#[async_trait]
impl Planner for Script {
    async fn plan(&self, brief: &Brief) -> Result<Value, ToolError> {
        let mut script = self.0.lock().unwrap();
        script.1.push(brief.clone());
        script.0.pop().ok_or_else(|| ToolError::failed("nothing more"))
    }
}

fn give(id: &str, value: i64) -> Value {
    json!({"id": id, "agent": "give", "inputs": {"give": value}, "writes": [id]})
}

fn failing(id: &str) -> Value {
    json!({"id": id, "agent": "fail", "writes": [id]})
}

fn late(id: &str, after: &str) -> Value {
    json!({"id": id, "agent": "fail", "writes": [id], "after": [after]})
}

fn sum(id: &str, reads: &[&str]) -> Value {
    json!({"id": id, "agent": "sum", "reads": reads, "writes": [id]})
}

fn team(script: &Script) -> Team {
    simple(&Log::default()).planner(script.clone()).build().unwrap()
}

#[tokio::test]
async fn a_failed_step_is_stood_in_for_and_the_rest_goes_on() {
    let script = Script::new([
        json!({"steps": [late("a", "b"), give("b", 2), sum("c", &["a", "b"])]}),
        json!({"add": [{"id": "a2", "agent": "give", "inputs": {"give": 40}, "writes": ["a"], "instead_of": "a"}]}),
    ]);
    let notices = Arc::new(Mutex::new(Vec::new()));
    let finished = within(team(&script).run("Add").on_event(collect(&notices))).await.unwrap();
    assert_eq!(finished.value("c"), Some(&json!(42)));
    assert_eq!(finished.replans(), 1);
    assert_eq!(finished.step("a").unwrap().status, StepStatus::Failed);
    let replan = script.briefs()[1].replan.clone().unwrap();
    assert_eq!(replan.failed, [("a".into(), "it broke".to_owned())]);
    assert_eq!(replan.results.get("b"), Some(&json!(2)));
    assert_eq!(replan.plan["steps"][1]["status"], json!("completed"));
    let notices = notices.lock().unwrap();
    assert!(notices.iter().any(|notice| matches!(notice, Notice::Replanned { replan: 1, .. })));
}

#[tokio::test]
async fn a_planner_is_told_exactly_what_is_wrong() {
    let script = Script::new([
        json!({"steps": [{"id": "a", "agent": "giv"}, {"id": "b", "agent": "give", "reads": ["zzz"]}]}),
        json!({"steps": [give("a", 1)]}),
    ]);
    within(team(&script).run("Go")).await.unwrap();
    let complaints = script.briefs()[1].complaints.join("\n");
    assert!(complaints.contains("`giv`") && complaints.contains("`give`"), "{complaints}");
    assert!(complaints.contains("zzz"), "{complaints}");
    assert!(script.briefs()[1].previous.as_deref().is_some_and(|previous| previous.contains("giv")));
}

#[tokio::test]
async fn after_three_bad_plans_nothing_is_done() {
    let bad = json!({"steps": [{"id": "a", "agent": "nobody"}]});
    let script = Script::new([bad.clone(), bad.clone(), bad.clone(), bad]);
    let Err(Error::Unreached { why, .. }) = within(team(&script).run("Go")).await else { panic!("it fails") };
    assert!(why.contains("nobody"), "{why}");
    assert_eq!(script.briefs().len(), 3);
}

#[tokio::test]
async fn after_three_replans_there_is_what_there_is() {
    let again = |n: u32| {
        let before = if n == 1 { "a".to_owned() } else { format!("a{}", n - 1) };
        json!({"add": [{"id": format!("a{n}"), "agent": "fail", "writes": ["a"], "instead_of": before}]})
    };
    let plan = json!({"steps": [failing("a"), give("b", 2), sum("c", &["a", "b"])]});
    let script = Script::new([plan, again(1), again(2), again(3), again(4)]);
    let Err(Error::Unreached { why, partial }) = within(team(&script).run("Add")).await else {
        panic!("it fails")
    };
    assert_eq!(partial.replans(), 3);
    assert_eq!(partial.value("b"), Some(&json!(2)));
    assert!(why.contains("`a3`") && why.contains("`c`"), "{why}");
    assert_eq!(script.briefs().len(), 4);
}

#[tokio::test]
async fn what_is_finished_cannot_be_touched() {
    let script = Script::new([
        json!({"steps": [failing("a"), give("b", 2), sum("c", &["a", "b"])]}),
        json!({"remove": ["b"], "change": [sum("c", &["a"])]}),
        json!({"give_up": "there is no other way"}),
    ]);
    let Err(Error::Unreached { partial, .. }) = within(team(&script).run("Add")).await else {
        panic!("it fails")
    };
    let complaints = script.briefs()[2].complaints.join("\n");
    assert!(complaints.contains("`b`"), "{complaints}");
    assert_eq!(partial.value("b"), Some(&json!(2)));
}

#[tokio::test]
async fn a_change_that_leaves_steps_waiting_for_what_failed_is_refused() {
    let script = Script::new([
        json!({"steps": [failing("a"), sum("c", &["a"])]}),
        json!({"add": [give("d", 1)]}),
        json!({"add": [give("d", 1)], "remove": ["c"]}),
    ]);
    let finished = within(team(&script).run("Add")).await.unwrap();
    assert!(script.briefs()[2].complaints[0].contains("instead_of"));
    assert_eq!(finished.value("d"), Some(&json!(1)));
}

#[tokio::test]
async fn a_person_is_asked_about_plans_and_changes() {
    let script = Script::new([
        json!({"steps": [failing("a"), sum("c", &["a"])]}),
        json!({"steps": [failing("a"), give("b", 2), sum("c", &["a", "b"])]}),
        json!({"change": [sum("c", &["b"])]}),
    ]);
    let team = simple(&Log::default()).planner(script.clone()).approve_plans().build().unwrap();
    let mut run = team.run("Add").start().unwrap();
    let (mut events, control) = (run.events(), run.control().clone());
    let answers = async {
        let mut asked = Vec::new();
        while let Some(event) = events.next().await {
            if let EventKind::Asked(ask) = event.kind {
                asked.push(ask.call.name.clone());
                match asked.len() {
                    1 => control.answer(&ask, "there should be a `b`").await.unwrap(),
                    2 => control.approve(&ask).await.unwrap(),
                    _ => control
                        .edit(&ask, json!({"change": [sum("c", &["b"])], "add": [give("d", 4)]}))
                        .await
                        .unwrap(),
                }
            }
        }
        asked
    };
    let (asked, finished) = within(async { tokio::join!(answers, run) }).await;
    let finished = finished.unwrap();
    assert_eq!(asked, ["carry_out_plan"; 3]);
    assert!(script.briefs()[1].complaints[0].contains("there should be a `b`"));
    assert_eq!((finished.value("c"), finished.value("d")), (Some(&json!(2)), Some(&json!(4))));
}

#[tokio::test]
async fn a_plan_that_a_person_refuses_is_not_begun() {
    let script = Script::new([json!({"steps": [give("a", 1)]})]);
    struct No;
    #[async_trait]
    impl levity_core::Approver for No {
        async fn decide(&self, _: &levity_core::Ask) -> Decision {
            Decision::deny("not today")
        }
    }
    let log = Log::default();
    let team = simple(&log).planner(script).approve_plans().approver(No).build().unwrap();
    let Err(Error::Cancelled { reason, .. }) = within(team.run("Go")).await else { panic!("it is refused") };
    assert_eq!(reason, "the plan was refused: not today");
    assert!(log.take().is_empty());
}

#[tokio::test]
async fn a_model_plans_and_replans() {
    let planner = ScriptedModel::new()
        .reply("Here is the plan:\n```json\n{\"steps\": [{\"id\": \"a\", \"agent\": \"fail\", \"writes\": [\"x\"]},]}\n```")
        .reply("{\"add\": [{\"id\": \"b\", \"agent\": \"give\", \"inputs\": {\"give\": 1}, \"writes\": [\"x\"], \"instead_of\": \"a\"}]}");
    let agent = Agent::builder(planner.clone()).build().unwrap();
    let team = simple(&Log::default()).agent("Planner", "plans", agent).build().unwrap();
    let finished = within(team.run("Get x").given("hint", "try b")).await.unwrap();
    assert_eq!(finished.text(), "1");
    assert_eq!(finished.stats().model_calls, 2);
    let asked = planner.requests()[1].history.messages().last().unwrap().text().into_owned();
    for expected in ["it broke", "instead_of", "`give`", "hint"] {
        assert!(asked.contains(expected), "{expected} in {asked}");
    }
}

#[tokio::test]
async fn a_run_is_gone_on_with_and_nothing_is_done_twice() {
    let log = Log::default();
    let runtime = Runtime::new().with_journal(MemoryJournal::new());
    let team = simple(&log).runtime(runtime).build().unwrap();
    let plan = Plan::new()
        .step(Step::new("a", "give").input("give", 1).writes(["a"]))
        .step(Step::new("b", "sum").reads(["a"]).writes(["b"]));
    let first = within(team.carry_out(plan)).await.unwrap();
    assert_eq!(log.take(), ["give", "sum"]);
    let second = within(team.resume(first.run().clone())).await.unwrap();
    assert_eq!((second.text(), second.plan()), (first.text(), first.plan()));
    assert!(log.take().is_empty());
    let told = team.history(first.run()).await.unwrap();
    assert!(
        told.iter().filter_map(|event| Notice::of(&event.kind)).any(|n| matches!(n, Notice::Planned { .. }))
    );
}

#[tokio::test]
async fn a_model_that_plans_to_fetch_what_is_given_is_told_and_its_last_word_counts() {
    let fetch = r#"{"steps": [{"id": "fetch", "agent": "sum", "reads": ["n"], "writes": ["n"]},
        {"id": "add", "agent": "sum", "reads": ["n"], "writes": ["total"]}]}"#;
    let add = r#"{"steps": [{"id": "add", "agent": "sum", "reads": ["n"], "writes": ["total"]}]}"#;
    let run = async |replies: &[&str]| {
        let model = replies.iter().fold(ScriptedModel::new(), |model, reply| model.reply(*reply));
        let planner = Agent::builder(model.clone()).build().unwrap();
        let team = simple(&Log::default()).agent("Planner", "plans", planner).build().unwrap();
        let finished = within(team.run("Add").given("n", json!(3))).await.unwrap();
        model.assert_finished();
        (finished, model)
    };
    let (finished, model) = run(&[fetch, add]).await;
    assert_eq!((finished.steps().len(), finished.value("total")), (1, Some(&json!(3))));
    let told = model.requests()[1].history.messages()[0].text().into_owned();
    assert!(told.contains("step `fetch` writes `n`, which is there from the start"), "{told}");
    let (finished, _) = run(&[fetch, fetch, fetch]).await;
    assert_eq!((finished.steps().len(), finished.value("total")), (2, Some(&json!(3))));
}
