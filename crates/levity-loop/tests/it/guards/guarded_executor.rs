//! Guards around an executor that does not belong to an agent.

use levity_core::{
    Child, ChildRun, Effect, EffectClass, EffectCx, EffectId, Ending, Eventual, Executor, Input,
    Limits, Machine, MachineKind, MachineOutput, ModelCall, Offer, Outcome, Permit, PrepareCx,
    Prepared, Request, Response, Role, Status, ToolCall, ToolError, ToolResult, ToolRun,
};
use levity_loop::Guarded;
use levity_runtime::MachineRun;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::*;

/// A machine that requests a model call, a tool call and a child in turn, and ends with their
/// outcomes.
#[derive(Debug, Default, Serialize, Deserialize)]
struct ThreeEffects {
    came: Vec<String>,
    ending: Option<Ending>,
}

fn call() -> ToolCall {
    ToolCall::new("c", "tool", json!({"what": "hush tool"}))
}

impl Machine for ThreeEffects {
    fn kind(&self) -> MachineKind {
        MachineKind::new("three", 1)
    }

    fn save(&self) -> Value {
        json!(self)
    }

    fn apply(&mut self, input: Input, step: &mut MachineOutput) {
        match input {
            Input::Begin { .. } => {
                let call = ModelCall::new("main", Request::new(), Offer::None);
                step.request(EffectId::new(0), Effect::Model(call));
            }
            Input::Finished { outcome, .. } => {
                self.came.push(match outcome {
                    Outcome::Model(Ok(response)) => response.message.text().into_owned(),
                    Outcome::Tool(result) => result.text().into_owned(),
                    Outcome::Child(ending) => format!("{} ({})", ending.text, ending.status),
                    other => format!("{other:?}"),
                });
                let child = ChildRun::new("below", json!({"what": "hush child"}));
                match self.came.len() {
                    1 => step.request(EffectId::new(1), Effect::Tool(ToolRun::new(call()))),
                    2 => step.request(EffectId::new(2), Effect::Child(child)),
                    _ => self.ending = Some(Ending::new(Status::Complete)),
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

/// A machine that ends at once with its initial text.
#[derive(Serialize, Deserialize)]
struct EndsWithText(String, Option<Ending>);

impl Machine for EndsWithText {
    fn kind(&self) -> MachineKind {
        MachineKind::new("says", 1)
    }

    fn save(&self) -> Value {
        json!(self)
    }

    fn apply(&mut self, _: Input, _: &mut MachineOutput) {
        let mut ending = Ending::new(Status::Complete);
        ending.text = format!("{} hush below", self.0.replace("****", "stars"));
        self.1 = Some(ending);
    }

    fn ending(&self) -> Option<&Ending> {
        self.1.as_ref()
    }
}

/// An executor without any parts of an agent, and its received inputs.
#[derive(Clone, Default)]
struct PlainExecutor(Arc<Mutex<Vec<String>>>, Option<&'static str>);

impl PlainExecutor {
    fn given(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

#[async_trait]
impl Executor for PlainExecutor {
    fn prepare(&self, effect: &Effect, _: &PrepareCx) -> Eventual<Prepared> {
        let prepared = Prepared::new(EffectClass::ReadOnly);
        match (effect, self.1) {
            (Effect::Tool(_), Some(reason)) => prepared.permit(Permit::ask(reason)).into(),
            _ => prepared.into(),
        }
    }

    async fn execute(&self, effect: Effect, cx: EffectCx) -> Outcome {
        match effect {
            Effect::Model(_) => {
                cx.live.send(EventKind::Delta {
                    effect: cx.effect,
                    delta: Delta::Text("hush".into()),
                });
                // The call is checked when it is made, and unchanged here.
                let parts = [Part::text("hush model"), Part::ToolCall(call())];
                Outcome::Model(Ok(Response::new(Message::new(Role::Assistant, parts))))
            }
            Effect::Tool(run) => {
                self.0.lock().unwrap().push(run.call.args.to_string());
                Outcome::Tool(ToolResult::new(
                    &run.call,
                    Ok(ToolOutput::text("hush result")),
                ))
            }
            _ => Outcome::Unknown,
        }
    }

    async fn child(&self, child: &ChildRun, saved: Option<&Value>) -> Result<Child, ToolError> {
        let machine = match saved {
            Some(saved) => EndsWithText::deserialize(saved).unwrap(),
            None => EndsWithText(child.input.to_string(), None),
        };
        if saved.is_none() {
            self.0.lock().unwrap().push(machine.0.clone());
        }
        Ok(Child::new(
            machine,
            Arc::new(Self::default()),
            Limits::new(),
        ))
    }
}

fn stars(stages: &[Stage], seen: &SeenItems) -> Probe {
    probe("stars", stages, seen, |subject| {
        swap(subject, "hush", "****")
    })
}

/// Returns the machine, the inputs of the executor, the events, and the journal.
async fn driven(
    own: PlainExecutor,
    guarded: Guarded,
) -> (ThreeEffects, Vec<String>, Vec<Event>, String) {
    let ((runtime, journal), id) = (runtime(), RunId::new("r"));
    let job = MachineRun::new(ThreeEffects::default(), Arc::new(guarded)).id(id.clone());
    let mut run = runtime.start(job.audit(|_, _| async { Ok(ThreeEffects::default()) }));
    let (mut stream, mut events) = (run.events(), Vec::new());
    while let Some(event) = stream.next().await {
        events.push(event);
    }
    let machine = run.await.unwrap().machine;
    let below = id.child(EffectId::new(2));
    (
        machine,
        own.given(),
        events,
        written(&journal, &id) + &written(&journal, &below),
    )
}

#[tokio::test]
async fn guarded_executor_checks_replies_calls_results_and_children() {
    let (own, seen) = (PlainExecutor::default(), SeenItems::default());
    let guarded = Guarded::new(own.clone()).guard(stars(&ALL, &seen));
    let (machine, given, events, kept) = driven(own, guarded).await;
    assert_eq!(
        given,
        [r#"{"what":"**** tool"}"#, r#"{"what":"**** child"}"#]
    );
    let below = r#"{"what":"stars child"} **** below (complete)"#;
    assert_eq!(machine.came, ["**** model", "**** result", below]);
    assert!(
        !kept.contains("hush model") && !kept.contains("hush result"),
        "{kept}"
    );
    let told = serde_json::to_string(&events).unwrap();
    assert!(
        told.contains("**** model")
            && !told.contains("hush model")
            && !told.contains("hush result"),
        "{told}"
    );
    let stages: Vec<_> = interventions(&events)
        .into_iter()
        .map(|by| by.stage)
        .collect();
    assert_eq!(
        stages,
        [
            Stage::Answer,
            Stage::Call,
            Stage::Result,
            Stage::Call,
            Stage::Result
        ]
    );
    let of_input = events
        .iter()
        .filter(|event| matches!(event.kind, EventKind::Guarded { effect: None, .. }));
    let runs: Vec<_> = of_input.map(|event| event.run.clone()).collect();
    assert_eq!(
        runs,
        [RunId::new("r").child(EffectId::new(2))],
        "the run that was given something else"
    );
    assert_eq!(seen.texts(Stage::Call).len(), 2);
}

#[tokio::test]
async fn guarded_executor_makes_no_blocked_call_or_child() {
    let own = PlainExecutor::default();
    let block = probe("strict", &[Stage::Call], &SeenItems::default(), |_| {
        Verdict::block("not here")
    });
    let (machine, given, ..) = driven(own.clone(), Guarded::new(own).guard(block)).await;
    assert!(given.is_empty(), "{given:?}");
    assert!(
        machine.came[1].contains("not here") && machine.came[2].contains("not here"),
        "{:?}",
        machine.came
    );
}

#[tokio::test]
async fn guarded_executor_leaves_approval_to_runtime() {
    let own = PlainExecutor(Arc::default(), Some("it is dear"));
    let (machine, given, ..) = driven(
        own.clone(),
        Guarded::new(own).guard(stars(&ALL, &SeenItems::default())),
    )
    .await;
    assert!(machine.came[1].contains("it is dear"), "{:?}", machine.came);
    assert_eq!(
        given,
        [r#"{"what":"**** child"}"#],
        "nobody was asked, so it was not called"
    );
}

#[tokio::test]
async fn nested_guarded_executors_both_check() {
    let (own, seen) = (PlainExecutor::default(), SeenItems::default());
    let inner = Guarded::new(own.clone()).guard(stars(&ALL, &seen));
    let outer = probe("outer", &ALL, &seen, |subject| {
        swap(subject, "****", "++++")
    });
    let guarded = Guarded::new(inner).guard(outer);
    let screener = guarded.inspect().screener.unwrap();
    let said = Arc::new(Message::user("hush"));
    let levity_core::ScreenVerdict::Passed(message, by) =
        screener.message(&RunId::new("r"), said).await
    else {
        panic!("nobody blocks it")
    };
    assert_eq!(
        (&*message.text(), by.len()),
        ("****", 1),
        "what goes in meets the outer one first"
    );
    let names: Vec<String> = guarded
        .inspect()
        .setup
        .into_iter()
        .map(|(name, _)| name)
        .collect();
    assert_eq!(names, ["the guards", "the guards"]);
    let (machine, given, events, _) = driven(own, guarded).await;
    assert_eq!(given[0], r#"{"what":"**** tool"}"#);
    assert_eq!(machine.came[..2], ["++++ model", "++++ result"]);
    assert!(
        machine.came[2].ends_with("++++ below (complete)"),
        "{:?}",
        machine.came
    );
    let by: Vec<_> = interventions(&events)
        .into_iter()
        .map(|by| by.guard.to_string())
        .collect();
    assert_eq!(
        by,
        [
            "stars", "outer", "stars", "stars", "outer", "stars", "stars", "outer"
        ]
    );
}

#[tokio::test]
async fn guarded_executor_screens_messages_to_its_run() {
    /// A machine that ends with the first message.
    #[derive(Debug, Default)]
    struct EndsOnMessage(Option<Ending>);

    impl Machine for EndsOnMessage {
        fn kind(&self) -> MachineKind {
            MachineKind::new("listens", 1)
        }

        fn save(&self) -> Value {
            json!(self.0)
        }

        fn apply(&mut self, input: Input, step: &mut MachineOutput) {
            match input {
                Input::Begin { .. } => {
                    let wait = levity_core::Wait::new(Duration::from_secs(3_600));
                    step.request(EffectId::new(0), Effect::Wait(wait));
                }
                Input::Say(message) => {
                    let mut ending = Ending::new(Status::Complete);
                    ending.text = message.text().into_owned();
                    self.0 = Some(ending);
                }
                _ => {}
            }
        }

        fn ending(&self) -> Option<&Ending> {
            self.0.as_ref()
        }
    }

    let words = probe(
        "words",
        &[Stage::Input],
        &SeenItems::default(),
        |subject| match subject.text().contains("never") {
            true => Verdict::block("no such word"),
            false => swap(subject, "hush", "****"),
        },
    );
    let journal = MemoryJournal::new();
    let runtime = Runtime::new()
        .with_journal(journal.clone())
        .with_world(ManualWorld::new());
    let guarded = Arc::new(
        Guarded::new(PlainExecutor::default())
            .guard(words)
            .world(Arc::new(ManualWorld::new())),
    );
    let run = runtime.start(MachineRun::new(EndsOnMessage::default(), guarded).id(RunId::new("r")));
    let control = run.control().clone();
    let blocked = control.send_message("never").await.unwrap_err();
    assert!(matches!(blocked, ControlError::Blocked { .. }), "{blocked}");
    control.send_message("hush now").await.unwrap();
    assert_eq!(run.await.unwrap().machine.0.unwrap().text, "**** now");
    let kept = written(&journal, &RunId::new("r"));
    assert!(!kept.contains("hush") && !kept.contains("never"), "{kept}");
}
