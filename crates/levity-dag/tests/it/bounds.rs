//! What holds at the edges: questions that hold up nobody, shares that are not passed, times that
//! are kept, verdicts that are not lost.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use levity_core::{
    Approver, Ask, Child, Decision, EventKind, Executor, Limits, Program, ToolError, ToolOutput,
    ToolSpec,
};
use levity_dag::{
    Brief, Budget, Error, FanOut, Faults, Plan, PlanNotice, Step, StepRunner, StepRunnerKind,
    StepStatus, Team, TeamPlanner,
};
use levity_loop::Agent;
use levity_runtime::Runtime;
use levity_test::{ManualWorld, RecordingTool, ScriptedModel};
use levity_tools::{Policy, Rule};
use serde_json::{Value, json};

use crate::support::{Log, simple, within};

pub(crate) fn agent(model: &ScriptedModel) -> Agent {
    Agent::builder(model.clone()).build().unwrap()
}

fn told(model: &ScriptedModel, at: usize) -> String {
    let requests = model.requests();
    requests[at]
        .history
        .messages()
        .last()
        .map(|message| message.text().into_owned())
        .unwrap_or_default()
}

pub(crate) fn judge(model: &ScriptedModel) -> (StepRunner, Agent) {
    let mut card = StepRunner::new(StepRunnerKind::Agent, "judges");
    card.judges = true;
    (card, agent(model))
}

pub(crate) fn give(id: &str, value: i64) -> Step {
    Step::new(id, "give").input("give", value).writes([id])
}

/// Answers questions once a step is done.
async fn answer_after(
    step: &str,
    mut run: levity_runtime::RunHandle<Team>,
) -> levity_dag::Result<levity_dag::TeamAnswer> {
    let (mut events, control) = (run.events(), run.control().clone());
    let answers = async {
        let (mut open, mut done) = (Vec::new(), false);
        while let Some(event) = events.next().await {
            match &event.kind {
                EventKind::Asked(ask) => open.push(ask.clone()),
                kind => {
                    let notice = PlanNotice::of(kind);
                    done |= matches!(notice, Some(PlanNotice::StepCompleted { step: id, .. }) if id.as_str() == step);
                }
            }
            if done {
                for ask in open.drain(..) {
                    control.approve(&ask).await.unwrap();
                }
            }
        }
    };
    let ((), finished) = within(async { tokio::join!(answers, run) }).await;
    finished
}

#[tokio::test]
async fn a_question_about_a_tool_holds_up_nobody_else() {
    let tool = RecordingTool::new("send", |_| Ok(ToolOutput::text("sent")));
    let policy = Policy::allow_all().rule(Rule::tool("send").ask("it leaves the house"));
    let team = simple(&Log::default())
        .tool(tool.clone())
        .policy(policy)
        .build()
        .unwrap();
    let plan = Plan::new()
        .step(Step::new("ask", "send").writes(["sent"]))
        .step(give("a", 1))
        .step(give("b", 2).after("a"))
        .step(give("c", 3).after("b"));
    let finished = answer_after("c", team.run(plan).start()).await.unwrap();
    assert_eq!(finished.variable("sent"), Some(&json!("sent")));
    assert_eq!(tool.calls().len(), 1);
}

/// Changes a plan once.
struct Once(Value);

#[async_trait]
impl TeamPlanner for Once {
    async fn plan(&self, _: &Brief) -> Result<Value, ToolError> {
        Ok(self.0.clone())
    }
}

#[tokio::test]
async fn a_question_about_a_change_holds_up_nobody_else() {
    let change = json!({"add": [{"id": "x2", "agent": "give", "inputs": {"give": 4}, "writes": ["x"], "instead_of": "x"}]});
    let team = simple(&Log::default())
        .planner(Once(change))
        .approve_plans()
        .build()
        .unwrap();
    let mut plan = Plan::new()
        .step(Step::new("x", "fail").writes(["x"]))
        .step(give("a", 1));
    for at in 0..30 {
        let before = if at == 0 {
            "a".to_owned()
        } else {
            format!("a{}", at - 1)
        };
        plan = plan.step(give(&format!("a{at}"), 1).after(before));
    }
    let mut run = team.run(plan).start();
    let (mut events, control) = (run.events(), run.control().clone());
    let answers = async {
        let (mut open, mut done) = (None, false);
        let mut asked = 0;
        while let Some(event) = events.next().await {
            match &event.kind {
                EventKind::Asked(ask) => {
                    asked += 1;
                    match asked {
                        1 => control.approve(ask).await.unwrap(),
                        _ => open = Some(ask.clone()),
                    }
                }
                kind => {
                    let notice = PlanNotice::of(kind);
                    done |= matches!(notice, Some(PlanNotice::StepCompleted { step, .. }) if step.as_str() == "a29");
                }
            }
            if done && let Some(ask) = open.take() {
                control.approve(&ask).await.unwrap();
            }
        }
    };
    let ((), finished) = within(async { tokio::join!(answers, run) }).await;
    assert_eq!(finished.unwrap().variable("x"), Some(&json!(4)));
}

