//! Tests of making and changing plans.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use levity_core::{Decision, EventKind, Finish, ToolError};
use levity_dag::{
    Error, Plan, PlanNotice, PlannerInput, Step, StepStatus, Team, TeamAnswer, TeamInput,
    TeamPlanner,
};
use levity_loop::Agent;
use levity_runtime::{MemoryJournal, Runtime};
use levity_test::{ScriptedModel, Turn};
use serde_json::{Value, json};

use crate::support::{Log, collect, simple, within};

/// A planner that returns these answers in turn and records its briefs.
#[derive(Clone, Default)]
pub(crate) struct Script(Arc<Mutex<(Vec<Value>, Vec<PlannerInput>)>>);

impl Script {
    pub(crate) fn new(plans: impl IntoIterator<Item = Value>) -> Self {
        let mut plans: Vec<Value> = plans.into_iter().collect();
        plans.reverse();
        Self(Arc::new(Mutex::new((plans, Vec::new()))))
    }

    fn briefs(&self) -> Vec<PlannerInput> {
        self.0.lock().unwrap().1.clone()
    }
}

#[async_trait]
impl TeamPlanner for Script {
    async fn plan(&self, brief: &PlannerInput) -> Result<Value, ToolError> {
        let mut script = self.0.lock().unwrap();
        script.1.push(brief.clone());
        script
            .0
            .pop()
            .ok_or_else(|| ToolError::failed("nothing more"))
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
    simple(&Log::default())
        .planner(script.clone())
        .build()
        .unwrap()
}

#[tokio::test]
async fn failed_step_gets_fallback_and_run_continues() {
    let script = Script::new([
        json!({"steps": [late("a", "b"), give("b", 2), sum("c", &["a", "b"])]}),
        json!({"add": [{"id": "a2", "agent": "give", "inputs": {"give": 40}, "writes": ["a"],
            "instead_of": "a"}]}),
    ]);
    let notices = Arc::new(Mutex::new(Vec::new()));
    let finished = within(team(&script).run("Add").on_event(collect(&notices)))
        .await
        .unwrap();
    assert_eq!(finished.variable("c"), Some(&json!(42)));
    assert_eq!(finished.replans(), 1);
    assert_eq!(finished.step("a").unwrap().status, StepStatus::Failed);
    let replan = script.briefs()[1].replan.clone().unwrap();
    assert_eq!(replan.failed, [("a".into(), "it broke".to_owned())]);
    assert_eq!(replan.results.get("b"), Some(&json!(2)));
    assert_eq!(replan.plan["steps"][1]["status"], json!("completed"));
    let notices = notices.lock().unwrap();
    assert!(
        notices
            .iter()
            .any(|notice| matches!(notice, PlanNotice::Replanned { replan: 1, .. }))
    );
}

#[tokio::test]
async fn planner_receives_exact_faults_of_its_plan() {
    let script = Script::new([
        json!({"steps": [{"id": "a", "agent": "giv"},
            {"id": "b", "agent": "give", "reads": ["zzz"]}]}),
        json!({"steps": [give("a", 1)]}),
    ]);
    within(team(&script).run("Go")).await.unwrap();
    let complaints = script.briefs()[1].complaints.join("\n");
    assert!(
        complaints.contains("`giv`") && complaints.contains("`give`"),
        "{complaints}"
    );
    assert!(complaints.contains("zzz"), "{complaints}");
    assert!(
        script.briefs()[1]
            .previous
            .as_deref()
            .is_some_and(|previous| previous.contains("giv"))
    );
}

#[tokio::test]
async fn run_fails_after_three_invalid_plans() {
    let bad = json!({"steps": [{"id": "a", "agent": "nobody"}]});
    let script = Script::new([bad.clone(), bad.clone(), bad.clone(), bad]);
    let Err(Error::Unreached { why, .. }) = within(team(&script).run("Go")).await else {
        panic!("the run must fail")
    };
    assert!(why.contains("nobody"), "{why}");
    assert_eq!(script.briefs().len(), 3);
}

#[tokio::test]
async fn run_ends_with_partial_results_after_three_replans() {
    let again = |n: u32| {
        let before = if n == 1 {
            "a".to_owned()
        } else {
            format!("a{}", n - 1)
        };
        json!({"add": [{"id": format!("a{n}"), "agent": "fail", "writes": ["a"],
            "instead_of": before}]})
    };
    let plan = json!({"steps": [failing("a"), give("b", 2), sum("c", &["a", "b"])]});
    let script = Script::new([plan, again(1), again(2), again(3), again(4)]);
    let Err(Error::Unreached { why, partial }) = within(team(&script).run("Add")).await else {
        panic!("it fails")
    };
    let partial: TeamAnswer = partial.downcast().unwrap();
    assert_eq!(partial.replans(), 3);
    assert_eq!(partial.variable("b"), Some(&json!(2)));
    assert!(why.contains("`a3`") && why.contains("`c`"), "{why}");
    assert_eq!(script.briefs().len(), 4);
}

#[tokio::test]
async fn replan_cannot_change_finished_steps() {
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
    let partial: TeamAnswer = partial.downcast().unwrap();
    assert_eq!(partial.variable("b"), Some(&json!(2)));
}

#[tokio::test]
async fn change_that_leaves_steps_waiting_for_failed_one_is_rejected() {
    let script = Script::new([
        json!({"steps": [failing("a"), sum("c", &["a"])]}),
        json!({"add": [give("d", 1)]}),
        json!({"add": [give("d", 1)], "remove": ["c"]}),
    ]);
    let finished = within(team(&script).run("Add")).await.unwrap();
    assert!(script.briefs()[2].complaints[0].contains("instead_of"));
    assert_eq!(finished.variable("d"), Some(&json!(1)));
}

#[tokio::test]
async fn plans_and_changes_need_approval_of_person() {
    let script = Script::new([
        json!({"steps": [failing("a"), sum("c", &["a"])]}),
        json!({"steps": [failing("a"), give("b", 2), sum("c", &["a", "b"])]}),
        json!({"change": [sum("c", &["b"])]}),
    ]);
    let team = simple(&Log::default())
        .planner(script.clone())
        .approve_plans()
        .build()
        .unwrap();
    let mut run = team.run("Add").start();
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
                        .edit(
                            &ask,
                            json!({"change": [sum("c", &["b"])], "add": [give("d", 4)]}),
                        )
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
    assert_eq!(
        (finished.variable("c"), finished.variable("d")),
        (Some(&json!(2)), Some(&json!(4)))
    );
}

#[tokio::test]
async fn plan_refused_by_person_is_not_started() {
    let script = Script::new([json!({"steps": [give("a", 1)]})]);
    struct No;
    #[async_trait]
    impl levity_core::Approver for No {
        async fn decide(&self, _: &levity_core::Ask) -> Decision {
            Decision::deny("not today")
        }
    }
    let log = Log::default();
    let team = simple(&log)
        .planner(script)
        .approve_plans()
        .approver(No)
        .build()
        .unwrap();
    let Err(Error::Cancelled { reason, .. }) = within(team.run("Go")).await else {
        panic!("the plan must be refused")
    };
    assert_eq!(reason, "the plan was refused: not today");
    assert!(log.take().is_empty());
}

#[tokio::test]
async fn model_makes_and_changes_plan() {
    let planner = ScriptedModel::new()
        .reply(
            "Here is the plan:\n```json\n{\"steps\": \
            [{\"id\": \"a\", \"agent\": \"fail\", \"writes\": [\"x\"]},]}\n```",
        )
        .reply(
            "{\"add\": [{\"id\": \"b\", \"agent\": \"give\", \"inputs\": {\"give\": \
            1}, \"writes\": [\"x\"], \"instead_of\": \"a\"}]}",
        );
    let agent = Agent::builder(planner.clone()).build().unwrap();
    let team = simple(&Log::default())
        .agent("Planner", "plans", agent)
        .build()
        .unwrap();
    let finished = within(team.run(TeamInput::from("Get x").given("hint", "try b")))
        .await
        .unwrap();
    assert_eq!(finished.text(), "1");
    assert_eq!(finished.stats().model_calls, 2);
    let asked = planner.requests()[1]
        .history
        .messages()
        .last()
        .unwrap()
        .text()
        .into_owned();
    for expected in ["it broke", "instead_of", "`give`", "hint"] {
        assert!(asked.contains(expected), "{expected} in {asked}");
    }
}

#[tokio::test]
async fn resumed_run_repeats_no_finished_step() {
    let log = Log::default();
    let runtime = Runtime::new().with_journal(MemoryJournal::new());
    let team = simple(&log).runtime(runtime).build().unwrap();
    let plan = Plan::new()
        .step(Step::new("a", "give").input("give", 1).writes(["a"]))
        .step(Step::new("b", "sum").reads(["a"]).writes(["b"]));
    let first = within(team.run(plan)).await.unwrap();
    assert_eq!(log.take(), ["give", "sum"]);
    let second = within(team.resume(first.run().clone())).await.unwrap();
    assert_eq!((second.text(), second.plan()), (first.text(), first.plan()));
    assert!(log.take().is_empty());
    let notices = team.history(first.run()).await.unwrap();
    assert!(
        notices
            .iter()
            .filter_map(|event| PlanNotice::of(&event.kind))
            .any(|n| matches!(n, PlanNotice::Planned { .. }))
    );
}

#[tokio::test]
async fn model_that_overwrites_initial_variable_is_warned_until_last_draft() {
    let fetch = r#"{"steps": [{"id": "fetch", "agent": "sum", "reads": ["n"], "writes": ["n"]},
        {"id": "add", "agent": "sum", "reads": ["n"], "writes": ["total"]}]}"#;
    let add = r#"{"steps": [{"id": "add", "agent": "sum", "reads": ["n"], "writes": ["total"]}]}"#;
    let run = async |replies: &[&str]| {
        let model = replies
            .iter()
            .fold(ScriptedModel::new(), |model, reply| model.reply(*reply));
        let planner = Agent::builder(model.clone()).build().unwrap();
        let team = simple(&Log::default())
            .agent("Planner", "plans", planner)
            .build()
            .unwrap();
        let finished = within(team.run(TeamInput::from("Add").given("n", json!(3))))
            .await
            .unwrap();
        model.assert_finished();
        (finished, model)
    };
    let (finished, model) = run(&[fetch, add]).await;
    assert_eq!(
        (finished.steps().len(), finished.variable("total")),
        (1, Some(&json!(3)))
    );
    let notices = model.requests()[1].history.messages()[0]
        .text()
        .into_owned();
    assert!(
        notices.contains("step `fetch` writes `n`, which is an initial variable"),
        "{notices}"
    );
    let (finished, _) = run(&[fetch, fetch, fetch]).await;
    assert_eq!(
        (finished.steps().len(), finished.variable("total")),
        (2, Some(&json!(3)))
    );
}

