//! Calls that were under way when a process ended, and who says what came of them.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use levity::core::{ControlError, LostCall, Resolution, Resolver, RunId, RunRequest, ToolOutput};
use levity::prelude::*;
use levity::runtime::MemoryJournal;
use levity::test::ScriptedModel;
use serde_json::json;

use crate::support::{Counter, drop_at, watch};

/// A runtime on the real clock: a tool that takes for ever is not to be out of time at once.
fn runtime() -> (Runtime, MemoryJournal) {
    let journal = MemoryJournal::new();
    (Runtime::new().with_journal(journal.clone()), journal)
}

/// Sends letters; the first one takes for ever.
#[derive(Clone, Default)]
struct Letters {
    begun: Counter,
    keys: Arc<Mutex<Vec<String>>>,
}

#[tool]
impl Letters {
    /// Sends a letter.
    #[tool]
    async fn send(&self, cx: &ToolCx) -> String {
        self.keys.lock().unwrap().push(cx.key.to_string());
        if self.begun.up() == 1 {
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

/// A run whose process ended while the letter was being sent.
async fn lose(model: &ScriptedModel, letters: &Letters, runtime: &Runtime) -> RunId {
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

fn writes() -> ScriptedModel {
    ScriptedModel::new().call("send", json!({})).reply("Well.")
}

/// Says what it was made to say, and remembers what it was asked.
#[derive(Clone)]
struct Says(Resolution, Arc<Mutex<Vec<LostCall>>>);

#[async_trait]
impl Resolver for Says {
    async fn resolve(&self, lost: &LostCall) -> Resolution {
        self.1.lock().unwrap().push(lost.clone());
        self.0.clone()
    }
}

async fn check(resolution: Resolution, begun: usize, told: &str) {
    let (runtime, _) = runtime();
    let (model, letters) = (writes(), Letters::default());
    let run = lose(&model, &letters, &runtime).await;
    let says = Says(resolution, Arc::default());
    let agent = agent(&model, &letters, &runtime)
        .resolver(says.clone())
        .build()
        .unwrap();
    let answer = agent.resume(run.clone()).await.unwrap();
    agent.replay(&run).await.unwrap();
    let (_, result) = answer.history().calls().next().unwrap();
    assert!(result.text().contains(told), "{}", result.text());
    assert_eq!(letters.begun.get(), begun);
    let [asked] = &says.1.lock().unwrap()[..] else {
        panic!("it is asked once")
    };
    assert_eq!((asked.call.name.as_str(), &asked.run), ("send", &run));
    let keys = letters.keys.lock().unwrap();
    assert!(
        keys.iter().all(|key| **key == *asked.key),
        "the key is the same for every attempt"
    );
}

#[tokio::test]
async fn a_resolver_says_what_came_of_it() {
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
async fn a_resolver_that_panics_knows_nothing() {
    struct Panics;
    #[async_trait]
    impl Resolver for Panics {
        async fn resolve(&self, _: &LostCall) -> Resolution {
            panic!("no idea")
        }
    }
    let (runtime, _) = runtime();
    let (model, letters) = (writes(), Letters::default());
    let run = lose(&model, &letters, &runtime).await;
    let agent = agent(&model, &letters, &runtime)
        .resolver(Panics)
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
    assert_eq!(letters.begun.get(), 1);
}

#[tokio::test]
async fn the_host_says_so_before_the_run_goes_on() {
    for (resolution, begun, told) in [
        (
            Resolution::Done(ToolOutput::text("it is in the outbox")),
            1,
            "it is in the outbox",
        ),
        (Resolution::NotDone, 2, "sent just now"),
        (Resolution::Unknown, 1, "not known"),
    ] {
        let (runtime, journal) = runtime();
        let (model, letters) = (writes(), Letters::default());
        let run = lose(&model, &letters, &runtime).await;
        let effect = lost_effect(&journal.records(&run));
        runtime
            .tell(&run, RunRequest::Resolve { effect, resolution })
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
                .contains(told)
        );
        assert_eq!(letters.begun.get(), begun);
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
async fn the_holder_of_the_handle_may_be_quicker_than_the_resolver() {
    struct Slow;
    #[async_trait]
    impl Resolver for Slow {
        async fn resolve(&self, _: &LostCall) -> Resolution {
            std::future::pending().await
        }
    }
    let (runtime, journal) = runtime();
    let (model, letters) = (writes(), Letters::default());
    let run = lose(&model, &letters, &runtime).await;
    let effect = lost_effect(&journal.records(&run));
    let agent = agent(&model, &letters, &runtime)
        .resolver(Slow)
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
    let (_, answer) = watch(resumed).await;
    assert_eq!(
        answer.unwrap().history().calls().next().unwrap().1.text(),
        "I saw it"
    );
    assert_eq!(letters.begun.get(), 1);
}
