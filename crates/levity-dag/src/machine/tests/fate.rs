//! What comes of each attempt: a pure function of a seed.

use serde_json::{Map, Value, json};

use crate::step::StepId;

/// Numbers that look random and are the same for the same seed.
#[derive(Clone, Debug)]
pub(super) struct Dice(pub(super) u64);

impl Dice {
    pub(super) fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mixed(self.0)
    }

    pub(super) fn below(&mut self, end: usize) -> usize {
        (self.roll() % end.max(1) as u64) as usize
    }

    /// So many times in a hundred.
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

/// What one attempt comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Luck {
    Good,
    /// It fails, and another attempt may do better.
    Bad,
    /// Nobody knows what came of it: it is not tried again.
    Lost,
}

/// Decides about every attempt of a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fate {
    pub(super) seed: u64,
    /// How many attempts in a hundred fail.
    pub(super) fails: u64,
}

/// One attempt at a step, or at one element.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Attempt {
    pub(super) step: StepId,
    pub(super) item: Option<u32>,
    pub(super) number: u32,
}

impl Fate {
    fn of(&self, what: &str) -> u64 {
        let fold =
            |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        mixed(what.bytes().fold(self.seed ^ 0xcbf2_9ce4_8422_2325, fold))
    }

    pub(super) fn luck(&self, attempt: &Attempt) -> Luck {
        let Attempt { step, item, number } = attempt;
        match self.of(&format!("luck {step} {item:?} {number}")) % 1_000 {
            n if n >= self.fails * 10 => Luck::Good,
            n if n % 8 == 0 => Luck::Lost,
            _ => Luck::Bad,
        }
    }

    /// Whether a person is asked before a tool is called, and what that person says.
    pub(super) fn asks(&self, step: &StepId) -> Option<bool> {
        match self.of(&format!("asks {step}")) % 4 {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }

    /// How many rounds an agent takes.
    pub(super) fn rounds(&self, step: &StepId) -> u32 {
        1 + (self.of(&format!("rounds {step}")) % 3) as u32
    }

    /// What a step writes, by what it was given: whoever reads another value writes another.
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

    /// All that a step writes.
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
