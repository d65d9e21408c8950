//! Guards of a whole team.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use levity_core::{
    Approver, Ask, Decision, EventKind, Hints, Intervention, Journal as _, RunId, Secrets, Stage,
    ToolOutput,
};
use levity_dag::{Error, Plan, Step, Team, TeamBuilder};
use levity_loop::{Agent, SecretGuard, SizeGuard};
use levity_runtime::{MemoryJournal, Runtime};
use levity_test::{RecordingTool, ScriptedModel};
use serde_json::json;

use crate::support::within;

const WORD: &str = "correct horse";

fn send() -> RecordingTool {
    RecordingTool::new("send", |_| Ok(ToolOutput::text(format!("{WORD} was sent"))))
        .with_hints(Hints::new().read_only())
}

fn team(writer: &ScriptedModel, tool: &RecordingTool) -> TeamBuilder {
    let agent = Agent::builder(writer.clone()).build().unwrap();
    let secrets = SecretGuard::new().secrets(Secrets::new().known(WORD));
    Team::builder()
        .agent("Writer", "Writes.", agent)
        .tool(tool.clone())
        .guard(secrets)
}

fn plan() -> Plan {
    let sent = Step::new("sent", "send")
        .input("text", format!("it is {WORD}"))
        .writes(["sent"]);
    Plan::new().step(sent).step(
        Step::new("said", "Writer")
            .prompt("Tell it.")
            .reads(["sent"])
            .writes(["said"]),
    )
}

#[tokio::test]
async fn they_stand_around_agents_and_around_what_a_plan_calls() {
    let (writer, tool) = (
        ScriptedModel::new().reply(format!("It was {WORD}.")),
        send(),
    );
    let (journal, told) = (MemoryJournal::new(), Arc::new(Mutex::new(Vec::new())));
    let runtime = Runtime::new().with_journal(journal.clone());
    let (team, hears) = (
        team(&writer, &tool).runtime(runtime).build().unwrap(),
        told.clone(),
    );
    let run = team
        .run(plan())
        .id("r")
        .on_event(move |event| hears.lock().unwrap().push(event.clone()));
    let done = within(run).await.unwrap();
    assert_eq!(
        done.variable("said"),
        Some(&json!("It was [secret: known]."))
    );
    assert_eq!(
        tool.calls()[0].args,
        json!({"text": "it is [secret: known]"})
    );
    let asked = format!("{:?}", writer.requests());
    assert!(
        asked.contains("[secret: known] was sent") && !asked.contains(WORD),
        "{asked}"
    );
    let told = told.lock().unwrap().clone();
    let of = |stage: Stage| {
        let is = |by: &Intervention| by.stage == stage;
        told.iter()
            .any(|event| matches!(&event.kind, EventKind::Guarded { intervention, .. } if is(intervention)))
    };
    assert!(of(Stage::Call) && of(Stage::Result) && of(Stage::Answer));
    let outcomes: Vec<_> = journal.read(&RunId::new("r")).await.unwrap().split_off(1);
    assert!(
        !serde_json::to_string(&outcomes).unwrap().contains(WORD),
        "only the plan itself is as it was"
    );
}

#[tokio::test]
async fn what_they_block_is_not_called() {
    let (writer, tool) = (ScriptedModel::new(), send());
    let team = team(&writer, &tool)
        .guard(SizeGuard::new().call(10))
        .build()
        .unwrap();
    let error = within(team.run(plan())).await.unwrap_err();
    assert!(matches!(&error, Error::Unreached { .. }), "{error}");
    assert!(
        error.to_string().contains("`size` blocked the call"),
        "{error}"
    );
    assert!(tool.calls().is_empty());
}

struct Edits;

#[async_trait]
impl Approver for Edits {
    async fn decide(&self, _: &Ask) -> Decision {
        Decision::edit(json!({"text": WORD}))
    }
}

#[tokio::test]
async fn what_a_person_puts_in_place_is_looked_at() {
    let tool = RecordingTool::new("send", |_| Ok(ToolOutput::text("sent")))
        .with_hints(Hints::new().destructive());
    let journal = MemoryJournal::new();
    let runtime = Runtime::new().with_journal(journal.clone());
    let team = team(&ScriptedModel::new().reply("Done."), &tool)
        .approver(Edits)
        .runtime(runtime);
    within(team.build().unwrap().run(plan()).id("r"))
        .await
        .unwrap();
    assert_eq!(tool.calls()[0].args, json!({"text": "[secret: known]"}));
    let outcomes: Vec<_> = journal.read(&RunId::new("r")).await.unwrap().split_off(1);
    assert!(
        !serde_json::to_string(&outcomes).unwrap().contains(WORD),
        "{outcomes:?}"
    );
}
