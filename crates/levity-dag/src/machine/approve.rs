//! Handles human decisions on plans and changes.

use std::sync::Arc;

use levity_core::{Ask, Decision, Effect, EffectId, MachineOutput, Outcome, Status, ToolCall};
use serde_json::{Value, json};

use super::phase::{PlanQuestion, Planning, Proposal, Respondent};
use super::plan::Read;
use super::{CARRY_OUT, Draft, GraphMachine};
use crate::fault::{Fault, FaultKind, Faults};
use crate::notice::PlanNotice;
use crate::plan::Plan;

/// The maximum number of invalid edits of a plan by a person. A program that answers in place of a
/// person could repeat them forever.
const MOST_EDITS: u32 = 10;

impl GraphMachine {
    /// Adopts a plan, or asks a person first.
    pub(super) fn consider(&mut self, planning: Planning, draft: Draft, wants: &mut MachineOutput) {
        if !self.start.settings.approve {
            return self.adopt(&planning, draft, wants);
        }
        let proposal = match draft.diff {
            Some(diff) => Proposal::Change(diff),
            None => Proposal::Plan(draft.graph.plan().clone()),
        };
        self.propose(planning, proposal, wants);
    }

    fn propose(&mut self, planning: Planning, proposal: Proposal, wants: &mut MachineOutput) {
        let reason = match &proposal {
            Proposal::Change(_) => "a step failed; approve this change to the plan",
            Proposal::Plan(_) => "approve this plan before it is carried out",
        };
        let effect = EffectId::new(self.now.next);
        let call = ToolCall::new(effect.to_string(), CARRY_OUT, proposal.args());
        let ask = Ask::new(self.now.run.clone(), effect, call, reason);
        self.want(Effect::Ask(ask), wants);
        self.phase.wait_for(PlanQuestion {
            effect,
            to: Respondent::Person(proposal),
            planning,
        });
    }

    pub(super) fn approved(
        &mut self,
        planning: Planning,
        proposal: Proposal,
        outcome: Outcome,
        wants: &mut MachineOutput,
    ) {
        match outcome {
            Outcome::Decision(Decision::Allow) => self.allowed(planning, proposal, wants),
            Outcome::Decision(Decision::Edit { args }) => {
                self.edited(planning, proposal, &args, wants);
            }
            Outcome::Decision(Decision::Answer { text }) if self.rules.planner.is_some() => {
                let message = format!("the user answered: {text}");
                let faults = Faults {
                    faults: vec![Fault::new(FaultKind::Malformed, message)],
                    more: 0,
                };
                self.reject(planning, &faults, &proposal.args().to_string(), wants);
            }
            Outcome::Decision(Decision::Answer { text }) => self.refused(&text, wants),
            Outcome::Decision(Decision::Deny { reason }) => self.refused(&reason, wants),
            other => self.refused(&super::rounds::outcome_reason(&other), wants),
        }
    }

    /// Adopts an approved proposal. Steps may have started in the meantime, so a change is
    /// validated again.
    fn allowed(&mut self, planning: Planning, proposal: Proposal, wants: &mut MachineOutput) {
        let graph = match (&proposal, self.phase.steps()) {
            (Proposal::Change(diff), Some(steps)) => self.changed(steps, &planning.failed, diff),
            (Proposal::Change(_), None) => {
                Err(Fault::new(FaultKind::Malformed, "there is no plan to change").into())
            }
            (Proposal::Plan(plan), _) => self.check(plan),
        };
        match (graph, proposal) {
            (Ok(graph), Proposal::Change(diff)) => {
                self.adopt(
                    &planning,
                    Draft {
                        diff: Some(diff),
                        graph,
                    },
                    wants,
                );
            }
            (Ok(graph), Proposal::Plan(_)) => {
                self.adopt(&planning, Draft { diff: None, graph }, wants);
            }
            (Err(faults), proposal) if self.rules.planner.is_some() => {
                self.reject(planning, &faults, &proposal.args().to_string(), wants);
            }
            (Err(faults), _) => self.no_plan(&faults.to_string(), wants),
        }
    }

    /// Handles a plan, or a change, that a person submitted in place of the planner's.
    fn edited(
        &mut self,
        mut planning: Planning,
        proposal: Proposal,
        args: &Value,
        wants: &mut MachineOutput,
    ) {
        let text = args.to_string();
        let read = match (&proposal, self.phase.steps()) {
            (Proposal::Change(_), Some(steps)) => self.read_diff(steps, &planning.failed, &text),
            _ => {
                let graph = Plan::parse(&text).and_then(|plan| self.check(&Arc::new(plan)));
                graph.map(|graph| Read::Draft(Box::new(Draft { diff: None, graph })))
            }
        };
        match read {
            Ok(Read::Draft(draft)) => self.adopt(&planning, *draft, wants),
            Ok(Read::GiveUp(reason)) => self.no_plan(&reason, wants),
            // A model does not fix what a person wrote: the person is asked again, about the
            // original proposal.
            Err(faults) => {
                Self::tell(wants, || PlanNotice::Rejected {
                    faults: vec![faults.to_string()],
                });
                planning.edits = planning.edits.saturating_add(1);
                if planning.edits >= MOST_EDITS {
                    return self.refused(
                        &format!("the edited plan is invalid as well: {faults}"),
                        wants,
                    );
                }
                self.propose(planning, proposal, wants);
            }
        }
    }

    fn refused(&mut self, reason: &str, wants: &mut MachineOutput) {
        match self.phase.running() {
            None => self.stop(Status::Cancelled {
                reason: format!("the plan was refused: {reason}"),
            }),
            Some(_) => self.no_plan(&format!("the change was refused: {reason}"), wants),
        }
    }
}

impl Proposal {
    /// Returns the plan or the change as the arguments of the question.
    fn args(&self) -> Value {
        match self {
            Self::Plan(plan) => json!(plan),
            Self::Change(diff) => json!(diff),
        }
    }
}