#[tokio::test]
async fn rounds_share_what_a_step_may_use() {
    let model = ScriptedModel::new()
        .call("look", json!({}))
        .reply("{\"call_self\": true}")
        .call("look", json!({}))
        .reply("{\"call_self\": true}")
        .call("look", json!({}))
        .reply("{\"x\": 1}");
    let look = RecordingTool::new("look", |_| Ok(ToolOutput::text("nothing")));
    let agent = Agent::builder(model.clone())
        .tool(look.clone())
        .build()
        .unwrap();
    let team = Team::builder()
        .agent("Thinker", "thinks", agent)
        .build()
        .unwrap();
    let step = |budget| Plan::new().step(Step::new("s", "Thinker").writes(["x"]).budget(budget));
    let ended = within(team.run(step(Budget::new().model_calls(3)))).await;
    assert!(ended.is_err(), "{ended:?}");
    assert!(
        model.requests().len() <= 3,
        "{} calls of a model",
        model.requests().len()
    );

    let model = ScriptedModel::new()
        .call("look", json!({}))
        .reply("{\"call_self\": true}")
        .call("look", json!({}))
        .reply("{\"call_self\": true}")
        .call("look", json!({}))
        .reply("{\"x\": 1}");
    let agent = Agent::builder(model.clone())
        .tool(look.clone())
        .build()
        .unwrap();
    let team = Team::builder()
        .agent("Thinker", "thinks", agent)
        .build()
        .unwrap();
    let before = look.calls().len();
    let _ = within(team.run(step(Budget::new().tool_calls(2)))).await;
    assert!(
        look.calls().len() - before <= 2,
        "{} calls of tools",
        look.calls().len() - before
    );
}

/// Code that is what an agent does.
pub(crate) struct Code(ToolSpec, Agent);

#[async_trait]
impl Program for Code {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    async fn child(
        &self,
        args: &Value,
        saved: Option<&Value>,
        _: Arc<dyn Executor>,
    ) -> Result<Child, ToolError> {
        let keys: Vec<_> = args.as_object().unwrap().keys().cloned().collect();
        assert_eq!(keys, ["code", "inputs"], "nothing but what the schema has");
        self.1.child(args.to_string(), saved).await
    }
}

pub(crate) fn code(model: &ScriptedModel) -> Code {
    Code(ToolSpec::new("run_python", "Runs Python."), agent(model))
}

#[tokio::test]
async fn code_has_no_more_time_than_its_step() {
    let runtime = Runtime::new().with_world(ManualWorld::auto());
    let team = Team::builder()
        .code(code(&ScriptedModel::new().hang()))
        .runtime(runtime.clone())
        .build()
        .unwrap();
    let plan = Plan::new().step(Step::code("s", ["1 + 1"]).timeout(Duration::from_secs(5)));
    let Err(error) = within(team.run(plan)).await else {
        panic!("it takes too long")
    };
    assert!(error.to_string().contains("step `s` failed"), "{error}");

    let coder = ScriptedModel::new()
        .reply("{\"code\": \"1 + 1\"}")
        .reply("{\"x\": 1}");
    let hangs = ScriptedModel::new().hang();
    let team = Team::builder()
        .agent("Coder", "codes", agent(&coder))
        .code(code(&hangs))
        .runtime(runtime);
    let team = team.build().unwrap();
    let step = Step::new("s", "Coder")
        .writes(["x"])
        .timeout(Duration::from_secs(5));
    let finished = within(team.run(Plan::new().step(step))).await.unwrap();
    assert_eq!(finished.variable("x"), Some(&json!(1)));
    assert!(
        told(&coder, 1).contains("The code failed"),
        "{}",
        told(&coder, 1)
    );
}

#[tokio::test]
async fn what_code_uses_counts_for_its_step() {
    let coder = ScriptedModel::new().reply("{\"code\": \"1 + 1\"}");
    let runs = ScriptedModel::new().reply("2");
    let team = Team::builder()
        .agent("Coder", "codes", agent(&coder))
        .code(code(&runs))
        .build()
        .unwrap();
    let finished = within(team.run(Plan::new().step(Step::new("s", "Coder").writes(["x"]))))
        .await
        .unwrap();
    assert_eq!(finished.stats().model_calls, 2);
    assert_eq!(finished.step("s").unwrap().spent.stats.model_calls, 2);
}

