//! Forks: runs that start with the records of an earlier run.

use levity::core::{Approver, Ask, Entry, EventKind, Journal as _, RunId, RunQuery};
use levity::prelude::*;
use levity::runtime::{RunComparison, RunReport, TypedOutput as _};
use levity::test::{ScriptedModel, Turn};
use levity::tools::{Policy, Rule};
use serde_json::json;

use crate::support::{Counter, add, runtime};

/// A tool that counts its calls.
struct Bell(Counter);

#[tool]
impl Bell {
    /// Rings.
    #[tool]
    async fn ring(&self) -> String {
        format!("ring {}", self.0.increment())
    }
}

fn ringing_model() -> ScriptedModel {
    ScriptedModel::new()
        .call("ring", json!({}))
        .call("add", json!({"a": 1, "b": 1}))
        .reply("Two.")
}

fn agent(
    model: ScriptedModel,
    ring_count: &Counter,
    runtime: &Runtime,
) -> levity::agent::AgentBuilder {
    Agent::builder(model)
        .tools(Bell(ring_count.clone()))
        .tool(add)
        .runtime(runtime.clone())
}

#[tokio::test]
async fn fork_at_any_record_repeats_no_finished_call() {
    let (runtime, journal) = runtime();
    let ring_count = Counter::default();
    let old = agent(ringing_model(), &ring_count, &runtime)
        .build()
        .unwrap();
    let run = old
        .run("Ring, then add")
        .id("old")
        .await
        .unwrap()
        .run()
        .clone();
    let records = journal.records(&run);
    let rang_at = records
        .iter()
        .position(|r| is_finished_ring(&r.entry))
        .unwrap() as u64;
    for after in 0..records.len() as u64 - 1 {
        let before = ring_count.get();
        let model = ScriptedModel::new()
            .reply("Otherwise.")
            .reply("Otherwise.")
            .reply("Otherwise.");
        let new = agent(model, &ring_count, &runtime)
            .instructions("Be different.")
            .build()
            .unwrap();
        let answer = new
            .fork("old")
            .after(after)
            .id(format!("new-{after}"))
            .await;
        let Ok(answer) = answer else {
            // The shared records contain the last reply of the model.
            assert_eq!(after, records.len() as u64 - 2);
            continue;
        };
        if after >= rang_at {
            assert_eq!(
                ring_count.get(),
                before,
                "a finished call was repeated, after {after}"
            );
        }
        // A fork can be replayed like any other run.
        let replayed = new.replay(answer.run()).await.unwrap();
        assert!(matches!(
            replayed.events.last().unwrap().kind,
            EventKind::RunEnded(_)
        ));
        let Entry::Opened(opened) = &journal.records(answer.run())[0].entry else {
            panic!()
        };
        assert_eq!(
            opened
                .forked
                .as_ref()
                .map(|forked| (forked.run.as_str(), forked.after)),
            Some(("old", after))
        );
    }
    assert_eq!(
        journal.records(&run),
        records,
        "the original run must not change"
    );
}

fn is_finished_ring(entry: &Entry) -> bool {
    match entry {
        Entry::Finished {
            outcome: levity::core::Outcome::Tool(result),
            ..
        } => result.name == "ring",
        _ => false,
    }
}

#[tokio::test]
async fn fork_with_other_instructions_and_tools_can_be_compared() {
    let (runtime, journal) = runtime();
    let ring_count = Counter::default();
    let run = agent(ringing_model(), &ring_count, &runtime)
        .build()
        .unwrap()
        .run("Ring")
        .id("old")
        .await
        .unwrap();
    let model = ScriptedModel::new().reply("2, as a number.");
    let new = agent(model.clone(), &ring_count, &runtime)
        .instructions("Answer in digits.")
        .build()
        .unwrap();
    let answer = new.fork(run.run().clone()).id("new").await.unwrap();
    assert_eq!(answer.text(), "2, as a number.");
    let [request] = &*model.requests() else {
        panic!("only the last call may be repeated")
    };
    assert_eq!(request.system.as_deref(), Some("Answer in digits."));
    assert_eq!(request.history.len(), 5);
    let report = |id: &str| RunReport::of(&RunId::new(id), &journal.records(&RunId::new(id)));
    let comparison = RunComparison::new(report("old"), report("new"));
    assert_eq!((comparison.same_steps, comparison.same_answer), (2, false));
    assert_eq!(
        (
            comparison.left.answer.as_str(),
            comparison.right.model_calls
        ),
        ("Two.", 3)
    );
    let table = comparison.to_string();
    assert!(
        table.contains("both took the same steps") && table.contains("2, as a number."),
        "{table}"
    );
}

