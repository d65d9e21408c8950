//! Plans that are made up, with an order in which one step after the other can be done.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use super::fate::Dice;
use crate::condition::Condition;
use crate::plan::{Plan, Variable};
use crate::step::{FanOut, Join, OnFailure, Reducer, Retry, Step, StepId};

/// How plans are made up.
#[derive(Clone, Copy, Debug)]
pub(super) struct Taste {
    pub(super) steps: usize,
    /// Whether lists may be left early once enough is there. What is left out is then a matter of
    /// time.
    pub(super) early: bool,
}

/// A plan, and its steps in an order in which they were made: no step needs a later one.
#[derive(Clone, Debug)]
pub(super) struct Made {
    pub(super) plan: Plan,
    pub(super) order: Vec<StepId>,
}

/// A variable while a plan is made.
#[derive(Debug)]
struct Known {
    name: Arc<str>,
    reducer: bool,
    /// The last step that writes it; those who stand in for that one write it, too.
    writer: Option<StepId>,
    /// Who has read it since.
    readers: BTreeSet<StepId>,
    /// It has been read, and more writers would come too late.
    closed: bool,
}

struct Maker<'a> {
    dice: &'a mut Dice,
    taste: Taste,
    steps: Vec<Step>,
    known: Vec<Known>,
    plan: Plan,
}

pub(super) fn made(dice: &mut Dice, taste: Taste) -> Made {
    let mut plan = Plan::new()
        .given("v_given", 7)
        .given("l_given", json!([3, 1, 4, 1, 5]));
    plan = plan.given("v_first", 1);
    let known = ["v_given", "l_given", "v_first"].map(|name| Known {
        name: name.into(),
        reducer: false,
        writer: None,
        readers: BTreeSet::new(),
        closed: false,
    });
    let mut maker = Maker {
        dice,
        taste,
        steps: Vec::new(),
        known: known.into(),
        plan,
    };
    while maker.steps.len() < taste.steps {
        maker.step();
    }
    let Maker {
        mut steps,
        mut plan,
        ..
    } = maker;
    let order = steps.iter().map(|step| step.id.clone()).collect();
    dice.shuffle(&mut steps);
    plan.steps = steps.into_iter().map(Arc::new).collect();
    Made { plan, order }
}

