//! What a person says to plans and changes.

use std::sync::Arc;

use levity_core::{Ask, Decision, Effect, EffectId, Outcome, Status, Step as Wants, ToolCall};
use serde_json::{Value, json};

use super::plan::Read;
use super::{CARRY_OUT, Doing, Draft, GraphMachine};
use crate::fault::{Fault, FaultKind, Faults};
use crate::notice::Notice;
use crate::plan::Plan;

/// How often a person may put something in the place of a plan that cannot be carried out. A program that answers for one
/// could do so for ever.
const MOST_EDITS: u32 = 10;

impl GraphMachine {
    /// Takes a plan on, or asks a person first.
    pub(super) fn consider(&mut self, draft: Draft, wants: &mut Wants) {
        if !self.start.settings.approve {
            return self.adopt(draft, wants);
        }
        let (reason, args) = match &draft.diff {
            Some(diff) => ("a step failed, and the plan is to be changed", serde_json::to_value(diff)),
            None => ("this plan is to be carried out", serde_json::to_value(draft.graph.plan())),
        };
        let effect = EffectId::new(self.next);
        let call = ToolCall::new(effect.to_string(), CARRY_OUT, args.unwrap_or_default());
        let ask = Ask::new(self.run.clone(), effect, call, reason);
        self.planning.get_or_insert_default().draft = Some(draft);
        self.want(Effect::Ask(ask), Doing::Approve, wants);
    }

    pub(super) fn approved(&mut self, outcome: Outcome, wants: &mut Wants) {
        let Some(draft) = self.planning.as_mut().and_then(|planning| planning.draft.take()) else { return };
        match outcome {
            Outcome::Decision(Decision::Allow) => self.allowed(draft, wants),
            Outcome::Decision(Decision::Edit { args }) => self.edited(draft, &args, wants),
            Outcome::Decision(Decision::Answer { text }) if self.rules.planner.is_some() => {
                let what = draft.diff.map_or_else(|| json!(draft.graph.plan()), |diff| json!(diff));
                let message = format!("the user says: {text}");
                let faults = Faults { faults: vec![Fault::new(FaultKind::Malformed, message)], more: 0 };
                self.reject(&faults, &what.to_string(), wants);
            }
            Outcome::Decision(Decision::Answer { text }) => self.refused(&text, wants),
            Outcome::Decision(Decision::Deny { reason }) => self.refused(&reason, wants),
            other => self.refused(&super::rounds::why_not(&other), wants),
        }
    }

    /// A person agrees. Steps may have begun in the meantime, so a change is checked once more.
    fn allowed(&mut self, draft: Draft, wants: &mut Wants) {
        let (Some(diff), Some(steps)) = (&draft.diff, &self.steps) else { return self.adopt(draft, wants) };
        let failed = self.planning.as_ref().map(|planning| planning.failed.as_slice()).unwrap_or_default();
        match self.changed(steps, failed, diff) {
            Ok(graph) => self.adopt(Draft { graph, ..draft }, wants),
            Err(faults) if self.rules.planner.is_some() => {
                self.reject(&faults, &json!(diff).to_string(), wants);
            }
            Err(faults) => self.no_plan(&faults.to_string(), wants),
        }
    }

    /// A person has put another plan, or another change, in the place of the planner's.
    fn edited(&mut self, draft: Draft, args: &Value, wants: &mut Wants) {
        let text = args.to_string();
        let failed = self.planning.as_ref().map(|planning| planning.failed.clone()).unwrap_or_default();
        let read = match (&draft.diff, &self.steps) {
            (Some(_), Some(steps)) => self.read_diff(steps, &failed, &text),
            _ => {
                let graph = Plan::parse(&text).and_then(|plan| self.check(&Arc::new(plan)));
                graph.map(|graph| Read::Draft(Box::new(Draft { diff: None, graph })))
            }
        };
        match read {
            Ok(Read::Draft(draft)) => self.adopt(*draft, wants),
            Ok(Read::GiveUp(why)) => self.no_plan(&why, wants),
            // What a person wrote is not mended by a model: the person is asked again, about the plan as it was.
            Err(faults) => {
                Self::tell(wants, || Notice::Rejected { faults: vec![faults.to_string()] });
                let planning = self.planning.get_or_insert_default();
                planning.edits += 1;
                if planning.edits >= MOST_EDITS {
                    return self.refused(&format!("what was put in its place is no better: {faults}"), wants);
                }
                self.consider(draft, wants);
            }
        }
    }

    fn refused(&mut self, reason: &str, wants: &mut Wants) {
        let replan = self.planning.as_ref().map_or(0, |planning| planning.replan);
        match replan {
            0 => self.stop(Status::Cancelled { reason: format!("the plan was refused: {reason}") }),
            _ => self.no_plan(&format!("the change was refused: {reason}"), wants),
        }
    }
}
