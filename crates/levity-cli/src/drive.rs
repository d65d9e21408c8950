//! Drives a run of several agents: shows its events, asks questions, and cancels it on Ctrl-C.
//!
//! Teams and swarms share this loop; each brings its own display through `RunDisplay`. (A single
//! agent is followed by `follow`, which needs no refresh.) The loop waits for six things at once:
//! Ctrl-C, a signal to end, the time of the next refresh, a line of input, news, and the end of the
//! run. It is biased in this order, so signals are noticed even while events flood in.
//!
//! The first Ctrl-C cancels the run and waits for its orderly end; the second one, or a signal to
//! end, leaves at once. In both cases the display is cleared, so the terminal is usable. A run in a
//! journal can be resumed after either.
//!
//! One question is asked at a time. Questions that another process answers meanwhile are withdrawn,
//! and answers whose effect is not visible yet are remembered, so none is asked twice.

use std::future::Future;
use std::io::{self, Write as _};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use levity::core::{Ask, Decision, Timestamp};
use levity::prelude::*;
use levity::runtime::Control;

use crate::input::Input;
use crate::terminal::sanitize;

/// The reason that is recorded when Ctrl-C cancels a run.
///
/// The journal stores it, so `levity runs show` tells how the run ended.
const INTERRUPTED: &str = "interrupted from the terminal";
/// The interval at which running times are refreshed if nothing happens.
const TICK: Duration = Duration::from_secs(1);

/// The state of a run, and the display that shows it.
///
/// # Contract
/// - All methods take `&self`, and an observer changes the state from another task; implementations
///   lock inside.
/// - `news` completes after each event that happened since the last call; several events may be
///   joined.
/// - `asks` returns a question until its decision or the end of its run is visible as an event, and
///   nothing if questions are to be parked.
/// - `show` is not called while a question is open, and prints lines that were held back.
pub(crate) trait RunDisplay {
    /// Waits until something has happened.
    async fn news(&self);
    /// Returns the questions that wait for an answer.
    fn asks(&self) -> Vec<Ask>;
    /// Returns the text of a question, with the agent that asks it.
    fn question(&self, ask: &Ask) -> String;
    /// Converts a line into the decision on a question.
    fn decision(&self, ask: &Ask, line: &str) -> Decision;
    /// Returns the time until the display may be refreshed.
    fn pause(&self, now: Timestamp) -> Duration;
    /// Returns `true` if the display shows elapsed time.
    fn is_live(&self) -> bool;
    /// Shows the current state.
    fn show(&self, now: Timestamp);
    /// Clears the display for other output or a question.
    fn clear(&self);
    /// Suspends output while a question is open.
    fn hold(&self, asking: bool);

    /// Returns `true` if the user may type commands while the run works.
    fn takes_commands(&self) -> bool {
        false
    }

    /// Returns a report on the run, for a command of the user.
    fn report(&self, _about: Report, _now: Timestamp) -> String {
        String::new()
    }
}

/// A report on a run that the user can ask for while it works.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Report {
    /// The time, tokens and money so far.
    Cost,
    /// The tree of its steps.
    Tree,
}

/// The commands that a user can type while a run works, after Enter.
const COMMANDS: &str = "/pause, /resume, /cost, /tree, /cancel";

/// The result of a driven run.
pub(crate) struct DriveOutcome<R> {
    /// The result of the run, or `None` if a second Ctrl-C ended the command.
    pub(crate) result: Option<R>,
    /// `true` if the run was cancelled from here.
    pub(crate) interrupted: bool,
}

/// The part of the loop's state that methods change; futures of the `select!` stay outside.
struct Driver<'a, S> {
    control: Control,
    display: Arc<S>,
    input: &'a mut Input,
    /// The use of lines that answer no question.
    commands: Commands,
    /// The question that the user is being asked.
    asked: Option<Ask>,
    /// Questions with an answer that their runs have not received yet.
    answered: Vec<Ask>,
    /// `true` if something has happened since the last refresh.
    stale: bool,
    /// True after the first Ctrl-C; no more questions are asked then.
    cancelled: bool,
}

/// The use of lines that answer no question.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Commands {
    /// They are not read.
    Off,
    /// An empty line asks for a command; a command can also be typed directly.
    Waiting,
    /// The next line is a command, and nothing else is printed until then.
    Prompt,
}

