//! A model asks the user, and says by a call that it is done.

use levity::core::{Approver, Ask, Decision, RunRequest, ToolChoice, Wanted};
use levity::prelude::*;
use levity::test::{ScriptedModel, Turn};
use serde_json::json;

use crate::support::runtime;

fn asks() -> ScriptedModel {
    let question = json!({"question": "Which colour?", "options": ["red", "blue"]});
    ScriptedModel::new()
        .call("ask_user", question)
        .reply("Painted.")
}

/// What the model was told in its last request, by the results of its calls.
fn told(model: &ScriptedModel) -> Vec<String> {
    let requests = model.requests();
    let messages = requests.last().unwrap().history.messages();
    messages
        .iter()
        .flat_map(|message| message.results())
        .map(|result| result.text().into_owned())
        .collect()
}

#[tokio::test]
async fn whoever_holds_the_run_answers() {
    let model = asks();
    let agent = Agent::builder(model.clone()).ask_user().build().unwrap();
    let mut run = agent.start("Paint the shed");
    let mut events = run.events();
    while let Some(event) = events.next().await {
        if let EventKind::Asked(ask) = &event.kind {
            assert_eq!(
                (&*ask.reason, ask.wanted),
                ("Which colour? (red / blue)", Wanted::Answer)
            );
            run.answer(ask, "blue").await.unwrap();
        }
    }
    assert_eq!(run.await.unwrap().text(), "Painted.");
    assert_eq!(told(&model), ["blue"]);
}

#[tokio::test]
async fn a_question_waits_in_the_journal_for_its_answer() {
    let (runtime, _) = runtime();
    let model = asks();
    let agent = Agent::builder(model.clone())
        .ask_user()
        .runtime(runtime.clone())
        .build()
        .unwrap();
    let Err(levity::Error::Parked { run, .. }) = agent.run("Paint the shed").park().await else {
        panic!("it did not wait");
    };
    let [ask] = &*agent.asks(&run).await.unwrap() else {
        panic!("it asks once")
    };
    let post = RunRequest::Decide {
        effect: ask.effect,
        decision: Decision::answer("red"),
    };
    runtime.tell(&run, post).await.unwrap();
    assert_eq!(agent.resume(run).await.unwrap().text(), "Painted.");
    assert_eq!(told(&model), ["red"]);
}

struct Says(Decision);

#[async_trait::async_trait]
impl Approver for Says {
    async fn decide(&self, _: &Ask) -> Decision {
        self.0.clone()
    }
}

#[tokio::test]
async fn a_question_without_an_answer_does_not_end_the_run() {
    let go_on = "go on with what you know, and say what you assumed";
    for (decision, why) in [
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
        let model = asks();
        let agent = Agent::builder(model.clone()).ask_user();
        let agent = match decision {
            Some(decision) => agent.approver(Says(decision)),
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
        let [told] = &*told(&model) else {
            panic!("one result")
        };
        assert!(told.starts_with(why) && told.ends_with(go_on), "{told}");
    }
}

#[tokio::test]
async fn a_question_of_the_wrong_shape_is_not_asked() {
    let model = ScriptedModel::new()
        .call("ask_user", json!({"question": " "}))
        .reply("Well.");
    let agent = Agent::builder(model.clone())
        .ask_user()
        .approver(Says(Decision::answer("yes")))
        .build()
        .unwrap();
    agent.run("Go").await.unwrap();
    assert_eq!(
        told(&model),
        ["`question` must be a text that is not empty"]
    );
}

/// Deletes a file.
#[tool(name = "_delete", destructive)]
async fn delete() -> String {
    panic!("it was called")
}

#[tokio::test]
async fn a_person_can_answer_in_place_of_a_call() {
    let model = ScriptedModel::new()
        .call("delete", json!({}))
        .reply("Fine.");
    let agent = Agent::builder(model.clone())
        .tool_as("delete", delete)
        .approver(Says(Decision::answer("I did it myself")));
    agent.build().unwrap().run("Go").await.unwrap();
    assert_eq!(told(&model), ["I did it myself"]);
}

/// Looks.
#[tool(name = "_look", read_only)]
async fn look() -> String {
    "a shed".into()
}

#[tokio::test]
async fn finish_ends_the_run_with_its_answer() {
    let model = ScriptedModel::new()
        .call("look", json!({}))
        .call("finish", json!({"answer": "It is a shed."}));
    let agent = Agent::builder(model)
        .tool_as("look", look)
        .finish_tool()
        .build()
        .unwrap();
    let answer = agent.run("What is it?").await.unwrap();
    assert_eq!(
        (answer.text(), answer.stats().tool_calls),
        ("It is a shed.", 2)
    );
    // The history is whole: who goes on from here finds the call answered.
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
async fn finish_beside_other_calls_is_put_off() {
    let both = Turn::new()
        .call("look", json!({}))
        .call("finish", json!({"answer": "Too soon."}));
    let model = ScriptedModel::new()
        .turn(both)
        .call("finish", json!({}))
        .call("finish", json!({"answer": {"a": 1}}));
    let agent = Agent::builder(model.clone())
        .tool_as("look", look)
        .finish_tool()
        .build()
        .unwrap();
    assert_eq!(agent.run("What is it?").await.unwrap().text(), r#"{"a":1}"#);
    let told = told(&model);
    assert_eq!(told[0], "a shed");
    assert!(told[1].contains("then call it alone"), "{}", told[1]);
    assert_eq!(told[2], "`answer` must be there and not be empty");
}

#[tokio::test]
async fn finish_is_an_answer_also_where_no_tools_are_offered() {
    let model = || {
        ScriptedModel::new()
            .call("look", json!({}))
            .call("finish", json!({"answer": "It is a shed."}))
    };
    let agent = |model| Agent::builder(model).tool_as("look", look).finish_tool();
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
async fn a_call_that_fails_at_once_is_still_the_single_one() {
    let model = ScriptedModel::new()
        .call("ask_user", json!({}))
        .reply("Well.");
    let agent = Agent::builder(model.clone())
        .tool_as("look", look)
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
async fn what_finish_says_is_held_to_the_wanted_type() {
    let model = ScriptedModel::new()
        .call("finish", json!({"answer": "a shed"}))
        .call("finish", json!({"answer": {"colour": "blue"}}));
    let agent = Agent::builder(model).finish_tool().build().unwrap();
    let shed: Shed = agent.run("What is it?").typed::<Shed>().await.unwrap();
    assert_eq!(shed.colour, "blue");
}
