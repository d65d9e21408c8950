//! Conversations under random outcomes: nothing is lost, nothing is saved twice, and every request
//! is valid.

use std::collections::BTreeMap;

use futures_util::FutureExt;
use levity_core::{
    ConversationChange, ConversationId, Effect, Limit, MemoryError, MemoryErrorKind, MemoryStore,
    ModelErrorKind, RunId, Save, ToolCall, ToolOutput, ToolResult, Usage,
};
use levity_memory::{InMemory, Window};
use levity_test::{RecordingTool, ScriptedModel};
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::Agent;

const BESIDE: &str = "beside the goal";

/// The outcome of a save: its effect, and its reported result.
#[derive(Clone, Copy, Debug)]
enum Saved {
    Well,
    /// The save succeeded, and no result is reported.
    Unsaid,
    Not,
    Odd,
}

#[derive(Clone, Debug)]
enum Happening {
    /// A call, or an answer, of so many words.
    Reply(bool, usize),
    TooLong,
    Refused,
    Fails,
    Say,
    Wrap,
}

fn happening() -> impl Strategy<Value = Happening> {
    prop_oneof![
        12 => (prop::bool::weighted(0.9), 0..400usize)
            .prop_map(|(call, words)| Happening::Reply(call, words)),
        1 => Just(Happening::TooLong),
        1 => Just(Happening::Refused),
        1 => Just(Happening::Fails),
        2 => Just(Happening::Say),
        1 => Just(Happening::Wrap),
    ]
}

fn saved() -> impl Strategy<Value = Saved> {
    prop_oneof![
        6 => Just(Saved::Well),
        2 => Just(Saved::Unsaid),
        2 => Just(Saved::Not),
        1 => Just(Saved::Odd),
    ]
}

fn now<T>(work: impl Future<Output = T>) -> T {
    work.now_or_never()
        .expect("a store in memory makes nobody wait")
}

fn id() -> ConversationId {
    "c".into()
}

fn agent(store: &Arc<InMemory>, tokens: u64) -> Agent {
    let tool = RecordingTool::new("tool", |_| Ok(ToolOutput::text("ok")));
    let builder = Agent::builder(ScriptedModel::new())
        .tool(tool)
        .max_turns(12)
        .memory(store.clone());
    builder
        .window(Window::new().tokens(tokens).messages(6))
        .build()
        .unwrap()
}

fn machine(agent: &Agent, beside: bool) -> AgentMachine {
    let (past, _lease) = now(agent.past(&id())).unwrap();
    let beside = beside.then(|| BESIDE.into());
    let start = Start {
        goal: Message::user("Do it"),
        guarded: Vec::new(),
        past,
        system: None,
        beside,
        output: None,
    };
    AgentMachine::new(agent.inner.spec.clone(), start)
}

struct Play {
    store: Arc<InMemory>,
    machine: AgentMachine,
    step: MachineOutput,
    open: BTreeMap<EffectId, Effect>,
    inputs: Vec<Input>,
    effects: Vec<Effect>,
    /// The number of messages sent while it ran.
    said: usize,
    /// The number of summaries since the last model call.
    summaries: usize,
    /// The available tokens, and the part that the tools take.
    tokens: u64,
    beside: u64,
}

impl Play {
    fn give(&mut self, input: Input) {
        self.inputs.push(input.clone());
        self.machine.apply(input, &mut self.step);
        for (id, effect) in self.step.effects.drain(..) {
            if let Effect::Model(call) = &effect {
                let first = call
                    .request
                    .history
                    .messages()
                    .first()
                    .map(|message| message.role);
                assert_eq!(first, Some(Role::User));
                let is_summary = &*call.slot == "summariser";
                self.summaries = if is_summary { self.summaries + 1 } else { 0 };
                assert!(self.summaries < 2, "two summaries for one call");
                let tokens = call.request.history.tokens() + self.beside;
                assert!(
                    is_summary || tokens <= self.tokens,
                    "{tokens} of {}",
                    self.tokens
                );
                let text = call
                    .request
                    .history
                    .messages()
                    .last()
                    .map(|message| message.text().into_owned());
                assert!(
                    !is_summary || !text.is_some_and(|text| text.contains(BESIDE)),
                    "nobody has said it"
                );
            }
            self.effects.push(effect.clone());
            self.open.insert(id, effect);
        }
    }

