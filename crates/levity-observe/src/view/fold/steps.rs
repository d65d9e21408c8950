//! What a run tells about its steps.

use levity_core::{RunId, Timestamp};
use levity_dag::{PlanNotice, StepId, StepStatus};

use super::Owner;
use crate::view::{Activity, Items, PlanView, StepView};

impl PlanView {
    /// A notice about a step.
    pub(super) fn tell_step(&mut self, at: Timestamp, run: &RunId, notice: &PlanNotice) {
        match notice {
            PlanNotice::StepStarted {
                step,
                effect,
                attempt,
                round,
                item,
            } => {
                self.owners.insert(effect.get(), Owner::Step(step.clone()));
                self.begin(at, step, *attempt, *round, *item);
            }
            PlanNotice::FannedOut { step, items } => {
                if let Some(view) = self.step_mut(step.as_str()) {
                    view.items = Some(Items {
                        of: *items,
                        ..Items::default()
                    });
                }
                self.note(at, Some(step), &format!("runs for {items} items"));
            }
            PlanNotice::StepAsked { step, effect } => {
                self.owners.insert(effect.get(), Owner::Step(step.clone()));
                // The question may have been told already; then it is the step's from now on.
                if let Some(place) = self
                    .asks
                    .iter()
                    .position(|ask| ask.effect == *effect && ask.run == *run)
                {
                    let ask = self.asks.remove(place);
                    self.step_asks(at, step, &ask);
                }
            }
            PlanNotice::ItemFinished { step, item, error } => {
                if let Some(view) = self.step_mut(step.as_str()) {
                    let items = view.items.get_or_insert_default();
                    items.done = items.done.saturating_add(1);
                    items.failed = items.failed.saturating_add(u32::from(error.is_some()));
                    items.of = items.of.max(items.done);
                }
                if let Some(error) = error {
                    self.note(at, Some(step), &format!("item {item} failed: {error}"));
                }
            }
            PlanNotice::StepRetried {
                step,
                attempt,
                error,
            } => {
                if let Some(view) = self.step_mut(step.as_str()) {
                    view.status = StepStatus::Waiting;
                    view.activity = Activity::Waits;
                    view.error = Some(error.clone());
                }
                self.note(
                    at,
                    Some(step),
                    &format!("attempt {attempt} failed: {error}"),
                );
            }
            PlanNotice::Verdict {
                step, passed: true, ..
            } => self.note(at, Some(step), "accepts the work"),
            PlanNotice::Verdict { step, issues, .. } => {
                let first = issues.first().map_or("", String::as_str);
                self.note(at, Some(step), &format!("sends the work back: {first}"));
            }
            settled => self.settle(at, settled),
        }
    }

    fn begin(&mut self, at: Timestamp, step: &StepId, attempt: u32, round: u32, item: Option<u32>) {
        let Some(view) = self.step_mut(step.as_str()) else {
            return;
        };
        let anew = view.attempt != attempt || view.round != round;
        if view.asks.is_empty() {
            view.status = StepStatus::Running;
        }
        view.activity = Activity::None;
        view.started.get_or_insert(at);
        view.ended = None;
        (view.attempt, view.round) = (attempt, round);
        view.spent.attempts = view.spent.attempts.max(attempt);
        if item.is_some() {
            view.items.get_or_insert_default();
        }
        // The items of a list are counted; a line for each would push everything else out.
        if anew {
            let text = match (attempt, round) {
                (0 | 1, 0 | 1) => "begins".to_owned(),
                (attempt, 0 | 1) => format!("begins, attempt {attempt}"),
                (_, round) => format!("goes on, round {round}"),
            };
            self.note(at, Some(step), &text);
        }
    }

    /// The run has ended: steps that were under way are not any longer, and were not done.
    pub(super) fn cut_off(&mut self, at: Timestamp) {
        let under_way =
            |step: &&mut StepView| matches!(step.status, StepStatus::Running | StepStatus::Waiting);
        for step in self.steps.iter_mut().filter(under_way) {
            step.status = StepStatus::Pending;
            step.error
                .get_or_insert_with(|| "it was not done when the run ended".to_owned());
            step.ended = Some(at);
            step.activity = Activity::None;
            step.asks.clear();
        }
    }

    fn settle(&mut self, at: Timestamp, notice: &PlanNotice) {
        let (step, status, error, spent, text) = match notice {
            PlanNotice::StepCompleted { step, spent, .. } => (
                step,
                StepStatus::Completed,
                None,
                Some(spent),
                "is done".to_owned(),
            ),
            PlanNotice::StepFailed { step, error, spent } => (
                step,
                StepStatus::Failed,
                Some(error),
                Some(spent),
                format!("failed: {error}"),
            ),
            PlanNotice::StepSkipped { step, why } => (
                step,
                StepStatus::Skipped,
                Some(why),
                None,
                format!("is skipped: {why}"),
            ),
            _ => return,
        };
        if let Some(view) = self.step_mut(step.as_str()) {
            view.status = status;
            view.error = error.cloned();
            view.spent = spent.copied().unwrap_or(view.spent);
            view.ended = Some(at);
            view.activity = Activity::None;
            view.asks.clear();
        }
        self.note(at, Some(step), &text);
    }
}
