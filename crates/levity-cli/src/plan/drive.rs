//! Drives a plan: its questions and its decisions.
//!
//! The loop that waits for events, keys and signals is shared by all kinds of runs
//! (`crate::drive`); this module adds the parts that only plans have: the question about a whole
//! plan and the approval of its changes.
//!
//! A plan is approved as shown. All fields of all steps are printed, since a prompt or a tool that
//! is not visible could not be judged, and a plan of more than 8 KiB needs the typed word for long
//! calls instead of `y`. Any other text than yes or no is a wish for a change, and goes back to the
//! planner.

use std::sync::Arc;
use std::time::Duration;

use levity::core::{Ask, Decision, Timestamp};
use levity::dag::{APPROVE_PLAN_TOOL as CARRY_OUT, Diff, Plan, Step, StepId, Team, TeamAnswer};
use levity::observe::{PlanView, TreeOptions};
use levity::prelude::*;
use levity::runtime::RunHandle;
use serde::Deserialize as _;

use super::display::PlanDisplay;
use crate::drive::{self, Report, RunDisplay, is_same_ask};
use crate::follow::{LONG_CALL, decision, question};
use crate::input::Input;
use crate::terminal::is_shown_in_full;

/// The result of a driven plan.
///
/// The view outlives the run, because the summary and the exported graph are made from it.
pub(crate) struct PlanOutcome {
    /// The result of the run, or `None` if a second Ctrl-C ended the command.
    pub(crate) result: Option<levity::dag::Result<TeamAnswer>>,
    pub(crate) view: PlanView,
    /// `true` if the run was cancelled from here.
    pub(super) interrupted: bool,
}

/// Shows a run until it ends.
///
/// Takes the view out of the display at the end, so it is not copied.
pub(crate) async fn drive(
    run: RunHandle<Team>,
    display: Arc<PlanDisplay>,
    runtime: &Runtime,
    input: &mut Input,
) -> PlanOutcome {
    let control = run.control().clone();
    let drive::DriveOutcome {
        result,
        interrupted,
    } = drive::drive(run, control, display.clone(), runtime, input).await;
    let view = std::mem::take(&mut display.lock().view);
    PlanOutcome {
        result,
        view,
        interrupted,
    }
}

impl RunDisplay for PlanDisplay {
    async fn news(&self) {
        self.news.notified().await;
    }

    /// With `--park` nothing is asked here: the run is left in its journal, and `levity runs
    /// approve` answers.
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

    /// Names the step that asks, since several steps may ask at once.
    fn question(&self, ask: &Ask) -> String {
        let state = self.lock();
        let step = state
            .view
            .all_asks()
            .find(|(_, other)| is_same_ask(ask, other))
            .and_then(|(step, _)| step);
        question_text(step.map(StepId::as_str), ask)
    }

    fn decision(&self, ask: &Ask, line: &str) -> Decision {
        decision_from_line(ask, line)
    }

    /// Returns the time until the view has to be drawn again.
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
        self.lock().screen.clear();
    }

    /// Notes whether a question is open, which a redrawn view would hide.
    fn hold(&self, asking: bool) {
        self.lock().asking = asking;
    }

    fn takes_commands(&self) -> bool {
        self.takes_commands
    }

    /// The table of costs so far, and the tree.
    fn report(&self, about: Report, now: Timestamp) -> String {
        let view = &self.lock().view;
        match about {
            Report::Cost => view.summary(),
            Report::Tree => view.tree(TreeOptions::new().now(now)),
        }
    }
}

/// Returns the text of a question, with the step that asks it.
///
/// The question about a plan shows the plan, its reason and the possible answers in this order, so
/// the last line is the prompt.
fn question_text(step: Option<&str>, ask: &Ask) -> String {
    if ask.call.name == CARRY_OUT {
        let proposed = proposed(ask);
        let yes = match is_shown_in_full(&proposed) {
            true => "approve? [y/N, or describe the change]".to_owned(),
            false => format!(
                "the plan is too long to be shown in full; type `{LONG_CALL}` to \
                approve it [N, or describe the change]"
            ),
        };
        return format!("{proposed}  {}: {yes} ", ask.reason);
    }
    match step {
        Some(step) => format!("{step}:\n{}", question(ask)),
        None => question(ask),
    }
}

