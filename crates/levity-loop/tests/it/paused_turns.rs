//! Turns that a provider interrupts, and empty replies.

use levity_core::{
    Effect, EffectId, Finish, Input, Limit, Machine as _, MachineOutput, Media, Message, ModelCall,
    Outcome, Part, Response, Role, RunId, Status, ToolCall, ToolOutput, ToolResult,
};
use levity_loop::{Agent, AgentMachine};
use levity_test::{RecordingTool, ScriptedModel};
use serde_json::json;

fn agent() -> Agent {
    let tool = RecordingTool::new("add", |_| Ok(ToolOutput::text("7")));
    Agent::builder(ScriptedModel::new())
        .tool(tool)
        .max_turns(2)
        .build()
        .unwrap()
}

fn begun() -> (AgentMachine, (EffectId, Effect)) {
    let mut machine = agent().machine("Go.");
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

fn feed(
    machine: &mut AgentMachine,
    effect: EffectId,
    outcome: Outcome,
) -> Option<(EffectId, Effect)> {
    let mut step = MachineOutput::new();
    machine.apply(Input::Finished { effect, outcome }, &mut step);
    step.effects.into_iter().next()
}

fn reply(
    machine: &mut AgentMachine,
    effect: EffectId,
    part: Part,
    finish: Finish,
) -> Option<(EffectId, Effect)> {
    let response = Response::new(Message::new(Role::Assistant, [part])).with_finish(finish);
    feed(machine, effect, Outcome::Model(Ok(response)))
}

fn asked(effect: &Effect) -> &ModelCall {
    match effect {
        Effect::Model(call) => call,
        other => panic!("{other:?}"),
    }
}

fn roles(effect: &Effect) -> Vec<Role> {
    asked(effect)
        .request
        .history
        .messages()
        .iter()
        .map(|message| message.role)
        .collect()
}

#[test]
fn paused_turn_continues_with_nothing_behind_it() {
    let (mut machine, (first, _)) = begun();
    let (second, effect) = reply(&mut machine, first, Part::text("One, "), Finish::Paused).unwrap();
    assert_eq!(roles(&effect), [Role::User, Role::Assistant]);
    // A message of the user waits for the end of the turn.
    machine.apply(
        Input::Say(Message::user("Hurry.").into()),
        &mut MachineOutput::new(),
    );
    let (third, effect) = reply(&mut machine, second, Part::text("two, "), Finish::Paused).unwrap();
    assert_eq!(
        roles(&effect),
        [Role::User, Role::Assistant, Role::Assistant]
    );
    // The state as after a restart of the program.
    let mut machine = agent().restore(&machine.save()).unwrap();
    let (last, effect) = reply(&mut machine, third, Part::text("three."), Finish::Stop).unwrap();
    assert_eq!(
        roles(&effect)[3..5],
        [Role::Assistant, Role::User],
        "now it is told"
    );
    reply(&mut machine, last, Part::text("Done."), Finish::Stop);
    let ending = machine.ending().unwrap();
    assert_eq!(
        (&*ending.text, ending.stats.turns, ending.stats.model_calls),
        ("Done.", 2, 4)
    );
}

#[test]
fn answer_has_all_text_of_paused_turn() {
    let (mut machine, (first, _)) = begun();
    let (second, _) = reply(&mut machine, first, Part::text("One, "), Finish::Paused).unwrap();
    let (third, _) = reply(&mut machine, second, Part::text("two, "), Finish::Paused).unwrap();
    assert!(reply(&mut machine, third, Part::text("three."), Finish::Stop).is_none());
    let ending = machine.ending().unwrap();
    assert_eq!(
        (&ending.status, &*ending.text, ending.stats.turns),
        (&Status::Complete, "One, two, three.", 1)
    );
}

#[test]
fn calls_after_pause_are_made() {
    let (mut machine, (first, _)) = begun();
    let (second, _) = reply(&mut machine, first, Part::text("I look."), Finish::Paused).unwrap();
    let call = ToolCall::new("c1", "add", json!({}));
    let (tool, effect) = reply(
        &mut machine,
        second,
        Part::ToolCall(call.clone()),
        Finish::ToolCalls,
    )
    .unwrap();
    assert!(matches!(effect, Effect::Tool(_)));
    let result = ToolResult::new(&call, Ok(ToolOutput::text("7")));
    let (last, effect) = feed(&mut machine, tool, Outcome::Tool(result)).unwrap();
    let expected = [Role::User, Role::Assistant, Role::Assistant, Role::Tool];
    assert_eq!(roles(&effect)[..4], expected);
    reply(&mut machine, last, Part::text("It is 7."), Finish::Stop);
    let ending = machine.ending().unwrap();
    assert_eq!(
        (&ending.status, &*ending.text),
        (&Status::BestEffort(Limit::Turns), "It is 7.")
    );
}

#[test]
fn endless_pauses_fail_run_and_retain_text() {
    let (mut machine, (mut effect, _)) = begun();
    let mut pauses = 0;
    while let Some((next, _)) = reply(&mut machine, effect, Part::text("Hm."), Finish::Paused) {
        (effect, pauses) = (next, pauses + 1);
        assert!(pauses < 100, "it goes on for ever");
    }
    let ending = machine.ending().unwrap();
    assert!(
        matches!(ending.status, Status::Failed(_)),
        "{:?}",
        ending.status
    );
    assert_eq!((pauses, &*ending.text), (16, "Hm."));
}

#[test]
fn media_alone_is_an_answer() {
    for mime in ["image/png", "audio/wav", "video/mp4", "application/pdf"] {
        let (mut machine, (first, _)) = begun();
        let media = Part::Media(Media::bytes(mime, vec![1]));
        assert!(
            reply(&mut machine, first, media, Finish::Stop).is_none(),
            "{mime}"
        );
        let ending = machine.ending().unwrap();
        assert_eq!(
            (&ending.status, &*ending.text),
            (&Status::Complete, ""),
            "{mime}"
        );
    }
}

#[test]
fn reply_without_text_or_media_gets_a_reminder() {
    let (mut machine, (first, _)) = begun();
    let (_, effect) = reply(&mut machine, first, Part::thinking("Hm."), Finish::Stop).unwrap();
    assert_eq!(roles(&effect).last(), Some(&Role::System));
}
