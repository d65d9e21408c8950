//! The driver without a runtime, in every order of outcomes and with a crash at every point.

use std::collections::BTreeMap;

use levity::core::{
    Effect, EffectClass, EffectId, Message, Outcome, Part, Prepared, Resolution, Response,
    ToolCall, ToolOutput, ToolResult,
};
use levity::prelude::*;
use levity::test::{ManualHost, RecordingTool, ScriptedModel};
use serde_json::json;

fn agent() -> Agent {
    let tool = |name| RecordingTool::new(name, |_| Ok(ToolOutput::text("never called")));
    Agent::builder(ScriptedModel::new())
        .tool(tool("read"))
        .tool(tool("pay"))
        .build()
        .unwrap()
}

/// Prepares an effect. Payments are made once and one at a time; all other effects may be repeated.
fn prepare(effect: &Effect) -> Prepared {
    match effect.name() {
        "pay" => Prepared::new(EffectClass::AtMostOnce).alone(),
        _ => Prepared::new(EffectClass::ReadOnly),
    }
}

/// The side effects outside the process, counted by call.
#[derive(Default)]
struct SideEffects(BTreeMap<String, u32>);

impl SideEffects {
    fn perform(&mut self, effect: &Effect) -> Outcome {
        match effect {
            Effect::Model(call) => {
                let results: Vec<String> = call
                    .request
                    .history
                    .messages()
                    .iter()
                    .flat_map(|m| texts(m))
                    .collect();
                let reply = match results.is_empty() {
                    true => Message::new(levity::core::Role::Assistant, calls()),
                    false => Message::assistant(results.join(" ")),
                };
                Outcome::Model(Ok(Response::new(reply)))
            }
            Effect::Tool(run) => {
                Outcome::Tool(ToolResult::new(&run.call, Ok(self.call(&run.call))))
            }
            _ => Outcome::Unknown,
        }
    }

    fn call(&mut self, call: &ToolCall) -> ToolOutput {
        let name = format!("{}{}", call.name, call.args["n"]);
        *self.0.entry(name.clone()).or_default() += 1;
        ToolOutput::text(name)
    }
}

fn calls() -> Vec<Part> {
    let call = |(n, name)| Part::ToolCall(ToolCall::new(format!("c{n}"), name, json!({ "n": n })));
    [
        (0, "read"),
        (1, "read"),
        (2, "read"),
        (3, "pay"),
        (4, "read"),
        (5, "read"),
    ]
    .into_iter()
    .map(call)
    .collect()
}

/// Returns the texts of the results in a message.
fn texts(message: &Message) -> Vec<String> {
    let text = |part: &Part| match part {
        Part::ToolResult(result) => Some(result.text().into_owned()),
        _ => None,
    };
    message.parts.iter().filter_map(text).collect()
}

/// A sequence of choices. Each pass takes the next combination.
#[derive(Default)]
struct Choices {
    taken: Vec<(usize, usize)>,
    at: usize,
}

impl Choices {
    fn choose(&mut self, options: usize) -> usize {
        if self.at == self.taken.len() {
            self.taken.push((0, options));
        }
        self.at += 1;
        self.taken[self.at - 1].0
    }

    /// Advances to the next combination. Returns `false` after the last one.
    fn next(&mut self) -> bool {
        self.at = 0;
        while let Some((choice, options)) = self.taken.pop() {
            if choice + 1 < options {
                self.taken.push((choice + 1, options));
                return true;
            }
        }
        false
    }
}

/// Drives a run by these choices: the effect that finishes next, or a crash before or after the
/// effects in progress.
fn drive(choices: &mut Choices) -> (ManualHost<levity::agent::AgentMachine>, SideEffects) {
    let (agent, mut outside, mut crashed) = (agent(), SideEffects::default(), false);
    let mut host = ManualHost::prepared_by("r", agent.machine("Pay the bill."), prepare).unwrap();
    while host.ending().is_none() {
        let open: Vec<(EffectId, Effect)> = host
            .open()
            .map(|(id, effect)| (id, effect.clone()))
            .collect();
        let options = open.len() + if crashed { 0 } else { 2 };
        let choice = choices.choose(options);
        if let Some((id, effect)) = open.get(choice) {
            let outcome = outside.perform(effect);
            host.finish(*id, outcome).unwrap();
            continue;
        }
        crashed = true;
        let done_before = choice > open.len();
        host = host.crash(agent.machine("Pay the bill.")).unwrap();
        let lost: Vec<(EffectId, Effect)> = host
            .lost()
            .map(|(id, effect)| (id, effect.clone()))
            .collect();
        for (id, effect) in lost {
            let Effect::Tool(run) = &effect else {
                panic!("only tool calls can be interrupted")
            };
            let resolution = match done_before {
                true => Resolution::Done(outside.call(&run.call)),
                false => Resolution::NotDone,
            };
            host.resolve(id, resolution).unwrap();
        }
    }
    (host, outside)
}

#[test]
fn driver_pays_once_in_every_order_and_after_every_crash() {
    let (mut choices, mut paths) = (Choices::default(), 0);
    loop {
        let (host, outside) = drive(&mut choices);
        let path = format!("{:?}", choices.taken);
        assert_eq!(outside.0.get("pay3"), Some(&1), "{path}");
        let answer = host.ending().map(|ending| &*ending.text);
        assert_eq!(answer, Some("read0 read1 read2 pay3 read4 read5"), "{path}");
        let replayed = levity::runtime::replay(host.driver().run(), host.records(), |_, _| {
            Ok(agent().machine("Pay the bill."))
        });
        let replayed_machine = replayed.unwrap().machine;
        assert_eq!(
            levity::core::Machine::save(&replayed_machine),
            levity::core::Machine::save(host.driver().machine()),
            "{path}"
        );
        paths += 1;
        if !choices.next() {
            break;
        }
    }
    assert!(paths > 200, "{paths}");
}