#[tokio::test]
async fn a_run_goes_by_its_own_limits_and_not_the_team_s() {
    let model = ScriptedModel::new().reply("{\"x\": 1}");
    let limits = |tokens| Limits::new().tokens(tokens);
    let team = Team::builder()
        .agent("Thinker", "thinks", agent(&model))
        .limits(limits(1_000))
        .build()
        .unwrap();
    let plan = Plan::new().step(
        Step::new("s", "Thinker")
            .writes(["x"])
            .budget(Budget::new().tokens(50_000)),
    );
    let error = within(team.run(plan.clone())).await.unwrap_err();
    let faults = error.downcast_ref::<Faults>().unwrap();
    assert!(faults.to_string().contains("50000 tokens"), "{faults}");
    within(team.run(plan.clone()).limits(limits(200_000)))
        .await
        .unwrap();
    let error = within(team.run(plan).limits(limits(2_000)))
        .await
        .unwrap_err();
    assert!(error.downcast_ref::<Faults>().is_some(), "{error}");
}

/// Puts something in the place of every plan.
struct Edits(Value);

#[async_trait]
impl Approver for Edits {
    async fn decide(&self, _: &Ask) -> Decision {
        Decision::Edit {
            args: self.0.clone(),
        }
    }
}

#[tokio::test]
async fn an_approver_that_writes_rubbish_is_not_asked_for_ever() {
    let log = Log::default();
    let team = simple(&log)
        .approver(Edits(json!("rubbish")))
        .approve_plans()
        .build()
        .unwrap();
    let Err(Error::Cancelled { reason, .. }) =
        within(team.run(Plan::new().step(give("a", 1)))).await
    else {
        panic!("it ends")
    };
    assert!(reason.contains("plan"), "{reason}");
    assert!(log.take().is_empty());
}

#[tokio::test]
async fn a_judge_of_each_element_sends_work_back() {
    let writer = ScriptedModel::new()
        .reply("{\"drafts\": [\"bad\", \"good\"]}")
        .reply("{\"drafts\": [\"good\"]}");
    let judges = ScriptedModel::new()
        .reply("{\"verdict\": \"revise\", \"issues\": [\"too short\"], \"steps\": []}")
        .reply("{\"verdict\": \"pass\", \"issues\": []}")
        .reply("{\"verdict\": \"pass\", \"issues\": []}");
    let (card, second) = judge(&judges);
    let team = Team::builder()
        .agent("Writer", "writes", agent(&writer))
        .performer("Judge", card, second)
        .max_parallel(1)
        .build()
        .unwrap();
    let plan = Plan::new()
        .step(Step::new("write", "Writer").writes(["drafts"]))
        .step(Step::new("check", "Judge").map(FanOut::over("drafts")));
    let finished = within(team.run(plan)).await.unwrap();
    assert_eq!(finished.variable("drafts"), Some(&json!(["good"])));
    assert!(
        told(&writer, 1).contains("too short"),
        "{}",
        told(&writer, 1)
    );
}

#[tokio::test]
async fn a_verdict_that_is_none_does_not_let_work_pass() {
    let judges = ScriptedModel::new()
        .reply("{\"verdict\": \"could be better\"}")
        .reply("{\"verdict\": \"Pass.\"}");
    let (card, second) = judge(&judges);
    let team = simple(&Log::default())
        .performer("Judge", card, second)
        .build()
        .unwrap();
    let plan = Plan::new()
        .step(give("a", 1))
        .step(Step::new("check", "Judge").reads(["a"]));
    within(team.run(plan)).await.unwrap();
    assert!(
        told(&judges, 1).contains("no verdict that can be read"),
        "{}",
        told(&judges, 1)
    );
}

#[tokio::test]
async fn a_verdict_in_the_variable_that_is_written_counts() {
    for reply in [
        json!({"review": {"verdict": "revise", "issues": ["too short"]}}),
        json!({"output": {"verdict": "revise", "issues": ["too short"]}, "review": 1}),
    ] {
        let writer = ScriptedModel::new()
            .reply("{\"draft\": \"bad\"}")
            .reply("{\"draft\": \"good\"}");
        let judges = ScriptedModel::new()
            .reply(reply.to_string())
            .reply("{\"review\": {\"verdict\": \"pass\"}}");
        let (card, second) = judge(&judges);
        let team = Team::builder()
            .agent("Writer", "writes", agent(&writer))
            .performer("Judge", card, second)
            .build()
            .unwrap();
        let plan = Plan::new()
            .step(Step::new("write", "Writer").writes(["draft"]))
            .step(
                Step::new("check", "Judge")
                    .reads(["draft"])
                    .writes(["review"]),
            );
        let finished = within(team.run(plan)).await.unwrap();
        assert_eq!(finished.variable("draft"), Some(&json!("good")));
        assert!(
            told(&writer, 1).contains("too short"),
            "{}",
            told(&writer, 1)
        );
    }
}

