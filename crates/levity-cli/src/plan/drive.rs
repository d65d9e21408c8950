//! A plan under way, for whoever drives it.

use std::sync::Arc;
use std::time::Duration;

use levity::core::{Ask, Decision, Timestamp};
use levity::dag::{CARRY_OUT_PLAN as CARRY_OUT, Diff, Plan, Step, StepId, Team, TeamAnswer};
use levity::observe::{PlanView, TreeOptions};
use levity::prelude::*;
use levity::runtime::RunHandle;
use serde::Deserialize as _;

use super::told::Told;
use crate::drive::{self, Stage, same};
use crate::follow::{LONG_CALL, decision, question};
use crate::terminal::is_shown_whole;

/// What a run came to.
pub(super) struct Driven {
    /// Nothing when it was left by a second Ctrl-C.
    pub(super) result: Option<levity::dag::Result<TeamAnswer>>,
    pub(super) view: PlanView,
    /// Whether it was cancelled from here.
    pub(super) interrupted: bool,
}

/// Shows a run until it ends.
pub(super) async fn drive(run: RunHandle<Team>, told: Arc<Told>, runtime: &Runtime) -> Driven {
    let control = run.control().clone();
    let drive::Driven {
        result,
        interrupted,
    } = drive::drive(run, control, told.clone(), runtime).await;
    let view = std::mem::take(&mut told.lock().view);
    Driven {
        result,
        view,
        interrupted,
    }
}

impl Stage for Told {
    async fn news(&self) {
        self.news.notified().await;
    }

    fn asks(&self) -> Vec<Ask> {
        match self.park {
            true => Vec::new(),
            false => self
                .lock()
                .view
                .all_asks()
                .map(|(_, ask)| ask.clone())
                .collect(),
        }
    }

    fn words(&self, ask: &Ask) -> String {
        let state = self.lock();
        let step = state
            .view
            .all_asks()
            .find(|(_, other)| same(ask, other))
            .and_then(|(step, _)| step);
        asks(step.map(StepId::as_str), ask)
    }

    fn decision(&self, ask: &Ask, line: &str) -> Decision {
        decided(ask, line)
    }

    fn pause(&self, now: Timestamp) -> Duration {
        self.lock().screen.pause(now)
    }

    fn is_live(&self) -> bool {
        self.lock().screen.is_live()
    }

    fn show(&self, now: Timestamp) {
        self.lock().show(now);
    }

    fn clear(&self) {
        self.lock().screen.yield_to_others();
    }

    fn hold(&self, asking: bool) {
        self.lock().asking = asking;
    }
}

/// What is asked, with the step on whose behalf.
fn asks(step: Option<&str>, ask: &Ask) -> String {
    if ask.call.name == CARRY_OUT {
        let proposed = proposed(ask);
        let yes = match is_shown_whole(&proposed) {
            true => "yes? [y/N, or what is to be different]".to_owned(),
            false => format!("it is long; `{LONG_CALL}` allows it [N, or what is to be different]"),
        };
        return format!("{proposed}  {}: {yes} ", ask.reason);
    }
    match step {
        Some(step) => format!("{step}:\n{}", question(ask)),
        None => question(ask),
    }
}

/// The plan or the change that is asked about.
fn proposed(ask: &Ask) -> String {
    let args = &ask.call.args;
    if let Some(plan) = Plan::deserialize(args)
        .ok()
        .filter(|plan| !plan.steps.is_empty())
    {
        let details: String = plan.steps.iter().map(|step| details(step)).collect();
        return PlanView::of_plan(plan)
            .with_goal("the plan")
            .tree(TreeOptions::new())
            + &details;
    }
    match Diff::deserialize(args) {
        Ok(diff) => {
            let (added, changed) = (diff.add.iter(), diff.change.iter());
            let mut text = format!("{}\n", diff.reason);
            let line = |what: &str, id: &str, about: &str| format!("  {what} {id}: {about}\n");
            added.for_each(|step| text += &format!("  adds{}", details(step)));
            changed.for_each(|step| text += &format!("  changes{}", details(step)));
            diff.remove
                .iter()
                .for_each(|step| text += &line("removes", step.as_str(), ""));
            text
        }
        Err(_) => args.to_string(),
    }
}

/// All that a step of a proposed plan says: it is what somebody agrees to.
fn details(step: &Step) -> String {
    let mut text = format!("  step {}:\n", step.id);
    if let Ok(serde_json::Value::Object(fields)) = serde_json::to_value(step) {
        for (name, value) in fields.iter().filter(|(name, _)| *name != "id") {
            let value = value
                .as_str()
                .map_or_else(|| value.to_string(), str::to_owned);
            text += &format!("    {name}: {}\n", value.replace('\n', "\n      "));
        }
    }
    text
}

fn decided(ask: &Ask, line: &str) -> Decision {
    let is_whole = ask.call.name != CARRY_OUT || is_shown_whole(&proposed(ask));
    match line {
        "y" | "Y" | "yes" if !is_whole => Decision::deny("the plan is not agreed to"),
        LONG_CALL if ask.call.name == CARRY_OUT && !is_whole => Decision::Allow,
        "" | "n" | "N" | "no" if ask.call.name == CARRY_OUT => {
            Decision::deny("the user does not want it")
        }
        "y" | "Y" | "yes" => match ask.wanted {
            levity::core::Wanted::Answer => decision(ask, line),
            _ if ask.call.name == CARRY_OUT => Decision::Allow,
            _ => decision(ask, "y"),
        },
        words if ask.call.name == CARRY_OUT => Decision::answer(words),
        _ => decision(ask, line),
    }
}

#[cfg(test)]
mod tests {
    use levity::core::{EffectId, RunId, ToolCall};
    use serde_json::json;

    use super::*;

    fn ask(prompt: &str) -> Ask {
        let steps = json!([{"id": "one", "agent": "a", "description": "Reads.", "prompt": prompt}]);
        let call = ToolCall::new("c", CARRY_OUT, json!({"steps": steps}));
        Ask::new(RunId::new("r"), EffectId::new(1), call, "a plan")
    }

    #[test]
    fn proposed_plan_is_shown_with_all_that_its_steps_say() {
        assert!(asks(None, &ask("Delete everything.")).contains("Delete everything."));
        assert_eq!(decided(&ask("short"), "y"), Decision::Allow);
        let long = ask(&"long ".repeat(5_000));
        assert!(asks(None, &long).contains(LONG_CALL));
        assert_ne!(decided(&long, "y"), Decision::Allow);
        assert_eq!(decided(&long, LONG_CALL), Decision::Allow);
    }
}
