//! The display of a swarm: its state from events, its lines and its questions.

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

struct State {
    lineage: Lineage,
    /// The open questions, each with the agent that asks.
    asks: Vec<(String, Ask)>,
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
    pub(crate) fn catch_up(&self, events: &[Event]) {
        let mut state = self.lock();
        for event in events {
            state.lineage.apply(event);
        }
    }

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

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
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

    fn show(&self, _: Timestamp) {
        let deferred = std::mem::take(&mut self.lock().deferred);
        deferred.iter().for_each(|line| print(line));
    }

    fn clear(&self) {}

    fn hold(&self, asking: bool) {
        self.lock().asking = asking;
    }
}

fn print(line: &str) {
    let _ = writeln!(io::stderr(), "{}", sanitize(line));
}
