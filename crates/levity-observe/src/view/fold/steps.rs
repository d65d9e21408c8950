//! Notices of a run about its steps.

use levity_core::{RunId, Timestamp};
use levity_dag::{PlanNotice, StepId, StepStatus};

use super::Owner;
use crate::view::{Activity, ItemProgress, PlanView, StepView};

impl PlanView {
    /// Applies a notice about a step.
    pub(super) fn apply_step_notice(&mut self, at: Timestamp, run: &RunId, notice: &PlanNotice) {
        match notice {
            PlanNotice::StepStarted {
                step,
                effect,
                attempt,
                round,
                item,
            } => {
                self.owners.insert(effect.get(), Owner::Step(step.clone()));
                self.start_step(at, step, *attempt, *round, *item);
            }
            PlanNotice::FannedOut { step, items } => {
                if let Some(view) = self.step_mut(step.as_str()) {
                    view.items = Some(ItemProgress {
                        total: *items,
                        ..ItemProgress::default()
                    });
                }
                self.log_line(at, Some(step), &format!("runs for {items} items"));
            }
            PlanNotice::StepAsked { step, effect } => {
                self.owners.insert(effect.get(), Owner::Step(step.clone()));
                // The request may already have been reported; it now belongs to the step.
                if let Some(place) = self
                    .asks
                    .iter()
                    .position(|ask| ask.effect == *effect && ask.run == *run)
                {
                    let ask = self.asks.remove(place);
                    self.add_step_ask(at, step, &ask);
                }
            }
            PlanNotice::ItemFinished { step, item, error } => {
                if let Some(view) = self.step_mut(step.as_str()) {
                    let items = view.items.get_or_insert_default();
                    items.done = items.done.saturating_add(1);
                    items.failed = items.failed.saturating_add(u32::from(error.is_some()));
                    items.total = items.total.max(items.done);
                }
                if let Some(error) = error {
                    self.log_line(at, Some(step), &format!("item {item} failed: {error}"));
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
                self.log_line(
                    at,
                    Some(step),
                    &format!("attempt {attempt} failed: {error}"),
                );
            }
            PlanNotice::Verdict {
                step, passed: true, ..
            } => self.log_line(at, Some(step), "accepts the result"),
            PlanNotice::Verdict { step, issues, .. } => {
                let first = issues.first().map_or("", String::as_str);
                self.log_line(at, Some(step), &format!("rejects the result: {first}"));
            }
            settled => self.settle_step(at, settled),
        }
    }

    fn start_step(
        &mut self,
        at: Timestamp,
        step: &StepId,
        attempt: u32,
        round: u32,
        item: Option<u32>,
    ) {
        let Some(view) = self.step_mut(step.as_str()) else {
            return;
        };
        let is_new = view.attempt != attempt || view.round != round;
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
        // The items of a list are only counted; a line for each would push out all other lines.
        if is_new {
            let text = match (attempt, round) {
                (0 | 1, 0 | 1) => "starts".to_owned(),
                (attempt, 0 | 1) => format!("starts attempt {attempt}"),
                (_, round) => format!("continues with round {round}"),
            };
            self.log_line(at, Some(step), &text);
        }
    }

    /// Resets the steps that were in progress when the run ended.
    pub(super) fn reset_unfinished_steps(&mut self, at: Timestamp) {
        let is_in_progress =
            |step: &&mut StepView| matches!(step.status, StepStatus::Running | StepStatus::Waiting);
        for step in self.steps.iter_mut().filter(is_in_progress) {
            step.status = StepStatus::Pending;
            step.error
                .get_or_insert_with(|| "the step was unfinished when the run ended".to_owned());
            step.ended = Some(at);
            step.activity = Activity::None;
            step.asks.clear();
        }
    }

    fn settle_step(&mut self, at: Timestamp, notice: &PlanNotice) {
        let (step, status, error, spent, text) = match notice {
            PlanNotice::StepCompleted { step, spent, .. } => (
                step,
                StepStatus::Completed,
                None,
                Some(spent),
                "completed".to_owned(),
            ),
            PlanNotice::StepFailed { step, error, spent } => (
                step,
                StepStatus::Failed,
                Some(error),
                Some(spent),
                format!("failed: {error}"),
            ),
            PlanNotice::StepSkipped { step, reason: why } => (
                step,
                StepStatus::Skipped,
                Some(why),
                None,
                format!("skipped: {why}"),
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
        self.log_line(at, Some(step), &text);
    }
}
