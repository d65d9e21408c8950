//! The display of a plan: its view from events, and the screen that shows it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use levity::core::{Event, Timestamp};
use levity::observe::PlanView;
use tokio::sync::Notify;

use super::screen::{Screen, ViewKind};
use crate::logs::Logs;

/// The view of a run and its screen. It handles every event when it happens, because a stream of
/// events may miss some under load.
pub(crate) struct PlanDisplay {
    state: Mutex<State>,
    pub(super) news: Notify,
    logs: Logs,
    /// `true` if questions wait in the journal instead of being asked here.
    pub(super) park: bool,
}

pub(super) struct State {
    pub(super) view: PlanView,
    pub(super) screen: Screen,
    /// `true` while a question is open, so that nothing else is printed.
    pub(super) asking: bool,
}

impl PlanDisplay {
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

    /// Returns a callback that handles the events of a run.
    pub(crate) fn watcher(self: &Arc<Self>) -> impl Fn(&Event) + Send + Sync + use<> {
        let (display, log) = (self.clone(), self.logs.watcher(None));
        move |event| {
            log(event);
            display.lock().event(event);
            display.news.notify_one();
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
        // Lines are printed at once, because the view retains only the last of them.
        if !self.screen.is_live() && !self.asking {
            self.show(event.at);
        }
    }

    pub(super) fn show(&mut self, now: Timestamp) {
        self.screen.show(&self.view, now);
    }
}
