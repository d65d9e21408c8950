//! What is known about a run, as it is told.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use levity::core::{Event, Timestamp};
use levity::observe::PlanView;
use tokio::sync::Notify;

use super::screen::{Screen, ViewKind};
use crate::logs::Logs;

/// The view of a run and where it is shown. Every event is taken in when it happens: who listens to
/// a stream of events may miss some when there are many.
pub(crate) struct Told {
    state: Mutex<State>,
    pub(super) news: Notify,
    logs: Logs,
    /// Nobody is asked here; what is asked waits in the journal.
    pub(super) park: bool,
}

pub(super) struct State {
    pub(super) view: PlanView,
    pub(super) screen: Screen,
    /// Whether somebody is asked something, and nothing is printed meanwhile.
    pub(super) asking: bool,
}

impl Told {
    pub(crate) fn new(view: PlanView, kind: ViewKind, logs: Logs, park: bool) -> Arc<Self> {
        let screen = Screen::new(kind, &view);
        let state = Mutex::new(State {
            view,
            screen,
            asking: false,
        });
        Arc::new(Self {
            state,
            news: Notify::new(),
            logs,
            park,
        })
    }

    /// Takes in the events of a run.
    pub(crate) fn watcher(self: &Arc<Self>) -> impl Fn(&Event) + Send + Sync + use<> {
        let (told, log) = (self.clone(), self.logs.watcher(None));
        move |event| {
            log(event);
            told.lock().event(event);
            told.news.notify_one();
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn event(&mut self, event: &Event) {
        self.view.apply(event);
        self.screen.event(event);
        // Lines are printed as they come, since only the last of them are kept.
        if !self.screen.is_live() && !self.asking {
            self.show(event.at);
        }
    }

    pub(super) fn show(&mut self, now: Timestamp) {
        self.screen.show(&self.view, now);
    }
}