#[tokio::test]
async fn of_two_judges_that_send_work_back_none_is_forgotten() {
    let writer = |text: &str| {
        let reply = |n: u32| format!("{{\"{text}\": {n}}}");
        ScriptedModel::new()
            .reply(reply(1))
            .reply(reply(2))
            .reply(reply(3))
    };
    let revise = "{\"verdict\": \"revise\", \"issues\": [\"no\"]}";
    let pass = "{\"verdict\": \"pass\"}";
    let verdicts = ScriptedModel::new()
        .reply(revise)
        .reply(revise)
        .reply(revise)
        .reply(pass)
        .reply(pass)
        .reply(pass);
    let (card, second) = judge(&verdicts);
    let [a, b, c] = ["a", "b", "c"].map(writer);
    let team = Team::builder()
        .agent("A", "writes", agent(&a))
        .agent("B", "writes", agent(&b))
        .agent("C", "writes", agent(&c))
        .performer("Judge", card, second)
        .approve_plans()
        .build()
        .unwrap();
    let mut plan = Plan::new();
    for (name, who) in [("a", "A"), ("b", "B"), ("c", "C")] {
        plan = plan.step(Step::new(name, who).writes([name]));
        plan = plan.step(Step::new(format!("check {name}"), "Judge").reads([name]));
    }
    let mut run = team.run(plan).start();
    let (mut events, control) = (run.events(), run.control().clone());
    // The first change is let pass only when all three judges have spoken.
    let answers = async {
        let (mut open, mut asked, mut failed) = (None, 0, 0);
        while let Some(event) = events.next().await {
            match &event.kind {
                EventKind::Asked(ask) => {
                    asked += 1;
                    open = Some((asked, ask.clone()));
                }
                kind => {
                    failed += usize::from(matches!(
                        PlanNotice::of(kind),
                        Some(PlanNotice::StepFailed { .. })
                    ));
                }
            }
            if let Some((at, ask)) = open.take() {
                match at == 2 && failed < 3 {
                    true => open = Some((at, ask)),
                    false => control.approve(&ask).await.unwrap(),
                }
            }
        }
    };
    let ((), finished) = within(async { tokio::join!(answers, run) }).await;
    let finished = finished.unwrap();
    for name in ["a", "b", "c"] {
        assert_eq!(finished.variable(name), Some(&json!(2)), "{name}");
        let again = finished
            .step(&format!("check {name}~2"))
            .map(|report| report.status);
        assert_eq!(again, Some(StepStatus::Completed), "{name}");
    }
}

#[tokio::test]
async fn a_tool_that_is_asked_about_is_found_by_its_other_name() {
    let tool = RecordingTool::new("send", |_| Ok(ToolOutput::text("sent")));
    struct Yes;
    #[async_trait]
    impl Approver for Yes {
        async fn decide(&self, ask: &Ask) -> Decision {
            assert_eq!(
                ask.call.args,
                json!({"to": "all"}),
                "nothing but what the tool is given"
            );
            Decision::Allow
        }
    }
    let policy = Policy::allow_all().rule(Rule::tool("send").ask("it leaves the house"));
    let team = Team::builder()
        .tool(tool.clone())
        .policy(policy)
        .approver(Yes)
        .build()
        .unwrap();
    let step = Step::new("s", "sendAgent")
        .input("to", "all")
        .writes(["sent"])
        .timeout(Duration::from_secs(60));
    let finished = within(team.run(Plan::new().step(step))).await.unwrap();
    assert_eq!(finished.variable("sent"), Some(&json!("sent")));
}

#[tokio::test]
async fn a_name_that_means_a_time_limit_is_not_given_to_anything_else() {
    let team = simple(&Log::default()).build().unwrap();
    let faulty = |step: Step| {
        let plan = Plan::new()
            .given("$timeout", 1)
            .given("all", json!([1]))
            .step(step);
        team.check(plan).unwrap_err().to_string()
    };
    let steps = [
        give("a", 1).input("$timeout", 1),
        give("a", 1).reads(["$timeout"]),
        give("a", 1).map(FanOut::over("all").named("$timeout")),
    ];
    for step in steps {
        let error = faulty(step);
        assert!(
            error.contains("step `a` is given something as `$timeout`"),
            "{error}"
        );
    }
}
