//! What is done for a step, for a plan or for files, and what people are asked on the way.

use levity_core::{Ask, Delta, EffectId, Event, EventKind, RunId, Stats, Timestamp, Usage};
use levity_dag::{StepId, StepStatus};

use super::Owner;
use crate::view::text::one_line;
use crate::view::{Activity, PlanStage, PlanView};

/// How many characters of a tool's name or report are kept.
const SHORT: usize = 80;
/// How many questions are kept for a step.
const MOST_ASKS: usize = 100;

impl PlanView {
    /// Something that happened in the work on a step, on a plan or on files.
    pub(super) fn work(&mut self, event: &Event, owner: &Owner) {
        match &event.kind {
            EventKind::ModelFinished { usage, .. } => {
                self.spend(owner, *usage, |stats| stats.model_calls += 1);
            }
            EventKind::TurnStarted { .. } => {
                self.spend(owner, Usage::default(), |stats| stats.turns += 1);
            }
            EventKind::ToolFinished { result, .. } => {
                let failed = result.error.is_some();
                self.spend(owner, Usage::default(), |stats| {
                    stats.tool_calls += 1;
                    stats.failed_calls += u64::from(failed);
                });
                if failed {
                    self.note_of(event.at, owner, &format!("{} failed", result.name));
                }
            }
            EventKind::ToolStarted { call, .. } => {
                self.note_of(event.at, owner, &format!("calls {}", call.name));
            }
            EventKind::ModelFailed { error, .. } => {
                self.note_of(event.at, owner, &format!("the model failed: {error}"));
            }
            EventKind::Asked(ask) => match owner {
                Owner::Step(step) => self.step_asks(event.at, step, ask),
                _ => keep(&mut self.asks, ask),
            },
            EventKind::Decided { effect, .. } => self.decided(event.at, &event.run, *effect),
            EventKind::ChildFinished { ending, .. } if self.root.as_ref() == Some(&event.run) => {
                self.prepared(owner, ending);
            }
            _ => {}
        }
        if let Owner::Step(step) = owner {
            self.act(step, &event.kind);
        }
    }

    /// What the step does now. Pieces of a reply come by the thousand, so nothing is made anew for
    /// them.
    fn act(&mut self, step: &StepId, kind: &EventKind) {
        let Some(view) = self.step_mut(step.as_str()) else {
            return;
        };
        if view.status.is_settled() || view.status == StepStatus::Waiting {
            return;
        }
        view.activity = match kind {
            EventKind::ModelStarted { .. }
            | EventKind::Delta {
                delta: Delta::Thinking(_),
                ..
            } => Activity::Thinks,
            EventKind::Delta {
                delta: Delta::Text(_),
                ..
            } => Activity::Writes,
            EventKind::Delta {
                delta: Delta::Waiting { .. },
                ..
            }
            | EventKind::WaitStarted { .. } => Activity::Waits,
            EventKind::ToolStarted { call, .. } => {
                Activity::Calls(one_line(&call.name, SHORT).into())
            }
            EventKind::Progress { text, .. } => Activity::Reports(one_line(text, SHORT).into()),
            EventKind::ToolFinished { .. }
            | EventKind::ModelFinished { .. }
            | EventKind::Woken { .. } => Activity::None,
            _ => return,
        };
    }

    fn spend(&mut self, owner: &Owner, more: Usage, count: impl FnOnce(&mut Stats)) {
        let (usage, stats) = match owner {
            Owner::Profiling => (&mut self.profiling.usage, &mut self.profiling.stats),
            Owner::Planning => (&mut self.planning.usage, &mut self.planning.stats),
            Owner::Step(step) => match self.step_mut(step.as_str()) {
                Some(view) if !view.status.is_settled() => {
                    (&mut view.spent.usage, &mut view.spent.stats)
                }
                _ => return,
            },
        };
        *usage += more;
        let mut one = Stats::default();
        count(&mut one);
        *stats += one;
    }

    fn note_of(&mut self, at: Timestamp, owner: &Owner, text: &str) {
        let step = match owner {
            Owner::Step(step) => Some(step),
            _ => None,
        };
        self.note(at, step, text);
    }

    /// The run itself asks.
    pub(super) fn asked(&mut self, at: Timestamp, ask: &Ask) {
        match self.owners.get(&ask.effect.get()).cloned() {
            Some(Owner::Step(step)) => self.step_asks(at, &step, ask),
            _ => {
                if self.stage != PlanStage::Running {
                    self.stop_preparing(at);
                    self.stage = PlanStage::Approving;
                }
                self.note(at, None, &format!("asks: {}", ask.reason));
                keep(&mut self.asks, ask);
            }
        }
    }

    pub(super) fn step_asks(&mut self, at: Timestamp, step: &StepId, ask: &Ask) {
        if let Some(view) = self.step_mut(step.as_str()) {
            view.status = StepStatus::Waiting;
            view.activity = Activity::Asks(one_line(&ask.reason, SHORT).into());
            keep(&mut view.asks, ask);
        } else {
            // A view that began later than the run does not know the step, and somebody waits all
            // the same.
            keep(&mut self.asks, ask);
        }
        self.note(at, Some(step), &format!("asks: {}", ask.reason));
    }

    pub(super) fn decided(&mut self, at: Timestamp, run: &RunId, effect: EffectId) {
        let others = |ask: &Ask| ask.effect != effect || ask.run != *run;
        self.asks.retain(others);
        if self.stage == PlanStage::Approving && self.asks.is_empty() {
            self.stage = if self.plan.is_some() {
                PlanStage::Running
            } else {
                PlanStage::Planning
            };
        }
        let waiting = self
            .steps
            .iter_mut()
            .find(|view| view.asks.iter().any(|ask| !others(ask)));
        if let Some(view) = waiting {
            view.asks.retain(others);
            if view.asks.is_empty() {
                view.status = StepStatus::Running;
                view.activity = Activity::None;
            }
            let step = view.id.clone();
            self.note(at, Some(&step), "has its answer");
        }
    }
}

fn keep(asks: &mut Vec<Ask>, ask: &Ask) {
    let known = asks
        .iter()
        .any(|one| one.effect == ask.effect && one.run == ask.run);
    if !known && asks.len() < MOST_ASKS {
        asks.push(ask.clone());
    }
}
