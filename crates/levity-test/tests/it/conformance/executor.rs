use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use levity_core::{
    Ask, Child, ChildRun, Decision, Digest, Effect, EffectClass, EffectCx, EffectId, Ending,
    Eventual, Executor, Input, Limits, Machine, MachineKind, MachineOutput, Model, ModelCall,
    ModelError, ModelErrorKind, Offer, Outcome, PrepareCx, Prepared, Request, RunId, Status, Tool,
    ToolCall, ToolCx, ToolError, ToolErrorKind, ToolOutput, ToolResult, ToolRun,
};
use levity_test::{RecordingTool, ScriptedModel, conformance};
use serde_json::{Value, json};

use crate::{block_on, refuses};

#[derive(Clone, Copy, Default, PartialEq)]
enum Flaw {
    #[default]
    None,
    RestlessPrepare,
    WrongKind,
    AnswersUnknownSlot,
    AnswersUnknownTool,
    WrongCall,
    AsksAgain,
    ClaimsUnknown,
    Panics,
    AnyAgent,
    ChildHasEnded,
    PanicsWhenDropped,
}

/// An executor with one model, one tool, one agent and an approver that agrees.
struct Parts {
    flaw: Flaw,
    model: ScriptedModel,
    tool: RecordingTool,
    looks: AtomicU64,
}

impl Parts {
    fn new(flaw: Flaw) -> Self {
        let tool = RecordingTool::new("add", |_| Ok(ToolOutput::text("7")));
        Self {
            flaw,
            model: ScriptedModel::new().reply("7"),
            tool,
            looks: AtomicU64::new(0),
        }
    }

    async fn ask_model(&self, call: ModelCall) -> Outcome {
        if &*call.slot != "main" && self.flaw != Flaw::AnswersUnknownSlot {
            let error = ModelError::new(ModelErrorKind::BadRequest, "there is no such model");
            return Outcome::Model(Err(error));
        }
        Outcome::Model(self.model.complete(call.request).await)
    }

    async fn call_tool(&self, run: ToolRun) -> Outcome {
        if !run.approved || self.flaw == Flaw::AsksAgain {
            return Outcome::NeedsApproval {
                reason: "nobody was asked".into(),
            };
        }
        let known = run.call.name == "add" || self.flaw == Flaw::AnswersUnknownTool;
        let output = match &run.call.raw {
            None if known => {
                self.tool
                    .call(run.call.args.clone(), &ToolCx::detached())
                    .await
            }
            None => Err(ToolError::new(
                ToolErrorKind::NotFound,
                "there is no such tool",
            )),
            Some(_) => Err(ToolError::new(
                ToolErrorKind::InvalidArgs,
                "the arguments are not JSON",
            )),
        };
        let mut result = ToolResult::new(&run.call, output);
        if self.flaw == Flaw::WrongCall {
            result.call = "c9".into();
        }
        Outcome::Tool(result)
    }
}

/// A guard that panics when it is dropped half-way.
struct Fragile(bool);

impl Drop for Fragile {
    fn drop(&mut self) {
        assert!(self.0 || std::thread::panicking(), "dropped too early");
    }
}

#[async_trait]
impl Executor for Parts {
    fn prepare(&self, effect: &Effect, _: &PrepareCx) -> Eventual<Prepared> {
        let looks = self.looks.fetch_add(1, Ordering::SeqCst);
        let input = if self.flaw == Flaw::RestlessPrepare {
            looks
        } else {
            0
        };
        let answered = matches!(effect, Effect::Ask(ask) if ask.call.name == "add");
        let prepared =
            Prepared::new(EffectClass::ReadOnly).with_input(effect.name(), Digest::of(&input));
        prepared.answered(answered).into()
    }

    async fn execute(&self, effect: Effect, _: EffectCx) -> Outcome {
        let mut fragile = Fragile(self.flaw != Flaw::PanicsWhenDropped);
        tokio::task::yield_now().await;
        fragile.0 = true;
        match (self.flaw, effect) {
            (Flaw::WrongKind, _) => Outcome::Decision(Decision::Allow),
            (Flaw::ClaimsUnknown, _) => Outcome::Unknown,
            (Flaw::Panics, effect) => panic!("cannot perform {effect:?}"),
            (_, Effect::Model(call)) => self.ask_model(call).await,
            (_, Effect::Tool(run)) => self.call_tool(run).await,
            (_, Effect::Ask(_)) => Outcome::Decision(Decision::Allow),
            _ => Outcome::Unknown,
        }
    }

    async fn child(&self, child: &ChildRun, _: Option<&Value>) -> Result<Child, ToolError> {
        if &*child.agent != "helper" && self.flaw != Flaw::AnyAgent {
            return Err(ToolError::failed("there is no such agent; try `helper`"));
        }
        let ended = self.flaw == Flaw::ChildHasEnded;
        let machine = Still(ended.then(|| Ending::new(Status::Complete)));
        Ok(Child::new(
            machine,
            Arc::new(Self::new(self.flaw)),
            Limits::new(),
        ))
    }
}

/// A machine that requests nothing.
struct Still(Option<Ending>);

impl Machine for Still {
    fn kind(&self) -> MachineKind {
        MachineKind::new("still", 1)
    }

    fn save(&self) -> Value {
        json!(null)
    }

    fn apply(&mut self, _: Input, _: &mut MachineOutput) {}

    fn ending(&self) -> Option<&Ending> {
        self.0.as_ref()
    }
}

fn effects() -> Vec<Effect> {
    let call = ToolCall::new("c1", "add", json!({"a": 2}));
    let broken = ToolCall::from_text("c2", "add", "{broken");
    vec![
        Effect::Model(ModelCall::new("main", Request::new(), Offer::All)),
        Effect::Tool(ToolRun::new(call.clone())),
        Effect::Tool(ToolRun::approved(call.clone())),
        Effect::Tool(ToolRun::approved(broken)),
        Effect::Ask(Ask::new(
            RunId::new("r1"),
            EffectId::new(1),
            call,
            "why not",
        )),
        Effect::Child(ChildRun::new("helper", json!({}))),
    ]
}

#[test]
fn executor_suite_accepts_correct_executor() {
    block_on(conformance::executor(|| Parts::new(Flaw::None), effects()));
    block_on(conformance::executor(|| Parts::new(Flaw::None), Vec::new()));
}

#[test]
fn executor_suite_rejects_every_flaw() {
    let check = |flaw, promise| {
        refuses(
            conformance::executor(|| Parts::new(flaw), effects()),
            promise,
        );
    };
    let kind = "executor: `execute` gives an outcome of the effect's kind, and a failure for what \
        is unknown";
    check(
        Flaw::RestlessPrepare,
        "executor: `prepare` gives the same each time",
    );
    check(Flaw::WrongKind, kind);
    check(Flaw::AnswersUnknownSlot, kind);
    check(Flaw::AnswersUnknownTool, kind);
    check(Flaw::AsksAgain, kind);
    check(Flaw::ClaimsUnknown, kind);
    check(
        Flaw::WrongCall,
        "executor: a tool's answer bears the id of its call",
    );
    check(
        Flaw::Panics,
        "executor: failures are outcomes; it panicked: cannot perform",
    );
    check(
        Flaw::AnyAgent,
        "executor: an agent that does not exist is an error",
    );
    check(
        Flaw::ChildHasEnded,
        "executor: a child's machine has not ended before it began",
    );
    check(
        Flaw::PanicsWhenDropped,
        "executor: dropping an effect is harmless",
    );
}
