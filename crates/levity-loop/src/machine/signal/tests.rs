use std::sync::Arc;

use levity_core::{
    Effect, EffectId, Ending, Input, Limit, Machine, MachineOutput, Message, Offer, Outcome,
    OutputSchema, Part, Response, Role, RunId, Status, ToolCall, ToolErrorKind, ToolOutput,
    ToolResult, ToolSpec,
};
use levity_test::{RecordingTool, ScriptedModel};
use serde_json::{Value, json};

use super::{MAX_SIGNAL_BYTES, MAX_SIGNALS};
use crate::machine::AgentMachine;
use crate::output::OutputCheck;
use crate::{Agent, AgentBuilder};

fn spec(name: &str) -> ToolSpec {
    ToolSpec::new(name, "Tells something.").with_input(json!({
        "type": "object",
        "properties": {"text": {"type": "string"}},
        "required": ["text"],
        "additionalProperties": false,
    }))
}

fn builder() -> AgentBuilder {
    let tool = RecordingTool::new("tool", |_| Ok(ToolOutput::text("ok")));
    Agent::builder(ScriptedModel::new())
        .tool(tool)
        .signal(spec("tell"))
        .ending_signal(spec("pass_on"))
}

fn tell(text: &str) -> Part {
    Part::ToolCall(ToolCall::new("", "tell", json!({"text": text})))
}

fn pass_on(text: &str) -> Part {
    Part::ToolCall(ToolCall::new("", "pass_on", json!({"text": text})))
}

fn tool() -> Part {
    Part::ToolCall(ToolCall::new("", "tool", json!({})))
}

/// A machine in progress, and its requested effects.
struct Play {
    machine: AgentMachine,
    wants: Vec<(EffectId, Effect)>,
}

impl Play {
    fn new(builder: AgentBuilder) -> Self {
        Self::of(builder.build().unwrap().machine("Do it"))
    }

    fn of(machine: AgentMachine) -> Self {
        let mut play = Self {
            machine,
            wants: Vec::new(),
        };
        play.give(Input::Begin {
            run: RunId::new("r"),
            wrap: None,
        });
        play
    }

    fn give(&mut self, input: Input) {
        let mut step = MachineOutput::new();
        self.machine.apply(input, &mut step);
        self.wants.extend(step.effects);
    }

    fn say(&mut self, text: &str) {
        self.give(Input::Say(Arc::new(Message::user(text))));
    }

    /// Feeds a reply of the model.
    fn reply(&mut self, parts: impl IntoIterator<Item = Part>) {
        let (effect, _) = self.take(|effect| matches!(effect, Effect::Model(_)));
        let message = Message::new(Role::Assistant, parts);
        self.give(Input::Finished {
            effect,
            outcome: Outcome::Model(Ok(Response::new(message))),
        });
    }

    fn take(&mut self, is_it: impl Fn(&Effect) -> bool) -> (EffectId, Effect) {
        let at = self
            .wants
            .iter()
            .position(|(_, effect)| is_it(effect))
            .expect("it is wanted");
        self.wants.remove(at)
    }

    /// Returns the results of the model's last calls.
    fn last_results(&self) -> Vec<(Option<ToolErrorKind>, String)> {
        let messages = self.machine.history().messages();
        let last = messages
            .iter()
            .rev()
            .find(|message| message.role == Role::Tool)
            .expect("something was called");
        last.results()
            .map(|result| (result.error, result.text().into_owned()))
            .collect()
    }

    fn recorded(&self) -> Vec<&str> {
        self.machine
            .state
            .tally
            .signals()
            .iter()
            .map(|signal| signal.args["text"].as_str().unwrap())
            .collect()
    }

    fn ending(&self) -> &Ending {
        self.machine.ending().expect("it has ended")
    }
}

fn recorded() -> (Option<ToolErrorKind>, String) {
    (None, "noted".to_owned())
}

