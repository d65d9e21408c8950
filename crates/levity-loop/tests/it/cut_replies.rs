//! Replies that were cut, and requests that were too large for the model.

use levity_core::{
    Effect, EffectId, EventKind, Finish, Input, Machine as _, MachineOutput, Message, ModelCall,
    Options, Outcome, Part, Response, Role, RunId, Status, ToolCall, ToolOutput, ToolResult, Usage,
};
use levity_loop::{Agent, AgentMachine};
use levity_test::{RecordingTool, ScriptedModel};
use serde_json::json;

fn agent(max_tokens: Option<u64>) -> Agent {
    let tool = RecordingTool::new("add", |_| Ok(ToolOutput::text("7")));
    let mut options = Options::default();
    options.max_tokens = max_tokens;
    Agent::builder(ScriptedModel::new())
        .tool(tool)
        .options(options)
        .without_summaries()
        .build()
        .unwrap()
}

fn begun(agent: &Agent) -> (AgentMachine, EffectId) {
    let mut machine = agent.machine("Go.");
    let mut step = MachineOutput::new();
    machine.apply(
        Input::Begin {
            run: RunId::new("r"),
            wrap: None,
        },
        &mut step,
    );
    (machine, step.effects.remove(0).0)
}

/// Feeds an outcome, and returns the next effect and the events.
fn feed(
    machine: &mut AgentMachine,
    effect: EffectId,
    outcome: Outcome,
) -> (Option<(EffectId, Effect)>, Vec<EventKind>) {
    let mut step = MachineOutput::new();
    machine.apply(Input::Finished { effect, outcome }, &mut step);
    (step.effects.into_iter().next(), step.events)
}

fn reply_outcome(part: Part, finish: Finish, output: u64) -> Outcome {
    let mut usage = Usage::default();
    usage.output = Some(output);
    let response = Response::new(Message::new(Role::Assistant, [part])).with_finish(finish);
    Outcome::Model(Ok(response.with_usage(usage)))
}

fn cut_call() -> Part {
    Part::ToolCall(ToolCall::from_text("c1", "add", "{\"a\": [1, 2, 3"))
}

fn asked(effect: &Effect) -> &ModelCall {
    match effect {
        Effect::Model(call) => call,
        other => panic!("{other:?}"),
    }
}

fn notes(events: &[EventKind]) -> Vec<&str> {
    let notes = events.iter().filter_map(|event| match event {
        EventKind::Note { text } => Some(&**text),
        _ => None,
    });
    notes.collect()
}

#[test]
fn limit_that_cuts_call_is_raised_once() {
    let agent = agent(Some(64));
    let (mut machine, first) = begun(&agent);
    let (next, events) = feed(
        &mut machine,
        first,
        reply_outcome(cut_call(), Finish::Length, 64),
    );
    let (second, effect) = next.unwrap();
    let request = &asked(&effect).request;
    assert_eq!(request.options.max_tokens, Some(256));
    assert!(
        request
            .history
            .messages()
            .iter()
            .all(|message| message.calls().next().is_none()),
        "it is not sent"
    );
    assert!(notes(&events)[0].contains("256 tokens"), "{events:?}");
    // The state as after a restart of the program.
    let mut machine = agent.restore(&machine.save()).unwrap();
    let (next, _) = feed(
        &mut machine,
        second,
        reply_outcome(cut_call(), Finish::Length, 256),
    );
    let (tool, effect) = next.unwrap();
    let Effect::Tool(run) = &effect else {
        panic!("{effect:?}")
    };
    let result = ToolResult::new(&run.call, Ok(ToolOutput::text("7")));
    let (next, _) = feed(&mut machine, tool, Outcome::Tool(result));
    assert_eq!(
        asked(&next.unwrap().1).request.options.max_tokens,
        Some(256),
        "it stays raised"
    );
}

#[test]
fn complete_call_of_cut_reply_is_made() {
    let (mut machine, first) = begun(&agent(Some(64)));
    let call = Part::ToolCall(ToolCall::new("c1", "add", json!({"a": 1})));
    let (next, _) = feed(&mut machine, first, reply_outcome(call, Finish::Length, 64));
    assert!(matches!(next, Some((_, Effect::Tool(_)))), "{next:?}");
}

#[test]
fn answer_cut_by_limit_is_the_answer() {
    let (mut machine, first) = begun(&agent(Some(64)));
    let (next, _) = feed(
        &mut machine,
        first,
        reply_outcome(Part::text("It is"), Finish::Length, 64),
    );
    assert!(next.is_none());
    assert_eq!(machine.ending().unwrap().status, Status::Complete);
}

/// Returns a run whose first tool returned some 12,000 tokens: the machine, and the model call
/// about it.
fn with_long_result() -> (AgentMachine, EffectId, usize) {
    let (mut machine, first) = begun(&agent(None));
    let call = ToolCall::new("c1", "add", json!({}));
    let (next, _) = feed(
        &mut machine,
        first,
        reply_outcome(Part::ToolCall(call.clone()), Finish::ToolCalls, 8),
    );
    let text = "one two three four ".repeat(2_500);
    let result = ToolResult::new(&call, Ok(ToolOutput::text(text)));
    let (next, _) = feed(&mut machine, next.unwrap().0, Outcome::Tool(result));
    let (id, effect) = next.unwrap();
    (machine, id, size(&effect))
}

fn size(effect: &Effect) -> usize {
    let messages = asked(effect).request.history.messages();
    messages
        .iter()
        .flat_map(|message| message.results().map(|result| result.text().len()))
        .sum()
}

#[test]
fn reply_without_room_is_retried_with_smaller_request() {
    for (part, finish, output) in [
        (Part::text(""), Finish::Stop, 0),
        (Part::text("The resu"), Finish::Length, 3),
        (cut_call(), Finish::Length, 9),
    ] {
        let (mut machine, asks, whole) = with_long_result();
        let (next, events) = feed(
            &mut machine,
            asks,
            reply_outcome(part.clone(), finish, output),
        );
        let (last, effect) = next.unwrap();
        assert!(
            size(&effect) < whole * 3 / 4,
            "{part:?}: {} of {whole}",
            size(&effect)
        );
        assert!(
            events
                .iter()
                .any(|event| matches!(event, EventKind::Compacted(_))),
            "{events:?}"
        );
        assert_eq!(notes(&events).len(), 1, "{events:?}");
        let (next, _) = feed(
            &mut machine,
            last,
            reply_outcome(Part::text("Done."), Finish::Stop, 2),
        );
        assert!(next.is_none());
        assert_eq!(machine.ending().unwrap().text, "Done.");
    }
}

#[test]
fn long_cut_reply_does_not_shrink_request() {
    let (mut machine, asks, _) = with_long_result();
    let (next, _) = feed(
        &mut machine,
        asks,
        reply_outcome(Part::text("A long text"), Finish::Length, 8_192),
    );
    assert!(next.is_none());
    assert_eq!(machine.ending().unwrap().text, "A long text");
}
