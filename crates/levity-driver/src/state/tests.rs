use levity_core::{
    Effect, EffectClass, EffectId, EffectNote, Ending, Entry, Input, Limits, Machine, MachineKind,
    MachineOutput, Outcome, Prepared, Record, RunHeader, RunId, Status, Timestamp, ToolCall,
    ToolOutput, ToolResult, ToolRun,
};
use serde_json::{Value, json};

use super::State;
use super::by_id::inspected;

/// A machine that requests this many calls at once.
struct ParallelCalls {
    open: u64,
    ending: Option<Ending>,
}

impl Machine for ParallelCalls {
    fn kind(&self) -> MachineKind {
        MachineKind::new("calls", 1)
    }

    fn save(&self) -> Value {
        Value::Null
    }

    fn apply(&mut self, input: Input, step: &mut MachineOutput) {
        match input {
            Input::Begin { .. } => (0..self.open).for_each(|number| {
                step.request(
                    EffectId::new(number),
                    Effect::Tool(ToolRun::new(call(number))),
                );
            }),
            Input::Finished { .. } => {
                self.open -= 1;
                if self.open == 0 {
                    self.ending = Some(Ending::new(Status::Complete));
                }
            }
            _ => {}
        }
    }

    fn ending(&self) -> Option<&Ending> {
        self.ending.as_ref()
    }
}

fn call(number: u64) -> ToolCall {
    ToolCall::new(format!("c{number}"), "tool", json!({}))
}

/// Drives a turn of this many calls and returns its records.
fn drive(calls: u64, alone: bool) -> Vec<Record> {
    let mut state = State::new(
        RunId::new("r"),
        ParallelCalls {
            open: calls,
            ending: None,
        },
    );
    let mut records = Vec::new();
    let mut take = |state: &mut State<ParallelCalls>, entry| {
        let record = Record::new(state.seq, Timestamp::default(), entry);
        records.push(record.clone());
        state.apply(record, None).unwrap();
    };
    take(
        &mut state,
        Entry::Opened(RunHeader::new(
            MachineKind::new("calls", 1),
            Value::Null,
            Limits::new(),
        )),
    );
    while state.machine.ending().is_none() {
        state.prepare(64, |_, _| {
            let prepared = Prepared::new(EffectClass::ReadOnly);
            Some(if alone { prepared.alone() } else { prepared })
        });
        let ids: Vec<EffectId> = std::iter::from_fn(|| state.next_startable())
            .take(64)
            .collect();
        for id in ids {
            let mut note =
                EffectNote::new(levity_core::EffectKind::Tool, "tool", EffectClass::ReadOnly);
            (note.alone, note.call) = (alone, Some(call(id.get()).id));
            take(&mut state, Entry::Started { effect: id, note });
        }
        let begun: Vec<_> = std::iter::from_fn(|| state.next_to_launch()).collect();
        assert!(!begun.is_empty() || state.has_more(), "the run is stuck");
        assert!(
            !alone || begun.len() <= 1,
            "{} calls that run alone began together",
            begun.len()
        );
        // The last call finishes first.
        for (id, _) in begun.into_iter().rev() {
            let result = ToolResult::new(&call(id.get()), Ok(ToolOutput::text("ok")));
            take(&mut state, Entry::finished(id, Outcome::Tool(result)));
        }
    }
    records
}

#[test]
fn driving_turn_of_many_calls_inspects_each_a_few_times() {
    for alone in [false, true] {
        for calls in [64, 1_000, 8_000] {
            inspected::take();
            let records = drive(calls, alone);
            assert_eq!(records.len() as u64, 1 + 2 * calls);
            let each = inspected::take() as u64 / calls;
            assert!(
                each <= 32,
                "{each} inspections for each of {calls} calls, alone: {alone}"
            );
        }
    }
}

#[test]
fn folding_turn_of_many_calls_inspects_each_a_few_times() {
    for alone in [false, true] {
        let calls = 8_000;
        let records = drive(calls, alone);
        inspected::take();
        let mut state = State::new(
            RunId::new("r"),
            ParallelCalls {
                open: calls,
                ending: None,
            },
        );
        records
            .into_iter()
            .try_for_each(|record| state.apply(record, None))
            .unwrap();
        let each = inspected::take() as u64 / calls;
        assert!(
            each <= 16,
            "{each} inspections for each of {calls} calls, alone: {alone}"
        );
        assert!(state.machine.ending().is_some());
    }
}
