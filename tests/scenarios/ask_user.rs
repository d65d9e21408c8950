//! A model that asks the user, and ends its run with a `finish` call.

use levity::core::{Approver, Ask, AskKind, Decision, RunRequest, ToolChoice};
use levity::prelude::*;
use levity::test::{ScriptedModel, Turn};
use serde_json::json;

use crate::support::runtime;

fn question_model() -> ScriptedModel {
    let question = json!({"question": "Which colour?", "options": ["red", "blue"]});
    ScriptedModel::new()
        .call("ask_user", question)
        .reply("Painted.")
}

/// Returns the tool results in the last request of the model.
fn last_tool_results(model: &ScriptedModel) -> Vec<String> {
    let requests = model.requests();
    let messages = requests.last().unwrap().history.messages();
    messages
        .iter()
        .flat_map(|message| message.results())
        .map(|result| result.text().into_owned())
        .collect()
}

#[tokio::test]
async fn run_handle_answers_question_of_model() {
    let model = question_model();
    let agent = Agent::builder(model.clone()).ask_user().build().unwrap();
    let mut run = agent.start("Paint the shed");
    let mut events = run.events();
    while let Some(event) = events.next().await {
        if let EventKind::Asked(ask) = &event.kind {
            assert_eq!(
                (&*ask.reason, ask.wanted),
                ("Which colour? (red / blue)", AskKind::Answer)
            );
            run.answer(ask, "blue").await.unwrap();
        }
    }
    assert_eq!(run.await.unwrap().text(), "Painted.");
    assert_eq!(last_tool_results(&model), ["blue"]);
}

#[tokio::test]
async fn parked_question_is_answered_through_journal() {
    let (runtime, _) = runtime();
    let model = question_model();
    let agent = Agent::builder(model.clone())
        .ask_user()
        .runtime(runtime.clone())
        .build()
        .unwrap();
    let Err(levity::Error::Parked { run, .. }) = agent.run("Paint the shed").park().await else {
        panic!("the run was not parked");
    };
    let [ask] = &*agent.pending_asks(&run).await.unwrap() else {
        panic!("expected one question")
    };
    let request = RunRequest::Decide {
        effect: ask.effect,
        decision: Decision::answer("red"),
    };
    runtime.send_request(&run, request).await.unwrap();
    assert_eq!(agent.resume(run).await.unwrap().text(), "Painted.");
    assert_eq!(last_tool_results(&model), ["red"]);
}

struct FixedDecision(Decision);

#[async_trait::async_trait]
impl Approver for FixedDecision {
    async fn decide(&self, _: &Ask) -> Decision {
        self.0.clone()
    }
}

#[tokio::test]
async fn unanswered_question_does_not_end_run() {
    let ending = "go on with what you know, and say what you assumed";
    for (decision, start) in [
        (
            Some(Decision::deny("ask later")),
            "the question was not answered: ask later; ",
        ),
        (Some(Decision::Allow), "the question was not answered; "),
        (
            None,
            "the question was not answered: no one can be asked for approval",
        ),
    ] {
        let model = question_model();
        let agent = Agent::builder(model.clone()).ask_user();
        let agent = match decision {
            Some(decision) => agent.approver(FixedDecision(decision)),
            None => agent,
        };
        assert_eq!(
            agent
                .build()
                .unwrap()
                .run("Paint the shed")
                .await
                .unwrap()
                .text(),
            "Painted."
        );
        let [result] = &*last_tool_results(&model) else {
            panic!("expected one result")
        };
        assert!(
            result.starts_with(start) && result.ends_with(ending),
            "{result}"
        );
    }
}

#[tokio::test]
async fn invalid_question_is_returned_to_model() {
    let model = ScriptedModel::new()
        .call("ask_user", json!({"question": " "}))
        .reply("Well.");
    let agent = Agent::builder(model.clone())
        .ask_user()
        .approver(FixedDecision(Decision::answer("yes")))
        .build()
        .unwrap();
    agent.run("Go").await.unwrap();
    assert_eq!(
        last_tool_results(&model),
        ["`question` must be a text that is not empty"]
    );
}