    fn save(&self, save: &Save, how: Saved) -> Outcome {
        let failed = Err(MemoryError::new(MemoryErrorKind::Io, "the wire broke"));
        let made = |save: &Save| now(self.store.save(&save.conversation, &save.change));
        Outcome::Saved(match how {
            Saved::Well => made(save),
            Saved::Unsaid => made(save).and(failed),
            Saved::Not => failed,
            Saved::Odd => return Outcome::Unknown,
        })
    }

    fn outcome(&self, effect: &Effect, happening: &Happening, saved: Saved) -> Outcome {
        match (effect, happening) {
            (Effect::Save(save), _) => self.save(save, saved),
            (Effect::Model(_), Happening::TooLong) => Outcome::Model(Err(ModelError::new(
                ModelErrorKind::ContextTooLong,
                "too long",
            ))),
            (Effect::Model(_), Happening::Refused) => Outcome::Refused(Limit::Tokens),
            (Effect::Model(_), Happening::Reply(call, words)) => {
                // Some have no space between their words.
                let text = Part::text(["word ", "語", "long"][words % 3].repeat(words * 2));
                let call = call.then(|| Part::ToolCall(ToolCall::new("", "tool", json!({}))));
                let message = Message::new(Role::Assistant, call.into_iter().chain([text]));
                // A reply from a cache costs nothing.
                let usage = if words % 5 == 0 {
                    Usage::new(0, 0)
                } else {
                    Usage::default()
                };
                Outcome::Model(Ok(Response::new(message).with_usage(usage)))
            }
            (Effect::Model(_), _) => {
                Outcome::Model(Err(ModelError::new(ModelErrorKind::Overloaded, "busy")))
            }
            (Effect::Tool(run), happening) => {
                let words = if let Happening::Reply(_, words) = happening {
                    *words
                } else {
                    5
                };
                Outcome::Tool(ToolResult::new(
                    &run.call,
                    Ok(ToolOutput::text("done ".repeat(words))),
                ))
            }
            _ => Outcome::Unknown,
        }
    }
}

/// Drives a machine until it ends; `first` selects the oldest effect first.
fn play(play: &mut Play, happenings: &[(Happening, Saved, bool)], stop: usize) {
    play.give(Input::Begin {
        run: RunId::new("r"),
        wrap: None,
    });
    for (count, (happening, saved, first)) in happenings.iter().cycle().enumerate() {
        if play.machine.ending().is_some() {
            return;
        }
        assert!(count < 1_000, "it does not end");
        assert!(!play.open.is_empty(), "it wants nothing and has not ended");
        if count == stop {
            play.give(Input::Cancel {
                reason: "enough".into(),
            });
            continue;
        }
        match happening {
            Happening::Say if count < 30 => {
                play.said += 1;
                play.give(Input::Say(Arc::new(Message::user("Also this."))));
            }
            Happening::Wrap if count < 30 => play.give(Input::FinishSoon(Limit::Tokens)),
            happening => {
                let at = if *first {
                    play.open.keys().next()
                } else {
                    play.open.keys().next_back()
                };
                let at = *at.unwrap();
                let effect = play.open.remove(&at).unwrap();
                let outcome = play.outcome(&effect, happening, *saved);
                play.give(Input::Finished {
                    effect: at,
                    outcome,
                });
            }
        }
    }
}

