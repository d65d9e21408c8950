use std::net::{IpAddr, Ipv4Addr};

use levity::core::{Abilities, ModelCard, Role};
use levity::prelude::*;
use levity::runtime::{MemoryJournal, TypedOutput as _, replay};
use levity::test::ScriptedModel;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::support::runtime;

#[derive(Debug, PartialEq, Deserialize, JsonSchema)]
struct Sum {
    /// The sum itself.
    total: f64,
}

/// What the replies lead to, and how many of them it took.
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
async fn an_answer_of_the_right_shape_is_taken_at_once() {
    check(&[r#"{"total": 7}"#], Ok(7.0)).await;
}

#[tokio::test]
async fn what_stands_around_the_value_is_left_out() {
    check(
        &["Here you are:\n```json\n{\"total\": 7}\n```\nDone."],
        Ok(7.0),
    )
    .await;
    check(&["The sum is {\"total\": 7}, as I said {once}."], Ok(7.0)).await;
    check(&["[] or {\"total\": 7}"], Ok(7.0)).await;
}

#[tokio::test]
async fn a_wrong_answer_is_asked_for_again() {
    check(
        &["seven", r#"{"total": "seven"}"#, r#"{"total": 7}"#],
        Ok(7.0),
    )
    .await;
}

#[tokio::test]
async fn an_answer_that_stays_wrong_is_an_error_that_keeps_it() {
    check(&["seven", "7!", r#"{"sum": 7}"#], Err("total")).await;
}

#[tokio::test]
async fn the_model_is_told_what_is_wrong() {
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
async fn a_model_without_schemas_gets_the_shape_in_words() {
    let mut abilities = Abilities::default();
    abilities.output_schema = false;
    let card = ModelCard::new("test", "wordy").with_abilities(abilities);
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
        system.starts_with("Be brief.") && system.contains("The sum itself."),
        "{system}"
    );
}

#[tokio::test]
async fn plain_types_are_answers_too() {
    let agent = Agent::builder(ScriptedModel::new().reply("42").reply("forty-two"))
        .build()
        .unwrap();
    assert_eq!(agent.run("As a number?").typed::<u32>().await.unwrap(), 42);
    assert_eq!(
        agent.run("In words?").typed::<String>().await.unwrap(),
        "forty-two"
    );
}

/// Its schema lets more through than it takes itself: not every text is an address.
#[derive(Debug, Deserialize, JsonSchema)]
struct Host {
    addr: IpAddr,
}

/// A run whose first answer was of the right shape, and still not of the type.
async fn asked_again() -> (Agent, Answer, MemoryJournal) {
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
async fn a_run_with_a_type_is_replayed_with_it() {
    let (agent, answer, journal) = asked_again().await;
    let records = journal.records(answer.run());
    replay(answer.run(), &records, |_, state| {
        agent.expecting::<Host>().restore(state)
    })
    .unwrap();
}

#[tokio::test]
async fn a_run_with_a_type_is_resumed_with_it_and_not_without() {
    let (agent, answer, _) = asked_again().await;
    let error = agent.resume(answer.run().clone()).await.unwrap_err();
    assert!(
        matches!(error, levity::Error::Runtime { .. }),
        "the type is missing: {error}"
    );
    let (_, again) = agent
        .resume(answer.run().clone())
        .typed::<Host>()
        .with_answer()
        .await
        .unwrap();
    assert_eq!(again.text(), answer.text());
}