/// Runs a team whose planner replies with these texts and finish reasons.
async fn run_with_replies(
    replies: &[(&str, Finish)],
) -> (
    levity_dag::Result<TeamAnswer>,
    ScriptedModel,
    Vec<PlanNotice>,
) {
    let script = |model: ScriptedModel, (text, finish): &(&str, Finish)| {
        model.turn(Turn::new().text(*text).finish(finish.clone()))
    };
    let model = replies.iter().fold(ScriptedModel::new(), script);
    let planner = Agent::builder(model.clone()).build().unwrap();
    let team = simple(&Log::default())
        .agent("Planner", "plans", planner)
        .build()
        .unwrap();
    let notices = Arc::default();
    let finished = within(team.run("Add up").on_event(collect(&notices))).await;
    let notices = notices.lock().unwrap().clone();
    (finished, model, notices)
}

const FIRST: &str = concat!(
    r#"{"steps": [{"id": "a", "agent": "give", "inputs": {"give": 1}, "writes": ["a"]}, "#,
    r#"{"id": "b", "ag"#,
);
const SECOND: &str = concat!(
    r#"{"steps": [{"id": "b", "agent": "give", "inputs": {"give": 2}, "writes": ["b"]}, "#,
    r#"{"id": "c", "agent": "sum", "reads": ["a""#,
);
const THIRD: &str =
    r#"{"steps": [{"id": "c", "agent": "sum", "reads": ["a", "b"], "writes": ["c"]}]}"#;

