//! The display of a swarm: its state from events, its lines and its questions.
//!
//! The display is an observer: the runtime calls it for each event. It updates its state under a
//! lock and prints without awaiting anything, so no event is lost.
//!
//! Questions and lines exclude each other. While a person answers a question, lines are held back
//! in `deferred` and appear after the decision; otherwise they would break the line that the person
//! types. JSON Lines are printed in any case, because they go to standard output for a program.

use std::io::{self, Write as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use levity::core::{Ask, Decision, Event, EventKind, RunId, Timestamp};
use levity::observe::Lineage;
use tokio::sync::Notify;

use super::lines::line;
use crate::drive::RunDisplay;
use crate::follow::{decision, question};
use crate::terminal::{print_json, sanitize};

/// Prints lines for important events and holds open questions. It handles every event when it
/// happens, because a stream of events may miss some under load.
pub(crate) struct SwarmDisplay {
    state: Mutex<State>,
    news: Notify,
    lines: Lines,
    /// `true` if questions wait in the journal instead of being asked here.
    park: bool,
}

/// All fields change together under one lock, so a question never appears with the name of another
/// agent.
struct State {
    /// Maps run ids to agents, so a line can name the worker and not only its id.
    lineage: Lineage,
    /// The open questions, each with the agent that asks.
    asks: Vec<(String, Ask)>,
    /// True while a person is being asked, see `hold`.
    asking: bool,
    /// Lines to print once no question is open.
    deferred: Vec<String>,
}

/// The form in which events are printed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lines {
    /// One line for each important event, on the standard error.
    Plain,
    /// One JSON object for each event, on the standard output.
    Json,
    None,
}

impl SwarmDisplay {
    /// With `park`, no question is offered to the terminal; the runtime leaves the run in its
    /// journal instead.
    pub(crate) fn new(lines: Lines, park: bool) -> Arc<Self> {
        let lineage = Lineage::new("swarm");
        let state = State {
            lineage,
            asks: Vec::new(),
            asking: false,
            deferred: Vec::new(),
        };
        Arc::new(Self {
            state: Mutex::new(state),
            news: Notify::new(),
            lines,
            park,
        })
    }

    /// Returns a callback that handles the events of a run.
    pub(crate) fn watcher(self: &Arc<Self>) -> impl Fn(&Event) + Send + Sync + use<> {
        let display = self.clone();
        move |event| {
            display.event(event);
            display.news.notify_one();
        }
    }

    /// Applies earlier events without printing them.
    ///
    /// A resumed run needs the lineage of its earlier events, or its child runs would have no
    /// names. Questions of earlier events are not restored here: the resumed run asks them again.
    pub(crate) fn catch_up(&self, events: &[Event]) {
        let mut state = self.lock();
        for event in events {
            state.lineage.apply(event);
        }
    }

    /// Applies an event, prints its line or holds it back, and updates the open questions.
    fn event(&self, event: &Event) {
        let mut state = self.lock();
        let origin = state.lineage.apply(event);
        if self.lines == Lines::Json {
            print_json(event);
        }
        let line = line(event, &origin).filter(|_| self.lines == Lines::Plain);
        state.update_asks(event, &origin.agents()[1..].join(" › "));
        match state.asking {
            true => state.deferred.extend(line),
            false => line.iter().for_each(|line| print(line)),
        }
    }

    /// A panic in another thread while it held the lock leaves the state usable; the display goes
    /// on.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Adds a question when it is asked, and removes it when it is decided here or elsewhere
    /// (`levity runs approve` of another process), or when its run ends.
    fn update_asks(&mut self, event: &Event, agent: &str) {
        match &event.kind {
            EventKind::Asked(ask) => self.asks.push((agent.to_owned(), ask.clone())),
            EventKind::Decided { effect, .. } => {
                self.asks
                    .retain(|(_, ask)| ask.run != event.run || ask.effect != *effect);
            }
            EventKind::RunEnded(_) => self.remove_asks(&event.run),
            EventKind::ChildFinished { effect, .. } => self.remove_asks(&event.run.child(*effect)),
            _ => {}
        }
    }

    /// Removes the questions of a run and its child runs, which need no answer any more.
    ///
    /// Ids of child runs extend the id of their parent after a dot, so a prefix finds all
    /// descendants.
    fn remove_asks(&mut self, run: &RunId) {
        let below = format!("{run}.");
        self.asks
            .retain(|(_, ask)| ask.run != *run && !ask.run.as_str().starts_with(&below));
    }
}

impl RunDisplay for SwarmDisplay {
    async fn news(&self) {
        self.news.notified().await;
    }

    fn asks(&self) -> Vec<Ask> {
        match self.park {
            true => Vec::new(),
            false => self
                .lock()
                .asks
                .iter()
                .map(|(_, ask)| ask.clone())
                .collect(),
        }
    }

    /// The name of the asking worker precedes the question, because a decision depends on who asks.
    /// A question that has just been removed is attributed to the swarm.
    fn question(&self, ask: &Ask) -> String {
        let state = self.lock();
        let agent = state
            .asks
            .iter()
            .find(|(_, other)| crate::drive::is_same_ask(ask, other));
        format!(
            "{}:\n{}",
            agent.map_or("swarm", |(agent, _)| agent),
            question(ask)
        )
    }

    fn decision(&self, ask: &Ask, line: &str) -> Decision {
        decision(ask, line)
    }

    fn pause(&self, _: Timestamp) -> Duration {
        Duration::ZERO
    }

    fn is_live(&self) -> bool {
        false
    }

    /// Prints the lines that were held back while a question was open.
    fn show(&self, _: Timestamp) {
        let deferred = std::mem::take(&mut self.lock().deferred);
        deferred.iter().for_each(|line| print(line));
    }

    fn clear(&self) {}

    fn hold(&self, asking: bool) {
        self.lock().asking = asking;
    }
}

/// Writes to standard error, with unsafe characters replaced and a closed pipe ignored.
fn print(line: &str) {
    let _ = writeln!(io::stderr(), "{}", sanitize(line));
}
