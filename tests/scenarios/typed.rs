//! Structured output: answers as Rust values.

use std::net::{IpAddr, Ipv4Addr};

use levity::core::{Capabilities, ModelCard, Role};
use levity::prelude::*;
use levity::runtime::{MemoryJournal, TypedOutput as _, replay};
use levity::test::ScriptedModel;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::support::runtime;

#[derive(Debug, PartialEq, Deserialize, JsonSchema)]
struct Sum {
    /// The total of the sum.
    total: f64,
}

/// Checks the result of these replies, and that the run used all of them.
async fn check(replies: &[&str], expected: Result<f64, &str>) {
    let model = replies
        .iter()
        .fold(ScriptedModel::new(), |model, reply| model.reply(*reply));
    let agent = Agent::builder(model.clone()).build().unwrap();
    let sum: levity::Result<Sum> = agent.run("What is 2 + 5?").typed().await;
    model.assert_finished();
    match (sum, expected) {
        (Ok(sum), Ok(total)) => assert_eq!(sum, Sum { total }),
        (Err(error), Err(part)) => {
            assert!(error.to_string().contains(part), "{error}");
            assert!(matches!(error, levity::Error::Output { .. }));
            assert!(
                error
                    .partial()
                    .is_some_and(|partial| !partial.text().is_empty())
            );
        }
        (sum, expected) => panic!("{sum:?} instead of {expected:?}"),
    }
}

#[tokio::test]
async fn valid_answer_is_accepted_at_once() {
    check(&[r#"{"total": 7}"#], Ok(7.0)).await;
}

#[tokio::test]
async fn text_around_json_value_is_ignored() {
    check(
        &["Here you are:\n```json\n{\"total\": 7}\n```\nDone."],
        Ok(7.0),
    )
    .await;
    check(&["The sum is {\"total\": 7}, as I said {once}."], Ok(7.0)).await;
    check(&["[] or {\"total\": 7}"], Ok(7.0)).await;
}

#[tokio::test]
async fn invalid_answer_is_requested_again() {
    check(
        &["seven", r#"{"total": "seven"}"#, r#"{"total": 7}"#],
        Ok(7.0),
    )
    .await;
}

#[tokio::test]
async fn repeatedly_invalid_answer_returns_error_with_text() {
    check(&["seven", "7!", r#"{"sum": 7}"#], Err("total")).await;
}

#[tokio::test]
async fn retry_request_describes_validation_error() {
    let model = ScriptedModel::new()
        .reply(r#"{"total": "seven"}"#)
        .reply(r#"{"total": 7}"#);
    let agent = Agent::builder(model.clone()).build().unwrap();
    let sum = agent.run("What is 2 + 5?").typed::<Sum>().await.unwrap();
    assert_eq!(sum.total, 7.0);
    let requests = model.requests();
    assert_eq!(requests[0].output.as_ref().unwrap().name, "Sum");
    let note = requests[1].history.messages().last().unwrap();
    assert_eq!(note.role, Role::System);
    assert!(note.text().contains("/total"), "{}", note.text());
}

#[tokio::test]
async fn model_without_schema_support_gets_schema_in_prompt() {
    let mut capabilities = Capabilities::default();
    capabilities.output_schema = false;
    let card = ModelCard::new("test", "wordy").with_capabilities(capabilities);
    let model = ScriptedModel::new()
        .reply(r#"{"total": 7}"#)
        .with_card(card);
    let agent = Agent::builder(model.clone())
        .instructions("Be brief.")
        .build()
        .unwrap();
    agent.run("What is 2 + 5?").typed::<Sum>().await.unwrap();
    let request = &model.requests()[0];
    assert!(request.output.is_none());
    let system = request.system.as_deref().unwrap();
    assert!(
        system.starts_with("Be brief.") && system.contains("The total of the sum."),
        "{system}"
    );
}

#[tokio::test]
async fn primitive_types_are_valid_outputs() {
    let agent = Agent::builder(ScriptedModel::new().reply("42").reply("forty-two"))
        .build()
        .unwrap();
    assert_eq!(agent.run("As a number?").typed::<u32>().await.unwrap(), 42);
    assert_eq!(
        agent.run("In words?").typed::<String>().await.unwrap(),
        "forty-two"
    );
}

/// A type whose schema accepts more than its deserializer: not every text is an address.
#[derive(Debug, Deserialize, JsonSchema)]
struct Host {
    addr: IpAddr,
}

/// Runs an agent whose first answer matches the schema, but cannot be deserialized.
async fn run_with_retried_answer() -> (Agent, Answer, MemoryJournal) {
    let (runtime, journal) = runtime();
    let model = ScriptedModel::new()
        .reply(r#"{"addr": "nope"}"#)
        .reply(r#"{"addr": "127.0.0.1"}"#);
    let agent = Agent::builder(model).runtime(runtime).build().unwrap();
    let (host, answer) = agent
        .run("Which host?")
        .typed::<Host>()
        .with_answer()
        .await
        .unwrap();
    assert_eq!(host.addr, IpAddr::V4(Ipv4Addr::LOCALHOST));
    assert!(!journal.records(answer.run()).is_empty());
    (agent, answer, journal)
}

#[tokio::test]
async fn typed_run_replays_with_its_type() {
    let (agent, answer, journal) = run_with_retried_answer().await;
    let records = journal.records(answer.run());
    replay(answer.run(), &records, |_, state| {
        agent.with_output_type::<Host>().restore(state)
    })
    .unwrap();
}

#[tokio::test]
async fn typed_run_resumes_only_with_its_type() {
    let (agent, answer, _) = run_with_retried_answer().await;
    let error = agent.resume(answer.run().clone()).await.unwrap_err();
    assert!(
        matches!(error, levity::Error::Runtime { .. }),
        "the error must name the missing type: {error}"
    );
    let (_, resumed) = agent
        .resume(answer.run().clone())
        .typed::<Host>()
        .with_answer()
        .await
        .unwrap();
    assert_eq!(resumed.text(), answer.text());
}
