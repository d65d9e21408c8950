//! Builds the brief for a planner.
//!
//! A brief is complete in itself: a planner keeps no memory between calls, so a request after a
//! rejected draft repeats the goal and adds the complaints and the draft. Values and errors are
//! shortened, because a brief with all outputs of a large plan would not fit into a context window.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use levity_core::text::head;
use serde_json::{Value, json};

use super::GraphMachine;
use super::phase::Planning;
use super::plan::{FILES, MAX_FILES_TOKENS, PROFILES, QUERY};
use crate::planner::{PlannerInput, Replan, shortened};
use crate::schedule::Scheduler;
use crate::step::StepId;

impl GraphMachine {
    pub(super) fn brief(&self, planning: &Planning) -> PlannerInput {
        let known = &self.rules.known;
        let agents = known.runners.iter();
        let given = self.with_given(&Arc::default()).given.clone();
        let given = given
            .iter()
            .filter(|(name, _)| !matches!(&***name, QUERY | FILES | PROFILES));
        PlannerInput {
            goal: self.start.goal.clone(),
            messages: self.now.messages.clone(),
            agents: agents
                .map(|(name, runner)| (name.clone(), runner.description.clone()))
                .collect(),
            code: known.code,
            given: shortened(given.map(|(name, value)| (&**name, value.clone()))),
            media: self.start.media.to_vec(),
            files: self.file_facts(),
            replan: self.phase.steps().map(|steps| self.replan(steps, planning)),
            complaints: planning.drafts.complaints().to_vec(),
            previous: planning.drafts.previous().map(str::to_owned),
            partial_plan: (planning.pieces > 0).then(|| Value::Object(planning.kept.clone())),
        }
    }

    /// Returns the description of the files for the planner.
    fn file_facts(&self) -> Option<Value> {
        let facts = self.start.files.as_ref()?.as_text(MAX_FILES_TOKENS);
        Some(match &self.now.profiles {
            Some(profiles) => json!({"facts": facts, "what they hold": profiles}),
            None => Value::String(facts),
        })
    }

    fn replan(&self, steps: &Scheduler, planning: &Planning) -> Replan {
        let reason = |id: &StepId| {
            let node = steps
                .graph()
                .find(id.as_str())
                .and_then(|at| steps.node(at));
            node.and_then(|node| node.error.as_deref())
                .unwrap_or("no error was reported")
                .to_owned()
        };
        Replan {
            plan: self.plan_with_status(steps),
            results: shortened(
                self.values()
                    .iter()
                    .map(|(name, value)| (&**name, value.clone())),
            ),
            failed: planning
                .failed
                .iter()
                .map(|id| (id.clone(), reason(id)))
                .collect(),
            remaining_replans: self.start.settings.replans.saturating_sub(self.now.replans),
        }
    }

    fn plan_with_status(&self, steps: &Scheduler) -> Value {
        let each = steps.nodes().filter_map(|(at, node)| {
            let mut step = serde_json::to_value(&**steps.step(at)?).ok()?;
            let object = step.as_object_mut()?;
            object.insert("status".to_owned(), node.status.as_str().into());
            if let Some(error) = &node.error {
                object.insert("error".to_owned(), head(error, 500).into());
            }
            Some(step)
        });
        json!({"steps": each.collect::<Vec<_>>()})
    }

    /// Returns all variables that have a value now.
    pub(crate) fn values(&self) -> BTreeMap<Arc<str>, Value> {
        let Some(steps) = self.phase.steps() else {
            return self.start.given.clone();
        };
        let plan = steps.graph().plan();
        let written = plan.steps.iter().flat_map(|step| &step.writes);
        // The set makes sure that the values of many writers are combined only once.
        let names: BTreeSet<&Arc<str>> = plan.given.keys().chain(written).collect();
        let named = names
            .into_iter()
            .filter(|name| !matches!(&***name, QUERY | FILES | PROFILES));
        named
            .filter_map(|name| Some((name.clone(), steps.read(name, None)?)))
            .collect()
    }
}
