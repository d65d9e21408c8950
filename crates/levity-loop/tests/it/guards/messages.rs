//! Guards on messages and decisions: by a handle, by an approver, and while no process drives the
//! run.

use std::sync::{Arc, Mutex};

use levity_core::{Approver, Ask, ControlCommand, Decision, Journal as _, RunRequest};
use levity_runtime::Delivery;

use super::*;

/// Creates a guard that blocks `never`, and replaces `hush` with stars.
fn hush_guard(stages: &[Stage]) -> Probe {
    probe(
        "words",
        stages,
        &SeenItems::default(),
        |subject| match subject.text().contains("never") {
            true => Verdict::block("no such word"),
            false => swap(subject, "hush", "****"),
        },
    )
}

fn say_request(text: &str) -> RunRequest {
    RunRequest::Command(ControlCommand::Say {
        message: Arc::new(Message::user(text)),
    })
}

/// Returns the question of a run that was left waiting for a person.
async fn asking(agent: &Agent, run: &str) -> Ask {
    let left = agent.run("Do it").id(run).park().await.unwrap_err();
    assert!(matches!(left, Error::Parked { .. }), "{left}");
    agent.pending_asks(&run.into()).await.unwrap().remove(0)
}

#[tokio::test]
async fn message_for_parked_run_is_checked_by_its_agent() {
    let (runtime, journal) = runtime();
    let model = ScriptedModel::new()
        .call("ask_user", json!({"question": "Which?"}))
        .reply("Done.");
    let builder = Agent::builder(model.clone())
        .ask_user()
        .guard(hush_guard(&[Stage::Input]));
    let agent = builder.runtime(runtime.clone()).build().unwrap();
    let (ask, run) = (asking(&agent, "r").await, RunId::new("r"));
    let answer = |text: &str| RunRequest::Decide {
        effect: ask.effect,
        decision: Decision::answer(text),
    };

    for post in [say_request("hush"), answer("hush")] {
        let error = runtime.send_request(&run, post).await.unwrap_err();
        let unheard = levity_core::RuntimeError::Control(ControlError::NotDriven(run.clone()));
        assert_eq!(error.to_string(), unheard.to_string());
    }
    let pause = RunRequest::Command(ControlCommand::Pause);
    assert_eq!(
        runtime.send_request(&run, pause).await.unwrap(),
        Delivery::Written,
        "what has no words is no matter"
    );
    let error = agent.send_request(&run, answer("never")).await.unwrap_err();
    assert!(
        matches!(
            error,
            levity_core::RuntimeError::Control(ControlError::Blocked { .. })
        ),
        "{error}"
    );
    agent
        .send_request(&run, say_request("and hush"))
        .await
        .unwrap();
    assert_eq!(
        agent
            .send_request(&run, answer("hush, this one"))
            .await
            .unwrap(),
        Delivery::Written
    );
    let error = agent
        .send_request(&run, answer("another"))
        .await
        .unwrap_err();
    assert!(
        matches!(
            error,
            levity_core::RuntimeError::Control(ControlError::NotAsked { .. })
        ),
        "{error}"
    );

    let kept = written(&journal, &run);
    assert!(!kept.contains("hush") && !kept.contains("never"), "{kept}");
    agent.resume("r").await.unwrap();
    let sent = format!("{:?}", model.requests()[1]);
    assert!(
        sent.contains("and ****") && sent.contains("****, this one"),
        "{sent}"
    );
    let records = journal.read(&run).await.unwrap();
    let told = replay(&run, &records, |_, state| agent.restore(state))
        .unwrap()
        .events;
    let blocked: Vec<_> = interventions(&told)
        .into_iter()
        .map(|by| by.blocked.is_some())
        .collect();
    assert_eq!(blocked, [true, false, false]);
}

#[tokio::test]
async fn run_without_guards_receives_messages_unchecked() {
    let (runtime, _) = runtime();
    let model = ScriptedModel::new()
        .call("ask_user", json!({"question": "Which?"}))
        .reply("Done.");
    let agent = Agent::builder(model)
        .ask_user()
        .runtime(runtime.clone())
        .build()
        .unwrap();
    let ask = asking(&agent, "r").await;
    assert!(agent.executor().inspect().screener.is_none());
    let post = RunRequest::Decide {
        effect: ask.effect,
        decision: Decision::answer("hush"),
    };
    assert_eq!(
        runtime.send_request(&ask.run, post).await.unwrap(),
        Delivery::Written
    );
    agent.resume("r").await.unwrap();
}