/// Shows a run until it ends. Dropping `run` stops it.
///
/// On a terminal, the user may type commands if the display takes them. Lines of a pipe are left
/// for the caller.
///
/// The run ends before its last events are shown at the regular rate, so the display is refreshed
/// once more at the end.
pub(crate) async fn drive<R>(
    mut run: impl Future<Output = R> + Unpin,
    control: Control,
    display: Arc<impl RunDisplay>,
    runtime: &Runtime,
    input: &mut Input,
) -> DriveOutcome<R> {
    let world = runtime.world().clone();
    let (asked, answered) = (None, Vec::new());
    let commands = match display.takes_commands() && Input::is_terminal() {
        true => Commands::Waiting,
        false => Commands::Off,
    };
    let mut driver = Driver {
        control,
        display: display.clone(),
        input,
        commands,
        asked,
        answered,
        stale: true,
        cancelled: false,
    };
    let mut interrupted = pin!(tokio::signal::ctrl_c());
    let mut ended = pin!(termination_signal());
    let mut shown = Timestamp::default();
    let result = loop {
        let (wait, may_show) = driver.next_show(world.now());
        tokio::select! {
            biased;
            _ = &mut interrupted => {
                if driver.cancelled {
                    return driver.leave();
                }
                interrupted.set(tokio::signal::ctrl_c());
                // A second Ctrl-C does not wait until the run has received the cancellation.
                tokio::select! {
                    biased;
                    _ = &mut interrupted => return driver.leave(),
                    () = driver.cancel() => {}
                }
            }
            () = &mut ended => return driver.leave(),
            () = world.sleep(wait), if may_show => {
                shown = world.now();
                display.show(shown);
                driver.stale = false;
            }
            line = driver.input.line(""), if driver.reads() => match driver.asked {
                Some(_) => driver.answered(line).await,
                None => driver.command(line, world.now()).await,
            },
            () = display.news() => driver.handle_news().await,
            result = &mut run => break result,
        }
    };
    // The run has ended, so the display shows the rest.
    display.show(world.now().max(shown));
    driver.end(Some(result))
}

