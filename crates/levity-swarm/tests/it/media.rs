//! Tests of goals with images and files: who receives them, and whether a stored run keeps them.

use levity_core::{Capabilities, Journal as _, Media, ModelCard, Part, Request};
use levity_loop::Agent;
use levity_runtime::{MemoryJournal, Runtime};
use levity_swarm::{Error, Handoff, Pattern, Router, Swarm, SwarmInput};
use levity_test::{ScriptedModel, conformance};

const PLAN: &str = r#"{"delegations": [
    {"id": "look", "worker": "looker", "task": "Look."},
    {"id": "tell", "worker": "blind", "task": "Tell.", "depends_on": ["look"]}]}"#;

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

fn text(request: &Request) -> String {
    let messages = request.history.messages().iter();
    messages.map(|message| message.text()).collect()
}

fn agent(model: &ScriptedModel) -> Agent {
    Agent::builder(model.clone()).build().unwrap()
}

fn swarm(pattern: impl Into<Pattern>, workers: &[ScriptedModel; 2], runtime: &Runtime) -> Swarm {
    Swarm::builder(pattern)
        .agent("looker", "Looks.", agent(&workers[0]))
        .agent("blind", "Tells.", agent(&workers[1]))
        .runtime(runtime.clone())
        .build()
        .unwrap()
}

fn router() -> ScriptedModel {
    seeing().reply(PLAN).reply("It shows a wave.")
}

fn workers() -> [ScriptedModel; 2] {
    [
        seeing().reply("A wave."),
        ScriptedModel::new().reply("Told."),
    ]
}

#[tokio::test]
async fn router_and_workers_receive_images_of_goal_if_they_can_see() {
    let (router, workers, journal) = (router(), workers(), MemoryJournal::new());
    let runtime = Runtime::new().with_journal(journal.clone());
    let swarm = swarm(Router::new(router.clone()), &workers, &runtime);
    let input = SwarmInput::from("Explain the chart").media([chart()]);
    swarm.run(input).id("r").await.unwrap();
    let requests = router.requests();
    assert_eq!(media(&requests[0]), [chart()]);
    // The answer is made of the results.
    assert_eq!(media(&requests[1]), []);
    let [looker, blind] = workers.map(|model| model.requests()[0].clone());
    assert_eq!(media(&looker), [chart()]);
    assert_eq!(media(&blind), []);
    let note = "The goal comes with `chart.png` of type image/png, which you cannot see.";
    assert!(text(&blind).contains(note), "{}", text(&blind));
    assert_eq!(looker.options.label.as_deref(), Some("looker look"));
    assert_eq!(requests[0].options.label.as_deref(), Some("router"));
    conformance::recorded(&swarm, &journal, &"r".into()).await;
}

#[tokio::test]
async fn fork_keeps_images_and_files_of_goal() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tides.csv");
    std::fs::write(&path, "time,metres\n06:00,4.1\n").unwrap();
    let runtime = Runtime::new().with_journal(MemoryJournal::new());
    let input = SwarmInput::from("Explain the chart")
        .media([chart()])
        .files([path]);
    let first = swarm(Router::new(router()), &workers(), &runtime);
    first.run(input).id("r").await.unwrap();
    let (router, workers) = (router(), workers());
    let again = swarm(Router::new(router.clone()), &workers, &runtime);
    again.fork("r").after(0).await.unwrap();
    for request in [&router.requests()[0], &workers[0].requests()[0]] {
        assert_eq!(media(request), [chart()]);
        assert!(
            text(request).contains("1 row, 2 columns"),
            "{}",
            text(request)
        );
    }
}

#[tokio::test]
async fn conversation_of_handoff_has_images_and_files_of_goal_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tides.csv");
    std::fs::write(&path, "time,metres\n06:00,4.1\n").unwrap();
    let passes = serde_json::json!({"to": "blind", "note": "It is a wave."});
    let workers = [
        seeing().call("transfer_to", passes),
        seeing().reply("A wave."),
    ];
    let swarm = swarm(Handoff::starting_with("looker"), &workers, &Runtime::new());
    let input = SwarmInput::from("Explain the chart")
        .media([chart()])
        .files([path]);
    swarm.run(input).await.unwrap();
    for model in &workers {
        let request = &model.requests()[0];
        assert_eq!(media(request), [chart()]);
        let text = text(request);
        assert_eq!(text.matches("1 row, 2 columns").count(), 1, "{text}");
    }
}

#[tokio::test]
async fn run_without_images_stores_nothing_about_them() {
    let journal = MemoryJournal::new();
    let runtime = Runtime::new().with_journal(journal.clone());
    let swarm = swarm(Router::new(router()), &workers(), &runtime);
    swarm.run("Explain").id("r").await.unwrap();
    let records = journal.read(&"r".into()).await.unwrap();
    let stored = serde_json::to_string(&records).unwrap();
    assert!(
        !stored.contains("media") && !stored.contains("files"),
        "{stored}"
    );
}

#[tokio::test]
async fn run_rejects_media_beyond_limit() {
    let large = Media::bytes("image/png", vec![0; SwarmInput::MAX_MEDIA_BYTES + 1]);
    let swarm = swarm(Router::new(router()), &workers(), &Runtime::new());
    match swarm.run(SwarmInput::from("Explain").media([large])).await {
        Err(Error::Setting { .. }) => {}
        other => panic!("{other:?}"),
    }
}
