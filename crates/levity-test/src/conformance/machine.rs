//! The suites for machines.
//!
//! A machine must be deterministic, because a resumed run folds its records with the code again.
//! The suites generate runs of 60 inputs, feed them to several copies, and compare everything
//! observable as text. 100 runs check the behaviour, 15 runs the saved states, since those rebuild
//! the machine after every input.

use levity_core::{
    Effect, EffectId, Ending, Input, Limit, Machine, MachineOutput, RunId, Status, Timestamp,
};
use serde_json::Value;

use super::check::{expect_ok, no_panic_sync, same};
use super::generate::InputGenerator;

/// Checks a [`Machine`] against its contract.
///
/// `make` returns the same machine each time, before its first input. The suite feeds it the inputs
/// of many generated runs, in any order: valid outcomes, outcomes of the wrong kind, effects that
/// were not requested or that finished before, messages of the host, limits.
///
/// The suite checks:
/// - kind and `save` are the same for each machine that `make` returns; the result of `save`
///   survives JSON, and calling it changes nothing;
/// - the same inputs in the same order give the same effects, events and ending;
/// - no input makes it panic, even before the start and after the end;
/// - effects are numbered upwards, over the whole run; a question has its number and its run;
/// - it ends at once on `Cancel`, as [`Cancelled`](Status::Cancelled), and on `Stop`, in every
///   phase;
/// - once it has ended it requests nothing more, and its ending does not change.
///
/// Use [`machine_restored`] to check that a machine can be rebuilt from its saved state, and
/// [`machine_damaged`] to check that damaged states do no harm.
///
/// ```
/// use levity_core::{Ending, Input, Machine, MachineKind, MachineOutput, Status};
/// use levity_test::conformance;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// /// Ends as soon as it begins.
/// #[derive(Default)]
/// struct Instant(Option<Ending>);
///
/// impl Machine for Instant {
///     fn kind(&self) -> MachineKind {
///         MachineKind::new("instant", 1)
///     }
///     fn save(&self) -> serde_json::Value {
///         serde_json::json!(self.0)
///     }
///     fn apply(&mut self, input: Input, _: &mut MachineOutput) {
///         let status = match input {
///             Input::Begin { .. } => Status::Complete,
///             Input::Cancel { reason } => Status::Cancelled { reason },
///             Input::Stop(limit) => Status::Partial(limit),
///             _ => return,
///         };
///         self.0.get_or_insert(Ending::new(status));
///     }
///     fn ending(&self) -> Option<&Ending> {
///         self.0.as_ref()
///     }
/// }
///
/// conformance::machine(Instant::default).await;
/// let restore = |state| Instant(serde_json::from_value(state).expect("a saved state"));
/// conformance::machine_restored(Instant::default, restore).await;
/// # }
/// ```
///
/// # Panics
/// Panics if a promise is broken.
pub async fn machine<M: Machine>(make: impl Fn() -> M) {
    let machine = make();
    same(
        &make().kind(),
        &machine.kind(),
        "machine: `kind` always returns the same",
    );
    assert!(
        !machine.kind().name.is_empty(),
        "machine: its kind has a name"
    );
    check_saved(&make().save(), &machine.save());
    for seed in 0..RUNS {
        let (inputs, trace) = explore(make(), seed);
        same(&feed(make(), &inputs), &trace, SAME);
        for at in [0, 1, inputs.len() / 2, inputs.len()] {
            check_ends(&make, &inputs[..at.min(inputs.len())]);
        }
    }
}

/// Checks that a [`Machine`] can be rebuilt from its saved state at any time between two inputs.
///
/// `make` returns the same machine each time, before its first input, and `restore` builds one from
/// a saved state. The suite feeds it the inputs of many generated runs, and compares it with
/// rebuilt machines: before the first input, after every input, and once in the middle. All give
/// the same effects, events, endings and states, byte for byte.
///
/// # Panics
/// Panics if a promise is broken.
pub async fn machine_restored<M: Machine, R: Machine>(
    make: impl Fn() -> M,
    restore: impl Fn(Value) -> R,
) {
    let again = || restored(&make().save(), &restore);
    same(&again().kind(), &make().kind(), RESTORED);
    same(&again().save(), &make().save(), RESTORED);
    for seed in 0..RESTORED_RUNS {
        let (inputs, _) = explore(make(), seed);
        let timed: Vec<_> = inputs
            .into_iter()
            .map(|input| (Timestamp::default(), input))
            .collect();
        let at = usize::try_from(seed).unwrap_or_default() % timed.len().max(1);
        check_restored(&make, &restore, &timed, &[at]);
    }
}

/// Checks as [`machine_restored`] does, along the inputs of your own run: for states that generated
/// inputs do not reach.
///
/// # Panics
/// Panics if a promise is broken.
pub async fn machine_restored_along<M: Machine, R: Machine>(
    make: impl Fn() -> M,
    restore: impl Fn(Value) -> R,
    inputs: impl IntoIterator<Item = Input>,
) {
    let timed: Vec<_> = inputs
        .into_iter()
        .map(|input| (Timestamp::default(), input))
        .collect();
    check_restored(
        &make,
        &restore,
        &timed,
        &(0..timed.len()).collect::<Vec<_>>(),
    );
}

