//! Signals in whole runs: in a journal, after a crash, in a replay, in events.

use std::sync::{Arc, Mutex};

use levity_core::{Event, EventKind, Signal, ToolSpec};
use levity_loop::{Agent, AgentBuilder, Error};
use levity_runtime::{MemoryJournal, Runtime};
use levity_test::{FaultyJournal, ScriptedModel, Turn};
use serde_json::{Value, json};

fn spec(name: &str) -> ToolSpec {
    let input =
        json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]});
    ToolSpec::new(name, "Tells a number.").with_input(input)
}

fn model() -> ScriptedModel {
    ScriptedModel::new()
        .call("tell", json!({"n": 1}))
        .turn(
            Turn::new()
                .call("tell", json!({"n": "two"}))
                .call("tell", json!({"n": 2})),
        )
        .turn(
            Turn::new()
                .text("Somebody else knows.")
                .call("pass_on", json!({"n": 3})),
        )
        .by_history()
}

fn agent(runtime: Runtime) -> AgentBuilder {
    Agent::builder(model())
        .signal(spec("tell"))
        .ending_signal(spec("pass_on"))
        .runtime(runtime)
        .verify_replay()
}

fn numbers(signals: &[Signal]) -> Vec<Value> {
    signals
        .iter()
        .map(|signal| signal.args["n"].clone())
        .collect()
}

#[tokio::test]
async fn run_and_its_replay_have_same_signals() {
    let runtime = Runtime::new().with_journal(MemoryJournal::new());
    let events: Arc<Mutex<Vec<Event>>> = Arc::default();
    let kept = events.clone();
    let agent = agent(runtime).build().unwrap();
    let run = agent
        .run("Do it")
        .on_event(move |event| kept.lock().unwrap().push(event.clone()));
    let answer = run.await.unwrap();
    assert_eq!(
        (answer.text(), numbers(answer.signals())),
        ("Somebody else knows.", vec![1.into(), 2.into(), 3.into()])
    );
    let replay = agent.replay(answer.run()).await.unwrap();
    let told = |events: &[Event]| {
        events.iter().find_map(|event| match &event.kind {
            EventKind::RunEnded(ending) => Some(numbers(&ending.signals)),
            _ => None,
        })
    };
    let (live, again) = (told(&events.lock().unwrap()), told(&replay.events));
    assert_eq!(
        (live, again),
        (
            Some(numbers(answer.signals())),
            Some(numbers(answer.signals()))
        )
    );
    // The calls are in the model's replies, as for every tool that the loop handles itself.
    let calls = events
        .lock()
        .unwrap()
        .iter()
        .map(|event| match &event.kind {
            EventKind::ModelFinished { message, .. } => message.calls().count(),
            _ => 0,
        })
        .sum::<usize>();
    assert_eq!(calls, 4);
    assert_eq!(
        numbers(agent.resume(answer.run().clone()).await.unwrap().signals()).len(),
        3
    );
}

#[tokio::test]
async fn run_resumed_anywhere_has_all_signals_once() {
    let inner = Arc::new(FaultyJournal::new(MemoryJournal::new()));
    let whole = agent(Runtime::new().with_journal(inner.clone()))
        .build()
        .unwrap();
    whole.run("Do it").await.unwrap();
    let records = inner.records();
    assert!(records > 6, "{records}");
    for stop in 1..records {
        let journal = Arc::new(MemoryJournal::new());
        let faulty = FaultyJournal::new(journal.clone()).stop_after_records(stop);
        let first = agent(Runtime::new().with_journal(faulty)).build().unwrap();
        let stopped = first.run("Do it").id("r").await;
        assert!(stopped.is_err(), "{stop}");
        let second = agent(Runtime::new().with_journal(journal)).build().unwrap();
        let answer = second.resume("r").await.unwrap();
        assert_eq!(numbers(answer.signals()), [1, 2, 3], "after {stop} records");
    }
}

#[tokio::test]
async fn run_without_answer_reports_signals() {
    let model = ScriptedModel::new().call("tell", json!({"n": 7})).hang();
    let agent = Agent::builder(model)
        .signal(spec("tell"))
        .verify_replay()
        .build()
        .unwrap();
    let mut run = agent.start("Do it");
    let mut events = run.events();
    let mut models = 0;
    while models < 2 {
        let event = events.next().await.unwrap();
        models += usize::from(matches!(event.kind, EventKind::ModelStarted { .. }));
    }
    run.cancel("enough").await.unwrap();
    let Err(Error::Cancelled { partial, .. }) = run.await else {
        panic!("it was cancelled")
    };
    assert_eq!(numbers(partial.signals()), [7]);
}

#[tokio::test]
async fn replay_detects_changed_signal_spec() {
    let runtime = Runtime::new().with_journal(MemoryJournal::new());
    let answer = agent(runtime.clone())
        .build()
        .unwrap()
        .run("Do it")
        .await
        .unwrap();
    let other = Agent::builder(model())
        .ending_signal(spec("tell"))
        .ending_signal(spec("pass_on"))
        .runtime(runtime);
    let error = other
        .build()
        .unwrap()
        .replay(answer.run())
        .await
        .err()
        .unwrap();
    let Error::Runtime { source, .. } = error else {
        panic!("it does not fit")
    };
    assert!(source.to_string().contains("the signals"), "{source}");
}

#[test]
fn signal_needs_unique_name_and_valid_schema() {
    let two = Agent::builder(model())
        .signal(spec("tell"))
        .ending_signal(spec("tell"))
        .build();
    assert!(
        two.unwrap_err()
            .to_string()
            .contains("two tools are named `tell`")
    );
    let bad = ToolSpec::new("tell", "x").with_input(json!({"type": "object", "properties": 7}));
    assert!(Agent::builder(model()).signal(bad).build().is_err());
}

#[tokio::test]
async fn agent_copy_is_changed_and_shares_the_rest() {
    let model = ScriptedModel::new()
        .call("tell", json!({"n": 1}))
        .reply("One.")
        .reply("Two.");
    let runtime = Runtime::new().with_journal(MemoryJournal::new());
    let store = levity_memory::InMemory::new();
    let plain = Agent::builder(model.clone())
        .instructions("Be brief.")
        .memory(store)
        .runtime(runtime);
    let plain = plain.build().unwrap();
    let copy = plain
        .to_builder()
        .signal(spec("tell"))
        .instructions("Tell.")
        .build()
        .unwrap();
    assert_eq!(
        copy.run("First")
            .conversation("c")
            .id("r")
            .await
            .unwrap()
            .signals()
            .len(),
        1
    );
    let answer = plain.run("Second").conversation("c").await.unwrap();
    assert_eq!(
        (answer.text(), answer.history().len()),
        ("Two.", 6),
        "they share the conversation"
    );
    let requests = model.requests();
    let (first, last) = (&requests[0], &requests[2]);
    assert_eq!(
        (first.system.as_deref(), last.system.as_deref()),
        (Some("Tell."), Some("Be brief."))
    );
    assert_eq!(
        (first.tools.len(), last.tools.len()),
        (1, 0),
        "the original is as it was"
    );
    let again = copy
        .to_builder()
        .build()
        .unwrap()
        .resume("r")
        .await
        .unwrap();
    assert_eq!(
        (again.text(), again.signals().len()),
        ("One.", 1),
        "they share the journal"
    );
}
