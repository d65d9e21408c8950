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
        limits: Limits::new(),
        problem: None,
    }
}

#[tokio::test]
async fn it_keeps_the_contract() {
    for variants in [&["f()"][..], &["f()", "1"], &[]] {
        conformance::machine(|| PythonMachine::new(setup(variants))).await;
        let restore = |saved: Value| PythonMachine::restore(&saved).unwrap();
        conformance::machine_restored(|| PythonMachine::new(setup(variants)), restore).await;
    }
}

fn begun(machine: &mut PythonMachine) -> Step {
    let mut step = Step::new();
    machine.apply(Input::Begin { run: RunId::new("r"), wrap: None }, &mut step);
    step
}

fn feed(machine: &mut PythonMachine, effect: EffectId, outcome: Outcome) -> Vec<(EffectId, Effect)> {
    let mut step = Step::new();
    machine.apply(Input::Finished { effect, outcome }, &mut step);
    step.effects
}

fn ran(effect: &Effect, end: End) -> Outcome {
    let Effect::Tool(run) = effect else { panic!("a stretch is a tool call: {effect:?}") };
    let stretch = Stretch { end, printed: Printed::default(), time: Duration::from_millis(1) };
    let output = levity_core::ToolOutput::value(serde_json::to_value(stretch).unwrap());
    Outcome::Tool(ToolResult::new(&run.call, Ok(output)))
}

fn wanted(id: u32) -> crate::engine::Wanted {
    crate::engine::Wanted { id, tool: "f".to_owned(), args: Map::new() }
}

#[test]
fn calls_side_by_side_go_on_once_all_are_answered() {
    let mut machine = PythonMachine::new(setup(&["code"]));
    let first = begun(&mut machine).effects.remove(0);
    let paused = End::Paused { state: "s".to_owned(), awaits: true, calls: vec![wanted(4), wanted(9)] };
    let calls = feed(&mut machine, first.0, ran(&first.1, paused));
    assert_eq!(calls.len(), 2);
    let none = feed(&mut machine, calls[1].0, Outcome::Denied { reason: "no".to_owned() });
    assert!(none.is_empty());
    let next = feed(&mut machine, calls[0].0, Outcome::Unknown);
    let [(_, Effect::Tool(run))] = &next[..] else { panic!("{next:?}") };
    let answers = &run.call.args["from"]["snapshot"]["answers"];
    assert_eq!(answers[0][0], 4);
    assert_eq!(answers[1], json!([9, {"error": "this call is not allowed: no"}]));
}

#[test]
fn a_question_stands_between_a_call_and_its_answer() {
    let mut machine = PythonMachine::new(setup(&["code"]));
    let first = begun(&mut machine).effects.remove(0);
    let paused = End::Paused { state: "s".to_owned(), awaits: false, calls: vec![wanted(1)] };
    let call = feed(&mut machine, first.0, ran(&first.1, paused)).remove(0);
    let ask = feed(&mut machine, call.0, Outcome::NeedsApproval { reason: "why".to_owned() }).remove(0);
    assert!(matches!(&ask.1, Effect::Ask(ask) if ask.call.name == "f"));
    let edit = Outcome::Decision(Decision::Edit { args: json!({"a": 1}) });
    let again = feed(&mut machine, ask.0, edit).remove(0);
    assert!(matches!(&again.1, Effect::Tool(run) if run.approved && run.call.args == json!({"a": 1})));
}
