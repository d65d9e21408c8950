use levity_core::Decision;
use levity_test::conformance;
use serde_json::json;

use super::*;

fn setup(variants: &[&str]) -> Setup {
    Setup {
        name: "run_python".to_owned(),
        variants: variants.iter().map(|code| (*code).to_owned()).collect(),
        inputs: Map::new(),
        functions: vec![Function {
            name: "f".to_owned(),
            tool: "f".to_owned(),
            params: Vec::new(),
            json: false,
        }],
        limits: ProgramLimits::new(),
        problem: None,
    }
}

#[tokio::test]
async fn python_machine_passes_conformance() {
    for variants in [&["f()"][..], &["f()", "1"], &[]] {
        conformance::machine(|| PythonMachine::new(setup(variants))).await;
        let restore = |saved: Value| PythonMachine::restore(&saved).unwrap();
        conformance::machine_restored(|| PythonMachine::new(setup(variants)), restore).await;
        conformance::machine_damaged(
            || PythonMachine::new(setup(variants)),
            PythonMachine::restore,
        )
        .await;
    }
}

fn begun(machine: &mut PythonMachine) -> MachineOutput {
    let mut step = MachineOutput::new();
    machine.apply(
        Input::Begin {
            run: RunId::new("r"),
            wrap: None,
        },
        &mut step,
    );
    step
}

fn feed(
    machine: &mut PythonMachine,
    effect: EffectId,
    outcome: Outcome,
) -> Vec<(EffectId, Effect)> {
    let mut step = MachineOutput::new();
    machine.apply(Input::Finished { effect, outcome }, &mut step);
    step.effects
}

fn ran(effect: &Effect, end: End) -> Outcome {
    let Effect::Tool(run) = effect else {
        panic!("a segment is a tool call: {effect:?}")
    };
    let segment = Segment {
        end,
        printed: PrintedText::default(),
        time: Duration::from_millis(1),
    };
    let output = levity_core::ToolOutput::value(serde_json::to_value(segment).unwrap());
    Outcome::Tool(ToolResult::new(&run.call, Ok(output)))
}

fn pending_call(id: u32) -> crate::engine::PendingCall {
    crate::engine::PendingCall {
        id,
        tool: "f".to_owned(),
        args: Map::new(),
    }
}

#[test]
fn parallel_calls_resume_program_after_all_answers() {
    let mut machine = PythonMachine::new(setup(&["code"]));
    let first = begun(&mut machine).effects.remove(0);
    let paused = End::Paused {
        state: "s".to_owned(),
        awaits: true,
        calls: vec![pending_call(4), pending_call(9)],
    };
    let calls = feed(&mut machine, first.0, ran(&first.1, paused));
    assert_eq!(calls.len(), 2);
    let none = feed(
        &mut machine,
        calls[1].0,
        Outcome::Denied {
            reason: "no".to_owned(),
        },
    );
    assert!(none.is_empty());
    let next = feed(&mut machine, calls[0].0, Outcome::Unknown);
    let [(_, Effect::Tool(run))] = &next[..] else {
        panic!("{next:?}")
    };
    let answers = &run.call.args["from"]["snapshot"]["answers"];
    assert_eq!(answers[0][0], 4);
    assert_eq!(
        answers[1],
        json!([9, {"error": "this call is not allowed: no"}])
    );
}

#[test]
fn call_with_question_waits_for_decision() {
    let mut machine = PythonMachine::new(setup(&["code"]));
    let first = begun(&mut machine).effects.remove(0);
    let paused = End::Paused {
        state: "s".to_owned(),
        awaits: false,
        calls: vec![pending_call(1)],
    };
    let call = feed(&mut machine, first.0, ran(&first.1, paused)).remove(0);
    let ask = feed(
        &mut machine,
        call.0,
        Outcome::NeedsApproval {
            reason: "why".to_owned(),
        },
    )
    .remove(0);
    assert!(matches!(&ask.1, Effect::Ask(ask) if ask.call.name == "f"));
    let edit = Outcome::Decision(Decision::Edit {
        args: json!({"a": 1}),
    });
    let again = feed(&mut machine, ask.0, edit).remove(0);
    assert!(
        matches!(&again.1, Effect::Tool(run) if run.approved && run.call.args == json!({"a": 1}))
    );
}

/// A run whose first variant fails after a call. The second variant makes two calls, one of which
/// needs approval.
fn long_run() -> Vec<Input> {
    let mut machine = PythonMachine::new(setup(&["one", "two"]));
    let mut inputs = vec![Input::Begin {
        run: RunId::new("r"),
        wrap: None,
    }];
    let mut open = begun(&mut machine).effects;
    let mut finish =
        |at: usize, open: &mut Vec<(EffectId, Effect)>, outcome: &dyn Fn(&Effect) -> Outcome| {
            let (effect, what) = open.remove(at);
            let outcome = outcome(&what);
            inputs.push(Input::Finished {
                effect,
                outcome: outcome.clone(),
            });
            open.extend(feed(&mut machine, effect, outcome));
        };
    let paused = |calls: Vec<_>| End::Paused {
        state: "s".to_owned(),
        awaits: true,
        calls,
    };
    let answer = |effect: &Effect| {
        let Effect::Tool(run) = effect else {
            panic!("it is a call: {effect:?}")
        };
        Outcome::Tool(ToolResult::new(
            &run.call,
            Ok(levity_core::ToolOutput::text("7")),
        ))
    };
    finish(0, &mut open, &|effect| {
        ran(effect, paused(vec![pending_call(4)]))
    });
    finish(0, &mut open, &answer);
    finish(0, &mut open, &|effect| {
        ran(
            effect,
            End::Failed(ProgramFault::new(ProgramFaultKind::Raised, "no")),
        )
    });
    finish(0, &mut open, &|effect| {
        ran(effect, paused(vec![pending_call(1), pending_call(2)]))
    });
    finish(1, &mut open, &|_| Outcome::NeedsApproval {
        reason: "why".to_owned(),
    });
    finish(0, &mut open, &answer);
    finish(0, &mut open, &|_| Outcome::Decision(Decision::Allow));
    finish(0, &mut open, &answer);
    finish(0, &mut open, &|effect| {
        ran(
            effect,
            End::Done {
                result: json!(14),
                cut: false,
            },
        )
    });
    assert!(
        machine
            .ending()
            .is_some_and(|ending| ending.status == Status::Complete)
    );
    inputs
}

#[tokio::test]
async fn machine_resumes_from_state_saved_between_calls() {
    let make = || PythonMachine::new(setup(&["one", "two"]));
    let restore = |saved: Value| PythonMachine::restore(&saved).unwrap();
    conformance::machine_restored_along(make, restore, long_run()).await;
}