/// Checks that no damaged state of a [`Machine`] makes `restore`, or the machine that it builds,
/// panic.
///
/// The suite saves states along many generated runs and changes them in one or several places: it
/// removes a value, or replaces it with one of another kind or size. `restore` returns an error
/// that describes the problem, or a machine. A machine accepts any input without a panic, and ends
/// on `Cancel`.
///
/// # Panics
/// Panics if a promise is broken.
pub async fn machine_damaged<M: Machine, R: Machine>(
    make: impl Fn() -> M,
    restore: impl Fn(&Value) -> Result<R, String>,
) {
    let promise = "machine: `restore` does not panic on a damaged state";
    for seed in 0..RESTORED_RUNS {
        let mut generator = InputGenerator::new(seed);
        let (inputs, _) = explore(make(), seed);
        let mut machine = make();
        for input in inputs.iter().take(generator.place(inputs.len())) {
            machine.apply(input.clone(), &mut MachineOutput::new());
        }
        let whole = machine.save();
        for _ in 0..DAMAGES {
            let mut state = whole.clone();
            generator.damage(&mut state);
            match no_panic_sync(|| restore(&state), promise) {
                Err(why) => {
                    assert!(
                        !why.trim().is_empty(),
                        "machine: the error of `restore` describes the problem"
                    );
                }
                Ok(damaged) => survives(damaged, &inputs, &mut generator),
            }
        }
    }
}

/// Checks that a machine from a damaged state accepts inputs, whatever it does with them, and ends.
fn survives<M: Machine>(mut machine: M, inputs: &[Input], generator: &mut InputGenerator) {
    let promise = "machine: built from a damaged state, no input makes it panic";
    let mut wanted: Vec<(EffectId, Effect)> = Vec::new();
    let mut apply = |input: Input, wanted: &mut Vec<(EffectId, Effect)>| {
        let mut step = MachineOutput::new();
        no_panic_sync(|| machine.apply(input, &mut step), promise);
        wanted.append(&mut step.effects);
        machine.ending().is_some()
    };
    for input in inputs.iter().take(INPUTS / 6) {
        apply(input.clone(), &mut wanted);
        let own = generator.input(1, &wanted);
        apply(own, &mut wanted);
    }
    let cancel = Input::Cancel {
        reason: "the host wants no more".into(),
    };
    assert!(
        apply(cancel, &mut wanted),
        "machine: built from a damaged state, it ends on `Cancel`"
    );
    no_panic_sync(
        || (machine.save(), machine.partial_ending(Status::Complete)),
        promise,
    );
}

const RESTORED: &str =
    "machine: the result of `save` between two inputs is enough to rebuild it, in the same state";

fn restored<R>(state: &Value, restore: &impl Fn(Value) -> R) -> R {
    let json = expect_ok(serde_json::to_string(state), RESTORED);
    let state = expect_ok(serde_json::from_str(&json), RESTORED);
    no_panic_sync(|| restore(state), RESTORED)
}

/// Feeds inputs, with the time of each, to a machine, to one that is rebuilt after every input, and
/// to those that are rebuilt once, after so many inputs. All must behave the same.
pub(super) fn check_restored<M: Machine, R: Machine>(
    make: &impl Fn() -> M,
    restore: &impl Fn(Value) -> R,
    inputs: &[(Timestamp, Input)],
    once: &[usize],
) {
    let mut whole = Driven::new(make());
    let mut often = Driven::new(restored(&make().save(), restore));
    let mut others: Vec<Driven<R>> = Vec::new();
    for (n, (at, input)) in inputs.iter().enumerate() {
        let saved = whole.machine.save();
        if once.contains(&n) {
            others.push(whole.restored(&saved, restore));
        }
        for other in others.iter_mut().chain([&mut often]) {
            other.apply_at(*at, input.clone());
        }
        whole.apply_at(*at, input.clone());
        let seen = whole.seen();
        for other in others.iter().chain([&often]) {
            let same = other.seen() == seen;
            assert!(
                same,
                "{RESTORED}\nafter input {n}: {input:?}\n   found: {:?}\nexpected: {seen:?}",
                other.seen()
            );
        }
        often = whole.restored(&often.machine.save(), restore);
    }
    let last = whole.restored(&whole.machine.save(), restore);
    same(&last.machine.ending(), &whole.machine.ending(), RESTORED);
    same(
        &last.machine.save().to_string(),
        &whole.machine.save().to_string(),
        RESTORED,
    );
}

/// The number of generated runs.
const RUNS: u64 = 100;
/// The number of runs with a rebuild after every input, or from damaged states.
const RESTORED_RUNS: u64 = 15;
/// The number of damaged copies of each state.
const DAMAGES: usize = 20;
/// The number of inputs of each run.
const INPUTS: usize = 60;

const SAME: &str =
    "machine: the same inputs in the same order give the same effects, events and ending";
const PANIC: &str = "machine: no input makes it panic";

