//! Endings of runs: with text, with media, and on a last turn that calls tools nevertheless.

use async_trait::async_trait;
use levity_core::{
    ContextBlock, ContextError, ContextRequest, ContextSource, Effect, EffectId, Ending, Error,
    Input, Limit, Machine as _, MachineOutput, Media, Message, Offer, Outcome, Part, ProviderState,
    Response, Role, RunId, Status, ToolCall, ToolErrorKind, ToolOutput, ToolResult,
};
use levity_loop::{Agent, AgentBuilder, AgentMachine};
use levity_test::{RecordingTool, ScriptedModel};
use serde_json::json;

fn builder() -> AgentBuilder {
    let tool = RecordingTool::new("look", |_| Ok(ToolOutput::text("not called")));
    Agent::builder(ScriptedModel::new()).tool(tool)
}

fn look() -> Part {
    Part::ToolCall(ToolCall::new("", "look", json!({})))
}

/// A machine in progress, and its requested effects.
struct Play {
    machine: AgentMachine,
    wants: Vec<(EffectId, Effect)>,
    /// The number of model calls.
    asked: usize,
}

impl Play {
    fn new(builder: AgentBuilder) -> Self {
        Self::of(builder.build().unwrap().machine("Find it."))
    }

    fn of(machine: AgentMachine) -> Self {
        let mut play = Self {
            machine,
            wants: Vec::new(),
            asked: 0,
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

    /// Feeds a reply of the model; each tool that it calls returns `42`.
    fn reply(&mut self, parts: impl IntoIterator<Item = Part>) -> Offer {
        let (effect, Effect::Model(call)) = self.wants.remove(0) else {
            panic!("no model is asked")
        };
        self.asked += 1;
        let message = Message::new(Role::Assistant, parts);
        self.give(Input::Finished {
            effect,
            outcome: Outcome::Model(Ok(Response::new(message))),
        });
        while let Some((effect, Effect::Tool(run))) = self.wants.first().cloned() {
            self.wants.remove(0);
            let result = ToolResult::new(&run.call, Ok(ToolOutput::text("42")));
            self.give(Input::Finished {
                effect,
                outcome: Outcome::Tool(result),
            });
        }
        call.offer
    }

    fn ending(&self) -> &Ending {
        assert!(self.wants.is_empty(), "{:?}", self.wants);
        self.machine.ending().unwrap()
    }

    fn last_note(&self) -> String {
        self.machine
            .history()
            .messages()
            .last()
            .unwrap()
            .text()
            .into_owned()
    }
}

const BEST: Status = Status::BestEffort(Limit::Turns);

#[test]
fn call_on_last_turn_leads_to_one_request_without_tools() {
    let mut play = Play::new(builder().max_turns(2));
    assert_eq!(play.reply([look()]), Offer::All);
    assert_eq!(play.reply([look()]), Offer::None);
    assert!(play.machine.ending().is_none());
    assert!(
        play.last_note().contains("Answer now, in words"),
        "{}",
        play.last_note()
    );
    assert_eq!(play.reply([Part::text("It is 42.")]), Offer::None);
    assert_eq!(
        (&play.ending().status, &*play.ending().text),
        (&BEST, "It is 42.")
    );
    assert_eq!(play.asked, 3);
}

#[test]
fn repeated_calls_after_last_turn_end_with_results() {
    for (first, expected) in [
        (vec![Part::text("It may be 42."), look()], "It may be 42."),
        (vec![look()], "The last results of its tools:\n- look: 42"),
    ] {
        let mut play = Play::new(builder().max_turns(2));
        play.reply(first);
        play.reply([look()]);
        play.reply([look()]);
        let ending = play.ending();
        assert_eq!(ending.status, BEST);
        assert!(ending.text.ends_with(expected), "{}", ending.text);
        assert_eq!(play.asked, 3, "it is asked once more, and not again");
    }
}

#[test]
fn last_turn_without_text_and_results_has_no_answer() {
    let mut play = Play::new(builder().max_turns(1));
    play.reply([look()]);
    play.reply([look()]);
    assert_eq!(
        (&play.ending().status, &*play.ending().text),
        (&Status::Partial(Limit::Turns), "")
    );
}

#[test]
fn run_of_earlier_version_ends_last_turn_unchanged() {
    let agent = builder().max_turns(1).build().unwrap();
    let mut state = agent.machine("Find it.").save();
    assert_eq!(
        state.as_object_mut().unwrap().remove("rules"),
        Some(json!(3))
    );
    let mut play = Play::of(agent.restore(&state).unwrap());
    play.reply([look()]);
    assert_eq!(play.ending().status, Status::Partial(Limit::Turns));
    // Media was not an answer in that version.
    let mut play = Play::of(agent.restore(&state).unwrap());
    play.reply([Part::Media(Media::bytes("image/png", vec![1, 2, 3]))]);
    assert!(play.machine.ending().is_none() && play.last_note().contains("empty"));
}

#[test]
fn reply_of_media_alone_is_an_answer() {
    let mut play = Play::new(builder());
    play.reply([Part::Media(Media::bytes("image/png", vec![1, 2, 3]))]);
    assert_eq!(
        (&play.ending().status, &*play.ending().text),
        (&Status::Complete, "")
    );
    let last = play.machine.history().messages().last().unwrap().clone();
    assert!(matches!(last.parts[..], [Part::Media(_)]), "{last:?}");
}

#[test]
fn calls_beyond_turn_limit_each_get_an_error() {
    const CALLS: usize = 5_000;
    let mut play = Play::new(builder());
    play.reply((0..CALLS).map(|_| look()));
    let messages = play.machine.history().messages();
    let results: Vec<_> = messages
        .iter()
        .flat_map(|message| message.results())
        .collect();
    assert_eq!(results.len(), CALLS);
    let (made, left) = results.split_at(64);
    assert!(made.iter().all(|result| !result.is_error()));
    assert!(
        left.iter()
            .all(|result| result.error == Some(ToolErrorKind::Denied))
    );
    assert!(
        left[0]
            .text()
            .contains("at most 64 tools can be called in one turn"),
        "{}",
        left[0].text()
    );
}

/// A call that the model wrote as text.
fn look_in_text() -> Part {
    let mut call = ToolCall::new("", "look", json!({}));
    call.opaque = Some(ProviderState::new(
        ProviderState::TEXT_CALL,
        json!({"text": "look()"}),
    ));
    Part::ToolCall(call)
}

#[test]
fn third_identical_call_is_answered_from_earlier_result() {
    let mut play = Play::new(builder());
    for _ in 0..2 {
        assert_eq!(play.reply([look_in_text()]), Offer::All);
        assert_eq!(play.machine.ending(), None);
    }
    assert_eq!(play.reply([look_in_text()]), Offer::All);
    let messages = play.machine.history().messages();
    let results: Vec<String> = messages
        .iter()
        .flat_map(|message| message.results())
        .map(|result| result.text().into_owned())
        .collect();
    let again = "42\n(The same call was made twice before, and this is its result. Answer now.)";
    assert_eq!(results, ["42", "42", again]);
    assert_eq!(play.reply([Part::text("It is 42.")]), Offer::None);
    assert_eq!(
        (&*play.ending().text, &play.ending().status),
        ("It is 42.", &Status::Complete)
    );
}

#[test]
fn identical_native_calls_are_always_made() {
    let mut play = Play::new(builder());
    for _ in 0..5 {
        assert_eq!(play.reply([look()]), Offer::All);
    }
    let results = play
        .machine
        .history()
        .messages()
        .iter()
        .flat_map(|message| message.results())
        .count();
    assert_eq!(results, 5);
}

/// A context source that never returns.
struct Endless;

#[async_trait]
impl ContextSource for Endless {
    async fn blocks(&self, _: &ContextRequest) -> Result<Vec<ContextBlock>, ContextError> {
        std::future::pending().await
    }
}

#[tokio::test]
async fn run_cancelled_during_preparation_ends_as_cancelled() {
    let run = builder()
        .context(Endless)
        .build()
        .unwrap()
        .run("Find it.")
        .start();
    run.cancel("enough").await.unwrap();
    match run.await {
        Err(Error::Cancelled { reason, partial }) => {
            assert_eq!((&*reason, partial.text()), ("enough", ""));
        }
        other => panic!("{other:?}"),
    }
}
