//! A plan under way, for whoever drives it.

use std::sync::Arc;
use std::time::Duration;

use levity::core::{Ask, Decision, Timestamp};
use levity::dag::{CARRY_OUT_PLAN as CARRY_OUT, Diff, Finished, Plan, StepId, TeamHandle, TreeOptions, View};
use levity::prelude::*;
use serde::Deserialize as _;

use super::told::Told;
use crate::drive::{self, Stage, same};
use crate::follow::{decision, question};

/// What a run came to.
pub(super) struct Driven {
    /// Nothing when it was left by a second Ctrl-C.
    pub(super) result: Option<levity::dag::Result<Finished>>,
    pub(super) view: View,
    /// Whether it was cancelled from here.
    pub(super) interrupted: bool,
}

/// Shows a run until it ends.
pub(super) async fn drive(run: TeamHandle, told: Arc<Told>, runtime: &Runtime) -> Driven {
    let control = run.control().clone();
    let drive::Driven { result, interrupted } = drive::drive(run, control, told.clone(), runtime).await;
    let view = std::mem::take(&mut told.lock().view);
    Driven { result, view, interrupted }
}

impl Stage for Told {
    async fn news(&self) {
        self.news.notified().await;
    }

    fn asks(&self) -> Vec<Ask> {
        self.lock().view.all_asks().map(|(_, ask)| ask.clone()).collect()
    }

    fn words(&self, ask: &Ask) -> String {
        let state = self.lock();
        let step = state.view.all_asks().find(|(_, other)| same(ask, other)).and_then(|(step, _)| step);
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
        return format!("{}  {}: yes? [y/N, or what is to be different] ", proposed(ask), ask.reason);
    }
    match step {
        Some(step) => format!("{step}:\n{}", question(ask)),
        None => question(ask),
    }
}

/// The plan or the change that is asked about.
fn proposed(ask: &Ask) -> String {
    let args = &ask.call.args;
    if let Some(plan) = Plan::deserialize(args).ok().filter(|plan| !plan.steps.is_empty()) {
        return View::of_plan(plan).with_goal("the plan").tree(TreeOptions::new());
    }
    match Diff::deserialize(args) {
        Ok(diff) => {
            let (added, changed) = (diff.add.iter(), diff.change.iter());
            let mut text = format!("{}\n", diff.reason);
            let line = |what: &str, id: &str, about: &str| format!("  {what} {id}: {about}\n");
            added.for_each(|step| text += &line("adds", step.id.as_str(), &step.description));
            changed.for_each(|step| text += &line("changes", step.id.as_str(), &step.description));
            diff.remove.iter().for_each(|step| text += &line("removes", step.as_str(), ""));
            text
        }
        Err(_) => args.to_string(),
    }
}

fn decided(ask: &Ask, line: &str) -> Decision {
    match line {
        "" | "n" | "N" | "no" if ask.call.name == CARRY_OUT => Decision::deny("the user does not want it"),
        "y" | "Y" | "yes" => match ask.wanted {
            levity::core::Wanted::Answer => decision(ask, line),
            _ => Decision::Allow,
        },
        words if ask.call.name == CARRY_OUT => Decision::answer(words),
        _ => decision(ask, line),
    }
}
