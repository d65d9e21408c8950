//! Handles failed legs.

use std::sync::Arc;

use levity_core::{Failure, MachineOutput, Status};

use super::machine::{Handing, Held, Leg, Opening};
use crate::bus::{MessageKind, NewMessage, Recipient};
use crate::desk::{Came, Desk, Why, WhyKind};
use crate::effort;
use crate::machine::Play as _;
use crate::names::USER;
use crate::notice::{FailureAction, SwarmNotice};
use crate::report::ReportStatus;

impl Handing {
    /// Handles a failed leg: it is retried by the same worker or by its fallback, or it returns to
    /// the previous holder.
    pub(super) fn fails(
        &mut self,
        mut leg: Leg,
        came: &Came,
        why: &Why,
        desk: &mut Desk,
        wants: &mut MachineOutput,
    ) {
        let then = effort::then(&leg.worker, leg.tried, &leg.before, why, desk);
        let to = self
            .giver()
            .map_or_else(|| USER.into(), |held| held.worker.clone());
        let draft = NewMessage::new(
            leg.worker.clone(),
            Recipient::One(to),
            MessageKind::Failure,
            &*why.error,
        );
        desk.post(draft, wants);
        let report = &mut desk.reports[leg.place];
        report.error = Some(why.error.clone());
        let (id, worker, error) = (report.id.clone(), leg.worker.clone(), why.error.clone());
        match then {
            FailureAction::Retry => {
                desk.tell(wants, || SwarmNotice::Failed {
                    id,
                    worker,
                    error,
                    then,
                });
                self.go(leg, desk, wants);
            }
            FailureAction::StandIn { worker: other } => {
                let then = FailureAction::StandIn {
                    worker: other.clone(),
                };
                desk.tell(wants, || SwarmNotice::Failed {
                    id,
                    worker,
                    error,
                    then,
                });
                self.pass_leg(&mut leg, other, why, desk, wants);
                self.go(leg, desk, wants);
            }
            FailureAction::Leave => self.gives_up(leg, came, why, desk, wants),
        }
    }

    /// Assigns a leg to another worker.
    fn pass_leg(
        &mut self,
        leg: &mut Leg,
        other: Arc<str>,
        why: &Why,
        desk: &Desk,
        wants: &mut MachineOutput,
    ) {
        leg.history = match leg.opening {
            Opening::First => std::mem::take(&mut leg.history),
            Opening::Passed { .. } => self.carried(&other, &self.talk.all(), desk, wants),
            _ => self.carried(&other, &leg.history, desk, wants),
        };
        (leg.tried, leg.error) = (0, Some(why.error.clone()));
        leg.before.push(std::mem::replace(&mut leg.worker, other));
    }

    /// Fails a leg and returns the conversation to the previous holder.
    fn gives_up(
        &mut self,
        leg: Leg,
        came: &Came,
        why: &Why,
        desk: &mut Desk,
        wants: &mut MachineOutput,
    ) {
        let report = &mut desk.reports[leg.place];
        let stopped = why.kind == WhyKind::Stopped;
        report.status = if stopped {
            ReportStatus::Stopped
        } else {
            ReportStatus::Failed
        };
        let (id, worker, error) = (report.id.clone(), leg.worker.clone(), why.error.clone());
        self.failed.extend(leg.before.iter().cloned());
        self.failed.push(worker.clone());
        while self
            .held
            .last()
            .is_some_and(|held| self.failed.contains(&held.worker))
        {
            self.held.pop();
        }
        let back = self.held.pop();
        let then = back
            .as_ref()
            .map_or(FailureAction::Leave, |held| FailureAction::StandIn {
                worker: held.worker.clone(),
            });
        desk.tell(wants, || SwarmNotice::Failed {
            id,
            worker: worker.clone(),
            error: error.clone(),
            then,
        });
        let Some(held) = back else {
            self.asked(&leg.asks);
            let why = format!(
                "`{worker}` had the conversation, and no other worker could answer: \
                {error}"
            );
            let text = self.so_far(desk);
            return desk.end(Status::Failed(Failure::Unreached(why)), text, None);
        };
        let opening = Opening::Back {
            who: worker,
            error,
            text: came.text.clone(),
        };
        let giver = held.worker.clone();
        let view = self.known_to(held, leg.asks.len(), desk);
        let next = Leg {
            asks: leg.asks,
            plain: true,
            ..Leg::new(giver, opening, view)
        };
        self.open(next, desk, wants);
    }

    /// Returns the holder that would get the conversation back.
    fn giver(&self) -> Option<&Held> {
        self.held
            .iter()
            .rev()
            .find(|held| !self.failed.contains(&held.worker))
    }
}