impl<S: RunDisplay> Driver<'_, S> {
    /// Returns `true` if a line of the user would be used.
    fn reads(&self) -> bool {
        self.asked.is_some() || (self.commands != Commands::Off && !self.cancelled)
    }

    /// Handles a line that answers no question: an empty one asks for a command.
    ///
    /// The end of the input ends the commands, not the run.
    async fn command(&mut self, line: io::Result<Option<String>>, now: Timestamp) {
        let Ok(Some(line)) = line else {
            self.end_prompt(Commands::Off);
            return;
        };
        let line = line.trim();
        if line.is_empty() && self.commands == Commands::Waiting {
            self.display.clear();
            self.display.hold(true);
            self.commands = Commands::Prompt;
            print(&format!("command ({COMMANDS}): "));
            return;
        }
        self.display.clear();
        if !line.is_empty() {
            self.execute(line, now).await;
        }
        self.end_prompt(Commands::Waiting);
        self.ask_next().await;
    }

    /// Executes a command of the user. A run that has just ended needs none.
    async fn execute(&mut self, command: &str, now: Timestamp) {
        match command {
            "/pause" => {
                let _ = self.control.pause().await;
                print("(paused: steps in progress end, and none starts; `/resume` continues)\n");
            }
            "/resume" => {
                let _ = self.control.resume().await;
                print("(resumed)\n");
            }
            "/cost" => print(&self.display.report(Report::Cost, now)),
            "/tree" => print(&self.display.report(Report::Tree, now)),
            "/cancel" => self.cancel().await,
            _ => print(&format!("(unknown command; the commands are {COMMANDS})\n")),
        }
    }

    fn end_prompt(&mut self, commands: Commands) {
        if self.commands == Commands::Prompt {
            self.display.hold(false);
        }
        self.commands = commands;
        self.stale = true;
    }

    /// Returns `true` if a question or a prompt is open, so that nothing else is printed.
    fn is_busy(&self) -> bool {
        self.asked.is_some() || self.commands == Commands::Prompt
    }

    /// Returns the time until the next refresh, and `true` if one is due.
    ///
    /// A stale display waits for its own pause, a live one for the next second, and others need no
    /// refresh. Nothing is due while a question is open.
    fn next_show(&self, now: Timestamp) -> (Duration, bool) {
        let wait = if self.stale {
            self.display.pause(now)
        } else {
            TICK
        };
        (
            wait,
            !self.is_busy() && (self.stale || self.display.is_live()),
        )
    }

    /// Handles news of the run.
    ///
    /// A question that is no longer open is withdrawn with a message, and the line that the user
    /// types next is discarded by the next question.
    async fn handle_news(&mut self) {
        self.stale = true;
        let open = self.display.asks();
        let is_open = |ask: &Ask| open.iter().any(|other| is_same_ask(ask, other));
        self.answered.retain(is_open);
        if self.asked.as_ref().is_some_and(|ask| !is_open(ask)) {
            print("\n(the question is no longer open)\n");
            self.end_question();
        }
        self.ask_next().await;
    }

    /// Asks the next question, if none is being asked.
    ///
    /// Without a terminal each question is denied at once, and the reason reaches the model. The
    /// loop ends when a decision is not received, because the list of questions is out of date
    /// then.
    async fn ask_next(&mut self) {
        while !self.is_busy() && !self.cancelled {
            let Some(ask) = self.open() else { return };
            if !Input::is_terminal() {
                if !self
                    .decide(
                        ask,
                        Decision::deny(
                            "there is no terminal to ask for approval; use `--park` to decide \
                             later",
                        ),
                    )
                    .await
                {
                    return;
                }
                continue;
            }
            let text = self.display.question(&ask);
            self.display.clear();
            self.display.hold(true);
            // Text that was typed before the question appeared is not an answer to it.
            self.input.discard_typed();
            print(&text);
            self.asked = Some(ask);
        }
    }

    /// Returns the first question that has no answer yet.
    ///
    /// Questions are asked in the order in which the display lists them.
    fn open(&self) -> Option<Ask> {
        let open = |ask: &Ask| !self.answered.iter().any(|other| is_same_ask(ask, other));
        self.display.asks().into_iter().find(open)
    }

    /// Ends the current question and returns it, if there is one.
    fn end_question(&mut self) -> Option<Ask> {
        self.display.hold(false);
        self.asked.take()
    }

    /// Answers a question, and returns `true` if a run received the answer. Otherwise the next
    /// event shows which questions are still open.
    ///
    /// A decision is not received if its run has ended or another process has decided first.
    async fn decide(&mut self, ask: Ask, decision: Decision) -> bool {
        let received = self.control.decide(&ask, decision).await.is_ok();
        self.answered.extend(received.then_some(ask));
        received
    }

    /// A failed read or the end of the input counts as an empty line, which denies.
    async fn answered(&mut self, line: io::Result<Option<String>>) {
        let Some(ask) = self.end_question() else {
            return;
        };
        let line = line.ok().flatten().unwrap_or_default();
        let decision = self.display.decision(&ask, line.trim());
        self.stale = true;
        if self.decide(ask, decision).await {
            self.ask_next().await;
        }
    }

    /// Leaves the run as it is; dropping its handle stops it.
    ///
    /// The result is `None`, which the caller reports as an interruption with exit code 130.
    fn leave<R>(self) -> DriveOutcome<R> {
        DriveOutcome {
            interrupted: true,
            ..self.end(None)
        }
    }

    /// Clears the display and reports if Ctrl-C cancelled the run.
    fn end<R>(self, result: Option<R>) -> DriveOutcome<R> {
        self.display.clear();
        if self.commands == Commands::Prompt {
            // The line that the user is typing belongs to the next prompt.
            print("\n");
        }
        DriveOutcome {
            result,
            interrupted: self.cancelled,
        }
    }

    /// An open question ends with a line break, so the message starts on its own line.
    async fn cancel(&mut self) {
        self.cancelled = true;
        self.display.clear();
        if self.end_question().is_some() {
            print("\n");
        }
        print("(cancelled; press Ctrl-C again to quit at once)\n");
        // A run that has already ended needs no cancellation.
        let _ = self.control.cancel(INTERRUPTED).await;
    }
}

/// Waits until the system asks this process to end, so that the terminal can be restored.
///
/// Covers SIGTERM and SIGHUP on Unix; elsewhere it never returns. If handlers cannot be installed,
/// the default action of the signals stays.
pub(crate) async fn termination_signal() {
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

/// The effect alone is not unique, since each child run counts its effects from the beginning.
pub(crate) fn is_same_ask(one: &Ask, other: &Ask) -> bool {
    one.run == other.run && one.effect == other.effect
}

/// Writes to standard error without a line break, and flushes, so that a prompt is visible.
pub(crate) fn print(text: &str) {
    let mut out = io::stderr().lock();
    let _ = out
        .write_all(sanitize(text).as_bytes())
        .and_then(|()| out.flush());
}
