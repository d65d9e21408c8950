//! A plan under way: events are taken in and shown, questions are asked, Ctrl-C cancels.

use std::io::{self, Write as _};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use levity::core::{Ask, Decision, Timestamp};
use levity::dag::{CARRY_OUT_PLAN as CARRY_OUT, Diff, Finished, Plan, StepId, TeamHandle, TreeOptions, View};
use levity::prelude::*;
use levity::runtime::Control;
use serde::Deserialize as _;

use super::told::Told;
use crate::follow::{decision, question};
use crate::input::Input;
use crate::terminal::harmless;

/// Why a run is cancelled by Ctrl-C.
const INTERRUPTED: &str = "interrupted from the terminal";
/// How often running times are shown anew when nothing happens.
const TICK: Duration = Duration::from_secs(1);

/// What a run came to.
pub(super) struct Driven {
    /// Nothing when it was left by a second Ctrl-C.
    pub(super) result: Option<levity::dag::Result<Finished>>,
    pub(super) view: View,
    /// Whether it was cancelled from here.
    pub(super) interrupted: bool,
}

struct Watch {
    control: Control,
    told: Arc<Told>,
    input: Input,
    /// What whoever sits there is asked just now.
    asked: Option<Ask>,
    /// What was answered, and has not heard the answer yet.
    answered: Vec<Ask>,
    /// Whether something has happened since the view was shown.
    stale: bool,
    cancelled: bool,
}

/// Shows a run until it ends.
pub(super) async fn drive(mut run: TeamHandle, told: Arc<Told>, runtime: &Runtime) -> Driven {
    let world = runtime.world().clone();
    let control = run.control().clone();
    let (input, asked, answered) = (Input::new(), None, Vec::new());
    let mut watch =
        Watch { control, told: told.clone(), input, asked, answered, stale: true, cancelled: false };
    let mut interrupted = pin!(tokio::signal::ctrl_c());
    let mut ended = pin!(told_to_end());
    let mut shown = Timestamp::default();
    let result = loop {
        let (wait, may_show) = watch.next_show(world.now());
        tokio::select! {
            biased;
            _ = &mut interrupted => {
                if watch.cancelled {
                    return watch.leave();
                }
                interrupted.set(tokio::signal::ctrl_c());
                // Whoever presses twice does not wait for the run to hear it.
                tokio::select! {
                    biased;
                    _ = &mut interrupted => return watch.leave(),
                    () = watch.cancel() => {}
                }
            }
            () = &mut ended => return watch.leave(),
            () = world.sleep(wait), if may_show => {
                shown = world.now();
                told.lock().show(shown);
                watch.stale = false;
            }
            line = watch.input.line(""), if watch.asked.is_some() => watch.answered(line).await,
            () = told.news() => watch.look().await,
            result = &mut run => break result,
        }
    };
    // All is told; what is not printed yet is.
    told.lock().show(world.now().max(shown));
    watch.end(Some(result))
}

impl Watch {
    /// How long it is until the view is shown again, and whether it may be.
    fn next_show(&self, now: Timestamp) -> (Duration, bool) {
        let screen = &self.told.lock().screen;
        let wait = if self.stale { screen.pause(now) } else { TICK };
        (wait, self.asked.is_none() && (self.stale || screen.is_live()))
    }

    /// Something has happened.
    async fn look(&mut self) {
        self.stale = true;
        let gone = {
            let state = self.told.lock();
            let still = |ask: &Ask| state.view.all_asks().any(|(_, other)| same(ask, other));
            self.answered.retain(still);
            self.asked.as_ref().is_some_and(|ask| !still(ask))
        };
        if gone {
            print("\n(no longer asked)\n");
            self.not_asking();
        }
        self.ask_next().await;
    }

    /// Asks what is to be asked next, if nothing is asked now.
    async fn ask_next(&mut self) {
        while self.asked.is_none() && !self.cancelled {
            let Some((text, ask)) = self.open() else { return };
            if !Input::is_terminal() {
                if !self.decide(ask, Decision::deny("nobody sits at the terminal")).await {
                    return;
                }
                continue;
            }
            {
                let mut state = self.told.lock();
                state.screen.yield_to_others();
                state.asking = true;
            }
            // What was typed before the question was there is no answer to it.
            self.input.forget();
            print(&text);
            self.asked = Some(ask);
        }
    }

    /// What is asked and has no answer yet, first of all; with the words for it.
    fn open(&self) -> Option<(String, Ask)> {
        let state = self.told.lock();
        let open = |(_, ask): &(_, &Ask)| !self.answered.iter().any(|other| same(ask, other));
        let (step, ask) = state.view.all_asks().find(open)?;
        Some((asks(step.map(StepId::as_str), ask), ask.clone()))
    }

    /// Nobody is asked any more: what the question was, if there was one.
    fn not_asking(&mut self) -> Option<Ask> {
        self.told.lock().asking = false;
        self.asked.take()
    }

    /// Answers; says whether somebody waited for it. Otherwise it is seen at the next event what is still asked.
    async fn decide(&mut self, ask: Ask, decision: Decision) -> bool {
        let heard = self.control.decide(&ask, decision).await.is_ok();
        self.answered.extend(heard.then_some(ask));
        heard
    }

    async fn answered(&mut self, line: io::Result<Option<String>>) {
        let Some(ask) = self.not_asking() else { return };
        let line = line.ok().flatten().unwrap_or_default();
        let decision = decided(&ask, line.trim());
        self.stale = true;
        if self.decide(ask, decision).await {
            self.ask_next().await;
        }
    }

    /// Leaves the run as it is; dropping its handle stops it.
    fn leave(self) -> Driven {
        Driven { interrupted: true, ..self.end(None) }
    }

    fn end(self, result: Option<levity::dag::Result<Finished>>) -> Driven {
        let mut state = self.told.lock();
        state.screen.yield_to_others();
        Driven { result, view: std::mem::take(&mut state.view), interrupted: self.cancelled }
    }

    async fn cancel(&mut self) {
        self.cancelled = true;
        self.told.lock().screen.yield_to_others();
        if self.not_asking().is_some() {
            print("\n");
        }
        print("(cancelled; Ctrl-C again leaves at once)\n");
        // A run that has ended meanwhile needs no cancelling.
        let _ = self.control.cancel(INTERRUPTED).await;
    }
}

/// Until the system wants this process to end: the terminal is to be as it was before.
async fn told_to_end() {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        if let (Ok(mut term), Ok(mut hangup)) =
            (signal(SignalKind::terminate()), signal(SignalKind::hangup()))
        {
            tokio::select! {
                _ = term.recv() => return,
                _ = hangup.recv() => return,
            }
        }
    }
    std::future::pending::<()>().await;
}

fn same(one: &Ask, other: &Ask) -> bool {
    one.run == other.run && one.effect == other.effect
}

fn print(text: &str) {
    let mut out = io::stderr().lock();
    let _ = out.write_all(harmless(text).as_bytes()).and_then(|()| out.flush());
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