#[test]
fn signal_is_recorded_and_run_continues() {
    let mut play = Play::new(builder());
    play.reply([Part::text("First."), tell("a"), tell("b")]);
    assert_eq!(play.last_results(), [recorded(), recorded()]);
    play.reply([tell("c")]);
    play.reply([Part::text("Done.")]);
    let ending = play.ending();
    assert_eq!(
        (&ending.status, &*ending.text, ending.stats.tool_calls),
        (&Status::Complete, "Done.", 3)
    );
    assert_eq!(play.recorded(), ["a", "b", "c"]);
    assert_eq!(ending.signals, play.machine.state.tally.signals());
    assert!(ending.signals.iter().all(|signal| &*signal.name == "tell"));
}

#[test]
fn signal_beside_other_calls_is_recorded_and_calls_are_made() {
    let mut play = Play::new(builder());
    play.reply([tool(), tell("a")]);
    assert_eq!(play.recorded(), ["a"]);
    let (effect, Effect::Tool(run)) = play.take(|effect| matches!(effect, Effect::Tool(_))) else {
        unreachable!()
    };
    let result = ToolResult::new(&run.call, Ok(ToolOutput::text("ok")));
    play.give(Input::Finished {
        effect,
        outcome: Outcome::Tool(result),
    });
    assert_eq!(play.last_results(), [(None, "ok".to_owned()), recorded()]);
}

#[test]
fn signal_with_invalid_arguments_gets_tool_error() {
    let mut play = Play::new(builder());
    let mut raw = ToolCall::new("", "tell", Value::Null);
    raw.raw = Some("{\"text\": ".into());
    let wrong = |args| Part::ToolCall(ToolCall::new("", "tell", args));
    play.reply([
        wrong(json!({"txt": "a"})),
        wrong(Value::Null),
        Part::ToolCall(raw),
    ]);
    let results = play.last_results();
    assert!(
        results
            .iter()
            .all(|(error, _)| *error == Some(ToolErrorKind::InvalidArgs)),
        "{results:?}"
    );
    assert!(
        results[0].1.contains("the property \"text\" is missing"),
        "{}",
        results[0].1
    );
    assert!(results[2].1.contains("not valid JSON"), "{}", results[2].1);
    // A signal that would end the run gets the error, too, and ends nothing.
    play.reply([Part::ToolCall(ToolCall::new(
        "",
        "pass_on",
        json!({"text": 1}),
    ))]);
    assert_eq!(play.last_results()[0].0, Some(ToolErrorKind::InvalidArgs));
    assert!(play.machine.ending().is_none() && play.machine.state.tally.signals().is_empty());
}

#[test]
fn last_signal_ends_run_with_text_beside_it() {
    let mut play = Play::new(builder());
    play.reply([tell("a")]);
    play.reply([Part::text("Somebody else knows."), pass_on("b")]);
    let ending = play.ending();
    assert_eq!(
        (&ending.status, &*ending.text),
        (&Status::Complete, "Somebody else knows.")
    );
    assert_eq!(play.recorded(), ["a", "b"]);
    assert_eq!(&*ending.signals[1].name, "pass_on");
    assert_eq!(
        (play.last_results(), ending.stats.tool_calls),
        (vec![recorded()], 2)
    );
}

#[test]
fn last_signal_is_not_validated_against_output_schema() {
    let schema = OutputSchema::new("sum", json!({"type": "object", "required": ["total"]}));
    let agent = builder().build().unwrap();
    let output = Some(OutputCheck::new(Arc::new(schema)));
    let machine = agent.set_in(
        Message::user("Do it"),
        Default::default(),
        Default::default(),
        output,
    );
    let mut play = Play::of(machine);
    play.reply([pass_on("b")]);
    let ending = play.ending();
    assert_eq!(
        (&ending.status, &*ending.text, &ending.value),
        (&Status::Complete, "", &None)
    );
}