impl Maker<'_> {
    fn step(&mut self) {
        let id = StepId::new(format!("s{}", self.steps.len()));
        let agent = *self
            .dice
            .pick(&["f", "f", "f", "f", "t", "Thinker"])
            .unwrap();
        let mut step = Step::new(id, agent);
        let mut after: BTreeMap<StepId, Option<Condition>> = BTreeMap::new();
        for _ in 0..self.dice.below(3) {
            if let Some(before) = self.earlier() {
                let when = self
                    .dice
                    .percent(10)
                    .then(|| self.condition(&step.id))
                    .flatten();
                after.insert(before, when);
            }
        }
        for _ in 0..self.dice.below(3) {
            if let Some(name) = self.variable(&step.id, |_| true)
                && !step.reads.contains(&name)
            {
                step.reads.push(name);
            }
        }
        if self.dice.percent(10) {
            step.when = self.condition(&step.id);
        }
        if self.dice.percent(15) {
            step = self.fan_out(step);
        }
        if self.dice.percent(15) {
            step.join = Join::Any;
        }
        if self.dice.percent(25) && !(self.taste.early && step.fan_out().is_some()) {
            let attempts = 2 + self.dice.below(3) as u32;
            step = step.retry(Retry::attempts(attempts).pause(Duration::from_millis(10)));
        }
        self.writes(&mut step, &mut after);
        let me = step.id.to_string();
        step = step.input("me", me);
        step.after = after
            .into_iter()
            .map(|(step, when)| crate::step::After { step, when })
            .collect();
        step.on_failure = match self.dice.below(10) {
            0 | 1 => OnFailure::Skip,
            2 | 3 => OnFailure::Continue,
            _ => OnFailure::Fail,
        };
        self.steps.push(step);
        self.stand_ins();
        if self.dice.percent(10) {
            self.shared();
        }
    }

    fn earlier(&mut self) -> Option<StepId> {
        // Mostly near ones, so that there are long ways.
        let (all, near) = (self.steps.len(), self.dice.percent(60));
        let from = if near { all.saturating_sub(6) } else { 0 };
        let at = from + self.dice.below(all - from);
        self.steps.get(at).map(|step| step.id.clone())
    }

    /// A variable that is there, which `reader` reads from now on.
    fn variable(&mut self, reader: &StepId, fits: impl Fn(&Known) -> bool) -> Option<Arc<str>> {
        let all: Vec<usize> = (0..self.known.len())
            .filter(|at| fits(&self.known[*at]))
            .collect();
        let near = if self.dice.percent(60) {
            all.len().saturating_sub(6)
        } else {
            0
        };
        let at = *self.dice.pick(&all[near..])?;
        let known = &mut self.known[at];
        known.readers.insert(reader.clone());
        known.closed = known.reducer;
        Some(known.name.clone())
    }

    fn condition(&mut self, reader: &StepId) -> Option<Condition> {
        let name = self.variable(reader, |known| known.name.starts_with('v'))?;
        let text = match self.dice.below(4) {
            0 => format!("{name} > 30"),
            1 => format!("{name} != null and {name} < 80"),
            2 => format!("{name}"),
            _ => format!("{name} == null or {name} >= 20"),
        };
        Some(Condition::parse(&text).unwrap())
    }

    fn fan_out(&mut self, step: Step) -> Step {
        let any = self.dice.percent(5);
        let fits = |known: &Known| known.name.starts_with('l') || (any && known.writer.is_some());
        let Some(over) = self.variable(&step.id, fits) else {
            return step;
        };
        let is_given = &*over == "l_given";
        let mut map = FanOut::over(over);
        map.quorum = self.dice.percent(50).then(|| 1 + self.dice.below(4));
        map.stop_early = self.taste.early && map.quorum.is_some();
        if self.dice.percent(10) && !is_given {
            map.most = 3;
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
        map.reducer = *self.dice.pick(&reducers).unwrap();
        step.map(map)
    }

    fn writes(&mut self, step: &mut Step, after: &mut BTreeMap<StepId, Option<Condition>>) {
        for _ in 0..self.dice.below(3) {
            match self.dice.below(10) {
                0 | 1 => self.writes_again(step, after),
                2 => self.writes_among_others(step),
                _ => self.writes_first(step),
            }
        }
    }

    fn writes_first(&mut self, step: &mut Step) {
        let kind = if self.dice.percent(25) { 'l' } else { 'v' };
        let name: Arc<str> = format!("{kind}{}", self.known.len()).into();
        let reducer = self.dice.percent(20);
        if reducer {
            let reducers = [
                Reducer::List,
                Reducer::Concat,
                Reducer::Sum,
                Reducer::Join,
                Reducer::First,
                Reducer::Last,
            ];
            let reducer = *self.dice.pick(&reducers).unwrap();
            self.plan
                .variables
                .insert(name.clone(), Variable::new().reducer(reducer));
        }
        let (writer, readers) = (Some(step.id.clone()), BTreeSet::new());
        self.known.push(Known {
            name: name.clone(),
            reducer,
            writer,
            readers,
            closed: false,
        });
        step.writes.push(name);
    }

    /// Writes a variable after another: after that one, and after those who have read it since.
    fn writes_again(&mut self, step: &mut Step, after: &mut BTreeMap<StepId, Option<Condition>>) {
        let fits = |known: &Known| {
            !known.reducer && known.readers.len() < 6 && !step.writes.contains(&known.name)
        };
        let all: Vec<usize> = (0..self.known.len())
            .filter(|at| fits(&self.known[*at]))
            .collect();
        let Some(at) = self.dice.pick(&all).copied() else {
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

    /// Writes a variable whose values are put together.
    fn writes_among_others(&mut self, step: &mut Step) {
        let fits =
            |known: &Known| known.reducer && !known.closed && !step.writes.contains(&known.name);
        let all: Vec<usize> = (0..self.known.len())
            .filter(|at| fits(&self.known[*at]))
            .collect();
        if let Some(at) = self.dice.pick(&all) {
            step.writes.push(self.known[*at].name.clone());
        }
    }

    /// Has one step stand in for the last two.
    fn shared(&mut self) {
        let many = self.steps.len();
        let [.., first, second] = self.steps.as_mut_slice() else {
            return;
        };
        if [&first, &second]
            .iter()
            .any(|step| step.on_failure != OnFailure::Fail || step.stands_in_for().is_some())
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

    /// Has others stand in for the last step, one for the other.
    fn stand_ins(&mut self) {
        while self.dice.percent(20) {
            let Some(source) = self.steps.last().cloned() else {
                return;
            };
            let id = StepId::new(format!("s{}", self.steps.len()));
            let mut step = Step::new(id.clone(), "f").input("me", id.to_string());
            step.writes.clone_from(&source.writes);
            step.reads = source
                .reads
                .iter()
                .filter(|_| self.dice.percent(70))
                .cloned()
                .collect();
            for name in &step.reads {
                if let Some(known) = self.known.iter_mut().find(|known| known.name == *name)
                    && !step.writes.contains(name)
                {
                    known.readers.insert(id.clone());
                }
            }
            if self.dice.percent(10) {
                step.when = self.condition_of(&source, &id);
            }
            if self.dice.percent(50) {
                step = step.instead_of(source.id.clone());
            } else if let Some(last) = self.steps.last_mut() {
                last.on_failure = OnFailure::Fallback(id);
            }
            self.steps.push(step);
        }
    }

    /// A condition on something that a step reads and does not write.
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
