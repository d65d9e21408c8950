//! Decisions, pauses, messages and cancellation of a run by its host.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use levity::core::{
    Approver, Ask, ContextBlock, ContextError, ContextRequest, ContextSource, ControlError,
    Decision, Delta, Deltas, Effect, EffectId, Ending, EventKind, Input, Machine, MachineKind,
    MachineOutput, ModelCard, ModelError, Request, Status, ToolCall, ToolErrorKind, ToolRun,
};
use levity::prelude::*;
use levity::runtime::MachineRun;
use levity::test::{RecordingTool, ScriptedModel, Turn};
use levity::tools::{Policy, Rule};
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::time::timeout;

use crate::support::{add, approve_all, assert_complete, broken, runtime};

fn delete() -> RecordingTool {
    RecordingTool::new("delete", |args: &Value| {
        Ok(ToolOutput::text(format!("deleted {}", args["path"])))
    })
    .with_input(
        json!({"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}),
    )
    .with_hints(levity::core::Hints::new().destructive())
}

fn model() -> ScriptedModel {
    ScriptedModel::new()
        .call("delete", json!({"path": "a.txt"}))
        .reply("Done.")
}

/// Runs until the question, decides, and returns the result of the call.
async fn decide(decision: Decision) -> (levity::core::ToolResult, Vec<Value>) {
    let tool = delete();
    let agent = Agent::builder(model()).tool(tool.clone()).build().unwrap();
    let mut run = agent.start("Tidy up");
    let mut events = run.events();
    while let Some(event) = events.next().await {
        if let EventKind::Asked(ask) = event.kind {
            assert_eq!(ask.call.args, json!({"path": "a.txt"}));
            assert!(
                tool.calls().is_empty(),
                "nothing may be executed before the decision"
            );
            run.control().decide(&ask, decision.clone()).await.unwrap();
            assert!(
                run.approve(&ask).await.is_err(),
                "a question can be answered only once"
            );
        }
    }
    let answer = run.await.unwrap();
    assert_complete(answer.history());
    let result = answer.history().calls().next().unwrap().1.clone();
    (
        result,
        tool.calls().into_iter().map(|call| call.args).collect(),
    )
}

#[tokio::test]
async fn approved_call_is_executed() {
    let (result, calls) = decide(Decision::Allow).await;
    assert_eq!(calls, [json!({"path": "a.txt"})]);
    assert_eq!(result.text(), "deleted \"a.txt\"");
}

#[tokio::test]
async fn denied_call_is_not_executed_and_model_gets_reason() {
    let (result, calls) = decide(Decision::deny("it is still needed")).await;
    assert!(calls.is_empty());
    assert_eq!(result.error, Some(ToolErrorKind::Denied));
    assert!(result.text().contains("it is still needed"));
}

#[tokio::test]
async fn edited_call_uses_new_arguments_and_informs_model() {
    let (result, calls) = decide(Decision::edit(json!({"path": "b.txt"}))).await;
    assert_eq!(calls, [json!({"path": "b.txt"})]);
    assert!(result.text().contains("changed the arguments") && result.text().contains("b.txt"));
}

#[tokio::test]
async fn edited_arguments_are_validated_against_schema() {
    let tool = delete();
    let agent = Agent::builder(model()).tool(tool.clone()).build().unwrap();
    let mut run = agent.start("Tidy up");
    let mut events = run.events();
    while let Some(event) = events.next().await {
        if let EventKind::Asked(ask) = event.kind {
            let wrong = Decision::edit(json!({"path": [5]}));
            match run.control().decide(&ask, wrong).await {
                Err(ControlError::InvalidArguments { problems, .. }) => {
                    assert_eq!(problems[0].path, "/path");
                }
                other => panic!("{other:?}"),
            }
            // The question is still open.
            let edit = Decision::edit(json!({"path": "b.txt"}));
            run.control().decide(&ask, edit).await.unwrap();
        }
    }
    run.await.unwrap();
    let calls = tool.calls().into_iter().map(|call| call.args);
    assert_eq!(calls.collect::<Vec<_>>(), [json!({"path": "b.txt"})]);
}

#[tokio::test]
async fn call_without_approver_is_denied_and_run_continues() {
    let tool = delete();
    let agent = Agent::builder(model()).tool(tool.clone()).build().unwrap();
    let answer = agent.run("Tidy up").await.unwrap();
    assert_eq!(answer.text(), "Done.");
    assert!(tool.calls().is_empty());
    let result = answer.history().calls().next().unwrap().1;
    assert!(
        result.text().contains("no one can be asked for approval"),
        "{}",
        result.text()
    );
}

struct AlwaysAllow;

#[async_trait]
impl Approver for AlwaysAllow {
    async fn decide(&self, _: &Ask) -> Decision {
        Decision::Allow
    }
}

#[tokio::test]
async fn approver_decides_without_host() {
    let tool = delete();
    let agent = Agent::builder(model())
        .tool(tool.clone())
        .approver(AlwaysAllow)
        .build()
        .unwrap();
    agent.run("Tidy up").await.unwrap();
    assert_eq!(tool.calls().len(), 1);
}

#[tokio::test]
async fn paused_run_starts_no_call_until_resume() {
    let agent = Agent::builder(model()).tool(delete()).build().unwrap();
    let mut run = agent.start("Tidy up");
    let mut events = run.events();
    let ask = loop {
        if let EventKind::Asked(ask) = events.next().await.unwrap().kind {
            break ask;
        }
    };
    run.pause().await.unwrap();
    run.approve(&ask).await.unwrap();
    let mut seen = Vec::new();
    while !matches!(seen.last(), Some(EventKind::Decided { .. })) {
        seen.push(events.next().await.unwrap().kind);
    }
    assert!(seen.contains(&EventKind::Paused));
    // The call is allowed and requested, but does not start. The next event is the resume.
    run.resume().await.unwrap();
    assert_eq!(events.next().await.unwrap().kind, EventKind::Resumed);
    assert!(matches!(
        events.next().await.unwrap().kind,
        EventKind::ToolStarted { .. }
    ));
    assert_eq!(run.await.unwrap().text(), "Done.");
}

#[tokio::test]
async fn message_of_host_is_added_before_next_model_call() {
    let model = model();
    let agent = Agent::builder(model.clone())
        .tool(delete())
        .build()
        .unwrap();
    let mut run = agent.start("Tidy up");
    let mut events = run.events();
    while let Some(event) = events.next().await {
        if let EventKind::Asked(ask) = event.kind {
            run.send_message("Be careful!").await.unwrap();
            run.approve(&ask).await.unwrap();
        }
    }
    run.await.unwrap();
    let messages = model.requests()[1].history.messages().to_vec();
    assert_eq!(messages.last().unwrap().text(), "Be careful!");
    assert_complete(&model.requests()[1].history);
}

#[tokio::test]
async fn cancelled_run_returns_complete_history() {
    let tool = delete();
    let model = model();
    let agent = Agent::builder(model.clone())
        .tool(tool.clone())
        .build()
        .unwrap();
    let mut run = agent.start("Tidy up");
    let mut events = run.events();
    let control = run.control().clone();
    while let Some(event) = events.next().await {
        if let EventKind::Asked(_) = event.kind {
            control.cancel("changed my mind").await.unwrap();
        }
    }
    let error = run.await.unwrap_err();
    let levity::Error::Cancelled { reason, partial } = error else {
        panic!("{error}")
    };
    assert_eq!(reason, "changed my mind");
    let partial: Answer = partial.downcast().unwrap();
    assert_complete(partial.history());
    assert_eq!(
        partial.history().calls().next().unwrap().1.error,
        Some(ToolErrorKind::Cancelled)
    );
    assert!(tool.calls().is_empty());
    assert!(
        control.pause().await.is_err(),
        "an ended run accepts no commands"
    );

    let answer = agent
        .run("Go on")
        .history(partial.history().clone())
        .await
        .unwrap();
    assert_eq!(answer.text(), "Done.");
}

#[tokio::test]
async fn every_command_is_recorded_in_journal() {
    let (runtime, journal) = runtime();
    let agent = Agent::builder(model())
        .tool(delete())
        .runtime(runtime)
        .build()
        .unwrap();
    let mut run = agent.start("Tidy up");
    let id = run.id().clone();
    let mut events = run.events();
    while let Some(event) = events.next().await {
        if let EventKind::Asked(ask) = event.kind {
            run.pause().await.unwrap();
            run.resume().await.unwrap();
            run.send_message("Go on.").await.unwrap();
            run.approve(&ask).await.unwrap();
        }
    }
    run.await.unwrap();
    let text = serde_json::to_string(&journal.records(&id)).unwrap();
    for part in [
        "\"pause\"",
        "\"resume\"",
        "Go on.",
        "\"decision\":\"allow\"",
    ] {
        assert!(text.contains(part), "{part} is missing in the journal");
    }
}

#[tokio::test]
async fn calls_of_one_turn_can_be_decided_in_any_order() {
    let turn = Turn::new()
        .call("add", json!({"a": 1, "b": 2}))
        .call("add", json!({"a": 3, "b": 4}));
    let agent = Agent::builder(ScriptedModel::new().turn(turn).reply("3 and 7"))
        .tool(add)
        .policy(Policy::ask_all())
        .build()
        .unwrap();
    let mut run = agent.start("Add");
    let mut events = run.events();
    let mut asks = Vec::new();
    while let Some(event) = events.next().await {
        if let EventKind::Asked(ask) = event.kind {
            asks.push(ask);
            if asks.len() == 2 {
                run.approve(&asks[1]).await.unwrap();
                run.deny(&asks[0], "no").await.unwrap();
            }
        }
    }
    let answer = run.await.unwrap();
    let errors: Vec<bool> = answer
        .history()
        .calls()
        .map(|(_, result)| result.is_error())
        .collect();
    assert_eq!(errors, [true, false]);
}

#[tokio::test]
async fn approved_call_counts_once_towards_limit() {
    let tool = delete();
    let limits = Limits::new().tool_calls(1);
    let agent = Agent::builder(model())
        .tool(tool.clone())
        .limits(limits)
        .build()
        .unwrap();
    let _ = approve_all(agent.start("Tidy up")).await;
    assert_eq!(tool.calls().len(), 1, "the approved call was not made");
}

#[tokio::test]
async fn policy_panic_denies_call_and_run_continues() {
    let tool = delete();
    let rule = Rule::tool("delete")
        .when(|_, args| args["age"].as_u64().unwrap() > 9)
        .deny("too old");
    let policy = Policy::allow_all().rule(rule);
    let agent = Agent::builder(model())
        .tool(tool.clone())
        .policy(policy)
        .build()
        .unwrap();
    let answer = agent.start("Tidy up").await.unwrap();
    assert_eq!(
        answer.history().calls().next().unwrap().1.error,
        Some(ToolErrorKind::Denied)
    );
    assert!(tool.calls().is_empty());
}

/// A machine that calls two tools at once, and ignores questions and decisions.
#[derive(Default)]
struct IgnoresDecisions {
    finished: u8,
    ending: Option<Ending>,
}

impl Machine for IgnoresDecisions {
    fn kind(&self) -> MachineKind {
        MachineKind::new("deaf", 1)
    }

    fn save(&self) -> Value {
        json!((self.finished, &self.ending))
    }

    fn apply(&mut self, input: Input, step: &mut MachineOutput) {
        match input {
            Input::Begin { .. } => {
                for n in 0..2 {
                    let call = ToolCall::new(format!("c{n}"), "broken", json!({}));
                    step.request(EffectId::new(n), Effect::Tool(ToolRun::new(call)));
                }
            }
            Input::Finished { .. } => {
                self.finished += 1;
                if self.finished == 2 {
                    self.ending = Some(Ending::new(Status::Complete));
                }
            }
            Input::Cancel { reason } => {
                self.ending = Some(Ending::new(Status::Cancelled { reason }));
            }
            _ => {}
        }
    }

    fn ending(&self) -> Option<&Ending> {
        self.ending.as_ref()
    }
}

#[tokio::test]
async fn machine_that_ignores_decisions_does_not_hang() {
    let agent = Agent::builder(ScriptedModel::new())
        .tool(broken)
        .policy(Policy::ask_all())
        .build()
        .unwrap();
    let job = MachineRun::new(IgnoresDecisions::default(), agent.executor());
    let end = timeout(Duration::from_millis(500), Runtime::new().run(job)).await;
    assert!(end.is_ok(), "the run neither ends nor is reported as stuck");
}

/// A model that replies once it is notified.
struct NotifiedModel {
    card: ModelCard,
    gate: Arc<Notify>,
}

#[async_trait]
impl Model for NotifiedModel {
    fn card(&self) -> &ModelCard {
        &self.card
    }

    async fn stream(&self, _: Request) -> Result<Deltas, ModelError> {
        self.gate.notified().await;
        Ok(Deltas::ready([Delta::Text("Done.".into())]))
    }
}

fn notified_model() -> (NotifiedModel, Arc<Notify>) {
    let gate = Arc::new(Notify::new());
    (
        NotifiedModel {
            card: ModelCard::new("test", "gated"),
            gate: gate.clone(),
        },
        gate,
    )
}

#[tokio::test]
async fn message_of_host_during_last_turn_is_stored() {
    let (model, gate) = notified_model();
    let agent = Agent::builder(model).max_turns(1).build().unwrap();
    let run = agent.start("Tidy up");
    run.send_message("Wait!").await.unwrap();
    gate.notify_one();
    let answer = run.await.unwrap();
    let stored = answer
        .history()
        .messages()
        .iter()
        .any(|message| message.text() == "Wait!");
    assert!(stored, "acknowledged and lost");
}

#[tokio::test]
async fn too_many_pending_messages_are_rejected() {
    let (model, gate) = notified_model();
    let agent = Agent::builder(model).build().unwrap();
    let run = agent.start("Tidy up");
    let mut accepted = 0;
    while run.send_message("Faster!").await.is_ok() {
        accepted += 1;
        assert!(accepted < 10_000, "it takes everything");
    }
    assert!(matches!(
        run.send_message("Faster!").await,
        Err(ControlError::Full(_))
    ));
    gate.notify_one();
    gate.notify_one();
}

/// A context source that never returns.
struct HangingContext;

#[async_trait]
impl ContextSource for HangingContext {
    async fn blocks(&self, _: &ContextRequest) -> Result<Vec<ContextBlock>, ContextError> {
        std::future::pending().await
    }
}

#[tokio::test]
async fn run_waiting_for_context_can_be_cancelled() {
    let agent = Agent::builder(model())
        .context(HangingContext)
        .limits(Limits::new().wall_time(Duration::from_millis(100)))
        .build()
        .unwrap();
    let run = agent.start("Tidy up");
    let cancelled = timeout(Duration::from_millis(500), run.cancel("enough")).await;
    assert!(
        cancelled.is_ok(),
        "cancel does not return, although the wall time of 100 ms has elapsed"
    );
}
