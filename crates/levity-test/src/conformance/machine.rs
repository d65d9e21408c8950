use levity_core::{Effect, EffectId, Input, Limit, Machine, RunId, Status, Step};
use serde_json::Value;

use super::check::{calmly, kept, same};
use super::junk::Junk;

/// Checks a [`Machine`].
///
/// `make` returns the same machine each time, before its first input. It is fed the inputs of many made-up
/// runs: sensible outcomes, outcomes of the wrong kind, effects that nobody asked for or that finished
/// before, words of the host, limits, in any order.
///
/// What is checked:
/// - kind and `save` are the same for each machine that `make` returns; what `save` returns survives JSON,
///   and calling it changes nothing;
/// - the same inputs in the same order give the same effects, events and ending;
/// - no input makes it panic, also before the beginning and after the end;
/// - effects are numbered upwards, over the whole run; a question bears its number and its run;
/// - it ends at once on `Cancel`, as [`Cancelled`](Status::Cancelled), and on `Stop`, wherever it stands;
/// - once it has ended it wants nothing more, and its ending stays.
///
/// That a machine can be built again from what it saved is checked by [`machine_restored`].
///
/// # Panics
/// When a promise is broken.
pub async fn machine<M: Machine>(make: impl Fn() -> M) {
    let machine = make();
    same(&make().kind(), &machine.kind(), "machine: `kind` always returns the same");
    assert!(!machine.kind().name.is_empty(), "machine: its kind has a name");
    check_saved(&make().save(), &machine.save());
    for seed in 0..RUNS {
        let (inputs, trace) = explore(make(), seed);
        same(&feed(make(), &inputs), &trace, SAME);
        for at in [0, 1, inputs.len() / 2, inputs.len()] {
            check_ends(&make, &inputs[..at.min(inputs.len())]);
        }
    }
}

/// Checks that what a [`Machine`] saves before its first input is enough to build it again.
///
/// The machine that `restore` builds is compared, over many made-up runs, with one that `make` returns:
/// same state, effects, events and endings.
///
/// # Panics
/// When a promise is broken.
pub async fn machine_restored<M: Machine, R: Machine>(make: impl Fn() -> M, restore: impl Fn(Value) -> R) {
    let promise = "machine: what `save` returns before the first input is enough to build it again";
    let again = || {
        let json = kept(serde_json::to_string(&make().save()), promise);
        restore(kept(serde_json::from_str(&json), promise))
    };
    same(&again().kind(), &make().kind(), promise);
    same(&again().save(), &make().save(), promise);
    for seed in 0..RUNS {
        let (inputs, trace) = explore(make(), seed);
        same(&feed(again(), &inputs), &trace, promise);
    }
}

/// How many runs are made up.
const RUNS: u64 = 100;
/// How many inputs each has.
const INPUTS: usize = 60;

const SAME: &str = "machine: the same inputs in the same order give the same effects, events and ending";
const PANIC: &str = "machine: no input makes it panic";

fn check_saved(again: &Value, saved: &Value) {
    same(again, saved, "machine: `save` is the same for the same machine");
    let promise = "machine: what `save` returns survives JSON";
    let read: Value = kept(serde_json::from_str(&saved.to_string()), promise);
    same(&read, saved, promise);
}

/// All that can be seen of a machine, input by input.
type Trace = Vec<String>;

/// Makes up a run, and returns its inputs and what the machine did.
fn explore<M: Machine>(machine: M, seed: u64) -> (Vec<Input>, Trace) {
    let mut junk = Junk::new(seed);
    let mut driven = Driven::new(machine);
    let mut inputs = Vec::new();
    for n in 0..INPUTS {
        let input = junk.input(n, &driven.wanted);
        inputs.push(input.clone());
        driven.apply(input);
    }
    (inputs, driven.trace)
}

fn feed<M: Machine>(machine: M, inputs: &[Input]) -> Trace {
    let mut driven = Driven::new(machine);
    for input in inputs {
        // Whatever it does, it must not be seen in the trace.
        let _ = calmly(|| driven.machine.save(), "machine: `save` does not panic");
        driven.apply(input.clone());
    }
    driven.trace
}

fn check_ends<M: Machine>(make: &impl Fn() -> M, inputs: &[Input]) {
    let cancel = Input::Cancel { reason: "the host wants no more".into() };
    for last in [cancel, Input::Stop(Limit::Tokens), Input::Stop(Limit::WallTime)] {
        let mut driven = Driven::new(make());
        inputs.iter().for_each(|input| driven.apply(input.clone()));
        let ended = driven.machine.ending().is_some();
        driven.apply(last.clone());
        let status = driven.machine.ending().map(|ending| &ending.status);
        assert!(status.is_some(), "machine: it ends at once on `Cancel` and `Stop`\nnot so on: {last:?}");
        if !ended && matches!(last, Input::Cancel { .. }) {
            let cancelled = matches!(status, Some(Status::Cancelled { .. }));
            assert!(cancelled, "machine: cancelled, it ends as `Cancelled`\nfound: {status:?}");
        }
    }
}

/// A machine, and what it did so far.
struct Driven<M> {
    machine: M,
    run: RunId,
    wanted: Vec<(EffectId, Effect)>,
    trace: Trace,
}

impl<M: Machine> Driven<M> {
    fn new(machine: M) -> Self {
        Self { machine, run: RunId::new("r1"), wanted: Vec::new(), trace: Vec::new() }
    }

    fn apply(&mut self, input: Input) {
        let before = self.machine.ending().cloned();
        let mut step = Step::new();
        let told = format!("{input:?}");
        calmly(|| self.machine.apply(input, &mut step), PANIC);
        let after = self.machine.ending();
        if before.is_some() {
            same(&after, &before.as_ref(), "machine: an ending stays");
        }
        let quiet = after.is_none() || step.effects.is_empty();
        assert!(
            quiet,
            "machine: after an ending it wants nothing more\nafter {told}\nfound: {:?}",
            step.effects
        );
        self.trace.push(format!("{told}\n{:?}\n{:?}\n{after:?}", step.effects, step.events));
        self.check_effects(&step);
        self.wanted.append(&mut step.effects);
    }

    fn check_effects(&self, step: &Step) {
        let mut last = self.wanted.last().map(|(id, _)| *id);
        for (id, effect) in &step.effects {
            let upwards = last.is_none_or(|last| last < *id);
            assert!(upwards, "machine: effects are numbered upwards\nfound: {id} after {last:?}");
            last = Some(*id);
            if let Effect::Ask(ask) = effect {
                same(&ask.effect, id, "machine: a question bears its own number");
                same(&ask.run, &self.run, "machine: a question bears its run");
            }
        }
    }
}
