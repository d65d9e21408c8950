//! The retained long results of a run are limited.

use std::sync::Arc;

use levity_core::{
    Effect, EffectId, Input, Machine as _, MachineOutput, Message, Outcome, Part, Response, Role,
    RunId, ToolCall, ToolOutput, ToolResult,
};
use levity_loop::{Agent, AgentMachine};
use levity_test::{RecordingTool, ScriptedModel};
use serde_json::{Value, json};

fn machine() -> (AgentMachine, (EffectId, Effect)) {
    let tool = RecordingTool::new("flood", |_| Ok(ToolOutput::text("not called")));
    let agent = Agent::builder(ScriptedModel::new())
        .tool(tool)
        .build()
        .unwrap();
    let mut machine = agent.machine("Go.");
    let mut step = MachineOutput::new();
    machine.apply(
        Input::Begin {
            run: RunId::new("r"),
            wrap: None,
        },
        &mut step,
    );
    (machine, step.effects.remove(0))
}

fn feed(machine: &mut AgentMachine, effect: EffectId, outcome: Outcome) -> Vec<(EffectId, Effect)> {
    let mut step = MachineOutput::new();
    machine.apply(Input::Finished { effect, outcome }, &mut step);
    step.effects
}

/// Makes the model call a tool with these ids and arguments.
fn reply(
    machine: &mut AgentMachine,
    effect: EffectId,
    calls: Vec<ToolCall>,
) -> Vec<(EffectId, Effect)> {
    let message = Message::new(Role::Assistant, calls.into_iter().map(Part::ToolCall));
    feed(machine, effect, Outcome::Model(Ok(Response::new(message))))
}

/// Answers calls with results that retain `whole`, and returns the next effects of the machine.
fn answer(
    machine: &mut AgentMachine,
    calls: Vec<(EffectId, Effect)>,
    whole: &Arc<str>,
) -> (EffectId, Effect) {
    let mut next = Vec::new();
    for (id, effect) in calls {
        let Effect::Tool(run) = effect else {
            panic!("{effect:?}")
        };
        let mut result = ToolResult::new(&run.call, Ok(ToolOutput::text("shown")));
        result.whole = Some(whole.clone());
        next = feed(machine, id, Outcome::Tool(result));
    }
    next.remove(0)
}

fn reads(effect: &Effect) -> bool {
    matches!(effect, Effect::Model(call) if call.reads)
}

fn floods(ids: std::ops::Range<usize>) -> Vec<ToolCall> {
    ids.map(|n| ToolCall::new(format!("f{n}"), "flood", json!({})))
        .collect()
}

fn read(id: usize) -> ToolCall {
    let args: Value = json!({"id": format!("f{id}"), "length": 4});
    ToolCall::new(format!("r{id}"), "read_result", args)
}

#[test]
fn oldest_long_results_are_dropped_beyond_limit() {
    let whole: Arc<str> = "é".repeat(4 << 20).into();
    let (mut machine, (id, first)) = machine();
    assert!(!reads(&first));
    let calls = reply(&mut machine, id, floods(0..2));
    let (id, next) = answer(&mut machine, calls, &whole);
    assert!(reads(&next));
    let calls = reply(&mut machine, id, floods(2..12));
    let (id, _) = answer(&mut machine, calls, &whole);
    assert_eq!(machine.history().retained_bytes(), 64 << 20);

    let next = reply(&mut machine, id, (0..12).map(read).collect());
    assert!(
        matches!(&next[..], [(_, effect)] if reads(effect)),
        "the loop answers by itself"
    );
    for n in 0..12 {
        let call = format!("r{n}");
        let result = machine
            .history()
            .calls()
            .find(|(known, _)| known.id.as_str() == call);
        let text = result
            .map(|(_, result)| result.text().into_owned())
            .unwrap();
        let expected = match n {
            0..4 => format!(
                "nothing is kept under `f{n}` any more; make the call that returned it again"
            ),
            _ => format!("éé\n[bytes 0 to 4 of {}; read on at 4]", 8 << 20),
        };
        assert_eq!(text, expected, "{n}");
    }
}

#[test]
fn reader_is_not_offered_before_first_long_result() {
    let (mut machine, (id, _)) = machine();
    let next = reply(&mut machine, id, vec![read(0)]);
    assert!(matches!(&next[..], [(_, Effect::Tool(run))] if run.call.name == "read_result"));
}