/// Deletes a file.
#[tool(name = "_delete", destructive)]
async fn delete() -> String {
    panic!("the tool was called")
}

#[tokio::test]
async fn approver_answer_replaces_tool_call() {
    let model = ScriptedModel::new()
        .call("delete", json!({}))
        .reply("Fine.");
    let agent = Agent::builder(model.clone())
        .tool_as("delete", delete)
        .approver(FixedDecision(Decision::answer("I did it myself")));
    agent.build().unwrap().run("Go").await.unwrap();
    assert_eq!(last_tool_results(&model), ["I did it myself"]);
}

/// Reports what is there.
#[tool(name = "_look", read_only)]
async fn inspect() -> String {
    "a shed".into()
}

#[tokio::test]
async fn finish_call_ends_run_with_its_answer() {
    let model = ScriptedModel::new()
        .call("look", json!({}))
        .call("finish", json!({"answer": "It is a shed."}));
    let agent = Agent::builder(model)
        .tool_as("look", inspect)
        .finish_tool()
        .build()
        .unwrap();
    let answer = agent.run("What is it?").await.unwrap();
    assert_eq!(
        (answer.text(), answer.stats().tool_calls),
        ("It is a shed.", 2)
    );
    // The history is complete: a run that continues from it finds a result for the call.
    assert!(
        answer
            .history()
            .messages()
            .last()
            .unwrap()
            .results()
            .next()
            .is_some()
    );
}

#[tokio::test]
async fn finish_beside_other_calls_is_deferred() {
    let both = Turn::new()
        .call("look", json!({}))
        .call("finish", json!({"answer": "Too soon."}));
    let model = ScriptedModel::new()
        .turn(both)
        .call("finish", json!({}))
        .call("finish", json!({"answer": {"a": 1}}));
    let agent = Agent::builder(model.clone())
        .tool_as("look", inspect)
        .finish_tool()
        .build()
        .unwrap();
    assert_eq!(agent.run("What is it?").await.unwrap().text(), r#"{"a":1}"#);
    let results = last_tool_results(&model);
    assert_eq!(results[0], "a shed");
    assert!(results[1].contains("then call it alone"), "{}", results[1]);
    assert_eq!(results[2], "`answer` must be there and not be empty");
}

#[tokio::test]
async fn finish_call_without_offered_tools_is_answer() {
    let model = || {
        ScriptedModel::new()
            .call("look", json!({}))
            .call("finish", json!({"answer": "It is a shed."}))
    };
    let agent = |model| Agent::builder(model).tool_as("look", inspect).finish_tool();
    for agent in [agent(model()).single_tool(), agent(model()).max_turns(2)] {
        let answer = agent.build().unwrap().run("What is it?").await.unwrap();
        assert_eq!(answer.text(), "It is a shed.");
        let last = answer.history().messages().last().cloned().unwrap();
        assert_eq!(
            last.results().next().unwrap().text(),
            "the answer was taken"
        );
    }
}

#[tokio::test]
async fn single_tool_mode_counts_invalid_call() {
    let model = ScriptedModel::new()
        .call("ask_user", json!({}))
        .reply("Well.");
    let agent = Agent::builder(model.clone())
        .tool_as("look", inspect)
        .ask_user()
        .single_tool()
        .build()
        .unwrap();
    assert_eq!(agent.run("What is it?").await.unwrap().text(), "Well.");
    assert_eq!(model.requests()[1].tool_choice, ToolChoice::None);
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Shed {
    colour: String,
}

#[tokio::test]
async fn typed_run_validates_finish_answer() {
    let model = ScriptedModel::new()
        .call("finish", json!({"answer": "a shed"}))
        .call("finish", json!({"answer": {"colour": "blue"}}));
    let agent = Agent::builder(model).finish_tool().build().unwrap();
    let shed: Shed = agent.run("What is it?").typed::<Shed>().await.unwrap();
    assert_eq!(shed.colour, "blue");
}
