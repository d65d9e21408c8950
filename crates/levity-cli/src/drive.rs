//! A run of several agents under way: what happens is shown, questions are asked, Ctrl-C cancels.

use std::future::Future;
use std::io::{self, Write as _};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use levity::core::{Ask, Decision, Timestamp};
use levity::prelude::*;
use levity::runtime::Control;

use crate::input::Input;
use crate::terminal::harmless;

/// Why a run is cancelled by Ctrl-C.
const INTERRUPTED: &str = "interrupted from the terminal";
/// How often running times are shown anew when nothing happens.
const TICK: Duration = Duration::from_secs(1);

/// What is known of a run, and where it is shown.
pub(crate) trait Stage {
    /// Until something has happened.
    async fn news(&self);
    /// What is asked now, and waits for an answer.
    fn asks(&self) -> Vec<Ask>;
    /// The words for a question, with who asks.
    fn words(&self, ask: &Ask) -> String;
    /// What a line says in answer to a question.
    fn decision(&self, ask: &Ask, line: &str) -> Decision;
    /// How long it is until it may be shown again.
    fn pause(&self, now: Timestamp) -> Duration;
    /// Whether time that passes is to be seen.
    fn is_live(&self) -> bool;
    /// Shows what is known.
    fn show(&self, now: Timestamp);
    /// Makes room for something that is printed or asked.
    fn clear(&self);
    /// Whether somebody is asked something, and nothing is to be printed meanwhile.
    fn hold(&self, asking: bool);
}

/// What a run came to.
pub(crate) struct Driven<R> {
    /// Nothing when it was left by a second Ctrl-C.
    pub(crate) result: Option<R>,
    /// Whether it was cancelled from here.
    pub(crate) interrupted: bool,
}

struct Watch<S> {
    control: Control,
    stage: Arc<S>,
    input: Input,
    /// What whoever sits there is asked just now.
    asked: Option<Ask>,
    /// What was answered, and has not heard the answer yet.
    answered: Vec<Ask>,
    /// Whether something has happened since it was shown.
    stale: bool,
    cancelled: bool,
}

/// Shows a run until it ends. Dropping `run` stops it.
pub(crate) async fn drive<R>(
    mut run: impl Future<Output = R> + Unpin,
    control: Control,
    stage: Arc<impl Stage>,
    runtime: &Runtime,
) -> Driven<R> {
    let world = runtime.world().clone();
    let (input, asked, answered) = (Input::new(), None, Vec::new());
    let mut watch = Watch {
        control,
        stage: stage.clone(),
        input,
        asked,
        answered,
        stale: true,
        cancelled: false,
    };
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
                stage.show(shown);
                watch.stale = false;
            }
            line = watch.input.line(""), if watch.asked.is_some() => watch.answered(line).await,
            () = stage.news() => watch.look().await,
            result = &mut run => break result,
        }
    };
    // All is told; what is not printed yet is.
    stage.show(world.now().max(shown));
    watch.end(Some(result))
}

impl<S: Stage> Watch<S> {
    /// How long it is until the run is shown again, and whether it may be.
    fn next_show(&self, now: Timestamp) -> (Duration, bool) {
        let wait = if self.stale {
            self.stage.pause(now)
        } else {
            TICK
        };
        (
            wait,
            self.asked.is_none() && (self.stale || self.stage.is_live()),
        )
    }

    /// Something has happened.
    async fn look(&mut self) {
        self.stale = true;
        let open = self.stage.asks();
        let still = |ask: &Ask| open.iter().any(|other| same(ask, other));
        self.answered.retain(still);
        if self.asked.as_ref().is_some_and(|ask| !still(ask)) {
            print("\n(no longer asked)\n");
            self.not_asking();
        }
        self.ask_next().await;
    }

    /// Asks what is to be asked next, if nothing is asked now.
    async fn ask_next(&mut self) {
        while self.asked.is_none() && !self.cancelled {
            let Some(ask) = self.open() else { return };
            if !Input::is_terminal() {
                if !self
                    .decide(ask, Decision::deny("nobody sits at the terminal"))
                    .await
                {
                    return;
                }
                continue;
            }
            let text = self.stage.words(&ask);
            self.stage.clear();
            self.stage.hold(true);
            // What was typed before the question was there is no answer to it.
            self.input.forget();
            print(&text);
            self.asked = Some(ask);
        }
    }

    /// What is asked and has no answer yet, first of all.
    fn open(&self) -> Option<Ask> {
        let open = |ask: &Ask| !self.answered.iter().any(|other| same(ask, other));
        self.stage.asks().into_iter().find(open)
    }

    /// Nobody is asked any more: what the question was, if there was one.
    fn not_asking(&mut self) -> Option<Ask> {
        self.stage.hold(false);
        self.asked.take()
    }

    /// Answers; says whether somebody waited for it. Otherwise it is seen at the next event what is
    /// still asked.
    async fn decide(&mut self, ask: Ask, decision: Decision) -> bool {
        let heard = self.control.decide(&ask, decision).await.is_ok();
        self.answered.extend(heard.then_some(ask));
        heard
    }

    async fn answered(&mut self, line: io::Result<Option<String>>) {
        let Some(ask) = self.not_asking() else { return };
        let line = line.ok().flatten().unwrap_or_default();
        let decision = self.stage.decision(&ask, line.trim());
        self.stale = true;
        if self.decide(ask, decision).await {
            self.ask_next().await;
        }
    }

    /// Leaves the run as it is; dropping its handle stops it.
    fn leave<R>(self) -> Driven<R> {
        Driven {
            interrupted: true,
            ..self.end(None)
        }
    }

    fn end<R>(self, result: Option<R>) -> Driven<R> {
        self.stage.clear();
        Driven {
            result,
            interrupted: self.cancelled,
        }
    }

    async fn cancel(&mut self) {
        self.cancelled = true;
        self.stage.clear();
        if self.not_asking().is_some() {
            print("\n");
        }
        print("(cancelled; Ctrl-C again leaves at once)\n");
        // A run that has ended meanwhile needs no cancelling.
        let _ = self.control.cancel(INTERRUPTED).await;
    }
}

/// Until the system wants this process to end: the terminal is to be as it was before.
pub(crate) async fn told_to_end() {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        if let (Ok(mut term), Ok(mut hangup)) = (
            signal(SignalKind::terminate()),
            signal(SignalKind::hangup()),
        ) {
            tokio::select! {
                _ = term.recv() => return,
                _ = hangup.recv() => return,
            }
        }
    }
    std::future::pending::<()>().await;
}

pub(crate) fn same(one: &Ask, other: &Ask) -> bool {
    one.run == other.run && one.effect == other.effect
}

pub(crate) fn print(text: &str) {
    let mut out = io::stderr().lock();
    let _ = out
        .write_all(harmless(text).as_bytes())
        .and_then(|()| out.flush());
}