fn check_saved(again: &Value, saved: &Value) {
    same(
        again,
        saved,
        "machine: `save` is the same for the same machine",
    );
    let promise = "machine: the result of `save` survives JSON";
    let read: Value = expect_ok(serde_json::from_str(&saved.to_string()), promise);
    same(&read, saved, promise);
}

/// Everything observable of a machine, input by input.
type Trace = Vec<String>;

/// Generates a run, and returns its inputs and the behaviour of the machine.
///
/// The inputs depend on the effects that the machine requests, so a feedback loop generates them.
fn explore<M: Machine>(machine: M, seed: u64) -> (Vec<Input>, Trace) {
    let mut generator = InputGenerator::new(seed);
    let mut driven = Driven::new(machine);
    let mut inputs = Vec::new();
    for n in 0..INPUTS {
        let input = generator.input(n, &driven.wanted);
        inputs.push(input.clone());
        driven.apply(input);
    }
    (inputs, driven.trace)
}

fn feed<M: Machine>(machine: M, inputs: &[Input]) -> Trace {
    let mut driven = Driven::new(machine);
    for input in inputs {
        // Calling `save` must not change the trace.
        let _ = no_panic_sync(|| driven.machine.save(), "machine: `save` does not panic");
        driven.apply(input.clone());
    }
    driven.trace
}

/// Checks that the machine ends after these inputs on each of the inputs that must end it.
fn check_ends<M: Machine>(make: &impl Fn() -> M, inputs: &[Input]) {
    let cancel = Input::Cancel {
        reason: "the host wants no more".into(),
    };
    for last in [
        cancel,
        Input::Stop(Limit::Tokens),
        Input::Stop(Limit::WallTime),
    ] {
        let mut driven = Driven::new(make());
        inputs.iter().for_each(|input| driven.apply(input.clone()));
        let ended = driven.machine.ending().is_some();
        driven.apply(last.clone());
        let status = driven.machine.ending().map(|ending| &ending.status);
        assert!(
            status.is_some(),
            "machine: it ends at once on `Cancel` and `Stop`\nnot so on: {last:?}"
        );
        if !ended && matches!(last, Input::Cancel { .. }) {
            let cancelled = matches!(status, Some(Status::Cancelled { .. }));
            assert!(
                cancelled,
                "machine: when cancelled, it ends as `Cancelled`\nfound: {status:?}"
            );
        }
    }
}

/// A machine with its behaviour up to now.
struct Driven<M> {
    machine: M,
    run: RunId,
    wanted: Vec<(EffectId, Effect)>,
    trace: Trace,
}

impl<M: Machine> Driven<M> {
    fn new(machine: M) -> Self {
        Self {
            machine,
            run: RunId::new("r1"),
            wanted: Vec::new(),
            trace: Vec::new(),
        }
    }

    /// Returns a machine that is rebuilt from the saved state of this one, with the same past.
    fn restored<R: Machine>(&self, saved: &Value, restore: &impl Fn(Value) -> R) -> Driven<R> {
        let machine = restored(saved, restore);
        Driven {
            machine,
            run: self.run.clone(),
            wanted: self.wanted.clone(),
            trace: Vec::new(),
        }
    }

    /// Returns everything observable of it after its last input.
    fn seen(&self) -> (Option<&String>, String, Ending) {
        let so_far = self.machine.partial_ending(Status::Complete);
        (self.trace.last(), self.machine.save().to_string(), so_far)
    }

    fn apply(&mut self, input: Input) {
        self.apply_at(Timestamp::default(), input);
    }

    fn apply_at(&mut self, at: Timestamp, input: Input) {
        let before = self.machine.ending().cloned();
        if let Input::Begin { run, .. } = &input {
            self.run = run.clone();
        }
        let mut step = MachineOutput::new();
        step.set_at(at);
        let input_text = format!("{input:?}");
        no_panic_sync(|| self.machine.apply(input, &mut step), PANIC);
        let after = self.machine.ending();
        if before.is_some() {
            same(
                &after,
                &before.as_ref(),
                "machine: an ending does not change",
            );
        }
        let quiet = after.is_none() || step.effects.is_empty();
        assert!(
            quiet,
            "machine: after an ending it requests nothing more\nafter {input_text}\nfound: {:?}",
            step.effects
        );
        self.trace.push(format!(
            "{input_text}\n{:?}\n{:?}\n{after:?}",
            step.effects, step.events
        ));
        self.check_effects(&step);
        self.wanted.append(&mut step.effects);
    }

    fn check_effects(&self, step: &MachineOutput) {
        let mut last = self.wanted.last().map(|(id, _)| *id);
        for (id, effect) in &step.effects {
            let upwards = last.is_none_or(|last| last < *id);
            assert!(
                upwards,
                "machine: effects are numbered upwards\nfound: {id} after {last:?}"
            );
            last = Some(*id);
            if let Effect::Ask(ask) = effect {
                same(&ask.effect, id, "machine: a question has its own number");
                same(&ask.run, &self.run, "machine: a question has its run");
            }
        }
    }
}