#[tokio::test]
async fn invalid_fork_returns_error_and_writes_nothing() {
    let (runtime, journal) = runtime();
    let ring_count = Counter::default();
    let old = agent(ringing_model(), &ring_count, &runtime)
        .build()
        .unwrap();
    old.run("Ring").id("old").await.unwrap();
    let records = journal.records(&RunId::new("old")).len() as u64;
    let check = async |fork: levity::runtime::Run<Agent>, expected: &str| {
        let error = fork.await.unwrap_err();
        let source = std::error::Error::source(&error).unwrap().to_string();
        assert!(source.contains(expected), "{source}");
    };
    check(old.fork("old").after(records - 1), "must be between 0 and").await;
    check(old.fork("old").after(u64::MAX), "must be between 0 and").await;
    check(old.fork("nobody"), "not in the journal").await;
    check(old.fork("old").id("old"), "exists already").await;
    // The records do not match an agent that would have acted differently.
    let helper = Agent::builder(ScriptedModel::new()).build().unwrap();
    let other = Agent::builder(ScriptedModel::new())
        .agent("ring", "Rings.", helper)
        .runtime(runtime);
    check(
        other.build().unwrap().fork("old"),
        "diverges from its journal at record 3",
    )
    .await;
    assert_eq!(journal.list(&RunQuery::new()).await.unwrap().len(), 1);
}

#[tokio::test]
async fn replay_error_names_changed_setting() {
    let (runtime, _) = runtime();
    let ring_count = Counter::default();
    let old = agent(ringing_model(), &ring_count, &runtime)
        .instructions("Ring.")
        .build()
        .unwrap();
    let run = old.run("Ring").await.unwrap().run().clone();
    old.replay(&run).await.unwrap();
    let check = async |agent: levity::agent::AgentBuilder, expected: &str| {
        let error = agent.build().unwrap().replay(&run).await.unwrap_err();
        let source = std::error::Error::source(&error).unwrap().to_string();
        assert!(source.contains(expected), "{source}");
    };
    let same = || agent(ScriptedModel::new(), &ring_count, &runtime).instructions("Ring.");
    same()
        .build()
        .unwrap()
        .replay(&run)
        .await
        .expect("another model must not affect the replay");
    check(
        same().instructions("Do not ring."),
        "the instructions changed",
    )
    .await;
    check(same().tool_as("plus", add), "tool `plus` was added").await;
    check(same().max_turns(3), "the limits of a turn").await;
    let fewer = Agent::builder(ScriptedModel::new())
        .tool(add)
        .instructions("Ring.")
        .runtime(runtime.clone());
    check(fewer, "tool `ring` was removed").await;
}

/// A tool that records the keys of its calls. The first call hangs.
#[derive(Clone, Default)]
struct Bank(std::sync::Arc<std::sync::Mutex<Vec<String>>>);

#[tool]
impl Bank {
    /// Pays once for each key.
    #[tool(idempotent)]
    async fn pay(&self, cx: &ToolCx) -> String {
        self.0.lock().unwrap().push(cx.key.to_string());
        "paid".to_owned()
    }
}

#[tokio::test]
async fn call_in_progress_keeps_its_key_in_forks() {
    let (runtime, journal) = runtime();
    let bank = Bank::default();
    let agent = || {
        let model = ScriptedModel::new()
            .call("pay", json!({}))
            .reply("Paid.")
            .by_history();
        Agent::builder(model)
            .tools(bank.clone())
            .runtime(runtime.clone())
            .build()
            .unwrap()
    };
    agent().run("Pay").id("old").await.unwrap();
    let begins = |run: &str| {
        let is_pay =
            |entry: &Entry| matches!(entry, Entry::Started { note, .. } if &*note.name == "pay");
        journal
            .records(&RunId::new(run))
            .iter()
            .position(|r| is_pay(&r.entry))
            .unwrap() as u64
    };
    agent()
        .fork("old")
        .after(begins("old"))
        .id("new")
        .await
        .unwrap();
    agent()
        .fork("new")
        .after(begins("new"))
        .id("newer")
        .await
        .unwrap();
    let keys = bank.0.lock().unwrap();
    assert_eq!(keys.len(), 3);
    assert!(
        keys.iter().all(|key| *key == keys[0]),
        "paid more than once: {keys:?}"
    );
}