#[tokio::test]
async fn planner_is_asked_for_rest_of_cut_reply() {
    let (finished, model, notices) = run_with_replies(&[
        (FIRST, Finish::Length),
        (SECOND, Finish::Length),
        (THIRD, Finish::Stop),
    ])
    .await;
    let finished = finished.unwrap();
    assert_eq!(
        (finished.steps().len(), finished.variable("c")),
        (3, Some(&json!(3)))
    );
    model.assert_finished();
    let asked = |at: usize| {
        model.requests()[at].history.messages()[0]
            .text()
            .into_owned()
    };
    assert!(!asked(0).contains("was cut off"), "{}", asked(0));
    for (at, kept) in [
        (1, r#"{"steps":[{"id":"a","#),
        (2, r#"{"id":"b","agent":"give","#),
    ] {
        assert!(
            asked(at).contains("was cut off") && asked(at).contains(kept),
            "{}",
            asked(at)
        );
        assert!(
            asked(at).contains("Answer with the rest of the plan alone"),
            "{}",
            asked(at)
        );
        assert!(
            !asked(at).contains("What is wrong with it"),
            "{}",
            asked(at)
        );
    }
    let cut = notices
        .iter()
        .filter(|notice| matches!(notice, PlanNotice::PlanCut { .. }))
        .count();
    assert_eq!(cut, 2);
    assert!(
        !notices
            .iter()
            .any(|notice| matches!(notice, PlanNotice::Rejected { .. })),
        "a cut reply does not count as a draft"
    );
}

#[tokio::test]
async fn planner_that_repeats_whole_cut_plan_is_accepted() {
    let whole = r#"{"steps": [{"id": "a", "agent": "give", "inputs": {"give": 5}, "writes": ["a"]},
        {"id": "c", "agent": "sum", "reads": ["a"], "writes": ["c"]}]}"#;
    // The same holds if the provider does not report the cut.
    for finish in [Finish::Length, Finish::Stop] {
        let (finished, ..) = run_with_replies(&[(FIRST, finish), (whole, Finish::Stop)]).await;
        let finished = finished.unwrap();
        assert_eq!(
            (finished.steps().len(), finished.variable("c")),
            (2, Some(&json!(5)))
        );
    }
}

