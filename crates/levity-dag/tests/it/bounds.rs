//! Tests of limits: questions that block no other step, shared budgets, timeouts and verdicts.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use levity_core::{
    Approver, Ask, Child, Decision, EventKind, Executor, Limits, Program, ToolError, ToolOutput,
    ToolSpec,
};
use levity_dag::{
    Budget, Error, FanOut, Faults, Plan, PlanNotice, PlannerInput, Step, StepRunner,
    StepRunnerKind, StepStatus, Team, TeamPlanner,
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

fn last_message(model: &ScriptedModel, at: usize) -> String {
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

/// Answers questions once a step has completed.
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
                    done |= matches!(
                        notice,
                        Some(PlanNotice::StepCompleted { step: id, .. }) if id.as_str() == step
                    );
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
async fn question_about_tool_blocks_no_other_step() {
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

/// A planner that always returns the same change.
struct Once(Value);

#[async_trait]
impl TeamPlanner for Once {
    async fn plan(&self, _: &PlannerInput) -> Result<Value, ToolError> {
        Ok(self.0.clone())
    }
}

#[tokio::test]
async fn question_about_change_blocks_no_other_step() {
    let change = json!({"add": [{"id": "x2", "agent": "give", "inputs": {"give": 4},
        "writes": ["x"], "instead_of": "x"}]});
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
                    done |= matches!(
                        notice,
                        Some(PlanNotice::StepCompleted { step, .. }) if step.as_str() == "a29"
                    );
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
async fn rounds_share_budget_of_step() {
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

/// A code runner that is an agent.
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
        assert_eq!(keys, ["code", "inputs"], "only the keys of the schema");
        self.1.child(args.to_string(), saved).await
    }
}

pub(crate) fn code(model: &ScriptedModel) -> Code {
    Code(ToolSpec::new("run_python", "Runs Python."), agent(model))
}

#[tokio::test]
async fn code_is_limited_by_timeout_of_step() {
    let runtime = Runtime::new().with_world(ManualWorld::auto());
    let team = Team::builder()
        .code(code(&ScriptedModel::new().hang()))
        .runtime(runtime.clone())
        .build()
        .unwrap();
    let plan = Plan::new().step(Step::code("s", ["1 + 1"]).timeout(Duration::from_secs(5)));
    let Err(error) = within(team.run(plan)).await else {
        panic!("the code must time out")
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
        last_message(&coder, 1).contains("The code failed"),
        "{}",
        last_message(&coder, 1)
    );
}

#[tokio::test]
async fn usage_of_code_counts_for_its_step() {
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
async fn limits_of_run_override_limits_of_team() {
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

/// An approver that replaces every plan.
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
async fn approver_with_invalid_edits_is_not_asked_forever() {
    let log = Log::default();
    let team = simple(&log)
        .approver(Edits(json!("rubbish")))
        .approve_plans()
        .build()
        .unwrap();
    let Err(Error::Cancelled { reason, .. }) =
        within(team.run(Plan::new().step(give("a", 1)))).await
    else {
        panic!("the run must end")
    };
    assert!(reason.contains("plan"), "{reason}");
    assert!(log.take().is_empty());
}

#[tokio::test]
async fn judge_of_list_element_sends_work_back() {
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
        .runner("Judge", card, second)
        .max_parallel(1)
        .build()
        .unwrap();
    let plan = Plan::new()
        .step(Step::new("write", "Writer").writes(["drafts"]))
        .step(Step::new("check", "Judge").map(FanOut::over("drafts")));
    let finished = within(team.run(plan)).await.unwrap();
    assert_eq!(finished.variable("drafts"), Some(&json!(["good"])));
    assert!(
        last_message(&writer, 1).contains("too short"),
        "{}",
        last_message(&writer, 1)
    );
}

#[tokio::test]
async fn unreadable_verdict_does_not_pass() {
    let judges = ScriptedModel::new()
        .reply("{\"verdict\": \"could be better\"}")
        .reply("{\"verdict\": \"Pass.\"}");
    let (card, second) = judge(&judges);
    let team = simple(&Log::default())
        .runner("Judge", card, second)
        .build()
        .unwrap();
    let plan = Plan::new()
        .step(give("a", 1))
        .step(Step::new("check", "Judge").reads(["a"]));
    within(team.run(plan)).await.unwrap();
    assert!(
        last_message(&judges, 1).contains("no readable verdict"),
        "{}",
        last_message(&judges, 1)
    );
}

#[tokio::test]
async fn verdict_in_written_variable_counts() {
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
            .runner("Judge", card, second)
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
            last_message(&writer, 1).contains("too short"),
            "{}",
            last_message(&writer, 1)
        );
    }
}

#[tokio::test]
async fn rejections_of_several_judges_are_all_applied() {
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
        .runner("Judge", card, second)
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
    // The first change is approved only after all three judges have answered.
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
async fn tool_that_needs_approval_is_found_by_alias() {
    let tool = RecordingTool::new("send", |_| Ok(ToolOutput::text("sent")));
    struct Yes;
    #[async_trait]
    impl Approver for Yes {
        async fn decide(&self, ask: &Ask) -> Decision {
            assert_eq!(
                ask.call.args,
                json!({"to": "all"}),
                "only the arguments of the tool"
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
async fn reserved_timeout_name_is_rejected_as_input() {
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
        give("a", 1).map(FanOut::over("all").item_name("$timeout")),
    ];
    for step in steps {
        let error = faulty(step);
        assert!(
            error.contains("step `a` has an input `$timeout`"),
            "{error}"
        );
    }
}
