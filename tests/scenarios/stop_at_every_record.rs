//! Stops a run with every kind of call after each record in turn, and resumes it.

use std::sync::Arc;

use async_trait::async_trait;
use levity::core::{Approver, Ask, Entry, Journal, Outcome, RunQuery};
use levity::prelude::*;
use levity::runtime::MemoryJournal;
use levity::test::crash::{self, CrashTally, Crashes, Life};
use levity::test::{ScriptedModel, Turn};
use serde_json::json;

use crate::support::approve_all;

/// Tools of every effect class that count their calls by key.
struct CountingTools(Arc<CrashTally>);

#[tool]
impl CountingTools {
    /// Inspects something.
    #[tool(read_only)]
    async fn look(&self, cx: &ToolCx) {
        self.did("look", cx);
    }

    /// Sets something. Repeating it changes nothing.
    #[tool(idempotent)]
    async fn set(&self, cx: &ToolCx) {
        self.did("set", cx);
    }

    /// Books something.
    #[tool(undo = give_back)]
    async fn book(&self, cx: &ToolCx) {
        self.did("book", cx);
    }

    async fn give_back(&self, cx: &ToolCx) {
        self.0.record_undo(&format!("book {}", cx.key));
        self.did("give_back", cx);
    }

    /// Sends something that must not be sent twice.
    #[tool(destructive)]
    async fn send(&self, cx: &ToolCx) {
        self.did("send", cx);
    }
}

impl CountingTools {
    fn did(&self, what: &str, cx: &ToolCx) {
        self.0.record_action(format!("{what} {}", cx.key));
    }
}

struct AlwaysAllow;

#[async_trait]
impl Approver for AlwaysAllow {
    async fn decide(&self, _: &Ask) -> Decision {
        Decision::Allow
    }
}

/// The result of the scenario.
#[derive(Debug)]
struct ScenarioResult {
    text: String,
    calls: Vec<String>,
    /// Number of calls with an unknown outcome, in the run and its child.
    unknown: usize,
}

fn calls(names: &[&str]) -> Turn {
    names
        .iter()
        .fold(Turn::new(), |turn, name| turn.call(*name, json!({})))
}

/// Builds the agent, which asks an approver if `approver` is set, and the host otherwise.
fn agent(life: &Life, approver: bool) -> Agent {
    let with_approver = |agent: levity::agent::AgentBuilder| {
        if approver {
            agent.approver(AlwaysAllow)
        } else {
            agent
        }
    };
    let run_scenario = || CountingTools(life.world.clone());
    let model = ScriptedModel::new()
        .turn(calls(&["look"]))
        .turn(calls(&["book"]))
        .turn(calls(&["send"]));
    let helper = Agent::builder(model.reply("Helped.").by_history()).tools(run_scenario());
    let model = ScriptedModel::new()
        .turn(calls(&["look", "look", "set"]))
        .turn(calls(&["book"]))
        .turn(calls(&["send"]))
        .call("helper", json!({"task": "Help."}))
        .reply("All is done.");
    with_approver(Agent::builder(model.by_history()))
        .tools(run_scenario())
        .agent("helper", "Helps.", with_approver(helper).build().unwrap())
        .runtime(Runtime::new().with_journal(life.journal.clone()))
        .build()
        .unwrap()
}

async fn run_scenario(life: Life) -> ScenarioResult {
    let agent = agent(&life, true);
    let answer = match life.knows("r").await {
        true => agent.resume("r").await.unwrap(),
        false => agent.run("Do it all.").id("r").await.unwrap(),
    };
    scenario_result(&life, &answer).await
}

/// Runs the same scenario with a handle, through which the host approves every call.
async fn run_scenario_with_host(life: Life) -> ScenarioResult {
    let agent = agent(&life, false);
    let run = match life.knows("r").await {
        true => agent.resume("r").start(),
        false => agent.run("Do it all.").id("r").start(),
    };
    scenario_result(&life, &approve_all(run).await.unwrap()).await
}

