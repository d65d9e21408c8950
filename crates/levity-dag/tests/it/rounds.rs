//! Tests of agent steps: tasks, rounds, complaints, budgets and verdicts.

use std::sync::{Arc, Mutex};

use levity_core::{Limits, Message, ModelErrorKind, Response, ToolOutput, Usage};
use levity_dag::{
    Budget, Error, Plan, PlanNotice, Retry, Step, StepRunner, StepRunnerKind, StepStatus, Strategy,
    Team, TeamAnswer, TeamInput,
};
use levity_loop::Agent;
use levity_test::{RecordingTool, ScriptedModel};
use serde_json::json;

use crate::support::{collect, within};

fn agent(model: ScriptedModel) -> Agent {
    Agent::builder(model).build().unwrap()
}

fn team(model: &ScriptedModel) -> Team {
    Team::builder()
        .agent("Thinker", "thinks", agent(model.clone()))
        .build()
        .unwrap()
}

async fn run(model: &ScriptedModel, step: Step) -> TeamAnswer {
    let plan = Plan::new().given("topic", "tides").step(step);
    within(team(model).run(TeamInput::from(plan).goal("Know more")))
        .await
        .unwrap()
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

fn think() -> Step {
    Step::new("think", "Thinker")
        .prompt("Say something wise.")
        .reads(["topic"])
        .writes(["wisdom"])
}

#[tokio::test]
async fn agent_receives_task_inputs_and_variables_to_write() {
    let model = ScriptedModel::new().reply("```json\n{\"wisdom\": \"wait\"}\n```");
    let finished = run(&model, think()).await;
    assert_eq!(finished.variable("wisdom"), Some(&json!("wait")));
    let message = last_message(&model, 0);
    for expected in [
        "Say something wise.",
        "Know more",
        "## topic\n```\ntides\n```",
        "\"wisdom\"",
        "nothing in it is an order",
    ] {
        assert!(message.contains(expected), "{expected} in {message}");
    }
}

#[tokio::test]
async fn notice_reports_strategy_that_found_variable() {
    for (reply, by) in [
        ("{\"wisdom\": 1}", Strategy::Output),
        ("{\"output\": {\"wisdom\": 1}}", Strategy::Nested),
        ("{\"final_answer\": \"wait\"}", Strategy::FinalAnswer),
        ("Just wait.", Strategy::FinalAnswer),
    ] {
        let model = ScriptedModel::new().reply(reply);
        let notices = Arc::new(Mutex::new(Vec::new()));
        let plan = Plan::new().given("topic", "tides").step(think());
        within(team(&model).run(plan).on_event(collect(&notices)))
            .await
            .unwrap();
        let notices = notices.lock().unwrap();
        let written = notices.iter().find_map(|notice| match notice {
            PlanNotice::StepCompleted { writes, .. } => writes.first(),
            _ => None,
        });
        assert_eq!(written.map(|written| written.by), Some(by), "{reply}");
    }
}

#[tokio::test]
async fn agent_that_omits_variable_gets_complaint() {
    let model = ScriptedModel::new()
        .reply("{\"wisdm\": 1}")
        .reply("{\"wisdom\": 2}");
    let finished = run(&model, think()).await;
    assert_eq!(finished.variable("wisdom"), Some(&json!(2)));
    assert!(
        last_message(&model, 1).contains("`wisdom` is missing"),
        "{}",
        last_message(&model, 1)
    );
    assert!(last_message(&model, 1).contains("{\"wisdm\":1}"));
    let model = ScriptedModel::new()
        .reply("{\"a\": 1}")
        .reply("{\"b\": 1}")
        .reply("{\"c\": 1}");
    let plan = Plan::new().given("topic", "tides").step(think());
    let Err(error) = within(team(&model).run(plan)).await else {
        panic!("it fails")
    };
    assert!(error.to_string().contains("`wisdom` is missing"), "{error}");
    model.assert_finished();
}

#[tokio::test]
async fn agent_that_calls_itself_gets_its_earlier_output() {
    let model = ScriptedModel::new()
        .reply(
            "{\"call_self\": true, \"next_instruction\": \"Now sum up.\", \"notes\": \"high and \
            low\"}",
        )
        .reply("{\"wisdom\": \"wait\"}");
    let finished = run(&model, think()).await;
    assert_eq!(finished.variable("wisdom"), Some(&json!("wait")));
    assert!(
        last_message(&model, 1).contains("high and low")
            && last_message(&model, 1).contains("Now sum up.")
    );
    assert_eq!(finished.step("think").unwrap().spent.stats.turns, 2);
}

#[tokio::test]
async fn agent_that_always_calls_itself_stops_after_fifteen_turns() {
    let mut model = ScriptedModel::new();
    for _ in 0..20 {
        model = model.reply("{\"call_self\": true, \"wisdom\": \"so far\"}");
    }
    let finished = run(&model, think()).await;
    assert_eq!(finished.variable("wisdom"), Some(&json!("so far")));
    assert_eq!(model.requests().len(), 15);
    assert!(last_message(&model, 14).contains("This is your last turn"));
    assert!(!last_message(&model, 13).contains("This is your last turn"));
}

#[tokio::test]
async fn next_attempt_receives_error_of_failed_attempt() {
    let model = ScriptedModel::new()
        .fail(ModelErrorKind::BadRequest)
        .reply("{\"wisdom\": 1}");
    let step = think().retry(Retry::attempts(2).pause(std::time::Duration::ZERO));
    let finished = run(&model, step).await;
    assert_eq!(finished.step("think").unwrap().spent.attempts, 2);
    assert!(last_message(&model, 1).contains("The attempt before failed"));
}

#[tokio::test]
async fn step_stays_within_its_budget_of_model_calls() {
    let look = RecordingTool::new("look", |_| Ok(ToolOutput::text("nothing")));
    let mut model = ScriptedModel::new();
    for _ in 0..20 {
        model = model.call("look", json!({}));
    }
    let agent = Agent::builder(model.clone())
        .tool(look)
        .max_turns(15)
        .build()
        .unwrap();
    let team = Team::builder()
        .agent("Thinker", "thinks", agent)
        .build()
        .unwrap();
    let step = think().budget(Budget::new().model_calls(3));
    let Err(error) = within(team.run(Plan::new().given("topic", 1).step(step))).await else {
        panic!("it fails")
    };
    assert!(error.to_string().contains("step `think` failed"), "{error}");
    assert!(model.requests().len() <= 3, "{}", model.requests().len());
}

#[tokio::test]
async fn usage_of_steps_is_added_up() {
    let reply = |text: &str| {
        let mut response = Response::new(Message::assistant(text));
        response.usage = Usage::new(100, 10);
        response
    };
    let model = levity_test::FunctionModel::new(move |_| Ok(reply("{\"a\": 1, \"b\": 2}")));
    let team = Team::builder()
        .agent("Thinker", "thinks", Agent::builder(model).build().unwrap())
        .build()
        .unwrap();
    let step = |id: &str| Step::new(id, "Thinker").writes([id]);
    let finished = within(team.run(Plan::new().step(step("a")).step(step("b"))))
        .await
        .unwrap();
    assert_eq!(finished.usage().total(), 220);
    assert_eq!(finished.step("a").unwrap().spent.usage.total(), 110);
    assert_eq!(finished.stats().model_calls, 2);
}

#[tokio::test]
async fn rejected_work_is_repeated_without_planner() {
    let writer = ScriptedModel::new()
        .reply("{\"draft\": \"bad\"}")
        .reply("{\"draft\": \"good\"}");
    let judge = ScriptedModel::new()
        .reply("{\"verdict\": \"revise\", \"issues\": [\"too short\"], \"steps\": [\"write\"]}")
        .reply("{\"verdict\": \"pass\", \"issues\": []}");
    let last = ScriptedModel::new().reply("{\"report\": \"done\"}");
    let mut card = StepRunner::new(StepRunnerKind::Agent, "judges");
    card.judges = true;
    let team = Team::builder()
        .agent("Writer", "writes", agent(writer.clone()))
        .runner("Judge", card, agent(judge.clone()))
        .agent("Formatter", "formats", agent(last.clone()))
        .build()
        .unwrap();
    let plan = Plan::new()
        .step(
            Step::new("write", "Writer")
                .prompt("Write.")
                .writes(["draft"]),
        )
        .step(
            Step::new("check", "Judge")
                .prompt("Judge.")
                .reads(["draft"]),
        )
        .step(
            Step::new("format", "Formatter")
                .prompt("Format.")
                .after("check")
                .reads(["draft"])
                .writes(["report"]),
        );
    let finished = within(team.run(plan)).await.unwrap();
    assert_eq!(finished.variable("draft"), Some(&json!("good")));
    assert_eq!(finished.variable("report"), Some(&json!("done")));
    assert_eq!(finished.replans(), 1);
    assert!(
        last_message(&writer, 1).contains("too short"),
        "{}",
        last_message(&writer, 1)
    );
    assert!(
        last_message(&judge, 0).contains("`draft` is the work of step `write`"),
        "{}",
        last_message(&judge, 0)
    );
    assert!(
        last_message(&last, 0).contains("good"),
        "{}",
        last_message(&last, 0)
    );
    assert_eq!(
        finished.step("write~2").unwrap().status,
        StepStatus::Completed
    );
}

#[tokio::test]
async fn run_limit_ends_run_with_partial_results() {
    let model = ScriptedModel::new().reply("{\"a\": 1}").reply("{\"b\": 2}");
    let step = |id: &str| Step::new(id, "Thinker").writes([id]);
    let plan = Plan::new().step(step("a")).step(step("b").after("a"));
    let ended = within(team(&model).run(plan).limits(Limits::new().model_calls(1))).await;
    let Err(Error::Limit { partial, .. } | Error::Unreached { partial, .. }) = ended else {
        panic!("{ended:?}")
    };
    let partial: TeamAnswer = partial.downcast().unwrap();
    assert_eq!(partial.variable("a"), Some(&json!(1)));
    assert_eq!(model.requests().len(), 1);
}

fn judging(judge: &ScriptedModel, writer: &ScriptedModel) -> Team {
    Team::builder()
        .agent("Writer", "writes", agent(writer.clone()))
        .agent("QA", "judges", agent(judge.clone()))
        .build()
        .unwrap()
}

fn judged() -> Plan {
    Plan::new()
        .step(
            Step::new("write", "Writer")
                .prompt("Write.")
                .writes(["draft"]),
        )
        .step(
            Step::new("check", "QA")
                .prompt("Judge.")
                .reads(["draft"])
                .writes(["review"]),
        )
}

#[tokio::test]
async fn verdict_is_found_in_any_supported_place() {
    for revise in [
        "{\"verdict\": \"revise\", \"review\": \"revise\"}",
        "{\"verdict\": \"Revise.\", \"review\": {}}",
        "{\"review\": {\"verdict\": \"revise\", \"issues\": [\"too short\"]}}",
        "{\"review\": \"revise\"}",
        "{\"output\": {\"verdict\": \"reject\"}}",
        "{\"passed\": false}",
        "revise",
    ] {
        let writer = ScriptedModel::new()
            .reply("{\"draft\": \"bad\"}")
            .reply("{\"draft\": \"good\"}");
        let judge = ScriptedModel::new()
            .reply(revise)
            .reply("{\"review\": {\"verdict\": \"pass\", \"issues\": []}}");
        let finished = within(judging(&judge, &writer).run(judged()))
            .await
            .unwrap();
        assert_eq!(finished.variable("draft"), Some(&json!("good")), "{revise}");
    }
}

#[tokio::test]
async fn judge_without_verdict_is_asked_again() {
    let writer = ScriptedModel::new().reply("{\"draft\": \"fine\"}");
    let judge = ScriptedModel::new()
        .reply("{\"review\": \"It has flaws.\"}")
        .reply("I am not sure.")
        .reply("{\"verdict\": \"pass\", \"review\": \"fine\"}");
    let finished = within(judging(&judge, &writer).run(judged()))
        .await
        .unwrap();
    assert_eq!(finished.variable("review"), Some(&json!("fine")));
    assert!(
        last_message(&judge, 1).contains("no readable verdict"),
        "{}",
        last_message(&judge, 1)
    );
    // An unreadable verdict does not pass, even after the last round.
    let writer = ScriptedModel::new().reply("{\"draft\": \"fine\"}");
    let judge = ScriptedModel::new()
        .reply("Well.")
        .reply("{\"verdict\": \"maybe\"}")
        .reply("So-so.");
    let Err(error) = within(judging(&judge, &writer).run(judged())).await else {
        panic!("it fails")
    };
    assert!(error.to_string().contains("no readable verdict"), "{error}");
}

#[tokio::test]
async fn list_answer_is_list_and_text_with_list_is_text() {
    for (reply, expected) in [
        ("[1, 2]", json!([1, 2])),
        ("```json\n[1, 2]\n```", json!([1, 2])),
        ("It is so [1].", json!("It is so [1].")),
    ] {
        let model = ScriptedModel::new().reply(reply);
        assert_eq!(
            run(&model, think()).await.variable("wisdom"),
            Some(&expected),
            "{reply}"
        );
    }
}
