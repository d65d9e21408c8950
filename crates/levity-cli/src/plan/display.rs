//! The display of a plan: its view from events, and the screen that shows it.
//!
//! The runtime calls the watcher for each event, so the view is complete; the loop in
//! `crate::drive` refreshes the screen at its own rate. Both meet in one mutex. The lock is held
//! for the time of one drawing at most, and never across an await.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use levity::core::{Event, Timestamp};
use levity::observe::PlanView;
use tokio::sync::Notify;

use super::screen::{Screen, ViewKind};
use super::streamed::StreamedText;
use crate::logs::Logs;

/// The view of a run and its screen. It handles every event when it happens, because a stream of
/// events may miss some under load.
pub(crate) struct PlanDisplay {
    state: Mutex<State>,
    pub(super) news: Notify,
    logs: Arc<Logs>,
    /// `true` if questions wait in the journal instead of being asked here.
    pub(super) park: bool,
    /// `true` if the user may type commands while the run works.
    pub(super) takes_commands: bool,
}

/// View and screen change together, so a drawn frame always belongs to one state.
pub(super) struct State {
    pub(super) view: PlanView,
    pub(super) screen: Screen,
    streamed: StreamedText,
    /// `true` while a question is open, so that nothing else is printed.
    pub(super) asking: bool,
}

impl PlanDisplay {
    /// The view of a resumed run already contains its earlier events; a new run passes an empty
    /// one.
    pub(crate) fn new(
        view: PlanView,
        kind: ViewKind,
        logs: impl Into<Arc<Logs>>,
        park: bool,
    ) -> Arc<Self> {
        let screen = Screen::new(kind, &view);
        Arc::new(Self {
            state: Mutex::new(State::new(view, screen)),
            news: Notify::new(),
            logs: logs.into(),
            park,
            takes_commands: false,
        })
    }

    /// Creates the display of a goal in a session, in which the user also types commands. Lines
    /// include the text of running steps.
    pub(crate) fn for_session(kind: ViewKind, logs: Arc<Logs>) -> Arc<Self> {
        let view = PlanView::new();
        let screen = Screen::new(kind, &view).with_text();
        Arc::new(Self {
            state: Mutex::new(State::new(view, screen)),
            news: Notify::new(),
            logs,
            park: false,
            takes_commands: true,
        })
    }

    /// Returns a callback that handles the events of a run.
    ///
    /// The log is written first: it has no limits of a terminal and must contain an event even if
    /// drawing fails.
    pub(crate) fn watcher(self: &Arc<Self>) -> impl Fn(&Event) + Send + Sync + use<> {
        let (display, log) = (self.clone(), self.logs.watcher(None));
        move |event| {
            log(event);
            display.lock().event(event);
            display.news.notify_one();
        }
    }

    /// A poisoned lock is used anyway; a panic elsewhere should not hide the rest of the run.
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn new(view: PlanView, screen: Screen) -> Self {
        Self {
            view,
            screen,
            streamed: StreamedText::default(),
            asking: false,
        }
    }

    /// A live screen is not drawn here but by the loop, which limits the rate. Lines wait while a
    /// question is open.
    fn event(&mut self, event: &Event) {
        self.view.apply(event);
        self.screen.event(event);
        let lines = self.streamed.event(&self.view, event);
        if !self.asking {
            self.screen.text(&lines);
        }
        // Lines are printed at once, because the view retains only the last of them.
        if !self.screen.is_live() && !self.asking {
            self.show(event.at);
        }
    }

    /// Shows the view as of `now`, which matters for elapsed times.
    pub(super) fn show(&mut self, now: Timestamp) {
        self.screen.show(&self.view, &self.streamed, now);
    }
}
