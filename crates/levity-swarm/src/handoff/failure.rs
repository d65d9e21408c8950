//! Handles legs of a handoff when they fail.
//!
//! The order of remedies is: the same worker, its fallback, the previous holder without the
//! transfer tool, the end of the run. A worker that has failed since the last successful leg is not
//! tried again, so the search ends.

use std::sync::Arc;

use levity_core::{Failure, MachineOutput, Status};

use super::machine::{HandoffMachine, Leg, Opening, PreviousHolder};
use crate::bus::{MessageKind, NewMessage, Recipient};
use crate::machine::PatternMachine as _;
use crate::names::USER;
use crate::notice::{FailureAction, SwarmNotice};
use crate::report::ReportStatus;
use crate::shared_state::{FinishedWork, SharedState, WorkError, WorkErrorKind};
use crate::work_limits;

impl HandoffMachine {
    /// Handles a failed leg: it is retried by the same worker or by its fallback, or it returns to
    /// the previous holder.
    pub(super) fn handle_failure(
        &mut self,
        mut leg: Leg,
        finished: &FinishedWork,
        failure: &WorkError,
        shared: &mut SharedState,
        out: &mut MachineOutput,
    ) {
        let then =
            work_limits::failure_action(&leg.worker, leg.tried, &leg.before, failure, shared);
        let to = self
            .fallback_holder()
            .map_or_else(|| USER.into(), |held| held.worker.clone());
        let draft = NewMessage::new(
            leg.worker.clone(),
            Recipient::One(to),
            MessageKind::Failure,
            &*failure.error,
        );
        shared.post(draft, out);
        let report = &mut shared.reports[leg.place];
        report.error = Some(failure.error.clone());
        let (id, worker, error) = (report.id.clone(), leg.worker.clone(), failure.error.clone());
        match then {
            FailureAction::Retry => {
                shared.notify(out, || SwarmNotice::Failed {
                    id,
                    worker,
                    error,
                    then,
                });
                self.start_attempt(leg, shared, out);
            }
            FailureAction::Fallback { worker: other } => {
                let then = FailureAction::Fallback {
                    worker: other.clone(),
                };
                shared.notify(out, || SwarmNotice::Failed {
                    id,
                    worker,
                    error,
                    then,
                });
                self.pass_leg(&mut leg, other, failure, shared, out);
                self.start_attempt(leg, shared, out);
            }
            FailureAction::GiveUp => self.give_up_leg(leg, finished, failure, shared, out),
        }
    }

    /// Assigns a leg to another worker.
    fn pass_leg(
        &mut self,
        leg: &mut Leg,
        other: Arc<str>,
        failure: &WorkError,
        shared: &SharedState,
        out: &mut MachineOutput,
    ) {
        leg.history = match leg.opening {
            Opening::First => std::mem::take(&mut leg.history),
            Opening::Passed { .. } => {
                self.included_history(&other, &self.conversation.all(), shared, out)
            }
            _ => self.included_history(&other, &leg.history, shared, out),
        };
        (leg.tried, leg.error) = (0, Some(failure.error.clone()));
        leg.before.push(std::mem::replace(&mut leg.worker, other));
    }

    /// Fails a leg and returns the conversation to the previous holder.
    fn give_up_leg(
        &mut self,
        leg: Leg,
        finished: &FinishedWork,
        failure: &WorkError,
        shared: &mut SharedState,
        out: &mut MachineOutput,
    ) {
        let report = &mut shared.reports[leg.place];
        let stopped = failure.kind == WorkErrorKind::Stopped;
        report.status = if stopped {
            ReportStatus::Stopped
        } else {
            ReportStatus::Failed
        };
        let (id, worker, error) = (report.id.clone(), leg.worker.clone(), failure.error.clone());
        self.failed.extend(leg.before.iter().cloned());
        self.failed.push(worker.clone());
        while self
            .previous_holders
            .last()
            .is_some_and(|held| self.failed.contains(&held.worker))
        {
            self.previous_holders.pop();
        }
        let back = self.previous_holders.pop();
        let then = back
            .as_ref()
            .map_or(FailureAction::GiveUp, |held| FailureAction::Fallback {
                worker: held.worker.clone(),
            });
        shared.notify(out, || SwarmNotice::Failed {
            id,
            worker: worker.clone(),
            error: error.clone(),
            then,
        });
        let Some(held) = back else {
            self.add_user_messages(&leg.user_messages);
            let why = format!(
                "`{worker}` had the conversation, and no other worker could answer: \
                {error}"
            );
            let text = self.partial_answer(shared);
            return shared.end(Status::Failed(Failure::GoalNotReached(why)), text, None);
        };
        let opening = Opening::Back {
            who: worker,
            error,
            text: finished.text.clone(),
        };
        let giver = held.worker.clone();
        let view = self.view_of(held, leg.user_messages.len(), shared);
        let next = Leg {
            user_messages: leg.user_messages,
            plain: true,
            ..Leg::new(giver, opening, view)
        };
        self.start_leg(next, shared, out);
    }

    /// Returns the holder that would get the conversation back.
    fn fallback_holder(&self) -> Option<&PreviousHolder> {
        self.previous_holders
            .iter()
            .rev()
            .find(|held| !self.failed.contains(&held.worker))
    }
}
