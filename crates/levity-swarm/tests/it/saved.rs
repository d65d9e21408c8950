//! Tests of runs of every pattern, whose machines are restored after every record.

use levity_core::ModelErrorKind;
use levity_runtime::{MemoryJournal, Runtime};
use levity_swarm::{Blackboard, Debate, Handoff, Router, Swarm, SwarmBuilder, WorkerMemory};
use levity_test::{ScriptedModel, Turn, conformance};
use serde_json::json;

use crate::coordinator::voters;
use crate::rounds::{Slow, replies, worker};

fn fails() -> ScriptedModel {
    ScriptedModel::new()
        .fail(ModelErrorKind::BadRequest)
        .fail(ModelErrorKind::BadRequest)
}

/// Returns a model that leaves a message for all and replies with this text.
fn notes(text: &str) -> ScriptedModel {
    let note = Turn::new().call(
        "send_message",
        json!({"to": "*", "content": "Mind the rock."}),
    );
    ScriptedModel::new().turn(note).reply(text)
}

/// Runs the swarm and checks its machine; returns the number of records.
async fn check(builder: SwarmBuilder) -> usize {
    let journal = MemoryJournal::new();
    let swarm = builder
        .worker_messages()
        .runtime(Runtime::new().with_journal(journal.clone()))
        .build()
        .unwrap();
    check_run(&swarm, &journal).await
}

async fn check_run(swarm: &Swarm, journal: &MemoryJournal) -> usize {
    swarm.run("When do we sail?").id("r").await.unwrap();
    conformance::recorded(swarm, journal, &"r".into()).await;
    levity_core::Journal::read(journal, &"r".into())
        .await
        .unwrap()
        .len()
}

#[tokio::test]
async fn router_is_restored_between_failures_and_rounds() {
    // The cook's second attempt waits for a slot: when the first one fails, one slot is free, and
    // the mate is before it.
    let plan = json!({"delegations": [
        {"id": "find", "worker": "pilot", "task": "Find it."},
        {"id": "look", "worker": "watch", "task": "Look it over.", "depends_on": ["find"]},
        {"id": "wash", "worker": "mate", "task": "Wash up.", "depends_on": ["find"]},
        {"id": "cook", "worker": "cook", "task": "Cook it."}]});
    let again = json!({"delegations": [{"id": "cook", "worker": "pilot", "task": "Cook it.",
        "depends_on": ["look"]}]});
    let router = replies(&[
        "I would rather not.",
        &plan.to_string(),
        &again.to_string(),
        "All is done.",
    ]);
    let builder = Swarm::builder(Router::new(router))
        .worker(worker("pilot", notes("Found.").reply("Cooked.")).memory(WorkerMemory::Run))
        .worker(worker("cook", Slow(fails(), 50)))
        .worker(
            worker("watch", Slow(fails(), 200))
                .fallback("mate")
                .retries(0),
        )
        .worker(worker("mate", replies(&["Washed.", "Looked."])))
        .max_parallel(2);
    assert!(check(builder).await > 12);
}

#[tokio::test]
async fn handoff_is_restored_between_legs() {
    let pass = |model: ScriptedModel, to: &str| {
        model.turn(Turn::new().call("transfer_to", json!({"to": to, "note": "Look."})))
    };
    let triage = pass(ScriptedModel::new(), "pilot").reply("At six, I think.");
    let builder = Swarm::builder(Handoff::starting_with("triage"))
        .worker(worker("triage", triage))
        .worker(worker("pilot", pass(ScriptedModel::new(), "cook")))
        .worker(worker("cook", fails()));
    assert!(check(builder).await > 8);
}

#[tokio::test]
async fn debate_is_restored_between_turns_and_verdicts() {
    let judge = replies(&[
        r#"{"done": false, "reason": "Say more."}"#,
        "no verdict",
        r#"{"done": true, "answer": "At six."}"#,
    ]);
    let builder = Swarm::builder(
        Debate::new(judge)
            .rounds(2)
            .judge_each_round()
            .open_together(),
    )
    .worker(worker("pilot", notes("At six.").reply("At six, indeed.")))
    .worker(worker("cook", fails().reply("At seven.")))
    .worker(worker("watch", replies(&["At eight.", "At six, then."])));
    assert!(check(builder).await > 12);
}

#[tokio::test]
async fn blackboard_is_restored_between_writes_and_verdicts() {
    let writes = |model: ScriptedModel, key: &str, text: &str| {
        model
            .turn(Turn::new().call("write_board", json!({"key": key, "content": text})))
            .reply("Written.")
    };
    let judge = replies(&[r#"{"done": false, "reason": "When?"}"#, "We sail at six."]);
    let pilot = writes(
        writes(ScriptedModel::new(), "tide", "High at six."),
        "answer",
        "At six.",
    );
    let builder = Swarm::builder(Blackboard::new(judge).judge_each_round())
        .worker(worker("pilot", pilot))
        .worker(worker(
            "watch",
            writes(notes("Clear."), "", "refused").reply("Nothing to add."),
        ))
        .max_parallel(1);
    assert!(check(builder).await > 8);
}

#[tokio::test]
async fn custom_coordinator_is_restored_between_rounds() {
    let journal = MemoryJournal::new();
    let swarm = voters(
        &Runtime::new().with_journal(journal.clone()),
        &std::sync::Arc::default(),
    );
    assert!(check_run(&swarm, &journal).await > 18);
}