#[test]
fn last_signal_beside_other_calls_is_rejected() {
    let mut play = Play::new(builder());
    play.reply([pass_on("a"), tell("b"), pass_on("c")]);
    let results = play.last_results();
    assert_eq!(
        (results[0].0, results[2].0),
        (Some(ToolErrorKind::Denied), Some(ToolErrorKind::Denied))
    );
    assert!(
        results[0]
            .1
            .starts_with("`pass_on` was called beside other tools"),
        "{}",
        results[0].1
    );
    assert_eq!(play.recorded(), ["b"]);
    play.reply([pass_on("d")]);
    assert_eq!(
        (&play.ending().status, play.recorded()),
        (&Status::Complete, vec!["b", "d"])
    );
}

#[test]
fn pending_message_precedes_last_signal() {
    let mut play = Play::new(builder());
    play.say("Wait.");
    play.reply([pass_on("a")]);
    assert!(play.machine.ending().is_none() && play.machine.state.tally.signals().is_empty());
    assert!(
        play.last_results()[0]
            .1
            .contains("something was said meanwhile"),
        "{:?}",
        play.last_results()
    );
    assert_eq!(
        play.machine.history().messages().last().unwrap().text(),
        "Wait."
    );
    play.reply([pass_on("a")]);
    assert_eq!(
        (&play.ending().status, play.recorded()),
        (&Status::Complete, vec!["a"])
    );
}

#[test]
fn last_turn_accepts_only_last_signal() {
    let last_turn = |parts: Vec<Part>| {
        let mut play = Play::new(builder().max_turns(1));
        let (_, Effect::Model(call)) = &play.wants[0] else {
            unreachable!()
        };
        assert_eq!(call.offer, Offer::None);
        play.reply(parts);
        play
    };
    let play = last_turn(vec![pass_on("a")]);
    assert_eq!(
        (&play.ending().status, play.recorded()),
        (&Status::BestEffort(Limit::Turns), vec!["a"])
    );
    assert_eq!(play.last_results(), [recorded()]);
    let play = last_turn(vec![Part::text("Here."), pass_on("a")]);
    assert_eq!(
        (&play.ending().status, &*play.ending().text),
        (&Status::BestEffort(Limit::Turns), "Here.")
    );
    for parts in [
        vec![tell("a")],
        vec![pass_on("a"), pass_on("b")],
        vec![pass_on("a"), tool()],
    ] {
        let mut play = last_turn(parts.clone());
        assert!(
            play.machine.ending().is_none(),
            "it is asked once more for words"
        );
        play.reply(parts);
        assert_eq!(
            (&play.ending().status, play.recorded().len()),
            (&Status::Partial(Limit::Turns), 0)
        );
    }
}

#[test]
fn run_records_at_most_256_signals() {
    let mut play = Play::new(builder().max_turns(1_000).max_calls_per_turn(100));
    for turn in 0..100 {
        play.reply((0..100).map(|n| tell(&format!("{}", turn * 100 + n))));
    }
    let results = play.last_results();
    assert!(
        results
            .iter()
            .all(|(error, _)| *error == Some(ToolErrorKind::Denied))
    );
    assert!(
        results[0].1.contains("room for 256 such calls"),
        "{}",
        results[0].1
    );
    assert_eq!(
        (play.recorded().len(), play.recorded()[MAX_SIGNALS - 1]),
        (MAX_SIGNALS, "255")
    );
    // There is no room for a last signal either.
    play.reply([pass_on("x")]);
    assert!(
        play.last_results()[0].1.contains("room for 256"),
        "{:?}",
        play.last_results()
    );
    play.give(Input::Stop(Limit::Tokens));
    assert_eq!(
        (&play.ending().status, play.ending().signals.len()),
        (&Status::Partial(Limit::Tokens), MAX_SIGNALS)
    );

    // All are in one reply, and most of them are left out.
    let mut play = Play::new(builder());
    play.reply((0..10_000).map(|n| tell(&n.to_string())));
    assert_eq!(play.recorded().len(), 64);
}