/// Returns the proposed plan or change as text.
///
/// The arguments of the call are a plan at first, and a difference to it later; both are recognized
/// by their form. Arguments of neither form are shown as JSON and not hidden.
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
            + &details
            + &other_fields(args, &["steps"]);
    }
    match Diff::deserialize(args) {
        Ok(diff) => {
            let (added, changed) = (diff.add.iter(), diff.change.iter());
            let mut text = format!("{}\n", diff.reason);
            let line = |action: &str, id: &str, about: &str| format!("  {action} {id}: {about}\n");
            added.for_each(|step| text += &format!("  adds{}", details(step)));
            changed.for_each(|step| text += &format!("  changes{}", details(step)));
            diff.remove
                .iter()
                .for_each(|step| text += &line("removes", step.as_str(), ""));
            text + &other_fields(args, &["reason", "add", "change", "remove"])
        }
        Err(_) => args.to_string(),
    }
}

/// Returns the fields of a proposed plan or change that no other line shows, such as the values
/// that it gives to its steps. The user approves them as well, so the length of the plan counts
/// them too. Empty fields are left out.
fn other_fields(args: &serde_json::Value, shown: &[&str]) -> String {
    let fields = args.as_object().into_iter().flatten();
    fields
        .filter(|(name, value)| {
            !shown.contains(&&***name)
                && !value.is_null()
                && value.as_object().is_none_or(|map| !map.is_empty())
                && value.as_array().is_none_or(|list| !list.is_empty())
        })
        .map(|(name, value)| field(name, value))
        .collect()
}

/// Returns one field of a proposal as text, or as JSON if it is not a text. Continued lines are
/// indented, so that no value can imitate another field.
fn field(name: &str, value: &serde_json::Value) -> String {
    let text = value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned);
    format!("    {name}: {}\n", text.replace('\n', "\n      "))
}

/// Returns all fields of a step of a proposed plan, because the user approves all of them.
///
/// Fields come from the serialized step, so a field that a later version adds is shown without a
/// change here. Continued lines are indented, and cannot imitate another step.
fn details(step: &Step) -> String {
    let mut text = format!("  step {}:\n", step.id);
    if let Ok(serde_json::Value::Object(fields)) = serde_json::to_value(step) {
        for (name, value) in fields.iter().filter(|(name, _)| *name != "id") {
            text += &field(name, value);
        }
    }
    text
}

/// An empty line denies, because Enter must never approve. `y` does not approve a plan that was not
/// shown in full. Questions of agents are decided by the rules that all kinds of runs share.
fn decision_from_line(ask: &Ask, line: &str) -> Decision {
    let is_complete = ask.call.name != CARRY_OUT || is_shown_in_full(&proposed(ask));
    match line {
        "y" | "Y" | "yes" if !is_complete => Decision::deny("the plan is not approved"),
        LONG_CALL if ask.call.name == CARRY_OUT && !is_complete => Decision::Allow,
        "" | "n" | "N" | "no" if ask.call.name == CARRY_OUT => {
            Decision::deny("the user denied the plan")
        }
        "y" | "Y" | "yes" => match ask.wanted {
            levity::core::AskKind::Answer => decision(ask, line),
            _ if ask.call.name == CARRY_OUT => Decision::Allow,
            _ => decision(ask, "y"),
        },
        change if ask.call.name == CARRY_OUT => Decision::answer(change),
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
    fn proposed_plan_shows_all_fields_of_its_steps() {
        assert!(question_text(None, &ask("Delete everything.")).contains("Delete everything."));
        assert_eq!(decision_from_line(&ask("short"), "y"), Decision::Allow);
        let long = ask(&"long ".repeat(5_000));
        assert!(question_text(None, &long).contains(LONG_CALL));
        assert_ne!(decision_from_line(&long, "y"), Decision::Allow);
        assert_eq!(decision_from_line(&long, LONG_CALL), Decision::Allow);
    }
}