/// Returns the messages of a run, without those for the run only.
fn own_messages(machine: &AgentMachine) -> Vec<Arc<Message>> {
    let conversation = &machine.state.conversation;
    conversation.messages_between(0, conversation.history.len(), |_| true)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn conversation_has_every_message_once(
        tokens in 512..3_000u64,
        past in 0..14usize,
        beside in any::<bool>(),
        happenings in prop::collection::vec((happening(), saved(), any::<bool>()), 1..50),
        stop in 1..80usize,
    ) {
        let store = Arc::new(InMemory::new());
        let before = (0..past).map(|n| match n % 2 {
            0 => Message::user(format!("question {n}")),
            _ => Message::new(Role::Assistant, [Part::text(format!("answer {n}"))]),
        });
        now(store.save(&id(), &ConversationChange::at(0).with_messages(before))).unwrap();
        let agent = agent(&store, tokens);
        let machine = machine(&agent, beside);
        let begun = machine.save();
        let mut run = Play {
            store: store.clone(), machine, step: MachineOutput::new(), open: BTreeMap::new(),
            inputs: Vec::new(), effects: Vec::new(), said: 0, summaries: 0, tokens,
            beside: agent.inner.spec.tool_tokens,
        };
        play(&mut run, &happenings, stop);
        let ending = run.machine.ending().unwrap().clone();
        let moved = matches!(
            &ending.status,
            Status::Failed(Failure::Memory(error)) if error.kind() == MemoryErrorKind::Moved
        );
        prop_assert!(!moved, "nobody else was there");
        let internal = matches!(&ending.status, Status::Failed(Failure::Internal(_)));
        prop_assert!(!internal, "{:?}", ending.status);
        let also = own_messages(&run.machine)
            .iter()
            .filter(|message| message.text() == "Also this.")
            .count();
        prop_assert_eq!(also, run.said, "what was said is kept");
        prop_assert!(
            !run.machine.state.conversation.session().contains(BESIDE),
            "nobody has said it"
        );
        for save in run.machine.state.conversation.unsaved() {
            // A save in progress may already exist, under a newer summary.
            let _ = now(store.save(&save.conversation, &save.change));
        }
        let gave_up = matches!(&ending.status, Status::Failed(Failure::Memory(_)))
            || run.machine.state.conversation.talk.as_ref().is_some_and(|talk| talk.off);
        if !gave_up {
            let kept: Vec<_> = now(store.read(&id(), 0, usize::MAX))
                .unwrap()
                .into_iter()
                .map(|(_, m)| m)
                .collect();
            prop_assert_eq!(kept, own_messages(&run.machine));
        }
        // The same inputs give the same effects in another process.
        let mut again = AgentMachine::restore(agent.inner.spec.clone(), &begun, None).unwrap();
        let mut step = MachineOutput::new();
        run.inputs.iter().for_each(|input| again.apply(input.clone(), &mut step));
        let effects: Vec<Effect> = step.effects.into_iter().map(|(_, effect)| effect).collect();
        prop_assert_eq!(effects, run.effects);
        prop_assert_eq!(again.save(), run.machine.save());
    }
}

#[test]
fn run_of_version_without_windows_ends_unchanged() {
    let agent = agent(&Arc::new(InMemory::new()), 1_000);
    let mut state = machine(&agent, false).save();
    state.as_object_mut().unwrap().remove("shown");
    let mut machine = AgentMachine::restore(agent.inner.spec.clone(), &state, None).unwrap();
    let mut step = MachineOutput::new();
    machine.apply(
        Input::Begin {
            run: RunId::new("r"),
            wrap: None,
        },
        &mut step,
    );
    let (call, _) = step
        .effects
        .iter()
        .find(|(_, effect)| matches!(effect, Effect::Model(_)))
        .unwrap();
    let outcome = Outcome::Model(Err(ModelError::new(
        ModelErrorKind::ContextTooLong,
        "too long",
    )));
    let effect = *call;
    step.effects.clear();
    machine.apply(Input::Finished { effect, outcome }, &mut step);
    assert!(
        step.effects
            .iter()
            .all(|(_, effect)| !matches!(effect, Effect::Model(_)))
    );
}
