use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};

use levity_core::{
    Ask, Effect, EffectId, Ending, EventKind, Failure, Input, Machine, MachineKind, MachineOutput,
    ModelCall, Offer, Outcome, Request, RunId, Status, ToolCall, ToolRun,
};
use levity_test::conformance;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{block_on, refuses};

#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Flaw {
    #[default]
    None,
    NoKind,
    KindChanges,
    SaveChanges,
    HashOrder,
    Clock,
    PanicsOnUnknownEffect,
    PanicsBeforeBegin,
    NumbersAnew,
    WrongNumberInAsk,
    WrongRunInAsk,
    IgnoresCancel,
    IgnoresStop,
    CancelledAsComplete,
    WantsAfterEnd,
    EndsTwice,
    SavesTooLittle,
    ForgetsWhatIsOpen,
    ForgetsItsEnding,
    RestoresAnything,
}

/// A minimal agent: asks the model, calls its tools, and ends with its first word.
#[derive(Default)]
struct Agent {
    flaw: Flaw,
    goal: String,
    run: Option<RunId>,
    last: u64,
    open: HashMap<EffectId, Option<ToolCall>>,
    ending: Option<Ending>,
}

#[derive(Deserialize)]
struct Saved {
    goal: String,
    run: Option<RunId>,
    last: u64,
    open: HashMap<EffectId, Option<ToolCall>>,
    ending: Option<Ending>,
}

/// The global state that a careless machine reads and should not.
static CLOCK: AtomicU64 = AtomicU64::new(0);

impl Agent {
    fn new(flaw: Flaw) -> Self {
        Self {
            flaw,
            goal: "add".into(),
            ..Self::default()
        }
    }

    fn restore(flaw: Flaw, state: &Value) -> Self {
        Self::try_restore(flaw, state).unwrap()
    }

    fn try_restore(flaw: Flaw, state: &Value) -> Result<Self, String> {
        let saved = Saved::deserialize(state).map_err(|error| error.to_string());
        let Saved {
            goal,
            run,
            last,
            open,
            ending,
        } = match flaw {
            Flaw::RestoresAnything => saved.unwrap(),
            _ => saved?,
        };
        if last.checked_add(1_000).is_none() {
            return Err("it has too many effects".to_owned());
        }
        Ok(match flaw {
            Flaw::SavesTooLittle => Self {
                flaw,
                goal: String::new(),
                run,
                last,
                open,
                ending,
            },
            Flaw::ForgetsWhatIsOpen => Self {
                goal,
                run,
                last,
                ending,
                ..Self::new(flaw)
            },
            Flaw::ForgetsItsEnding => Self {
                goal,
                run,
                last,
                open,
                ..Self::new(flaw)
            },
            _ => Self {
                flaw,
                goal,
                run,
                last,
                open,
                ending,
            },
        })
    }

    fn want(
        &mut self,
        call: Option<ToolCall>,
        effect: impl FnOnce(EffectId) -> Effect,
        step: &mut MachineOutput,
    ) {
        self.last += 1;
        let id = EffectId::new(if self.flaw == Flaw::NumbersAnew {
            self.last % 3
        } else {
            self.last
        });
        self.open.insert(id, call);
        step.request(id, effect(id));
    }

    fn ask_model(&mut self, step: &mut MachineOutput) {
        let request = Request::new().with_system(self.goal.as_str());
        self.want(
            None,
            |_| Effect::Model(ModelCall::new("main", request, Offer::All)),
            step,
        );
    }

    fn end(&mut self, status: Status, step: &mut MachineOutput) {
        let ending = Ending::new(status);
        step.emit(EventKind::RunEnded(Box::new(ending.clone())));
        self.ending = Some(ending);
        self.open.clear();
    }

    fn finished(&mut self, effect: EffectId, outcome: Outcome, step: &mut MachineOutput) {
        let Some(call) = self.open.remove(&effect) else {
            assert!(
                self.flaw != Flaw::PanicsOnUnknownEffect,
                "who asked for that"
            );
            return;
        };
        match (call, outcome) {
            (None, Outcome::Model(Ok(reply))) if reply.message.calls().next().is_some() => {
                for call in reply.message.calls() {
                    let run = ToolRun::new(call.clone());
                    self.want(Some(call.clone()), |_| Effect::Tool(run), step);
                }
            }
            (None, Outcome::Model(Ok(_))) => self.end(Status::Complete, step),
            (None, Outcome::Model(Err(error))) => {
                self.end(Status::Failed(Failure::Model(error)), step);
            }
            (None, _) => self.end(Status::Failed(Failure::Internal("no reply".into())), step),
            (Some(call), Outcome::NeedsApproval { reason }) => self.ask_person(call, reason, step),
            (Some(_), _) if self.open.is_empty() => self.ask_model(step),
            (Some(_), _) => {}
        }
        if self.flaw == Flaw::HashOrder {
            let order = format!("{:?}", self.open.keys().collect::<Vec<_>>());
            step.emit(EventKind::Note { text: order });
        }
    }

    fn ask_person(&mut self, call: ToolCall, reason: String, step: &mut MachineOutput) {
        let wrong = |flaw| self.flaw == flaw;
        let run = if wrong(Flaw::WrongRunInAsk) {
            RunId::new("r9")
        } else {
            self.run.clone().unwrap()
        };
        let shift = u64::from(wrong(Flaw::WrongNumberInAsk));
        let asked = call.clone();
        let ask = |id: EffectId| {
            Effect::Ask(Ask::new(
                run,
                EffectId::new(id.get() + shift),
                asked,
                reason,
            ))
        };
        self.want(Some(call), ask, step);
    }
}