#[tokio::test]
async fn planner_without_progress_gets_note_to_shorten_plan_and_then_fails() {
    let stuck = r#"{"steps": [{"id": "a", "agent": "give", "prompt": "on and on and"#;
    let prose = "First of all, let me think about what there is to";
    let length = |text| (text, Finish::Length);
    let (finished, model, notices) =
        run_with_replies(&[length(stuck), length(prose), length(stuck)]).await;
    let error = finished.unwrap_err().to_string();
    model.assert_finished();
    assert!(
        error.contains("before one more step was complete"),
        "{error}"
    );
    let asked = |at: usize| {
        model.requests()[at].history.messages()[0]
            .text()
            .into_owned()
    };
    assert!(asked(1).contains("write shorter prompts"), "{}", asked(1));
    assert!(asked(2).contains("before the plan began"), "{}", asked(2));
    assert_eq!(
        notices
            .iter()
            .filter(|notice| matches!(notice, PlanNotice::Rejected { .. }))
            .count(),
        3
    );
}

#[tokio::test]
async fn cut_change_of_plan_is_continued() {
    let plan = r#"{"steps": [{"id": "a", "agent": "fail", "writes": ["a"]},
        {"id": "b", "agent": "fail", "writes": ["b"]}]}"#;
    let cut = concat!(
        r#"{"reason": "both broke", "#,
        r#""add": [{"id": "c", "agent": "give", "inputs": {"give": 1}, "writes": ["a"], "#,
        r#""instead_of": "a"}, {"id": "d", "agent": "gi"#,
    );
    let rest = r#"{"add": [{"id": "d", "agent": "give", "inputs": {"give": 2}, "writes": ["b"],
        "instead_of": "b"}]}"#;
    let (finished, model, _) = run_with_replies(&[
        (plan, Finish::Stop),
        (cut, Finish::Length),
        (rest, Finish::Stop),
    ])
    .await;
    let finished = finished.unwrap();
    model.assert_finished();
    assert_eq!(
        (finished.variable("a"), finished.variable("b")),
        (Some(&json!(1)), Some(&json!(2)))
    );
}

#[tokio::test]
async fn blank_goal_is_rejected_unless_plan_is_given() {
    use levity_dag::Error;
    let script = Script::new([
        json!({"steps": [give("b", 2)]}),
        json!({"steps": [give("b", 2)]}),
    ]);
    let team = team(&script);
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
            matches!(team.run(goal).await, Err(Error::EmptyPrompt)),
            "{goal:?}"
        );
        assert!(
            matches!(team.run(goal).try_start(), Err(Error::EmptyPrompt)),
            "{goal:?}"
        );
        assert!(
            matches!(
                team.run(TeamInput::from("Add").goal(goal).files(["x"]))
                    .await,
                Err(Error::EmptyPrompt)
            ),
            "{goal:?}"
        );
    }
    assert!(script.briefs().is_empty(), "no planner was asked");
    let plan = Plan::parse(&json!({"steps": [give("b", 2)]}).to_string()).unwrap();
    within(team.run(plan)).await.unwrap();
}
