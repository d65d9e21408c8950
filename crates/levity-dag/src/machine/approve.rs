//! Handles human decisions on plans and changes.
//!
//! A change is validated twice: before the question, and again after the answer, because steps may
//! have started while the person read. A person who edits a plan gets the same validation as a
//! planner, but the complaints go back to the person.

use std::sync::Arc;

use levity_core::{Ask, Decision, Effect, EffectId, MachineOutput, Outcome, Status, ToolCall};
use serde_json::{Value, json};

use super::phase::{PlanQuestion, Planning, Proposal, Respondent};
use super::plan::PlannerAnswer;
use super::{CARRY_OUT, Draft, GraphMachine};
use crate::fault::{Fault, FaultKind, Faults};
use crate::notice::PlanNotice;
use crate::plan::Plan;

/// The maximum number of invalid edits of a plan by a person. A program that answers in place of a
/// person could repeat them forever.
const MAX_EDITS: u32 = 10;

impl GraphMachine {
    /// Adopts a plan, or asks a person first.
    pub(super) fn review(&mut self, planning: Planning, draft: Draft, out: &mut MachineOutput) {
        if !self.start.settings.approve {
            return self.adopt(&planning, draft, out);
        }
        let proposal = match draft.diff {
            Some(diff) => Proposal::Change(diff),
            None => Proposal::Plan(draft.graph.plan().clone()),
        };
        self.propose(planning, proposal, out);
    }

    fn propose(&mut self, planning: Planning, proposal: Proposal, out: &mut MachineOutput) {
        let reason = match &proposal {
            Proposal::Change(_) => "a step failed; approve this change to the plan",
            Proposal::Plan(_) => "approve this plan before it is carried out",
        };
        let effect = EffectId::new(self.now.next);
        let call = ToolCall::new(effect.to_string(), CARRY_OUT, proposal.args());
        let ask = Ask::new(self.now.run.clone(), effect, call, reason);
        self.request(Effect::Ask(ask), out);
        self.phase.wait_for(PlanQuestion {
            effect,
            to: Respondent::Person(proposal),
            planning,
        });
    }

    pub(super) fn handle_decision(
        &mut self,
        planning: Planning,
        proposal: Proposal,
        outcome: Outcome,
        out: &mut MachineOutput,
    ) {
        match outcome {
            Outcome::Decision(Decision::Allow) => self.adopt_proposal(planning, proposal, out),
            Outcome::Decision(Decision::Edit { args }) => {
                self.handle_edit(planning, proposal, &args, out);
            }
            Outcome::Decision(Decision::Answer { text }) if self.rules.planner.is_some() => {
                let message = format!("the user answered: {text}");
                let faults = Faults {
                    faults: vec![Fault::new(FaultKind::Malformed, message)],
                    more: 0,
                };
                self.reject(planning, &faults, &proposal.args().to_string(), out);
            }
            Outcome::Decision(Decision::Answer { text }) => self.handle_refusal(&text, out),
            Outcome::Decision(Decision::Deny { reason }) => self.handle_refusal(&reason, out),
            other => self.handle_refusal(&super::rounds::outcome_reason(&other), out),
        }
    }

    /// Adopts an approved proposal. Steps may have started in the meantime, so a change is
    /// validated again.
    fn adopt_proposal(&mut self, planning: Planning, proposal: Proposal, out: &mut MachineOutput) {
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
                    out,
                );
            }
            (Ok(graph), Proposal::Plan(_)) => {
                self.adopt(&planning, Draft { diff: None, graph }, out);
            }
            (Err(faults), proposal) if self.rules.planner.is_some() => {
                self.reject(planning, &faults, &proposal.args().to_string(), out);
            }
            (Err(faults), _) => self.give_up(&faults.to_string(), out),
        }
    }

    /// Handles a plan, or a change, that a person submitted in place of the planner's.
    fn handle_edit(
        &mut self,
        mut planning: Planning,
        proposal: Proposal,
        args: &Value,
        out: &mut MachineOutput,
    ) {
        let text = args.to_string();
        let read = match (&proposal, self.phase.steps()) {
            (Proposal::Change(_), Some(steps)) => self.read_diff(steps, &planning.failed, &text),
            _ => {
                let graph = Plan::parse(&text).and_then(|plan| self.check(&Arc::new(plan)));
                graph.map(|graph| PlannerAnswer::Draft(Box::new(Draft { diff: None, graph })))
            }
        };
        match read {
            Ok(PlannerAnswer::Draft(draft)) => self.adopt(&planning, *draft, out),
            Ok(PlannerAnswer::GiveUp(reason)) => self.give_up(&reason, out),
            // A model does not fix what a person wrote: the person is asked again, about the
            // original proposal.
            Err(faults) => {
                Self::notify(out, || PlanNotice::Rejected {
                    faults: vec![faults.to_string()],
                });
                planning.edits = planning.edits.saturating_add(1);
                if planning.edits >= MAX_EDITS {
                    return self.handle_refusal(
                        &format!("the edited plan is invalid as well: {faults}"),
                        out,
                    );
                }
                self.propose(planning, proposal, out);
            }
        }
    }

    fn handle_refusal(&mut self, reason: &str, out: &mut MachineOutput) {
        match self.phase.running() {
            None => self.stop(Status::Cancelled {
                reason: format!("the plan was refused: {reason}"),
            }),
            Some(_) => self.give_up(&format!("the change was refused: {reason}"), out),
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