#[test]
fn run_records_at_most_256_kib_of_arguments() {
    let mut play = Play::new(builder());
    play.reply([
        tell(&"x".repeat(MAX_SIGNAL_BYTES)),
        tell(&"x".repeat(MAX_SIGNAL_BYTES - 100)),
        tell(&"x".repeat(100)),
    ]);
    let results = play.last_results();
    let denied = [
        Some(ToolErrorKind::Denied),
        None,
        Some(ToolErrorKind::Denied),
    ];
    assert_eq!(
        results.iter().map(|(error, _)| *error).collect::<Vec<_>>(),
        denied
    );
    assert!(
        results[0].1.contains("256 KiB") && results[0].1.len() < 200,
        "{}",
        results[0].1
    );
    play.reply([tell("what is small still fits")]);
    assert_eq!(play.last_results(), [recorded()]);
    // It is too large to be recorded as the last one: the run continues.
    play.reply([pass_on(&"x".repeat(200))]);
    assert!(
        play.machine.ending().is_none() && play.last_results()[0].1.contains("256 KiB"),
        "{:?}",
        play.last_results()[0].1
    );
}

#[test]
fn signals_are_in_every_ending_and_in_saved_state() {
    let mut play = Play::new(builder());
    let fresh = play.machine.save();
    assert!(
        fresh.get("noted").is_none() && fresh.get("tells_said").is_none(),
        "it costs nothing"
    );
    play.reply([tell("a"), tool()]);
    let state: Value = serde_json::from_str(&play.machine.save().to_string()).unwrap();
    let again = builder().build().unwrap().restore(&state).unwrap();
    for machine in [play.machine, again] {
        let mut play = Play {
            machine,
            wants: Vec::new(),
        };
        play.give(Input::Cancel {
            reason: "enough".into(),
        });
        assert_eq!(play.recorded(), ["a"]);
        assert_eq!(play.ending().signals.len(), 1);
        let state = serde_json::to_value(play.ending()).unwrap();
        assert_eq!(
            serde_json::from_value::<Ending>(state).unwrap(),
            *play.ending()
        );
    }
}

/// Returns the messages of a run as its ending reports them.
fn ending_messages(play: &Play) -> Vec<String> {
    play.ending()
        .messages
        .iter()
        .map(|message| message.text().into_owned())
        .collect()
}

#[test]
fn ending_includes_messages_on_request() {
    let agent = builder().build().unwrap();
    let mut past = crate::machine::Past::default();
    past.history.push(Message::user("Before.")).unwrap();
    let gathered = crate::gather::GatheredContext {
        beside: Some("on the side".into()),
        ..Default::default()
    };
    let mut play = Play::of(
        agent
            .set_in(Message::user("Do it"), past, gathered, None)
            .include_messages(),
    );
    play.reply([]);
    play.say("Also this.");
    play.reply([tell("a")]);
    play.reply([Part::text("Done.")]);
    assert_eq!(
        ending_messages(&play),
        ["Do it", "", "", "Also this.", "Done."],
        "a call and its result are two of them"
    );
    let mut history = agent.machine("x").history().clone();
    history.append(play.ending().messages.clone()).unwrap();
    history.append(play.ending().messages.clone()).unwrap();
    assert_eq!(
        (history.len(), history.calls().count()),
        (10, 2),
        "the second call got another id"
    );

    let mut play = Play::new(builder());
    play.reply([Part::text("Done.")]);
    assert!(play.ending().messages.is_empty(), "nobody wanted it");
    // The messages of a run that was stopped midway can still be added to a history.
    let mut play = Play::of(agent.machine("Do it").include_messages());
    play.reply([tool(), tell("a")]);
    play.give(Input::Cancel {
        reason: "enough".into(),
    });
    assert_eq!(play.ending().messages.len(), 3);
    levity_core::History::new()
        .append(play.ending().messages.clone())
        .unwrap();
}
