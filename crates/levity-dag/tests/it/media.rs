//! Tests of goals with images: who receives them, and whether a stored run keeps them.

use levity_core::{Capabilities, Journal as _, Media, Message, ModelCard, Part, Request, Role};
use levity_dag::{Error, Plan, Step, Team, TeamInput};
use levity_loop::Agent;
use levity_runtime::{MemoryJournal, Runtime};
use levity_test::{ScriptedModel, conformance};

use crate::support::within;

const PLAN: &str = r#"{"steps": [
    {"id": "look", "agent": "Looker", "prompt": "Look.", "writes": ["seen"]},
    {"id": "tell", "agent": "Blind", "prompt": "Tell.", "reads": ["seen"],
        "writes": ["answer"]}]}"#;

fn chart() -> Media {
    let mut chart = Media::bytes("image/png", b"\x89PNG".as_slice());
    chart.name = Some("chart.png".to_owned());
    chart
}

/// Returns a model that accepts images.
fn seeing() -> ScriptedModel {
    let mut sees = Capabilities::default();
    sees.images = true;
    ScriptedModel::new().with_card(ModelCard::new("test", "eye").with_capabilities(sees))
}

/// The media in a request.
fn media(request: &Request) -> Vec<Media> {
    let parts = request
        .history
        .messages()
        .iter()
        .flat_map(|message| &message.parts);
    let media = parts.filter_map(|part| match part {
        Part::Media(media) => Some(media.clone()),
        _ => None,
    });
    media.collect()
}

fn team(models: &[ScriptedModel; 3], runtime: &Runtime) -> Team {
    let agent = |model: &ScriptedModel| Agent::builder(model.clone()).build().unwrap();
    let [planner, looker, blind] = models;
    Team::builder()
        .agent(Team::PLANNER, "plans", agent(planner))
        .agent("Looker", "looks", agent(looker))
        .agent("Blind", "tells", agent(blind))
        .runtime(runtime.clone())
        .build()
        .unwrap()
}

fn models() -> [ScriptedModel; 3] {
    let looker = seeing().reply(r#"{"seen": "a wave"}"#);
    let blind = ScriptedModel::new().reply(r#"{"answer": "It shows a wave."}"#);
    [seeing().reply(PLAN), looker, blind]
}

fn input() -> TeamInput {
    let words = "Explain the chart";
    Message::new(Role::User, [words.into(), chart().into()]).into()
}

#[tokio::test]
async fn planner_and_agents_receive_images_of_goal_if_they_can_see() {
    let (models, journal) = (models(), MemoryJournal::new());
    let runtime = Runtime::new().with_journal(journal.clone());
    let team_of_run = team(&models, &runtime);
    let finished = within(team_of_run.run(input()).id("r")).await.unwrap();
    assert_eq!(finished.text(), "It shows a wave.");
    let [planner, looker, blind] = models.map(|model| model.requests()[0].clone());
    assert_eq!(media(&planner), [chart()]);
    let text = planner.history.messages()[0].text().into_owned();
    assert!(
        text.contains("An image or file comes with the goal"),
        "{text}"
    );
    assert_eq!(media(&looker), [chart()]);
    assert_eq!(media(&blind), []);
    let text = blind.history.messages()[0].text().into_owned();
    let note = "The goal comes with `chart.png` of type image/png, which you cannot see.";
    assert!(text.contains(note), "{text}");
    assert_eq!(looker.options.label.as_deref(), Some("Looker look"));
    assert_eq!(planner.options.label.as_deref(), Some("Planner"));
    conformance::recorded(&team_of_run, &journal, &"r".into()).await;
}

#[tokio::test]
async fn fork_and_resume_keep_images_of_goal() {
    let (first, journal) = (models(), MemoryJournal::new());
    let runtime = Runtime::new().with_journal(journal.clone());
    within(team(&first, &runtime).run(input()).id("r"))
        .await
        .unwrap();
    // The fork starts after the first record, so it makes its own plan.
    let again = models();
    let forked = team(&again, &runtime);
    within(forked.fork("r").after(0)).await.unwrap();
    let [planner, looker, _] = again.map(|model| model.requests()[0].clone());
    assert_eq!(
        (media(&planner), media(&looker)),
        (vec![chart()], vec![chart()])
    );

    // A run that was interrupted after its first record.
    let records = journal.read(&"r".into()).await.unwrap();
    let interrupted = MemoryJournal::new();
    let mut open = interrupted.open(&"r".into()).await.unwrap();
    open.log.append(&records[..1]).await.unwrap();
    drop(open);
    let again = models();
    let runtime = Runtime::new().with_journal(interrupted);
    within(team(&again, &runtime).resume("r")).await.unwrap();
    let [planner, looker, _] = again.map(|model| model.requests()[0].clone());
    assert_eq!(
        (media(&planner), media(&looker)),
        (vec![chart()], vec![chart()])
    );
}

#[tokio::test]
async fn run_without_images_stores_nothing_about_them() {
    let (models, journal) = (models(), MemoryJournal::new());
    let runtime = Runtime::new().with_journal(journal.clone());
    within(team(&models, &runtime).run("Explain").id("r"))
        .await
        .unwrap();
    let records = journal.read(&"r".into()).await.unwrap();
    let stored = serde_json::to_string(&records).unwrap();
    assert!(!stored.contains("media"), "{stored}");
    let [planner, ..] = models.map(|model| model.requests()[0].clone());
    assert!(!planner.history.messages()[0].text().contains("image"));
}

#[tokio::test]
async fn run_rejects_media_beyond_limit() {
    let large = Media::bytes("image/png", vec![0; TeamInput::MAX_MEDIA_BYTES + 1]);
    let plan = Plan::new().step(Step::new("a", "Looker"));
    let run = team(&models(), &Runtime::new()).run(TeamInput::from(plan).media([large]));
    match run.await {
        Err(Error::Setting { .. }) => {}
        other => panic!("{other:?}"),
    }
}
