//! Everything a run can do, stopped after every record in turn, and gone on with.

use std::sync::Arc;

use async_trait::async_trait;
use levity::core::{Approver, Ask, Entry, Journal, Outcome, RunQuery};
use levity::prelude::*;
use levity::runtime::MemoryJournal;
use levity::test::crash::{self, CrashTally, Crashes, Life};
use levity::test::{ScriptedModel, Turn};
use serde_json::json;

use crate::support::approve_all;

/// Tools of every class that tally what they do, by the key of the call.
struct Office(Arc<CrashTally>);

#[tool]
impl Office {
    /// Looks at something.
    #[tool(read_only)]
    async fn look(&self, cx: &ToolCx) {
        self.did("look", cx);
    }

    /// Sets something; doing so again changes nothing.
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
        self.0.undid(&format!("book {}", cx.key));
        self.did("give_back", cx);
    }

    /// Sends something that must not be sent twice.
    #[tool(destructive)]
    async fn send(&self, cx: &ToolCx) {
        self.did("send", cx);
    }
}

impl Office {
    fn did(&self, what: &str, cx: &ToolCx) {
        self.0.did(format!("{what} {}", cx.key));
    }
}

struct Yes;

#[async_trait]
impl Approver for Yes {
    async fn decide(&self, _: &Ask) -> Decision {
        Decision::Allow
    }
}

/// What the scenario comes to.
#[derive(Debug)]
struct Done {
    text: String,
    calls: Vec<String>,
    /// Calls whose outcome nobody knows, of the run and its child.
    unknown: usize,
}

fn calls(names: &[&str]) -> Turn {
    names
        .iter()
        .fold(Turn::new(), |turn, name| turn.call(*name, json!({})))
}

/// The agent, which asks an approver if it has one, and the host otherwise.
fn agent(life: &Life, approver: bool) -> Agent {
    let asks =
        |agent: levity::agent::AgentBuilder| if approver { agent.approver(Yes) } else { agent };
    let office = || Office(life.world.clone());
    let model = ScriptedModel::new()
        .turn(calls(&["look"]))
        .turn(calls(&["book"]))
        .turn(calls(&["send"]));
    let helper = Agent::builder(model.reply("Helped.").by_history()).tools(office());
    let model = ScriptedModel::new()
        .turn(calls(&["look", "look", "set"]))
        .turn(calls(&["book"]))
        .turn(calls(&["send"]))
        .call("helper", json!({"task": "Help."}))
        .reply("All is done.");
    asks(Agent::builder(model.by_history()))
        .tools(office())
        .agent("helper", "Helps.", asks(helper).build().unwrap())
        .runtime(Runtime::new().with_journal(life.journal.clone()))
        .build()
        .unwrap()
}

async fn office(life: Life) -> Done {
    let agent = agent(&life, true);
    let answer = match life.knows("r").await {
        true => agent.resume("r").await.unwrap(),
        false => agent.run("Do it all.").id("r").await.unwrap(),
    };
    done(&life, &answer).await
}

/// The same with a handle, by which the host allows what is asked about.
async fn office_with_a_host(life: Life) -> Done {
    let agent = agent(&life, false);
    let run = match life.knows("r").await {
        true => agent.resume("r").start(),
        false => agent.run("Do it all.").id("r").start(),
    };
    done(&life, &approve_all(run).await.unwrap()).await
}

async fn done(life: &Life, answer: &Answer) -> Done {
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
    Done {
        text: answer.text().to_owned(),
        calls,
        unknown,
    }
}

/// How often each call of a tool was made, without those that were undone.
fn made(tally: &CrashTally, tool: &str) -> Vec<usize> {
    let made = tally
        .all()
        .into_iter()
        .filter(|(what, _)| what.split(' ').next() == Some(tool));
    made.map(|(_, times)| times).collect()
}

#[track_caller]
fn check(report: &crash::Report<Done>) {
    assert_eq!(
        report.whole.value.calls,
        ["look", "look", "set", "book", "send", "helper"]
    );
    assert_eq!(
        (
            made(&report.whole.world, "send"),
            report.whole.value.unknown
        ),
        (vec![1, 1], 0)
    );
    report.assert_same_by(|end| (end.value.text.clone(), end.value.calls.clone()));
    for end in &report.stops {
        assert_eq!(
            made(&end.world, "book"),
            [1, 1],
            "{end}: lead and helper book once each"
        );
        let sent = made(&end.world, "send");
        assert!(
            sent.iter().all(|times| *times == 1),
            "{end}: something was sent twice"
        );
        assert!(
            sent.len() + end.value.unknown >= 2,
            "{end}: something was lost in silence"
        );
        assert!(
            end.value.unknown <= end.stopped.len(),
            "{end}: only what was cut off is unknown"
        );
        assert_eq!(
            (
                made(&end.world, "look").len(),
                made(&end.world, "set").len()
            ),
            (3, 1),
            "{end}"
        );
    }
    let undone = report
        .stops
        .iter()
        .filter(|end| !made(&end.world, "give_back").is_empty())
        .count();
    // Both bookings: as soon as their start was written, and when they were made.
    assert!(undone >= 4, "{undone}");
}

#[tokio::test]
async fn stopped_after_every_record_it_ends_the_same() {
    let report = crash::after_every_record(MemoryJournal::new, office).await;
    check(&report);
    assert!(report.stops.len() > 60, "{}", report.stops.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_run_with_a_handle_and_a_host_that_decides_ends_the_same() {
    check(&crash::after_every_record(MemoryJournal::new, office_with_a_host).await);
}

#[tokio::test]
async fn stopped_twice_it_ends_the_same() {
    check(
        &Crashes::new(MemoryJournal::new)
            .stop_again(2)
            .run(office)
            .await,
    );
}

#[tokio::test]
async fn what_cannot_be_undone_is_told_to_the_model() {
    let report = crash::after_every_record(MemoryJournal::new, async |life| {
        let world = life.world.clone();
        let book = levity::test::RecordingTool::new("book", move |_| {
            world.did("book");
            Ok(levity::core::ToolOutput::text("booked"))
        });
        let book = book.with_undo(|_| Err(ToolError::failed("no way back")));
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
