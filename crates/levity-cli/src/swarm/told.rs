//! What is known about a run, as it is told.

use std::io::{self, Write as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use levity::core::{Ask, Decision, Event, EventKind, RunId, Timestamp};
use levity::observe::Lineage;
use tokio::sync::Notify;

use super::lines::line;
use crate::drive::Stage;
use crate::follow::{decision, question};
use crate::terminal::{harmless, say_json};

/// Lines for everything that matters, and what is asked. Every event is taken in when it happens:
/// who listens to a stream of events may miss some when there are many.
pub(crate) struct Told {
    state: Mutex<State>,
    news: Notify,
    lines: Lines,
    /// Nobody is asked here; what is asked waits in the journal.
    park: bool,
}

struct State {
    lineage: Lineage,
    /// What is asked, and who asks.
    asks: Vec<(String, Ask)>,
    asking: bool,
    /// What is printed when nobody is asked something any more.
    held: Vec<String>,
}

/// The form in which events are printed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lines {
    /// A line for those that matter, on the standard error.
    Plain,
    /// A JSON object, on the standard output.
    Json,
    None,
}

impl Told {
    pub(crate) fn new(lines: Lines, park: bool) -> Arc<Self> {
        let lineage = Lineage::new("swarm");
        let state = State {
            lineage,
            asks: Vec::new(),
            asking: false,
            held: Vec::new(),
        };
        Arc::new(Self {
            state: Mutex::new(state),
            news: Notify::new(),
            lines,
            park,
        })
    }

    /// Takes in the events of a run.
    pub(crate) fn watcher(self: &Arc<Self>) -> impl Fn(&Event) + Send + Sync + use<> {
        let told = self.clone();
        move |event| {
            told.event(event);
            told.news.notify_one();
        }
    }

    /// Takes in what was told before, of which nothing is printed.
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
            say_json(event);
        }
        let line = line(event, &origin).filter(|_| self.lines == Lines::Plain);
        state.note_ask(event, &origin.agents()[1..].join(" › "));
        match state.asking {
            true => state.held.extend(line),
            false => line.iter().for_each(|line| print(line)),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn note_ask(&mut self, event: &Event, who: &str) {
        match &event.kind {
            EventKind::Asked(ask) => self.asks.push((who.to_owned(), ask.clone())),
            EventKind::Decided { effect, .. } => {
                self.asks
                    .retain(|(_, ask)| ask.run != event.run || ask.effect != *effect);
            }
            EventKind::RunEnded(_) => self.forget(&event.run),
            EventKind::ChildFinished { effect, .. } => self.forget(&event.run.child(*effect)),
            _ => {}
        }
    }

    /// What a run and the runs below it have asked needs no answer any more.
    fn forget(&mut self, run: &RunId) {
        let below = format!("{run}.");
        self.asks
            .retain(|(_, ask)| ask.run != *run && !ask.run.as_str().starts_with(&below));
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
                .asks
                .iter()
                .map(|(_, ask)| ask.clone())
                .collect(),
        }
    }

    fn words(&self, ask: &Ask) -> String {
        let state = self.lock();
        let who = state
            .asks
            .iter()
            .find(|(_, other)| crate::drive::same(ask, other));
        format!(
            "{}:\n{}",
            who.map_or("swarm", |(who, _)| who),
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
        let held = std::mem::take(&mut self.lock().held);
        held.iter().for_each(|line| print(line));
    }

    fn clear(&self) {}

    fn hold(&self, asking: bool) {
        self.lock().asking = asking;
    }
}

fn print(line: &str) {
    let _ = writeln!(io::stderr(), "{}", harmless(line));
}
