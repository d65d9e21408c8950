//! A replay emits the same events, and detects every difference from the journal.

use levity::core::{Entry, Event, EventKind, Limit, Record, RunId, RuntimeError, Status};
use levity::prelude::*;
use levity::runtime::replay;
use levity::test::{ScriptedModel, Turn};
use proptest::prelude::*;
use serde_json::json;

use crate::support::{add, broken, collect_events, runtime};

/// The behaviour of a model in one turn.
#[derive(Clone, Debug)]
enum TurnScript {
    Say(String),
    Call(Vec<(bool, i32)>),
    Nothing,
}

fn turn_script() -> impl Strategy<Value = TurnScript> {
    prop_oneof![
        1 => "[a-z]{1,8}".prop_map(TurnScript::Say),
        4 => prop::collection::vec((any::<bool>(), -9..9), 1..4).prop_map(TurnScript::Call),
        1 => Just(TurnScript::Nothing),
    ]
}

fn script(turns: &[TurnScript]) -> ScriptedModel {
    turns
        .iter()
        .fold(ScriptedModel::new(), |model, turn_script| {
            model.turn(match turn_script {
                TurnScript::Say(text) => Turn::new().text(text.clone()).pieces(3),
                TurnScript::Nothing => Turn::new(),
                TurnScript::Call(calls) => {
                    calls
                        .iter()
                        .fold(Turn::new().text("hm"), |turn, (good, n)| {
                            if *good {
                                turn.call("add", json!({"a": n, "b": 1}))
                            } else {
                                turn.call("broken", json!({}))
                            }
                        })
                }
            })
        })
}

/// Runs the script, and returns its durable events and the journal.
fn record(turns: &[TurnScript]) -> (Agent, RunId, Vec<Event>, Vec<Record>) {
    let (runtime, journal) = runtime();
    let model = script(turns);
    let agent = Agent::builder(model)
        .tool(add)
        .tool(broken)
        .max_turns(6)
        .runtime(runtime)
        .build()
        .unwrap();
    let tokio = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let (events, run) = tokio.block_on(async {
        let run = agent.start("go");
        let id = run.id().clone();
        let (events, _) = collect_events(run).await;
        (events, id)
    });
    let durable = events
        .into_iter()
        .filter(|event| !event.kind.is_transient())
        .collect();
    let records = journal.records(&run);
    (agent, run, durable, records)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn replay_emits_identical_events(turns in prop::collection::vec(turn_script(), 1..8)) {
        let (agent, run, events, records) = record(&turns);
        // The records are serialized and parsed, as if they had been on disk.
        let text = serde_json::to_string(&records).unwrap();
        let records: Vec<Record> = serde_json::from_str(&text).unwrap();
        let replayed = replay(&run, &records, |_, state| agent.restore(state)).unwrap();
        prop_assert_eq!(
            serde_json::to_string(&events).unwrap(),
            serde_json::to_string(&replayed.events).unwrap()
        );
        prop_assert!(matches!(events.last().unwrap().kind, EventKind::RunEnded(_)));
    }
}

fn recorded() -> (Agent, RunId, Vec<Event>, Vec<Record>) {
    record(&[
        TurnScript::Call(vec![(true, 1)]),
        TurnScript::Say("done".into()),
    ])
}

#[track_caller]
fn assert_diverges(agent: &Agent, run: &RunId, records: &[Record], part: &str) {
    match replay(run, records, |_, state| agent.restore(state)) {
        Err(error @ RuntimeError::Diverged(_)) => {
            assert!(error.to_string().contains(part), "{error}");
        }
        other => panic!("{:?}", other.map(|replayed| replayed.events)),
    }
}

#[test]
fn replay_names_changed_prompt() {
    let (agent, run, _, mut records) = recorded();
    let Entry::Opened(opened) = &mut records[0].entry else {
        panic!("not opened")
    };
    let state = &mut opened.state;
    state["system"] = json!("Be someone else.");
    assert_diverges(
        &agent,
        &run,
        &records,
        "record 1: the system of Model `main` changed",
    );
}

#[test]
fn replay_detects_changed_outcome_at_next_effect() {
    let (agent, run, _, mut records) = recorded();
    let text = serde_json::to_string(&records)
        .unwrap()
        .replace("\"a\":1", "\"a\":2");
    records = serde_json::from_str(&text).unwrap();
    assert_diverges(
        &agent,
        &run,
        &records,
        "the arguments of Tool `add` changed",
    );
}

#[test]
fn replay_detects_missing_record() {
    let (agent, run, _, mut records) = recorded();
    records.remove(2);
    assert_diverges(&agent, &run, &records, "the record number should be 2");
}

#[test]
fn replay_without_records_returns_error() {
    let (agent, run, ..) = recorded();
    let error = replay(&run, &[], |_, state| agent.restore(state)).unwrap_err();
    assert!(matches!(error, RuntimeError::NotFound(_)));
}

#[test]
fn replay_detects_different_ending() {
    let (agent, run, _, mut records) = record(&[TurnScript::Say("done".into())]);
    records.last_mut().unwrap().entry = Entry::Ended(Status::Partial(Limit::Tokens));
    assert_diverges(
        &agent,
        &run,
        &records,
        "record 3: the record ends the run, but the machine has another ending",
    );
}

#[test]
fn replay_detects_premature_ending() {
    let (agent, run, _, mut records) = record(&[TurnScript::Say("done".into())]);
    records.truncate(2);
    records.push(Record::new(
        2,
        records[1].at,
        Entry::Ended(Status::Complete),
    ));
    assert_diverges(
        &agent,
        &run,
        &records,
        "record 2: the record ends the run, but the machine has another ending",
    );
}

/// A reflector that is not deterministic, because it counts its calls.
struct CountingReflector(std::sync::atomic::AtomicUsize);

impl levity::agent::Reflector for CountingReflector {
    fn reflect(&self, _: &levity::agent::TurnSummary<'_>) -> levity::agent::Reflection {
        match self.0.fetch_add(1, std::sync::atomic::Ordering::SeqCst) {
            0 => levity::agent::Reflection::Note("Look closer.".into()),
            _ => levity::agent::Reflection::Continue,
        }
    }
}

#[tokio::test]
async fn audit_detects_nondeterministic_reflector() {
    let (runtime, _) = runtime();
    let model = ScriptedModel::new()
        .call("add", json!({"a": 1, "b": 1}))
        .reply("2");
    let agent = Agent::builder(model)
        .tool(add)
        .reflector(CountingReflector(0.into()))
        .runtime(runtime)
        .verify_replay();
    let error = agent.build().unwrap().run("Add").await.unwrap_err();
    let levity::Error::Runtime {
        source: RuntimeError::Diverged(parted),
        ..
    } = error
    else {
        panic!("{error}")
    };
    assert_eq!(parted.what, "the history of Model `main` changed");
}