impl Machine for Agent {
    fn kind(&self) -> MachineKind {
        match self.flaw {
            Flaw::NoKind => MachineKind::new("", 1),
            Flaw::KindChanges => {
                MachineKind::new(format!("agent {}", CLOCK.fetch_add(1, Ordering::SeqCst)), 1)
            }
            _ => MachineKind::new("agent", 1),
        }
    }

    fn save(&self) -> Value {
        match self.flaw {
            Flaw::SaveChanges => {
                json!({"goal": self.goal, "last": 0, "open": {},
                    "at": CLOCK.fetch_add(1, Ordering::SeqCst)})
            }
            _ => {
                let open: BTreeMap<_, _> = self.open.iter().collect();
                json!({"goal": self.goal, "run": self.run, "last": self.last, "open": open,
                    "ending": self.ending})
            }
        }
    }

    fn apply(&mut self, input: Input, step: &mut MachineOutput) {
        if self.flaw == Flaw::Clock {
            step.emit(EventKind::Note {
                text: CLOCK.fetch_add(1, Ordering::SeqCst).to_string(),
            });
        }
        if self.ending.is_some() {
            match self.flaw {
                Flaw::WantsAfterEnd => self.ask_model(step),
                Flaw::EndsTwice => self.end(Status::Complete, step),
                _ => {}
            }
            return;
        }
        match input {
            Input::Begin { run, .. } if self.run.is_none() => {
                self.run = Some(run);
                self.ask_model(step);
            }
            Input::Finished { effect, outcome } => self.finished(effect, outcome, step),
            Input::Say(_) if self.flaw == Flaw::PanicsBeforeBegin => {
                drop(self.run.clone().unwrap());
            }
            Input::Stop(limit) if self.flaw != Flaw::IgnoresStop => {
                self.end(Status::Partial(limit), step);
            }
            Input::Cancel { .. } if self.flaw == Flaw::IgnoresCancel => {}
            Input::Cancel { .. } if self.flaw == Flaw::CancelledAsComplete => {
                self.end(Status::Complete, step);
            }
            Input::Cancel { reason } => self.end(Status::Cancelled { reason }, step),
            _ => {}
        }
    }

    fn ending(&self) -> Option<&Ending> {
        self.ending.as_ref()
    }
}

#[test]
fn machine_suite_accepts_correct_machine() {
    block_on(conformance::machine(|| Agent::new(Flaw::None)));
    block_on(conformance::machine(|| {
        Box::new(Agent::new(Flaw::None)) as Box<dyn Machine>
    }));
    let restore = |state: Value| Agent::restore(Flaw::None, &state);
    block_on(conformance::machine_restored(
        || Agent::new(Flaw::None),
        restore,
    ));
    let restore = |state: &Value| Agent::try_restore(Flaw::None, state);
    block_on(conformance::machine_damaged(
        || Agent::new(Flaw::None),
        restore,
    ));
}

#[test]
fn machine_suite_rejects_every_flaw() {
    let check = |flaw, promise| refuses(conformance::machine(|| Agent::new(flaw)), promise);
    let same =
        "machine: the same inputs in the same order give the same effects, events and ending";
    let ends = "machine: it ends at once on `Cancel` and `Stop`";
    check(Flaw::NoKind, "machine: its kind has a name");
    check(Flaw::KindChanges, "machine: `kind` always returns the same");
    check(
        Flaw::SaveChanges,
        "machine: `save` is the same for the same machine",
    );
    check(Flaw::HashOrder, same);
    check(Flaw::Clock, same);
    check(
        Flaw::PanicsOnUnknownEffect,
        "machine: no input makes it panic; it panicked: who asked for that",
    );
    check(Flaw::PanicsBeforeBegin, "machine: no input makes it panic");
    check(Flaw::NumbersAnew, "machine: effects are numbered upwards");
    check(
        Flaw::WrongNumberInAsk,
        "machine: a question has its own number",
    );
    check(Flaw::WrongRunInAsk, "machine: a question has its run");
    check(Flaw::IgnoresCancel, ends);
    check(Flaw::IgnoresStop, ends);
    check(
        Flaw::CancelledAsComplete,
        "machine: when cancelled, it ends as `Cancelled`",
    );
    check(
        Flaw::WantsAfterEnd,
        "machine: after an ending it requests nothing more",
    );
    check(Flaw::EndsTwice, "machine: an ending does not change");
}

#[test]
fn machine_suite_rejects_machine_that_cannot_be_restored() {
    let promise = "machine: the result of `save` between two inputs is enough to rebuild it, in \
        the same state";
    for flaw in [
        Flaw::SavesTooLittle,
        Flaw::SaveChanges,
        Flaw::ForgetsWhatIsOpen,
        Flaw::ForgetsItsEnding,
    ] {
        let restore = |state: Value| Agent::restore(flaw, &state);
        refuses(
            conformance::machine_restored(|| Agent::new(flaw), restore),
            promise,
        );
    }
}

#[test]
fn machine_suite_rejects_panic_on_damaged_state() {
    let restore = |state: &Value| Agent::try_restore(Flaw::RestoresAnything, state);
    let promise = "machine: `restore` does not panic on a damaged state";
    refuses(
        conformance::machine_damaged(|| Agent::new(Flaw::None), restore),
        promise,
    );
}
