//! The work on a step, a plan or files, and the requests to people on the way.

use levity_core::{
    Ask, Delta, EffectId, Event, EventKind, FileChange, FileChangeKind, RunId, Stats, Timestamp,
    Usage,
};
use levity_dag::{StepId, StepStatus};

use super::Owner;
use crate::view::text::one_line;
use crate::view::{Activity, PlanStage, PlanView};

/// The maximum number of characters of a tool's name or report.
const MAX_TEXT_CHARS: usize = 80;
/// The maximum number of pending requests of a step.
const MAX_ASKS: usize = 100;
/// The maximum number of artifacts of a step.
const MAX_ARTIFACTS: usize = 1_000;

impl PlanView {
    /// Applies an event of the work on a step, a plan or files.
    pub(super) fn apply_work(&mut self, event: &Event, owner: &Owner) {
        match &event.kind {
            EventKind::ModelFinished { usage, .. } => {
                self.add_usage(owner, *usage, |stats| stats.model_calls += 1);
            }
            EventKind::TurnStarted { .. } => {
                self.add_usage(owner, Usage::default(), |stats| stats.turns += 1);
            }
            EventKind::ToolFinished { result, .. } => {
                let failed = result.error.is_some();
                self.add_usage(owner, Usage::default(), |stats| {
                    stats.tool_calls += 1;
                    stats.failed_calls += u64::from(failed);
                });
                if failed {
                    self.log_for_owner(event.at, owner, &format!("{} failed", result.name));
                }
            }
            EventKind::FileChanged { change, .. } => {
                if let Owner::Step(step) = owner
                    && let Some(view) = self.step_mut(step.as_str())
                {
                    add_artifact(&mut view.artifacts, change);
                }
            }
            EventKind::ToolStarted { call, .. } => {
                self.log_for_owner(event.at, owner, &format!("calls {}", call.name));
            }
            EventKind::ModelFailed { error, .. } => {
                self.log_for_owner(event.at, owner, &format!("the model failed: {error}"));
            }
            EventKind::Asked(ask) => match owner {
                Owner::Step(step) => self.add_step_ask(event.at, step, ask),
                _ => add_ask(&mut self.asks, ask),
            },
            EventKind::Decided { effect, .. } => self.remove_ask(event.at, &event.run, *effect),
            EventKind::ChildFinished { ending, .. } if self.root.as_ref() == Some(&event.run) => {
                self.record_preparation(owner, ending);
            }
            _ => {}
        }
        if let Owner::Step(step) = owner {
            self.update_activity(step, &event.kind);
        }
    }

    /// Updates the activity of a step. Deltas arrive by the thousand, so they cause no allocation.
    fn update_activity(&mut self, step: &StepId, kind: &EventKind) {
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
                Activity::Calls(one_line(&call.name, MAX_TEXT_CHARS).into())
            }
            EventKind::Progress { text, .. } => {
                Activity::Reports(one_line(text, MAX_TEXT_CHARS).into())
            }
            EventKind::ToolFinished { .. }
            | EventKind::ModelFinished { .. }
            | EventKind::Woken { .. } => Activity::None,
            _ => return,
        };
    }

    fn add_usage(&mut self, owner: &Owner, more: Usage, count: impl FnOnce(&mut Stats)) {
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
        let mut other = Stats::default();
        count(&mut other);
        *stats += other;
    }

    fn log_for_owner(&mut self, at: Timestamp, owner: &Owner, text: &str) {
        let step = match owner {
            Owner::Step(step) => Some(step),
            _ => None,
        };
        self.log_line(at, step, text);
    }

    /// Adds a request of the run itself.
    pub(super) fn add_run_ask(&mut self, at: Timestamp, ask: &Ask) {
        match self.owners.get(&ask.effect.get()).cloned() {
            Some(Owner::Step(step)) => self.add_step_ask(at, &step, ask),
            _ => {
                if self.stage != PlanStage::Running {
                    self.stop_preparation(at);
                    self.stage = PlanStage::Approving;
                }
                self.log_line(at, None, &format!("asks: {}", ask.reason));
                add_ask(&mut self.asks, ask);
            }
        }
    }

    pub(super) fn add_step_ask(&mut self, at: Timestamp, step: &StepId, ask: &Ask) {
        if let Some(view) = self.step_mut(step.as_str()) {
            view.status = StepStatus::Waiting;
            view.activity = Activity::Asks(one_line(&ask.reason, MAX_TEXT_CHARS).into());
            add_ask(&mut view.asks, ask);
        } else {
            // A view that started later than the run does not know the step, but a person still
            // waits.
            add_ask(&mut self.asks, ask);
        }
        self.log_line(at, Some(step), &format!("asks: {}", ask.reason));
    }

    pub(super) fn remove_ask(&mut self, at: Timestamp, run: &RunId, effect: EffectId) {
        let is_other = |ask: &Ask| ask.effect != effect || ask.run != *run;
        self.asks.retain(is_other);
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
            .find(|view| view.asks.iter().any(|ask| !is_other(ask)));
        if let Some(view) = waiting {
            view.asks.retain(is_other);
            if view.asks.is_empty() {
                view.status = StepStatus::Running;
                view.activity = Activity::None;
            }
            let step = view.id.clone();
            self.log_line(at, Some(&step), "received an answer");
        }
    }
}

/// Adds a written file in place of its earlier version; a removed file is no artifact any more.
fn add_artifact(artifacts: &mut Vec<FileChange>, change: &FileChange) {
    let known = artifacts.iter().position(|known| known.path == change.path);
    match (change.kind, known) {
        (FileChangeKind::Written, Some(at)) => artifacts[at].clone_from(change),
        (FileChangeKind::Written, None) if artifacts.len() < MAX_ARTIFACTS => {
            artifacts.push(change.clone());
        }
        (FileChangeKind::Removed, Some(at)) => drop(artifacts.remove(at)),
        _ => {}
    }
}

fn add_ask(asks: &mut Vec<Ask>, ask: &Ask) {
    let known = asks
        .iter()
        .any(|other| other.effect == ask.effect && other.run == ask.run);
    if !known && asks.len() < MAX_ASKS {
        asks.push(ask.clone());
    }
}
