//! Random outcomes: the machine never panics, never leaves an invalid history, and always ends.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, LazyLock};

use levity_core::{
    Decision, Effect, EffectId, Ending, Finish, History, Input, Limit, Machine, MachineOutput,
    Message, ModelError, ModelErrorKind, Offer, Outcome, Part, Response, Role, RunId, Status,
    ToolCall, ToolError, ToolErrorKind, ToolOutput, ToolResult, ToolSpec, Usage,
};
use levity_loop::{Agent, AgentMachine, ModelPlanner, ModelReflector};
use levity_test::{RecordingTool, ScriptedModel};
use proptest::prelude::*;
use serde_json::json;

const MAX_TURNS: u64 = 6;

/// The next event; numbers choose among the possible ones.
#[derive(Clone, Debug)]
enum Happening {
    Reply {
        text: bool,
        thinking: bool,
        calls: Vec<u8>,
        filtered: bool,
    },
    ModelFails,
    ToolDone(bool),
    Approval(u8),
    Odd(u8),
    Say,
    Wrap,
}

fn happening() -> impl Strategy<Value = Happening> {
    let reply = (
        any::<bool>(),
        any::<bool>(),
        prop::collection::vec(0..12u8, 0..5),
        prop::bool::weighted(0.1),
    );
    prop_oneof![
        12 => reply.prop_map(|(text, thinking, calls, filtered)| {
            Happening::Reply { text, thinking, calls, filtered }
        }),
        1 => Just(Happening::ModelFails),
        8 => any::<bool>().prop_map(Happening::ToolDone),
        4 => any::<u8>().prop_map(Happening::Approval),
        1 => any::<u8>().prop_map(Happening::Odd),
        2 => Just(Happening::Say),
        1 => Just(Happening::Wrap),
    ]
}

fn reply(text: bool, thinking: bool, calls: &[u8], filtered: bool) -> Outcome {
    let mut parts = Vec::new();
    if thinking {
        parts.push(Part::thinking("hm"));
    }
    if text {
        parts.push(Part::text("Well."));
    }
    for call in calls {
        // There are few ids, so that they clash; some are empty; some names are agents, or unknown.
        let id = ["a", "b", "", "a"][usize::from(call % 4)];
        let name =
            ["tool", "helper", "nobody", "tool", "tell", "pass_on"][usize::from(call / 2 % 6)];
        parts.push(match call {
            7 => Part::ToolResult(ToolResult::new(
                &ToolCall::new("x", "y", json!(1)),
                Ok(ToolOutput::text("?")),
            )),
            _ => Part::ToolCall(ToolCall::new(id, name, json!({"n": call % 2}))),
        });
    }
    let finish = if filtered {
        Finish::ContentFilter
    } else {
        Finish::Stop
    };
    let response = Response::new(Message::new(Role::Assistant, parts)).with_finish(finish);
    Outcome::Model(Ok(response.with_usage(Usage::new(10, 1))))
}

/// Returns an outcome that fits the effect, as the happening selects it.
fn outcome(effect: &Effect, happening: &Happening) -> Outcome {
    if let Happening::Odd(n) = happening {
        return [
            Outcome::Unknown,
            Outcome::Refused(Limit::ToolCalls),
            Outcome::Decision(Decision::Allow),
        ][usize::from(n % 3)]
        .clone();
    }
    match (effect, happening) {
        (Effect::Model(_), Happening::ModelFails) => {
            Outcome::Model(Err(ModelError::new(ModelErrorKind::Overloaded, "busy")))
        }
        (
            Effect::Model(_),
            Happening::Reply {
                text,
                thinking,
                calls,
                filtered,
            },
        ) => reply(*text, *thinking, calls, *filtered),
        (Effect::Model(_), _) => reply(false, false, &[0, 2], false),
        (Effect::Tool(run), Happening::Approval(n)) if !run.approved && n % 2 == 0 => {
            Outcome::NeedsApproval {
                reason: "careful".into(),
            }
        }
        (Effect::Tool(run), happening) => {
            let good = !matches!(happening, Happening::ToolDone(false));
            let output = if good {
                Ok(ToolOutput::text("ok"))
            } else {
                Err(ToolError::failed("no"))
            };
            Outcome::Tool(ToolResult::new(&run.call, output))
        }
        (Effect::Ask(_), Happening::Approval(n)) => Outcome::Decision(
            [
                Decision::Allow,
                Decision::deny("no"),
                Decision::edit(json!({"n": 9})),
            ][usize::from(n % 3)]
            .clone(),
        ),
        (Effect::Ask(_), _) => Outcome::Decision(Decision::Allow),
        (_, Happening::ToolDone(true)) => Outcome::Child(Box::new(Ending::new(Status::Complete))),
        _ => Outcome::Child(Box::new(Ending::new(Status::Partial(Limit::Turns)))),
    }
}

/// Returns an agent with or without a planner; both are created once, since they compile schemas.
fn agent(planning: bool) -> &'static Agent {
    static AGENTS: LazyLock<[Agent; 2]> = LazyLock::new(|| [make(false), make(true)]);
    &AGENTS[usize::from(planning)]
}

