//! Guards check the calls of a program like the calls of a model.

use levity_core::{
    Ask, Child, Effect, EffectId, Ending, Executor, Input, Limits, Machine, MachineKind,
    MachineOutput, Outcome, Program, Status, ToolCall, ToolError, ToolRun, ToolSpec,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::*;

/// A program that calls a tool twice, and returns its result.
struct Twice(ToolSpec);

#[derive(Serialize, Deserialize)]
struct Calls {
    tool: String,
    results: Vec<String>,
    run: Option<RunId>,
    ending: Option<Ending>,
}

impl Machine for Calls {
    fn kind(&self) -> MachineKind {
        MachineKind::new("twice", 1)
    }

    fn save(&self) -> Value {
        json!(self)
    }

    fn apply(&mut self, input: Input, step: &mut MachineOutput) {
        let call = |at: u64| {
            ToolCall::new(
                format!("p{at}"),
                self.tool.clone(),
                json!({"what": format!("hush {at}")}),
            )
        };
        match input {
            Input::Begin { run, .. } => {
                self.run = Some(run);
                step.request(EffectId::new(0), Effect::Tool(ToolRun::new(call(0))));
                step.request(EffectId::new(1), Effect::Tool(ToolRun::new(call(1))));
            }
            Input::Finished {
                effect,
                outcome: Outcome::NeedsApproval { reason },
            } => {
                let at = effect.get();
                let ask = Ask::new(
                    self.run.clone().unwrap(),
                    EffectId::new(at + 2),
                    call(at),
                    reason,
                );
                step.request(EffectId::new(at + 2), Effect::Ask(ask));
            }
            Input::Finished {
                effect,
                outcome: Outcome::Decision(_),
            } => {
                let at = effect.get();
                step.request(
                    EffectId::new(at + 2),
                    Effect::Tool(ToolRun::approved(call(at - 2))),
                );
            }
            Input::Finished {
                outcome: Outcome::Tool(result),
                ..
            } => {
                self.results.push(result.text().into_owned());
            }
            Input::Cancel { reason } => {
                self.ending = Some(Ending::new(Status::Cancelled { reason }));
            }
            other => panic!("{other:?}"),
        }
        if self.results.len() == 2 {
            let mut ending = Ending::new(Status::Complete);
            ending.text = self.results.join("; ") + "; mum";
            self.ending = Some(ending);
        }
    }

    fn ending(&self) -> Option<&Ending> {
        self.ending.as_ref()
    }
}

#[async_trait]
impl Program for Twice {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    async fn child(
        &self,
        _: &Value,
        saved: Option<&Value>,
        caller: Arc<dyn Executor>,
    ) -> Result<Child, ToolError> {
        let new = Calls {
            tool: "look_up".to_owned(),
            results: Vec::new(),
            run: None,
            ending: None,
        };
        let machine = saved.map_or(new, |saved| Calls::deserialize(saved).unwrap());
        Ok(Child::new(machine, caller, Limits::new()))
    }
}

async fn run(tool: RecordingTool) -> (Vec<Event>, String, SeenItems) {
    let seen = SeenItems::default();
    let guard = probe("words", &ALL, &seen, |subject| match subject {
        GuardSubject::Call(call) if call.args["what"] == "hush 1" => {
            Verdict::block("once is enough")
        }
        _ => match swap(subject, "hush", "****") {
            Verdict::Pass => swap(subject, "mum", "***"),
            verdict => verdict,
        },
    });
    let model = ScriptedModel::new().call("twice", json!({})).reply("Done.");
    let program = Twice(ToolSpec::new("twice", "Calls twice."));
    let agent = Agent::builder(model)
        .tool(tool)
        .program(program)
        .guard(guard)
        .build()
        .unwrap();
    let mut run = agent.start("Go");
    let (mut stream, mut events) = (run.events(), Vec::new());
    while let Some(event) = stream.next().await {
        if let EventKind::Asked(ask) = &event.kind {
            run.approve(ask).await.unwrap();
        }
        events.push(event);
    }
    let text = run
        .await
        .unwrap()
        .history()
        .calls()
        .next()
        .unwrap()
        .1
        .text()
        .into_owned();
    (events, text, seen)
}

const RETURNED: &str =
    "****, found; this call is not allowed: `words` blocked the call: once is enough; ***";

#[tokio::test]
async fn program_calls_are_checked() {
    let tool = look_up("hush, found");
    let (events, text, seen) = run(tool.clone()).await;
    assert_eq!(args(&tool), [json!({"what": "**** 0"})]);
    assert_eq!(text, RETURNED);
    assert_eq!(
        seen.texts(Stage::Call),
        ["{}", r#"{"what":"hush 0"}"#, r#"{"what":"hush 1"}"#]
    );
    let who: Vec<_> = interventions(&events)
        .into_iter()
        .map(|by| (by.stage, by.blocked.is_some()))
        .collect();
    let mut expected = [
        (Stage::Call, false),
        (Stage::Result, false),
        (Stage::Call, true),
        (Stage::Result, false),
    ];
    expected.sort();
    let mut who = who;
    who.sort();
    assert_eq!(who, expected);
}

#[tokio::test]
async fn program_calls_are_checked_before_approval() {
    let tool = RecordingTool::new("look_up", |_| Ok(ToolOutput::text("hush, found")));
    let (events, text, _) = run(tool.with_hints(Hints::new().destructive())).await;
    assert_eq!(text, RETURNED);
    let asked = events
        .iter()
        .filter(|event| matches!(event.kind, EventKind::Asked(_)))
        .count();
    assert_eq!(asked, 1, "nobody is asked about what is blocked");
}
