//! Generates random plans, with an order in which their steps can run sequentially.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use super::seeded_outcomes::SeededRng;
use crate::condition::Condition;
use crate::plan::{Plan, Variable};
use crate::step::{FanOut, Join, OnFailure, Reducer, Retry, Step, StepId};

/// The parameters of a generated plan.
#[derive(Clone, Copy, Debug)]
pub(super) struct PlanShape {
    pub(super) steps: usize,
    /// `true` if fan-outs may stop early. Timing then decides which elements are skipped.
    pub(super) early: bool,
}

/// A plan, and its steps in a sequential order: no step needs a later one.
#[derive(Clone, Debug)]
pub(super) struct GeneratedPlan {
    pub(super) plan: Plan,
    pub(super) order: Vec<StepId>,
}

/// A variable of a plan that is being generated.
#[derive(Debug)]
struct KnownVariable {
    name: Arc<str>,
    reducer: bool,
    /// The last step that writes it; the fallbacks for that step write it, too.
    writer: Option<StepId>,
    /// The steps that have read it since.
    readers: BTreeSet<StepId>,
    /// `true` if it has been read, so that more writers would be too late.
    closed: bool,
}

struct PlanGenerator<'a> {
    rng: &'a mut SeededRng,
    shape: PlanShape,
    steps: Vec<Step>,
    known: Vec<KnownVariable>,
    plan: Plan,
}

pub(super) fn generate_plan(rng: &mut SeededRng, shape: PlanShape) -> GeneratedPlan {
    let mut plan = Plan::new()
        .given("v_given", 7)
        .given("l_given", json!([3, 1, 4, 1, 5]));
    plan = plan.given("v_first", 1);
    let known = ["v_given", "l_given", "v_first"].map(|name| KnownVariable {
        name: name.into(),
        reducer: false,
        writer: None,
        readers: BTreeSet::new(),
        closed: false,
    });
    let mut generator = PlanGenerator {
        rng,
        shape,
        steps: Vec::new(),
        known: known.into(),
        plan,
    };
    while generator.steps.len() < shape.steps {
        generator.step();
    }
    let PlanGenerator {
        mut steps,
        mut plan,
        ..
    } = generator;
    let order = steps.iter().map(|step| step.id.clone()).collect();
    rng.shuffle(&mut steps);
    plan.steps = steps.into_iter().map(Arc::new).collect();
    GeneratedPlan { plan, order }
}

