//! Tests of guards for a whole team.

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
async fn guards_inspect_agents_and_direct_calls_of_plan() {
    let (writer, tool) = (
        ScriptedModel::new().reply(format!("It was {WORD}.")),
        send(),
    );
    let (journal, events) = (MemoryJournal::new(), Arc::new(Mutex::new(Vec::new())));
    let runtime = Runtime::new().with_journal(journal.clone());
    let (team, sink) = (
        team(&writer, &tool).runtime(runtime).build().unwrap(),
        events.clone(),
    );
    let run = team
        .run(plan())
        .id("r")
        .on_event(move |event| sink.lock().unwrap().push(event.clone()));
    let done = within(run).await.unwrap();
    assert_eq!(
        done.variable("said"),
        Some(&json!("It was [secret: known]."))
    );
    assert_eq!(
        tool.calls()[0].args,
        json!({"text": "it is [secret: known]"})
    );
    let requests = format!("{:?}", writer.requests());
    assert!(
        requests.contains("[secret: known] was sent") && !requests.contains(WORD),
        "{requests}"
    );
    let events = events.lock().unwrap().clone();
    let of = |stage: Stage| {
        let is = |by: &Intervention| by.stage == stage;
        events.iter().any(|event| {
            matches!(&event.kind, EventKind::Guarded { intervention, .. } if is(intervention))
        })
    };
    assert!(of(Stage::Call) && of(Stage::Result) && of(Stage::Answer));
    let outcomes: Vec<_> = journal.read(&RunId::new("r")).await.unwrap().split_off(1);
    assert!(
        !serde_json::to_string(&outcomes).unwrap().contains(WORD),
        "only the plan itself is unchanged"
    );
}

#[tokio::test]
async fn call_blocked_by_guard_is_not_made() {
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
async fn guard_inspects_arguments_edited_by_person() {
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