#[tokio::test]
async fn run_with_low_budget_from_start_can_be_forked() {
    let (runtime, _) = runtime();
    let agent = || {
        let model = ScriptedModel::new()
            .reply("One.")
            .reply("Two.")
            .by_history();
        let agent = Agent::builder(ScriptedModel::new()).model_for("cheap", model);
        let agent = agent
            .on_low_budget(levity::agent::LowBudgetAction::Switch)
            .runtime(runtime.clone());
        agent
            .limits(Limits::new().tokens(1_000_000).low(100))
            .build()
            .unwrap()
    };
    agent().run("Count").id("old").await.unwrap();
    let answer = agent().fork("old").after(1).id("new").await.unwrap();
    assert_eq!(answer.text(), "One.");
    agent().replay(answer.run()).await.unwrap();
}

#[tokio::test]
async fn comparison_shows_arguments_of_executed_call() {
    let (runtime, journal) = runtime();
    let model = ScriptedModel::new()
        .call("add", json!({"a": 1, "b": 1}))
        .reply("Well.");
    let policy = Policy::new().rule(Rule::tool("add").ask("is it right?"));
    let agent = Agent::builder(model)
        .tool(add)
        .policy(policy)
        .runtime(runtime)
        .build()
        .unwrap();
    let mut run = agent.run("Add").id("edited").start();
    let mut events = run.events();
    while let Some(event) = events.next().await {
        if let EventKind::Asked(ask) = event.kind {
            run.edit(&ask, json!({"a": 2, "b": 2})).await.unwrap();
        }
    }
    run.await.unwrap();
    let id = RunId::new("edited");
    let report = RunReport::of(&id, &journal.records(&id));
    assert_eq!(&*report.steps[0].args, r#"{"a":2,"b":2}"#);
    agent.replay(&id).await.unwrap();
}

/// An approver that allows every call with changed arguments.
struct EditingApprover;

#[async_trait::async_trait]
impl Approver for EditingApprover {
    async fn decide(&self, _: &Ask) -> Decision {
        Decision::edit(json!({"a": 2, "b": 2}))
    }
}

#[tokio::test]
async fn typed_run_with_children_edits_and_waits_forks_at_any_record() {
    #[derive(serde::Deserialize, schemars::JsonSchema)]
    struct Sum {
        total: f64,
    }
    let (runtime, journal) = runtime();
    let agent = || {
        let sums = ScriptedModel::new()
            .call("add", json!({"a": 1, "b": 1}))
            .reply("Two.")
            .by_history();
        let helper = Agent::builder(sums).tool(add).build().unwrap();
        let turn = Turn::new()
            .call("helper", json!({"task": "Add"}))
            .call("add", json!({"a": 1, "b": 1}));
        let turn = turn.call("wait", json!({"seconds": 1}));
        let model = ScriptedModel::new()
            .turn(turn)
            .reply("no")
            .reply(r#"{"total": 4}"#)
            .by_history();
        let policy = Policy::new().rule(Rule::tool("add").ask("is it right?"));
        let agent = Agent::builder(model)
            .tool(add)
            .agent("helper", "Adds.", helper)
            .policy(policy);
        let agent = agent
            .allow_wait(std::time::Duration::from_secs(60))
            .approver(EditingApprover);
        let limits = Limits::new().tokens(1_000_000).low(50);
        agent
            .limits(limits)
            .runtime(runtime.clone())
            .build()
            .unwrap()
    };
    let sum: Sum = agent().run("Add").id("old").typed().await.unwrap();
    assert_eq!(sum.total, 4.0);
    let records = journal.records(&RunId::new("old"));
    for after in 0..records.len() as u64 - 2 {
        let id = format!("new-{after}");
        let forked = agent()
            .fork("old")
            .after(after)
            .id(id.as_str())
            .typed::<Sum>()
            .with_answer()
            .await;
        let (sum, answer) = forked.unwrap_or_else(|error| panic!("after {after}: {error:?}"));
        assert_eq!(sum.total, 4.0);
        agent()
            .with_output_type::<Sum>()
            .replay(answer.run())
            .await
            .unwrap();
        // A fork of a fork and a resumed fork behave the same.
        let second_fork = agent()
            .fork(id.as_str())
            .after(after)
            .id(format!("{id}-again"))
            .typed::<Sum>();
        let (_, second_fork) = second_fork.with_answer().await.unwrap();
        agent()
            .with_output_type::<Sum>()
            .replay(second_fork.run())
            .await
            .unwrap();
        agent().resume(id.as_str()).typed::<Sum>().await.unwrap();
    }
}