fn make(planning: bool) -> Agent {
    let tool = RecordingTool::new("tool", |_| Ok(ToolOutput::text("ok")));
    let helper = Agent::builder(ScriptedModel::new()).build().unwrap();
    let builder = Agent::builder(ScriptedModel::new())
        .tool(tool)
        .agent("helper", "Helps.", helper)
        .signal(ToolSpec::new("tell", "Tells something."))
        .ending_signal(ToolSpec::new("pass_on", "Passes the work on."))
        .max_turns(MAX_TURNS);
    let builder = if planning {
        builder
            .planner(ModelPlanner::new())
            .reflector(ModelReflector::new())
    } else {
        builder
    };
    builder.build().unwrap()
}

/// Feeds the machine until it ends; `stop` cancels it after that many inputs.
fn play(planning: bool, happenings: &[Happening], stop: Option<usize>) -> (AgentMachine, usize) {
    let mut machine = agent(planning).machine("Do it");
    let mut open: BTreeMap<EffectId, Effect> = BTreeMap::new();
    let mut step = MachineOutput::new();
    machine.apply(
        Input::Begin {
            run: RunId::new("r"),
            wrap: None,
        },
        &mut step,
    );
    let mut inputs = 0;
    for happening in happenings.iter().cycle() {
        for (id, effect) in step.effects.drain(..) {
            check_request(&effect);
            assert!(
                open.insert(id, effect).is_none(),
                "effect {id} is wanted twice"
            );
        }
        if machine.ending().is_some() {
            break;
        }
        assert!(!open.is_empty(), "it wants nothing and has not ended");
        assert!(inputs < 2_000, "it does not end");
        inputs += 1;
        if stop == Some(inputs) {
            machine.apply(
                Input::Cancel {
                    reason: "enough".into(),
                },
                &mut step,
            );
            assert!(machine.ending().is_some(), "it goes on after a cancel");
            continue;
        }
        let input = match happening {
            // Messages at every step would keep the run going forever, as they should; here there
            // are only a few.
            Happening::Say if inputs < 20 => Input::Say(Arc::new(Message::user("Also this."))),
            Happening::Wrap if inputs < 20 => Input::FinishSoon(Limit::Tokens),
            happening => {
                let last = matches!(happening, Happening::ToolDone(true));
                let Some(id) = (if last {
                    open.keys().next_back()
                } else {
                    open.keys().next()
                })
                .copied() else {
                    continue;
                };
                let effect = open.remove(&id).unwrap();
                Input::Finished {
                    effect: id,
                    outcome: outcome(&effect, happening),
                }
            }
        };
        machine.apply(input, &mut step);
    }
    (machine, inputs)
}

/// Checks that a provider accepts every request.
fn check_request(effect: &Effect) {
    if let Effect::Model(call) = effect {
        check_history(&call.request.history);
        assert!(call.request.tools.is_empty() && matches!(call.offer, Offer::All | Offer::None));
    }
}

fn check_history(history: &History) {
    let mut ids = HashSet::new();
    let messages = history.messages();
    for (at, message) in messages.iter().enumerate() {
        let calls: Vec<_> = message.calls().map(|call| call.id.clone()).collect();
        assert!(
            calls.iter().all(|id| ids.insert(id.clone())),
            "an id occurs twice"
        );
        if !calls.is_empty() {
            let answers: Vec<_> = messages[at + 1]
                .results()
                .map(|result| result.call.clone())
                .collect();
            assert_eq!(calls, answers);
        }
    }
    let text = serde_json::to_string(history).unwrap();
    assert_eq!(serde_json::from_str::<History>(&text).unwrap(), *history);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn machine_always_ends_within_limits_with_valid_history(
        planning in any::<bool>(),
        happenings in prop::collection::vec(happening(), 1..60),
    ) {
        let (machine, _) = play(planning, &happenings, None);
        let ending = machine.ending().unwrap();
        // Beyond the last turn, there are only reminders after empty replies.
        prop_assert!(ending.stats.turns <= MAX_TURNS + 2, "{} turns", ending.stats.turns);
        check_history(machine.history());
        let passed_on = ending.signals.iter().any(|signal| &*signal.name == "pass_on");
        let failed_after_answer =
            matches!(ending.status, Status::Complete) && ending.text.is_empty() && !passed_on;
        prop_assert!(!failed_after_answer, "an answer has words");
    }

    #[test]
    fn machine_cancelled_anywhere_leaves_valid_history(
        happenings in prop::collection::vec(happening(), 1..40),
        stop in 1..30usize,
    ) {
        let (machine, inputs) = play(false, &happenings, Some(stop));
        check_history(machine.history());
        if inputs == stop {
            let cancelled = Status::Cancelled { reason: "enough".into() };
            prop_assert_eq!(&machine.ending().unwrap().status, &cancelled);
            // Only the last exchange can have been open.
            let messages = machine.history().messages();
            let cancelled = |message: &Arc<Message>| {
                message.results().any(|result| result.error == Some(ToolErrorKind::Cancelled))
            };
            let answers: Vec<bool> = messages
                .iter()
                .filter(|m| m.role == Role::Tool)
                .map(cancelled)
                .collect();
            prop_assert!(answers.iter().rev().skip(1).all(|cancelled| !cancelled));
        }
    }
}