async fn scenario_result(life: &Life, answer: &Answer) -> ScenarioResult {
    let calls = answer
        .history()
        .calls()
        .map(|(call, _)| call.name.clone())
        .collect();
    let mut unknown = 0;
    for run in life.journal.list(&RunQuery::new()).await.unwrap() {
        let is_unknown = |entry: &Entry| {
            matches!(
                entry,
                Entry::Finished {
                    outcome: Outcome::Unknown,
                    ..
                }
            )
        };
        let records = life.journal.read(&run.run).await.unwrap();
        unknown += records
            .iter()
            .filter(|record| is_unknown(&record.entry))
            .count();
    }
    ScenarioResult {
        text: answer.text().to_owned(),
        calls,
        unknown,
    }
}

/// Counts how often each call of a tool was made, without undone calls.
fn calls_made(tally: &CrashTally, tool: &str) -> Vec<usize> {
    let calls_made = tally
        .all()
        .into_iter()
        .filter(|(what, _)| what.split(' ').next() == Some(tool));
    calls_made.map(|(_, times)| times).collect()
}

#[track_caller]
fn check(report: &crash::Report<ScenarioResult>) {
    assert_eq!(
        report.whole.value.calls,
        ["look", "look", "set", "book", "send", "helper"]
    );
    assert_eq!(
        (
            calls_made(&report.whole.world, "send"),
            report.whole.value.unknown
        ),
        (vec![1, 1], 0)
    );
    report.assert_same_by(|end| (end.value.text.clone(), end.value.calls.clone()));
    for end in &report.stops {
        assert_eq!(
            calls_made(&end.world, "book"),
            [1, 1],
            "{end}: lead and helper must book once each"
        );
        let sent = calls_made(&end.world, "send");
        assert!(
            sent.iter().all(|times| *times == 1),
            "{end}: something was sent twice"
        );
        assert!(
            sent.len() + end.value.unknown >= 2,
            "{end}: a call was lost without a report"
        );
        assert!(
            end.value.unknown <= end.stopped.len(),
            "{end}: only an interrupted call may be unknown"
        );
        assert_eq!(
            (
                calls_made(&end.world, "look").len(),
                calls_made(&end.world, "set").len()
            ),
            (3, 1),
            "{end}"
        );
    }
    let undone = report
        .stops
        .iter()
        .filter(|end| !calls_made(&end.world, "give_back").is_empty())
        .count();
    // Each of the two bookings is undone at two stops: after its start was recorded, and after it
    // was made.
    assert!(undone >= 4, "{undone}");
}

#[tokio::test]
async fn run_stopped_after_any_record_ends_the_same() {
    let report = crash::after_every_record(MemoryJournal::new, run_scenario).await;
    check(&report);
    assert!(report.stops.len() > 60, "{}", report.stops.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn run_with_deciding_host_stopped_after_any_record_ends_the_same() {
    check(&crash::after_every_record(MemoryJournal::new, run_scenario_with_host).await);
}

#[tokio::test]
async fn run_stopped_twice_ends_the_same() {
    check(
        &Crashes::new(MemoryJournal::new)
            .stop_again(2)
            .run(run_scenario)
            .await,
    );
}

#[tokio::test]
async fn failed_undo_is_reported_to_model_as_unknown() {
    let report = crash::after_every_record(MemoryJournal::new, async |life| {
        let world = life.world.clone();
        let book = levity::test::RecordingTool::new("book", move |_| {
            world.record_action("book");
            Ok(levity::core::ToolOutput::text("booked"))
        });
        let book = book.with_undo(|_| Err(ToolError::failed("cannot undo")));
        let agent = Agent::builder(
            ScriptedModel::new()
                .turn(calls(&["book"]))
                .reply("ok")
                .by_history(),
        )
        .tool(book)
        .runtime(Runtime::new().with_journal(life.journal.clone()))
        .build()
        .unwrap();
        let answer = match life.knows("r").await {
            true => agent.resume("r").await.unwrap(),
            false => agent.run("Book.").id("r").await.unwrap(),
        };
        answer
            .history()
            .calls()
            .map(|(_, result)| result.text().into_owned())
            .collect::<String>()
    })
    .await;
    let unknown: Vec<_> = report
        .stops
        .iter()
        .filter(|end| end.value.contains("not known"))
        .collect();
    let at: Vec<_> = unknown
        .iter()
        .map(|end| {
            (
                &*end.stopped[0].last.as_ref().unwrap().entry,
                end.world.ever("book"),
            )
        })
        .collect();
    assert_eq!(at, [("started tool book", 0), ("started tool book", 1)]);
    assert!(report.stops.iter().all(|end| end.world.ever("book") <= 1));
}
