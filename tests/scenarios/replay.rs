//! A replay tells the same events, and a changed world is noticed.

use levity::core::{Entry, Event, EventKind, Limit, Record, RunId, RuntimeError, Status};
use levity::prelude::*;
use levity::runtime::replay;
use levity::test::{ScriptedModel, Turn};
use proptest::prelude::*;
use serde_json::json;

use crate::support::{add, broken, runtime, watch};

/// What a model does in one turn.
#[derive(Clone, Debug)]
enum Doing {
    Say(String),
    Call(Vec<(bool, i32)>),
    Nothing,
}

fn doing() -> impl Strategy<Value = Doing> {
    prop_oneof![
        1 => "[a-z]{1,8}".prop_map(Doing::Say),
        4 => prop::collection::vec((any::<bool>(), -9..9), 1..4).prop_map(Doing::Call),
        1 => Just(Doing::Nothing),
    ]
}

fn script(turns: &[Doing]) -> ScriptedModel {
    turns.iter().fold(ScriptedModel::new(), |model, doing| {
        model.turn(match doing {
            Doing::Say(text) => Turn::new().text(text.clone()).pieces(3),
            Doing::Nothing => Turn::new(),
            Doing::Call(calls) => calls
                .iter()
                .fold(Turn::new().text("hm"), |turn, (good, n)| {
                    if *good {
                        turn.call("add", json!({"a": n, "b": 1}))
                    } else {
                        turn.call("broken", json!({}))
                    }
                }),
        })
    })
}

/// Runs the script and returns what was told, but for what is fleeting, and the journal.
fn record(turns: &[Doing]) -> (Agent, RunId, Vec<Event>, Vec<Record>) {
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
        let (events, _) = watch(run).await;
        (events, id)
    });
    let kept = events
        .into_iter()
        .filter(|event| !event.kind.is_fleeting())
        .collect();
    let records = journal.records(&run);
    (agent, run, kept, records)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_replay_tells_the_same_events_to_the_byte(turns in prop::collection::vec(doing(), 1..8)) {
        let (agent, run, events, records) = record(&turns);
        // The journal may have been on disk in between.
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
    record(&[Doing::Call(vec![(true, 1)]), Doing::Say("done".into())])
}

#[track_caller]
fn diverges(agent: &Agent, run: &RunId, records: &[Record], part: &str) {
    match replay(run, records, |_, state| agent.restore(state)) {
        Err(error @ RuntimeError::Diverged(_)) => {
            assert!(error.to_string().contains(part), "{error}");
        }
        other => panic!("{:?}", other.map(|replayed| replayed.events)),
    }
}

#[test]
fn a_changed_prompt_is_named() {
    let (agent, run, _, mut records) = recorded();
    let Entry::Opened(opened) = &mut records[0].entry else {
        panic!("not opened")
    };
    let state = &mut opened.state;
    state["system"] = json!("Be someone else.");
    diverges(
        &agent,
        &run,
        &records,
        "record 1: the system of Model `main` changed",
    );
}

#[test]
fn a_changed_outcome_is_noticed_at_the_next_effect() {
    let (agent, run, _, mut records) = recorded();
    let text = serde_json::to_string(&records)
        .unwrap()
        .replace("\"a\":1", "\"a\":2");
    records = serde_json::from_str(&text).unwrap();
    diverges(
        &agent,
        &run,
        &records,
        "the arguments of Tool `add` changed",
    );
}

#[test]
fn a_missing_record_is_noticed() {
    let (agent, run, _, mut records) = recorded();
    records.remove(2);
    diverges(&agent, &run, &records, "the record number should be 2");
}

#[test]
fn no_records_are_no_run() {
    let (agent, run, ..) = recorded();
    let error = replay(&run, &[], |_, state| agent.restore(state)).unwrap_err();
    assert!(matches!(error, RuntimeError::NotFound(_)));
}

#[test]
fn another_end_is_noticed() {
    let (agent, run, _, mut records) = record(&[Doing::Say("done".into())]);
    records.last_mut().unwrap().entry = Entry::Ended(Status::Partial(Limit::Tokens));
    diverges(
        &agent,
        &run,
        &records,
        "record 3: the record ends the run, but the machine has another ending",
    );
}

#[test]
fn an_end_before_the_end_is_noticed() {
    let (agent, run, _, mut records) = record(&[Doing::Say("done".into())]);
    records.truncate(2);
    records.push(Record::new(
        2,
        records[1].at,
        Entry::Ended(Status::Complete),
    ));
    diverges(
        &agent,
        &run,
        &records,
        "record 2: the record ends the run, but the machine has another ending",
    );
}

/// A reflector that is not deterministic: it counts how often it was asked.
struct Moody(std::sync::atomic::AtomicUsize);

impl levity::agent::Reflector for Moody {
    fn reflect(&self, _: &levity::agent::TurnSummary<'_>) -> levity::agent::Reflection {
        match self.0.fetch_add(1, std::sync::atomic::Ordering::SeqCst) {
            0 => levity::agent::Reflection::Note("Look closer.".into()),
            _ => levity::agent::Reflection::GoOn,
        }
    }
}

#[tokio::test]
async fn an_audit_finds_out_what_is_not_deterministic() {
    let (runtime, _) = runtime();
    let model = ScriptedModel::new()
        .call("add", json!({"a": 1, "b": 1}))
        .reply("2");
    let agent = Agent::builder(model)
        .tool(add)
        .reflector(Moody(0.into()))
        .runtime(runtime)
        .audited();
    let error = agent.build().unwrap().run("Add").await.unwrap_err();
    let levity::Error::Runtime {
        source: RuntimeError::Diverged(parted),
        ..
    } = error
    else {
        panic!("{error}")
    };
    assert_eq!(
        parted.what,
        "the history of Model `main` changed"
    );
}
