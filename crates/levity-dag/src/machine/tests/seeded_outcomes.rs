//! Decides the outcome of each attempt, as a pure function of a seed.

use serde_json::{Map, Value, json};

use crate::step::StepId;

/// A deterministic random number generator.
#[derive(Clone, Debug)]
pub(super) struct SeededRng(pub(super) u64);

impl SeededRng {
    pub(super) fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mixed(self.0)
    }

    pub(super) fn below(&mut self, end: usize) -> usize {
        (self.roll() % end.max(1) as u64) as usize
    }

    /// Returns `true` with this probability in percent.
    pub(super) fn percent(&mut self, times: u64) -> bool {
        self.roll() % 100 < times
    }

    pub(super) fn pick<'a, T>(&mut self, from: &'a [T]) -> Option<&'a T> {
        from.get(self.below(from.len()))
    }

    pub(super) fn shuffle<T>(&mut self, all: &mut [T]) {
        for at in (1..all.len()).rev() {
            all.swap(at, self.below(at + 1));
        }
    }
}

fn mixed(seed: u64) -> u64 {
    let seed = (seed ^ (seed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let seed = (seed ^ (seed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    seed ^ (seed >> 31)
}

/// The outcome of one attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AttemptOutcome {
    Good,
    /// The attempt fails, and another one may succeed.
    Bad,
    /// The result is unknown, so there is no other attempt.
    Lost,
}

/// Decides the outcome of every attempt of a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct SeededOutcomes {
    pub(super) seed: u64,
    /// The percentage of attempts that fail.
    pub(super) fails: u64,
}

/// An attempt at a step, or at one element of its list.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Attempt {
    pub(super) step: StepId,
    pub(super) item: Option<u32>,
    pub(super) number: u32,
}

impl SeededOutcomes {
    fn of(&self, what: &str) -> u64 {
        let fold =
            |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        mixed(what.bytes().fold(self.seed ^ 0xcbf2_9ce4_8422_2325, fold))
    }

    pub(super) fn attempt_outcome(&self, attempt: &Attempt) -> AttemptOutcome {
        let Attempt { step, item, number } = attempt;
        match self.of(&format!("luck {step} {item:?} {number}")) % 1_000 {
            n if n >= self.fails * 10 => AttemptOutcome::Good,
            n if n % 8 == 0 => AttemptOutcome::Lost,
            _ => AttemptOutcome::Bad,
        }
    }

    /// Returns the decision of a person about a tool call, or `None` if it needs no approval.
    pub(super) fn approval(&self, step: &StepId) -> Option<bool> {
        match self.of(&format!("asks {step}")) % 4 {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }

    /// Returns the number of rounds that an agent takes.
    pub(super) fn rounds(&self, step: &StepId) -> u32 {
        1 + (self.of(&format!("rounds {step}")) % 3) as u32
    }

    /// Returns the value that a step writes. It depends on the inputs of the step.
    pub(super) fn value(
        &self,
        step: &StepId,
        item: Option<u32>,
        name: &str,
        inputs: &Map<String, Value>,
    ) -> Value {
        let mut given: Vec<_> = inputs
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        given.sort();
        let n = self.of(&format!("value {step} {item:?} {name} {given:?}"));
        match name.starts_with('l') {
            true => (0..n % 5).map(|at| json!((n >> (8 * at)) % 100)).collect(),
            false => json!(n % 100),
        }
    }

    /// Returns all variables that a step writes.
    pub(super) fn output(
        &self,
        step: &crate::step::Step,
        item: Option<u32>,
        inputs: &Map<String, Value>,
    ) -> Map<String, Value> {
        let one = |name: &std::sync::Arc<str>| {
            (name.to_string(), self.value(&step.id, item, name, inputs))
        };
        step.writes.iter().map(one).collect()
    }
}