impl PlanGenerator<'_> {
    fn step(&mut self) {
        let id = StepId::new(format!("s{}", self.steps.len()));
        let agent = *self
            .rng
            .pick(&["f", "f", "f", "f", "t", "Thinker"])
            .unwrap();
        let mut step = Step::new(id, agent);
        let mut after: BTreeMap<StepId, Option<Condition>> = BTreeMap::new();
        for _ in 0..self.rng.below(3) {
            if let Some(before) = self.earlier() {
                let when = self
                    .rng
                    .percent(10)
                    .then(|| self.condition(&step.id))
                    .flatten();
                after.insert(before, when);
            }
        }
        for _ in 0..self.rng.below(3) {
            if let Some(name) = self.variable(&step.id, |_| true)
                && !step.reads.contains(&name)
            {
                step.reads.push(name);
            }
        }
        if self.rng.percent(10) {
            step.when = self.condition(&step.id);
        }
        if self.rng.percent(15) {
            step = self.fan_out(step);
        }
        if self.rng.percent(15) {
            step.join = Join::Any;
        }
        if self.rng.percent(25) && !(self.shape.early && step.fan_out().is_some()) {
            let attempts = 2 + self.rng.below(3) as u32;
            step = step.retry(Retry::attempts(attempts).pause(Duration::from_millis(10)));
        }
        self.writes(&mut step, &mut after);
        let me = step.id.to_string();
        step = step.input("me", me);
        step.after = after
            .into_iter()
            .map(|(step, when)| crate::step::After { step, when })
            .collect();
        step.on_failure = match self.rng.below(10) {
            0 | 1 => OnFailure::Skip,
            2 | 3 => OnFailure::Continue,
            _ => OnFailure::Fail,
        };
        self.steps.push(step);
        self.fallbacks();
        if self.rng.percent(10) {
            self.shared();
        }
    }

    fn earlier(&mut self) -> Option<StepId> {
        // Mostly recent steps, so that there are long paths.
        let (all, near) = (self.steps.len(), self.rng.percent(60));
        let from = if near { all.saturating_sub(6) } else { 0 };
        let at = from + self.rng.below(all - from);
        self.steps.get(at).map(|step| step.id.clone())
    }

    /// Returns an existing variable, which `reader` reads from now on.
    fn variable(
        &mut self,
        reader: &StepId,
        fits: impl Fn(&KnownVariable) -> bool,
    ) -> Option<Arc<str>> {
        let all: Vec<usize> = (0..self.known.len())
            .filter(|at| fits(&self.known[*at]))
            .collect();
        let near = if self.rng.percent(60) {
            all.len().saturating_sub(6)
        } else {
            0
        };
        let at = *self.rng.pick(&all[near..])?;
        let known = &mut self.known[at];
        known.readers.insert(reader.clone());
        known.closed = known.reducer;
        Some(known.name.clone())
    }

    fn condition(&mut self, reader: &StepId) -> Option<Condition> {
        let name = self.variable(reader, |known| known.name.starts_with('v'))?;
        let text = match self.rng.below(4) {
            0 => format!("{name} > 30"),
            1 => format!("{name} != null and {name} < 80"),
            2 => format!("{name}"),
            _ => format!("{name} == null or {name} >= 20"),
        };
        Some(Condition::parse(&text).unwrap())
    }

    fn fan_out(&mut self, step: Step) -> Step {
        let any = self.rng.percent(5);
        let fits =
            |known: &KnownVariable| known.name.starts_with('l') || (any && known.writer.is_some());
        let Some(over) = self.variable(&step.id, fits) else {
            return step;
        };
        let is_given = &*over == "l_given";
        let mut map = FanOut::over(over);
        map.quorum = self.rng.percent(50).then(|| 1 + self.rng.below(4));
        map.stop_early = self.shape.early && map.quorum.is_some();
        if self.rng.percent(10) && !is_given {
            map.max_items = 3;
            map.quorum = map.quorum.map(|quorum| quorum.min(3));
        }
        let reducers = [
            Reducer::List,
            Reducer::List,
            Reducer::Concat,
            Reducer::Sum,
            Reducer::First,
            Reducer::Last,
        ];
        map.reducer = *self.rng.pick(&reducers).unwrap();
        step.map(map)
    }

    fn writes(&mut self, step: &mut Step, after: &mut BTreeMap<StepId, Option<Condition>>) {
        for _ in 0..self.rng.below(3) {
            match self.rng.below(10) {
                0 | 1 => self.writes_again(step, after),
                2 => self.writes_among_others(step),
                _ => self.writes_first(step),
            }
        }
    }

    fn writes_first(&mut self, step: &mut Step) {
        let kind = if self.rng.percent(25) { 'l' } else { 'v' };
        let name: Arc<str> = format!("{kind}{}", self.known.len()).into();
        let reducer = self.rng.percent(20);
        if reducer {
            let reducers = [
                Reducer::List,
                Reducer::Concat,
                Reducer::Sum,
                Reducer::Join,
                Reducer::First,
                Reducer::Last,
            ];
            let reducer = *self.rng.pick(&reducers).unwrap();
            self.plan
                .variables
                .insert(name.clone(), Variable::new().reducer(reducer));
        }
        let (writer, readers) = (Some(step.id.clone()), BTreeSet::new());
        self.known.push(KnownVariable {
            name: name.clone(),
            reducer,
            writer,
            readers,
            closed: false,
        });
        step.writes.push(name);
    }

    /// Overwrites a variable, after its last writer and its readers since.
    fn writes_again(&mut self, step: &mut Step, after: &mut BTreeMap<StepId, Option<Condition>>) {
        let fits = |known: &KnownVariable| {
            !known.reducer && known.readers.len() < 6 && !step.writes.contains(&known.name)
        };
        let all: Vec<usize> = (0..self.known.len())
            .filter(|at| fits(&self.known[*at]))
            .collect();
        let Some(at) = self.rng.pick(&all).copied() else {
            return;
        };
        let known = &mut self.known[at];
        let before = known
            .readers
            .iter()
            .chain(&known.writer)
            .filter(|before| **before != step.id);
        for before in before {
            after.entry(before.clone()).or_default();
        }
        known.writer = Some(step.id.clone());
        known.readers.clear();
        step.writes.push(known.name.clone());
    }

    /// Writes a variable whose values a reducer combines.
    fn writes_among_others(&mut self, step: &mut Step) {
        let fits = |known: &KnownVariable| {
            known.reducer && !known.closed && !step.writes.contains(&known.name)
        };
        let all: Vec<usize> = (0..self.known.len())
            .filter(|at| fits(&self.known[*at]))
            .collect();
        if let Some(at) = self.rng.pick(&all) {
            step.writes.push(self.known[*at].name.clone());
        }
    }

    /// Adds one fallback for the last two steps.
    fn shared(&mut self) {
        let many = self.steps.len();
        let [.., first, second] = self.steps.as_mut_slice() else {
            return;
        };
        if [&first, &second]
            .iter()
            .any(|step| step.on_failure != OnFailure::Fail || step.fallback_for().is_some())
        {
            return;
        }
        let id = StepId::new(format!("s{many}"));
        let mut step = Step::new(id.clone(), "f").input("me", id.to_string());
        step.writes = first
            .writes
            .iter()
            .chain(&second.writes)
            .cloned()
            .collect::<BTreeSet<_>>()
            .into_iter()
            .collect();
        first.on_failure = OnFailure::Fallback(id.clone());
        second.on_failure = OnFailure::Fallback(id);
        self.steps.push(step);
    }

    /// Adds a chain of fallbacks for the last step.
    fn fallbacks(&mut self) {
        while self.rng.percent(20) {
            let Some(source) = self.steps.last().cloned() else {
                return;
            };
            let id = StepId::new(format!("s{}", self.steps.len()));
            let mut step = Step::new(id.clone(), "f").input("me", id.to_string());
            step.writes.clone_from(&source.writes);
            step.reads = source
                .reads
                .iter()
                .filter(|_| self.rng.percent(70))
                .cloned()
                .collect();
            for name in &step.reads {
                if let Some(known) = self.known.iter_mut().find(|known| known.name == *name)
                    && !step.writes.contains(name)
                {
                    known.readers.insert(id.clone());
                }
            }
            if self.rng.percent(10) {
                step.when = self.condition_of(&source, &id);
            }
            if self.rng.percent(50) {
                step = step.instead_of(source.id.clone());
            } else if let Some(last) = self.steps.last_mut() {
                last.on_failure = OnFailure::Fallback(id);
            }
            self.steps.push(step);
        }
    }

    /// Returns a condition on a variable that a step reads and does not write.
    fn condition_of(&mut self, source: &Step, reader: &StepId) -> Option<Condition> {
        let name = source
            .reads
            .iter()
            .find(|name| name.starts_with('v') && !source.writes.contains(*name))?;
        let known = self.known.iter_mut().find(|known| known.name == *name)?;
        known.readers.insert(reader.clone());
        Condition::parse(&format!("{name} > 50")).ok()
    }
}
