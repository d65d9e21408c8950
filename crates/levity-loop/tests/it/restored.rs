//! Runs of agents whose machines are rebuilt after every record.

use std::sync::Arc;

use levity_core::{
    Ask, Decision, Hints, Journal as _, ModelCard, ModelErrorKind, Phase, ToolOutput,
};
use levity_loop::{Agent, AgentBuilder, ModelPlanner, ModelReflector};
use levity_memory::InMemory;
use levity_runtime::{MemoryJournal, Runtime};
use levity_test::{ManualWorld, RecordingTool, ScriptedModel, Turn, conformance};
use levity_tools::{Policy, Rule};
use serde_json::json;

/// Creates a tool that answers with so many words.
fn look(words: usize) -> RecordingTool {
    RecordingTool::new("look", move |_| Ok(ToolOutput::text("word ".repeat(words))))
        .with_hints(Hints::new().read_only())
}

fn journaled(builder: AgentBuilder) -> (Agent, MemoryJournal) {
    let journal = MemoryJournal::new();
    let runtime = Runtime::new()
        .with_journal(journal.clone())
        .with_world(ManualWorld::auto());
    (builder.runtime(runtime).build().unwrap(), journal)
}

/// Runs the agent and checks its machine; returns the number of records.
async fn check(builder: AgentBuilder) -> usize {
    let (agent, journal) = journaled(builder);
    agent
        .run("Find the key")
        .id("r")
        .approver(|_: &Ask| Decision::edit(json!({"at": "edited"})))
        .await
        .unwrap();
    conformance::recorded(&agent, &journal, &"r".into()).await;
    journal.read(&"r".into()).await.unwrap().len()
}

#[tokio::test]
async fn agent_is_restored_between_calls_questions_and_reflections() {
    let model = ScriptedModel::new()
        .reply("1. Look.\n2. Answer.")
        .turn(
            Turn::new()
                .call("look", json!({"at": 1}))
                .call("look", json!({"at": 2}))
                .call("nothing", json!({})),
        )
        .reply("Look elsewhere.")
        .call("look", json!({"at": 3}))
        .reply("Good.")
        .reply("Found it.");
    let policy = Policy::new().rule(Rule::tool("look").ask("it looks"));
    let builder = Agent::builder(model).tool(look(3)).policy(policy);
    assert!(
        check(
            builder
                .planner(ModelPlanner::new())
                .reflector(ModelReflector::new())
        )
        .await
            > 20
    );
}

#[tokio::test]
async fn agent_is_restored_between_summaries() {
    let calls = (0..12).fold(ScriptedModel::new(), |model, n| {
        model.call("look", json!({"at": n, "why": "x ".repeat(1_500)}))
    });
    let model = calls
        .reply("Found it.")
        .with_card(ModelCard::new("test", "small").with_window(12_000));
    let summaries = ScriptedModel::new()
        .reply("It looked.")
        .fail(ModelErrorKind::BadRequest)
        .reply("It looked around.");
    let builder = Agent::builder(model)
        .model_for("summariser", summaries)
        .tool(look(800))
        .max_turns(40);
    assert!(check(builder).await > 50);
}

#[tokio::test]
async fn agent_is_restored_with_long_results_and_found_tools() {
    let model = ScriptedModel::new()
        .call("find_tools", json!({"query": "look"}))
        .call("look", json!({}))
        .call("read_result", json!({"id": "call-2", "from": 0}))
        .reply("Found it.");
    let builder = Agent::builder(model).tool(look(40_000)).tool_search(0);
    assert!(check(builder).await > 8);
}

#[tokio::test]
async fn agent_is_restored_in_its_conversation() {
    let model = ScriptedModel::new()
        .reply("Hello.")
        .call("look", json!({}))
        .reply("Found it.");
    let (agent, journal) = journaled(
        Agent::builder(model)
            .tool(look(3))
            .memory(Arc::new(InMemory::new())),
    );
    agent
        .run("Hello")
        .conversation("c")
        .id("first")
        .await
        .unwrap();
    agent
        .run("Find the key")
        .conversation("c")
        .id("second")
        .await
        .unwrap();
    for run in ["first", "second"] {
        conformance::recorded(&agent, &journal, &run.into()).await;
    }
}

#[test]
fn restore_reads_first_state_of_version_0_1_and_rejects_later_ones() {
    let agent = Agent::builder(ScriptedModel::new()).build().unwrap();
    let state = |phase: &str, run: Option<&str>| {
        json!({
            "goal": {"role": "user", "parts": [{"type": "text", "text": "Go"}]},
            "system": "Be brief.", "output": null,
            "typed": false, "history": [], "run": run, "phase": phase, "exchange": null,
            "waiting": {}, "said": [],
            "plan": [], "failures": {}, "edited": {}, "wrap": null, "enough": false,
            "announced": false,
            "offered": false, "wrong_answers": 0, "empty_replies": 0, "next": 0, "usage": {},
            "stats": {"turns": 0, "model_calls": 0, "tool_calls": 0, "failed_calls": 0,
                "reasoning_steps": 0},
            "finish": null, "ending": null,
        })
    };
    let machine = agent.restore(&state("goal", None)).unwrap();
    assert_eq!(machine.phase(), Phase::Goal);
    for phase in ["plan", "act", "reflect", "end"] {
        let why = agent.restore(&state(phase, Some("r"))).unwrap_err();
        assert!(
            why.contains("this version of the agent cannot read its state"),
            "{why}"
        );
    }
    let why = agent.restore(&state("goal", Some("r"))).unwrap_err();
    assert!(why.contains("the run has an id before it started"), "{why}");
}
