//! A plan under way: events are taken in and shown, questions are asked, Ctrl-C cancels.

use std::io::{self, Write as _};
use std::pin::pin;
use std::time::Duration;

use levity::core::{Ask, Decision, Event, Timestamp};
use levity::dag::{Diff, Finished, Plan, TeamHandle, TreeOptions, View};
use levity::prelude::*;
use levity::runtime::Control;
use serde::Deserialize as _;

use super::screen::Screen;
use crate::follow::{decision, question};
use crate::input::Input;
use crate::terminal::harmless;

/// Why a run is cancelled by Ctrl-C.
const INTERRUPTED: &str = "interrupted from the terminal";
/// The name by which a run asks about its plan.
const CARRY_OUT: &str = "carry_out_plan";
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
    view: View,
    screen: Screen,
    input: Input,
    /// What whoever sits there is asked just now.
    asked: Option<Ask>,
    /// Whether something has happened since the view was shown.
    stale: bool,
    cancelled: bool,
}

/// Shows a run until it ends.
pub(super) async fn drive(mut run: TeamHandle, view: View, screen: Screen, runtime: &Runtime) -> Driven {
    let world = runtime.world().clone();
    let mut events = run.events();
    let control = run.control().clone();
    let mut watch =
        Watch { control, view, screen, input: Input::new(), asked: None, stale: true, cancelled: false };
    let mut interrupted = pin!(tokio::signal::ctrl_c());
    let mut ended = pin!(told_to_end());
    let mut shown = Timestamp::default();
    loop {
        let wait = match watch.stale {
            true => watch.screen.pause(world.now()),
            false => TICK,
        };
        let may_show = watch.asked.is_none() && (watch.stale || watch.screen.is_live());
        tokio::select! {
            biased;
            _ = &mut interrupted => {
                if watch.cancelled {
                    return watch.leave();
                }
                interrupted.set(tokio::signal::ctrl_c());
                watch.cancel().await;
            }
            () = &mut ended => return watch.leave(),
            () = world.sleep(wait), if may_show => {
                shown = world.now();
                watch.screen.show(&watch.view, shown);
                watch.stale = false;
            }
            line = watch.input.line(""), if watch.asked.is_some() => watch.answered(line).await,
            event = events.next() => match event {
                Some(event) => watch.event(&event).await,
                None => break,
            },
        }
    }
    // All is told; what is not printed yet is.
    let now = world.now().max(shown);
    watch.screen.show(&watch.view, now);
    watch.screen.yield_to_others();
    Driven { result: Some(run.await), view: watch.view, interrupted: watch.cancelled }
}

impl Watch {
    async fn event(&mut self, event: &Event) {
        self.screen.event(event);
        self.view.apply(event);
        self.stale = true;
        let still = |ask: &Ask| self.view.all_asks().any(|(_, other)| same(ask, other));
        if self.asked.as_ref().is_some_and(|ask| !still(ask)) {
            print("\n(no longer asked)\n");
            self.asked = None;
        }
        self.ask_next().await;
    }

    /// Asks what is to be asked next, if nothing is asked now.
    async fn ask_next(&mut self) {
        while self.asked.is_none() && !self.cancelled {
            let Some((step, ask)) = self.view.all_asks().next() else { return };
            let (text, ask) = (asks(step.map(levity::dag::StepId::as_str), ask), ask.clone());
            if !Input::is_terminal() {
                let nobody = Decision::deny("nobody sits at the terminal");
                // Whoever answered before, it needs no answer then.
                let _ = self.control.decide(&ask, nobody).await;
                return;
            }
            self.screen.yield_to_others();
            print(&text);
            self.asked = Some(ask);
        }
    }

    async fn answered(&mut self, line: io::Result<Option<String>>) {
        let Some(ask) = self.asked.take() else { return };
        let line = line.ok().flatten().unwrap_or_default();
        // A run that has ended meanwhile needs no answer.
        let _ = self.control.decide(&ask, decided(&ask, line.trim())).await;
        self.stale = true;
    }

    /// Leaves the run as it is; dropping its handle stops it.
    fn leave(mut self) -> Driven {
        self.screen.yield_to_others();
        Driven { result: None, view: self.view, interrupted: true }
    }

    async fn cancel(&mut self) {
        self.cancelled = true;
        self.asked = None;
        self.screen.yield_to_others();
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
