//! Calls that were in progress when a process ended, and the resolver or host that reports their
//! outcome.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use levity::core::{ControlError, LostCall, Resolution, Resolver, RunId, RunRequest, ToolOutput};
use levity::prelude::*;
use levity::runtime::MemoryJournal;
use levity::test::ScriptedModel;
use serde_json::json;

use crate::support::{Counter, collect_events, drop_at};

/// Creates a runtime with the real clock, so that a tool that hangs does not time out at once.
fn runtime() -> (Runtime, MemoryJournal) {
    let journal = MemoryJournal::new();
    (Runtime::new().with_journal(journal.clone()), journal)
}

/// A tool that sends letters. Its first call hangs.
#[derive(Clone, Default)]
struct Letters {
    started: Counter,
    keys: Arc<Mutex<Vec<String>>>,
}

#[tool]
impl Letters {
    /// Sends a letter.
    #[tool]
    async fn send(&self, cx: &ToolCx) -> String {
        self.keys.lock().unwrap().push(cx.key.to_string());
        if self.started.increment() == 1 {
            cx.progress.report("on its way");
            std::future::pending::<()>().await;
        }
        "sent just now".to_owned()
    }
}

fn agent(
    model: &ScriptedModel,
    letters: &Letters,
    runtime: &Runtime,
) -> levity::agent::AgentBuilder {
    Agent::builder(model.clone())
        .tools(letters.clone())
        .runtime(runtime.clone())
}

/// Starts a run and drops it while the letter is being sent.
async fn interrupt_run(model: &ScriptedModel, letters: &Letters, runtime: &Runtime) -> RunId {
    let run = agent(model, letters, runtime)
        .build()
        .unwrap()
        .start("Write");
    let id = run.id().clone();
    drop_at(run, |event| {
        matches!(event.kind, EventKind::Progress { .. })
    })
    .await;
    id
}

fn letter_model() -> ScriptedModel {
    ScriptedModel::new().call("send", json!({})).reply("Well.")
}

/// A resolver with a fixed resolution that records its questions.
#[derive(Clone)]
struct FixedResolver(Resolution, Arc<Mutex<Vec<LostCall>>>);

#[async_trait]
impl Resolver for FixedResolver {
    async fn resolve(&self, lost: &LostCall) -> Resolution {
        self.1.lock().unwrap().push(lost.clone());
        self.0.clone()
    }
}

async fn check(resolution: Resolution, started: usize, expected: &str) {
    let (runtime, _) = runtime();
    let (model, letters) = (letter_model(), Letters::default());
    let run = interrupt_run(&model, &letters, &runtime).await;
    let resolver = FixedResolver(resolution, Arc::default());
    let agent = agent(&model, &letters, &runtime)
        .resolver(resolver.clone())
        .build()
        .unwrap();
    let answer = agent.resume(run.clone()).await.unwrap();
    agent.replay(&run).await.unwrap();
    let (_, result) = answer.history().calls().next().unwrap();
    assert!(result.text().contains(expected), "{}", result.text());
    assert_eq!(letters.started.get(), started);
    let [question] = &resolver.1.lock().unwrap()[..] else {
        panic!("expected one question")
    };
    assert_eq!((question.call.name.as_str(), &question.run), ("send", &run));
    let keys = letters.keys.lock().unwrap();
    assert!(
        keys.iter().all(|key| **key == *question.key),
        "every attempt must have the same key"
    );
}

#[tokio::test]
async fn resolver_decides_outcome_of_interrupted_call() {
    check(
        Resolution::Done(ToolOutput::text("it is in the outbox")),
        1,
        "it is in the outbox",
    )
    .await;
    check(Resolution::NotDone, 2, "sent just now").await;
    check(Resolution::Unknown, 1, "not known").await;
}

#[tokio::test]
async fn resolver_panic_leaves_call_unknown() {
    struct PanickingResolver;
    #[async_trait]
    impl Resolver for PanickingResolver {
        async fn resolve(&self, _: &LostCall) -> Resolution {
            panic!("no idea")
        }
    }
    let (runtime, _) = runtime();
    let (model, letters) = (letter_model(), Letters::default());
    let run = interrupt_run(&model, &letters, &runtime).await;
    let agent = agent(&model, &letters, &runtime)
        .resolver(PanickingResolver)
        .build()
        .unwrap();
    let answer = agent.resume(run).await.unwrap();
    assert!(
        answer
            .history()
            .calls()
            .next()
            .unwrap()
            .1
            .text()
            .contains("not known")
    );
    assert_eq!(letters.started.get(), 1);
}

#[tokio::test]
async fn host_resolves_interrupted_call_before_resume() {
    for (resolution, started, expected) in [
        (
            Resolution::Done(ToolOutput::text("it is in the outbox")),
            1,
            "it is in the outbox",
        ),
        (Resolution::NotDone, 2, "sent just now"),
        (Resolution::Unknown, 1, "not known"),
    ] {
        let (runtime, journal) = runtime();
        let (model, letters) = (letter_model(), Letters::default());
        let run = interrupt_run(&model, &letters, &runtime).await;
        let effect = lost_effect(&journal.records(&run));
        runtime
            .send_request(&run, RunRequest::Resolve { effect, resolution })
            .await
            .unwrap();
        let agent = agent(&model, &letters, &runtime).build().unwrap();
        let answer = agent.resume(run.clone()).await.unwrap();
        assert!(
            answer
                .history()
                .calls()
                .next()
                .unwrap()
                .1
                .text()
                .contains(expected)
        );
        assert_eq!(letters.started.get(), started);
        agent.replay(&run).await.unwrap();
    }
}

fn lost_effect(records: &[levity::core::Record]) -> levity::core::EffectId {
    let started = records.iter().rev().find_map(|record| match &record.entry {
        levity::core::Entry::Started { effect, .. } => Some(*effect),
        _ => None,
    });
    started.unwrap()
}

#[tokio::test]
async fn run_handle_resolves_call_before_slow_resolver() {
    struct HangingResolver;
    #[async_trait]
    impl Resolver for HangingResolver {
        async fn resolve(&self, _: &LostCall) -> Resolution {
            std::future::pending().await
        }
    }
    let (runtime, journal) = runtime();
    let (model, letters) = (letter_model(), Letters::default());
    let run = interrupt_run(&model, &letters, &runtime).await;
    let effect = lost_effect(&journal.records(&run));
    let agent = agent(&model, &letters, &runtime)
        .resolver(HangingResolver)
        .build()
        .unwrap();
    let resumed = agent.resume(run).start();
    resumed
        .control()
        .resolve(effect, Resolution::Done(ToolOutput::text("I saw it")))
        .await
        .unwrap();
    let twice = resumed
        .control()
        .resolve(effect, Resolution::NotDone)
        .await
        .unwrap_err();
    assert!(
        matches!(
            twice,
            ControlError::NotAsked { .. } | ControlError::NotRunning(_)
        ),
        "{twice}"
    );
    let (_, answer) = collect_events(resumed).await;
    assert_eq!(
        answer.unwrap().history().calls().next().unwrap().1.text(),
        "I saw it"
    );
    assert_eq!(letters.started.get(), 1);
}