fn send() -> RecordingTool {
    RecordingTool::new("send", |_| Ok(ToolOutput::text("sent")))
        .with_hints(Hints::new().destructive())
}

fn sending() -> ScriptedModel {
    ScriptedModel::new()
        .call("send", json!({"text": "good day"}))
        .reply("Sent.")
}

/// Returns the decision on a call by the run's handle, the model's result, and the journal.
async fn decided(decisions: Vec<Decision>) -> (String, String, Vec<bool>) {
    let ((runtime, journal), model) = (runtime(), sending());
    let builder = Agent::builder(model.clone())
        .tool(send())
        .guard(hush_guard(&[Stage::Input, Stage::Call]));
    let agent = builder.runtime(runtime).build().unwrap();
    let mut run = agent.run("Send it").id("r").start();
    let (mut stream, mut events) = (run.events(), Vec::new());
    while let Some(event) = stream.next().await {
        if let EventKind::Asked(ask) = &event.kind {
            for decision in &decisions {
                let _ = run.control().decide(ask, decision.clone()).await;
            }
        }
        events.push(event);
    }
    run.await.unwrap();
    let blocked = interventions(&events)
        .into_iter()
        .map(|by| by.blocked.is_some())
        .collect();
    (
        format!("{:?}", model.requests()[1]),
        written(&journal, &"r".into()),
        blocked,
    )
}

#[tokio::test]
async fn denial_reason_is_checked() {
    let (sent, kept, blocked) = decided(vec![Decision::deny("hush about it")]).await;
    assert!(
        sent.contains("**** about it") && !kept.contains("hush"),
        "{sent} {kept}"
    );
    assert_eq!(blocked, [false]);
    let (sent, kept, blocked) = decided(vec![Decision::deny("never")]).await;
    assert!(
        sent.contains("no such word") && !kept.contains("never"),
        "the denial holds: {sent} {kept}"
    );
    assert_eq!(blocked, [true]);
}

#[tokio::test]
async fn edited_arguments_are_journaled_after_guards() {
    let edits = ["never", "hush once more"].map(|text| Decision::edit(json!({"text": text})));
    let (sent, kept, blocked) = decided(edits.to_vec()).await;
    assert!(
        sent.contains("**** once more"),
        "the model is told of the change: {sent}"
    );
    assert!(
        !sent.contains("hush") && !kept.contains("hush") && !kept.contains("never"),
        "{sent} {kept}"
    );
    assert_eq!(blocked, [true, false]);
}

/// An approver with a fixed decision.
struct FixedDecision(Decision);

#[async_trait]
impl Approver for FixedDecision {
    async fn decide(&self, _: &Ask) -> Decision {
        self.0.clone()
    }
}

#[tokio::test]
async fn approver_decision_is_checked_and_emitted() {
    let edit = |text: &str| Decision::edit(json!({"text": text}));
    for (decision, blocked) in [
        (Decision::Allow, None),
        (edit("hush"), Some(false)),
        (edit("never"), Some(true)),
        (Decision::deny("hush"), Some(false)),
        (Decision::answer("hush"), Some(false)),
        (Decision::answer("never"), Some(true)),
    ] {
        let ((runtime, journal), model, tool) = (runtime(), sending(), send());
        let builder = Agent::builder(model.clone())
            .tool(tool.clone())
            .approver(FixedDecision(decision.clone()));
        let agent = builder
            .guard(hush_guard(&[Stage::Input, Stage::Call]))
            .runtime(runtime)
            .build()
            .unwrap();
        let events = Arc::new(Mutex::new(Vec::new()));
        let seen = events.clone();
        let run = agent
            .run("Send it")
            .id("r")
            .on_event(move |event| seen.lock().unwrap().push(event.clone()));
        run.await.unwrap();
        let interventions = interventions(&events.lock().unwrap());
        let told: Vec<_> = interventions
            .iter()
            .map(|by| by.blocked.is_some())
            .collect();
        assert_eq!(
            told,
            blocked.into_iter().collect::<Vec<_>>(),
            "{decision:?}"
        );
        let kept =
            written(&journal, &"r".into()) + &format!("{:?} {:?}", model.requests(), args(&tool));
        assert!(
            !kept.contains("hush") && !kept.contains("never"),
            "{decision:?}: {kept}"
        );
    }
}
